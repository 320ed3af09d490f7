/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a box of elements between strided buffers of one device, and reducing several. Conversions
 * without communication, packing for collectives, and pulls out of peers' memory are made of these.
 * Plain data. */
#ifndef TESSERA_KERNELS_MOVE_H
#define TESSERA_KERNELS_MOVE_H

#include <tessera/base.h>
#include <tessera/sbp.h>

#include <string.h>

/*
 * dst[dst_at + sum i_a dst_step[a]] = src[0][..] op src[1][..] op ..., for 0 <= i_a < length[a],
 * where sources are read at src_at + sum i_a src_step[a]. nsrc 1: a copy. Several are reduced in
 * the order of src[]; f16 and bf16 in f32, rounded once; the sum of bools is their "or"; integers
 * wrap; a NaN wins max and min. All counts are elements. dst overlaps no source, but may be the
 * one of a copy onto itself, or source 0 of a reduction of the same places.
 */
typedef struct tsri_move {
    tsr_dtype dtype;
    tsr_reduce_op op;
    int ndim;
    int64_t length[TSR_MAX_NDIM], src_step[TSR_MAX_NDIM], dst_step[TSR_MAX_NDIM];
    int64_t src_at, dst_at;
    int nsrc;
    const void *const *src;
    void *dst;
} tsri_move;

/* A move of `count` elements that lie one after the other on both sides. */
static inline tsri_move tsri_move_flat(tsr_dtype dtype, tsr_reduce_op op, int64_t count, int nsrc,
                                       const void *const *src, void *dst)
{
    tsri_move m;
    memset(&m, 0, sizeof m);
    m.dtype = dtype;
    m.op = op;
    m.ndim = 1;
    m.length[0] = count;
    m.src_step[0] = m.dst_step[0] = 1;
    m.nsrc = nsrc;
    m.src = src;
    m.dst = dst;
    return m;
}

#endif
