/* SPDX-License-Identifier: Apache-2.0 */
/* Selection, element by element: by a condition, by the place in a matrix. */
#include "src/graph/op.h"

static bool want_cond(const tsri_ctx *c, const tsr_tensor *cond)
{
    if (cond->dtype == TSR_BOOL)
        return true;
    return tsri_op_refuse(
        c, TSR_ERR_DTYPE,
        "the condition is %s; bool is needed: compare (tsr_greater and its kind) or use "
        "tsr_cast(cond, TSR_BOOL)",
        tsr_dtype_name(cond->dtype));
}

tsr_tensor *tsr_where_at(tsr_tensor *cond, tsr_tensor *x, tsr_tensor *y, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[3] = {cond, x, y};
    tsri_ctx c;
    tsr_dims shape;
    if (!tsri_op_begin(&c, "where", 3, in, 0, loc) || !want_cond(&c, cond))
        return c.failed;
    if (x->dtype != y->dtype && !tsri_autocast_joins(c.g, x, y))
        return tsri_op_fail(&c, TSR_ERR_DTYPE,
                            "x and y are %s and %s; one dtype is needed: use tsr_cast",
                            tsr_dtype_name(x->dtype), tsr_dtype_name(y->dtype));
    if (!tsri_broadcast_shapes(x->shape, y->shape, &shape) ||
        !tsri_broadcast_shapes(cond->shape, shape, &shape))
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "condition %s, %s and %s; from the right, sizes must be equal or 1",
                            tsri_op_dims(&c, cond), tsri_op_dims(&c, x), tsri_op_dims(&c, y));
    return tsri_graph_add1(c.g, TSRI_OP_WHERE, NULL, 3, in, shape, x->dtype, loc);
}

static tsr_tensor *add_mask(tsr_tensor *cond, tsr_tensor *x, bool keep, tsri_loc loc)
{
    tsr_tensor *in[2] = {cond, x};
    tsri_attrs attrs = {0};
    attrs.mask.keep = keep;
    return tsri_graph_add_like(TSRI_OP_MASK, &attrs, 2, in, x, loc);
}

static void grad_where(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    for (int i = 1; i < 3; i++)
        if (want[i])
            din[i] = tsri_make_sum_to(add_mask(op->in[0], dout[0], i == 1, op->loc),
                                      op->in[i]->shape, op->loc);
}

static void grad_mask(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    if (want[1])
        din[1] = add_mask(op->in[0], dout[0], op->attrs.mask.keep, op->loc);
}

const tsri_op_def tsri_def_where = {.rule_text = "!... : ... + ... -> ...",
                                    .gradient = grad_where,
                                    .layout = TSRI_LAYOUT_ANY,
                                    .is_exact = true};
static const tsri_attr_field mask_attrs[] = {
    TSRI_ATTR_FIELD(mask.keep, I32, "keeps where the condition is"), TSRI_ATTR_END};

const tsri_op_def tsri_def_mask = {.rule_text = "!..., ... -> ...",
                                   .gradient = grad_mask,
                                   .attrs = mask_attrs,
                                   .layout = TSRI_LAYOUT_ANY,
                                   .is_exact = true};

/* --- triangles -------------------------------------------------------------------------------- */

static tsr_tensor *declare_triangle(const char *name, tsr_tensor *x, int64_t diagonal, bool upper,
                                    tsri_loc loc)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc))
        return c.failed;
    if (x->shape.ndim < 2)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "operand %s; matrices, (...,m,n), are needed",
                            tsri_op_dims(&c, x));
    tsri_attrs attrs = {0};
    attrs.triangle.diagonal = diagonal;
    attrs.triangle.upper = upper;
    return tsri_graph_add_like(TSRI_OP_TRIANGLE, &attrs, 1, &x, x, loc);
}

tsr_tensor *tsr_triu_at(tsr_tensor *x, int64_t diagonal, const char *file, int line)
{
    return declare_triangle("triu", x, diagonal, true, (tsri_loc){file, line});
}

tsr_tensor *tsr_tril_at(tsr_tensor *x, int64_t diagonal, const char *file, int line)
{
    return declare_triangle("tril", x, diagonal, false, (tsri_loc){file, line});
}

static void grad_triangle(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsr_tensor *dy = dout[0];
    din[0] = tsri_graph_add_like(TSRI_OP_TRIANGLE, &op->attrs, 1, &dy, op->in[0], op->loc);
}

static const tsri_attr_field triangle_attrs[] = {
    TSRI_ATTR_FIELD(triangle.diagonal, I64, "diagonal"),
    TSRI_ATTR_FIELD(triangle.upper, I32, "upper"), TSRI_ATTR_END};

const tsri_op_def tsri_def_triangle = {.rule_text = "A -> A",
                                       .names = tsri_name_matrices,
                                       .gradient = grad_triangle,
                                       .attrs = triangle_attrs,
                                       .is_exact = true};
