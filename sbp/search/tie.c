/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Colour refinement (Weisfeiler and Leman 1968) finds equivalent nodes. A node's first colour is
 * the hash of its costs and usages; each round hashes the node's colour together with those of its
 * neighbours and the costs of the edges between. After a few rounds the nodes at one place of the
 * middle blocks of a network share a colour, and the nodes near its ends have colours of their own.
 */
#include "sbp/search/tie.h"

#include <string.h>

#include "src/core/rng.h"

enum { ROUNDS = 4 };

/* Numbers by 64-bit keys, in the order in which they are met. */
typedef struct numbering {
    uint64_t *key;
    int *number;
    size_t mask;
    int count;
} numbering;

static tsr_status numbering_init(numbering *m, tsri_pool *pool, size_t room)
{
    size_t size = 16;
    while (size < 2 * room)
        size *= 2;
    *m = (numbering){.mask = size - 1};
    m->key = tsri_pool_alloc(pool, size * sizeof *m->key);
    m->number = tsri_pool_alloc(pool, size * sizeof *m->number);
    TSRI_NEED(m->key && m->number);
    return TSR_OK;
}

/* Returns the key's number; a new one is the count before. */
static int number_of(numbering *m, uint64_t key)
{
    size_t at = key & m->mask;
    while (m->number[at] && m->key[at] != key)
        at = (at + 1) & m->mask;
    if (!m->number[at]) {
        m->key[at] = key;
        m->number[at] = ++m->count;
    }
    return m->number[at] - 1;
}

static uint64_t hash_node(const tsri_search_node *x)
{
    size_t n = (size_t)x->nstrat;
    uint64_t h = tsri_hash(TSRI_HASH_INIT, &x->nstrat, sizeof x->nstrat);
    h = tsri_hash(h, x->cost, n * sizeof *x->cost);
    return x->usage ? tsri_hash(h, x->usage, n * sizeof *x->usage) : h;
}

/* Hashes the edges' costs: each matrix once, however many edges share it. */
static tsr_status hash_edges(tsri_pool *pool, const tsri_search_problem *p, uint64_t **out)
{
    numbering known;
    size_t n = (size_t)p->nedges;
    uint64_t *hash = tsri_pool_alloc(pool, n * sizeof *hash);
    uint64_t *of_number = tsri_pool_alloc(pool, n * sizeof *of_number);
    TSRI_NEED(hash && of_number);
    TSRI_TRY(numbering_init(&known, pool, n));
    for (int e = 0; e < p->nedges; e++) {
        const tsri_search_edge *x = &p->edges[e];
        uintptr_t address = (uintptr_t)x->cost;
        int before = known.count,
            at = number_of(&known, tsri_hash(TSRI_HASH_INIT, &address, sizeof address));
        size_t entries = (size_t)p->nodes[x->u].nstrat * (size_t)p->nodes[x->v].nstrat;
        if (at == before)
            of_number[at] = tsri_hash(TSRI_HASH_INIT, x->cost, entries * sizeof *x->cost);
        hash[e] = of_number[at];
    }
    *out = hash;
    return TSR_OK;
}

static tsr_status colour(tsri_pool *pool, const tsri_search_problem *p, const uint64_t *edge,
                         uint64_t **out)
{
    size_t n = (size_t)p->nnodes;
    uint64_t *now = tsri_pool_alloc(pool, n * sizeof *now);
    uint64_t *next = tsri_pool_alloc(pool, n * sizeof *next);
    TSRI_NEED(now && next);
    for (int v = 0; v < p->nnodes; v++)
        now[v] = hash_node(&p->nodes[v]);
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(next, now, n * sizeof *next);
        for (int e = 0; e < p->nedges; e++) {
            const int u = p->edges[e].u, v = p->edges[e].v;
            const uint64_t to_u[3] = {edge[e], now[v], 1}, to_v[3] = {edge[e], now[u], 2};
            next[u] += tsri_hash(TSRI_HASH_INIT, to_u, sizeof to_u);
            next[v] += tsri_hash(TSRI_HASH_INIT, to_v, sizeof to_v);
        }
        for (int v = 0; v < p->nnodes; v++)
            now[v] = tsri_hash(TSRI_HASH_INIT, &next[v], sizeof next[v]);
    }
    *out = now;
    return TSR_OK;
}

/* A node of the tied problem costs what all do that it stands for. */
static tsr_status tie_nodes(tsri_pool *pool, const tsri_search_problem *p, int n, tsri_ties *out)
{
    tsri_search_node *nodes = tsri_pool_alloc(pool, (size_t)n * sizeof *nodes);
    TSRI_NEED(nodes);
    for (int v = 0; v < p->nnodes; v++) {
        const tsri_search_node *x = &p->nodes[v];
        tsri_search_node *to = &nodes[out->of[v]];
        size_t bytes = (size_t)x->nstrat * sizeof *x->cost;
        if (!to->cost) {
            *to = *x;
            to->cost = tsri_pool_dup(pool, x->cost, bytes);
            TSRI_NEED(to->cost);
            continue;
        }
        float *sum = (float *)(uintptr_t)to->cost;
        for (int s = 0; s < x->nstrat; s++)
            sum[s] += x->cost[s];
    }
    out->tied.nnodes = n;
    out->tied.nodes = nodes;
    return TSR_OK;
}

/* Edges between the same two nodes at the same costs are one; those of a node to itself are a cost
 * of that. */
static tsr_status tie_edges(tsri_pool *pool, const tsri_search_problem *p, const uint64_t *hash,
                            tsri_ties *out)
{
    numbering known;
    size_t n = (size_t)p->nedges;
    int *count = tsri_pool_alloc(pool, n * sizeof *count);
    tsri_search_edge *edges = tsri_pool_alloc(pool, n * sizeof *edges);
    TSRI_NEED(count && edges);
    TSRI_TRY(numbering_init(&known, pool, n));
    for (int e = 0; e < p->nedges; e++) {
        const tsri_search_edge *x = &p->edges[e];
        const int u = out->of[x->u], v = out->of[x->v];
        if (u == v) {
            float *cost = (float *)(uintptr_t)out->tied.nodes[u].cost;
            for (int s = 0, k = p->nodes[x->u].nstrat; s < k; s++)
                cost[s] += x->cost[s * k + s];
            continue;
        }
        const uint64_t key[3] = {hash[e], (uint64_t)u, (uint64_t)v};
        int at = number_of(&known, tsri_hash(TSRI_HASH_INIT, key, sizeof key));
        edges[at] = (tsri_search_edge){u, v, x->cost};
        count[at]++;
    }
    for (int e = 0; e < known.count; e++) {
        size_t entries =
            (size_t)out->tied.nodes[edges[e].u].nstrat * (size_t)out->tied.nodes[edges[e].v].nstrat;
        if (count[e] == 1)
            continue;
        float *cost = tsri_pool_dup(pool, edges[e].cost, entries * sizeof *cost);
        TSRI_NEED(cost);
        for (size_t i = 0; i < entries; i++)
            cost[i] *= (float)count[e];
        edges[e].cost = cost;
    }
    out->tied.nedges = known.count;
    out->tied.edges = edges;
    return TSR_OK;
}

tsr_status tsri_ties_make(tsri_pool *pool, const tsri_search_problem *p, tsri_ties *out)
{
    numbering colours;
    uint64_t *edge, *node;
    *out = (tsri_ties){.tied = *p};
    out->of = tsri_pool_alloc(pool, (size_t)p->nnodes * sizeof *out->of);
    TSRI_NEED(out->of);
    TSRI_TRY(hash_edges(pool, p, &edge));
    TSRI_TRY(colour(pool, p, edge, &node));
    TSRI_TRY(numbering_init(&colours, pool, (size_t)p->nnodes));
    for (int v = 0; v < p->nnodes; v++)
        out->of[v] = number_of(&colours, node[v]);
    TSRI_TRY(tie_nodes(pool, p, colours.count, out));
    return tie_edges(pool, p, edge, out);
}
