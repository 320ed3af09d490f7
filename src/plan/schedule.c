/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scheduling: the order in which things are done, and how long each value lives.
 *
 * Program order is kept. Gradients' reductions are joined into buckets in the order in which
 * backward makes the gradients; a bucket starts right behind its last gradient, in the bulk lane,
 * and is finished before the first optimizer that reads it, so that backward goes on meanwhile.
 * All other collectives start and finish on the spot, in the critical lane. A source may be
 * overwritten once its call is released: before the next start, when peers have long read it.
 *
 * Every rank derives this order from the same program, so it is one total order over all groups.
 */
#include <stdlib.h>
#include <string.h>

#include "src/plan/plan.h"

typedef struct call_state {
    int item, started_after; /* the item whose entry the start follows */
    bool started, finished, released;
} call_state;

typedef struct scheduler {
    tsr_plan *plan;
    int *maker;     /* per value: item; -1 */
    int *bucket_of; /* per item: its bucket's call, -1 */
    call_state *calls;
    int ncalls, ccalls;
} scheduler;

static tsr_status no_memory(void)
{
    return TSR_ERR_NO_MEMORY;
}

/* --- outputs -------------------------------------------------------------------------------------
 */
/* Gives each output a buffer that stays: the value's own if it has one to give, else a copy's. */
static tsr_status place_outputs(tsr_plan *plan)
{
    tsri_item *old = plan->items;
    int nold = plan->nitems;
    plan->items = NULL;
    plan->nitems = plan->citems = 0;
    for (int i = 0; i < nold; i++) {
        tsri_item it = old[i];
        if (it.kind == TSRI_ITEM_OUTPUT) {
            int root = tsri_plan_root(plan, it.in[0]);
            if (plan->values[root].storage == TSRI_STORAGE_ARENA) {
                plan->values[root].storage = TSRI_STORAGE_PORT;
                plan->values[root].port = it.port;
                continue;
            }
            tsri_value v = plan->values[it.in[0]];
            v.storage = TSRI_STORAGE_PORT;
            v.port = it.port;
            v.variable = NULL;
            v.source = false;
            int copy = tsri_plan_add_value(plan, &v);
            if (copy < 0)
                return no_memory();
            it.kind = TSRI_ITEM_KERNEL;
            it.op = TSRI_OP_COPY;
            it.nout = 1;
            if (!tsri_plan_add_item(plan, &it, it.in, &copy))
                return no_memory();
            continue;
        }
        if (!tsri_plan_add_item(plan, &it, it.in, it.out))
            return no_memory();
    }
    return TSR_OK;
}

/* --- buckets
 * -------------------------------------------------------------------------------------- */
typedef struct ready {
    int item, at;
} ready;

static int by_position(const void *a, const void *b)
{
    const ready *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : x->item - y->item;
}

static int maker_position(const scheduler *s, int value)
{
    /* Views make nothing: what they show does. */
    const tsr_plan *plan = s->plan;
    while (s->maker[value] >= 0 && plan->items[s->maker[value]].kind == TSRI_ITEM_VIEW)
        value = plan->items[s->maker[value]].in[0];
    return s->maker[value];
}

/* Members share one hand-shake over the farthest link of their placement. */
static void price_bucket(const tsr_plan *plan, const ready *member, int n, tsri_item *merged)
{
    const tsr_placement *p = merged->placement;
    int last = tsr_placement_rank(p, tsr_placement_nranks(p) - 1);
    int link = tsri_link_between(&plan->model, tsr_placement_rank(p, 0), last);
    double most = 0;
    merged->cost_s = 0;
    merged->step.bytes = 0;
    for (int i = 0; i < n; i++) {
        const tsri_item *it = &plan->items[member[i].item];
        merged->step.bytes += it->step.bytes;
        merged->cost_s += it->cost_s - (i ? plan->model.link[link].latency_s : 0);
        most = it->cost_s > most ? it->cost_s : most;
    }
    merged->cost_s = merged->cost_s > most ? merged->cost_s : most;
}

/* Makes one item of several bucketed conversions, appended to the items. */
static tsr_status close_bucket(scheduler *s, const ready *member, int n, int number)
{
    tsr_plan *plan = s->plan;
    int *in = tsri_pool_alloc(&plan->scratch, (size_t)n * sizeof *in);
    int *out = tsri_pool_alloc(&plan->scratch, (size_t)n * sizeof *out);
    if (!in || !out || !TSRI_PUSH(&plan->scratch, s->calls, s->ncalls, s->ccalls))
        return no_memory();
    int at = -1;
    for (int i = 0; i < n; i++) {
        tsri_item *it = &plan->items[member[i].item];
        in[i] = it->in[0];
        out[i] = it->out[0];
        s->bucket_of[member[i].item] = s->ncalls;
        at = member[i].at > at ? member[i].at : at;
        it->kind = TSRI_ITEM_DEAD;
    }
    tsri_item merged = plan->items[member[0].item];
    merged.kind = TSRI_ITEM_COLLECTIVE;
    merged.nin = merged.nout = n;
    merged.bucket = number;
    price_bucket(plan, member, n, &merged);
    const char *name = tsri_pool_printf(&plan->pool, "gradient bucket %d", number);
    merged.name = name ? name : "";
    merged.reason = "gradients for their optimizer";
    s->calls[s->ncalls++] = (call_state){.item = plan->nitems, .started_after = at};
    return tsri_plan_add_item(plan, &merged, in, out) ? TSR_OK : no_memory();
}

static bool same_bucket_kind(const tsri_item *a, const tsri_item *b)
{
    return a->placement == b->placement && a->step.kind == b->step.kind &&
           a->step.dims == b->step.dims && a->step.op == b->step.op;
}

static tsr_status make_buckets(scheduler *s, int nitems)
{
    tsr_plan *plan = s->plan;
    double mb = plan->opts.bucket_mb;
    double limit = mb < 0 ? 0 : (mb > 0 ? mb : 4) * 1048576;
    ready *list = tsri_pool_alloc(&plan->scratch, (size_t)(nitems + 1) * sizeof *list);
    ready *open = tsri_pool_alloc(&plan->scratch, (size_t)(nitems + 1) * sizeof *open);
    if (!list || !open)
        return no_memory();
    int n = 0, number = 0;
    for (int i = 0; i < nitems; i++)
        if (plan->items[i].kind == TSRI_ITEM_COLLECTIVE && plan->items[i].bucketable)
            list[n++] = (ready){i, maker_position(s, plan->items[i].in[0])};
    qsort(list, (size_t)n, sizeof *list, by_position);
    /* One open bucket at a time; another kind or placement closes it. */
    for (int i = 0; i < n;) {
        double bytes = 0;
        int m = 0;
        while (i < n && (m == 0 || (bytes < limit && m < 256 &&
                                    same_bucket_kind(&plan->items[open[0].item],
                                                     &plan->items[list[i].item])))) {
            const tsri_value *v = &plan->values[plan->items[list[i].item].in[0]];
            bytes += (double)tsr_dims_count(v->shape) * (double)tsr_dtype_size(v->dtype);
            open[m++] = list[i++];
        }
        TSRI_TRY(close_bucket(s, open, m, number++));
    }
    return TSR_OK;
}

/* --- entries
 * -------------------------------------------------------------------------------------- */
static tsr_status emit(scheduler *s, int item, tsri_phase phase)
{
    tsr_plan *plan = s->plan;
    if (!TSRI_PUSH(&plan->scratch, plan->entries, plan->nentries, plan->centries))
        return no_memory();
    plan->entries[plan->nentries++] = (tsri_entry){item, phase};
    return TSR_OK;
}

static tsr_status release_finished(scheduler *s)
{
    for (int i = 0; i < s->ncalls; i++)
        if (s->calls[i].finished && !s->calls[i].released) {
            s->calls[i].released = true;
            TSRI_TRY(emit(s, s->calls[i].item, TSRI_PHASE_RELEASE));
        }
    return TSR_OK;
}

static tsr_status start_call(scheduler *s, int call)
{
    TSRI_TRY(release_finished(s));
    s->calls[call].started = true;
    return emit(s, s->calls[call].item, TSRI_PHASE_START);
}

/* Buckets finish in the order in which they started. */
static tsr_status finish_through(scheduler *s, int call)
{
    for (int i = 0; i <= call; i++)
        if (s->calls[i].started && !s->calls[i].finished) {
            s->calls[i].finished = true;
            TSRI_TRY(emit(s, s->calls[i].item, TSRI_PHASE_FINISH));
        }
    return TSR_OK;
}

static tsr_status do_item(scheduler *s, int i, int nbuckets)
{
    tsr_plan *plan = s->plan;
    const tsri_item *it = &plan->items[i];
    for (int j = 0; j < it->nin; j++) {
        int m = maker_position(s, it->in[j]);
        if (m >= 0 && s->bucket_of[m] >= 0)
            TSRI_TRY(finish_through(s, s->bucket_of[m]));
    }
    if (it->kind == TSRI_ITEM_COLLECTIVE) {
        if (!TSRI_PUSH(&plan->scratch, s->calls, s->ncalls, s->ccalls))
            return no_memory();
        int call = s->ncalls++;
        s->calls[call] = (call_state){.item = i};
        TSRI_TRY(start_call(s, call));
        s->calls[call].finished = true;
        TSRI_TRY(emit(s, i, TSRI_PHASE_FINISH));
    } else if (it->kind != TSRI_ITEM_VIEW && it->kind != TSRI_ITEM_DEAD) {
        bool overwrites = false;
        for (int j = 0; j < it->nout; j++)
            overwrites |= plan->values[it->out[j]].storage == TSRI_STORAGE_ALIAS ||
                          plan->values[it->out[j]].storage == TSRI_STORAGE_VARIABLE;
        if (overwrites)
            TSRI_TRY(release_finished(s)); /* a peer may still read what was there */
        TSRI_TRY(emit(s, i, TSRI_PHASE_DO));
    }
    for (int b = 0; b < nbuckets; b++)
        if (s->calls[b].started_after == i && !s->calls[b].started)
            TSRI_TRY(start_call(s, b));
    return TSR_OK;
}

static tsr_status make_entries(scheduler *s, int nitems)
{
    int nbuckets = s->ncalls;
    /* Gradients that are inputs, or there from the start. */
    for (int b = 0; b < nbuckets; b++)
        if (s->calls[b].started_after < 0)
            TSRI_TRY(start_call(s, b));
    for (int i = 0; i < nitems; i++)
        TSRI_TRY(do_item(s, i, nbuckets));
    TSRI_TRY(finish_through(s, s->ncalls - 1));
    return release_finished(s);
}

/* --- lifetimes
 * ------------------------------------------------------------------------------------- */
static void live(tsr_plan *plan, int value, int entry)
{
    tsri_value *v = &plan->values[tsri_plan_root(plan, value)];
    if (v->first < 0 || entry < v->first)
        v->first = entry;
    v->last = entry > v->last ? entry : v->last;
}

bool tsri_item_in_place(const tsr_plan *plan, const tsri_item *it)
{
    switch (it->op) {
    case TSRI_OP_UNARY:
    case TSRI_OP_UNARY_GRAD:
    case TSRI_OP_SCALE:
    case TSRI_OP_BINARY:
    case TSRI_OP_ADD_N:
    case TSRI_OP_DROPOUT:
    case TSRI_OP_CAUSAL_MASK:
        break;
    default:
        return false;
    }
    const tsri_value *out = &plan->values[it->out[0]];
    for (int i = 0; i < it->nin && it->op != TSRI_OP_DROPOUT; i++) {
        const tsri_value *in = &plan->values[it->in[i]];
        if (!tsr_dims_equal(in->shape, out->shape) || in->dtype != out->dtype ||
            in->nhwc != out->nhwc)
            return false;
    }
    return true;
}

/* Whether a call may write its results before it is finished: see tsri_coll.stream. */
static bool writes_early(const tsr_plan *plan, const tsri_item *it)
{
    return it->kind == TSRI_ITEM_COLLECTIVE &&
           tsri_value_device(&plan->values[it->out[0]]) != TSR_DEVICE_CPU;
}

static void find_lifetimes(tsr_plan *plan)
{
    for (int e = 0; e < plan->nentries; e++) {
        const tsri_item *it = &plan->items[plan->entries[e].item];
        tsri_phase phase = plan->entries[e].phase;
        for (int i = 0; i < it->nin; i++)
            live(plan, it->in[i], e);
        bool writes = phase != TSRI_PHASE_START || writes_early(plan, it);
        for (int i = 0; i < it->nout && writes; i++)
            live(plan, it->out[i], e);
    }
}

static bool may_be_joined(const tsr_plan *plan, int entry)
{
    return tsri_item_may_join(&plan->items[plan->entries[entry].item]);
}

/* Steps that lowering may join run at the first one's time, so what one of them reads must not make
 * room for what another writes. */
static void keep_joined_apart(tsr_plan *plan)
{
    for (int e = 0, end; e < plan->nentries; e = end) {
        tsri_op_kind op = plan->items[plan->entries[e].item].op;
        for (end = e + 1; end < plan->nentries && may_be_joined(plan, e) &&
                          may_be_joined(plan, end) &&
                          plan->items[plan->entries[end].item].op == op;)
            end++;
        for (int i = e; i < end && end > e + 1; i++) {
            const tsri_item *it = &plan->items[plan->entries[i].item];
            for (int j = 0; j < it->nin; j++)
                live(plan, it->in[j], end - 1);
            for (int j = 0; j < it->nout; j++)
                live(plan, it->out[j], e);
        }
    }
}

/* Whether a value's bytes are read by one operand of an item alone: kernels that add operands one
 * by one would read the result in the place of a later one. */
static bool reads_once(const tsr_plan *plan, const tsri_item *it, int root)
{
    int n = 0;
    for (int j = 0; j < it->nin; j++)
        n += tsri_plan_root(plan, it->in[j]) == root;
    return n == 1;
}

/* Element-wise results take the place of a first operand that dies there. */
static void share_in_place(tsr_plan *plan)
{
    for (int e = 0; e < plan->nentries; e++) {
        const tsri_item *it = &plan->items[plan->entries[e].item];
        if (it->kind != TSRI_ITEM_KERNEL || !tsri_item_in_place(plan, it))
            continue;
        int root = tsri_plan_root(plan, it->in[0]);
        tsri_value *in = &plan->values[root], *out = &plan->values[it->out[0]];
        if (in->storage != TSRI_STORAGE_ARENA || out->storage != TSRI_STORAGE_ARENA ||
            in->last != e || !reads_once(plan, it, root) ||
            !tsri_layout_equal(&plan->values[it->in[0]].layout, &out->layout))
            continue;
        out->storage = TSRI_STORAGE_ALIAS;
        out->alias = root;
        in->last = out->last > in->last ? out->last : in->last;
    }
}

tsr_status tsri_plan_schedule(tsr_plan *plan)
{
    TSRI_TRY(place_outputs(plan));
    scheduler s = {.plan = plan};
    int nitems = plan->nitems;
    s.maker = tsri_pool_alloc(&plan->scratch, (size_t)(plan->nvalues + 1) * sizeof *s.maker);
    /* Merged buckets are appended: at most one per item. */
    s.bucket_of = tsri_pool_alloc(&plan->scratch, (size_t)(2 * nitems + 1) * sizeof *s.bucket_of);
    if (!s.maker || !s.bucket_of)
        return no_memory();
    for (int i = 0; i < plan->nvalues; i++)
        s.maker[i] = -1;
    for (int i = 0; i < 2 * nitems; i++)
        s.bucket_of[i] = -1;
    for (int i = 0; i < nitems; i++)
        for (int j = 0; j < plan->items[i].nout; j++)
            s.maker[plan->items[i].out[j]] = i;
    TSRI_TRY(make_buckets(&s, nitems));
    TSRI_TRY(make_entries(&s, nitems));
    find_lifetimes(plan);
    keep_joined_apart(plan);
    share_in_place(plan);
    return TSR_OK;
}
