/* SPDX-License-Identifier: Apache-2.0 */
/* The order of elimination: least table first, by a heap of tables that is kept up to date. */
#include "sbp/search/graph.h"

#include <math.h>
#include <string.h>

/* Products of strategies stop growing here: far beyond any table that could be made. */
#define WEIGHT_CAP 1e18

typedef struct orderer {
    const tsri_sgraph *g;
    tsri_pool *pool;
    int **nb; /* [n][deg] neighbours left, elimination's own included */
    int *deg, *cap;
    double *weight; /* [n] entries of the table that eliminating the node makes */
    tsri_heap left; /* nodes by that */
    const int *uses;
    double *score;  /* [n] less where a node couples more and was fixed more rarely before */
    tsri_heap cuts; /* nodes left by that; empty until the first is cut */
    int *mark, stamp;
} orderer;

static double weigh(const orderer *o, int v)
{
    double w = 1.0;
    for (int i = 0; i < o->deg[v] && w < WEIGHT_CAP; i++)
        w *= o->g->k[o->nb[v][i]];
    return w;
}

static tsr_status add_neighbour(orderer *o, int v, int other)
{
    TSRI_NEED(TSRI_PUSH(o->pool, o->nb[v], o->deg[v], o->cap[v]));
    o->nb[v][o->deg[v]++] = other;
    return TSR_OK;
}

static void remove_neighbour(orderer *o, int v, int other)
{
    int i = 0;
    while (o->nb[v][i] != other)
        i++;
    o->nb[v][i] = o->nb[v][--o->deg[v]];
}

static tsr_status start(orderer *o)
{
    const tsri_sgraph *g = o->g;
    size_t n = (size_t)g->n;
    o->nb = tsri_pool_alloc(o->pool, n * sizeof *o->nb);
    o->deg = tsri_pool_alloc(o->pool, n * sizeof(int));
    o->cap = tsri_pool_alloc(o->pool, n * sizeof(int));
    o->weight = tsri_pool_alloc(o->pool, n * sizeof(double));
    o->mark = tsri_pool_alloc(o->pool, n * sizeof(int));
    TSRI_NEED(o->nb && o->deg && o->cap && o->weight && o->mark);
    TSRI_TRY(tsri_heap_init(&o->left, o->pool, g->n, o->weight));
    for (int i = 0; i < g->nedges; i++) {
        TSRI_TRY(add_neighbour(o, g->edges[i].u, g->edges[i].v));
        TSRI_TRY(add_neighbour(o, g->edges[i].v, g->edges[i].u));
    }
    for (int v = 0; v < g->n; v++) {
        o->weight[v] = weigh(o, v);
        tsri_heap_put(&o->left, v);
    }
    return TSR_OK;
}

static void score_cut(orderer *o, int v)
{
    o->score[v] = -o->deg[v] / (1.0 + (o->uses ? o->uses[v] : 0));
    tsri_heap_put(&o->cuts, v);
}

/* Takes v out; its neighbours become a clique where it was eliminated, not where it is fixed. */
static tsr_status drop(orderer *o, int v, bool connect)
{
    int *nb = o->nb[v], deg = o->deg[v];
    tsri_heap_take(&o->left, v);
    if (o->cuts.n)
        tsri_heap_take(&o->cuts, v);
    for (int i = 0; i < deg; i++)
        remove_neighbour(o, nb[i], v);
    for (int i = 0; i < deg && connect && deg > 1; i++) {
        int a = nb[i];
        o->stamp++;
        o->mark[a] = o->stamp;
        for (int j = 0; j < o->deg[a]; j++)
            o->mark[o->nb[a][j]] = o->stamp;
        for (int j = 0; j < deg; j++)
            if (o->mark[nb[j]] != o->stamp)
                TSRI_TRY(add_neighbour(o, a, nb[j]));
    }
    for (int i = 0; i < deg; i++) {
        o->weight[nb[i]] = weigh(o, nb[i]);
        tsri_heap_put(&o->left, nb[i]);
        if (o->cuts.n)
            score_cut(o, nb[i]);
    }
    return TSR_OK;
}

/* Picks the node that couples most, among those that were rarely fixed before. */
static tsr_status pick_cut(orderer *o, int *out_v)
{
    if (!o->score) {
        o->score = tsri_pool_alloc(o->pool, (size_t)o->g->n * sizeof *o->score);
        TSRI_NEED(o->score);
        TSRI_TRY(tsri_heap_init(&o->cuts, o->pool, o->g->n, o->score));
        for (int v = 0; v < o->g->n; v++)
            if (o->left.place[v])
                score_cut(o, v);
    }
    *out_v = o->cuts.item[0];
    return TSR_OK;
}

tsr_status tsri_sg_order(tsri_pool *pool, const tsri_sgraph *g, double limit, const int *uses,
                         tsri_sg_plan *out)
{
    orderer o = {.g = g, .pool = pool, .uses = uses};
    tsri_sg_plan plan = {0};
    plan.order = tsri_pool_alloc(pool, (size_t)g->n * sizeof(int));
    plan.is_cut = tsri_pool_alloc(pool, (size_t)g->n * sizeof(bool));
    TSRI_NEED(plan.order && plan.is_cut);
    TSRI_TRY(start(&o));
    while (o.left.n) {
        int v = o.left.item[0];
        double w = o.weight[v];
        if (w > limit) {
            TSRI_TRY(pick_cut(&o, &v));
            plan.is_cut[v] = true;
            plan.ncut++;
            TSRI_TRY(drop(&o, v, false));
            continue;
        }
        plan.order[plan.norder++] = v;
        plan.entries += w;
        plan.largest = w > plan.largest ? w : plan.largest;
        plan.work += w * g->k[v] * (o.deg[v] + 1);
        TSRI_TRY(drop(&o, v, true));
    }
    for (int v = 0, at = plan.norder; v < g->n; v++)
        if (plan.is_cut[v])
            plan.order[at++] = v;
    *out = plan;
    return TSR_OK;
}
