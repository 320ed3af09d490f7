/* SPDX-License-Identifier: Apache-2.0 */
/* The search within a limit of usage. */
#ifndef TESSERA_SBP_SEARCH_MEMORY_H
#define TESSERA_SBP_SEARCH_MEMORY_H

#include "sbp/search/branch.h"

/* Times at which the nodes' most usage exceeds the limit, out of those where a node's usage starts:
 * no other time has more than the one before it. */
typedef struct tsri_times {
    const tsri_search_problem *p;
    int ntimes;
    int *from, *to;  /* [n] of nodes; from > to: none */
    int64_t *load;   /* [ntimes] scratch */
    int64_t least;   /* the nodes' least usage, at the time when that is most */
    bool infeasible; /* it exceeds the limit */
} tsri_times;

tsr_status tsri_times_start(tsri_times *t, tsri_pool *pool, const tsri_search_problem *p);
/* Sums at each time into load[ntimes]; returns the most. */
int64_t tsri_times_load(const tsri_times *t, const int *choice, int64_t *load);

/* Changes choice[], of least cost per byte, until it is within the limit, or nothing helps.
 * Returns whether it is. */
bool tsri_times_repair(const tsri_times *t, int *const *adj, int *choice);
/* Better strategies of single nodes, as the limit allows. choice is within it. */
void tsri_times_improve(const tsri_times *t, int *const *adj, int *choice);
/* Takes over from `other`, which may exceed the limit, those connected parts where the two differ
 * that make choice cheaper and keep it within. */
tsr_status tsri_times_merge(const tsri_times *t, tsri_mem *mem, int *const *adj, const int *other,
                            int *choice);

/* Searches within the limit. On entry picked[nnodes] and *result are the answer without a limit,
 * whose peak exceeds it. The pool is for scratch. */
tsr_status tsri_search_limited(tsri_pool *pool, const tsri_search_problem *p,
                               tsri_search_shared *shared, int *picked, tsri_search_result *result);

#endif
