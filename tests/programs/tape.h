/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle's arithmetic: whole tensors in f64, with a bound of what rounding in the program's own
 * dtype can change, and reverse differentiation. Plain loops over elements. It shares no code with
 * the library: no graph, kernel, rule or gradient of it.
 *
 * All that programs compute is made of six primitives. `e` bounds an element's error to first
 * order: infinity means that its value is not determined (a comparison of nearly equal numbers,
 * 1e30 squared in f32), and that nobody may compare it.
 */
#ifndef TESTS_PROGRAMS_TAPE_H
#define TESTS_PROGRAMS_TAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/unary_cases.h"

typedef struct tape tape;

/* Functions of one number (p: a parameter) and of two. */
typedef enum tape_fn {
    FN_NEG,
#define TAPE_UNARY(T, FN, ...) FN_##FN,
    UNARY_CASES(TAPE_UNARY, )
#undef TAPE_UNARY
        FN_GELU,
    FN_GELU_TANH,
    FN_POWS,
    FN_ADDS,
    FN_MULS,
    FN_DIVS,
    FN_RDIVS,
    FN_WHOLE, /* toward 0, of whole dtype */
    FN_BOOL,
    FN_SAME,
    FN_SAFE_SQRT, /* with gradient 0 at 0 */
    FN_ADD,
    FN_SUB,
    FN_MUL,
    FN_DIV,
    FN_POW,
    FN_EQUAL,
    FN_NOT_EQUAL,
    FN_LESS,
    FN_LESS_EQUAL,
    FN_GREATER,
    FN_GREATER_EQUAL,
    FN_MAXIMUM,
    FN_MINIMUM,
    FN_ATAN2,
    FN_FMOD,
    FN_REMAINDER, /* with the sign of the second */
    FN_FLOOR_DIVIDE,
    FN_AND, /* of whole numbers, as the four that follow */
    FN_OR,
    FN_XOR,
    FN_LEFT,
    FN_RIGHT,
} tape_fn;

/* One value: n elements. v, e: values and their error; g, ge: of the last tape_backward. */
typedef struct tape_value {
    int64_t n;
    double *v, *e, *g, *ge;
    double u;     /* unit roundoff of its dtype; 0 for whole numbers */
    bool diff;    /* a gradient can flow to and through it */
    bool reached; /* by the last tape_backward */
    /* The program itself says that this, or what it is made of, is held as addends: a zero addend
     * meets an infinity as NaN, so what is not finite is not determined. */
    bool addends;
    /* By class: a plan may hold this as P(sum), so that an infinity which it meets in a linear op
     * may be NaN, and a zero that it makes may have either sign (sbp.h). */
    bool partial;
} tape_value;

/* v[o] += w a[i] b[j] */
typedef struct tape_term {
    int32_t o, i, j;
    double w;
} tape_term;

/* From where element o comes: element `at` of operand `which`, times w; at -1: the number w. */
typedef struct tape_from {
    int32_t which, at;
    double w;
} tape_from;

/* By class: an error that leaves nothing but a zero's sign open. */
#define SIGN_OF_ZERO 1e-300
#define U_F64 0x1p-53
#define U_F32 0x1p-24
/* The relative error of a value that autocast rounds to bf16 twice: when an op makes it, and when
 * the next op reads it. */
#define U_BF16 0x1p-8

tape *tape_new(void);
void tape_free(tape *t);
/* From now on bounds are of what a change of layout does to a value: an e below infinity says that
 * the value is NaN, infinite or a zero of this sign on any number of ranks, if it is on one. */
void tape_by_class(tape *t, bool on);
/* Forgets all values and keeps the memory. */
void tape_clear(tape *t);
tape_value *tape_at(const tape *t, int id);
/* Memory until the tape is cleared. */
void *tape_alloc(tape *t, int64_t bytes);

/* e may be NULL: exact; of u U_BF16 then, too, rounded where it is read. */
int tape_leaf(tape *t, int64_t n, const double *v, const double *e, double u, bool diff);
int tape_move(tape *t, int64_t n, int nops, const int *ops, const tape_from *from);
/* b -1: one operand. */
int tape_terms(tape *t, int64_t n, int a, int b, int64_t nterms, const tape_term *terms, double u);
/* Says of the value that tape_terms made that the library may add zeros times operands to its sums,
 * as convolutions with padding do: beside infinities nothing of it is determined. By class that
 * holds only where of_sums is true: of weights that are 0, as attention has them. */
void tape_stuffed(tape *t, int id, bool of_sums);
int tape_unary(tape *t, int a, tape_fn fn, double p, double u);
/* ia, ib: which elements meet; NULL: those of the same number. */
int tape_binary(tape *t, int64_t n, int a, const int32_t *ia, int b, const int32_t *ib, tape_fn fn,
                double u);
/* Element i of a belongs to group[i] of n. Equal extremes share the gradient. */
int tape_extreme(tape *t, int64_t n, int a, const int32_t *group, bool max);
/* The value without its gradient. */
int tape_detach(tape *t, int a);

/* d(sum of y) of every value: g, ge, reached. */
void tape_backward(tape *t, int y);

#endif
