/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of autocast and gradient scalers: what they give, and what they refuse. Values are held
 * by tests/models/autocasts.py and grad_scalers.py. */
#include "rank.h"

static tsr_world *make_world(void)
{
    tsr_world *w;
    assert_int_equal(tsr_world_create(TSR_WORLD_OPTS(.threads = 1, .arena_bytes = 1 << 22), &w),
                     TSR_OK);
    return w;
}

typedef struct bench {
    tsr_world *w;
    const tsr_placement *p;
    tsr_graph *g;
    tsr_tensor *x; /* (4,6), f32 */
    tsr_module *net;
    tsr_optimizer *o;
} bench;

static bench make_bench(tsr_world *w)
{
    bench b = {.w = w, .p = tsr_placement_parse(w, "cpu")};
    b.g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    b.x = tsr_input(b.g, "x", TSR_F32, TSR_DIMS(4, 6), b.p, TSR_B);
    b.net = tsr_mlp(w, b.p, TSR_B, TSR_MLP_OPTS(.inputs = 6, .hidden = 5, .outputs = 3));
    b.o = tsr_sgd(b.net, NULL);
    assert_non_null(b.o);
    return b;
}

static tsr_tensor *loss_of(tsr_tensor *y)
{
    return tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false);
}

static void check_failed(tsr_graph *g, tsr_status expected, const char *text)
{
    const tsr_status status = tsr_graph_status(g);
    if (status != expected || !strstr(tsr_last_error(), text))
        fail_msg("%s: %s; expected %s: %s", tsr_status_name(status), tsr_last_error(),
                 tsr_status_name(expected), text);
}

/* --- autocast --------------------------------------------------------------------------------- */
static void test_regions_nest(void **state)
{
    (void)state;
    bench b = make_bench(make_world());
    tsr_tensor *w = tsr_input(b.g, "w", TSR_F32, TSR_DIMS(6, 6), b.p, TSR_B);
    assert_int_equal(tsr_tensor_dtype(tsr_matmul(b.x, w)), TSR_F32);
    tsr_autocast(b.g, TSR_BF16);
    assert_int_equal(tsr_tensor_dtype(tsr_matmul(b.x, w)), TSR_BF16);
    tsr_autocast(b.g, TSR_F32);
    assert_int_equal(tsr_tensor_dtype(tsr_matmul(b.x, w)), TSR_F32);
    tsr_autocast(b.g, TSR_F16);
    assert_int_equal(tsr_tensor_dtype(tsr_matmul(b.x, w)), TSR_F16);
    tsr_autocast_end(b.g);
    tsr_autocast_end(b.g);
    assert_int_equal(tsr_tensor_dtype(tsr_matmul(b.x, w)), TSR_BF16);
    tsr_autocast_end(b.g);
    assert_int_equal(tsr_tensor_dtype(tsr_matmul(b.x, w)), TSR_F32);
    assert_int_equal(tsr_graph_status(b.g), TSR_OK);
    tsr_autocast_end(b.g);
    check_failed(b.g, TSR_ERR_STATE, "no region is open");
    tsr_world_destroy(b.w);
}

static void test_where_it_is_said(void **state)
{
    (void)state;
    bench b = make_bench(make_world());
    tsr_graph *g = tsr_graph_create(b.w, TSR_GRAPH_OPTS(.autocast = TSR_F16));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 6), b.p, TSR_B);
    assert_int_equal(tsr_tensor_dtype(tsr_apply(b.net, x)), TSR_F16);
    assert_int_equal(tsr_tensor_dtype(tsr_apply(b.net, b.x)), TSR_F32);
    assert_int_equal(tsr_module_autocast(b.net, TSR_BF16), TSR_OK);
    assert_int_equal(tsr_tensor_dtype(tsr_apply(b.net, x)), TSR_BF16);
    assert_int_equal(tsr_tensor_dtype(tsr_apply(b.net, b.x)), TSR_BF16);
    assert_int_equal(tsr_module_autocast(b.net, TSR_F32), TSR_OK);
    assert_int_equal(tsr_tensor_dtype(tsr_apply(b.net, x)), TSR_F32);
    assert_int_equal(tsr_module_autocast(b.net, TSR_I64), TSR_ERR_DTYPE);
    assert_null(tsr_graph_create(b.w, TSR_GRAPH_OPTS(.autocast = TSR_F64)));
    tsr_autocast(b.g, TSR_F64);
    check_failed(b.g, TSR_ERR_DTYPE, "autocast to f64");
    tsr_world_destroy(b.w);
}

/* Weights and their gradients stay f32; an op outside refuses to mix, as before. */
static void test_gradients_are_f32(void **state)
{
    (void)state;
    bench b = make_bench(make_world());
    tsr_variable *v = tsr_module_find(b.net, "0.weight");
    tsr_tensor *w = tsr_read(b.g, v), *dw, *y;
    tsr_autocast(b.g, TSR_BF16);
    y = tsr_apply(b.net, b.x);
    tsr_autocast_end(b.g);
    assert_int_equal(tsr_tensor_dtype(y), TSR_BF16);
    tsr_gradients(loss_of(y), 1, &w, &dw);
    assert_int_equal(tsr_tensor_dtype(dw), TSR_F32);
    assert_int_equal(tsr_graph_status(b.g), TSR_OK);
    tsr_add(y, tsr_cast(y, TSR_F32));
    check_failed(b.g, TSR_ERR_DTYPE, "one dtype is needed");
    tsr_world_destroy(b.w);
}

/* Autocast casts the operand of tsr_to_global rather than its result. The gradient of the result
 * must still be the sum over all of its readers, in f32 and in bf16. */
static void test_gradients_of_what_is_brought(void **state)
{
    (void)state;
    bench b = make_bench(make_world());
    const float ones[4 * 6] = {[0] = 1, [7] = 1, [14] = 1};
    float got[4 * 6];
    tsr_tensor *dx, *wide, *dwide;
    tsr_tensor *w = tsr_full(b.g, TSR_F32, TSR_DIMS(6, 5), b.p, TSR_B, 2);
    tsr_autocast(b.g, TSR_BF16);
    tsr_tensor *x = tsr_to_global(b.x, b.p, TSR_S(0));
    tsr_tensor *low = tsr_sum(tsr_matmul(x, w), TSR_ALL_AXES, false); /* 10 for each element */
    tsr_gradients(tsr_add(low, tsr_sum(tsr_exp(tsr_mul_scalar(x, 0)), TSR_ALL_AXES, false)), 1, &x,
                  &dx);
    wide = tsr_cast(tsr_matmul(x, w), TSR_F32);
    tsr_gradients(tsr_sum(tsr_matmul(tsr_transpose(wide, 0, 1), x), TSR_ALL_AXES, false), 1, &wide,
                  &dwide);
    tsr_autocast_end(b.g);
    assert_int_equal(tsr_graph_status(b.g), TSR_OK);
    assert_int_equal(tsr_tensor_dtype(dx), TSR_F32);
    tsr_gradients(tsr_add(tsr_sum(tsr_mul_scalar(x, 3), TSR_ALL_AXES, false), low), 1, &x, &dx);
    tsr_plan *plan;
    tsr_output(b.g, "dx", dx, b.p, TSR_B);
    tsr_output(b.g, "dwide", dwide, b.p, TSR_B);
    assert_int_equal(tsr_compile(b.g, &plan), TSR_OK);
    assert_int_equal(tsr_feed(plan, "x", ones, sizeof ones), TSR_OK);
    assert_int_equal(tsr_run(plan), TSR_OK);
    assert_int_equal(tsr_fetch(plan, "dx", got, sizeof got), TSR_OK);
    for (int i = 0; i < 4 * 6; i++)
        assert_true(got[i] == 13);
    assert_int_equal(tsr_fetch(plan, "dwide", got, 4 * 5 * sizeof *got), TSR_OK);
    for (int i = 0; i < 4 * 5; i++) /* the sums of x's rows, of which the last is 0 */
        assert_true(got[i] == (i / 5 < 3 ? 1 : 0));
    tsr_plan_destroy(plan);
    tsr_world_destroy(b.w);
}

static void test_unsafe_loss(void **state)
{
    (void)state;
    bench b = make_bench(make_world());
    tsr_autocast(b.g, TSR_F16);
    tsr_binary_cross_entropy(b.x, b.x, TSR_MEAN);
    check_failed(b.g, TSR_ERR_DTYPE, "tsr_binary_cross_entropy_with_logits");
    tsr_world_destroy(b.w);
}

/* --- the scaler ------------------------------------------------------------------------------- */
static void test_numbers(void **state)
{
    (void)state;
    tsr_world *w = make_world();
    tsr_grad_scaler_state s, back;
    static const struct {
        tsr_grad_scaler_opts opts;
        const char *text;
    } bad[] = {
        {{.init_scale = 0, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 1},
         "a scale of 0"},
        {{.init_scale = 1e39, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 1},
         "a scale of inf"},
        {{.init_scale = 1, .growth_factor = 1, .backoff_factor = 0.5, .growth_interval = 1},
         "growth_factor is 1"},
        {{.init_scale = 1, .growth_factor = 2, .backoff_factor = 1, .growth_interval = 1},
         "backoff_factor is 1"},
        {{.init_scale = 1, .growth_factor = 2, .backoff_factor = 0.5, .growth_interval = 0},
         "growth_interval is 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tsr_grad_scaler_opts opts = bad[i].opts;
        opts.size = sizeof opts;
        opts.enabled = true;
        assert_null(tsr_grad_scaler_create(w, &opts));
        assert_non_null(strstr(tsr_last_error(), bad[i].text));
    }
    tsr_grad_scaler *scaler = tsr_grad_scaler_create(w, NULL);
    assert_int_equal(tsr_grad_scaler_get(scaler, &s), TSR_OK);
    assert_true(s.scale == 65536 && s.growth_factor == 2 && s.backoff_factor == 0.5);
    assert_true(s.growth_interval == 2000 && s.growth_tracker == 0);
    s = (tsr_grad_scaler_state){1000.1, 3, 0.25, 7, 5};
    assert_int_equal(tsr_grad_scaler_set(scaler, &s), TSR_OK);
    assert_int_equal(tsr_grad_scaler_get(scaler, &back), TSR_OK);
    assert_true(back.scale == (double)1000.1f && back.growth_tracker == 5);
    s.backoff_factor = 2;
    assert_int_equal(tsr_grad_scaler_set(scaler, &s), TSR_ERR_INVALID);
    assert_true(tsr_grad_scaler_scale(scaler) == (double)1000.1f);
    tsr_grad_scaler *off = tsr_grad_scaler_create(w, TSR_GRAD_SCALER_OPTS(.enabled = false));
    assert_true(tsr_grad_scaler_scale(off) == 1);
    tsr_grad_scaler_destroy(off);
    tsr_grad_scaler_destroy(NULL);
    tsr_world_destroy(w);
}

static void test_refused(void **state)
{
    (void)state;
    bench b = make_bench(make_world());
    tsr_grad_scaler *scaler = tsr_grad_scaler_create(b.w, NULL);
    tsr_variable *v = tsr_module_find(b.net, "0.weight");
    tsr_tensor *w = tsr_read(b.g, v), *dw, *loss = loss_of(tsr_apply(b.net, b.x));
    tsr_gradients(tsr_scale_loss(scaler, loss), 1, &w, &dw);
    tsr_tensor *low = tsr_cast(dw, TSR_F16), *again = dw;
    tsr_unscale(scaler, b.o, 1, &dw);
    assert_int_equal(tsr_graph_status(b.g), TSR_OK);
    tsr_unscale(scaler, b.o, 1, &again);
    check_failed(b.g, TSR_ERR_STATE, "unscaled already");

    bench c = make_bench(b.w);
    low = tsr_cast(c.x, TSR_F16);
    tsr_unscale(scaler, c.o, 1, &low);
    check_failed(c.g, TSR_ERR_DTYPE, "f16");

    bench d = make_bench(b.w);
    loss = loss_of(tsr_apply(d.net, d.x));
    tsr_minimize_with(d.o, 1, &loss, TSR_MINIMIZE_OPTS(.scaler = scaler, .accumulate = 2));
    check_failed(d.g, TSR_ERR_STATE, "once in 2 runs");

    bench e = make_bench(b.w);
    tsr_grad_scaler_destroy(scaler);
    loss = loss_of(tsr_apply(e.net, e.x));
    tsr_minimize_with(e.o, 1, &loss, TSR_MINIMIZE_OPTS(.scaler = scaler));
    check_failed(e.g, TSR_ERR_INVALID, "gradient scaler has been destroyed");
    tsr_world_destroy(b.w);
}

/* A run whose found_inf nobody has read yet, and what goes first. */
static void try_order(int order)
{
    bench b = make_bench(make_world());
    tsr_grad_scaler *scaler = tsr_grad_scaler_create(b.w, NULL);
    tsr_tensor *loss = loss_of(tsr_apply(b.net, b.x)), *found;
    tsr_plan *plan;
    float x[24] = {1, 2, 3};
    tsr_minimize_with(b.o, 1, &loss, TSR_MINIMIZE_OPTS(.scaler = scaler, .out_found_inf = &found));
    tsr_output(b.g, "found", found, b.p, TSR_B);
    assert_int_equal(tsr_compile(b.g, &plan), TSR_OK);
    assert_int_equal(tsr_feed(plan, "x", x, sizeof x), TSR_OK);
    assert_int_equal(tsr_run(plan), TSR_OK);
    if (order == 0) {
        tsr_optimizer_destroy(b.o);
        tsr_grad_scaler_state s;
        assert_int_equal(tsr_grad_scaler_get(scaler, &s), TSR_OK);
        assert_int_equal(s.growth_tracker, 1);
        assert_int_equal(tsr_run(plan), TSR_ERR_STATE);
    } else if (order == 1) {
        tsr_grad_scaler_destroy(scaler);
        assert_int_equal(tsr_optimizer_steps(b.o), 1);
        assert_int_equal(tsr_run(plan), TSR_ERR_STATE);
    } else if (order == 2) {
        tsr_plan_destroy(plan);
        tsr_graph_destroy(b.g);
        assert_int_equal(tsr_optimizer_steps(b.o), 1);
    }
    tsr_world_destroy(b.w);
}

static void test_orders(void **state)
{
    (void)state;
    for (int order = 0; order < 4; order++)
        try_order(order);
}

/* --- batch norm between convolutions ---------------------------------------------------------- */
enum {
    ROWS = 13,
    THIN = 16,
    WIDE = 32,
    PLANE = 10 * 9,
    RESULTS = 5,
    LARGEST = ROWS * THIN * PLANE
};

static const char *const results[RESULTS] = {"y", "dx", "dw1", "dwd", "dw2"};
static const int64_t sizes[RESULTS] = {LARGEST, LARGEST, WIDE *THIN, WIDE * 9, THIN *WIDE};

typedef struct training {
    tsr_dtype autocast;
    float got[RESULTS][LARGEST]; /* rank 0's */
} training;

static tsr_status feed(tsr_plan *plan, const char *name, int64_t n, float centre)
{
    static _Thread_local float values[LARGEST];
    for (int64_t i = 0; i < n; i++)
        values[i] = centre + (float)((i + name[0]) * 7919 % 1009) / 1009 - 0.5f;
    return tsr_feed(plan, name, values, (size_t)n * sizeof *values);
}

/* A 1x1 convolution, a depthwise and a 1x1 one, batch norm behind each, and all gradients. */
static tsr_status differentiate(tsr_world *w, void *arg)
{
    training *t = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .autocast = t->autocast));
    const tsr_dims images = TSR_DIMS(ROWS, THIN, 10, 9);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, images, p, TSR_S(0));
    tsr_tensor *to = tsr_input(g, "to", TSR_F32, images, p, TSR_S(0));
    tsr_tensor *w1 = tsr_input(g, "w1", TSR_F32, TSR_DIMS(WIDE, THIN, 1, 1), p, TSR_B);
    tsr_tensor *wd = tsr_input(g, "d", TSR_F32, TSR_DIMS(WIDE, 1, 3, 3), p, TSR_B);
    tsr_tensor *w2 = tsr_input(g, "v2", TSR_F32, TSR_DIMS(THIN, WIDE, 1, 1), p, TSR_B);
    tsr_tensor *gain = tsr_input(g, "gain", TSR_F32, TSR_DIMS(WIDE), p, TSR_B);
    tsr_tensor *level = tsr_input(g, "level", TSR_F32, TSR_DIMS(WIDE), p, TSR_B);
    tsr_tensor *gain2 = tsr_input(g, "hain", TSR_F32, TSR_DIMS(THIN), p, TSR_B);
    tsr_tensor *level2 = tsr_input(g, "mevel", TSR_F32, TSR_DIMS(THIN), p, TSR_B);
    tsr_tensor *h = tsr_conv2d(x, w1, NULL, NULL);
    h = tsr_relu6(tsr_batch_norm(h, gain, level, NULL, NULL, NULL));
    h = tsr_conv2d(h, wd, NULL, TSR_CONV2D_OPTS(.groups = WIDE, .padding = {1, 1}));
    h = tsr_relu6(tsr_batch_norm(h, gain, level, NULL, NULL, NULL));
    h = tsr_conv2d(h, w2, NULL, NULL);
    tsr_tensor *y = tsr_batch_norm(h, gain2, level2, NULL, NULL, NULL);
    tsr_tensor *of[4] = {x, w1, wd, w2}, *out[RESULTS] = {y};
    tsr_gradients(tsr_sum(tsr_mul(y, to), TSR_ALL_AXES, false), 4, of, out + 1);
    for (int i = 0; i < RESULTS; i++)
        tsr_output(g, results[i], tsr_cast(out[i], TSR_F32), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(feed(plan, "x", LARGEST, 0));
    TRY(feed(plan, "to", LARGEST, 0));
    TRY(feed(plan, "w1", WIDE * THIN, 0));
    TRY(feed(plan, "d", WIDE * 9, 0));
    TRY(feed(plan, "v2", THIN * WIDE, 0));
    TRY(feed(plan, "gain", WIDE, 1.5f));
    TRY(feed(plan, "level", WIDE, 0.5f));
    TRY(feed(plan, "hain", THIN, 1.5f));
    TRY(feed(plan, "mevel", THIN, 0));
    TRY(tsr_run(plan));
    for (int i = 0; i < RESULTS && tsr_world_rank(w) == 0; i++)
        TRY(tsr_fetch(plan, results[i], t->got[i], (size_t)sizes[i] * sizeof(float)));
    return TSR_OK;
}

/* Relative, in the Euclidean norm. */
static double distance(const float *got, const float *want, int64_t n)
{
    double apart = 0, length = 0;
    for (int64_t i = 0; i < n; i++) {
        apart += pow((double)got[i] - (double)want[i], 2);
        length += pow((double)want[i], 2);
    }
    return sqrt(apart / length);
}

/* Six roundings to bf16, of at most 2^-9 each, stand between x and y. Behind a gradient there are
 * twice as many, and one activation in some hundreds is on the other side of its bend: the square
 * root of that many is how far gradients are apart, by the reference kernels too. */
static void test_convolutions_on_ranks(void **state)
{
    (void)state;
    static training full = {.autocast = TSR_DTYPE_NONE}, low;
    static const tsr_dtype types[2] = {TSR_BF16, TSR_F16};
    assert_int_equal(tsr_spawn(1, differentiate, &full), TSR_OK);
    for (int type = 0; type < 2; type++)
        for (int ranks = 1; ranks <= 3; ranks++) {
            low.autocast = types[type];
            assert_int_equal(tsr_spawn(ranks, differentiate, &low), TSR_OK);
            for (int i = 0; i < RESULTS; i++) {
                const double apart = distance(low.got[i], full.got[i], sizes[i]);
                if (!(apart <= (i ? 0.12 : 0.012)) || apart == 0)
                    fail_msg("%s, %d ranks: %s is %.3g of its length from f32's",
                             tsr_dtype_name(types[type]), ranks, results[i], apart);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions_nest),
        cmocka_unit_test(test_where_it_is_said),
        cmocka_unit_test(test_gradients_are_f32),
        cmocka_unit_test(test_gradients_of_what_is_brought),
        cmocka_unit_test(test_unsafe_loss),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_convolutions_on_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
