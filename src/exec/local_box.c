/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions without communication: cutting out a piece, or putting one into a neutral whole. */
#include <math.h>
#include <string.h>

#include "src/plan/plan.h"

static void fill_identity(const tsri_local_box *b, void *dst)
{
    size_t n = (size_t)b->dst_count, size = tsr_dtype_size(b->dtype);
    if (b->reduce == TSR_REDUCE_SUM) {
        memset(dst, 0, n * size);
        return;
    }
    bool max = b->reduce == TSR_REDUCE_MAX;
    for (size_t i = 0; i < n; i++)
        switch (b->dtype) {
        case TSR_DTYPE_F32:
            ((float *)dst)[i] = max ? -INFINITY : INFINITY;
            break;
        case TSR_DTYPE_F64:
            ((double *)dst)[i] = max ? -(double)INFINITY : (double)INFINITY;
            break;
        case TSR_DTYPE_F16:
            ((uint16_t *)dst)[i] = max ? 0xFC00 : 0x7C00;
            break;
        case TSR_DTYPE_BF16:
            ((uint16_t *)dst)[i] = max ? 0xFF80 : 0x7F80;
            break;
        case TSR_DTYPE_I64:
            ((int64_t *)dst)[i] = max ? INT64_MIN : INT64_MAX;
            break;
        case TSR_DTYPE_I32:
            ((int32_t *)dst)[i] = max ? INT32_MIN : INT32_MAX;
            break;
        default:
            ((uint8_t *)dst)[i] = max ? 0 : b->dtype == TSR_DTYPE_BOOL ? 1 : 255;
        }
}

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

void tsri_local_box_run(const tsri_local_box *b, const void *src, void *dst)
{
    size_t size = tsr_dtype_size(b->dtype);
    int64_t n = 1;
    for (int i = 0; i < b->ndim; i++)
        n *= b->box[i];
    if (b->fill && b->dst_count)
        fill_identity(b, dst);
    if (b->copy && n)
        copy_box(b, 0, (const char *)src + (size_t)b->src_offset * size,
                 (char *)dst + (size_t)b->dst_offset * size, size);
}
