/* SPDX-License-Identifier: Apache-2.0 */
/* Selection by a condition, element by element. */
#include "src/graph/op.h"

static bool want_cond(const tsri_ctx *c, const tsr_tensor *cond)
{
    if (cond->dtype == TSR_BOOL)
        return true;
    tsri_op_fail(c, TSR_ERR_DTYPE,
                 "the condition is %s; bool is needed: compare (tsr_greater and its kind) or use "
                 "tsr_cast(cond, TSR_BOOL)",
                 tsr_dtype_name(cond->dtype));
    return false;
}

tsr_tensor *tsr_where_at(tsr_tensor *cond, tsr_tensor *x, tsr_tensor *y, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[3] = {cond, x, y}, *failed;
    tsri_ctx c = {tsri_check_operands("where", 3, in, 0, loc, &failed), loc, "where"};
    if (!c.g)
        return failed;
    tsr_dims shape;
    if (!want_cond(&c, cond))
        return &c.g->failed;
    if (x->dtype != y->dtype)
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
    return tsri_graph_add1(x->graph, TSRI_OP_MASK, &attrs, 2, in, x->shape, x->dtype, loc);
}

static tsr_status rule_where(const tsri_op *op, tsri_rule_text *out)
{
    (void)op;
    return tsri_write_rule(out, "!... : ... + ... -> ...");
}

static void grad_where(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    for (int i = 1; i < 3; i++)
        if (want[i])
            din[i] = tsri_make_sum_to(add_mask(op->in[0], dout[0], i == 1, op->loc),
                                      op->in[i]->shape, op->loc);
}

static tsr_status rule_mask(const tsri_op *op, tsri_rule_text *out)
{
    (void)op;
    return tsri_write_rule(out, "!..., ... -> ...");
}

static void grad_mask(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    if (want[1])
        din[1] = add_mask(op->in[0], dout[0], op->attrs.mask.keep, op->loc);
}

const tsri_op_def tsri_def_where = {rule_where, grad_where, NULL};
const tsri_op_def tsri_def_mask = {rule_mask, grad_mask, NULL};
