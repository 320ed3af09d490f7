/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values in a step: wherever it was declared, a reader of a variable gets the value that the
 * variable has when a run begins. Updates write over what they start from, so each is put behind
 * the last reader of what it overwrites. Program order is kept otherwise, and altogether where it
 * has no such reader (the usual case: one optimizer, declared last), but for updates among
 * themselves: an optimizer's follow the buckets in which their gradients come, so that the first
 * bucket's results are used up before the last one is waited for.
 *
 * What a value's bytes hold at a time is a *version*: it is named by the value whose item wrote it
 * (views show their operand's version). Bytes have several versions only where an item writes over
 * an operand (tsri_op_over), or where a result is stored in a variable that the graph reads.
 */
#include <stdlib.h>
#include <string.h>

#include "src/plan/plan.h"

typedef struct orderer {
    tsr_plan *plan;
    int *version;   /* per value: the value that names what it shows */
    int *latest;    /* per root: the version that its bytes hold at the current item */
    int *maker;     /* per version: the item that writes it; -1: there when a run begins */
    int *overwrite; /* per version: the item that writes over it; -1 */
    int *last;      /* per version: its last reader's position; an output reads until the end */
} orderer;

static bool is_view(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_VIEW;
}

/* Whether an item writes value v of its results into bytes that hold another value. */
static bool overwrites(const tsr_plan *plan, const tsri_item *it, int v)
{
    return !is_view(it) && plan->values[v].storage == TSRI_STORAGE_ALIAS;
}

/* Names the versions that the item at `position` writes. */
static void note_results(orderer *o, int position)
{
    const tsr_plan *plan = o->plan;
    const tsri_item *it = &plan->items[position];
    for (int j = 0; j < it->nout; j++) {
        int v = it->out[j], root = tsri_plan_root(plan, v);
        if (is_view(it)) {
            o->version[v] = o->version[it->in[0]];
            continue;
        }
        o->version[v] = v;
        o->maker[v] = position;
        if (overwrites(plan, it, v))
            o->overwrite[o->latest[root]] = position;
        o->latest[root] = v;
    }
}

/* Names versions as if updates wrote nothing until all is read. */
static tsr_status find_versions(orderer *o)
{
    tsr_plan *plan = o->plan;
    size_t n = (size_t)plan->nvalues;
    int *all = tsri_pool_alloc(&plan->scratch, 5 * n * sizeof *all);
    if (!all)
        return TSR_ERR_NO_MEMORY;
    o->version = all;
    o->latest = all + n;
    o->maker = all + 2 * n;
    o->overwrite = all + 3 * n;
    o->last = all + 4 * n;
    for (int v = 0; v < plan->nvalues; v++) {
        o->version[v] = o->latest[v] = v;
        o->maker[v] = o->overwrite[v] = o->last[v] = -1;
    }
    for (int i = 0; i < plan->nitems; i++) {
        const tsri_item *it = &plan->items[i];
        if (it->kind == TSRI_ITEM_DEAD)
            continue;
        for (int j = 0; j < it->nin; j++)
            o->last[o->version[it->in[j]]] = it->kind == TSRI_ITEM_OUTPUT ? plan->nitems : i;
        note_results(o, i);
    }
    return TSR_OK;
}

/* --- updates of copies ------------------------------------------------------------------------ */
/* Whether an item would write over operand `value`, which others have still to read and which is
 * not a variable's own: a boxed copy that serves a reader too. */
static bool needs_copy(const orderer *o, int position, int value)
{
    const tsri_value *root = &o->plan->values[tsri_plan_root(o->plan, value)];
    return root->storage != TSRI_STORAGE_VARIABLE && o->last[o->version[value]] > position;
}

/* Gives updates whose operand others read a copy of their own. */
static tsr_status split_shared(orderer *o)
{
    tsr_plan *plan = o->plan;
    tsri_item *old = plan->items;
    int nold = plan->nitems;
    bool any = false;
    for (int i = 0; i < nold && !any; i++)
        for (int j = 0; j < old[i].nout && old[i].kind == TSRI_ITEM_KERNEL; j++) {
            int over = tsri_op_over(old[i].op, j);
            any |= over >= 0 && needs_copy(o, i, old[i].in[over]);
        }
    if (!any)
        return TSR_OK;
    TSRI_TRY(tsri_plan_new_items(plan, nold));
    for (int i = 0; i < nold; i++) {
        tsri_item it = old[i];
        for (int j = 0; j < it.nout && it.kind == TSRI_ITEM_KERNEL; j++) {
            int over = tsri_op_over(it.op, j);
            if (over < 0 || !needs_copy(o, i, it.in[over]))
                continue;
            int copy = tsri_plan_add_copy(plan, &it, it.in[over], plan->values[it.in[over]].nhwc);
            if (copy < 0)
                return TSR_ERR_NO_MEMORY;
            it.in[over] = copy;
            plan->values[it.out[j]].alias = copy;
        }
        if (!tsri_plan_add_item(plan, &it, it.in, it.out))
            return TSR_ERR_NO_MEMORY;
    }
    return find_versions(o);
}

/* --- the order of updates --------------------------------------------------------------------- */
typedef struct update {
    int bucket_end; /* the item that makes the last operand of the gradient's bucket; -1 */
    int item;
} update;

static int by_bucket(const void *a, const void *b)
{
    const update *x = a, *y = b;
    return x->bucket_end != y->bucket_end ? (x->bucket_end > y->bucket_end ? 1 : -1)
                                          : (x->item > y->item) - (x->item < y->item);
}

/* Returns the bucket whose gradient an item converts, counted from 1; 0: it converts none. */
static int bucket_of(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_COLLECTIVE && it->part_of == 0 ? it->part.number : 0;
}

/* Whether an item is an update on host memory, or the conversion of a gradient for one. On a device
 * all updates are one launch. */
static bool may_exchange(const tsri_item *it)
{
    return bucket_of(it) || (tsri_item_is_update(it) && !tsri_item_may_join(it));
}

static update update_of(const orderer *o, int item, const int *bucket_end)
{
    const tsri_item *it = &o->plan->items[item];
    int b = bucket_of(it), end = b ? bucket_end[b] : -1;
    for (int j = 0; j < it->nin && !b; j++) {
        int maker = o->maker[o->version[it->in[j]]];
        int from = maker < 0 ? 0 : bucket_of(&o->plan->items[maker]);
        end = from && bucket_end[from] > end ? bucket_end[from] : end;
    }
    return (update){end, item};
}

/* Sets item_at[place], and place[item]: updates, and the conversions of their gradients, exchange
 * their places; all else keeps its own. */
static tsr_status exchange_updates(orderer *o, int *item_at, int *place, bool *out_any)
{
    const tsr_plan *plan = o->plan;
    size_t n = (size_t)plan->nitems;
    int nupdates = 0;
    update *updates = tsri_pool_alloc(&o->plan->scratch, n * sizeof *updates);
    /* Per bucket, numbered from 1 on. */
    int *bucket_end = tsri_pool_alloc(&o->plan->scratch, (n + 1) * sizeof *bucket_end);
    if (!updates || !bucket_end)
        return TSR_ERR_NO_MEMORY;
    memset(bucket_end, -1, (n + 1) * sizeof *bucket_end);
    for (int i = 0; i < plan->nitems; i++) {
        int b = bucket_of(&plan->items[i]);
        int made = b ? o->maker[o->version[plan->items[i].in[0]]] : -1;
        if (made > bucket_end[b])
            bucket_end[b] = made;
    }
    for (int i = 0; i < plan->nitems; i++)
        if (may_exchange(&plan->items[i]))
            updates[nupdates++] = update_of(o, i, bucket_end);
    qsort(updates, (size_t)nupdates, sizeof *updates, by_bucket);
    *out_any = false;
    for (int i = 0, k = 0; i < plan->nitems; i++) {
        item_at[i] = may_exchange(&plan->items[i]) ? updates[k++].item : i;
        place[item_at[i]] = i;
        *out_any |= item_at[i] != i;
    }
    return TSR_OK;
}

/* --- the order -------------------------------------------------------------------------------- */
typedef struct edge {
    int to, next;
} edge;

typedef struct sorter {
    edge *edges;
    int nedges, cedges;
    int *first; /* per item: its first edge, -1 */
    int *waits; /* per item: how many it still waits for */
    int *heap;  /* places of items that wait for nothing; the first on top */
    int nheap;
} sorter;

static tsr_status add_edge(orderer *o, sorter *s, int from, int to)
{
    if (from < 0 || to < 0 || from == to)
        return TSR_OK;
    if (!TSRI_PUSH(&o->plan->scratch, s->edges, s->nedges, s->cedges))
        return TSR_ERR_NO_MEMORY;
    s->edges[s->nedges] = (edge){to, s->first[from]};
    s->first[from] = s->nedges++;
    s->waits[to]++;
    return TSR_OK;
}

static void push(sorter *s, int place)
{
    int at = s->nheap++;
    for (; at > 0 && s->heap[(at - 1) / 2] > place; at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = place;
}

static int pop(sorter *s)
{
    int top = s->heap[0], place = s->heap[--s->nheap], at = 0;
    for (int child; (child = 2 * at + 1) < s->nheap; at = child) {
        child += child + 1 < s->nheap && s->heap[child + 1] < s->heap[child];
        if (s->heap[child] > place)
            break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = place;
    return top;
}

/* Adds the edges that keep values right: a reader comes after the item that makes the version it
 * reads, and before the item that writes over that version. */
static tsr_status add_edges(orderer *o, sorter *s)
{
    const tsr_plan *plan = o->plan;
    int *by = tsri_pool_alloc(&o->plan->scratch, (size_t)plan->nvalues * sizeof *by);
    if (!by)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < plan->nvalues; i++)
        by[i] = -1; /* the item that makes the value, which may be a view */
    for (int i = 0; i < plan->nitems; i++) {
        const tsri_item *it = &plan->items[i];
        if (it->kind == TSRI_ITEM_DEAD)
            continue;
        for (int j = 0; j < it->nin; j++) {
            TSRI_TRY(add_edge(o, s, by[it->in[j]], i));
            TSRI_TRY(add_edge(o, s, i, o->overwrite[o->version[it->in[j]]]));
        }
        for (int j = 0; j < it->nout; j++) {
            by[it->out[j]] = i;
            TSRI_TRY(add_edge(o, s, i, is_view(it) ? -1 : o->overwrite[it->out[j]]));
        }
    }
    return TSR_OK;
}

/* Puts the items in the order that is nearest to that of their places. */
static tsr_status sort_items(orderer *o, const int *item_at, const int *place)
{
    tsr_plan *plan = o->plan;
    tsri_item *old = plan->items;
    int nold = plan->nitems, done = 0;
    size_t n = (size_t)nold;
    sorter s = {.first = tsri_pool_alloc(&plan->scratch, n * sizeof *s.first),
                .waits = tsri_pool_alloc(&plan->scratch, n * sizeof *s.waits),
                .heap = tsri_pool_alloc(&plan->scratch, n * sizeof *s.heap)};
    if (!s.first || !s.waits || !s.heap)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < nold; i++)
        s.first[i] = -1;
    TSRI_TRY(add_edges(o, &s));
    for (int i = 0; i < nold; i++)
        if (!s.waits[i])
            push(&s, place[i]);
    TSRI_TRY(tsri_plan_new_items(plan, nold));
    for (; s.nheap; done++) {
        int i = item_at[pop(&s)];
        if (!tsri_plan_add_item(plan, &old[i], old[i].in, old[i].out))
            return TSR_ERR_NO_MEMORY;
        for (int e = s.first[i]; e >= 0; e = s.edges[e].next)
            if (!--s.waits[s.edges[e].to])
                push(&s, place[s.edges[e].to]);
    }
    return done == nold ? TSR_OK
                        : tsri_fail(TSR_ERR_INTERNAL, "updates wait for each other's readers");
}

tsr_status tsri_plan_order(tsr_plan *plan)
{
    orderer o = {.plan = plan};
    bool any;
    TSRI_TRY(find_versions(&o));
    TSRI_TRY(split_shared(&o));
    size_t n = (size_t)plan->nitems;
    int *item_at = tsri_pool_alloc(&plan->scratch, n * sizeof *item_at);
    int *place = tsri_pool_alloc(&plan->scratch, n * sizeof *place);
    if (!item_at || !place)
        return TSR_ERR_NO_MEMORY;
    TSRI_TRY(exchange_updates(&o, item_at, place, &any));
    for (int v = 0; v < plan->nvalues && !any; v++)
        any = o.overwrite[v] >= 0 && o.last[v] > o.overwrite[v];
    return any ? sort_items(&o, item_at, place) : TSR_OK;
}
