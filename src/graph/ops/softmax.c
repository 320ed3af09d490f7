/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and losses. */
#include "src/graph/op.h"

/* --- softmax ---------------------------------------------------------------------------------- */

static tsr_tensor *declare_softmax(const char *name, tsr_tensor *x, int axis, bool is_log,
                                   tsri_loc loc)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, name, 1, &x, 0, loc) || !tsri_want_float(&c, x) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    tsri_attrs attrs = {0};
    attrs.softmax.axis = axis;
    attrs.softmax.log = is_log;
    tsr_tensor *m = tsri_make_max(x, TSRI_OP_SOFTMAX_MAX, 1u << axis, true, loc);
    tsr_tensor *in[3] = {x, m};
    in[2] = tsri_graph_add1(c.g, TSRI_OP_SOFTMAX_SUM, &attrs, 2, in, m->shape, x->dtype, loc);
    return tsri_graph_add_like(TSRI_OP_SOFTMAX_FINISH, &attrs, 3, in, x, loc);
}

tsr_tensor *tsr_softmax_at(tsr_tensor *x, int axis, const char *file, int line)
{
    return declare_softmax("softmax", x, axis, false, (tsri_loc){file, line});
}

tsr_tensor *tsr_log_softmax_at(tsr_tensor *x, int axis, const char *file, int line)
{
    return declare_softmax("log_softmax", x, axis, true, (tsri_loc){file, line});
}

/* A: all axes, B: those with the softmax's own one as 1. */
static void name_axes(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    tsri_axes_text(names->a, op->in[0]->shape.ndim, 0, 0);
    tsri_axes_text(names->b, op->in[0]->shape.ndim, 1u << op->attrs.softmax.axis, '1');
}

static const char *rule_bwd(const tsri_op *op)
{
    return op->attrs.softmax.log ? "!A : A + B -> A" : "A : A + B -> A";
}

/* By y alone: nothing flows through the maximum and the sum. */
static void grad_finish(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0], *in[3] = {op->out[0], dout[0]};
    uint32_t axis = 1u << op->attrs.softmax.axis;
    if (!want[0] || dout[0]->failed)
        return;
    in[2] = op->attrs.softmax.log ? tsri_make_sum(dout[0], axis, true, 1, op->loc)
                                  : tsri_graph_add1(x->graph, TSRI_OP_SOFTMAX_DOT, &op->attrs, 2,
                                                    in, op->in[1]->shape, x->dtype, op->loc);
    if (!in[2]->failed)
        din[0] = tsri_graph_add_like(TSRI_OP_SOFTMAX_BWD, &op->attrs, 3, in, x, op->loc);
}

static const tsri_attr_field softmax_attrs[] = {TSRI_ATTR_FIELD(softmax.axis, I32, "axis"),
                                                TSRI_ATTR_FIELD(softmax.log, I32, "log"),
                                                TSRI_ATTR_END};

const tsri_op_def tsri_def_softmax_sum = {.rule_text = "!A, !B -> B",
                                          .names = name_axes,
                                          .flops_per_element = 10,
                                          .attrs = softmax_attrs,
                                          .autocast = TSRI_AUTOCAST_F32};
const tsri_op_def tsri_def_softmax_finish = {.rule_text = "!A, !B, !B -> A",
                                             .names = name_axes,
                                             .gradient = grad_finish,
                                             .flops_per_element = 10,
                                             .attrs = softmax_attrs,
                                             .autocast = TSRI_AUTOCAST_F32};
const tsri_op_def tsri_def_softmax_dot = {
    .rule_text = "A, A -> B", .names = name_axes, .flops_per_element = 2, .attrs = softmax_attrs};
const tsri_op_def tsri_def_softmax_bwd = {
    .rule_of = rule_bwd, .names = name_axes, .flops_per_element = 2, .attrs = softmax_attrs};

/* --- cross entropy ---------------------------------------------------------------------------- */

static bool want_reduction(const tsri_ctx *c, tsr_reduction r)
{
    if (r == TSR_MEAN || r == TSR_SUM || r == TSR_NONE)
        return true;
    return tsri_op_refuse(c, TSR_ERR_INVALID,
                          "reduction is %d; legal are TSR_MEAN, TSR_SUM and TSR_NONE", (int)r);
}

static bool want_logits(const tsri_ctx *c, const tsr_tensor *x, const tsr_tensor *labels)
{
    if (x->shape.ndim != 2 || labels->shape.ndim != 1 || x->shape.d[0] != labels->shape.d[0])
        return tsri_op_refuse(c, TSR_ERR_SHAPE,
                              "logits %s, labels %s; legal are logits (n,c), labels (n)",
                              tsri_op_dims(c, x), tsri_op_dims(c, labels));
    if (x->shape.d[1] == 0)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "logits %s have no classes", tsri_op_dims(c, x));
    if (labels->dtype != TSR_I64)
        return tsri_op_refuse(c, TSR_ERR_DTYPE,
                              "labels are %s; i64 is needed: use tsr_cast(labels, TSR_I64)",
                              tsr_dtype_name(labels->dtype));
    return tsri_want_float(c, x);
}

/* The loss of each row, its weight, and for the gradient the logarithm of its sum of exponentials;
 * NULL if it failed. */
static tsri_op *add_ce(const tsri_ctx *c, tsr_tensor *x, tsr_tensor *labels,
                       const tsr_cross_entropy_opts *o)
{
    tsri_attrs attrs = {0};
    attrs.ce.smoothing = o->label_smoothing;
    attrs.ce.has_ignore = o->has_ignore_index;
    attrs.ce.ignore_index = o->has_ignore_index ? o->ignore_index : 0;
    attrs.ce.classes = x->shape.d[1];
    tsr_tensor *m = tsri_make_max(x, TSRI_OP_SOFTMAX_MAX, 1u << 1, false, c->loc);
    if (m->failed)
        return NULL;
    tsr_tensor *in[3] = {x, labels, m};
    tsr_tensor *terms = tsri_graph_add1(c->g, TSRI_OP_CE_TERMS, &attrs, 3, in,
                                        TSR_DIMS(x->shape.d[0], 3), TSR_F64, c->loc);
    if (terms->failed)
        return NULL;
    tsr_tensor *rows[3] = {terms, m, labels};
    tsr_dims shapes[3] = {labels->shape, labels->shape, TSR_DIMS(x->shape.d[0], 2)};
    tsr_dtype dtypes[3] = {x->dtype, x->dtype, x->dtype};
    tsri_op *op = tsri_graph_add(c->g, TSRI_OP_CE_FINISH, &attrs, o->has_ignore_index ? 3 : 2, rows,
                                 3, shapes, dtypes, NULL, c->loc);
    return op;
}

tsr_tensor *tsr_cross_entropy_with_at(tsr_tensor *logits, tsr_tensor *labels,
                                      const tsr_cross_entropy_opts *opts, const char *file,
                                      int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[2] = {logits, labels};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "cross_entropy", 2, in, 0, loc))
        return c.failed;
    tsr_cross_entropy_opts o = *TSR_CROSS_ENTROPY_OPTS();
    if (!tsri_want_options(&c, &o, sizeof o, opts) || !want_logits(&c, logits, labels) ||
        !want_reduction(&c, o.reduction))
        return c.failed;
    if (!(o.label_smoothing >= 0 && o.label_smoothing < 1))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "label_smoothing is %g; it must be in [0, 1)",
                            o.label_smoothing);
    tsri_op *op = add_ce(&c, logits, labels, &o);
    if (!op)
        return c.failed;
    if (o.reduction == TSR_NONE)
        return op->out[0];
    /* The mean of no rows is 0, as a rank's loss must be that has none. */
    bool is_mean = o.reduction == TSR_MEAN && labels->shape.d[0] > 0;
    bool by_weight = is_mean && o.has_ignore_index;
    double scale = is_mean && !by_weight ? 1.0 / (double)labels->shape.d[0] : 1;
    tsr_tensor *sum = tsri_make_sum(op->out[0], 1u << 0, false, scale, loc);
    if (!by_weight)
        return sum;
    tsr_tensor *count = tsri_make_sum(op->out[1], 1u << 0, false, 1, loc);
    return tsr_div_at(sum, tsri_make_divisor(count, count, loc), file, line);
}

tsr_tensor *tsr_cross_entropy_at(tsr_tensor *logits, tsr_tensor *labels, tsr_reduction reduction,
                                 const char *file, int line)
{
    return tsr_cross_entropy_with_at(logits, labels, TSR_CROSS_ENTROPY_OPTS(.reduction = reduction),
                                     file, line);
}

/* The weights of rows follow from their labels. */
static tsr_tensor *early_weights(const tsri_op *op, int j)
{
    if (j != 1 || op->nin != 3)
        return NULL;
    tsr_tensor *labels = op->in[2];
    tsr_graph *g = labels->graph;
    const tsri_attrs ignored = {.fill = {.value = (double)op->attrs.ce.ignore_index}};
    const tsri_attrs differ = {.binary = {.fn = TSRI_BINARY_NOT_EQUAL}};
    const tsr_dims scalar = TSR_SCALAR;
    const tsr_dtype types[2] = {TSR_I64, TSR_BOOL};
    const tsri_op *fill = tsri_graph_append(g, TSRI_OP_FILL, &ignored, 0, NULL, 1, &scalar,
                                            &types[0], op->placement, op->loc);
    const tsri_op *counts = fill ? tsri_graph_append(g, TSRI_OP_BINARY, &differ, 2,
                                                     (tsr_tensor *[]){labels, fill->out[0]}, 1,
                                                     &labels->shape, &types[1], NULL, op->loc)
                                 : NULL;
    const tsri_op *weights =
        counts ? tsri_graph_append(g, TSRI_OP_CAST, NULL, 1, counts->out, 1, &labels->shape,
                                   &op->out[1]->dtype, NULL, op->loc)
               : NULL;
    return weights ? weights->out[0] : NULL;
}

static const char *rule_ce_finish(const tsri_op *op)
{
    return op->nin == 3 ? "!n ., !n, !n -> n, n, n ." : "!n ., !n -> n, n, n .";
}

/* The gradient to the logits needs of the forward pass each row's log-sum-exp alone, so it is made
 * here in one, and handed to the logits by the terms, to which nothing else flows. The weights are
 * steps of the labels: nothing flows through them. */
static void grad_ce_finish(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    const tsri_op *terms = op->in[0]->op;
    tsr_tensor *x = terms->in[0], *in[4] = {x, terms->in[1], op->out[2], dout[0]};
    if (want[0] && dout[0])
        din[0] = tsri_graph_add_like(TSRI_OP_CE_DX, &op->attrs, 4, in, x, op->loc);
}

static void grad_terms(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)op;
    (void)want;
    din[0] = dout[0];
}

static double flops_rows(const tsri_op *op)
{
    return 20 * (double)tsr_dims_count(op->in[1]->shape);
}

static const tsri_attr_field ce_attrs[] = {TSRI_ATTR_FIELD(ce.smoothing, F64, "label_smoothing"),
                                           TSRI_ATTR_FIELD(ce.has_ignore, I32, "has_ignore_index"),
                                           TSRI_ATTR_FIELD(ce.ignore_index, I64, "ignore_index"),
                                           TSRI_ATTR_FIELD(ce.classes, I64, "classes"),
                                           TSRI_ATTR_END};

const tsri_op_def tsri_def_ce_terms = {.rule_text = "!n c@, !n, !n -> n .",
                                       .gradient = grad_terms,
                                       .flops_per_element = 10,
                                       .attrs = ce_attrs,
                                       .autocast = TSRI_AUTOCAST_F32};
const tsri_op_def tsri_def_ce_finish = {.rule_of = rule_ce_finish,
                                        .gradient = grad_ce_finish,
                                        .early = early_weights,
                                        .flops = flops_rows,
                                        .attrs = ce_attrs,
                                        .autocast = TSRI_AUTOCAST_F32};
const tsri_op_def tsri_def_ce_dx = {
    .rule_text = "!n c@, !n, !n ., n -> n c@", .flops_per_element = 10, .attrs = ce_attrs};

/* --- squared error ---------------------------------------------------------------------------- */

tsr_tensor *tsr_mse_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction, const char *file,
                            int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[2] = {x, y};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "mse_loss", 2, in, 0, loc) || !tsri_want_same_dtype(&c, 2, in) ||
        !tsri_want_float(&c, x) || !want_reduction(&c, reduction))
        return c.failed;
    if (!tsr_dims_equal(x->shape, y->shape))
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "%s and %s; both must have one shape",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, y));
    tsr_tensor *diff = tsr_sub_at(tsri_full(&c, x), tsri_full(&c, y), file, line);
    tsr_tensor *square = tsr_mul_at(diff, diff, file, line);
    if (reduction == TSR_NONE)
        return square;
    int64_t count = tsr_dims_count(x->shape);
    double scale = reduction == TSR_MEAN && count > 0 ? 1.0 / (double)count : 1;
    return tsri_make_sum(square, (1u << x->shape.ndim) - 1, false, scale, loc);
}
