/* SPDX-License-Identifier: Apache-2.0 */
#include "src/exec/trace.h"

/* A run does the steps of the parts in each of them. */
static int nspans(const tsr_plan *plan)
{
    return plan->nsteps + (plan->parts_end - plan->parts_begin) * (plan->ir.parts - 1);
}

tsr_status tsri_trace_enable(tsr_plan *plan)
{
    if (!plan->trace)
        plan->trace =
            tsri_pool_alloc(&plan->pool, ((size_t)nspans(plan) + 1) * sizeof *plan->trace);
    return plan->trace ? TSR_OK : TSR_ERR_NO_MEMORY;
}

int tsri_trace_count(const tsr_plan *plan)
{
    return plan->trace && plan->trace[0] > 0 ? nspans(plan) : 0;
}

tsri_trace_span tsri_trace_get(const tsr_plan *plan, int i)
{
    const int each = plan->parts_end - plan->parts_begin, since = i - plan->parts_begin;
    const bool in_parts = since >= 0 && since < each * plan->ir.parts;
    const int number = in_parts    ? plan->parts_begin + since % each
                       : since < 0 ? i
                                   : i - each * (plan->ir.parts - 1);
    return (tsri_trace_span){.step = &plan->steps[number],
                             .what = tsri_step_name(&plan->steps[number]),
                             .part = in_parts ? since / each : -1,
                             .start_s = plan->trace[i],
                             .end_s = plan->trace[i + 1]};
}
