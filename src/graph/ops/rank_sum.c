/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the ranks of a group, inside the local graph of each. */
#include <stdio.h>
#include <string.h>

#include <tessera/collective.h>
#include "placement/placement.h"
#include "src/core/live.h"
#include "src/graph/op.h"

bool tsri_read_group(const tsri_ctx *c, const tsr_group *group, tsri_attrs *attrs)
{
    if (!group)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "the group is NULL%s", tsri_error_cause());
    if (!tsri_is_live(group, TSRI_LIVE_GROUP, c->op)) {
        tsri_graph_fail_last(c->g, TSR_ERR_INVALID);
        return false;
    }
    int n = tsr_group_size(group);
    if (tsr_group_world_rank(group, tsr_group_rank(group)) != c->g->world->rank)
        return tsri_op_refuse(c, TSR_ERR_INVALID,
                              "the group belongs to another world than the graph");
    int *ranks = tsri_pool_alloc(&c->g->pool, (size_t)n * sizeof *ranks);
    if (!ranks) {
        tsri_graph_fail_last(c->g, TSR_ERR_NO_MEMORY);
        return false;
    }
    for (int i = 0; i < n; i++)
        ranks[i] = tsr_group_world_rank(group, i);
    *attrs = (tsri_attrs){0};
    attrs->rank_sum.ranks = ranks;
    attrs->rank_sum.nranks = n;
    attrs->rank_sum.group = group;
    return true;
}

bool tsri_make_rank_sum(const tsri_attrs *attrs, int n, tsr_tensor *const *x, tsr_tensor **out,
                        tsri_loc loc)
{
    tsr_graph *g = x[0]->graph;
    tsr_dims shapes[TSRI_RULE_MAX_ARGS] = {0};
    tsr_dtype dtypes[TSRI_RULE_MAX_ARGS] = {0};
    for (int i = 0; i < n; i++) {
        shapes[i] = x[i]->shape;
        dtypes[i] = x[i]->dtype;
    }
    const tsri_op *op =
        tsri_graph_add(g, TSRI_OP_RANK_SUM, attrs, n, x, n, shapes, dtypes, x[0]->placement, loc);
    for (int i = 0; i < n && op; i++)
        out[i] = op->out[i];
    return op && g->failure.status == TSR_OK;
}

tsr_tensor *tsr_rank_sum_at(tsr_tensor *x, const tsr_group *group, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *y;
    tsri_ctx c;
    tsri_attrs attrs;
    if (!tsri_op_begin(&c, "rank_sum", 1, &x, 0, loc))
        return c.failed;
    if (!c.g->local)
        return tsri_op_fail(&c, TSR_ERR_STATE,
                            "the graph is one of all ranks; legal in local graphs alone (here "
                            "tsr_sum of a tensor that is split over the ranks is such a sum)");
    if (!tsri_read_group(&c, group, &attrs))
        return c.failed;
    if (attrs.rank_sum.nranks == 1)
        return tsri_as_result(x, x, loc);
    return tsri_make_rank_sum(&attrs, 1, &x, &y, loc) ? y : &c.g->failure.tensor;
}

/* One rank: there is nothing to split, or to leave partial. */
static tsr_status rule_rank_sum(const tsri_op *op, tsri_rule_text *out)
{
    char text[TSRI_RULE_MAX_ARGS * TSRI_AXES_TEXT] = "",
                                   in[TSRI_RULE_MAX_ARGS * TSRI_AXES_TEXT] = "";
    char buf[TSRI_AXES_TEXT];
    size_t at = 0, from = 0;
    for (int i = 0; i < op->nin; i++) {
        const char *axes = tsri_axes_text(buf, op->in[i]->shape.ndim, ~0u, '.');
        from += (size_t)snprintf(in + from, sizeof in - from, "%s!%s", i ? ", " : "", axes);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ", " : "", axes);
    }
    return tsri_write_rule(out, "%s -> %s", in, text);
}

/* The addend of rank r counts in every rank's sum, so in every rank's loss. */
static void grad_rank_sum(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *in[TSRI_RULE_MAX_ARGS], *sums[TSRI_RULE_MAX_ARGS];
    int n = 0;
    for (int i = 0; i < op->nin; i++)
        if (want[i] && dout[i])
            in[n++] = dout[i];
    if (!n || !tsri_make_rank_sum(&op->attrs, n, in, sums, op->loc))
        return;
    for (int i = op->nin; i-- > 0;)
        if (want[i] && dout[i])
            din[i] = sums[--n];
}

const tsri_op_def tsri_def_rank_sum = {.rule = rule_rank_sum,
                                       .gradient = grad_rank_sum,
                                       .autocast = TSRI_AUTOCAST_NONE,
                                       .keeps_dtype = true};
