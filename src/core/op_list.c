/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/op_list.h"
#include <tessera/sbp.h>

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
        "abs",     "exp",  "log", "sqrt",       "relu",        "relu6", "tanh",
        "sigmoid", "silu", "pow", "add_scalar", "rdiv_scalar", "gelu",  "gelu_tanh",
    };
    return (unsigned)fn < TSRI_UNARY_COUNT_ ? names[fn] : "?";
}

bool tsri_unary_saves_output(tsri_unary_fn fn)
{
    switch (fn) {
    case TSRI_UNARY_EXP:
    case TSRI_UNARY_SQRT:
    case TSRI_UNARY_RELU:
    case TSRI_UNARY_RELU6:
    case TSRI_UNARY_TANH:
    case TSRI_UNARY_SIGMOID:
        return true;
    default:
        return false;
    }
}

const char *tsri_binary_name(tsri_binary_fn fn)
{
    static const char *const names[TSRI_BINARY_COUNT_] = {
        "add",  "sub",        "mul",     "div",           "pow",  "equal",   "not_equal",
        "less", "less_equal", "greater", "greater_equal", "step", "maximum", "minimum",
    };
    return (unsigned)fn < TSRI_BINARY_COUNT_ ? names[fn] : "?";
}

bool tsri_binary_compares(tsri_binary_fn fn)
{
    return fn >= TSRI_BINARY_EQUAL && fn <= TSRI_BINARY_STEP;
}

const char *tsri_op_word(tsri_op_kind kind, const tsri_attrs *attrs)
{
    switch (kind) {
    case TSRI_OP_UNARY:
        return tsri_unary_name((tsri_unary_fn)attrs->unary.fn);
    case TSRI_OP_BINARY:
        return tsri_binary_name((tsri_binary_fn)attrs->binary.fn);
    case TSRI_OP_REDUCE:
        return attrs->reduce.op == TSR_REDUCE_MAX   ? "max"
               : attrs->reduce.op == TSR_REDUCE_MIN ? "min"
               : attrs->reduce.scale == 1           ? "sum"
                                                    : "mean";
    default:
        return tsri_op_name(kind);
    }
}
