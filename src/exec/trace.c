/* SPDX-License-Identifier: Apache-2.0 */
#include "src/exec/trace.h"

/* The steps of a task of this rank. */
static int nsteps_of(const tsr_plan *plan, int task)
{
    const tsri_walk *w = &plan->walk;
    const int segment = plan->ir.timetable.task[w->task[task]].segment;
    return w->last[segment] - w->first[segment];
}

/* A run does the steps of the parts in each of them. */
static int nspans(const tsr_plan *plan)
{
    int n = plan->nsteps - (plan->walk.end - plan->walk.begin);
    for (int i = 0; i < plan->walk.ntasks; i++)
        n += nsteps_of(plan, i);
    return n;
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
    const tsri_walk *w = &plan->walk;
    int number = i, part = -1, task = 0, first = w->begin;
    for (; i >= first && task < w->ntasks && i >= first + nsteps_of(plan, task); task++)
        first += nsteps_of(plan, task);
    if (i >= w->begin && task < w->ntasks) {
        const tsri_task_of *of = &plan->ir.timetable.task[w->task[task]];
        number = w->first[of->segment] + i - first;
        part = of->part;
    } else if (i >= w->begin) {
        number = w->end + i - first;
    }
    return (tsri_trace_span){.step = &plan->steps[number],
                             .what = tsri_step_name(&plan->steps[number]),
                             .part = part,
                             .start_s = plan->trace[i],
                             .end_s = plan->trace[i + 1]};
}
