/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ties: a smaller problem in which equivalent nodes, as those of a network's equal layers, share
 * one choice. Each of its solutions is a solution of the original problem at the same cost; its
 * lower bounds do not hold for the original problem.
 */
#ifndef TESSERA_SBP_SEARCH_TIE_H
#define TESSERA_SBP_SEARCH_TIE_H

#include "sbp/search/search.h"

typedef struct tsri_ties {
    int *of;                  /* [nnodes] the tied node that stands for each node */
    tsri_search_problem tied; /* a tied node has the usage of one of its nodes, not of their sum */
} tsri_ties;

/* Builds the tied problem in the pool. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsri_ties_make(tsri_pool *pool, const tsri_search_problem *p, tsri_ties *out);

#endif
