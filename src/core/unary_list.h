/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The element-wise functions of one operand, one row each. From this table come the enum and the
 * names (op_list.h), the calls tsr_NAME (src/graph/op_elementwise.c), the YAML rows and their man
 * page (src/config/op_table.h), and the kernels: the reference in f64, vectors of f32 on CPUs, f32
 * and f64 on GPUs (kernels/unary_t.h says what an expression may call).
 *
 * X(T, ENUM, name, gets, cost, by, forward, gradient, doc)
 *   T         passed on from the list's second argument
 *   gets      what the gradient is given as v: the OPERAND or the RESULT
 *   cost      CHEAP: one floating-point operation; SLOW: about ten
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
      pick(v < 0, -v, pick(v == 0, num(0), v)), \
      pick(v > 0, u, pick(v < 0, -u, num(0))), "|x|") \
    X(T, EXP, exp, RESULT, SLOW, VECTORS, exp(v), u * v, "e^x") \
    X(T, LOG, log, OPERAND, SLOW, VECTORS, log(v), u / v, "natural logarithm") \
    X(T, SQRT, sqrt, RESULT, SLOW, VECTORS, sqrt(v), u / (2 * v), "square root") \
    X(T, RELU, relu, RESULT, CHEAP, VECTORS, \
      pick(v <= 0, num(0), v), \
      pick(v > 0, u, num(0)), "max(x, 0)") \
    X(T, RELU6, relu6, RESULT, CHEAP, VECTORS, \
      pick(v <= 0, num(0), pick(v >= 6, num(6), v)), \
      pick((v > 0) & (v < 6), u, num(0)), "min(max(x, 0), 6)") \
    X(T, TANH, tanh, RESULT, SLOW, VECTORS, \
      tanh(v), \
      u * ((1 - v) * (1 + v)), "hyperbolic tangent") \
    X(T, SIGMOID, sigmoid, RESULT, SLOW, VECTORS, sigmoid(v), u * (1 - v) * v, "1 / (1 + e^-x)") \
    X(T, SILU, silu, OPERAND, SLOW, VECTORS, \
      v / (1 + exp(-v)), \
      u * sigmoid(v) * (1 + v * (1 - sigmoid(v))), "x sigmoid(x)") \
    X(T, SOFTPLUS, softplus, OPERAND, SLOW, VECTORS, \
      pick(v > 0, v, num(0)) + log1p(exp(pick(v > 0, -v, v))), \
      u * sigmoid(v), "log(1 + e^x)")

/* Functions with a number a, and functions that share a public call. */
#define TSRI_UNARY_OTHER_LIST(X, T) \
    X(T, POW, pow, OPERAND, SLOW, LANES, \
      pow(v, a), \
      a == 0 ? 0 : u * a * pow(v, a - 1), "x^a; x^0 is flat everywhere") \
    X(T, ADD, add_scalar, OPERAND, CHEAP, VECTORS, v + a, u, "x + a") \
    X(T, RDIV, rdiv_scalar, OPERAND, SLOW, VECTORS, a / v, -u * a / v / v, "a / x") \
    X(T, GELU, gelu, OPERAND, SLOW, VECTORS, \
      v * normal_cdf(v), \
      u * gelu_slope(v), "x times the normal distribution's function") \
    X(T, GELU_TANH, gelu_tanh, OPERAND, SLOW, VECTORS, \
      v * gelu_gate(v), \
      u * gelu_tanh_slope(v), "its approximation x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))/2")
// clang-format on

#define TSRI_UNARY_LIST(X, T)   \
    TSRI_UNARY_PLAIN_LIST(X, T) \
    TSRI_UNARY_OTHER_LIST(X, T)

#endif
