/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search and its parts on small problems, against recorded lines. The other suites prove that
 * answers are right; a fault in an order, a pruning, a budget or a memo costs time alone, and only
 * a difference to what was done before shows it. All costs are eighths, and sums and quotients
 * round as IEEE 754 says, so that every machine gives the same lines. After a change of the search
 * that is meant, `search_record --print > tests/unit/sbp/search_record.inc` records anew.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sbp/search/branch.h"
#include "sbp/search/memory.h"
#include "src/core/rng.h"
#include "tests/bench/search_ladder.h"
#include "tests/unit/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const recorded[] = {
#include "tests/unit/sbp/search_record.inc"
};

enum { MOST = 400, MANY = 1 << 30 };

static unsigned hash_choice(const int *choice, int n)
{
    return record_fold(tsri_hash(TSRI_HASH_INIT, choice, (size_t)n * sizeof *choice));
}

/* --- problems --------------------------------------------------------------------------------- */
static float draw_cost(ladder *l, float forbidden)
{
    float c = roundf(16.0f * ladder_uniform(l)) / 8.0f - 1.0f;
    return ladder_uniform(l) < forbidden ? INFINITY : c;
}

static int pick(ladder *l, int n)
{
    return (int)(ladder_random(l) % (uint64_t)n);
}

/* Nodes of `least` to `most` strategies, node costs too if `own`. */
static ladder sparse_problem(int n, int edges, int least, int most, bool own, float forbidden,
                             uint64_t seed)
{
    ladder l = {.state = seed};
    l.nodes = calloc((size_t)n, sizeof *l.nodes);
    l.edges = calloc((size_t)edges, sizeof *l.edges);
    for (int v = 0; v < n; v++) {
        ladder_node(&l, least + pick(&l, most - least + 1));
        float *cost = (float *)(uintptr_t)l.nodes[v].cost;
        for (int s = 0; s < l.nodes[v].nstrat; s++)
            cost[s] = own ? draw_cost(&l, 0) : 0;
    }
    for (int i = 0; i < edges; i++) {
        int u = pick(&l, n), v = pick(&l, n - 1);
        v += v >= u;
        int count = l.nodes[u].nstrat * l.nodes[v].nstrat;
        float *cost = malloc((size_t)count * sizeof *cost);
        for (int j = 0; j < count; j++)
            cost[j] = draw_cost(&l, forbidden);
        l.edges[l.problem.nedges++] = (tsri_search_edge){u, v, cost};
    }
    l.problem.nnodes = n;
    l.problem.nodes = l.nodes;
    l.problem.edges = l.edges;
    return l;
}

/* Usages of lifetimes that overlap in part. */
static void add_usage(ladder *l)
{
    for (int v = 0; v < l->problem.nnodes; v++) {
        if (pick(l, 4) == 0)
            continue;
        int64_t *usage = malloc((size_t)l->nodes[v].nstrat * sizeof *usage);
        for (int s = 0; s < l->nodes[v].nstrat; s++)
            usage[s] = pick(l, 10);
        l->nodes[v].usage = usage;
        l->nodes[v].first = v - pick(l, 3);
        l->nodes[v].last = v + pick(l, 5);
    }
}

static void free_problem(ladder *l)
{
    for (int v = 0; v < l->problem.nnodes; v++)
        free((void *)(uintptr_t)l->nodes[v].usage);
    ladder_free(l);
}

/* --- the whole search ------------------------------------------------------------------------- */
static void record_search(const char *name, ladder *l, int64_t max_table, int64_t usage_limit)
{
    int choice[MOST];
    tsri_mem mem = {.fail_countdown = MANY};
    tsri_search_result r;
    assert_in_range(l->problem.nnodes, 1, MOST);
    l->problem.max_table = max_table;
    l->problem.usage_limit = usage_limit;
    l->problem.mem = &mem;
    assert_int_equal(tsri_search(&l->problem, choice, &r), TSR_OK);
    record_line("%s: cost %.17g bound %.17g %s peak %" PRId64 " tables %" PRId64
                " choice %08x, %" PRId64 " allocations",
                name, r.cost, r.bound, r.exact ? "exact" : "open", r.peak, r.tables,
                hash_choice(choice, l->problem.nnodes), MANY - mem.fail_countdown);
}

static void test_search(void **state)
{
    (void)state;
    static const int64_t tables[] = {0, 60, 9};
    char name[64];
    for (uint64_t seed = 0; seed < 24; seed++)
        for (int i = 0; i < 3; i++) {
            int n = 3 + (int)seed;
            ladder l = sparse_problem(n, n + (int)(seed % 4) * n / 2, 1 + (int)(seed % 3), 4,
                                      seed % 2, seed % 5 ? 0.0f : 0.2f, seed);
            snprintf(name, sizeof name, "sparse %d/%d", (int)seed, i);
            record_search(name, &l, tables[i], 0);
            free_problem(&l);
        }
    for (int layers = 1; layers <= 16; layers *= 2)
        for (int kind = LADDER_NOISE; kind <= LADDER_LAYOUTS; kind++) {
            ladder l = ladder_create(layers, 3 + layers % 5, false, (ladder_costs)kind, 5);
            for (int v = 0; v < l.problem.nnodes; v++)
                for (int s = 0; s < l.nodes[v].nstrat; s++) {
                    float *cost = (float *)(uintptr_t)l.nodes[v].cost;
                    cost[s] = roundf(cost[s] * 8) / 8;
                }
            for (int e = 0; e < l.problem.nedges; e++) {
                const tsri_search_edge *x = &l.edges[e];
                float *cost = (float *)(uintptr_t)x->cost;
                for (int j = 0; j < l.nodes[x->u].nstrat * l.nodes[x->v].nstrat; j++)
                    cost[j] = roundf(cost[j] * 8) / 8;
            }
            snprintf(name, sizeof name, "ladder %d/%d", layers, kind);
            record_search(name, &l, layers > 4 ? 256 : 0, 0);
            ladder_free(&l);
        }
}

static void test_limits(void **state)
{
    (void)state;
    char name[64];
    for (uint64_t seed = 0; seed < 16; seed++)
        for (int i = 0; i < 4; i++) {
            int n = 4 + (int)seed;
            ladder l = sparse_problem(n, n + (int)(seed % 4) * n / 2, 2, 4, true,
                                      seed % 5 ? 0.0f : 0.1f, 100 + seed);
            add_usage(&l);
            snprintf(name, sizeof name, "limit %d/%d", (int)seed, i);
            record_search(name, &l, seed % 2 ? 30 : 0, 8 + 4 * i);
            free_problem(&l);
        }
}

/* --- its parts -------------------------------------------------------------------------------- */
static void record_plan(tsri_pool *pool, const tsri_sgraph *g, int seed)
{
    static const double limits[] = {3, 20, 300};
    int uses[MOST] = {0}, choice[MOST], trial[MOST];
    for (int i = 0; i < g->n; i++)
        uses[i] = i % 3;
    for (int i = 0; i < 6; i++) {
        tsri_sg_plan plan;
        double limit = limits[i % 3], bound = 0;
        const int *used = i / 3 ? uses : NULL;
        assert_int_equal(tsri_sg_plan_within(pool, g, limit, limit * 4, used, &plan), TSR_OK);
        double combinations = tsri_sg_combinations(g, &plan);
        record_line(
            "plan %d/%d: order %08x of %d, cut %d, largest %.17g, entries %.17g, work %.17g, "
            "%.17g combinations",
            seed, i, hash_choice(plan.order, g->n), plan.norder, plan.ncut, plan.largest,
            plan.entries, plan.work, combinations);
        memset(choice, 0, sizeof choice);
        tsri_mem mem = {.fail_countdown = MANY};
        assert_int_equal(
            tsri_sg_eliminate(&mem, g, &plan, TSRI_SG_CONDITION, limit, choice, &bound), TSR_OK);
        record_line("  condition %.17g %08x, %" PRId64 " allocations", bound,
                    hash_choice(choice, g->n), MANY - mem.fail_countdown);
        if (combinations < 100) {
            assert_int_equal(tsri_sg_enumerate(NULL, g, &plan, limit, trial, choice), TSR_OK);
            record_line("  enumerate %.17g %08x", tsri_sg_cost(g, choice),
                        hash_choice(choice, g->n));
        }
        assert_int_equal(tsri_sg_order(pool, g, limit, used, &plan), TSR_OK);
        mem.fail_countdown = MANY;
        assert_int_equal(tsri_sg_eliminate(&mem, g, &plan, TSRI_SG_RELAX, limit, choice, &bound),
                         TSR_OK);
        record_line("  order %08x, relax %.17g %08x, %" PRId64 " allocations",
                    hash_choice(plan.order, g->n), bound, hash_choice(choice, g->n),
                    MANY - mem.fail_countdown);
    }
}

static void record_improve(const tsri_sgraph *g, int seed)
{
    for (int i = 0; i < 4; i++) {
        int choice[MOST] = {0};
        double cost = tsri_sg_cost(g, choice), work = 3e5, upper;
        uint64_t random = (uint64_t)i;
        assert_int_equal(tsri_sg_improve_trees(NULL, g, &random, &work, choice, &cost), TSR_OK);
        record_line("trees %d/%d: %.17g %08x, work %.17g", seed, i, cost, hash_choice(choice, g->n),
                    3e5 - work);
        upper = cost;
        memset(choice, 0, sizeof choice);
        cost = tsri_sg_cost(g, choice);
        tsri_mem mem = {.fail_countdown = MANY};
        work = i / 2 ? 4e5 : 3e4;
        assert_int_equal(tsri_sg_improve(&mem, g, i % 2 ? 2000 : 12, &work, choice, &cost), TSR_OK);
        record_line("improve %d/%d: %.17g %08x, %" PRId64 " allocations", seed, i, cost,
                    hash_choice(choice, g->n), MANY - mem.fail_countdown);
        if (i)
            continue;
        tsri_branch b = {.g = g, .work = 3e5, .choice = choice, .upper = upper + 1};
        assert_int_equal(tsri_sg_branch(NULL, &b), TSR_OK);
        record_line("branch %d: %s %.17g %08x, work left %.17g", seed, b.found ? "found" : "none",
                    tsri_sg_cost(g, choice), hash_choice(choice, g->n), b.work);
    }
}

static void record_dual(tsri_pool *pool, tsri_sreducer *r, const tsri_sgraph *g, double upper,
                        int seed)
{
    tsri_sg_dual d;
    int choice[MOST];
    assert_int_equal(tsri_sg_dual_start(pool, g, &d), TSR_OK);
    d.upper = upper;
    for (int i = 0; i < 12; i++) {
        tsri_sg_dual_step(&d, choice);
        if (i % 4 == 3)
            record_line("dual %d/%d: lower %.13g, %" PRId64 " left, pass %.17g, %08x", seed, i,
                        d.lower, d.left, d.pass, hash_choice(choice, g->n));
    }
    assert_int_equal(tsri_sg_dual_keep(&d, r), TSR_OK);
}

/* Records the problem that reductions leave, and how much of it the memo knew. */
static void record_reduced(tsri_sreducer *r, int seed)
{
    int nodes = 0, strategies = 0, edges = 0;
    uint64_t h = 1;
    double before = r->memo.work = 1e9;
    assert_int_equal(tsri_sr_run(r), TSR_OK);
    for (int v = 0; v < r->p->nnodes; v++) {
        const tsri_sr_node *x = &r->nodes[v];
        if (x->gone)
            continue;
        nodes++;
        strategies += x->k;
        h = tsri_hash(h, x->orig, (size_t)x->k * sizeof *x->orig);
    }
    for (int e = 0; e < r->nedges; e++)
        edges += r->edges[e].m >= 0;
    record_line(
        "reduced %d: %d nodes of %d strategies (%08x), %d edges, constant %.13g%s; %d tables, %d "
        "results, work %.17g",
        seed, nodes, strategies, record_fold(h), edges, r->constant, r->empty ? ", empty" : "",
        r->memo.nmats, r->memo.nused, before - r->memo.work);
}

static void test_parts(void **state)
{
    (void)state;
    for (int seed = 0; seed < 10; seed++) {
        int n = 6 + 2 * seed, choice[MOST] = {0};
        tsri_pool pool;
        tsri_sreducer r;
        tsri_sgraph g;
        ladder l =
            sparse_problem(n, 2 * n, 2, 4, seed % 2, seed % 3 ? 0.0f : 0.1f, 200 + (uint64_t)seed);
        tsri_pool_init(&pool, NULL);
        assert_int_equal(tsri_sr_start(&r, &pool, &l.problem, NULL, false), TSR_OK);
        assert_int_equal(tsri_sg_build(&pool, &r, &g), TSR_OK);
        record_plan(&pool, &g, seed);
        record_improve(&g, seed);
        double cost = tsri_sg_cost(&g, choice), work = 1e5;
        assert_int_equal(tsri_sg_improve(NULL, &g, 100, &work, choice, &cost), TSR_OK);
        record_dual(&pool, &r, &g, cost + 0.5, seed);
        record_reduced(&r, seed);
        tsri_pool_finish(&pool);
        tsri_pool_init(&pool, NULL);
        assert_int_equal(tsri_sr_start(&r, &pool, &l.problem, NULL, seed % 4 == 3), TSR_OK);
        record_reduced(&r, seed);
        tsri_pool_finish(&pool);
        free_problem(&l);
    }
}

/* Repairs, improvements and merges of assignments under a limit. */
static void record_times(const tsri_search_problem *p, int *const *adj, int seed)
{
    int choice[MOST] = {0}, other[MOST];
    tsri_pool pool;
    tsri_times t;
    tsri_pool_init(&pool, NULL);
    assert_int_equal(tsri_times_start(&t, &pool, p), TSR_OK);
    int64_t load[MOST], most = tsri_times_load(&t, choice, load);
    record_line("times %d: %d of them%s, most %" PRId64, seed, t.ntimes,
                t.infeasible ? ", infeasible" : "", most);
    for (int v = 0; v < p->nnodes; v++)
        other[v] = (v + seed) % p->nodes[v].nstrat;
    bool within = t.ntimes == 0 || tsri_times_repair(&t, adj, choice);
    record_line("  repaired %s %.17g %08x", within ? "within" : "over", tsri_search_cost(p, choice),
                hash_choice(choice, p->nnodes));
    if (within && t.ntimes) {
        assert_int_equal(tsri_times_merge(&t, NULL, adj, other, choice), TSR_OK);
        record_line("  merged %.17g %08x", tsri_search_cost(p, choice),
                    hash_choice(choice, p->nnodes));
        assert_true(tsri_times_load(&t, choice, load) <= p->usage_limit);
        tsri_times_improve(&t, adj, choice);
        record_line("  improved %.17g %08x", tsri_search_cost(p, choice),
                    hash_choice(choice, p->nnodes));
        assert_true(tsri_times_load(&t, choice, load) <= p->usage_limit);
    }
    tsri_pool_finish(&pool);
}

static void test_times(void **state)
{
    (void)state;
    enum { NODES = 30, EDGES = 60 };
    for (int seed = 0; seed < 24; seed++) {
        int n = 6 + seed, lists[NODES][EDGES + 1] = {0}, *adj[NODES];
        ladder l =
            sparse_problem(n, 2 * n, 2, 5, true, seed % 3 ? 0.0f : 0.1f, 300 + (uint64_t)seed);
        add_usage(&l);
        for (int v = 0; v < n; v++)
            adj[v] = lists[v];
        for (int e = 0; e < l.problem.nedges; e++) {
            const tsri_search_edge *x = &l.edges[e];
            lists[x->u][++lists[x->u][0]] = e;
            lists[x->v][++lists[x->v][0]] = e;
        }
        l.problem.usage_limit = 14 + seed % 4 * 3;
        record_times(&l.problem, adj, seed);
        free_problem(&l);
    }
}

static void test_end(void **state)
{
    (void)state;
    record_end();
}

int main(int argc, char **argv)
{
    if (record_start(recorded, sizeof recorded / sizeof *recorded, argc, argv)) {
        test_search(NULL);
        test_limits(NULL);
        test_parts(NULL);
        test_times(NULL);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search), cmocka_unit_test(test_limits), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_times),  cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
