/* SPDX-License-Identifier: Apache-2.0 */
/* A memory limit that no plan fits, in words: what ranks need, for what, and what would fit. */
#ifndef TESSERA_PLAN_NEED_H
#define TESSERA_PLAN_NEED_H

#include "src/plan/infer/answer.h"
#include "src/plan/plan.h"

typedef struct tsri_shortage {
    size_t limit;             /* that was refused */
    const size_t *scratch_of; /* [ranks]: bytes of kernels' scratch, as all ranks have told */
    /* The neediest rank's need for the leanest plan with .infer_updates; 0: not asked for. */
    size_t with_updates;
} tsri_shortage;

/*
 * Returns TSR_ERR_NO_MEMORY with a text of several lines about `plan`, the leanest that was found;
 * or what kept it from being written. The text follows from the plan and the shortage alone, so all
 * ranks write the same. Not collective.
 */
tsr_status tsri_plan_refuse(tsr_plan *plan, const tsri_shortage *shortage);

#endif
