/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of batches: axes in front of the matrices, broadcast as in NumPy. */
#include "src/graph/op.h"

static tsr_dims batch_of(tsr_dims d)
{
    d.ndim -= 2;
    return d;
}

/* Batches that broadcast and matrices that fit are the caller's care. */
static tsr_tensor *add(tsr_tensor *a, tsr_tensor *b, bool ta, bool tb, tsri_loc loc)
{
    tsr_tensor *in[2] = {a, b};
    tsri_attrs attrs = {0};
    tsr_dims shape;
    if (a->failed || b->failed)
        return a->failed ? a : b;
    tsri_broadcast_shapes(batch_of(a->shape), batch_of(b->shape), &shape);
    attrs.matmul.ta = ta;
    attrs.matmul.tb = tb;
    shape.d[shape.ndim++] = a->shape.d[a->shape.ndim - 2 + ta];
    shape.d[shape.ndim++] = b->shape.d[b->shape.ndim - 1 - tb];
    return tsri_graph_add1(a->graph, TSRI_OP_BATCH_MATMUL, &attrs, 2, in, shape, a->dtype, loc);
}

tsr_tensor *tsri_declare_batch_matmul(const tsri_ctx *c, tsr_tensor *a, tsr_tensor *b, bool ta,
                                      bool tb)
{
    tsr_dims batch;
    if (!tsri_broadcast_shapes(batch_of(a->shape), batch_of(b->shape), &batch))
        return tsri_op_fail(c, TSR_ERR_SHAPE,
                            "%s x %s: batch axes %s and %s do not broadcast; from the right, sizes "
                            "must be equal or one of them 1",
                            tsri_op_dims(c, a), tsri_op_dims(c, b),
                            tsri_dims_text(c->g, batch_of(a->shape)),
                            tsri_dims_text(c->g, batch_of(b->shape)));
    return add(a, b, ta, tb, c->loc);
}

static tsr_status rule(const tsri_op *op, tsri_rule_text *out)
{
    return tsri_write_rule(out, "... %s, ... %s -> ... m n", op->attrs.matmul.ta ? "k m" : "m k",
                           op->attrs.matmul.tb ? "n k" : "k n");
}

/* The gradient of one matrix that meets a whole batch is one product over batch and rows, as a
 * linear layer's weight has it, and no sum of products. */
static tsr_tensor *grad_of_matrix(tsri_op *op, tsr_tensor *dc)
{
    tsr_tensor *a = op->in[0], *b = op->in[1];
    tsr_tensor *in[2] = {op->attrs.matmul.tb ? a : dc, op->attrs.matmul.tb ? dc : a};
    return tsri_graph_add_like(TSRI_OP_LINEAR_DW, NULL, 2, in, b, op->loc);
}

static void grad(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *a = op->in[0], *b = op->in[1], *dc = dout[0];
    bool ta = op->attrs.matmul.ta, tb = op->attrs.matmul.tb;
    if (want[0]) {
        tsr_tensor *da = ta ? add(b, dc, tb, true, op->loc) : add(dc, b, false, !tb, op->loc);
        din[0] = tsri_make_sum_to(da, a->shape, op->loc);
    }
    if (want[1] && b->shape.ndim == 2 && !ta) {
        din[1] = grad_of_matrix(op, dc);
    } else if (want[1]) {
        tsr_tensor *db = tb ? add(dc, a, true, ta, op->loc) : add(a, dc, !ta, false, op->loc);
        din[1] = tsri_make_sum_to(db, b->shape, op->loc);
    }
}

static double flops(const tsri_op *op)
{
    const tsr_tensor *a = op->in[0];
    double k = (double)a->shape.d[a->shape.ndim - 1 - !!op->attrs.matmul.ta];
    return 2 * k * (double)tsr_dims_count(op->out[0]->shape);
}

const tsri_attr_field tsri_matmul_attrs[] = {TSRI_ATTR_FIELD(matmul.ta, I32, "transpose_a"),
                                             TSRI_ATTR_FIELD(matmul.tb, I32, "transpose_b"),
                                             TSRI_ATTR_END};

const tsri_op_def tsri_def_batch_matmul = {
    .rule = rule, .gradient = grad, .flops = flops, .attrs = tsri_matmul_attrs};
