/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of vectors: exp, log and what is made of them; the element-wise functions of
 * src/core/unary_list.h and binary_list.h. Included once per instruction set; see vec.h. */

#include "src/core/op_list.h"

typedef int32_t vint __attribute__((vector_size(sizeof(vf))));
typedef uint32_t vuint __attribute__((vector_size(sizeof(vf)))); /* wraps: a NaN has any bits */

/* Returns a where the mask (a comparison's result) is set, else b. */
VEC_FN vf vchoose(vint mask, vf a, vf b)
{
    return (vf)((mask & (vint)a) | (~mask & (vint)b));
}

/* Returns whether the mask is set in all lanes. */
VEC_FN bool vall(vint mask)
{
#if VEC_ISA == 512
    return _mm512_movepi32_mask((__m512i)mask) == 0xffff;
#elif VEC_ISA == 256
    return _mm256_movemask_ps((__m256)mask) == 0xff;
#else
    return (mask[0] & mask[1] & mask[2] & mask[3]) != 0;
#endif
}

VEC_FN vf vabs(vf x)
{
    return (vf)((vint)x & INT32_MAX);
}

#include "kernels/cpu/fast/libm_t.h"
#include "kernels/cpu/fast/rest_t.h"

/* x without what is not whole, for |x| < 2^22: adding `shift` rounds, and the sum's low bits show
 * the whole number. */
enum { VEXP_SHIFT = 0x4b400000 }; /* the bits of 1.5 * 2^23 */
#define vexp_shift vset1(0x1.8p23f)

/* e^x = 2^n e^r with x = n ln 2 + r, |r| <= ln(2)/2: r, (e^r - 1)/r to 1 unit in the last place, by
 * a polynomial fitted for the least largest relative error (1.4e-8), and n, as a float and whole.
 */
typedef struct vexp_parts {
    vf r, series, n;
    vint whole;
} vexp_parts;

VEC_FN vexp_parts vexp_reduce(vf x)
{
    vexp_parts e;
    vf t = vfma(x, vset1(0x1.715476p+0f), vexp_shift);
    e.n = t - vexp_shift;
    e.whole = (vint)t - VEXP_SHIFT;
    e.r = vfma(e.n, vset1(-0x1.62e4p-1f), x); /* the first bits of ln 2: the product is exact */
    e.r = vfma(e.n, vset1(-0x1.7f7d1cp-20f), e.r);
    vf p = vset1(0.00138825225155834f);
    p = vfma(p, e.r, vset1(0.00836651516962429f));
    p = vfma(p, e.r, vset1(0.04166719968575434f));
    p = vfma(p, e.r, vset1(0.16666543661051297f));
    p = vfma(p, e.r, vset1(0.5f));
    e.series = vfma(p, e.r, vset1(1.0f));
    return e;
}

/* Returns y 2^n, for |n| <= 128; n as a float and whole. */
VEC_FN vf vtimes_power(vf y, vf n, vint whole)
{
#if VEC_ISA == 512
    (void)whole;
    return (vf)_mm512_scalef_ps((__m512)y, (__m512)n);
#else
    const vint half = whole >> 1; /* 2^128 is no float */
    (void)n;
    return y * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
#endif
}

/* e^x to 2 units in the last place; 0 below the least normal number. */
VEC_FN vf vexp(vf x)
{
    const vf least = vset1(-87.336544f);
    vexp_parts e = vexp_reduce(vmin(vset1(89.0f), vmax(least, x)));
    vf y = vtimes_power(vfma(e.series, e.r, vset1(1.0f)), e.n, e.whole);
    return (vf)(~(vint)(x < least) & (vint)y);
}

/* 2^x to 2 units in the last place; 0 below the least normal number. 2^r - 1 for |r| <= 1/2 is r
 * times a polynomial, fitted for the least largest relative error of 2^r (2e-9). */
VEC_FN vf vexp2(vf x)
{
    const vf least = vset1(-126.0f);
    vf in = vmin(vset1(128.0f), vmax(least, x)), t = in + vexp_shift, n = t - vexp_shift;
    vf r = in - n, p = vset1(0.00015353361889206690f);
    p = vfma(p, r, vset1(0.0013398874413950157f));
    p = vfma(p, r, vset1(0.0096184373577273309f));
    p = vfma(p, r, vset1(0.055503324711262902f));
    p = vfma(p, r, vset1(0.24022647913628545f));
    p = vfma(p, r, vset1(0.69314720285506515f));
    vf y = vtimes_power(vfma(p, r, vset1(1.0f)), n, (vint)t - VEXP_SHIFT);
    return (vf)(~(vint)(x < least) & (vint)y);
}

/* e^x - 1 to 3 units in the last place, of parts of x: 2^n ((e^r - 1) + (1 - 2^-n)). */
VEC_FN vf vexpm1_of(vexp_parts e)
{
#if VEC_ISA == 512
    vf back = (vf)_mm512_scalef_ps((__m512)vset1(1.0f), (__m512)-e.n);
#else
    vf back = (vf)((vint)(e.whole < 127) & ((127 - e.whole) << 23)); /* 2^-n */
#endif
    return vtimes_power(vfma(e.series, e.r, vset1(1.0f) - back), e.n, e.whole);
}

VEC_FN vf vexpm1(vf x)
{
    vf y = vexpm1_of(vexp_reduce(vmin(vset1(89.0f), vmax(vset1(-87.0f), x))));
    return vchoose((vint)(x == vset1(0.0f)), x, y); /* the sign of 0 */
}

VEC_FN vf vtanh(vf x)
{
    vf m = vexpm1_of(vexp_reduce(vmax(vset1(-87.0f), vset1(-2.0f) * vabs(x)))),
       y = -m / (m + vset1(2.0f));
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
    y = vchoose((vint)(kept == x), y, y + (x - kept) / w);
    return vchoose((vint)(x == vset1(0.0f)), x, y); /* -0 of -0 */
}

/* The angle of (x, y) to 3 units in the last place. The arc tangent of t, the smaller of |x| and
 * |y| by the larger, is t + t^3 p(t^2), p fitted for the least largest relative error (1.7e-8). */
VEC_FN vf vatan2(vf y, vf x)
{
    const vint sign = (vint)vset1(-0.0f);
    vf ax = vabs(x), ay = vabs(y);
    vint steep = (vint)(ay > ax), equal = (vint)(ax == ay); /* both 0 or infinite, too */
    vf small = vchoose(steep, ax, ay), large = vchoose(steep, ay, ax);
    vf t = vchoose(equal, vset1(1.0f), small / large);
    t = vchoose((vint)(large == vset1(0.0f)), vset1(0.0f), t);
    vf q = t * t, p = vset1(0.00292069187129232f);
    p = vfma(p, q, vset1(-0.01636792648603714f));
    p = vfma(p, q, vset1(0.04321185819554724f));
    p = vfma(p, q, vset1(-0.07552214047871854f));
    p = vfma(p, q, vset1(0.10666004518002942f));
    p = vfma(p, q, vset1(-0.1421105527043863f));
    p = vfma(p, q, vset1(0.1999377282920719f));
    p = vfma(p, q, vset1(-0.33333152735752836f));
    /* The angle is base + turn * arc tangent: pi and pi/2 in two parts. */
    vf arc = vfma(p * q, t, t);
    vint back = (vint)x >> 31; /* x < 0 and -0 */
    vf base = vchoose(steep, vset1(1.57079637f), (vf)(back & (vint)vset1(3.14159274f)));
    vf rest = vchoose(steep, vset1(-4.37113883e-8f), (vf)(back & (vint)vset1(-8.74227766e-8f)));
    vf turned = (vf)((vint)arc ^ ((steep ^ back) & sign));
    vf angle = base + (turned + rest);
    vf result = (vf)((vint)angle | ((vint)y & sign));
    return vchoose((vint)(x == x) & (vint)(y == y), result, x + y);
}

/* |x|, or what is large enough for a normal distribution not to reach it. */
#define vbell_most vset1(13.1f)
VEC_FN vf vbell_size(vf x)
{
    return vmin(vbell_most, vabs(x));
}

/* e^(-x^2/2); 0 where it is small. As vexp_reduce has it, of r = -2 (-x^2/2 - n ln 2): the powers
 * of -1/2 are in the coefficients. */
VEC_FN vf vbell(vf x)
{
    vf size = vbell_size(x), q = size * size;
    vf t = vfma(q, vset1(-0.5f * 0x1.715476p+0f), vexp_shift), n = t - vexp_shift;
    vf r = vfma(n, vset1(2 * 0x1.62e4p-1f), q);
    r = vfma(n, vset1(2 * 0x1.7f7d1cp-20f), r);
    vf p = vset1(2.1691441430599064e-05f);
    p = vfma(p, r, vset1(-0.00026145359905075906f));
    p = vfma(p, r, vset1(0.0026041999803596461f));
    p = vfma(p, r, vset1(-0.020833179576314122f));
    p = vfma(p, r, vset1(0.125f));
    p = vfma(p, r, vset1(-0.5f));
    /* n is added to the exponent: the sum is a normal number, and t's upper bits fall away. */
    vuint y = (vuint)vfma(p, r, vset1(1.0f)) + ((vuint)t << 23);
    return (vf)(~(vint)(size == vbell_most) & (vint)y);
}

/* The normal distribution's function at -|x|, to 4e-7 of itself: e^(-x^2/2)/2 erfcx(|x|/sqrt(2)),
 * erfcx(z)/2 as a polynomial in 1/(1 + 0.49 z) without a constant term, fitted for the least
 * largest relative error over 0 <= z <= 12 (3.6e-8). */
VEC_FN vf vtail(vf x)
{
    vf t = vset1(1.0f) / vfma(vbell_size(x), vset1(0.49f * 0.70710678f), vset1(1.0f));
    vf p = vset1(-0.027847966487785918f);
    p = vfma(p, t, vset1(0.14146571703422936f));
    p = vfma(p, t, vset1(-0.25999893669992835f));
    p = vfma(p, t, vset1(0.1718161881714303f));
    p = vfma(p, t, vset1(-0.028755130321870062f));
    p = vfma(p, t, vset1(0.10817039255607641f));
    p = vfma(p, t, vset1(0.11841866224829328f));
    p = vfma(p, t, vset1(0.13851561121690564f));
    p = vfma(p, t, vset1(0.13821547962371336f));
    return vbell(x) * t * p;
}

VEC_FN vf vnormal_cdf(vf x)
{
    const vf tail = vtail(x), one = vset1(1.0f);
#if VEC_ISA == 512
    const __mmask16 above = _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_GT_OQ);
    return (vf)_mm512_mask_sub_ps((__m512)tail, above, (__m512)one, (__m512)tail);
#else
    return vchoose((vint)(x > vset1(0.0f)), one - tail, tail);
#endif
}

VEC_FN vf vcube(vf x)
{
    return x * x * x;
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
        return vcube(x);
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
#define pick_mostly(c, a, b)                                    \
    __extension__({                                             \
        const vint picked_ = (vint)(c);                         \
        const vf first_ = (a);                                  \
        vall(picked_) ? first_ : vchoose(picked_, first_, (b)); \
    })
#define exp vexp
#define log vlog
#define log1p vlog1p
#define sqrt vsqrt
#define fabs vabs
#define tanh vtanh
#define normal_cdf vnormal_cdf
#define bell vbell
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
#define UNARY_BY_VECTORS(FN, forward, gradient)                                             \
    VEC_FN vf forward_##FN(vf v, vf a, vf b)                                                \
    {                                                                                       \
        (void)a, (void)b;                                                                   \
        return forward;                                                                     \
    }                                                                                       \
    VEC_FN vf gradient_##FN(vf v, vf u, vf a, vf b)                                         \
    {                                                                                       \
        (void)v, (void)u, (void)a, (void)b;                                                 \
        return gradient;                                                                    \
    }                                                                                       \
    static void unary_##FN(const tsri_fast_map *p, int64_t i, int64_t end)                  \
    {                                                                                       \
        const vf a = vset1(p->a), b = vset1(p->b);                                          \
        MAP_LOOP(forward_##FN(vload(x + i), a, b), forward_##FN(vloadn(x + i, part), a, b)) \
    }                                                                                       \
    static void unary_grad_##FN(const tsri_fast_map *p, int64_t i, int64_t end)             \
    {                                                                                       \
        const vf a = vset1(p->a), b = vset1(p->b);                                          \
        MAP_LOOP(gradient_##FN(vload(x + i), vload(y + i), a, b),                           \
                 gradient_##FN(vloadn(x + i, part), vloadn(y + i, part), a, b))             \
    }
#define UNARY_BY_LANES(FN, forward, gradient)
#define UNARY_LOOPS(T, FN, name, gets, cost, by, forward, gradient, doc) \
    UNARY_BY_##by(FN, forward, gradient)
TSRI_UNARY_LIST(UNARY_LOOPS, )
/* Powers whose exponent p->a needs but a multiplication or two: no call stands in their loops. */
static void few_power(const tsri_fast_map *p, int64_t i, int64_t end)
{
    if (p->a == 2.0f) {
        unary_SQUARE(p, i, end);
    } else if (p->a == 3.0f) {
        MAP_LOOP(vcube(vload(x + i)), vcube(vloadn(x + i, part)))
    } else {
        unary_POW(p, i, end);
    }
}

#undef pow
#define pow vpow
#define atan2 vatan2
#define fmod vfmod
#define floor_rest vfloor_rest
#define floor_quotient vfloor_quotient

#define BINARY_BY_VECTORS(FN, real)                                                               \
    VEC_FN vf binary_of_##FN(vf a, vf b)                                                          \
    {                                                                                             \
        return real;                                                                              \
    }                                                                                             \
    static void binary_##FN(const tsri_fast_map *p, int64_t i, int64_t end)                       \
    {                                                                                             \
        if (p->fixed_x) {                                                                         \
            const vf all = vset1(*p->x);                                                          \
            MAP_LOOP(binary_of_##FN(all, vload(y + i)), binary_of_##FN(all, vloadn(y + i, part))) \
        } else if (p->fixed_y) {                                                                  \
            const vf all = vset1(*p->y);                                                          \
            MAP_LOOP(binary_of_##FN(vload(x + i), all), binary_of_##FN(vloadn(x + i, part), all)) \
        } else {                                                                                  \
            MAP_LOOP(binary_of_##FN(vload(x + i), vload(y + i)),                                  \
                     binary_of_##FN(vloadn(x + i, part), vloadn(y + i, part)))                    \
        }                                                                                         \
    }
#define BINARY_BY_LANES(FN, real)
#define BINARY_LOOPS(T, FN, name, takes, rule, cost, by, real, whole, doc) BINARY_BY_##by(FN, real)
TSRI_ARITHMETIC_LIST(BINARY_LOOPS, )
#undef BINARY_LOOPS
#undef BINARY_BY_LANES
#undef BINARY_BY_VECTORS
#undef pow
#undef atan2
#undef fmod
#undef floor_rest
#undef floor_quotient
#undef UNARY_LOOPS
#undef UNARY_BY_LANES
#undef UNARY_BY_VECTORS
#undef REAL
#undef REAL_FN
#undef num
#undef pick
#undef pick_mostly
#undef exp
#undef log
#undef log1p
#undef sqrt
#undef fabs
#undef tanh
#undef normal_cdf
#undef bell
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
