/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of a ddp's plan: forward and backward, in which each bucket's average starts as soon as its
 * gradients are written and all buckets before it have started.
 */
#include <string.h>

#include "src/core/clock.h"
#include "src/core/live.h"
#include "src/exec/watch.h"
#include "src/train/ddp.h"

/* --- before ----------------------------------------------------------------------------------- */
/* Makes the plan call tsri_ddp_written for each gradient, from now on. */
static tsr_status watch_plan(tsr_ddp *d, tsr_plan *plan)
{
    if (tsri_plan_watcher(plan) == d)
        return TSR_OK;
    size_t n = (size_t)d->nparams;
    tsr_variable **grads = tsri_mem_alloc(&d->world->mem, n * (sizeof *grads + sizeof(int)));
    TSRI_NEED(grads);
    int *bucket = (int *)(void *)(grads + n);
    for (int i = 0; i < d->nparams; i++) {
        grads[i] = d->params[i].grad;
        bucket[i] = d->params[i].bucket;
    }
    int nwatched = 0;
    tsr_status status =
        tsri_plan_watch(plan, d->nparams, grads, bucket, tsri_ddp_written, d, &nwatched);
    tsri_mem_free(grads);
    TSRI_TRY(status);
    if (!nwatched)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_ddp_run: the plan has no backward pass into this ddp: declare "
                         "tsr_ddp_backward, or use tsr_run to evaluate");
    return TSR_OK;
}

/* Copies a bucket's gradients of earlier runs, to which this run's are added. */
static tsr_status copy_earlier(tsr_ddp *d, tsri_ddp_bucket *b)
{
    if (!b->earlier && d->side)
        TSRI_TRY(d->device->ops->buffer_alloc(d->device, b->bytes, &b->earlier));
    if (!b->earlier && !(b->earlier = tsri_mem_alloc(&d->world->mem, b->bytes)))
        return TSR_ERR_NO_MEMORY;
    return tsri_ddp_copy(d, b->earlier, b->pub.data, b->bytes);
}

/* Makes the buckets ready for a run of the plan. A gradient that an earlier run left stays. A
 * parameter that has none yet, and to which this run writes none, gets a gradient of zeros. */
static tsr_status prepare_buckets(tsr_ddp *d, tsr_plan *plan)
{
    d->run.next_bucket = 0;
    d->run.first_at_s = 0;
    for (int k = 0; k < d->nbuckets; k++) {
        tsri_ddp_bucket *b = &d->buckets[k];
        bool adds_to_earlier = false;
        b->waiting = 0;
        for (int i = b->first; i < b->first + b->pub.nparams; i++) {
            tsri_ddp_param *p = &d->params[i];
            bool writes = tsri_plan_watches(plan, i);
            p->written = false;
            b->waiting += writes;
            adds_to_earlier |= p->there && writes;
            if (!p->there && !writes)
                TSRI_TRY(tsri_ddp_clear(d, p->grad->data, p->grad->bytes));
        }
        if (adds_to_earlier)
            TSRI_TRY(copy_earlier(d, b));
    }
    return TSR_OK;
}

/* --- while it runs ---------------------------------------------------------------------------- */

tsr_status tsri_ddp_written(void *arg, int i)
{
    tsr_ddp *d = arg;
    tsri_ddp_param *p = &d->params[i];
    tsri_ddp_bucket *b = &d->buckets[p->bucket];
    p->written = true;
    b->waiting--;
    if (p->there) {
        /* The run wrote over the gradient of earlier runs, of which b->earlier is a copy. */
        size_t offset = (size_t)((char *)p->grad->data - (char *)b->pub.data);
        TSRI_TRY(tsri_ddp_add_to(d, p->v->dtype, tsr_dims_count(p->v->shape), p->grad->data,
                                 (char *)b->earlier + offset));
    }
    return d->run.reduces ? tsri_ddp_start_buckets(d) : TSR_OK;
}

/* --- after ------------------------------------------------------------------------------------ */

/* Waits for the averages of all buckets; under no_sync, only notes which parameters have a gradient
 * now. `ran_at` is the time, in seconds, at which the plan's run ended. */
static tsr_status finish_run(tsr_ddp *d, double ran_at)
{
    if (!d->run.reduces) {
        for (int i = 0; i < d->nparams; i++)
            d->params[i].there |= d->params[i].written;
        return TSR_OK;
    }
    TSRI_TRY(tsri_ddp_start_buckets(d)); /* buckets to which nothing is written */
    TSRI_TRY(tsri_ddp_finish_buckets(d));
    d->info.comm_s += tsri_now_s() - d->run.first_at_s;
    d->info.overlap_s += ran_at > d->run.first_at_s ? ran_at - d->run.first_at_s : 0;
    return TSR_OK;
}

/* Runs the plan once: the round of join first, if join is on, then the comparison, if one is asked
 * for, then the buffers, if they are to be broadcast, then forward and backward, and the averages
 * that remain. */
tsr_status tsri_ddp_run_plan(tsr_ddp *d, tsr_plan *plan, bool syncs)
{
    int buffer_root = 0; /* the rank of the group whose buffers all ranks get */
    bool sends_buffers = d->buffers_next && d->opts.broadcast_buffers && d->sent.nbuffers;
    d->run.reduces = syncs;
    d->run.divisor = d->nranks;
    TSRI_TRY(watch_plan(d, plan));
    if (d->joining.on)
        TSRI_TRY(tsri_ddp_join_round(d, d->run.reduces, &sends_buffers, &buffer_root));
    if (syncs)
        TSRI_TRY(tsri_ddp_compare(d));
    if (sends_buffers)
        TSRI_TRY(tsri_ddp_send_buffers(d, buffer_root));
    d->buffers_next = d->run.reduces;
    TSRI_TRY(prepare_buckets(d, plan));
    double started_at = tsri_now_s();
    tsr_status status = tsri_plan_run(plan);
    TSRI_TRY(status);
    double ran_at = tsri_now_s();
    d->info.run_s += ran_at - started_at;
    d->info.runs++;
    return finish_run(d, ran_at);
}

tsr_status tsr_ddp_run_at(tsr_ddp *d, tsr_plan *plan, const char *file, int line)
{
    TSRI_TRY(tsri_live_check(d, TSRI_LIVE_DDP, "tsr_ddp_run"));
    TSRI_TRY(tsri_live_check(plan, TSRI_LIVE_PLAN, "tsr_ddp_run"));
    if (!d || !plan)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_run: %s",
                         d ? "no plan (did tsr_compile fail?)" : "ddp is NULL");
    if (plan->ir.runner.arg)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_ddp_run: the plan is of tsr_ddp_minimize; tsr_run runs it");
    d->loc = (tsri_loc){file, line};
    tsri_ddp_kept kept = tsri_ddp_keep_label(d);
    tsr_status status = tsri_ddp_run_plan(d, plan, !d->no_sync);
    tsri_ddp_put_back(d, &kept);
    return status;
}
