/* SPDX-License-Identifier: Apache-2.0 */
/* Words of ranks to each other about captured runs: of calls between devices, all members are
 * captured or none is. */
#include <stdio.h>
#include <string.h>

#include "src/exec/exec.h"

/* Whole words. */
typedef struct outcome {
    int64_t status;
    char text[504];
} outcome;

static bool talks(const tsr_plan *plan)
{
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        if (s->kind == TSRI_STEP_START && s->call->group->comm->capturable &&
            s->call->group->nranks > 1)
            return true;
    }
    return false;
}

tsr_status tsri_replay_connect(tsr_plan *plan)
{
    tsri_replay *r = &plan->replay;
    tsr_world *w = plan->ir.world;
    tsri_comm *host = w->comm;
    if (!host || w->nranks == 1)
        return TSR_OK;
    const struct {
        int32_t talks, replays;
    } mine = {talks(plan), r->device != NULL}, *said;
    void *all = tsri_pool_alloc(&plan->ir.scratch, (size_t)w->nranks * sizeof mine);
    r->peers = tsri_pool_alloc(&plan->pool, (size_t)w->nranks * sizeof *r->peers);
    if (!all || !r->peers) {
        host->ops->abort(host, tsr_last_error()); /* the others wait */
        return TSR_ERR_NO_MEMORY;
    }
    TSRI_TRY(host->ops->exchange(host, &mine, sizeof mine, all));
    said = all;
    for (int i = 0; i < w->nranks && mine.talks; i++) {
        if (!said[i].talks)
            continue;
        r->peers[r->npeers++] = i;
        if (!said[i].replays)
            r->device = NULL;
    }
    return TSR_OK;
}

/* The first that failed, the same on all. */
static tsr_status judge(const tsr_plan *plan, const outcome *all)
{
    for (int i = 0; i < plan->replay.npeers; i++)
        if (all[i].status != TSR_OK)
            return tsri_fail((tsr_status)all[i].status, "rank %d: %.500s", plan->replay.peers[i],
                             all[i].text);
    return TSR_OK;
}

tsr_status tsri_replay_agree(tsr_plan *plan, tsr_status status, tsr_status *out_captured)
{
    _Static_assert(sizeof(outcome) % sizeof(int64_t) == 0, "an outcome goes as words");
    tsr_world *w = plan->ir.world;
    *out_captured = status;
    if (plan->replay.npeers < 2)
        return TSR_OK;
    outcome said = {.status = status};
    snprintf(said.text, sizeof said.text, "%.503s", status == TSR_OK ? "" : tsr_last_error());
    outcome *all = tsri_mem_alloc(&w->mem, (size_t)plan->replay.npeers * sizeof *all);
    TSRI_NEED(all);
    tsr_status met = tsri_plan_gather(plan, plan->replay.npeers, plan->replay.peers,
                                      "agreeing on captured runs", sizeof said / sizeof(int64_t),
                                      (const int64_t *)(const void *)&said, (int64_t *)(void *)all);
    if (met == TSR_OK)
        *out_captured = judge(plan, all);
    tsri_mem_free(all);
    return met;
}

void tsri_replay_drop(tsri_replay *replay)
{
    for (int k = 0; k < TSRI_CAPTURES; k++) {
        tsri_capture *c = &replay->capture[k];
        for (int i = 0; i < c->nparts; i++)
            if (c->part[i].captured)
                replay->device->ops->captured_destroy(replay->device, c->part[i].captured);
        c->nparts = 0;
    }
}
