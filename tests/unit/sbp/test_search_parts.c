/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the search by themselves. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sbp/search/graph.h"
#include "sbp/search/plus.h"

#include <math.h>
#include <stdio.h>

enum { N = 6, K = 4, NEDGES = N * (N - 1) / 2 };

/* A graph with all edges, or a cycle of them. */
typedef struct sample {
    tsri_search_problem problem;
    tsri_search_node nodes[N];
    tsri_search_edge edges[NEDGES];
    float cost[N][K], edge[NEDGES][K * K];
} sample;

static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) * 0x1p-24;
}

static void make_sample(sample *s, bool cycle, uint64_t seed)
{
    *s = (sample){.problem = {.nnodes = N, .nodes = s->nodes, .edges = s->edges}};
    for (int v = 0; v < N; v++) {
        for (int i = 0; i < K; i++)
            s->cost[v][i] = (float)draw(&seed);
        s->nodes[v] = (tsri_search_node){.nstrat = K, .cost = s->cost[v]};
        for (int u = 0; u < v; u++) {
            if (cycle && u != v - 1 && !(u == 0 && v == N - 1))
                continue;
            int e = s->problem.nedges++;
            for (int i = 0; i < K * K; i++)
                s->edge[e][i] = (float)draw(&seed);
            s->edges[e] = (tsri_search_edge){u, v, s->edge[e]};
        }
    }
}

/* The oracle: the best assignment, and the best with each strategy. */
static double brute_force(const tsri_search_problem *p, double with[N][K])
{
    int choice[N] = {0};
    double best = INFINITY;
    for (int i = 0; i < N * K; i++)
        with[i / K][i % K] = INFINITY;
    for (int v = 0; v < N;) {
        double cost = tsri_search_cost(p, choice);
        best = fmin(best, cost);
        for (int i = 0; i < N; i++)
            with[i][choice[i]] = fmin(with[i][choice[i]], cost);
        for (v = 0; v < N && ++choice[v] == K; v++)
            choice[v] = 0;
    }
    return best;
}

/* The core of all the problem: nothing is reduced before. */
static void build(tsri_pool *pool, const sample *s, tsri_sreducer *r, tsri_sgraph *g)
{
    tsri_pool_init(pool, NULL);
    assert_int_equal(tsri_sr_start(r, pool, &s->problem, NULL, false), TSR_OK);
    assert_int_equal(tsri_sg_build(pool, r, g), TSR_OK);
    assert_int_equal(g->n, N);
}

/* A relaxation is a lower bound at every limit, and the optimum where nothing was split. */
static void test_bound(void **state)
{
    (void)state;
    int choice[N], tight = 0, loose = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        sample s;
        tsri_pool pool;
        tsri_sreducer r;
        tsri_sgraph g;
        tsri_sg_plan plan;
        double with[N][K], bound;
        make_sample(&s, false, seed);
        double best = brute_force(&s.problem, with);
        build(&pool, &s, &r, &g);
        assert_int_equal(tsri_sg_order(&pool, &g, 4, NULL, &plan), TSR_OK);
        for (double limit = 1; limit <= 1 << 15; limit *= 8) {
            assert_int_equal(
                tsri_sg_eliminate(NULL, &g, &plan, TSRI_SG_RELAX, limit, choice, &bound), TSR_OK);
            assert_true(bound <= best + 1e-9);
            assert_true(tsri_sg_cost(&g, choice) >= best - 1e-9);
            loose += bound < best - 1e-3;
            tight += limit > 5000 && fabs(bound - best) < 1e-9;
            assert_true(limit < 5000 || fabs(bound - best) < 1e-9);
        }
        tsri_pool_finish(&pool);
    }
    assert_true(tight > 0 && loose > 10);
}

/* The dual never exceeds the optimum, and drops no strategy of an assignment that is better than
 * `upper`; what it drops does save something. */
static void test_dual(void **state)
{
    (void)state;
    int choice[N], dropped = 0, tight = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        sample s;
        tsri_pool pool;
        tsri_sreducer r;
        tsri_sgraph g;
        tsri_sg_dual d;
        double with[N][K];
        make_sample(&s, seed % 2, seed);
        double best = brute_force(&s.problem, with), before = -INFINITY;
        build(&pool, &s, &r, &g);
        assert_int_equal(tsri_sg_dual_start(&pool, &g, &d), TSR_OK);
        d.upper = best + 0.02 * (double)(seed % 8);
        for (int i = 0; i < 30; i++) {
            tsri_sg_dual_step(&d, choice);
            assert_true(d.lower <= best + 1e-9 && d.lower >= before);
            assert_true(tsri_sg_cost(&g, choice) >= best - 1e-9);
            before = d.lower;
        }
        for (int i = 0; i < N * K; i++)
            if (d.cost[i / K][i % K] == INFINITY) {
                assert_true(with[i / K][i % K] >= d.upper - 1e-9);
                dropped++;
            }
        tight += d.lower > best - 1e-6;

        /* What is kept is the same problem: its optimum, found without the dual, is the same. */
        assert_int_equal(tsri_sg_dual_keep(&d, &r), TSR_OK);
        assert_int_equal(tsri_sr_run(&r), TSR_OK);
        tsri_sg_plan plan;
        double found;
        assert_int_equal(tsri_sg_build(&pool, &r, &g), TSR_OK);
        assert_int_equal(tsri_sg_order(&pool, &g, 1e6, NULL, &plan), TSR_OK);
        assert_int_equal(tsri_sg_eliminate(NULL, &g, &plan, TSRI_SG_CONDITION, 1e6, choice, &found),
                         TSR_OK);
        assert_true(fabs(found + r.constant - best) < 1e-9);
        tsri_pool_finish(&pool);
    }
    assert_true(dropped > 2000 && tight > 50);
}

/* Moves of forests never lose, and on a cycle, where two forests cover all, they mostly win. */
static void test_trees(void **state)
{
    (void)state;
    int optimal = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        sample s;
        tsri_pool pool;
        tsri_sreducer r;
        tsri_sgraph g;
        double with[N][K], work = 1e6;
        int choice[N] = {0};
        make_sample(&s, true, seed);
        double best = brute_force(&s.problem, with);
        build(&pool, &s, &r, &g);
        double start = tsri_sg_cost(&g, choice), cost = start;
        uint64_t random = seed;
        assert_int_equal(tsri_sg_improve_trees(NULL, &g, &random, &work, choice, &cost), TSR_OK);
        assert_true(cost <= start && work < 1e6 && cost == tsri_sg_cost(&g, choice));
        assert_true(cost >= best - 1e-9);
        optimal += cost <= best + 1e-9;
        tsri_pool_finish(&pool);
    }
    assert_true(optimal > 80);
}

/* The inner loops give the bits of plain ones at every width, with INFINITY among the entries. */
static void test_inner_loops(void **state)
{
    (void)state;
    enum { MOST = 41 };
    double h[MOST], a[MOST * MOST], out[MOST + 1];
    uint64_t m = 3;
    for (int rows = 1; rows < MOST; rows += 1 + rows / 4)
        for (int cols = 1; cols < MOST; cols++) {
            for (int i = 0; i < rows; i++)
                h[i] = draw(&m) < 0.2 ? INFINITY : draw(&m) - 0.5;
            for (int i = 0; i < rows * cols; i++)
                a[i] = draw(&m) < 0.2 ? INFINITY : draw(&m) - 0.5;
            out[cols] = 42.0;
            tsri_plus_min(h, a, rows, cols, out);
            assert_true(out[cols] == 42.0);
            for (int j = 0; j < cols; j++) {
                double least = INFINITY;
                for (int i = 0; i < rows; i++)
                    least = h[i] + a[i * cols + j] < least ? h[i] + a[i * cols + j] : least;
                assert_true(out[j] == least);
            }
            const double *t = a + (rows - 1) * cols;
            double most = -INFINITY;
            for (int j = 0; j < cols; j++)
                if (a[j] < INFINITY && t[j] - a[j] > most)
                    most = t[j] - a[j];
            assert_true(tsri_plus_excess(t, a, cols) == most);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_dual),
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_inner_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
