/* SPDX-License-Identifier: Apache-2.0 */
/* src/core/rng.[ch] for device code: the same bits. */
#ifndef TESSERA_KERNELS_CUDA_RNG_CODE_H
#define TESSERA_KERNELS_CUDA_RNG_CODE_H

#include "kernels/cuda/device_code.cuh"

typedef struct tsri_words {
    uint32_t w[4];
} tsri_words;

/* tsri_rng_block. */
static __device__ __forceinline__ tsri_words tsri_philox_block(uint64_t key, uint64_t step,
                                                               uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)step, c3 = (uint32_t)(step >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    tsri_words out = {{c0, c1, c2, c3}};
    return out;
}

/* Word i of a block: registers have no index that is known at run time. */
static __device__ __forceinline__ uint32_t tsri_word(const tsri_words &b, uint32_t i)
{
    const uint32_t low = i & 1 ? b.w[1] : b.w[0], high = i & 1 ? b.w[3] : b.w[2];
    return i & 2 ? high : low;
}

/* The 24 bits of which tsri_rng_uniform(key, step, index) is 2^-24. */
static __device__ __forceinline__ uint32_t tsri_philox_bits(uint64_t key, uint64_t step,
                                                            uint64_t index)
{
    return tsri_word(tsri_philox_block(key, step, index / 4), (uint32_t)(index % 4)) >> 8;
}

/* tsri_rng_normal, but for the rounding of log, cos and sin. */
static __device__ __forceinline__ double tsri_philox_normal(uint64_t key, uint64_t step,
                                                            uint64_t index)
{
    const double two_pi = 6.283185307179586476925286766559;
    const tsri_words b = tsri_philox_block(key, step, index / 2);
    const double u = ((double)b.w[0] + ((double)b.w[1] + 1.0) * 0x1p-32) * 0x1p-32;
    const double v = ((double)b.w[2] + (double)b.w[3] * 0x1p-32) * 0x1p-32;
    const double r = sqrt(-2.0 * log(u)), angle = two_pi * v;
    return r * (index % 2 ? sin(angle) : cos(angle));
}

/* Dropout keeps elements whose 24 bits are at least this, which is uniform >= p. */
static inline uint32_t tsri_dropout_least(double p)
{
    const double least = p * 0x1p24;
    if (!(least < 0x1p24))
        return 1u << 24;
    const uint32_t below = least > 0 ? (uint32_t)least : 0;
    return below + ((double)below < least);
}
static inline double tsri_dropout_scale(double p)
{
    return p < 1 ? 1 / (1 - p) : 0;
}

#endif
