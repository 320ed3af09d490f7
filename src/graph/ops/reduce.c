/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, and broadcasting, which is their gradient. */
#include <math.h>

#include "src/graph/op.h"

static int64_t count_over(tsr_dims dims, uint32_t mask)
{
    int64_t n = 1;
    for (int i = 0; i < dims.ndim; i++)
        if (mask >> i & 1)
            n *= dims.d[i];
    return n;
}

tsr_tensor *tsri_sum_operand(const tsri_ctx *c, tsr_tensor *x, const tsr_sum_opts *opts,
                             tsr_dtype *out_dtype)
{
    tsr_sum_opts o = *TSR_SUM_OPTS();
    if (!tsri_want_options(c, &o, sizeof o, opts))
        return NULL;
    if (o.dtype && !tsr_dtype_size(o.dtype)) {
        tsri_op_refuse(c, TSR_ERR_DTYPE, "no such dtype: %d", (int)o.dtype);
        return NULL;
    }
    x = tsri_full(c, x);
    const bool is_whole = !tsri_is_float(x->dtype) && !tsri_is_float(o.dtype);
    /* Whole numbers may wrap last, to the same result; bools, which do not wrap, are made first. */
    if (o.dtype && (!is_whole || o.dtype == TSR_BOOL))
        x = tsri_make_cast(x, o.dtype, c->loc);
    *out_dtype = o.dtype ? o.dtype : tsri_sum_dtype(x);
    return x;
}

tsr_tensor *tsr_sum_with_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const tsr_sum_opts *opts,
                            const char *file, int line)
{
    TSRI_FUNCTION(c);
    uint32_t mask;
    tsr_dtype dtype;
    if (!tsri_function_begin(&c, "sum", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axes(&c, x, axes, &mask) || !(x = tsri_sum_operand(&c, x, opts, &dtype)))
        return c.failed;
    return tsri_make_cast(tsri_make_sum(x, mask, keepdim, 1, c.loc), dtype, c.loc);
}

tsr_tensor *tsr_sum_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file, int line)
{
    return tsr_sum_with_at(x, axes, keepdim, NULL, file, line);
}

tsr_tensor *tsr_mean_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file, int line)
{
    TSRI_FUNCTION(c);
    uint32_t mask;
    if (!tsri_function_begin(&c, "mean", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axes(&c, x, axes, &mask) || !tsri_want_float(&c, x))
        return c.failed;
    return tsri_make_sum(x, mask, keepdim, 1.0 / (double)count_over(x->shape, mask), c.loc);
}

static tsr_tensor *declare_extreme(const char *name, tsr_tensor *x, tsr_reduce_op op, tsr_axes axes,
                                   bool keepdim, tsri_loc loc)
{
    tsri_ctx c;
    uint32_t mask;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc) || !tsri_want_axes(&c, x, axes, &mask))
        return c.failed;
    if (count_over(x->shape, mask) == 0)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "%s over axes of size 0; nothing has no %s: name axes with elements",
                            tsri_op_dims(&c, x), name);
    return tsri_make_reduce(x, op, mask, keepdim, 1, loc);
}

tsr_tensor *tsr_max_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file, int line)
{
    return declare_extreme("max", x, TSR_REDUCE_MAX, axes, keepdim, (tsri_loc){file, line});
}

tsr_tensor *tsr_min_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file, int line)
{
    return declare_extreme("min", x, TSR_REDUCE_MIN, axes, keepdim, (tsri_loc){file, line});
}

/* --- variance --------------------------------------------------------------------------------- */

/* Declares sum (x - mean)^2 / (n - correction); with the axes split, both sums are boxed. */
static tsr_tensor *declare_variance(const char *name, tsr_tensor *x, tsr_axes axes, bool keepdim,
                                    double correction, tsri_loc loc)
{
    TSRI_FUNCTION(c);
    uint32_t mask;
    if (!tsri_function_begin(&c, name, 1, &x, 0, loc) || !tsri_want_float(&c, x) ||
        !tsri_want_axes(&c, x, axes, &mask))
        return c.failed;
    int64_t n = count_over(x->shape, mask);
    if (!(correction >= 0 && correction < (double)n))
        return tsri_op_fail(&c, TSR_ERR_INVALID,
                            "of %lld elements with correction %g; it must be at least 0 and less "
                            "than their number",
                            (long long)n, correction);
    tsr_tensor *mean = tsri_make_reduce(x, TSR_REDUCE_SUM, mask, true, 1 / (double)n, loc);
    tsr_tensor *diff = tsri_make_binary(name, TSRI_BINARY_SUB, x, mean, 0, loc);
    if (!diff->failed) /* the sum is least about the mean, so it has no slope there */
        tsri_full_op(diff)->attrs.binary.fixed = 1u << 1;
    tsr_tensor *square = tsri_make_binary(name, TSRI_BINARY_MUL, diff, diff, 0, loc);
    return tsri_make_sum(square, mask, keepdim, 1 / ((double)n - correction), loc);
}

tsr_tensor *tsr_variance_at(tsr_tensor *x, tsr_axes axes, bool keepdim, double correction,
                            const char *file, int line)
{
    return declare_variance("variance", x, axes, keepdim, correction, (tsri_loc){file, line});
}

/* s^(1/p) whose gradient at s = 0 is 0, as at any minimum, not infinite: 1 is added where s is 0
 * and taken off the root again. */
static tsr_tensor *root(tsr_tensor *s, double p, tsri_loc loc)
{
    if (s->failed)
        return s;
    tsr_tensor *zero = tsri_make_fill(s->graph, TSR_SCALAR, s->dtype, s->placement, 0, loc);
    tsr_tensor *is_zero = tsri_make_binary("norm", TSRI_BINARY_EQUAL, s, zero, s->dtype, loc);
    tsr_tensor *safe = tsri_make_binary("norm", TSRI_BINARY_ADD, s, is_zero, 0, loc);
    tsr_tensor *r = p == 2 ? tsri_make_unary(safe, TSRI_UNARY_SQRT, 0, loc)
                           : tsri_make_unary(safe, TSRI_UNARY_POW, 1 / p, loc);
    return tsri_make_binary("norm", TSRI_BINARY_SUB, r, is_zero, 0, loc);
}

tsr_tensor *tsr_norm_at(tsr_tensor *x, double p, tsr_axes axes, bool keepdim, const char *file,
                        int line)
{
    tsri_loc loc = {file, line};
    TSRI_FUNCTION(c);
    uint32_t mask;
    if (!tsri_function_begin(&c, "norm", 1, &x, 0, loc) || !tsri_want_float(&c, x) ||
        !tsri_want_axes(&c, x, axes, &mask))
        return c.failed;
    if (!(p > 0))
        return tsri_op_fail(&c, TSR_ERR_INVALID,
                            "p is %g; it must be above 0 (INFINITY: the maximum)", p);
    x = tsri_full(&c, x);
    if (isinf(p))
        return declare_extreme("norm", tsri_make_unary(x, TSRI_UNARY_ABS, 0, loc), TSR_REDUCE_MAX,
                               axes, keepdim, loc);
    tsr_tensor *power = p == 2 ? tsri_make_binary("norm", TSRI_BINARY_MUL, x, x, 0, loc)
                               : tsri_make_unary(x, TSRI_UNARY_ABS, 0, loc);
    if (p != 1 && p != 2)
        power = tsri_make_unary(power, TSRI_UNARY_POW, p, loc);
    tsr_tensor *sum = tsri_make_sum(power, mask, keepdim, 1, loc);
    return p == 1 ? sum : root(sum, p, loc);
}

tsr_tensor *tsr_std_at(tsr_tensor *x, tsr_axes axes, bool keepdim, double correction,
                       const char *file, int line)
{
    tsri_loc loc = {file, line};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "std", 1, &x, 0, loc))
        return c.failed;
    return root(declare_variance("std", x, axes, keepdim, correction, loc), 2, loc);
}

/* A: all axes, B: those of the result, C: all axes, '.' for those that are reduced. */
static void name_axes(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    const uint32_t axes = op->attrs.reduce.axes;
    const int ndim = op->in[0]->shape.ndim;
    tsri_axes_text(names->a, ndim, 0, 0);
    tsri_axes_text(names->b, ndim, axes, op->attrs.reduce.keepdim ? '1' : 0);
    tsri_axes_text(names->c, ndim, axes, '.');
}

static const char *rule_reduce(const tsri_op *op)
{
    const int32_t how = op->attrs.reduce.op;
    if (how == TSR_REDUCE_SUM && tsri_wraps_before(op->in[0]->dtype, op->out[0]->dtype))
        return "!A -> B";
    return how == TSR_REDUCE_SUM   ? "A -> B"
           : how == TSR_REDUCE_MIN ? "!^A -> min B"
           : how == TSR_REDUCE_MAX ? "!^A -> max B"
                                   : "!A -> max B";
}

/* Gives t back the axes that the reduction dropped, as 1. Leading ones come by broadcasting. */
static tsr_tensor *with_axes(const tsri_op *op, tsr_tensor *t)
{
    uint32_t mask = op->attrs.reduce.axes;
    if (op->attrs.reduce.keepdim || (mask & (mask + 1)) == 0)
        return t;
    return tsri_make_reshape(t, tsri_keepdim(op->in[0]->shape, mask), op->loc);
}

/* Returns dy, the gradient of a result that is f32 where operand x is a half, in x's dtype. */
static tsr_tensor *as_operand(tsr_tensor *dy, const tsr_tensor *x, tsri_loc loc)
{
    if (dy->failed || dy->dtype == x->dtype)
        return dy;
    return tsr_cast_at(dy, x->dtype, loc.file, loc.line);
}

static void grad_reduce(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    const char *file = op->loc.file;
    int line = op->loc.line;
    tsr_tensor *x = op->in[0], *dy = with_axes(op, dout[0]);
    if (op->attrs.reduce.op == TSR_REDUCE_SUM) {
        dy = as_operand(tsri_make_scale(dy, op->attrs.reduce.scale, op->loc), x, op->loc);
        din[0] = tsr_expand_at(dy, x->shape, file, line);
        return;
    }
    /* Equal extremes share: dx = [x == y] * dy / ties. */
    tsr_tensor *y = with_axes(op, op->out[0]);
    tsr_tensor *hit = tsri_make_binary("max", TSRI_BINARY_EQUAL, x, y, x->dtype, op->loc);
    tsr_tensor *ties =
        tsri_make_sum(hit, op->attrs.reduce.axes, op->attrs.reduce.keepdim, 1, op->loc);
    ties = with_axes(op, ties);
    din[0] = tsr_mul_at(hit, tsr_div_at(dy, ties, file, line), file, line);
}

static const tsri_attr_field reduce_attrs[] = {
    TSRI_ATTR_FIELD(reduce.op, I32, "reduction"), TSRI_ATTR_FIELD(reduce.axes, MASK, "axes"),
    TSRI_ATTR_FIELD(reduce.keepdim, I32, "keepdim"), TSRI_ATTR_FIELD(reduce.scale, F64, "factor"),
    TSRI_ATTR_END};

static bool is_extreme(const tsri_attrs *attrs)
{
    return attrs->reduce.op == TSR_REDUCE_MAX || attrs->reduce.op == TSR_REDUCE_MIN;
}

static bool is_sum(const tsri_attrs *attrs)
{
    return attrs->reduce.op == TSR_REDUCE_SUM;
}

const tsri_op_def tsri_def_reduce = {.rule_of = rule_reduce,
                                     .exact_of = is_extreme,
                                     .sums = is_sum,
                                     .names = name_axes,
                                     .gradient = grad_reduce,
                                     .flops_per_element = 1,
                                     .layout = TSRI_LAYOUT_REDUCE,
                                     .rows = TSRI_ROWS_FOLD,
                                     .attrs = reduce_attrs};
/* The gradient of x comes from the parts after it. */
const tsri_op_def tsri_def_softmax_max = {.rule_of = rule_reduce,
                                          .is_exact = true,
                                          .names = name_axes,
                                          .flops_per_element = 1,
                                          .attrs = reduce_attrs,
                                          .autocast = TSRI_AUTOCAST_F32};

/* --- prod ------------------------------------------------------------------------------------- */

tsr_tensor *tsr_prod_with_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const tsr_sum_opts *opts,
                             const char *file, int line)
{
    tsri_ctx c;
    uint32_t mask;
    tsr_dtype dtype;
    if (!tsri_op_begin(&c, "prod", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axes(&c, x, axes, &mask) || !(x = tsri_sum_operand(&c, x, opts, &dtype)))
        return c.failed;
    tsr_dims shape = keepdim ? tsri_keepdim(x->shape, mask) : tsri_drop_axes(x->shape, mask);
    if (count_over(x->shape, mask) == 1)
        return tsri_make_cast(tsri_as_result(tsri_make_reshape(x, shape, c.loc), x, c.loc), dtype,
                              c.loc);
    tsri_attrs attrs = {0};
    attrs.reduce.op = TSR_REDUCE_PRODUCT;
    attrs.reduce.axes = mask;
    attrs.reduce.keepdim = keepdim;
    tsr_tensor *y =
        tsri_graph_add1(c.g, TSRI_OP_PROD, &attrs, 1, &x, shape, tsri_sum_dtype(x), c.loc);
    return tsri_make_cast(y, dtype, c.loc);
}

tsr_tensor *tsr_prod_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file, int line)
{
    return tsr_prod_with_at(x, axes, keepdim, NULL, file, line);
}

static void grad_prod(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsr_tensor *x = op->in[0];
    tsr_dims kept = tsri_keepdim(x->shape, op->attrs.reduce.axes);
    tsr_tensor *in[2] = {x, tsri_make_reshape(dout[0], kept, op->loc)};
    din[0] = tsri_graph_add_like(TSRI_OP_PROD_DX, &op->attrs, 2, in, x, op->loc);
}

static void name_prod_dx(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    name_axes(op, names, out);
    tsri_axes_text(names->b, op->in[0]->shape.ndim, op->attrs.reduce.axes, '1');
}

const tsri_op_def tsri_def_prod = {.rule_text = "!C -> B",
                                   .names = name_axes,
                                   .gradient = grad_prod,
                                   .flops_per_element = 1,
                                   .attrs = reduce_attrs,
                                   .rows = TSRI_ROWS_FOLD,
                                   .autocast = TSRI_AUTOCAST_F32};
const tsri_op_def tsri_def_prod_dx = {.rule_text = "!C, B -> C",
                                      .names = name_prod_dx,
                                      .flops_per_element = 4,
                                      .attrs = reduce_attrs};

/* --- argmax ----------------------------------------------------------------------------------- */

tsr_tensor *tsr_argmax_at(tsr_tensor *x, int axis, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "argmax", 1, &x, 0, loc) || !tsri_want_axis(&c, x, &axis))
        return c.failed;
    if (x->shape.d[axis] == 0)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "axis %d of %s has size 0; nothing has no maximum",
                            axis, tsri_op_dims(&c, x));
    tsri_attrs attrs = {0};
    attrs.softmax.axis = axis;
    return tsri_graph_add1(c.g, TSRI_OP_ARGMAX, &attrs, 1, &x, tsri_drop_axes(x->shape, 1u << axis),
                           TSR_I64, loc);
}

static void name_argmax(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    tsri_axes_text(names->a, op->in[0]->shape.ndim, 1u << op->attrs.softmax.axis, '.');
    tsri_axes_text(names->b, op->in[0]->shape.ndim, 1u << op->attrs.softmax.axis, 0);
}

static const tsri_attr_field argmax_attrs[] = {TSRI_ATTR_FIELD(softmax.axis, I32, "axis"),
                                               TSRI_ATTR_END};

const tsri_op_def tsri_def_argmax = {
    .rule_text = "!A -> B", .names = name_argmax, .flops_per_element = 1, .attrs = argmax_attrs};

/* --- expand ----------------------------------------------------------------------------------- */

tsr_tensor *tsr_expand_at(tsr_tensor *x, tsr_dims dims, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "expand", 1, &x, 0, loc) ||
        !tsri_want_new(&c, x->dtype, dims, x->placement, TSR_AUTO))
        return c.failed;
    int lead = dims.ndim - x->shape.ndim;
    bool fits = lead >= 0;
    for (int i = 0; i < x->shape.ndim && fits; i++)
        fits = x->shape.d[i] == 1 || x->shape.d[i] == dims.d[lead + i];
    if (!fits)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "%s to %s; from the right, each axis must be equal or grow from 1",
                            tsri_op_dims(&c, x), tsri_dims_text(c.g, dims));
    if (tsr_dims_equal(x->shape, dims))
        return tsri_as_result(x, x, loc);
    return tsri_graph_add1(c.g, TSRI_OP_EXPAND, NULL, 1, &x, dims, x->dtype, loc);
}

static tsr_status rule_expand(const tsri_op *op, tsri_rule_text *out)
{
    char in[TSRI_AXES_TEXT], res[TSRI_AXES_TEXT];
    tsr_dims from = op->in[0]->shape, to = op->out[0]->shape;
    int lead = to.ndim - from.ndim;
    char *p = in;
    for (int i = 0; i < from.ndim; i++) {
        if (p > in)
            *p++ = ' ';
        *p++ = from.d[i] == to.d[lead + i] ? tsri_letters[lead + i] : '1';
    }
    *p = 0;
    return tsri_write_rule(out, "%s -> %s", p > in ? in : "()", tsri_axes_text(res, to.ndim, 0, 0));
}

static void grad_expand(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    din[0] = tsri_make_sum_to(dout[0], op->in[0]->shape, op->loc);
}

const tsri_op_def tsri_def_expand = {.spreads = true,
                                     .rule = rule_expand,
                                     .gradient = grad_expand,
                                     .is_exact = true,
                                     .rows = TSRI_ROWS_MAP};
