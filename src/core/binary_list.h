/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The element-wise functions of two operands, one row each; unary_list.h says what comes from such
 * a table. `a` and `b` are the operands, of one dtype.
 *
 * X(T, ENUM, name, takes, rule, cost, by, real, whole, doc)
 *   T      passed on from the list's second argument
 *   takes  FLOATS: floating point alone; NUMBERS: also i32 and i64; BYTES: also u8; WHOLES: i32,
 *          i64 and u8
 *   rule   see sbp/rule/rule.h
 *   cost   CHEAP: one floating-point operation; SLOW: about ten; FULL: as many, and in f32 where
 *          autocast has a say
 *   by     VECTORS: CPUs compute it in vectors; LANES: only one element at a time
 *   real   of floating-point a and b; pick(c, x, y) is x where c holds, else y;
 *          kernels/binary_t.h has what else is called
 *   whole  of int64_t a and b: results wrap around, and x / 0 is 0
 */
#ifndef TESSERA_CORE_BINARY_LIST_H
#define TESSERA_CORE_BINARY_LIST_H

// clang-format off
#define TSRI_ARITHMETIC_CALLS(X, T) \
    X(T, ADD, add, NUMBERS, "... + ... -> ...", CHEAP, VECTORS, a + b, wrap(a) + wrap(b), "x + y") \
    X(T, SUB, sub, NUMBERS, "... + ... -> ...", CHEAP, VECTORS, a - b, wrap(a) - wrap(b), "x - y") \
    X(T, MUL, mul, NUMBERS, "..., ... -> ...", CHEAP, VECTORS, a * b, wrap(a) * wrap(b), "x y") \
    X(T, DIV, div, FLOATS, "..., !... -> ...", CHEAP, VECTORS, a / b, whole_div(a, b), "x / y") \
    X(T, POW, pow, FLOATS, "!..., !... -> ...", FULL, VECTORS, pow(a, b), whole_pow(a, b), \
      "x^y") \
    X(T, MAXIMUM, maximum, BYTES, "!..., !... -> ...", CHEAP, VECTORS, \
      pick(a > b, a, pick(a != a, a, b)), \
      a > b ? a : b, "The larger.") \
    X(T, MINIMUM, minimum, BYTES, "!..., !... -> ...", CHEAP, VECTORS, \
      pick(a < b, a, pick(a != a, a, b)), \
      a < b ? a : b, "The smaller.") \
    X(T, ATAN2, atan2, FLOATS, "!..., !... -> ...", SLOW, VECTORS, atan2(a, b), 0, \
      "The angle of (y, x), from -pi to pi.") \
    X(T, FMOD, fmod, NUMBERS, "!..., !... -> ...", SLOW, VECTORS, fmod(a, b), whole_rest(a, b), \
      "The rest of x / y, with the sign of x.") \
    X(T, REMAINDER, remainder, NUMBERS, "!..., !... -> ...", SLOW, VECTORS, floor_rest(a, b), \
      whole_floor_rest(a, b), "The rest of x / y, with the sign of y.") \
    X(T, FLOOR_DIVIDE, floor_divide, NUMBERS, "!..., !... -> ...", SLOW, VECTORS, \
      floor_quotient(a, b), whole_floor_div(a, b), "floor(x / y), without gradient.") \
    X(T, BITWISE_AND, bitwise_and, WHOLES, "!..., !... -> ...", CHEAP, LANES, 0, a & b, \
      "The bits of both.") \
    X(T, BITWISE_OR, bitwise_or, WHOLES, "!..., !... -> ...", CHEAP, LANES, 0, a | b, \
      "The bits of any.") \
    X(T, BITWISE_XOR, bitwise_xor, WHOLES, "!..., !... -> ...", CHEAP, LANES, 0, a ^ b, \
      "The bits of one.") \
    X(T, LEFT_SHIFT, bitwise_left_shift, WHOLES, "..., !... -> ...", CHEAP, LANES, 0, \
      whole_left(a, b), "x 2^y.") \
    X(T, RIGHT_SHIFT, bitwise_right_shift, WHOLES, "!..., !... -> ...", CHEAP, LANES, 0, \
      whole_right(a, b), "floor(x / 2^y).")

/* And what is not a public call by itself: tsr_prelu, of x and slopes that broadcast to it. */
#define TSRI_ARITHMETIC_LIST(X, T) \
    TSRI_ARITHMETIC_CALLS(X, T) \
    X(T, PRELU, prelu, FLOATS, "!..., !... -> ...", CHEAP, VECTORS, pick(a > 0, a, b * a), 0, "")

/* X(T, ENUM, name, less, equal, greater, none, doc): the result where x is less than, equal to or
 * greater than y, and beside a NaN. It is bool, or a float; operands are of any dtype. */
#define TSRI_COMPARISON_LIST(X, T) \
    X(T, EQUAL, equal, 0, 1, 0, 0, "Where x = y, as bool.") \
    X(T, NOT_EQUAL, not_equal, 1, 0, 1, 1, "Where they differ.") \
    X(T, LESS, less, 1, 0, 0, 0, "Where x < y.") \
    X(T, LESS_EQUAL, less_equal, 1, 1, 0, 0, "Where x <= y.") \
    X(T, GREATER, greater, 0, 0, 1, 0, "Where x > y.") \
    X(T, GREATER_EQUAL, greater_equal, 0, 1, 1, 0, "Where x >= y.")

/* Not a public call: what maximum's and minimum's gradients multiply with; a float. */
#define TSRI_STEP_LIST(X, T) X(T, STEP, step, 0, 0.5, 1, 1, "")
// clang-format on

#define TSRI_BINARY_LIST(X, T) \
    TSRI_ARITHMETIC_LIST(X, T) \
    TSRI_COMPARISON_LIST(X, T) \
    TSRI_STEP_LIST(X, T)

#endif
