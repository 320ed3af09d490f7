/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of which all is alike. */
#ifndef TESSERA_PLAN_REPORT_RANK_CLASSES_H
#define TESSERA_PLAN_REPORT_RANK_CLASSES_H

#include "src/core/mem.h"

typedef struct tsri_rank_classes {
    int n;
    int *first, *count; /* [n]: the lowest rank, in ascending order; how many ranks */
    int *of;            /* [ranks] */
} tsri_rank_classes;

/* Puts ranks with equal keys into classes; the arrays lie in `pool`. */
tsr_status tsri_rank_classes_find(tsri_pool *pool, int nranks, const uint64_t *key,
                                  tsri_rank_classes *out_classes);

#endif
