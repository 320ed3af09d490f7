/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that run out of inputs at different times. While join is on, each run starts with a round
 * in which every rank says whether it still has inputs; those that have not shadow the collectives
 * of the others with zeros. When nobody has any left, all take over what the last one has.
 */
#include <string.h>

#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/nn/module.h"
#include "src/train/ddp.h"

tsr_status tsr_ddp_join_begin(tsr_ddp *d, const tsr_ddp_join_opts *opts)
{
    TSRI_TRY(tsri_live_check(d, TSRI_LIVE_DDP, __func__));
    tsr_ddp_join_opts o = *TSR_DDP_JOIN_OPTS();
    if (!d)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_join_begin: ddp is NULL");
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, "tsr_ddp_join_begin"));
    if (d->opts.hook_fn)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "tsr_ddp_join_begin: with a hook of the user's own, whose collectives a "
                         "rank without inputs can't know");
    d->joining.opts = o;
    d->joining.on = true;
    d->joining.before = d->joining.runs;
    d->joining.last = 0;
    return TSR_OK;
}

/* How many go on. Where nobody does, d->last stays: the same on all ranks, since all were in the
 * round before. */
static int count_active(tsr_ddp *d)
{
    int n = 0;
    for (int r = 0; r < d->nranks; r++)
        if (d->joining.rounds[r].active) {
            n++;
            d->joining.last = r;
        }
    return n;
}

static tsr_status exchange(tsr_ddp *d, tsri_ddp_round mine)
{
    TSRI_TRY(tsri_ddp_label(d, "ddp join, round %lld", (long long)++d->joining.runs));
    return tsr_all_gather_into_at(d->group, &mine, d->joining.rounds,
                                  (int64_t)(sizeof mine / sizeof(int64_t)), TSR_I64, NULL,
                                  d->loc.file, d->loc.line);
}

/* The ranks that go on must do the same. */
static tsr_status check_alike(const tsr_ddp *d)
{
    int last = d->joining.last;
    for (int r = 0; r < d->nranks; r++)
        if (d->joining.rounds[r].active &&
            d->joining.rounds[r].syncs != d->joining.rounds[last].syncs)
            return tsri_fail(
                TSR_ERR_MISMATCH, "tsr_ddp_run: rank %d runs %s no_sync, rank %d %s it",
                tsr_group_world_rank(d->group, r), d->joining.rounds[r].syncs ? "without" : "under",
                tsr_group_world_rank(d->group, last),
                d->joining.rounds[last].syncs ? "without" : "under");
    return TSR_OK;
}

static tsr_status check_early(const tsr_ddp *d, int active)
{
    if (!d->joining.opts.throw_on_early_termination || active == d->nranks || active == 0)
        return TSR_OK;
    int first = 0;
    while (d->joining.rounds[first].active)
        first++;
    return tsri_fail(TSR_ERR_STATE,
                     "tsr_ddp_join: rank %d has exhausted its inputs after %lld runs, while %d of "
                     "%d ranks have more (throw_on_early_termination)",
                     tsr_group_world_rank(d->group, first),
                     (long long)(d->joining.runs - d->joining.before) - 1, active, d->nranks);
}

static void set_divisor(tsr_ddp *d, int active)
{
    d->run.divisor = d->joining.opts.divide_by_active ? active : d->nranks;
}

tsr_status tsri_ddp_join_round(tsr_ddp *d, bool syncs, bool *io_buffers, int *out_root)
{
    TSRI_TRY(exchange(d, (tsri_ddp_round){true, syncs, *io_buffers}));
    int active = count_active(d);
    TSRI_TRY(check_early(d, active));
    TSRI_TRY(check_alike(d));
    set_divisor(d, active);
    *out_root = d->joining.last; /* as in PyTorch: the highest rank that goes on */
    *io_buffers = d->joining.rounds[d->joining.last].buffers;
    return TSR_OK;
}

/* Does what an active rank does in a synchronised run, with no gradients of its own. */
static tsr_status shadow(tsr_ddp *d)
{
    tsr_ddp_zero_grad(d); /* of runs under no_sync, too: zeros stand for them */
    if (d->joining.rounds[d->joining.last].buffers)
        TSRI_TRY(tsri_ddp_send_buffers(d, d->joining.last));
    if (!d->joining.rounds[d->joining.last].syncs)
        return TSR_OK;
    for (int i = 0; i < d->nparams; i++) {
        d->params[i].written = false;
        TSRI_TRY(tsri_ddp_clear(d, d->params[i].grad->data, d->params[i].grad->bytes));
    }
    for (int b = 0; b < d->nbuckets; b++)
        d->buckets[b].waiting = 0;
    d->run.next_bucket = 0;
    TSRI_TRY(tsri_ddp_start_buckets(d));
    return tsri_ddp_finish_buckets(d);
}

/* Everyone takes over the parameters and buffers of rank `root`. */
static tsr_status take_over(tsr_ddp *d, int root)
{
    TSRI_TRY(
        tsri_ddp_label(d, "ddp join, parameters of rank %d", tsr_group_world_rank(d->group, root)));
    TSRI_TRY(tsri_ddp_send(d, d->nparams, d->listed, root));
    return tsri_ddp_send_buffers(d, root);
}

/* Shadows the others until nobody goes on. */
static tsr_status join(tsr_ddp *d)
{
    for (;;) {
        TSRI_TRY(exchange(d, (tsri_ddp_round){0}));
        int active = count_active(d);
        if (!active)
            break;
        TSRI_TRY(check_early(d, active));
        TSRI_TRY(check_alike(d));
        set_divisor(d, active);
        TSRI_TRY(shadow(d));
    }
    d->joining.on = false;
    d->buffers_next = true; /* whatever each rank's own last run was */
    tsr_ddp_zero_grad(d);
    return take_over(d, d->joining.last);
}

tsr_status tsr_ddp_join_at(tsr_ddp *d, const char *file, int line)
{
    TSRI_TRY(tsri_live_check(d, TSRI_LIVE_DDP, "tsr_ddp_join"));
    if (!d)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_join: ddp is NULL");
    if (!d->joining.on)
        return tsri_fail(TSR_ERR_STATE, "tsr_ddp_join: tsr_ddp_join_begin comes first");
    d->loc = (tsri_loc){file, line};
    tsri_ddp_kept kept = tsri_ddp_keep_label(d);
    tsr_status status = join(d);
    tsri_ddp_put_back(d, &kept);
    return status;
}
