/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a tsr_ddp that run out of inputs: at the same time, in several epochs, with buffers and
 * under no_sync. What joins average: test_ddp.c. */
#include "ddp_rank.h"

enum { RANKS = 4 };

/* sum(w x) of f64 values, w of one element; "seen" is a buffer. */
static tsr_tensor *weigh(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_mul(x, tsr_use(m, "weight", x));
}

typedef struct model {
    tsr_ddp *ddp;
    tsr_optimizer *sgd;
    tsr_plan *plan;
    tsr_variable *weight, *seen;
} model;

/* The gradient of weight is 1: each update takes 0.5 off it. */
static tsr_status make(tsr_world *w, model *m)
{
    const tsr_placement *here = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .dtype = TSR_F64};
    const tsr_init ones = {TSR_INIT_ONES, 0, 0, 0};
    const double one = 1;
    tsr_module *net = tsr_module_create(w, &nn, weigh, NULL, NULL);
    CHECK((m->weight = tsr_module_param(net, "weight", TSR_DIMS(1), TSR_B, ones)));
    CHECK((m->seen = tsr_module_buffer(net, "seen", TSR_DIMS(1), TSR_B, ones)));
    TRY(tsr_ddp_create(net, NULL, &m->ddp));
    m->sgd = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.5));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1), here, TSR_B);
    tsr_ddp_backward(m->ddp, tsr_sum(tsr_apply(net, x), TSR_ALL_AXES, false));
    TRY(tsr_compile(g, &m->plan));
    return tsr_feed(m->plan, "x", &one, sizeof one);
}

static tsr_status weighs(const model *m, double want)
{
    double got;
    TRY(tsr_variable_get(m->weight, &got, sizeof got));
    if (!near_to(got, want, 1e-14))
        fprintf(stderr, "the weight is %.17g, not %.17g\n", got, want);
    CHECK(near_to(got, want, 1e-14));
    return TSR_OK;
}

/* --- several run out in the same round -------------------------------------------------------- */
typedef struct batches {
    int n, of[RANKS];
} batches;

static tsr_status same_round(tsr_world *w, void *arg)
{
    const batches *b = arg;
    int n = tsr_world_size(w), most = 0;
    double want = 1;
    model m;
    TRY(make(w, &m));
    for (int epoch = 0; epoch < 2; epoch++) {
        TRY(tsr_ddp_join_begin(m.ddp, NULL));
        for (int i = 0; i < b->of[tsr_world_rank(w)]; i++) {
            TRY(tsr_ddp_run(m.ddp, m.plan));
            TRY(tsr_ddp_step(m.ddp, m.sgd));
        }
        TRY(tsr_ddp_join(m.ddp));
        for (int r = 0; r < n; r++) {
            want -= 0.5 * b->of[r] / n; /* each batch of each rank counts 1 / n */
            most = b->of[r] > most ? b->of[r] : most;
        }
        TRY(weighs(&m, want));
    }
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_get_info(m.ddp, &info));
    CHECK(info.syncs == 2 * most);
    return tsr_ddp_close(&m.ddp);
}

static void test_same_round(void **state)
{
    (void)state;
    static const batches cases[] = {
        {1, {3}},       {2, {4, 4}},    {2, {0, 0}},       {2, {2, 0}},       {3, {2, 4, 4}},
        {3, {4, 4, 2}}, {3, {4, 2, 4}}, {4, {1, 1, 1, 1}}, {4, {2, 3, 3, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_ok(cases[i].n, same_round, (void *)(uintptr_t)&cases[i]);
}

/* --- what a join leaves behind ---------------------------------------------------------------- */
/* Two runs make an update; rank 0 ends between them, rank 1 behind them. Later runs broadcast the
 * buffers on both ranks, or on none. */
static tsr_status accumulates(tsr_world *w, void *arg)
{
    (void)arg;
    int rank = tsr_world_rank(w);
    model m;
    TRY(make(w, &m));
    for (int epoch = 0; epoch < 2; epoch++) {
        TRY(tsr_ddp_join_begin(m.ddp, NULL));
        for (int i = 0; i < 3 + rank; i++) {
            bool updates = i % 2;
            tsr_ddp_no_sync(m.ddp, !updates);
            TRY(tsr_ddp_run(m.ddp, m.plan));
            if (updates)
                TRY(tsr_ddp_step(m.ddp, m.sgd));
        }
        TRY(tsr_ddp_join(m.ddp));
        tsr_ddp_no_sync(m.ddp, false);
        /* 2 of both ranks, and 2 of rank 1 alone, halved; then 1 of both in a run of its own. */
        TRY(weighs(&m, 1 - 0.5 * (4 * epoch + 3)));
        double mine = 7 + rank;
        TRY(tsr_variable_set(m.seen, &mine, sizeof mine));
        TRY(tsr_ddp_run(m.ddp, m.plan));
        TRY(tsr_variable_get(m.seen, &mine, sizeof mine));
        CHECK(mine == 7);
        TRY(tsr_ddp_step(m.ddp, m.sgd));
        TRY(weighs(&m, 1 - 0.5 * (4 * epoch + 4)));
    }
    return tsr_ddp_close(&m.ddp);
}

static void test_accumulates(void **state)
{
    (void)state;
    expect_ok(2, accumulates, NULL);
}

/* The error that the second epoch ends in counts that epoch's runs. */
static tsr_status counts_again(tsr_world *w, void *arg)
{
    (void)arg;
    int rank = tsr_world_rank(w);
    model m;
    TRY(make(w, &m));
    tsr_status status = TSR_OK;
    for (int epoch = 0; epoch < 2; epoch++) {
        TRY(status);
        TRY(tsr_ddp_join_begin(m.ddp, TSR_DDP_JOIN_OPTS(.throw_on_early_termination = true)));
        for (int i = 0; i < (epoch && rank ? 3 : 2) && status == TSR_OK; i++) {
            status = tsr_ddp_run(m.ddp, m.plan);
            if (status == TSR_OK)
                TRY(tsr_ddp_step(m.ddp, m.sgd));
        }
        if (status == TSR_OK)
            status = tsr_ddp_join(m.ddp);
    }
    FAILS(status, TSR_ERR_STATE, "rank 0 has exhausted its inputs after 2 runs");
    tsr_ddp_destroy(m.ddp);
    return TSR_OK;
}

static void test_counts_again(void **state)
{
    (void)state;
    expect_ok(2, counts_again, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_round),
        cmocka_unit_test(test_accumulates),
        cmocka_unit_test(test_counts_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
