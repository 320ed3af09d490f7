/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of a plan on a clock: when each group of ranks does what, by the model's prices and the
 * plan's own order. A rank computes one thing at a time. A collective starts when all of its ranks
 * have come to its start and the call before it on the same lane (critical or bulk) has ended, and
 * the rank goes on until it comes to the finish. Lanes do not slow each other down.
 */
#ifndef TESSERA_PLAN_TIMELINE_H
#define TESSERA_PLAN_TIMELINE_H

#include "src/plan/report/report.h"

/* Ranks that have a part in the same items. */
typedef struct tsri_timeline_group {
    int nranks, rank; /* how many; the lowest */
    double end_s;     /* when the last of its work is done */
    double compute_s; /* that it computes; the rest of end_s it waits */
} tsri_timeline_group;

/* One item's work on one group of ranks. */
typedef struct tsri_span {
    int item, group;
    int before; /* the span that this one had to wait for; -1: none */
    double start_s, end_s;
    bool critical; /* on the longest chain */
} tsri_span;

typedef struct tsri_timeline {
    int ngroups;
    tsri_timeline_group *group; /* by their lowest ranks */
    int *group_of;              /* [ranks of the world] */
    int nspans;
    tsri_span *span; /* in the plan's order */
    double end_s;    /* of the step */
    tsri_pool pool;
} tsri_timeline;

/* Ends with tsri_timeline_finish, also after an error. */
tsr_status tsri_timeline_make(const tsr_plan *plan, tsri_timeline *out_timeline);
void tsri_timeline_finish(tsri_timeline *timeline);

#endif
