/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/op_list.h"
#include <tessera/sbp.h>

#include <string.h>

#include "src/core/own_op.h"

const char *tsri_op_name(tsri_op_kind kind)
{
    static const char *const names[TSRI_OP_COUNT_] = {
#define NAME(upper, lower) #lower,
        TSRI_OP_LIST(NAME)
#undef NAME
    };
    return (unsigned)kind < TSRI_OP_COUNT_ ? names[kind] : "?";
}

const char *tsri_unary_name(tsri_unary_fn fn)
{
    static const char *const names[TSRI_UNARY_COUNT_] = {
#define NAME(T, FN, name, ...) #name,
        TSRI_UNARY_LIST(NAME, )
#undef NAME
    };
    return (unsigned)fn < TSRI_UNARY_COUNT_ ? names[fn] : "?";
}

bool tsri_unary_saves_output(tsri_unary_fn fn)
{
    enum { OPERAND = 0, RESULT = 1 };
    static const bool gets_result[TSRI_UNARY_COUNT_] = {
#define GETS(T, FN, name, gets, ...) gets,
        TSRI_UNARY_LIST(GETS, )
#undef GETS
    };
    return gets_result[fn];
}

const char *tsri_binary_name(tsri_binary_fn fn)
{
    static const char *const names[TSRI_BINARY_COUNT_] = {
#define NAME(T, FN, name, ...) #name,
        TSRI_BINARY_LIST(NAME, )
#undef NAME
    };
    return (unsigned)fn < TSRI_BINARY_COUNT_ ? names[fn] : "?";
}

/* A table of names, as a function of their numbers. */
#define FIND(TYPE, NAME_OF, N)                                                              \
    for (int i = 0; i < (N); i++)                                                           \
        if (strlen(NAME_OF((TYPE)i)) == length && !strncmp(NAME_OF((TYPE)i), name, length)) \
            return i;                                                                       \
    return -1

int tsri_op_named(const char *name, size_t length)
{
    FIND(tsri_op_kind, tsri_op_name, TSRI_OP_COUNT_);
}

int tsri_unary_named(const char *name, size_t length)
{
    FIND(tsri_unary_fn, tsri_unary_name, TSRI_UNARY_COUNT_);
}

int tsri_binary_named(const char *name, size_t length)
{
    FIND(tsri_binary_fn, tsri_binary_name, TSRI_BINARY_COUNT_);
}
#undef FIND

bool tsri_binary_compares(tsri_binary_fn fn)
{
    return fn >= TSRI_BINARY_EQUAL;
}

tsri_orders tsri_binary_orders(tsri_binary_fn fn)
{
    static const tsri_orders orders[TSRI_BINARY_COUNT_] = {
#define ORDERS(T, FN, name, less, equal, greater, none, doc) \
    [TSRI_BINARY_##FN] = {less, equal, greater, none},
        TSRI_COMPARISON_LIST(ORDERS, ) TSRI_STEP_LIST(ORDERS, )
#undef ORDERS
    };
    return orders[fn];
}

const char *tsri_op_title(tsri_op_kind kind, const tsri_attrs *attrs)
{
    return kind == TSRI_OP_OWN            ? attrs->own.op->def.name
           : kind == TSRI_OP_OWN_BACKWARD ? attrs->own.op->backward_name
                                          : tsri_op_name(kind);
}

const char *tsri_op_word(tsri_op_kind kind, const tsri_attrs *attrs)
{
    switch (kind) {
    case TSRI_OP_UNARY:
        return tsri_unary_name((tsri_unary_fn)attrs->unary.fn);
    case TSRI_OP_BINARY:
        return tsri_binary_name((tsri_binary_fn)attrs->binary.fn);
    case TSRI_OP_REDUCE:
        return attrs->reduce.op == TSR_REDUCE_MAX        ? "max"
               : attrs->reduce.op == TSR_REDUCE_MIN      ? "min"
               : attrs->reduce.op == TSRI_REDUCE_FAULT   ? "find_inf"
               : attrs->reduce.op == TSRI_REDUCE_SQUARES ? "sum_squares"
               : attrs->reduce.scale == 1                ? "sum"
                                                         : "mean";
    default:
        return tsri_op_title(kind, attrs);
    }
}
