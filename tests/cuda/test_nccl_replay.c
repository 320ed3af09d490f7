/* SPDX-License-Identifier: Apache-2.0 */
/* Captured runs of programs that communicate by NCCL: all ranks replay or none does, whichever of
 * them can't be captured and wherever in it, and the values are those of single steps. On GPUs that
 * are not emulated nothing makes a capture fail, and captured runs alone are compared. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/status.h"
#include "src/plan/plan.h"
#include "tests/cuda/gpus.h"
#include "tests/dist/comm/rank_checks.h"
#include <tessera/tessera.h>

enum { STEPS = 5, ROWS = 12, IN = 10, MOST_RANKS = 3 };

typedef struct training {
    double loss[STEPS];
    bool captured[MOST_RANKS];
    tsri_comm_stats stats[MOST_RANKS];
} training;

/* Whether there is a kernel between the start of a call and its end. */
static bool overlaps(const tsr_plan *plan)
{
    int open = 0;
    for (int i = 0; i < plan->nsteps; i++) {
        tsri_step_kind kind = plan->steps[i].kind;
        if (kind == TSRI_STEP_KERNEL && open)
            return true;
        open += (kind == TSRI_STEP_START) - (kind == TSRI_STEP_FINISH);
    }
    return false;
}

static tsr_status train(tsr_world *w, void *arg)
{
    training *t = arg;
    int rank = tsr_world_rank(w);
    /* Split by rows: computing is dear, and talking is cheap. */
    const tsr_compile_opts *how =
        TSR_COMPILE_OPTS(.bucket_mb = 1e-4, .flops_per_s = 1e6, .nlinks = 1,
                         .link = {{.latency_s = 1e-9, .bytes_per_s = 1e12}});
    const tsr_placement *p = tsr_placement_parse(w, "cuda");
    tsr_module *net = tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = IN, .dtype = TSR_F64));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, IN), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(ROWS), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile_with(g, how, &plan));
    CHECK(overlaps(plan));
    for (int s = 0; s < STEPS; s++) {
        double rows[ROWS * IN], value;
        int64_t labels[ROWS];
        for (int i = 0; i < ROWS * IN; i++)
            rows[i] = sin(0.7 * i + s);
        for (int i = 0; i < ROWS; i++)
            labels[i] = (i + s) % 10;
        TSRI_TRY(tsr_feed(plan, "x", rows, sizeof rows));
        TSRI_TRY(tsr_feed(plan, "y", labels, sizeof labels));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch_scalar(plan, "loss", &value));
        if (rank == 0)
            t->loss[s] = value;
    }
    t->captured[rank] = plan->replay.capture[0].nparts > 0;
    tsri_plan_stats(w, &t->stats[rank]);
    return TSR_OK;
}

/* That plans can't be captured is what is tried here. */
static void drop(void *arg, tsr_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static void run(int n, const char *variable, const char *value, training *out)
{
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1, .log = drop};
    char before[32];
    const char *had = getenv(variable);
    snprintf(before, sizeof before, "%s", had ? had : "");
    *out = (training){0};
    setenv(variable, value, 1);
    tsr_status status = tsr_spawn_with(n, train, out, &opts);
    if (had)
        setenv(variable, before, 1);
    else
        unsetenv(variable);
    if (status != TSR_OK)
        fail_msg("%d ranks, %s=%s: %s: %s", n, variable, value, tsr_status_name(status),
                 tsr_last_error());
}

static void check_same(int n, const training *a, const training *b)
{
    for (int s = 0; s < STEPS; s++)
        assert_true(a->loss[s] == b->loss[s]);
    for (int r = 0; r < n; r++)
        assert_memory_equal(&a->stats[r], &b->stats[r], sizeof a->stats[r]);
}

/* False if it was captured, on all. */
static bool is_refused(int n, const char *variable, const char *value, const training *expected)
{
    training t;
    run(n, variable, value, &t);
    for (int r = 1; r < n; r++)
        assert_int_equal(t.captured[r], t.captured[0]);
    check_same(n, &t, expected);
    return !t.captured[0];
}

static test_gpus gpus;

/* Ranks whose capture fails: one as a whole, then one at each of its launches, until there are no
 * more launches. */
static void check_refusals(int n, const training *stepwise)
{
    char value[32];
    int refused = 0;
    for (int r = 0; r < n; r++) {
        snprintf(value, sizeof value, "%d", r);
        assert_true(is_refused(n, "EMULATED_NO_GRAPH", value, stepwise));
    }
    do
        snprintf(value, sizeof value, "%d:%d", n - 2, ++refused);
    while (is_refused(n, "EMULATED_NO_CAPTURE", value, stepwise));
    assert_true(refused > 4);
}

static void test_replay(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST_RANKS && n <= gpus.n; n++) {
        training stepwise;
        run(n, "TESSERA_CUDA_GRAPH", "0", &stepwise);
        for (int r = 0; r < n; r++)
            assert_false(stepwise.captured[r]);
        assert_true(stepwise.loss[0] != stepwise.loss[1]);
        assert_false(is_refused(n, "TESSERA_CUDA_GRAPH", "1", &stepwise));
        if (gpus.emulated)
            check_refusals(n, &stepwise);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replay)};
    const int skipped = test_gpus_find(2, &gpus);
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
