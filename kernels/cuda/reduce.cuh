/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of reductions: sums and extremes over the lanes of a warp or the threads of a
 * block, in an order that depends on nothing but their number, and elements of a dtype that is
 * known at run time only (one a row, so that the switch costs nothing).
 */
#ifndef TESSERA_KERNELS_CUDA_REDUCE_H
#define TESSERA_KERNELS_CUDA_REDUCE_H

#include "kernels/cuda/device_code.cuh"

#include <type_traits>

/* --- operations ------------------------------------------------------------------------------- */
struct tsri_sum_fn {
    template <typename A> static __device__ __forceinline__ A identity(void)
    {
        return 0;
    }
    template <typename A> static __device__ __forceinline__ A of(A a, A v)
    {
        return a + v;
    }
};

template <typename A> static __host__ __device__ __forceinline__ A tsri_infinity(void)
{
    return (A)HUGE_VAL;
}

/* The maximum of floats. A NaN is taken and then stays; +0 is more than -0. */
struct tsri_max_fn {
    template <typename A> static __device__ __forceinline__ A identity(void)
    {
        return -tsri_infinity<A>();
    }
    template <typename A> static __device__ __forceinline__ A of(A a, A v)
    {
        return a == 0 && v == 0 ? a + v : v > a || v != v ? v : a;
    }
};

struct tsri_min_fn {
    template <typename A> static __device__ __forceinline__ A identity(void)
    {
        return tsri_infinity<A>();
    }
    template <typename A> static __device__ __forceinline__ A of(A a, A v)
    {
        return a == 0 && v == 0 ? -(-a - v) : v < a || v != v ? v : a;
    }
};

/* 0 where all are finite, else infinity; parts that were reduced are reduced as others are. */
struct tsri_fault_fn {
    template <typename A> static __device__ __forceinline__ A identity(void)
    {
        return 0;
    }
    template <typename A> static __device__ __forceinline__ A of(A a, A v)
    {
        if constexpr (std::is_integral<A>::value)
            return a;
        else
            return v - v == 0 ? a : tsri_infinity<A>();
    }
};

/* The greatest of those that are no NaN: what is subtracted before exp, from which a NaN comes. */
struct tsri_top_fn {
    template <typename A> static __device__ __forceinline__ A of(A a, A v)
    {
        return v > a ? v : a;
    }
};

/* --- lanes ------------------------------------------------------------------------------------ */
/* The threads that work on a row together. */
enum { TSRI_THREAD = 1, TSRI_WARP = 32, TSRI_BLOCK = 0 };

template <typename F, typename A> static __device__ __forceinline__ A tsri_warp_all(A v)
{
#pragma unroll
    for (int x = TSRI_WARP / 2; x; x /= 2)
        v = F::of(v, __shfl_xor_sync(0xffffffffu, v, x));
    return v;
}

/* Blocks of whole warps. The warps' results are taken in their order by every thread alike. */
template <typename F, typename A> static __device__ __forceinline__ A tsri_block_all(A v)
{
    __shared__ A part[TSRI_WARP];
    const int warps = (int)blockDim.x / TSRI_WARP;
    v = tsri_warp_all<F>(v);
    __syncthreads(); /* part may still be read, for what was reduced before */
    if (threadIdx.x % TSRI_WARP == 0)
        part[threadIdx.x / TSRI_WARP] = v;
    __syncthreads();
    v = part[0];
    for (int w = 1; w < warps; w++)
        v = F::of(v, part[w]);
    return v;
}

/* The result over all lanes, in every one of them. */
template <int LANES, typename F, typename A> static __device__ __forceinline__ A tsri_all(A v)
{
    if constexpr (LANES == TSRI_WARP)
        return tsri_warp_all<F>(v);
    else if constexpr (LANES == TSRI_BLOCK)
        return tsri_block_all<F>(v);
    else
        return v;
}

template <int LANES> static __device__ __forceinline__ int tsri_lane(void)
{
    return LANES == TSRI_BLOCK ? (int)threadIdx.x : (int)threadIdx.x % (LANES ? LANES : 1);
}
template <int LANES> static __device__ __forceinline__ int tsri_lanes(void)
{
    return LANES == TSRI_BLOCK ? (int)blockDim.x : LANES;
}
/* The first row of these lanes, and the grid's step. */
template <int LANES> static __device__ __forceinline__ int64_t tsri_first_row(void)
{
    return LANES == TSRI_BLOCK ? (int64_t)blockIdx.x : tsri_first() / (LANES ? LANES : 1);
}
template <int LANES> static __device__ __forceinline__ int64_t tsri_row_step(void)
{
    return LANES == TSRI_BLOCK ? (int64_t)gridDim.x : tsri_step() / (LANES ? LANES : 1);
}

/* --- elements --------------------------------------------------------------------------------- */
template <typename T> struct tsri_dtype_of {
    enum {
        value = std::is_same<T, float>::value    ? TSR_DTYPE_F32
                : std::is_same<T, double>::value ? TSR_DTYPE_F64
                : std::is_same<T, __half>::value ? TSR_DTYPE_F16
                                                 : TSR_DTYPE_BF16
    };
};

/* Element i of a float dtype. */
template <typename A>
static __device__ __forceinline__ A tsri_load_any(tsr_dtype dtype, const void *p, int64_t i)
{
    A v = 0;
    TSRI_FLOATS(dtype, v = tsri_to<A>(((const T *)p)[i]));
    return v;
}
template <typename A>
static __device__ __forceinline__ void tsri_store_any(tsr_dtype dtype, void *p, int64_t i, A v)
{
    TSRI_FLOATS(dtype, ((T *)p)[i] = tsri_to<T>(v));
}

/* Elements of one 16-byte load. */
template <typename T> struct tsri_wide {
    enum { N = 16 / sizeof(T) };
};

static __device__ __forceinline__ float tsri_exp(float x)
{
    return expf(x);
}
static __device__ __forceinline__ double tsri_exp(double x)
{
    return exp(x);
}
static __device__ __forceinline__ float tsri_log(float x)
{
    return logf(x);
}
static __device__ __forceinline__ double tsri_log(double x)
{
    return log(x);
}

#endif
