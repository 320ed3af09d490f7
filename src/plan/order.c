/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values in a step: whoever declared it where, a reader of a variable gets the value that the
 * variable has when a run begins. Updates write over what they start from, so each is put behind
 * the last reader of what it overwrites. Program order is kept otherwise, and altogether where it
 * has no such reader (the usual case: one optimizer, declared last).
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
    int *latest;    /* per root: the version that its bytes hold at the point that is looked at */
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

/* --- the order -------------------------------------------------------------------------------- */
typedef struct edge {
    int to, next;
} edge;

typedef struct sorter {
    edge *edges;
    int nedges, cedges;
    int *first; /* per item: its first edge, -1 */
    int *waits; /* per item: how many it still waits for */
    int *heap;  /* items that wait for nothing; the first in program order on top */
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

static void push(sorter *s, int item)
{
    int at = s->nheap++;
    for (; at > 0 && s->heap[(at - 1) / 2] > item; at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = item;
}

static int pop(sorter *s)
{
    int top = s->heap[0], item = s->heap[--s->nheap], at = 0;
    for (int child; (child = 2 * at + 1) < s->nheap; at = child) {
        child += child + 1 < s->nheap && s->heap[child + 1] < s->heap[child];
        if (s->heap[child] > item)
            break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = item;
    return top;
}

/* A reader stands behind the version's maker, and before what writes over it. */
static tsr_status add_edges(orderer *o, sorter *s)
{
    const tsr_plan *plan = o->plan;
    int *by = tsri_pool_alloc(&o->plan->scratch, (size_t)plan->nvalues * sizeof *by);
    if (!by)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < plan->nvalues; i++)
        by[i] = -1; /* the item, a view too, that makes the value */
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

/* Puts the items in the order that is nearest to the program's. */
static tsr_status sort_items(orderer *o)
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
            push(&s, i);
    TSRI_TRY(tsri_plan_new_items(plan, nold));
    for (; s.nheap; done++) {
        int i = pop(&s);
        if (!tsri_plan_add_item(plan, &old[i], old[i].in, old[i].out))
            return TSR_ERR_NO_MEMORY;
        for (int e = s.first[i]; e >= 0; e = s.edges[e].next)
            if (!--s.waits[s.edges[e].to])
                push(&s, s.edges[e].to);
    }
    return done == nold ? TSR_OK
                        : tsri_fail(TSR_ERR_INTERNAL, "updates wait for each other's readers");
}

tsr_status tsri_plan_order(tsr_plan *plan)
{
    orderer o = {.plan = plan};
    TSRI_TRY(find_versions(&o));
    TSRI_TRY(split_shared(&o));
    for (int v = 0; v < plan->nvalues; v++)
        if (o.overwrite[v] >= 0 && o.last[v] > o.overwrite[v])
            return sort_items(&o);
    return TSR_OK;
}
