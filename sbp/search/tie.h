/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ties: a problem of equal blocks, such as the layers of a network, as one in which nodes whose
 * surroundings are equal choose alike. Its answers are answers of the whole, its bounds are not.
 */
#ifndef TESSERA_SBP_SEARCH_TIE_H
#define TESSERA_SBP_SEARCH_TIE_H

#include "sbp/search/search.h"

typedef struct tsri_ties {
    int *of;                  /* [nnodes] the tied problem's node of each node */
    tsri_search_problem tied; /* the usage of a node is that of one of those it stands for */
} tsri_ties;

tsr_status tsri_ties_make(tsri_pool *pool, const tsri_search_problem *p, tsri_ties *out);

#endif
