/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the expressions of src/core/unary_list.h call, for one type of number. A file that
 * includes this one defines first:
 *
 *   REAL           the type: double, a vector of floats, or a parameter of a template
 *   REAL_FN        what stands before a function's type: static, inline, template
 *   num(c)         the constant c as a REAL
 *   pick(c, a, b)  a where the condition c holds, else b
 *   exp, log, log1p, sqrt, tanh, pow, and normal_cdf, the cumulative normal distribution
 *
 * In what follows, tanh GELU is PyTorch's gelu with approximate="tanh".
 */
/* Returns 1 / (1 + e^-x). */
REAL_FN REAL sigmoid(REAL x)
{
    return 1 / (1 + exp(-x));
}

/* Returns the derivative of GELU, x normal_cdf(x): its second term is x times the normal density,
 * where 0.3989... is 1/sqrt(2 pi). */
REAL_FN REAL gelu_slope(REAL x)
{
    return normal_cdf(x) + x * num(0.39894228040143267794) * exp(num(-0.5) * x * x);
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
