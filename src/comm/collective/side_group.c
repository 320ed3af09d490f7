/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives inside plans of local graphs, between devices. Each call runs in the stream of the
 * group's side: the side waits for the plan's earlier work on the compute stream, and the compute
 * stream waits for the call. The first run makes the side and prepares the call, because ranks
 * compile local graphs independently and meet only in runs.
 */
#include "src/comm/collective/side.h"
#include "src/core/live.h"

/* One call, as a group of its own. */
typedef struct side_group {
    tsri_group pub;
    tsri_comm comm;
    tsr_group *group;
    tsri_device *device;
    tsri_side_call call;
} side_group;

static side_group *of(tsri_group *g)
{
    return g->priv;
}

/* The call's side; NULL before its first run, and where it has gone with its group or device. */
static tsri_side *side_of(const side_group *s)
{
    if (!s->call.side || !tsri_live_has(s->group, TSRI_LIVE_GROUP))
        return NULL;
    for (tsri_side *side = s->group->sides; side; side = side->next)
        if (side == s->call.side)
            return side;
    return NULL;
}

static tsr_status prepare_first(side_group *s, const tsri_coll *coll)
{
    tsri_side *side;
    TSRI_TRY(tsri_side_of(s->group, s->device, &side));
    s->call.coll = *coll;
    s->call.coll.prepared = NULL;
    return tsri_side_prepare(side, &s->call, true);
}

static tsr_status start(tsri_group *g, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    side_group *s = of(g);
    *out_ticket = (tsri_ticket){.coll = coll};
    TSRI_TRY(tsri_live_check(s->group, TSRI_LIVE_GROUP, "tsr_run: a sum over ranks"));
    if (!s->call.side)
        TSRI_TRY(prepare_first(s, coll));
    TSRI_TRY(tsri_side_follow(s->call.side));
    return tsri_side_start(&s->call);
}

static tsr_status finish(tsri_group *g, tsri_ticket *ticket)
{
    side_group *s = of(g);
    (void)ticket;
    TSRI_TRY(tsri_side_finish(&s->call));
    return tsri_side_lead(s->call.side);
}

/* Compute may write over the operands then. Where peers read none of them, that was so when the
 * call was finished: the next start releases it, and the host need not wait for its peers here. */
static tsr_status release(tsri_group *g, tsri_ticket *ticket)
{
    side_group *s = of(g);
    (void)ticket;
    if (s->call.side->in_place)
        return TSR_OK;
    TSRI_TRY(tsri_side_release(&s->call));
    return tsri_side_lead(s->call.side);
}

static void unprepare(tsri_group *g, tsri_coll *coll)
{
    side_group *s = of(g);
    coll->prepared = NULL;
    if (side_of(s))
        tsri_side_unprepare(&s->call);
    tsri_mem_free(s);
}

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "side",
    .start = start,
    .finish = finish,
    .release = release,
    .unprepare = unprepare,
};

tsr_status tsri_side_group_make(tsr_group *group, tsri_device *device, tsri_coll *coll,
                                tsri_group **out_group)
{
    side_group *s = tsri_mem_alloc(&device->world->mem, sizeof *s);
    TSRI_NEED(s);
    s->comm = (tsri_comm){.ops = &ops, .world = device->world};
    s->pub = (tsri_group){.comm = &s->comm,
                          .nranks = group->nranks,
                          .index = tsr_group_rank(group),
                          .ranks = group->ranks,
                          .priv = s};
    s->group = group;
    s->device = device;
    coll->prepared = s;
    *out_group = &s->pub;
    return TSR_OK;
}
