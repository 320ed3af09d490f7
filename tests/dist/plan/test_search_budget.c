/* SPDX-License-Identifier: Apache-2.0 */
/* The search for signatures within search_s: all ranks stop at one place, however fast each of them
 * is, and so does a plan that is made without them. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/rng.h"
#include "src/core/status.h"
#include "src/plan/pass/pass.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/rank_checks.h"

enum { RANKS = 4, BLOCKS = 4, WIDTH = 64, ROWS = 48, SHARE = 98 };

typedef struct found {
    double cost_s, bound_s;
    uint64_t chosen; /* of all signatures */
    double work;     /* that the search has done, to the last unit: all that it tried */
    bool is_cut;
} found;

typedef struct trial {
    double search_s;
    size_t limit;
    bool slowed; /* the last rank is stopped most of the time */
    found of[RANKS];
} trial;

/* --- a rank that is stopped most of the time -------------------------------------------------- */
typedef struct brake {
    pthread_t braked, thread;
    _Atomic bool ends;
} brake;

static void stop_a_while(int number)
{
    (void)number;
    const struct timespec ms = {.tv_nsec = 1000000};
    nanosleep(&ms, NULL);
}

static void *press(void *arg)
{
    brake *b = arg;
    const struct timespec pause = {.tv_nsec = 1100000};
    while (!atomic_load(&b->ends)) {
        pthread_kill(b->braked, SIGUSR1);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* --- a program -------------------------------------------------------------------------------- */
static tsr_graph *declare(tsr_world *w)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[[0,1],[2,3]]");
    const tsr_sbp b = {.ndim = 2, .d = {{TSR_SBP_BROADCAST, 0}, {TSR_SBP_BROADCAST, 0}}};
    const tsr_nn_opts nn = {.placement = p, .dtype = TSR_F32, .seed = 5};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_uniform(g, "x", TSR_F32, TSR_DIMS(ROWS, WIDTH), p, TSR_AUTO, -1, 1);
    for (int i = 0; i < BLOCKS; i++) {
        char name[16];
        tsr_tensor *from = x;
        const int wide = WIDTH * (1 + i % 3); /* blocks differ */
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "w%d_%d", i, k);
            tsr_module_param(m, name, k ? TSR_DIMS(WIDTH, wide) : TSR_DIMS(wide, WIDTH), TSR_AUTO,
                             (tsr_init){.kind = TSR_INIT_XAVIER_NORMAL});
            x = tsr_tanh(tsr_linear(x, tsr_use(m, name, x), NULL));
        }
        x = tsr_add(x, from);
    }
    tsr_tensor *loss = tsr_mean(tsr_mul(x, x), TSR_ALL_AXES, false);
    tsr_minimize(tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.01)), loss);
    tsr_output(g, "loss", loss, p, b);
    return g;
}

static uint64_t hash_chosen(const tsr_plan *plan)
{
    uint64_t h = TSRI_HASH_INIT;
    for (int i = 0; i < plan->ir.nvalues; i++) {
        char text[TSRI_LAYOUT_TEXT_MAX];
        tsri_layout_format(&plan->ir.values[i].layout, text);
        h = tsri_hash(h, text, strlen(text));
    }
    return h;
}

static tsr_status compile(tsr_world *w, const trial *t, found *out)
{
    tsr_plan *plan;
    TSRI_TRY(tsr_compile_with(
        declare(w), TSR_COMPILE_OPTS(.memory_limit = t->limit, .search_s = t->search_s), &plan));
    *out = (found){plan->info.cost_s, plan->info.bound_s, hash_chosen(plan), plan->search_work,
                   plan->is_cut};
    return TSR_OK;
}

static tsr_status search(tsr_world *w, void *arg)
{
    trial *t = arg;
    const int rank = tsr_world_rank(w);
    brake b = {.braked = pthread_self()};
    const bool slowed = t->slowed && rank == RANKS - 1;
    if (slowed)
        CHECK(!pthread_create(&b.thread, NULL, press, &b));
    tsr_status status = compile(w, t, &t->of[rank]);
    atomic_store(&b.ends, true);
    if (slowed)
        pthread_join(b.thread, NULL);
    return status;
}

static void run(trial *t)
{
    static const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};
    if (tsr_spawn_with(RANKS, search, t, &opts) != TSR_OK)
        fail_msg("%g s: %s", t->search_s, tsr_last_error());
}

/* --- what ranks find -------------------------------------------------------------------------- */
static const double seconds[] = {0.1, 1};
enum { TRIALS = sizeof seconds / sizeof *seconds };

/* A limit between what the cheapest plan and what the leanest needs, so that much is tried. */
static size_t find_limit(void)
{
    tsr_world *w;
    tsr_plan *plan;
    size_t variables, ports, values;
    assert_int_equal(tsr_world_create_virtual(RANKS, 0, &w), TSR_OK);
    assert_int_equal(tsr_compile(declare(w), &plan), TSR_OK);
    assert_int_equal(tsri_plan_rank_bytes(&plan->ir, 0, &variables, &ports, &values), TSR_OK);
    tsr_world_destroy(w);
    return (variables + ports + values) * SHARE / 100;
}

static void test_ranks_agree(void **state)
{
    (void)state;
    const struct sigaction act = {.sa_handler = stop_a_while, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
    trial free_search = {.limit = find_limit()};
    run(&free_search);
    const found *all = &free_search.of[0];
    double before = 0;
    for (int i = 0; i < TRIALS; i++) {
        trial t = {.search_s = seconds[i], .limit = free_search.limit};
        run(&t);
        trial slowed = {.search_s = t.search_s, .limit = t.limit, .slowed = true};
        run(&slowed);
        for (int r = 0; r < RANKS; r++) {
            assert_true(slowed.of[r].chosen == t.of[0].chosen);
            assert_true(slowed.of[r].cost_s == t.of[0].cost_s);
            assert_true(slowed.of[r].work == t.of[0].work);
        }
        assert_true(t.of[0].cost_s >= t.of[0].bound_s * (1 - 1e-6));
        assert_true(t.of[0].cost_s >= all->cost_s * (1 - 1e-6));
        print_message("%g s: %.3g units of work%s, %.4g ms; without an end %.4g ms\n", t.search_s,
                      t.of[0].work, t.of[0].is_cut ? ", ended" : "", 1e3 * t.of[0].cost_s,
                      1e3 * all->cost_s);
        assert_true(t.of[0].is_cut && t.of[0].work > before);
        before = t.of[0].work;
    }
    assert_true(!all->is_cut);
}

/* A world without ranks counts the same work. Within a limit it knows no scratch of CPUs. */
static void test_virtual_agrees(void **state)
{
    (void)state;
    for (int i = 0; i < TRIALS; i++) {
        trial t = {.search_s = seconds[i]};
        found alone;
        tsr_world *w;
        run(&t);
        assert_int_equal(tsr_world_create_virtual(RANKS, 0, &w), TSR_OK);
        assert_int_equal(compile(w, &t, &alone), TSR_OK);
        assert_true(alone.chosen == t.of[0].chosen && alone.cost_s == t.of[0].cost_s);
        tsr_world_destroy(w);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const double wrong[] = {-1, NAN};
    for (int i = 0; i < 2; i++) {
        tsr_world *w;
        const trial t = {.search_s = wrong[i]};
        found none;
        assert_int_equal(tsr_world_create_virtual(RANKS, 0, &w), TSR_OK);
        assert_int_equal(compile(w, &t, &none), TSR_ERR_INVALID);
        assert_non_null(strstr(tsr_last_error(), "search_s is "));
        tsr_world_destroy(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_agree),
                                       cmocka_unit_test(test_virtual_agrees),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
