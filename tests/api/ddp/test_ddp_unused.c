/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that some of a tsr_ddp's graphs leave out, from run to run and in joins. */
#include "ddp_rank.h"

/* sum(a x), or sum(a x + b x) where arg says so; x is 2. */
static tsr_tensor *terms(tsr_module *m, tsr_tensor *x, void *arg)
{
    const bool *with_b = arg;
    tsr_tensor *y = tsr_mul(x, tsr_use(m, "a", x));
    return *with_b ? tsr_add(y, tsr_mul(x, tsr_use(m, "b", x))) : y;
}

typedef struct model {
    tsr_ddp *ddp;
    tsr_optimizer *sgd;
    tsr_plan *plan[2]; /* without b, and with it */
    tsr_variable *a, *b;
    bool with_b;
} model;

static tsr_status make(tsr_world *w, const tsr_ddp_opts *how, model *m)
{
    const tsr_placement *here = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .dtype = TSR_F64};
    const tsr_init ones = {TSR_INIT_ONES, 0, 0, 0};
    const double two = 2;
    tsr_module *net = tsr_module_create(w, &nn, terms, &m->with_b, NULL);
    CHECK((m->a = tsr_module_param(net, "a", TSR_DIMS(1), TSR_B, ones)));
    CHECK((m->b = tsr_module_param(net, "b", TSR_DIMS(1), TSR_B, ones)));
    TRY(tsr_ddp_create(net, how, &m->ddp));
    m->sgd = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.5, .weight_decay = 0.5));
    for (int k = 0; k < 2; k++) {
        m->with_b = k;
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
        tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1), here, TSR_B);
        tsr_ddp_backward(m->ddp, tsr_sum(tsr_apply(net, x), TSR_ALL_AXES, false));
        TRY(tsr_compile(g, &m->plan[k]));
        TRY(tsr_feed(m->plan[k], "x", &two, sizeof two));
    }
    return TSR_OK;
}

static tsr_status is_value(tsr_variable *v, double want)
{
    double got;
    TRY(tsr_variable_get(v, &got, sizeof got));
    if (!near_to(got, want, 1e-14))
        fprintf(stderr, "the value is %.17g, not %.17g\n", got, want);
    CHECK(near_to(got, want, 1e-14));
    return TSR_OK;
}

/* --- gradients of runs under no_sync ---------------------------------------------------------- */
/* Rank 0 alone uses b, under no_sync; the synchronised run behind that leaves b out. */
static tsr_status under_no_sync(tsr_world *w, void *arg)
{
    (void)arg;
    model m;
    bool there;
    TRY(make(w, TSR_DDP_OPTS(.find_unused_parameters = true), &m));
    double a = 1, b = 1;
    for (int step = 0; step < 2; step++) {
        tsr_ddp_no_sync(m.ddp, true);
        TRY(tsr_ddp_run(m.ddp, m.plan[tsr_world_rank(w) == 0]));
        tsr_ddp_no_sync(m.ddp, false);
        TRY(tsr_ddp_run(m.ddp, m.plan[0]));
        const double *grad = tsr_ddp_gradient(m.ddp, m.b, &there);
        CHECK(there && *grad == 2.0 / tsr_world_size(w));
        grad = tsr_ddp_gradient(m.ddp, m.a, &there);
        CHECK(there && *grad == 4);
        tsr_ddp_info info = {.size = sizeof info};
        TRY(tsr_ddp_get_info(m.ddp, &info));
        CHECK(info.unused == 0);
        TRY(tsr_ddp_step(m.ddp, m.sgd));
        a -= 0.5 * (4 + 0.5 * a);
        b -= 0.5 * (2.0 / tsr_world_size(w) + 0.5 * b);
        TRY(is_value(m.a, a));
        TRY(is_value(m.b, b));
    }
    /* Nobody has used b since: no gradient, no decay. */
    TRY(tsr_ddp_run(m.ddp, m.plan[0]));
    tsr_ddp_gradient(m.ddp, m.b, &there);
    CHECK(!there);
    TRY(tsr_ddp_step(m.ddp, m.sgd));
    TRY(is_value(m.b, b));
    return tsr_ddp_close(&m.ddp);
}

static void test_under_no_sync(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        expect_ok(n, under_no_sync, NULL);
}

/* What rank 0 has of b when it runs out of inputs is dropped, with all that it has: the others, who
 * leave b out, do not update it. */
static tsr_status left_in_a_join(tsr_world *w, void *arg)
{
    (void)arg;
    model m;
    TRY(make(w, TSR_DDP_OPTS(.find_unused_parameters = true), &m));
    TRY(tsr_ddp_join_begin(m.ddp, NULL));
    tsr_ddp_no_sync(m.ddp, true);
    TRY(tsr_ddp_run(m.ddp, m.plan[tsr_world_rank(w) == 0]));
    if (tsr_world_rank(w) == 1) {
        tsr_ddp_no_sync(m.ddp, false);
        TRY(tsr_ddp_run(m.ddp, m.plan[0]));
        TRY(tsr_ddp_step(m.ddp, m.sgd));
    }
    TRY(tsr_ddp_join(m.ddp));
    TRY(is_value(m.a, 1 - 0.5 * (2 + 0.5))); /* (0 + 2 + 2) / 2, and the decay */
    TRY(is_value(m.b, 1));
    return tsr_ddp_close(&m.ddp);
}

static void test_left_in_a_join(void **state)
{
    (void)state;
    expect_ok(2, left_in_a_join, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_under_no_sync),
        cmocka_unit_test(test_left_in_a_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
