/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a group: see device.h. */
#include "src/comm/local/device.h"
#include "src/core/clock.h"

#include <string.h>

enum { RING = TSRI_CALL_RING, DONE_RING = 2 * RING, PHASE1_AT = RING, DONE_AT = 2 * RING };
_Static_assert(DONE_AT + DONE_RING == TSRI_DEVICE_EVENTS, "the rings of the three counters");
_Static_assert(sizeof((tsri_device_place *)0)->region == sizeof(tsri_share), "holds a share");

/* A call whose src (or dst) peers may still be reading: in the ring until this rank lets go. */
typedef struct kept {
    uint64_t seq; /* 0: let go */
    tsri_stream *stream;
    tsri_coll_kind kind;
    int root;
} kept;

typedef struct device_group {
    tsri_event *event[TSRI_DEVICE_EVENTS];
    tsri_stream *done_on[DONE_RING]; /* where DONE events were recorded last */
    bool done_once[DONE_RING];
    kept call[RING];
    tsri_event **peer[]; /* by member: as `event`; NULL: not met yet */
} device_group;

static device_group *of(const tsri_local_group *g)
{
    return (device_group *)g->device;
}

static int place_of(tsri_wait_for which, uint64_t seq)
{
    switch (which) {
    case TSRI_WAIT_PUBLISHED:
        return (int)(seq % RING);
    case TSRI_WAIT_PHASE1:
        return PHASE1_AT + (int)(seq % RING);
    case TSRI_WAIT_DONE:
    case TSRI_WAIT_SMALL: /* of tasks, which are none of a device's */
        break;
    }
    return DONE_AT + (int)(seq % DONE_RING);
}

/* Whether member `reader` reads, or may read, what member `from` holds. */
static bool reads(tsri_coll_kind kind, int root, int reader, int from)
{
    switch (kind) {
    case TSRI_COLL_BARRIER:
        return false;
    case TSRI_COLL_BROADCAST:
        return from == root && reader != root;
    case TSRI_COLL_REDUCE:
        return reader == root && from != root;
    default:
        return reader != from;
    }
}

/* --- making and ending ------------------------------------------------------------------------ */

static tsr_status show_event(tsri_local_device *d, tsri_device_place *place, device_group *dg,
                             int i)
{
    tsri_share share;
    TSRI_TRY(d->device->ops->event_create(d->device, false, d->shares, &dg->event[i]));
    if (!d->shares)
        return TSR_OK;
    TSRI_TRY(d->device->ops->event_share(d->device, dg->event[i], &share));
    memcpy(place->event[i], &share, sizeof share);
    return TSR_OK;
}

tsr_status tsri_device_group_open(tsri_local_group *g)
{
    tsri_local_device *d = tsri_local_device_of(g);
    tsri_device_place *place = &g->mine->device;
    size_t n = (size_t)g->pub.nranks;
    device_group *dg =
        tsri_mem_alloc(&d->local.pub.world->mem, sizeof *dg + n * sizeof(tsri_event **));
    TSRI_NEED(dg);
    g->device = dg;
    for (int i = 0; i < TSRI_DEVICE_EVENTS; i++)
        TSRI_TRY(show_event(d, place, dg, i));
    if (d->shares && !d->has_share) {
        TSRI_TRY(d->device->ops->region_share(d->device, &d->share));
        d->has_share = true;
    }
    memcpy(place->region, &d->share, sizeof d->share);
    place->base = (uint64_t)(uintptr_t)d->local.region->base;
    place->bytes = d->local.region->size;
    place->events = (uint64_t)(uintptr_t)dg->event;
    return TSR_OK;
}

void tsri_device_group_part(tsri_local_group *g)
{
    tsri_local_device *d = tsri_local_device_of(g);
    device_group *dg = of(g);
    for (int m = 0; d->shares && m < g->pub.nranks; m++) {
        for (int i = 0; dg->peer[m] && i < TSRI_DEVICE_EVENTS; i++)
            if (dg->peer[m][i])
                d->device->ops->event_destroy(d->device, dg->peer[m][i]);
        tsri_mem_free(dg->peer[m]);
        dg->peer[m] = NULL;
    }
}

void tsri_device_group_close(tsri_local_group *g)
{
    tsri_local_device *d = tsri_local_device_of(g);
    device_group *dg = of(g);
    for (int i = 0; i < TSRI_DEVICE_EVENTS; i++)
        if (dg->event[i])
            d->device->ops->event_destroy(d->device, dg->event[i]);
    tsri_mem_free(dg);
}

/* --- peers ------------------------------------------------------------------------------------ */

/* A process that has died has nothing that can be opened: its death is the error then, which shows
 * a little later than that its memory has gone. */
static tsr_status opened(tsri_local_group *g, tsr_status status)
{
    enum { LOOKS = 250 };
    for (int i = 0; i < LOOKS && status != TSR_OK; i++) {
        TSRI_TRY(tsri_local_check_members(g));
        tsri_sleep_s(2e-3);
    }
    return status;
}

static tsr_status meet_process(tsri_local_group *g, int m)
{
    tsri_local_device *d = tsri_local_device_of(g);
    const tsri_device_place *place = &g->members[m].device;
    void **base = &d->opened[g->pub.ranks[m]];
    tsri_share share;
    memcpy(&share, place->region, sizeof share);
    if (!*base)
        TSRI_TRY(opened(g, d->device->ops->region_open(d->device, &share, base)));
    g->peer[m] = (tsri_peer){*base, place->bytes};
    of(g)->peer[m] =
        tsri_mem_alloc(&d->local.pub.world->mem, TSRI_DEVICE_EVENTS * sizeof(tsri_event *));
    return of(g)->peer[m] ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Member m has published a call, so its place is filled. */
static tsr_status find_event(tsri_local_group *g, int m, int i, tsri_event **out_event)
{
    tsri_local_device *d = tsri_local_device_of(g);
    const tsri_device_place *place = &g->members[m].device;
    device_group *dg = of(g);
    if (!dg->peer[m] && d->shares)
        TSRI_TRY(meet_process(g, m));
    if (!dg->peer[m]) {
        if (d->device->ops->region_reach)
            TSRI_TRY(d->device->ops->region_reach(d->device, (void *)(uintptr_t)place->base));
        g->peer[m] = (tsri_peer){(char *)(uintptr_t)place->base, place->bytes};
        dg->peer[m] = (tsri_event **)(uintptr_t)place->events;
    }
    if (!dg->peer[m][i]) {
        tsri_share share;
        memcpy(&share, place->event[i], sizeof share);
        TSRI_TRY(opened(g, d->device->ops->event_open(d->device, &share, &dg->peer[m][i])));
    }
    *out_event = dg->peer[m][i];
    return TSR_OK;
}

static tsr_status await_event(tsri_local_group *g, tsri_stream *stream, int m, int i)
{
    tsri_device *device = tsri_local_device_of(g)->device;
    tsri_event *event;
    TSRI_TRY(find_event(g, m, i, &event));
    return device->ops->event_wait(device, stream, event);
}

/* --- order ------------------------------------------------------------------------------------ */

/* Its stream goes on only after all that read from this rank in the call have done so. */
static tsr_status let_go(tsri_local_group *g, kept *call)
{
    int i = place_of(TSRI_WAIT_DONE, call->seq);
    call->seq = 0;
    for (int m = 0; m < g->pub.nranks; m++)
        if (reads(call->kind, call->root, m, g->pub.index))
            TSRI_TRY(await_event(g, call->stream, m, i));
    return TSR_OK;
}

static tsr_status keep(tsri_local_group *g, const tsri_coll *c, uint64_t seq)
{
    kept *call = &of(g)->call[seq % RING];
    if (call->seq + RING == seq)
        TSRI_TRY(let_go(g, call));
    *call = (kept){.seq = seq, .stream = c->stream, .kind = c->kind, .root = c->root};
    return TSR_OK;
}

static bool reads_some(const tsri_local_group *g, const tsri_coll *c)
{
    for (int m = 0; m < g->pub.nranks; m++)
        if (reads(c->kind, c->root, g->pub.index, m))
            return true;
    return false;
}

static tsr_status mark(tsri_local_group *g, const tsri_coll *c, tsri_wait_for which, uint64_t seq)
{
    tsri_device *device = tsri_local_device_of(g)->device;
    device_group *dg = of(g);
    tsri_event *event = dg->event[place_of(which, seq)];
    if (which == TSRI_WAIT_PUBLISHED)
        TSRI_TRY(keep(g, c, seq));
    if (which == TSRI_WAIT_DONE) {
        int i = (int)(seq % DONE_RING);
        if (!reads_some(g, c))
            return TSR_OK;
        /* So that the last ones stand for all that was ever read: see drain. */
        if (dg->done_once[i] && dg->done_on[i] != c->stream)
            TSRI_TRY(device->ops->event_wait(device, c->stream, event));
        dg->done_once[i] = true;
        dg->done_on[i] = c->stream;
    }
    return device->ops->event_record(device, event, c->stream);
}

tsr_status tsri_device_mark(tsri_local_group *g, const tsri_coll *c, tsri_wait_for which,
                            uint64_t seq)
{
    return tsri_local_device_check(g, mark(g, c, which, seq));
}

tsr_status tsri_device_follow(tsri_local_group *g, const tsri_coll *c, int index,
                              tsri_wait_for which, uint64_t seq)
{
    return tsri_local_device_check(g, await_event(g, c->stream, index, place_of(which, seq)));
}

tsr_status tsri_device_follow_all(tsri_local_group *g, const tsri_coll *c, tsri_wait_for which,
                                  uint64_t seq)
{
    if (which == TSRI_WAIT_DONE) {
        kept *call = &of(g)->call[seq % RING];
        return call->seq == seq ? tsri_local_device_check(g, let_go(g, call)) : TSR_OK;
    }
    /* A barrier is one of streams, too. */
    for (int m = 0; m < g->pub.nranks; m++)
        if (reads(c->kind, c->root, g->pub.index, m) ||
            (c->kind == TSRI_COLL_BARRIER && m != g->pub.index))
            TSRI_TRY(tsri_device_follow(g, c, m, which, seq));
    return TSR_OK;
}

void tsri_device_group_drain(tsri_local_group *g, tsri_stream *stream)
{
    tsri_device *device = tsri_local_device_of(g)->device;
    for (int i = 0; i < DONE_RING; i++)
        if (of(g)->done_once[i])
            device->ops->event_wait(device, stream, of(g)->event[DONE_AT + i]);
}

tsr_status tsri_local_device_check(const tsri_local_group *g, tsr_status status)
{
    if (status != TSR_OK)
        tsri_arena_abort(&g->local->arena, g->local->pub.world->rank, tsr_last_error());
    return status;
}
