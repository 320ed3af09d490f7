/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a row's greatest element as an Op of rows.cuh. */
#ifndef TESSERA_KERNELS_CUDA_ARGMAX_H
#define TESSERA_KERNELS_CUDA_ARGMAX_H

#include "kernels/cuda/rows.cuh"

/* Operands: x, then y. A NaN is the greatest; of equal ones the first is taken, so that the order
 * in which lanes meet does not matter. */
template <typename T> struct tsri_argmax_op : tsri_row_op<T> {
    typedef typename std::conditional<std::is_integral<T>::value, int64_t, tsri_acc<T>>::type A;
    enum { INPUTS = 1, OPERANDS = 2, REDUCES = 1, MAPS = 0 };
    int64_t *y;

    struct State {
        A best;
        int64_t at; /* -1: none yet */
    };
    struct Row {};
    static __device__ __forceinline__ bool beats(A v, A b)
    {
        return v > b || (v != v && b == b);
    }
    static __device__ __forceinline__ void take(State &s, A v, int64_t at)
    {
        if (at >= 0 && (s.at < 0 || beats(v, s.best) || (!beats(s.best, v) && at < s.at))) {
            s.best = v;
            s.at = at;
        }
    }
    __device__ __forceinline__ void begin(Row &, int64_t, const int64_t *) const
    {
    }
    __device__ __forceinline__ State start(void) const
    {
        return State{0, -1};
    }
    template <int N>
    __device__ __forceinline__ void add(State &s, const Row &, const tsri_pack<T, N> *v,
                                        const tsri_spot &spot) const
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            take(s, tsri_to<A>(v[0].v[j]), spot.column + j);
    }
    static __device__ __forceinline__ void gather_warp(State &s)
    {
#pragma unroll
        for (int x = TSRI_WARP / 2; x; x /= 2) {
            const A v = __shfl_xor_sync(0xffffffffu, s.best, x);
            take(s, v, __shfl_xor_sync(0xffffffffu, s.at, x));
        }
    }
    /* Blocks of whole warps. */
    static __device__ __forceinline__ void gather_block(State &s)
    {
        __shared__ A best[TSRI_WARP];
        __shared__ int64_t at[TSRI_WARP];
        const int warp = (int)threadIdx.x / TSRI_WARP;
        gather_warp(s);
        __syncthreads(); /* both may still be read, for the row before */
        if (threadIdx.x % TSRI_WARP == 0) {
            best[warp] = s.best;
            at[warp] = s.at;
        }
        __syncthreads();
        for (int w = 0; w < (int)blockDim.x / TSRI_WARP && threadIdx.x == 0; w++)
            take(s, best[w], at[w]);
    }
    template <int LANES>
    __device__ __forceinline__ void finish(State &s, Row &, int64_t, int64_t,
                                           const int64_t *row) const
    {
        if constexpr (LANES == TSRI_BLOCK)
            gather_block(s);
        else if constexpr (LANES == TSRI_WARP)
            gather_warp(s);
        if (tsri_lane<LANES>() == 0)
            y[row[1]] = s.at;
    }
};

#endif
