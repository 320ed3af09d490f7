/* SPDX-License-Identifier: Apache-2.0 */
/* The search within a limit of usage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sbp/search/search.h"
#include "tests/bench/search_mesh.h"

#include <stdio.h>

/* A random problem whose tables the caller frees. */
typedef struct sample {
    tsri_search_problem problem;
    tsri_search_node nodes[10];
    tsri_search_edge edges[60];
    float *shared; /* a table that several edges have */
    uint64_t state;
} sample;

static uint64_t draw(sample *s)
{
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int pick(sample *s, int n)
{
    return (int)(draw(s) % (uint64_t)n);
}

static float draw_cost(sample *s, int grain, float forbidden)
{
    float c = 2.0f * ((float)(draw(s) >> 40) * 0x1p-24f) - 1.0f;
    if ((float)(draw(s) >> 40) * 0x1p-24f < forbidden)
        return INFINITY;
    return grain ? roundf(c * (float)grain) / (float)grain : c;
}

static void add_edge(sample *s, int u, int v, int grain, float forbidden)
{
    int ku = s->nodes[u].nstrat, kv = s->nodes[v].nstrat;
    if (ku == 3 && kv == 3 && s->shared && pick(s, 2)) {
        s->edges[s->problem.nedges++] = (tsri_search_edge){u, v, s->shared};
        return;
    }
    float *cost = malloc((size_t)ku * (size_t)kv * sizeof *cost);
    bool zero = pick(s, 8) == 0;
    for (int i = 0; i < ku * kv; i++)
        cost[i] = zero ? 0.0f : draw_cost(s, grain, forbidden);
    if (ku == 3 && kv == 3 && !s->shared)
        s->shared = cost;
    s->edges[s->problem.nedges++] = (tsri_search_edge){u, v, cost};
}

/* Trees, cycles, ladders and complete graphs; usages that overlap in part. */
static void make_sample(sample *s, uint64_t seed)
{
    static const float shares[] = {0.0f, 0.1f, 0.3f};
    *s = (sample){.state = seed};
    int n = 1 + (int)(seed % 8), kind = pick(s, 4), grain = pick(s, 2) ? 4 : 0;
    float forbidden = shares[pick(s, 3)];
    for (int v = 0; v < n; v++) {
        int k = 1 + pick(s, 4);
        float *cost = malloc((size_t)k * sizeof *cost);
        int64_t *usage = pick(s, 4) ? malloc((size_t)k * sizeof *usage) : NULL;
        for (int i = 0; i < k; i++) {
            cost[i] = draw_cost(s, grain, forbidden / 2);
            if (usage)
                usage[i] = pick(s, 10);
        }
        int first = pick(s, 12) - 3;
        s->nodes[v] = (tsri_search_node){k, cost, usage, first, first + pick(s, 6)};
    }
    s->problem = (tsri_search_problem){.nnodes = n, .nodes = s->nodes, .edges = s->edges};
    for (int v = 1; v < n; v++) {
        for (int u = 0; u < v && kind == 3; u++)
            add_edge(s, u, v, grain, forbidden);
        if (kind == 0)
            add_edge(s, v, pick(s, v), grain, forbidden);
        if (kind == 1 || kind == 2)
            add_edge(s, v - 1, v, grain, forbidden);
        if (kind == 2 && v > 1)
            add_edge(s, v, v - 2, grain, forbidden);
    }
    if (kind == 1 && n > 2)
        add_edge(s, n - 1, 0, grain, forbidden);
    if (n > 1 && pick(s, 2))
        add_edge(s, 1, 0, grain, forbidden);
}

static void free_sample(sample *s)
{
    for (int v = 0; v < s->problem.nnodes; v++) {
        free((void *)(uintptr_t)s->nodes[v].cost);
        free((void *)(uintptr_t)s->nodes[v].usage);
    }
    for (int e = 0; e < s->problem.nedges; e++)
        if (s->edges[e].cost != s->shared)
            free((void *)(uintptr_t)s->edges[e].cost);
    free(s->shared);
}

/* The most usage at any time from -3 to 14, each summed by itself. */
static int64_t peak_of(const tsri_search_problem *p, const int *choice)
{
    int64_t most = 0;
    for (int t = -3; t < 15; t++) {
        int64_t sum = 0;
        for (int v = 0; v < p->nnodes; v++)
            if (p->nodes[v].usage && p->nodes[v].first <= t && t <= p->nodes[v].last)
                sum += p->nodes[v].usage[choice[v]];
        most = sum > most ? sum : most;
    }
    return most;
}

/* The oracle: every assignment. */
static double brute_force(const tsri_search_problem *p, int64_t *out_least_peak)
{
    int choice[10] = {0};
    double best = INFINITY;
    *out_least_peak = INT64_MAX;
    for (int v = 0; v < p->nnodes;) {
        int64_t peak = peak_of(p, choice);
        double cost = tsri_search_cost(p, choice);
        *out_least_peak = peak < *out_least_peak ? peak : *out_least_peak;
        if ((!p->usage_limit || peak <= p->usage_limit) && cost < best)
            best = cost;
        for (v = 0; v < p->nnodes && ++choice[v] == p->nodes[v].nstrat; v++)
            choice[v] = 0;
    }
    return best;
}

/* The least peak of all assignments that nothing forbids. */
static int64_t least_peak_of(const tsri_search_problem *p)
{
    int choice[10] = {0};
    int64_t least = INT64_MAX;
    for (int v = 0; v < p->nnodes;) {
        int64_t peak = peak_of(p, choice);
        if (tsri_search_cost(p, choice) < INFINITY && peak < least)
            least = peak;
        for (v = 0; v < p->nnodes && ++choice[v] == p->nodes[v].nstrat; v++)
            choice[v] = 0;
    }
    return least;
}

static tsri_search_result solve(const tsri_search_problem *p, int *choice)
{
    tsri_search_result r = {.cost = -1.0};
    assert_int_equal(tsri_search(p, choice, &r), TSR_OK);
    for (int v = 0; v < p->nnodes; v++)
        assert_in_range(choice[v], 0, p->nodes[v].nstrat - 1);
    assert_true(r.bound <= r.cost);
    if (r.cost < INFINITY)
        assert_true(r.cost == tsri_search_cost(p, choice));
    return r;
}

static void assert_close(double found, double expected)
{
    if (found == expected || fabs(found - expected) <= 1e-9 * (1.0 + fabs(expected)))
        return;
    print_error("found %.17g, expected %.17g\n", found, expected);
    fail();
}

/* A quick search's answer is within the limit, and costs no less than the best. */
static void check_quick(const tsri_search_problem *problem, double best)
{
    int choice[10];
    tsri_search_problem quick = *problem;
    quick.quick_within = true;
    tsri_search_result r = solve(&quick, choice);
    assert_true(best < INFINITY || r.cost == INFINITY);
    if (r.cost == INFINITY)
        return;
    assert_true(r.cost >= best - 1e-9 && r.peak <= problem->usage_limit);
    assert_int_equal(r.peak, peak_of(problem, choice));
    assert_true(!r.exact || fabs(r.cost - best) < 1e-6);
}

static void test_brute_force(void **state)
{
    (void)state;
    int choice[10], other[10], tight = 0, slack = 0, impossible = 0, forbidden = 0;
    for (uint64_t seed = 0; seed < 1600; seed++) {
        sample s;
        int64_t least;
        make_sample(&s, seed);
        double free_cost = brute_force(&s.problem, &least);
        int64_t least_allowed = least_peak_of(&s.problem);
        tsri_search_result r = solve(&s.problem, choice);
        assert_true(r.exact);
        assert_close(r.cost, free_cost);
        assert_int_equal(r.peak, peak_of(&s.problem, choice));
        int64_t peak = r.peak;
        for (int i = 0; i < 3; i++) {
            /* From below what is possible to what nothing exceeds. */
            s.problem.usage_limit = 1 + least - 2 + pick(&s, (int)(peak - least) + 5);
            s.problem.usage_limit = s.problem.usage_limit < 1 ? 1 : s.problem.usage_limit;
            double expected = brute_force(&s.problem, &least);
            tsri_search_result limited = solve(&s.problem, other);
            assert_true(limited.exact);
            assert_close(limited.cost, expected);
            assert_true(limited.bound <= expected + 1e-9 || expected == INFINITY);
            assert_int_equal(limited.peak, peak_of(&s.problem, other));
            if (expected < INFINITY)
                assert_true(limited.peak <= s.problem.usage_limit);
            assert_true(limited.least <= least_allowed);
            check_quick(&s.problem, expected);
            if (peak <= s.problem.usage_limit)
                assert_memory_equal(choice, other, (size_t)s.problem.nnodes * sizeof(int));
            slack += peak <= s.problem.usage_limit;
            tight += expected < INFINITY && peak > s.problem.usage_limit;
            impossible += free_cost < INFINITY && expected == INFINITY;
            forbidden += free_cost == INFINITY;
        }
        free_sample(&s);
    }
    print_message("limits: %d tight, %d slack, %d impossible, %d forbidden anyway\n", tight, slack,
                  impossible, forbidden);
    assert_true(tight > 500 && slack > 500 && impossible > 200 && forbidden > 100);
}

/* Two tensors alive at once, each cheaper when whole: one of them must be split. */
static void test_two_tensors(void **state)
{
    (void)state;
    float cost[] = {1, 3}, dear[] = {1, 4};
    int64_t usage[] = {8, 2};
    tsri_search_node nodes[] = {{2, cost, usage, 0, 4}, {2, dear, usage, 2, 6}};
    tsri_search_problem p = {.nnodes = 2, .nodes = nodes};
    int choice[2];
    tsri_search_result r = solve(&p, choice);
    assert_true(r.cost == 2.0 && r.peak == 16 && r.exact);
    p.usage_limit = 15;
    r = solve(&p, choice);
    assert_true(r.cost == 4.0 && r.peak == 10 && r.exact && r.bound == 4.0);
    assert_int_equal(choice[0], 1);
    assert_int_equal(choice[1], 0);
    /* Not at once: both whole. */
    nodes[1].first = 5;
    r = solve(&p, choice);
    assert_true(r.cost == 2.0 && r.peak == 8 && r.exact);
    nodes[1].first = 4;
    p.usage_limit = 3;
    r = solve(&p, choice);
    assert_true(r.cost == INFINITY && r.exact && r.peak > 3);
}

static void expect_invalid(const tsri_search_problem *p, const char *word)
{
    int choice[4] = {7};
    tsri_search_result r = {.cost = 42.0};
    assert_int_equal(tsri_search(p, choice, &r), TSR_ERR_INVALID);
    if (!strstr(tsr_last_error(), word))
        fail_msg("\"%s\" is not in \"%s\"", word, tsr_last_error());
    assert_true(r.cost == 42.0 && choice[0] == 7);
}

static void test_invalid(void **state)
{
    (void)state;
    float cost[] = {1, 3};
    int64_t usage[] = {8, 2}, negative[] = {8, -2};
    tsri_search_node node = {2, cost, usage, 0, 4};
    tsri_search_problem p = {.nnodes = 1, .nodes = &node, .usage_limit = -1};
    expect_invalid(&p, "usage_limit -1");
    p.usage_limit = 1;
    node.last = -1;
    expect_invalid(&p, "from time 0 to -1");
    node.last = 0;
    node.usage = negative;
    expect_invalid(&p, "usage 1 is -2 bytes");
}

static void test_no_memory(void **state)
{
    (void)state;
    int choice[10], failures = 0, limited = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        sample s;
        int64_t least;
        tsri_mem mem = {0};
        make_sample(&s, seed);
        brute_force(&s.problem, &least);
        s.problem.usage_limit = least + 2;
        tsri_search_result free_run = solve(&s.problem, choice);
        limited += free_run.cost < INFINITY && free_run.peak >= least;
        s.problem.mem = &mem;
        for (int64_t n = 1;; n += 1 + n / 40) {
            tsri_search_result r = {.cost = 42.0};
            choice[0] = -7;
            mem.fail_countdown = n;
            tsr_status status = tsri_search(&s.problem, choice, &r);
            if (status == TSR_OK) {
                assert_true(mem.fail_countdown > 0);
                assert_true(r.cost == free_run.cost);
                break;
            }
            assert_int_equal(status, TSR_ERR_NO_MEMORY);
            assert_true(r.cost == 42.0 && choice[0] == -7);
            failures++;
        }
        free_sample(&s);
    }
    assert_true(failures > 500 && limited > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_two_tensors),
        cmocka_unit_test(test_invalid),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
