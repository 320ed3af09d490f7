/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/convert.h"

#include <math.h>
#include <string.h>

#include "src/core/dims.h"

/* A 16-bit format: sign, `exponent` bits, `mantissa` bits. */
typedef struct half_format {
    int exponent, mantissa;
} half_format;

static const half_format f16 = {5, 10}, bf16 = {8, 7};

/* Every value of the four dtypes is exact in a double, so this is the one rounding there is. */
static uint16_t narrow(half_format h, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
    const uint32_t sign = (uint32_t)(bits >> 63) << 15;
    const uint32_t infinity = ((1u << h.exponent) - 1) << h.mantissa;
    const int exponent = (int)(bits >> 52 & 0x7FF);
    if (exponent == 0x7FF) {
        if (!mantissa)
            return (uint16_t)(sign | infinity);
        /* NaN: the payload's top bits, made quiet. */
        return (uint16_t)(sign | infinity | 1u << (h.mantissa - 1) |
                          (uint32_t)(mantissa >> (52 - h.mantissa)));
    }
    const int bias = (1 << (h.exponent - 1)) - 1, least = 1 - bias, e = exponent - 1023;
    int shift = 52 - h.mantissa + (e < least ? least - e : 0);
    if (exponent == 0 || shift > 53)
        return (uint16_t)sign; /* below half of the smallest subnormal */
    const uint64_t significand = mantissa | (uint64_t)1 << 52;
    const uint64_t rest = significand & (((uint64_t)1 << shift) - 1);
    const uint64_t half = (uint64_t)1 << (shift - 1);
    uint64_t q = significand >> shift;
    q += rest > half || (rest == half && (q & 1));
    /* q holds the leading one, which counts as an exponent step; a carry moves on by itself. */
    if (e >= least)
        q += (uint64_t)(e + bias - 1) << h.mantissa;
    return (uint16_t)(sign | (q < infinity ? (uint32_t)q : infinity));
}

static double widen(half_format h, uint16_t bits)
{
    const int bias = (1 << (h.exponent - 1)) - 1;
    const uint64_t sign = (uint64_t)(bits >> 15) << 63;
    const int exponent = bits >> h.mantissa & ((1 << h.exponent) - 1);
    const uint64_t mantissa = bits & ((1u << h.mantissa) - 1);
    uint64_t wide = sign | mantissa << (52 - h.mantissa);
    if (exponent == (1 << h.exponent) - 1)
        wide |= (uint64_t)0x7FF << 52;
    else if (exponent)
        wide |= (uint64_t)(exponent - bias + 1023) << 52;
    else
        return copysign(ldexp((double)mantissa, 1 - bias - h.mantissa), sign ? -1.0 : 1.0);
    double value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static double load(const char *p, tsr_dtype dtype)
{
    uint16_t h;
    float f;
    double d;
    switch (dtype) {
    case TSR_F16:
        memcpy(&h, p, sizeof h);
        return widen(f16, h);
    case TSR_BF16:
        memcpy(&h, p, sizeof h);
        return widen(bf16, h);
    case TSR_F32:
        memcpy(&f, p, sizeof f);
        return f;
    default:
        memcpy(&d, p, sizeof d);
        return d;
    }
}

static void store(char *p, tsr_dtype dtype, double value)
{
    uint16_t h;
    float f;
    switch (dtype) {
    case TSR_F16:
        h = narrow(f16, value);
        memcpy(p, &h, sizeof h);
        break;
    case TSR_BF16:
        h = narrow(bf16, value);
        memcpy(p, &h, sizeof h);
        break;
    case TSR_F32:
        f = (float)value;
        memcpy(p, &f, sizeof f);
        break;
    default:
        memcpy(p, &value, sizeof value);
        break;
    }
}

tsr_status tsri_convert(void *dst, tsr_dtype dst_dtype, const void *src, tsr_dtype src_dtype,
                        int64_t n)
{
    const size_t to = tsr_dtype_size(dst_dtype), from = tsr_dtype_size(src_dtype);
    if (to && dst_dtype == src_dtype) {
        if (n)
            memmove(dst, src, (size_t)n * to);
        return TSR_OK;
    }
    if (!tsri_is_float(dst_dtype) || !tsri_is_float(src_dtype))
        return tsri_fail(TSR_ERR_DTYPE,
                         "can't convert %s to %s: only f16, bf16, f32 and f64 convert",
                         tsr_dtype_name(src_dtype), tsr_dtype_name(dst_dtype));
    const char *s = src;
    char *d = dst;
    for (int64_t i = 0; i < n; i++)
        store(d + (size_t)i * to, dst_dtype, load(s + (size_t)i * from, src_dtype));
    return TSR_OK;
}

void tsri_whole_range(tsr_dtype dtype, int64_t *out_low, int64_t *out_high)
{
    *out_low = dtype == TSR_I64 ? INT64_MIN : dtype == TSR_I32 ? INT32_MIN : 0;
    *out_high = dtype == TSR_I64   ? INT64_MAX
                : dtype == TSR_I32 ? INT32_MAX
                : dtype == TSR_U8  ? UINT8_MAX
                                   : 1;
}

int64_t tsri_whole_of(tsr_dtype dtype, double v)
{
    int64_t low, high;
    tsri_whole_range(dtype, &low, &high);
    if (dtype == TSR_BOOL)
        return v != 0;
    if (isnan(v))
        return 0;
    /* (double)INT64_MAX is 2^63, the first number that is too large; a smaller bound is exact. */
    return v >= (double)high ? high : v <= (double)low ? low : (int64_t)v;
}
