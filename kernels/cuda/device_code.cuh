/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vocabulary of device code. It is compiled by nvcc, and by a C++17 compiler with
 * TSRI_CUDA_EMULATED, the path of the header of tests/cuda/emulator, which offers the same:
 * threadIdx, blockIdx, blockDim, gridDim, __shared__ (static sizes), __syncthreads, __syncwarp,
 * __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __shfl_up_sync, __ballot_sync, __any_sync,
 * __all_sync, atomicAdd, atomicMax, atomicMin, atomicCAS and atomicExch of integers, __threadfence,
 * __threadfence_system, __ldg, __stwb and the f16 and bf16 types with their conversions. No float
 * atomics anywhere (results repeat), no inline assembly, no dynamic parallelism, no cooperative
 * groups.
 */
#ifndef TESSERA_KERNELS_CUDA_DEVICE_CODE_H
#define TESSERA_KERNELS_CUDA_DEVICE_CODE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/gpu.h"

#ifdef TSRI_CUDA_EMULATED
#include TSRI_CUDA_EMULATED
/* The kernel in parentheses (it may have template arguments); grid and block as dim3 or a number.
 */
#define TSRI_LAUNCH(kernel, grid, block, stream, ...) \
    tsri_emulated_launch(#kernel, kernel, dim3(grid), dim3(block), (stream), __VA_ARGS__)
#else
#define TSRI_LAUNCH(kernel, grid, block, stream, ...) \
    kernel<<<dim3(grid), dim3(block), 0, (stream)>>>(__VA_ARGS__)
#endif

/* The type of sums of T: f32 for f16, bf16 and f32; T otherwise. */
template <typename T> struct tsri_acc_of {
    typedef T type;
};
template <> struct tsri_acc_of<__half> {
    typedef float type;
};
template <> struct tsri_acc_of<__nv_bfloat16> {
    typedef float type;
};
template <typename T> using tsri_acc = typename tsri_acc_of<T>::type;

/* Between storage and arithmetic: exact up, rounded to nearest even down. */
template <typename To, typename From> static __device__ __forceinline__ To tsri_to(From v)
{
    return (To)v;
}
template <> __device__ __forceinline__ float tsri_to<float, __half>(__half v)
{
    return __half2float(v);
}
template <> __device__ __forceinline__ float tsri_to<float, __nv_bfloat16>(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}
template <> __device__ __forceinline__ double tsri_to<double, __half>(__half v)
{
    return (double)__half2float(v);
}
template <> __device__ __forceinline__ double tsri_to<double, __nv_bfloat16>(__nv_bfloat16 v)
{
    return (double)__bfloat162float(v);
}
template <> __device__ __forceinline__ __half tsri_to<__half, float>(float v)
{
    return __float2half_rn(v);
}
template <> __device__ __forceinline__ __nv_bfloat16 tsri_to<__nv_bfloat16, float>(float v)
{
    return __float2bfloat16_rn(v);
}
template <> __device__ __forceinline__ __half tsri_to<__half, double>(double v)
{
    return __double2half(v);
}
template <> __device__ __forceinline__ __nv_bfloat16 tsri_to<__nv_bfloat16, double>(double v)
{
    return __double2bfloat16(v);
}
template <> __device__ __forceinline__ __half tsri_to<__half, __half>(__half v)
{
    return v;
}
template <>
__device__ __forceinline__ __nv_bfloat16 tsri_to<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16 v)
{
    return v;
}

/* n elements of T that are loaded and stored at once; p is aligned to their size. */
template <typename T, int N> struct alignas(sizeof(T) * N) tsri_pack {
    T v[N];
};

template <typename T, int N>
static __device__ __forceinline__ tsri_pack<T, N> tsri_load_pack(const T *p)
{
    return *(const tsri_pack<T, N> *)p;
}
/* Stores by the widest instruction. A plain assignment of the struct is not enough: the compiler
 * splits it into its elements where p is a sum that it takes apart (rows whose head varies). */
template <typename T, int N>
static __device__ __forceinline__ void tsri_store_pack(T *p, const tsri_pack<T, N> &v)
{
    typedef tsri_pack<T, N> pack;
    if constexpr (sizeof(pack) % 16 == 0) {
        uint4 part[sizeof(pack) / 16];
        memcpy(part, &v, sizeof part);
#pragma unroll
        for (int i = 0; i < (int)(sizeof(pack) / 16); i++)
            __stwb((uint4 *)p + i, part[i]);
    } else if constexpr (sizeof(pack) == 8) {
        uint2 part;
        memcpy(&part, &v, sizeof part);
        __stwb((uint2 *)p, part);
    } else {
        *(pack *)p = v;
    }
}

/* Where element `i` of the walk is, in elements, for each of its first NOPS operands. */
template <int NOPS>
static __device__ __forceinline__ void tsri_walk_at(const tsri_cuda_walk &w, int64_t i, int64_t *at)
{
#pragma unroll
    for (int o = 0; o < NOPS; o++)
        at[o] = 0;
    if (w.count <= 0x7fffffff) {
        /* 32-bit division is several times cheaper. */
        uint32_t rest = (uint32_t)i;
        for (int a = 0; a < w.ndim - 1; a++) {
            uint32_t size = (uint32_t)w.size[a], next = rest / size, c = rest - next * size;
#pragma unroll
            for (int o = 0; o < NOPS; o++)
                at[o] += (int64_t)c * w.stride[o][a];
            rest = next;
        }
#pragma unroll
        for (int o = 0; o < NOPS; o++)
            at[o] += (int64_t)rest * w.stride[o][w.ndim - 1];
        return;
    }
    for (int a = 0; a < w.ndim; a++) {
        int64_t next = i / w.size[a], c = i - next * w.size[a];
#pragma unroll
        for (int o = 0; o < NOPS; o++)
            at[o] += c * w.stride[o][a];
        i = next;
    }
}

/* Thread's first element and the grid's step: for (i = tsri_first(); i < n; i += tsri_step()). */
static __device__ __forceinline__ int64_t tsri_first(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ int64_t tsri_step(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}
/* Blocks for `count` elements of work, a grid that goes round if there are very many. */
static inline unsigned tsri_blocks(int64_t count, int threads)
{
    int64_t blocks = (count + threads - 1) / threads;
    return (unsigned)(blocks < 1 ? 1 : blocks > 1 << 20 ? 1 << 20 : blocks);
}

/* Notes an error of the run; the first one stays. */
static __device__ __forceinline__ void tsri_fault(tsri_cuda_fault *fault, unsigned long long kernel,
                                                  long long at, long long value)
{
    if (atomicCAS(&fault->claim, 0, 1) == 0) {
        fault->at = at;
        fault->value = value;
        __threadfence_system(); /* who sees the kernel sees what it met */
        *(volatile unsigned long long *)&fault->kernel = kernel;
    }
}

/* Runs BODY with T the C type of a dtype. The lists name those that a kernel takes. */
#define TSRI_CASE_(enumerator, type, ...) \
    case enumerator: {                    \
        typedef type T;                   \
        __VA_ARGS__;                      \
        break;                            \
    }
#define TSRI_FLOATS(dtype, ...)                                \
    switch (dtype) {                                           \
        TSRI_CASE_(TSR_DTYPE_F32, float, __VA_ARGS__)          \
        TSRI_CASE_(TSR_DTYPE_F64, double, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_F16, __half, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_BF16, __nv_bfloat16, __VA_ARGS__) \
    default:                                                   \
        break;                                                 \
    }
#define TSRI_NUMBERS(dtype, ...)                               \
    switch (dtype) {                                           \
        TSRI_CASE_(TSR_DTYPE_F32, float, __VA_ARGS__)          \
        TSRI_CASE_(TSR_DTYPE_F64, double, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_F16, __half, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_BF16, __nv_bfloat16, __VA_ARGS__) \
        TSRI_CASE_(TSR_DTYPE_I64, int64_t, __VA_ARGS__)        \
        TSRI_CASE_(TSR_DTYPE_I32, int32_t, __VA_ARGS__)        \
        TSRI_CASE_(TSR_DTYPE_U8, uint8_t, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_BOOL, bool, __VA_ARGS__)          \
    default:                                                   \
        break;                                                 \
    }
/* By size alone: what only moves. */
#define TSRI_SIZES(bytes, ...)               \
    switch (bytes) {                         \
        TSRI_CASE_(1, uint8_t, __VA_ARGS__)  \
        TSRI_CASE_(2, uint16_t, __VA_ARGS__) \
        TSRI_CASE_(4, uint32_t, __VA_ARGS__) \
        TSRI_CASE_(8, uint64_t, __VA_ARGS__) \
    default:                                 \
        break;                               \
    }

#endif
