/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_run: what stands before and behind the walk over a plan's steps. */
#include "src/core/live.h"
#include "src/exec/print.h"

tsr_status tsri_plan_run(tsr_plan *plan)
{
    TSRI_TRY(tsri_plan_walk(plan));
    return tsri_plan_print(plan);
}

tsr_status tsr_run(tsr_plan *plan)
{
    if (!plan)
        return tsri_fail(TSR_ERR_INVALID, "tsr_run: no plan (did tsr_compile fail?)");
    TSRI_TRY(tsri_live_check(plan, TSRI_LIVE_PLAN, "tsr_run"));
    if (plan->ir.world->is_virtual)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_run: a plan of a virtual world is for explaining only");
    plan->has_results = false;
    const tsri_runner *r = &plan->ir.runner;
    return r->run ? r->run(r->owner, r->arg, plan) : tsri_plan_run(plan);
}
