/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/collective/collective_values.h"

#include <math.h>
#include <string.h>

uint64_t values_hash(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t h = a * UINT64_C(0x9e3779b97f4a7c15) ^ b * UINT64_C(0xc2b2ae3d27d4eb4f) ^
                 c * UINT64_C(0x165667b19e3779f9);
    h ^= h >> 31;
    h *= UINT64_C(0xd6e8feb86659fd93);
    return h ^ h >> 32;
}

/* bf16 by search among its neighbours: independent of how the library rounds. */
static uint16_t to_bf16(float f)
{
    uint32_t bits, best = 0;
    double nearest = -1;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7f800000) == 0x7f800000)
        return (uint16_t)(bits >> 16);
    for (uint32_t c = bits >> 16; c <= (bits >> 16) + 1; c++) {
        uint32_t wide = c << 16;
        float v;
        memcpy(&v, &wide, sizeof v);
        double d = (double)v - (double)f;
        d = d < 0 ? -d : d;
        if (nearest < 0 || d < nearest || (d == nearest && c % 2 == 0)) {
            nearest = d;
            best = c;
        }
    }
    return (uint16_t)best;
}

static float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* All finite f16 that are not negative. */
static float halves[0x7c00];

void values_init(void)
{
    for (int h = 0; h < 0x7c00; h++) {
        int e = h >> 10, m = h & 1023;
        halves[h] = (float)ldexp(e ? 1024 + m : m, (e ? e : 1) - 25);
    }
}

/* By search among all: exact, ties to even. */
static float from_f16(uint16_t h)
{
    return h & 0x8000 ? -halves[h & 0x7fff] : halves[h];
}

static uint16_t to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    float a = f < 0 ? -f : f;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000), low = 0, high = 0x7bff;
    if (a > from_f16(high))
        return sign | high; /* no test value is so large */
    while (high - low > 1) {
        uint16_t mid = (uint16_t)((low + high) / 2);
        if (from_f16(mid) <= a)
            low = mid;
        else
            high = mid;
    }
    double down = (double)a - (double)from_f16(low), up = (double)from_f16(high) - (double)a;
    bool take_high = up < down || (up == down && high % 2 == 0);
    return sign | (take_high ? high : low);
}

void values_put(tsr_dtype t, void *p, int64_t at, int rank, int64_t i, uint64_t seed)
{
    uint64_t h = values_hash((uint64_t)rank + 1, (uint64_t)i + 1, seed + 1);
    float f = (float)((double)(h >> 20 & 0xfff) / 640.0 - 3.2) + 1e-4f;
    switch (t) {
    case TSR_F32:
        ((float *)p)[at] = f;
        break;
    case TSR_F64:
        ((double *)p)[at] = (double)f * (1 + 1e-11 * (double)(h & 0xff));
        break;
    case TSR_F16:
        ((uint16_t *)p)[at] = to_f16(f);
        break;
    case TSR_BF16:
        ((uint16_t *)p)[at] = to_bf16(f);
        break;
    case TSR_I64:
        ((int64_t *)p)[at] = (int64_t)h;
        break;
    case TSR_I32:
        ((int32_t *)p)[at] = (int32_t)(h >> 32);
        break;
    case TSR_BOOL:
        ((uint8_t *)p)[at] = h >> 40 & 1;
        break;
    default:
        ((uint8_t *)p)[at] = (uint8_t)(h >> 40);
        break;
    }
}

void values_fill(tsr_dtype t, void *dst, int64_t count, int rank, int64_t first, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        values_put(t, dst, i, rank, first + i, seed);
}

/* --- reductions ------------------------------------------------------------------------------- */

#define COMBINE(acc, v)                                                         \
    (op == TSR_REDUCE_SUM || op == TSR_REDUCE_AVG ? (acc) + (v)                 \
     : op == TSR_REDUCE_PRODUCT                   ? (acc) * (v)                 \
     : op == TSR_REDUCE_MAX                       ? ((v) > (acc) ? (v) : (acc)) \
                                                  : ((v) < (acc) ? (v) : (acc)))

static float reduce_f32(tsr_reduce_op op, int n, const float *v)
{
    const float part = 1.0f / (float)n;
    float acc = op == TSR_REDUCE_AVG ? v[0] * part : v[0];
    for (int r = 1; r < n; r++) {
        float x = op == TSR_REDUCE_AVG ? v[r] * part : v[r];
        acc = COMBINE(acc, x);
    }
    return acc;
}

static double reduce_f64(tsr_reduce_op op, int n, const double *v)
{
    const double part = 1.0 / n;
    double acc = op == TSR_REDUCE_AVG ? v[0] * part : v[0];
    for (int r = 1; r < n; r++) {
        double x = op == TSR_REDUCE_AVG ? v[r] * part : v[r];
        acc = COMBINE(acc, x);
    }
    return acc;
}

/* In f32, rounded once; what an average adds up is rounded, too. */
static uint16_t reduce_half(tsr_reduce_op op, int n, const uint16_t *v, bool bf16)
{
    float wide[16] = {0};
    for (int r = 0; r < n; r++) {
        wide[r] = bf16 ? from_bf16(v[r]) : from_f16(v[r]);
        if (op == TSR_REDUCE_AVG) {
            float part = wide[r] * (1.0f / (float)n);
            wide[r] = bf16 ? from_bf16(to_bf16(part)) : from_f16(to_f16(part));
        }
    }
    float f = reduce_f32(op == TSR_REDUCE_AVG ? TSR_REDUCE_SUM : op, n, wide);
    return bf16 ? to_bf16(f) : to_f16(f);
}

#define REDUCE_INTEGERS(T, U)                                      \
    do {                                                           \
        T acc_ = ((T *)all)[0];                                    \
        for (int r_ = 1; r_ < n; r_++) {                           \
            T v_ = ((T *)all)[r_];                                 \
            if (op == TSR_REDUCE_SUM)                              \
                acc_ = (T)((U)acc_ + (U)v_);                       \
            else if (op == TSR_REDUCE_PRODUCT)                     \
                acc_ = (T)((U)acc_ * (U)v_);                       \
            else if (op == TSR_REDUCE_MAX ? v_ > acc_ : v_ < acc_) \
                acc_ = v_;                                         \
        }                                                          \
        ((T *)dst)[i] = acc_;                                      \
    } while (0)

static void reduce_one(tsr_dtype t, tsr_reduce_op op, int n, void *all, void *dst, int64_t i)
{
    uint8_t any = 0, every = 1;
    switch (t) {
    case TSR_F32:
        ((float *)dst)[i] = reduce_f32(op, n, all);
        break;
    case TSR_F64:
        ((double *)dst)[i] = reduce_f64(op, n, all);
        break;
    case TSR_F16:
    case TSR_BF16:
        ((uint16_t *)dst)[i] = reduce_half(op, n, all, t == TSR_BF16);
        break;
    case TSR_I64:
        REDUCE_INTEGERS(int64_t, uint64_t);
        break;
    case TSR_I32:
        REDUCE_INTEGERS(int32_t, uint32_t);
        break;
    case TSR_BOOL:
        for (int r = 0; r < n; r++) {
            any |= ((uint8_t *)all)[r];
            every &= ((uint8_t *)all)[r];
        }
        ((uint8_t *)dst)[i] = op == TSR_REDUCE_SUM || op == TSR_REDUCE_MAX ? any : every;
        break;
    default:
        REDUCE_INTEGERS(uint8_t, unsigned);
        break;
    }
}

void values_reduce(tsr_dtype t, tsr_reduce_op op, int n, const int *ranks, void *dst, int64_t count,
                   int64_t first, uint64_t seed)
{
    double all[16];
    for (int64_t i = 0; i < count; i++) {
        for (int r = 0; r < n; r++)
            values_put(t, all, r, ranks[r], first + i, seed);
        reduce_one(t, op, n, all, dst, i);
    }
}
