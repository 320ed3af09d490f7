/* SPDX-License-Identifier: Apache-2.0 */
/* The vtable, and groups. */
#include "src/comm/nccl/inside.h"

#include <stdio.h>
#include <string.h>

static tsri_nccl *of(tsri_comm *c)
{
    return (tsri_nccl *)c->priv;
}

static tsri_nccl_group *group_of(tsri_group *g)
{
    return (tsri_nccl_group *)g->priv;
}

/* --- groups ----------------------------------------------------------------------------------- */
static bool is_all(const tsri_nccl *n, int nranks, const int *ranks)
{
    return nranks == n->n && !memcmp(ranks, n->ranks, (size_t)nranks * sizeof *ranks);
}

static tsr_status add_group(tsri_nccl *n, int nranks, const int *ranks, int lane,
                            struct ncclComm *comm, bool own, tsri_nccl_group **out_group)
{
    tsri_nccl_group *g =
        tsri_mem_alloc(&n->pub.world->mem, sizeof *g + (size_t)nranks * sizeof *ranks);
    TSRI_NEED(g);
    int *copy = (int *)(g + 1);
    memcpy(copy, ranks, (size_t)nranks * sizeof *ranks);
    g->pub = (tsri_group){.comm = &n->pub,
                          .nranks = nranks,
                          .ranks = copy,
                          .lane = lane,
                          .in_place = true,
                          .priv = g};
    for (int i = 0; i < nranks; i++)
        if (ranks[i] == n->pub.world->rank)
            g->pub.index = i;
    g->pub.flight = tsri_flight_group_of(n->pub.world->flight, "nccl", lane, nranks, copy);
    g->owner = n;
    g->comm = comm;
    g->own = own;
    /* The watchdog goes through the list. */
    tsr_status status = tsri_watch_enter(n->watch);
    if (status != TSR_OK) {
        tsri_mem_free(g);
        return status;
    }
    g->next = n->groups;
    n->groups = g;
    tsri_watch_leave(n->watch);
    *out_group = g;
    return TSR_OK;
}

static tsri_nccl_group *known_group(const tsri_nccl *n, int nranks, const int *ranks, int lane)
{
    tsri_nccl_group *g = n->groups;
    while (g && !tsri_group_is(&g->pub, nranks, ranks, lane))
        g = g->next;
    return g;
}

static tsr_status find_group(tsri_comm *c, int nranks, const int *ranks, int lane,
                             tsri_group **out_group)
{
    tsri_nccl *n = of(c);
    char text[256];
    tsri_nccl_group *g = known_group(n, nranks, ranks, lane);
    if (g) {
        *out_group = &g->pub;
        return TSR_OK;
    }
    const int here = tsri_nccl_lane(lane);
    const tsri_nccl_group *like = here != lane ? known_group(n, nranks, ranks, here) : NULL;
    bool alone = nranks == 1 && ranks[0] == c->world->rank;
    if (lane < 0 || nranks < 1 || (!alone && !like && !is_all(n, nranks, ranks)) ||
        (!alone && !like && !n->parent[here]))
        return tsri_fail(TSR_ERR_STATE, "the group of ranks %s in lane %d was not made together",
                         tsri_ranks_text(nranks, ranks, text, sizeof text), lane);
    struct ncclComm *comm = alone ? NULL : like ? like->comm : n->parent[here];
    TSRI_TRY(add_group(n, nranks, ranks, lane, comm, false, &g));
    *out_group = &g->pub;
    return TSR_OK;
}

/* The members of a color, by their keys. Ranks outside the communicator have no color. */
static int members_of(const tsri_nccl *n, const int *color, const int *key, int which,
                      int *out_ranks)
{
    int count = 0;
    for (int i = 0; i < n->n; i++) {
        int r = n->ranks[i];
        if (color[r] != which)
            continue;
        int at = count++;
        for (; at > 0 && key[out_ranks[at - 1]] > key[r]; at--)
            out_ranks[at] = out_ranks[at - 1];
        out_ranks[at] = r;
    }
    return count;
}

static bool is_made(const tsri_nccl *n, int lane, int nranks, const int *ranks)
{
    for (const tsri_nccl_made *m = n->made; m; m = m->next)
        if (m->lane == lane && m->n == nranks &&
            !memcmp(m->ranks, ranks, (size_t)nranks * sizeof *ranks))
            return true;
    return nranks < 2 || is_all(n, nranks, ranks);
}

/* A split of the communicator's ranks, and this rank's part of it. */
typedef struct parting {
    int any;   /* groups that are new */
    int color; /* of mine, -1 if it is not new */
    int key, count, *ranks;
} parting;

static tsr_status note_group(tsri_nccl *n, int lane, int count, const int *ranks, parting *p)
{
    tsri_nccl_made *m =
        tsri_mem_alloc(&n->pub.world->mem, sizeof *m + (size_t)count * sizeof *m->ranks);
    TSRI_NEED(m);
    m->next = n->made;
    m->lane = lane;
    m->n = count;
    memcpy(m->ranks, ranks, (size_t)count * sizeof *ranks);
    n->made = m;
    for (int j = 0; j < count; j++)
        if (ranks[j] == n->pub.world->rank) {
            p->color = p->any;
            p->key = j;
            p->count = count;
            p->ranks = m->ranks;
        }
    p->any++;
    return TSR_OK;
}

/* All ranks see all colors, so all know which groups are new, and which ranks get one. */
static tsr_status note_groups(tsri_nccl *n, const int *color, const int *key, int lane,
                              parting *out)
{
    int *ranks = tsri_mem_alloc(&n->pub.world->mem, (size_t)n->n * sizeof *ranks);
    tsr_status status = ranks ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = 0; i < n->n && status == TSR_OK; i++) {
        int which = color[n->ranks[i]];
        bool seen = which < 0;
        for (int j = 0; j < i && !seen; j++)
            seen = color[n->ranks[j]] == which;
        if (seen)
            continue;
        int count = members_of(n, color, key, which, ranks);
        if (!is_made(n, lane, count, ranks))
            status = note_group(n, lane, count, ranks, out);
    }
    tsri_mem_free(ranks);
    return status;
}

static tsr_status make_groups(tsri_comm *c, const int *color, const int *key, int lane)
{
    tsri_nccl *n = of(c);
    TSRI_ON_GPU(n->device);
    parting p = {.color = -1};
    tsri_nccl_group *g;
    TSRI_TRY(tsri_watch_check(n->watch));
    if (lane < 0 || lane >= TSRI_NCCL_LANES)
        return tsri_fail(TSR_ERR_INVALID, "groups in lane %d; at most %d", lane,
                         TSRI_NCCL_LANES - 1);
    tsr_status status = note_groups(n, color, key, lane, &p);
    if (status != TSR_OK) /* the others wait */
        return tsri_watch_fail(n->watch, status, tsr_last_error());
    if (!n->parent[lane] && n->n > 1)
        TSRI_TRY(tsri_nccl_open_lane(n, lane));
    if (p.any)
        TSRI_TRY(tsri_nccl_split(n, lane, p.color, p.key));
    if (p.color < 0)
        return TSR_OK;
    status = add_group(n, p.count, p.ranks, lane, n->coming, true, &g);
    if (status != TSR_OK)
        tsri_nccl_drop(n->coming);
    return status;
}

/* --- the vtable ------------------------------------------------------------------------------- */
static cudaStream_t user_stream(const tsri_nccl *n, const tsri_coll *coll)
{
    return coll->stream ? coll->stream->handle : n->device->compute.handle;
}

static tsr_status make_temporary(tsri_nccl *n, const tsri_group *g, const tsri_coll *coll,
                                 tsri_nccl_call **out)
{
    enum cudaStreamCaptureStatus captures = cudaStreamCaptureStatusNone;
    TSRI_CUDA(cudaStreamIsCapturing(user_stream(n, coll), &captures));
    if (captures != cudaStreamCaptureStatusNone)
        return tsri_fail_at(coll->loc, TSR_ERR_STATE,
                            "%s '%s': a call must be prepared before it is captured",
                            tsri_coll_kind_name(coll->kind), coll->what ? coll->what : "");
    TSRI_TRY(tsri_nccl_call_make(n, g, coll, out));
    (*out)->temporary = true;
    (*out)->next = n->temporary;
    n->temporary = *out;
    return TSR_OK;
}

static void free_temporary(tsri_nccl *n, tsri_nccl_call *c)
{
    tsri_nccl_call **at = &n->temporary;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    tsri_nccl_call_free(n, c);
}

static tsr_status prepare(tsri_group *g, tsri_coll *coll)
{
    tsri_nccl_call *c;
    TSRI_ON_GPU(group_of(g)->owner->device);
    TSRI_TRY(tsri_nccl_call_make(group_of(g)->owner, g, coll, &c));
    coll->prepared = c;
    return TSR_OK;
}

static tsr_status prepare_like(tsri_group *g, const tsri_coll *like, tsri_coll *coll)
{
    tsri_nccl_call *c;
    TSRI_ON_GPU(group_of(g)->owner->device);
    TSRI_TRY(tsri_nccl_call_make_like(group_of(g)->owner, g, coll, like->prepared, &c));
    coll->prepared = c;
    return TSR_OK;
}

static void unprepare(tsri_group *g, tsri_coll *coll)
{
    tsri_nccl_call_free(group_of(g)->owner, coll->prepared);
    coll->prepared = NULL;
}

static uint64_t bytes_of(const tsri_coll *coll)
{
    uint64_t bytes = 0;
    for (int i = 0; i < coll->nseg; i++)
        bytes += (uint64_t)tsr_dims_count(coll->seg[i].shape) * tsr_dtype_size(coll->seg[i].dtype);
    return bytes;
}

/* In the flight recorder a call is started, and completed, when its work is in the streams. A
 * captured call is not made yet, and not recorded. */
static tsr_status start(tsri_group *pub, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    tsri_nccl_group *g = group_of(pub);
    tsri_nccl *n = g->owner;
    tsri_nccl_call *c = coll->prepared;
    TSRI_ON_GPU(n->device);
    tsri_flight *flight = n->captures ? NULL : n->pub.world->flight;
    TSRI_TRY(tsri_watch_check(n->watch));
    if (!c)
        TSRI_TRY(make_temporary(n, pub, coll, &c));
    uint64_t number = tsri_flight_begin(flight, pub->flight, g->started + 1, (int)coll->kind, coll,
                                        bytes_of(coll), 0);
    tsr_status status = tsri_nccl_call_do(n, g, coll, c, user_stream(n, coll));
    if (status != TSR_OK) {
        tsri_flight_failed(flight, number);
        /* The others wait for what did not come. */
        char text[768];
        snprintf(text, sizeof text, "%.767s", tsr_last_error());
        if (!n->captures)
            status = tsri_watch_fail(n->watch, status, text);
        if (c->temporary)
            free_temporary(n, c);
        return status;
    }
    n->stats.calls[coll->kind]++;
    n->stats.bytes_read[coll->kind] += c->plan.bytes_read;
    *out_ticket =
        (tsri_ticket){.seq = ++g->started, .coll = coll, .priv = {(uint64_t)(uintptr_t)c, number}};
    return TSR_OK;
}

static tsr_status finish(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_nccl_group *g = group_of(pub);
    tsri_nccl *n = g->owner;
    const tsri_coll *coll = ticket->coll;
    const tsri_nccl_call *c = (const tsri_nccl_call *)(uintptr_t)ticket->priv[0];
    TSRI_TRY(tsri_watch_check(n->watch));
    TSRI_TRY(tsri_coll_check_turn(coll, ticket->seq, g->finished + 1));
    g->finished++;
    if (c->plan.talks && !c->sends)
        TSRI_CUDA(cudaStreamWaitEvent(user_stream(n, coll), c->done, 0));
    tsri_flight_completed(n->pub.world->flight, ticket->priv[1]);
    return TSR_OK;
}

/* The stream waits for all of the call already, so src is not read any more either; unless it only
 * sends, to which it can be late. */
static tsr_status release(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_nccl *n = group_of(pub)->owner;
    tsri_nccl_call *c = (tsri_nccl_call *)(uintptr_t)ticket->priv[0];
    cudaStream_t compute = n->device->compute.handle;
    ticket->priv[0] = 0;
    if (c->plan.talks && c->sends)
        TSRI_CUDA(cudaStreamWaitEvent(user_stream(n, ticket->coll), c->done, 0));
    /* The next owner of its staging memory writes to it in the stream of compute. */
    if (c->temporary && c->plan.talks && user_stream(n, ticket->coll) != compute)
        TSRI_CUDA(cudaStreamWaitEvent(compute, c->done, 0));
    if (c->temporary)
        free_temporary(n, c);
    return tsri_watch_check(n->watch);
}

static tsr_status exchange(tsri_comm *c, const void *mine, size_t bytes, void *all)
{
    tsri_comm *host = c->world->comm;
    return host->ops->exchange(host, mine, bytes, all);
}

static void abort_all(tsri_comm *c, const char *text)
{
    tsri_comm *host = c->world->comm;
    host->ops->abort(host, text);
    char why[768];
    snprintf(why, sizeof why, "rank %d failed: %.700s", c->world->rank, text ? text : "it gave up");
    tsri_watch_fail(of(c)->watch, TSR_ERR_REMOTE, why);
}

static void end_group(tsri_group *g, tsr_status status, const char *text)
{
    tsri_watch_fail(group_of(g)->owner->watch, status, text);
}

static void get_stats(tsri_comm *c, tsri_comm_stats *out_stats)
{
    *out_stats = of(c)->stats;
}

static tsr_status check(tsri_comm *c)
{
    return tsri_watch_check(of(c)->watch);
}

static void capture_begin(tsri_comm *c)
{
    tsri_nccl *n = of(c);
    for (tsri_nccl_group *g = n->groups; g; g = g->next) {
        g->started_before = g->started;
        g->finished_before = g->finished;
    }
    n->stats_before = n->stats;
    n->captures = true;
}

static void capture_end(tsri_comm *c)
{
    tsri_nccl *n = of(c);
    for (tsri_nccl_group *g = n->groups; g; g = g->next) {
        g->started = g->started_before;
        g->finished = g->finished_before;
    }
    n->stats = n->stats_before;
    n->captures = false;
}

static void destroy(tsri_comm *c);

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "nccl",
    .group = find_group,
    .start = start,
    .finish = finish,
    .release = release,
    .prepare = prepare,
    .prepare_like = prepare_like,
    .unprepare = unprepare,
    .partition = make_groups,
    .exchange = exchange,
    .abort = abort_all,
    .stats = get_stats,
    .destroy = destroy,
    .check = check,
    .poison = end_group,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
};

/* --- making and ending ------------------------------------------------------------------------ */
static tsr_status open_streams(tsri_nccl *n)
{
    int least, greatest;
    tsri_device *d = &n->device->base;
    void *counts, *marks;
    TSRI_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int i = 0; i < TSRI_NCCL_LANES; i++)
        TSRI_CUDA(cudaStreamCreateWithPriority(&n->stream[i], cudaStreamNonBlocking,
                                               i == 1 ? least : greatest));
    TSRI_TRY(d->ops->buffer_alloc(d, TSRI_NCCL_LANES * sizeof *n->counts, &counts));
    n->counts = counts;
    TSRI_CUDA(cudaStreamSynchronize(n->device->compute.handle)); /* they are zero for all streams */
    TSRI_CUDA(cudaHostAlloc(&marks, TSRI_NCCL_LANES * sizeof *n->marks, cudaHostAllocMapped));
    n->marks = marks;
    memset(marks, 0, TSRI_NCCL_LANES * sizeof *n->marks);
    TSRI_CUDA(cudaHostGetDevicePointer((void **)&n->marks_device, marks, 0));
    return tsri_watch_create(n->pub.world, TSRI_NCCL_LANES, n->marks, &tsri_nccl_watch_ops, n,
                             &n->watch);
}

static void destroy(tsri_comm *c)
{
    if (!c)
        return;
    tsri_nccl *n = of(c);
    tsri_device_poll_remove(&n->device->base, &n->poll);
    double seconds = c->world->timeout_s < 10 ? c->world->timeout_s : 10;
    TSRI_ON_GPU(n->device);
    /* Under the watchdog's eyes: what hangs is stopped by it. */
    for (int i = 0; i < TSRI_NCCL_LANES; i++)
        if (n->stream[i])
            cudaStreamSynchronize(n->stream[i]);
    while (n->temporary) {
        tsri_nccl_call *next = n->temporary->next; /* an error kept them from their release */
        tsri_nccl_call_free(n, n->temporary);
        n->temporary = next;
    }
    tsri_watch_destroy(n->watch);
    while (n->groups) {
        tsri_nccl_group *next = n->groups->next;
        if (n->groups->own)
            tsri_nccl_end(n, n->groups->comm, seconds);
        tsri_mem_free(n->groups);
        n->groups = next;
    }
    for (int i = 0; i < TSRI_NCCL_LANES; i++) {
        tsri_nccl_end(n, n->parent[i], seconds);
        if (n->stream[i])
            cudaStreamDestroy(n->stream[i]);
    }
    while (n->registrations) { /* of communicators that were given up */
        tsri_nccl_registration *next = n->registrations->next;
        tsri_mem_free(n->registrations);
        n->registrations = next;
    }
    while (n->made) {
        tsri_nccl_made *next = n->made->next;
        tsri_mem_free(n->made);
        n->made = next;
    }
    if (n->counts)
        n->device->base.ops->buffer_free(&n->device->base, n->counts,
                                         TSRI_NCCL_LANES * sizeof *n->counts);
    if (n->marks)
        cudaFreeHost(n->marks);
    cudaGetLastError();
    tsri_mem_free(n->ranks);
    tsri_mem_free(n);
}

static tsr_status check_watch(void *watch)
{
    return tsri_watch_check(watch);
}

tsr_status tsri_nccl_create(tsri_device *device, const unsigned char id[128], int nranks,
                            const int *ranks, struct tsri_comm **out_comm)
{
    tsr_world *world = device->world;
    tsri_nccl *n = tsri_mem_alloc(&world->mem, sizeof *n);
    TSRI_NEED(n);
    n->pub = (tsri_comm){.ops = &ops, .world = world, .priv = n, .capturable = true};
    n->device = (tsri_cuda_device *)device;
    TSRI_ON_GPU(n->device);
    n->n = nranks;
    n->index = -1;
    n->ranks = tsri_mem_alloc(&world->mem, (size_t)nranks * sizeof *ranks);
    tsr_status status = n->ranks ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = 0; n->ranks && i < nranks; i++) {
        n->ranks[i] = ranks[i];
        n->index = ranks[i] == world->rank ? i : n->index;
    }
    if (status == TSR_OK && n->index < 0)
        status = tsri_fail(TSR_ERR_INVALID, "rank %d is not among those to join", world->rank);
    if (status == TSR_OK)
        status = open_streams(n);
    if (status == TSR_OK && nranks > 1)
        status = tsri_nccl_join(n, id);
    if (status != TSR_OK) {
        char text[1024];
        snprintf(text, sizeof text, "%.1023s", tsr_last_error());
        destroy(&n->pub);
        return tsri_fail(status, "%s", text);
    }
    n->poll = (tsri_poll){.fn = check_watch, .arg = n->watch};
    tsri_device_poll_add(device, &n->poll);
    *out_comm = &n->pub;
    return TSR_OK;
}
