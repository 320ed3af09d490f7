/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products. */
#include <math.h>

#include "src/graph/op.h"

static tsr_tensor *add_matmul(tsr_tensor *a, tsr_tensor *b, bool ta, bool tb, tsri_loc loc)
{
    tsr_tensor *in[2] = {a, b};
    tsri_attrs attrs = {0};
    attrs.matmul.ta = ta;
    attrs.matmul.tb = tb;
    tsr_dims shape = TSR_DIMS(a->shape.d[ta], b->shape.d[!tb]);
    return tsri_graph_add1(a->graph, TSRI_OP_MATMUL, &attrs, 2, in, shape, a->dtype, loc);
}

static tsr_tensor *declare_matmul(const char *name, tsr_tensor *a, tsr_tensor *b, bool ta, bool tb,
                                  tsri_loc loc)
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
    if (a->shape.ndim > 2 || b->shape.ndim > 2)
        return tsri_declare_batch_matmul(&c, a, b, ta, tb);
    return add_matmul(a, b, ta, tb, loc);
}

tsr_tensor *tsr_matmul_at(tsr_tensor *a, tsr_tensor *b, const char *file, int line)
{
    return declare_matmul("matmul", a, b, false, false, (tsri_loc){file, line});
}

tsr_tensor *tsr_matmul_t_at(tsr_tensor *a, tsr_tensor *b, bool ta, bool tb, const char *file,
                            int line)
{
    return declare_matmul("matmul_t", a, b, ta, tb, (tsri_loc){file, line});
}

static tsr_status rule_matmul(const tsri_op *op, tsri_rule_text *out)
{
    return tsri_write_rule(out, "%s, %s -> m n", op->attrs.matmul.ta ? "k m" : "m k",
                           op->attrs.matmul.tb ? "n k" : "k n");
}

static void grad_matmul(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *a = op->in[0], *b = op->in[1], *dc = dout[0];
    bool ta = op->attrs.matmul.ta, tb = op->attrs.matmul.tb;
    if (dc->failed)
        return;
    if (want[0])
        din[0] = ta ? add_matmul(b, dc, tb, true, op->loc) : add_matmul(dc, b, false, !tb, op->loc);
    if (want[1])
        din[1] = tb ? add_matmul(dc, a, true, ta, op->loc) : add_matmul(a, dc, !ta, false, op->loc);
}

static double flops_matmul(const tsri_op *op)
{
    double k = (double)op->in[0]->shape.d[!op->attrs.matmul.ta];
    return 2 * k * (double)tsr_dims_count(op->out[0]->shape);
}

const tsri_op_def tsri_def_matmul = {.rule = rule_matmul,
                                     .gradient = grad_matmul,
                                     .flops = flops_matmul,
                                     .attrs = tsri_matmul_attrs};

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

const tsri_op_def tsri_def_linear = {
    .rule_of = rule_linear, .gradient = grad_linear, .flops = flops_linear};

const tsri_op_def tsri_def_linear_dx = {.rule_text = "... n, n k -> ... k", .flops = flops_linear};

const tsri_op_def tsri_def_linear_dw = {.rule_text = "... k, ... n -> n k", .flops = flops_linear};
