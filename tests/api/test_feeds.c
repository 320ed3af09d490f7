/* SPDX-License-Identifier: Apache-2.0 */
/* Runs without all of their inputs, and fetches without a run. */
#include "rank.h"

typedef struct told {
    tsr_status status[3];
    char text[3][512];
} told;

static void note(tsr_world *w, told *t, tsr_status status)
{
    int me = tsr_world_rank(w);
    t->status[me] = status;
    snprintf(t->text[me], sizeof t->text[me], "%s", tsr_last_error());
}

/* sum = sum(x + y) over all ranks; `z` is an input that nothing reads. */
static tsr_status make_plan(tsr_world *w, tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(6), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_F64, TSR_DIMS(6), p, TSR_B);
    tsr_input(g, "z", TSR_F64, TSR_DIMS(6), p, TSR_S(0));
    tsr_output(g, "sum", tsr_sum(tsr_add(x, y), TSR_ALL_AXES, false), p, TSR_B);
    tsr_to_local(g, "part", x);
    return tsr_compile(g, out_plan);
}

static const double ones[6] = {1, 1, 1, 1, 1, 1};

static tsr_status says(tsr_status got, tsr_status want, const char *text)
{
    CHECK(got == want);
    if (!strstr(tsr_last_error(), text)) {
        fprintf(stderr, "no '%s' in: %s\n", text, tsr_last_error());
        return TSR_ERR_INTERNAL;
    }
    return TSR_OK;
}

/* On one rank the plan runs once its inputs are there. */
static tsr_status one_rank(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_plan *plan;
    tsr_dims dims;
    double value[6];
    TRY(make_plan(w, &plan));
    TRY(says(tsr_fetch_scalar(plan, "sum", value), TSR_ERR_STATE, "'sum' has no value"));
    TRY(says(tsr_run(plan), TSR_ERR_STATE, "input 'x' was never fed, nor were 1 others"));
    TRY(tsr_feed(plan, "x", ones, sizeof ones));
    TRY(says(tsr_run(plan), TSR_ERR_STATE, "input 'y' was never fed;"));
    TRY(says(tsr_feed(plan, "y", ones, 8), TSR_ERR_SHAPE, "'y'"));
    TRY(says(tsr_run(plan), TSR_ERR_STATE, "input 'y' was never fed;"));
    TRY(says(tsr_fetch(plan, "sum", value, 8), TSR_ERR_STATE, "not run yet"));
    TRY(says(tsr_fetch_shard(plan, "part", value, sizeof value, NULL), TSR_ERR_STATE, "'part'"));
    TRY(tsr_fetch_shard(plan, "part", NULL, 0, &dims));
    CHECK(dims.ndim == 1 && dims.d[0] == 6);
    TRY(tsr_feed_shard(plan, "y", ones, sizeof ones));
    for (int run = 0; run < 2; run++) { /* values that were fed stay */
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "sum", value));
        CHECK(value[0] == 12);
        TRY(tsr_fetch_shard(plan, "part", value, sizeof value, NULL));
        CHECK(value[5] == 1);
    }
    return TSR_OK;
}

static void test_one_rank(void **state)
{
    (void)state;
    if (tsr_spawn(1, one_rank, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* Rank 1 forgets y: the others, which are in the run's all-reduce, are told so. */
static tsr_status one_forgets(tsr_world *w, void *arg)
{
    told *t = arg;
    tsr_plan *plan;
    TRY(make_plan(w, &plan));
    TRY(tsr_feed(plan, "x", ones, sizeof ones));
    if (tsr_world_rank(w) != 1)
        TRY(tsr_feed(plan, "y", ones, sizeof ones));
    note(w, t, tsr_run(plan));
    double value;
    TRY(says(tsr_fetch_scalar(plan, "sum", &value), TSR_ERR_STATE, "'sum' has no value"));
    return TSR_OK;
}

static void test_one_forgets(void **state)
{
    (void)state;
    static told t;
    if (tsr_spawn(3, one_forgets, &t) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    for (int r = 0; r < 3; r++) {
        assert_int_equal(t.status[r], r == 1 ? TSR_ERR_STATE : TSR_ERR_REMOTE);
        if (!strstr(t.text[r], "input 'y' was never fed"))
            fail_msg("rank %d: %s", r, t.text[r]);
    }
    assert_non_null(strstr(t.text[0], "rank 1"));
}

/* After a run that failed there is nothing to fetch, though one before went well. */
static tsr_status fails_later(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(2, 3), p, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(2), p, TSR_B);
    tsr_output(g, "loss", tsr_cross_entropy(x, y, TSR_MEAN), p, TSR_B);
    tsr_plan *plan;
    double value;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", ones, sizeof ones));
    TRY(tsr_feed(plan, "y", (int64_t[2]){0, 2}, 16));
    TRY(tsr_run(plan));
    TRY(tsr_fetch_scalar(plan, "loss", &value));
    CHECK(near_to(value, log(3), 1e-12));
    TRY(tsr_feed(plan, "y", (int64_t[2]){0, 9}, 16));
    CHECK(tsr_run(plan) != TSR_OK);
    return says(tsr_fetch_scalar(plan, "loss", &value), TSR_ERR_STATE, "an earlier run");
}

static void test_fails_later(void **state)
{
    (void)state;
    on_ranks(fails_later, NULL);
}

/* Of a local value in B only the first rank's is used, and only it has to be there. Ranks whose
 * part is empty, and those outside the placement, feed nothing. */
static tsr_status only_where_needed(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_placement *two = tsr_placement_parse(w, "cpu:[0,1]");
    int rank = tsr_world_rank(w);
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *a = tsr_from_local(g, "a", TSR_F64, TSR_DIMS(2), p, TSR_B);
    tsr_tensor *b = tsr_input(g, "b", TSR_F64, TSR_DIMS(1), two, TSR_S(0));
    tsr_output(g, "a2", tsr_mul_scalar(a, 2), p, TSR_B);
    tsr_output(g, "b2", tsr_mul_scalar(b, 2), p, TSR_B);
    tsr_plan *plan;
    double value[2];
    TRY(tsr_compile(g, &plan));
    if (rank == 0) {
        TRY(tsr_feed_shard(plan, "a", ones, 16));
        TRY(tsr_feed(plan, "b", ones, 8));
    }
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "a2", value, 16));
    CHECK(value[0] == 2 && value[1] == 2);
    TRY(tsr_fetch_scalar(plan, "b2", value));
    CHECK(value[0] == 2);
    return TSR_OK;
}

static void test_only_where_needed(void **state)
{
    (void)state;
    if (tsr_spawn(3, only_where_needed, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_one_forgets),
        cmocka_unit_test(test_fails_later),
        cmocka_unit_test(test_only_where_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
