/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps of a plan complete which variables. */
#include "src/exec/watch.h"

#include <string.h>

/* Where the plan's steps write a variable: the position of the last entry that does; -1: nowhere.
 * Steps stand in the order of the entries, and one that joins several stands for the first. */
static int last_entry(const tsr_plan *plan, const tsr_variable *v)
{
    int last = -1;
    for (int e = 0; e < plan->nentries; e++) {
        const tsri_item *it = &plan->items[plan->entries[e].item];
        if (plan->entries[e].phase != TSRI_PHASE_DO && plan->entries[e].phase != TSRI_PHASE_FINISH)
            continue;
        for (int j = 0; j < it->nout; j++) {
            const tsri_value *out = &plan->values[tsri_plan_root(plan, it->out[j])];
            if (out->storage == TSRI_STORAGE_VARIABLE && out->variable == v)
                last = e;
        }
    }
    return last;
}

int tsri_step_at(const tsr_plan *plan, int entry)
{
    int step = 0;
    while (step + 1 < plan->nsteps && plan->steps[step + 1].entry <= entry)
        step++;
    return step;
}

static tsr_status fill(tsr_plan *plan, tsri_watch *w, int n, tsr_variable *const *vars, int *done)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        int e = last_entry(plan, vars[i]);
        w->writes[i] = e >= 0 && plan->nsteps;
        done[i] = w->writes[i] ? tsri_step_at(plan, e) : -1;
        if (w->writes[i] && vars[i]->device && vars[i]->device->ops->stream_sync)
            return tsri_fail(TSR_ERR_UNSUPPORTED,
                             "variable %s lies on a device with streams: what runs write there is "
                             "not there yet when they go on",
                             vars[i]->name);
    }
    for (int s = 0; s < plan->nsteps; s++) {
        w->first[s] = found;
        for (int i = 0; i < n; i++)
            if (done[i] == s)
                w->variable[found++] = i;
    }
    w->first[plan->nsteps] = found;
    return TSR_OK;
}

tsr_status tsri_plan_watch(tsr_plan *plan, int n, tsr_variable *const *vars, tsri_watch_fn *fn,
                           void *arg, int *out_found)
{
    size_t nvars = (size_t)n, nsteps = (size_t)plan->nsteps;
    tsri_watch *w = tsri_pool_alloc(&plan->pool, sizeof *w);
    int *done = tsri_mem_alloc(&plan->world->mem, (nvars + 1) * sizeof *done);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (w && done) {
        *w = (tsri_watch){fn,
                          arg,
                          n,
                          tsri_pool_alloc(&plan->pool, nvars + 1),
                          tsri_pool_alloc(&plan->pool, (nsteps + 1) * sizeof *w->first),
                          tsri_pool_alloc(&plan->pool, (nvars + 1) * sizeof *w->variable)};
        if (w->writes && w->first && w->variable)
            status = fill(plan, w, n, vars, done);
    }
    tsri_mem_free(done);
    if (status != TSR_OK)
        return status;
    *out_found = w->first[plan->nsteps];
    if (*out_found)
        plan->watch = w;
    return TSR_OK;
}

void *tsri_plan_watcher(const tsr_plan *plan)
{
    return plan->watch ? plan->watch->arg : NULL;
}

bool tsri_plan_watches(const tsr_plan *plan, int i)
{
    return plan->watch->writes[i];
}

tsr_status tsri_plan_watched(const tsr_plan *plan, int step)
{
    const tsri_watch *w = plan->watch;
    for (int k = w->first[step]; k < w->first[step + 1]; k++)
        TSRI_TRY(w->fn(w->arg, w->variable[k]));
    return TSR_OK;
}
