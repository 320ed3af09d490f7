/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that the expressions of src/core/unary_list.h call, for one type of number. The
 * including file defines REAL (the type: double, a vector of floats, a template's parameter),
 * REAL_FN (how a function of it begins), num(c) (the constant c as a REAL), pick(c, a, b) (a where
 * c holds, else b) and the functions exp, log, log1p, sqrt, tanh, pow and normal_cdf (the normal
 * distribution's function).
 */
REAL_FN REAL sigmoid(REAL x)
{
    return 1 / (1 + exp(-x));
}

/* The derivative of x normal_cdf(x). */
REAL_FN REAL gelu_slope(REAL x)
{
    return normal_cdf(x) + x * num(0.39894228040143267794) * exp(num(-0.5) * x * x);
}

/* e^(-2u) with u = sqrt(2/pi) (x + 0.044715 x^3): (1 + tanh(u))/2 = 1/(1 + e^(-2u)). */
REAL_FN REAL gelu_exp(REAL x)
{
    return exp(num(-2 * 0.79788456080286535588) * x * (1 + num(0.044715) * x * x));
}

REAL_FN REAL gelu_gate(REAL x)
{
    return 1 / (1 + gelu_exp(x));
}

/* The derivative of x s, s = gelu_gate(x). Where s is shut or open its slope is 0, whatever the
 * square of x may be; 1 - s is s e^(-2u) too, which is exact where s is near 1. */
REAL_FN REAL gelu_tanh_slope(REAL x)
{
    REAL e = gelu_exp(x), s = 1 / (1 + e);
    REAL flat = s * pick(x > 0, s * e, 1 - s);
    REAL slope = num(2 * 0.79788456080286535588) * (1 + num(3 * 0.044715) * x * x);
    return s + pick(flat == 0, num(0), x * flat * slope);
}
