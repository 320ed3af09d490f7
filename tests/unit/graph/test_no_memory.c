/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole training program with its n-th allocation failing, for n = 1, 2, ... until none fails: an
 * error is told, nothing crashes or hangs, nothing leaks (under AddressSanitizer), and a compile
 * that failed can be done again.
 */
#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/world.h"
#include "tests/sample.h"

typedef struct attempt {
    int64_t n;    /* which allocation fails */
    int rank;     /* on which rank */
    bool reached; /* whether there were as many */
    bool failed;  /* whether it made the program fail */
    bool told;    /* its error said so */
    double loss;
} attempt;

enum { ROWS = 6 };

static tsr_status declare(tsr_world *w, tsr_module **net, tsr_optimizer **opt, tsr_graph **g)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    *net = tsr_convnet(w, p, TSR_S(0), TSR_CONVNET_OPTS(.height = 4, .width = 4, .seed = 1));
    *opt = tsr_adam(*net, TSR_ADAM_OPTS(.lr = 0.01));
    *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(*g, "x", TSR_F32, TSR_DIMS(ROWS, 1, 4, 4), p, TSR_S(0));
    tsr_tensor *y = tsr_input(*g, "y", TSR_I64, TSR_DIMS(ROWS), p, TSR_S(0));
    tsr_tensor *logits = tsr_apply(*net, tsr_dropout(x, 0.1));
    logits = tsr_mul(logits, tsr_sigmoid(logits)); /* its gradient is summed, and then multiplied */
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_minimize(*opt, tsr_add(loss, tsr_mean(logits, TSR_ALL_AXES, false)));
    tsr_output(*g, "loss", loss, p, TSR_B);
    tsr_output(*g, "logits", tsr_softmax(logits, 1), p, TSR_S(0));
    return *g ? tsr_graph_status(*g) : TSR_ERR_NO_MEMORY;
}

static tsr_status train(tsr_plan *plan, double *out_loss)
{
    float x[ROWS * 16];
    int64_t y[ROWS];
    for (int i = 0; i < ROWS * 16; i++)
        x[i] = (float)(i * 7 % 13) / 13;
    for (int i = 0; i < ROWS; i++)
        y[i] = i;
    tsr_status status = tsr_feed(plan, "x", x, sizeof x);
    if (status == TSR_OK)
        status = tsr_feed(plan, "y", y, sizeof y);
    if (status == TSR_OK)
        status = tsr_run(plan);
    return status == TSR_OK ? tsr_fetch_scalar(plan, "loss", out_loss) : status;
}

static tsr_status program(tsr_world *w, void *arg)
{
    attempt *a = arg;
    bool mine = tsr_world_rank(w) == a->rank;
    tsr_module *net;
    tsr_optimizer *opt;
    tsr_graph *g;
    tsr_plan *plan;
    if (mine)
        w->mem.fail_countdown = a->n;
    tsr_status status = declare(w, &net, &opt, &g);
    bool declared = status == TSR_OK;
    /* SPMD: a rank whose declaration failed compiles too, and so tells the others. */
    if (g)
        status = tsr_compile(g, &plan);
    bool compiled = g && status == TSR_OK;
    if (mine) {
        a->reached = w->mem.fail_countdown == 0;
        a->failed = !compiled;
        a->told = compiled || strstr(tsr_last_error(), "no memory");
        w->mem.fail_countdown = 0;
    }
    /* One rank alone may try again: what was declared is whole. */
    if (declared && !compiled && tsr_world_size(w) == 1)
        return tsr_compile(g, &plan) == TSR_OK ? train(plan, &a->loss) : TSR_ERR_INTERNAL;
    if (!compiled)
        return status;
    double loss;
    status = train(plan, &loss);
    if (status == TSR_OK && mine)
        a->loss = loss;
    return status;
}

static attempt clean(int nranks)
{
    attempt a = {.n = 0};
    if (tsr_spawn(nranks, program, &a) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return a;
}

static void every_allocation(int nranks, int rank, int64_t every)
{
    attempt want = clean(nranks);
    int64_t n = 1, failed = 0;
    for (;; n += every) {
        attempt a = {.n = n, .rank = rank};
        tsr_status status = tsr_spawn_with(nranks, program, &a, TSR_WORLD_OPTS(.timeout_s = 20));
        if (!a.reached && status == TSR_OK)
            break; /* there are fewer than n */
        /* What had to be NULL for it (a placement, a module) can carry another status. */
        if (status != TSR_OK && !strstr(tsr_last_error(), "no memory"))
            fail_msg("allocation %lld of rank %d: %s: %s", (long long)n, rank,
                     tsr_status_name(status), tsr_last_error());
        if (!a.told)
            fail_msg("allocation %lld of rank %d: no text", (long long)n, rank);
        failed += a.failed;
        /* A rank that went on without the memory has the same losses. */
        if (status == TSR_OK && a.loss != want.loss)
            fail_msg("allocation %lld of rank %d: loss %.9g, not %.9g", (long long)n, rank, a.loss,
                     want.loss);
    }
    print_message("%d ranks: %lld allocations, every %lld-th failed; %lld programs failed\n",
                  nranks, (long long)n, (long long)every, (long long)failed);
    assert_true(n > 100 && failed > n / every / 2);
}

static void test_alone(void **state)
{
    (void)state;
    every_allocation(1, 0, test_sample());
}

static void test_one_of_two(void **state)
{
    (void)state;
    every_allocation(2, 1, 3 * test_sample());
}

/* --- what is given back ----------------------------------------------------------------------- */
/* Makes something and destroys it. */
typedef tsr_status (*maker)(void *arg);

/* Repeats `make` with the n-th allocation failing, for n = 1, 1 + every, ... until none fails: an
 * attempt that failed leaves nothing in the arena either. */
static tsr_status make_and_fail(tsr_world *w, maker make, void *arg, int64_t every,
                                int64_t *out_failed)
{
    const int nblocks = w->region.nblocks;
    for (int64_t n = 1;; n += every) {
        w->mem.fail_countdown = n;
        tsr_status status = make(arg);
        bool reached = w->mem.fail_countdown == 0;
        w->mem.fail_countdown = 0;
        if (status != TSR_OK && status != TSR_ERR_NO_MEMORY)
            return status;
        if (w->region.nblocks != nblocks)
            return tsri_fail(TSR_ERR_INTERNAL, "allocation %lld: %d blocks, then %d", (long long)n,
                             nblocks, w->region.nblocks);
        if (!reached)
            return TSR_OK;
        *out_failed += status != TSR_OK;
    }
}

/* Runs `body` on `nranks` ranks, where more than `least` attempts are to fail. */
static void count_failures(int nranks, tsr_status (*body)(tsr_world *, void *), int64_t least)
{
    int64_t failed = 0;
    tsr_status status = tsr_spawn(nranks, body, &failed);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
    assert_true(failed > least);
}

static tsr_status make_ddp(void *net)
{
    tsr_ddp *ddp;
    TSRI_TRY(tsr_ddp_create(net, TSR_DDP_OPTS(.hook = TSR_DDP_BF16_COMPRESS), &ddp));
    tsr_ddp_destroy(ddp);
    return TSR_OK;
}

static tsr_status fail_ddp(tsr_world *w, void *out_failed)
{
    tsr_module *net = tsr_mlp(w, tsr_local_placement(w), TSR_B,
                              TSR_MLP_OPTS(.inputs = 3, .hidden = 4, .outputs = 2));
    TSRI_TRY(make_ddp(net));
    return make_and_fail(w, make_ddp, net, 1, out_failed);
}

static void test_ddp(void **state)
{
    (void)state;
    count_failures(1, fail_ddp, 10);
}

static tsr_status make_plan(void *graph)
{
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(graph, &plan));
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static tsr_status fail_compile(tsr_world *w, void *out_failed)
{
    tsr_module *net;
    tsr_optimizer *opt;
    tsr_graph *g;
    tsr_plan *plan;
    double loss;
    TSRI_TRY(declare(w, &net, &opt, &g));
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(train(plan, &loss));
    const int with_plan = w->region.nblocks;
    tsr_plan_destroy(plan);
    assert_true(w->region.nblocks < with_plan);
    return make_and_fail(w, make_plan, g, test_sample() > 7 ? test_sample() : 7, out_failed);
}

static void test_arena(void **state)
{
    (void)state;
    count_failures(1, fail_compile, 10);
}

/* --- local graphs ----------------------------------------------------------------------------- */
/* Batch norm over the ranks, and its gradient: one rank declares, which needs no other. */
static tsr_status declare_local(tsr_world *w, void *arg)
{
    int64_t *out_failed = arg;
    const tsr_placement *p = tsr_local_placement(w);
    const tsr_nn_opts o = {.placement = p};
    tsr_module *bn = tsr_nn_batch_norm(w, &o, 2, NULL);
    TSRI_TRY(tsr_convert_sync_batchnorm(bn, tsr_world_group(w)));
    for (int64_t n = 1; tsr_world_rank(w) == 0; n++) {
        w->mem.fail_countdown = n;
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(3, 2), p, TSR_B), *dx;
        tsr_tensor *y = tsr_apply(bn, x);
        tsr_gradients(tsr_sum(tsr_mul(y, y), TSR_ALL_AXES, false), 1, &x, &dx);
        tsr_output(g, "dx", dx, p, TSR_B);
        tsr_status status = g ? tsr_graph_status(g) : TSR_ERR_NO_MEMORY;
        bool reached = w->mem.fail_countdown == 0;
        w->mem.fail_countdown = 0;
        tsr_graph_destroy(g);
        if (status != (reached ? TSR_ERR_NO_MEMORY : TSR_OK))
            return tsri_fail(TSR_ERR_INTERNAL, "allocation %lld: %s: %s", (long long)n,
                             tsr_status_name(status), tsr_last_error());
        if (!reached)
            return TSR_OK;
        ++*out_failed;
    }
    return TSR_OK;
}

static void test_local_graphs(void **state)
{
    (void)state;
    count_failures(2, declare_local, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),        cmocka_unit_test(test_one_of_two),
        cmocka_unit_test(test_ddp),          cmocka_unit_test(test_arena),
        cmocka_unit_test(test_local_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
