/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks by packs: n neighbours of the innermost axis at once, loaded and stored together. A flat
 * walk has a tail of fewer than n elements. Buffers of kernels begin at multiples of 64 bytes.
 */
#ifndef TESSERA_KERNELS_CUDA_PACK_H
#define TESSERA_KERNELS_CUDA_PACK_H

#include "kernels/cuda/device_code.cuh"

typedef struct tsri_packs {
    tsri_cuda_walk w; /* counts packs; strides are in elements */
    int64_t tail;     /* elements behind the last pack */
} tsri_packs;

/* Packs of n. False: some operand has neighbours apart from each other, or not at multiples of n.
 * Along the innermost axis an operand may also be one element (stride 0). */
static inline bool tsri_packs_init(tsri_packs *p, const tsri_cuda_walk *walk, int n)
{
    tsri_cuda_walk *w = &p->w;
    *w = *walk;
    p->tail = w->ndim == 1 ? w->size[0] % n : 0;
    if (w->ndim > 1 && w->size[0] % n)
        return false;
    for (int o = 0; o < w->nops; o++) {
        if (w->stride[o][0] == 0)
            continue;
        if (w->stride[o][0] != 1 && w->count > 1)
            return false;
        for (int a = 1; a < w->ndim; a++)
            if (w->stride[o][a] % n)
                return false;
        w->stride[o][0] = n;
    }
    w->size[0] /= n;
    w->count = (w->count - p->tail) / n;
    return true;
}

static inline bool tsri_packs_empty(const tsri_packs *p)
{
    return p->w.count == 0 && p->tail == 0;
}

/* Operand `op` of the pack that begins at p. */
template <typename T, int N>
static __device__ __forceinline__ tsri_pack<T, N> tsri_pack_load(const tsri_packs &p, int op,
                                                                 const T *at)
{
    if (p.w.stride[op][0])
        return *(const tsri_pack<T, N> *)at;
    tsri_pack<T, N> v;
#pragma unroll
    for (int i = 0; i < N; i++)
        v.v[i] = *at;
    return v;
}

/* Where element `t` of the tail is in operand `op`. */
static __device__ __forceinline__ int64_t tsri_tail_at(const tsri_packs &p, int op, int64_t t)
{
    return p.w.stride[op][0] ? p.w.count * p.w.stride[op][0] + t : 0;
}

#endif
