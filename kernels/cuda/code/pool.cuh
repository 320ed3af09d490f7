/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the kernels of pooling: windows, and which windows hold a position. `big` is the pooled
 * tensor and `small` the one that it is pooled to, whichever of them is the result. */
#ifndef TESSERA_KERNELS_CUDA_POOL_H
#define TESSERA_KERNELS_CUDA_POOL_H

#include "kernels/cuda/device_code.cuh"

/* Passed to kernels by value; [2] is h, w. Adaptive windows are those of the global tensor, so a
 * shard may hold a piece of one. */
typedef struct tsri_pooling {
    bool adaptive, count_pad;
    int64_t kernel[2], stride[2], pad[2];
    int64_t big[2], small[2];                                   /* local sizes */
    int64_t big_size[2], big_at[2], small_size[2], small_at[2]; /* global, and the shard's begin */
} tsri_pooling;

/* [begin, end) */
typedef struct tsri_span {
    int64_t begin, end;
} tsri_span;

/* Whether the dtypes are those of a pooling. */
static inline bool tsri_pool_takes(const tsri_kernel_desc *d)
{
    tsr_dtype t = d->out[0].dtype;
    if (d->op == TSRI_OP_MAX_POOL_DX)
        return tsri_cuda_is_float(t) && d->in[0].dtype == TSR_I32 && d->in[1].dtype == t;
    return tsri_cuda_is_float(t) && d->in[0].dtype == t &&
           (d->op != TSRI_OP_MAX_POOL || d->nout < 2 || d->out[1].dtype == TSR_I32);
}

static inline tsri_pooling tsri_pool_of(const tsri_kernel_desc *d, const tsri_arg *big,
                                        const tsri_arg *small)
{
    tsri_pooling p = {};
    p.adaptive = d->op == TSRI_OP_ADAPTIVE_POOL || d->op == TSRI_OP_ADAPTIVE_POOL_DX;
    p.count_pad = !p.adaptive && d->attrs->pool.count_include_pad;
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = p.adaptive ? 0 : d->attrs->pool.kernel[i];
        p.stride[i] = p.adaptive ? 0 : d->attrs->pool.stride[i];
        p.pad[i] = p.adaptive ? 0 : d->attrs->pool.pad[i];
        p.big[i] = big->shape[2 + i];
        p.small[i] = small->shape[2 + i];
        p.big_size[i] = big->gshape[2 + i];
        p.big_at[i] = big->offset[2 + i];
        p.small_size[i] = small->gshape[2 + i];
        p.small_at[i] = small->offset[2 + i];
    }
    return p;
}

/* The part of output position o's window that lies inside the local input, along axis i. */
static __device__ __forceinline__ tsri_span tsri_pool_window(const tsri_pooling &p, int i,
                                                             int64_t o)
{
    tsri_span s;
    if (p.adaptive) {
        o += p.small_at[i];
        s.begin = o * p.big_size[i] / p.small_size[i] - p.big_at[i];
        s.end = ((o + 1) * p.big_size[i] + p.small_size[i] - 1) / p.small_size[i] - p.big_at[i];
    } else {
        s.begin = o * p.stride[i] - p.pad[i];
        s.end = s.begin + p.kernel[i];
    }
    s.begin = s.begin < 0 ? 0 : s.begin;
    s.end = s.end > p.big[i] ? p.big[i] : s.end;
    return s;
}

/* The output positions whose windows hold input position q. */
static __device__ __forceinline__ tsri_span tsri_pool_holders(const tsri_pooling &p, int i,
                                                              int64_t q)
{
    tsri_span s;
    if (p.adaptive) {
        q += p.big_at[i];
        s.begin = q * p.small_size[i] / p.big_size[i] - p.small_at[i];
        s.end = ((q + 1) * p.small_size[i] - 1) / p.big_size[i] + 1 - p.small_at[i];
    } else {
        q += p.pad[i];
        s.begin = q < p.kernel[i] ? 0 : (q - p.kernel[i]) / p.stride[i] + 1;
        s.end = q / p.stride[i] + 1;
    }
    s.begin = s.begin < 0 ? 0 : s.begin;
    s.end = s.end > p.small[i] ? p.small[i] : s.end;
    return s;
}

/* The divisor of the sum over a window. */
static __device__ __forceinline__ int64_t tsri_pool_divisor(const tsri_pooling &p, int64_t oh,
                                                            int64_t ow)
{
    if (p.count_pad)
        return p.kernel[0] * p.kernel[1];
    int64_t n = 1;
    for (int i = 0; i < 2; i++) {
        int64_t o = i ? ow : oh;
        if (p.adaptive) {
            o += p.small_at[i];
            n *= ((o + 1) * p.big_size[i] + p.small_size[i] - 1) / p.small_size[i] -
                 o * p.big_size[i] / p.small_size[i];
        } else {
            tsri_span s = tsri_pool_window(p, i, o);
            n *= s.end - s.begin;
        }
    }
    return n;
}

#endif
