/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where each tensor of a graph is used, so that another can take its place there, and which ops are
 * to stand right behind others: a number of rules changes a graph in one walk of it.
 */
#ifndef TESSERA_CONFIG_PLACES_H
#define TESSERA_CONFIG_PLACES_H

#include "src/graph/graph.h"

typedef struct tsri_use {
    tsr_tensor **place;
    const tsri_op *reader; /* NULL: the place is no op's operand */
    int next;              /* of the same tensor; -1: none */
} tsri_use;

typedef struct tsri_places {
    tsr_graph *graph;
    tsri_pool *pool;
    tsri_use *uses;
    int nuses, cuses;
    int *first; /* by tensor, -1: it has none; of the first nfirst tensors */
    int nfirst, cfirst;
    int *after; /* the op that op number nops + i is to stand behind */
    int nafter, cafter;
    int nops; /* of the graph when the places were noted */
} tsri_places;

/* Notes all operands of a graph's ops. The pool owns what the places hold. */
tsr_status tsri_places_init(tsri_places *p, tsr_graph *g, tsri_pool *pool);
/* Notes one more place that has a tensor; reader may be NULL. */
tsr_status tsri_places_add(tsri_places *p, tsr_tensor **place, const tsri_op *reader);
/* Notes the graph's latest op, whose one operand is x, as one that is to stand right behind the op
 * that makes x. */
tsr_status tsri_places_insert(tsri_places *p, const tsr_tensor *x, tsri_op *op);
/* Takes all uses of x that were noted so far off its list: the first of them, or -1. */
int tsri_places_take(tsri_places *p, const tsr_tensor *x);
/* Gives y to the places of a list that was taken, but leaves x to those whose reader `keeps` it
 * (NULL: to none). */
tsr_status tsri_places_give(tsri_places *p, int list, const tsr_tensor *x, tsr_tensor *y,
                            bool (*keeps)(const tsri_op *reader, const tsr_tensor *x));
/* Moves the ops that were inserted to where they are to stand: of several behind one op, the latest
 * first. */
tsr_status tsri_places_sort(tsri_places *p);

#endif
