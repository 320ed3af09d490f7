/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline, while a graph is declared: in which of them an op is, and how its operands
 * come there. */
#ifndef TESSERA_GRAPH_STAGE_H
#define TESSERA_GRAPH_STAGE_H

#include "src/graph/graph.h"

/* Returns whether an op of these operands may have them on several placements: stages say where it
 * is, and its operands are moved there. A NULL operand is none. */
bool tsri_stage_joins(const tsr_graph *g, int n, tsr_tensor *const *x);
/* Returns the stage of an op that is declared now with these operands: that which the declaration
 * is in, else the latest of its operands'. */
tsri_stage tsri_stage_of(const tsr_graph *g, int n, tsr_tensor *const *x);
/* Writes the operands as the op at a stage takes them: moved to its placement, where they live on
 * another one, and each once for all ops that read it there. Returns false where the graph has
 * failed. */
bool tsri_stage_gather(tsri_stage stage, int n, tsr_tensor *const *x, tsr_tensor **out,
                       tsri_loc loc);
/* Returns the number of the stage of what is brought to a placement, from an op of stage `from`:
 * `from` if that is there, else the next stage that is there, else the last; 0: none is. */
int tsri_stage_at(const tsr_graph *g, const tsr_placement *p, int from);
/* Lets tsri_stage_at know of a stage; false when there is no memory. */
bool tsri_stage_note(tsr_graph *g, tsri_stage stage);

#endif
