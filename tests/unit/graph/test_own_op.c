/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of a program's own: right definitions pass tsr_op_verify and train beside the same of the
 * library's ops; each wrong one is refused with what is wrong. */
#include <tessera/tessera.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define D(...) TSR_DIMS(__VA_ARGS__)

static tsr_world *world;

static double *f64(const tsr_op_buffer *b)
{
    return b->data;
}

static int64_t count(const tsr_op_buffer *b)
{
    return tsr_dims_count(b->shape);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* --- y = x sigmoid(beta x) g ------------------------------------------------------------------ */
static tsr_status swish_gate(tsr_op_args *a)
{
    const double *x = f64(&a->in[0]), *g = f64(&a->in[1]), beta = a->option[0];
    for (int64_t i = 0; i < count(&a->out[0]); i++)
        f64(&a->out[0])[i] = x[i] * sigmoid(beta * x[i]) * g[i];
    return TSR_OK;
}

static tsr_status swish_gate_backward(tsr_op_args *a)
{
    const double *x = f64(&a->in[0]), *g = f64(&a->in[1]), *dy = f64(&a->dout[0]);
    const double beta = a->option[0];
    for (int64_t i = 0; i < count(&a->dout[0]); i++) {
        const double s = sigmoid(beta * x[i]);
        if (f64(&a->din[0]))
            f64(&a->din[0])[i] = dy[i] * g[i] * s * (1 + beta * x[i] * (1 - s));
        if (f64(&a->din[1]))
            f64(&a->din[1])[i] = dy[i] * x[i] * s;
    }
    return TSR_OK;
}

#define SWISH                                                                             \
    .name = "swish_gate", .inputs = 2, .rule = "!..., ... -> ...", .forward = swish_gate, \
    .backward = swish_gate_backward, .dtypes = TSR_OP_DTYPE(TSR_F64),                     \
    .options = {{"beta", 1, 0.1, 10}}

/* --- a product, whose middle index is summed -------------------------------------------------- */
static tsr_status product(tsr_op_args *a)
{
    const int64_t m = a->out[0].shape.d[0], n = a->out[0].shape.d[1], k = a->in[0].shape.d[1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += f64(&a->in[0])[i * k + l] * f64(&a->in[1])[l * n + j];
            f64(&a->out[0])[i * n + j] = sum;
        }
    return TSR_OK;
}

static tsr_status product_backward(tsr_op_args *a)
{
    const int64_t m = a->dout[0].shape.d[0], n = a->dout[0].shape.d[1], k = a->in[0].shape.d[1];
    double *da = f64(&a->din[0]), *db = f64(&a->din[1]);
    for (int64_t i = 0; da && i < m * k; i++)
        da[i] = 0;
    for (int64_t i = 0; db && i < k * n; i++)
        db[i] = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++)
            for (int64_t j = 0; j < n; j++) {
                const double dy = f64(&a->dout[0])[i * n + j];
                if (da)
                    da[i * k + l] += dy * f64(&a->in[1])[l * n + j];
                if (db)
                    db[l * n + j] += dy * f64(&a->in[0])[i * k + l];
            }
    return TSR_OK;
}

#define PRODUCT                                                                        \
    .name = "own_product", .inputs = 2, .rule = "m k, k n -> m n", .forward = product, \
    .backward = product_backward, .flops = 2

/* --- two results: the sum and the largest of each row; gradients of the first alone ----------- */
static tsr_status row_facts(tsr_op_args *a)
{
    const int64_t n = a->in[0].shape.d[1];
    for (int64_t i = 0; i < a->in[0].shape.d[0]; i++) {
        double sum = 0, most = -INFINITY;
        for (int64_t j = 0; j < n; j++) {
            sum += f64(&a->in[0])[i * n + j];
            most = fmax(most, f64(&a->in[0])[i * n + j]);
        }
        f64(&a->out[0])[i] = sum;
        f64(&a->out[1])[i] = most;
    }
    return TSR_OK;
}

static tsr_status row_facts_backward(tsr_op_args *a)
{
    const int64_t n = a->in[0].shape.d[1];
    for (int64_t i = 0; i < a->in[0].shape.d[0]; i++)
        for (int64_t j = 0; j < n; j++)
            f64(&a->din[0])[i * n + j] =
                f64(&a->dout[0])[i] +
                (f64(&a->in[0])[i * n + j] == f64(&a->out[1])[i] ? f64(&a->dout[1])[i] : 0);
    return TSR_OK;
}

/* --- x + the row's number in the whole -------------------------------------------------------- */
static tsr_status add_row_number(tsr_op_args *a)
{
    const int64_t n = a->in[0].shape.d[1];
    for (int64_t i = 0; i < count(&a->in[0]); i++)
        f64(&a->out[0])[i] = f64(&a->in[0])[i] + (double)(a->in[0].offset[0] + i / n);
    return TSR_OK;
}

/* The functions of this file read f64, unless a definition says more. */
static tsr_op *define(const tsr_op_def *def)
{
    tsr_op *op = NULL;
    tsr_op_def d = *def;
    d.dtypes = d.dtypes ? d.dtypes : TSR_OP_DTYPE(TSR_F64);
    if (tsr_op_define(world, &d, &op) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return op;
}

static void passes(tsr_op *op, const tsr_dims *dims)
{
    if (tsr_op_verify(op, dims, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

static void right_ones(void **state)
{
    (void)state;
    tsr_op *swish = define(TSR_OP_DEF(SWISH));
    passes(swish, (tsr_dims[]){D(5, 4), D(5, 4)});
    passes(swish, (tsr_dims[]){D(3), D(3)});
    passes(swish, (tsr_dims[]){TSR_SCALAR, TSR_SCALAR});
    tsr_op *prod = define(TSR_OP_DEF(PRODUCT));
    passes(prod, (tsr_dims[]){D(5, 7), D(7, 3)});
    passes(prod, (tsr_dims[]){D(1, 6), D(6, 1)});
    passes(prod, (tsr_dims[]){D(4, 0), D(0, 2)});
    tsr_op *facts =
        define(TSR_OP_DEF(.name = "row_facts", .inputs = 1, .outputs = 2, .rule = "!r . -> r, r",
                          .forward = row_facts, .backward = row_facts_backward,
                          .flags = TSR_OP_KEEPS_RESULTS));
    passes(facts, (tsr_dims[]){D(6, 5)});
    passes(define(TSR_OP_DEF(.name = "add_row_number", .inputs = 1, .rule = "!r@ c -> r@ c",
                             .forward = add_row_number)),
           (tsr_dims[]){D(6, 5)});
    assert_ptr_equal(tsr_op_find(world, "swish_gate"), swish);
    assert_null(tsr_op_find(world, "swish"));
}

/* Returns the message of a call on operands of these shapes; "": there is none. */
static const char *apply_to(tsr_op *op, tsr_dims a, tsr_dims b)
{
    static char text[300];
    const tsr_placement *p = tsr_placement_parse(world, "cpu:[0]");
    tsr_graph *g = tsr_graph_create(world, NULL);
    tsr_tensor *x[2] = {tsr_full(g, TSR_F64, a, p, TSR_B, 1), tsr_full(g, TSR_F64, b, p, TSR_B, 1)};
    tsr_op_apply(op, 2, x, NULL);
    snprintf(text, sizeof text, "%s", tsr_graph_status(g) == TSR_OK ? "" : tsr_last_error());
    tsr_graph_destroy(g);
    return text;
}

/* x + b, b broadcast along rows. */
static tsr_status add_bias(tsr_op_args *a)
{
    const int64_t n = count(&a->in[1]);
    for (int64_t i = 0; i < count(&a->out[0]); i++)
        f64(&a->out[0])[i] = f64(&a->in[0])[i] + f64(&a->in[1])[i % n];
    return TSR_OK;
}

static tsr_status add_bias_backward(tsr_op_args *a)
{
    const int64_t n = count(&a->in[1]);
    for (int64_t i = 0; i < n; i++)
        f64(&a->din[1])[i] = 0;
    for (int64_t i = 0; i < count(&a->dout[0]); i++) {
        f64(&a->din[0])[i] = f64(&a->dout[0])[i];
        f64(&a->din[1])[i % n] += f64(&a->dout[0])[i];
    }
    return TSR_OK;
}

/* Operands are of one shape, unless the op says that it broadcasts. */
static void broadcasts(void **state)
{
    (void)state;
    tsr_op *plain = tsr_op_find(world, "swish_gate");
    assert_string_equal(apply_to(plain, D(5, 4), D(5, 4)), "");
    assert_string_equal(apply_to(plain, D(1, 4), D(1, 4)), "");
    assert_non_null(strstr(apply_to(plain, D(5, 4), D(4)), "swish_gate: an operand is broadcast"));
    assert_non_null(strstr(apply_to(plain, D(4), D(5, 4)), "an operand is broadcast"));
    assert_non_null(strstr(apply_to(plain, D(5, 4), D(1, 4)), "an operand is broadcast"));
    assert_non_null(strstr(apply_to(plain, D(5, 4), TSR_SCALAR), "an operand is broadcast"));
    assert_non_null(strstr(apply_to(plain, D(5, 4), D(5, 3)), "size 3"));
    tsr_op *bias = define(TSR_OP_DEF(.name = "add_bias", .inputs = 2, .rule = "... + ... -> ...",
                                     .forward = add_bias, .backward = add_bias_backward,
                                     .flags = TSR_OP_BROADCASTS));
    assert_string_equal(apply_to(bias, D(5, 4), D(4)), "");
    passes(bias, (tsr_dims[]){D(6, 4), D(4)});
    passes(bias, (tsr_dims[]){D(6, 4), D(1, 4)});
    passes(bias, (tsr_dims[]){D(6, 4), D(6, 4)});
}

/* --- wrong ones ------------------------------------------------------------------------------- */
static void refused(const tsr_op_def *def, const char *why)
{
    tsr_op *op;
    assert_int_equal(tsr_op_define(world, def, &op), TSR_ERR_INVALID);
    if (!strstr(tsr_last_error(), why) || !strstr(tsr_last_error(), def->name ? def->name : "NULL"))
        fail_msg("'%s' does not say '%s'", tsr_last_error(), why);
}

static void wrong_definitions(void **state)
{
    (void)state;
    refused(TSR_OP_DEF(.inputs = 1, .rule = "... -> ...", .forward = swish_gate), "NULL");
    refused(TSR_OP_DEF(.name = "a b", .inputs = 1, .rule = "... -> ...", .forward = swish_gate),
            "letters");
    refused(TSR_OP_DEF(.name = "tanh", .inputs = 1, .rule = "... -> ...", .forward = swish_gate),
            "the library has");
    refused(TSR_OP_DEF(.name = "o", .inputs = 0, .rule = "-> ...", .forward = swish_gate),
            "0 operands");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .outputs = 4, .rule = "... -> ...",
                       .forward = swish_gate),
            "4 results");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .rule = "... -> ..."), "no forward");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .forward = swish_gate), "no rule");
    refused(TSR_OP_DEF(.name = "o", .inputs = 2, .rule = "a b -> a b", .forward = swish_gate),
            "1 operand; the op has 2");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .rule = "a b => a b", .forward = swish_gate),
            "column 5");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .rule = "a a -> a", .forward = swish_gate),
            "twice");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .rule = "... -> ...", .forward = swish_gate,
                       .backward_rule = "... -> ..."),
            "no backward");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .rule = "... -> ...", .forward = swish_gate,
                       .backward = swish_gate, .backward_rule = "..., ... -> ..., ..."),
            "backward_rule");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .rule = "... -> ...", .forward = swish_gate,
                       .options = {{"beta", 0, 1, 2}}),
            "not in [1, 2]");
    refused(TSR_OP_DEF(.name = "o", .inputs = 1, .rule = "... -> ...", .forward = swish_gate,
                       .flags = 64),
            "0x40");
    refused(TSR_OP_DEF(SWISH), "defined already");
}

static tsr_status softmax_rows(tsr_op_args *a)
{
    const int64_t n = a->in[0].shape.d[1];
    for (int64_t i = 0; i < a->in[0].shape.d[0]; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += f64(&a->out[0])[i * n + j] = exp(f64(&a->in[0])[i * n + j]);
        for (int64_t j = 0; j < n; j++)
            f64(&a->out[0])[i * n + j] /= sum;
    }
    return TSR_OK;
}

static tsr_status forgets_last(tsr_op_args *a)
{
    for (int64_t i = 0; i < count(&a->out[0]) - 1; i++)
        f64(&a->out[0])[i] = f64(&a->in[0])[i];
    return TSR_OK;
}

static tsr_status one_more(tsr_op_args *a)
{
    for (int64_t i = 0; i < count(&a->out[0]) + 1; i++)
        f64(&a->out[0])[i] = 1;
    return TSR_OK;
}

static tsr_status writes_operand(tsr_op_args *a)
{
    for (int64_t i = 0; i < count(&a->out[0]); i++)
        f64(&a->out[0])[i] = f64(&a->in[0])[i]++;
    return TSR_OK;
}

static tsr_status local_row_number(tsr_op_args *a)
{
    const int64_t n = a->in[0].shape.d[1];
    for (int64_t i = 0; i < count(&a->in[0]); i++)
        f64(&a->out[0])[i] = f64(&a->in[0])[i] + (double)(i / n);
    return TSR_OK;
}

static tsr_status square(tsr_op_args *a)
{
    for (int64_t i = 0; i < count(&a->out[0]); i++)
        f64(&a->out[0])[i] = f64(&a->in[0])[i] * f64(&a->in[0])[i];
    return TSR_OK;
}

static tsr_status square_backward(tsr_op_args *a) /* less the factor 2 */
{
    for (int64_t i = 0; i < count(&a->dout[0]); i++)
        f64(&a->din[0])[i] = f64(&a->dout[0])[i] * f64(&a->in[0])[i];
    return TSR_OK;
}

static tsr_status gradient_outside(tsr_op_args *a)
{
    for (int64_t i = -1; i < count(&a->dout[0]); i++)
        f64(&a->din[0])[i] = 1;
    return TSR_OK;
}

static tsr_status gives_up(tsr_op_args *a)
{
    (void)a;
    return tsr_set_error(TSR_ERR_STATE, "no luck today");
}

static tsr_status large_shape(tsr_op_shapes *s)
{
    s->out[0] = s->in[0];
    s->out[0].d[0]++;
    return TSR_OK;
}

static tsr_status no_shape(tsr_op_shapes *s)
{
    s->out[0].ndim = 99;
    return TSR_OK;
}

static void found(const tsr_op_def *def, const char *why)
{
    static int n;
    char name[16];
    tsr_op_def d = *def;
    snprintf(name, sizeof name, "wrong%d", n++);
    d.name = name;
    const tsr_status status = tsr_op_verify(define(&d), (tsr_dims[]){D(6, 4), D(6, 4)}, NULL);
    assert_int_not_equal(status, TSR_OK);
    if (!strstr(tsr_last_error(), why) || !strstr(tsr_last_error(), name))
        fail_msg("'%s' does not say '%s'", tsr_last_error(), why);
}

static void wrong_functions(void **state)
{
    (void)state;
    found(TSR_OP_DEF(.inputs = 1, .rule = "!r c -> r c", .forward = softmax_rows),
          "S(1) -> S(1) over 2 ranks: result 0");
    found(TSR_OP_DEF(.inputs = 1, .rule = "... -> ...", .forward = square), "P -> P over 2 ranks");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = forgets_last), "not written");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = one_more),
          "it writes at byte 192 of result 0, which has 192");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = writes_operand),
          "it changes element 0 of operand 0");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!r c -> r c", .forward = local_row_number),
          "S(0) -> S(0) over 2 ranks: result 0, part 1");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = square,
                     .backward = square_backward),
          "backward: the gradient of operand 0, element 0");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = square,
                     .backward = gradient_outside),
          "backward: it writes at byte -8 of result 0");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = gives_up), "no luck today");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = square, .shapes = large_shape),
          "has size 7");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = square, .shapes = no_shape),
          "illegal shape");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = square,
                     .backward = square_backward, .backward_rule = "!..., ... -> . 1"),
          "backward");
    found(TSR_OP_DEF(.inputs = 1, .rule = "!a b -> a c", .forward = square), "no operand");
}

/* --- operands of several dtypes --------------------------------------------------------------- */
/* Returns x[i] plus its label, f64. */
static tsr_status add_label(tsr_op_args *a)
{
    for (int64_t i = 0; i < count(&a->out[0]); i++)
        f64(&a->out[0])[i] = f64(&a->in[0])[i] + (double)((const int64_t *)a->in[1].data)[i];
    return TSR_OK;
}

static void refuses_operand(tsr_op *op, tsr_dtype first, tsr_dtype second, const char *why)
{
    tsr_graph *g = tsr_graph_create(world, NULL);
    const tsr_placement *p = tsr_placement_parse(world, "cpu:[0]");
    tsr_tensor *x[2] = {tsr_full(g, first, TSR_DIMS(3), p, TSR_B, 1),
                        tsr_full(g, second, TSR_DIMS(3), p, TSR_B, 1)};
    tsr_tensor *y = tsr_op_apply(op, 2, x, NULL);
    if (!why && !tsr_tensor_ok(y))
        fail_msg("%s", tsr_last_error());
    if (why && (tsr_tensor_ok(y) || !strstr(tsr_last_error(), why)))
        fail_msg("'%s' does not say '%s'", tsr_last_error(), why);
    tsr_graph_destroy(g);
}

/* Bytes of one dtype are never read as another's. */
static void dtypes_of_operands(void **state)
{
    (void)state;
    tsr_op *gate = tsr_op_find(world, "swish_gate");
    refuses_operand(gate, TSR_F64, TSR_F64, NULL);
    refuses_operand(gate, TSR_F64, TSR_F32, "operand 1 is f32 and operand 0 f64");
    refuses_operand(gate, TSR_F64, TSR_I64, "operand 1 is i64 and operand 0 f64");
    refuses_operand(gate, TSR_F32, TSR_F32, "operand 0 is f32, which the op does not take");
    tsr_op *labels =
        define(TSR_OP_DEF(.name = "add_label", .inputs = 2, .rule = "!..., !... -> ...",
                          .forward = add_label, .in_dtypes = {[1] = TSR_OP_DTYPE(TSR_I64)}));
    refuses_operand(labels, TSR_F64, TSR_I64, NULL);
    refuses_operand(labels, TSR_F64, TSR_F64, "operand 1 is f64, which the op does not take");
    assert_int_equal(tsr_op_verify(labels, (tsr_dims[]){D(6, 4), D(6, 4)}, NULL), TSR_OK);
    /* Functions of f64 in a definition that takes f32 too. */
    found(
        TSR_OP_DEF(.inputs = 1, .rule = "!... -> ...", .forward = square, .dtypes = TSR_OP_FLOATS),
        "forward");
}

int main(void)
{
    if (tsr_world_create(NULL, &world) != TSR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_ones),         cmocka_unit_test(broadcasts),
        cmocka_unit_test(wrong_definitions),  cmocka_unit_test(wrong_functions),
        cmocka_unit_test(dtypes_of_operands),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tsr_world_destroy(world);
    return failed;
}
