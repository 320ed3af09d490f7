/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputed ops in the search: see src/rewrite/recompute.c. */
#include "src/plan/infer/infer.h"

#include <math.h>

tsr_status tsri_share_node(tsri_problem *p, int again)
{
    const int first = p->first[p->g->ops[again]->origin];
    const tsri_strategies *s = p->strat[again] = p->strat[first];
    tsri_search_node *node = &p->nodes[p->node_of[first]];
    float *both = tsri_pool_dup(p->pool, node->cost, (size_t)s->n * sizeof *both);
    float *none = tsri_pool_alloc(p->pool, (size_t)s->n * sizeof *none);
    float *equal = tsri_find_matrix(p, s, s, 0);
    TSRI_NEED(both && none);
    for (int k = 0; k < s->n; k++)
        both[k] += s->cost[k];
    node->cost = both;
    if (!equal) {
        equal = tsri_pool_alloc(p->pool, (size_t)s->n * (size_t)s->n * sizeof *equal);
        TSRI_NEED(equal);
        for (int k = 0; k < s->n * s->n; k++)
            equal[k] = k / s->n == k % s->n ? 0 : INFINITY;
        TSRI_TRY(tsri_add_matrix(p, s, s, 0, equal));
    }
    p->node_of[again] = p->node_of[first];
    const tsri_search_node memory = {.nstrat = s->n, .cost = none};
    TSRI_TRY(tsri_add_node(p, memory, &p->memory_of[again]));
    return tsri_add_edge(p, p->node_of[first], p->memory_of[again], equal);
}

bool tsri_reads_with_first(const tsri_problem *p, const tsri_op *op, int operand)
{
    const tsri_op *first = p->g->ops[p->first[op->origin]];
    return op->again && p->out->live[first->id] && first->in[operand] == op->in[operand];
}
