/* SPDX-License-Identifier: Apache-2.0 */
/* Local graphs: programs of one rank's own, beside and between those of all ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/comm/comm.h"
#include "tests/dist/comm/rank_checks.h"
#include "src/optim/optim.h"

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static tsr_graph *own_graph(tsr_world *w, bool training)
{
    return tsr_graph_create(w, TSR_GRAPH_OPTS(.training = training, .local = true));
}

/* --- different numbers of different graphs ---------------------------------------------------- */
/* sum of (k+1) x over n elements of value v: in a graph whose shapes and ops depend on all three.
 */
static tsr_status compile_one(tsr_world *w, int n, int k, tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_local_placement(w);
    tsr_graph *g = own_graph(w, false);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(n), p, TSR_B), *y = x;
    for (int i = 0; i < k; i++)
        y = tsr_add(y, x);
    tsr_output(g, "y", tsr_sum(y, TSR_ALL_AXES, false), p, TSR_B);
    return tsr_compile(g, out_plan);
}

static tsr_status run_one(tsr_plan *plan, int n, int k, float v)
{
    float x[64];
    double y;
    for (int i = 0; i < n; i++)
        x[i] = v;
    TSRI_TRY(tsr_feed(plan, "x", x, (size_t)n * sizeof *x));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_fetch_scalar(plan, "y", &y));
    CHECK(y == (double)n * (k + 1) * (double)v);
    return TSR_OK;
}

/* All ranks: 7 elements of value 3, doubled. */
static tsr_status spmd_works(tsr_world *w)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(7), p, TSR_S(0), 3);
    float y[7];
    TSRI_TRY(tsr_eval(tsr_mul_scalar(x, 2), y, sizeof y));
    for (int i = 0; i < 7; i++)
        CHECK(y[i] == 6);
    return TSR_OK;
}

/* Rank r compiles r graphs before and n - r behind a program of all, runs them in its own order and
 * number, and takes part in all ranks' programs between. */
static tsr_status different_graphs(tsr_world *w, void *arg)
{
    (void)arg;
    enum { MOST = 8 };
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    tsr_plan *plans[MOST];
    int k = 0;
    for (; k < rank; k++)
        TSRI_TRY(compile_one(w, 5 * rank + k + 1, k, &plans[k]));
    TSRI_TRY(spmd_works(w));
    for (; k < n; k++)
        TSRI_TRY(compile_one(w, 5 * rank + k + 1, k, &plans[k]));
    for (int times = 0; times < 1 + rank; times++)
        for (int i = 0; i < n; i++) {
            int at = rank % 2 ? n - 1 - i : i;
            TSRI_TRY(run_one(plans[at], 5 * rank + at + 1, at, (float)(times + rank)));
        }
    TSRI_TRY(spmd_works(w));
    if (rank == n - 1) { /* one rank alone goes on */
        double y;
        const tsr_placement *p = tsr_local_placement(w);
        tsr_tensor *x = tsr_full(own_graph(w, false), TSR_F64, TSR_DIMS(3), p, TSR_B, 4);
        TSRI_TRY(tsr_eval(tsr_sum(x, TSR_ALL_AXES, false), &y, sizeof y));
        CHECK(y == 12);
        for (int i = 0; i < n; i += 2)
            tsr_plan_destroy(plans[i]);
        TSRI_TRY(run_one(plans[n > 1], 5 * rank + 2, 1, 9));
    }
    return spmd_works(w);
}

static void test_different_graphs(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        spawn_ok(n, different_graphs, NULL);
}

/* --- what a local graph must not hold --------------------------------------------------------- */
static tsr_status placements_elsewhere(tsr_world *w, void *arg)
{
    (void)arg;
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    char other[32], here[32];
    snprintf(other, sizeof other, "cpu:[%d]", (rank + 1) % n);
    snprintf(here, sizeof here, "here cpu:[%d]", rank);
    const tsr_placement *mine = tsr_local_placement(w), *elsewhere = tsr_placement_parse(w, other),
                        *all = tsr_placement_parse(w, "cpu");
    tsr_plan *plan;
    tsr_graph *g = own_graph(w, false);
    tsr_output(g, "y", tsr_input(g, "x", TSR_F32, TSR_DIMS(4), all, TSR_S(0)), NULL, TSR_B);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_PLACEMENT);
    CHECK_TEXT("input 'x' lives on cpu:[0");
    CHECK_TEXT(here);
    CHECK_TEXT("test_local_graphs.c:");

    g = own_graph(w, false);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4), mine, TSR_B);
    tsr_output(g, "y", x, elsewhere, TSR_B);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_PLACEMENT);
    CHECK_TEXT("output 'y' lives on ");
    CHECK_TEXT(other);

    g = own_graph(w, false);
    x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4), mine, TSR_B);
    CHECK(!tsr_tensor_ok(tsr_to_global(x, all, TSR_S(0))));
    CHECK(tsr_graph_status(g) == TSR_ERR_PLACEMENT);
    CHECK_TEXT("to_global lives on cpu:[0");

    g = own_graph(w, false);
    CHECK(!tsr_tensor_ok(tsr_full(g, TSR_F32, TSR_DIMS(4), elsewhere, TSR_B, 1)));
    CHECK(tsr_graph_status(g) == TSR_ERR_PLACEMENT);
    CHECK_TEXT("fill lives on ");

    tsr_module *net = tsr_nn_linear(w, &(tsr_nn_opts){.placement = elsewhere}, 4, 2, true);
    g = own_graph(w, false);
    x = tsr_input(g, "x", TSR_F32, TSR_DIMS(1, 4), mine, TSR_B);
    CHECK(!tsr_tensor_ok(tsr_use(net, "weight", x)));
    CHECK(tsr_graph_status(g) == TSR_ERR_PLACEMENT);
    CHECK_TEXT("variable 'weight' lives on ");
    CHECK_TEXT(here);
    CHECK(tsr_module_set_local(net) == TSR_ERR_PLACEMENT);
    CHECK_TEXT("variable weight lives on ");
    CHECK(tsr_module_set_local(NULL) == TSR_ERR_INVALID);
    return spmd_works(w);
}

static void test_placements_elsewhere(void **state)
{
    (void)state;
    spawn_ok(2, placements_elsewhere, NULL);
    spawn_ok(3, placements_elsewhere, NULL);
}

/* A rank's own errors of compiling stay its own. */
static tsr_status own_errors(tsr_world *w, void *arg)
{
    (void)arg;
    if (tsr_world_rank(w) == 1) {
        const tsr_placement *p = tsr_local_placement(w);
        tsr_graph *g = own_graph(w, false);
        tsr_plan *plan;
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 3), p, TSR_B);
        tsr_output(g, "y", tsr_matmul(x, x), p, TSR_B);
        CHECK(tsr_compile(g, &plan) == TSR_ERR_SHAPE);
        CHECK_TEXT("test_local_graphs.c:");
        CHECK(tsr_compile(own_graph(w, false), &plan) == TSR_ERR_STATE);
    }
    return spmd_works(w);
}

static void test_own_errors(void **state)
{
    (void)state;
    spawn_ok(3, own_errors, NULL);
}

/* A run that fails still tells those who wait for this rank. */
static tsr_status failing_run(tsr_world *w, void *arg)
{
    (void)arg;
    if (tsr_world_rank(w) == 1) {
        const tsr_placement *p = tsr_local_placement(w);
        tsr_graph *g = own_graph(w, false);
        tsr_tensor *table = tsr_full(g, TSR_F32, TSR_DIMS(4, 3), p, TSR_B, 1);
        tsr_tensor *ids = tsr_input(g, "ids", TSR_I64, TSR_DIMS(1), p, TSR_B);
        tsr_output(g, "y", tsr_embedding(table, ids, NULL), p, TSR_B);
        tsr_plan *plan;
        int64_t bad = 4;
        TSRI_TRY(tsr_compile(g, &plan));
        TSRI_TRY(tsr_feed(plan, "ids", &bad, sizeof bad));
        CHECK(tsr_run(plan) != TSR_OK);
        CHECK(tsr_run(plan) == TSR_ERR_STATE);
        return TSR_OK;
    }
    CHECK(spmd_works(w) == TSR_ERR_REMOTE);
    CHECK_TEXT("rank 1");
    return TSR_OK;
}

static void test_failing_run(void **state)
{
    (void)state;
    spawn_ok(3, failing_run, NULL);
}

/* --- modules and optimizers of one rank ------------------------------------------------------- */
enum { IN = 6, OUT = 3, MOST_ROWS = 5 };

/* One training step's graph: mean squared output of a linear layer with momentum SGD. From given
 * gradients, if by_hand. */
static tsr_status train_plan(tsr_world *w, const tsr_placement *p, bool local, int rows,
                             tsr_module *net, tsr_optimizer *opt, bool by_hand, tsr_plan **out_plan)
{
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = local));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, IN), p, TSR_B);
    tsr_tensor *y = tsr_apply(net, x);
    tsr_tensor *loss = tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false);
    tsr_output(g, "loss", loss, p, TSR_B);
    if (by_hand) {
        tsr_variable *params[2] = {tsr_module_find(net, "weight"), tsr_module_find(net, "bias")};
        tsr_tensor *values[2] = {tsr_use(net, "weight", x), tsr_use(net, "bias", x)}, *grads[2];
        tsr_gradients(loss, 2, values, grads);
        tsr_apply_gradients(opt, 2, params, grads);
    } else {
        tsr_minimize(opt, loss);
    }
    return tsr_compile(g, out_plan);
}

static tsr_module *make_net(tsr_world *w, const tsr_placement *p, uint64_t seed)
{
    const tsr_nn_opts o = {.placement = p, .dtype = TSR_F64, .seed = seed};
    return tsr_nn_linear(w, &o, IN, OUT, true);
}

static tsr_optimizer *make_optimizer(tsr_module *net, int kind)
{
    const tsr_schedule steps = {.kind = TSR_SCHEDULE_STEP, .step_size = 2, .gamma = 0.5};
    return kind == 0 ? tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .schedule = steps))
                     : tsr_adam(net, TSR_ADAM_OPTS(.lr = 0.1, .schedule = steps));
}

static tsr_status train(tsr_plan *plan, int rows, int seed, int steps, double *losses)
{
    double x[MOST_ROWS * IN];
    for (int i = 0; i < rows * IN; i++)
        x[i] = sin(1 + seed + 0.7 * i);
    TSRI_TRY(tsr_feed(plan, "x", x, (size_t)(rows * IN) * sizeof *x));
    for (int i = 0; i < steps; i++) {
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch_scalar(plan, "loss", &losses[i]));
    }
    return TSR_OK;
}

/* Each rank trains a model of its own with rows of its own, all alone; then, one after the other,
 * all ranks train the same on a placement of that rank, as a program of all: bits are equal. */
static tsr_status own_training(tsr_world *w, void *arg)
{
    enum { STEPS = 5 };
    const int kind = *(const int *)arg;
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    double own[STEPS], theirs[STEPS], weight[OUT * IN], shared[OUT * IN];
    const tsr_placement *p = tsr_local_placement(w);
    tsr_module *net = make_net(w, p, 5);
    TSRI_TRY(tsr_module_set_local(net));
    tsr_optimizer *opt = make_optimizer(net, kind);
    tsr_plan *plan;
    TSRI_TRY(train_plan(w, p, true, 1 + rank, net, opt, rank % 2, &plan));
    TSRI_TRY(train(plan, 1 + rank, rank, STEPS, own));
    CHECK(tsr_optimizer_steps(opt) == STEPS);
    CHECK(own[STEPS - 1] < own[0]);
    TSRI_TRY(tsr_variable_get(tsr_module_find(net, "weight"), weight, sizeof weight));
    for (int r = 0; r < n; r++) {
        char text[32];
        snprintf(text, sizeof text, "cpu:[%d]", r);
        const tsr_placement *q = tsr_placement_parse(w, text);
        tsr_module *same = make_net(w, q, 5);
        TSRI_TRY(
            train_plan(w, q, false, 1 + r, same, make_optimizer(same, kind), r % 2 == 0, &plan));
        if (r == rank)
            TSRI_TRY(train(plan, 1 + r, r, STEPS, theirs));
        TSRI_TRY(tsr_variable_get(tsr_module_find(same, "weight"), shared, sizeof shared));
        if (r != rank)
            continue;
        CHECK(!memcmp(own, theirs, sizeof own));
        CHECK(!memcmp(weight, shared, sizeof weight));
    }
    return TSR_OK;
}

static void test_own_training(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        spawn_ok(3, own_training, &kind);
}

/* Files of one rank's module: others do not take part. */
static tsr_status own_files(tsr_world *w, void *arg)
{
    const char *dir = arg;
    char path[256];
    double before[OUT * IN], after[OUT * IN];
    snprintf(path, sizeof path, "%s/net.safetensors", dir);
    if (tsr_world_rank(w) == 1) {
        tsr_module *a = make_net(w, tsr_local_placement(w), 7),
                   *b = make_net(w, tsr_local_placement(w), 8);
        TSRI_TRY(tsr_module_set_local(a));
        TSRI_TRY(tsr_module_set_local(b));
        TSRI_TRY(tsr_save(a, path));
        TSRI_TRY(tsr_variable_get(tsr_module_find(a, "weight"), before, sizeof before));
        TSRI_TRY(tsr_load(b, path, NULL));
        TSRI_TRY(tsr_variable_get(tsr_module_find(b, "weight"), after, sizeof after));
        CHECK(!memcmp(before, after, sizeof before));
        CHECK(tsr_load(b, dir, NULL) != TSR_OK);
        tsr_module *late =
            tsr_nn_sequential(w, &(tsr_nn_opts){.placement = tsr_local_placement(w)});
        TSRI_TRY(tsr_module_set_local(late));
        tsr_module_add(late, "0", make_net(w, tsr_placement_parse(w, "cpu"), 1));
        CHECK(tsr_save(late, path) == TSR_ERR_PLACEMENT);
        CHECK_TEXT("variable 0.weight lives on cpu:[0");
        unlink(path);
    }
    return spmd_works(w);
}

static void test_own_files(void **state)
{
    (void)state;
    char dir[] = "/tmp/tessera-local-XXXXXX";
    assert_non_null(mkdtemp(dir));
    spawn_ok(2, own_files, dir);
    assert_int_equal(rmdir(dir), 0);
}

/* --- updates from given gradients ------------------------------------------------------------- */
static tsr_status apply_errors(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_local_placement(w);
    tsr_module *net = make_net(w, p, 1), *other = make_net(w, p, 1);
    tsr_optimizer *opt = make_optimizer(net, 0);
    tsr_variable *weight = tsr_module_find(net, "weight"), *bias = tsr_module_find(net, "bias"),
                 *foreign = tsr_module_find(other, "weight");
    tsr_graph *g = own_graph(w, true);
    tsr_tensor *grad = tsr_full(g, TSR_F64, TSR_DIMS(OUT, IN), p, TSR_B, 1);
    tsr_apply_gradients(opt, 1, &foreign, &grad);
    CHECK(tsr_graph_status(g) == TSR_ERR_INVALID);
    CHECK_TEXT("weight is none of the optimizer's 2 parameters");

    g = own_graph(w, true);
    grad = tsr_full(g, TSR_F64, TSR_DIMS(OUT, IN), p, TSR_B, 1);
    tsr_apply_gradients(opt, 1, &bias, &grad);
    CHECK(tsr_graph_status(g) == TSR_ERR_SHAPE);
    CHECK_TEXT("the gradient of bias is f64 (3,6)");

    /* p - lr (gradient 1): once; twice in one graph is an error. */
    g = own_graph(w, true);
    tsr_tensor *grads[2] = {tsr_full(g, TSR_F64, TSR_DIMS(OUT, IN), p, TSR_B, 1), NULL};
    tsr_apply_gradients(opt, 2, (tsr_variable *[]){weight, bias}, grads);
    tsr_plan *plan;
    double before[OUT * IN], after[OUT * IN];
    TSRI_TRY(tsr_module_set_local(net));
    TSRI_TRY(tsr_variable_get(weight, before, sizeof before));
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_variable_get(weight, after, sizeof after));
    for (int i = 0; i < OUT * IN; i++)
        CHECK(fabs(before[i] - 0.1 - after[i]) < 1e-15);
    tsr_apply_gradients(opt, 2, (tsr_variable *[]){weight, bias}, grads);
    CHECK(tsr_graph_status(g) == TSR_ERR_STATE);
    return TSR_OK;
}

static void test_apply(void **state)
{
    (void)state;
    spawn_ok(2, apply_errors, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_different_graphs),
        cmocka_unit_test(test_placements_elsewhere),
        cmocka_unit_test(test_own_errors),
        cmocka_unit_test(test_failing_run),
        cmocka_unit_test(test_own_training),
        cmocka_unit_test(test_own_files),
        cmocka_unit_test(test_apply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
