/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of vectors: exp, log and what is made of them; the element-wise functions of
 * src/core/unary_list.h and binary_list.h. Included once per instruction set; see vec.h. */

#include "src/core/op_list.h"

typedef int32_t vint __attribute__((vector_size(sizeof(vf))));
typedef uint32_t vuint __attribute__((vector_size(sizeof(vf)))); /* wraps: a NaN has any bits */

/* a where the mask (a comparison's result) is set, else b. */
VEC_FN vf vchoose(vint mask, vf a, vf b)
{
    return (vf)((mask & (vint)a) | (~mask & (vint)b));
}

VEC_FN vf vabs(vf x)
{
    return (vf)((vint)x & INT32_MAX);
}

#include "kernels/cpu/fast/libm_t.h"

/* e^x = 2^n e^r with x = n ln 2 + r, |r| <= ln(2)/2: returns (e^r - 1)/r to 1 unit in the last
 * place, by its series, and 2^n as the product of two powers, as n may be 128. */
typedef struct vexp_parts {
    vf r, series, power[2];
} vexp_parts;

VEC_FN vexp_parts vexp_reduce(vf x)
{
    const float shift = 0x1.8p23f; /* adding it rounds to whole numbers, which its low bits show */
    vexp_parts e;
    vf t = vfma(x, vset1(0x1.715476p+0f), vset1(shift));
    vf n = t - vset1(shift);
    e.r = vfma(n, vset1(-0x1.62e4p-1f), x); /* the first bits of ln 2: the product is exact */
    e.r = vfma(n, vset1(-0x1.7f7d1cp-20f), e.r);
    vf p = vset1(1.0f / 5040);
    p = vfma(p, e.r, vset1(1.0f / 720));
    p = vfma(p, e.r, vset1(1.0f / 120));
    p = vfma(p, e.r, vset1(1.0f / 24));
    p = vfma(p, e.r, vset1(1.0f / 6));
    p = vfma(p, e.r, vset1(0.5f));
    e.series = vfma(p, e.r, vset1(1.0f));
    vuint whole = (vuint)t - (vuint)vset1(shift), half = (vuint)((vint)whole >> 1);
    e.power[0] = (vf)((half + 127) << 23);
    e.power[1] = (vf)((whole - half + 127) << 23);
    return e;
}

/* e^x to 2 units in the last place; 0 below the least normal number. */
VEC_FN vf vexp(vf x)
{
    const vf least = vset1(-87.336544f);
    vexp_parts e = vexp_reduce(vmin(vset1(89.0f), vmax(least, x)));
    vf y = vfma(e.series, e.r, vset1(1.0f)) * e.power[0] * e.power[1];
    return (vf)(~(vint)(x < least) & (vint)y);
}

/* e^x - 1 for x <= 0, to 3 units in the last place: 2^n (e^r - 1) + (2^n - 1). */
VEC_FN vf vexpm1_below(vf x)
{
    vexp_parts e = vexp_reduce(vmax(vset1(-87.0f), x));
    vf power = e.power[0] * e.power[1];
    return vfma(e.series * e.r, power, power - vset1(1.0f));
}

VEC_FN vf vtanh(vf x)
{
    vf m = vexpm1_below(vset1(-2.0f) * vabs(x)), y = -m / (m + vset1(2.0f));
    return vchoose((vint)(x < vset1(0.0f)), -y, vchoose((vint)(x > vset1(0.0f)), y, x));
}

/* The natural logarithm to 2 units in the last place: x = 2^n m with sqrt(1/2) <= m < sqrt(2), and
 * log(m) = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1)/(m + 1). */
VEC_FN vf vlog(vf x)
{
    const vf inf = vset1(__builtin_inff()), zero = vset1(0.0f);
    vint tiny = (vint)(x < vset1(0x1p-126f)); /* below the least normal number */
    vuint bits = (vuint)vchoose(tiny, x * vset1(0x1p23f), x);
    vint up = (vint)(bits - 0x3f3504f3u) >> 23; /* the exponent, counted from sqrt(1/2) */
    vf m = (vf)(bits - ((vuint)up << 23)), f = m - vset1(1.0f), s = f / (m + vset1(1.0f)),
       q = s * s;
    vf n = __builtin_convertvector(up - (tiny & 23), vf);
    vf p = vset1(2.0f / 11);
    p = vfma(p, q, vset1(2.0f / 9));
    p = vfma(p, q, vset1(2.0f / 7));
    p = vfma(p, q, vset1(2.0f / 5));
    p = vfma(p, q, vset1(2.0f / 3));
    /* 2s = f - s f: f is exact, and so is the first part of n ln 2. */
    vf low = vfma(n, vset1(1.42860677e-6f), s * (p * q - f));
    vf y = vfma(n, vset1(0.693145752f), f + low);
    vf edge = vchoose((vint)(x < zero), vset1(__builtin_nanf("")), x);
    edge = vchoose((vint)(x == zero), -inf, edge);
    return vchoose((vint)(x > zero) & (vint)(x < inf), y, edge);
}

/* log(1 + x): what rounding 1 + x to w has lost counts with the slope 1/w. */
VEC_FN vf vlog1p(vf x)
{
    vf w = x + vset1(1.0f), kept = w - vset1(1.0f), y = vlog(w);
    return vchoose((vint)(kept == x), y, y + (x - kept) / w);
}

/* The normal distribution's function at -|x|, to 4e-7 of itself: e^(-x^2/2)/2 erfcx(|x|/sqrt(2)),
 * erfcx(z) as a polynomial in 1/(1 + 0.49 z) without a constant term, fitted for the least largest
 * relative error over 0 <= z <= 12 (3.6e-8). `bell` is e^(-x^2/2). */
VEC_FN vf vtail(vf x, vf bell)
{
    vf size = vabs(x);
    vf t = vset1(1.0f) / vfma(size, vset1(0.49f * 0.70710678f), vset1(1.0f));
    vf p = vset1(-0.055695932975571835f);
    p = vfma(p, t, vset1(0.2829314340684587f));
    p = vfma(p, t, vset1(-0.5199978733998567f));
    p = vfma(p, t, vset1(0.3436323763428606f));
    p = vfma(p, t, vset1(-0.057510260643740124f));
    p = vfma(p, t, vset1(0.21634078511215282f));
    p = vfma(p, t, vset1(0.23683732449658657f));
    p = vfma(p, t, vset1(0.2770312224338113f));
    p = vfma(p, t, vset1(0.2764309592474267f));
    return vset1(0.5f) * bell * t * p;
}

VEC_FN vf vnormal_cdf(vf x)
{
    vf tail = vtail(x, vexp(vset1(-0.5f) * x * x));
    return vchoose((vint)(x > vset1(0.0f)), vset1(1.0f) - tail, tail);
}

/* x^(y + rest) to 4 units in the last place; y and rest: of all lanes alike, rest much smaller.
 * Exponents of which one or two operations make the power are to 2 units. x^(1/2) is not the square
 * root of -0 and -infinity. */
VEC_FN vf vpower(vf x, vf y, vf rest)
{
    const vf one = vset1(1.0f), inf = vset1(__builtin_inff());
    const float exponent = y[0];
    if (rest[0] != 0.0f) { /* so the exponent is no whole number */
        const vf size = vabs(x), change = vfma(rest, vlog(size), one);
        const vint plain = (vint)(size > vset1(0.0f)) & (vint)(size < inf);
        const vf z = vpow(size, y) * vchoose(plain, change, one);
        return vchoose(plain & (vint)(x < size), vset1(__builtin_nanf("")), z);
    }
    if (exponent == 1.0f)
        return x;
    if (exponent == 2.0f)
        return x * x;
    if (exponent == 3.0f)
        return x * x * x;
    if (exponent == -1.0f)
        return one / x;
    if (exponent == -2.0f)
        return one / (x * x);
    if (exponent != 0.5f && exponent != -0.5f)
        return vpow(x, y);
    const vf root = vchoose((vint)(x == -inf), inf, vsqrt(x + vset1(0.0f)));
    return exponent > 0.0f ? root : one / root;
}

#define REAL vf
#define REAL_FN VEC_FN
#define num(c) vset1((float)(c))
#define pick(c, a, b) vchoose((vint)(c), a, b)
#define exp vexp
#define log vlog
#define log1p vlog1p
#define sqrt vsqrt
#define tanh vtanh
#define normal_cdf vnormal_cdf
#define exp2 vexp2
#define expm1 vexpm1
#define log2 vlog2
#define log10 vlog10
#define sin vsin
#define cos vcos
#define tan vtan
#define asin vasin
#define acos vacos
#define atan vatan
#define sinh vsinh
#define cosh vcosh
#define asinh vasinh
#define acosh vacosh
#define atanh vatanh
#define erf verf
#define erfc verfc
#define trunc vtrunc
#define floor vfloor
#define ceil vceil
#define rint vrint
#define pow(x, y) vpower(x, y, b)
#include "kernels/unary_t.h"

/* A function and its gradient, of a vector and of a buffer's elements [i, end). */
#define UNARY_BY_VECTORS(FN, forward, gradient)                                                    \
    VEC_FN vf forward_##FN(vf v, vf a, vf b)                                                       \
    {                                                                                              \
        (void)a, (void)b;                                                                          \
        return forward;                                                                            \
    }                                                                                              \
    VEC_FN vf gradient_##FN(vf v, vf u, vf a, vf b)                                                \
    {                                                                                              \
        (void)v, (void)u, (void)a, (void)b;                                                        \
        return gradient;                                                                           \
    }                                                                                              \
    static void unary_##FN(const tsri_fast_map *p, int64_t i, int64_t end)                         \
    {                                                                                              \
        const vf a = vset1(p->a), b = vset1(p->b);                                                 \
        for (; i < end; i += W)                                                                    \
            vstore_upto(p->out + i, forward_##FN(vload_upto(p->x + i, end - i), a, b), end - i);   \
    }                                                                                              \
    static void unary_grad_##FN(const tsri_fast_map *p, int64_t i, int64_t end)                    \
    {                                                                                              \
        const vf a = vset1(p->a), b = vset1(p->b);                                                 \
        for (; i < end; i += W)                                                                    \
            vstore_upto(                                                                           \
                p->out + i,                                                                        \
                gradient_##FN(vload_upto(p->x + i, end - i), vload_upto(p->y + i, end - i), a, b), \
                end - i);                                                                          \
    }
#define UNARY_BY_LANES(FN, forward, gradient)
#define UNARY_LOOPS(T, FN, name, gets, cost, by, forward, gradient, doc) \
    UNARY_BY_##by(FN, forward, gradient)
TSRI_UNARY_LIST(UNARY_LOOPS, )
#undef pow
#define pow vpow

#define BINARY_LOOP(FN, load_x, load_y) \
    for (; i < end; i += W)             \
    vstore_upto(p->out + i, binary_of_##FN(load_x, load_y), end - i)
#define BINARY_BY_VECTORS(FN, real)                                                        \
    VEC_FN vf binary_of_##FN(vf a, vf b)                                                   \
    {                                                                                      \
        return real;                                                                       \
    }                                                                                      \
    static void binary_##FN(const tsri_fast_map *p, int64_t i, int64_t end)                \
    {                                                                                      \
        if (p->fixed_x) {                                                                  \
            const vf x = vset1(*p->x);                                                     \
            BINARY_LOOP(FN, x, vload_upto(p->y + i, end - i));                             \
        } else if (p->fixed_y) {                                                           \
            const vf y = vset1(*p->y);                                                     \
            BINARY_LOOP(FN, vload_upto(p->x + i, end - i), y);                             \
        } else {                                                                           \
            BINARY_LOOP(FN, vload_upto(p->x + i, end - i), vload_upto(p->y + i, end - i)); \
        }                                                                                  \
    }
#define BINARY_BY_LANES(FN, real)
#define BINARY_LOOPS(T, FN, name, takes, rule, cost, by, real, whole, doc) BINARY_BY_##by(FN, real)
TSRI_ARITHMETIC_LIST(BINARY_LOOPS, )
#undef BINARY_LOOPS
#undef BINARY_BY_LANES
#undef BINARY_BY_VECTORS
#undef BINARY_LOOP
#undef pow
#undef UNARY_LOOPS
#undef UNARY_BY_LANES
#undef UNARY_BY_VECTORS
#undef REAL
#undef REAL_FN
#undef num
#undef pick
#undef exp
#undef log
#undef log1p
#undef sqrt
#undef tanh
#undef normal_cdf
#undef exp2
#undef expm1
#undef log2
#undef log10
#undef sin
#undef cos
#undef tan
#undef asin
#undef acos
#undef atan
#undef sinh
#undef cosh
#undef asinh
#undef acosh
#undef atanh
#undef erf
#undef erfc
#undef trunc
#undef floor
#undef ceil
#undef rint
