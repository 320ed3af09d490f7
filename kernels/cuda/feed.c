/* SPDX-License-Identifier: Apache-2.0 */
/* Feeding inputs: copies from host memory, which a step that runs meanwhile does not hold up. */
#include "kernels/cuda/inside.h"

#include <string.h>

/*
 * A fed input goes host -> pinned memory -> device memory aside, in a stream of its own, and only
 * from there into place, in the caller's stream: so the next batch is copied while a step runs.
 * Two of each take turns. A small one goes straight from pinned memory.
 */
enum { SLOTS = 2, SMALL = 4096, SMALL_SLOTS = 64 };

typedef struct slot {
    void *pinned, *aside;
    size_t bytes;
    cudaEvent_t arrived, used; /* aside is full; may be written again */
} slot;

/* Memory that a slot has grown out of. To free it would be to wait for the device, where calls may
 * wait for peers, which may wait for this rank. */
typedef struct outgrown {
    struct outgrown *next;
    void *pinned, *aside;
} outgrown;

typedef struct feeder {
    cudaStream_t stream;
    outgrown *outgrown;
    slot slot[SLOTS];
    unsigned next; /* runs round */
    char *small;
    cudaEvent_t small_used[SMALL_SLOTS];
    unsigned next_small;
} feeder;

void tsri_feed_close(tsri_cuda_device *d)
{
    feeder *f = d->feed;
    if (!f)
        return;
    for (int i = 0; i < SLOTS; i++) {
        cudaFreeHost(f->slot[i].pinned);
        cudaFree(f->slot[i].aside);
        if (f->slot[i].arrived)
            cudaEventDestroy(f->slot[i].arrived);
        if (f->slot[i].used)
            cudaEventDestroy(f->slot[i].used);
    }
    while (f->outgrown) {
        outgrown *next = f->outgrown->next;
        cudaFreeHost(f->outgrown->pinned);
        cudaFree(f->outgrown->aside);
        tsri_mem_free(f->outgrown);
        f->outgrown = next;
    }
    for (int i = 0; i < SMALL_SLOTS; i++)
        if (f->small_used[i])
            cudaEventDestroy(f->small_used[i]);
    cudaFreeHost(f->small);
    if (f->stream)
        cudaStreamDestroy(f->stream);
    tsri_mem_free(f);
    d->feed = NULL;
}

tsr_status tsri_feed_open(tsri_cuda_device *d)
{
    feeder *f = d->feed = tsri_mem_alloc(&d->base.world->mem, sizeof *f);
    TSRI_NEED(f);
    TSRI_CUDA(cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking));
    TSRI_CUDA(cudaMallocHost((void **)&f->small, SMALL * SMALL_SLOTS));
    for (int i = 0; i < SLOTS; i++) {
        TSRI_CUDA(cudaEventCreateWithFlags(&f->slot[i].arrived, cudaEventDisableTiming));
        TSRI_CUDA(cudaEventCreateWithFlags(&f->slot[i].used, cudaEventDisableTiming));
    }
    for (int i = 0; i < SMALL_SLOTS; i++)
        TSRI_CUDA(cudaEventCreateWithFlags(&f->small_used[i], cudaEventDisableTiming));
    return TSR_OK;
}

static tsr_status grow_slot(tsri_cuda_device *d, slot *s, size_t bytes)
{
    feeder *f = d->feed;
    if (s->bytes >= bytes)
        return TSR_OK;
    if (s->pinned || s->aside) {
        outgrown *o = tsri_mem_alloc(&d->base.world->mem, sizeof *o);
        TSRI_NEED(o);
        *o = (outgrown){f->outgrown, s->pinned, s->aside};
        f->outgrown = o;
    }
    /* At least twice as much: all that was outgrown is less than what there is. */
    bytes = bytes < 2 * s->bytes ? 2 * s->bytes : bytes;
    s->pinned = s->aside = NULL;
    s->bytes = 0;
    TSRI_CUDA(cudaMallocHost(&s->pinned, bytes));
    TSRI_CUDA(cudaMalloc(&s->aside, bytes));
    s->bytes = bytes;
    return TSR_OK;
}

static tsr_status copy_small(tsri_cuda_device *d, void *dst, const void *src, size_t bytes,
                             cudaStream_t to)
{
    feeder *f = d->feed;
    unsigned i = f->next_small++ % SMALL_SLOTS;
    char *pinned = f->small + (size_t)i * SMALL;
    TSRI_TRY(tsri_cuda_await(d, f->small_used[i]));
    memcpy(pinned, src, bytes);
    TSRI_CUDA(cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, to));
    TSRI_CUDA(cudaEventRecord(f->small_used[i], to));
    return TSR_OK;
}

tsr_status tsri_feed_copy(tsri_cuda_device *d, void *dst, const void *src, size_t bytes,
                          cudaStream_t to)
{
    feeder *f = d->feed;
    if (!bytes)
        return TSR_OK;
    if (bytes <= SMALL)
        return copy_small(d, dst, src, bytes, to);
    slot *s = &f->slot[f->next++ % SLOTS];
    TSRI_TRY(grow_slot(d, s, bytes));
    TSRI_TRY(tsri_cuda_await(d, s->arrived)); /* pinned may be written */
    memcpy(s->pinned, src, bytes);
    TSRI_CUDA(cudaStreamWaitEvent(f->stream, s->used, 0));
    TSRI_CUDA(cudaMemcpyAsync(s->aside, s->pinned, bytes, cudaMemcpyHostToDevice, f->stream));
    TSRI_CUDA(cudaEventRecord(s->arrived, f->stream));
    TSRI_CUDA(cudaStreamWaitEvent(to, s->arrived, 0));
    TSRI_CUDA(cudaMemcpyAsync(dst, s->aside, bytes, cudaMemcpyDeviceToDevice, to));
    TSRI_CUDA(cudaEventRecord(s->used, to));
    return TSR_OK;
}
