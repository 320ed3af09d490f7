/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Division with a rest, of vectors of floats and of whole numbers, through f64. Included once per
 * instruction set; see vec.h.
 *
 * n = x / y, rounded to the nearest whole number, and rest = x - n y are exact as long as n has few
 * bits: then n is at most 1 beside any other quotient, and one comparison of signs makes it that.
 * Vectors with larger quotients, a y of 0 or what is not finite go lane by lane.
 */
#define REAL double
#define REAL_FN VEC_FN
#define WHOLE_FN VEC_FN
#include "kernels/binary_t.h"
#undef REAL
#undef REAL_FN
#undef WHOLE_FN

typedef int64_t vlong __attribute__((vector_size(sizeof(vd))));

VEC_FN vd vdchoose(vlong mask, vd a, vd b)
{
    return (vd)((mask & (vlong)a) | (~mask & (vlong)b));
}

/* The functions of <math.h> for doubles, one lane after another. */
VEC_FN vd vdexp(vd x)
{
    for (int i = 0; i < W / 2; i++)
        x[i] = exp(x[i]);
    return x;
}

VEC_FN vd vdtanh(vd x)
{
    for (int i = 0; i < W / 2; i++)
        x[i] = tanh(x[i]);
    return x;
}

/* Returns whether the mask is set in any lane. */
VEC_FN bool vany_long(vlong mask)
{
#if VEC_ISA == 512
    return _mm512_movepi64_mask((__m512i)mask) != 0;
#elif VEC_ISA == 256
    return _mm256_movemask_pd((__m256d)mask) != 0;
#else
    return (mask[0] | mask[1]) != 0;
#endif
}

/* x = n y + rest with |rest| <= |y| / 2, or a little more where x / y was rounded. Where x and y
 * are finite, of 24 bits, y is not 0 and |x / y| < 2^28, rest is exact. */
typedef struct vd_division {
    vd quotient, n, rest;
} vd_division;

VEC_FN vd_division vd_divide(vd x, vd y)
{
    const vd shift = vdset1(0x1.8p52); /* adding it rounds to whole numbers */
    vd_division d;
    d.quotient = x / y;
    d.n = (d.quotient + shift) - shift;
    d.rest = x - d.n * y;
    return d;
}

/* Returns a mask of the lanes in which `rest` and `like` have different signs. */
VEC_FN vlong vd_differs(vd rest, vd like)
{
    return ((vlong)rest ^ (vlong)like) < 0;
}

/* The three functions of floats, of half a vector of them: *out is set where this returns true. */
typedef enum vrest_do { VREST_FMOD, VREST_REMAINDER, VREST_FLOOR_DIVIDE } vrest_do;

VEC_FN bool vrest_half(vd x, vd y, const vrest_do what, vd *out)
{
    const vlong sign = (vlong){0} + INT64_MIN;
    const vd zero = vdset1(0), most = vdset1(0x1p28);
    const vd_division d = vd_divide(x, y);
    const vd size = (vd)((vlong)y & ~sign);
    if (vany_long(~((vlong)(d.quotient < most) & (vlong)(d.quotient > -most) &
                    (vlong)(size < vdset1(0x1p128)))))
        return false;
    const vd like = what == VREST_FMOD ? x : y;
    const vlong beside = (vlong)(d.rest != zero) & vd_differs(d.rest, like);
    if (what == VREST_FLOOR_DIVIDE) {
        const vd n = d.n - (vd)(beside & (vlong)vdset1(1));
        *out = (vd)((vlong)n | ((vlong)(n == zero) & (vlong)d.quotient & sign));
        return true;
    }
    const vd more = (vd)((vlong)size | ((vlong)like & sign));
    const vd rest = d.rest + (vd)(beside & (vlong)more);
    *out = (vd)((vlong)rest | ((vlong)(rest == zero) & (vlong)x & sign));
    return true;
}

VEC_FN double vrest_lane(double x, double y, const vrest_do what)
{
    return what == VREST_FMOD        ? fmod(x, y)
           : what == VREST_REMAINDER ? floor_rest(x, y)
                                     : floor_quotient(x, y);
}

VEC_FN vf vrest(vf x, vf y, const vrest_do what)
{
    vd lo, hi;
    if (vrest_half(vlo(x), vlo(y), what, &lo) && vrest_half(vhi(x), vhi(y), what, &hi))
        return vjoin(lo, hi);
    for (int i = 0; i < W; i++)
        x[i] = (float)vrest_lane((double)x[i], (double)y[i], what);
    return x;
}

VEC_FN vf vfmod(vf x, vf y)
{
    return vrest(x, y, VREST_FMOD);
}

VEC_FN vf vfloor_rest(vf x, vf y)
{
    return vrest(x, y, VREST_REMAINDER);
}

VEC_FN vf vfloor_quotient(vf x, vf y)
{
    return vrest(x, y, VREST_FLOOR_DIVIDE);
}

/* Whole numbers, between -2^51 and 2^51: adding the bits of 1.5 * 2^52 makes them the low bits of a
 * double beside that number. */
enum { VLONG_BITS = 51 };
#define VLONG_SHIFT INT64_C(0x4338000000000000)

VEC_FN vd vlong_widen(vlong x)
{
    return (vd)(x + VLONG_SHIFT) - vdset1(0x1.8p52);
}

VEC_FN vlong vlong_narrow(vd x)
{
    return (vlong)(x + vdset1(0x1.8p52)) - VLONG_SHIFT;
}

/* The three functions of whole numbers, as vrest_half: n y is exact, and n one off at most. */
VEC_FN bool vlong_rest(vlong x, vlong y, const vrest_do what, vlong *out)
{
    const vlong half = (vlong){0} + (INT64_C(1) << VLONG_BITS);
    const vu move = (vu)half; /* sums without a sign may wrap around */
    const vlong beyond = (vlong)(((vu)x + move) | ((vu)y + move)) & ~(2 * half - 1);
    if (vany_long((vlong)(beyond != 0) | (vlong)(y == 0)))
        return false;
    const vd fx = vlong_widen(x), fy = vlong_widen(y), zero = vdset1(0);
    const vd_division d = vd_divide(fx, fy);
    const vd like = what == VREST_FMOD ? fx : fy;
    const vlong beside = (vlong)(d.rest != zero) & vd_differs(d.rest, like);
    if (what == VREST_FLOOR_DIVIDE) {
        *out = vlong_narrow(d.n) + beside; /* a mask is -1 */
        return true;
    }
    const vlong sign = (vlong){0} + INT64_MIN;
    const vd more = (vd)(((vlong)fy & ~sign) | ((vlong)like & sign));
    *out = vlong_narrow(d.rest + (vd)(beside & (vlong)more));
    return true;
}
