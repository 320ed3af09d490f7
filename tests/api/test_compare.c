/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that compare what ranks gave by themselves: what differs is named, and nothing else is. */
#include "rank.h"

typedef enum fault {
    NONE = 0,
    FED,      /* another value of an input in B */
    FED_PART, /* another value of a part that two ranks of a 2-D placement hold */
    SET,      /* another value of a variable */
    RATE,     /* another learning rate */
    FAULTS,
} fault;

enum { RANKS = 4 };
typedef struct told {
    fault fault;
    bool asks; /* rank 0, by its options */
    tsr_status status[RANKS];
    char text[RANKS][512];
} told;

typedef struct program {
    tsr_plan *plan;
    tsr_module *m;
    tsr_optimizer *opt;
} program;

static tsr_status declare(tsr_world *w, bool asks, program *out)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_placement *grid = tsr_placement_parse(w, "cpu:[[0,1],[2,3]]");
    const tsr_sbp split = {2, {{TSR_SBP_SPLIT, 0}, {TSR_SBP_BROADCAST, 0}}};
    const tsr_nn_opts o = {.placement = p, .sbp = TSR_B, .dtype = TSR_F64};
    out->m = tsr_module_create(w, &o, NULL, NULL, NULL);
    tsr_module_param(out->m, "w", TSR_DIMS(3), TSR_B, (tsr_init){.kind = TSR_INIT_ONES});
    out->opt = tsr_sgd(out->m, TSR_SGD_OPTS(.lr = 0.5));
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(3), p, TSR_B);
    tsr_tensor *rows = tsr_input(g, "rows", TSR_F64, TSR_DIMS(4), p, TSR_S(0));
    tsr_tensor *parts = tsr_input(g, "parts", TSR_F64, TSR_DIMS(4), grid, split);
    tsr_tensor *own = tsr_from_local(g, "own", TSR_F64, TSR_DIMS(2), p, TSR_B);
    tsr_tensor *loss = tsr_sum(tsr_mul(x, tsr_use(out->m, "w", x)), TSR_ALL_AXES, false);
    tsr_minimize(out->opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_output(g, "rows out", tsr_neg(rows), p, TSR_B);
    tsr_output(g, "parts out", tsr_neg(parts), grid, split);
    tsr_output(g, "own out", tsr_neg(own), p, TSR_B);
    return tsr_compile_with(g, TSR_COMPILE_OPTS(.compare_values = asks), &out->plan);
}

/* What may differ does: each rank's own rows of a split input, and local values. */
static tsr_status feed(tsr_world *w, tsr_plan *plan, fault f)
{
    int rank = tsr_world_rank(w);
    double x[3] = {1, 2, f == FED && rank == 2 ? 4 : 3}, rows[4] = {0}, own[2] = {rank, rank};
    double part[2] = {rank / 2, f == FED_PART && rank == 3 ? 5 : 0};
    rows[rank] = rank;
    TRY(tsr_feed(plan, "x", x, sizeof x));
    TRY(tsr_feed(plan, "rows", rows, sizeof rows));
    TRY(tsr_feed_shard(plan, "parts", part, sizeof part));
    return tsr_feed_shard(plan, "own", own, sizeof own);
}

static tsr_status make_fault(tsr_world *w, const program *p, fault f)
{
    static const double other[3] = {1, 1, 2}, ones[3] = {1, 1, 1};
    bool odd = tsr_world_rank(w) == 1;
    if (f == SET)
        TRY(tsr_variable_set(tsr_module_find(p->m, "w"), odd ? other : ones, sizeof ones));
    if (f == RATE && odd)
        tsr_optimizer_set_lr(p->opt, 0.25);
    return feed(w, p->plan, f);
}

/* The fault goes after a run that went well; and is mended, so that the next one does. */
static tsr_status run(tsr_world *w, void *arg)
{
    told *t = arg;
    int rank = tsr_world_rank(w);
    program p;
    double loss;
    TRY(declare(w, t->asks && rank == 0, &p));
    TRY(feed(w, p.plan, NONE));
    TRY(tsr_run(p.plan));
    TRY(make_fault(w, &p, t->fault));
    t->status[rank] = tsr_run(p.plan);
    snprintf(t->text[rank], sizeof t->text[rank], "%s", tsr_last_error());
    if (t->status[rank] == TSR_OK)
        return TSR_OK;
    CHECK(tsr_fetch_scalar(p.plan, "loss", &loss) == TSR_ERR_STATE);
    if (t->fault == SET)
        TRY(tsr_variable_set(tsr_module_find(p.m, "w"), (const double[3]){1, 1, 1}, 24));
    tsr_optimizer_set_lr(p.opt, 0.5);
    TRY(feed(w, p.plan, NONE));
    TRY(tsr_run(p.plan));
    return tsr_fetch_scalar(p.plan, "loss", &loss);
}

static const char *const texts[FAULTS] = {
    [FED] = "ranks 0 and 2 were fed different values of input x",
    [FED_PART] = "ranks 2 and 3 were fed different values of input parts",
    [SET] = "ranks 0 and 1 hold different values of variable w",
    [RATE] = "ranks 0 and 1 have different settings (see tsr_optimizer_set_lr)",
};

static void expect(fault f, bool asks, bool found)
{
    static told t;
    t = (told){.fault = f, .asks = asks};
    if (tsr_spawn(RANKS, run, &t) != TSR_OK)
        fail_msg("fault %d: %s", (int)f, tsr_last_error());
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(t.status[r], found ? TSR_ERR_MISMATCH : TSR_OK);
        if (found && !strstr(t.text[r], texts[f]))
            fail_msg("rank %d: no '%s' in: %s", r, texts[f], t.text[r]);
    }
}

static void test_faults(void **state)
{
    (void)state;
    for (int f = NONE; f < FAULTS; f++)
        expect((fault)f, true, f != NONE);
}

static void test_environment(void **state)
{
    (void)state;
    for (int f = NONE; f < FAULTS; f++)
        expect((fault)f, false, false); /* nobody asks */
    assert_int_equal(setenv("TESSERA_COMPARE", "1", 1), 0);
    for (int f = NONE; f < FAULTS; f++)
        expect((fault)f, false, f != NONE);
    unsetenv("TESSERA_COMPARE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
