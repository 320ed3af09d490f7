/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The element-wise functions of one operand, one row each. From this table come the enum and the
 * names (op_list.h), the calls tsr_NAME (src/graph/ops/elementwise.c), the YAML rows and their man
 * page (src/config/op_table.h), and the kernels: the reference in f64, vectors of f32 on CPUs, f32
 * and f64 on GPUs (kernels/unary_t.h says what an expression may call).
 *
 * X(T, ENUM, name, gets, cost, by, forward, gradient, doc)
 *   T         passed on from the list's second argument
 *   gets      what the gradient is given as v: the OPERAND or the RESULT
 *   cost      CHEAP: one floating-point operation; SLOW: about ten; FULL: as many, and in f32 where
 *             autocast has a say, as in PyTorch's list
 *   by        VECTORS: CPUs compute it in vectors; LANES: only one element at a time
 *   forward   of v, the operand
 *   gradient  of u, the result's gradient, and v: the operand or the result, as `gets` says
 * A NaN operand gives NaN, in relu too: a comparison with NaN is false, so what a NaN must pass
 * through is the last argument of pick(). Expressions count in f32 too: 1 - v*v of a v near 1 would
 * keep nothing of it.
 */
#ifndef TESSERA_CORE_UNARY_LIST_H
#define TESSERA_CORE_UNARY_LIST_H

// clang-format off
/* Functions of x alone. */
#define TSRI_UNARY_PLAIN_LIST(X, T) \
    X(T, ABS, abs, OPERAND, CHEAP, VECTORS, \
      size_of(v), \
      pick(v > 0, u, pick(v < 0, -u, num(0))), "|x|") \
    X(T, SIGN, sign, OPERAND, CHEAP, VECTORS, \
      pick(v > 0, num(1), pick(v < 0, num(-1), v)), \
      num(0), "1 where x > 0, -1 where x < 0, 0 at 0") \
    X(T, SQUARE, square, OPERAND, CHEAP, VECTORS, v * v, 2 * u * v, "x^2") \
    X(T, SQRT, sqrt, RESULT, SLOW, VECTORS, sqrt(v), u / (2 * v), "square root") \
    X(T, RSQRT, rsqrt, RESULT, FULL, VECTORS, \
      1 / sqrt(v), \
      num(-0.5) * u * v * v * v, "1 / sqrt(x)") \
    X(T, RECIPROCAL, reciprocal, RESULT, FULL, VECTORS, 1 / v, -u * v * v, "1 / x") \
    X(T, EXP, exp, RESULT, FULL, VECTORS, exp(v), u * v, "e^x") \
    X(T, EXP2, exp2, RESULT, SLOW, VECTORS, exp2(v), u * v * num(LN_2), "2^x") \
    X(T, EXPM1, expm1, OPERAND, FULL, VECTORS, expm1(v), u * exp(v), "e^x - 1") \
    X(T, LOG, log, OPERAND, FULL, VECTORS, log(v), u / v, "natural logarithm") \
    X(T, LOG2, log2, OPERAND, FULL, VECTORS, \
      log2(v), \
      u * num(LOG2_E) / v, "logarithm to the base 2") \
    X(T, LOG10, log10, OPERAND, FULL, VECTORS, \
      log10(v), \
      u * num(LOG10_E) / v, "logarithm to the base 10") \
    X(T, LOG1P, log1p, OPERAND, FULL, VECTORS, log1p(v), u / (1 + v), "log(1 + x)") \
    X(T, SIN, sin, OPERAND, SLOW, VECTORS, sin(v), u * cos(v), "sine") \
    X(T, COS, cos, OPERAND, SLOW, VECTORS, cos(v), -u * sin(v), "cosine") \
    X(T, TAN, tan, RESULT, FULL, VECTORS, tan(v), u * (1 + v * v), "tangent") \
    X(T, ASIN, asin, OPERAND, FULL, VECTORS, asin(v), u / sqrt((1 - v) * (1 + v)), "arc sine") \
    X(T, ACOS, acos, OPERAND, FULL, VECTORS, acos(v), -u / sqrt((1 - v) * (1 + v)), "arc cosine") \
    X(T, ATAN, atan, OPERAND, SLOW, VECTORS, atan(v), u / (1 + v * v), "arc tangent") \
    X(T, SINH, sinh, OPERAND, FULL, VECTORS, sinh(v), u * cosh(v), "hyperbolic sine") \
    X(T, COSH, cosh, OPERAND, FULL, VECTORS, cosh(v), u * sinh(v), "hyperbolic cosine") \
    X(T, TANH, tanh, RESULT, SLOW, VECTORS, \
      tanh(v), \
      u * ((1 - v) * (1 + v)), "hyperbolic tangent") \
    X(T, ASINH, asinh, OPERAND, SLOW, VECTORS, \
      asinh(v), \
      u / hypotenuse(v), "inverse of the hyperbolic sine") \
    X(T, ACOSH, acosh, OPERAND, SLOW, VECTORS, \
      acosh(v), \
      u / (sqrt(v - 1) * sqrt(v + 1)), "inverse of the hyperbolic cosine") \
    X(T, ATANH, atanh, OPERAND, SLOW, VECTORS, \
      atanh(v), \
      u / ((1 - v) * (1 + v)), "inverse of the hyperbolic tangent") \
    X(T, ERF, erf, OPERAND, SLOW, VECTORS, \
      erf(v), \
      u * num(ERF_SLOPE) * exp(-v * v), "error function") \
    X(T, ERFC, erfc, OPERAND, SLOW, VECTORS, \
      erfc(v), \
      -u * num(ERF_SLOPE) * exp(-v * v), "1 - erf(x)") \
    X(T, FLOOR, floor, OPERAND, CHEAP, VECTORS, floor(v), num(0), "largest whole number up to x") \
    X(T, CEIL, ceil, OPERAND, CHEAP, VECTORS, ceil(v), num(0), "smallest whole number from x on") \
    X(T, ROUND, round, OPERAND, CHEAP, VECTORS, \
      rint(v), \
      num(0), "nearest whole number, the even one of two") \
    X(T, TRUNC, trunc, OPERAND, CHEAP, VECTORS, trunc(v), num(0), "x without its fraction") \
    X(T, RELU, relu, RESULT, CHEAP, VECTORS, \
      pick(v <= 0, num(0), v), \
      pick(v > 0, u, num(0)), "max(x, 0)") \
    X(T, RELU6, relu6, RESULT, CHEAP, VECTORS, \
      clamped(v, num(0), num(6)), \
      pick((v > 0) & (v < 6), u, num(0)), "min(max(x, 0), 6)") \
    X(T, SIGMOID, sigmoid, RESULT, SLOW, VECTORS, sigmoid(v), u * (1 - v) * v, "1 / (1 + e^-x)") \
    X(T, LOGSIGMOID, logsigmoid, OPERAND, SLOW, VECTORS, \
      -log_sum(-v), \
      u * sigmoid(-v), "log(1 / (1 + e^-x))") \
    X(T, HARDSIGMOID, hardsigmoid, OPERAND, CHEAP, VECTORS, \
      clamped(v + 3, num(0), num(6)) / 6, \
      pick((v > -3) & (v < 3), u / 6, num(0)), "relu6(x + 3) / 6") \
    X(T, SILU, silu, OPERAND, SLOW, VECTORS, \
      v / (1 + exp(-v)), \
      u * sigmoid(v) * (1 + v * (1 - sigmoid(v))), "x sigmoid(x)") \
    X(T, HARDSWISH, hardswish, OPERAND, CHEAP, VECTORS, \
      pick(v <= -3, num(0), v * (clamped(v + 3, num(0), num(6)) / 6)), \
      pick(v <= -3, num(0), pick(v >= 3, u, u * (v / 3 + num(0.5)))), "x relu6(x + 3) / 6") \
    X(T, MISH, mish, OPERAND, SLOW, VECTORS, v * mish_gate(v), u * mish_slope(v), \
      "x tanh(softplus(x))") \
    X(T, SOFTPLUS, softplus, OPERAND, FULL, VECTORS, \
      log_sum(v), \
      u * sigmoid(v), "log(1 + e^x)") \
    X(T, SOFTSIGN, softsign, OPERAND, SLOW, VECTORS, \
      v / (1 + size_of(v)), \
      u / (1 + size_of(v)) / (1 + size_of(v)), "x / (1 + |x|)") \
    X(T, SELU, selu, OPERAND, SLOW, VECTORS, \
      num(SELU_SCALE) * pick_mostly(v > 0, v, num(SELU_ALPHA) * expm1(v)), \
      num(SELU_SCALE) * u * pick_mostly(v > 0, num(1), num(SELU_ALPHA) * exp(v)), \
      "1.0507 x where x > 0, else 1.7581 (e^x - 1)")

/* Functions with a number a, and functions that share a public call. */
#define TSRI_UNARY_OTHER_LIST(X, T) \
    X(T, POW, pow, OPERAND, FULL, VECTORS, \
      pow(v, a), \
      pick(a == 0, num(0), u * a * pow(v, a - 1)), "x^a; x^0 is flat everywhere") \
    X(T, ADD, add_scalar, OPERAND, CHEAP, VECTORS, v + a, u, "x + a") \
    X(T, RDIV, rdiv_scalar, OPERAND, FULL, VECTORS, a / v, -u * a / v / v, "a / x") \
    X(T, GELU, gelu, OPERAND, SLOW, VECTORS, \
      v * normal_cdf(v), \
      u * gelu_slope(v), "x times the normal distribution's function") \
    X(T, GELU_TANH, gelu_tanh, OPERAND, SLOW, VECTORS, \
      v * gelu_gate(v), \
      u * gelu_tanh_slope(v), "its approximation x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))/2") \
    X(T, LEAKY_RELU, leaky_relu, OPERAND, CHEAP, VECTORS, \
      pick(v > 0, v, v * a), \
      pick(v > 0, u, u * a), "x where x > 0, else a x") \
    X(T, ELU, elu, OPERAND, SLOW, VECTORS, \
      pick_mostly(v > 0, v, a * expm1(v)), \
      pick_mostly(v > 0, u, u * a * exp(v)), "x where x > 0, else a (e^x - 1)") \
    X(T, CELU, celu, OPERAND, SLOW, VECTORS, \
      pick_mostly(v > 0, v, a * expm1(v / a)), \
      pick_mostly(v > 0, u, u * exp(v / a)), "x where x > 0, else a (e^(x/a) - 1)") \
    X(T, SOFTSHRINK, softshrink, OPERAND, CHEAP, VECTORS, \
      pick((v >= -a) & (v <= a), num(0), pick(v > 0, v - a, v + a)), \
      pick((v >= -a) & (v <= a), num(0), u), "x brought nearer to 0 by a") \
    X(T, HARDSHRINK, hardshrink, OPERAND, CHEAP, VECTORS, \
      pick((v >= -a) & (v <= a), num(0), v), \
      pick((v >= -a) & (v <= a), num(0), u), "x, but 0 from -a to a")

/* Functions with two numbers, a and b. */
#define TSRI_UNARY_PAIR_LIST(X, T) \
    X(T, CLAMP, clamp, OPERAND, CHEAP, VECTORS, \
      clamped(v, a, b), \
      pick((v >= a) & (v <= b), u, num(0)), "min(max(x, a), b)") \
    X(T, HARDTANH, hardtanh, OPERAND, CHEAP, VECTORS, \
      clamped(v, a, b), \
      pick((v > a) & (v < b), u, num(0)), "the same; no gradient at a and b") \
    X(T, THRESHOLD, threshold, OPERAND, CHEAP, VECTORS, \
      pick(v <= a, b, v), \
      pick(v <= a, num(0), u), "x where x > a, else b")
// clang-format on

#define TSRI_UNARY_LIST(X, T)   \
    TSRI_UNARY_PLAIN_LIST(X, T) \
    TSRI_UNARY_OTHER_LIST(X, T) \
    TSRI_UNARY_PAIR_LIST(X, T)

#endif
