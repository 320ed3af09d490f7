/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of reductions, for what vectors the file that includes this is compiled, as
 * REDUCE_TABLE. Sources are taken in order 0, 1, ...; more than two go block by
 * block through dst, which stays in the first cache. f16 and bf16 are reduced in f32 and rounded
 * once. A NaN wins max and min. The sum of bools is their "or", the product their "and"; integers
 * wrap.
 */
#include "src/comm/move/reduce.h"

#include <string.h>

enum { BLOCK = 512 };

/* x: what there is so far, y: the next addend; FIRST(v): what the first one counts as. dst may be
 * one of the sources: a block is written when all have been read. */
#define DEFINE_REDUCE_FROM(name, T, SETUP, FIRST, EXPR)                                            \
    static void name(char *dst_bytes, const char *const *src, int64_t at, int nsrc, int64_t count) \
    {                                                                                              \
        T *dst = (T *)(void *)dst_bytes;                                                           \
        const T *a = (const T *)(const void *)src[0] + at;                                         \
        const T *b = (const T *)(const void *)src[1] + at;                                         \
        T so_far[BLOCK];                                                                           \
        SETUP;                                                                                     \
        for (int64_t from = 0; from < count; from += BLOCK) {                                      \
            int64_t n = count - from < BLOCK ? count - from : BLOCK;                               \
            T *to = nsrc == 2 ? dst + from : so_far;                                               \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                   \
            {                                                                                      \
                T x = FIRST(a[from + i]), y = FIRST(b[from + i]);                                  \
                to[i] = (EXPR);                                                                    \
            }                                                                                      \
            for (int s = 2; s < nsrc; s++) {                                                       \
                const T *c = (const T *)(const void *)src[s] + at + from;                          \
                T *last = s + 1 == nsrc ? dst + from : so_far;                                     \
                _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                               \
                {                                                                                  \
                    T x = so_far[i], y = FIRST(c[i]);                                              \
                    last[i] = (EXPR);                                                              \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }
#define AS_IT_IS(v) (v)
#define DEFINE_REDUCE(name, T, EXPR) DEFINE_REDUCE_FROM(name, T, (void)0, AS_IT_IS, EXPR)
/* Each value times 1/n in the dtype, then the sum. */
#define TIMES_PART(v) ((v)*part)
#define DEFINE_AVERAGE(name, T) \
    DEFINE_REDUCE_FROM(name, T, const T part = (T)1 / (T)nsrc, TIMES_PART, x + y)

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float widen_bf16(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

/* To the nearest, ties to even. */
static uint16_t narrow_bf16(float f)
{
    uint32_t bits = bits_of_float(f);
    if (f != f)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float widen_f16(uint16_t h)
{
    /* Exponent and fraction moved into place, then rescaled, which also gets subnormals right. */
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    float f = float_of_bits((uint32_t)(h & 0x7fff) << 13) * 0x1p112f;
    uint32_t bits = bits_of_float(f) | ((h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0);
    return float_of_bits(bits | sign);
}

/* To the nearest, ties to even. */
static uint16_t narrow_f16(float f)
{
    uint32_t bits = bits_of_float(f), magnitude = bits & 0x7fffffff;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (f != f)
        return sign | 0x7e00;
    if (magnitude >= 0x477ff000) /* 65520, halfway beyond the largest */
        return sign | 0x7c00;
    if (magnitude < 0x38800000) { /* below 2^-14: a subnormal. 0.5's last bit is worth 2^-24 */
        uint32_t rounded = bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f);
        return sign | (uint16_t)rounded;
    }
    magnitude += 0xfff + (magnitude >> 13 & 1) - (112u << 23);
    return sign | (uint16_t)(magnitude >> 13);
}

#define DEFINE_REDUCE_HALF_FROM(name, widen, narrow, SETUP, FIRST, EXPR)                           \
    static void name(char *dst_bytes, const char *const *src, int64_t at, int nsrc, int64_t count) \
    {                                                                                              \
        uint16_t *dst = (uint16_t *)(void *)dst_bytes;                                             \
        const uint16_t *a = (const uint16_t *)(const void *)src[0] + at;                           \
        float sum[BLOCK];                                                                          \
        SETUP;                                                                                     \
        for (int64_t from = 0; from < count; from += BLOCK) {                                      \
            int64_t n = count - from < BLOCK ? count - from : BLOCK;                               \
            for (int64_t i = 0; i < n; i++)                                                        \
                sum[i] = FIRST(widen(a[from + i]));                                                \
            for (int s = 1; s < nsrc; s++) {                                                       \
                const uint16_t *c = (const uint16_t *)(const void *)src[s] + at + from;            \
                for (int64_t i = 0; i < n; i++) {                                                  \
                    float x = sum[i], y = FIRST(widen(c[i]));                                      \
                    sum[i] = (EXPR);                                                               \
                }                                                                                  \
            }                                                                                      \
            for (int64_t i = 0; i < n; i++)                                                        \
                dst[from + i] = narrow(sum[i]);                                                    \
        }                                                                                          \
    }

#define DEFINE_REDUCE_HALF(name, widen, narrow, EXPR) \
    DEFINE_REDUCE_HALF_FROM(name, widen, narrow, (void)0, AS_IT_IS, EXPR)
#define F16_PART(v) widen_f16(narrow_f16((v)*part))
#define BF16_PART(v) widen_bf16(narrow_bf16((v)*part))

/* y != y holds for a NaN; a NaN in x survives as nothing compares with it. +0 is more than -0, in
 * any order. */
#define MAX_OR_NAN (x == 0 && y == 0 ? x + y : y > x || y != y ? y : x)
#define MIN_OR_NAN (x == 0 && y == 0 ? -(-x - y) : y < x || y != y ? y : x)

DEFINE_REDUCE(sum_f32, float, x + y)
DEFINE_REDUCE(max_f32, float, MAX_OR_NAN)
DEFINE_REDUCE(min_f32, float, MIN_OR_NAN)
DEFINE_REDUCE(sum_f64, double, x + y)
DEFINE_REDUCE(max_f64, double, MAX_OR_NAN)
DEFINE_REDUCE(min_f64, double, MIN_OR_NAN)
DEFINE_REDUCE(sum_i64, uint64_t, x + y)
DEFINE_REDUCE(max_i64, int64_t, y > x ? y : x)
DEFINE_REDUCE(min_i64, int64_t, y < x ? y : x)
DEFINE_REDUCE(sum_i32, uint32_t, x + y)
DEFINE_REDUCE(max_i32, int32_t, y > x ? y : x)
DEFINE_REDUCE(min_i32, int32_t, y < x ? y : x)
DEFINE_REDUCE(sum_u8, uint8_t, (uint8_t)(x + y))
DEFINE_REDUCE(max_u8, uint8_t, y > x ? y : x)
DEFINE_REDUCE(min_u8, uint8_t, y < x ? y : x)
DEFINE_REDUCE(or_bool, uint8_t, (uint8_t)((x | y) != 0))
DEFINE_REDUCE(and_bool, uint8_t, (uint8_t)((x != 0) & (y != 0)))
DEFINE_REDUCE_HALF(sum_f16, widen_f16, narrow_f16, x + y)
DEFINE_REDUCE_HALF(max_f16, widen_f16, narrow_f16, MAX_OR_NAN)
DEFINE_REDUCE_HALF(min_f16, widen_f16, narrow_f16, MIN_OR_NAN)
DEFINE_REDUCE_HALF(sum_bf16, widen_bf16, narrow_bf16, x + y)
DEFINE_REDUCE_HALF(max_bf16, widen_bf16, narrow_bf16, MAX_OR_NAN)
DEFINE_REDUCE_HALF(min_bf16, widen_bf16, narrow_bf16, MIN_OR_NAN)
DEFINE_REDUCE(product_f32, float, x *y)
DEFINE_REDUCE(product_f64, double, x *y)
DEFINE_REDUCE(product_i64, uint64_t, x *y)
DEFINE_REDUCE(product_i32, uint32_t, x *y)
DEFINE_REDUCE(product_u8, uint8_t, (uint8_t)(x *y))
DEFINE_REDUCE_HALF(product_f16, widen_f16, narrow_f16, x *y)
DEFINE_REDUCE_HALF(product_bf16, widen_bf16, narrow_bf16, x *y)
DEFINE_AVERAGE(avg_f32, float)
DEFINE_AVERAGE(avg_f64, double)
DEFINE_REDUCE_HALF_FROM(avg_f16, widen_f16, narrow_f16, const float part = 1 / (float)nsrc,
                        F16_PART, x + y)
DEFINE_REDUCE_HALF_FROM(avg_bf16, widen_bf16, narrow_bf16, const float part = 1 / (float)nsrc,
                        BF16_PART, x + y)

const tsri_reduce_table REDUCE_TABLE = {
    [TSR_DTYPE_F32] = {sum_f32, max_f32, min_f32, product_f32, avg_f32},
    [TSR_DTYPE_F16] = {sum_f16, max_f16, min_f16, product_f16, avg_f16},
    [TSR_DTYPE_BF16] = {sum_bf16, max_bf16, min_bf16, product_bf16, avg_bf16},
    [TSR_DTYPE_F64] = {sum_f64, max_f64, min_f64, product_f64, avg_f64},
    [TSR_DTYPE_I64] = {sum_i64, max_i64, min_i64, product_i64},
    [TSR_DTYPE_I32] = {sum_i32, max_i32, min_i32, product_i32},
    [TSR_DTYPE_U8] = {sum_u8, max_u8, min_u8, product_u8},
    [TSR_DTYPE_BOOL] = {or_bool, or_bool, and_bool, and_bool},
};
