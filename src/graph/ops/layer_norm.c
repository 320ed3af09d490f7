/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm, decomposed: statistics -> (boxing) -> normalisation, so that features may be split
 * too. Rules and formulas: axes in front are the rows, the trailing ones the features.
 *
 * f64 rows are centred before, for the reason that norm.c gives.
 */
#include <math.h>

#include "src/graph/op.h"

/* An op's operands: x, statistics, gamma where there is one, then the others. */
static int gamma_of(const tsri_op *op)
{
    return op->attrs.ln.has_gamma ? 2 : -1;
}

static bool read_options(const tsri_ctx *c, const tsr_layer_norm_opts *opts, const tsr_tensor *x,
                         tsri_attrs *out)
{
    tsr_layer_norm_opts o = *TSR_LAYER_NORM_OPTS();
    if (!tsri_want_options(c, &o, sizeof o, opts) || !tsri_want_eps(c, o.eps))
        return false;
    int axes = o.axes == 0 ? 1 : o.axes;
    if (axes < 1 || axes > x->shape.ndim)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "%d trailing axes of %s; legal are 1 to %d", axes,
                              tsri_op_dims(c, x), x->shape.ndim);
    *out = (tsri_attrs){0};
    out->ln.eps = o.eps;
    out->ln.axes = axes;
    out->ln.count = 1;
    for (int i = x->shape.ndim - axes; i < x->shape.ndim; i++)
        out->ln.count *= x->shape.d[i];
    return true;
}

/* gamma or beta has the shape of the features. */
static bool want_features(const tsri_ctx *c, const char *what, const tsr_tensor *t,
                          const tsr_tensor *x, int axes)
{
    tsr_dims want = {.ndim = axes};
    for (int i = 0; i < axes; i++)
        want.d[i] = x->shape.d[x->shape.ndim - axes + i];
    if (!t || tsr_dims_equal(t->shape, want))
        return true;
    return tsri_op_refuse(c, TSR_ERR_SHAPE, "%s is %s; it must be %s, the last %s of x %s", what,
                          tsri_op_dims(c, t), tsri_dims_text(c->g, want),
                          axes == 1 ? "axis" : "axes", tsri_op_dims(c, x));
}

/* Two numbers a row. */
static tsr_dims stats_shape(const tsr_tensor *x, const tsri_attrs *attrs)
{
    tsr_dims d = x->shape;
    d.ndim -= attrs->ln.axes;
    d.d[d.ndim++] = 2;
    return d;
}

/* x less the means of its rows. The means get no gradient: it is the sum of that of x - mean, and
 * layer norm's sums to 0, as adding a constant to a row changes nothing. */
static tsr_tensor *center(tsr_tensor *x, const tsri_attrs *attrs, tsri_loc loc)
{
    const int ndim = x->shape.ndim;
    const uint32_t features = (1u << ndim) - (1u << (ndim - attrs->ln.axes));
    tsr_tensor *mean = tsri_make_sum(x, features, true, 1 / (double)attrs->ln.count, loc);
    tsr_tensor *diff = tsri_make_binary("layer_norm", TSRI_BINARY_SUB, x, mean, x->dtype, loc);
    if (!diff->failed)
        tsri_full_op(diff)->attrs.binary.fixed = 1u << 1;
    return diff;
}

tsr_tensor *tsr_layer_norm_at(tsr_tensor *x, tsr_tensor *gamma, tsr_tensor *beta,
                              const tsr_layer_norm_opts *opts, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *all[3] = {x, gamma, beta};
    tsri_ctx c;
    tsri_attrs attrs;
    if (!tsri_op_begin(&c, "layer_norm", 3, all, 3u << 1, loc) ||
        !tsri_want_same_dtype(&c, 3, all) || !tsri_want_float(&c, x) ||
        !read_options(&c, opts, x, &attrs) ||
        !want_features(&c, "gamma", gamma, x, attrs.ln.axes) ||
        !want_features(&c, "beta", beta, x, attrs.ln.axes))
        return c.failed;
    attrs.ln.has_gamma = gamma != NULL;
    attrs.ln.has_beta = beta != NULL;
    if (x->dtype == TSR_F64)
        x = center(x, &attrs, loc);
    if (x->failed)
        return x;
    tsr_tensor *stats =
        tsri_graph_add1(c.g, TSRI_OP_LN_STATS, &attrs, 1, &x, stats_shape(x, &attrs), TSR_F64, loc);
    if (stats->failed)
        return stats;
    tsr_tensor *in[4] = {x, stats};
    int n = 2;
    if (gamma)
        in[n++] = gamma;
    if (beta)
        in[n++] = beta;
    return tsri_graph_add_like(TSRI_OP_LN_APPLY, &attrs, n, in, x, loc);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* A: the axes of x, B: those of its statistics, C: those of the features. */
static void name_axes(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    int ndim = op->in[0]->shape.ndim, lead = ndim - op->attrs.ln.axes;
    tsri_axes_text(names->a, ndim, 0, 0);
    tsri_axes_text(names->b, lead + 1, 1u << lead, '.');
    tsri_axes_text(names->c, ndim, (1u << lead) - 1, 0);
}

static const char *rule_apply(const tsri_op *op)
{
    static const char *const texts[2][2] = {{"!A, !B -> A", "!A, !B + C -> A"},
                                            {"!A, !B, C -> A", "!A, !B : C + C -> A"}};
    return texts[op->attrs.ln.has_gamma][op->attrs.ln.has_beta];
}

static const char *rule_bwd_stats(const tsri_op *op)
{
    return op->attrs.ln.has_gamma ? "!A, !B, C, A -> B" : "!A, !B, A -> B";
}

static const char *rule_bwd_apply(const tsri_op *op)
{
    return op->attrs.ln.has_gamma ? "!A, !B : C, A + B -> A" : "!A, !B : A + B -> A";
}

/* --- gradients -------------------------------------------------------------------------------- */

static tsr_tensor *data_grad(tsri_op *op, tsr_tensor *dy)
{
    tsr_tensor *x = op->in[0], *in[5] = {x, op->in[1]};
    int n = 2;
    if (gamma_of(op) >= 0)
        in[n++] = op->in[gamma_of(op)];
    in[n++] = dy;
    tsr_tensor *sums = tsri_graph_add1(x->graph, TSRI_OP_LN_BWD_STATS, &op->attrs, n, in,
                                       op->in[1]->shape, TSR_F64, op->loc);
    in[n++] = sums;
    return sums->failed ? sums
                        : tsri_graph_add_like(TSRI_OP_LN_BWD_APPLY, &op->attrs, n, in, x, op->loc);
}

/* bwd_apply's formula holds the way through the statistics too, so none flows into them. */
static void grad_apply(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *dy = dout[0];
    int gamma = gamma_of(op), beta = op->attrs.ln.has_beta ? op->nin - 1 : -1;
    if (want[0])
        din[0] = data_grad(op, dy);
    if (gamma < 0 || !want[gamma]) {
        if (beta >= 0 && want[beta])
            din[beta] = tsri_make_sum_to(dy, op->in[beta]->shape, op->loc);
        return;
    }
    tsr_tensor *in[3] = {op->in[0], op->in[1], dy}, *g = op->in[gamma];
    tsri_op *both =
        tsri_graph_add_all_like(TSRI_OP_LN_PARAM_GRAD, &op->attrs, 3, in, 2, g, op->loc);
    if (!both)
        return;
    din[gamma] = both->out[0];
    if (beta >= 0 && want[beta])
        din[beta] = both->out[1];
}

static const tsri_attr_field ln_attrs[] = {TSRI_ATTR_FIELD(ln.eps, F64, "eps"),
                                           TSRI_ATTR_FIELD(ln.count, I64, "features"),
                                           TSRI_ATTR_FIELD(ln.axes, I32, "axes"),
                                           TSRI_ATTR_FIELD(ln.has_gamma, I32, "has a weight"),
                                           TSRI_ATTR_FIELD(ln.has_beta, I32, "has a bias"),
                                           TSRI_ATTR_END};

const tsri_op_def tsri_def_ln_stats = {.rule_text = "!A -> B",
                                       .names = name_axes,
                                       .flops_per_element = 4,
                                       .rows = TSRI_ROWS_NORM,
                                       .attrs = ln_attrs,
                                       .autocast = TSRI_AUTOCAST_F32};
const tsri_op_def tsri_def_ln_apply = {.rule_of = rule_apply,
                                       .names = name_axes,
                                       .gradient = grad_apply,
                                       .flops_per_element = 4,
                                       .rows = TSRI_ROWS_NORM,
                                       .attrs = ln_attrs,
                                       .autocast = TSRI_AUTOCAST_F32};
const tsri_op_def tsri_def_ln_bwd_stats = {.rule_of = rule_bwd_stats,
                                           .names = name_axes,
                                           .flops_per_element = 4,
                                           .rows = TSRI_ROWS_NORM,
                                           .attrs = ln_attrs};
const tsri_op_def tsri_def_ln_bwd_apply = {.rule_of = rule_bwd_apply,
                                           .names = name_axes,
                                           .flops_per_element = 4,
                                           .rows = TSRI_ROWS_NORM,
                                           .attrs = ln_attrs};
const tsri_op_def tsri_def_ln_param_grad = {.rule_text = "!A, !B, A -> C; _, _, A -> C",
                                            .names = name_axes,
                                            .flops_per_element = 4,
                                            .attrs = ln_attrs};
