/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of vectors: exp, and what is made of it. Included once per instruction set; see vec.h.
 */

typedef int32_t vint __attribute__((vector_size(sizeof(vf))));

/* e^x to 2 units in the last place: x = n ln 2 + r with |r| <= ln(2)/2, the series of e^r, and 2^n
 * by its exponent, in two halves as n may be 128. 0 below the least normal number. */
VEC_FN vf vexp(vf x)
{
    const float shift = 0x1.8p23f; /* adding it rounds to whole numbers, which its low bits show */
    const vf least = vset1(-87.336544f);
    vf v = vmin(vset1(89.0f), vmax(least, x));
    vf t = vfma(v, vset1(0x1.715476p+0f), vset1(shift));
    vf n = t - vset1(shift);
    vf r = vfma(n, vset1(-0x1.62e4p-1f), v); /* the first bits of ln 2: the product is exact */
    r = vfma(n, vset1(-0x1.7f7d1cp-20f), r);
    vf p = vset1(1.0f / 5040);
    p = vfma(p, r, vset1(1.0f / 720));
    p = vfma(p, r, vset1(1.0f / 120));
    p = vfma(p, r, vset1(1.0f / 24));
    p = vfma(p, r, vset1(1.0f / 6));
    p = vfma(p, r, vset1(0.5f));
    p = vfma(p, r, vset1(1.0f));
    p = vfma(p, r, vset1(1.0f));
    vint whole = (vint)t - (vint)vset1(shift), half = whole >> 1;
    vf y = p * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
    return (vf)(~(vint)(x < least) & (vint)y);
}

/* a where x > 0, else b. */
VEC_FN vf vby_sign(vf x, vf a, vf b)
{
    vint above = (vint)(x > vset1(0.0f));
    return (vf)((above & (vint)a) | (~above & (vint)b));
}

/* The normal distribution's function at -|x|, to 4e-7 of itself: e^(-x^2/2)/2 erfcx(|x|/sqrt(2)),
 * erfcx(z) as a polynomial in 1/(1 + 0.49 z) without a constant term, fitted for the least largest
 * relative error over 0 <= z <= 12 (3.6e-8). `bell` is e^(-x^2/2). */
VEC_FN vf vtail(vf x, vf bell)
{
    vf size = vmax(x, -x);
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

/* The normal distribution function at x. */
VEC_FN vf vnormal(vf x, vf bell)
{
    vf tail = vtail(x, bell);
    return vby_sign(x, vset1(1.0f) - tail, tail);
}

VEC_FN vf vgelu(vf x)
{
    return x * vnormal(x, vexp(vset1(-0.5f) * x * x));
}

VEC_FN vf vgelu_grad(vf x)
{
    vf bell = vexp(vset1(-0.5f) * x * x);
    return vfma(x * vset1(0.3989422804f), bell, vnormal(x, bell));
}

/* e^(-2u) with u = sqrt(2/pi) (x + 0.044715 x^3), as (1 + tanh(u))/2 = 1/(1 + e^(-2u)). */
VEC_FN vf vgelu_exp(vf x)
{
    vf u = vfma(x * x, vset1(0.044715f * 0.7978845608f), vset1(0.7978845608f));
    return vexp(vset1(-2.0f) * u * x);
}

VEC_FN vf vgelu_tanh(vf x)
{
    return x / (vset1(1.0f) + vgelu_exp(x));
}

/* Where the gate s is shut or open its slope is 0, whatever the square of x may be; 1 - s is
 * s e^(-2u) too, which is exact where s is near 1. */
VEC_FN vf vgelu_tanh_grad(vf x)
{
    vf e = vgelu_exp(x), s = vset1(1.0f) / (vset1(1.0f) + e);
    vf flat = s * vby_sign(x, s * e, vset1(1.0f) - s);
    vf slope = vfma(x * x, vset1(6 * 0.044715f * 0.7978845608f), vset1(2 * 0.7978845608f));
    vint some = (vint)(flat != vset1(0.0f));
    return s + (vf)(some & (vint)(x * flat * slope));
}

#define MATH_FN(name, ...)                                                 \
    static void map_##name(const tsri_fast_map *p, int64_t i, int64_t end) \
    {                                                                      \
        for (; i < end; i += W) {                                          \
            vf x = vload_upto(p->x + i, end - i);                          \
            vstore_upto(p->out + i, __VA_ARGS__, end - i);                 \
        }                                                                  \
    }
MATH_FN(gelu, vgelu(x))
MATH_FN(gelu_grad, vgelu_grad(x) * vload_upto(p->y + i, end - i))
MATH_FN(gelu_tanh, vgelu_tanh(x))
MATH_FN(gelu_tanh_grad, vgelu_tanh_grad(x) * vload_upto(p->y + i, end - i))
#undef MATH_FN
