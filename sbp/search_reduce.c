/* SPDX-License-Identifier: Apache-2.0 */
/* From the problem to the reduced graph. */
#include "sbp/search_graph.h"

#include <math.h>
#include <string.h>

/* A node seen from its edges: the neighbour, and its cost table as [own strategy][neighbour's]. */
typedef struct side {
    const double *cost;
    int64_t own, other; /* strides */
    int node;
} side;

/* The graph at its full size, with the strategies still alive. */
typedef struct reducer {
    const tsri_search_problem *p;
    tsri_pool *pool;
    tsri_sgraph *g;
    int **alive;  /* [n][left[v]] strategies, ascending */
    int *left;    /* [n] */
    side *sides;  /* of node v at adj_start[v] */
    int *best;    /* scratch of dominance: [strategy][side], the partner that it likes most */
    int *queue;   /* ring of n nodes */
    bool *queued; /* [n] */
    int head, waiting;
    int64_t visits; /* left; reductions are optional, so their time is bounded */
} reducer;

#define NEED(p)                       \
    do {                              \
        if (!(p))                     \
            return TSR_ERR_NO_MEMORY; \
    } while (0)

static tsr_status check_entries(const float *cost, int64_t count, double *range, const char *what,
                                int number)
{
    float most = 0.0f;
    for (int64_t i = 0; i < count; i++) {
        float c = cost[i];
        if (isnan(c) || c == -INFINITY)
            return tsri_fail(TSR_ERR_INVALID,
                             "search: %s %d: cost %lld is %s; a cost is a number or +INFINITY",
                             what, number, (long long)i, isnan(c) ? "not a number" : "-INFINITY");
        if (fabsf(c) > most && c != INFINITY)
            most = fabsf(c);
    }
    *range += most;
    return TSR_OK;
}

static tsr_status check_problem(const tsri_search_problem *p, double *range)
{
    if (p->nnodes < 0 || p->nedges < 0 || p->max_table < 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "search: %d nodes, %d edges, max_table %lld: none may be negative",
                         p->nnodes, p->nedges, (long long)p->max_table);
    for (int v = 0; v < p->nnodes; v++) {
        if (p->nodes[v].nstrat < 1)
            return tsri_fail(TSR_ERR_INVALID,
                             "search: node %d has %d strategies; each needs at least one", v,
                             p->nodes[v].nstrat);
        TSRI_TRY(check_entries(p->nodes[v].cost, p->nodes[v].nstrat, range, "node", v));
    }
    for (int e = 0; e < p->nedges; e++) {
        int u = p->edges[e].u, v = p->edges[e].v;
        if (u < 0 || v < 0 || u >= p->nnodes || v >= p->nnodes || u == v)
            return tsri_fail(TSR_ERR_INVALID,
                             "search: edge %d joins nodes %d and %d; legal are two different nodes "
                             "of 0..%d",
                             e, u, v, p->nnodes - 1);
        int64_t count = (int64_t)p->nodes[u].nstrat * p->nodes[v].nstrat;
        TSRI_TRY(check_entries(p->edges[e].cost, count, range, "edge", e));
    }
    return TSR_OK;
}

static void add_table(double *dst, const float *src, int ku, int kv, bool transpose, double forbid)
{
    for (int i = 0; i < ku; i++)
        for (int j = 0; j < kv; j++) {
            float c = transpose ? src[(int64_t)j * ku + i] : src[(int64_t)i * kv + j];
            dst[(int64_t)i * kv + j] += c == INFINITY ? forbid : c;
        }
}

/* One edge per pair: edges are counted into the lists of their lower node, then each list is
 * walked with a mark per upper node. */
static tsr_status merge_edges(reducer *r)
{
    const tsri_search_problem *p = r->p;
    tsri_sgraph *g = r->g;
    int n = p->nnodes;
    int *start = tsri_pool_alloc(r->pool, ((size_t)n + 2) * sizeof(int));
    int *list = tsri_pool_alloc(r->pool, (size_t)p->nedges * sizeof(int));
    int *mark = tsri_pool_alloc(r->pool, (size_t)n * sizeof(int));
    g->edges = tsri_pool_alloc(r->pool, (size_t)p->nedges * sizeof *g->edges);
    NEED(start && list && mark && g->edges);
    for (int e = 0; e < p->nedges; e++) {
        int u = p->edges[e].u < p->edges[e].v ? p->edges[e].u : p->edges[e].v;
        start[u + 2]++;
    }
    for (int v = 0; v < n; v++)
        start[v + 2] += start[v + 1];
    for (int e = 0; e < p->nedges; e++) {
        int u = p->edges[e].u < p->edges[e].v ? p->edges[e].u : p->edges[e].v;
        list[start[u + 1]++] = e;
    }
    for (int u = 0; u < n; u++) {
        int first = g->nedges;
        for (int i = start[u]; i < start[u + 1]; i++) {
            const tsri_search_edge *e = &p->edges[list[i]];
            int v = e->u == u ? e->v : e->u, ku = p->nodes[u].nstrat, kv = p->nodes[v].nstrat;
            int at = mark[v] - 1;
            if (at < first) {
                at = g->nedges++;
                mark[v] = at + 1;
                double *cost = tsri_pool_alloc(r->pool, (size_t)ku * (size_t)kv * sizeof(double));
                NEED(cost);
                g->edges[at] = (tsri_sg_edge){.u = u, .v = v, .cost = cost};
            }
            add_table(g->edges[at].cost, e->cost, ku, kv, e->u != u, g->forbid);
        }
    }
    return TSR_OK;
}

static tsr_status index_edges(tsri_pool *pool, tsri_sgraph *g)
{
    int *start = tsri_pool_alloc(pool, ((size_t)g->n + 2) * sizeof(int));
    int *adj = tsri_pool_alloc(pool, (size_t)g->nedges * 2 * sizeof(int));
    NEED(start && adj);
    for (int e = 0; e < g->nedges; e++) {
        start[g->edges[e].u + 2]++;
        start[g->edges[e].v + 2]++;
    }
    for (int v = 0; v < g->n; v++)
        start[v + 2] += start[v + 1];
    for (int e = 0; e < g->nedges; e++) {
        adj[start[g->edges[e].u + 1]++] = e;
        adj[start[g->edges[e].v + 1]++] = e;
    }
    g->adj_start = start;
    g->adj = adj;
    return TSR_OK;
}

static void enqueue(reducer *r, int v)
{
    if (r->queued[v] || r->visits <= 0)
        return;
    r->queued[v] = true;
    r->queue[(r->head + r->waiting++) % r->g->n] = v;
    r->visits--;
}

static tsr_status start_reducing(reducer *r)
{
    const tsri_search_problem *p = r->p;
    tsri_sgraph *g = r->g;
    size_t n = (size_t)g->n, scratch = 1;
    r->alive = tsri_pool_alloc(r->pool, n * sizeof *r->alive);
    r->left = tsri_pool_alloc(r->pool, n * sizeof *r->left);
    r->queue = tsri_pool_alloc(r->pool, n * sizeof *r->queue);
    r->queued = tsri_pool_alloc(r->pool, n * sizeof *r->queued);
    r->sides = tsri_pool_alloc(r->pool, (size_t)g->nedges * 2 * sizeof *r->sides);
    NEED(r->alive && r->left && r->queue && r->queued && r->sides);
    r->visits = (int64_t)g->n * 6;
    for (int v = 0; v < g->n; v++) {
        int k = p->nodes[v].nstrat;
        r->alive[v] = tsri_pool_alloc(r->pool, (size_t)k * sizeof(int));
        NEED(r->alive[v]);
        for (int s = 0; s < k; s++)
            if (p->nodes[v].cost[s] != INFINITY)
                r->alive[v][r->left[v]++] = s;
        g->empty |= r->left[v] == 0;
        for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++) {
            const tsri_sg_edge *e = &g->edges[g->adj[i]];
            int64_t row = p->nodes[e->v].nstrat;
            r->sides[i] = e->u == v ? (side){e->cost, row, 1, e->v} : (side){e->cost, 1, row, e->u};
        }
        size_t need = (size_t)k * (size_t)(g->adj_start[v + 1] - g->adj_start[v]);
        scratch = need > scratch ? need : scratch;
        enqueue(r, v);
    }
    r->best = tsri_pool_alloc(r->pool, scratch * sizeof *r->best);
    NEED(r->best);
    return TSR_OK;
}

/* Drops the strategies of v that a neighbour forbids altogether, and notes for the others which
 * partner each likes most. */
static void drop_forbidden(reducer *r, int v)
{
    int first = r->g->adj_start[v], nsides = r->g->adj_start[v + 1] - first, kept = 0;
    for (int a = 0; a < r->left[v]; a++) {
        int s = r->alive[v][a];
        bool legal = true;
        for (int i = 0; i < nsides && legal; i++) {
            const side *sd = &r->sides[first + i];
            const int *partners = r->alive[sd->node];
            const double *row = sd->cost + s * sd->own;
            int arg = partners[0];
            for (int j = 1; j < r->left[sd->node]; j++)
                if (row[partners[j] * sd->other] < row[arg * sd->other])
                    arg = partners[j];
            legal = row[arg * sd->other] < r->g->forbid - r->g->range;
            r->best[kept * nsides + i] = arg;
        }
        if (legal)
            r->alive[v][kept++] = s;
    }
    r->left[v] = kept;
    r->g->empty |= kept == 0;
}

/* Whether no feasible assignment with strategy s of v is better than the same with t: the sum over
 * edges of t's largest loss is at most what t gains at the node (Goldstein's criterion of dead-end
 * elimination). A tie goes to the lower strategy. */
static bool dominates(const reducer *r, int v, int t, int s, const int *best)
{
    int first = r->g->adj_start[v], nsides = r->g->adj_start[v + 1] - first;
    double gain = (double)r->p->nodes[v].cost[s] - r->p->nodes[v].cost[t], loss = 0.0;
    for (int i = 0; i < nsides; i++) {
        const side *sd = &r->sides[first + i];
        const double *at = sd->cost + best[i] * sd->other;
        loss += at[t * sd->own] - at[s * sd->own];
    }
    /* Most pairs end here: with the partners that s likes most, s is better. */
    if (loss > gain || (loss == gain && t > s))
        return false;
    double forbidden = r->g->forbid - r->g->range;
    loss = 0.0;
    for (int i = 0; i < nsides; i++) {
        const side *sd = &r->sides[first + i];
        const int *partners = r->alive[sd->node];
        double worst = -INFINITY;
        for (int j = 0; j < r->left[sd->node]; j++) {
            const double *at = sd->cost + partners[j] * sd->other;
            double cs = at[s * sd->own], d = at[t * sd->own] - cs;
            if (cs < forbidden && d > worst)
                worst = d;
        }
        loss += worst;
    }
    return loss < gain || (loss == gain && t < s);
}

static void drop_dominated(reducer *r, int v)
{
    int nsides = r->g->adj_start[v + 1] - r->g->adj_start[v];
    int *alive = r->alive[v], count = r->left[v];
    for (int a = 0; a < count; a++) {
        bool drop = false;
        for (int b = 0; b < count && !drop; b++)
            drop = b != a && alive[b] >= 0 &&
                   dominates(r, v, alive[b], alive[a], r->best + (int64_t)a * nsides);
        if (drop)
            alive[a] = -1;
    }
    int kept = 0;
    for (int a = 0; a < count; a++)
        if (alive[a] >= 0)
            alive[kept++] = alive[a];
    r->left[v] = kept;
}

static void reduce_domains(reducer *r)
{
    while (r->waiting && !r->g->empty) {
        int v = r->queue[r->head], before = r->left[v];
        r->head = (r->head + 1) % r->g->n;
        r->waiting--;
        r->queued[v] = false;
        drop_forbidden(r, v);
        if (r->left[v] > 1)
            drop_dominated(r, v);
        if (r->left[v] < before)
            for (int i = r->g->adj_start[v]; i < r->g->adj_start[v + 1]; i++)
                if (r->left[r->sides[i].node] > 1)
                    enqueue(r, r->sides[i].node);
    }
}

/* The table among those left, and whether it is a sum a(i) + b(j), exactly: then it couples
 * nothing, and its parts are added to the nodes. */
static bool fold_edge(const tsri_sgraph *g, const tsri_sg_edge *e, const double *c)
{
    int ku = g->k[e->u], kv = g->k[e->v];
    double forbidden = g->forbid - g->range;
    bool fixed = ku == 1 || kv == 1;
    for (int i = 0; i < ku && !fixed; i++)
        for (int j = 0; j < kv; j++) {
            const double *row = c + (int64_t)i * kv;
            if (row[j] >= forbidden || row[j] + c[0] != row[0] + c[j])
                return false;
        }
    double base = ku == 1 ? 0.0 : c[0];
    for (int i = 0; i < ku && ku > 1; i++)
        g->cost[e->u][i] += c[(int64_t)i * kv];
    for (int j = 0; j < kv; j++)
        g->cost[e->v][j] += c[j] - base;
    return true;
}

static tsr_status compact(reducer *r)
{
    tsri_sgraph *g = r->g;
    size_t n = (size_t)g->n;
    g->cost = tsri_pool_alloc(r->pool, n * sizeof *g->cost);
    NEED(g->cost);
    g->k = r->left;
    g->orig = r->alive;
    for (int v = 0; v < g->n; v++) {
        g->cost[v] = tsri_pool_alloc(r->pool, (size_t)g->k[v] * sizeof(double));
        NEED(g->cost[v]);
        for (int s = 0; s < g->k[v]; s++)
            g->cost[v][s] = r->p->nodes[v].cost[g->orig[v][s]];
    }
    int kept = 0;
    for (int i = 0; i < g->nedges; i++) {
        tsri_sg_edge e = g->edges[i];
        int ku = g->k[e.u], kv = g->k[e.v];
        int64_t row = r->p->nodes[e.v].nstrat, at = 0;
        /* In place: the compacted table never overtakes what is still to be read. */
        for (int s = 0; s < ku; s++)
            for (int t = 0; t < kv; t++)
                e.cost[at++] = e.cost[g->orig[e.u][s] * row + g->orig[e.v][t]];
        if (!fold_edge(g, &e, e.cost))
            g->edges[kept++] = e;
    }
    g->nedges = kept;
    return index_edges(r->pool, g);
}

tsr_status tsri_sg_build(tsri_pool *pool, const tsri_search_problem *problem, tsri_sgraph *out)
{
    tsri_sgraph g = {.n = problem->nnodes};
    reducer r = {.p = problem, .pool = pool, .g = &g};
    TSRI_TRY(check_problem(problem, &g.range));
    /* An infeasible total is at least forbid - range = 2 range + 1 > range. */
    g.forbid = 3.0 * g.range + 1.0;
    TSRI_TRY(merge_edges(&r));
    TSRI_TRY(index_edges(pool, &g));
    TSRI_TRY(start_reducing(&r));
    reduce_domains(&r);
    if (!g.empty)
        TSRI_TRY(compact(&r));
    *out = g;
    return TSR_OK;
}

double tsri_sg_cost(const tsri_sgraph *g, const int *choice)
{
    double sum = 0.0;
    for (int v = 0; v < g->n; v++)
        sum += g->cost[v][choice[v]];
    for (int i = 0; i < g->nedges; i++) {
        const tsri_sg_edge *e = &g->edges[i];
        sum += e->cost[(int64_t)choice[e->u] * g->k[e->v] + choice[e->v]];
    }
    return sum;
}
