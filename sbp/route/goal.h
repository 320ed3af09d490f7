/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds of the way to a destination: inside of sbp/route/. */
#ifndef TESSERA_SBP_ROUTE_GOAL_H
#define TESSERA_SBP_ROUTE_GOAL_H

#include "sbp/route/space.h"

/* A destination, as lower bounds of the way there need it. */
typedef struct tsri_goal {
    tsri_state state;
    double first, last; /* elements of the first rank's part, the largest, and of the last one's */
    double holders;     /* ranks that have an element; those that differ along P alone are one */
    bool relabels;      /* its P may come from a relabel, which takes no time */
    /* The most elements of an axis that a nest's part and the destination's share, on those two. */
    double shared_first[TSR_MAX_NDIM][TSRI_NESTS], shared_last[TSR_MAX_NDIM][TSRI_NESTS];
} tsri_goal;

void tsri_goal_init(tsri_goal *goal, const tsri_space *s, tsri_state state);
/* Elements that some rank has to read on any way from x; 0 if that can't be told. */
double tsri_goal_missing(const tsri_goal *goal, const tsri_space *s, tsri_state x);
/* Seconds that any sequence of steps from x takes at least. */
double tsri_goal_bound(const tsri_goal *goal, const tsri_space *s, tsri_state x);

#endif
