/* SPDX-License-Identifier: Apache-2.0 */
/* Branch and bound over a small core. */
#ifndef TESSERA_SBP_SEARCH_BRANCH_H
#define TESSERA_SBP_SEARCH_BRANCH_H

#include "sbp/search/graph.h"

/* Usage over times 0..ntimes - 1, which are those that can exceed the limit. */
typedef struct tsri_usage {
    int ntimes;
    int *from, *to;      /* [n] of the problem's nodes; from > to: uses nothing then */
    int64_t *room;       /* [ntimes] bytes that nodes outside the core leave */
    const double **use;  /* [core n][k]; NULL: none */
    const double *price; /* [n] of the problem's nodes: what the core's costs include per byte */
    double discount;     /* what the limit is worth at those prices, and fixed usage's price */
} tsri_usage;

typedef struct tsri_branch {
    const tsri_sgraph *g;
    const tsri_usage *usage; /* NULL: no limit */
    double upper;            /* only assignments of less cost count: without prices */
    double work;             /* additions that are left; negative: it was broken off */
    int *choice;             /* [core n] the best */
    bool found;
} tsri_branch;

/* Depth first, over the node with fewest strategies that could still be better, each of which is
 * bounded by a reparametrised sum of minima. Without a limit the optimum is below `upper` just when
 * it was found, unless work ran out. */
tsr_status tsri_sg_branch(tsri_mem *mem, tsri_branch *branch);

#endif
