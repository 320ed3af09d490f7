/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks on the local communicator: how they begin and end, and all_reduce. */
#include "src/comm/flight/flight.h"
#include "src/comm/local/task.h"

#include <stdio.h>
#include <string.h>

/*
 * Up to TSRI_SMALL_BYTES everybody reads everything, in one hand-shake. Beyond, each rank reduces
 * its part of everybody's data and writes the result into all: then a line goes from core to core
 * but once, with the right to write it, where fetching the others' results into lines that they
 * have read takes two more ways. Data that can be read and written where it is need not be copied.
 */

/* --- all_reduce ------------------------------------------------------------------------------- */

static char *data_of(const tsri_flow *f, int64_t at)
{
    return f->task->dst + (size_t)at * f->size;
}

static void count_read(tsri_flow *f, int64_t elements)
{
    f->g->stats.bytes_read[TSRI_COLL_ALL_REDUCE] += (uint64_t)elements * f->size;
}

/* A chunk of `length` elements from `at` on; member m has those from part(m) to part(m + 1). */
typedef struct chunk {
    uint64_t seq;
    int64_t at, length, part;
    char *base; /* what peers read, and write: the data, or the slot */
} chunk;

static int64_t part_at(const chunk *c, int m)
{
    int64_t at = m * c->part;
    return at < c->length ? at : c->length;
}

/* Shows what is to be reduced. */
static tsr_status open_chunk(tsri_flow *f, chunk *c)
{
    size_t from = (size_t)part_at(c, f->g->pub.index) * f->size;
    size_t to = (size_t)part_at(c, f->g->pub.index + 1) * f->size;
    char *data = data_of(f, c->at);
    tsri_seg_place *place;
    c->base = data;
    if (!f->direct) {
        TSRI_TRY(tsri_flow_slot(f, f->g->started + 1, &c->base));
        tsri_copy_stream(c->base, data, from);
        tsri_copy_stream(c->base + to, data + to, (size_t)c->length * f->size - to);
        tsri_stream_end();
    }
    TSRI_TRY(tsri_flow_enter(f, 1, &c->seq, &place));
    place->src = tsri_flow_offset(f, c->base);
    return tsri_flow_show(f, c->seq);
}

/* Reduces this rank's part of everybody's data, and writes the result to all. */
static void write_part(tsri_flow *f, const chunk *c)
{
    enum { BLOCK = 4096 };
    tsri_local_group *g = f->g;
    tsri_reduce_fn *fn = tsri_reduce_of(f->task->dtype, f->task->op);
    int n = g->pub.nranks, me = g->pub.index;
    int64_t begin = part_at(c, me), end = part_at(c, me + 1), per = BLOCK / (int64_t)f->size;
    for (int m = 0; m < n; m++)
        g->src[m] = m == me ? data_of(f, c->at) : tsri_flow_peer(f, m, c->seq, 1, 0);
    for (int64_t from = begin; from < end; from += per) {
        int64_t to = from + per < end ? from + per : end, next = to + per < end ? to + per : end;
        size_t offset = (size_t)from * f->size, bytes = (size_t)(to - from) * f->size;
        char *mine = data_of(f, c->at) + offset;
        for (int m = 0; m < n && next > to; m++)
            if (m != me)
                tsri_prefetch_to_write(g->src[m] + (size_t)to * f->size,
                                       (size_t)(next - to) * f->size);
        fn(mine, g->src, from, n, to - from);
        for (int m = 0; m < n; m++)
            if (m != me)
                tsri_copy((char *)(uintptr_t)g->src[m] + offset, mine, bytes);
    }
    count_read(f, (end - begin) * (n - 1));
}

/* A rank that has given up must find its memory as it left it. So this rank first says that it
 * writes, and then looks for a fault; who fails first leaves a fault, and then looks for who writes
 * (`fail`).
 */
static tsr_status reduce_chunk(tsri_flow *f, const chunk *c)
{
    tsri_local_group *g = f->g;
    TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_PUBLISHED, c->seq, &f->call));
    atomic_store(&g->mine->writing, c->seq);
    tsr_status status = tsri_call_check_fault(g, c->seq);
    if (status == TSR_OK)
        write_part(f, c);
    atomic_store_explicit(&g->mine->writing, 0, memory_order_release);
    if (status == TSR_OK)
        tsri_local_advance(g->mine, TSRI_WAIT_PHASE1, c->seq);
    return status;
}

/* All have written. */
static tsr_status close_chunk(tsri_flow *f, const chunk *c)
{
    tsri_local_group *g = f->g;
    size_t from = (size_t)part_at(c, g->pub.index) * f->size;
    size_t to = (size_t)part_at(c, g->pub.index + 1) * f->size;
    char *data = data_of(f, c->at);
    TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_PHASE1, c->seq, &f->call));
    if (!f->direct) {
        tsri_copy(data, c->base, from);
        tsri_copy(data + to, c->base + to, (size_t)c->length * f->size - to);
    }
    tsri_call_done(g, c->seq);
    return TSR_OK;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static tsr_status two_phase(tsri_flow *f)
{
    enum { OPEN = 4 };
    int64_t count = f->task->count, line = TSRI_LINE / (int64_t)f->size;
    int64_t length = (int64_t)(f->slot / f->size), chunks = (count + length - 1) / length;
    chunk open[OPEN];
    for (int64_t i = 0; i < chunks + 2; i++) {
        if (i < chunks) {
            chunk *c = &open[i % OPEN];
            c->at = i * length;
            c->length = count - c->at < length ? count - c->at : length;
            c->part = round_up((c->length + f->g->pub.nranks - 1) / f->g->pub.nranks, line);
            TSRI_TRY(open_chunk(f, c));
        }
        if (i >= 1 && i - 1 < chunks)
            TSRI_TRY(reduce_chunk(f, &open[(i - 1) % OPEN]));
        if (i >= 2)
            TSRI_TRY(close_chunk(f, &open[(i - 2) % OPEN]));
    }
    return TSR_OK;
}

/* --- all -------------------------------------------------------------------------------------- */

/* The first step's record, in the flight recorder too. */
static void fill_call(tsri_flow *f, const tsri_task *t)
{
    const tsri_segment seg = tsri_task_segment(f->g->pub.nranks, t);
    const tsri_coll coll = tsri_task_coll(t, &seg);
    tsri_call_fill(&f->call, &coll, 0, coll.nseg);
    f->g->stats.calls[coll.kind < TSRI_COLL_KIND_COUNT_ ? coll.kind : TSRI_COLL_BROADCAST]++;
    f->flight = tsri_call_record(f->g, &coll, &f->call, f->first);
    f->call.seq = f->first; /* where it waits before it is shown */
}

static tsr_status run(tsri_flow *f)
{
    const tsri_task *t = f->task;
    fill_call(f, t);
    if (t->kind == TSRI_TASK_ALL_TO_ALL)
        return tsri_flow_all_to_all(f);
    return t->kind == TSRI_TASK_ALL_REDUCE ? two_phase(f) : tsri_flow_move(f);
}

/* An error that ends the group ends it for members that are still at this task. The caller may do
 * with its data what it likes, once no peer writes there any more. */
static tsr_status fail(tsri_flow *f, tsr_status status)
{
    tsri_local_group *g = f->g;
    g->finished = f->first - 1;
    if (f->direct && f->task->kind == TSRI_TASK_ALL_REDUCE) {
        char text[4096];
        snprintf(text, sizeof text, "%s", tsr_last_error());
        tsri_local_poison(&g->pub, status, text);
        tsri_local_await_writers(g, f->first);
        tsri_fail(status, "%s", text);
    }
    return tsri_flight_fail(g->local->pub.world, f->flight, status);
}

tsr_status tsri_local_task(tsri_group *pub, tsri_task *task)
{
    tsri_local_group *g = pub->priv;
    tsr_world *world = g->local->pub.world;
    tsr_status status = tsri_local_check_abort(g->local);
    if (status == TSR_OK)
        status = tsri_call_check_fault(g, g->started + 1);
    if (status != TSR_OK) /* the recorder may know it from when it was asked for */
        return tsri_flight_fail_start(world, task->flight, status);
    if (tsri_task_is_small(task))
        return tsri_small_task(g, task);
    tsri_flow f = {.g = g,
                   .task = task,
                   .size = tsr_dtype_size(task->dtype),
                   .slot = tsri_flow_slot_bytes(g),
                   .first = g->started + 1,
                   .src = task->src};
    size_t bytes = (size_t)tsri_task_src_count(g->pub.nranks, g->pub.index, task) * f.size;
    if (task->scratch[0].p) {
        tsri_copy(task->scratch[0].p, task->src, bytes);
        f.src = task->scratch[0].p;
    }
    f.direct = bytes && tsri_region_has(g->local->region, f.src, bytes);
    status = run(&f);
    /* A peer that gave up may have changed what was read since. */
    if (status == TSR_OK)
        status = tsri_call_check_fault(g, g->started);
    if (status != TSR_OK)
        return fail(&f, status);
    g->finished = g->started;
    tsri_flight_completed(world->flight, f.flight);
    return TSR_OK;
}
