/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets on a device with streams. Gradients are written, cleared and added up in the stream of
 * compute; a bucket's average goes through the stream of the group's side, which follows compute
 * when the bucket is complete, and which compute follows when the run ends. So the host waits for
 * the device nowhere.
 *
 * Where the communicator reduces in place, the scaled gradients are where the gradients were, else
 * in memory of their own that peers read. Compressed ones always have memory of their own.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"
#include "src/train/ddp.h"

/* A kernel that multiplies a bucket by 1/divisor; a joined rank may change the divisor. */
struct tsri_ddp_scale {
    tsri_ddp_scale *next;
    double divisor;
    tsri_kernel *kernel;
};

/* --- kernels of a bucket ---------------------------------------------------------------------- */

static tsr_status find_scale(tsr_ddp *d, tsri_ddp_bucket *b, tsr_dtype dtype, double factor,
                             tsri_kernel **out_kernel)
{
    tsri_ddp_scale *s = b->scales;
    while (s && s->divisor != d->run.divisor)
        s = s->next;
    if (!s) {
        s = tsri_mem_alloc(&d->world->mem, sizeof *s);
        TSRI_NEED(s);
        tsr_status status = tsri_side_make_scale(d->side, dtype, b->pub.count, factor, &s->kernel);
        if (status != TSR_OK) {
            tsri_mem_free(s);
            return status;
        }
        s->divisor = d->run.divisor;
        s->next = b->scales;
        b->scales = s;
    }
    *out_kernel = s->kernel;
    return TSR_OK;
}

/* --- making and ending ------------------------------------------------------------------------ */

/* When a bucket of compressed gradients is reduced. */
static tsr_status widen_bucket(tsri_side_call *call)
{
    tsri_ddp_bucket *b = call->arg;
    return tsri_side_run(call->side, b->widen, b->small, b->pub.data);
}

/* dst: the buffer that the call reduces into; src: its addends. */
static tsr_status prepare_bucket(tsr_ddp *d, tsri_ddp_bucket *b, tsr_dtype dtype, void *src,
                                 void *dst)
{
    snprintf(b->what, sizeof b->what, "ddp, bucket %d", b->pub.index);
    b->seg = (tsri_segment){.src = src,
                            .dst = dst,
                            .dtype = dtype,
                            .shape = TSR_DIMS(b->pub.count),
                            .src_axis = -1,
                            .dst_axis = -1};
    b->call.coll = (tsri_coll){.kind = TSRI_COLL_ALL_REDUCE,
                               .op = TSR_REDUCE_SUM,
                               .nseg = 1,
                               .seg = &b->seg,
                               .what = b->what};
    b->call.end = b->widen ? widen_bucket : NULL;
    b->call.arg = b;
    return tsri_side_prepare(d->side, &b->call, true);
}

static tsr_status make_bucket(tsr_ddp *d, tsri_ddp_bucket *b, tsr_dtype small)
{
    const tsr_dtype sent = small ? small : b->pub.dtype;
    const int64_t n = b->pub.count;
    tsri_device *dev = d->device;
    b->addend_bytes = (size_t)n * tsr_dtype_size(sent) + 64;
    if (!d->side->in_place)
        TSRI_TRY(dev->ops->buffer_alloc(dev, b->addend_bytes, &b->addends));
    if (!small)
        return prepare_bucket(d, b, sent, b->addends ? b->addends : b->pub.data, b->pub.data);
    TSRI_TRY(dev->ops->buffer_alloc(dev, b->addend_bytes, &b->small));
    TSRI_TRY(tsri_side_make_cast(d->side, b->pub.dtype, small, n, &b->narrow));
    TSRI_TRY(tsri_side_make_cast(d->side, small, b->pub.dtype, n, &b->widen));
    return prepare_bucket(d, b, sent, b->addends ? b->addends : b->small, b->small);
}

tsr_status tsri_ddp_make_on_device(tsr_ddp *d)
{
    for (int i = 0; i < d->nbuckets; i++) {
        tsri_ddp_bucket *b = &d->buckets[i];
        const bool compressed = tsri_ddp_is_compressed(d, b);
        b->pub.stream = d->device->ops->stream_native(d->device, d->side->stream);
        if (!d->opts.hook_fn && b->pub.count)
            TSRI_TRY(make_bucket(d, b, compressed ? tsri_ddp_small_dtype(d) : TSR_DTYPE_NONE));
    }
    return TSR_OK;
}

/* Memory that another owner writes to, in the stream of compute, is free of the side's work then.
 */
void tsri_ddp_free_on_device(tsr_ddp *d)
{
    tsri_device *dev = d->device;
    if (!d->side)
        return;
    char before[2048]; /* the last error stays */
    snprintf(before, sizeof before, "%s", tsr_last_error());
    for (int i = 0; i < d->nbuckets && d->buckets; i++)
        tsri_side_unprepare(&d->buckets[i].call);
    tsri_side_unprepare(&d->sending);
    dev->ops->stream_sync(dev, d->side->stream);
    dev->ops->stream_sync(dev, dev->stream);
    tsri_fail(TSR_OK, "%s", before);
    for (int i = 0; i < d->nbuckets && d->buckets; i++) {
        tsri_ddp_bucket *b = &d->buckets[i];
        while (b->scales) {
            tsri_ddp_scale *next = b->scales->next;
            b->scales->kernel->destroy(b->scales->kernel);
            tsri_mem_free(b->scales);
            b->scales = next;
        }
        if (b->narrow)
            b->narrow->destroy(b->narrow);
        if (b->widen)
            b->widen->destroy(b->widen);
        if (b->addends)
            dev->ops->buffer_free(dev, b->addends, b->addend_bytes);
        if (b->small)
            dev->ops->buffer_free(dev, b->small, b->addend_bytes);
        if (b->earlier)
            dev->ops->buffer_free(dev, b->earlier, b->bytes);
        b->small = b->earlier = NULL;
    }
}

/* --- a bucket --------------------------------------------------------------------------------- */

/* Scales the gradients, where a sum of them is to be an average, into the addends. */
static tsr_status scale_bucket(tsr_ddp *d, tsri_ddp_bucket *b)
{
    void *addends = (void *)(uintptr_t)b->seg.src, *from = b->pub.data;
    tsri_kernel *scale;
    if (b->narrow) {
        TSRI_TRY(tsri_side_run(d->side, b->narrow, from, addends));
        from = addends;
    }
    if (d->run.divisor == 1 && from == addends)
        return TSR_OK;
    /* As on the host: the mean over all ranks takes 1/n in f32, and so do compressed gradients. */
    const bool rounds = !b->narrow && d->run.divisor != (double)d->nranks;
    const double factor =
        tsri_ddp_factor(d->run.divisor, rounds || b->seg.dtype == TSR_F64 ? b->seg.dtype : TSR_F32);
    TSRI_TRY(find_scale(d, b, b->seg.dtype, factor, &scale));
    return tsri_side_run(d->side, scale, from, addends);
}

tsr_status tsri_ddp_start_on_device(tsr_ddp *d, int bucket)
{
    tsri_ddp_bucket *b = &d->buckets[bucket];
    if (d->opts.hook_fn)
        return d->opts.hook_fn(d->opts.hook_state, &b->pub);
    if (!b->pub.count)
        return TSR_OK;
    if (b->call.state != TSRI_SIDE_IDLE) /* peers may read the addends of the last run */
        TSRI_TRY(tsri_side_release(&b->call));
    snprintf(b->what, sizeof b->what, "%s", d->group->label);
    b->call.coll.loc = d->loc;
    TSRI_TRY(scale_bucket(d, b));
    return tsri_side_start(&b->call);
}

tsr_status tsri_ddp_finish_on_device(tsr_ddp *d, int bucket)
{
    return d->buckets[bucket].call.side ? tsri_side_finish(&d->buckets[bucket].call) : TSR_OK;
}

/* --- one rank's values for all ---------------------------------------------------------------- */

static void describe(int n, tsr_variable *const *v, int root, tsri_segment *seg, tsri_coll *coll)
{
    int nseg = 0;
    for (int i = 0; i < n; i++)
        if (v[i]->bytes)
            seg[nseg++] = (tsri_segment){.src = v[i]->data,
                                         .dst = v[i]->data,
                                         .dtype = v[i]->dtype,
                                         .shape = TSR_DIMS(tsr_dims_count(v[i]->shape)),
                                         .src_axis = -1,
                                         .dst_axis = -1};
    *coll = (tsri_coll){
        .kind = TSRI_COLL_BROADCAST, .root = root, .nseg = nseg, .seg = seg, .what = "ddp values"};
}

/* The buffers of the group's first rank are sent again and again. */
static tsr_status send_buffers(tsr_ddp *d)
{
    if (!d->sending.side) {
        tsri_segment *seg = tsri_pool_alloc(&d->pool, (size_t)d->sent.nbuffers * sizeof *seg);
        TSRI_NEED(seg);
        describe(d->sent.nbuffers, d->sent.buffers, 0, seg, &d->sending.coll);
        TSRI_TRY(tsri_side_prepare(d->side, &d->sending, true));
    }
    TSRI_TRY(tsri_side_start(&d->sending));
    return tsri_side_finish(&d->sending);
}

static tsr_status send_once(tsr_ddp *d, int n, tsr_variable *const *v, int root)
{
    tsri_coll coll;
    tsri_segment *seg = tsri_mem_alloc(&d->world->mem, (size_t)n * sizeof *seg);
    TSRI_NEED(seg);
    describe(n, v, root, seg, &coll);
    tsr_status status = coll.nseg ? tsri_side_once(d->side, &coll) : TSR_OK;
    tsri_mem_free(seg);
    return status;
}

tsr_status tsri_ddp_send_on_device(tsr_ddp *d, int n, tsr_variable *const *v, int root)
{
    TSRI_TRY(tsri_side_follow(d->side));
    const bool again = d->sent.nbuffers && v == d->sent.buffers && root == 0;
    TSRI_TRY(again ? send_buffers(d) : send_once(d, n, v, root));
    return tsri_side_lead(d->side);
}
