/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps of a plan complete which variables. */
#include "src/exec/watch.h"

#include <string.h>

/* Where the plan's steps write a variable: the position of the last entry that does; -1: nowhere.
 * Steps stand in the order of the entries, and one that joins several stands for the first. */
static int last_entry(const tsr_plan *plan, const tsr_variable *v)
{
    int last = -1;
    for (int e = 0; e < plan->ir.nentries; e++) {
        const tsri_item *it = &plan->ir.items[plan->ir.entries[e].item];
        if (plan->ir.entries[e].phase != TSRI_PHASE_DO &&
            plan->ir.entries[e].phase != TSRI_PHASE_FINISH)
            continue;
        for (int j = 0; j < it->nout; j++) {
            const tsri_value *out = &plan->ir.values[tsri_ir_root(&plan->ir, it->out[j])];
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

/* Notes, by variable, the step that completes it (-1: none does), and by step what it completes. */
static void fill(const tsr_plan *plan, tsri_watch *w, tsr_variable *const *vars, int *done)
{
    int found = 0;
    for (int i = 0; i < w->nvariables; i++) {
        int e = last_entry(plan, vars[i]);
        w->writes[i] = e >= 0 && plan->nsteps;
        done[i] = w->writes[i] ? tsri_step_at(plan, e) : -1;
    }
    for (int s = 0; s < plan->nsteps; s++) {
        w->first[s] = found;
        for (int i = 0; i < w->nvariables; i++)
            if (done[i] == s)
                w->variable[found++] = i;
    }
    w->first[plan->nsteps] = found;
}

/* Marks the step that completes the last variable of each set. */
static void fill_cuts(tsri_watch *w, const int *set, const int *done)
{
    for (int i = 0; i < w->nvariables; i++) {
        int last = done[i];
        for (int j = 0; j < w->nvariables; j++)
            last = set[j] == set[i] && done[j] > last ? done[j] : last;
        if (last >= 0)
            w->cuts[last] = true;
    }
}

tsr_status tsri_plan_watch(tsr_plan *plan, int n, tsr_variable *const *vars, const int *set,
                           tsri_watch_fn *fn, void *arg, int *out_found)
{
    size_t nvars = (size_t)n, nsteps = (size_t)plan->nsteps;
    tsri_watch *w = tsri_pool_alloc(&plan->pool, sizeof *w);
    int *done = tsri_mem_alloc(&plan->ir.world->mem, (nvars + 1) * sizeof *done);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (w && done) {
        *w = (tsri_watch){fn,
                          arg,
                          n,
                          tsri_pool_alloc(&plan->pool, nvars + 1),
                          tsri_pool_alloc(&plan->pool, (nsteps + 1) * sizeof *w->first),
                          tsri_pool_alloc(&plan->pool, (nvars + 1) * sizeof *w->variable),
                          tsri_pool_alloc(&plan->pool, nsteps + 1)};
        if (w->writes && w->first && w->variable && w->cuts) {
            status = TSR_OK;
            fill(plan, w, vars, done);
            fill_cuts(w, set, done);
        }
    }
    tsri_mem_free(done);
    if (status != TSR_OK)
        return status;
    *out_found = w->first[plan->nsteps];
    if (!*out_found)
        return TSR_OK;
    plan->watch = w;
    tsri_replay_drop(&plan->replay); /* it was cut for another watch */
    return TSR_OK;
}

int tsri_plan_watch_cut(const tsr_plan *plan, int first)
{
    int last = first;
    while (last < plan->nsteps - 1 && !(plan->watch && plan->watch->cuts[last]))
        last++;
    return last + 1;
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
