/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that can't be run any more. */
#include <stdio.h>

#include "src/exec/exec.h"

void tsri_plan_note_failure(tsr_plan *plan)
{
    plan->has_results = false;
    snprintf(plan->failure, sizeof plan->failure, "an earlier run of this plan failed: %.400s",
             tsr_last_error());
}

tsr_status tsri_plan_fail(tsr_plan *plan, tsr_status status)
{
    if (plan->ir.world->comm)
        plan->ir.world->comm->ops->abort(plan->ir.world->comm, tsr_last_error());
    tsri_plan_note_failure(plan);
    return status;
}
