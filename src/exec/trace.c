/* SPDX-License-Identifier: Apache-2.0 */
#include "src/exec/trace.h"

tsr_status tsri_trace_enable(tsr_plan *plan)
{
    if (!plan->trace)
        plan->trace =
            tsri_pool_alloc(&plan->pool, ((size_t)plan->nsteps + 1) * sizeof *plan->trace);
    return plan->trace ? TSR_OK : TSR_ERR_NO_MEMORY;
}

int tsri_trace_count(const tsr_plan *plan)
{
    return plan->trace && plan->trace[0] > 0 ? plan->nsteps : 0;
}

tsri_trace_span tsri_trace_get(const tsr_plan *plan, int i)
{
    return (tsri_trace_span){.step = &plan->steps[i],
                             .what = tsri_step_name(&plan->steps[i]),
                             .start_s = plan->trace[i],
                             .end_s = plan->trace[i + 1]};
}
