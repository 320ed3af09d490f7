/* SPDX-License-Identifier: Apache-2.0 */
/* The core that reductions leave. */
#include "sbp/search/graph.h"

static tsr_status index_edges(tsri_pool *pool, tsri_sgraph *g)
{
    int *start = tsri_pool_alloc(pool, ((size_t)g->n + 2) * sizeof(int));
    int *adj = tsri_pool_alloc(pool, (size_t)g->nedges * 2 * sizeof(int));
    TSRI_NEED(start && adj);
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

tsr_status tsri_sg_build(tsri_pool *pool, tsri_sreducer *r, tsri_sgraph *out)
{
    tsri_sgraph g = {.forbid = r->forbid, .range = r->range};
    size_t n = (size_t)r->p->nnodes;
    int *place = tsri_pool_alloc(pool, n * sizeof(int));
    g.k = tsri_pool_alloc(pool, n * sizeof *g.k);
    g.cost = tsri_pool_alloc(pool, n * sizeof *g.cost);
    g.node = tsri_pool_alloc(pool, n * sizeof *g.node);
    g.edges = tsri_pool_alloc(pool, (size_t)r->nedges * sizeof *g.edges);
    TSRI_NEED(place && g.k && g.cost && g.node && g.edges);
    for (int v = 0; v < r->p->nnodes; v++) {
        if (r->nodes[v].gone)
            continue;
        place[v] = g.n;
        g.k[g.n] = r->nodes[v].k;
        g.node[g.n] = v;
        g.cost[g.n] = tsri_sm_rows(&r->memo, r->nodes[v].cost);
        TSRI_NEED(g.cost[g.n]);
        g.n++;
    }
    for (int i = 0; i < r->nedges; i++) {
        const tsri_sr_edge *e = &r->edges[i];
        if (e->m < 0)
            continue;
        int m, u = place[e->u], v = place[e->v];
        TSRI_TRY(tsri_sm_finite(&r->memo, e->m, r->forbid, &m));
        const double *cost = tsri_sm_rows(&r->memo, m);
        const double *flip = tsri_sm_rows(&r->memo, tsri_sm_flip(&r->memo, m));
        TSRI_NEED(cost && flip);
        g.edges[g.nedges++] =
            u < v ? (tsri_sg_edge){u, v, cost, flip, i} : (tsri_sg_edge){v, u, flip, cost, i};
    }
    TSRI_TRY(index_edges(pool, &g));
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
