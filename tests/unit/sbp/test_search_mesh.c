/* SPDX-License-Identifier: Apache-2.0 */
/* The search on problems of real size and shape. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sbp/search/tie.h"
#include "tests/bench/search_mesh.h"
#include "tests/sample.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static tsri_search_result solve(const mesh *m, int64_t limit, int *choice, const char *what)
{
    tsri_search_problem p = m->problem;
    tsri_search_result r = {.cost = -1.0};
    p.usage_limit = limit;
    double start = now_ms();
    assert_int_equal(tsri_search(&p, choice, &r), TSR_OK);
    double ms = now_ms() - start;
    assert_true(r.cost == tsri_search_cost(&p, choice) && r.bound <= r.cost);
    print_message("%-24s %5d nodes %5d edges: %8.1f ms, gap %.2e %s\n", what, p.nnodes, p.nedges,
                  ms, (r.cost - r.bound) / r.cost, r.exact ? "(exact)" : "");
    return r;
}

/* The same problem with a table of its own for every edge and node. */
static mesh unshared(mesh *m)
{
    mesh copy = {.problem = m->problem};
    size_t n = (size_t)m->problem.nnodes, nedges = (size_t)m->problem.nedges;
    copy.nodes = malloc(n * sizeof *copy.nodes);
    copy.edges = malloc(nedges * sizeof *copy.edges);
    memcpy(copy.nodes, m->nodes, n * sizeof *copy.nodes);
    for (size_t i = 0; i < nedges; i++) {
        tsri_search_edge e = m->edges[i];
        size_t bytes = (size_t)m->nodes[e.u].nstrat * (size_t)m->nodes[e.v].nstrat * sizeof(float);
        float *cost = mesh_own(&copy, malloc(bytes));
        memcpy(cost, e.cost, bytes);
        copy.edges[i] = (tsri_search_edge){e.u, e.v, cost};
    }
    copy.problem.nodes = copy.nodes;
    copy.problem.edges = copy.edges;
    return copy;
}

/* No single node can do better, which the pairwise sums alone decide. */
static void assert_locally_optimal(const mesh *m, int *choice, double cost)
{
    for (int v = 0; v < m->problem.nnodes; v += 37) {
        int kept = choice[v];
        for (choice[v] = 0; choice[v] < m->nodes[v].nstrat; choice[v]++)
            assert_true(tsri_search_cost(&m->problem, choice) >= cost * (1.0 - 1e-9));
        choice[v] = kept;
    }
}

static void check(mesh m, double gap, const char *what)
{
    size_t bytes = (size_t)m.problem.nnodes * sizeof(int);
    int *first = malloc(bytes), *second = malloc(bytes);
    mesh copy = unshared(&m);
    tsri_search_result r = solve(&m, 0, first, what);
    assert_true(r.cost - r.bound <= gap * r.cost);
    tsri_search_result again = solve(&m, 0, second, "  again");
    assert_memory_equal(first, second, bytes);
    assert_true(again.cost == r.cost && again.bound == r.bound && again.exact == r.exact);
    again = solve(&copy, 0, second, "  tables not shared");
    assert_memory_equal(first, second, bytes);
    assert_true(again.cost == r.cost && again.bound == r.bound && again.exact == r.exact);
    assert_locally_optimal(&m, first, r.cost);
    mesh_free(&copy);
    mesh_free(&m);
    free(first);
    free(second);
}

static void test_transformer(void **state)
{
    (void)state;
    check(mesh_transformer(24 / test_sample(), 0.0f, 1), 0.0, "transformer");
    check(mesh_transformer(24 / test_sample(), 0.02f, 1), 1e-3, "transformer, unequal");
}

static void test_convnet(void **state)
{
    (void)state;
    check(mesh_convnet(52 / test_sample(), 0.0f, 1), 0.0, "convnet");
    check(mesh_convnet(52 / test_sample(), 0.02f, 1), 1e-3, "convnet, unequal");
}

/* Less and less memory: never over the limit, never cheaper, and near a proven bound. */
static void test_memory(void **state)
{
    (void)state;
    mesh m = mesh_transformer(8, 0.0f, 1);
    size_t bytes = (size_t)m.problem.nnodes * sizeof(int);
    int *first = malloc(bytes), *second = malloc(bytes);
    tsri_search_result free_run = solve(&m, 0, first, "8 layers");
    tsri_search_result r = solve(&m, free_run.peak, second, "  its peak");
    assert_true(r.cost == free_run.cost && r.exact && r.peak == free_run.peak);
    assert_memory_equal(first, second, bytes);
    double before = free_run.cost;
    static const double shares[] = {0.9, 0.7, 0.5};
    for (int i = 0; i < 3; i++) {
        int64_t limit = (int64_t)(shares[i] * (double)free_run.peak);
        char what[32];
        snprintf(what, sizeof what, "  %.0f %% of it", 100 * shares[i]);
        r = solve(&m, limit, first, what);
        assert_true(r.peak <= limit && r.cost >= before * (1.0 - 5e-3));
        assert_true(r.cost - r.bound <= 1e-2 * r.cost);
        tsri_search_result again = solve(&m, limit, second, "    again");
        assert_memory_equal(first, second, bytes);
        assert_true(again.bound == r.bound);
        before = r.cost;
    }
    tsri_search_problem p = m.problem;
    p.usage_limit = free_run.peak / 100;
    assert_int_equal(tsri_search(&p, first, &r), TSR_OK);
    assert_true(r.cost == INFINITY && r.exact && r.peak > p.usage_limit);
    mesh_free(&m);
    free(first);
    free(second);
}

/* Equal blocks, tied: a few of the nodes, whose answers cost what those of all nodes do; and within
 * less and less memory about as little as without ties. */
static void test_ties(void **state)
{
    (void)state;
    mesh m = mesh_transformer(24, 0.0f, 1);
    size_t n = (size_t)m.problem.nnodes;
    int *choice = malloc(n * sizeof(int)), *tied = malloc(n * sizeof(int));
    tsri_pool pool;
    tsri_ties ties;
    tsri_pool_init(&pool, NULL);
    assert_int_equal(tsri_ties_make(&pool, &m.problem, &ties), TSR_OK);
    assert_true(ties.tied.nnodes * 5 <= m.problem.nnodes);
    for (int k = 0; k < 8; k++) {
        for (int v = 0; v < ties.tied.nnodes; v++)
            tied[v] = (7 * v + k) % ties.tied.nodes[v].nstrat;
        for (int v = 0; v < m.problem.nnodes; v++)
            choice[v] = tied[ties.of[v]];
        double cost = tsri_search_cost(&m.problem, choice);
        assert_true(cost == INFINITY ||
                    fabs(tsri_search_cost(&ties.tied, tied) - cost) <= 1e-5 * fabs(cost));
    }
    tsri_search_result free_run = solve(&m, 0, choice, "24 layers");
    int *free_choice = malloc(n * sizeof(int));
    memcpy(free_choice, choice, n * sizeof(int));
    tsri_search_shared shared = {.pool = &pool, .choice = free_choice, .result = free_run};
    static const double shares[] = {0.9, 0.7, 0.5};
    for (int i = 0; i < 3; i++) {
        int64_t limit = (int64_t)(shares[i] * (double)free_run.peak);
        m.problem.quick_within = false;
        tsri_search_result whole = solve(&m, limit, tied, "  within less");
        m.problem.quick_within = true;
        tsri_search_result r = solve(&m, limit, choice, "    tied");
        assert_true(r.peak <= limit && r.cost >= whole.bound * (1.0 - 1e-9));
        assert_true(r.cost <= 1.03 * whole.cost);
        tsri_search_result again = solve(&m, limit, tied, "    again");
        assert_memory_equal(choice, tied, n * sizeof(int));
        assert_true(again.cost == r.cost);
        /* What searches within other limits have found changes nothing. */
        m.problem.usage_limit = limit;
        assert_int_equal(tsri_search_within(&m.problem, &shared, tied, &again), TSR_OK);
        assert_memory_equal(choice, tied, n * sizeof(int));
        assert_true(again.cost == r.cost && shared.priced && shared.ties);
        m.problem.usage_limit = 0;
        print_message("    %.4f of the cost\n", r.cost / whole.cost);
    }
    tsri_pool_finish(&pool);
    mesh_free(&m);
    free(choice);
    free(tied);
    free(free_choice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_convnet),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
