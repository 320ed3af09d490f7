/* SPDX-License-Identifier: Apache-2.0 */
/* Partial results to results: the second stage of reductions over leading axes. */
#ifndef TESSERA_KERNELS_CUDA_FOLD_H
#define TESSERA_KERNELS_CUDA_FOLD_H

#include "kernels/cuda/reduce.cuh"

/* A contiguous result of any float dtype: reduced values times a factor. */
typedef struct tsri_result {
    tsr_dtype dtype;
    void *p;
    double scale;
} tsri_result;

template <typename A>
static __device__ __forceinline__ void tsri_store_result(const tsri_result &r, int64_t i, A v)
{
    tsri_store_any<double>(r.dtype, r.p, i, r.scale * (double)v);
}

/* The layout of results that `parts` pieces are folded into; element i is that of pieces[i / n]. */
typedef struct tsri_results {
    tsri_result part[2];
    int64_t n;
} tsri_results;

enum { TSRI_FOLD_COLUMNS = 32, TSRI_FOLD_LANES = 16 };

/* x[batch, parts, n] -> to[batch, n]. Columns side by side are read by threads side by side. */
template <typename F, typename A>
static __global__ void tsri_fold_kernel(const A *x, int64_t batch, int64_t parts, int64_t n,
                                        tsri_results to)
{
    __shared__ A sums[TSRI_FOLD_LANES][TSRI_FOLD_COLUMNS];
    const int64_t wide = (n + TSRI_FOLD_COLUMNS - 1) / TSRI_FOLD_COLUMNS;
    const int column = (int)threadIdx.x % TSRI_FOLD_COLUMNS;
    const int lane = (int)threadIdx.x / TSRI_FOLD_COLUMNS;
    for (int64_t tile = blockIdx.x; tile < batch * wide; tile += gridDim.x) {
        const int64_t b = tile / wide, c = (tile - b * wide) * TSRI_FOLD_COLUMNS + column;
        A sum = F::template identity<A>();
        for (int64_t p = lane; p < parts && c < n; p += TSRI_FOLD_LANES)
            sum = F::of(sum, x[(b * parts + p) * n + c]);
        sums[lane][column] = sum;
        __syncthreads();
        if (lane == 0 && c < n) {
            for (int l = 1; l < TSRI_FOLD_LANES; l++)
                sum = F::of(sum, sums[l][column]);
            const int64_t i = b * n + c;
            /* An index that is no constant would put all parts on the stack. */
            const tsri_result part = i < to.n ? to.part[0] : to.part[1];
            tsri_store_result(part, i < to.n ? i : i - to.n, sum);
        }
        __syncthreads(); /* sums is written again */
    }
}

template <typename F, typename A>
static void tsri_fold(const A *x, int64_t batch, int64_t parts, int64_t n, const tsri_results &to,
                      cudaStream_t stream)
{
    const int64_t tiles = batch * ((n + TSRI_FOLD_COLUMNS - 1) / TSRI_FOLD_COLUMNS);
    if (tiles > 0)
        TSRI_LAUNCH((tsri_fold_kernel<F, A>), tsri_blocks(tiles, 1),
                    TSRI_FOLD_COLUMNS * TSRI_FOLD_LANES, stream, x, batch, parts, n, to);
}

static inline int64_t tsri_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
