/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/world/hosts.h"
#include "src/comm/collective/collective.h"
#include "src/comm/flight/flight.h"
#include "src/comm/local/local.h"

#include <stdio.h>
#include <unistd.h>

/* pub.priv: the inner group, of one of the two. */
typedef struct hosts_group {
    tsri_group pub;
    struct hosts_group *next;
    tsri_comm *via;
} hosts_group;

typedef struct hosts {
    tsri_comm pub;
    tsri_comm *local, *remote;
    tsr_store *store;
    char *folder;
    hosts_group *groups;
    bool is_twin;
    atomic_bool over; /* that the world's work has ended has been passed on */
} hosts;

/* Rank 0 serves the store: how long it waits for the others to leave, after a failure. */
static const double leave_failed_s = 3;

static hosts *of(tsri_comm *c)
{
    return (hosts *)c->priv;
}

static tsr_status check_of(tsri_comm *c)
{
    return c->ops->check ? c->ops->check(c) : TSR_OK;
}

/* --- one's end is the other's ----------------------------------------------------------------- */

/* Passes `status` on, which a call of `from` gave. An error that ends one communicator ends the
 * other too: its ranks may wait for this one. */
static tsr_status passed_on(hosts *h, const tsri_comm *from, tsr_status status)
{
    char text[3800];
    if ((status != TSR_ERR_DEAD && status != TSR_ERR_REMOTE) || atomic_exchange(&h->over, true))
        return status;
    snprintf(text, sizeof text, "%s", tsr_last_error());
    if (from == h->local)
        h->remote->ops->abort(h->remote, text);
    else /* its text says who */
        tsri_arena_abort(&((tsri_local *)h->local->priv)->arena, -1, text);
    return tsri_fail(status, "%s", text);
}

/* For who waits on this machine: whether the talk with the others has ended. */
static tsr_status poll_remote(void *arg)
{
    hosts *h = arg;
    return passed_on(h, h->remote, check_of(h->remote));
}

static tsr_status hosts_check(tsri_comm *c)
{
    TSRI_TRY(check_of(of(c)->local));
    return check_of(of(c)->remote);
}

static void hosts_abort(tsri_comm *c, const char *text)
{
    hosts *h = of(c);
    h->local->ops->abort(h->local, text);
    h->remote->ops->abort(h->remote, text);
    h->over = true;
}

/* --- groups and their calls ------------------------------------------------------------------- */

static bool is_here(const hosts *h, int nranks, const int *ranks)
{
    const tsri_local *local = (const tsri_local *)h->local->priv;
    for (int i = 0; i < nranks; i++) {
        bool known = ranks[i] >= 0 && ranks[i] < h->pub.world->nranks;
        if (known && tsri_local_place_of(local, ranks[i]) < 0)
            return false;
    }
    return true;
}

static tsr_status hosts_group_find(tsri_comm *c, int nranks, const int *ranks, int lane,
                                   tsri_group **out_group)
{
    hosts *h = of(c);
    tsri_comm *via = is_here(h, nranks, ranks) ? h->local : h->remote;
    tsri_group *inner;
    TSRI_TRY(passed_on(h, via, via->ops->group(via, nranks, ranks, lane, &inner)));
    for (hosts_group *g = h->groups; g; g = g->next)
        if (g->pub.priv == inner) {
            *out_group = &g->pub;
            return TSR_OK;
        }
    hosts_group *g = tsri_mem_alloc(&c->world->mem, sizeof *g);
    TSRI_NEED(g);
    *g = (hosts_group){.pub = *inner, .next = h->groups, .via = via};
    g->pub.comm = c;
    g->pub.priv = inner;
    h->groups = g;
    *out_group = &g->pub;
    return TSR_OK;
}

static hosts_group *group_of(tsri_group *pub)
{
    return (hosts_group *)(void *)pub;
}

static tsr_status hosts_start(tsri_group *pub, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    hosts *h = of(pub->comm);
    tsri_comm *via = group_of(pub)->via, *other = via == h->local ? h->remote : h->local;
    TSRI_TRY(passed_on(h, other, check_of(other)));
    return passed_on(h, via, via->ops->start(pub->priv, coll, out_ticket));
}

static tsr_status hosts_finish(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_comm *via = group_of(pub)->via;
    return passed_on(of(pub->comm), via, via->ops->finish(pub->priv, ticket));
}

static tsr_status hosts_release(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_comm *via = group_of(pub)->via;
    return passed_on(of(pub->comm), via, via->ops->release(pub->priv, ticket));
}

/* Tasks within this machine go as there. */
static bool hosts_does_tasks(const tsri_group *pub)
{
    return TSRI_COMM_HAS(((const hosts_group *)(const void *)pub)->via, task);
}

static tsr_status hosts_task(tsri_group *pub, tsri_task *task)
{
    hosts *h = of(pub->comm);
    tsri_comm *via = group_of(pub)->via, *other = via == h->local ? h->remote : h->local;
    tsr_status status = passed_on(h, other, check_of(other));
    if (status != TSR_OK)
        return tsri_flight_fail_start(pub->comm->world, task->flight, status);
    return passed_on(h, via, via->ops->task(pub->priv, task));
}

static tsr_status hosts_prepare(tsri_group *pub, tsri_coll *coll)
{
    tsri_comm *via = group_of(pub)->via;
    if (!via->ops->prepare)
        return TSR_OK;
    return passed_on(of(pub->comm), via, via->ops->prepare(pub->priv, coll));
}

static void hosts_unprepare(tsri_group *pub, tsri_coll *coll)
{
    tsri_comm *via = group_of(pub)->via;
    if (via->ops->unprepare)
        via->ops->unprepare(pub->priv, coll);
}

/* If it can't be told, it is not released. */
static bool hosts_released(tsri_group *pub, const tsri_ticket *ticket)
{
    const tsri_comm_ops *via = group_of(pub)->via->ops;
    return via->released && via->released(pub->priv, ticket);
}

static void hosts_poison(tsri_group *pub, tsr_status status, const char *text)
{
    const tsri_comm_ops *via = group_of(pub)->via->ops;
    if (via->poison)
        via->poison(pub->priv, status, text);
}

static tsr_status hosts_partition(tsri_comm *c, const int *color, const int *key, int lane)
{
    tsri_comm *remote = of(c)->remote;
    if (!remote->ops->partition)
        return TSR_OK;
    return passed_on(of(c), remote, remote->ops->partition(remote, color, key, lane));
}

static tsr_status hosts_exchange(tsri_comm *c, const void *mine, size_t bytes, void *all)
{
    hosts *h = of(c);
    TSRI_TRY(passed_on(h, h->local, check_of(h->local)));
    return passed_on(h, h->remote, h->remote->ops->exchange(h->remote, mine, bytes, all));
}

/* Peers on this machine read from shared memory, which stays. */
static void hosts_leave(tsri_comm *c)
{
    tsri_comm *remote = of(c)->remote;
    if (TSRI_COMM_HAS(remote, leave))
        remote->ops->leave(remote);
}

static void hosts_stats(tsri_comm *c, tsri_comm_stats *out_stats)
{
    tsri_comm_stats far;
    of(c)->local->ops->stats(of(c)->local, out_stats);
    of(c)->remote->ops->stats(of(c)->remote, &far);
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++) {
        out_stats->calls[k] += far.calls[k];
        out_stats->bytes_read[k] += far.bytes_read[k];
    }
}

/* --- making and ending ------------------------------------------------------------------------ */

static void destroy_parts(tsri_comm *local, tsri_comm *remote, tsr_store *store)
{
    if (remote)
        remote->ops->destroy(remote);
    if (local)
        local->ops->destroy(local);
    tsr_store_close(store);
}

static void hosts_destroy(tsri_comm *c)
{
    if (!c)
        return;
    hosts *h = of(c);
    while (h->groups) {
        hosts_group *next = h->groups->next;
        tsri_mem_free(h->groups);
        h->groups = next;
    }
    if (!h->is_twin)
        ((tsri_local *)h->local->priv)->poll = NULL;
    bool failed = h->over || hosts_check(c) != TSR_OK;
    /* Until it is gone, threads of it use the store. */
    h->remote->ops->destroy(h->remote);
    if (h->store && failed)
        (void)tsr_store_set_timeout(h->store, leave_failed_s);
    destroy_parts(h->local, NULL, h->store);
    if (h->folder)
        (void)rmdir(h->folder); /* the last to leave can */
    tsri_mem_free(h->folder);
    tsri_mem_free(h);
}

static tsr_status make_twin(tsri_comm *c, tsri_comm **out_comm);

static tsri_comm *get_local(tsri_comm *c)
{
    return of(c)->local;
}

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "hosts",
    .group = hosts_group_find,
    .start = hosts_start,
    .finish = hosts_finish,
    .release = hosts_release,
    .prepare = hosts_prepare,
    .unprepare = hosts_unprepare,
    .partition = hosts_partition,
    .exchange = hosts_exchange,
    .abort = hosts_abort,
    .stats = hosts_stats,
    .destroy = hosts_destroy,
    .check = hosts_check,
    .twin = make_twin,
    .on_machine = get_local,
    .released = hosts_released,
    .poison = hosts_poison,
    .task = hosts_task,
    .does_tasks = hosts_does_tasks,
    .leave = hosts_leave,
};

static tsr_status make(tsr_world *world, tsri_comm *local, tsri_comm *remote, tsr_store *store,
                       hosts **out_hosts)
{
    hosts *h = tsri_mem_alloc(&world->mem, sizeof *h);
    if (!h) {
        destroy_parts(local, remote, store);
        return TSR_ERR_NO_MEMORY;
    }
    h->pub = (tsri_comm){.ops = &ops, .world = world, .priv = h, .in_region = true, .early = true};
    h->local = local;
    h->remote = remote;
    h->store = store;
    *out_hosts = h;
    return TSR_OK;
}

static tsr_status make_twin(tsri_comm *c, tsri_comm **out_comm)
{
    hosts *h = of(c), *twin;
    tsri_comm *local, *remote;
    if (!h->local->ops->twin || !h->remote->ops->twin)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "the communicators '%s' and '%s' have no twins",
                         h->local->ops->name, h->remote->ops->name);
    TSRI_TRY(h->local->ops->twin(h->local, &local));
    tsr_status status = h->remote->ops->twin(h->remote, &remote);
    if (status != TSR_OK) {
        local->ops->destroy(local);
        return status;
    }
    TSRI_TRY(make(c->world, local, remote, NULL, &twin));
    twin->is_twin = true;
    *out_comm = &twin->pub;
    return TSR_OK;
}

tsr_status tsri_hosts_create(tsr_world *world, tsri_comm *local, tsri_comm *remote,
                             tsr_store *store, const char *folder, tsri_comm **out_comm)
{
    hosts *h;
    TSRI_TRY(make(world, local, remote, store, &h));
    if (folder && *folder && !(h->folder = tsri_mem_strdup(&world->mem, folder))) {
        hosts_destroy(&h->pub);
        return TSR_ERR_NO_MEMORY;
    }
    tsri_local *host = (tsri_local *)local->priv;
    host->poll = poll_remote;
    host->poll_arg = h;
    *out_comm = &h->pub;
    return TSR_OK;
}
