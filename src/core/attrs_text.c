/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/attrs_text.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum attr_type {
    I32 = 0,
    I64,
    U64, /* hexadecimal: keys and hashes */
    MASK,
    F64,
    UNARY,
    BINARY,
} attr_type;

typedef struct attr_field {
    const char *name;
    size_t offset;
    attr_type type;
    int n; /* of an array */
} attr_field;

#define AT(member, type, n, label)                   \
    {                                                \
        label, offsetof(tsri_attrs, member), type, n \
    }
#define END           \
    {                 \
        NULL, 0, 0, 0 \
    }
#define KEY "random key (of the graph's seed and the name)"

static const attr_field unary[] = {AT(unary.fn, UNARY, 1, "function"), AT(unary.a, F64, 1, "a"),
                                   AT(unary.b, F64, 1, "b"), END};
static const attr_field binary[] = {AT(binary.fn, BINARY, 1, "function"),
                                    AT(binary.fixed, MASK, 1, "operands without gradient"), END};
static const attr_field scale[] = {AT(scale.a, F64, 1, "factor"), END};
static const attr_field matmul[] = {AT(matmul.ta, I32, 1, "transpose_a"),
                                    AT(matmul.tb, I32, 1, "transpose_b"), END};
static const attr_field reduce[] = {
    AT(reduce.op, I32, 1, "reduction"), AT(reduce.axes, MASK, 1, "axes"),
    AT(reduce.keepdim, I32, 1, "keepdim"), AT(reduce.scale, F64, 1, "factor"), END};
static const attr_field softmax[] = {AT(softmax.axis, I32, 1, "axis"),
                                     AT(softmax.log, I32, 1, "log"), END};
static const attr_field conv[] = {
    AT(conv.stride, I32, 2, "stride"),     AT(conv.pad, I32, 2, "padding"),
    AT(conv.dilation, I32, 2, "dilation"), AT(conv.kernel, I32, 2, "kernel"),
    AT(conv.groups, I64, 1, "groups"),     END};
static const attr_field pool[] = {
    AT(pool.kernel, I32, 2, "kernel"), AT(pool.stride, I32, 2, "stride"),
    AT(pool.pad, I32, 2, "padding"), AT(pool.count_include_pad, I32, 1, "count_include_pad"), END};
static const attr_field bn[] = {AT(bn.eps, F64, 1, "eps"),
                                AT(bn.momentum, F64, 1, "momentum"),
                                AT(bn.count, I64, 1, "elements of a channel"),
                                AT(bn.batch, I64, 1, "rows of the batch"),
                                AT(bn.spatial, I64, 1, "elements of a plane"),
                                AT(bn.parts, I32, 1, "virtual batches"),
                                AT(bn.act, I32, 1, "activation"),
                                END};
static const attr_field ce[] = {
    AT(ce.smoothing, F64, 1, "label_smoothing"), AT(ce.has_ignore, I32, 1, "has_ignore_index"),
    AT(ce.ignore_index, I64, 1, "ignore_index"), AT(ce.classes, I64, 1, "classes"), END};
static const attr_field ln[] = {AT(ln.eps, F64, 1, "eps"),
                                AT(ln.count, I64, 1, "features"),
                                AT(ln.axes, I32, 1, "axes"),
                                AT(ln.has_gamma, I32, 1, "has a weight"),
                                AT(ln.has_beta, I32, 1, "has a bias"),
                                END};
static const attr_field mask_above[] = {AT(mask_above.diagonal, I64, 1, "diagonal"),
                                        AT(mask_above.value, F64, 1, "value"), END};
static const attr_field dropout[] = {AT(dropout.p, F64, 1, "p"), AT(dropout.key, U64, 1, KEY), END};
static const attr_field drawn[] = {AT(random.dist, I32, 1, "distribution"),
                                   AT(random.a, F64, 1, "a"), AT(random.b, F64, 1, "b"),
                                   AT(random.key, U64, 1, KEY), END};
static const attr_field fill[] = {AT(fill.value, F64, 1, "value"), END};
static const attr_field arange[] = {AT(arange.start, F64, 1, "start"),
                                    AT(arange.step, F64, 1, "step"), END};
static const attr_field constant[] = {AT(constant.hash, U64, 1, "hash of the data"), END};
static const attr_field permute[] = {AT(permute.perm, I32, TSR_MAX_NDIM, "order of axes"), END};
static const attr_field cut[] = {AT(cut.axis, I32, 1, "axis"), END};
static const attr_field slice[] = {AT(slice.start, I64, TSR_MAX_NDIM, "start"),
                                   AT(slice.step, I64, TSR_MAX_NDIM, "step"),
                                   AT(slice.value, F64, 1, "value"), END};
static const attr_field cumsum[] = {AT(cumsum.axis, I32, 1, "axis"),
                                    AT(cumsum.reverse, I32, 1, "reverse"), END};
static const attr_field mask[] = {AT(mask.keep, I32, 1, "keeps where the condition is"), END};
static const attr_field triangle[] = {AT(triangle.diagonal, I64, 1, "diagonal"),
                                      AT(triangle.upper, I32, 1, "upper"), END};
static const attr_field gather[] = {AT(gather.axis, I32, 1, "axis"),
                                    AT(gather.has_pad, I32, 1, "has a padding_index"),
                                    AT(gather.pad, I64, 1, "padding_index"), END};
static const attr_field sgd[] = {
    AT(sgd.momentum, F64, 1, "momentum"), AT(sgd.dampening, F64, 1, "dampening"),
    AT(sgd.weight_decay, F64, 1, "weight_decay"), AT(sgd.nesterov, I32, 1, "nesterov"), END};
static const attr_field adam[] = {AT(adam.beta1, F64, 1, "beta1"),
                                  AT(adam.beta2, F64, 1, "beta2"),
                                  AT(adam.eps, F64, 1, "eps"),
                                  AT(adam.weight_decay, F64, 1, "weight_decay"),
                                  AT(adam.decoupled, I32, 1, "decoupled"),
                                  END};

/* By kind; kinds without attributes have none. */
static const attr_field *const fields_of[TSRI_OP_COUNT_] = {
    [TSRI_OP_UNARY] = unary,
    [TSRI_OP_UNARY_GRAD] = unary,
    [TSRI_OP_SCALE] = scale,
    [TSRI_OP_BINARY] = binary,
    [TSRI_OP_REDUCE] = reduce,
    [TSRI_OP_SOFTMAX_MAX] = reduce,
    [TSRI_OP_CUMSUM] = cumsum,
    [TSRI_OP_ARGMAX] = softmax,
    [TSRI_OP_MATMUL] = matmul,
    [TSRI_OP_BATCH_MATMUL] = matmul,
    [TSRI_OP_CONV2D] = conv,
    [TSRI_OP_CONV2D_DX] = conv,
    [TSRI_OP_CONV2D_DW] = conv,
    [TSRI_OP_MAX_POOL] = pool,
    [TSRI_OP_MAX_POOL_DX] = pool,
    [TSRI_OP_AVG_POOL] = pool,
    [TSRI_OP_AVG_POOL_DX] = pool,
    [TSRI_OP_ADAPTIVE_POOL] = pool,
    [TSRI_OP_ADAPTIVE_POOL_DX] = pool,
    [TSRI_OP_BN_STATS] = bn,
    [TSRI_OP_BN_APPLY] = bn,
    [TSRI_OP_BN_BWD_STATS] = bn,
    [TSRI_OP_BN_BWD_APPLY] = bn,
    [TSRI_OP_BN_PARAM_GRAD] = bn,
    [TSRI_OP_BN_RUNNING] = bn,
    [TSRI_OP_BN_FOLD] = bn,
    [TSRI_OP_SOFTMAX_SUM] = softmax,
    [TSRI_OP_SOFTMAX_FINISH] = softmax,
    [TSRI_OP_SOFTMAX_DOT] = softmax,
    [TSRI_OP_SOFTMAX_BWD] = softmax,
    [TSRI_OP_CE_TERMS] = ce,
    [TSRI_OP_CE_FINISH] = ce,
    [TSRI_OP_CE_DX] = ce,
    [TSRI_OP_LN_STATS] = ln,
    [TSRI_OP_LN_APPLY] = ln,
    [TSRI_OP_LN_BWD_STATS] = ln,
    [TSRI_OP_LN_BWD_APPLY] = ln,
    [TSRI_OP_LN_PARAM_GRAD] = ln,
    [TSRI_OP_CAUSAL_MASK] = mask_above,
    [TSRI_OP_DROPOUT] = dropout,
    [TSRI_OP_RANDOM] = drawn,
    [TSRI_OP_FILL] = fill,
    [TSRI_OP_ARANGE] = arange,
    [TSRI_OP_CONSTANT] = constant,
    [TSRI_OP_PERMUTE] = permute,
    [TSRI_OP_CONCAT] = cut,
    [TSRI_OP_SPLIT] = cut,
    [TSRI_OP_SLICE] = slice,
    [TSRI_OP_PAD] = slice,
    [TSRI_OP_TRIANGLE] = triangle,
    [TSRI_OP_MASK] = mask,
    [TSRI_OP_GATHER] = gather,
    [TSRI_OP_GATHER_DX] = gather,
    [TSRI_OP_SGD] = sgd,
    [TSRI_OP_ADAM] = adam,
};

/* The shortest text that is this number and no other, of 15 digits or 17. */
static void put_double(FILE *f, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    fprintf(f, strtod(text, NULL) == x ? "%.15g" : "%.17g", x);
}

void tsri_put_number(FILE *f, const char *name, double value)
{
    fprintf(f, "%s: ", name);
    put_double(f, value);
    fputc('\n', f);
}

static void put_value(FILE *f, const char *at, attr_type type)
{
    int32_t i32;
    int64_t i64;
    double f64;
    memcpy(&i32, at, sizeof i32);
    switch (type) {
    case I32:
        fprintf(f, "%" PRId32, i32);
        return;
    case MASK:
        fprintf(f, "0x%" PRIx32, (uint32_t)i32);
        return;
    case UNARY:
        fputs(tsri_unary_name((tsri_unary_fn)i32), f);
        return;
    case BINARY:
        fputs(tsri_binary_name((tsri_binary_fn)i32), f);
        return;
    case F64:
        memcpy(&f64, at, sizeof f64);
        put_double(f, f64);
        return;
    case I64:
    case U64:
        memcpy(&i64, at, sizeof i64);
        fprintf(f, type == I64 ? "%" PRId64 : "0x%" PRIx64, i64);
        return;
    }
}

void tsri_attrs_put(FILE *f, tsri_op_kind kind, const tsri_attrs *attrs)
{
    const attr_field *a = (unsigned)kind < TSRI_OP_COUNT_ ? fields_of[kind] : NULL;
    for (; a && a->name; a++) {
        bool wide = a->type == I64 || a->type == U64 || a->type == F64;
        fprintf(f, "%s: ", a->name);
        for (int i = 0; i < a->n; i++) {
            if (i)
                fputc(',', f);
            put_value(f, (const char *)attrs + a->offset + (size_t)i * (wide ? 8 : 4), a->type);
        }
        fputc('\n', f);
    }
}
