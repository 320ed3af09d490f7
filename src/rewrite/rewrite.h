/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From graph to graph, before signatures are chosen. A compile works on a copy of the declared
 * graph, which it may change: the user's graph, and the user's handles to its tensors, stay as they
 * are.
 *
 *   copy.c       the copy
 *   rewrite.c    runs the rewrites of a compile in order
 *   check.c      checks the copy after each rewrite
 *   replace.c    replaces a tensor by another in its consumers
 *   only.c       the part of a graph that computes one tensor, for tsr_eval
 *   stop.c       leaves out updates after a loss that is not finite
 *   time.c       micro-batches: turns.c decides what runs once and what runs in each part
 *   recompute.c  recomputation in the backward pass
 */
#ifndef TESSERA_REWRITE_REWRITE_H
#define TESSERA_REWRITE_REWRITE_H

#include "src/graph/graph.h"

/* Copies a graph for a compile. The copy owns its ops and tensors, which have the numbers, names,
 * source locations, attributes and random keys of the originals; it shares variables, hooks and
 * texts with g, which must outlive it. The copy is not registered with the world or the live set,
 * so no public function accepts its tensors. Free it with tsri_graph_copy_free. Not collective. */
tsr_status tsri_graph_copy(const tsr_graph *g, tsr_graph **out_copy);
/* NULL is fine. */
void tsri_graph_copy_free(tsr_graph *copy);

/* Runs all rewrites of a compile on a copy, in the order of their table. Errors are a rewrite's,
 * and TSR_ERR_INTERNAL of tsri_rewrite_check. */
tsr_status tsri_rewrite(tsr_graph *copy);

/* Numbers of the things that no rewrite may lose; signatures, updates and losses are those of live
 * ops (tsri_graph_mark_live). */
typedef struct tsri_graph_promises {
    int ports, hooks, prints;
    int hints, gradient_hints; /* signatures that the user gave, except those of constants */
    int updates, losses;
} tsri_graph_promises;
/* Counts signatures, updates and losses only if TESSERA_CHECK is set (tsri_checks). Errors:
 * TSR_ERR_NO_MEMORY. */
tsr_status tsri_rewrite_promises(const tsr_graph *copy, tsri_graph_promises *out);
/* If TESSERA_CHECK is set, returns TSR_ERR_INTERNAL, which names the rewrite and the op, when an
 * operand has no earlier producer, when a number is not the index, or when the copy has fewer of
 * anything than `before`. */
tsr_status tsri_rewrite_check(const tsr_graph *copy, const char *rewrite,
                              const tsri_graph_promises *before);

/* Makes `to` the operand of all ops after its producer that had `from`. Both tensors have the same
 * shape, dtype and placement, or the call returns TSR_ERR_INTERNAL. Outputs and updates keep
 * `from`; ops whose results have no consumer left are not run. */
tsr_status tsri_rewrite_replace(tsr_graph *copy, const tsr_tensor *from, tsr_tensor *to);

/* Reduces a copy to the computation of one tensor, given by its number: removes all effects and
 * outputs and adds one output `name` in B. */
tsr_status tsri_rewrite_only(tsr_graph *copy, int tensor, const char *name);

/* With copy->step.stops: makes updates depend on their losses, so that they change nothing if a
 * loss is not finite. Updates are the consumers of a tsr_variable with .leaves_out; losses are
 * those declared before them, of which one is on a device without host memory (a host ends the run
 * before the updates). */
tsr_status tsri_rewrite_stop(tsr_graph *copy);

/* Cuts a step into copy->step.parts micro-batches; up to one, the graph stays. Errors: see
 * tsri_time_turns. */
tsr_status tsri_rewrite_time(tsr_graph *copy);

/*
 * Implements regions of recomputation (tsr_recompute): gives backward ops copies of the region's
 * ops, inserted before the first backward consumer, so that the originals' results need not live
 * until then. These values are kept instead: operands of forward ops outside of the region,
 * outputs, results of ops with effects, without operands, or over the ranks of local graphs, and
 * direct operands of backward ops of at most 1/16 of the bytes of their op's largest operand. See
 * Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).
 */
tsr_status tsri_rewrite_recompute(tsr_graph *copy);

#endif
