/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and losses. */
#include "src/graph/op.h"

/* --- softmax --------------------------------------------------------------------------------- */

static tsr_tensor *declare_softmax(const char *name, tsr_tensor *x, int axis, bool is_log,
                                   tsri_loc loc)
{
    tsr_tensor *failed;
    tsri_ctx c = {tsri_check_operands(name, 1, &x, 0, loc, &failed), loc, name};
    if (!c.g)
        return failed;
    if (!tsri_want_float(&c, x) || !tsri_want_axis(&c, x, &axis))
        return &c.g->failed;
    tsri_attrs attrs = {0};
    attrs.softmax.axis = axis;
    attrs.softmax.log = is_log;
    return tsri_graph_add1(c.g, TSRI_OP_SOFTMAX, &attrs, 1, &x, x->shape, x->dtype, loc);
}

tsr_tensor *tsr_softmax_at(tsr_tensor *x, int axis, const char *file, int line)
{
    return declare_softmax("softmax", x, axis, false, (tsri_loc){file, line});
}

tsr_tensor *tsr_log_softmax_at(tsr_tensor *x, int axis, const char *file, int line)
{
    return declare_softmax("log_softmax", x, axis, true, (tsri_loc){file, line});
}

static tsr_status rule_softmax(const tsri_op *op, tsri_rule_text *out)
{
    char axes[TSRI_AXES_TEXT];
    tsri_axes_text(axes, op->in[0]->shape.ndim, 1u << op->attrs.softmax.axis, '.');
    return tsri_write_rule(out, "!%s -> %s", axes, axes);
}

static tsr_status rule_softmax_dx(const tsri_op *op, tsri_rule_text *out)
{
    char axes[TSRI_AXES_TEXT];
    tsri_axes_text(axes, op->in[0]->shape.ndim, 1u << op->attrs.softmax.axis, '.');
    return tsri_write_rule(out, "!%s, %s -> %s", axes, axes, axes);
}

static void grad_softmax(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsr_tensor *x = op->in[0], *in[2] = {op->out[0], dout[0]};
    din[0] = tsri_graph_add1(x->graph, TSRI_OP_SOFTMAX_DX, &op->attrs, 2, in, x->shape, x->dtype,
                             op->loc);
}

static double flops_exp(const tsri_op *op)
{
    return 10 * (double)tsr_dims_count(op->in[0]->shape);
}

const tsri_op_def tsri_def_softmax = {rule_softmax, grad_softmax, flops_exp};
const tsri_op_def tsri_def_softmax_dx = {rule_softmax_dx, NULL, flops_exp};

/* --- cross entropy --------------------------------------------------------------------------- */

static bool want_reduction(const tsri_ctx *c, tsr_reduction r)
{
    if (r == TSR_MEAN || r == TSR_SUM || r == TSR_NONE)
        return true;
    tsri_op_fail(c, TSR_ERR_INVALID, "reduction is %d; legal are TSR_MEAN, TSR_SUM and TSR_NONE",
                 (int)r);
    return false;
}

static bool want_logits(const tsri_ctx *c, const tsr_tensor *x, const tsr_tensor *labels)
{
    if (x->shape.ndim != 2 || labels->shape.ndim != 1 || x->shape.d[0] != labels->shape.d[0]) {
        tsri_op_fail(c, TSR_ERR_SHAPE, "logits %s, labels %s; legal are logits (n,c), labels (n)",
                     tsri_op_dims(c, x), tsri_op_dims(c, labels));
        return false;
    }
    if (x->shape.d[1] == 0) {
        tsri_op_fail(c, TSR_ERR_SHAPE, "logits %s have no classes", tsri_op_dims(c, x));
        return false;
    }
    if (labels->dtype != TSR_I64) {
        tsri_op_fail(c, TSR_ERR_DTYPE,
                     "labels are %s; i64 is needed: use tsr_cast(labels, TSR_I64)",
                     tsr_dtype_name(labels->dtype));
        return false;
    }
    return tsri_want_float(c, x);
}

tsr_tensor *tsr_cross_entropy_with_at(tsr_tensor *logits, tsr_tensor *labels,
                                      const tsr_cross_entropy_opts *opts, const char *file,
                                      int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[2] = {logits, labels}, *failed;
    tsri_ctx c = {tsri_check_operands("cross_entropy", 2, in, 0, loc, &failed), loc,
                  "cross_entropy"};
    if (!c.g)
        return failed;
    tsr_cross_entropy_opts o;
    tsri_read_options(&o, sizeof o, opts);
    if (!want_logits(&c, logits, labels) || !want_reduction(&c, o.reduction))
        return &c.g->failed;
    if (!(o.label_smoothing >= 0 && o.label_smoothing < 1))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "label_smoothing is %g; it must be in [0, 1)",
                            o.label_smoothing);
    tsri_attrs attrs = {0};
    attrs.ce.smoothing = o.label_smoothing;
    attrs.ce.has_ignore = o.has_ignore_index;
    attrs.ce.ignore_index = o.has_ignore_index ? o.ignore_index : 0;
    tsr_dims shapes[3] = {labels->shape, labels->shape, labels->shape};
    tsr_dtype dtypes[3] = {logits->dtype, logits->dtype, logits->dtype};
    tsri_op *op = tsri_graph_add(c.g, TSRI_OP_CE, &attrs, 2, in, 3, shapes, dtypes, NULL, loc);
    if (!op)
        return &c.g->failed;
    if (o.reduction == TSR_NONE)
        return op->out[0];
    bool by_weight = o.reduction == TSR_MEAN && o.has_ignore_index;
    double scale = o.reduction == TSR_MEAN && !by_weight ? 1.0 / (double)labels->shape.d[0] : 1;
    tsr_tensor *sum = tsri_make_sum(op->out[0], 1u << 0, false, scale, loc);
    if (!by_weight)
        return sum;
    return tsr_div_at(sum, tsri_make_sum(op->out[1], 1u << 0, false, 1, loc), file, line);
}

tsr_tensor *tsr_cross_entropy_at(tsr_tensor *logits, tsr_tensor *labels, tsr_reduction reduction,
                                 const char *file, int line)
{
    return tsr_cross_entropy_with_at(logits, labels, TSR_CROSS_ENTROPY_OPTS(.reduction = reduction),
                                     file, line);
}

static tsr_status rule_ce(const tsri_op *op, tsri_rule_text *out)
{
    (void)op;
    return tsri_write_rule(out, "!n ., !n -> n, n, n");
}

/* The weights are steps of the labels: nothing flows through them. */
static void grad_ce(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0];
    if (!want[0] || !dout[0])
        return;
    tsr_tensor *in[4] = {x, op->in[1], op->out[2], dout[0]};
    din[0] =
        tsri_graph_add1(x->graph, TSRI_OP_CE_DX, &op->attrs, 4, in, x->shape, x->dtype, op->loc);
}

static tsr_status rule_ce_dx(const tsri_op *op, tsri_rule_text *out)
{
    (void)op;
    return tsri_write_rule(out, "!n ., !n, !n, n -> n .");
}

const tsri_op_def tsri_def_ce = {rule_ce, grad_ce, flops_exp};
const tsri_op_def tsri_def_ce_dx = {rule_ce_dx, NULL, flops_exp};

/* --- squared error --------------------------------------------------------------------------- */

tsr_tensor *tsr_mse_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction, const char *file,
                            int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[2] = {x, y}, *failed;
    tsri_ctx c = {tsri_check_operands("mse_loss", 2, in, 0, loc, &failed), loc, "mse_loss"};
    if (!c.g)
        return failed;
    if (!tsri_want_same_dtype(&c, 2, in) || !tsri_want_float(&c, x) ||
        !want_reduction(&c, reduction))
        return &c.g->failed;
    if (!tsr_dims_equal(x->shape, y->shape))
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "%s and %s; both must have one shape",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, y));
    tsr_tensor *diff = tsr_sub_at(x, y, file, line);
    tsr_tensor *square = tsr_mul_at(diff, diff, file, line);
    if (reduction == TSR_NONE)
        return square;
    double scale = reduction == TSR_MEAN ? 1.0 / (double)tsr_dims_count(x->shape) : 1;
    return tsri_make_sum(square, (1u << x->shape.ndim) - 1, false, scale, loc);
}
