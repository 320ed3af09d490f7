/* SPDX-License-Identifier: Apache-2.0 */
/* The answers that lists of signatures which are too long to be searched are made anew around. */
#include "src/plan/infer/infer.h"

tsr_status tsri_find_nearby(const tsri_problem *p, tsri_nearby **out)
{
    const tsr_graph *g = p->g;
    tsri_nearby *near = tsri_pool_alloc(p->pool, sizeof *near);
    const tsri_nd_signature **chosen =
        tsri_pool_alloc(p->pool, (size_t)g->nops * sizeof(const tsri_nd_signature *));
    const tsri_op **reader = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof(tsri_op *));
    TSRI_NEED(near && chosen && reader);
    for (int i = g->nops; i-- > 0;) {
        const tsri_op *op = g->ops[i];
        if (!p->alike.live[i])
            continue;
        chosen[i] = &p->strat[i]->sig[p->shared.choice[p->node_of[i]]];
        for (int j = 0; j < op->nin; j++)
            reader[op->in[j]->id] = op;
    }
    *near = (tsri_nearby){.live = p->alike.live, .chosen = chosen, .reader = reader};
    *out = near;
    return TSR_OK;
}
