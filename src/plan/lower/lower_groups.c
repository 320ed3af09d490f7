/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators between devices that have streams: made when the first plan needs one, then kept by
 * the world. Some make their groups together, so all ranks walk all groups of the plan. */
#include <string.h>

#include "src/comm/collective/side.h"
#include "src/plan/lower/lower.h"

/* A communicator between the devices of some ranks. The world's list, newest first. */
typedef struct connection {
    tsri_owned owned;
    struct connection *next;
    tsri_comm *comm;          /* NULL on ranks outside */
    tsri_device *device;      /* likewise */
    tsri_poll poll;           /* while the host waits for the device */
    tsri_comm_stats replayed; /* of calls in captured runs, which nobody makes again */
    void **list;              /* the world's, that it stands in */
    int nranks;
    int ranks[];
} connection;

static tsr_status check_connection(void *comm)
{
    tsri_comm *c = comm;
    return c->ops->check ? c->ops->check(c) : TSR_OK;
}

static void destroy_connection(void *object)
{
    connection *c = object;
    tsri_world_disown(&c->owned);
    if (c->device)
        tsri_device_poll_remove(c->device, &c->poll);
    if (c->comm) /* which waits for the device, and may be what ends that wait */
        c->comm->ops->destroy(c->comm);
    connection *before = *c->list;
    if (before == c)
        *c->list = c->next;
    while (before && before != c && before->next != c)
        before = before->next;
    if (before && before != c)
        before->next = c->next;
    tsri_mem_free(c);
}

static bool talks(const tsri_item *it, tsr_device kind)
{
    return it->kind == TSRI_ITEM_COLLECTIVE && tsr_placement_device(it->placement) == kind;
}

/* Marks the ranks whose devices talk; returns how many there are. */
static int find_talkers(const tsr_plan *plan, tsr_device kind, bool *is_in)
{
    int n = 0;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        const tsr_placement *sides[2] = {it->placement, it->box.from};
        for (int s = 0; s < 2 && talks(it, kind); s++)
            for (int r = 0; r < tsr_placement_nranks(sides[s]); r++)
                is_in[tsr_placement_rank(sides[s], r)] = true;
    }
    for (int r = 0; r < plan->ir.world->nranks; r++)
        n += is_in[r];
    return n;
}

/* Whether the connection joins all of them. */
static bool serves(const connection *c, const bool *is_in, int n)
{
    for (int i = 0; i < c->nranks; i++)
        n -= is_in[c->ranks[i]];
    return n == 0;
}

static tsr_status connect(tsr_plan *plan, tsr_device kind, const bool *is_in, int n)
{
    tsr_world *w = plan->ir.world;
    for (connection *c = w->connections[kind], *before = NULL; c; before = c, c = c->next)
        if (serves(c, is_in, n)) {
            if (!before)
                return TSR_OK;
            before->next = c->next; /* the one in use stands first */
            c->next = w->connections[kind];
            w->connections[kind] = c;
            return TSR_OK;
        }
    connection *c = tsri_mem_alloc(&w->mem, sizeof *c + (size_t)n * sizeof *c->ranks);
    if (!c) {
        w->comm->ops->abort(w->comm, tsr_last_error()); /* the others wait */
        return TSR_ERR_NO_MEMORY;
    }
    for (int r = 0; r < w->nranks; r++)
        if (is_in[r])
            c->ranks[c->nranks++] = r;
    tsri_device *device = is_in[w->rank] ? plan->part[kind].device : NULL;
    tsr_status status = TSR_OK;
    if (is_in[w->rank])
        status = tsri_comm_create_device(w, device, c->nranks, c->ranks, TSRI_DEVICE_COMM_PLANS,
                                         &c->comm);
    if (status != TSR_OK) {
        tsri_mem_free(c);
        return status;
    }
    c->next = w->connections[kind];
    w->connections[kind] = c;
    c->list = &w->connections[kind];
    if (device) {
        c->device = device;
        c->poll = (tsri_poll){.fn = check_connection, .arg = c->comm};
        tsri_device_poll_add(device, &c->poll);
        /* Goes before the device, and after all plans, which have groups of it. */
        tsri_world_own_before(&device->owned, &c->owned, c, destroy_connection);
    } else {
        tsri_world_own_last(w, &c->owned, c, destroy_connection);
    }
    return TSR_OK;
}

/* --- groups that are made together ------------------------------------------------------------ */
/* Groups that were made already: items of equal placements, dimensions and lane have the same
 * groups. */
typedef struct partition {
    struct partition *next;
    const tsr_placement *to, *from;
    uint8_t dims;
    bool broadcast;
    int lane;
} partition;

static bool is_known(const partition *p, const partition *like)
{
    for (; p; p = p->next)
        if (p->to == like->to && p->from == like->from && p->dims == like->dims &&
            p->broadcast == like->broadcast && p->lane == like->lane)
            return true;
    return false;
}

static tsr_status make_partition(tsr_plan *plan, const tsri_item *it, tsri_comm *comm, int lane)
{
    int n = plan->ir.world->nranks;
    int *color = tsri_pool_alloc(&plan->ir.scratch, (size_t)n * sizeof *color);
    int *key = tsri_pool_alloc(&plan->ir.scratch, (size_t)n * sizeof *key);
    int *group = tsri_pool_alloc(&plan->ir.scratch, (size_t)(2 * n) * sizeof *group);
    TSRI_NEED(color && key && group);
    const tsri_route_query q = tsri_item_query(&plan->ir, it, 0);
    for (int r = 0; r < n; r++)
        color[r] = -1;
    for (int r = 0; r < n; r++) {
        if (color[r] >= 0 || !tsri_item_has(it, r))
            continue;
        int members = tsri_step_group(&q, &it->box.step, r, group);
        for (int i = 0; i < members; i++) {
            color[group[i]] = group[0];
            key[group[i]] = i;
        }
    }
    return comm->ops->partition(comm, color, key, lane);
}

static tsr_status make_partitions(tsr_plan *plan, tsr_device kind, tsri_comm *comm)
{
    partition *known = NULL;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        if (!talks(it, kind))
            continue;
        partition *p = tsri_pool_alloc(&plan->ir.scratch, sizeof *p);
        TSRI_NEED(p);
        *p = (partition){known,
                         it->placement,
                         it->box.from,
                         it->box.step.dims,
                         it->box.broadcast,
                         it->box.received_in ? TSRI_LANE_SENDS : it->box.is_bucket};
        if (is_known(known, p))
            continue;
        known = p;
        TSRI_TRY(make_partition(plan, it, comm, p->lane));
    }
    return TSR_OK;
}

tsr_status tsri_plan_connect(tsr_plan *plan)
{
    bool *is_in = tsri_pool_alloc(&plan->ir.scratch, (size_t)plan->ir.world->nranks);
    TSRI_NEED(is_in);
    for (int k = 1; k < TSRI_DEVICES; k++) {
        if (!tsri_target_can((tsr_device)k, TSRI_CAN_QUEUE))
            continue;
        memset(is_in, 0, (size_t)plan->ir.world->nranks);
        int n = find_talkers(plan, (tsr_device)k, is_in);
        if (!n)
            continue;
        TSRI_TRY(connect(plan, (tsr_device)k, is_in, n));
        tsri_comm *comm = ((connection *)plan->ir.world->connections[k])->comm;
        if (comm && comm->ops->partition)
            TSRI_TRY(make_partitions(plan, (tsr_device)k, comm));
    }
    return TSR_OK;
}

static void add_stats(tsri_comm_stats *to, const tsri_comm_stats *more)
{
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++) {
        to->calls[k] += more->calls[k];
        to->bytes_read[k] += more->bytes_read[k];
    }
}

/* Adds what the sides of groups have counted: calls of DDP, of programs, and sums over ranks. */
static void add_sides(const tsr_world *world, tsri_comm_stats *out_stats)
{
    const tsri_engine *engine = world->collectives;
    for (const tsr_group *g = engine ? engine->groups : NULL; g; g = g->next)
        for (const tsri_side *s = g->sides; s; s = s->next) {
            tsri_comm_stats stats = {0};
            if (s->comm)
                s->comm->ops->stats(s->comm, &stats);
            add_stats(out_stats, &stats);
        }
}

void tsri_plan_stats(const tsr_world *world, tsri_comm_stats *out_stats)
{
    world->comm->ops->stats(world->comm, out_stats);
    add_sides(world, out_stats);
    for (int k = 1; k < TSRI_DEVICES; k++)
        for (const connection *c = world->connections[k]; c; c = c->next) {
            tsri_comm_stats stats = {0};
            if (c->comm)
                c->comm->ops->stats(c->comm, &stats);
            add_stats(out_stats, &stats);
            add_stats(out_stats, &c->replayed);
        }
}

/* Returns the connection between devices that counts replayed calls; NULL if there is none. */
static connection *find_counting(const tsr_world *world)
{
    connection *c = NULL;
    for (int k = 1; k < TSRI_DEVICES && !c; k++)
        c = world->connections[k];
    return c;
}

void tsri_plan_count_replay(tsr_plan *plan, const tsri_capture *capture)
{
    connection *c = find_counting(plan->ir.world);
    if (c)
        add_stats(&c->replayed, &capture->per_run);
}

/* By unsigned numbers, which wrap around: the sum is what it was. */
void tsri_plan_uncount(const tsr_plan *plan, const tsri_comm_stats *before)
{
    connection *c = find_counting(plan->ir.world);
    tsri_comm_stats now;
    tsri_plan_stats(plan->ir.world, &now);
    for (int k = 0; c && k < TSRI_COLL_KIND_COUNT_; k++) {
        c->replayed.calls[k] -= now.calls[k] - before->calls[k];
        c->replayed.bytes_read[k] -= now.bytes_read[k] - before->bytes_read[k];
    }
}

tsri_comm **tsri_plan_connection(tsr_world *world, tsr_device kind)
{
    connection *c = world->connections[kind];
    return c ? &c->comm : NULL;
}

tsri_comm *tsri_plan_comm(const tsr_plan *plan, const tsri_item *it)
{
    tsr_device kind = tsr_placement_device(it->placement);
    const connection *c = plan->ir.world->connections[kind];
    return tsri_target_can(kind, TSRI_CAN_HOST_MEMORY) ? plan->ir.world->comm : c ? c->comm : NULL;
}
