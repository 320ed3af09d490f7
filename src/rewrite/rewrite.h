/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From graph to graph, before signatures are chosen. A compile works on a copy of the declared
 * graph, which it may change: the user's graph, and the user's handles to its tensors, stay as they
 * are.
 *
 *   copy.c       the copy
 *   only.c       what one tensor needs, for tsr_eval
 *   recompute.c  values that backward computes again
 */
#ifndef TESSERA_REWRITE_REWRITE_H
#define TESSERA_REWRITE_REWRITE_H

#include "src/graph/graph.h"

/* Makes a graph that says what g says, for a compile: ops and tensors are its own and have the
 * numbers, names, places, attributes and keys of g's; variables, hooks and texts are g's, which
 * must outlive it. Its tensors are not in the live set and it is not its world's: no public
 * function takes them. Ends with tsri_graph_copy_free. Not collective. */
tsr_status tsri_graph_copy(const tsr_graph *g, tsr_graph **out_copy);
/* NULL is fine. */
void tsri_graph_copy_free(tsr_graph *copy);

/* Leaves of a copy what one tensor needs: it is the only output, of this name and in B, and there
 * are no effects. `tensor` is its number. */
tsr_status tsri_rewrite_only(tsr_graph *copy, int tensor, const char *name);

/*
 * Lets backward compute again what it reads of regions (tsr_module_recompute), in front of the
 * region's first reader there, so that these values need not live from forward to backward. Kept
 * are: what an output, or an op of forward outside the region, reads; what a region computes by
 * ops with effects, from no operands, or over the ranks of local graphs; and what backward reads
 * of at most 1/16 of its op's largest operand, such as statistics. See Chen et al., "Training Deep
 * Nets with Sublinear Memory Cost" (2016).
 */
tsr_status tsri_rewrite_recompute(tsr_graph *copy);

#endif
