/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the expressions of src/core/binary_list.h call. A file that includes this one
 * defines first, as for unary_t.h, REAL and REAL_FN; WHOLE_FN, which stands before the type of a
 * function of whole numbers; and has fmod and floor of a REAL.
 *
 * floor(x / y) and what it leaves are Python's and PyTorch's: the rest has the sign of y.
 */

/* Returns x - y floor(x / y): 0 <= |rest| < |y|. */
REAL_FN REAL floor_rest(REAL x, REAL y)
{
    const REAL rest = fmod(x, y);
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}

/* Returns floor(x / y), as if x / y were exact; a zero has the sign of x / y. The rest that is
 * taken off has the sign of x: that with the sign of y is infinite beside an infinite y. */
REAL_FN REAL floor_quotient(REAL x, REAL y)
{
    if (y == 0)
        return x / y;
    const REAL rest = fmod(x, y), beside = rest != 0 && (y < 0) != (rest < 0);
    const REAL q = (x - rest) / y - beside, whole = floor(q);
    if (whole == 0 && q <= (REAL)0.5)
        return x / y * 0;
    return q - whole > (REAL)0.5 ? whole + 1 : whole;
}

/* Returns x / y of whole numbers, which wraps around; 0 by 0. */
WHOLE_FN int64_t whole_div(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

WHOLE_FN int64_t whole_rest(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}

WHOLE_FN int64_t whole_floor_rest(int64_t x, int64_t y)
{
    const int64_t rest = whole_rest(x, y);
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}

WHOLE_FN int64_t whole_floor_div(int64_t x, int64_t y)
{
    const int64_t rest = whole_rest(x, y);
    return whole_div(x, y) - (rest != 0 && (y < 0) != (rest < 0));
}

WHOLE_FN int64_t whole_pow(int64_t x, int64_t y)
{
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
    uint64_t power = 1, square = (uint64_t)x;
    for (; y; y >>= 1, square *= square)
        if (y & 1)
            power *= square;
    return (int64_t)power;
}

/* Shifts by less than 0, or by all bits or more, give 0; of a negative number to the right -1. */
WHOLE_FN int64_t whole_left(int64_t x, int64_t y)
{
    return y < 0 || y > 63 ? 0 : (int64_t)((uint64_t)x << y);
}

WHOLE_FN int64_t whole_right(int64_t x, int64_t y)
{
    return y < 0 || y > 63 ? -(int64_t)(x < 0) : x >> y;
}
