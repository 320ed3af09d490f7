/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_run: walks the steps. No allocation, no look-up, no text unless something fails. */
#include <stdio.h>
#include <string.h>

#include "src/core/clock.h"
#include "src/plan/plan.h"

static tsr_status run_step(const tsr_plan *plan, tsri_step *s)
{
    switch (s->kind) {
    case TSRI_STEP_KERNEL:
        return s->kernel->run(s->kernel, s->in, s->out, plan->block + plan->scratch_offset);
    case TSRI_STEP_LOCAL_BOX:
        tsri_local_box_run(s->box, s->in[0], s->out[0]);
        return TSR_OK;
    case TSRI_STEP_START:
        return s->call->group->comm->ops->start(s->call->group, &s->call->coll, &s->call->ticket);
    case TSRI_STEP_FINISH:
        return s->call->group->comm->ops->finish(s->call->group, &s->call->ticket);
    case TSRI_STEP_RELEASE:
        return s->call->group->comm->ops->release(s->call->group, &s->call->ticket);
    }
    return TSR_ERR_INTERNAL;
}

static tsr_status fail_step(tsr_plan *plan, const tsri_step *s, tsr_status status)
{
    if (s->kind == TSRI_STEP_KERNEL) {
        status = tsri_fail_prefix(status, "%s:%d: %s %s", tsri_basename(s->item->loc.file),
                                  s->item->loc.line, tsri_op_name(s->item->op), s->item->name);
        /* Peers wait for this rank: they must hear of it. */
        if (plan->world->comm)
            plan->world->comm->ops->abort(plan->world->comm, tsr_last_error());
    }
    snprintf(plan->failure, sizeof plan->failure, "an earlier run of this plan failed: %.400s",
             tsr_last_error());
    return status;
}

tsr_status tsr_run(tsr_plan *plan)
{
    if (!plan)
        return tsri_fail(TSR_ERR_INVALID, "tsr_run: no plan (did tsr_compile fail?)");
    if (plan->world->is_virtual)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_run: a plan of a virtual world is for explaining only");
    if (plan->failure[0])
        return tsri_fail(TSR_ERR_STATE, "tsr_run: %s", plan->failure);
    for (int i = 0; i < plan->nstep_ptrs; i++)
        TSRI_TRY(plan->device->ops->copy_in(plan->device, plan->step_ptrs[i], plan->step_value,
                                            sizeof *plan->step_value, plan->device->stream));
    for (int i = 0; i < plan->nhooks; i++)
        plan->hooks[i].fn(plan->hooks[i].arg);
    double start = tsri_now_s(), comm = 0, last = start;
    if (plan->trace)
        plan->trace[0] = start;
    for (int i = 0; i < plan->nsteps; i++) {
        tsri_step *s = &plan->steps[i];
        tsr_status status = run_step(plan, s);
        if (status != TSR_OK)
            return fail_step(plan, s, status);
        double now = tsri_now_s();
        s->time_s += now - last;
        comm += s->kind >= TSRI_STEP_START ? now - last : 0;
        if (plan->trace)
            plan->trace[i + 1] = now;
        last = now;
    }
    double all = last - start;
    plan->info.run_s += all;
    plan->info.comm_s += comm;
    plan->info.compute_s += all - comm;
    plan->info.runs++;
    plan->own_step++;
    return TSR_OK;
}
