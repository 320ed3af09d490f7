/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard normal numbers of random words, by Box and Muller (1958): as doubles in rng.c, as
 * vectors of them in kernels/cpu/fast/walk_t.h. Both take the same steps of plain arithmetic, which
 * the compiler does not contract (-ffp-contract=off), so that a number has the same bits with every
 * instruction set and every C library.
 *
 * The including file defines NORMAL(name), REAL, BITS (an unsigned of as many bits), NORMAL_FN, and
 * as_real(bits), as_bits(real), root(real). Only the lower 32 bits of a word count.
 */

/* A word as a number: 2^52 + word is exact, and its low bits are the word. */
NORMAL_FN REAL NORMAL(number)(BITS word)
{
    return as_real((word & UINT32_MAX) | UINT64_C(0x4330000000000000)) - 0x1p52;
}

/* The natural logarithm of 2^-32 x, for 2^-32 <= x <= 2^32, to 1e-15 of itself: x = 2^n m with
 * sqrt(1/2) <= m < sqrt(2), and log(m) = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1)/(m + 1). The
 * polynomial is fitted for the least largest relative error (1e-18). */
NORMAL_FN REAL NORMAL(log)(REAL x)
{
    /* Exponents are counted from sqrt(1/2) and -32. */
    const BITS bits = as_bits(x), up = bits - UINT64_C(0x3de6a09e667f3bcd);
    const REAL n = as_real((up >> 52) | UINT64_C(0x4330000000000000)) - (0x1p52 + 64);
    const REAL m = as_real(bits - (up & UINT64_C(0xfff0000000000000)) + (UINT64_C(32) << 52));
    const REAL f = m - 1.0, s = f / (m + 1.0), q = s * s;
    REAL p = q * 0x1.2f05634234922p-3 + 0x1.39a1babb1677bp-3;
    p = p * q + 0x1.74663ee86a1b3p-3;
    p = p * q + 0x1.c71c52095c72bp-3;
    p = p * q + 0x1.24924941f126bp-2;
    p = p * q + 0x1.999999997fdb7p-2;
    p = p * q + 0x1.5555555555592p-1;
    /* 2s = f - s f: f is exact, and so is the first part of n ln 2. */
    const REAL low = n * 0x1.a39ef35793c76p-33 + s * (p * q - f);
    return n * 0x1.62e42feep-1 + (f + low);
}

/* Words 0 and 1 make a radius (never 0), words 2 and 3 an angle, of which out has the cosine and
 * the sine. */
NORMAL_FN void NORMAL(pair)(const BITS word[4], REAL out[2])
{
    const REAL u = NORMAL(number)(word[0]) + (NORMAL(number)(word[1]) + 1.0) * 0x1p-32;
    const REAL v = NORMAL(number)(word[2]) + NORMAL(number)(word[3]) * 0x1p-32;
    const REAL r = root(NORMAL(log)(u) * -2.0);
    /* A turn is 2^32: quarters, which the low bits of `near` show, and x, at most an eighth. */
    const REAL near = v * 0x1p-30 + 0x1.8p52, x = (v - (near - 0x1.8p52) * 0x1p30) * 0x1p-32;
    const BITS quarter = as_bits(near), odd = 0 - (quarter & 1);
    /* The sine and cosine of x turns: fitted for the least largest relative error (6e-17). */
    const REAL q = x * x;
    REAL p = q * 0x1.e3eed5da55fe9p+1 - 0x1.e30063a054e91p+3;
    p = p * q + 0x1.50782fca38ef1p+5;
    p = p * q - 0x1.32d2cce2d5364p+6;
    p = p * q + 0x1.466bc67758700p+6;
    p = p * q - 0x1.4abbce625be41p+5;
    p = p * q + 0x1.921fb54442d18p+2;
    const BITS sine = as_bits(p * x);
    p = q * 0x1.f3dcefbb2c3d7p+2 - 0x1.a6c9ca5107e9ap+4;
    p = p * q + 0x1.e1f4fb8447075p+5;
    p = p * q - 0x1.55d3c7dc3de11p+6;
    p = p * q + 0x1.03c1f081b0e28p+6;
    p = p * q - 0x1.3bd3cc9be459dp+4;
    const BITS cosine = as_bits(p * q + 1.0);
    /* A quarter turns (c, s) into (-s, c). */
    const BITS c = (cosine & ~odd) | (sine & odd), s = (sine & ~odd) | (cosine & odd);
    out[0] = r * as_real(c ^ (((quarter + 1) & 2) << 62));
    out[1] = r * as_real(s ^ ((quarter & 2) << 62));
}
