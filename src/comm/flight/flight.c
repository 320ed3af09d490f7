/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording. A writer holds its entry while it writes, and marks it as held. A thread that is kept
 * from going on while others go round the ring finds its entry gone, or they step over one that it
 * holds: so no entry gets a part of another call. A reader (of this process, of another, or of what
 * a killed one has left) looks at the mark before and after it has copied word by word.
 */
#include "src/comm/flight/flight.h"
#include "src/comm/comm.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(tsri_flight_call) == TSRI_FLIGHT_WORDS * sizeof(uint64_t), "whole words");
_Static_assert(sizeof(tsri_flight_entry) == 256, "four lines of the cache");
_Static_assert(sizeof((tsri_flight_call){0}.shape) == TSR_MAX_NDIM * sizeof(int64_t), "all axes");

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void copy_text(char *to, size_t size, const char *from)
{
    size_t n = from ? strnlen(from, size - 1) : 0;
    memcpy(to, from ? from : "", n);
    to[n] = 0;
}

/* --- worlds and groups ------------------------------------------------------------------------ */
static int count_groups(const tsri_flight *f)
{
    int n = atomic_load(&f->ngroups);
    return n < TSRI_FLIGHT_GROUPS ? n : TSRI_FLIGHT_GROUPS;
}

void tsri_flight_open(tsri_flight *f, int rank, int nranks, int world, const char *run)
{
    if (!f)
        return;
    copy_text(f->run, sizeof f->run, run);
    atomic_store(&f->rank, rank);
    atomic_store(&f->nranks, nranks);
    atomic_store(&f->pid, (int32_t)getpid());
    for (int i = 0; i < count_groups(f); i++) {
        atomic_store(&f->group[i].started, 0);
        atomic_store(&f->group[i].completed, 0);
    }
    atomic_store(&f->world, world);
}

static int listed(int nranks)
{
    return nranks < TSRI_FLIGHT_GROUP_RANKS ? nranks : TSRI_FLIGHT_GROUP_RANKS;
}

static bool is_group(const tsri_flight_group *g, const char *comm, int lane, int nranks,
                     const int *ranks)
{
    if (!atomic_load_explicit(&g->ready, memory_order_acquire) || g->lane != lane ||
        g->nranks != nranks || strncmp(g->comm, comm, sizeof g->comm - 1))
        return false;
    for (int i = 0; i < listed(nranks); i++)
        if (g->ranks[i] != ranks[i])
            return false;
    return true;
}

int tsri_flight_group_of(tsri_flight *f, const char *comm, int lane, int nranks, const int *ranks)
{
    if (!f || nranks < 2)
        return 0;
    for (int i = 0; i < count_groups(f); i++)
        if (is_group(&f->group[i], comm, lane, nranks, ranks))
            return i + 1;
    int at = atomic_fetch_add(&f->ngroups, 1);
    if (at < 0 || at >= TSRI_FLIGHT_GROUPS) {
        atomic_store(&f->ngroups, TSRI_FLIGHT_GROUPS);
        return 0;
    }
    tsri_flight_group *g = &f->group[at];
    g->lane = lane;
    g->nranks = nranks;
    copy_text(g->comm, sizeof g->comm, comm);
    for (int i = 0; i < listed(nranks); i++)
        g->ranks[i] = ranks[i];
    atomic_store(&g->started, 0);
    atomic_store(&g->completed, 0);
    atomic_store_explicit(&g->ready, 1, memory_order_release);
    return at + 1;
}

/* --- calls ------------------------------------------------------------------------------------ */
/* The entry of a call, to be written; NULL if it is gone. Its state was *out_state. */
static tsri_flight_entry *hold(tsri_flight *f, uint64_t number, int *out_state)
{
    if (!f || !number)
        return NULL;
    tsri_flight_entry *e = &f->entry[(number - 1) % TSRI_FLIGHT_CALLS];
    uint64_t mark = atomic_load_explicit(&e->mark, memory_order_relaxed);
    *out_state = tsri_flight_state_of(mark);
    if (tsri_flight_number_of(mark) != number || *out_state == TSRI_FLIGHT_HELD ||
        !atomic_compare_exchange_strong_explicit(&e->mark, &mark,
                                                 tsri_flight_mark(number, TSRI_FLIGHT_HELD),
                                                 memory_order_acquire, memory_order_relaxed))
        return NULL;
    return e;
}

static void let_go(tsri_flight_entry *e, uint64_t number, int state)
{
    atomic_store_explicit(&e->mark, tsri_flight_mark(number, state), memory_order_release);
}

/* Stores that come after the entry is held, and before it is let go. */
static void put(tsri_flight_entry *e, int word, uint64_t value)
{
    atomic_store_explicit(&e->word[word], value, memory_order_release);
}

static uint64_t get(const tsri_flight_entry *e, int word)
{
    return atomic_load_explicit(&e->word[word], memory_order_relaxed);
}

static void put_call(tsri_flight_entry *e, const tsri_flight_call *call)
{
    uint64_t word;
    _Pragma("GCC unroll 28") for (size_t i = 0; i < TSRI_FLIGHT_WORDS; i++)
    {
        memcpy(&word, (const char *)call + i * sizeof word, sizeof word);
        put(e, (int)i, word);
    }
}

/* word[] of a member, all of 64 bits */
#define WORD_OF(member) ((int)(offsetof(tsri_flight_call, member) / sizeof(uint64_t)))

void tsri_flight_describe(tsri_flight_call *c, int kind, const tsri_coll *coll, uint64_t bytes,
                          uint64_t hash)
{
    const char *file = coll->loc.file, *slash = file ? strrchr(file, '/') : NULL;
    *c = (tsri_flight_call){.shown = coll->number,
                            .bytes = bytes,
                            .hash = hash,
                            .line = coll->loc.line,
                            .nseg = coll->nseg,
                            .root = coll->root,
                            .kind = (uint8_t)kind,
                            .op = (uint8_t)coll->op,
                            .algo = (uint8_t)coll->algo};
    if (coll->nseg > 0) {
        c->dtype = (uint8_t)coll->seg[0].dtype;
        c->ndim = (uint8_t)coll->seg[0].shape.ndim;
        memcpy(c->shape, coll->seg[0].shape.d, sizeof c->shape);
    }
    copy_text(c->what, sizeof c->what, coll->what);
    copy_text(c->file, sizeof c->file, slash ? slash + 1 : file);
}

/* The next entry that nobody holds, held; NULL if there is none near. `calls` may lag behind what
 * other threads have taken: their entries have greater numbers than the one that it leads to. */
static tsri_flight_entry *take(tsri_flight *f, uint64_t *out_number)
{
    enum { NEAR = 64 };
    uint64_t number = atomic_load_explicit(&f->calls, memory_order_relaxed), end = number + NEAR;
    tsri_flight_entry *taken = NULL;
    while (!taken && number < end) {
        tsri_flight_entry *e = &f->entry[number++ % TSRI_FLIGHT_CALLS];
        uint64_t mark = atomic_load_explicit(&e->mark, memory_order_relaxed);
        uint64_t now = atomic_load_explicit(&f->calls, memory_order_relaxed);
        if (tsri_flight_number_of(mark) >= number) {
            if (now < number) /* the count lags */
                continue;
            number = now; /* others have gone on meanwhile */
            end = now + NEAR;
        } else if (tsri_flight_state_of(mark) != TSRI_FLIGHT_HELD &&
                   atomic_compare_exchange_strong_explicit(
                       &e->mark, &mark, tsri_flight_mark(number, TSRI_FLIGHT_HELD),
                       memory_order_acquire, memory_order_relaxed)) {
            taken = e;
        }
    }
    uint64_t counted = atomic_load_explicit(&f->calls, memory_order_relaxed);
    while (counted < number &&
           !atomic_compare_exchange_weak_explicit(&f->calls, &counted, number, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
    *out_number = number;
    return taken;
}

/* The coarse clock is behind the exact one by less; a clock that was set back by more. */
enum { COARSE_NS = 20000000 };

/* An exact time, which coarse ones that are asked for later do not lie before. */
static int64_t now_exact(tsri_flight *f)
{
    int64_t now = now_ns(CLOCK_REALTIME);
    atomic_store_explicit(&f->latest_ns, now, memory_order_relaxed);
    return now;
}

static int64_t now_coarse(const tsri_flight *f)
{
    int64_t now = now_ns(CLOCK_REALTIME_COARSE);
    int64_t latest = atomic_load_explicit(&f->latest_ns, memory_order_relaxed);
    return now > latest || latest - now > COARSE_NS ? now : latest;
}

/* started: it starts as it is asked for. */
static uint64_t record(tsri_flight *f, int group, uint64_t seq, tsri_flight_call *call,
                       bool started)
{
    uint64_t number;
    tsri_flight_entry *e = take(f, &number);
    if (!e)
        return 0;
    for (size_t i = TSRI_FLIGHT_LINE; i < sizeof *e; i += TSRI_FLIGHT_LINE)
        __builtin_prefetch((const char *)e + i, 1);
    __builtin_prefetch(&f->entry[number % TSRI_FLIGHT_CALLS], 1); /* for the next call */
    call->group = group;
    call->seq = seq;
    call->world = atomic_load_explicit(&f->world, memory_order_relaxed);
    call->asked_ns = now_coarse(f);
    atomic_store_explicit(&e->waits, 0, memory_order_release);
    atomic_store_explicit(&e->started_ns, started ? call->asked_ns : 0, memory_order_release);
    atomic_store_explicit(&e->ended_ns, 0, memory_order_release);
    put_call(e, call);
    let_go(e, number, started ? TSRI_FLIGHT_STARTED : TSRI_FLIGHT_SCHEDULED);
    return number;
}

static tsri_flight_group *group_at(tsri_flight *f, int number)
{
    return number > 0 && number <= TSRI_FLIGHT_GROUPS ? &f->group[number - 1] : NULL;
}

uint64_t tsri_flight_schedule(tsri_flight *f, int group, const tsri_coll *coll)
{
    if (!f || !group)
        return 0;
    tsri_flight_call call;
    tsri_flight_describe(&call, (int)coll->kind, coll, 0, 0);
    return record(f, group, 0, &call, false);
}

uint64_t tsri_flight_begin_described(tsri_flight *f, int group, uint64_t seq,
                                     tsri_flight_call *call, uint64_t scheduled)
{
    tsri_flight_group *g = f ? group_at(f, group) : NULL;
    int state;
    if (!g)
        return 0;
    atomic_store_explicit(&g->started, seq, memory_order_relaxed);
    tsri_flight_entry *e = hold(f, scheduled, &state);
    if (!e)
        return record(f, group, seq, call, true);
    call->group = group;
    call->seq = seq;
    call->world = atomic_load_explicit(&f->world, memory_order_relaxed);
    call->asked_ns = (int64_t)get(e, WORD_OF(asked_ns));
    put_call(e, call);
    atomic_store_explicit(&e->started_ns, now_coarse(f), memory_order_release);
    let_go(e, scheduled, TSRI_FLIGHT_STARTED);
    return scheduled;
}

uint64_t tsri_flight_begin(tsri_flight *f, int group, uint64_t seq, int kind, const tsri_coll *coll,
                           uint64_t bytes, uint64_t hash)
{
    tsri_flight_call call;
    if (!f || !group)
        return 0;
    tsri_flight_describe(&call, kind, coll, bytes, hash);
    return tsri_flight_begin_described(f, group, seq, &call, coll->flight);
}

/* The group of an entry that is held. */
static tsri_flight_group *group_of(tsri_flight *f, const tsri_flight_entry *e)
{
    const size_t at = offsetof(tsri_flight_call, group);
    uint64_t word = get(e, (int)(at / sizeof word));
    int32_t number;
    memcpy(&number, (const char *)&word + at % sizeof word, sizeof number);
    return group_at(f, number);
}

void tsri_flight_completed(tsri_flight *f, uint64_t number)
{
    int state;
    tsri_flight_entry *e = hold(f, number, &state);
    if (!e)
        return;
    tsri_flight_group *g = group_of(f, e);
    bool slept = atomic_load_explicit(&e->waits, memory_order_relaxed) != 0;
    int64_t started = atomic_load_explicit(&e->started_ns, memory_order_relaxed);
    int64_t now = slept ? now_exact(f) : now_coarse(f);
    atomic_store_explicit(&e->ended_ns, now > started ? now : started, memory_order_release);
    if (g)
        atomic_store_explicit(&g->completed, get(e, WORD_OF(seq)), memory_order_relaxed);
    let_go(e, number, TSRI_FLIGHT_COMPLETED);
}

void tsri_flight_failed(tsri_flight *f, uint64_t number)
{
    int state;
    tsri_flight_entry *e = hold(f, number, &state);
    if (!e)
        return;
    atomic_store_explicit(&e->ended_ns, now_exact(f), memory_order_release);
    let_go(e, number, TSRI_FLIGHT_FAILED);
}

void tsri_flight_refused(tsri_flight *f, uint64_t number)
{
    int state;
    tsri_flight_entry *e = hold(f, number, &state);
    if (!e)
        return;
    tsri_flight_group *g = group_of(f, e);
    uint64_t seq = get(e, WORD_OF(seq));
    if (g && seq && atomic_load_explicit(&g->started, memory_order_relaxed) == seq)
        atomic_store_explicit(&g->started, seq - 1, memory_order_relaxed);
    atomic_store_explicit(&e->started_ns, 0, memory_order_release);
    atomic_store_explicit(&e->ended_ns, now_exact(f), memory_order_release);
    let_go(e, number, TSRI_FLIGHT_FAILED);
}

void tsri_flight_waits(tsri_flight *f, uint64_t number, int rank)
{
    int state;
    tsri_flight_entry *e = hold(f, number, &state);
    if (!e)
        return;
    atomic_store_explicit(&e->waits, rank + 1, memory_order_release);
    let_go(e, number, state);
}

void tsri_flight_waited(tsri_flight *f, uint64_t number)
{
    int state;
    tsri_flight_entry *e = hold(f, number, &state);
    if (!e)
        return;
    int32_t waits = atomic_load_explicit(&e->waits, memory_order_relaxed);
    atomic_store_explicit(&e->waits, waits > 0 ? -waits : waits, memory_order_release);
    let_go(e, number, state);
}

void tsri_flight_sleeps_on(tsri_flight *f, int rank)
{
    if (!f)
        return;
    uint64_t count = atomic_load_explicit(&f->sleeps_for, memory_order_relaxed) >> 32;
    atomic_store_explicit(&f->sleeps_for, (count + 1) << 32 | (uint32_t)(rank + 1),
                          memory_order_relaxed);
}

int tsri_flight_sleeps_for(uint64_t before, uint64_t now)
{
    return before == now ? -1 : (int)(now & UINT32_MAX) - 1;
}
