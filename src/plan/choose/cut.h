/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a program that one stage runs into stages. */
#ifndef TESSERA_PLAN_CHOOSE_CUT_H
#define TESSERA_PLAN_CHOOSE_CUT_H

#include "src/plan/plan.h"

/* How a program is cut. Stage s is on index s % nindices of the stages' axis. */
typedef struct tsri_cutting {
    int nstages, nindices;
    int parts;             /* micro-batches of a step */
    tsr_pipeline pipeline; /* it decides how many of them a stage keeps */
    size_t memory_limit;   /* bytes of a rank; 0: none */
    int other_rank;        /* of the second index, at the place of the first index's first rank */
} tsri_cutting;

typedef struct tsri_cut_found {
    bool fits;        /* it is within the limit */
    double longest_s; /* estimated seconds of its longest stage for a micro-batch */
    double free_need; /* bytes of a rank of the neediest stage, if there were no limit */
} tsri_cut_found;

/*
 * Writes to out_stage the stage of each of n variables of a plan that was compiled with all of them
 * on the ranks of the first index. Modules stay whole, in the order in which the forward pass first
 * needs one of their variables, and each stage has a run of them. The result's longest stage is
 * the shortest of all such cuts within the limit; of equal cuts it sends least. Where no cut is
 * within the limit, the result's neediest stage needs least. A stage's time is that
 * of its kernels and collectives and of what it receives; its memory is that of its variables, of
 * their states and gradients, and of what backward reads of the micro-batches that it keeps
 * (estimates: a plan of the stages has the exact figures). A variable that the forward pass does
 * not read is where the one before it is.
 *
 * Not collective. Errors: TSR_ERR_INVALID, fewer modules than stages; TSR_ERR_NO_MEMORY.
 */
tsr_status tsri_plan_cut(const tsr_plan *plan, const tsri_cutting *how, int n,
                         tsr_variable *const *variables, int *out_stage, tsri_cut_found *out_cut);

#endif
