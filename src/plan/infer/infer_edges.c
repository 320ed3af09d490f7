/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes and edges of the search's problem. */
#include "src/plan/infer/infer.h"

#include <math.h>

tsr_status tsri_add_edge(tsri_problem *p, int u, int v, const float *cost)
{
    TSRI_NEED(TSRI_PUSH(p->pool, p->edges, p->nedges, p->cedges));
    p->edges[p->nedges++] = (tsri_search_edge){u, v, cost};
    return TSR_OK;
}

tsr_status tsri_add_node(tsri_problem *p, tsri_search_node node, int *out_node)
{
    TSRI_NEED(TSRI_PUSH(p->pool, p->nodes, p->nnodes, p->cnodes));
    p->nodes[p->nnodes] = node;
    *out_node = p->nnodes++;
    return TSR_OK;
}

tsr_status tsri_conversion_edge(tsri_problem *p, const tsr_tensor *t, int64_t every, int u,
                                const tsri_side *from, int v, const tsri_side *to, double share)
{
    float *cost = tsri_find_matrix(p, from, to, share);
    if (!cost) {
        tsri_conversion *c;
        TSRI_TRY(tsri_find_conversion(p, t, every, from->placement, from->list, to->placement,
                                      to->list, &c));
        cost = tsri_pool_alloc(p->pool, (size_t)from->n * (size_t)to->n * sizeof *cost);
        float *each = c->cost;
        size_t n = (size_t)from->list->n * (size_t)to->list->n;
        if (share > 0 && !(each = tsri_pool_alloc(p->pool, n * sizeof *each)))
            return TSR_ERR_NO_MEMORY;
        TSRI_NEED(cost);
        if (share > 0)
            TSRI_TRY(tsri_bucket_prices(p, c, share, each));
        for (int i = 0; i < from->n; i++)
            for (int j = 0; j < to->n; j++)
                cost[i * to->n + j] = tsri_may_convert(p, from, from->list->sig[from->of[i]], to, j)
                                          ? each[from->of[i] * to->list->n + to->of[j]]
                                          : INFINITY;
        TSRI_TRY(tsri_add_matrix(p, from, to, share, cost));
    }
    return tsri_add_edge(p, u, v, cost);
}

/* Whether a conversion would reduce, in each micro-batch or in each of several runs, a sum over
 * ranks that stays whole: such a sum is reduced once, after its total. */
static bool reduces_parts(const tsri_problem *p, tsr_sbp from, const tsri_side *to, tsr_sbp want)
{
    const unsigned dims = to->collects ? tsri_parallel_dims(p, to->placement) : 0;
    return dims & tsri_sbp_dims(to->placement, from, TSR_SBP_PARTIAL) &
           ~tsri_sbp_dims(to->placement, want, TSR_SBP_PARTIAL);
}

bool tsri_may_convert(const tsri_problem *p, const tsri_side *from, tsr_sbp sig,
                      const tsri_side *to, int j)
{
    if (reduces_parts(p, sig, to, to->list->sig[to->of[j]]))
        return false;
    return p->fill_zeros || to->added ||
           !tsri_fills_zeros(from->placement, sig, to->placement, to->list->sig[to->of[j]]);
}
