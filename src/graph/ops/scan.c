/* SPDX-License-Identifier: Apache-2.0 */
/* Along one axis, which is not split: running sums, products and extremes; sorting; another size.
 * Values that are picked, by tsr_gather from their places, have its gradient. */
#include "src/graph/op.h"

/* A: all axes of operand 0, but that of attrs.scan, which is first in all attributes here. */
static void name_line(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    tsri_axes_text(names->a, op->in[0]->shape.ndim, 1u << op->attrs.scan.axis, '.');
}

/* --- sums ------------------------------------------------------------------------------------- */

static tsr_tensor *add_cumsum(tsr_tensor *x, int axis, bool reverse, tsri_loc loc)
{
    tsri_attrs attrs = {0};
    attrs.cumsum.axis = axis;
    attrs.cumsum.reverse = reverse;
    return tsri_graph_add1(x->graph, TSRI_OP_CUMSUM, &attrs, 1, &x, x->shape, tsri_sum_dtype(x),
                           loc);
}

tsr_tensor *tsr_cumsum_with_at(tsr_tensor *x, int axis, const tsr_sum_opts *opts, const char *file,
                               int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    tsr_dtype dtype;
    if (!tsri_op_begin(&c, "cumsum", 1, &x, 0, loc) || !tsri_want_axis(&c, x, &axis) ||
        !(x = tsri_sum_operand(&c, x, opts, &dtype)))
        return c.failed;
    tsr_tensor *y =
        x->shape.d[axis] > 1 ? add_cumsum(x, axis, false, loc) : tsri_as_result(x, x, loc);
    return tsri_make_cast(y, dtype, loc);
}

tsr_tensor *tsr_cumsum_at(tsr_tensor *x, int axis, const char *file, int line)
{
    return tsr_cumsum_with_at(x, axis, NULL, file, line);
}

/* Addends of a narrow whole number would not wrap in i64. */
static const char *rule_cumsum(const tsri_op *op)
{
    return tsri_wraps_before(op->in[0]->dtype, op->out[0]->dtype) ? "!A -> A" : "A -> A";
}

static void grad_cumsum(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    din[0] = add_cumsum(dout[0], op->attrs.cumsum.axis, !op->attrs.cumsum.reverse, op->loc);
}

static const tsri_attr_field cumsum_attrs[] = {TSRI_ATTR_FIELD(cumsum.axis, I32, "axis"),
                                               TSRI_ATTR_FIELD(cumsum.reverse, I32, "reverse"),
                                               TSRI_ATTR_END};

const tsri_op_def tsri_def_cumsum = {.rule_of = rule_cumsum,
                                     .names = name_line,
                                     .gradient = grad_cumsum,
                                     .flops_per_element = 1,
                                     .attrs = cumsum_attrs,
                                     .autocast = TSRI_AUTOCAST_F32};

/* --- products, and sums of exponentials ------------------------------------------------------- */

static tsr_tensor *declare_scan(const char *name, tsr_tensor *x, int axis, tsri_scan_fn fn,
                                tsri_loc loc)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc) || !tsri_want_axis(&c, x, &axis) ||
        !tsri_want_float(&c, x))
        return c.failed;
    tsri_attrs attrs = {0};
    attrs.scan.axis = axis;
    attrs.scan.fn = fn;
    return x->shape.d[axis] > 1 ? tsri_graph_add_like(TSRI_OP_SCAN, &attrs, 1, &x, x, loc)
                                : tsri_as_result(x, x, loc);
}

tsr_tensor *tsr_cumprod_at(tsr_tensor *x, int axis, const char *file, int line)
{
    return declare_scan("cumprod", x, axis, TSRI_SCAN_PRODUCT, (tsri_loc){file, line});
}

tsr_tensor *tsr_logcumsumexp_at(tsr_tensor *x, int axis, const char *file, int line)
{
    return declare_scan("logcumsumexp", x, axis, TSRI_SCAN_LOG_SUM_EXP, (tsri_loc){file, line});
}

static void grad_scan(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsr_tensor *in[3] = {op->in[0], tsri_saved(op, 0), dout[0]};
    din[0] = tsri_graph_add_like(TSRI_OP_SCAN_DX, &op->attrs, 3, in, op->in[0], op->loc);
}

static const tsri_attr_field scan_attrs[] = {TSRI_ATTR_FIELD(scan.axis, I32, "axis"),
                                             TSRI_ATTR_FIELD(scan.fn, I32, "function"),
                                             TSRI_ATTR_END};

static tsri_autocast autocast_scan(const tsri_attrs *attrs)
{
    return attrs->scan.fn == TSRI_SCAN_PRODUCT ? TSRI_AUTOCAST_F32 : TSRI_AUTOCAST_WIDEST;
}

const tsri_op_def tsri_def_scan = {.rule_text = "!A -> A",
                                   .names = name_line,
                                   .gradient = grad_scan,
                                   .flops_per_element = 1,
                                   .attrs = scan_attrs,
                                   .autocast_of = autocast_scan};
const tsri_op_def tsri_def_scan_dx = {
    .rule_text = "!A, !A, A -> A", .names = name_line, .flops_per_element = 4, .attrs = scan_attrs};

/* --- places: of running extremes, of sorted elements ------------------------------------------ */

static tsr_tensor *declare_extremes(const char *name, tsr_tensor *x, int axis, tsri_scan_fn fn,
                                    tsr_tensor **out_ids, tsri_loc loc)
{
    tsri_ctx c;
    if (out_ids)
        *out_ids = NULL;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc) || !tsri_want_axis(&c, x, &axis))
        return c.failed;
    tsri_attrs attrs = {0};
    attrs.scan.axis = axis;
    attrs.scan.fn = fn;
    tsr_tensor *ids = tsri_graph_add1(c.g, TSRI_OP_ARGSCAN, &attrs, 1, &x, x->shape, TSR_I64, loc);
    if (out_ids)
        *out_ids = ids;
    return tsr_gather_at(x, axis, ids, loc.file, loc.line);
}

tsr_tensor *tsr_cummax_at(tsr_tensor *x, int axis, tsr_tensor **out_ids, const char *file, int line)
{
    return declare_extremes("cummax", x, axis, TSRI_SCAN_MAX, out_ids, (tsri_loc){file, line});
}

tsr_tensor *tsr_cummin_at(tsr_tensor *x, int axis, tsr_tensor **out_ids, const char *file, int line)
{
    return declare_extremes("cummin", x, axis, TSRI_SCAN_MIN, out_ids, (tsri_loc){file, line});
}

/* Returns the places of the first `count` in order; all where count is negative. */
static tsr_tensor *declare_order(const tsri_ctx *c, tsr_tensor *x, int *axis, bool descending,
                                 int64_t count)
{
    if (!tsri_want_axis(c, x, axis))
        return c->failed;
    const int64_t n = x->shape.d[*axis];
    if (count > n)
        return tsri_op_fail(c, TSR_ERR_INVALID, "%lld of axis %d of %s; there are %lld",
                            (long long)count, *axis, tsri_op_dims(c, x), (long long)n);
    tsri_attrs attrs = {0};
    attrs.sort.axis = *axis;
    attrs.sort.descending = descending;
    tsr_dims dims = x->shape;
    dims.d[*axis] = count < 0 ? n : count;
    return tsri_graph_add1(c->g, TSRI_OP_ARGSORT, &attrs, 1, &x, dims, TSR_I64, c->loc);
}

tsr_tensor *tsr_argsort_at(tsr_tensor *x, int axis, bool descending, const char *file, int line)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, "argsort", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    return declare_order(&c, x, &axis, descending, -1);
}

/* Returns the first `count` in order. */
static tsr_tensor *declare_sorted(const char *name, tsr_tensor *x, int axis, bool descending,
                                  int64_t count, tsr_tensor **out_ids, tsri_loc loc)
{
    tsri_ctx c;
    if (out_ids)
        *out_ids = NULL;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc))
        return c.failed;
    tsr_tensor *ids = declare_order(&c, x, &axis, descending, count);
    if (out_ids)
        *out_ids = ids;
    return ids->failed ? ids : tsr_gather_at(x, axis, ids, loc.file, loc.line);
}

tsr_tensor *tsr_sort_at(tsr_tensor *x, int axis, bool descending, tsr_tensor **out_ids,
                        const char *file, int line)
{
    return declare_sorted("sort", x, axis, descending, -1, out_ids, (tsri_loc){file, line});
}

tsr_tensor *tsr_topk_at(tsr_tensor *x, int64_t k, int axis, bool largest, tsr_tensor **out_ids,
                        const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "topk", 1, &x, 0, loc))
        return c.failed;
    if (k < 0)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "k is %lld; it must be at least 0", (long long)k);
    return declare_sorted("topk", x, axis, largest, k, out_ids, loc);
}

static const tsri_attr_field sort_attrs[] = {TSRI_ATTR_FIELD(sort.axis, I32, "axis"),
                                             TSRI_ATTR_FIELD(sort.descending, I32, "descending"),
                                             TSRI_ATTR_END};

const tsri_op_def tsri_def_argscan = {
    .rule_text = "!A -> A", .names = name_line, .flops_per_element = 1, .attrs = scan_attrs};
const tsri_op_def tsri_def_argsort = {
    .rule_text = "!A -> A", .names = name_line, .flops_per_element = 10, .attrs = sort_attrs};

/* --- another size ----------------------------------------------------------------------------- */

tsr_tensor *tsri_make_resize(tsr_tensor *x, int axis, int64_t size, tsri_resize_how how,
                             tsri_loc loc)
{
    if (x->failed || x->shape.d[axis] == size)
        return x;
    tsri_attrs attrs = {0};
    attrs.resize.axis = axis;
    attrs.resize.how = how;
    tsr_dims dims = x->shape;
    dims.d[axis] = size;
    return tsri_graph_add1(x->graph, TSRI_OP_RESIZE, &attrs, 1, &x, dims, x->dtype, loc);
}

static void grad_resize(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    din[0] = tsri_graph_add_like(TSRI_OP_RESIZE_DX, &op->attrs, 1, &dout[0], op->in[0], op->loc);
}

static void grad_resize_dx(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    din[0] = tsri_graph_add_like(TSRI_OP_RESIZE, &op->attrs, 1, &dout[0], op->in[0], op->loc);
}

static const tsri_attr_field resize_attrs[] = {TSRI_ATTR_FIELD(resize.axis, I32, "axis"),
                                               TSRI_ATTR_FIELD(resize.how, I32, "how"),
                                               TSRI_ATTR_END};

const tsri_op_def tsri_def_resize = {.rule_text = "A -> A",
                                     .names = name_line,
                                     .gradient = grad_resize,
                                     .flops_per_element = 3,
                                     .attrs = resize_attrs};
const tsri_op_def tsri_def_resize_dx = {.rule_text = "A -> A",
                                        .names = name_line,
                                        .gradient = grad_resize_dx,
                                        .flops_per_element = 4,
                                        .attrs = resize_attrs};
