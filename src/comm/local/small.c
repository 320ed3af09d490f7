/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All_reduces of a few KiB, and barriers, which are those of no bytes. A rank shows its data, the
 * fingerprint of the task and, in one store behind them, its number, before it puts all that on
 * record; a peer that finds them reads nothing else of it. Where they do not come soon, or
 * fingerprints differ, records are compared as at other tasks, which waits, fails and says why.
 *
 * A rank that comes to a task is done with all earlier ones. So two slots are enough for nobody to
 * wait before a slot is written again, and there is no hand-shake at the end. Only where an earlier
 * world of this rank has left something in a slot, a peer may still be about to read it.
 */
#include "src/comm/local/task.h"

#include <string.h>

bool tsri_task_is_small(const tsri_task *t)
{
    return t->kind == TSRI_TASK_BARRIER ||
           (t->kind == TSRI_TASK_ALL_REDUCE &&
            t->count * (int64_t)tsr_dtype_size(t->dtype) <= TSRI_SMALL_BYTES);
}

static bool is_said(const tsri_small_said *said, const tsri_task *t)
{
    return said->count == t->count && said->dtype == t->dtype && said->op == t->op &&
           said->loc.file == t->loc.file && said->loc.line == t->loc.line &&
           said->call.what[0] == t->label[0] && !strcmp(said->call.what, t->label) && said->print;
}

/* Finds words for the task: those of the last one, if it was like this. */
static tsri_small_said *say(tsri_local_group *g, const tsri_task *t)
{
    tsri_small_said *said = &g->said[t->kind == TSRI_TASK_BARRIER];
    if (!is_said(said, t)) {
        const tsri_segment seg = tsri_task_segment(g->pub.nranks, t);
        const tsri_coll coll = tsri_task_coll(t, &seg);
        said->loc = t->loc;
        said->count = t->count;
        said->dtype = t->dtype;
        said->op = t->op;
        tsri_call_fill(&said->call, &coll, 0, coll.nseg);
        tsri_flight_describe(&said->flight, said->call.kind, &coll, said->call.bytes,
                             said->call.hash);
        said->print = tsri_call_print(&said->call) | 1;
    }
    said->call.number = said->flight.shown = t->number;
    return said;
}

static uint64_t record(tsri_local_group *g, const tsri_task *t, tsri_small_said *said, uint64_t seq)
{
    g->stats.calls[said->call.kind]++;
    return g->flight[seq % TSRI_CALL_RING] =
               tsri_flight_begin_described(g->local->pub.world->flight, g->pub.flight,
                                           tsri_seq_count(seq), &said->flight, t->flight);
}

/* Where a slot has that many bytes: with the number, or in lines of their own. */
static char *data_of(tsri_small *s, size_t bytes)
{
    return bytes <= sizeof s->few ? s->few : s->many;
}

/* Whether all members come soon, and to this task. */
static bool all_come(tsri_local_group *g, const tsri_task *t, uint64_t seq, uint64_t print)
{
    const size_t bytes = (size_t)t->count * tsr_dtype_size(t->dtype);
    bool come = true;
    for (int m = 0; m < g->pub.nranks; m++) {
        tsri_small *theirs = &g->members[m].small[seq % TSRI_SMALL_SLOTS];
        g->src[m] = m == g->pub.index ? t->src : data_of(theirs, bytes);
        if (m == g->pub.index)
            continue;
        come = come && tsri_local_comes_soon(g, m, TSRI_WAIT_SMALL, seq) && theirs->print == print;
        tsri_prefetch(g->src[m], bytes);
    }
    return come;
}

static tsr_status show_and_meet(tsri_local_group *g, const tsri_task *t, tsri_small_said *said,
                                uint64_t *out_flight)
{
    const uint64_t seq = g->started + 1;
    tsri_small *mine = &g->mine->small[seq % TSRI_SMALL_SLOTS];
    const uint64_t before = atomic_load_explicit(&mine->seq, memory_order_relaxed);
    const size_t bytes = (size_t)t->count * tsr_dtype_size(t->dtype);
    tsri_call_entry *on_record;
    if (before > g->passed) {
        *out_flight = record(g, t, said, seq);
        said->call.seq = seq;
        TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_DONE, before, &said->call));
    }
    mine->print = said->print;
    if (bytes)
        memcpy(data_of(mine, bytes), t->src, bytes);
    atomic_store_explicit(&mine->seq, seq, memory_order_release);
    if (before <= g->passed)
        *out_flight = record(g, t, said, seq);
    TSRI_TRY(tsri_call_enter(g, &said->call, &on_record));
    atomic_store_explicit(&g->mine->published, seq, memory_order_release);
    if (all_come(g, t, seq, said->print))
        return TSR_OK;
    tsri_local_advance(g->mine, TSRI_WAIT_PUBLISHED, seq);
    return tsri_call_meet_early(g, seq);
}

tsr_status tsri_small_task(tsri_local_group *g, const tsri_task *t)
{
    tsr_world *world = g->local->pub.world;
    uint64_t flight = 0, before = g->started;
    tsr_status status = show_and_meet(g, t, say(g, t), &flight);
    if (status == TSR_OK) {
        const int n = g->pub.nranks;
        g->passed = before;
        if (t->count)
            tsri_reduce_of(t->dtype, t->op)(t->dst, g->src, 0, n, t->count);
        g->stats.bytes_read[TSRI_COLL_ALL_REDUCE] +=
            (uint64_t)t->count * tsr_dtype_size(t->dtype) * (uint64_t)(n - 1);
        tsri_call_done(g, g->started);
        status = tsri_call_check_fault(g, g->started);
    }
    if (status != TSR_OK) {
        g->finished = before;
        return tsri_flight_fail(world, flight, status);
    }
    g->finished = g->started;
    tsri_flight_completed(world->flight, flight);
    return TSR_OK;
}
