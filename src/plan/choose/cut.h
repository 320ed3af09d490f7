/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a program that one stage runs into stages. */
#ifndef TESSERA_PLAN_CHOOSE_CUT_H
#define TESSERA_PLAN_CHOOSE_CUT_H

#include "src/plan/plan.h"

/* How a program is cut. Stage s is on index s % nindices of the stages' axis. */
typedef struct tsri_cutting {
    int nstages, nindices;
    int parts;             /* micro-batches of a step */
    tsr_pipeline pipeline; /* decides the number of micro-batches that a stage keeps */
    size_t memory_limit;   /* bytes of a rank; 0: none */
    int other_rank;        /* the rank of index 1 that corresponds to the first rank of index 0 */
} tsri_cutting;

typedef struct tsri_cut_found {
    bool fits;        /* within the limit */
    double longest_s; /* estimated seconds of the longest stage for a micro-batch */
    double free_need; /* bytes of a rank in the shortest cut without a limit */
} tsri_cut_found;

/*
 * Writes to out_stage the stage of each of n variables. The plan must have been compiled with all
 * of them on the ranks of index 0. Modules stay whole, in the order of their first use in the
 * forward pass, and each stage is a run of modules. The cut has the shortest longest stage of all
 * cuts within the limit, and of equal ones the fewest seconds of sends. If no cut is within the
 * limit, it has the least memory. The time of a stage is the sum of its kernels, collectives and
 * receives. Its memory is the sum of its variables, their states and gradients, and the forward
 * values with backward consumers of all micro-batches that it keeps. Both are estimates: compiling
 * the stages gives exact figures. A variable without a consumer in the forward pass is in the stage
 * of the variable before it.
 *
 * Not collective. Errors: TSR_ERR_INVALID, fewer modules than stages; TSR_ERR_NO_MEMORY.
 */
tsr_status tsri_plan_cut(const tsr_plan *plan, const tsri_cutting *how, int n,
                         tsr_variable *const *variables, int *out_stage, tsri_cut_found *out_cut);

#endif
