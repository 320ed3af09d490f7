/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say to each other about captured runs: of calls between devices, all members are
 * captured or none is. */
#include <stdio.h>
#include <string.h>

#include "src/plan/plan.h"

/* Of the host's communicator: beside those of tensors. */
enum { AGREE_LANE = 2 };

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
    tsr_world *w = plan->world;
    tsri_comm *host = w->comm;
    if (!host || w->nranks == 1)
        return TSR_OK;
    const struct {
        int32_t talks, replays;
    } mine = {talks(plan), r->device != NULL}, *said;
    void *all = tsri_pool_alloc(&plan->scratch, (size_t)w->nranks * sizeof mine);
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

/* All peers' outcomes, in their order; src lies in the rank's region. */
static tsr_status gather(const tsr_plan *plan, const outcome *src, outcome *all)
{
    const tsri_replay *r = &plan->replay;
    tsri_comm *host = plan->world->comm;
    const int64_t words = sizeof *src / sizeof(int64_t);
    const tsri_segment seg = {.src = src,
                              .dst = all,
                              .dtype = TSR_I64,
                              .shape = TSR_DIMS(r->npeers, words),
                              .src_axis = 0,
                              .dst_axis = -1};
    const tsri_coll coll = {
        .kind = TSRI_COLL_ALL_GATHER, .nseg = 1, .seg = &seg, .what = "agreeing on captured runs"};
    tsri_group *group;
    tsri_ticket ticket;
    TSRI_TRY(host->ops->group(host, r->npeers, r->peers, AGREE_LANE, &group));
    TSRI_TRY(host->ops->start(group, &coll, &ticket));
    TSRI_TRY(host->ops->finish(group, &ticket));
    return host->ops->release(group, &ticket);
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
    tsr_world *w = plan->world;
    void *mine;
    *out_captured = status;
    if (plan->replay.npeers < 2)
        return TSR_OK;
    outcome said = {.status = status};
    snprintf(said.text, sizeof said.text, "%.503s", status == TSR_OK ? "" : tsr_last_error());
    outcome *all = tsri_mem_alloc(&w->mem, (size_t)plan->replay.npeers * sizeof *all);
    if (!all)
        return TSR_ERR_NO_MEMORY;
    tsr_status met = tsri_region_alloc(&w->region, sizeof said, &mine);
    if (met == TSR_OK) {
        tsri_comm_stats before;
        tsri_plan_stats(w, &before);
        memcpy(mine, &said, sizeof said);
        met = gather(plan, mine, all);
        tsri_plan_uncount(plan, &before);
        tsri_region_free(&w->region, mine, sizeof said);
    }
    if (met == TSR_OK)
        *out_captured = judge(plan, all);
    tsri_mem_free(all);
    return met;
}
