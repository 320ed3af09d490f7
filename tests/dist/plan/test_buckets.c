/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism: how many calls reduce the gradients of a deep perceptron, when they are waited
 * for, what inference and the plan take them for, and that the values are those of one rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/status.h"
#include "tests/dist/comm/rank_checks.h"

static tsr_module *declare(tsr_world *w, const tsr_placement *p, int layers, int64_t width,
                           tsr_dtype dtype, tsr_sbp sbp)
{
    const tsr_nn_opts nn = {.placement = p, .sbp = sbp, .dtype = dtype, .seed = 3};
    tsr_module *net = tsr_module_create(w, &nn, NULL, NULL, NULL);
    char name[16];
    for (int i = 0; i < layers && net; i++) {
        snprintf(name, sizeof name, "%d", i);
        if (!tsr_module_add(net, name, tsr_nn_linear(w, &nn, width, width, true)))
            return NULL;
    }
    return net;
}

static tsr_tensor *loss_of(tsr_module *net, tsr_tensor *x)
{
    tsr_module *layer;
    for (int i = 0; (layer = tsr_module_child_at(net, i)); i++)
        x = tsr_apply(layer, x);
    return tsr_mean(tsr_mul(x, x), TSR_ALL_AXES, false);
}

/* How a program lays out optimizer states and gradients. */
typedef enum layout_way {
    WHOLE = 0,
    SPLIT_STATES, /* gradients as the updates read them: ZeRO-2 */
    SUMMED,       /* states are split; gradients are brought into B first: ZeRO-1 */
    SCATTERED,    /* gradients are brought into S(0) first */
    NWAYS
} layout_way;

enum { LAYERS = 40 };

/* The parameters of a module, in order. */
typedef struct parameters {
    tsr_variable *v[2 * LAYERS];
    int n;
} parameters;

static tsr_status list_parameter(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    parameters *all = arg;
    all->v[all->n++] = v;
    return TSR_OK;
}

/* Declares the updates of all parameters of `net`. */
static tsr_status update(tsr_graph *g, tsr_optimizer *opt, tsr_module *net, tsr_tensor *loss,
                         layout_way way)
{
    parameters all = {.n = 0};
    tsr_tensor *values[2 * LAYERS], *grads[2 * LAYERS];
    TSRI_TRY(tsr_module_visit(net, list_parameter, &all));
    for (int i = 0; i < all.n; i++)
        values[i] = tsr_read(g, all.v[i]);
    tsr_gradients(loss, all.n, values, grads);
    for (int i = 0; i < all.n && way >= SUMMED; i++)
        grads[i] = tsr_to_global(grads[i], NULL, way == SUMMED ? TSR_B : TSR_S(0));
    tsr_apply_gradients(opt, all.n, all.v, grads);
    return TSR_OK;
}

/* --- how many --------------------------------------------------------------------------------- */
/* Calls of a kind that the plan's text counts for a run. */
static int count_calls(const char *text, const char *kind)
{
    int calls = 0;
    char line[32];
    snprintf(line, sizeof line, "\n  %s ", kind);
    const char *at = strstr(strstr(text, "communication of rank"), line);
    return at && sscanf(at + strlen(line), "%d calls", &calls) == 1 ? calls : 0;
}

/* Updates use what a bucket brought, and gathers of their results start, before the next bucket is
 * waited for. One that scatters is waited for in backward, before the next one starts. */
static void check_waits(const char *text, bool gathers, bool scatters)
{
    static const char wait[] = "wait gradient bucket", update_text[] = "\n  sgd ";
    const char *at = strstr(text, wait), *last_update = strstr(text, update_text);
    for (const char *next; at && (next = strstr(at + 1, wait)); at = next) {
        const char *update = strstr(at, update_text), *gather = strstr(at, "update bucket");
        const char *work = strstr(at, "\n  linear_d"), *sum = strstr(at, "\n  sum ");
        const bool in_backward = scatters && strstr(next + 1, wait);
        work = !work || (sum && sum < work) ? sum : work;
        if (in_backward ? !work || work > next : !update || update > next)
            fail_msg("nothing is done between %.24s and %.24s", at, next);
        if (gathers && !scatters && (!gather || gather > next))
            fail_msg("no gather starts between %.24s and %.24s", at, next);
    }
    for (const char *more = last_update; more; more = strstr(more + 1, update_text))
        last_update = more;
    at = strstr(text, "update bucket");
    for (const char *next = at; next && (next = strstr(next + 1, "update bucket"));)
        if (strncmp(next - 5, "wait ", 5) != 0 && at > last_update)
            fail_msg("no update stands behind the first of several gathers");
}

static void check_counts(int n, int64_t width, int64_t rows, double mb, layout_way way)
{
    static const struct {
        const char *reduces, *none[4];
        bool gathers;
    } want[NWAYS] = {
        {"all_reduce", {"all_gather", "reduce_scatter", "all_to_all", "send_recv"}, false},
        {"reduce_scatter", {"all_to_all", "send_recv"}, true},
        {"all_reduce", {"reduce_scatter", "all_to_all", "send_recv"}, true},
        {"reduce_scatter", {"all_to_all", "send_recv"}, true},
    };
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(n, 0, &w), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = declare(w, p, LAYERS, width, TSR_F32, TSR_B);
    tsr_optimizer *opt =
        tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .state = way ? TSR_S(0) : TSR_AUTO));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *loss = loss_of(net, tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, width), p, TSR_S(0)));
    assert_int_equal(update(g, opt, net, loss, way), TSR_OK);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    tsr_plan_info info = {.size = sizeof info};
    if (tsr_compile_with(g, TSR_COMPILE_OPTS(.bucket_mb = mb), &plan) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(tsr_plan_get_info(plan, &info), TSR_OK);
    const char *text = tsr_plan_explain(plan);
    double bytes = LAYERS * 4.0 * (double)(width * width + width), limit = mb * 1048576;
    int calls = count_calls(text, "all_reduce") + count_calls(text, "reduce_scatter");
    const int gathers = count_calls(text, "all_gather"), most = (int)ceil(bytes / limit) + 1;
    if (calls < 2 || calls > most || !count_calls(text, want[way].reduces))
        fail_msg("%d ranks, width %d, %g MiB, way %d: %d reductions, at most %d", n, (int)width, mb,
                 way, calls, most);
    if (want[way].gathers && (gathers < 1 || gathers > most))
        fail_msg("%d ranks, width %d, %g MiB, way %d: %d gathers, at most %d", n, (int)width, mb,
                 way, gathers, most);
    check_waits(text, want[way].gathers, way == SPLIT_STATES || way == SCATTERED);
    for (int i = 0; i < 4 && want[way].none[i]; i++)
        if (count_calls(text, want[way].none[i]))
            fail_msg("%d ranks, width %d, %d rows, way %d: %s", n, (int)width, (int)rows, way,
                     want[way].none[i]);
    if (!info.exact || fabs(info.step_s - info.cost_s) > 1e-6 * info.cost_s)
        fail_msg("%d ranks, width %d: the plan takes %.9g s, inference took it for %.9g, exact %d",
                 n, (int)width, info.step_s, info.cost_s, info.exact);
    tsr_world_destroy(w);
}

static void test_counts(void **state)
{
    (void)state;
    static const int64_t widths[] = {16, 100, 256, 740};
    for (int n = 2; n <= 8; n *= 2)
        for (int i = 0; i < 4; i++)
            for (int64_t rows = 8; rows <= 512; rows *= 8) {
                check_counts(n, widths[i], rows, 4, WHOLE);
                check_counts(n, widths[i], rows, 0.3, WHOLE);
            }
    /* Where nothing holds the program to data parallelism, work has to be worth it. */
    for (int n = 2; n <= 8; n *= 2)
        for (int way = SPLIT_STATES; way < NWAYS; way++)
            for (int64_t width = 100; width <= 200; width += 25) {
                check_counts(n, width, 4096, 4, way);
                check_counts(n, width, 4096, 0.3, way);
            }
}

/* --- what they give --------------------------------------------------------------------------- */
enum { DEEP = 5, WIDE = 6, STEPS = 3, NVALUES = DEEP * (WIDE * WIDE + WIDE) };

typedef struct training {
    double value[NVALUES]; /* all parameters of one rank, after the steps */
} training;

typedef struct walk {
    char *to;
} walk;

static tsr_status take(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    walk *all = arg;
    const size_t bytes =
        (size_t)tsr_dims_count(tsr_variable_dims(v)) * tsr_dtype_size(tsr_variable_dtype(v));
    TSRI_TRY(tsr_variable_get(v, all->to, bytes));
    all->to += bytes;
    return TSR_OK;
}

/* Trains in f64 (out has NVALUES f64), or (mixed) in f32 with products in bf16. */
static tsr_status train_in(tsr_world *w, bool mixed, tsr_sbp params, tsr_sbp states, layout_way way,
                           const tsr_compile_opts *opts, void *out)
{
    const tsr_dtype dtype = mixed ? TSR_F32 : TSR_F64;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = declare(w, p, DEEP, WIDE, dtype, params);
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.3, .momentum = 0.9, .state = states));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_uniform(g, "x", dtype, TSR_DIMS(7, WIDE), p, TSR_S(0), -1, 1);
    if (mixed)
        tsr_autocast(g, TSR_BF16);
    tsr_tensor *loss = loss_of(net, x);
    if (mixed)
        tsr_autocast_end(g);
    TSRI_TRY(update(g, opt, net, loss, way));
    tsr_plan *plan;
    TSRI_TRY(tsr_compile_with(g, opts, &plan));
    for (int i = 0; i < STEPS; i++)
        TSRI_TRY(tsr_run(plan));
    walk all = {out};
    TSRI_TRY(tsr_module_visit(net, take, &all));
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    tsr_optimizer_destroy(opt);
    tsr_module_destroy(net);
    return TSR_OK;
}

static tsr_status train(tsr_world *w, tsr_sbp params, tsr_sbp states, layout_way way,
                        const tsr_compile_opts *opts, double *out)
{
    return train_in(w, false, params, states, way, opts, out);
}

static tsr_status train_all_ways(tsr_world *w, void *arg)
{
    training *one = arg;
    const struct {
        tsr_sbp params, states;
        layout_way way;
    } ways[] = {{TSR_B, TSR_AUTO, WHOLE},       {TSR_B, TSR_S(0), SPLIT_STATES},
                {TSR_S(0), TSR_AUTO, WHOLE},    {TSR_AUTO, TSR_AUTO, WHOLE},
                {TSR_B, TSR_S(0), SUMMED},      {TSR_B, TSR_S(0), SCATTERED},
                {TSR_S(0), TSR_AUTO, SCATTERED}};
    const double sizes[] = {4, 0.0005, 0};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int k = 0; k < 3 * 2; k++) {
            double value[NVALUES], alone[NVALUES];
            const tsr_compile_opts *opts =
                TSR_COMPILE_OPTS(.bucket_mb = sizes[k % 3], .infer_updates = k / 3);
            tsr_compile_opts held =
                *TSR_COMPILE_OPTS(.bucket_mb = sizes[k % 3], .nlinks = 1,
                                  .link[0] = {.ranks = 2, .latency_s = 1e-15, .bytes_per_s = 1e6});
            TSRI_TRY(train(w, ways[i].params, ways[i].states, ways[i].way, opts, value));
            if (tsr_world_size(w) == 1)
                memcpy(one->value, value, sizeof value);
            for (int j = 0; j < NVALUES; j++)
                CHECK(fabs(value[j] - one->value[j]) <= 1e-12);
            if (tsr_world_size(w) > 2 || k / 3)
                continue;
            /* Without hand-shakes buckets change no price, and so no signature; and sums of two
             * have one order: buckets change no bit. */
            TSRI_TRY(train(w, ways[i].params, ways[i].states, ways[i].way, &held, value));
            held.bucket_mb = 0;
            TSRI_TRY(train(w, ways[i].params, ways[i].states, ways[i].way, &held, alone));
            CHECK(!memcmp(value, alone, sizeof value));
        }
    return TSR_OK;
}

static void test_values(void **state)
{
    (void)state;
    static training one;
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};
    for (int n = 1; n <= 4; n++)
        if (tsr_spawn_with(n, train_all_ways, &one, &opts) != TSR_OK)
            fail_msg("%d ranks: %s", n, tsr_last_error());
}

/* --- weights that are gathered again ---------------------------------------------------------- */
/* Compiles a net whose parameters are split, and gathered where they are used, for n ranks. */
static tsr_plan_info sharded(tsr_world *w, bool again, int *out_gathers)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = declare(w, p, LAYERS, 100, TSR_F32, TSR_S(0));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2048, 100), p, TSR_S(0));
    tsr_minimize(opt, loss_of(net, x));
    tsr_plan *plan;
    tsr_plan_info info = {.size = sizeof info};
    if (tsr_compile_with(g, TSR_COMPILE_OPTS(.bucket_mb = 0.1, .reshard_after_forward = again),
                         &plan) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(tsr_plan_get_info(plan, &info), TSR_OK);
    *out_gathers = count_calls(tsr_plan_explain(plan), "all_gather");
    return info;
}

/* Backward gathers all weights again but the last layer's, which stays, and the first one's, which
 * it does not read: biases neither. So a step holds less. */
static void test_gathered_again(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n *= 2) {
        tsr_world *w;
        int once, twice;
        assert_int_equal(tsr_world_create_virtual(n, 0, &w), TSR_OK);
        const tsr_plan_info kept = sharded(w, false, &once), freed = sharded(w, true, &twice);
        const uint64_t weight = 100 * 100 * 4, sent = weight / (uint64_t)n * ((uint64_t)n - 1);
        assert_int_equal(once, 2 * LAYERS);
        assert_int_equal(twice, once + LAYERS - 2);
        assert_int_equal(freed.comm_bytes - kept.comm_bytes, (LAYERS - 2) * sent);
        assert_true(freed.step_s > kept.step_s);
        /* Two thirds of the weights at least: buckets and activations take a part of that. */
        if (freed.activation_bytes + LAYERS * weight / 3 > kept.activation_bytes)
            fail_msg("%d ranks: %zu bytes, and %zu where weights stay", n, freed.activation_bytes,
                     kept.activation_bytes);
        tsr_world_destroy(w);
    }
}

/* Gathered again, weights are the same: no bit changes. */
static tsr_status train_again(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_sbp ways[] = {TSR_S(0), TSR_S(0), TSR_AUTO};
    for (int i = 0; i < 6; i++) {
        double kept[NVALUES] = {0}, freed[NVALUES] = {0};
        tsr_compile_opts opts = *TSR_COMPILE_OPTS(.bucket_mb = i % 3 ? 0.0005 : 4);
        TSRI_TRY(train_in(w, i >= 3, ways[i % 3], TSR_AUTO, WHOLE, &opts, kept));
        opts.reshard_after_forward = true;
        TSRI_TRY(train_in(w, i >= 3, ways[i % 3], TSR_AUTO, WHOLE, &opts, freed));
        CHECK(!memcmp(kept, freed, sizeof kept));
    }
    return TSR_OK;
}

static void test_bits(void **state)
{
    (void)state;
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};
    for (int n = 1; n <= 4; n++)
        if (tsr_spawn_with(n, train_again, NULL, &opts) != TSR_OK)
            fail_msg("%d ranks: %s", n, tsr_last_error());
}

/* --- between placements ----------------------------------------------------------------------- */
/* Small parameters live on two of six ranks, the loss on all: the plan converts their gradients in
 * buckets that go from the one placement to the other. */
static tsr_status train_across(tsr_world *w, void *arg)
{
    const tsr_compile_opts *how = arg;
    static const char *const names[] = {"one", "mean", "sum", "weight", "bias"};
    const tsr_dims dims[] = {TSR_SCALAR, TSR_DIMS(7), TSR_DIMS(5), TSR_DIMS(1, 3), TSR_DIMS(1)};
    static const bool grows[] = {true, false, false, true, true}; /* the loss, with the parameter */
    const tsr_placement *all = tsr_placement_parse(w, "cpu:[0,4,2,3,1,5]");
    const tsr_placement *some = tsr_placement_parse(w, "cpu:[4,0]");
    const tsr_nn_opts nn = {.placement = all, .dtype = TSR_F64, .seed = 85};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_tensor *v[5];
    for (int i = 0; i < 5; i++) {
        tsr_module_param(m, names[i], dims[i], i ? TSR_AUTO : TSR_B,
                         (tsr_init){.kind = TSR_INIT_ONES});
        if (i)
            tsr_module_place(m, names[i], some, TSR_B);
    }
    tsr_optimizer *opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.25, .state = TSR_AUTO));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *in = tsr_input(g, "in", TSR_F64, TSR_DIMS(8, 3), some, TSR_B);
    tsr_tensor *near = tsr_input(g, "near", TSR_F64, TSR_DIMS(8, 2), all, TSR_AUTO);
    for (int i = 0; i < 5; i++)
        v[i] = tsr_use(m, names[i], near);
    tsr_tensor *loss =
        tsr_sub(v[0], tsr_to_global(tsr_mean(v[1], TSR_ALL_AXES, false), all, TSR_B));
    loss = tsr_sub(loss, tsr_to_global(tsr_sum(v[2], TSR_ALL_AXES, false), all, TSR_B));
    tsr_tensor *line = tsr_mean(tsr_linear(in, v[3], v[4]), TSR_ALL_AXES, false);
    loss = tsr_add(loss, tsr_to_global(line, all, TSR_AUTO));
    tsr_minimize(opt, tsr_add(loss, loss));
    tsr_plan *plan;
    TSRI_TRY(tsr_compile_with(g, how, &plan));
    double x[24], got[7];
    for (int i = 0; i < 24; i++)
        x[i] = 0.5;
    TSRI_TRY(tsr_feed(plan, "in", x, sizeof x));
    TSRI_TRY(tsr_feed(plan, "near", (double[16]){0}, 16 * sizeof(double)));
    TSRI_TRY(tsr_run(plan));
    for (int i = 0; i < 5; i++) {
        const int64_t n = tsr_dims_count(dims[i]);
        TSRI_TRY(tsr_variable_get(tsr_module_find(m, names[i]), got, (size_t)n * sizeof *got));
        for (int64_t k = 0; k < n; k++) /* Adam's first step is the rate, by the gradient's sign */
            CHECK(fabs(got[k] - (grows[i] ? 0.75 : 1.25)) < 1e-6);
    }
    return TSR_OK;
}

static void test_across(void **state)
{
    (void)state;
    const tsr_compile_opts *ways[] = {TSR_COMPILE_OPTS(.bucket_mb = 0),
                                      TSR_COMPILE_OPTS(.bucket_mb = 0, .no_fusion = 1, .nlinks = 1,
                                                       .link = {{0, 1e-12, 1e15}},
                                                       .flops_per_s = 1e3)};
    for (int i = 0; i < 2; i++)
        if (tsr_spawn(6, train_across, (void *)(uintptr_t)ways[i]) != TSR_OK)
            fail_msg("way %d: %s", i, tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_gathered_again),
                                       cmocka_unit_test(test_bits), cmocka_unit_test(test_across)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
