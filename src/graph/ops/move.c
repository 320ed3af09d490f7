/* SPDX-License-Identifier: Apache-2.0 */
/* Movement: the same elements in another shape or order of axes. */
#include "src/graph/op.h"

/* Replaces a -1 by what is left of count. */
static bool infer_axis(const tsri_ctx *c, const tsr_tensor *x, tsr_dims *dims)
{
    int64_t count = tsr_dims_count(x->shape), known = 1;
    int unknown = -1;
    if (dims->ndim < 0 || dims->ndim > TSR_MAX_NDIM)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "%d axes; legal are 0 to %d", dims->ndim,
                              TSR_MAX_NDIM);
    for (int i = 0; i < dims->ndim; i++) {
        if (dims->d[i] < -1 || (dims->d[i] == -1 && unknown >= 0))
            return tsri_op_refuse(c, TSR_ERR_SHAPE,
                                  "%s to %s; sizes are >= 0, and one axis may be -1 (the rest)",
                                  tsri_op_dims(c, x), tsri_dims_text(c->g, *dims));
        if (dims->d[i] == -1)
            unknown = i;
        else if (__builtin_mul_overflow(known, dims->d[i], &known))
            known = INT64_MAX;
    }
    bool fits = unknown < 0 ? known == count : known > 0 && count % known == 0;
    if (!fits)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "%s has %lld elements, which %s %s",
                              tsri_op_dims(c, x), (long long)count,
                              unknown < 0 ? "are not those of"
                                          : "do not divide by the known axes of",
                              tsri_dims_text(c->g, *dims));
    if (unknown >= 0)
        dims->d[unknown] = count / known;
    return true;
}

static tsr_tensor *declare_reshape(const char *name, tsr_tensor *x, tsr_dims dims, tsri_loc loc)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc) || !infer_axis(&c, x, &dims))
        return c.failed;
    if (tsr_dims_equal(x->shape, dims))
        return x;
    return tsri_graph_add1(c.g, TSRI_OP_RESHAPE, NULL, 1, &x, dims, x->dtype, loc);
}

tsr_tensor *tsri_make_reshape(tsr_tensor *x, tsr_dims dims, tsri_loc loc)
{
    return declare_reshape("reshape", x, dims, loc);
}

tsr_tensor *tsri_as_result(tsr_tensor *y, tsr_tensor *x, tsri_loc loc)
{
    if (y != x || !x || x->failed)
        return y;
    return tsri_graph_add_like(TSRI_OP_RESHAPE, NULL, 1, &x, x, loc);
}

tsr_tensor *tsr_reshape_at(tsr_tensor *x, tsr_dims dims, const char *file, int line)
{
    tsri_loc loc = {file, line};
    return tsri_as_result(declare_reshape("reshape", x, dims, loc), x, loc);
}

tsr_tensor *tsr_flatten_at(tsr_tensor *x, int from_axis, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "flatten", 1, &x, 0, loc))
        return c.failed;
    bool scalar = x->shape.ndim == 0 && (from_axis == 0 || from_axis == -1);
    if (scalar)
        return declare_reshape("flatten", x, TSR_DIMS(1), loc);
    if (!tsri_want_axis(&c, x, &from_axis))
        return c.failed;
    tsr_dims dims = {.ndim = from_axis + 1};
    for (int i = 0; i < x->shape.ndim; i++) {
        if (i <= from_axis)
            dims.d[i] = x->shape.d[i];
        else
            dims.d[from_axis] *= x->shape.d[i];
    }
    return tsri_as_result(declare_reshape("flatten", x, dims, loc), x, loc);
}

tsr_tensor *tsr_detach_at(tsr_tensor *x, const char *file, int line)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, "detach", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    tsr_tensor *y = tsri_graph_add_like(TSRI_OP_RESHAPE, NULL, 1, &x, x, c.loc);
    if (!y->failed)
        y->op->detached = true;
    return y;
}

static tsr_status rule_reshape(const tsri_op *op, tsri_rule_text *out)
{
    TSRI_TRY(tsri_write_rule(out, "%s", ""));
    return tsri_rule_reshape(op->in[0]->shape, op->out[0]->shape, out->text, sizeof out->text,
                             out->sizes, &out->nsizes);
}

static void grad_reshape(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    din[0] = tsri_make_reshape(dout[0], op->in[0]->shape, op->loc);
}

const tsri_op_def tsri_def_reshape = {.spreads = true,
                                      .rule = rule_reshape,
                                      .gradient = grad_reshape,
                                      .is_view = true,
                                      .is_exact = true};

/* --- permute ---------------------------------------------------------------------------------- */

static tsr_tensor *add_permute(tsr_tensor *x, const int32_t perm[TSR_MAX_NDIM], tsri_loc loc)
{
    tsri_attrs attrs = {0};
    tsr_dims dims = {.ndim = x->shape.ndim};
    bool moves = false;
    for (int i = 0; i < dims.ndim; i++) {
        attrs.permute.perm[i] = perm[i];
        dims.d[i] = x->shape.d[perm[i]];
        moves |= perm[i] != i;
    }
    if (!moves || x->failed)
        return tsri_as_result(x, x, loc);
    return tsri_graph_add1(x->graph, TSRI_OP_PERMUTE, &attrs, 1, &x, dims, x->dtype, loc);
}

tsr_tensor *tsr_transpose_at(tsr_tensor *x, int a, int b, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "transpose", 1, &x, 0, loc) || !tsri_want_axis(&c, x, &a) ||
        !tsri_want_axis(&c, x, &b))
        return c.failed;
    int32_t perm[TSR_MAX_NDIM] = {0, 1, 2, 3, 4, 5, 6, 7};
    perm[a] = b;
    perm[b] = a;
    return add_permute(x, perm, loc);
}

tsr_tensor *tsr_permute_at(tsr_tensor *x, tsr_axes order, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "permute", 1, &x, 0, loc))
        return c.failed;
    if (order.n != x->shape.ndim)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "%d axes for %s, which has %d; name each once",
                            order.n, tsri_op_dims(&c, x), x->shape.ndim);
    int32_t perm[TSR_MAX_NDIM] = {0};
    uint32_t seen;
    if (!tsri_want_axes(&c, x, order, &seen))
        return c.failed;
    for (int i = 0; i < order.n; i++)
        perm[i] = order.axis[i] < 0 ? order.axis[i] + order.n : order.axis[i];
    return add_permute(x, perm, loc);
}

static tsr_status rule_permute(const tsri_op *op, tsri_rule_text *out)
{
    char in[TSRI_AXES_TEXT], res[TSRI_AXES_TEXT];
    int ndim = op->in[0]->shape.ndim;
    tsri_axes_text(in, ndim, 0, 0);
    tsri_axes_text(res, ndim, 0, 0);
    for (int i = 0; i < ndim; i++)
        res[2 * i] = tsri_letters[op->attrs.permute.perm[i]];
    return tsri_write_rule(out, "^%s -> %s", in, res);
}

static void grad_permute(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    int32_t back[TSR_MAX_NDIM] = {0};
    for (int i = 0; i < op->in[0]->shape.ndim; i++)
        back[op->attrs.permute.perm[i]] = i;
    din[0] = add_permute(dout[0], back, op->loc);
}

static const tsri_attr_field permute_attrs[] = {
    TSRI_ATTR_FIELDS(permute.perm, I32, TSR_MAX_NDIM, "order of axes"), TSRI_ATTR_END};

const tsri_op_def tsri_def_permute = {.spreads = true,
                                      .rule = rule_permute,
                                      .gradient = grad_permute,
                                      .attrs = permute_attrs,
                                      .is_exact = true};
