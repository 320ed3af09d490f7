/* SPDX-License-Identifier: Apache-2.0 */
/* The bias of a channels-last image; see dnn.h. */
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/library/dnn.h"

enum { THREADS = 256 };

/* `count` and `channels` in packs of N. I: unsigned, wide enough for count and a grid more. */
template <typename T, int N, typename I>
static __global__ void bias_kernel(I count, I channels, tsri_pack<T, N> *y,
                                   const tsri_pack<T, N> *bias)
{
    for (I i = (I)tsri_first(); i < count; i += (I)tsri_step()) {
        tsri_pack<T, N> v = y[i], b = bias[i % channels];
#pragma unroll
        for (int j = 0; j < N; j++)
            v.v[j] = tsri_to<T>(tsri_to<float>(v.v[j]) + tsri_to<float>(b.v[j]));
        y[i] = v;
    }
}

template <typename T, int N>
static void launch(int64_t count, int64_t channels, void *y, const void *bias, cudaStream_t stream)
{
    typedef tsri_pack<T, N> pack;
    count /= N;
    channels /= N;
    unsigned blocks = tsri_blocks(count, THREADS);
    /* 32-bit division is several times cheaper. */
    if (count <= 0x7fffffff)
        TSRI_LAUNCH((bias_kernel<T, N, uint32_t>), blocks, THREADS, stream, (uint32_t)count,
                    (uint32_t)channels, (pack *)y, (const pack *)bias);
    else
        TSRI_LAUNCH((bias_kernel<T, N, uint64_t>), blocks, THREADS, stream, (uint64_t)count,
                    (uint64_t)channels, (pack *)y, (const pack *)bias);
}

template <typename T>
static void add_bias(int64_t count, int64_t channels, void *y, const void *bias,
                     cudaStream_t stream)
{
    constexpr int wide = 16 / (int)sizeof(T);
    if (channels % wide == 0)
        launch<T, wide>(count, channels, y, bias, stream);
    else
        launch<T, 1>(count, channels, y, bias, stream);
}

void tsri_dnn_add_bias(tsr_dtype dtype, int64_t count, int64_t channels, void *y, const void *bias,
                       cudaStream_t stream)
{
    if (dtype == TSR_F32)
        add_bias<float>(count, channels, y, bias, stream);
    else if (dtype == TSR_F16)
        add_bias<__half>(count, channels, y, bias, stream);
    else
        add_bias<__nv_bfloat16>(count, channels, y, bias, stream);
}
