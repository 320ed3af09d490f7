/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on a device with streams: captured runs give what single steps give, programs with CPUs and
 * GPUs in them give what CPUs alone give, and errors of asynchronous work surface. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/status.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/rank_checks.h"
#include <tessera/tessera.h>

enum { STEPS = 6, ROWS = 12, IN = 10 };

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

/* --- captured runs ---------------------------------------------------------------------------- */
typedef struct training {
    const char *where;
    double loss[STEPS];
    bool captured;
} training;

/* Other rows and another learning rate at each step; dropout draws anew. */
static tsr_status train(tsr_world *w, void *arg)
{
    training *t = arg;
    const tsr_placement *p = tsr_placement_parse(w, t->where);
    tsr_module *net = tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = IN, .dtype = TSR_F64));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, IN), p, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(ROWS), p, TSR_B);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, tsr_dropout(x, 0.3)), y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    for (int s = 0; s < STEPS; s++) {
        double rows[ROWS * IN];
        int64_t labels[ROWS];
        for (int i = 0; i < ROWS * IN; i++)
            rows[i] = sin(0.7 * i + s);
        for (int i = 0; i < ROWS; i++)
            labels[i] = (i + s) % 10;
        TSRI_TRY(tsr_feed(plan, "x", rows, sizeof rows));
        TSRI_TRY(tsr_feed(plan, "y", labels, sizeof labels));
        tsr_optimizer_set_lr(opt, 0.1 / (s + 1));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch_scalar(plan, "loss", &t->loss[s]));
    }
    t->captured = plan->replay.capture[0].nparts > 0;
    return TSR_OK;
}

static void test_captured(void **state)
{
    (void)state;
    training cpu = {.where = "cpu:[0]"}, cuda = {.where = "cuda:[0]"};
    training stepwise = {.where = "cuda:[0]"};
    spawn_ok(1, train, &cpu);
    spawn_ok(1, train, &cuda);
    setenv("TESSERA_CUDA_GRAPH", "0", 1);
    spawn_ok(1, train, &stepwise);
    unsetenv("TESSERA_CUDA_GRAPH");
    assert_false(cpu.captured);
    assert_true(cuda.captured);
    assert_false(stepwise.captured);
    for (int s = 0; s < STEPS; s++) {
        assert_true(cuda.loss[s] == stepwise.loss[s]);
        if (!(fabs(cuda.loss[s] - cpu.loss[s]) <= 1e-12 * fabs(cpu.loss[s])))
            fail_msg("step %d: %.17g on cuda, %.17g on cpu", s, cuda.loss[s], cpu.loss[s]);
    }
    assert_true(cuda.loss[0] != cuda.loss[1]);
}

/* --- both kinds ------------------------------------------------------------------------------- */
typedef struct mixed {
    const char *a, *b;
    tsr_sbp sa, sb;
} mixed;

/* x on a, doubled on b, squared on a again; and the gradient of that. */
static tsr_status cross_twice(tsr_world *w, void *arg)
{
    const mixed *m = arg;
    const tsr_placement *a = tsr_placement_parse(w, m->a), *b = tsr_placement_parse(w, m->b);
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(5, 7), a, m->sa);
    tsr_tensor *y = tsr_mul_scalar(tsr_to_global(x, b, m->sb), 2);
    tsr_tensor *z = tsr_mul(tsr_to_global(y, a, m->sa), x);
    tsr_tensor *dx;
    tsr_gradients(tsr_sum(z, TSR_ALL_AXES, false), 1, &x, &dx);
    tsr_output(g, "z", z, a, TSR_B);
    tsr_output(g, "dx", dx, a, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    for (int s = 0; s < 3; s++) {
        float data[35], got[35];
        for (int i = 0; i < 35; i++)
            data[i] = (float)(i - 10 + s);
        TSRI_TRY(tsr_feed(plan, "x", data, sizeof data));
        TSRI_TRY(tsr_run(plan));
        if (tsr_placement_find(a, tsr_world_rank(w)) < 0)
            continue;
        TSRI_TRY(tsr_fetch(plan, "z", got, sizeof got));
        for (int i = 0; i < 35; i++)
            CHECK(got[i] == 2 * data[i] * data[i]);
        TSRI_TRY(tsr_fetch(plan, "dx", got, sizeof got));
        for (int i = 0; i < 35; i++)
            CHECK(got[i] == 4 * data[i]);
    }
    return TSR_OK;
}

static void test_mixed(void **state)
{
    (void)state;
    static const char *const places[][2] = {
        {"cpu:[0]", "cuda:[0]"},       {"cuda:[0]", "cpu:[0]"},   {"cpu:[0,1]", "cuda:[1,0]"},
        {"cuda:[0,1]", "cpu:[2]"},     {"cpu:[2,0]", "cuda:[1]"}, {"cpu:[0,1,2]", "cuda:[2,1]"},
        {"cuda:[1,2]", "cpu:[0,1,2]"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int s = 0; s < 9; s++) {
            const tsr_sbp sbp[] = {TSR_B, TSR_S(0), TSR_S(1)};
            mixed m = {places[i][0], places[i][1], sbp[s / 3], sbp[s % 3]};
            spawn_ok(i < 2 ? 1 : 3, cross_twice, &m);
        }
}

/* --- errors of what runs later ---------------------------------------------------------------- */
static tsr_status take_rows(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(4, 3), p, TSR_B, 1.5);
    tsr_tensor *ids = tsr_input(g, "ids", TSR_I64, TSR_DIMS(2), p, TSR_B);
    tsr_output(g, "y", tsr_index_select(x, 0, ids), p, TSR_B);
    tsr_plan *plan, *other;
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_compile(g, &other));
    int64_t good[] = {3, 0}, bad[] = {1, 4};
    float y[6];
    TSRI_TRY(tsr_feed(plan, "ids", good, sizeof good));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_fetch(plan, "y", y, sizeof y));
    CHECK(y[0] == 1.5f && y[5] == 1.5f);
    TSRI_TRY(tsr_feed(plan, "ids", bad, sizeof bad));
    tsr_status status = tsr_run(plan);
    tsr_plan_destroy(other); /* waits for the device, and leaves the error to whose it is */
    if (status == TSR_OK)
        status = tsr_fetch(plan, "y", y, sizeof y);
    CHECK(status == TSR_ERR_INVALID);
    CHECK(strstr(tsr_last_error(), "id 4, element 1 of the ids, is not in 0 <= id < 4"));
    CHECK(tsr_run(plan) == TSR_ERR_STATE && strstr(tsr_last_error(), "id 4"));
    return TSR_OK;
}

/* The step that fails is named also behind updates that are one step. */
static tsr_status take_rows_after_updates(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0]");
    tsr_module *net = tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 3, .hidden = 4, .outputs = 2));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(4, 3), p, TSR_B, 1.5);
    tsr_tensor *ids = tsr_input(g, "ids", TSR_I64, TSR_DIMS(2), p, TSR_B);
    tsr_minimize(tsr_sgd(net, NULL), tsr_sum(tsr_apply(net, x), TSR_ALL_AXES, false));
    tsr_variable *weight = tsr_module_find(net, "0.weight");
    CHECK(weight);
    tsr_tensor *updated = tsri_graph_current(g, weight, (tsri_loc){__FILE__, __LINE__});
    tsr_output(g, "y", tsr_index_select(updated, 0, ids), p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    int joined = -1, gather = -1;
    for (int i = 0; i < plan->nsteps; i++) {
        joined = plan->steps[i].nparts > 1 ? i : joined;
        gather = plan->steps[i].item->kernel.op == TSRI_OP_INDEX_SELECT ? i : gather;
    }
    CHECK(joined >= 0 && gather > joined);
    const int64_t bad[] = {1, 4};
    float y[6];
    TSRI_TRY(tsr_feed(plan, "ids", bad, sizeof bad));
    tsr_status status = tsr_run(plan);
    if (status == TSR_OK)
        status = tsr_fetch(plan, "y", y, sizeof y);
    CHECK(status == TSR_ERR_INVALID);
    CHECK(strstr(tsr_last_error(), ": index_select: id 4, element 1"));
    CHECK(!strstr(tsr_last_error(), "index_select: index_select"));
    return TSR_OK;
}

static void test_late_error(void **state)
{
    (void)state;
    spawn_ok(1, take_rows, NULL);
    spawn_ok(1, take_rows_after_updates, NULL);
}

/* --- losses that are not finite --------------------------------------------------------------- */
typedef struct lossy {
    tsr_dtype dtype;
    tsr_on_nan on_nan;
    tsr_status fetched[3];
    char text[256];
    int warnings;
} lossy;

static void count_warning(void *arg, tsr_log_level level, const char *text)
{
    lossy *l = arg;
    l->warnings += level == TSR_LOG_WARNING && strstr(text, "the loss is") != NULL;
}

/* mean(log(x)) of 1 in the first run, of a negative number in the second and third, of which the
 * third is captured. */
static tsr_status lose(tsr_world *w, void *arg)
{
    lossy *l = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cuda");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", l->dtype, TSR_DIMS(2), p, TSR_B), *dx;
    tsr_tensor *loss = tsr_mean(tsr_log(x), TSR_ALL_AXES, false);
    tsr_gradients(loss, 1, &x, &dx);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.on_nan = l->on_nan), &plan));
    for (int i = 0; i < 3; i++) {
        const uint16_t one = l->dtype == TSR_F16 ? 0x3c00 : 0x3f80;
        const uint16_t rows[] = {one, i ? (uint16_t)(one | 0x8000) : one};
        const float rows4[] = {1, i ? -1 : 1};
        double value;
        bool is_short = tsr_dtype_size(l->dtype) == 2;
        CHECK(tsr_feed(plan, "x", is_short ? (const void *)rows : (const void *)rows4,
                       2 * tsr_dtype_size(l->dtype)) == TSR_OK);
        tsr_status ran = tsr_run(plan);
        l->fetched[i] = ran == TSR_OK ? tsr_fetch_scalar(plan, "loss", &value) : ran;
        if (i == 1 && l->fetched[i] != TSR_OK)
            snprintf(l->text, sizeof l->text, "%s", tsr_last_error());
    }
    return TSR_OK;
}

static void test_nan(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    for (int i = 0; i < 3; i++) {
        lossy stops = {.dtype = dtypes[i], .on_nan = TSR_NAN_STOP};
        spawn_ok(1, lose, &stops);
        assert_int_equal(stops.fetched[0], TSR_OK);
        assert_int_equal(stops.fetched[1], TSR_ERR_NAN);
        assert_int_equal(stops.fetched[2], TSR_ERR_STATE);
        assert_non_null(strstr(stops.text, "step 2: the loss is nan"));
        lossy warns = {.dtype = dtypes[i], .on_nan = TSR_NAN_WARN};
        tsr_world_opts logs = opts;
        logs.log = count_warning;
        logs.log_arg = &warns;
        assert_int_equal(tsr_spawn_with(1, lose, &warns, &logs), TSR_OK);
        assert_int_equal(warns.fetched[2], TSR_OK);
        assert_int_equal(warns.warnings, 1);
    }
}

/* --- norms of many tensors -------------------------------------------------------------------- */
enum { NORMS = 40 };

/* Squares of all tensors are one step, on one rank and on two that have rows each. */
static tsr_status norm(tsr_world *w, void *arg)
{
    (void)arg;
    const int n = tsr_world_size(w);
    const tsr_placement *p = tsr_placement_parse(w, n > 1 ? "cuda:[0,1]" : "cuda:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(ROWS, IN), p, TSR_S(0)), *all[NORMS];
    float rows[ROWS * IN];
    double want = 0;
    for (int i = 0; i < ROWS * IN; i++) {
        rows[i] = (float)sin(0.7 * i);
        want += (double)rows[i] * rows[i] * NORMS * (NORMS + 1) * (2 * NORMS + 1) / 6;
    }
    for (int i = 0; i < NORMS; i++)
        all[i] = tsr_mul_scalar(x, i + 1);
    tsr_output(g, "norm", tsr_global_norm(NORMS, all, 2), p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    int parts = 0;
    for (int i = 0; i < plan->nsteps; i++)
        parts = plan->steps[i].nparts > parts ? plan->steps[i].nparts : parts;
    CHECK(parts == NORMS);
    for (int run = 0; run < 3; run++) {
        double got;
        TSRI_TRY(tsr_feed(plan, "x", rows, sizeof rows));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch_scalar(plan, "norm", &got));
        CHECK(fabs(got - sqrt(want)) <= 1e-6 * sqrt(want));
    }
    return TSR_OK;
}

static void test_norm(void **state)
{
    (void)state;
    spawn_ok(1, norm, NULL);
    spawn_ok(2, norm, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_captured),   cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_late_error), cmocka_unit_test(test_norm),
        cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
