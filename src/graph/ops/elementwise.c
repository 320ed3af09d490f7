/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops of one operand, casts, and those of two with NumPy's broadcasting. */
#include <stdio.h>

#include "src/graph/op.h"

/* --- one operand ------------------------------------------------------------------------------ */

/* Declares an op of a floating-point operand and the numbers that attrs have: as many as have a
 * name in `what`, which messages call them by. */
static tsr_tensor *declare_numbers(const char *name, tsr_tensor *x, const char *const what[2],
                                   double a, double b, tsri_op_kind kind, const tsri_attrs *attrs,
                                   tsri_loc loc)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc) || !tsri_want_float(&c, x) ||
        (what[0] && !tsri_want_number(&c, what[0], a)) ||
        (what[1] && !tsri_want_number(&c, what[1], b)))
        return c.failed;
    return tsri_graph_add_like(kind, attrs, 1, &x, x, loc);
}

static tsr_tensor *declare_unary_with(const char *name, tsr_tensor *x, tsri_unary_fn fn,
                                      const char *const what[2], double a, double b, tsri_loc loc)
{
    tsri_attrs attrs = {0};
    attrs.unary.fn = fn;
    attrs.unary.a = a;
    attrs.unary.b = b;
    return declare_numbers(name, x, what, a, b, TSRI_OP_UNARY, &attrs, loc);
}

static const char *const one_scalar[2] = {"the scalar"};

static tsr_tensor *declare_unary(const char *name, tsr_tensor *x, tsri_unary_fn fn, double a,
                                 tsri_loc loc)
{
    return declare_unary_with(name, x, fn, one_scalar, a, 0, loc);
}

static tsr_tensor *declare_scale(const char *name, tsr_tensor *x, double a, tsri_loc loc)
{
    tsri_attrs attrs = {0};
    attrs.scale.a = a;
    return declare_numbers(name, x, one_scalar, a, 0, TSRI_OP_SCALE, &attrs, loc);
}

tsr_tensor *tsri_make_unary(tsr_tensor *x, tsri_unary_fn fn, double a, tsri_loc loc)
{
    return declare_unary(tsri_unary_name(fn), x, fn, a, loc);
}

tsr_tensor *tsri_make_scale(tsr_tensor *x, double a, tsri_loc loc)
{
    return a == 1 ? x : declare_scale("scale", x, a, loc);
}

#define DECLARE(T, FN, name, ...)                                                   \
    tsr_tensor *tsr_##name##_at(tsr_tensor *x, const char *file, int line)          \
    {                                                                               \
        return declare_unary(#name, x, TSRI_UNARY_##FN, 0, (tsri_loc){file, line}); \
    }
TSRI_UNARY_PLAIN_LIST(DECLARE, )
#undef DECLARE

#define DECLARE_WITH(FN, name, number)                                                    \
    tsr_tensor *tsr_##name##_at(tsr_tensor *x, double number, const char *file, int line) \
    {                                                                                     \
        static const char *const what[2] = {#number};                                     \
        return declare_unary_with(#name, x, TSRI_UNARY_##FN, what, number, 0,             \
                                  (tsri_loc){file, line});                                \
    }
DECLARE_WITH(LEAKY_RELU, leaky_relu, slope)
DECLARE_WITH(ELU, elu, alpha)
DECLARE_WITH(CELU, celu, alpha)
DECLARE_WITH(SOFTSHRINK, softshrink, edge)
DECLARE_WITH(HARDSHRINK, hardshrink, edge)
#undef DECLARE_WITH

#define DECLARE_PAIR(FN, name, first, second)                                                 \
    tsr_tensor *tsr_##name##_at(tsr_tensor *x, double first, double second, const char *file, \
                                int line)                                                     \
    {                                                                                         \
        static const char *const what[2] = {#first, #second};                                 \
        return declare_unary_with(#name, x, TSRI_UNARY_##FN, what, first, second,             \
                                  (tsri_loc){file, line});                                    \
    }
DECLARE_PAIR(CLAMP, clamp, low, high)
DECLARE_PAIR(HARDTANH, hardtanh, low, high)
DECLARE_PAIR(THRESHOLD, threshold, edge, value)
#undef DECLARE_PAIR

tsr_tensor *tsr_gelu_at(tsr_tensor *x, tsr_gelu_form form, const char *file, int line)
{
    tsri_loc loc = {file, line};
    if (form == TSR_GELU_ERF || form == TSR_GELU_TANH)
        return declare_unary("gelu", x,
                             form == TSR_GELU_ERF ? TSRI_UNARY_GELU : TSRI_UNARY_GELU_TANH, 0, loc);
    tsri_ctx c;
    if (!tsri_op_begin(&c, "gelu", 1, &x, 0, loc))
        return c.failed;
    return tsri_op_fail(&c, TSR_ERR_INVALID, "form is %d; legal are TSR_GELU_ERF and TSR_GELU_TANH",
                        (int)form);
}

tsr_tensor *tsr_neg_at(tsr_tensor *x, const char *file, int line)
{
    return declare_scale("neg", x, -1, (tsri_loc){file, line});
}

#define DECLARE_SCALAR(name, declare, ...)                                                  \
    tsr_tensor *tsr_##name##_scalar_at(tsr_tensor *x, double a, const char *file, int line) \
    {                                                                                       \
        return declare(#name "_scalar", x, __VA_ARGS__, (tsri_loc){file, line});            \
    }
DECLARE_SCALAR(pow, declare_unary, TSRI_UNARY_POW, a)
DECLARE_SCALAR(add, declare_unary, TSRI_UNARY_ADD, a)
DECLARE_SCALAR(sub, declare_unary, TSRI_UNARY_ADD, -a)
DECLARE_SCALAR(mul, declare_scale, a)
DECLARE_SCALAR(div, declare_scale, 1 / a)
DECLARE_SCALAR(rdiv, declare_unary, TSRI_UNARY_RDIV, a)
#undef DECLARE_SCALAR

static void grad_unary(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsri_unary_fn fn = (tsri_unary_fn)op->attrs.unary.fn;
    const bool is_step = fn == TSRI_UNARY_RELU || fn == TSRI_UNARY_RELU6; /* rounds nothing */
    tsr_tensor *in[2] = {op->in[0], dout[0]};
    if (tsri_unary_saves_output(fn))
        in[0] = is_step ? op->out[0] : tsri_saved(op, 0);
    din[0] = fn == TSRI_UNARY_ADD
                 ? dout[0]
                 : tsri_graph_add1(dout[0]->graph, TSRI_OP_UNARY_GRAD, &op->attrs, 2, in,
                                   op->in[0]->shape, op->in[0]->dtype, op->loc);
}

static double flops_unary(const tsri_op *op)
{
    enum { CHEAP = 1, SLOW = 10, FULL = SLOW };
    static const int cost[TSRI_UNARY_COUNT_] = {
#define COST(T, FN, name, gets, cost, ...) cost,
        TSRI_UNARY_LIST(COST, )
#undef COST
    };
    return cost[op->attrs.unary.fn] * (double)tsr_dims_count(op->out[0]->shape);
}

static tsri_autocast autocast_unary(const tsri_attrs *attrs)
{
    enum { CHEAP = TSRI_AUTOCAST_WIDEST, SLOW = TSRI_AUTOCAST_WIDEST, FULL = TSRI_AUTOCAST_F32 };
    static const int how[TSRI_UNARY_COUNT_] = {
#define HOW(T, FN, name, gets, cost, ...) cost,
        TSRI_UNARY_LIST(HOW, )
#undef HOW
    };
    return (tsri_autocast)how[attrs->unary.fn];
}

/* Functions that kernels compute lane by lane are in no chain: its other members would wait. */
enum { LANES = 0, VECTORS = 1 };

static bool may_chain_unary(const tsri_attrs *attrs)
{
    static const bool may[TSRI_UNARY_COUNT_] = {
#define MAY(T, FN, name, gets, cost, by, ...) [TSRI_UNARY_##FN] = by,
        TSRI_UNARY_LIST(MAY, )
#undef MAY
    };
    return may[attrs->unary.fn];
}

static const tsri_attr_field unary_attrs[] = {TSRI_ATTR_FIELD(unary.fn, UNARY, "function"),
                                              TSRI_ATTR_FIELD(unary.a, F64, "a"),
                                              TSRI_ATTR_FIELD(unary.b, F64, "b"), TSRI_ATTR_END};

const tsri_op_def tsri_def_unary = {.rule_text = "!... -> ...",
                                    .gradient = grad_unary,
                                    .flops = flops_unary,
                                    .attrs = unary_attrs,
                                    .autocast_of = autocast_unary,
                                    .layout = TSRI_LAYOUT_ANY,
                                    .alike = TSRI_ALL_OPERANDS,
                                    .chain = TSRI_CHAIN_MAP,
                                    .rows = TSRI_ROWS_MAP,
                                    .may_chain = may_chain_unary,
                                    .walks = 1 << 0};

const tsri_op_def tsri_def_unary_grad = {.rule_text = "!..., ... -> ...",
                                         .flops = flops_unary,
                                         .attrs = unary_attrs,
                                         .layout = TSRI_LAYOUT_ANY,
                                         .alike = TSRI_ALL_OPERANDS,
                                         .chain = TSRI_CHAIN_MAP,
                                         .rows = TSRI_ROWS_MAP,
                                         .may_chain = may_chain_unary,
                                         .walks = 3};

static void grad_scale(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    din[0] = tsri_make_scale(dout[0], op->attrs.scale.a, op->loc);
}

static const tsri_attr_field scale_attrs[] = {TSRI_ATTR_FIELD(scale.a, F64, "factor"),
                                              TSRI_ATTR_END};

const tsri_op_def tsri_def_scale = {.spreads = true,
                                    .rule_text = "... -> ...",
                                    .gradient = grad_scale,
                                    .attrs = scale_attrs,
                                    .layout = TSRI_LAYOUT_ANY,
                                    .alike = TSRI_ALL_OPERANDS,
                                    .is_linear = true,
                                    .chain = TSRI_CHAIN_MAP,
                                    .rows = TSRI_ROWS_MAP,
                                    .walks = 1 << 0};

/* --- cast ------------------------------------------------------------------------------------- */

tsr_tensor *tsr_cast_at(tsr_tensor *x, tsr_dtype dtype, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "cast", 1, &x, 0, loc))
        return c.failed;
    if (!tsr_dtype_size(dtype))
        return tsri_op_fail(&c, TSR_ERR_DTYPE, "no such dtype: %d", (int)dtype);
    if (dtype == x->dtype)
        return tsri_as_result(x, x, loc);
    return tsri_graph_add1(c.g, TSRI_OP_CAST, NULL, 1, &x, x->shape, dtype, loc);
}

tsr_tensor *tsri_make_cast(tsr_tensor *x, tsr_dtype dtype, tsri_loc loc)
{
    return x->failed || x->dtype == dtype ? x : tsr_cast_at(x, dtype, loc.file, loc.line);
}

/* Whether a sum of casts is the cast of the sum, up to the rounding that any sum has. A cast to a
 * narrower float rounds each addend. A sum of whole numbers wraps: it is no wider number's, nor a
 * float's sum, but wraps on in a narrower type. There is no sum of bools. */
static bool cast_is_linear(tsr_dtype from, tsr_dtype to)
{
    if (tsri_is_float(from))
        return tsri_is_float(to) && tsr_dtype_size(to) > tsr_dtype_size(from);
    return !tsri_wraps_before(from, to) && from != TSR_BOOL && to != TSR_BOOL;
}

static const char *rule_cast(const tsri_op *op)
{
    /* A larger float is no smaller when it is rounded. */
    if (!tsri_is_float(op->in[0]->dtype) || !tsri_is_float(op->out[0]->dtype))
        return cast_is_linear(op->in[0]->dtype, op->out[0]->dtype) ? "... -> ..." : "!... -> ...";
    return cast_is_linear(op->in[0]->dtype, op->out[0]->dtype) ? "^... -> ..." : "!^... -> ...";
}

static void grad_cast(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    if (tsri_is_float(op->in[0]->dtype))
        din[0] = tsr_cast_at(dout[0], op->in[0]->dtype, op->loc.file, op->loc.line);
}

const tsri_op_def tsri_def_cast = {.spreads = true,
                                   .rule_of = rule_cast,
                                   .gradient = grad_cast,
                                   .autocast = TSRI_AUTOCAST_NONE,
                                   .layout = TSRI_LAYOUT_ANY,
                                   .is_linear = true};

/* --- two operands ----------------------------------------------------------------------------- */

static bool want_arithmetic(const tsri_ctx *c, const tsr_tensor *x, tsri_binary_fn fn)
{
    enum { FLOATS = 0, NUMBERS, BYTES, WHOLES };
    static const int takes[TSRI_BINARY_COUNT_] = {
#define TAKES(T, FN, name, takes, ...) takes,
        TSRI_ARITHMETIC_LIST(TAKES, )
#undef TAKES
    };
    const bool is_float = tsri_is_float(x->dtype);
    if (tsri_binary_compares(fn) || (is_float && takes[fn] != WHOLES))
        return true;
    if (takes[fn] == FLOATS)
        return tsri_want_float(c, x);
    if (x->dtype == TSR_I64 || x->dtype == TSR_I32 || (takes[fn] >= BYTES && x->dtype == TSR_U8))
        return true;
    return tsri_op_refuse(c, TSR_ERR_DTYPE, "operands are %s; legal are %s: use tsr_cast",
                          tsr_dtype_name(x->dtype),
                          takes[fn] == WHOLES ? "i32, i64 and u8" : "floating point, i32 and i64");
}

tsr_tensor *tsri_make_binary(const char *name, tsri_binary_fn fn, tsr_tensor *x, tsr_tensor *y,
                             tsr_dtype out_dtype, tsri_loc loc)
{
    tsr_tensor *in[2] = {x, y};
    tsri_ctx c;
    tsr_dims shape;
    if (!tsri_op_begin(&c, name, 2, in, 0, loc) || !tsri_want_same_dtype(&c, 2, in) ||
        !want_arithmetic(&c, x, fn))
        return c.failed;
    if (!tsri_broadcast_shapes(x->shape, y->shape, &shape))
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "%s and %s; from the right, sizes must be equal or one of them 1",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, y));
    tsri_attrs attrs = {0};
    attrs.binary.fn = fn;
    return tsri_graph_add1(c.g, TSRI_OP_BINARY, &attrs, 2, in, shape,
                           out_dtype ? out_dtype : x->dtype, loc);
}

#define DECLARE2(out_dtype, FN, name, ...)                                                         \
    tsr_tensor *tsr_##name##_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line)          \
    {                                                                                              \
        return tsri_make_binary(#name, TSRI_BINARY_##FN, x, y, out_dtype, (tsri_loc){file, line}); \
    }
TSRI_ARITHMETIC_CALLS(DECLARE2, TSR_DTYPE_NONE)
TSRI_COMPARISON_LIST(DECLARE2, TSR_BOOL)
#undef DECLARE2

static const char *rule_binary(const tsri_op *op)
{
    static const char *const rules[TSRI_BINARY_COUNT_] = {
#define RULE(T, FN, name, takes, rule, ...) rule,
        TSRI_ARITHMETIC_LIST(RULE, )
#undef RULE
    };
    const char *rule = rules[op->attrs.binary.fn];
    return rule ? rule : "!..., !... -> ...";
}

/* d(x^y): y x^(y-1) to x, x^y log(x) to y. As PyTorch has it, 0 to x where y = 0, and 0 to y where
 * x = 0 and y >= 0: by the formulas alone, zero times an infinity. */
static void grad_pow(tsri_op *op, tsr_tensor *dz, const bool *want, tsr_tensor **din)
{
    const char *file = op->loc.file;
    int line = op->loc.line;
    tsr_tensor *x = op->in[0], *y = op->in[1];
    tsr_tensor *zero = tsri_make_fill(x->graph, TSR_SCALAR, x->dtype, x->placement, 0, op->loc);
    if (want[0]) {
        tsr_tensor *less = tsr_pow_at(x, tsr_add_scalar_at(y, -1, file, line), file, line);
        tsr_tensor *dx = tsr_mul_at(dz, tsr_mul_at(y, less, file, line), file, line);
        din[0] = tsr_where_at(tsr_equal_at(y, zero, file, line), zero, dx, file, line);
    }
    if (want[1]) {
        tsr_tensor *zlog = tsr_mul_at(op->out[0], tsr_log_at(x, file, line), file, line);
        tsr_tensor *dy = tsr_mul_at(dz, zlog, file, line);
        tsr_tensor *flat =
            tsr_where_at(tsr_greater_equal_at(y, zero, file, line), zero, dy, file, line);
        din[1] = tsr_where_at(tsr_equal_at(x, zero, file, line), flat, dy, file, line);
    }
}

/* d(x/y): 1/y to x, -(x/y)/y to y. */
static void grad_div(tsri_op *op, tsr_tensor *dz, const bool *want, tsr_tensor **din)
{
    const char *file = op->loc.file;
    int line = op->loc.line;
    tsr_tensor *dx = tsr_div_at(dz, op->in[1], file, line);
    if (want[0])
        din[0] = dx;
    if (want[1])
        din[1] = tsri_make_scale(tsr_mul_at(dx, op->out[0], file, line), -1, op->loc);
}

/* max and min: all to the larger (smaller) one, halves where they are equal; all to both beside a
 * NaN, as PyTorch has it. */
static void grad_extremum(tsri_op *op, tsr_tensor *dz, const bool *want, tsr_tensor **din)
{
    bool max = op->attrs.binary.fn == TSRI_BINARY_MAXIMUM;
    for (int i = 0; i < 2; i++) {
        tsr_tensor *more = op->in[max ? i : 1 - i], *less = op->in[max ? 1 - i : i];
        if (want[i])
            din[i] = tsr_mul_at(
                dz, tsri_make_binary("step", TSRI_BINARY_STEP, more, less, dz->dtype, op->loc),
                op->loc.file, op->loc.line);
    }
}

tsr_tensor *tsri_make_divisor(tsr_tensor *x, tsr_tensor *n, tsri_loc loc)
{
    if (x->failed || n->failed)
        return x->failed ? x : n;
    tsr_tensor *zero = tsri_make_fill(n->graph, TSR_SCALAR, n->dtype, n->placement, 0, loc);
    tsr_tensor *none = tsri_make_binary("div", TSRI_BINARY_EQUAL, n, zero, n->dtype, loc);
    return tsri_make_binary("div", TSRI_BINARY_ADD, x, none, 0, loc);
}

/* d(atan2(x, y)): y / (x^2 + y^2) to x, -x / (x^2 + y^2) to y; 0 at (0, 0). */
static void grad_atan2(tsri_op *op, tsr_tensor *dz, const bool *want, tsr_tensor **din)
{
    const char *file = op->loc.file;
    int line = op->loc.line;
    tsr_tensor *x = op->in[0], *y = op->in[1];
    tsr_tensor *square =
        tsr_add_at(tsr_square_at(x, file, line), tsr_square_at(y, file, line), file, line);
    tsr_tensor *size = tsr_add_at(tsr_abs_at(x, file, line), tsr_abs_at(y, file, line), file, line);
    tsr_tensor *scaled = tsr_div_at(dz, tsri_make_divisor(square, size, op->loc), file, line);
    if (want[0])
        din[0] = tsr_mul_at(scaled, y, file, line);
    if (want[1])
        din[1] = tsri_make_scale(tsr_mul_at(scaled, x, file, line), -1, op->loc);
}

/* d(x - y q), where q, floor or trunc of x / y, is constant: 1 to x, -q to y. */
static void grad_rest(tsri_op *op, tsr_tensor *dz, const bool *want, tsr_tensor **din)
{
    const char *file = op->loc.file;
    int line = op->loc.line;
    tsr_tensor *x = op->in[0], *y = op->in[1];
    din[0] = dz;
    if (!want[1])
        return;
    tsr_tensor *q = op->attrs.binary.fn == TSRI_BINARY_REMAINDER
                        ? tsr_floor_divide_at(x, y, file, line)
                        : tsr_trunc_at(tsr_div_at(x, y, file, line), file, line);
    din[1] = tsri_make_scale(tsr_mul_at(dz, q, file, line), -1, op->loc);
}

/* d(prelu(x, y)): where x > 0, 1 to x, else y to x and x to y. */
static void grad_prelu(tsri_op *op, tsr_tensor *dz, const bool *want, tsr_tensor **din)
{
    const char *file = op->loc.file;
    int line = op->loc.line;
    tsr_tensor *x = op->in[0], *y = op->in[1];
    tsr_tensor *zero = tsri_make_fill(x->graph, TSR_SCALAR, x->dtype, x->placement, 0, op->loc);
    tsr_tensor *above = tsr_greater_at(x, zero, file, line);
    if (want[0])
        din[0] = tsr_where_at(above, dz, tsr_mul_at(dz, y, file, line), file, line);
    if (want[1])
        din[1] = tsr_where_at(above, zero, tsr_mul_at(dz, x, file, line), file, line);
}

/* Returns dz times x, the gradient to the other factor. A dz whose elements all are one number, as
 * where differentiation begins, is not multiplied element by element: the product is x, scaled. */
static tsr_tensor *grad_mul(tsr_tensor *dz, tsr_tensor *x, tsri_loc loc)
{
    if (!dz->failed && dz->op->kind == TSRI_OP_FILL && dz->dtype == x->dtype &&
        dz->placement == x->placement && tsr_dims_equal(dz->shape, x->shape))
        return tsri_make_scale(x, dz->op->attrs.fill.value, loc);
    return tsr_mul_at(dz, x, loc.file, loc.line);
}

static void grad_binary(tsri_op *op, tsr_tensor *const *dout, const bool *wanted, tsr_tensor **din)
{
    const uint32_t fixed = op->attrs.binary.fixed;
    const bool want[2] = {wanted[0] && !(fixed & 1), wanted[1] && !(fixed & 2)};
    tsr_tensor *dz = dout[0], *full[2] = {NULL, NULL};
    switch (op->attrs.binary.fn) {
    case TSRI_BINARY_ADD:
    case TSRI_BINARY_SUB:
        full[0] = full[1] = dz;
        break;
    case TSRI_BINARY_MUL:
        for (int i = 0; i < 2; i++)
            full[i] = want[i] ? grad_mul(dz, op->in[1 - i], op->loc) : NULL;
        break;
    case TSRI_BINARY_DIV:
        grad_div(op, dz, want, full);
        break;
    case TSRI_BINARY_POW:
        grad_pow(op, dz, want, full);
        break;
    case TSRI_BINARY_MAXIMUM:
    case TSRI_BINARY_MINIMUM:
        grad_extremum(op, dz, want, full);
        break;
    case TSRI_BINARY_ATAN2:
        grad_atan2(op, dz, want, full);
        break;
    case TSRI_BINARY_FMOD:
    case TSRI_BINARY_REMAINDER:
        grad_rest(op, dz, want, full);
        break;
    case TSRI_BINARY_PRELU:
        grad_prelu(op, dz, want, full);
        break;
    default:
        return; /* a step, a floor: its gradient is 0 wherever it has one */
    }
    for (int i = 0; i < 2; i++)
        if (want[i])
            din[i] = tsri_make_sum_to(full[i], op->in[i]->shape, op->loc);
    if (op->attrs.binary.fn == TSRI_BINARY_SUB && want[1])
        din[1] = tsri_make_scale(din[1], -1, op->loc);
}

static double flops_binary(const tsri_op *op)
{
    enum { CHEAP = 0, SLOW = 9, FULL = SLOW }; /* more than one */
    static const int cost[TSRI_BINARY_COUNT_] = {
#define COST2(T, FN, name, takes, rule, cost, ...) cost,
        TSRI_ARITHMETIC_LIST(COST2, )
#undef COST2
    };
    return (1 + cost[op->attrs.binary.fn]) * (double)tsr_dims_count(op->out[0]->shape);
}

static tsri_autocast autocast_binary(const tsri_attrs *attrs)
{
    enum { CHEAP = TSRI_AUTOCAST_WIDEST, SLOW = TSRI_AUTOCAST_WIDEST, FULL = TSRI_AUTOCAST_F32 };
    static const int how[TSRI_BINARY_COUNT_] = {
#define HOW2(T, FN, name, takes, rule, cost, ...) cost,
        TSRI_ARITHMETIC_LIST(HOW2, )
#undef HOW2
    };
    return (tsri_autocast)how[attrs->binary.fn];
}

static bool may_chain_binary(const tsri_attrs *attrs)
{
    static const bool may[TSRI_BINARY_COUNT_] = {
#define MAY2(T, FN, name, takes, rule, cost, by, ...) [TSRI_BINARY_##FN] = by,
        TSRI_ARITHMETIC_LIST(MAY2, )
#undef MAY2
    };
    return may[attrs->binary.fn];
}

static const tsri_attr_field binary_attrs[] = {
    TSRI_ATTR_FIELD(binary.fn, BINARY, "function"),
    TSRI_ATTR_FIELD(binary.fixed, MASK, "operands without gradient"), TSRI_ATTR_END};

const tsri_op_def tsri_def_binary = {.rule_of = rule_binary,
                                     .gradient = grad_binary,
                                     .flops = flops_binary,
                                     .attrs = binary_attrs,
                                     .autocast_of = autocast_binary,
                                     .layout = TSRI_LAYOUT_ANY,
                                     .alike = TSRI_ALL_OPERANDS,
                                     .chain = TSRI_CHAIN_MAP,
                                     .rows = TSRI_ROWS_MAP,
                                     .may_chain = may_chain_binary,
                                     .walks = 3};

/* --- sums of many ----------------------------------------------------------------------------- */

static tsr_status rule_add_n(const tsri_op *op, tsri_rule_text *out)
{
    char text[TSRI_RULE_MAX_ARGS * 6 + 1] = "...";
    for (int i = 1, at = 3; i < op->nin && i < TSRI_RULE_MAX_ARGS; i++)
        at += sprintf(text + at, " + ...");
    return tsri_write_rule(out, "%s -> ...", text);
}

static void grad_add_n(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    for (int i = 0; i < op->nin; i++)
        din[i] = want[i] ? dout[0] : NULL;
}

static double flops_add_n(const tsri_op *op)
{
    return (double)(op->nin - 1) * (double)tsr_dims_count(op->out[0]->shape);
}

const tsri_op_def tsri_def_add_n = {.rule = rule_add_n,
                                    .gradient = grad_add_n,
                                    .flops = flops_add_n,
                                    .layout = TSRI_LAYOUT_ANY,
                                    .alike = TSRI_ALL_OPERANDS,
                                    .is_linear = true,
                                    .chain = TSRI_CHAIN_MAP,
                                    .rows = TSRI_ROWS_MAP,
                                    .walks = TSRI_ALL_OPERANDS};
