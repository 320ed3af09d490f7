/* SPDX-License-Identifier: Apache-2.0 */
/* Improvement by trees: nodes that induce a forest get their best strategies all at once, beside
 * what the others have. */
#include "sbp/search/graph.h"
#include "sbp/search/plus.h"

#include <math.h>
#include <string.h>

enum { STALE_MOVES = 8 };

typedef struct grower {
    const tsri_sgraph *g;
    double **cost; /* [n][k] of nodes in the forest: with fixed neighbours and subtrees */
    double *msg;
    int *perm;           /* [n] the order in which nodes are tried */
    int *root;           /* [n] union-find over the forest */
    bool *in;            /* [n] */
    int *order, *parent; /* [n] the forest from its roots; the edge to the parent, or -1 */
    int *old, norder;
    uint64_t random;
} grower;

static tsr_status start(grower *x, tsri_pool *pool)
{
    const tsri_sgraph *g = x->g;
    size_t n = (size_t)g->n;
    int widest = 1;
    x->cost = tsri_pool_alloc(pool, n * sizeof *x->cost);
    x->perm = tsri_pool_alloc(pool, n * sizeof(int));
    x->root = tsri_pool_alloc(pool, n * sizeof(int));
    x->in = tsri_pool_alloc(pool, n);
    x->order = tsri_pool_alloc(pool, n * sizeof(int));
    x->parent = tsri_pool_alloc(pool, n * sizeof(int));
    x->old = tsri_pool_alloc(pool, n * sizeof(int));
    TSRI_NEED(x->cost && x->perm && x->root && x->in && x->order && x->parent && x->old);
    for (int v = 0; v < g->n; v++) {
        x->perm[v] = v;
        x->cost[v] = tsri_pool_alloc(pool, (size_t)g->k[v] * sizeof(double));
        TSRI_NEED(x->cost[v]);
        widest = g->k[v] > widest ? g->k[v] : widest;
    }
    x->msg = tsri_pool_alloc(pool, (size_t)widest * sizeof(double));
    TSRI_NEED(x->msg);
    return TSR_OK;
}

static int find_root(grower *x, int v)
{
    while (x->root[v] != v)
        v = x->root[v] = x->root[x->root[v]];
    return v;
}

static int neighbour(const tsri_sgraph *g, int e, int v)
{
    return g->edges[e].u == v ? g->edges[e].v : g->edges[e].u;
}

/* The edge's row for strategy s of v, over the other's strategies. */
static const double *row_of(const tsri_sgraph *g, int e, int v, int s)
{
    const tsri_sg_edge *x = &g->edges[e];
    return x->u == v ? x->cost + (int64_t)s * g->k[x->v] : x->flip + (int64_t)s * g->k[x->u];
}

/* Adds v unless that closes a cycle. */
static void try_node(grower *x, int v)
{
    const tsri_sgraph *g = x->g;
    for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++) {
        int w = neighbour(g, g->adj[i], v);
        if (!x->in[w])
            continue;
        w = find_root(x, w);
        for (int j = g->adj_start[v]; j < i; j++) {
            int other = neighbour(g, g->adj[j], v);
            if (x->in[other] && find_root(x, other) == w)
                return;
        }
    }
    x->in[v] = true;
    for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++) {
        int w = neighbour(g, g->adj[i], v);
        if (x->in[w])
            x->root[find_root(x, w)] = v;
    }
}

/* A forest with as many as possible of those that the last had not, in random order. */
static void grow(grower *x)
{
    int n = x->g->n, front = 0;
    for (int i = n - 1; i > 0; i--) {
        x->random = x->random * 6364136223846793005u + 1442695040888963407u;
        int j = (int)((x->random >> 33) % (uint64_t)(i + 1)), v = x->perm[i];
        x->perm[i] = x->perm[j];
        x->perm[j] = v;
    }
    for (int i = 0; i < n; i++)
        if (!x->in[x->perm[i]]) {
            int v = x->perm[i];
            x->perm[i] = x->perm[front];
            x->perm[front++] = v;
        }
    for (int v = 0; v < n; v++) {
        x->in[v] = false;
        x->root[v] = v;
    }
    for (int i = 0; i < n; i++)
        try_node(x, x->perm[i]);
}

/* Orders the forest, and folds what is outside into its nodes. */
static void fold(grower *x, const int *choice)
{
    const tsri_sgraph *g = x->g;
    x->norder = 0;
    for (int v = 0; v < g->n; v++)
        x->parent[v] = -2;
    for (int r = 0; r < g->n; r++) {
        if (!x->in[r] || x->parent[r] != -2)
            continue;
        x->parent[r] = -1;
        int at = x->norder;
        x->order[x->norder++] = r;
        for (; at < x->norder; at++) {
            int v = x->order[at];
            memcpy(x->cost[v], g->cost[v], (size_t)g->k[v] * sizeof(double));
            for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++) {
                int e = g->adj[i], w = neighbour(g, e, v);
                if (!x->in[w]) {
                    const double *row = row_of(g, e, w, choice[w]);
                    for (int s = 0; s < g->k[v]; s++)
                        x->cost[v][s] += row[s];
                } else if (x->parent[w] == -2) {
                    x->parent[w] = e;
                    x->order[x->norder++] = w;
                }
            }
        }
    }
}

/* The forest's optimum into choice; returns the additions. */
static double solve(grower *x, int *choice)
{
    const tsri_sgraph *g = x->g;
    double work = 0.0;
    for (int i = x->norder - 1; i >= 0; i--) {
        int v = x->order[i], e = x->parent[v];
        if (e < 0)
            continue;
        int p = neighbour(g, e, v);
        tsri_plus_min(x->cost[v], row_of(g, e, v, 0), g->k[v], g->k[p], x->msg);
        for (int s = 0; s < g->k[p]; s++)
            x->cost[p][s] += x->msg[s];
        work += (double)g->k[v] * g->k[p];
    }
    for (int i = 0; i < x->norder; i++) {
        int v = x->order[i], e = x->parent[v], best = 0;
        double *cost = x->cost[v];
        if (e >= 0) {
            int p = neighbour(g, e, v);
            const double *row = row_of(g, e, p, choice[p]);
            for (int s = 0; s < g->k[v]; s++)
                cost[s] += row[s];
        }
        for (int s = 1; s < g->k[v]; s++)
            if (cost[s] < cost[best])
                best = s;
        choice[v] = best;
        work += 64.0 + 4.0 * g->k[v];
    }
    return work;
}

tsr_status tsri_sg_improve_trees(tsri_mem *mem, const tsri_sgraph *g, uint64_t *random,
                                 double *work, int *choice, double *cost)
{
    tsri_pool pool;
    tsri_pool_init(&pool, mem);
    grower x = {.g = g, .random = *random};
    tsr_status status;
    TSRI_GOTO(start(&x, &pool), done);
    for (int stale = 0; stale<STALE_MOVES && * work> 0.0;) {
        memcpy(x.old, choice, (size_t)g->n * sizeof(int));
        grow(&x);
        fold(&x, choice);
        *work -= solve(&x, choice) + 64.0 * g->n;
        double found = tsri_sg_cost(g, choice);
        /* The sum is taken anew, in one order, so that rounding can't make a move look like a
         * gain. */
        if (found < *cost) {
            *cost = found;
            stale = 0;
        } else {
            memcpy(choice, x.old, (size_t)g->n * sizeof(int));
            stale++;
        }
    }
    *random = x.random;
done:
    tsri_pool_finish(&pool);
    return status;
}
