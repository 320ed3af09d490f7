/* SPDX-License-Identifier: Apache-2.0 */
/* Indexing, selection and cutting in whole programs, on 1, 2 and 3 ranks and in several signatures,
 * forward and backward, against values worked out in plain C. */
#include "rank.h"

/* --- embedding -------------------------------------------------------------------------------- */

enum { V = 7, W = 3, NIDS = 10 };

static const int64_t some_ids[NIDS] = {6, 0, 3, 3, 1, 6, 6, 2, 0, 3};

/* y = table[ids], loss = sum(y * w): its gradient counts w by id. `sbp` is of the table. */
static tsr_status embed(tsr_world *w, void *arg)
{
    double table[V * W], weight[NIDS * W], y[NIDS * W], want[NIDS * W], dx[V * W], want_dx[V * W];
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_sbp ids_sbp[] = {TSR_B, TSR_S(0)};
    memset(want_dx, 0, sizeof want_dx);
    for (int i = 0; i < V * W; i++)
        table[i] = sin(i);
    for (int i = 0; i < NIDS * W; i++) {
        weight[i] = cos(i);
        want[i] = table[some_ids[i / W] * W + i % W];
        if (some_ids[i / W] != 3)
            want_dx[some_ids[i / W] * W + i % W] += weight[i];
    }
    for (int i = 0; i < 2; i++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        tsr_tensor *t = tsr_input(g, "table", TSR_F64, TSR_DIMS(V, W), p, *(const tsr_sbp *)arg);
        tsr_tensor *ids = tsr_input(g, "ids", TSR_I64, TSR_DIMS(5, 2), p, ids_sbp[i]), *dt;
        tsr_tensor *out =
            tsr_embedding(t, ids, TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = -4));
        tsr_tensor *k = tsr_input(g, "weight", TSR_F64, TSR_DIMS(5, 2, W), p, TSR_B);
        tsr_gradients(tsr_sum(tsr_mul(out, k), TSR_ALL_AXES, false), 1, &t, &dt);
        tsr_output(g, "y", out, p, TSR_B);
        tsr_output(g, "dt", dt, p, *(const tsr_sbp *)arg);
        tsr_output(g, "whole", dt, p, TSR_B);
        tsr_plan *plan;
        TRY(tsr_compile(g, &plan));
        TRY(tsr_feed(plan, "table", table, sizeof table));
        TRY(tsr_feed(plan, "ids", some_ids, sizeof some_ids));
        TRY(tsr_feed(plan, "weight", weight, sizeof weight));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "y", y, sizeof y));
        TRY(tsr_fetch(plan, "whole", dx, sizeof dx));
        CHECK(all_near("y", y, want, NIDS * W, 1e-14));
        CHECK(all_near("dtable", dx, want_dx, V * W, 1e-14));
        tsr_graph_destroy(g);
    }
    return TSR_OK;
}

static void test_embedding(void **state)
{
    (void)state;
    on_ranks(embed, &TSR_B);
    on_ranks(embed, &TSR_S(0));
    on_ranks(embed, &TSR_S(1));
}

/* Rank 1 has the row that 3 names, and no rank the one that 7 names. */
static tsr_status bad_id(tsr_world *w, void *arg)
{
    const int64_t ids[4] = {3, 2, *(const int64_t *)arg, 0};
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *t = tsr_full(g, TSR_F32, TSR_DIMS(V, W), p, TSR_S(0), 1);
    tsr_tensor *i = tsr_input(g, "ids", TSR_I64, TSR_DIMS(2, 2), p, TSR_B);
    tsr_output(g, "y", tsr_embedding(t, i, NULL), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "ids", ids, sizeof ids));
    CHECK(tsr_run(plan) != TSR_OK);
    CHECK(strstr(tsr_last_error(), "is not in 0 <= id < 7"));
    CHECK(strstr(tsr_last_error(), "element 2 of the ids"));
    CHECK(strstr(tsr_last_error(), "test_index.c:"));
    return TSR_OK;
}

static void test_bad_ids(void **state)
{
    (void)state;
    on_ranks(bad_id, &(int64_t){7});
    on_ranks(bad_id, &(int64_t){-1});
}

/* --- constants -------------------------------------------------------------------------------- */

/* A constant in every signature; the plan outlives its graph. */
static tsr_status constants(tsr_world *w, void *arg)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    double data[35], got[35], range[7];
    for (int i = 0; i < 35; i++)
        data[i] = sin(i);
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_sbp sbp = *(const tsr_sbp *)arg;
    tsr_tensor *c = tsr_constant(g, TSR_F64, TSR_DIMS(5, 7), data, p, sbp);
    tsr_tensor *r = tsr_arange(g, TSR_F64, 7, 2, -0.5, p, TSR_S(0));
    const int64_t at[7] = {6, 5, 4, 3, 2, 1, 0};
    tsr_tensor *ids = tsr_constant(g, TSR_I64, TSR_DIMS(7), at, p, TSR_B);
    tsr_tensor *turn = tsr_one_hot(ids, 7, TSR_F64);
    tsr_output(g, "sum", tsr_add(tsr_matmul(c, turn), r), p, TSR_B);
    tsr_output(g, "r", r, p, TSR_B);
    for (int i = 0; i < 35; i++)
        data[i] = 0; /* it was copied */
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    tsr_graph_destroy(g);
    for (int step = 0; step < 2; step++) {
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "sum", got, sizeof got));
        TRY(tsr_fetch(plan, "r", range, sizeof range));
        for (int i = 0; i < 35; i++) {
            CHECK(near_to(range[i % 7], 2 - 0.5 * (i % 7), 0));
            CHECK(near_to(got[i], sin(i / 7 * 7 + 6 - i % 7) + range[i % 7], 1e-14));
        }
    }
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static void test_constants(void **state)
{
    (void)state;
    on_ranks(constants, &TSR_B);
    on_ranks(constants, &TSR_S(0));
    on_ranks(constants, &TSR_S(1));
}

/* Ranks that hold other numbers are told before anything runs. */
static tsr_status other_data(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const float data[3] = {1, 2, tsr_world_rank(w) == 1 ? 4 : 3};
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_output(g, "c", tsr_constant(g, TSR_F32, TSR_DIMS(3), data, p, TSR_B), p, TSR_B);
    tsr_plan *plan;
    if (tsr_world_size(w) == 1)
        return tsr_compile(g, &plan);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_MISMATCH);
    CHECK(strstr(tsr_last_error(), "op 0 is the first that differs: rank 0: test_index.c:"));
    CHECK(strstr(tsr_last_error(), "of data "));
    return TSR_OK;
}

static void test_other_data(void **state)
{
    (void)state;
    on_ranks(other_data, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_bad_ids),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_other_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
