/* SPDX-License-Identifier: Apache-2.0 */
/* What a tsr_ddp says of wrong calls and of ranks that differ, and what it leaves of the user's. */
#include "ddp_rank.h"

/* sum(weight x), of f64. */
static tsr_tensor *weigh(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_mul(x, tsr_use(m, "weight", x));
}

static tsr_module *make_module(tsr_world *w)
{
    const tsr_nn_opts nn = {.placement = tsr_local_placement(w), .sbp = TSR_B, .dtype = TSR_F64};
    const tsr_init ones = {TSR_INIT_ONES, 0, 0, 0};
    tsr_module *m = tsr_module_create(w, &nn, weigh, NULL, NULL);
    return tsr_module_param(m, "weight", TSR_DIMS(1), TSR_B, ones) ? m : NULL;
}

/* ddp NULL: to evaluate. */
static tsr_status compile(tsr_world *w, tsr_module *m, tsr_ddp *ddp, tsr_plan **out_plan)
{
    const tsr_placement *here = tsr_local_placement(w);
    const double one = 1;
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = ddp != NULL, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1), here, TSR_B);
    tsr_tensor *loss = tsr_sum(tsr_apply(m, x), TSR_ALL_AXES, false);
    tsr_output(g, "loss", loss, here, TSR_B);
    if (ddp)
        tsr_ddp_backward(ddp, loss);
    TRY(tsr_compile(g, out_plan));
    return tsr_feed(*out_plan, "x", &one, sizeof one);
}

/* --- the group's label ------------------------------------------------------------------------ */
typedef enum stage { CREATE, CREATE_FAILS, RUN, JOINED_RUN, JOIN_FAILS, JOIN, CLOSE, STAGES } stage;

static tsr_status call_as_far_as(stage last, tsr_world *w, tsr_module *m)
{
    bool rank = tsr_world_rank(w);
    tsr_ddp *ddp;
    tsr_plan *plan;
    if (last == CREATE_FAILS) {
        FAILS(tsr_ddp_create(m, TSR_DDP_OPTS(.static_graph = rank), &ddp), TSR_ERR_MISMATCH,
              "different options");
        return TSR_OK;
    }
    TRY(tsr_ddp_create(m, NULL, &ddp));
    if (last == CREATE)
        return TSR_OK;
    TRY(compile(w, m, ddp, &plan));
    bool throws = last == JOIN_FAILS;
    if (last >= JOINED_RUN && last <= JOIN)
        TRY(tsr_ddp_join_begin(ddp, TSR_DDP_JOIN_OPTS(.throw_on_early_termination = throws)));
    if (throws) {
        FAILS(rank ? tsr_ddp_run(ddp, plan) : tsr_ddp_join(ddp), TSR_ERR_STATE, "exhausted");
        return TSR_OK;
    }
    TRY(tsr_ddp_run(ddp, plan));
    if (last == JOIN)
        TRY(tsr_ddp_join(ddp));
    else if (last == CLOSE)
        TRY(tsr_ddp_close(&ddp));
    return TSR_OK;
}

/* Calls of the user's own, which differ, are told of by the label that the user has given. */
static tsr_status keeps_label(tsr_world *w, void *arg)
{
    stage last = *(const stage *)arg;
    tsr_module *m = make_module(w);
    tsr_group *g = tsr_world_group(w);
    double x[2] = {0};
    CHECK(m);
    TRY(tsr_group_set_label(g, "epoch 3"));
    TRY(call_as_far_as(last, w, m));
    int64_t n = 1 + tsr_world_rank(w);
    FAILS(tsr_all_reduce(g, x, n, TSR_F64, TSR_REDUCE_SUM), TSR_ERR_MISMATCH, "'epoch 3'");
    CHECK(!strstr(tsr_last_error(), "ddp run") && !strstr(tsr_last_error(), "ddp join"));
    return TSR_OK;
}

static void test_keeps_label(void **state)
{
    (void)state;
    for (stage last = CREATE; last < STAGES; last++)
        expect_ok(2, keeps_label, &last);
}

/* --- plans without a backward pass ------------------------------------------------------------ */
/* Each call says so, does nothing, and leaves the plan fit to be run by itself, or by the ddp that
 * it belongs to. */
static tsr_status not_its_plan(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_module *m = make_module(w);
    tsr_ddp *ddp, *other;
    tsr_plan *plan, *eval;
    double loss;
    CHECK(m);
    TRY(tsr_ddp_create(m, NULL, &ddp));
    TRY(tsr_ddp_create(m, NULL, &other));
    TRY(compile(w, m, ddp, &plan));
    TRY(compile(w, m, NULL, &eval));
    for (int i = 0; i < 3; i++) {
        FAILS(tsr_ddp_run(ddp, eval), TSR_ERR_STATE, "has no backward pass into this ddp");
        FAILS(tsr_ddp_run(other, plan), TSR_ERR_STATE, "has no backward pass into this ddp");
        TRY(tsr_run(eval));
        TRY(tsr_fetch_scalar(eval, "loss", &loss));
        CHECK(loss == 1);
        TRY(tsr_ddp_run(ddp, plan));
    }
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_get_info(ddp, &info));
    CHECK(info.runs == 3 && info.syncs == 3);
    TRY(tsr_ddp_get_info(other, &info));
    CHECK(info.runs == 0 && info.syncs == 0);
    TRY(tsr_ddp_close(&other));
    return tsr_ddp_close(&ddp);
}

static void test_not_its_plan(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++)
        expect_ok(n, not_its_plan, NULL);
}

/* --- modules that differ ---------------------------------------------------------------------- */
/* A parameter, and buffers of these sizes, up to the first 0. */
typedef struct buffers {
    int64_t sizes[2][4]; /* of rank 0 and 1, and of rank 2 */
    const char *text;
} buffers;

static tsr_status make_with_buffers(tsr_world *w, const int64_t *sizes, tsr_module **out_module)
{
    const tsr_init ones = {TSR_INIT_ONES, 0, 0, 0};
    char name[16];
    tsr_module *m = make_module(w);
    CHECK(m);
    for (int i = 0; i < 4 && sizes[i]; i++) {
        snprintf(name, sizeof name, "seen%d", i);
        CHECK(tsr_module_buffer(m, name, TSR_DIMS(sizes[i]), TSR_B, ones));
    }
    *out_module = m;
    return TSR_OK;
}

static tsr_status other_buffers(tsr_world *w, void *arg)
{
    const buffers *b = arg;
    tsr_module *m;
    tsr_ddp *ddp;
    TRY(make_with_buffers(w, b->sizes[tsr_world_rank(w) == 2], &m));
    FAILS(tsr_ddp_create(m, NULL, &ddp), TSR_ERR_MISMATCH, b->text);
    /* It is said before anything is: the group goes on. */
    TRY(make_with_buffers(w, b->sizes[0], &m));
    TRY(tsr_ddp_create(m, NULL, &ddp));
    return tsr_ddp_close(&ddp);
}

static void test_other_buffers(void **state)
{
    (void)state;
    static const buffers cases[] = {
        {{{3, 4}, {3, 5}},
         "on rank 0 buffer 1 is 'seen1' f64 (4); on rank 2 buffer 1 is 'seen1' f64 (5)"},
        {{{3}, {3, 5}}, "on rank 0 there is no buffer 1; on rank 2 buffer 1 is 'seen1' f64 (5)"},
        {{{3}, {0}}, "on rank 0 buffer 0 is 'seen0' f64 (3); on rank 2 there is no buffer 0"},
        /* As many elements, weighted by their places, as the other's. */
        {{{3, 1}, {1, 2}}, "on rank 0 buffer 0 is 'seen0' f64 (3); on rank 2 buffer 0 is 'seen0'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_ok(3, other_buffers, (void *)(uintptr_t)&cases[i]);
}

/* Options that say the same in two ways are the same. */
static tsr_status same_options(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_ddp *ddp;
    bool odd = tsr_world_rank(w) == 1;
    tsr_module *m = make_module(w);
    const tsr_ddp_opts *said = TSR_DDP_OPTS(.broadcast_buffers = true, .bucket_cap_mb = 25);
    TRY(tsr_ddp_create(m, odd ? said : NULL, &ddp));
    TRY(tsr_ddp_close(&ddp));
    FAILS(tsr_ddp_create(m, TSR_DDP_OPTS(.broadcast_buffers = !odd), &ddp), TSR_ERR_MISMATCH,
          "different options");
    FAILS(tsr_ddp_create(m, TSR_DDP_OPTS(.bucket_cap_mb = odd ? 1e-4 : 2e-4), &ddp),
          TSR_ERR_MISMATCH, "different options");
    return TSR_OK;
}

static void test_same_options(void **state)
{
    (void)state;
    expect_ok(2, same_options, NULL);
}

/* --- optimizers that come and go -------------------------------------------------------------- */
/* Each starts with no momentum, wherever in memory it lies: some lie where one has lain (not under
 * ASan), for which there must be enough of them. */
static tsr_status new_optimizers(tsr_world *w, void *arg)
{
    enum { OPTIMIZERS = 24, GENERATIONS = 3 };
    (void)arg;
    tsr_module *m = make_module(w);
    tsr_variable *v = tsr_module_find(m, "weight");
    tsr_optimizer *sgd[OPTIMIZERS];
    tsr_ddp *ddp;
    tsr_plan *plan;
    TRY(tsr_ddp_create(m, NULL, &ddp));
    TRY(compile(w, m, ddp, &plan));
    double want = 1, got;
    for (int generation = 0; generation < GENERATIONS; generation++) {
        for (int i = 0; i < OPTIMIZERS; i++)
            CHECK((sgd[i] = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.25, .momentum = 0.5))));
        for (int i = 0; i < 2 * OPTIMIZERS; i++) {
            TRY(tsr_ddp_run(ddp, plan));
            TRY(tsr_ddp_step(ddp, sgd[i % OPTIMIZERS]));
            want -= 0.25 * (i < OPTIMIZERS ? 1 : 1.5);
            TRY(tsr_variable_get(v, &got, sizeof got));
            CHECK(got == want);
        }
        for (int i = 0; i < OPTIMIZERS; i++)
            tsr_optimizer_destroy(sgd[i]);
    }
    return tsr_ddp_close(&ddp);
}

static void test_new_optimizers(void **state)
{
    (void)state;
    expect_ok(2, new_optimizers, NULL);
}

/* --- TESSERA_COMPARE -------------------------------------------------------------------------- */
typedef enum fault { NONE, VALUE, RATE, JOINED, FAULTS } fault;

/* Faults of rank 1 alone, between the first and the second step; found before the third run. */
static tsr_status differ(tsr_world *w, void *arg)
{
    const fault f = *(const fault *)arg;
    const bool last = tsr_world_rank(w) == 1;
    const double three = 3;
    tsr_module *m = make_module(w);
    tsr_optimizer *sgd = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.25));
    tsr_ddp *ddp;
    tsr_plan *plan;
    TRY(tsr_ddp_create(m, NULL, &ddp));
    TRY(compile(w, m, ddp, &plan));
    TRY(tsr_ddp_run(ddp, plan));
    TRY(tsr_ddp_step(ddp, sgd));
    if (f == VALUE && last)
        TRY(tsr_variable_set(tsr_module_find(m, "weight"), &three, sizeof three));
    if (f == RATE && last)
        tsr_optimizer_set_lr(sgd, 0.5);
    if (f == JOINED) { /* a rank without inputs holds older values */
        TRY(tsr_ddp_join_begin(ddp, NULL));
        for (int i = last; i < 2; i++) {
            TRY(tsr_ddp_run(ddp, plan));
            TRY(tsr_ddp_step(ddp, sgd));
        }
        TRY(tsr_ddp_join(ddp));
    }
    tsr_status status = tsr_ddp_run(ddp, plan);
    if (f == VALUE) {
        FAILS(status, TSR_ERR_MISMATCH, "ranks 0 and 1 hold different values of parameter weight");
        return TSR_OK;
    }
    TRY(status);
    TRY(tsr_ddp_step(ddp, sgd));
    status = tsr_ddp_run(ddp, plan);
    if (f == RATE) {
        FAILS(status, TSR_ERR_MISMATCH, "last update with different settings");
        return TSR_OK;
    }
    TRY(status);
    return tsr_ddp_close(&ddp);
}

/* Nobody asks: ranks go on with values that differ. */
static tsr_status differ_unseen(tsr_world *w, void *arg)
{
    const double value = 1 + tsr_world_rank(w);
    tsr_module *m = make_module(w);
    tsr_ddp *ddp;
    tsr_plan *plan;
    (void)arg;
    TRY(tsr_ddp_create(m, NULL, &ddp));
    TRY(compile(w, m, ddp, &plan));
    TRY(tsr_variable_set(tsr_module_find(m, "weight"), &value, sizeof value));
    TRY(tsr_ddp_run(ddp, plan));
    return tsr_ddp_close(&ddp);
}

static void test_compare(void **state)
{
    (void)state;
    unsetenv("TESSERA_COMPARE");
    expect_ok(2, differ_unseen, NULL);
    setenv("TESSERA_COMPARE", "1", 1);
    for (fault f = NONE; f < FAULTS; f++)
        expect_ok(2, differ, &f);
    unsetenv("TESSERA_COMPARE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps_label),    cmocka_unit_test(test_not_its_plan),
        cmocka_unit_test(test_other_buffers),  cmocka_unit_test(test_same_options),
        cmocka_unit_test(test_new_optimizers), cmocka_unit_test(test_compare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
