/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Improving an assignment of the core. Fixing a few nodes, the cut, leaves a graph that elimination
 * solves within small tables. Two kinds of rounds: the best completion of a cut that keeps its
 * present values, each time another; and the exact optimum of a window, a connected part of the
 * graph within a fixed rest.
 */
#include "sbp/search/graph.h"

#include <math.h>
#include <string.h>

enum {
    /* The cost of a node beside its table, in additions. */
    WORK_PER_NODE = 512,
    WORK_PER_ROUND = 1 << 22,
    STALE_ROUNDS = 6, /* rounds without gain before the tables grow */
    LEAST_WINDOW = 4,
    SWEEPS = 20, /* windows without gain, by nodes that they covered, before giving up */
    ENTRIES_PER_LIMIT = 128,
};

typedef struct improver {
    tsri_mem *mem;
    const tsri_sgraph *g;
    double limit, work; /* work left */
    int *uses;          /* [n] how often a node was cut */
    int *trial;         /* [n] */
    int *choice;        /* [n] the best so far, of cost `cost` */
    double cost;
    uint64_t random;
} improver;

tsr_status tsri_sg_plan_within(tsri_pool *pool, const tsri_sgraph *g, double limit, double entries,
                               const int *uses, tsri_sg_plan *out)
{
    for (double each = limit;; each /= 4.0) {
        TSRI_TRY(tsri_sg_order(pool, g, each < 1.0 ? 1.0 : each, uses, out));
        if (out->entries <= entries || each < 1.0)
            return TSR_OK;
    }
}

double tsri_sg_combinations(const tsri_sgraph *g, const tsri_sg_plan *plan)
{
    double combinations = 1.0;
    for (int i = plan->norder; i < g->n && combinations < 1e18; i++)
        combinations *= g->k[plan->order[i]];
    return combinations;
}

static bool next_combination(const tsri_sgraph *g, const tsri_sg_plan *plan, int *choice)
{
    for (int i = plan->norder + plan->ncut - 1; i >= plan->norder; i--) {
        int v = plan->order[i];
        if (++choice[v] < g->k[v])
            return true;
        choice[v] = 0;
    }
    return false;
}

tsr_status tsri_sg_enumerate(tsri_mem *mem, const tsri_sgraph *g, const tsri_sg_plan *plan,
                             double limit, int *trial, int *choice)
{
    double best = INFINITY, cost;
    memset(trial, 0, (size_t)g->n * sizeof(int));
    do {
        TSRI_TRY(tsri_sg_eliminate(mem, g, plan, TSRI_SG_CONDITION, limit, trial, &cost));
        if (cost < best) {
            best = cost;
            memcpy(choice, trial, (size_t)g->n * sizeof(int));
        }
    } while (next_combination(g, plan, trial));
    return TSR_OK;
}

/* Keeps the trial if it is better. The sum is taken anew, in one order: so that rounding can't
 * make a round look like a gain. */
static void keep_better(improver *im)
{
    double cost = tsri_sg_cost(im->g, im->trial);
    if (cost < im->cost) {
        im->cost = cost;
        memcpy(im->choice, im->trial, (size_t)im->g->n * sizeof(int));
    }
}

static tsr_status complete_cut(improver *im, double limit)
{
    const tsri_sgraph *g = im->g;
    tsri_pool pool;
    tsri_pool_init(&pool, im->mem);
    tsri_sg_plan plan;
    double found;
    tsr_status status;
    TSRI_GOTO(tsri_sg_plan_within(&pool, g, limit, limit * ENTRIES_PER_LIMIT, im->uses, &plan),
              done);
    memcpy(im->trial, im->choice, (size_t)g->n * sizeof(int));
    TSRI_GOTO(tsri_sg_eliminate(im->mem, g, &plan, TSRI_SG_CONDITION, limit, im->trial, &found),
              done);
    for (int i = plan.norder; i < g->n; i++)
        im->uses[plan.order[i]]++;
    im->work -= plan.work + (double)WORK_PER_NODE * g->n;
    keep_better(im);
done:
    tsri_pool_finish(&pool);
    return status;
}

static tsr_status improve_by_cuts(improver *im)
{
    double limit = im->limit < 256.0 ? im->limit : 256.0;
    for (int stale = 0; im->work > 0.0;) {
        double before = im->cost;
        TSRI_TRY(complete_cut(im, limit));
        stale = im->cost < before ? 0 : stale + 1;
        if (stale < STALE_ROUNDS)
            continue;
        if (limit >= im->limit)
            break;
        stale = 0;
        limit = limit * 8.0 < im->limit ? limit * 8.0 : im->limit;
    }
    return TSR_OK;
}

/* Up to `size` nodes around the centre, breadth first; their places in the window, or -1. */
static int collect_window(const tsri_sgraph *g, int center, int size, int *nodes, int *place)
{
    int count = 0;
    for (int v = 0; v < g->n; v++)
        place[v] = -1;
    place[center] = count;
    nodes[count++] = center;
    for (int at = 0; at < count; at++) {
        int v = nodes[at];
        for (int i = g->adj_start[v]; i < g->adj_start[v + 1] && count < size; i++) {
            const tsri_sg_edge *e = &g->edges[g->adj[i]];
            int w = e->u == v ? e->v : e->u;
            if (place[w] < 0) {
                place[w] = count;
                nodes[count++] = w;
            }
        }
    }
    return count;
}

/* The cost that an edge out of the window adds to the node inside, by the outer node's present
 * choice. */
static void fold_outer(const tsri_sgraph *g, const tsri_sg_edge *e, bool inner_is_u, int chosen,
                       double *cost)
{
    int ku = g->k[e->u], kv = g->k[e->v];
    for (int s = 0; s < (inner_is_u ? ku : kv); s++)
        cost[s] +=
            inner_is_u ? e->cost[(int64_t)s * kv + chosen] : e->cost[(int64_t)chosen * kv + s];
}

static tsr_status cut_out(tsri_pool *pool, const tsri_sgraph *g, const int *nodes, int count,
                          const int *place, const int *choice, tsri_sgraph *out)
{
    tsri_sgraph sub = {.n = count, .forbid = g->forbid, .range = g->range};
    int degrees = 0;
    for (int i = 0; i < count; i++)
        degrees += g->adj_start[nodes[i] + 1] - g->adj_start[nodes[i]];
    sub.k = tsri_pool_alloc(pool, (size_t)count * sizeof *sub.k);
    sub.cost = tsri_pool_alloc(pool, (size_t)count * sizeof *sub.cost);
    sub.edges = tsri_pool_alloc(pool, (size_t)degrees * sizeof *sub.edges);
    TSRI_NEED(sub.k && sub.cost && sub.edges);
    for (int i = 0; i < count; i++) {
        int v = nodes[i];
        sub.k[i] = g->k[v];
        double *cost = tsri_pool_dup(pool, g->cost[v], (size_t)g->k[v] * sizeof(double));
        TSRI_NEED(cost);
        sub.cost[i] = cost;
        for (int j = g->adj_start[v]; j < g->adj_start[v + 1]; j++) {
            const tsri_sg_edge *e = &g->edges[g->adj[j]];
            bool is_u = e->u == v;
            int w = is_u ? e->v : e->u;
            if (place[w] < 0)
                fold_outer(g, e, is_u, choice[w], cost);
            else if (is_u)
                sub.edges[sub.nedges++] =
                    (tsri_sg_edge){place[v], place[w], e->cost, e->flip, e->number};
        }
    }
    *out = sub;
    return TSR_OK;
}

/* The optimum of the window around a random node. Halves *size when that would take too long. */
static tsr_status solve_window(improver *im, int *size)
{
    const tsri_sgraph *g = im->g;
    tsri_pool pool;
    tsri_pool_init(&pool, im->mem);
    tsri_sgraph sub;
    tsri_sg_plan plan;
    tsr_status status = TSR_ERR_NO_MEMORY;
    int *nodes = tsri_pool_alloc(&pool, (size_t)*size * sizeof(int));
    int *place = tsri_pool_alloc(&pool, (size_t)g->n * sizeof(int));
    int *trial = tsri_pool_alloc(&pool, (size_t)*size * sizeof(int));
    int *best = tsri_pool_alloc(&pool, (size_t)*size * sizeof(int));
    if (!nodes || !place || !trial || !best)
        goto done;
    im->random = im->random * 6364136223846793005u + 1442695040888963407u;
    int center = (int)((im->random >> 33) % (uint64_t)g->n);
    int count = collect_window(g, center, *size, nodes, place);
    TSRI_GOTO(cut_out(&pool, g, nodes, count, place, im->choice, &sub), done);
    TSRI_GOTO(tsri_sg_plan_within(&pool, &sub, im->limit, WORK_PER_ROUND, NULL, &plan), done);
    double work = tsri_sg_combinations(&sub, &plan) * (plan.work + (double)WORK_PER_NODE * count);
    if (work > WORK_PER_ROUND && *size > LEAST_WINDOW) {
        *size /= 2;
        im->work -= (double)WORK_PER_NODE * (count + g->n / 16);
        goto done;
    }
    im->work -= work + (double)WORK_PER_NODE * (count + g->n / 16);
    TSRI_GOTO(tsri_sg_enumerate(im->mem, &sub, &plan, im->limit, trial, best), done);
    memcpy(im->trial, im->choice, (size_t)g->n * sizeof(int));
    for (int i = 0; i < count; i++)
        im->trial[nodes[i]] = best[i];
    keep_better(im);
done:
    tsri_pool_finish(&pool);
    return status;
}

static tsr_status improve_by_windows(improver *im)
{
    int size = im->g->n;
    double stale = 0.0;
    while (im->work > 0.0 && stale < (double)SWEEPS * im->g->n) {
        double before = im->cost;
        int tried = size;
        TSRI_TRY(solve_window(im, &size));
        if (im->cost < before)
            stale = 0.0;
        else if (size == tried)
            stale += size;
    }
    return TSR_OK;
}

/* Windows mend what is locally wrong; a cut frees what spans many of them. */
static tsr_status improve(improver *im)
{
    for (double before = INFINITY; im->cost < before && im->work > 0.0;) {
        before = im->cost;
        TSRI_TRY(
            tsri_sg_improve_trees(im->mem, im->g, &im->random, &im->work, im->choice, &im->cost));
        TSRI_TRY(improve_by_cuts(im));
        TSRI_TRY(improve_by_windows(im));
    }
    return TSR_OK;
}

tsr_status tsri_sg_improve(tsri_mem *mem, const tsri_sgraph *g, double limit, double *work,
                           int *choice, double *cost)
{
    tsri_pool pool;
    tsri_pool_init(&pool, mem);
    improver im = {
        .mem = mem, .g = g, .limit = limit, .work = *work, .choice = choice, .cost = *cost};
    tsr_status status = TSR_ERR_NO_MEMORY;
    im.uses = tsri_pool_alloc(&pool, (size_t)g->n * sizeof(int));
    im.trial = tsri_pool_alloc(&pool, (size_t)g->n * sizeof(int));
    if (im.uses && im.trial) {
        status = improve(&im);
        *cost = im.cost;
        *work = im.work;
    }
    tsri_pool_finish(&pool);
    return status;
}
