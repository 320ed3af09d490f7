/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tsr_ddp_minimize and tsr_ddp_step_with: what is trained, what is left alone, what gradients are
 * divided and clipped by, and what they say of wrong calls. Values of whole recipes are
 * tests/models/recipes.py's.
 */
#include <math.h>

#include "ddp_rank.h"

/* loss = sum of a x + b x + c x, of vectors of two: each gradient is x. */
static tsr_tensor *weigh(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *sum = tsr_add(tsr_use(m, "a", x), tsr_use(m, "b", x));
    return tsr_mul(x, tsr_add(sum, tsr_use(m, "c", x)));
}

typedef struct net {
    tsr_world *w;
    const tsr_placement *here;
    tsr_module *m;
    tsr_variable *v[3];
    tsr_optimizer *o;
} net;

static tsr_status make_net(tsr_world *w, net *n)
{
    static const char *const names[] = {"a", "b", "c"};
    n->w = w;
    n->here = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = n->here, .sbp = TSR_B, .dtype = TSR_F64};
    n->m = tsr_module_create(w, &nn, weigh, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        n->v[i] = tsr_module_param(n->m, names[i], TSR_DIMS(2), TSR_B,
                                   (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 10 * (i + 1)});
        CHECK(n->v[i]);
    }
    TRY(tsr_module_set_local(n->m));
    n->o = tsr_sgd(n->m, TSR_SGD_OPTS(.lr = 1));
    return n->o ? TSR_OK : TSR_ERR_INTERNAL;
}

static tsr_tensor *declare_loss(const net *n, tsr_graph **g)
{
    *g = tsr_graph_create(n->w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(*g, "x", TSR_F64, TSR_DIMS(2), n->here, TSR_B);
    return tsr_sum(tsr_apply(n->m, x), TSR_ALL_AXES, false);
}

static tsr_status compile(const net *n, tsr_ddp *ddp, const tsr_minimize_opts *opts,
                          tsr_plan **out_plan)
{
    tsr_graph *g;
    tsr_tensor *loss = declare_loss(n, &g);
    tsr_ddp_minimize(ddp, n->o, 1, &loss, opts);
    return tsr_compile(g, out_plan);
}

static tsr_status feed_and_run(tsr_plan *plan, double x0, double x1)
{
    const double x[2] = {x0, x1};
    TRY(tsr_feed(plan, "x", x, sizeof x));
    return tsr_run(plan);
}

static bool is(tsr_variable *v, double x0, double x1)
{
    double x[2];
    if (tsr_variable_get(v, x, sizeof x) != TSR_OK)
        return false;
    if (fabs(x[0] - x0) < 1e-6 && fabs(x[1] - x1) < 1e-6)
        return true;
    fprintf(stderr, "it is %.17g %.17g\n", x[0], x[1]);
    return false;
}

static double norm_of(const tsr_ddp *ddp)
{
    tsr_ddp_info info = {.size = sizeof info};
    return tsr_ddp_get_info(ddp, &info) == TSR_OK ? info.grad_norm : -1;
}

/* --- what is trained -------------------------------------------------------------------------- */
/* Frozen by tsr_ddp: sent at first, and none of the buckets'. Frozen by the optimizer: no gradient,
 * nor a part of the norm. */
static tsr_status freezes(tsr_world *w, void *arg)
{
    (void)arg;
    net n;
    tsr_ddp *ddp;
    tsr_plan *plan;
    const char *frozen[] = {"b"};
    const double rank = tsr_world_rank(w), size = tsr_world_size(w);
    TRY(make_net(w, &n));
    const double own[2] = {rank, rank + 1};
    TRY(tsr_variable_set(n.v[1], own, sizeof own));
    TRY(tsr_ddp_create(n.m, TSR_DDP_OPTS(.nfrozen = 1, .frozen = frozen), &ddp));
    CHECK(is(n.v[1], 0, 1));
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_get_info(ddp, &info));
    CHECK(info.nparams == 2 && isnan(info.grad_norm));
    TRY(tsr_optimizer_freeze(n.o, "c", true));
    TRY(compile(&n, ddp, TSR_MINIMIZE_OPTS(.clip_norm = INFINITY), &plan));
    TRY(feed_and_run(plan, 3 * (rank + 1), 4 * (rank + 1)));
    const double mean = (size + 1) / 2;
    CHECK(is(n.v[0], 10 - 3 * mean, 10 - 4 * mean));
    CHECK(is(n.v[1], 0, 1) && is(n.v[2], 30, 30));
    CHECK(fabs(norm_of(ddp) - 5 * mean) < 1e-9);
    return tsr_ddp_close(&ddp);
}

static void test_freezes(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        expect_ok(n, freezes, NULL);
}

/* --- what gradients are divided and clipped by ------------------------------------------------ */
/* The mean of two runs on two ranks, of scaled losses, clipped by value and then by norm. */
static tsr_status clips(tsr_world *w, void *arg)
{
    const bool by_step = *(const bool *)arg;
    const tsr_minimize_opts how = *TSR_MINIMIZE_OPTS(.loss_scale = 8, .clip_value = 4,
                                                     .clip_norm = 2.5 * sqrt(3), .accumulate = 2);
    const double rank = tsr_world_rank(w);
    net n;
    tsr_ddp *ddp;
    tsr_plan *plan;
    TRY(make_net(w, &n));
    TRY(tsr_ddp_create(n.m, NULL, &ddp));
    if (by_step) {
        tsr_graph *g;
        tsr_ddp_backward(ddp, tsr_mul_scalar(declare_loss(&n, &g), 8));
        TRY(tsr_compile(g, &plan));
    } else {
        TRY(compile(&n, ddp, &how, &plan));
    }
    for (int run = 0; run < 2; run++) { /* means over runs and ranks: 3, and 90, which becomes 4 */
        const double x[2] = {1 + 2 * rank + 2 * run, 90};
        TRY(tsr_feed(plan, "x", x, sizeof x));
        tsr_ddp_no_sync(ddp, by_step && run == 0);
        TRY(by_step ? tsr_ddp_run(ddp, plan) : tsr_run(plan));
        CHECK(by_step || run == 1 || is(n.v[0], 10, 10));
    }
    if (by_step)
        TRY(tsr_ddp_step_with(ddp, n.o, &how));
    CHECK(fabs(norm_of(ddp) - 5 * sqrt(3)) < 1e-9);
    for (int i = 0; i < 3; i++)
        CHECK(is(n.v[i], 10 * (i + 1) - 1.5, 10 * (i + 1) - 2));
    return tsr_ddp_close(&ddp);
}

static void test_clips(void **state)
{
    (void)state;
    for (int by_step = 0; by_step < 2; by_step++)
        expect_ok(2, clips, &(bool){by_step});
}

/* Updates of one optimizer with other options, and of others, are other plans; gradients that an
 * optimizer does not train are consumed and change nothing. */
static tsr_status steps(tsr_world *w, void *arg)
{
    (void)arg;
    net n;
    tsr_ddp *ddp;
    tsr_plan *plan;
    tsr_graph *g;
    TRY(make_net(w, &n));
    TRY(tsr_ddp_create(n.m, NULL, &ddp));
    tsr_ddp_backward(ddp, declare_loss(&n, &g));
    TRY(tsr_compile(g, &plan));
    double at = 10;
    for (int i = 0; i < 6; i++) {
        const double x[2] = {1, 1};
        TRY(tsr_feed(plan, "x", x, sizeof x));
        TRY(tsr_ddp_run(ddp, plan));
        TRY(tsr_ddp_step_with(ddp, n.o, TSR_MINIMIZE_OPTS(.loss_scale = i % 3 + 1)));
        at -= 1.0 / (i % 3 + 1);
        CHECK(is(n.v[0], at, at));
        FAILS(tsr_ddp_step(ddp, n.o), TSR_ERR_STATE, "there is no gradient");
    }
    CHECK(isnan(norm_of(ddp)));
    TRY(tsr_ddp_run(ddp, plan));
    TRY(tsr_optimizer_freeze(n.o, "*", true));
    FAILS(tsr_ddp_step(ddp, n.o), TSR_ERR_STATE, "trains none of the parameters");
    TRY(tsr_optimizer_freeze(n.o, "*", false));
    TRY(tsr_ddp_step(ddp, n.o));
    CHECK(is(n.v[0], at - 1, at - 1));
    return tsr_ddp_close(&ddp);
}

static void test_steps(void **state)
{
    (void)state;
    expect_ok(2, steps, NULL);
}

/* Ever new loss scales: the plans that were not asked for lately go, and values stay right. */
static tsr_status scales(tsr_world *w, void *arg)
{
    (void)arg;
    net n;
    tsr_ddp *ddp;
    tsr_plan *plan;
    tsr_graph *g;
    TRY(make_net(w, &n));
    TRY(tsr_ddp_create(n.m, NULL, &ddp));
    tsr_ddp_backward(ddp, declare_loss(&n, &g));
    TRY(tsr_compile(g, &plan));
    double at = 10;
    for (int i = 0; i < 60; i++) {
        const int scale = 1 + (i % 3 == 0 ? 0 : i);
        const double x[2] = {scale, scale};
        TRY(tsr_feed(plan, "x", x, sizeof x));
        TRY(tsr_ddp_run(ddp, plan));
        TRY(tsr_ddp_step_with(ddp, n.o, TSR_MINIMIZE_OPTS(.loss_scale = scale)));
        at -= 1;
        CHECK(is(n.v[0], at, at));
    }
    return tsr_ddp_close(&ddp);
}

static void test_scales(void **state)
{
    (void)state;
    expect_ok(2, scales, NULL);
}

/* --- reading ---------------------------------------------------------------------------------- */
/* A graph of the user's own takes the averaged gradient, and updates by it. */
static tsr_status reads(tsr_world *w, void *arg)
{
    (void)arg;
    net n;
    tsr_ddp *ddp;
    tsr_plan *plan, *own;
    tsr_graph *g;
    TRY(make_net(w, &n));
    TRY(tsr_ddp_create(n.m, NULL, &ddp));
    tsr_ddp_backward(ddp, declare_loss(&n, &g));
    TRY(tsr_compile(g, &plan));
    g = tsr_graph_create(w, TSR_GRAPH_OPTS(.local = true));
    tsr_tensor *grad = tsr_ddp_read_gradient(g, ddp, n.v[2]);
    tsr_assign(n.v[2], tsr_sub(tsr_read(g, n.v[2]), tsr_mul_scalar(grad, 0.5)));
    TRY(tsr_compile(g, &own));
    const double x[2] = {tsr_world_rank(w), 8};
    TRY(tsr_feed(plan, "x", x, sizeof x));
    TRY(tsr_ddp_run(ddp, plan));
    TRY(tsr_run(own));
    CHECK(is(n.v[2], 30 - 0.25, 30 - 4) && is(n.v[0], 10, 10));
    return tsr_ddp_close(&ddp);
}

static void test_reads(void **state)
{
    (void)state;
    expect_ok(2, reads, NULL);
}

/* --- wrong calls ------------------------------------------------------------------------------ */
static tsr_status refuses(tsr_world *w, void *arg)
{
    (void)arg;
    net n;
    tsr_ddp *ddp;
    tsr_plan *plan;
    tsr_graph *g;
    tsr_tensor *norm = NULL;
    const char *none[] = {NULL}, *all[] = {"*"};
    TRY(make_net(w, &n));
    FAILS(tsr_ddp_create(n.m, TSR_DDP_OPTS(.nfrozen = 1), &ddp), TSR_ERR_INVALID,
          "1 patterns are frozen, but there are none");
    FAILS(tsr_ddp_create(n.m, TSR_DDP_OPTS(.nfrozen = 1, .frozen = none), &ddp), TSR_ERR_INVALID,
          ".frozen[0] is NULL");
    FAILS(tsr_ddp_create(n.m, TSR_DDP_OPTS(.nfrozen = 1, .frozen = all), &ddp), TSR_ERR_INVALID,
          "all are frozen");
    TRY(tsr_ddp_create(n.m, NULL, &ddp));

    FAILS(compile(&n, NULL, NULL, &plan), TSR_ERR_INVALID, "ddp is NULL");
    FAILS(compile(&n, ddp, TSR_MINIMIZE_OPTS(.out_norm = &norm), &plan), TSR_ERR_INVALID,
          "out_norm is for tsr_minimize_with");
    FAILS(compile(&n, ddp, TSR_MINIMIZE_OPTS(.clip_norm = -1), &plan), TSR_ERR_INVALID,
          "clip_norm -1");
    FAILS(compile(&n, ddp, TSR_MINIMIZE_OPTS(.accumulate = 0), &plan), TSR_ERR_INVALID,
          "accumulate 0");
    TRY(compile(&n, ddp, TSR_MINIMIZE_OPTS(.accumulate = 2), &plan));
    tsr_plan *other;
    FAILS(compile(&n, ddp, TSR_MINIMIZE_OPTS(.accumulate = 3), &other), TSR_ERR_STATE,
          "once in 3 runs here, and once in 2");
    tsr_tensor *loss = declare_loss(&n, &g);
    tsr_ddp_minimize(ddp, n.o, 1, &loss, TSR_MINIMIZE_OPTS(.accumulate = 2));
    tsr_ddp_minimize(ddp, n.o, 1, &loss, TSR_MINIMIZE_OPTS(.accumulate = 2));
    FAILS(tsr_compile(g, &other), TSR_ERR_STATE, "has a tsr_ddp_minimize already");

    FAILS(tsr_ddp_run(ddp, plan), TSR_ERR_STATE, "tsr_run runs it");
    FAILS(tsr_ddp_step(ddp, n.o), TSR_ERR_STATE, "once in 2 runs");
    tsr_ddp_no_sync(ddp, true);
    FAILS(feed_and_run(plan, 1, 1), TSR_ERR_STATE, "tsr_ddp_no_sync is on");
    tsr_ddp_no_sync(ddp, false);
    TRY(feed_and_run(plan, 1, 1));
    TRY(feed_and_run(plan, 3, 3));
    CHECK(is(n.v[0], 8, 8));

    tsr_optimizer *late = tsr_sgd(n.m, TSR_SGD_OPTS(.lr = 1));
    FAILS(tsr_ddp_step_with(ddp, late, TSR_MINIMIZE_OPTS(.accumulate = -1)), TSR_ERR_INVALID,
          "accumulate -1");
    FAILS(tsr_ddp_step_with(ddp, late, TSR_MINIMIZE_OPTS(.out_norm = &norm)), TSR_ERR_INVALID,
          "out_norm is for tsr_minimize_with");

    /* The optimizer outlives what lent it gradients, and the plan both. */
    TRY(tsr_ddp_close(&ddp));
    FAILS(tsr_run(plan), TSR_ERR_INVALID, "tsr_ddp has been destroyed");
    tsr_checkpoint *c;
    TRY(tsr_checkpoint_create(w, "never-written", NULL, &c));
    TRY(tsr_checkpoint_add_optimizer(c, "optimizer", n.o));
    tsr_checkpoint_destroy(c);
    TRY(tsr_ddp_create(n.m, NULL, &ddp));
    TRY(compile(&n, ddp, TSR_MINIMIZE_OPTS(.accumulate = 2), &plan));
    tsr_optimizer_destroy(n.o);
    FAILS(tsr_run(plan), TSR_ERR_INVALID, "optimizer has been destroyed");
    return tsr_ddp_close(&ddp);
}

static void test_refuses(void **state)
{
    (void)state;
    expect_ok(2, refuses, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freezes), cmocka_unit_test(test_clips),
        cmocka_unit_test(test_steps),   cmocka_unit_test(test_scales),
        cmocka_unit_test(test_reads),   cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
