/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline, while a graph is declared: in which of them an op is, and how its operands
 * come there. */
#ifndef TESSERA_GRAPH_STAGE_H
#define TESSERA_GRAPH_STAGE_H

#include "src/graph/graph.h"

/* Returns the stage of an op that is declared now with these operands (NULL ones do not count):
 * that which the declaration is in, else the latest of its operands'. */
static inline tsri_stage tsri_stage_of(const tsr_graph *g, int n, tsr_tensor *const *x)
{
    tsri_stage latest = g->now.stage;
    for (int i = 0; i < n && !g->now.stage.number; i++)
        if (x[i] && !x[i]->failed && x[i]->op->stage > latest.number)
            latest = (tsri_stage){x[i]->op->stage, x[i]->placement};
    return latest;
}
/* Returns whether operands may live on several placements: the op's stage says where it is, and
 * they are moved there. */
static inline bool tsri_stage_joins(const tsr_graph *g, int n, tsr_tensor *const *x)
{
    return tsri_stage_of(g, n, x).number > 0;
}
/* Writes the operands as the op at a stage takes them: moved to its placement, where they live on
 * another one, and each once for all ops that read it there. Returns false where the graph has
 * failed. */
bool tsri_stage_gather(tsri_stage stage, int n, tsr_tensor *const *x, tsr_tensor **out,
                       tsri_loc loc);
/* Returns the number of the stage of what is brought to a placement, from an op of stage `from`:
 * `from` if that is there, else the next stage that is there, else the last; 0: none is. */
int tsri_stage_at(const tsr_graph *g, const tsr_placement *p, int from);

#endif
