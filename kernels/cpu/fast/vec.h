/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of floats for the templates (*_t.h), which isa_*.c includes once per instruction set:
 * VEC_ISA is 512 (AVX-512 F, DQ, VL, BW), 256 (AVX2 and FMA) or 0 (whatever the compiler makes of
 * four lanes, on any machine). No include guard: one file includes it once, after its target
 * pragma.
 *
 * vf: W floats; vd, vu: half as many doubles, or integers of 64 bits. Loads and stores are
 * unaligned; the *n forms touch only the first n lanes, and read the rest as 0. The *16 forms are
 * of bf16, which is the upper half of an f32: stores round to nearest even, and a NaN stays one.
 */
#include <stdint.h>
#include <string.h>
#if VEC_ISA == 0 && defined(__SSE2__)
#include <emmintrin.h>
#endif

#if VEC_ISA == 512
enum { W = 16 };
typedef __m512 mf;
typedef __m512d md;
typedef __m512i mi;
#define MM(op) _mm512_##op
#define MM_HALF(op) _mm256_##op
#elif VEC_ISA == 256
enum { W = 8 };
typedef __m256 mf;
typedef __m256d md;
typedef __m256i mi;
#define MM(op) _mm256_##op
#define MM_HALF(op) _mm_##op
#else
enum { W = 4 };
typedef int32_t vi __attribute__((vector_size(16)));
#endif

typedef float vf __attribute__((vector_size(4 * W)));
typedef double vd __attribute__((vector_size(4 * W)));

typedef uint64_t vu __attribute__((vector_size(sizeof(vd))));

#define VEC_FN static inline __attribute__((always_inline, unused))
#define VEC_LOOP _Pragma("GCC unroll 16")

VEC_FN vf vload(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_FN void vstore(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

VEC_FN vd vdload(const double *p)
{
    vd v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_FN void vdstore(double *p, vd v)
{
    memcpy(p, &v, sizeof v);
}

VEC_FN vf vset1(float x)
{
#if VEC_ISA
    return (vf)MM(set1_ps)(x);
#else
    return (vf){x, x, x, x};
#endif
}

VEC_FN vd vdset1(double x)
{
#if VEC_ISA
    return (vd)MM(set1_pd)(x);
#else
    return (vd){x, x};
#endif
}

#if VEC_ISA

VEC_FN vf vfma(vf a, vf b, vf c)
{
    return (vf)MM(fmadd_ps)((mf)a, (mf)b, (mf)c);
}

VEC_FN vd vdfma(vd a, vd b, vd c)
{
    return (vd)MM(fmadd_pd)((md)a, (md)b, (md)c);
}

/* min and max return b where an operand is not a number. */
VEC_FN vf vmax(vf a, vf b)
{
    return (vf)MM(max_ps)((mf)a, (mf)b);
}

VEC_FN vf vmin(vf a, vf b)
{
    return (vf)MM(min_ps)((mf)a, (mf)b);
}

VEC_FN vf vsqrt(vf a)
{
    return (vf)MM(sqrt_ps)((mf)a);
}

VEC_FN vd vdsqrt(vd a)
{
    return (vd)MM(sqrt_pd)((md)a);
}

/* W / 2 floats, without the detour over their vector's halves. */
VEC_FN vd vdwiden(const float *p)
{
    return (vd)MM(cvtps_pd)(MM_HALF(loadu_ps)(p));
}

/* The products of the lanes' lower halves. */
VEC_FN vu vumul_low(vu a, vu b)
{
    return (vu)MM(mul_epu32)((mi)a, (mi)b);
}

#endif

#if VEC_ISA == 512

VEC_FN __mmask16 first(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

VEC_FN vf vloadn(const float *p, int64_t n)
{
    return (vf)_mm512_maskz_loadu_ps(first(n), p);
}

VEC_FN void vstoren(float *p, vf v, int64_t n)
{
    _mm512_mask_storeu_ps(p, first(n), (__m512)v);
}

VEC_FN vd vdloadn(const double *p, int64_t n)
{
    return (vd)_mm512_maskz_loadu_pd((__mmask8)first(n), p);
}

VEC_FN void vdstoren(double *p, vd v, int64_t n)
{
    _mm512_mask_storeu_pd(p, (__mmask8)first(n), (__m512d)v);
}

VEC_FN vf vload16n(const uint16_t *p, int64_t n)
{
    const __m256i half = _mm256_maskz_loadu_epi16(first(n), p);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

VEC_FN vf vload16(const uint16_t *p)
{
    const __m256i half = _mm256_loadu_si256((const void *)p);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

VEC_FN __m256i vnarrow16(vf v)
{
    const __m512i bits = (__m512i)v, one = _mm512_set1_epi32(1);
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}

VEC_FN void vstore16(uint16_t *p, vf v)
{
    _mm256_storeu_si256((void *)p, vnarrow16(v));
}

VEC_FN void vstore16n(uint16_t *p, vf v, int64_t n)
{
    _mm256_mask_storeu_epi16(p, first(n), vnarrow16(v));
}

/* Whether a lane of any of several vectors is no number: vodd_of tells it of two. */
typedef __mmask16 vodd;

VEC_FN vodd vodd_none(void)
{
    return 0;
}

VEC_FN vodd vodd_of(vf a, vf b)
{
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q);
}

VEC_FN vodd vodd_or(vodd a, vodd b)
{
    return _kor_mask16(a, b);
}

VEC_FN bool vodd_any(vodd a)
{
    return a != 0;
}

/* x where lo < y < hi, else 0. */
VEC_FN vf vinside(vf x, vf y, vf lo, vf hi)
{
    __mmask16 m = _mm512_cmp_ps_mask((__m512)y, (__m512)lo, _CMP_GT_OQ);
    m = _mm512_mask_cmp_ps_mask(m, (__m512)y, (__m512)hi, _CMP_LT_OQ);
    return (vf)_mm512_maskz_mov_ps(m, (__m512)x);
}

VEC_FN vd vlo(vf v)
{
    return (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
}

VEC_FN vd vhi(vf v)
{
    return (vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1));
}

/* The vector of lo's lanes, then hi's, rounded. */
VEC_FN vf vjoin(vd lo, vd hi)
{
    const __m512 low = _mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)lo));
    return (vf)_mm512_insertf32x8(low, _mm512_cvtpd_ps((__m512d)hi), 1);
}

#elif VEC_ISA == 256

VEC_FN __m256i first(int64_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

VEC_FN vf vloadn(const float *p, int64_t n)
{
    return (vf)_mm256_maskload_ps(p, first(n));
}

VEC_FN void vstoren(float *p, vf v, int64_t n)
{
    _mm256_maskstore_ps(p, first(n), (__m256)v);
}

VEC_FN __m256i first_wide(int64_t n)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}

VEC_FN vd vdloadn(const double *p, int64_t n)
{
    return (vd)_mm256_maskload_pd(p, first_wide(n));
}

VEC_FN void vdstoren(double *p, vd v, int64_t n)
{
    _mm256_maskstore_pd(p, first_wide(n), (__m256d)v);
}

VEC_FN vf vload16(const uint16_t *p)
{
    const __m128i half = _mm_loadu_si128((const void *)p);
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}

VEC_FN vf vload16n(const uint16_t *p, int64_t n)
{
    uint16_t own[8] = {0};
    memcpy(own, p, (size_t)n * sizeof *p);
    return vload16(own);
}

VEC_FN void vstore16(uint16_t *p, vf v)
{
    const __m256i bits = (__m256i)v, one = _mm256_set1_epi32(1);
    const __m256i nan = (__m256i)_mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    up = _mm256_blendv_epi8(up, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
    up = _mm256_srli_epi32(up, 16);
    const __m128i half =
        _mm_packus_epi32(_mm256_castsi256_si128(up), _mm256_extracti128_si256(up, 1));
    _mm_storeu_si128((void *)p, half);
}

VEC_FN void vstore16n(uint16_t *p, vf v, int64_t n)
{
    uint16_t own[8];
    vstore16(own, v);
    memcpy(p, own, (size_t)n * sizeof *p);
}

typedef __m256 vodd;

VEC_FN vodd vodd_none(void)
{
    return _mm256_setzero_ps();
}

VEC_FN vodd vodd_of(vf a, vf b)
{
    return _mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
}

VEC_FN vodd vodd_or(vodd a, vodd b)
{
    return _mm256_or_ps(a, b);
}

VEC_FN bool vodd_any(vodd a)
{
    return _mm256_movemask_ps(a) != 0;
}

VEC_FN vf vinside(vf x, vf y, vf lo, vf hi)
{
    __m256 m = _mm256_and_ps(_mm256_cmp_ps((__m256)y, (__m256)lo, _CMP_GT_OQ),
                             _mm256_cmp_ps((__m256)y, (__m256)hi, _CMP_LT_OQ));
    return (vf)_mm256_and_ps(m, (__m256)x);
}

VEC_FN vd vlo(vf v)
{
    return (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v));
}

VEC_FN vd vhi(vf v)
{
    return (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
}

VEC_FN vf vjoin(vd lo, vd hi)
{
    return (vf)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)hi), _mm256_cvtpd_ps((__m256d)lo));
}

#else

VEC_FN vf vloadn(const float *p, int64_t n)
{
    vf v = {0, 0, 0, 0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

VEC_FN void vstoren(float *p, vf v, int64_t n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}

VEC_FN vd vdloadn(const double *p, int64_t n)
{
    vd v = {0, 0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

VEC_FN void vdstoren(double *p, vd v, int64_t n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}

VEC_FN vf vload16n(const uint16_t *p, int64_t n)
{
    vi v = {0, 0, 0, 0};
    for (int64_t i = 0; i < n; i++)
        v[i] = (int32_t)((uint32_t)p[i] << 16);
    return (vf)v;
}

VEC_FN vf vload16(const uint16_t *p)
{
    return vload16n(p, W);
}

VEC_FN void vstore16n(uint16_t *p, vf v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = (uint32_t)((vi)v)[i], is_nan = (bits & 0x7fffffff) > 0x7f800000;
        const uint32_t up = bits + 0x7fff + (bits >> 16 & 1);
        p[i] = (uint16_t)((is_nan ? bits | 0x400000 : up) >> 16);
    }
}

VEC_FN void vstore16(uint16_t *p, vf v)
{
    vstore16n(p, v, W);
}

VEC_FN vf vfma(vf a, vf b, vf c)
{
    return a * b + c;
}

VEC_FN vd vdfma(vd a, vd b, vd c)
{
    return a * b + c;
}

VEC_FN vf vpick(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

VEC_FN vf vmax(vf a, vf b)
{
    return vpick(a > b, a, b);
}

VEC_FN vf vmin(vf a, vf b)
{
    return vpick(a < b, a, b);
}

VEC_FN vf vsqrt(vf a)
{
    return (vf){__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]), __builtin_sqrtf(a[2]),
                __builtin_sqrtf(a[3])};
}

VEC_FN vd vdsqrt(vd a)
{
    return (vd){__builtin_sqrt(a[0]), __builtin_sqrt(a[1])};
}

typedef vi vodd;

VEC_FN vodd vodd_none(void)
{
    return (vi){0, 0, 0, 0};
}

VEC_FN vodd vodd_of(vf a, vf b)
{
    return (a != a) | (b != b);
}

VEC_FN vodd vodd_or(vodd a, vodd b)
{
    return a | b;
}

VEC_FN bool vodd_any(vodd a)
{
    return a[0] | a[1] | a[2] | a[3];
}

VEC_FN vf vinside(vf x, vf y, vf lo, vf hi)
{
    return (vf)((vi)x & (y > lo) & (y < hi));
}

VEC_FN vd vlo(vf v)
{
    return (vd){(double)v[0], (double)v[1]};
}

VEC_FN vd vhi(vf v)
{
    return (vd){(double)v[2], (double)v[3]};
}

VEC_FN vf vjoin(vd lo, vd hi)
{
    return (vf){(float)lo[0], (float)lo[1], (float)hi[0], (float)hi[1]};
}

VEC_FN vd vdwiden(const float *p)
{
    return (vd){(double)p[0], (double)p[1]};
}

VEC_FN vu vumul_low(vu a, vu b)
{
#ifdef __SSE2__
    return (vu)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & UINT32_MAX) * (b & UINT32_MAX);
#endif
}

#endif

/* n >= W reads or writes a whole vector. */
VEC_FN vf vload_upto(const float *p, int64_t n)
{
    return n >= W ? vload(p) : vloadn(p, n);
}

VEC_FN void vstore_upto(float *p, vf v, int64_t n)
{
    if (n >= W)
        vstore(p, v);
    else
        vstoren(p, v, n);
}

/* vdload_upto and vdstore_upto are vload_upto and vstore_upto of W / 2 doubles. */
VEC_FN vd vdload_upto(const double *p, int64_t n)
{
    return n >= W / 2 ? vdload(p) : vdloadn(p, n);
}

VEC_FN void vdstore_upto(double *p, vd v, int64_t n)
{
    if (n >= W / 2)
        vdstore(p, v);
    else
        vdstoren(p, v, n);
}

/* Return the sum of all lanes, in f64. */
VEC_FN double vdsum(vd a)
{
    double lane[W / 2], sum = 0;
    vdstore(lane, a);
    for (int i = 0; i < W / 2; i++)
        sum += lane[i];
    return sum;
}

VEC_FN double vsum(vf a)
{
    float lane[W];
    double sum = 0;
    vstore(lane, a);
    for (int i = 0; i < W; i++)
        sum += (double)lane[i];
    return sum;
}

/* vget and vput are vload_upto and vstore_upto of data that is f32, or with `half` bf16. */
VEC_FN vf vget(const void *p, int64_t at, int64_t n, const bool half)
{
    if (!half)
        return vload_upto((const float *)p + at, n);
    const uint16_t *q = (const uint16_t *)p + at;
    return n >= W ? vload16(q) : vload16n(q, n);
}

VEC_FN void vput(void *p, int64_t at, vf v, int64_t n, const bool half)
{
    if (!half)
        vstore_upto((float *)p + at, v, n);
    else if (n >= W)
        vstore16((uint16_t *)p + at, v);
    else
        vstore16n((uint16_t *)p + at, v, n);
}

/* Where element `at` of such data is. */
VEC_FN const void *vplace(const void *p, int64_t at, const bool half)
{
    return (const char *)p + (at << (half ? 1 : 2));
}

/* Floats up to where vectors are aligned, of n; 0 where these are few. Loads and stores of a whole
 * vector of AVX-512 touch two lines of the cache unless they are aligned. */
VEC_FN int64_t vhead(const float *p, int64_t n)
{
    const int64_t beyond = (int64_t)((uintptr_t)p / sizeof *p % W);
    return beyond && n >= 4 * W ? W - beyond : 0;
}

/* p->out[i] = a vector, up to `end`: `whole` of W elements from i on, `some` of the first `part`,
 * of p's x and y. The pointers are copied, as stores of floats may change p for what a compiler
 * knows.
 */
#define MAP_LOOP(whole, some)                                                   \
    {                                                                           \
        const float *const x = p->x, *const y = p->y;                           \
        float *const out = p->out;                                              \
        (void)x, (void)y;                                                       \
        for (int64_t part = vhead(out + i, end - i); i < end; part = end - i) { \
            if (part) {                                                         \
                vstoren(out + i, some, part);                                   \
                i += part;                                                      \
            }                                                                   \
            for (; end - i >= W; i += W)                                        \
                vstore(out + i, whole);                                         \
        }                                                                       \
    }
