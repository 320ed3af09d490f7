/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between halves and f32. bf16 is the upper half of an f32: whole-number arithmetic,
 * which the compiler vectorises for each instruction set. AVX512-BF16's own instruction is not
 * used, since it takes subnormal numbers for 0. f16 has instructions (F16C, AVX-512); without them,
 * it is converted by arithmetic on bits and one addition of f32, which does the rounding.
 */
#include "kernels/cpu/fast/half.h"

#include <string.h>

#ifdef TSRI_FAST_X86
#include <cpuid.h>
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c")))
#endif

static inline uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline __attribute__((always_inline)) float widen_bf16(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

static inline __attribute__((always_inline)) uint16_t narrow_bf16(float x)
{
    const uint32_t bits = bits_of(x), is_nan = (bits & 0x7fffffff) > 0x7f800000;
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((is_nan ? bits | 0x400000 : rounded) >> 16);
}

/* Exponents move from a bias of 15 to one of 127; a subnormal number is made by subtracting the
 * leading one, 2^-14, that its bits do not have. */
static inline __attribute__((always_inline)) float widen_f16(uint16_t x)
{
    const uint32_t sign = (uint32_t)(x & 0x8000) << 16, magnitude = x & 0x7fff;
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    const float subnormal = float_of((magnitude << 13) + (113u << 23)) - 0x1p-14f;
    const uint32_t special = (magnitude << 13) | 0x7f800000 | (magnitude > 0x7c00 ? 0x400000 : 0);
    const uint32_t bits = magnitude >= 0x7c00   ? special
                          : magnitude >= 0x0400 ? normal
                                                : bits_of(subnormal);
    return float_of(bits | sign);
}

/* Below 2^-14 the sum with 0.5 rounds to a multiple of 2^-24, the step of subnormal numbers. */
static inline __attribute__((always_inline)) uint16_t narrow_f16(float x)
{
    const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    const uint32_t special =
        magnitude > 0x7f800000 ? 0x7e00 | (magnitude >> 13 & 0x3ff) : UINT32_C(0x7c00);
    const uint32_t half = magnitude >= 0x47800000   ? special
                          : magnitude >= 0x38800000 ? normal
                                                    : subnormal;
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

#define WIDEN(name, one, TARGET)                                              \
    TARGET static void name(const uint16_t *x, float *y, int64_t n)           \
    {                                                                         \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = one(x[i]); \
    }
#define NARROW(name, one, TARGET)                                             \
    TARGET static void name(const float *x, uint16_t *y, int64_t n)           \
    {                                                                         \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = one(x[i]); \
    }

WIDEN(widen_bf16_base, widen_bf16, )
NARROW(narrow_bf16_base, narrow_bf16, )
WIDEN(widen_f16_base, widen_f16, )
NARROW(narrow_f16_base, narrow_f16, )

#ifdef TSRI_FAST_X86
WIDEN(widen_bf16_avx2, widen_bf16, AVX2)
NARROW(narrow_bf16_avx2, narrow_bf16, AVX2)
WIDEN(widen_bf16_avx512, widen_bf16, AVX512)
NARROW(narrow_bf16_avx512, narrow_bf16, AVX512)

AVX2 static void widen_f16_avx2(const uint16_t *x, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
    for (; i < n; i++)
        y[i] = _cvtsh_ss(x[i]);
}

AVX2 static void narrow_f16_avx2(const float *x, uint16_t *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        y[i] = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

AVX512 static void widen_f16_avx512(const uint16_t *x, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(y + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(x + i))));
    widen_f16_avx2(x + i, y + i, n - i);
}

AVX512 static void narrow_f16_avx512(const float *x, uint16_t *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(y + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    narrow_f16_avx2(x + i, y + i, n - i);
}
#endif

enum { BASE = 0, HAS_AVX2, HAS_AVX512 };

#ifdef TSRI_FAST_X86
/* Returns whether the processor converts f16; clang's __builtin_cpu_supports does not know. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static int level(void)
{
#ifdef TSRI_FAST_X86
    const tsri_fast_isa *best = tsri_fast_isa_best();
    if (best == &tsri_fast_isa_base || !has_f16c())
        return BASE;
    return best == &tsri_fast_isa_avx512 ? HAS_AVX512 : HAS_AVX2;
#else
    return BASE;
#endif
}

#ifdef TSRI_FAST_X86
#define EACH(name)                              \
    {                                           \
        name##_base, name##_avx2, name##_avx512 \
    }
#else
#define EACH(name)  \
    {               \
        name##_base \
    }
#endif

tsri_widen_fn *tsri_widen_of(tsr_dtype half)
{
    static tsri_widen_fn *const by_level[2][3] = {EACH(widen_bf16), EACH(widen_f16)};
    return by_level[half == TSR_F16][level()];
}

tsri_narrow_fn *tsri_narrow_of(tsr_dtype half)
{
    static tsri_narrow_fn *const by_level[2][3] = {EACH(narrow_bf16), EACH(narrow_f16)};
    return by_level[half == TSR_F16][level()];
}
