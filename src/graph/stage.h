/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline during declaration: the stage of an op, and the conversions of its operands
 * to that stage. */
#ifndef TESSERA_GRAPH_STAGE_H
#define TESSERA_GRAPH_STAGE_H

#include "src/graph/graph.h"

/* Returns the stage of an op that is declared now with these operands (NULL operands are ignored):
 * the stage of the module being applied, else the latest stage of the operands. */
static inline tsri_stage tsri_stage_of(const tsr_graph *g, int n, tsr_tensor *const *x)
{
    tsri_stage latest = g->now.stage;
    for (int i = 0; i < n && !g->now.stage.number; i++)
        if (x[i] && !x[i]->failed && x[i]->op->stage > latest.number)
            latest = (tsri_stage){x[i]->op->stage, x[i]->placement};
    return latest;
}
/* Returns whether operands may live on several placements, since the op's stage determines its
 * placement and they are moved there. */
static inline bool tsri_stage_joins(const tsr_graph *g, int n, tsr_tensor *const *x)
{
    return tsri_stage_of(g, n, x).number > 0;
}
/* Writes the operands of an op at a stage: each is moved to the stage's placement if it lives on
 * another one, once for all its consumers there. Returns false if the graph has failed. */
bool tsri_stage_gather(tsri_stage stage, int n, tsr_tensor *const *x, tsr_tensor **out,
                       tsri_loc loc);
/* Returns the number of the stage of a value that is moved to a placement by an op of stage `from`:
 * `from` if that stage is on the placement, else the next stage that is, else the last one; 0 if
 * none is. */
int tsri_stage_at(const tsr_graph *g, const tsr_placement *p, int from);

#endif
