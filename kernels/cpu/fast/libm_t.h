/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of <math.h> for vectors of floats, which math_t.h has not: the C library's own
 * (libmvec; to 4 units in the last place) where it has them for this instruction set, else one lane
 * after another; and roundings to whole numbers. Included once per instruction set; see vec.h.
 */
#include <features.h>
#include <math.h>

#if defined(__x86_64__) && defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)
#if VEC_ISA == 512
#define LIBM_NAME(name) _ZGVeN16##name##f
#elif VEC_ISA == 256
#define LIBM_NAME(name) _ZGVdN8##name##f
#else
#define LIBM_NAME(name) _ZGVbN4##name##f
#endif
/* The x86-64 vector ABI's name of the function, so that programs need no -ffast-math. */
#define LIBM(name)                       \
    extern vf LIBM_NAME(v_##name)(vf x); \
    VEC_FN vf v##name(vf x)              \
    {                                    \
        return LIBM_NAME(v_##name)(x);   \
    }
extern vf LIBM_NAME(vv_pow)(vf x, vf y);
VEC_FN vf vpow(vf x, vf y)
{
    return LIBM_NAME(vv_pow)(x, y);
}
#else
#define LIBM(name)                  \
    VEC_FN vf v##name(vf x)         \
    {                               \
        for (int i = 0; i < W; i++) \
            x[i] = name##f(x[i]);   \
        return x;                   \
    }
VEC_FN vf vpow(vf x, vf y)
{
    for (int i = 0; i < W; i++)
        x[i] = powf(x[i], y[i]);
    return x;
}
#endif
LIBM(log2)
LIBM(log10)
LIBM(sin)
LIBM(cos)
LIBM(tan)
LIBM(asin)
LIBM(acos)
LIBM(atan)
LIBM(sinh)
LIBM(cosh)
LIBM(asinh)
LIBM(acosh)
LIBM(atanh)
LIBM(erf)
LIBM(erfc)
#undef LIBM
#undef LIBM_NAME

/* x without its fraction; its sign stays, and so do infinities and NaN. */
VEC_FN vf vtrunc(vf x)
{
#if VEC_ISA == 512
    return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#elif VEC_ISA == 256
    return (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
#else
    /* A float of 2^23 and more has no fraction. */
    vf whole = __builtin_convertvector(__builtin_convertvector(x, vint), vf);
    vint small = (vint)(vabs(x) < vset1(0x1p23f)), sign = (vint)vset1(-0.0f);
    return vchoose(small, (vf)((vint)whole | ((vint)x & sign)), x);
#endif
}

VEC_FN vf vfloor(vf x)
{
#if VEC_ISA == 512
    return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif VEC_ISA == 256
    return (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    vf whole = vtrunc(x);
    return vchoose((vint)(whole > x), whole - vset1(1.0f), whole);
#endif
}

VEC_FN vf vceil(vf x)
{
    return -vfloor(-x);
}

/* Rounds to the nearest whole number, halves to the even one. */
VEC_FN vf vrint(vf x)
{
#if VEC_ISA == 512
    return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif VEC_ISA == 256
    return (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    /* Adding 2^23 leaves whole numbers. */
    const vf shift = vset1(0x1p23f);
    vint sign = (vint)x & (vint)vset1(-0.0f);
    vf size = vabs(x), whole = (size + shift) - shift;
    return vchoose((vint)(size < shift), (vf)((vint)whole | sign), x);
#endif
}
