/* SPDX-License-Identifier: Apache-2.0 */
#include "tape_fn.h"

#include <math.h>
#include <stdlib.h>

static double phi(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

void tape_apply1(tape_fn fn, double p, double x, double *f, double *d)
{
    const double c = 0.79788456080286535588;
    double in;
    *d = 0;
    switch (fn) {
    case FN_NEG:
        *f = -x;
        *d = -1;
        break;
#define APPLY(T, FN, name, arity, p_, q_, from, value, slope) \
    case FN_##FN: {                                           \
        const double q = q_;                                  \
        p = p_;                                               \
        *f = value;                                           \
        *d = slope;                                           \
        (void)p, (void)q;                                     \
        break;                                                \
    }
        UNARY_CASES(APPLY, )
#undef APPLY
    case FN_SAFE_SQRT:
        *f = sqrt(x);
        *d = x == 0 ? 0 : 0.5 / *f;
        break;
    case FN_GELU:
        *f = x * phi(x);
        *d = phi(x) + x * exp(-x * x / 2) * c / 2;
        break;
    case FN_GELU_TANH:
        in = tanh(c * (x + 0.044715 * x * x * x));
        *f = x * (1 + in) / 2;
        *d = (1 + in) / 2 + x / 2 * (1 - in * in) * c * (1 + 3 * 0.044715 * x * x);
        break;
    case FN_POWS:
        *f = pow(x, p);
        *d = p == 0 ? 0 : p * pow(x, p - 1);
        break;
    case FN_ADDS:
        *f = x + p;
        *d = 1;
        break;
    case FN_MULS:
        *f = p * x;
        *d = p;
        break;
    case FN_DIVS:
        *f = x / p;
        *d = 1 / p;
        break;
    case FN_RDIVS:
        *f = p / x;
        *d = -p / x / x;
        break;
    case FN_WHOLE:
        *f = x == x ? trunc(x) : 0;
        break;
    case FN_BOOL:
        *f = x != 0;
        break;
    default:
        *f = x;
        *d = 1;
        break;
    }
}

/* Returns floor(x / y) by the rest, which is exact. */
static double floor_of(double x, double y)
{
    const double rest = fmod(x, y);
    return round((x - rest) / y) - (rest != 0 && (rest < 0) != (y < 0));
}

static int64_t bits(tape_fn fn, int64_t x, int64_t y)
{
    switch (fn) {
    case FN_AND:
        return x & y;
    case FN_OR:
        return x | y;
    case FN_XOR:
        return x ^ y;
    case FN_LEFT:
        return (int64_t)((uint64_t)x << y);
    default:
        return x >> y;
    }
}

void tape_apply2(tape_fn fn, double x, double y, double *f, double *da, double *db)
{
    *da = *db = 0;
    switch (fn) {
    case FN_ADD:
        *f = x + y;
        *da = *db = 1;
        break;
    case FN_SUB:
        *f = x - y;
        *da = 1;
        *db = -1;
        break;
    case FN_MUL:
        *f = x * y;
        *da = y;
        *db = x;
        break;
    case FN_DIV:
        *f = x / y;
        *da = 1 / y;
        *db = -x / y / y;
        break;
    case FN_POW:
        *f = pow(x, y);
        *da = y == 0 ? 0 : y * pow(x, y - 1);
        *db = x == 0 && y >= 0 ? 0 : *f * log(x);
        break;
    case FN_EQUAL:
        *f = x == y;
        break;
    case FN_NOT_EQUAL:
        *f = x != y;
        break;
    case FN_LESS:
        *f = x < y;
        break;
    case FN_LESS_EQUAL:
        *f = x <= y;
        break;
    case FN_GREATER:
        *f = x > y;
        break;
    case FN_GREATER_EQUAL:
        *f = x >= y;
        break;
    case FN_MAXIMUM:
    case FN_MINIMUM:
        if (isnan(x) || isnan(y)) {
            *f = NAN;
            *da = *db = NAN;
        } else {
            bool first = fn == FN_MAXIMUM ? x > y : x < y;
            *f = first ? x : y;
            *da = x == y ? 0.5 : first;
            *db = 1 - *da;
        }
        break;
    case FN_ATAN2:
        *f = atan2(x, y);
        *da = y / (x * x + y * y);
        *db = -x / (x * x + y * y);
        break;
    case FN_FMOD:
        *f = fmod(x, y);
        *da = 1;
        *db = -trunc(x / y);
        break;
    case FN_REMAINDER:
        *f = x - y * floor_of(x, y);
        *da = 1;
        *db = -floor_of(x, y);
        break;
    case FN_FLOOR_DIVIDE:
        *f = y == 0 ? x / y : floor_of(x, y);
        break;
    case FN_AND:
    case FN_OR:
    case FN_XOR:
    case FN_LEFT:
    case FN_RIGHT:
        *f = (double)bits(fn, (int64_t)x, (int64_t)y);
        break;
    default:
        abort();
    }
}

bool tape_compares(tape_fn fn)
{
    return fn >= FN_EQUAL && fn <= FN_GREATER_EQUAL;
}
