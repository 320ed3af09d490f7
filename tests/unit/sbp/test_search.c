/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "tests/bench/search_ladder.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A problem that the test builds edge by edge; nodes and edges are the ladder's containers. */
typedef enum shape { TREE, CYCLE, GRID, RANDOM, COMPLETE, NSHAPES } shape;

static ladder new_problem(int nodes, int edges, uint64_t seed)
{
    ladder l = {.state = seed};
    l.nodes = calloc((size_t)nodes + 1, sizeof *l.nodes);
    l.edges = calloc((size_t)edges + 1, sizeof *l.edges);
    l.problem.nodes = l.nodes;
    l.problem.edges = l.edges;
    return l;
}

static int pick(ladder *l, int n)
{
    return (int)(ladder_random(l) % (uint64_t)n);
}

/* An edge of values -1 to 1 in steps of `grain` (0: none), with that share of INFINITY. */
static void random_edge(ladder *l, int u, int v, float grain, float forbidden)
{
    size_t count = (size_t)l->nodes[u].nstrat * (size_t)l->nodes[v].nstrat;
    float *cost = malloc(count * sizeof *cost);
    for (size_t i = 0; i < count; i++) {
        float c = 2.0f * ladder_uniform(l) - 1.0f;
        cost[i] = ladder_uniform(l) < forbidden ? INFINITY
                  : grain > 0                   ? roundf(c / grain) * grain
                                                : c;
    }
    l->edges[l->problem.nedges++] = (tsri_search_edge){u, v, cost};
}

static void random_node(ladder *l, int nstrat, float grain, float forbidden)
{
    int v = ladder_node(l, nstrat);
    float *cost = malloc((size_t)nstrat * sizeof *cost);
    for (int s = 0; s < nstrat; s++) {
        float c = 2.0f * l->nodes[v].cost[s] - 1.0f;
        cost[s] = ladder_uniform(l) < forbidden ? INFINITY
                  : grain > 0                   ? roundf(c / grain) * grain
                                                : c;
    }
    free((void *)(uintptr_t)l->nodes[v].cost);
    l->nodes[v].cost = cost;
}

static ladder random_problem(shape kind, int n, int strategies, float grain, float forbidden,
                             uint64_t seed)
{
    ladder l = new_problem(n, n * n + 8, seed);
    for (int v = 0; v < n; v++)
        random_node(&l, 1 + pick(&l, strategies), grain, forbidden / 2);
    for (int v = 1; v < n; v++) {
        if (kind == TREE)
            random_edge(&l, v, pick(&l, v), grain, forbidden);
        if (kind == CYCLE || (kind == GRID && v % 3))
            random_edge(&l, v - 1, v, grain, forbidden);
        if (kind == GRID && v >= 3)
            random_edge(&l, v, v - 3, grain, forbidden);
        for (int u = 0; u < v && kind == COMPLETE; u++)
            random_edge(&l, u, v, grain, forbidden);
    }
    if (kind == CYCLE && n > 2)
        random_edge(&l, n - 1, 0, grain, forbidden);
    for (int i = 0; i < n + n / 2 && kind == RANDOM && n > 1; i++) {
        int u = pick(&l, n), v = pick(&l, n - 1);
        random_edge(&l, u, v + (v >= u), grain, forbidden);
    }
    /* Parallel edges, both ways round. */
    for (int i = 0; i < 2 && l.problem.nedges; i++) {
        tsri_search_edge e = l.edges[pick(&l, l.problem.nedges)];
        random_edge(&l, i ? e.v : e.u, i ? e.u : e.v, grain, forbidden);
    }
    return l;
}

/* No node costs to hold on to, no small domains: nothing is dominated. */
static ladder tangled_problem(int n, int edges, float forbidden, uint64_t seed)
{
    ladder l = new_problem(n, edges, seed);
    for (int v = 0; v < n; v++) {
        ladder_node(&l, 3);
        memset((void *)(uintptr_t)l.nodes[v].cost, 0, 3 * sizeof(float));
    }
    for (int i = 0; i < edges; i++) {
        int u = pick(&l, n), v = pick(&l, n - 1);
        random_edge(&l, u, v + (v >= u), 0.0f, forbidden);
    }
    return l;
}

/* The oracle: every assignment, each summed by itself. */
static double brute_force(const tsri_search_problem *p)
{
    int choice[16] = {0};
    double best = INFINITY;
    for (int v = 0; v < p->nnodes;) {
        double sum = 0.0;
        for (int i = 0; i < p->nnodes; i++)
            sum += p->nodes[i].cost[choice[i]];
        for (int e = 0; e < p->nedges; e++)
            sum += p->edges[e].cost[choice[p->edges[e].u] * p->nodes[p->edges[e].v].nstrat +
                                    choice[p->edges[e].v]];
        best = sum < best ? sum : best;
        for (v = 0; v < p->nnodes && ++choice[v] == p->nodes[v].nstrat; v++)
            choice[v] = 0;
    }
    return best;
}

static tsri_search_result solve(const tsri_search_problem *p, int *choice)
{
    tsri_search_result r = {.cost = -1.0};
    memset(choice, 0xff, (size_t)p->nnodes * sizeof *choice);
    assert_int_equal(tsri_search(p, choice, &r), TSR_OK);
    for (int v = 0; v < p->nnodes; v++)
        assert_in_range(choice[v], 0, p->nodes[v].nstrat - 1);
    double cost = tsri_search_cost(p, choice);
    assert_true(r.cost == cost);
    return r;
}

static void assert_close(double found, double expected)
{
    if (found == expected || fabs(found - expected) <= 1e-9 * (1.0 + fabs(expected)))
        return;
    print_error("found %.17g, expected %.17g\n", found, expected);
    fail();
}

static void test_brute_force(void **state)
{
    (void)state;
    static const float shares[] = {0.0f, 0.15f, 0.45f};
    int choice[16], infeasible = 0, feasible = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        shape kind = (shape)(seed % NSHAPES);
        int n = 1 + (int)(seed % 8);
        ladder l = random_problem(kind, n, 4, seed % 2 ? 0.0f : 0.25f, shares[seed % 3], seed);
        double expected = brute_force(&l.problem);
        tsri_search_result r = solve(&l.problem, choice);
        assert_true(r.exact);
        assert_close(r.cost, expected);
        infeasible += expected == INFINITY;
        feasible += expected < INFINITY;
        ladder_free(&l);
    }
    /* The set has what it claims to have. */
    assert_true(infeasible > 30 && feasible > 300);
}

/* Wide node counts against elimination's fast paths: more strategies than a byte can number, and
 * blocks of all lengths. */
static void test_wide_nodes(void **state)
{
    (void)state;
    int choice[16];
    for (uint64_t seed = 0; seed < 60; seed++) {
        ladder l = new_problem(4, 8, seed);
        int wide = seed % 4 == 0 ? 300 : 2 + (int)(seed % 23);
        for (int v = 0; v < 4; v++)
            random_node(&l, v == (int)(seed % 3) ? wide : 2 + pick(&l, 5), 0.0f, 0.1f);
        for (int v = 0; v < 4; v++)
            for (int u = 0; u < v; u++)
                random_edge(&l, u, v, 0.0f, 0.1f);
        tsri_search_result r = solve(&l.problem, choice);
        assert_true(r.exact);
        assert_close(r.cost, brute_force(&l.problem));
        ladder_free(&l);
    }
}

static void test_choice(void **state)
{
    (void)state;
    int choice[4];
    /* All equal: the lowest of each. */
    ladder l = new_problem(3, 3, 0);
    for (int v = 0; v < 3; v++) {
        float *zero = calloc(4, sizeof *zero);
        l.nodes[l.problem.nnodes++] = (tsri_search_node){.nstrat = 4, .cost = zero};
    }
    for (int v = 1; v < 3; v++)
        l.edges[l.problem.nedges++] = (tsri_search_edge){v, v - 1, calloc(16, sizeof(float))};
    tsri_search_result r = solve(&l.problem, choice);
    assert_true(r.cost == 0.0 && r.exact);
    for (int v = 0; v < 3; v++)
        assert_int_equal(choice[v], 0);
    ladder_free(&l);

    /* Node 0 wants 0, node 1 wants 1, the edge wants them equal, more than either. */
    float cost0[] = {0, 1}, cost1[] = {3, 0}, edge[] = {0, 5, 5, 0};
    tsri_search_node nodes[] = {{.nstrat = 2, .cost = cost0}, {.nstrat = 2, .cost = cost1}};
    tsri_search_edge edges[] = {{0, 1, edge}};
    tsri_search_problem p = {.nnodes = 2, .nedges = 1, .nodes = nodes, .edges = edges};
    r = solve(&p, choice);
    assert_true(r.cost == 1.0);
    assert_int_equal(choice[0], 1);
    assert_int_equal(choice[1], 1);

    /* Nothing at all. */
    tsri_search_problem none = {0};
    assert_int_equal(tsri_search(&none, NULL, &r), TSR_OK);
    assert_true(r.cost == 0.0 && r.exact);
}

static void set_edge(ladder *l, int u, int v, float equal, float different)
{
    random_edge(l, u, v, 0.0f, 0.0f);
    float *cost = (float *)(uintptr_t)l->edges[l->problem.nedges - 1].cost;
    for (int i = 0; i < l->nodes[u].nstrat; i++)
        for (int j = 0; j < l->nodes[v].nstrat; j++)
            cost[i * l->nodes[v].nstrat + j] = i == j ? equal : different;
}

/* Colourings of a triangle, with more colours than a vector has lanes: all are optimal, nothing is
 * dominated, and no node of the answer could have a lower colour. */
static void test_ties(void **state)
{
    (void)state;
    for (int k = 3; k < 12; k++) {
        int choice[3];
        ladder l = new_problem(3, 3, 1);
        for (int v = 0; v < 3; v++) {
            ladder_node(&l, k);
            memset((void *)(uintptr_t)l.nodes[v].cost, 0, (size_t)k * sizeof(float));
        }
        set_edge(&l, 0, 1, 1.0f, 0.0f);
        set_edge(&l, 1, 2, 1.0f, 0.0f);
        set_edge(&l, 2, 0, 1.0f, 0.0f);
        tsri_search_result r = solve(&l.problem, choice);
        assert_true(r.cost == 0.0 && r.exact);
        assert_true(choice[0] < 3 && choice[1] < 3 && choice[2] < 3);
        ladder_free(&l);
    }
    /* Rows shorter than a vector. */
    int choice[2];
    ladder l = new_problem(2, 1, 1);
    for (int v = 0; v < 2; v++) {
        ladder_node(&l, 3);
        memset((void *)(uintptr_t)l.nodes[v].cost, 0, 3 * sizeof(float));
    }
    set_edge(&l, 0, 1, 1.0f, 0.0f);
    solve(&l.problem, choice);
    assert_int_equal(choice[0], 1);
    assert_int_equal(choice[1], 0);
    ladder_free(&l);
}

/* A node in the middle whose best strategy has a number that no byte holds: 287 = 14 * 20 + 7. */
static void test_many_strategies(void **state)
{
    (void)state;
    enum { WIDE, A, B, K = 20 };
    int choice[3];
    ladder l = new_problem(3, 3, 1);
    ladder_node(&l, 300);
    ladder_node(&l, K);
    ladder_node(&l, K);
    for (int v = 0; v < 3; v++)
        memset((void *)(uintptr_t)l.nodes[v].cost, 0, (size_t)l.nodes[v].nstrat * sizeof(float));
    set_edge(&l, WIDE, A, 0, 0);
    set_edge(&l, WIDE, B, 0, 0);
    set_edge(&l, A, B, 2, 2);
    float *wide_a = (float *)(uintptr_t)l.edges[0].cost,
          *wide_b = (float *)(uintptr_t)l.edges[1].cost;
    for (int s = 0; s < 300; s++)
        for (int t = 0; t < K; t++) {
            wide_a[s * K + t] = s / K != t;
            wide_b[s * K + t] = s % K != t;
        }
    ((float *)(uintptr_t)l.edges[2].cost)[14 * K + 7] = 0;
    tsri_search_result r = solve(&l.problem, choice);
    assert_true(r.cost == 0.0 && r.exact);
    assert_int_equal(choice[WIDE], 287);
    ladder_free(&l);
}

/* Two colours for a triangle, in the midst of a problem too large for its tables: consistent arc
 * by arc, but the relaxation proves that nothing is feasible. */
static void test_infeasible_proof(void **state)
{
    (void)state;
    int choice[64];
    ladder l = tangled_problem(47, 82, 0.0f, 1);
    l.nodes = realloc(l.nodes, 50 * sizeof *l.nodes);
    l.edges = realloc(l.edges, 90 * sizeof *l.edges);
    l.problem.nodes = l.nodes;
    l.problem.edges = l.edges;
    for (int v = 47; v < 50; v++)
        random_node(&l, 2, 0.0f, 0.0f);
    for (int v = 47; v < 50; v++)
        set_edge(&l, v, v == 49 ? 47 : v + 1, INFINITY, 0.0f);
    l.problem.max_table = 16;
    tsri_search_result r = solve(&l.problem, choice);
    assert_true(r.cost == INFINITY && r.exact);
    ladder_free(&l);
}

/* Twice, and with everything at other addresses: the same choice. */
static void test_determinism(void **state)
{
    (void)state;
    for (int64_t limit = 0; limit <= 64; limit += 32) {
        ladder a = ladder_create(6, 5, false, LADDER_LAYOUTS, 3);
        void *between = malloc(12345);
        ladder b = ladder_create(6, 5, false, LADDER_LAYOUTS, 3);
        int n = a.problem.nnodes;
        int *first = calloc((size_t)n, sizeof *first), *second = calloc((size_t)n, sizeof *second);
        a.problem.max_table = b.problem.max_table = limit;
        tsri_search_result r = solve(&a.problem, first);
        for (int i = 0; i < 3; i++) {
            tsri_search_result again = solve(i % 2 ? &a.problem : &b.problem, second);
            assert_memory_equal(first, second, (size_t)n * sizeof *first);
            assert_true(again.cost == r.cost && again.exact == r.exact && again.tables == r.tables);
        }
        free(first);
        free(second);
        free(between);
        ladder_free(&a);
        ladder_free(&b);
    }
}

/* A band of nodes, each joined to four of the seven before it: narrow enough for tables of 3^8
 * entries, too long to branch over, too dense for the dual bound to be tight. */
static ladder band_problem(int n, float forbidden, uint64_t seed)
{
    ladder l = new_problem(n, 4 * n, seed);
    for (int v = 0; v < n; v++) {
        ladder_node(&l, 3);
        memset((void *)(uintptr_t)l.nodes[v].cost, 0, 3 * sizeof(float));
    }
    for (int v = 7; v < n; v++)
        for (int i = 0; i < 4; i++)
            random_edge(&l, v, v - 1 - 2 * i + (i > 0) * pick(&l, 2), 0.0f, forbidden);
    return l;
}

/* Small tables against the optimum, which large tables give. */
static void test_fallback(void **state)
{
    (void)state;
    int choice[400], optimal = 0, local = 0;
    double worst = 0.0, sum = 0.0;
    for (uint64_t seed = 0; seed < 6; seed++) {
        ladder l = band_problem(400, seed % 2 ? 0.05f : 0.0f, seed);
        tsri_search_result best = solve(&l.problem, choice);
        assert_true(best.exact);
        l.problem.max_table = 16;
        tsri_search_result r = solve(&l.problem, choice);
        if (best.cost < INFINITY) {
            double gap = (r.cost - best.cost) / fabs(best.cost);
            assert_true(gap > -1e-9);
            assert_true(r.bound <= best.cost + 1e-9);
            /* A proof must be one. */
            assert_true(!r.exact || gap < 1e-9);
            local += !r.exact;
            optimal += gap < 1e-9;
            sum += gap;
            worst = gap > worst ? gap : worst;
        }
        ladder_free(&l);
    }
    print_message("fallback: %d of 6 not proven, %d optimal, worst gap %.4f, mean %.5f\n", local,
                  optimal, worst, sum / 6);
    assert_true(local >= 6);
    assert_true(worst < 0.03 && sum < 6 * 0.015);
}

/* Many forbidden pairs, but a solution was planted: it or a better one is found. */
static void test_fallback_feasible(void **state)
{
    (void)state;
    int choice[64], plant[64], unproven = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        ladder l = tangled_problem(60, 120, 0.3f, seed);
        for (int v = 0; v < 60; v++) {
            plant[v] = pick(&l, l.nodes[v].nstrat);
            ((float *)(uintptr_t)l.nodes[v].cost)[plant[v]] = 0.9f;
        }
        for (int e = 0; e < l.problem.nedges; e++) {
            tsri_search_edge *ed = &l.edges[e];
            float *cost = (float *)(uintptr_t)ed->cost;
            cost[plant[ed->u] * l.nodes[ed->v].nstrat + plant[ed->v]] = 0.9f;
        }
        l.problem.max_table = 16;
        tsri_search_result r = solve(&l.problem, choice);
        assert_true(r.cost <= tsri_search_cost(&l.problem, plant) + 1e-9);
        unproven += !r.exact;
        ladder_free(&l);
    }
    print_message("planted: %d of 12 not proven\n", unproven);
}

static void expect_invalid(const tsri_search_problem *p, const char *word)
{
    int choice[4] = {7, 7, 7, 7};
    tsri_search_result r = {.cost = 42.0};
    assert_int_equal(tsri_search(p, choice, &r), TSR_ERR_INVALID);
    if (!strstr(tsr_last_error(), word))
        fail_msg("\"%s\" is not in \"%s\"", word, tsr_last_error());
    assert_true(r.cost == 42.0 && choice[0] == 7);
}

static void test_invalid(void **state)
{
    (void)state;
    float cost[] = {0, 1}, bad[] = {0, NAN}, edge[] = {0, 1, 2, 3}, low[] = {0, 0, -INFINITY, 0};
#define TWO(c) {.nstrat = 2, .cost = (c)}
    tsri_search_node nodes[] = {TWO(cost), TWO(cost)}, nan[] = {TWO(cost), TWO(bad)},
                     none[] = {TWO(cost), {.cost = cost}};
#undef TWO
    tsri_search_edge good[] = {{0, 1, edge}}, far[] = {{0, 2, edge}}, neg[] = {{-1, 1, edge}},
                     loop[] = {{1, 1, edge}}, infinite[] = {{0, 1, low}};
    tsri_search_problem p = {.nnodes = 2, .nedges = 1, .nodes = nodes, .edges = good};
    int choice[2];
    solve(&p, choice);
    p.edges = far;
    expect_invalid(&p, "edge 0 joins nodes 0 and 2");
    p.edges = neg;
    expect_invalid(&p, "-1");
    p.edges = loop;
    expect_invalid(&p, "two different nodes");
    p.edges = infinite;
    expect_invalid(&p, "edge 0: cost 2 is -INFINITY");
    p.edges = good;
    p.nodes = none;
    expect_invalid(&p, "node 1 has 0 strategies");
    p.nodes = nan;
    expect_invalid(&p, "node 1: cost 1 is not a number");
    p.nodes = nodes;
    p.max_table = -1;
    expect_invalid(&p, "max_table -1");
}

/* Every allocation fails in turn: NO_MEMORY, nothing written, until one attempt meets none. */
static void fail_allocations(tsri_search_problem *p)
{
    tsri_mem mem = {0};
    int *choice = malloc((size_t)p->nnodes * sizeof *choice), failures = 0;
    tsri_search_result free_run = solve(p, choice);
    p->mem = &mem;
    for (int64_t n = 1;; n++) {
        tsri_search_result r = {.cost = 42.0};
        choice[0] = -7;
        mem.fail_countdown = n;
        tsr_status status = tsri_search(p, choice, &r);
        if (status == TSR_OK) {
            assert_true(mem.fail_countdown > 0);
            assert_true(r.cost == free_run.cost);
            break;
        }
        assert_int_equal(status, TSR_ERR_NO_MEMORY);
        assert_true(r.cost == 42.0 && choice[0] == -7);
        failures++;
    }
    assert_true(failures >= 3);
    free(choice);
}

static void test_no_memory(void **state)
{
    (void)state;
    ladder l = ladder_create(8, 6, true, LADDER_LAYOUTS, 5);
    fail_allocations(&l.problem);
    ladder_free(&l);
    l = random_problem(COMPLETE, 9, 3, 0.0f, 0.0f, 5);
    l.problem.max_table = 2;
    fail_allocations(&l.problem);
    ladder_free(&l);
}

/* A chain, whose optimum a plain forward recursion gives. */
static void test_chain(void **state)
{
    (void)state;
    enum { N = 2000, K = 9 };
    ladder l = new_problem(N, N, 11);
    double best[K], next[K], least = INFINITY;
    for (int v = 0; v < N; v++) {
        random_node(&l, K, 0.0f, 0.0f);
        if (v)
            random_edge(&l, v - 1, v, 0.0f, 0.05f);
    }
    for (int s = 0; s < K; s++)
        best[s] = l.nodes[0].cost[s];
    for (int v = 1; v < N; v++) {
        for (int t = 0; t < K; t++) {
            next[t] = INFINITY;
            for (int s = 0; s < K; s++)
                next[t] = fmin(next[t], best[s] + l.edges[v - 1].cost[s * K + t]);
            next[t] += l.nodes[v].cost[t];
        }
        memcpy(best, next, sizeof best);
    }
    for (int s = 0; s < K; s++)
        least = fmin(least, best[s]);
    int *choice = malloc(N * sizeof *choice);
    tsri_search_result r = solve(&l.problem, choice);
    assert_true(r.exact);
    assert_close(r.cost, least);
    free(choice);
    ladder_free(&l);
}

/* The real problem's shape; its answer can't be made better by changing any one or two nodes. */
static void test_ladder(void **state)
{
    (void)state;
    for (int kind = LADDER_NOISE; kind <= LADDER_LAYOUTS; kind++) {
        ladder l = ladder_create(52, 8, false, (ladder_costs)kind, 1);
        const tsri_search_problem *p = &l.problem;
        int *choice = malloc((size_t)p->nnodes * sizeof *choice);
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        tsri_search_result r = solve(p, choice);
        clock_gettime(CLOCK_MONOTONIC, &to);
        print_message("ladder: %d nodes, %d edges: %.2f ms\n", p->nnodes, p->nedges,
                      (double)(to.tv_sec - from.tv_sec) * 1e3 +
                          (double)(to.tv_nsec - from.tv_nsec) * 1e-6);
        assert_true(r.exact && r.cost < INFINITY);
        for (int e = 0; e < p->nedges; e += 7) {
            int u = p->edges[e].u, v = p->edges[e].v, cu = choice[u], cv = choice[v];
            for (choice[u] = 0; choice[u] < p->nodes[u].nstrat; choice[u]++)
                for (choice[v] = 0; choice[v] < p->nodes[v].nstrat; choice[v]++)
                    assert_true(tsri_search_cost(p, choice) >= r.cost - 1e-9);
            choice[u] = cu;
            choice[v] = cv;
        }
        /* With tables too small for it: the same optimum, or nearly. */
        tsri_search_problem tight = *p;
        tight.max_table = 1024;
        tsri_search_result t = solve(&tight, choice);
        print_message("        tables of 1024: %s, gap %.6f\n", t.exact ? "exact" : "local",
                      (t.cost - r.cost) / r.cost);
        assert_true(t.cost >= r.cost - 1e-9 && t.cost <= r.cost * 1.01);
        free(choice);
        ladder_free(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_wide_nodes),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_many_strategies),
        cmocka_unit_test(test_infeasible_proof),
        cmocka_unit_test(test_determinism),
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_fallback_feasible),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_ladder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
