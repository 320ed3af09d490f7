/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, also of batches: axes in front of the matrices, broadcast as in NumPy. */
#include <math.h>

#include "src/graph/op.h"

static tsr_dims batch_of(tsr_dims d)
{
    d.ndim -= 2;
    return d;
}

/* Appends a product of batches that broadcast and matrices that fit. */
static tsr_tensor *add_matmul(tsr_tensor *a, tsr_tensor *b, bool ta, bool tb, bool hides,
                              tsri_loc loc)
{
    tsr_tensor *in[2] = {a, b};
    tsri_attrs attrs = {0};
    tsr_dims shape;
    if (a->failed || b->failed)
        return a->failed ? a : b;
    tsri_broadcast_shapes(batch_of(a->shape), batch_of(b->shape), &shape);
    const tsri_op_kind kind = shape.ndim ? TSRI_OP_BATCH_MATMUL : TSRI_OP_MATMUL;
    attrs.matmul.ta = ta;
    attrs.matmul.tb = tb;
    attrs.matmul.hides = hides;
    shape.d[shape.ndim++] = a->shape.d[a->shape.ndim - 2 + ta];
    shape.d[shape.ndim++] = b->shape.d[b->shape.ndim - 1 - tb];
    return tsri_graph_add1(a->graph, kind, &attrs, 2, in, shape, a->dtype, loc);
}

static tsr_tensor *declare_matmul(const char *name, tsr_tensor *a, tsr_tensor *b, bool ta, bool tb,
                                  bool hides, tsri_loc loc)
{
    tsr_tensor *in[2] = {a, b};
    tsri_ctx c;
    if (!tsri_op_begin(&c, name, 2, in, 0, loc))
        return c.failed;
    for (int i = 0; i < 2; i++)
        if (in[i]->shape.ndim < 2)
            return tsri_op_fail(&c, TSR_ERR_SHAPE,
                                "%s x %s: operand %d has %d ax%s; matrices have 2, or more of "
                                "which the last 2 are multiplied: use tsr_reshape",
                                tsri_op_dims(&c, a), tsri_op_dims(&c, b), i, in[i]->shape.ndim,
                                in[i]->shape.ndim == 1 ? "is" : "es");
    if (!tsri_want_same_dtype(&c, 2, in) || !tsri_want_float(&c, a))
        return c.failed;
    int64_t ka = a->shape.d[a->shape.ndim - 1 - ta], kb = b->shape.d[b->shape.ndim - 2 + tb];
    if (ka != kb)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "%s%s x %s%s: inner sizes %lld and %lld differ; transpose an operand "
                            "(tsr_matmul_t) or change a shape",
                            tsri_op_dims(&c, a), ta ? "^T" : "", tsri_op_dims(&c, b),
                            tb ? "^T" : "", (long long)ka, (long long)kb);
    tsr_dims batch;
    if (!tsri_broadcast_shapes(batch_of(a->shape), batch_of(b->shape), &batch))
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "%s x %s: batch axes %s and %s do not broadcast; from the right, sizes "
                            "must be equal or one of them 1",
                            tsri_op_dims(&c, a), tsri_op_dims(&c, b),
                            tsri_dims_text(c.g, batch_of(a->shape)),
                            tsri_dims_text(c.g, batch_of(b->shape)));
    return add_matmul(a, b, ta, tb, hides, loc);
}

tsr_tensor *tsr_matmul_at(tsr_tensor *a, tsr_tensor *b, const char *file, int line)
{
    return declare_matmul("matmul", a, b, false, false, false, (tsri_loc){file, line});
}

tsr_tensor *tsr_matmul_t_at(tsr_tensor *a, tsr_tensor *b, bool ta, bool tb, const char *file,
                            int line)
{
    return declare_matmul("matmul_t", a, b, ta, tb, false, (tsri_loc){file, line});
}

tsr_tensor *tsri_make_scores(tsr_tensor *a, tsr_tensor *b, bool hides, tsri_loc loc)
{
    return declare_matmul("matmul_t", a, b, false, true, hides, loc);
}

static tsr_status rule_matmul(const tsri_op *op, tsri_rule_text *out)
{
    const char *batch = op->kind == TSRI_OP_BATCH_MATMUL ? "... " : "";
    return tsri_write_rule(out, "%s%s, %s%s -> %sm n", batch, op->attrs.matmul.ta ? "k m" : "m k",
                           batch, op->attrs.matmul.tb ? "n k" : "k n", batch);
}

/* The gradient of one matrix that meets a whole batch is one product over batch and rows, as a
 * linear layer's weight has it, and no sum of products. */
static tsr_tensor *grad_of_matrix(tsri_op *op, tsr_tensor *dc)
{
    tsr_tensor *a = op->in[0], *b = op->in[1];
    tsr_tensor *in[2] = {op->attrs.matmul.tb ? a : dc, op->attrs.matmul.tb ? dc : a};
    return tsri_graph_add_like(TSRI_OP_LINEAR_DW, NULL, 2, in, b, op->loc);
}

/* Returns x with 0 where it is not finite. Where an element of a product is masked, its gradient is
 * 0, and must not meet a NaN of b on its way to a; where a NaN of b is seen, the gradient of the
 * element is NaN already. */
static tsr_tensor *finite_alone(tsr_tensor *x, tsri_loc loc)
{
    if (x->failed)
        return x;
    tsr_tensor *end[2];
    for (int i = 0; i < 2; i++)
        end[i] =
            tsri_make_fill(x->graph, TSR_SCALAR, x->dtype, x->placement, i ? INFINITY : 0, loc);
    tsr_tensor *size = tsr_abs_at(x, loc.file, loc.line);
    return tsr_where_at(tsr_less_at(size, end[1], loc.file, loc.line), x, end[0], loc.file,
                        loc.line);
}

static void grad_matmul(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *a = op->in[0], *dc = dout[0];
    tsr_tensor *b = op->attrs.matmul.hides ? finite_alone(op->in[1], op->loc) : op->in[1];
    bool ta = op->attrs.matmul.ta, tb = op->attrs.matmul.tb;
    if (want[0]) {
        tsr_tensor *da = ta ? add_matmul(b, dc, tb, true, false, op->loc)
                            : add_matmul(dc, b, false, !tb, false, op->loc);
        din[0] = tsri_make_sum_to(da, a->shape, op->loc);
    }
    if (want[1] && op->kind == TSRI_OP_BATCH_MATMUL && b->shape.ndim == 2 && !ta) {
        din[1] = grad_of_matrix(op, dc);
    } else if (want[1]) {
        tsr_tensor *db = tb ? add_matmul(dc, a, true, ta, false, op->loc)
                            : add_matmul(a, dc, !ta, false, false, op->loc);
        din[1] = tsri_make_sum_to(db, b->shape, op->loc);
    }
}

static double flops_matmul(const tsri_op *op)
{
    const tsr_tensor *a = op->in[0];
    double k = (double)a->shape.d[a->shape.ndim - 1 - !!op->attrs.matmul.ta];
    return 2 * k * (double)tsr_dims_count(op->out[0]->shape);
}

static const tsri_attr_field matmul_attrs[] = {
    TSRI_ATTR_FIELD(matmul.ta, I32, "transpose_a"), TSRI_ATTR_FIELD(matmul.tb, I32, "transpose_b"),
    TSRI_ATTR_FIELD(matmul.hides, I32, "hides"), TSRI_ATTR_END};

const tsri_op_def tsri_def_matmul = {.rule = rule_matmul,
                                     .gradient = grad_matmul,
                                     .flops = flops_matmul,
                                     .is_product = true,
                                     .attrs = matmul_attrs,
                                     .autocast = TSRI_AUTOCAST_LOW};
const tsri_op_def tsri_def_batch_matmul = {.rule = rule_matmul,
                                           .gradient = grad_matmul,
                                           .flops = flops_matmul,
                                           .is_product = true,
                                           .attrs = matmul_attrs,
                                           .autocast = TSRI_AUTOCAST_LOW};

/* --- linear ----------------------------------------------------------------------------------- */

tsr_tensor *tsr_linear_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[3] = {x, w, b};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "linear", 3, in, 1u << 2, loc))
        return c.failed;
    if (x->shape.ndim < 1 || w->shape.ndim != 2)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x %s, weight %s; legal are x (...,k), weight (n,k)",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, w));
    int last = x->shape.ndim - 1;
    if (x->shape.d[last] != w->shape.d[1])
        return tsri_op_fail(
            &c, TSR_ERR_SHAPE,
            "x %s, weight %s: sizes %lld and %lld of the last axes differ; the weight "
            "is (out,in), so it must be (%lld,%lld) here",
            tsri_op_dims(&c, x), tsri_op_dims(&c, w), (long long)x->shape.d[last],
            (long long)w->shape.d[1], (long long)w->shape.d[0], (long long)x->shape.d[last]);
    if (!tsri_want_same_dtype(&c, 3, in) || !tsri_want_float(&c, x) ||
        (b && !tsri_want_vector(&c, "bias", b, w->shape.d[0])))
        return c.failed;
    tsr_dims shape = x->shape;
    shape.d[last] = w->shape.d[0];
    return tsri_graph_add1(c.g, TSRI_OP_LINEAR, NULL, b ? 3 : 2, in, shape, x->dtype, loc);
}

static const char *rule_linear(const tsri_op *op)
{
    return op->nin == 3 ? "... k, n k + n -> ... n" : "... k, n k -> ... n";
}

static void grad_linear(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0], *w = op->in[1], *dy = dout[0];
    tsr_tensor *dx_in[2] = {dy, w}, *dw_in[2] = {x, dy};
    if (want[0])
        din[0] = tsri_graph_add_like(TSRI_OP_LINEAR_DX, NULL, 2, dx_in, x, op->loc);
    if (want[1])
        din[1] = tsri_graph_add_like(TSRI_OP_LINEAR_DW, NULL, 2, dw_in, w, op->loc);
    if (op->nin == 3 && want[2])
        din[2] = tsri_make_sum_to(dy, op->in[2]->shape, op->loc);
}

/* The operations of all three: 2 m n k, for operands and results of m*k, n*k and m*n elements. */
static double flops_linear(const tsri_op *op)
{
    double mnk = (double)tsr_dims_count(op->in[0]->shape) *
                 (double)tsr_dims_count(op->in[1]->shape) *
                 (double)tsr_dims_count(op->out[0]->shape);
    return 2 * sqrt(mnk);
}

const tsri_op_def tsri_def_linear = {.rule_of = rule_linear,
                                     .gradient = grad_linear,
                                     .flops = flops_linear,
                                     .is_product = true,
                                     .chain = TSRI_CHAIN_PRODUCT,
                                     .walks = 1 << 0,
                                     .autocast = TSRI_AUTOCAST_LOW};

const tsri_op_def tsri_def_linear_dx = {.rule_text = "... n, n k -> ... k",
                                        .flops = flops_linear,
                                        .is_product = true,
                                        .chain = TSRI_CHAIN_PRODUCT,
                                        .walks = 1 << 0};

const tsri_op_def tsri_def_linear_dw = {.rule_text = "... k, ... n -> n k",
                                        .flops = flops_linear,
                                        .is_product = true,
                                        .chain = TSRI_CHAIN_OUTER,
                                        .walks = 3,
                                        .hands_on = true};
