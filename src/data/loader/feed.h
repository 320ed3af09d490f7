/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's inputs, as loaders feed them. */
#ifndef TESSERA_DATA_LOADER_FEED_H
#define TESSERA_DATA_LOADER_FEED_H

#include "src/plan/plan.h"

/* A rank's rows of a batch: its part of a balanced split, dimension by dimension, each one
 * splitting the piece that the one before it gave. ndim 0: all rows. */
typedef struct tsri_rank_rows {
    int ndim;
    int parts[TSR_MAX_HIERARCHY], part[TSR_MAX_HIERARCHY];
} tsri_rank_rows;

/* The input of a name. TSR_ERR_INVALID if the plan has none. */
tsr_status tsri_feed_find(tsr_plan *plan, const char *name, tsri_ir_port **out_port);
/* Whether a rank holds rows of an input, which is split by rows or not at all; these. */
bool tsri_feed_rows(const tsri_ir_port *p, int rank, tsri_rank_rows *out_rows);

#endif
