/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the expressions of src/core/unary_list.h call, for one type of number. A file that
 * includes this one defines first:
 *
 *   REAL           the type: double, a vector of floats, or a parameter of a template
 *   REAL_FN        what stands before a function's type: static, inline, template
 *   num(c)         the constant c as a REAL
 *   pick(c, a, b)  a where the condition c holds, else b
 *   pick_mostly(c, a, b)  the same; b need not be computed where c holds in all of a vector
 *   the functions of <math.h> that the expressions call, and normal_cdf, the cumulative normal
 *   distribution
 *
 * It may define `bell`, the name of a function e^(-x^2/2).
 *
 * In what follows, tanh GELU is PyTorch's gelu with approximate="tanh".
 */
#define LN_2 0.69314718055994530942
#define LOG2_E 1.44269504088896340736
#define LOG10_E 0.43429448190325182765
#define ERF_SLOPE 1.12837916709551257390 /* of erf at 0: 2/sqrt(pi) */
#define SELU_SCALE 1.0507009873554804934
#define SELU_ALPHA 1.6732632423543772848

/* Returns |x|; of -0, 0. */
REAL_FN REAL size_of(REAL x)
{
    return fabs(x);
}

/* Returns min(max(x, low), high). */
REAL_FN REAL clamped(REAL x, REAL low, REAL high)
{
    REAL y = pick(x < low, low, x);
    return pick(y > high, high, y);
}

/* Returns sqrt(1 + x^2), of any x whose square would be infinite too. */
REAL_FN REAL hypotenuse(REAL x)
{
    return pick((x > num(1e9)) | (x < num(-1e9)), size_of(x), sqrt(1 + x * x));
}

/* Returns log(1 + e^x). */
REAL_FN REAL log_sum(REAL x)
{
    return pick(x > 0, x, num(0)) + log1p(exp(pick(x > 0, -x, x)));
}

/* Returns 1 / (1 + e^-x). */
REAL_FN REAL sigmoid(REAL x)
{
    return 1 / (1 + exp(-x));
}

#ifndef bell
/* Returns e^(-x^2/2). */
REAL_FN REAL bell(REAL x)
{
    return exp(num(-0.5) * x * x);
}
#endif

/* Returns the derivative of GELU, x normal_cdf(x): its second term is x times the normal density,
 * where 0.3989... is 1/sqrt(2 pi). */
REAL_FN REAL gelu_slope(REAL x)
{
    return normal_cdf(x) + x * num(0.39894228040143267794) * bell(x);
}

/* Returns e^(-2u), where u = sqrt(2/pi) (x + 0.044715 x^3) and 0.7978... is sqrt(2/pi). */
REAL_FN REAL gelu_exp(REAL x)
{
    return exp(num(-2 * 0.79788456080286535588) * x * (1 + num(0.044715) * x * x));
}

/* Returns (1 + tanh(u))/2, by which tanh GELU multiplies x, as 1/(1 + e^(-2u)), which is equal. */
REAL_FN REAL gelu_gate(REAL x)
{
    return 1 / (1 + gelu_exp(x));
}

/*
 * Returns the derivative of tanh GELU, x gate: gate + x gate (1 - gate) 2u', where 2u' is `slope`.
 * Where x > 0 and the gate is near 1, 1 - gate would lose its digits, so it is computed as
 * gate e^(-2u), which is equal. Where gate (1 - gate) is 0, the second term counts as 0, since x^2
 * in `slope` may be infinite there.
 */
REAL_FN REAL gelu_tanh_slope(REAL x)
{
    REAL e = gelu_exp(x), gate = 1 / (1 + e);
    REAL gate_slope = gate * pick(x > 0, gate * e, 1 - gate); /* with respect to 2u */
    REAL slope = num(2 * 0.79788456080286535588) * (1 + num(3 * 0.044715) * x * x);
    return gate + pick(gate_slope == 0, num(0), x * gate_slope * slope);
}

/*
 * Mish's gate tanh(log(1 + e^x)) is n / (n + 2) with n = e^x (e^x + 2). So that no power overflows,
 * both are divided by e^2x where x > 0: with w = e^-|x| the gate is `above` / `below`, and
 * 1 - gate^2 is `rest` / below^2.
 */
REAL_FN REAL mish_above(REAL x, REAL w)
{
    return pick(x > 0, 1 + 2 * w, w * (w + 2));
}
REAL_FN REAL mish_below(REAL x, REAL w)
{
    return mish_above(x, w) + pick(x > 0, 2 * w * w, num(2));
}
REAL_FN REAL mish_gate(REAL x)
{
    REAL w = exp(pick(x > 0, -x, x));
    return mish_above(x, w) / mish_below(x, w);
}

/* Returns the derivative of Mish, x gate: gate + x (1 - gate^2) sigmoid(x). */
REAL_FN REAL mish_slope(REAL x)
{
    REAL w = exp(pick(x > 0, -x, x)), above = mish_above(x, w), below = mish_below(x, w);
    REAL rest = 4 * pick(x > 0, w * w * (above + w * w), above + 1);
    REAL more = pick(rest == 0, num(0), x * (rest / below / below) * sigmoid(x));
    return above / below + more;
}
