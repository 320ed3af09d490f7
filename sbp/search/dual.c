/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search/graph.h"
#include "sbp/search/plus.h"

#include <math.h>
#include <string.h>

tsr_status tsri_sg_dual_start(tsri_pool *pool, const tsri_sgraph *g, tsri_sg_dual *out)
{
    tsri_sg_dual d = {.g = g, .lower = -INFINITY, .upper = INFINITY};
    size_t n = (size_t)g->n, nedges = (size_t)g->nedges;
    int widest = 1;
    d.cost = tsri_pool_alloc(pool, n * sizeof *d.cost);
    d.share = tsri_pool_alloc(pool, n * sizeof *d.share);
    d.to_u = tsri_pool_alloc(pool, nedges * sizeof *d.to_u);
    d.to_v = tsri_pool_alloc(pool, nedges * sizeof *d.to_v);
    TSRI_NEED(d.cost && d.share && d.to_u && d.to_v);
    for (int v = 0; v < g->n; v++) {
        int after = 0, count = g->adj_start[v + 1] - g->adj_start[v];
        for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++)
            after += g->edges[g->adj[i]].u == v;
        int chains = after > count - after ? after : count - after;
        d.share[v] = 1.0 / (chains > 1 ? chains : 1);
        d.cost[v] = tsri_pool_dup(pool, g->cost[v], (size_t)g->k[v] * sizeof(double));
        TSRI_NEED(d.cost[v]);
        widest = g->k[v] > widest ? g->k[v] : widest;
        d.left += g->k[v];
    }
    for (int i = 0; i < g->nedges; i++) {
        const tsri_sg_edge *e = &g->edges[i];
        d.to_u[i] = tsri_pool_alloc(pool, (size_t)g->k[e->u] * sizeof(double));
        d.to_v[i] = tsri_pool_alloc(pool, (size_t)g->k[e->v] * sizeof(double));
        TSRI_NEED(d.to_u[i] && d.to_v[i]);
        d.pass += 2.0 * g->k[e->u] * g->k[e->v] + 64.0;
    }
    d.sum = tsri_pool_alloc(pool, (size_t)widest * sizeof(double));
    d.part = tsri_pool_alloc(pool, (size_t)widest * sizeof(double));
    TSRI_NEED(d.sum && d.part);
    d.slack = 1e-12 * g->range;
    *out = d;
    return TSR_OK;
}

/* The node's cost with all that its edges move to it: the sum of the min-marginals of the chains
 * through it. A strategy above the least by more than the gap is in no better assignment. */
static double gather(tsri_sg_dual *d, int v)
{
    const tsri_sgraph *g = d->g;
    int k = g->k[v];
    memcpy(d->sum, d->cost[v], (size_t)k * sizeof(double));
    for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++) {
        int e = g->adj[i];
        const double *m = g->edges[e].u == v ? d->to_u[e] : d->to_v[e];
        for (int s = 0; s < k; s++)
            d->sum[s] += m[s];
    }
    double least = tsri_least_of(d->sum, k), most = least + (d->upper - d->lower) + d->slack;
    for (int s = 0; s < k; s++)
        if (d->sum[s] > most && d->sum[s] < INFINITY) {
            d->sum[s] = d->cost[v][s] = INFINITY;
            d->left--;
        }
    return least;
}

/* The message of v along edge e; returns what was taken off it. */
static double send(tsri_sg_dual *d, int v, int e)
{
    const tsri_sg_edge *x = &d->g->edges[e];
    bool is_u = x->u == v;
    int k = d->g->k[v], other = d->g->k[is_u ? x->v : x->u];
    const double *back = is_u ? d->to_u[e] : d->to_v[e];
    double *out = is_u ? d->to_v[e] : d->to_u[e], share = d->share[v];
    for (int s = 0; s < k; s++)
        d->part[s] = share * d->sum[s] - back[s];
    tsri_plus_min(d->part, is_u ? x->cost : x->flip, k, other, out);
    double least = tsri_least_of(out, other);
    for (int s = 0; s < other; s++)
        out[s] -= least;
    return least;
}

/* The strategy that goes best with those chosen before and the messages of those after. */
static int guess(tsri_sg_dual *d, int v, const int *choice)
{
    const tsri_sgraph *g = d->g;
    int k = g->k[v], best = 0;
    memcpy(d->part, d->cost[v], (size_t)k * sizeof(double));
    for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++) {
        int e = g->adj[i];
        const tsri_sg_edge *x = &g->edges[e];
        const double *add = x->u == v ? d->to_u[e] : x->cost + (int64_t)choice[x->u] * k;
        for (int s = 0; s < k; s++)
            d->part[s] += add[s];
    }
    for (int s = 1; s < k; s++)
        if (d->part[s] < d->part[best])
            best = s;
    return best;
}

void tsri_sg_dual_step(tsri_sg_dual *d, int *choice)
{
    const tsri_sgraph *g = d->g;
    double lower = 0.0;
    for (int v = 0; v < g->n; v++) {
        gather(d, v);
        choice[v] = guess(d, v, choice);
        for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++)
            if (g->edges[g->adj[i]].u == v)
                send(d, v, g->adj[i]);
    }
    for (int v = g->n - 1; v >= 0; v--) {
        double least = gather(d, v);
        lower += least;
        for (int s = 0; s < g->k[v]; s++)
            d->sum[s] -= least;
        for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++)
            if (g->edges[g->adj[i]].v == v)
                lower += send(d, v, g->adj[i]);
    }
    if (lower > d->lower)
        d->lower = lower;
}

/* The rest of a node: its strategies, and their costs with all messages. */
static tsr_status keep_node(const tsri_sg_dual *d, tsri_sreducer *r, int v, int **out_kept,
                            int *out_count)
{
    const tsri_sgraph *g = d->g;
    int k = g->k[v], count = 0;
    int *kept = tsri_pool_alloc(r->pool, (size_t)k * sizeof(int));
    double *cost = tsri_pool_alloc(r->pool, (size_t)k * sizeof(double));
    TSRI_NEED(kept && cost);
    for (int s = 0; s < k; s++)
        if (d->cost[v][s] < INFINITY) {
            cost[count] = d->cost[v][s];
            kept[count++] = s;
        }
    for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++) {
        int e = g->adj[i];
        const double *m = g->edges[e].u == v ? d->to_u[e] : d->to_v[e];
        for (int s = 0; s < count; s++)
            cost[s] += m[kept[s]];
    }
    *out_kept = kept;
    *out_count = count;
    return tsri_sr_rewrite(r, g->node[v], kept, count, cost);
}

tsr_status tsri_sg_dual_keep(tsri_sg_dual *d, tsri_sreducer *r)
{
    const tsri_sgraph *g = d->g;
    int **kept = tsri_pool_alloc(r->pool, (size_t)g->n * sizeof *kept);
    int *count = tsri_pool_alloc(r->pool, (size_t)g->n * sizeof *count);
    TSRI_NEED(kept && count);
    for (int v = 0; v < g->n; v++)
        TSRI_TRY(keep_node(d, r, v, &kept[v], &count[v]));
    for (int i = 0; i < g->nedges; i++) {
        const tsri_sg_edge *e = &g->edges[i];
        int rows = count[e->u], cols = count[e->v];
        double *at = tsri_pool_alloc(r->pool, (size_t)rows * (size_t)cols * sizeof *at);
        TSRI_NEED(at);
        for (int s = 0; s < rows; s++) {
            int from = kept[e->u][s];
            const double *row = e->cost + (int64_t)from * g->k[e->v];
            for (int t = 0; t < cols; t++) {
                int to = kept[e->v][t];
                at[(int64_t)s * cols + t] =
                    row[to] < g->forbid ? row[to] - d->to_u[i][from] - d->to_v[i][to] : INFINITY;
            }
        }
        TSRI_TRY(tsri_sr_rewrite_edge(r, e->number, g->node[e->u], g->node[e->v], at));
    }
    return TSR_OK;
}
