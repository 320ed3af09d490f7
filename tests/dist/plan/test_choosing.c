/* SPDX-License-Identifier: Apache-2.0 */
/* What a compile chooses for variables that are left to it: not decided by a look at them before,
 * and within what every rank may use. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/status.h"
#include "src/graph/graph.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/rank_checks.h"

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};

/* --- a look before the compile ---------------------------------------------------------------- */
enum { ROWS = 8, WIDE = 96, BYTES = WIDE * WIDE * 8 };

typedef enum look {
    NOTHING = 0,
    EVAL,
    EVAL_TWICE,
    GET,
    SET,
    SET_AND_EVAL,
    LOOKS,
} look;

typedef struct outcome {
    look look;
    int nranks;
    double cost_s, loss, w[WIDE * WIDE];
    char sbp[2][TSR_SBP_TEXT_MAX], *explain;
} outcome;

static tsr_status eval_sum(tsr_world *w, tsr_module *m, double *out)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F64, TSR_DIMS(ROWS, WIDE), p, TSR_S(0), 1);
    tsr_status status =
        tsr_eval(tsr_sum(tsr_linear(x, tsr_use(m, "w1", x), NULL), TSR_ALL_AXES, false), out, 8);
    tsr_graph_destroy(g);
    return status;
}

static double given(int i)
{
    return (double)(i % 13) / 13 - 0.5;
}

/* Looks at the weights before they are compiled for. */
static tsr_status look_at(tsr_world *w, look l, tsr_module *m, tsr_variable *w1)
{
    static _Thread_local double values[WIDE * WIDE];
    double sum = 0, got;
    if (l == SET || l == SET_AND_EVAL) {
        for (int i = 0; i < WIDE * WIDE; i++)
            values[i] = given(i);
        TSRI_TRY(tsr_variable_set(w1, values, BYTES));
    }
    if (l == GET)
        TSRI_TRY(tsr_variable_get(w1, values, BYTES));
    for (int k = 0; k < (l == EVAL_TWICE ? 2 : l == EVAL || l == SET_AND_EVAL); k++) {
        TSRI_TRY(eval_sum(w, m, &got));
        TSRI_TRY(tsr_variable_get(w1, values, BYTES));
        sum = 0;
        for (int i = 0; i < WIDE * WIDE; i++)
            sum += ROWS * values[i];
        CHECK(fabs(got - sum) <= 1e-9 * (1 + fabs(sum)));
    }
    CHECK(tsr_variable_sbp(w1).ndim == 0);
    return TSR_OK;
}

static tsr_status look_and_train(tsr_world *w, void *arg)
{
    outcome *o = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts nn = {.placement = p, .dtype = TSR_F64, .seed = 5};
    const tsr_init init = {.kind = TSR_INIT_XAVIER_NORMAL};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_variable *w1 = tsr_module_param(m, "w1", TSR_DIMS(WIDE, WIDE), TSR_AUTO, init);
    tsr_variable *w2 = tsr_module_param(m, "w2", TSR_DIMS(WIDE, WIDE), TSR_AUTO, init);
    CHECK(w1 && w2);
    TSRI_TRY(look_at(w, o->look, m, w1));
    tsr_optimizer *opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.01));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_uniform(g, "x", TSR_F64, TSR_DIMS(ROWS, WIDE), p, TSR_AUTO, -1, 1);
    tsr_tensor *h = tsr_tanh(tsr_linear(x, tsr_use(m, "w1", x), NULL));
    tsr_tensor *y = tsr_linear(h, tsr_use(m, "w2", x), NULL);
    tsr_tensor *loss = tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    tsr_plan_info info = {.size = sizeof info};
    TSRI_TRY(tsr_plan_get_info(plan, &info));
    double value;
    for (int i = 0; i < 2; i++)
        TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_fetch_scalar(plan, "loss", &value));
    static _Thread_local double values[WIDE * WIDE];
    TSRI_TRY(tsr_variable_get(w1, values, BYTES));
    CHECK(tsr_variable_sbp(w1).ndim == 1);
    if (tsr_world_rank(w) == 0) {
        o->cost_s = info.cost_s;
        o->loss = value;
        memcpy(o->w, values, BYTES);
        tsr_sbp_format(tsr_variable_sbp(w1), o->sbp[0]);
        tsr_sbp_format(tsr_variable_sbp(w2), o->sbp[1]);
        o->explain = strdup(tsr_plan_explain(plan));
    }
    return TSR_OK;
}

static void train(outcome *o, look l, int nranks)
{
    *o = (outcome){.look = l, .nranks = nranks};
    if (tsr_spawn_with(nranks, look_and_train, o, &opts) != TSR_OK)
        fail_msg("look %d on %d ranks: %s", (int)l, nranks, tsr_last_error());
}

/* The plan, and what it computes, are the same with and without a look. */
static void test_looks(void **state)
{
    (void)state;
    static outcome plain, one_rank, o;
    bool split = false;
    for (int nranks = 1; nranks <= 4; nranks++) {
        for (int l = NOTHING; l < LOOKS; l++) {
            const outcome *want = l >= SET ? &one_rank : &plain;
            train(l == NOTHING ? &plain : &o, (look)l, nranks);
            if (l == NOTHING)
                continue;
            assert_true(o.cost_s == plain.cost_s);
            assert_string_equal(o.sbp[0], plain.sbp[0]);
            assert_string_equal(o.sbp[1], plain.sbp[1]);
            assert_string_equal(o.explain, plain.explain);
            if (l == SET && nranks == 1)
                one_rank = o;
            assert_true(fabs(o.loss - want->loss) < 1e-12);
            for (int i = 0; i < WIDE * WIDE; i++)
                assert_true(fabs(o.w[i] - want->w[i]) < 1e-10);
            if (o.explain != one_rank.explain)
                free(o.explain);
        }
        split |= plain.sbp[0][0] == 'S';
        free(plain.explain);
    }
    free(one_rank.explain);
    assert_true(split); /* or it would be no choice */
}

/* --- memory of every rank --------------------------------------------------------------------- */
/* Two weights of 512 KiB, one on ranks 0 and 1, one on 2 and 1: rank 1 holds both. */
static tsr_status two_placements(tsr_world *w, void *arg)
{
    size_t limit = *(const size_t *)arg;
    const char *const places[] = {"cpu:[0,1]", "cpu:[2,1]"};
    tsr_graph *g = tsr_graph_create(w, NULL);
    for (int i = 0; i < 2; i++) {
        const tsr_placement *p = tsr_placement_parse(w, places[i]);
        const tsr_nn_opts nn = {.placement = p, .dtype = TSR_F32};
        tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
        tsr_module_param(m, "w", TSR_DIMS(131072), TSR_B, (tsr_init){.kind = TSR_INIT_ONES});
        tsr_tensor *one = tsr_full(g, TSR_F32, TSR_SCALAR, p, TSR_B, 1);
        tsr_to_local(g, i ? "b" : "a", tsr_use(m, "w", one));
    }
    tsr_plan *plan;
    TSRI_TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.memory_limit = limit), &plan));
    return TSR_OK;
}

static void test_every_rank(void **state)
{
    (void)state;
    /* Weights and outputs. */
    const size_t needed = 4 * 131072 * sizeof(float);
    size_t limit = needed * 9 / 10;
    assert_int_equal(tsr_spawn_with(3, two_placements, &limit, &opts), TSR_ERR_NO_MEMORY);
    const char *const said[] = {"1.89 MB a rank; the leanest found needs 2.10 MB\n",
                                "the need 2097152 bytes on rank 1\n", "\n  ranks 0, 2: 1.05 MB\n",
                                "1048576 bytes\n      w f32[131072] B"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (!strstr(tsr_last_error(), said[i]))
            fail_msg("'%s' is not in: %s", said[i], tsr_last_error());
    limit = needed;
    if (tsr_spawn_with(3, two_placements, &limit, &opts) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    /* Without devices, where no rank lowers for itself, it is the same. */
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(3, 0, &w), TSR_OK);
    limit = needed * 9 / 10;
    assert_int_equal(two_placements(w, &limit), TSR_ERR_NO_MEMORY);
    limit = needed;
    assert_int_equal(two_placements(w, &limit), TSR_OK);
    tsr_world_destroy(w);
}

/* --- after a refusal -------------------------------------------------------------------------- */
/* A graph whose plans were tried within a limit and refused leaves no trace in its variables, and
 * is planned as one that was never refused; nor does the memory of tries stay with a plan. */
static void test_refused(void **state)
{
    (void)state;
    enum { PLAIN, REFUSED, LIMITED, WAYS };
    tsr_plan_info info[WAYS];
    for (int way = PLAIN; way < WAYS; way++) {
        tsr_world *w;
        tsr_plan *plan;
        assert_int_equal(tsr_world_create_virtual(4, 0, &w), TSR_OK);
        const tsr_placement *p = tsr_placement_parse(w, "cpu");
        tsr_module *m = tsr_mlp(
            w, p, TSR_AUTO, TSR_MLP_OPTS(.inputs = 96, .hidden = 96, .outputs = 96, .layers = 3));
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        tsr_tensor *x = tsr_uniform(g, "x", TSR_F32, TSR_DIMS(64, 96), p, TSR_AUTO, -1, 1);
        tsr_tensor *y = tsr_apply(m, x);
        tsr_minimize(tsr_adam(m, NULL), tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false));
        tsr_variable *weight = tsr_module_find(m, "2.weight");
        if (way == REFUSED) {
            assert_int_equal(tsr_compile_with(g, TSR_COMPILE_OPTS(.memory_limit = 1000), &plan),
                             TSR_ERR_NO_MEMORY);
            assert_true(weight->sbp.ndim == 0 && !weight->inferred);
        }
        const size_t limit = way == LIMITED ? 200000 : 0;
        if (tsr_compile_with(g, TSR_COMPILE_OPTS(.memory_limit = limit), &plan) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        assert_true(weight->sbp.ndim == 1 && weight->inferred);
        info[way] = plan->info;
        tsr_world_destroy(w);
    }
    assert_true(info[REFUSED].cost_s == info[PLAIN].cost_s);
    assert_int_equal(info[REFUSED].steps, info[PLAIN].steps);
    assert_int_equal(info[REFUSED].host_bytes, info[PLAIN].host_bytes);
    assert_true(info[LIMITED].cost_s > info[PLAIN].cost_s); /* so plans were tried */
    assert_true((double)info[LIMITED].host_bytes < 1.3 * (double)info[PLAIN].host_bytes);
}

/* --- plans of tsr_eval that are kept ---------------------------------------------------------- */
/* Of the last tensors, while variables are as they were; values are those of now, masks those of
 * the first run; what a rank does wrong with its own copy is its own. */
static tsr_status keeps(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_AUTO, .dtype = TSR_F64};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_variable *v =
        tsr_module_param(m, "w", TSR_DIMS(6), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_mul_scalar(tsr_read(g, v), 2), *more[5];
    tsr_tensor *dropped = tsr_dropout(tsr_full(g, TSR_F64, TSR_DIMS(64), p, TSR_B, 1), 0.5);
    double got[6], mask[2][64];
    TSRI_TRY(tsr_eval(x, got, sizeof got));
    CHECK(!g->evals.kept[0].tensor && got[5] == 2); /* the variable's signature is open */
    tsr_plan *fixes;
    tsr_output(g, "x", x, p, TSR_B);
    TSRI_TRY(tsr_compile(g, &fixes));
    TSRI_TRY(tsr_eval(x, got, sizeof got));
    const tsr_plan *plan = g->evals.kept[0].plan;
    CHECK(g->evals.kept[0].tensor == x && plan);
    for (int i = 1; i < 4; i++) {
        const double values[6] = {i, i, i, i, i, 7 * i};
        TSRI_TRY(tsr_variable_set(v, values, sizeof values));
        CHECK(tsr_eval(x, got, w->rank == 0 ? 8 : sizeof got) ==
              (w->rank == 0 ? TSR_ERR_SHAPE : TSR_OK));
        TSRI_TRY(tsr_eval(x, got, sizeof got));
        CHECK(got[0] == 2 * i && got[5] == 14 * i && g->evals.kept[0].plan == plan);
    }
    for (int i = 0; i < 2; i++)
        TSRI_TRY(tsr_eval(dropped, mask[i], sizeof mask[i]));
    CHECK(!memcmp(mask[0], mask[1], sizeof mask[0]) && g->evals.kept[1].tensor == dropped);
    for (int i = 0; i < 5; i++) {
        more[i] = tsr_add_scalar(x, i);
        TSRI_TRY(tsr_eval(more[i], got, sizeof got));
        CHECK(got[0] == 6 + i);
    }
    CHECK(g->evals.kept[2].tensor == more[4] && g->evals.kept[3].tensor == more[1]);
    TSRI_TRY(tsr_eval(x, got, sizeof got));
    CHECK(got[5] == 42 && g->evals.kept[3].tensor == x);
    tsr_plan_destroy(g->evals.kept[3].plan); /* it is not the graph's to keep alive */
    TSRI_TRY(tsr_eval(x, got, sizeof got));
    CHECK(got[5] == 42);
    tsr_graph_destroy(g);
    return TSR_OK;
}

static void test_keeps(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        if (tsr_spawn_with(n, keeps, NULL, &opts) != TSR_OK)
            fail_msg("%s", tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_looks), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_keeps),
                                       cmocka_unit_test(test_every_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
