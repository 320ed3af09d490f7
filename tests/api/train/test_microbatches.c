/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with micro-batches equal steps of the whole batch: losses, norms and all variables of
 * twenty steps, on 1, 2 and 4 ranks, in f64. Also refusals, memory, and bytes between ranks. */
#include "../rank.h"

enum { ROWS = 32, STEPS = 20, MOST_VALUES = 400000 };

/* Emulated GPUs are slow: three steps, in 4 parts, and no MobileNetV2. */
static bool is_slow(void)
{
    return getenv("TESSERA_TEST_DEVICE") != NULL;
}

static int steps(void)
{
    return is_slow() ? 3 : STEPS;
}

typedef enum net { MLP, GPT, MOBILENET, MASKED } net;
typedef enum layout { DATA, TENSOR, ZERO, INFERRED } layout;

typedef struct job {
    net net;
    layout layout;
    int parts;
    bool recompute, clips, scales, regathers, penalty;
    int accumulate;
} job;

typedef struct result {
    double loss[STEPS], norm[STEPS];
    double value[MOST_VALUES];
    int64_t n;
    tsr_plan_info info;
} result;

typedef struct trained {
    tsr_module *net;
    tsr_tensor *x, *y, *loss;
} trained;

static tsr_tensor *input(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                         const tsr_placement *p)
{
    return tsr_input_with(g, name, dtype, dims, p, TSR_S(0), TSR_INPUT_OPTS(.batch_axis = 0));
}

static void place(tsr_module *m, layout how)
{
    if (how == TENSOR) {
        tsr_module_place(m, "*.mlp.c_fc.weight", NULL, TSR_S(1));
        tsr_module_place(m, "*.mlp.c_fc.bias", NULL, TSR_S(0));
        tsr_module_place(m, "*.c_proj.weight", NULL, TSR_S(0));
        tsr_module_place(m, "*.attn.c_attn.weight", NULL, TSR_S(2));
        tsr_module_place(m, "*.attn.c_attn.bias", NULL, TSR_S(1));
    }
}

static void declare(tsr_world *w, tsr_graph *g, const tsr_placement *p, const job *j, trained *t)
{
    const tsr_sbp sbp = j->layout == ZERO ? TSR_S(0) : j->layout == INFERRED ? TSR_AUTO : TSR_B;
    tsr_tensor *out;
    switch (j->net) {
    case MLP:
    case MASKED:
        t->net = tsr_mlp(w, p, sbp,
                         TSR_MLP_OPTS(.inputs = 12, .hidden = 24, .outputs = 8, .dtype = TSR_F64));
        t->x = input(g, "x", TSR_F64, TSR_DIMS(ROWS, 12), p);
        t->y = input(g, "y", TSR_I64, TSR_DIMS(ROWS), p);
        out = tsr_dropout(tsr_apply(t->net, t->x), 0.3);
        t->loss = tsr_cross_entropy_with(
            out, t->y,
            TSR_CROSS_ENTROPY_OPTS(.has_ignore_index = j->net == MASKED, .ignore_index = 3,
                                   .label_smoothing = 0.1));
        break;
    case GPT:
        t->net = tsr_gpt(w, p, sbp,
                         TSR_GPT_OPTS(.vocab = 24, .positions = 6, .width = 16, .heads = 4,
                                      .layers = 2, .dropout = 0.1, .dtype = TSR_F64));
        t->x = input(g, "x", TSR_I64, TSR_DIMS(ROWS, 6), p);
        t->y = input(g, "y", TSR_I64, TSR_DIMS(ROWS * 6), p);
        place(t->net, j->layout);
        if (j->recompute)
            tsr_module_recompute(tsr_module_child(t->net, "h"));
        out = tsr_reshape(tsr_apply(t->net, t->x), TSR_DIMS(ROWS * 6, 24));
        t->loss = tsr_cross_entropy(out, t->y, TSR_MEAN);
        break;
    case MOBILENET:
        t->net = tsr_mobilenet_v2(
            w, p, sbp,
            TSR_MOBILENET_V2_OPTS(.num_classes = 8, .width = 0.1, .dropout = 0.2,
                                  .variant = TSR_MOBILENET_CIFAR, .bn = TSR_BN_LOCAL,
                                  .bn_parts = ROWS, .dtype = TSR_F64));
        t->x = input(g, "x", TSR_F64, TSR_DIMS(ROWS, 3, 8, 8), p);
        t->y = input(g, "y", TSR_I64, TSR_DIMS(ROWS), p);
        t->loss = tsr_cross_entropy(tsr_apply(t->net, t->x), t->y, TSR_MEAN);
        break;
    }
}

static tsr_status keep(tsr_variable *v, const char *name, void *arg)
{
    result *r = arg;
    const int64_t n = tsr_dims_count(tsr_variable_dims(v));
    (void)name;
    CHECK(r->n + n <= MOST_VALUES);
    TRY(tsr_variable_get(v, r->value + r->n, (size_t)n * sizeof(double)));
    r->n += n;
    return TSR_OK;
}

static tsr_status feed(tsr_plan *plan, const char *name, int step)
{
    static _Thread_local double x[ROWS * 3 * 8 * 8];
    static _Thread_local int64_t ids[ROWS * 6];
    tsr_port port = tsr_plan_port(plan, 0);
    for (int i = 1; strcmp(port.name, name) != 0; i++)
        port = tsr_plan_port(plan, i);
    const int64_t n = tsr_dims_count(port.dims);
    for (int64_t i = 0; i < n && port.dtype == TSR_F64; i++)
        x[i] = sin(1.7 * (double)i + step);
    for (int64_t i = 0; i < n && port.dtype == TSR_I64; i++)
        ids[i] = (i * 7 + i / 5 + step) % 8;
    return port.dtype == TSR_F64 ? tsr_feed(plan, name, x, (size_t)n * sizeof *x)
                                 : tsr_feed(plan, name, ids, (size_t)n * sizeof *ids);
}

/* A second loss, of weights alone: its gradient is made before the parts. */
static tsr_tensor *penalty(tsr_graph *g, tsr_module *m)
{
    tsr_tensor *weight = tsr_read(g, tsr_module_find(m, "0.weight"));
    return tsr_mul_scalar(tsr_sum(tsr_mul(weight, weight), TSR_ALL_AXES, false), 0.01);
}

static tsr_status train(tsr_world *w, const job *j, result *out)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 5));
    trained t = {0};
    tsr_plan *plan;
    tsr_tensor *norm = NULL;
    declare(w, g, p, j, &t);
    tsr_tensor *losses[2] = {t.loss, j->penalty ? penalty(g, t.net) : NULL};
    tsr_optimizer *opt = tsr_adam(t.net, TSR_ADAM_OPTS(.lr = 1e-2));
    tsr_grad_scaler *scaler = j->scales ? tsr_grad_scaler_create(w, NULL) : NULL;
    tsr_minimize_with(opt, j->penalty ? 2 : 1, losses,
                      TSR_MINIMIZE_OPTS(.clip_norm = j->clips ? 0.5 : 0, .out_norm = &norm,
                                        .scaler = scaler,
                                        .accumulate = j->accumulate ? j->accumulate : 1));
    tsr_output(g, "loss", t.loss, NULL, TSR_B);
    tsr_output(g, "norm", norm, NULL, TSR_B);
    TRY(tsr_compile_with(
        g, TSR_COMPILE_OPTS(.microbatches = j->parts, .reshard_after_forward = j->regathers),
        &plan));
    for (int s = 0; s < steps(); s++) {
        TRY(feed(plan, "x", s));
        TRY(feed(plan, "y", s));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "loss", &out->loss[s], sizeof(double)));
        TRY(tsr_fetch(plan, "norm", &out->norm[s], sizeof(double)));
    }
    out->n = 0;
    TRY(tsr_module_visit(t.net, keep, out));
    out->info.size = sizeof out->info;
    TRY(tsr_plan_get_info(plan, &out->info));
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    tsr_optimizer_destroy(opt);
    tsr_grad_scaler_destroy(scaler);
    tsr_module_destroy(t.net);
    return TSR_OK;
}

/* results: of the whole, of parts, of parts again. */
static tsr_status compare(tsr_world *w, job j, result *results)
{
    result *whole = &results[0], *parts = &results[1], *again = &results[2];
    job one = j;
    one.parts = 1;
    one.recompute = false;
    TRY(train(w, &one, whole));
    for (j.parts = is_slow() ? 4 : 2; j.parts <= (is_slow() ? 4 : 8); j.parts *= 2) {
        TRY(train(w, &j, parts));
        TRY(train(w, &j, again));
        CHECK(all_near("loss", parts->loss, whole->loss, steps(), 1e-12));
        for (int s = 0; s < steps(); s++) /* runs that do not update have none */
            CHECK(isnan(whole->norm[s])
                      ? j.accumulate > 1 && isnan(parts->norm[s])
                      : all_near("norm", &parts->norm[s], &whole->norm[s], 1, 1e-12));
        CHECK(parts->n == whole->n &&
              all_near("value", parts->value, whole->value, whole->n, 1e-11));
        CHECK(!memcmp(parts->value, again->value, (size_t)parts->n * sizeof(double)));
        CHECK(j.layout != DATA || parts->info.comm_bytes == whole->info.comm_bytes);
    }
    return TSR_OK;
}

static tsr_status as_whole(tsr_world *w, void *arg)
{
    result *results = calloc(3, sizeof *results);
    CHECK(results);
    const tsr_status status = compare(w, *(const job *)arg, results);
    free(results);
    return status;
}

static void hold(job j)
{
    for (int n = 1; n <= (is_slow() ? 2 : 4); n *= 2) {
        const tsr_status status = tsr_spawn(n, as_whole, &j);
        if (status != TSR_OK)
            fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
    }
}

static void test_mlp(void **state)
{
    (void)state;
    hold((job){.net = MLP, .clips = true});
    hold((job){.net = MLP, .layout = ZERO, .scales = true});
    hold((job){.net = MLP, .layout = INFERRED});
    hold((job){.net = MASKED});
    hold((job){.net = MLP, .accumulate = 3});
    hold((job){.net = MLP, .penalty = true});
    hold((job){.net = MLP, .layout = ZERO, .penalty = true, .clips = true});
}

static void test_gpt(void **state)
{
    (void)state;
    hold((job){.net = GPT});
    hold((job){.net = GPT, .layout = TENSOR, .clips = true});
    hold((job){.net = GPT, .layout = ZERO});
    hold((job){.net = GPT, .layout = ZERO, .regathers = true});
    hold((job){.net = GPT, .recompute = true});
}

static void test_mobilenet(void **state)
{
    (void)state;
    if (!is_slow())
        hold((job){.net = MOBILENET});
}

/* --- once a step ------------------------------------------------------------------------------ */
/* Effects happen once: a count of steps, a running maximum of the batch, a copy of its rows; the
 * parts have whole outputs by rows and by sums. */
static tsr_status effects(tsr_world *w, void *arg)
{
    (void)arg;
    enum { N = 12 };
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *root = tsr_module_create(
        w, &(tsr_nn_opts){.placement = p, .sbp = TSR_B, .dtype = TSR_F64}, NULL, NULL, NULL);
    const tsr_init zeros = {.kind = TSR_INIT_ZEROS};
    tsr_variable *count = tsr_module_buffer(root, "count", TSR_DIMS(1), TSR_B, zeros);
    tsr_variable *rows = tsr_module_buffer(root, "rows", TSR_DIMS(N, 2), TSR_S(0), zeros);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = input(g, "x", TSR_F64, TSR_DIMS(N, 2), p), *y = tsr_mul_scalar(x, 3);
    tsr_assign(count, tsr_add_scalar(tsr_read(g, count), 1));
    tsr_assign(rows, y);
    tsr_output(g, "y", y, NULL, TSR_B);
    tsr_output(g, "max", tsr_max(y, TSR_ALL_AXES, false), NULL, TSR_B);
    tsr_output(g, "mean", tsr_mean(y, TSR_ALL_AXES, false), NULL, TSR_B);
    tsr_output(g, "sorted", tsr_cumsum(x, 0), NULL, TSR_B);
    /* The mean of all, by a kernel that counts. */
    tsr_tensor *line = tsr_reshape(y, TSR_DIMS(1, 1, 1, N * 2));
    tsr_output(g, "pool", tsr_adaptive_avg_pool2d(line, 1, 1), NULL, TSR_B);
    tsr_plan *plan;
    double v[N * 2], got[N * 2], max, mean, pool, n;
    for (int i = 0; i < N * 2; i++)
        v[i] = i % 7 - 3;
    TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = tsr_world_size(w) == 4 ? 3 : 2),
                         &plan));
    TRY(tsr_feed(plan, "x", v, sizeof v));
    for (int s = 0; s < 3; s++)
        TRY(tsr_run(plan));
    TRY(tsr_variable_get(count, &n, sizeof n));
    CHECK(n == 3);
    TRY(tsr_variable_get(rows, got, sizeof got));
    for (int i = 0; i < N * 2; i++)
        CHECK(got[i] == 3 * v[i]);
    TRY(tsr_fetch(plan, "y", got, sizeof got));
    for (int i = 0; i < N * 2; i++)
        CHECK(got[i] == 3 * v[i]);
    TRY(tsr_fetch(plan, "sorted", got, sizeof got));
    for (int i = 2; i < N * 2; i++)
        CHECK(near_to(got[i], got[i - 2] + v[i], 1e-14));
    TRY(tsr_fetch(plan, "max", &max, sizeof max));
    TRY(tsr_fetch(plan, "mean", &mean, sizeof mean));
    TRY(tsr_fetch(plan, "pool", &pool, sizeof pool));
    double sum = 0;
    for (int i = 0; i < N * 2; i++)
        sum += 3 * v[i] / (N * 2);
    CHECK(max == 9 && near_to(mean, sum, 1e-14) && near_to(pool, sum, 1e-14));
    tsr_plan_destroy(plan);
    tsr_module_destroy(root);
    return TSR_OK;
}

static void test_effects(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n *= 2)
        assert_int_equal(tsr_spawn(n, effects, NULL), TSR_OK);
}

/* --- refusals --------------------------------------------------------------------------------- */
typedef enum refusal { NO_AXIS, ROWS_LEFT, NONE_OF_THEM, BATCH_NORM, CONTRAST, BACK } refusal;

static tsr_status refused(tsr_world *w, refusal r, int parts, tsr_status want, const char *text)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_module *m = r == BATCH_NORM ? tsr_convnet(w, p, TSR_B, NULL)
                                    : tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 28 * 28));
    tsr_optimizer *opt = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1));
    const tsr_dims images = TSR_DIMS(24, 1, 28, 28);
    tsr_tensor *x = r == NO_AXIS ? tsr_input(g, "x", TSR_F32, images, p, TSR_S(0))
                                 : input(g, "x", TSR_F32, images, p);
    tsr_tensor *y = tsr_apply(m, x);
    tsr_plan *plan = NULL;
    if (r == BATCH_NORM)
        tsr_minimize(opt, tsr_mean(y, TSR_ALL_AXES, false));
    else if (r == CONTRAST)
        y = tsr_sub(y, tsr_mean(tsr_matmul(y, tsr_transpose(y, 0, 1)), TSR_ALL_AXES, false));
    else if (r == BACK)
        y = tsr_div(y, tsr_max(y, TSR_ALL_AXES, false));
    tsr_output(g, "y", y, NULL, TSR_B);
    CHECK(tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = parts), &plan) == want && !plan);
    if (!strstr(tsr_last_error(), text))
        fprintf(stderr, "no '%s' in: %s\n", text, tsr_last_error());
    CHECK(strstr(tsr_last_error(), text));
    tsr_graph_destroy(g);
    tsr_optimizer_destroy(opt);
    tsr_module_destroy(m);
    return TSR_OK;
}

static tsr_status refusals(tsr_world *w, void *arg)
{
    (void)arg;
    TRY(refused(w, NO_AXIS, 2, TSR_ERR_STATE, "batch_axis"));
    TRY(refused(w, ROWS_LEFT, 5, TSR_ERR_SHAPE, "multiples of 10"));
    TRY(refused(w, NONE_OF_THEM, -1, TSR_ERR_INVALID, "-1 micro-batches"));
    TRY(refused(w, BATCH_NORM, 4, TSR_ERR_UNSUPPORTED, "TSR_BN_LOCAL"));
    TRY(refused(w, CONTRAST, 4, TSR_ERR_UNSUPPORTED, "sub"));
    TRY(refused(w, BACK, 4, TSR_ERR_UNSUPPORTED, "test_microbatches.c"));
    return TSR_OK;
}

static tsr_status differ(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_plan *plan;
    tsr_output(g, "y", tsr_mul_scalar(input(g, "x", TSR_F32, TSR_DIMS(24, 2), p), 2), NULL, TSR_B);
    CHECK(tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = 2 + tsr_world_rank(w)), &plan) ==
          TSR_ERR_MISMATCH);
    CHECK(strstr(tsr_last_error(), "microbatches"));
    return TSR_OK;
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(2, refusals, NULL), TSR_OK);
    assert_int_equal(tsr_spawn(2, differ, NULL), TSR_OK);
}

/* --- memory and time -------------------------------------------------------------------------- */
/* A GPT's step of 8 parts has a sixth of the activations at most; 1,000 parts compile as two do. */
static tsr_status sizes(tsr_world *w, void *arg)
{
    (void)arg;
    enum { ROWS_OF_ALL = 4000 };
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    size_t bytes[4];
    double seconds[4];
    static const int parts[4] = {1, 8, 2, 1000};
    for (int i = 0; i < 4; i++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        tsr_module *m = tsr_gpt(
            w, p, TSR_B,
            TSR_GPT_OPTS(.vocab = 64, .positions = 16, .width = 32, .heads = 4, .layers = 4));
        tsr_optimizer *opt = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1));
        tsr_tensor *x = input(g, "x", TSR_I64, TSR_DIMS(ROWS_OF_ALL, 16), p);
        tsr_tensor *y = input(g, "y", TSR_I64, TSR_DIMS(ROWS_OF_ALL * 16), p);
        tsr_tensor *out = tsr_reshape(tsr_apply(m, x), TSR_DIMS(ROWS_OF_ALL * 16, 64));
        tsr_minimize(opt, tsr_cross_entropy(out, y, TSR_MEAN));
        tsr_plan *plan;
        TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = parts[i]), &plan));
        tsr_plan_info info = {.size = sizeof info};
        TRY(tsr_plan_get_info(plan, &info));
        bytes[i] = info.activation_bytes;
        seconds[i] = info.compile_s;
        tsr_plan_destroy(plan);
        tsr_graph_destroy(g);
        tsr_optimizer_destroy(opt);
        tsr_module_destroy(m);
    }
    CHECK(6 * bytes[1] <= bytes[0]);
    CHECK(seconds[3] <= 3 * seconds[2]);
    return TSR_OK;
}

static void test_sizes(void **state)
{
    (void)state;
    if (!is_slow())
        assert_int_equal(tsr_spawn(1, sizes, NULL), TSR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),       cmocka_unit_test(test_gpt),
        cmocka_unit_test(test_mobilenet), cmocka_unit_test(test_effects),
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
