/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send and recv. From each rank to each other leads a path: two of the communicator's groups of
 * these two, one for what is said about a message, one for its data. Messages go down a path in the
 * order of the sends, whichever group and tag they are of. A receiver takes them off one by one,
 * and keeps those that are not for it until somebody asks for them. A path's receivers, which may
 * be the threads of several groups, take turns.
 */
#include "src/comm/collective/collective.h"
#include "src/core/clock.h"
#include "src/core/thread.h"

#include <stdio.h>
#include <string.h>

enum { LANE_ABOUT = 1, LANE_DATA = 2, AHEAD = 64, ABOUT_BYTES = 128 };

/* A message's facts, as its sender tells them. */
typedef struct message {
    uint64_t key; /* of the group */
    uint64_t number;
    int64_t count;
    int32_t dtype, tag, line;
    char file[64];
} message;
_Static_assert(sizeof(message) <= ABOUT_BYTES, "data follows at this offset");

/* A message that is being sent: its memory is the receiver's to read until both calls are released.
 */
typedef struct tsri_parcel {
    struct tsri_parcel *next;
    struct tsri_path *path;
    tsri_scratch scratch; /* message, data */
    size_t bytes;
    tsri_coll coll[2];
    tsri_segment seg[2];
    tsri_ticket ticket[2];
} parcel;

/* A message that nobody has asked for yet. */
typedef struct kept {
    struct kept *next;
    message about;
    char data[];
} kept;

typedef struct tsri_path {
    struct tsri_path *next;
    int from, to; /* world ranks, one of them this one */
    tsri_group *about, *data;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t changed;
    /* Sending: those on their way, oldest first, and those that have been read. */
    parcel *oldest, *newest, *read;
    int under_way;
    /* The path back, which has ended: the other rank, which may wait here, has yet to be told. Not
     * of the lock, whose holder may wait for that rank. */
    _Atomic(struct tsri_path *) back;
    /* Receiving. */
    bool taken; /* somebody is at the next message */
    bool told;  /* the sender has been told that it is over */
    kept *first, *last;
    tsr_status over; /* the first error, and its text: they do not change any more */
    char text[2048];
} path;

/* --- paths ------------------------------------------------------------------------------------ */

static tsr_status make_path(tsri_engine *e, int from, int to, path **out_path)
{
    const int ranks[2] = {from, to};
    path *p = tsri_mem_alloc(NULL, sizeof *p);
    TSRI_NEED(p);
    p->from = from;
    p->to = to;
    tsr_status status = e->comm->ops->group(e->comm, 2, ranks, LANE_ABOUT, &p->about);
    if (status == TSR_OK)
        status = e->comm->ops->group(e->comm, 2, ranks, LANE_DATA, &p->data);
    if (status != TSR_OK) {
        tsri_mem_free(p);
        return status;
    }
    tsri_cond_init(&p->changed);
    pthread_mutex_init(&p->lock, NULL);
    p->next = e->paths;
    e->paths = p;
    *out_path = p;
    return TSR_OK;
}

static tsr_status find_path(tsri_engine *e, int from, int to, path **out_path)
{
    tsr_status status = TSR_OK;
    pthread_mutex_lock(&e->lock);
    path *p = e->paths;
    while (p && (p->from != from || p->to != to))
        p = p->next;
    if (p)
        *out_path = p;
    else
        status = make_path(e, from, to, out_path);
    pthread_mutex_unlock(&e->lock);
    return status;
}

/* The thread's last error ends the path. Its lock is held. */
static tsr_status end_path(path *p, tsr_status status)
{
    if (p->over == TSR_OK) {
        p->over = status;
        snprintf(p->text, sizeof p->text, "%s", tsr_last_error());
    }
    return status;
}

static tsr_status fail_over(const path *p)
{
    return tsri_fail(p->over, "%s", p->text);
}

/* The other rank finds in the group, at its next call or where it waits, why `ended` is over.
 * Messages that were sent before still arrive. The caller is the group's only user. */
static void poison(tsri_engine *e, tsri_group *about, const path *ended)
{
    char last[4096]; /* stays the thread's last error */
    snprintf(last, sizeof last, "%s", tsr_last_error());
    if (TSRI_COMM_HAS(e->comm, poison))
        e->comm->ops->poison(about, ended->over, ended->text);
    tsri_fail(TSR_OK, "%s", last);
}

/* Tells the receiver that the path back is over; if somebody else has the lock, he does it then. */
static void tell_receiver(tsri_engine *e, path *p)
{
    while (atomic_load(&p->back) && !pthread_mutex_trylock(&p->lock)) {
        const path *back = atomic_exchange(&p->back, NULL);
        if (back)
            poison(e, p->about, back);
        pthread_mutex_unlock(&p->lock);
    }
}

/* Unlocks a path on which this rank sends. */
static void unlock_to_send(tsri_engine *e, path *p)
{
    pthread_mutex_unlock(&p->lock);
    tell_receiver(e, p);
}

/* Tells the sender that the path is over, unless somebody is at its next message, who does it then.
 * The lock is held. */
static void tell_sender(tsri_engine *e, path *p)
{
    if (p->over == TSR_OK || p->taken || p->told)
        return;
    p->told = true;
    poison(e, p->about, p);
}

/* Takes parcels that were read off the front of a path, whose lock is held. wait: at least one. */
static tsr_status release_read(tsri_engine *e, path *p, bool wait)
{
    const tsri_comm_ops *ops = e->comm->ops;
    bool can_ask = TSRI_COMM_HAS(e->comm, released);
    while (p->oldest) {
        parcel *c = p->oldest;
        bool is_read = can_ask && ops->released(p->about, &c->ticket[0]) &&
                       (!c->bytes || ops->released(p->data, &c->ticket[1]));
        if (!is_read && !wait)
            break;
        wait = false;
        TSRI_TRY(ops->release(p->about, &c->ticket[0]));
        if (c->bytes)
            TSRI_TRY(ops->release(p->data, &c->ticket[1]));
        p->oldest = c->next;
        p->under_way--;
        c->next = p->read;
        p->read = c;
    }
    return TSR_OK;
}

static void free_parcel(tsri_engine *e, parcel *c)
{
    tsri_scratch_give(e, &c->scratch);
    tsri_mem_free(c);
}

static void free_read(tsri_engine *e, path *p)
{
    while (p->read) {
        parcel *c = p->read;
        p->read = c->next;
        free_parcel(e, c);
    }
}

/* Frees what was read of a path on which this rank sends. */
static void collect(tsri_engine *e, path *p)
{
    /* The lock's holder may wait for a receiver. */
    if (pthread_mutex_trylock(&p->lock))
        return;
    if (p->over == TSR_OK) {
        tsr_status status = release_read(e, p, false);
        if (status != TSR_OK)
            end_path(p, status);
    }
    free_read(e, p);
    unlock_to_send(e, p);
}

void tsri_paths_collect(tsri_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    path *p = engine->paths; /* others go before it; none goes away */
    pthread_mutex_unlock(&engine->lock);
    for (; p; p = p->next)
        if (p->from == engine->world->rank)
            collect(engine, p);
}

void tsri_paths_free(tsri_engine *engine)
{
    while (engine->paths) {
        path *p = engine->paths;
        engine->paths = p->next;
        free_read(engine, p);
        while (p->oldest) {
            parcel *c = p->oldest;
            p->oldest = c->next;
            free_parcel(engine, c);
        }
        while (p->first) {
            kept *k = p->first;
            p->first = k->next;
            tsri_mem_free(k);
        }
        pthread_cond_destroy(&p->changed);
        pthread_mutex_destroy(&p->lock);
        tsri_mem_free(p);
    }
}

/* --- sending ---------------------------------------------------------------------------------- */

tsr_status tsri_send_prepare(tsr_group *g, tsri_task *task)
{
    tsri_engine *e = g->engine;
    path *p;
    TSRI_TRY(find_path(e, g->ranks[g->index], g->ranks[task->root], &p));
    collect(e, p);
    parcel *c = tsri_mem_alloc(&e->world->mem, sizeof *c);
    TSRI_NEED(c);
    c->path = p;
    c->bytes = (size_t)task->count * tsr_dtype_size(task->dtype);
    tsr_status status = tsri_scratch_take(e, ABOUT_BYTES + c->bytes, &c->scratch);
    if (status != TSR_OK) {
        tsri_mem_free(c);
        return status;
    }
    task->parcel = c;
    return TSR_OK;
}

void tsri_send_drop(tsr_group *g, tsri_task *task)
{
    free_parcel(g->engine, task->parcel);
    task->parcel = NULL;
}

bool tsri_send_is_ready(tsr_group *g, const tsri_task *task)
{
    path *p = task->parcel->path;
    if (pthread_mutex_trylock(&p->lock))
        return false;
    bool ready = p->under_way < AHEAD || p->over != TSR_OK;
    unlock_to_send(g->engine, p);
    return ready;
}

static void fill_message(const tsr_group *g, const tsri_task *t, message *m)
{
    *m = (message){.key = g->key,
                   .number = t->number,
                   .count = t->count,
                   .dtype = (int32_t)t->dtype,
                   .tag = t->tag,
                   .line = t->loc.line};
    snprintf(m->file, sizeof m->file, "%s", t->loc.file ? tsri_basename(t->loc.file) : "?");
}

/* One side of a call. Its text is equal for all: lengths are told, not compared. */
static tsri_coll call_of(const tsri_task *t, const tsri_segment *seg)
{
    return (tsri_coll){.kind = TSRI_COLL_SEND_RECV,
                       .nseg = 1,
                       .seg = seg,
                       .what = "message",
                       .loc = t->loc,
                       .number = t->number};
}

static tsr_status put(tsri_engine *e, tsri_group *way, parcel *c, int i, const tsri_task *t,
                      const char *src)
{
    c->seg[i] = (tsri_segment){.src = src, .dtype = TSR_U8, .shape = TSR_DIMS(1)};
    c->coll[i] = call_of(t, &c->seg[i]);
    TSRI_TRY(e->comm->ops->start(way, &c->coll[i], &c->ticket[i]));
    return e->comm->ops->finish(way, &c->ticket[i]);
}

static tsr_status send_locked(tsr_group *g, tsri_task *t, path *p)
{
    tsri_engine *e = g->engine;
    parcel *c = t->parcel;
    char *data = c->scratch.p + ABOUT_BYTES;
    if (p->over != TSR_OK)
        return fail_over(p);
    if (p->under_way == AHEAD)
        TSRI_TRY(release_read(e, p, true));
    fill_message(g, t, (message *)(void *)c->scratch.p);
    if (c->bytes)
        memcpy(data, t->src, c->bytes);
    TSRI_TRY(put(e, p->about, c, 0, t, c->scratch.p));
    if (c->bytes)
        TSRI_TRY(put(e, p->data, c, 1, t, data));
    if (p->oldest)
        p->newest->next = c;
    else
        p->oldest = c;
    p->newest = c;
    p->under_way++;
    t->parcel = NULL;
    return TSR_OK;
}

tsr_status tsri_send_run(tsr_group *g, tsri_task *task)
{
    path *p = task->parcel->path;
    pthread_mutex_lock(&p->lock);
    tsr_status status = send_locked(g, task, p);
    if (status != TSR_OK) {
        tsri_fail_prefix(status, "send #%llu to rank %d, tag %d", (unsigned long long)task->number,
                         p->to, task->tag);
        end_path(p, status);
    }
    unlock_to_send(g->engine, p);
    return status;
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Takes `bytes` of the path's next call; dst NULL: leaves them. */
static tsr_status take(tsri_group *way, const tsri_task *t, void *dst, size_t bytes)
{
    const int from = 0;
    const tsri_pull pull = {.ndim = 1,
                            .length = {(int64_t)bytes},
                            .src_step = {1},
                            .dst_step = {1},
                            .nsrc = 1,
                            .src = &from};
    const tsri_segment seg = {.dst = dst,
                              .dtype = TSR_U8,
                              .shape = TSR_DIMS(1),
                              .npulls = dst ? 1 : 0,
                              .pulls = &pull,
                              .dst_count = dst ? (int64_t)bytes : 0};
    const tsri_coll coll = call_of(t, &seg);
    return tsri_comm_call(way, &coll);
}

static bool is_for(const tsr_group *g, const tsri_task *t, const message *m)
{
    return m->key == g->key && m->tag == t->tag;
}

static tsr_status check_message(const tsr_group *g, const tsri_task *t, const message *m)
{
    if (m->count == t->count && m->dtype == (int32_t)t->dtype)
        return TSR_OK;
    return tsri_fail(TSR_ERR_MISMATCH,
                     "ranks disagree: rank %d is at send #%llu to rank %d, tag %d (%s:%d): %s "
                     "[%lld]; rank %d is at recv #%llu from rank %d (%s:%d): %s [%lld]",
                     g->ranks[t->root], (unsigned long long)m->number, g->ranks[g->index], m->tag,
                     m->file, (int)m->line, tsr_dtype_name((tsr_dtype)m->dtype),
                     (long long)m->count, g->ranks[g->index], (unsigned long long)t->number,
                     g->ranks[t->root], t->loc.file ? tsri_basename(t->loc.file) : "?", t->loc.line,
                     tsr_dtype_name(t->dtype), (long long)t->count);
}

/* Takes the next message off the path: for t, or *out_kept. The path is taken, not locked. */
static tsr_status take_next(tsr_group *g, const tsri_task *t, path *p, bool *out_mine,
                            kept **out_kept)
{
    message m;
    TSRI_TRY(take(p->about, t, &m, sizeof m));
    size_t bytes = (size_t)m.count * tsr_dtype_size((tsr_dtype)m.dtype);
    *out_mine = is_for(g, t, &m);
    if (*out_mine) {
        tsr_status status = check_message(g, t, &m);
        if (status != TSR_OK || !bytes)
            return status;
        return take(p->data, t, t->dst, bytes);
    }
    kept *k = tsri_mem_alloc(NULL, sizeof *k + bytes);
    TSRI_NEED(k);
    k->about = m;
    if (bytes) {
        tsr_status status = take(p->data, t, k->data, bytes);
        if (status != TSR_OK) {
            tsri_mem_free(k);
            return status;
        }
    }
    *out_kept = k;
    return TSR_OK;
}

/* The oldest kept message that is for t, taken off the list. */
static kept *find_kept(const tsr_group *g, const tsri_task *t, path *p)
{
    kept **at = &p->first, *before = NULL;
    while (*at && !is_for(g, t, &(*at)->about)) {
        before = *at;
        at = &before->next;
    }
    kept *k = *at;
    if (!k)
        return NULL;
    *at = k->next;
    if (p->last == k)
        p->last = before;
    return k;
}

static tsr_status use_kept(const tsr_group *g, const tsri_task *t, kept *k)
{
    tsr_status status = check_message(g, t, &k->about);
    size_t bytes = (size_t)t->count * tsr_dtype_size(t->dtype);
    if (status == TSR_OK && bytes)
        memcpy(t->dst, k->data, bytes);
    tsri_mem_free(k);
    return status;
}

static tsr_status recv_locked(tsr_group *g, tsri_task *t, path *p)
{
    double until = tsri_now_s() + g->engine->world->timeout_s;
    for (;;) {
        kept *k = find_kept(g, t, p);
        if (k)
            return use_kept(g, t, k);
        if (p->over != TSR_OK)
            return fail_over(p);
        /* Also while messages come that are for others. */
        double left = until - tsri_now_s();
        if (left <= 0)
            return tsri_fail(TSR_ERR_TIMEOUT,
                             "rank %d sent nothing with tag %d within %g s (%s:%d)", p->from,
                             t->tag, g->engine->world->timeout_s,
                             t->loc.file ? tsri_basename(t->loc.file) : "?", t->loc.line);
        if (p->taken) { /* somebody else is at the next message */
            const struct timespec look = tsri_in_s(left < 1 ? left : 1);
            pthread_cond_timedwait(&p->changed, &p->lock, &look);
            continue;
        }
        bool mine = false;
        p->taken = true;
        pthread_mutex_unlock(&p->lock);
        tsr_status status = take_next(g, t, p, &mine, &k);
        pthread_mutex_lock(&p->lock);
        p->taken = false;
        if (k) {
            *(p->first ? &p->last->next : &p->first) = k;
            p->last = k;
        }
        pthread_cond_broadcast(&p->changed);
        if (status != TSR_OK || mine)
            return status;
    }
}

/* The sender may next wait for a message from here: it is told on the path back, too. */
static void tell_back(tsri_engine *e, path *p)
{
    path *other;
    char last[sizeof p->text];
    snprintf(last, sizeof last, "%s", tsr_last_error());
    if (find_path(e, p->to, p->from, &other) == TSR_OK) {
        atomic_store(&other->back, p);
        tell_receiver(e, other);
    } else {
        tsri_fail(p->over, "%s", last);
    }
}

tsr_status tsri_recv_run(tsr_group *g, tsri_task *task)
{
    path *p;
    TSRI_TRY(find_path(g->engine, g->ranks[task->root], g->ranks[g->index], &p));
    pthread_mutex_lock(&p->lock);
    tsr_status status = recv_locked(g, task, p);
    if (status != TSR_OK && status != TSR_ERR_MISMATCH)
        tsri_fail_prefix(status, "recv #%llu from rank %d, tag %d",
                         (unsigned long long)task->number, p->from, task->tag);
    bool is_first = status != TSR_OK && p->over == TSR_OK;
    if (is_first) {
        end_path(p, status);
        pthread_cond_broadcast(&p->changed);
    }
    tell_sender(g->engine, p);
    pthread_mutex_unlock(&p->lock);
    if (is_first)
        tell_back(g->engine, p);
    return status;
}

/* --- memory that peers can read --------------------------------------------------------------- */
/* Messages that have been read are freed when their memory is needed. */
tsr_status tsri_region_take(tsri_engine *engine, size_t bytes, void **out_ptr)
{
    tsr_status status = tsri_region_alloc(&engine->world->region, bytes, out_ptr);
    if (status != TSR_ERR_NO_MEMORY)
        return status;
    tsri_paths_collect(engine);
    return tsri_region_alloc(&engine->world->region, bytes, out_ptr);
}

tsr_status tsri_scratch_take(tsri_engine *engine, size_t bytes, tsri_scratch *out)
{
    void *p = NULL;
    if (engine->comm->in_region) {
        TSRI_TRY(tsri_region_take(engine, bytes, &p));
    } else {
        p = tsri_mem_alloc(&engine->world->mem, bytes);
        TSRI_NEED(p);
    }
    *out = (tsri_scratch){.p = p, .bytes = bytes};
    return TSR_OK;
}

void tsri_scratch_give(tsri_engine *engine, tsri_scratch *scratch)
{
    if (engine->comm->in_region)
        tsri_region_free(&engine->world->region, scratch->p, scratch->bytes);
    else
        tsri_mem_free(scratch->p);
    *scratch = (tsri_scratch){0};
}
