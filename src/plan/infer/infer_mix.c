/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that take some parts from one answer of inference, and the rest from another. */
#include <stdlib.h>
#include <string.h>

#include "src/plan/infer/infer.h"

/* The differing nodes that edges connect, numbered from 0; -1: the node does not differ. */
static tsr_status number_parts(const tsri_problem *p, const int *from, const int *to, int **out_of,
                               int *out_count)
{
    int *of = tsri_pool_alloc(p->pool, (size_t)p->nnodes * sizeof *of), count = 0;
    TSRI_NEED(of);
    for (int v = 0; v < p->nnodes; v++)
        of[v] = from[v] == to[v] ? -1 : v;
    /* Union-find; a root is the least node of its part. */
    for (int e = 0; e < p->nedges; e++) {
        int u = p->edges[e].u, v = p->edges[e].v;
        if (of[u] < 0 || of[v] < 0)
            continue;
        while (of[u] != u)
            u = of[u] = of[of[u]];
        while (of[v] != v)
            v = of[v] = of[of[v]];
        of[u > v ? u : v] = u > v ? v : u;
    }
    for (int v = 0; v < p->nnodes; v++) /* roots come before what they are the roots of */
        if (of[v] >= 0)
            of[v] = of[v] == v ? count++ : of[of[v]];
    *out_of = of;
    *out_count = count;
    return TSR_OK;
}

static int by_worth(const void *a, const void *b)
{
    const tsri_part_change *x = a, *y = b;
    double worth = x->less_s * y->more_bytes - y->less_s * x->more_bytes;
    return worth != 0 ? (worth < 0) - (worth > 0) : x->part - y->part;
}

tsr_status tsri_infer_parts(const tsri_inferred *from, const tsri_inferred *to,
                            tsri_parts *out_parts)
{
    const tsri_problem *p = from->problem;
    const int *a = from->choice, *b = to->choice;
    int *of, count;
    *out_parts = (tsri_parts){0};
    if (p != to->problem)
        return TSR_OK;
    TSRI_TRY(number_parts(p, a, b, &of, &count));
    tsri_part_change *change = tsri_pool_alloc(p->pool, (size_t)count * sizeof *change);
    TSRI_NEED(change);
    for (int i = 0; i < count; i++)
        change[i] = (tsri_part_change){.part = i, .more_bytes = 1};
    for (int v = 0; v < p->nnodes; v++) {
        const tsri_search_node *node = &p->nodes[v];
        if (of[v] < 0)
            continue;
        change[of[v]].less_s += node->cost[a[v]] - node->cost[b[v]];
        if (node->usage)
            change[of[v]].more_bytes += (double)(node->usage[b[v]] - node->usage[a[v]]);
    }
    for (int e = 0; e < p->nedges; e++) {
        int u = p->edges[e].u, v = p->edges[e].v, nv = p->nodes[v].nstrat;
        int part = of[u] >= 0 ? of[u] : of[v];
        if (part >= 0)
            change[part].less_s +=
                p->edges[e].cost[a[u] * nv + a[v]] - p->edges[e].cost[b[u] * nv + b[v]];
    }
    /* Parts that save time are kept. A part that takes no more bytes, by the estimate, is first. */
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (change[i].less_s > 0) {
            change[kept] = change[i];
            change[kept].more_bytes = change[i].more_bytes > 1 ? change[i].more_bytes : 1;
            kept++;
        }
    qsort(change, (size_t)kept, sizeof *change, by_worth);
    *out_parts = (tsri_parts){.n = kept, .change = change, .count = count, .of = of};
    return TSR_OK;
}

tsr_status tsri_infer_mix(const tsri_inferred *from, const tsri_inferred *to,
                          const tsri_parts *parts, const bool *taken, bool alternatives,
                          tsri_inferred *out_inferred)
{
    tsri_problem *p = from->problem;
    int *choice = tsri_pool_dup(p->pool, from->choice, (size_t)p->nnodes * sizeof *choice);
    bool *takes = tsri_pool_alloc(p->pool, (size_t)parts->count * sizeof *takes);
    TSRI_NEED(choice && takes);
    for (int i = 0; i < parts->n; i++)
        takes[parts->change[i].part] = taken[i];
    for (int v = 0; v < p->nnodes; v++)
        if (parts->of[v] >= 0 && takes[parts->of[v]])
            choice[v] = to->choice[v];
    return tsri_infer_take(from, choice, alternatives, out_inferred);
}
