/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm, decomposed: statistics -> (boxing) -> normalisation, so that its statistics are those
 * of the global batch, or of R virtual batches, wherever the data is.
 *
 * E[x^2] - m^2 loses as many digits as m^2 is larger than the variance. So f64 data is centred
 * first: the sums of x give the mean to within rounding, and all that follows is done with x - m,
 * whose own mean, which is that rounding, is taken off in its turn (the corrected two-pass
 * algorithm; Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983). That
 * costs a second pass and a second small all_reduce. The squares of f32 data are exact in the f64
 * that its sums are of, so that the loss is less than what rounding x to f32 lost before.
 *
 * In local graphs statistics may be those of all ranks' batches: the sums s_r and the numbers of
 * values n_r are added up over the ranks, to s and N, and each rank's kernels, which divide by n_r,
 * are given s n_r/N. Backward the same is done with the sums of dy and dy*xhat.
 */
#include <math.h>
#include <string.h>

#include "src/graph/op.h"

static bool read_options(const tsri_ctx *c, const tsr_batch_norm_opts *opts, const tsr_tensor *x,
                         tsri_attrs *out)
{
    tsr_batch_norm_opts o = *TSR_BATCH_NORM_OPTS();
    if (!tsri_want_options(c, &o, sizeof o, opts) || !tsri_want_eps(c, o.eps))
        return false;
    if (!(o.momentum >= 0 && o.momentum <= 1))
        return tsri_op_refuse(c, TSR_ERR_INVALID, "momentum is %g; it must be in [0, 1]",
                              o.momentum);
    if (o.stats != TSR_BN_GLOBAL && o.stats != TSR_BN_LOCAL)
        return tsri_op_refuse(c, TSR_ERR_INVALID,
                              "stats is %d; legal are TSR_BN_GLOBAL and TSR_BN_LOCAL",
                              (int)o.stats);
    if (o.parts < 0 || (o.parts > 1 && o.stats == TSR_BN_GLOBAL))
        return tsri_op_refuse(c, TSR_ERR_INVALID,
                              "parts is %d; it must be at least 1, with TSR_BN_LOCAL", o.parts);
    *out = (tsri_attrs){0};
    out->bn.eps = o.eps;
    out->bn.momentum = o.momentum;
    out->bn.parts = o.stats == TSR_BN_GLOBAL ? 1
                    : o.parts                ? o.parts
                                             : tsr_placement_nranks(x->placement);
    out->bn.batch = x->shape.d[0];
    out->bn.spatial = x->shape.ndim == 4 ? x->shape.d[2] * x->shape.d[3] : 1;
    out->bn.count =
        out->bn.batch % out->bn.parts ? 0 : out->bn.batch / out->bn.parts * out->bn.spatial;
    return true;
}

/* The group to join statistics over; none outside local training graphs. */
static bool read_sync(const tsri_ctx *c, const tsr_batch_norm_opts *opts, const tsri_attrs *attrs,
                      tsri_attrs *out_group)
{
    tsr_batch_norm_opts o = *TSR_BATCH_NORM_OPTS();
    *out_group = (tsri_attrs){0};
    if (!tsri_want_options(c, &o, sizeof o, opts))
        return false;
    if (!o.sync || !c->g->local || !c->g->training)
        return true;
    if (attrs->bn.parts > 1)
        return tsri_op_refuse(
            c, TSR_ERR_INVALID,
            "statistics of %d virtual batches can't be joined over ranks; legal is "
            "TSR_BN_GLOBAL",
            attrs->bn.parts);
    return tsri_read_group(c, o.sync, out_group);
}

/* The running averages are both there or both not, of (c), or (R,c). */
static bool want_running(const tsri_ctx *c, tsr_tensor *const running[2], int64_t channels,
                         const tsri_attrs *attrs)
{
    static const char *const what[2] = {"running_mean", "running_var"};
    if (!running[0] != !running[1])
        return tsri_op_refuse(c, TSR_ERR_INVALID, "%s is given and %s is not; give both or none",
                              what[!running[0]], what[!!running[0]]);
    for (int i = 0; i < 2 && running[0]; i++) {
        const tsr_tensor *r = running[i];
        bool rows = r->shape.ndim == 2 && r->shape.d[1] == channels && r->shape.d[0] > 0;
        bool vector = r->shape.ndim == 1 && r->shape.d[0] == channels;
        bool fits = !c->g->training        ? rows || vector
                    : attrs->bn.parts == 1 ? vector || (rows && r->shape.d[0] == 1)
                                           : rows && r->shape.d[0] == attrs->bn.parts;
        if (!fits || !tsr_dims_equal(r->shape, running[0]->shape))
            return tsri_op_refuse(
                c, TSR_ERR_SHAPE,
                "%s is %s, with %d virtual batch%s and %lld channels; legal are (c) for "
                "global statistics and (parts,c) for local ones, both alike",
                what[i], tsri_op_dims(c, r), attrs->bn.parts, attrs->bn.parts == 1 ? "" : "es",
                (long long)channels);
        if (c->g->training && !r->op->variable)
            return tsri_op_refuse(c, TSR_ERR_INVALID,
                                  "%s is no variable; a training graph writes it", what[i]);
    }
    return true;
}

/* The results of the passes over the data: over all ranks of a group (total, count: the number of
 * values of a channel) and as the kernels of this rank are given it. Without a group both are one,
 * and count is NULL. */
typedef struct bn_sums {
    tsr_tensor *total, *mine, *count;
} bn_sums;

/* centre: what the data was centred by; total is NULL where it was not. */
static void update_running(tsr_graph *g, const tsri_attrs *attrs, bn_sums stats, bn_sums centre,
                           tsr_tensor *const running[2], tsri_loc loc)
{
    tsr_variable *mean = running[0]->op->variable, *var = running[1]->op->variable;
    tsr_tensor *in[5] = {stats.total, tsri_graph_current(g, mean, loc),
                         tsri_graph_current(g, var, loc)};
    int n = 3;
    if (stats.count)
        in[n++] = stats.count;
    if (centre.total)
        in[n++] = centre.total;
    tsr_dims shapes[2] = {running[0]->shape, running[1]->shape};
    tsr_dtype dtypes[2] = {running[0]->dtype, running[1]->dtype};
    tsri_op *op = tsri_graph_add(g, TSRI_OP_BN_RUNNING, attrs, n, in, 2, shapes, dtypes, NULL, loc);
    if (!op)
        return;
    tsri_graph_write(g, op, 0, mean);
    tsri_graph_write(g, op, 1, var);
}

/* --- over the ranks of local graphs ----------------------------------------------------------- */
static tsr_tensor *make_scalar(tsr_tensor *like, double value, tsri_loc loc)
{
    return tsri_make_fill(like->graph, TSR_SCALAR, TSR_F64, like->placement, value, loc);
}

/* sums times share = n_r/N, which is a result of tsri_make_binary too. */
static tsr_tensor *times(tsr_tensor *sums, tsr_tensor *share, tsri_loc loc)
{
    return tsri_make_binary("batch_norm", TSRI_BINARY_MUL, sums, share, TSR_F64, loc);
}

/* Adds up this rank's statistics over the ranks. */
static bool join_stats(const tsri_ctx *c, const tsri_attrs *attrs, const tsri_attrs *group,
                       bn_sums *stats)
{
    double count = (double)attrs->bn.batch * (double)attrs->bn.spatial;
    tsr_tensor *own = make_scalar(stats->mine, count, c->loc), *sums[2];
    tsr_tensor *in[2] = {stats->mine, own};
    if (own->failed || !tsri_make_rank_sum(group, 2, in, sums, c->loc))
        return false;
    tsr_tensor *share =
        tsri_make_binary("batch_norm", TSRI_BINARY_DIV, own, sums[1], TSR_F64, c->loc);
    if (share->failed)
        return false;
    *stats = (bn_sums){sums[0], times(sums[0], share, c->loc), sums[1]};
    return !stats->mine->failed;
}

/* Where statistics came out of join_stats: the op that added them up, by which group; and the share
 * of this rank. NULL: they are not joined. */
static const tsri_op *joined_by(const tsr_tensor *stats, tsr_tensor **out_share)
{
    if (stats->op->kind != TSRI_OP_BINARY)
        return NULL;
    const tsr_tensor *sums = stats->op->in[0];
    *out_share = stats->op->in[1];
    return sums->op->kind == TSRI_OP_RANK_SUM ? sums->op : NULL;
}

/* Reduces the sums of backward. */
static tsr_tensor *join_backward(const tsri_op *by, tsr_tensor *share, tsr_tensor *sums,
                                 tsri_loc loc)
{
    tsr_tensor *total;
    if (!tsri_make_rank_sum(&by->attrs, 1, &sums, &total, loc))
        return &sums->graph->failure.tensor;
    return times(total, share, loc);
}

/* --- declaration ------------------------------------------------------------------------------ */
/* group.rank_sum.nranks <= 1: this graph's values alone. */
static bool take_stats(const tsri_ctx *c, const tsri_attrs *attrs, const tsri_attrs *group,
                       tsr_tensor *x, bn_sums *out)
{
    tsr_dims shape = TSR_DIMS(attrs->bn.parts, 2, x->shape.d[1]);
    tsr_tensor *stats =
        tsri_graph_add1(c->g, TSRI_OP_BN_STATS, attrs, 1, &x, shape, TSR_F64, c->loc);
    *out = (bn_sums){stats, stats, NULL};
    return !stats->failed && (group->rank_sum.nranks <= 1 || join_stats(c, attrs, group, out));
}

static tsr_tensor *normalise(const tsri_ctx *c, const tsri_attrs *attrs, const tsri_attrs *group,
                             tsr_tensor *const x[5])
{
    tsr_tensor *data = x[0];
    bn_sums stats, centre = {0};
    if (x[3] && c->g->training && attrs->bn.parts == 1 && attrs->bn.count == 1 &&
        group->rank_sum.nranks <= 1)
        return tsri_op_fail(c, TSR_ERR_SHAPE,
                            "x %s has one value per channel, of which there is no variance; train "
                            "with a larger batch",
                            tsri_op_dims(c, data));
    if (data->dtype == TSR_F64) {
        if (!take_stats(c, attrs, group, data, &centre))
            return c->failed;
        /* The mean of the totals, so that all ranks have the same one to the last bit. */
        tsr_tensor *in[3] = {data, centre.total, centre.count};
        data =
            tsri_graph_add_like(TSRI_OP_BN_CENTER, attrs, centre.count ? 3 : 2, in, data, c->loc);
        if (data->failed)
            return data;
    }
    if (!take_stats(c, attrs, group, data, &stats))
        return c->failed;
    if (x[3] && c->g->training)
        update_running(c->g, attrs, stats, centre, x + 3, c->loc);
    tsr_tensor *in[4] = {data, stats.mine, x[1], x[2]};
    return tsri_graph_add_like(TSRI_OP_BN_APPLY, attrs, 4, in, data, c->loc);
}

static tsr_tensor *scale_by_running(const tsri_ctx *c, const tsri_attrs *attrs,
                                    tsr_tensor *const x[5])
{
    tsri_op *fold = tsri_graph_add_all_like(TSRI_OP_BN_FOLD, attrs, 4, x + 1, 2, x[1], c->loc);
    if (!fold)
        return c->failed;
    tsr_tensor *in[3] = {x[0], fold->out[0], fold->out[1]};
    tsr_tensor *y = tsri_graph_add_like(TSRI_OP_SCALE_SHIFT, NULL, 3, in, x[0], c->loc);
    if (y->op)
        y->op->evaluates = "batch norm takes its running averages, and leaves them";
    return y;
}

tsr_tensor *tsr_batch_norm_at(tsr_tensor *x, tsr_tensor *gamma, tsr_tensor *beta,
                              tsr_tensor *running_mean, tsr_tensor *running_var,
                              const tsr_batch_norm_opts *opts, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[5] = {x, gamma, beta, running_mean, running_var};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "batch_norm", 5, in, 3u << 3, loc))
        return c.failed;
    if (x->shape.ndim != 4 && x->shape.ndim != 2)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s; it must be (n,c,h,w) or (n,c)",
                            tsri_op_dims(&c, x));
    tsri_attrs attrs, group;
    int64_t channels = x->shape.d[1];
    if (!tsri_want_same_dtype(&c, 5, in) || !tsri_want_float(&c, x) ||
        !tsri_want_vector(&c, "gamma", gamma, channels) ||
        !tsri_want_vector(&c, "beta", beta, channels) || !read_options(&c, opts, x, &attrs) ||
        !want_running(&c, in + 3, channels, &attrs) || !read_sync(&c, opts, &attrs, &group))
        return c.failed;
    /* Autocast keeps the data's type; the weights are f32, as is all arithmetic. */
    for (int i = 1; i < 3; i++)
        in[i] = tsri_full(&c, in[i]);
    return running_mean && !c.g->training ? scale_by_running(&c, &attrs, in)
                                          : normalise(&c, &attrs, &group, in);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* A: the axes of the data, B: those of the statistics, C: the count of a group. R virtual batches
 * are an index r of both where R divides the batch. Where it does not, only R parts that are the
 * batches themselves may be split: data and statistics along their first axis, weights never. */
static void name_axes(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    const int32_t parts = op->attrs.bn.parts;
    const bool local = parts > 1, even = op->attrs.bn.batch % parts == 0;
    sprintf(names->a, "%s c%s",
            !local ? "n"
            : even ? "(r .)"
                   : ".",
            op->in[0]->shape.ndim == 4 ? " h w" : "");
    strcpy(names->b, local && even ? "r . c" : ". . c");
    strcpy(names->c, op->nin == 3 ? ", !()" : "");
    if (local && even)
        tsri_add_size(out, "r", parts);
    if (!local || even)
        return;
    const tsr_sbp1 s = {TSR_SBP_SPLIT, 0}, b = {TSR_SBP_BROADCAST, 0};
    out->extra_parts = parts;
    for (int i = 0; i < op->nin; i++)
        out->extra_in[i] = op->in[i]->shape.ndim > 1 ? s : b;
    for (int i = 0; i < op->nout; i++)
        out->extra_out[i] = op->out[i]->shape.ndim > 1 ? s : b;
}

static const char *rule_param_grad(const tsri_op *op)
{
    return op->attrs.bn.parts > 1 ? "r . c -> c, c" : ". . c -> c, c";
}

static tsr_status rule_running(const tsri_op *op, tsri_rule_text *out)
{
    const bool rows = op->in[1]->shape.ndim == 2;
    char more[2 * sizeof ", !. . c"] = "";
    for (int i = 3; i < op->nin; i++)
        strcat(more, op->in[i]->shape.ndim == 0 ? ", !()" : rows ? ", !r . c" : ", !. . c");
    return rows ? tsri_write_rule(out, "!r . c, !r c, !r c%s -> r c, r c", more)
                : tsri_write_rule(out, "!. . c, !c, !c%s -> c, c", more);
}

static const char *rule_fold(const tsri_op *op)
{
    return op->in[2]->shape.ndim == 2 ? "!c, !c, !. c, !. c -> c, c" : "!c, !c, !c, !c -> c, c";
}

static const char *rule_scale_shift(const tsri_op *op)
{
    return op->in[0]->shape.ndim == 4 ? "n c h w, c + c -> n c h w" : "n c, c + c -> n c";
}

/* --- gradients -------------------------------------------------------------------------------- */

/* The mean's own part is the sum of dout, and is 0: what batch norm gives for data is the same for
 * data with a constant added, so its gradient, which is all that ever comes here, sums to 0. */
static void grad_center(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)op;
    if (want[0])
        din[0] = dout[0];
}

/* bwd_apply's formula holds the way through the statistics too, so none flows into them. */
static void grad_apply(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0], *stats = op->in[1], *gamma = op->in[2], *dy = dout[0];
    tsr_graph *g = x->graph;
    tsr_tensor *sums_in[3] = {x, stats, dy};
    tsr_tensor *sums = tsri_graph_add1(g, TSRI_OP_BN_BWD_STATS, &op->attrs, 3, sums_in,
                                       stats->shape, TSR_F64, op->loc);
    if (want[0]) {
        tsr_tensor *share;
        const tsri_op *by = joined_by(stats, &share);
        tsr_tensor *joined = by && !sums->failed ? join_backward(by, share, sums, op->loc) : sums;
        tsr_tensor *in[5] = {x, stats, gamma, dy, joined};
        din[0] = tsri_graph_add_like(TSRI_OP_BN_BWD_APPLY, &op->attrs, 5, in, x, op->loc);
    }
    if (!want[2] && !want[3])
        return;
    tsri_op *grads =
        tsri_graph_add_all_like(TSRI_OP_BN_PARAM_GRAD, &op->attrs, 1, &sums, 2, gamma, op->loc);
    for (int i = 0; i < 2 && grads; i++)
        if (want[2 + i])
            din[2 + i] = grads->out[i];
}

/* The gradient of running averages of `shape`, (c) or (R,c), of which the first row alone is read.
 */
static tsr_tensor *in_first_row(tsr_tensor *grad, tsr_dims shape, tsri_loc loc)
{
    if (shape.ndim == 1)
        return grad;
    tsr_tensor *row = tsri_make_reshape(grad, TSR_DIMS(1, shape.d[1]), loc);
    return tsr_pad_at(row, TSR_DIMS(0, 0), TSR_DIMS(shape.d[0] - 1, 0), 0, loc.file, loc.line);
}

/* scale = gamma r, shift = beta - mean gamma r, with r = (var + eps)^(-1/2). Folding gamma = 1 and
 * beta = 0 gives r and -mean r. */
static void grad_fold(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsri_loc loc = op->loc;
    const char *file = loc.file;
    int line = loc.line;
    tsr_tensor *gamma = op->in[0], *mean = op->in[2];
    tsr_graph *g = gamma->graph;
    const tsr_placement *p = gamma->placement;
    tsr_tensor *d[2];
    for (int i = 0; i < 2; i++)
        d[i] = dout[i] ? dout[i] : tsri_make_fill(g, gamma->shape, gamma->dtype, p, 0, loc);
    if (want[1])
        din[1] = d[1];
    if (!want[0] && !want[2] && !want[3])
        return;
    tsr_tensor *in[4] = {tsri_make_fill(g, gamma->shape, gamma->dtype, p, 1, loc),
                         tsri_make_fill(g, gamma->shape, gamma->dtype, p, 0, loc), mean, op->in[3]};
    tsri_op *unit = tsri_graph_add_all_like(TSRI_OP_BN_FOLD, &op->attrs, 4, in, 2, gamma, loc);
    if (!unit)
        return;
    tsr_tensor *dgamma = tsr_add_at(tsr_mul_at(d[0], unit->out[0], file, line),
                                    tsr_mul_at(d[1], unit->out[1], file, line), file, line);
    if (want[0])
        din[0] = dgamma;
    if (want[2])
        din[2] = in_first_row(tsr_neg_at(tsr_mul_at(d[1], op->out[0], file, line), file, line),
                              mean->shape, loc);
    if (want[3]) {
        /* dr/dvar = -r^3/2, and both results are r times something. */
        tsr_tensor *r2 = tsr_mul_at(unit->out[0], unit->out[0], file, line);
        tsr_tensor *both = tsr_mul_at(dgamma, gamma, file, line);
        din[3] = in_first_row(tsr_mul_scalar_at(tsr_mul_at(both, r2, file, line), -0.5, file, line),
                              mean->shape, loc);
    }
}

/* Data of fewer bits than the factors is widened to their type first. */
static void grad_scale_shift(tsri_op *op, tsr_tensor *const *dout, const bool *want,
                             tsr_tensor **din)
{
    tsri_loc loc = op->loc;
    const char *file = loc.file;
    int line = loc.line;
    const tsr_dtype dtype = op->in[1]->dtype;
    tsr_tensor *x = op->in[0], *dy = tsri_autocast_to(dout[0], dtype, loc);
    bool planes = x->shape.ndim == 4;
    uint32_t others = planes ? 1u << 0 | 1u << 2 | 1u << 3 : 1u << 0;
    if (want[0]) {
        tsr_tensor *scale = op->in[1];
        if (planes)
            scale = tsri_make_reshape(scale, TSR_DIMS(x->shape.d[1], 1, 1), loc);
        din[0] = tsri_autocast_to(tsr_mul_at(dy, scale, file, line), x->dtype, loc);
    }
    if (want[1])
        din[1] = tsri_make_sum(tsr_mul_at(dy, tsri_autocast_to(x, dtype, loc), file, line), others,
                               false, 1, loc);
    if (want[2])
        din[2] = tsri_make_sum(dy, others, false, 1, loc);
}

/* --- cost ------------------------------------------------------------------------------------- */

static const tsri_attr_field bn_attrs[] = {TSRI_ATTR_FIELD(bn.eps, F64, "eps"),
                                           TSRI_ATTR_FIELD(bn.momentum, F64, "momentum"),
                                           TSRI_ATTR_FIELD(bn.count, I64, "elements of a channel"),
                                           TSRI_ATTR_FIELD(bn.batch, I64, "rows of the batch"),
                                           TSRI_ATTR_FIELD(bn.spatial, I64, "elements of a plane"),
                                           TSRI_ATTR_FIELD(bn.parts, I32, "virtual batches"),
                                           TSRI_ATTR_FIELD(bn.act, I32, "activation"),
                                           TSRI_ATTR_END};

/* A part in time has whole virtual batches, unless it has channels. Where there is one batch, its
 * sums are of all parts. */
static void cut_batches(tsri_op *op, const tsri_signature *sig, int k)
{
    const bool by_batch = sig->in[0].kind == TSR_SBP_SPLIT && sig->in[0].arg == 0;
    if (op->attrs.bn.parts == 1 || !by_batch)
        return;
    op->attrs.bn.parts /= k;
    op->attrs.bn.batch /= k;
}

const tsri_op_def tsri_def_bn_stats = {.rule_text = "!A -> B",
                                       .names = name_axes,
                                       .flops_per_element = 4,
                                       .attrs = bn_attrs,
                                       .cut = cut_batches,
                                       .layout = TSRI_LAYOUT_ANY,
                                       .chain = TSRI_CHAIN_SUMS,
                                       .walks = 1 << 0,
                                       .autocast = TSRI_AUTOCAST_NONE};
const tsri_op_def tsri_def_bn_center = {.rule_text = "!A, !BC -> A",
                                        .names = name_axes,
                                        .gradient = grad_center,
                                        .flops_per_element = 4,
                                        .attrs = bn_attrs,
                                        .cut = cut_batches,
                                        .layout = TSRI_LAYOUT_ANY,
                                        .autocast = TSRI_AUTOCAST_NONE};
const tsri_op_def tsri_def_bn_apply = {.rule_text = "!A, !B : c + c -> A",
                                       .names = name_axes,
                                       .gradient = grad_apply,
                                       .flops_per_element = 4,
                                       .attrs = bn_attrs,
                                       .cut = cut_batches,
                                       .layout = TSRI_LAYOUT_ANY,
                                       .chain = TSRI_CHAIN_MAP,
                                       .walks = 1 << 0,
                                       .is_cheap = true,
                                       .autocast = TSRI_AUTOCAST_NONE};
const tsri_op_def tsri_def_bn_bwd_stats = {.rule_text = "!A, !B, A -> B",
                                           .names = name_axes,
                                           .flops_per_element = 4,
                                           .attrs = bn_attrs,
                                           .cut = cut_batches,
                                           .layout = TSRI_LAYOUT_ANY,
                                           .chain = TSRI_CHAIN_SUMS,
                                           .walks = 1 << 0 | 1 << 2};
const tsri_op_def tsri_def_bn_bwd_apply = {.rule_text = "!A, !B, c : A + B -> A",
                                           .names = name_axes,
                                           .flops_per_element = 4,
                                           .attrs = bn_attrs,
                                           .cut = cut_batches,
                                           .layout = TSRI_LAYOUT_ANY,
                                           .chain = TSRI_CHAIN_MAP,
                                           .walks = 1 << 0 | 1 << 3};
const tsri_op_def tsri_def_bn_param_grad = {
    .rule_of = rule_param_grad, .attrs = bn_attrs, .cut = cut_batches, .may_wait = true};
const tsri_op_def tsri_def_bn_running = {.rule = rule_running,
                                         .over = 2,
                                         .attrs = bn_attrs,
                                         .may_wait = true,
                                         .autocast = TSRI_AUTOCAST_NONE};
const tsri_op_def tsri_def_bn_fold = {
    .rule_of = rule_fold, .gradient = grad_fold, .attrs = bn_attrs, .autocast = TSRI_AUTOCAST_NONE};
const tsri_op_def tsri_def_scale_shift = {.rule_of = rule_scale_shift,
                                          .gradient = grad_scale_shift,
                                          .flops_per_element = 4,
                                          .layout = TSRI_LAYOUT_ANY,
                                          .chain = TSRI_CHAIN_MAP,
                                          .walks = 1 << 0,
                                          .is_cheap = true,
                                          .autocast = TSRI_AUTOCAST_NONE};
