/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scheduling: the order in which things are done, and how long each value lives.
 *
 * Program order is kept. Gradients' reductions, and the gathers behind updates, are joined into
 * buckets (bucket.c); a bucket starts right behind what makes its last member's operand, in the
 * bulk lane, and is finished before the first op that reads one of its results, so that backward
 * goes on meanwhile; one that scatters gradients before the next one starts. All other collectives
 * start and finish on the spot, in the critical lane. A source may be overwritten once its call is
 * released: before the next start, when peers have long read it.
 *
 * Every rank derives this order from the same program, so it is one total order over all groups.
 */
#include <stdlib.h>
#include <string.h>

#include "src/comm/comm.h"
#include "src/plan/pass/bucket.h"

/* Buckets that have started and are not finished, at most: groups hold 64 calls. */
enum { MOST_UNDER_WAY = 48 };

typedef struct scheduler {
    tsri_ir *ir;
    int *maker;              /* per value: item; -1 */
    int *bucket_of;          /* per item: its bucket's call, -1 */
    tsri_bucket_call *calls; /* of buckets, in the order in which they start */
    int ncalls, nstarted, nfinished;
    int *done; /* items of calls that are finished, but not released */
    int ndone, cdone;
    bool queues; /* see tsri_parts_are_queued */
} scheduler;

/* --- outputs ---------------------------------------------------------------------------------- */
/* Gives each output a buffer that stays: the value's own if it has one to give, else a copy's. */
static tsr_status place_outputs(tsri_ir *ir)
{
    int kept = 0;
    for (int i = 0; i < ir->nitems; i++) {
        tsri_item it = ir->items[i];
        if (it.kind == TSRI_ITEM_OUTPUT) {
            int root = tsri_ir_root(ir, it.in[0]);
            if (ir->values[root].storage == TSRI_STORAGE_ARENA) {
                ir->values[root].storage = TSRI_STORAGE_PORT;
                ir->values[root].port = it.port;
                continue;
            }
            tsri_value v = ir->values[it.in[0]];
            v.storage = TSRI_STORAGE_PORT;
            v.port = it.port;
            v.variable = NULL;
            v.source = false;
            int copy = tsri_ir_add_value(ir, &v);
            it.kind = TSRI_ITEM_KERNEL;
            it.kernel = (tsri_item_kernel){.op = TSRI_OP_COPY};
            it.nout = 1;
            it.out = tsri_pool_dup(&ir->scratch, &copy, sizeof copy);
            if (copy < 0 || !it.out)
                return TSR_ERR_NO_MEMORY;
        }
        ir->items[kept++] = it;
    }
    ir->nitems = kept;
    return TSR_OK;
}

/* --- entries ---------------------------------------------------------------------------------- */
static tsr_status emit_for(scheduler *s, int item, tsri_phase phase, tsri_entry_side side)
{
    tsri_ir *ir = s->ir;
    TSRI_NEED(TSRI_PUSH(&ir->scratch, ir->entries, ir->nentries, ir->centries));
    ir->entries[ir->nentries++] = (tsri_entry){item, phase, side};
    return TSR_OK;
}

static tsr_status emit(scheduler *s, int item, tsri_phase phase)
{
    return emit_for(s, item, phase, TSRI_SIDE_ALL);
}

static tsr_status release_finished(scheduler *s)
{
    for (int i = 0; i < s->ndone; i++)
        TSRI_TRY(emit(s, s->done[i], TSRI_PHASE_RELEASE));
    s->ndone = 0;
    return TSR_OK;
}

static tsr_status start_call(scheduler *s, int item)
{
    TSRI_TRY(release_finished(s));
    return emit(s, item, TSRI_PHASE_START);
}

/* Whether an item writes to bytes that hold another value, which peers may still read: a
 * variable's, or an operand's. */
static bool overwrites(const tsri_ir *ir, const tsri_item *it)
{
    for (int i = 0; i < it->nout; i++) {
        tsri_storage storage = ir->values[it->out[i]].storage;
        if (storage == TSRI_STORAGE_VARIABLE || storage == TSRI_STORAGE_ALIAS)
            return true;
    }
    return false;
}

static tsr_status finish_call(scheduler *s, int item)
{
    tsri_ir *ir = s->ir;
    TSRI_NEED(TSRI_PUSH(&ir->scratch, s->done, s->ndone, s->cdone));
    s->done[s->ndone++] = item;
    return emit(s, item, TSRI_PHASE_FINISH);
}

/* Buckets finish in the order in which they started. */
static tsr_status finish_through(scheduler *s, int bucket)
{
    for (; s->nfinished <= bucket && s->nfinished < s->nstarted; s->nfinished++) {
        int item = s->calls[s->nfinished].item;
        if (overwrites(s->ir, &s->ir->items[item]))
            TSRI_TRY(release_finished(s));
        TSRI_TRY(finish_call(s, item));
    }
    return TSR_OK;
}

/* Finishes the buckets whose results an item reads. */
static tsr_status finish_operands(scheduler *s, const tsri_item *it)
{
    for (int j = 0; j < it->nin; j++) {
        int m = tsri_maker_position(s->ir, s->maker, it->in[j]);
        if (m >= 0 && s->bucket_of[m] >= 0)
            TSRI_TRY(finish_through(s, s->bucket_of[m]));
    }
    return TSR_OK;
}

/* Returns whether a bucket's operands take more memory than its results, so that it is worth being
 * finished early. */
static bool shrinks(const scheduler *s, int bucket)
{
    const tsri_item *it = &s->ir->items[s->calls[bucket].item];
    return it->box.part_of == 0 && it->box.step.kind == TSRI_BOX_REDUCE_SCATTER;
}

/* Starts the buckets whose last operand item i has made; -1: those that are there at first. One
 * bucket that scatters gradients is under way while the next one is filled: it is finished before
 * that starts, so that backward does not pile up whole gradients. */
static tsr_status start_buckets(scheduler *s, int i)
{
    for (; s->nstarted < s->ncalls && s->calls[s->nstarted].started_after <= i; s->nstarted++) {
        const int before = s->nstarted - 1;
        if (before >= 0 && shrinks(s, before) && s->calls[before].started_after < i)
            TSRI_TRY(finish_through(s, before));
        TSRI_TRY(finish_operands(s, &s->ir->items[s->calls[s->nstarted].item]));
        if (s->nstarted - s->nfinished >= MOST_UNDER_WAY)
            TSRI_TRY(finish_through(s, s->nfinished));
        TSRI_TRY(start_call(s, s->calls[s->nstarted].item));
    }
    return TSR_OK;
}

/* The executor releases the call before the copy that is sent is written again. */
static tsr_status send(scheduler *s, int i)
{
    TSRI_TRY(emit_for(s, i, TSRI_PHASE_START, TSRI_SIDE_SENDS));
    return emit_for(s, i, TSRI_PHASE_FINISH, TSRI_SIDE_SENDS);
}

static tsr_status do_item(scheduler *s, int i)
{
    tsri_ir *ir = s->ir;
    const tsri_item *it = &ir->items[i];
    if (it->kind == TSRI_ITEM_COLLECTIVE && it->box.received_in) {
        if (!s->queues)
            TSRI_TRY(send(s, i));
    } else if (it->kind == TSRI_ITEM_COLLECTIVE) {
        TSRI_TRY(start_call(s, i));
        TSRI_TRY(finish_call(s, i));
    } else if (!tsri_item_shows(it) && it->kind != TSRI_ITEM_DEAD) {
        if (overwrites(ir, it))
            TSRI_TRY(release_finished(s));
        TSRI_TRY(emit(s, i, TSRI_PHASE_DO));
    }
    return TSR_OK;
}

/* Finishes and releases all calls of a turn or segment: its calls must be over when the next task
 * starts them again. */
static tsr_status end_turn(scheduler *s)
{
    TSRI_TRY(finish_through(s, s->ncalls - 1));
    return release_finished(s);
}

/* Emits phases [first, last] of the calls by which other stages send to a segment. */
static tsr_status emit_receives(scheduler *s, int segment, tsri_phase first, tsri_phase last)
{
    for (int i = 0; i < s->ir->nitems; i++) {
        const tsri_item *it = &s->ir->items[i];
        for (int phase = (int)first; phase <= (int)last; phase++)
            if (it->kind == TSRI_ITEM_COLLECTIVE && it->box.received_in == segment + 1)
                TSRI_TRY(emit_for(s, i, (tsri_phase)phase, TSRI_SIDE_RECEIVES));
    }
    return TSR_OK;
}

/* Receives the values that other stages send to a segment. Queues make the starts earlier than the
 * task, so these come first. */
static tsr_status receive(scheduler *s, int segment)
{
    if (!s->queues)
        return emit_receives(s, segment, TSRI_PHASE_START, TSRI_PHASE_RELEASE);
    TSRI_TRY(emit_receives(s, segment, TSRI_PHASE_START, TSRI_PHASE_START));
    return emit_receives(s, segment, TSRI_PHASE_FINISH, TSRI_PHASE_RELEASE);
}

/* Sends a segment's results to other stages, in the order of the items. Queues send at its end, so
 * that all other steps of the segment are one capture. */
static tsr_status send_all(scheduler *s, int segment)
{
    for (int i = 0; i < s->ir->nitems && s->queues; i++) {
        const tsri_item *it = &s->ir->items[i];
        if (it->kind == TSRI_ITEM_COLLECTIVE && it->box.received_in && it->segment == segment)
            TSRI_TRY(send(s, i));
    }
    return TSR_OK;
}

/* Ends the turn or segment before an item, and begins the item's, where they differ. */
static tsr_status turn_to(scheduler *s, const tsri_item *before, const tsri_item *it)
{
    if (before && tsri_item_same_time(before, it))
        return TSR_OK;
    if (before)
        TSRI_TRY(end_turn(s));
    if (before && before->turn == TSRI_TURN_PARTS)
        TSRI_TRY(send_all(s, before->segment));
    return it->turn == TSRI_TURN_PARTS ? receive(s, it->segment) : TSR_OK;
}

static tsr_status make_entries(scheduler *s, int nitems)
{
    const tsri_item *before = NULL;
    TSRI_TRY(start_buckets(s, -1));
    /* A chain's items are done without anything between them. */
    for (int i = 0, end; i < nitems; i = end) {
        end = tsri_chain_end(s->ir, i);
        TSRI_TRY(turn_to(s, before, &s->ir->items[i]));
        before = &s->ir->items[i];
        for (int k = i; k < end; k++)
            TSRI_TRY(finish_operands(s, &s->ir->items[k]));
        for (int k = i; k < end; k++)
            TSRI_TRY(do_item(s, k));
        for (int k = i; k < end; k++)
            TSRI_TRY(start_buckets(s, k));
    }
    TSRI_TRY(end_turn(s));
    return before && before->turn == TSRI_TURN_PARTS ? send_all(s, before->segment) : TSR_OK;
}

/* --- lifetimes -------------------------------------------------------------------------------- */
static void live(tsri_ir *ir, int value, int entry)
{
    tsri_value *v = &ir->values[tsri_ir_root(ir, value)];
    if (v->first < 0 || entry < v->first)
        v->first = entry;
    v->last = entry > v->last ? entry : v->last;
}

bool tsri_item_in_place(const tsri_ir *ir, const tsri_item *it)
{
    const uint32_t alike =
        it->kind == TSRI_ITEM_KERNEL ? tsri_op_alike(it->kernel.op, &it->kernel.attrs) : 0;
    const tsri_value *out = &ir->values[it->out[0]];
    for (int i = 0; i < it->nin && alike; i++) {
        if (!(alike >> i & 1))
            continue;
        const tsri_value *in = &ir->values[it->in[i]];
        if (!tsr_dims_equal(in->shape, out->shape) || in->dtype != out->dtype ||
            in->nhwc != out->nhwc)
            return false;
    }
    return alike != 0;
}

bool tsri_item_writes_early(const tsri_ir *ir, const tsri_item *it)
{
    const tsri_comm *comm = ir->world->comm;
    return it->kind == TSRI_ITEM_COLLECTIVE &&
           (tsri_target_can(tsri_value_device(&ir->values[it->out[0]]), TSRI_CAN_WRITE_EARLY) ||
            (comm && comm->early));
}

static void find_lifetimes(tsri_ir *ir)
{
    for (int e = 0; e < ir->nentries; e++) {
        const tsri_item *it = &ir->items[ir->entries[e].item];
        const tsri_phase phase = ir->entries[e].phase;
        const tsri_entry_side side = ir->entries[e].side;
        for (int i = 0; i < it->nin && side != TSRI_SIDE_RECEIVES; i++)
            live(ir, it->in[i], e);
        const bool writes = side != TSRI_SIDE_SENDS &&
                            (phase != TSRI_PHASE_START || tsri_item_writes_early(ir, it));
        for (int i = 0; i < it->nout && writes; i++)
            live(ir, it->out[i], e);
    }
}

/* Extends lifetimes over all parts: of values from before the parts that the parts read, until the
 * last part ends; of totals and assembled rows, from the first part on. */
static void keep_over_parts(tsri_ir *ir)
{
    int begin, end;
    tsri_ir_parts(ir, &begin, &end);
    for (int e = begin; e < end && ir->parts > 1; e++) {
        const tsri_item *it = &ir->items[ir->entries[e].item];
        for (int i = 0; i < it->nin; i++)
            if (ir->values[tsri_ir_root(ir, it->in[i])].first < begin)
                live(ir, it->in[i], end - 1);
        for (int i = 0; i < it->nout && tsri_item_collects(it); i++) {
            live(ir, it->out[i], begin);
            live(ir, it->out[i], end - 1);
        }
    }
}

/* Gives a value copies of its own for several micro-batches, during all parts. */
static void keep_copies(tsri_ir *ir, int root, int slots, int begin, int end)
{
    tsri_value *v = &ir->values[root];
    if (v->storage != TSRI_STORAGE_ARENA)
        return;
    v->slots = slots > v->slots ? slots : v->slots;
    live(ir, root, begin);
    live(ir, root, end - 1);
}

/* Returns the number of copies of a value that queues start to receive when a task of segment
 * `from` is queued, so that no task of `user` finds a later part's. It divides the stage's number,
 * or is a multiple of that by a power of two, so that few micro-batches differ in all copies. */
static int copies_ahead(const tsri_timetable *t, int from, int user)
{
    const int kept = t->slots[t->segment[user].stage];
    int begun = 0, most = 1, slots = kept;
    for (int i = 0; i < t->ntasks; i++) {
        const tsri_task_of *task = &t->task[i];
        begun += task->segment == from;
        if (task->segment == user && begun - task->part > most)
            most = begun - task->part;
    }
    while (slots < most)
        slots *= 2;
    for (int n = most; n < kept; n++)
        if (kept % n == 0)
            return n;
    return slots;
}

/* Gives copies to the values that queues receive ahead of the tasks that use them. */
static tsr_status find_copies_ahead(tsri_ir *ir, int begin, int end)
{
    int *sent_in = tsri_pool_alloc(&ir->scratch, (size_t)ir->nvalues * sizeof *sent_in);
    TSRI_NEED(sent_in);
    memset(sent_in, -1, (size_t)ir->nvalues * sizeof *sent_in);
    for (int e = begin; e < end; e++) {
        const tsri_entry *entry = &ir->entries[e];
        const tsri_item *it = &ir->items[entry->item];
        const bool receives = entry->side == TSRI_SIDE_RECEIVES;
        const int n = receives ? it->nout : it->nin, *values = receives ? it->out : it->in;
        for (int i = 0; i < n; i++) {
            const int root = tsri_ir_root(ir, values[i]);
            if (receives)
                sent_in[root] = it->segment;
            if (sent_in[root] >= 0)
                keep_copies(
                    ir, root,
                    copies_ahead(&ir->timetable, sent_in[root], tsri_ir_entry_segment(ir, entry)),
                    begin, end);
        }
    }
    return TSR_OK;
}

/* Gives copies to the values of the parts that outlive their task: another segment uses them, or
 * another stage receives them. */
static tsr_status find_copies(tsri_ir *ir, bool queues)
{
    const tsri_timetable *t = &ir->timetable;
    int begin, end;
    if (t->nstages < 2)
        return TSR_OK;
    int *made_in = tsri_pool_alloc(&ir->scratch, (size_t)ir->nvalues * sizeof *made_in);
    TSRI_NEED(made_in);
    memset(made_in, -1, (size_t)ir->nvalues * sizeof *made_in);
    tsri_ir_parts(ir, &begin, &end);
    for (int e = begin; e < end; e++) {
        const tsri_entry *entry = &ir->entries[e];
        const tsri_item *it = &ir->items[entry->item];
        const int segment = tsri_ir_entry_segment(ir, entry);
        const int slots = t->slots[t->segment[segment].stage];
        for (int i = 0; i < it->nin && entry->side != TSRI_SIDE_RECEIVES; i++) {
            const int root = tsri_ir_root(ir, it->in[i]);
            if (made_in[root] >= 0 && (made_in[root] != segment || entry->side == TSRI_SIDE_SENDS))
                keep_copies(ir, root, slots, begin, end);
        }
        for (int i = 0; i < it->nout && entry->side != TSRI_SIDE_SENDS; i++)
            if (!tsri_item_collects(it))
                made_in[tsri_ir_root(ir, it->out[i])] = segment;
    }
    return queues ? find_copies_ahead(ir, begin, end) : TSR_OK;
}

/* Steps that lowering joins, or may join, run at the first one's time, so what one of them reads
 * must not make room for what another writes. */
static void keep_joined_apart(tsri_ir *ir)
{
    for (int e = 0, end; e < ir->nentries; e = end) {
        const tsri_item *first = &ir->items[ir->entries[e].item];
        const int chain = first->kind == TSRI_ITEM_KERNEL ? first->kernel.chain : 0;
        for (end = e + 1; end < ir->nentries && (chain || tsri_item_may_join(first)); end++) {
            const tsri_item *next = &ir->items[ir->entries[end].item];
            if (chain ? next->kind != TSRI_ITEM_KERNEL || next->kernel.chain != chain
                      : !tsri_item_may_join(next) || next->kernel.op != first->kernel.op)
                break;
        }
        for (int i = e; i < end && end > e + 1; i++) {
            const tsri_item *it = &ir->items[ir->entries[i].item];
            for (int j = 0; j < it->nin; j++)
                live(ir, it->in[j], end - 1);
            for (int j = 0; j < it->nout; j++)
                live(ir, it->out[j], e);
        }
    }
}

/* Whether a value's bytes are read by one operand of an item alone: kernels that add operands one
 * by one would read the result in the place of a later one. */
static bool reads_once(const tsri_ir *ir, const tsri_item *it, int root)
{
    int n = 0;
    for (int j = 0; j < it->nin; j++)
        n += tsri_ir_root(ir, it->in[j]) == root;
    return n == 1;
}

/* Gives element-wise results the memory of a first operand that dies there, unless the next part
 * reads that operand. */
static void share_in_place(tsri_ir *ir)
{
    int begin, end;
    tsri_ir_parts(ir, &begin, &end);
    for (int e = 0; e < ir->nentries; e++) {
        const tsri_item *it = &ir->items[ir->entries[e].item];
        if (it->kind != TSRI_ITEM_KERNEL || it->kernel.chain || !tsri_item_in_place(ir, it))
            continue;
        int root = tsri_ir_root(ir, it->in[0]);
        tsri_value *in = &ir->values[root], *out = &ir->values[it->out[0]];
        if (in->storage != TSRI_STORAGE_ARENA || out->storage != TSRI_STORAGE_ARENA ||
            in->last != e || in->slots > 1 || (it->turn == TSRI_TURN_PARTS && in->first < begin) ||
            !reads_once(ir, it, root) ||
            !tsri_layout_equal(&ir->values[it->in[0]].layout, &out->layout))
            continue;
        out->storage = TSRI_STORAGE_ALIAS;
        out->alias = root;
        in->first = out->first < in->first ? out->first : in->first; /* it has copies */
        in->last = out->last > in->last ? out->last : in->last;
        in->slots = out->slots;
    }
}

tsr_status tsri_plan_schedule(tsri_ir *ir)
{
    TSRI_TRY(place_outputs(ir));
    TSRI_TRY(tsri_plan_settle_chains(ir));
    scheduler s = {.ir = ir, .queues = tsri_parts_are_queued(ir)};
    int nitems = ir->nitems;
    s.maker = tsri_pool_alloc(&ir->scratch, (size_t)ir->nvalues * sizeof *s.maker);
    /* Merged buckets are appended: at most one per item. */
    s.bucket_of = tsri_pool_alloc(&ir->scratch, 2 * (size_t)nitems * sizeof *s.bucket_of);
    TSRI_NEED(s.maker && s.bucket_of);
    for (int i = 0; i < ir->nvalues; i++)
        s.maker[i] = -1;
    for (int i = 0; i < 2 * nitems; i++)
        s.bucket_of[i] = -1;
    for (int i = 0; i < nitems; i++)
        for (int j = 0; j < ir->items[i].nout; j++)
            s.maker[ir->items[i].out[j]] = i;
    TSRI_TRY(tsri_plan_join_buckets(ir, s.maker, s.bucket_of, &s.calls, &s.ncalls));
    TSRI_TRY(make_entries(&s, nitems));
    find_lifetimes(ir);
    keep_over_parts(ir);
    TSRI_TRY(find_copies(ir, s.queues));
    keep_joined_apart(ir);
    share_in_place(ir);
    return tsri_plan_once(ir);
}
