/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training in f16 and bf16 on CPUs, with parameters in f32 that are cast where they are used: the
 * losses of some steps are those of f32, within what the dtype can hold, on 1 to 4 ranks, whose
 * rows are uneven. Norms of gradients in f16, and what crosses ranks in f32.
 */
#include "../rank.h"

enum { ROWS = 22, IN = 24, HIDDEN = 40, CLASSES = 6, STEPS = 8 };

static tsr_tensor *use(tsr_module *m, const char *name, tsr_dtype dtype, tsr_tensor *x)
{
    return tsr_cast(tsr_use(m, name, x), dtype);
}

static tsr_module *make_net(tsr_world *w)
{
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B, .dtype = TSR_F32};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    const tsr_init normal = {.kind = TSR_INIT_NORMAL, .a = 0, .b = 0.2};
    tsr_module_param(m, "first", TSR_DIMS(HIDDEN, IN), TSR_B, normal);
    tsr_module_param(m, "gamma", TSR_DIMS(HIDDEN), TSR_B,
                     (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 1});
    tsr_module_param(m, "beta", TSR_DIMS(HIDDEN), TSR_B,
                     (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 0});
    tsr_module_param(m, "last", TSR_DIMS(CLASSES, HIDDEN), TSR_B, normal);
    return m;
}

/* A layer, its norm, gelu, attention of the batch's rows among themselves, and a classifier. */
static tsr_tensor *apply_net(tsr_module *m, tsr_dtype d, tsr_tensor *x)
{
    tsr_tensor *h = tsr_linear(tsr_cast(x, d), use(m, "first", d, x), NULL);
    h = tsr_layer_norm(h, use(m, "gamma", d, x), use(m, "beta", d, x), NULL);
    h = tsr_gelu(h, TSR_GELU_ERF);
    tsr_tensor *weights =
        tsr_softmax(tsr_mul_scalar(tsr_matmul(h, tsr_transpose(h, 0, 1)), 0.1), 1);
    h = tsr_add(h, tsr_matmul(weights, h));
    return tsr_cast(tsr_linear(h, use(m, "last", d, x), NULL), TSR_F32);
}

static tsr_status train(tsr_world *w, tsr_dtype dtype, double loss[STEPS])
{
    tsr_module *m = make_net(w);
    tsr_optimizer *opt = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.2, .momentum = 0.5));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    const tsr_placement *cpu = tsr_placement_parse(w, "cpu");
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(ROWS, IN), cpu, TSR_S(0));
    tsr_tensor *label = tsr_input(g, "label", TSR_I64, TSR_DIMS(ROWS), cpu, TSR_S(0));
    tsr_tensor *e = tsr_cross_entropy(apply_net(m, dtype, x), label, TSR_MEAN);
    tsr_minimize(opt, e);
    tsr_output(g, "loss", e, NULL, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    float rows[ROWS * IN];
    int64_t labels[ROWS];
    for (int i = 0; i < ROWS * IN; i++)
        rows[i] = (float)(i * 37 % 101) * 0.02f - 1;
    for (int i = 0; i < ROWS; i++)
        labels[i] = i * 5 % CLASSES;
    TRY(tsr_feed(plan, "x", rows, sizeof rows));
    TRY(tsr_feed(plan, "label", labels, sizeof labels));
    for (int i = 0; i < STEPS; i++) {
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "loss", &loss[i]));
    }
    return TSR_OK;
}

static tsr_status compare_losses(tsr_world *w, void *arg)
{
    double *alone = arg; /* of a rank that is alone; each dtype's */
    const tsr_dtype dtypes[3] = {TSR_F32, TSR_F16, TSR_BF16};
    const double limit[3] = {1e-5, 4e-3, 3e-2}; /* 8 units in the last place */
    double loss[3][STEPS];
    for (int d = 0; d < 3; d++) {
        TRY(train(w, dtypes[d], loss[d]));
        CHECK(loss[d][STEPS - 1] < 0.8 * loss[d][0]);
        for (int i = 0; i < STEPS; i++) {
            CHECK(near_to(loss[d][i], loss[0][i], limit[d]));
            if (tsr_world_size(w) > 1)
                CHECK(near_to(loss[d][i], alone[d * STEPS + i], limit[d]));
            else
                alone[d * STEPS + i] = loss[d][i];
        }
    }
    /* Values that are rounded to 8 bits differ from those of f32. */
    CHECK(loss[2][0] != loss[0][0]);
    return TSR_OK;
}

static void test_training(void **state)
{
    (void)state;
    double alone[3 * STEPS];
    for (int ranks = 1; ranks <= 4; ranks++)
        if (tsr_spawn(ranks, compare_losses, alone) != TSR_OK)
            fail_msg("%d ranks: %s", ranks, tsr_last_error());
}

/* --- norms of gradients ----------------------------------------------------------------------- */
/* Each gradient is 300, whose square is beyond f16: the norm of four is 600. */
static tsr_status take_norm(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *cpu = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F16, TSR_DIMS(4), cpu, TSR_S(0)), *dx;
    tsr_gradients(tsr_sum(tsr_mul_scalar(x, 300), TSR_ALL_AXES, false), 1, &x, &dx);
    tsr_output(g, "norm", tsr_global_norm(1, &dx, 2), NULL, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    const uint16_t ones[4] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
    TRY(tsr_feed(plan, "x", ones, sizeof ones));
    TRY(tsr_run(plan));
    double norm;
    TRY(tsr_fetch_scalar(plan, "norm", &norm));
    CHECK(near_to(norm, 600, 1e-6));
    return TSR_OK;
}

static void test_norm_of_gradients(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++)
        if (tsr_spawn(ranks, take_norm, NULL) != TSR_OK)
            fail_msg("%d ranks: %s", ranks, tsr_last_error());
}

/* --- what crosses ranks ----------------------------------------------------------------------- */
typedef tsr_tensor *function(tsr_tensor *x);

static tsr_tensor *sum_of(tsr_tensor *x)
{
    return tsr_sum(x, TSR_AXES(0), false);
}

static tsr_tensor *mean_of(tsr_tensor *x)
{
    return tsr_mean(x, TSR_AXES(0), false);
}

static tsr_tensor *norm_of(tsr_tensor *x)
{
    return tsr_norm(x, 2, TSR_AXES(0), false);
}

static tsr_tensor *product_of(tsr_tensor *x)
{
    return tsr_matmul_t(x, x, true, false);
}

/* Sets *out to the bytes that a function's plan sends of x (64,16), whose rows are split. */
static tsr_status count_bytes(tsr_world *w, function *f, tsr_dtype dtype, int64_t *out)
{
    const tsr_placement *cpu = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", dtype, TSR_DIMS(64, 16), cpu, TSR_S(0));
    tsr_output(g, "y", f(x), NULL, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    *out = (int64_t)info.comm_bytes;
    return TSR_OK;
}

static tsr_status compare_bytes(tsr_world *w, void *arg)
{
    (void)arg;
    static const struct {
        function *of;
        int less; /* f32's bytes over those of halves */
    } cases[] = {{sum_of, 1}, {mean_of, 1}, {norm_of, 1}, {product_of, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t full, half;
        TRY(count_bytes(w, cases[i].of, TSR_F32, &full));
        CHECK(full > 0);
        TRY(count_bytes(w, cases[i].of, TSR_F16, &half));
        CHECK(half * cases[i].less == full);
        TRY(count_bytes(w, cases[i].of, TSR_BF16, &half));
        CHECK(half * cases[i].less == full);
    }
    return TSR_OK;
}

static void test_bytes(void **state)
{
    (void)state;
    if (tsr_spawn(2, compare_bytes, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* --- the gradient of a bias ------------------------------------------------------------------- */
/* A transposed convolution along n axes, of strides 2 and 3: its phases share the bias. */
static tsr_tensor *transposed(int n, tsr_tensor *x, tsr_tensor *w, tsr_tensor *b)
{
    return n == 1   ? tsr_conv_transpose1d(x, w, b, TSR_CONV_TRANSPOSE1D_OPTS(.stride = 3))
           : n == 2 ? tsr_conv_transpose2d(x, w, b, TSR_CONV_TRANSPOSE2D_OPTS(.stride = {2, 3}))
                    : tsr_conv_transpose3d(x, w, b, TSR_CONV_TRANSPOSE3D_OPTS(.stride = {2, 1, 2}));
}

/* The gradient is the sum of y's, whose numbers are exact in each dtype: it is rounded once. */
static tsr_status check_bias(tsr_world *w, int n, int turn, tsr_dtype dtype, double unit)
{
    enum { MOST = 4096 };
    const tsr_dims xs[] = {TSR_DIMS(2, 2, 9), TSR_DIMS(1, 2, 5, 6), TSR_DIMS(1, 2, 3, 4, 5)},
                   ws[] = {TSR_DIMS(2, 1, 4), TSR_DIMS(2, 1, 3, 4), TSR_DIMS(2, 1, 3, 2, 3)};
    const tsr_placement *cpu = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, dtype, xs[n - 1], cpu, TSR_B, 1), *db;
    tsr_tensor *k = tsr_full(g, dtype, ws[n - 1], cpu, TSR_B, 1);
    tsr_tensor *b = tsr_full(g, dtype, TSR_DIMS(1), cpu, TSR_B, 0);
    tsr_tensor *y = transposed(n, x, k, b);
    float dy[MOST], got;
    double sum = 0;
    const int64_t count = tsr_dims_count(tsr_tensor_dims(y));
    CHECK(count > 0 && count <= MOST);
    for (int64_t i = 0; i < count; i++)
        sum += dy[i] = (float)rint(192 * sin(1.7 * (double)(i * i) + turn)) / 64;
    tsr_tensor *given = tsr_constant(g, TSR_F32, tsr_tensor_dims(y), dy, cpu, TSR_B);
    tsr_gradients(tsr_sum(tsr_mul(y, tsr_cast(given, dtype)), TSR_ALL_AXES, false), 1, &b, &db);
    TRY(tsr_eval(tsr_cast(db, TSR_F32), &got, sizeof got));
    if (fabs(got - sum) > fabs(sum) * unit / 2)
        fprintf(stderr, "%d axes: %.9g, not %.9g\n", n, (double)got, sum);
    CHECK(fabs(got - sum) <= fabs(sum) * unit / 2);
    tsr_graph_destroy(g);
    return TSR_OK;
}

static tsr_status check_biases(tsr_world *w, void *arg)
{
    (void)arg;
    for (int i = 0; i < 24; i++) {
        TRY(check_bias(w, 1 + i % 3, i / 3, TSR_F16, ldexp(1, -10)));
        TRY(check_bias(w, 1 + i % 3, i / 3, TSR_BF16, ldexp(1, -7)));
    }
    return TSR_OK;
}

static void test_bias(void **state)
{
    (void)state;
    if (tsr_spawn(1, check_biases, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training),
                                       cmocka_unit_test(test_norm_of_gradients),
                                       cmocka_unit_test(test_bytes), cmocka_unit_test(test_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
