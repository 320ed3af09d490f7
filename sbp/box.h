/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxing: how a tensor gets from one signature to another, as plain data, and what it costs. One
 * hierarchy dimension at a time; both signatures on the same placement.
 *
 *   from \ to   S(i)              S(j)         B            P
 *   S(i)        -                 all_to_all   all_gather   fill (own piece in zeros)
 *   B           slice             slice        -            keep (first rank's; others the
 * identity) P           reduce_scatter                 all_reduce   - (another kind: all_reduce,
 * keep)
 *
 * fill and keep use the identity of the reduction; B is already a P(max) and a P(min).
 */
#ifndef TESSERA_SBP_BOX_H
#define TESSERA_SBP_BOX_H

#include "sbp/route.h"

typedef struct tsri_box_step {
    tsri_box_kind kind;
    tsr_sbp1 from, to;
} tsri_box_step;

/* A route: at most two steps on one dimension. n == 0: the signatures are equal. */
typedef struct tsri_box_route {
    int n;
    tsri_box_step step[2];
} tsri_box_route;

tsri_box_route tsri_box_find(tsr_sbp1 from, tsr_sbp1 to);

/* Whether an all-reduce of `bytes` over k ranks is cheaper in two phases than in one shot. */
bool tsri_box_two_phase(const tsri_cost_model *m, double bytes, int k);
/* Seconds of a conversion of a tensor of `bytes` over k parts. 0 for equal signatures, or k == 1.
 */
double tsri_box_cost(const tsri_cost_model *m, tsr_sbp1 from, tsr_sbp1 to, double bytes, int k);

static inline bool tsri_sbp1_equal(tsr_sbp1 a, tsr_sbp1 b)
{
    return a.kind == b.kind && a.arg == b.arg;
}

#endif
