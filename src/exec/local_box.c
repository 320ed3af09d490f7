/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions without communication: cutting out a piece, or putting one into a neutral whole. */
#include "src/core/identity.h"
#include "src/exec/exec.h"

#include <string.h>

/* Copies a box between strided arrays; runs that are contiguous on both sides go at once. */
static void copy_box(const tsri_local_box *b, int axis, const char *src, char *dst, size_t size)
{
    if (axis == b->ndim) {
        memcpy(dst, src, size);
        return;
    }
    int64_t run = 1;
    bool dense = true;
    for (int i = b->ndim - 1; i >= axis && dense; i--) {
        dense = b->src_stride[i] == run && b->dst_stride[i] == run;
        run *= b->box[i];
    }
    if (dense) {
        memcpy(dst, src, (size_t)run * size);
        return;
    }
    for (int64_t i = 0; i < b->box[axis]; i++)
        copy_box(b, axis + 1, src + (size_t)(i * b->src_stride[axis]) * size,
                 dst + (size_t)(i * b->dst_stride[axis]) * size, size);
}

tsr_status tsri_local_box_queue(tsri_device *d, const tsri_local_box *b, const void *src, void *dst)
{
    if (b->fill && b->dst_count)
        TSRI_TRY(d->ops->fill(d, b->dtype, b->reduce, b->dst_count, dst, d->stream));
    tsri_move move = {.dtype = b->dtype,
                      .ndim = b->ndim,
                      .src_at = b->src_offset,
                      .dst_at = b->dst_offset,
                      .nsrc = 1,
                      .src = &src,
                      .dst = dst};
    memcpy(move.length, b->box, sizeof move.length);
    memcpy(move.src_step, b->src_stride, sizeof move.src_step);
    memcpy(move.dst_step, b->dst_stride, sizeof move.dst_step);
    return b->copy ? d->ops->move(d, &move, d->stream) : TSR_OK;
}

void tsri_local_box_run(const tsri_local_box *b, const void *src, void *dst)
{
    size_t size = tsr_dtype_size(b->dtype);
    int64_t n = 1;
    for (int i = 0; i < b->ndim; i++)
        n *= b->box[i];
    if (b->fill && b->dst_count)
        tsri_fill_identity(b->dtype, b->reduce, b->dst_count, dst);
    if (b->copy && n)
        copy_box(b, 0, (const char *)src + (size_t)b->src_offset * size,
                 (char *)dst + (size_t)b->dst_offset * size, size);
}
