/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of elimination: a minimum over one variable of a sum of tables. */
#ifndef TESSERA_SBP_SEARCH_MINIMUM_H
#define TESSERA_SBP_SEARCH_MINIMUM_H

#include <stdint.h>

/* Variables of a table at most. Each has two strategies or more, so no memory holds a larger one.
 */
enum { TSRI_MIN_VARS = 40 };

/* A table as it is walked. A row operand has all variables of the block, and so `block` entries
 * side by side; a scalar has none, and one entry. */
typedef struct tsri_operand {
    const double *at;
    double *spread;                /* the owner's: `at` in memory of its own, or NULL */
    int64_t row;                   /* entries from one strategy to the next */
    int64_t stride[TSRI_MIN_VARS]; /* of the outer variables; 0: does not have it */
} tsri_operand;

typedef struct tsri_minimum {
    int k;                   /* strategies of the node that goes */
    int nouter;              /* variables outside the block, outermost first */
    int size[TSRI_MIN_VARS]; /* [nouter] */
    int64_t block;
    int nrows, nscalars; /* nrows >= 1 */
    tsri_operand *rows, *scalars;
    const double *cost; /* [k], or NULL */
    double *sums;       /* [k] scratch: what is constant over the block */
    int64_t *arg;       /* [block] scratch */
} tsri_minimum;

/* out[size...][block] = min over s of cost[s] + scalars + rows; arg, unless NULL: the least s of
 * those that reach it. Moves the operands. Equal bits on every processor. */
void tsri_minimum_run(tsri_minimum *m, double *out, uint8_t *arg);

#endif
