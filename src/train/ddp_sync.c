/* SPDX-License-Identifier: Apache-2.0 */
/* The exchanges of a tsr_ddp's ranks in a run: buffers, buckets of gradients, which parameters
 * were used. */
#include "src/core/clock.h"
#include "src/train/ddp.h"

tsr_status tsri_ddp_send_buffers(tsr_ddp *d, int root)
{
    TSRI_TRY(tsri_ddp_label(d, "ddp run %lld, buffers", (long long)d->info.syncs + 1));
    return tsri_ddp_send(d, d->sent.nbuffers, d->sent.buffers, root);
}

tsr_status tsri_ddp_start_buckets(tsr_ddp *d)
{
    const int first = d->run.next_bucket;
    while (d->run.next_bucket < d->nbuckets && !d->buckets[d->run.next_bucket].waiting) {
        if (d->side && d->run.next_bucket == first)
            TSRI_TRY(tsri_side_follow(d->side));
        if (d->run.first_at_s == 0)
            d->run.first_at_s = tsri_now_s();
        TSRI_TRY(tsri_ddp_start_bucket(d, d->run.next_bucket));
        d->run.next_bucket++;
    }
    return TSR_OK;
}

/* Which parameters have a gradient on some rank, of this run or of runs under no_sync before it:
 * others keep none. */
static tsr_status agree_used(tsr_ddp *d)
{
    bool asks = d->opts.find_unused_parameters || d->opts.static_graph;
    if (!asks || (d->opts.static_graph && d->knows_used))
        return TSR_OK;
    for (int i = 0; i < d->nparams; i++)
        d->used[i] = d->params[i].there || d->params[i].written;
    TSRI_TRY(tsri_ddp_label(d, "ddp run %lld, used parameters", (long long)d->info.syncs + 1));
    TSRI_TRY(tsr_all_reduce_at(d->group, d->used, d->nparams, TSR_U8, TSR_REDUCE_MAX, NULL,
                               d->loc.file, d->loc.line));
    d->knows_used = true;
    return TSR_OK;
}

tsr_status tsri_ddp_finish_buckets(tsr_ddp *d)
{
    for (int b = 0; b < d->nbuckets; b++)
        TSRI_TRY(tsri_ddp_finish_bucket(d, b));
    if (d->side)
        TSRI_TRY(tsri_side_lead(d->side));
    TSRI_TRY(agree_used(d));
    d->info.unused = 0;
    for (int i = 0; i < d->nparams; i++) {
        tsri_ddp_param *p = &d->params[i];
        p->there |= d->knows_used ? d->used[i] : p->written;
        d->info.unused += !p->there;
    }
    d->info.syncs++;
    return TSR_OK;
}
