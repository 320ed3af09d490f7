/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of buckets: conversions that may wait and were dealt to one bucket when signatures were
 * chosen become one call, where one collective over the same groups of ranks does them all. So a
 * bucket whose gradients are reduced in several ways becomes several calls, all open at a time. A
 * call starts once its last member's operand is made, so no member may be made only after another
 * one's result is read: such a member opens a call of its own. A member may convert what another
 * call has converted (a gradient that clipping wants scattered, and the update whole): its call
 * starts behind the other one's end.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "src/plan/pass/bucket.h"

typedef struct waiting {
    int item, made, first_read; /* positions of items: what makes its operand, and reads its result
                                 */
} waiting;

typedef struct open_call {
    int first, last; /* members: linked through `next` */
    int n, first_read;
    int other; /* another call of its bucket, -1 */
    int started_after;
} open_call;

typedef struct joiner {
    tsri_ir *ir;
    const int *maker;
    int *first_read; /* per value */
    waiting *list;
    int *next; /* of the list: the next member of its call, -1 */
    int nlist;
    open_call *open;
    int nopen, copen;
    int *of_bucket; /* [nitems + 2] by a bucket's number: its last call, -1 */
} joiner;

int tsri_maker_position(const tsri_ir *ir, const int *maker, int value)
{
    while (maker[value] >= 0 && tsri_item_shows(&ir->items[maker[value]]))
        value = ir->items[maker[value]].in[0];
    return maker[value];
}

static int by_position(const void *a, const void *b)
{
    const waiting *x = a, *y = b;
    return x->made != y->made ? (x->made > y->made) - (x->made < y->made) : x->item - y->item;
}

static bool same_call(const tsri_item *a, const tsri_item *b)
{
    const tsri_item_box *x = &a->box, *y = &b->box;
    return x->part.number == y->part.number && x->part_of == y->part_of &&
           a->placement == b->placement && a->only_if == b->only_if && x->from == y->from &&
           x->step.kind == y->step.kind && x->step.dims == y->step.dims &&
           x->step.op == y->step.op && x->step.crosses == y->step.crosses &&
           x->step.on_dst == y->step.on_dst;
}

/* Which item reads each value first; readers of a view read what it shows. */
static void find_first_reads(joiner *j, int nitems)
{
    const tsri_ir *ir = j->ir;
    for (int i = 0; i < ir->nvalues; i++)
        j->first_read[i] = INT_MAX;
    for (int i = nitems; i-- > 0;)
        for (int k = 0; k < ir->items[i].nin; k++) {
            int v = ir->items[i].in[k];
            int at = tsri_item_shows(&ir->items[i]) ? j->first_read[ir->items[i].out[0]] : i;
            j->first_read[v] = at < j->first_read[v] ? at : j->first_read[v];
        }
}

/* The position of the producer of a conversion's operand; -1: it has none. */
static int producer_of(const joiner *j, int item)
{
    return tsri_maker_position(j->ir, j->maker, j->ir->items[item].in[0]);
}

/* From where on an item can start: behind what makes its operand. An item that stores into a
 * variable stays behind the readers of what the variable had, and so behind its place among the
 * items. */
static int ready_at(const joiner *j, int item)
{
    const tsri_item *it = &j->ir->items[item];
    const int made = producer_of(j, item);
    return it->box.part_of > 0 && item > made ? item : made;
}

static tsr_status list_waiting(joiner *j, int nitems)
{
    tsri_ir *ir = j->ir;
    j->first_read = tsri_pool_alloc(&ir->scratch, (size_t)ir->nvalues * sizeof *j->first_read);
    j->list = tsri_pool_alloc(&ir->scratch, (size_t)nitems * sizeof *j->list);
    j->next = tsri_pool_alloc(&ir->scratch, (size_t)nitems * sizeof *j->next);
    j->of_bucket = tsri_pool_alloc(&ir->scratch, (size_t)(nitems + 1) * sizeof *j->of_bucket);
    TSRI_NEED(j->first_read && j->list && j->next && j->of_bucket);
    memset(j->of_bucket, -1, (size_t)(nitems + 1) * sizeof *j->of_bucket);
    find_first_reads(j, nitems);
    for (int i = 0; i < nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->kind == TSRI_ITEM_COLLECTIVE && it->box.part.number)
            j->list[j->nlist++] = (waiting){i, ready_at(j, i), j->first_read[it->out[0]]};
    }
    qsort(j->list, (size_t)j->nlist, sizeof *j->list, by_position);
    return TSR_OK;
}

/* Returns whether a call makes the operand of an item. */
static bool makes_operand(const joiner *j, const open_call *call, int item)
{
    const int made = producer_of(j, item);
    for (int i = call->first; i >= 0; i = j->next[i])
        if (j->list[i].item == made)
            return true;
    return false;
}

/* Adds member i to the open call that it fits, or opens one. */
static tsr_status add_member(joiner *j, int i)
{
    tsri_ir *ir = j->ir;
    const tsri_item *it = &ir->items[j->list[i].item];
    j->next[i] = -1;
    int *last_call = &j->of_bucket[it->box.part.number];
    for (int c = *last_call; c >= 0; c = j->open[c].other) {
        open_call *call = &j->open[c];
        const tsri_item *other = &ir->items[j->list[call->first].item];
        if (!same_call(it, other) || call->first_read < j->list[i].made ||
            makes_operand(j, call, j->list[i].item))
            continue;
        j->next[call->last] = i;
        call->last = i;
        call->n++;
        if (j->list[i].first_read < call->first_read)
            call->first_read = j->list[i].first_read;
        return TSR_OK;
    }
    TSRI_NEED(TSRI_PUSH(&ir->scratch, j->open, j->nopen, j->copen));
    j->open[j->nopen] = (open_call){i, i, 1, j->list[i].first_read, *last_call, -1};
    *last_call = j->nopen++;
    return TSR_OK;
}

/* Makes one item of a call's members, appended to the items. */
static tsr_status join_members(joiner *j, const open_call *call, int number, int *bucket_of)
{
    tsri_ir *ir = j->ir;
    size_t n = (size_t)call->n;
    int *in = tsri_pool_alloc(&ir->scratch, n * sizeof *in);
    int *out = tsri_pool_alloc(&ir->scratch, n * sizeof *out);
    tsri_joint *joint = tsri_pool_alloc(&ir->scratch, n * sizeof *joint);
    TSRI_NEED(in && out && joint);
    for (int i = call->first, k = 0; i >= 0; i = j->next[i], k++) {
        tsri_item *it = &ir->items[j->list[i].item];
        in[k] = it->in[0];
        out[k] = it->out[0];
        joint[k] = it->box.joint;
        bucket_of[j->list[i].item] = number;
        it->kind = TSRI_ITEM_DEAD;
    }
    /* All members share the fields that same_call compares. A bucket has its first member's
     * position, but with micro-batches it starts after the last part. */
    const tsri_item *first = &ir->items[j->list[call->first].item];
    bool gathers = first->box.part_of > 0, two_phase;
    double seconds = tsri_joint_price(joint, call->n, 1, &two_phase), bytes = 0;
    for (int k = 0; k < call->n; k++)
        bytes += joint[k].bytes[two_phase];
    tsri_item_box box = {.step = first->box.step,
                         .from = first->box.from,
                         .reason = gathers ? "variables keep their signatures"
                                           : "gradients for their optimizer",
                         .part_of = first->box.part_of,
                         .is_bucket = true};
    box.step.two_phase = two_phase;
    box.step.cost_s = seconds;
    box.step.bytes = (int64_t)bytes;
    const tsri_item bucket = {.kind = TSRI_ITEM_COLLECTIVE,
                              .nin = call->n,
                              .nout = call->n,
                              .placement = first->placement,
                              .name = tsri_pool_printf(&ir->program, "%s bucket %d",
                                                       gathers ? "update" : "gradient", number),
                              .loc = first->loc,
                              .backward = first->backward,
                              .turn = tsri_ir_last_turn(ir),
                              .cost_s = seconds / (double)tsri_item_every(first),
                              .only_if = first->only_if,
                              .every = first->every,
                              .box = box};
    TSRI_NEED(bucket.name);
    return tsri_ir_add_item(ir, &bucket, in, out) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* By where they can start; of two at one place the one whose members are made first. */
static int by_start(const void *a, const void *b)
{
    const open_call *x = a, *y = b;
    if (x->started_after != y->started_after)
        return x->started_after > y->started_after ? 1 : -1;
    return (x->last > y->last) - (x->last < y->last);
}

/* Updates the item after which a call can start, and start[], by member: the same, or -1 if the
 * call was given up. Returns whether it has changed. */
static bool find_start(const joiner *j, open_call *call, int before, int *start)
{
    const int was = call->n ? start[j->list[call->first].item] : -1;
    int at = j->list[call->last].made;
    if (!call->n)
        return false;
    at = at < before ? before : at;
    for (int i = call->first; i >= 0; i = j->next[i]) {
        const int made = producer_of(j, j->list[i].item);
        if (made >= 0 && start[made] > at)
            at = start[made];
    }
    call->started_after = at;
    if (at >= call->first_read)
        call->n = 0;
    for (int i = call->first; i >= 0; i = j->next[i])
        start[j->list[i].item] = call->n ? at : -1;
    return was != (call->n ? at : -1);
}

/* Gives up calls that would start before a call that makes an operand of a member. */
static void drop_early(joiner *j, bool *is_placed, int *call_of)
{
    for (int c = 0; c < j->nopen; c++)
        for (int i = j->open[c].first; i >= 0; i = j->next[i])
            call_of[j->list[i].item] = c;
    for (int c = 0; c < j->nopen; c++) {
        open_call *call = &j->open[c];
        for (int i = call->first; i >= 0 && call->n; i = j->next[i]) {
            const int made = producer_of(j, j->list[i].item);
            if (made >= 0 && call_of[made] >= 0 && !is_placed[call_of[made]] &&
                j->open[call_of[made]].n)
                call->n = 0;
        }
        is_placed[c] = true;
    }
}

/* Drops the calls without members. */
static void keep_calls(joiner *j)
{
    int n = 0;
    for (int i = 0; i < j->nopen; i++)
        if (j->open[i].n)
            j->open[n++] = j->open[i];
    j->nopen = n;
}

/* Finds the item after which each call can start: the producer of its last member's operand, no
 * item of an earlier turn, and not before another call that produces a member's operand. If that
 * is too late for a consumer of the call, its members stay separate conversions. */
static tsr_status find_starts(joiner *j, int nitems)
{
    int *start = tsri_pool_alloc(&j->ir->scratch, ((size_t)nitems + 1) * sizeof *start);
    TSRI_NEED(start);
    memset(start, -1, ((size_t)nitems + 1) * sizeof *start);
    int before = -1; /* the last item of an earlier turn */
    for (int i = 0; i < nitems; i++)
        before = j->ir->items[i].turn != tsri_ir_last_turn(j->ir) ? i : before;
    /* A call may depend on one that is listed after it, so one round may not be enough. */
    for (bool changed = true; changed;) {
        changed = false;
        for (int c = 0; c < j->nopen; c++)
            changed |= find_start(j, &j->open[c], before, start);
    }
    return TSR_OK;
}

tsr_status tsri_plan_join_buckets(tsri_ir *ir, const int *maker, int *bucket_of,
                                  tsri_bucket_call **out_calls, int *out_n)
{
    joiner j = {.ir = ir, .maker = maker};
    TSRI_TRY(list_waiting(&j, ir->nitems));
    for (int i = 0; i < j.nlist; i++)
        TSRI_TRY(add_member(&j, i));
    TSRI_TRY(find_starts(&j, ir->nitems));
    keep_calls(&j);
    if (j.nopen)
        qsort(j.open, (size_t)j.nopen, sizeof *j.open, by_start);
    bool *is_placed = tsri_pool_alloc(&ir->scratch, (size_t)j.nopen);
    int *call_of = tsri_pool_alloc(&ir->scratch, (size_t)ir->nitems * sizeof *call_of);
    TSRI_NEED(is_placed && call_of);
    memset(call_of, -1, (size_t)ir->nitems * sizeof *call_of);
    drop_early(&j, is_placed, call_of);
    keep_calls(&j);
    tsri_bucket_call *calls = tsri_pool_alloc(&ir->scratch, (size_t)j.nopen * sizeof *calls);
    TSRI_NEED(calls);
    for (int i = 0; i < j.nopen; i++) {
        calls[i] = (tsri_bucket_call){ir->nitems, j.open[i].started_after};
        TSRI_TRY(join_members(&j, &j.open[i], i, bucket_of));
    }
    *out_calls = calls;
    *out_n = j.nopen;
    return TSR_OK;
}
