/* SPDX-License-Identifier: Apache-2.0 */
/* The vtable of the local communicator on device memory. */
#include "src/comm/local/device.h"

static const tsri_mover mover = {
    .open = tsri_device_group_open,
    .close = tsri_device_group_close,
    .walk = tsri_device_walk,
    .fill = tsri_device_fill,
    .mark = tsri_device_mark,
    .follow = tsri_device_follow,
    .follow_all = tsri_device_follow_all,
};

static tsri_local_device *of(tsri_comm *c)
{
    return (tsri_local_device *)c->priv;
}

static tsr_status device_exchange(tsri_comm *c, const void *mine, size_t bytes, void *all)
{
    tsri_comm *host = c->world->comm;
    return host->ops->exchange(host, mine, bytes, all);
}

/* A stream may wait for what a process that died has left undone. */
static tsr_status device_check(tsri_comm *c)
{
    return tsri_local_check_members(of(c)->local.closing);
}

static tsr_status poll_members(void *closing)
{
    return tsri_local_check_members(closing);
}

/* --- leaving ---------------------------------------------------------------------------------- */

static bool has_peers(const tsri_local *local)
{
    for (const tsri_local_group *g = local->groups; g; g = g->next)
        if (g->device)
            return true;
    return false;
}

/* Waits until what this rank reads of its peers has been read, and gives back what is theirs. */
static void part(tsri_local_device *d)
{
    const tsri_device_ops *ops = d->device->ops;
    tsri_stream *stream;
    if (ops->stream_create(d->device, &stream) == TSR_OK) {
        for (tsri_local_group *g = d->local.groups; g; g = g->next)
            if (g->device)
                tsri_device_group_drain(g, stream);
        ops->stream_sync(d->device, stream);
        ops->stream_destroy(d->device, stream);
    }
    for (tsri_local_group *g = d->local.groups; g; g = g->next)
        if (g->device)
            tsri_device_group_part(g);
    for (int i = 0; d->opened && i < d->local.pub.world->nranks; i++)
        if (d->opened[i])
            ops->region_close(d->device, d->opened[i]);
}

static void leave(tsri_local_device *d)
{
    tsri_local_group *closing = d->local.closing;
    bool met = has_peers(&d->local);
    if (!closing || !closing->channel)
        return;
    if (met) {
        /* Says that who waits for this rank waits in vain, as long as it lingers. */
        tsri_local_advance(closing->mine, TSRI_WAIT_PUBLISHED, closing->started + 1);
        part(d);
    }
    tsri_local_advance(closing->mine, TSRI_WAIT_DONE, closing->started + 1);
    if (met)
        tsri_local_linger(closing, TSRI_WAIT_DONE, closing->started + 1);
}

static void device_destroy(tsri_comm *c)
{
    if (!c)
        return;
    tsri_local_device *d = of(c);
    leave(d);
    tsri_device_poll_remove(d->device, &d->poll);
    for (tsri_local **at = &d->local.host->on_devices; *at; at = &(*at)->next) {
        if (*at == &d->local) {
            *at = d->local.next;
            break;
        }
    }
    tsri_local_groups_free(&d->local);
    tsri_mem_free(d->opened);
    tsri_mem_free(d);
}

/* --- making ----------------------------------------------------------------------------------- */

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "local",
    .group = tsri_local_group_find,
    .start = tsri_local_start,
    .finish = tsri_local_finish,
    .release = tsri_local_release,
    .exchange = device_exchange,
    .abort = tsri_local_abort,
    .stats = tsri_local_stats,
    .destroy = device_destroy,
    .check = device_check,
    .prepare = tsri_local_prepare,
    .unprepare = tsri_local_unprepare,
    .released = tsri_local_released,
    .ready = tsri_local_ready,
    .lost = tsri_local_lost,
};

tsr_status tsri_local_device_make(tsr_world *world, tsri_device *device, int nranks,
                                  const int *ranks, tsri_device_comm_of of_whom, bool shares,
                                  tsri_comm **out_comm)
{
    tsri_comm *under = tsri_comm_on_machine(world->comm);
    if (!under)
        return tsri_fail(TSR_ERR_INVALID, "the local communicator on device memory needs the "
                                          "world's local one, of ranks of one machine");
    if (!device->ops->move)
        return tsri_fail(TSR_ERR_INVALID, "device %s has no streams", device->ops->name);
    tsri_local *host = (tsri_local *)under->priv;
    tsri_local_device *d = tsri_mem_alloc(&world->mem, sizeof *d);
    TSRI_NEED(d);
    d->device = device;
    d->shares = shares;
    d->local = (tsri_local){.pub = {.ops = &ops, .world = world, .priv = d},
                            .host = host,
                            .mover = &mover,
                            .region = device->region,
                            .arena = host->arena,
                            .worlds = host->worlds,
                            .spins = host->spins};
    tsr_status status = tsri_local_group_own(&d->local, nranks, ranks,
                                             TSRI_LANE_CLOSING - (int)of_whom, &d->local.closing);
    if (status == TSR_OK) {
        d->opened = tsri_mem_alloc(&world->mem, (size_t)world->nranks * sizeof *d->opened);
        status = d->opened ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    if (status != TSR_OK) {
        device_destroy(&d->local.pub);
        return status;
    }
    if (d->local.closing->channel) {
        /* Several communicators may have groups of the same ranks at once; no two have the same
         * list of ranks for the same user, so the place in the arena tells them apart. */
        int at = (int)(d->local.closing->channel - tsri_arena_channel(&host->arena, 0));
        d->local.first_lane = (1 + at) * TSRI_LANES;
    }
    d->poll = (tsri_poll){.fn = poll_members, .arg = d->local.closing};
    if (shares) /* what a thread has left undone ends with its device */
        tsri_device_poll_add(device, &d->poll);
    d->local.next = host->on_devices;
    host->on_devices = &d->local;
    *out_comm = &d->local.pub;
    return TSR_OK;
}

tsr_status tsri_local_create_device(tsr_world *world, tsri_device *device, int nranks,
                                    const int *ranks, tsri_device_comm_of of_whom,
                                    tsri_comm **out_comm)
{
    /* Process ranks map the arena each for itself. */
    const tsri_comm *under = tsri_comm_on_machine(world->comm);
    bool shares = under && ((tsri_local *)under->priv)->owns_arena;
    return tsri_local_device_make(world, device, nranks, ranks, of_whom, shares, out_comm);
}
