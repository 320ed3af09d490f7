/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a plan's items. A reader of a variable gets the value that the variable has when a
 * run begins, wherever the program declares the reader and the update. An update writes over its
 * operand, so it is put behind the last reader of what it overwrites. Apart from that, items keep
 * the order of the program. In the usual program, with one optimizer that is declared last, no
 * update has to wait, and no item moves for this reason.
 *
 * Updates on host memory do not keep their order among themselves: they follow the buckets in which
 * their gradients come, so that the updates from the first bucket run, and their results are
 * gathered, before the last bucket is waited for.
 *
 * A reader may have to come behind the update whose variable it reads as it was: it reads the new
 * value too, or what is made of it; or two updates read each other's variables. It then reads a
 * copy.
 *
 * A *version* is what a value's bytes hold at a time. It is named by the value whose item wrote it;
 * a view shows its operand's version. Bytes have several versions only where an item writes over an
 * operand (tsri_op_over), or where a result is stored in a variable that the graph reads.
 */
#include <stdlib.h>
#include <string.h>

#include "src/core/heap.h"
#include "src/plan/pass/pass.h"

typedef struct orderer {
    tsri_ir *ir;
    /* Items are told by their positions in the plan. */
    int *version;     /* per value: the version that it shows */
    int *latest;      /* per root: the version that its bytes hold at the current item */
    int *maker;       /* per version: the item that writes it; -1: it is there when a run begins */
    int *overwrite;   /* per version: the item that writes over it; -1: none */
    int *last_reader; /* per version: an item, the number of items for an output, or -1: none */
} orderer;

/* Returns whether an item writes its result v into bytes that hold another value. */
static bool overwrites(const tsri_ir *ir, const tsri_item *it, int v)
{
    return !tsri_item_shows(it) && ir->values[v].storage == TSRI_STORAGE_ALIAS;
}

/* Notes the versions that the item at `position` writes, and those that it writes over. */
static void note_results(orderer *o, int position)
{
    const tsri_ir *ir = o->ir;
    const tsri_item *it = &ir->items[position];
    for (int j = 0; j < it->nout; j++) {
        int v = it->out[j], root = tsri_ir_root(ir, v);
        if (tsri_item_shows(it)) {
            o->version[v] = o->version[it->in[0]];
            continue;
        }
        o->version[v] = v;
        o->maker[v] = position;
        if (overwrites(ir, it, v))
            o->overwrite[o->latest[root]] = position;
        o->latest[root] = v;
    }
}

/* Fills the tables of `o` from the plan's items. A value has one version for good, so an item that
 * reads a variable counts as a reader of the variable's first version, even behind the update. */
static tsr_status find_versions(orderer *o)
{
    tsri_ir *ir = o->ir;
    size_t n = (size_t)ir->nvalues;
    int *all = tsri_pool_alloc(&ir->scratch, 5 * n * sizeof *all);
    TSRI_NEED(all);
    o->version = all;
    o->latest = all + n;
    o->maker = all + 2 * n;
    o->overwrite = all + 3 * n;
    o->last_reader = all + 4 * n;
    for (int v = 0; v < ir->nvalues; v++) {
        o->version[v] = o->latest[v] = v;
        o->maker[v] = o->overwrite[v] = o->last_reader[v] = -1;
    }
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->kind == TSRI_ITEM_DEAD)
            continue;
        for (int j = 0; j < it->nin; j++)
            o->last_reader[o->version[it->in[j]]] = it->kind == TSRI_ITEM_OUTPUT ? ir->nitems : i;
        note_results(o, i);
    }
    return TSR_OK;
}

/* --- copies for updates ----------------------------------------------------------------------- */
/* Returns whether the update at `position` has to write over a copy of its operand `value`: a later
 * item reads that value, which is not the variable's own memory but its conversion to another
 * signature. */
static bool needs_copy(const orderer *o, int position, int value)
{
    const tsri_value *root = &o->ir->values[tsri_ir_root(o->ir, value)];
    return root->storage != TSRI_STORAGE_VARIABLE && o->last_reader[o->version[value]] > position;
}

/* Gives each update that needs one a copy of its operand to write over. */
static tsr_status copy_shared_operands(orderer *o)
{
    tsri_ir *ir = o->ir;
    tsri_item *old = ir->items;
    int nold = ir->nitems;
    bool copies = false;
    for (int i = 0; i < nold && !copies; i++)
        for (int j = 0; j < old[i].nout && old[i].kind == TSRI_ITEM_KERNEL; j++) {
            int over = tsri_op_over(old[i].kernel.op, j);
            copies |= over >= 0 && needs_copy(o, i, old[i].in[over]);
        }
    if (!copies)
        return TSR_OK;
    TSRI_TRY(tsri_ir_new_items(ir, nold));
    for (int i = 0; i < nold; i++) {
        tsri_item it = old[i];
        for (int j = 0; j < it.nout && it.kind == TSRI_ITEM_KERNEL; j++) {
            int over = tsri_op_over(it.kernel.op, j);
            if (over < 0 || !needs_copy(o, i, it.in[over]))
                continue;
            int copy = tsri_plan_add_copy(ir, &it, it.in[over], ir->values[it.in[over]].nhwc);
            if (copy < 0)
                return TSR_ERR_NO_MEMORY;
            it.in[over] = copy;
            ir->values[it.out[j]].alias = copy;
        }
        TSRI_NEED(tsri_ir_add_item(ir, &it, it.in, it.out));
    }
    return find_versions(o);
}

/* --- the order of updates --------------------------------------------------------------------- */
/* An item that may exchange its place with others: an update, a conversion of its gradient or of
 * its results in a bucket, or what hands it an operand without communication. */
typedef struct update {
    int bucket_end; /* the item that makes the last gradient of its bucket; -1: no bucket */
    int item;
} update;

/* Compares updates for qsort: by bucket, then in the program's order. */
static int compare_updates(const void *a, const void *b)
{
    const update *x = a, *y = b;
    if (x->bucket_end != y->bucket_end)
        return x->bucket_end > y->bucket_end ? 1 : -1;
    return (x->item > y->item) - (x->item < y->item);
}

/* Returns the bucket whose gradient an item converts, counted from 1; 0: it converts none. */
static int bucket_of(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_COLLECTIVE && it->box.part_of == 0 ? it->box.part.number : 0;
}

/* Returns whether an item is an update on host memory, or converts its gradient or a result in a
 * bucket. Updates on a device stay where they are: lowering joins them into one launch. With
 * micro-batches all updates are in TAIL, and an item of another turn does not leave it. */
static bool may_exchange(const tsri_ir *ir, const tsri_item *it)
{
    const bool waits = it->kind == TSRI_ITEM_COLLECTIVE && it->box.part.number > 0;
    if (it->turn != tsri_ir_last_turn(ir))
        return false;
    return waits
               ? it->box.part_of == 0 || !tsri_placement_can(it->placement, TSRI_CAN_JOIN_LAUNCHES)
               : tsri_item_is_update(it) && !tsri_item_may_join(it);
}

/* Returns whether an item hands its operand on without communication. */
static bool hands_on(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_VIEW || it->kind == TSRI_ITEM_RELABEL ||
           it->kind == TSRI_ITEM_LOCAL_BOX;
}

/* Marks in `exchanges` the items that exchange places. An item that hands something on does so if
 * such items alone read it; where it stands before all of them, it is a part of the step before the
 * updates, and stays. */
static tsr_status mark_exchanging(const orderer *o, bool *exchanges)
{
    const tsri_ir *ir = o->ir;
    int first = 0;
    /* Per value: whether an item that stays reads it. */
    bool *is_read = tsri_pool_alloc(&o->ir->scratch, (size_t)ir->nvalues);
    TSRI_NEED(is_read);
    while (first < ir->nitems && !may_exchange(ir, &ir->items[first]))
        first++;
    for (int i = ir->nitems; i-- > first;) {
        const tsri_item *it = &ir->items[i];
        exchanges[i] =
            may_exchange(ir, it) || (hands_on(it) && !is_read[it->out[0]] &&
                                     ir->values[it->out[0]].storage != TSRI_STORAGE_VARIABLE);
        for (int j = 0; j < it->nin && !exchanges[i]; j++)
            is_read[it->in[j]] = true;
    }
    return TSR_OK;
}

/* Sets end[i], of items that exchange places, to the end of the bucket that they wait for: their
 * own; or the one, of those that their operands come from, which ends last. An item that hands on
 * something else has the end of its first reader. */
static tsr_status find_ends(const orderer *o, const bool *exchanges, const int *bucket_end,
                            int *end)
{
    const tsri_ir *ir = o->ir;
    int *made_by = tsri_pool_alloc(&o->ir->scratch, (size_t)ir->nvalues * sizeof *made_by);
    TSRI_NEED(made_by);
    memset(made_by, -1, (size_t)ir->nvalues * sizeof *made_by);
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        const int own = bucket_of(it);
        end[i] = own ? bucket_end[own] : -1;
        for (int j = 0; j < it->nin && exchanges[i] && !own; j++) {
            const int maker = made_by[it->in[j]];
            if (maker >= 0 && exchanges[maker] && end[maker] > end[i])
                end[i] = end[maker];
        }
        for (int j = 0; j < it->nout; j++)
            made_by[it->out[j]] = i;
    }
    for (int i = ir->nitems; i-- > 0;)
        for (int j = 0; j < ir->items[i].nin && exchanges[i]; j++) {
            const int maker = made_by[ir->items[i].in[j]];
            if (maker >= 0 && exchanges[maker] && hands_on(&ir->items[maker]) &&
                (end[maker] < 0 || end[maker] > end[i]))
                end[maker] = end[i];
        }
    return TSR_OK;
}

/* Gives each item a place in the order: sets item_at[place], its inverse place[item], and *out_any
 * to whether an item changes its place. Updates, and the conversions of their operands and results,
 * exchange places among themselves; all other items keep theirs. */
static tsr_status exchange_updates(orderer *o, int *item_at, int *place, bool *out_any)
{
    const tsri_ir *ir = o->ir;
    size_t n = (size_t)ir->nitems;
    int nupdates = 0;
    update *updates = tsri_pool_alloc(&o->ir->scratch, n * sizeof *updates);
    bool *exchanges = tsri_pool_alloc(&o->ir->scratch, n * sizeof *exchanges);
    int *end = tsri_pool_alloc(&o->ir->scratch, n * sizeof *end);
    /* By number of the bucket, from 1 on. */
    int *bucket_end = tsri_pool_alloc(&o->ir->scratch, (n + 1) * sizeof *bucket_end);
    TSRI_NEED(updates && exchanges && end && bucket_end);
    memset(bucket_end, -1, (n + 1) * sizeof *bucket_end);
    for (int i = 0; i < ir->nitems; i++) {
        int b = bucket_of(&ir->items[i]);
        int maker = b ? o->maker[o->version[ir->items[i].in[0]]] : -1;
        if (maker > bucket_end[b])
            bucket_end[b] = maker;
    }
    TSRI_TRY(mark_exchanging(o, exchanges));
    TSRI_TRY(find_ends(o, exchanges, bucket_end, end));
    for (int i = 0; i < ir->nitems; i++)
        if (exchanges[i])
            updates[nupdates++] = (update){end[i], i};
    qsort(updates, (size_t)nupdates, sizeof *updates, compare_updates);
    *out_any = false;
    for (int i = 0, k = 0; i < ir->nitems; i++) {
        item_at[i] = exchanges[i] ? updates[k++].item : i;
        place[item_at[i]] = i;
        *out_any |= item_at[i] != i;
    }
    return TSR_OK;
}

/* --- the order -------------------------------------------------------------------------------- */
/* An item comes before the item `to`. `next` is the next edge of the same item, or -1. */
typedef struct edge {
    int to, next;
} edge;

typedef struct sorter {
    edge *edges;
    int nedges, cedges;
    int *first;      /* per item: its first edge; -1: none */
    int *waits;      /* per item: how many items it still waits for */
    tsri_heap ready; /* places of the items that wait for nothing; keys are equal, so the
                      * least place is on top */
} sorter;

/* Puts item `from` before item `to`. Nothing happens where either is -1. */
static tsr_status add_edge(orderer *o, sorter *s, int from, int to)
{
    if (from < 0 || to < 0 || from == to)
        return TSR_OK;
    TSRI_NEED(TSRI_PUSH(&o->ir->scratch, s->edges, s->nedges, s->cedges));
    s->edges[s->nedges] = (edge){to, s->first[from]};
    s->first[from] = s->nedges++;
    s->waits[to]++;
    return TSR_OK;
}

/* Adds the edges that keep values right: a reader comes after the item that makes the version it
 * reads, and before the item that writes over that version. */
static tsr_status add_edges(orderer *o, sorter *s)
{
    const tsri_ir *ir = o->ir;
    /* Per value: the item that makes it, which may be a view; -1: none. */
    int *made_by = tsri_pool_alloc(&o->ir->scratch, (size_t)ir->nvalues * sizeof *made_by);
    TSRI_NEED(made_by);
    for (int i = 0; i < ir->nvalues; i++)
        made_by[i] = -1;
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->kind == TSRI_ITEM_DEAD)
            continue;
        for (int j = 0; j < it->nin; j++) {
            TSRI_TRY(add_edge(o, s, made_by[it->in[j]], i));
            TSRI_TRY(add_edge(o, s, i, o->overwrite[o->version[it->in[j]]]));
        }
        for (int j = 0; j < it->nout; j++) {
            made_by[it->out[j]] = i;
            TSRI_TRY(add_edge(o, s, i, tsri_item_shows(it) ? -1 : o->overwrite[it->out[j]]));
        }
    }
    return TSR_OK;
}

/* Puts the items into an order that all edges allow: the next item is always the one with the least
 * place among those that wait for nothing. Sets *out_done to how many have one; the plan's items
 * stay as they are where that is not all, and done[i] tells which. */
static tsr_status sort_items(orderer *o, const int *item_at, const int *place, bool *done,
                             int *out_done)
{
    tsri_ir *ir = o->ir;
    tsri_item *old = ir->items;
    int nold = ir->nitems, cold = ir->citems;
    *out_done = 0;
    size_t n = (size_t)nold;
    sorter s = {.first = tsri_pool_alloc(&ir->scratch, n * sizeof *s.first),
                .waits = tsri_pool_alloc(&ir->scratch, n * sizeof *s.waits)};
    double *equal = tsri_pool_alloc(&ir->scratch, n * sizeof *equal);
    TSRI_NEED(s.first && s.waits && equal);
    TSRI_TRY(tsri_heap_init(&s.ready, &ir->scratch, nold, equal));
    for (int i = 0; i < nold; i++)
        s.first[i] = -1;
    TSRI_TRY(add_edges(o, &s));
    for (int i = 0; i < nold; i++)
        if (!s.waits[i])
            tsri_heap_put(&s.ready, place[i]);
    TSRI_TRY(tsri_ir_new_items(ir, nold));
    for (; s.ready.n; ++*out_done) {
        int i = item_at[s.ready.item[0]];
        done[i] = true;
        tsri_heap_take(&s.ready, place[i]);
        TSRI_NEED(tsri_ir_add_item(ir, &old[i], old[i].in, old[i].out));
        for (int e = s.first[i]; e >= 0; e = s.edges[e].next)
            if (!--s.waits[s.edges[e].to])
                tsri_heap_put(&s.ready, place[s.edges[e].to]);
    }
    if (*out_done == nold)
        return TSR_OK;
    ir->items = old;
    ir->nitems = nold;
    ir->citems = cold;
    return TSR_OK;
}

/* --- readers that can't come first ------------------------------------------------------------ */
/* Returns an item without a place whose operands have all been made, so that it waits for readers
 * of what it writes over alone. There is one: operands come from items before their reader. */
static int find_blocked(const orderer *o, const bool *done)
{
    const tsri_ir *ir = o->ir;
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        bool made = !done[i] && it->kind != TSRI_ITEM_DEAD;
        for (int j = 0; j < it->nin && made; j++) {
            const int maker = o->maker[o->version[it->in[j]]];
            made = maker < 0 || done[maker];
        }
        if (made)
            for (int j = 0; j < it->nout; j++)
                if (overwrites(ir, it, it->out[j]))
                    return i;
    }
    return -1;
}

/* Gives those readers of what an item writes over that have no place yet copies, as they wait for
 * the item itself: they read the variable's value before and behind its update, or two updates read
 * each other's variables. */
static tsr_status copy_for_readers(orderer *o, int blocked, const bool *done)
{
    tsri_ir *ir = o->ir;
    tsri_item *old = ir->items;
    const int nold = ir->nitems, nvalues = ir->nvalues;
    int *copies = tsri_pool_alloc(&ir->scratch, (size_t)nvalues * sizeof *copies);
    TSRI_NEED(copies);
    memset(copies, -1, (size_t)nvalues * sizeof *copies);
    TSRI_TRY(tsri_ir_new_items(ir, nold));
    for (int i = 0; i < nold; i++) {
        tsri_item it = old[i];
        for (int j = 0; j < it.nin && !done[i] && i != blocked && it.kind != TSRI_ITEM_DEAD; j++) {
            const int value = it.in[j];
            if (o->overwrite[o->version[value]] != blocked)
                continue;
            if (copies[value] < 0)
                copies[value] = tsri_plan_add_copy(ir, &it, value, ir->values[value].nhwc);
            if (copies[value] < 0)
                return TSR_ERR_NO_MEMORY;
            it.in[j] = copies[value];
            for (int k = 0; k < it.nout && j == 0 && tsri_item_shows(&it); k++)
                ir->values[it.out[k]].alias = copies[value];
        }
        TSRI_NEED(tsri_ir_add_item(ir, &it, it.in, it.out));
    }
    return find_versions(o);
}

/* Orders the items once; *out_done becomes whether all have a place. Where they don't, some readers
 * have copies now. */
static tsr_status order_once(orderer *o, bool *out_done)
{
    tsri_ir *ir = o->ir;
    const size_t n = (size_t)ir->nitems;
    int *item_at = tsri_pool_alloc(&ir->scratch, n * sizeof *item_at);
    int *place = tsri_pool_alloc(&ir->scratch, n * sizeof *place), ndone = 0;
    bool *done = tsri_pool_alloc(&ir->scratch, n * sizeof *done), moves; /* some item has to */
    TSRI_NEED(item_at && place && done);
    TSRI_TRY(exchange_updates(o, item_at, place, &moves));
    for (int v = 0; v < ir->nvalues && !moves; v++)
        moves = o->overwrite[v] >= 0 && o->last_reader[v] > o->overwrite[v];
    *out_done = true;
    if (!moves)
        return TSR_OK;
    TSRI_TRY(sort_items(o, item_at, place, done, &ndone));
    *out_done = ndone == (int)n;
    if (*out_done)
        return TSR_OK;
    const int blocked = find_blocked(o, done);
    return blocked >= 0 ? copy_for_readers(o, blocked, done)
                        : tsri_fail(TSR_ERR_INTERNAL, "updates wait for each other's readers");
}

tsr_status tsri_plan_order(tsri_ir *ir)
{
    orderer o = {.ir = ir};
    TSRI_TRY(find_versions(&o));
    TSRI_TRY(copy_shared_operands(&o));
    for (bool done = false; !done;)
        TSRI_TRY(order_once(&o, &done));
    return TSR_OK;
}
