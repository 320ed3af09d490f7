/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The element-wise functions of one operand as tests have them: each with a formula of its own, in
 * f64, for its value and its slope. It shares no line with src/core/unary_list.h. The tests of
 * kernels, gradients, signatures, YAML rows and random programs take their rows from here.
 *
 * X(T, FN, name, arity, p, q, from, value, slope)
 *   T      passed on from the list's second argument
 *   FN     the name in the library's enum
 *   arity  how many of the numbers p and q the call takes after x
 *   from   which x: ANY; TAME, no large ones; POSITIVE; INSIDE, -1 < x < 1; ABOVE, x > 1
 *   value, slope  of double x, p and q
 */
#ifndef TESTS_UNARY_CASES_H
#define TESTS_UNARY_CASES_H

#define UNARY_CALL_0(name, x, p, q) tsr_##name(x)
#define UNARY_CALL_1(name, x, p, q) tsr_##name(x, p)
#define UNARY_CALL_2(name, x, p, q) tsr_##name(x, p, q)

#define UNARY_LN2 0.693147180559945309
#define UNARY_LN10 2.302585092994045684
#define UNARY_BELL(x) (2 / sqrt(acos(-1)) * exp(-(x) * (x)))
#define UNARY_LOGISTIC(x) (0.5 + 0.5 * tanh(0.5 * (x)))
#define UNARY_SOFTPLUS(x) (fmax(x, 0) + log1p(exp(-fabs(x))))
#define UNARY_SECH2(x) (1 / (cosh(x) * cosh(x)))
#define UNARY_SELU 1.0507009873554804934

// clang-format off
#define UNARY_CASES(X, T) \
    X(T, ABS, abs, 0, 0, 0, ANY, fabs(x), (x > 0) - (x < 0)) \
    X(T, SIGN, sign, 0, 0, 0, ANY, isnan(x) ? x : (x > 0) - (x < 0), 0) \
    X(T, SQUARE, square, 0, 0, 0, ANY, x * x, 2 * x) \
    X(T, SQRT, sqrt, 0, 0, 0, POSITIVE, sqrt(x), 0.5 / sqrt(x)) \
    X(T, RSQRT, rsqrt, 0, 0, 0, POSITIVE, pow(x, -0.5), -0.5 * pow(x, -1.5)) \
    X(T, RECIPROCAL, reciprocal, 0, 0, 0, POSITIVE, 1 / x, -1 / (x * x)) \
    X(T, EXP, exp, 0, 0, 0, TAME, exp(x), exp(x)) \
    X(T, EXP2, exp2, 0, 0, 0, TAME, pow(2, x), UNARY_LN2 * pow(2, x)) \
    X(T, EXPM1, expm1, 0, 0, 0, TAME, expm1(x), exp(x)) \
    X(T, LOG, log, 0, 0, 0, POSITIVE, log(x), 1 / x) \
    X(T, LOG2, log2, 0, 0, 0, POSITIVE, log(x) / UNARY_LN2, 1 / (UNARY_LN2 * x)) \
    X(T, LOG10, log10, 0, 0, 0, POSITIVE, log(x) / UNARY_LN10, 1 / (UNARY_LN10 * x)) \
    X(T, LOG1P, log1p, 0, 0, 0, POSITIVE, log1p(x), 1 / (1 + x)) \
    X(T, SIN, sin, 0, 0, 0, ANY, sin(x), cos(x)) \
    X(T, COS, cos, 0, 0, 0, ANY, cos(x), -sin(x)) \
    X(T, TAN, tan, 0, 0, 0, INSIDE, sin(x) / cos(x), 1 / (cos(x) * cos(x))) \
    X(T, ASIN, asin, 0, 0, 0, INSIDE, asin(x), 1 / sqrt(1 - x * x)) \
    X(T, ACOS, acos, 0, 0, 0, INSIDE, acos(x), -1 / sqrt(1 - x * x)) \
    X(T, ATAN, atan, 0, 0, 0, ANY, atan(x), 1 / (1 + x * x)) \
    X(T, SINH, sinh, 0, 0, 0, TAME, sinh(x), cosh(x)) \
    X(T, COSH, cosh, 0, 0, 0, TAME, cosh(x), sinh(x)) \
    X(T, TANH, tanh, 0, 0, 0, ANY, tanh(x), UNARY_SECH2(x)) \
    X(T, ASINH, asinh, 0, 0, 0, ANY, asinh(x), 1 / sqrt(1 + x * x)) \
    X(T, ACOSH, acosh, 0, 0, 0, ABOVE, acosh(x), 1 / (sqrt(x - 1) * sqrt(x + 1))) \
    X(T, ATANH, atanh, 0, 0, 0, INSIDE, atanh(x), 1 / (1 - x * x)) \
    X(T, ERF, erf, 0, 0, 0, ANY, erf(x), UNARY_BELL(x)) \
    X(T, ERFC, erfc, 0, 0, 0, ANY, erfc(x), -UNARY_BELL(x)) \
    X(T, FLOOR, floor, 0, 0, 0, ANY, floor(x), 0) \
    X(T, CEIL, ceil, 0, 0, 0, ANY, ceil(x), 0) \
    X(T, ROUND, round, 0, 0, 0, ANY, nearbyint(x), 0) \
    X(T, TRUNC, trunc, 0, 0, 0, ANY, trunc(x), 0) \
    X(T, RELU, relu, 0, 0, 0, ANY, x < 0 ? 0 : x, x > 0) \
    X(T, RELU6, relu6, 0, 0, 0, ANY, x < 0 ? 0 : x > 6 ? 6 : x, x > 0 && x < 6) \
    X(T, SIGMOID, sigmoid, 0, 0, 0, ANY, \
      1 / (1 + exp(-x)), UNARY_LOGISTIC(x) * UNARY_LOGISTIC(-x)) \
    X(T, LOGSIGMOID, logsigmoid, 0, 0, 0, ANY, -UNARY_SOFTPLUS(-x), 1 / (1 + exp(x))) \
    X(T, HARDSIGMOID, hardsigmoid, 0, 0, 0, ANY, \
      x < -3 ? 0 : x > 3 ? 1 : (x + 3) / 6, x > -3 && x < 3 ? 1.0 / 6 : 0) \
    X(T, SILU, silu, 0, 0, 0, ANY, \
      x / (1 + exp(-x)), (1 + x * UNARY_LOGISTIC(-x)) / (1 + exp(-x))) \
    X(T, HARDSWISH, hardswish, 0, 0, 0, ANY, \
      x < -3 ? 0 : x > 3 ? x : x * (x + 3) / 6, x <= -3 ? 0 : x >= 3 ? 1 : (2 * x + 3) / 6) \
    X(T, MISH, mish, 0, 0, 0, ANY, x * tanh(UNARY_SOFTPLUS(x)), \
      tanh(UNARY_SOFTPLUS(x)) + x * UNARY_SECH2(UNARY_SOFTPLUS(x)) / (1 + exp(-x))) \
    X(T, SOFTPLUS, softplus, 0, 0, 0, ANY, UNARY_SOFTPLUS(x), 1 / (1 + exp(-x))) \
    X(T, SOFTSIGN, softsign, 0, 0, 0, ANY, x / (1 + fabs(x)), pow(1 + fabs(x), -2)) \
    X(T, SELU, selu, 0, 0, 0, ANY, \
      UNARY_SELU * (x > 0 ? x : 1.6732632423543772848 * expm1(x)), \
      UNARY_SELU * (x > 0 ? 1 : 1.6732632423543772848 * exp(x))) \
    X(T, LEAKY_RELU, leaky_relu, 1, 0.125, 0, ANY, x > 0 ? x : p * x, x > 0 ? 1 : p) \
    X(T, ELU, elu, 1, 1.5, 0, ANY, x > 0 ? x : p * expm1(x), x > 0 ? 1 : p * exp(x)) \
    X(T, CELU, celu, 1, 1.5, 0, ANY, x > 0 ? x : p * expm1(x / p), x > 0 ? 1 : exp(x / p)) \
    X(T, SOFTSHRINK, softshrink, 1, 0.75, 0, ANY, \
      x > p ? x - p : x < -p ? x + p : x == x ? 0 : x, !(fabs(x) <= p)) \
    X(T, HARDSHRINK, hardshrink, 1, 0.75, 0, ANY, fabs(x) <= p ? 0 : x, !(fabs(x) <= p)) \
    X(T, CLAMP, clamp, 2, -0.75, 1.5, ANY, x < p ? p : x > q ? q : x, x >= p && x <= q) \
    X(T, HARDTANH, hardtanh, 2, -0.75, 1.5, ANY, x < p ? p : x > q ? q : x, x > p && x < q) \
    X(T, THRESHOLD, threshold, 2, 0.25, -4, ANY, x <= p ? q : x, !(x <= p))
// clang-format on

#endif
