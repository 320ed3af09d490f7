/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants of a plan after each pass, worked out anew from items, entries and offsets, so
 * that a pass and this file would have to err alike. It is for finding faults of ours: a plan that
 * fails here is TSR_ERR_INTERNAL, and never runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/rng.h"
#include "src/plan/pass/pass.h"

typedef struct checker {
    tsri_ir *ir;
    tsri_pool *pool;
    tsri_pass after;
    int *maker;   /* per value: the item that makes it, a view too; -1 */
    int *version; /* per value: the value whose writing made the bytes that it shows */
    int *holds;   /* per root: the version that its bytes hold now */
    int *peers;   /* per root: calls under way that peers read it by */
    bool *made;   /* per value: its bytes have been written */
    int *segment; /* per root: the segment of the parts that wrote it */
    int parts_begin, parts_end; /* the entries of micro-batches; empty without them */
    uint8_t *phase;             /* [3 sides] per item: how far its entries have come */
} checker;

enum { PHASE_NONE = 0, PHASE_STARTED, PHASE_FINISHED, PHASE_RELEASED };

const char *tsri_pass_name(tsri_pass pass)
{
    static const char *const names[] = {
        [TSRI_PASS_BUILD] = "build",     [TSRI_PASS_FUSE] = "fuse",
        [TSRI_PASS_RESHARD] = "reshard", [TSRI_PASS_LAYOUT] = "layout",
        [TSRI_PASS_CHAIN] = "chain",     [TSRI_PASS_DEFER] = "defer",
        [TSRI_PASS_ORDER] = "order",     [TSRI_PASS_UPDATE] = "update",
        [TSRI_PASS_STAGES] = "stages",   [TSRI_PASS_SCHEDULE] = "schedule",
        [TSRI_PASS_MEMORY] = "memory"};
    return names[pass];
}

static const char *item_name(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_COLLECTIVE  ? "collective"
           : it->kind == TSRI_ITEM_LOCAL_BOX ? "local box"
           : it->kind == TSRI_ITEM_RELABEL   ? "relabel"
           : it->kind == TSRI_ITEM_OUTPUT    ? "output"
                                             : tsri_op_title(it->kernel.op, &it->kernel.attrs);
}

static tsr_status fault(const checker *c, int item, const char *what, int value)
{
    const tsri_item *it = &c->ir->items[item];
    return tsri_fail(TSR_ERR_INTERNAL,
                     "the plan is wrong after the pass '%s': item %d, %s %s (%s:%d): %s, value %d "
                     "(%s)",
                     tsri_pass_name(c->after), item, item_name(it), it->name ? it->name : "",
                     tsri_basename(it->loc.file), it->loc.line, what, value,
                     value >= 0 && c->ir->values[value].name ? c->ir->values[value].name : "");
}

static tsr_status start_check(checker *c)
{
    tsri_ir *ir = c->ir;
    size_t n = (size_t)ir->nvalues;
    int *all = tsri_pool_alloc(c->pool, 5 * n * sizeof *all);
    c->made = tsri_pool_alloc(c->pool, n);
    c->phase = tsri_pool_alloc(c->pool, 3 * (size_t)ir->nitems);
    TSRI_NEED(all && c->made && c->phase);
    c->maker = all;
    c->version = all + n;
    c->holds = all + 2 * n;
    c->peers = all + 3 * n;
    c->segment = all + 4 * n;
    for (int v = 0; v < ir->nvalues; v++) {
        c->maker[v] = -1;
        c->version[v] = c->holds[v] = v;
        c->peers[v] = 0;
    }
    return TSR_OK;
}

/* --- items, one by one ------------------------------------------------------------------------ */
static bool same_place(const tsri_value *a, const tsri_value *b)
{
    return a->placement == b->placement && tsri_layout_equal(&a->layout, &b->layout);
}

/* Checks what a result that shows or takes over an operand's bytes has in common with it. */
static tsr_status check_alias(const checker *c, int item, int out, int in)
{
    const tsri_value *a = &c->ir->values[in], *b = &c->ir->values[out];
    if (b->storage != TSRI_STORAGE_ALIAS || b->alias != in)
        return fault(c, item, "a result does not lie on its operand", out);
    if (tsr_dims_count(a->shape) != tsr_dims_count(b->shape) ||
        tsr_dtype_size(a->dtype) != tsr_dtype_size(b->dtype) || a->bytes != b->bytes)
        return fault(c, item, "a result has another size than the operand that it lies on", out);
    return TSR_OK;
}

static tsr_status check_conversion(const checker *c, int item)
{
    const tsri_item *it = &c->ir->items[item];
    if (it->box.ranks)
        return TSR_OK; /* between the graphs of several ranks: each has its own values */
    for (int j = 0; j < it->nin; j++) {
        const tsri_value *from = &c->ir->values[it->in[j]], *to = &c->ir->values[it->out[j]];
        if (!tsr_dims_equal(from->shape, to->shape) || from->dtype != to->dtype)
            return fault(c, item, "the ends differ in shape or dtype", it->out[j]);
        if (from->placement != it->box.from || to->placement != it->placement)
            return fault(c, item, "the ends lie elsewhere than the conversion says", it->out[j]);
        if (it->nin == 1 && (!tsri_layout_equal(&from->layout, &it->box.step.from) ||
                             !tsri_layout_equal(&to->layout, &it->box.step.to)))
            return fault(c, item, "the ends have other signatures than the step", it->out[j]);
        if (c->after >= TSRI_PASS_LAYOUT && from->nhwc != to->nhwc)
            return fault(c, item, "the ends differ in memory layout", it->out[j]);
    }
    return TSR_OK;
}

static tsr_status check_kernel(const checker *c, int item)
{
    const tsri_item *it = &c->ir->items[item];
    for (int j = 0; j < it->nin; j++)
        if (c->ir->values[it->in[j]].placement != it->placement)
            return fault(c, item, "an operand lies elsewhere", it->in[j]);
    for (int j = 0; j < it->nout; j++) {
        int over = tsri_op_over(it->kernel.op, j);
        if (c->ir->values[it->out[j]].placement != it->placement)
            return fault(c, item, "a result lies elsewhere", it->out[j]);
        if (over < 0)
            continue;
        TSRI_TRY(check_alias(c, item, it->out[j], it->in[over]));
        if (!same_place(&c->ir->values[it->in[over]], &c->ir->values[it->out[j]]))
            return fault(c, item, "an update in place changes the signature", it->out[j]);
    }
    return TSR_OK;
}

static tsr_status check_item(checker *c, int item)
{
    const tsri_ir *ir = c->ir;
    const tsri_item *it = &ir->items[item];
    for (int j = 0; j < it->nin; j++) {
        int v = it->in[j];
        const tsri_value *value = &ir->values[v];
        bool source = value->storage == TSRI_STORAGE_PORT || value->source;
        if (c->maker[v] < 0 && !source)
            return fault(c, item, "reads what nothing before it makes", v);
    }
    for (int j = 0; j < it->nout; j++) {
        if (c->maker[it->out[j]] >= 0 || ir->values[it->out[j]].source)
            return fault(c, item, "makes what is there already", it->out[j]);
        c->maker[it->out[j]] = item;
    }
    if (tsri_item_shows(it))
        return check_alias(c, item, it->out[0], it->in[0]);
    if (it->kind == TSRI_ITEM_KERNEL)
        return check_kernel(c, item);
    return it->kind == TSRI_ITEM_OUTPUT ? TSR_OK : check_conversion(c, item);
}

/* --- versions: who reads what is still there -------------------------------------------------- */
static tsr_status read_value(const checker *c, int item, int v)
{
    int root = tsri_ir_root(c->ir, v);
    if (c->holds[root] != c->version[v])
        return fault(c, item, "reads what has been written over", v);
    return TSR_OK;
}

static void write_value(checker *c, int v)
{
    c->version[v] = v;
    c->holds[tsri_ir_root(c->ir, v)] = v;
}

static tsr_status check_items(checker *c)
{
    const tsri_ir *ir = c->ir;
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->kind == TSRI_ITEM_DEAD)
            continue;
        TSRI_TRY(check_item(c, i));
        for (int j = 0; j < it->nin && c->after >= TSRI_PASS_ORDER; j++)
            TSRI_TRY(read_value(c, i, it->in[j]));
        for (int j = 0; j < it->nout; j++)
            if (tsri_item_shows(it))
                c->version[it->out[j]] = c->version[it->in[0]];
            else
                write_value(c, it->out[j]);
    }
    return TSR_OK;
}

/* --- entries ---------------------------------------------------------------------------------- */
/* A value's version is made when its maker has done or finished; a view's when its operand's is. */
static bool is_made(const checker *c, int v)
{
    const tsri_ir *ir = c->ir;
    while (c->maker[v] >= 0 && tsri_item_shows(&ir->items[c->maker[v]]))
        v = ir->items[c->maker[v]].in[0];
    return c->maker[v] < 0 || c->made[v];
}

/* An entry of the parts runs in every part. So a value from before the parts that it uses, and a
 * result that it collects, must live during all of them. */
static tsr_status check_alive(const checker *c, int entry, int v)
{
    const tsri_ir *ir = c->ir;
    const tsri_value *root = &ir->values[tsri_ir_root(ir, v)];
    const int item = ir->entries[entry].item;
    const tsri_item *it = &ir->items[item];
    const bool in_parts = entry >= c->parts_begin && entry < c->parts_end;
    const bool collects = tsri_item_collects(it) && it->out[0] == v;
    if (root->storage != TSRI_STORAGE_ARENA)
        return TSR_OK;
    if (entry < root->first || entry > root->last)
        return fault(c, item, "is used outside its lifetime", v);
    if (in_parts && (collects || root->first < c->parts_begin) &&
        (root->first > c->parts_begin || root->last < c->parts_end - 1))
        return fault(c, item, "is used outside its lifetime in other parts", v);
    return TSR_OK;
}

/* A value of the parts that is used outside its producer's segment, or that another stage receives,
 * has as many copies as its stage says. */
static tsr_status check_copies(const checker *c, int entry, int v)
{
    const tsri_ir *ir = c->ir;
    const tsri_timetable *t = &ir->timetable;
    const tsri_entry *e = &ir->entries[entry];
    const int root = tsri_ir_root(ir, v), maker = c->maker[c->holds[root]];
    if (t->nstages < 2 || ir->items[e->item].turn != TSRI_TURN_PARTS || maker < 0 ||
        ir->items[maker].turn != TSRI_TURN_PARTS || tsri_item_collects(&ir->items[maker]) ||
        ir->values[root].storage != TSRI_STORAGE_ARENA)
        return TSR_OK;
    const int here = tsri_ir_entry_segment(ir, e);
    const bool outlives = c->segment[root] != here || e->side == TSRI_SIDE_SENDS;
    return outlives && ir->values[root].slots < t->slots[t->segment[here].stage]
               ? fault(c, e->item, "has too few copies", v)
               : TSR_OK;
}

static tsr_status enter_reads(checker *c, int entry)
{
    const tsri_entry *e = &c->ir->entries[entry];
    const tsri_item *it = &c->ir->items[e->item];
    for (int j = 0; j < it->nin && e->side != TSRI_SIDE_RECEIVES; j++) {
        int v = it->in[j];
        TSRI_TRY(check_alive(c, entry, v));
        TSRI_TRY(check_copies(c, entry, v));
        if (e->phase == TSRI_PHASE_DO || e->phase == TSRI_PHASE_START) {
            if (!is_made(c, v))
                return fault(c, e->item, "reads what is not finished", v);
            TSRI_TRY(read_value(c, e->item, v));
        }
        if (e->side == TSRI_SIDE_ALL)
            c->peers[tsri_ir_root(c->ir, v)] +=
                (e->phase == TSRI_PHASE_START) - (e->phase == TSRI_PHASE_RELEASE);
    }
    return TSR_OK;
}

/* Returns the copies of a value that queues receive ahead from another stage, in *out_from the
 * segment that sends it; 0: it is none. */
static int received_copies(const checker *c, int v, int *out_from)
{
    const tsri_ir *ir = c->ir;
    const int root = tsri_ir_root(ir, v), maker = c->maker[root];
    const tsri_item *it = maker < 0 ? NULL : &ir->items[maker];
    if (!it || it->kind != TSRI_ITEM_COLLECTIVE || !it->box.received_in ||
        ir->values[root].storage != TSRI_STORAGE_ARENA)
        return 0;
    *out_from = it->segment;
    return ir->values[root].slots > 1 ? ir->values[root].slots : 1;
}

/* A queue receives a value of part i as soon as its producer's task of part i is queued. By then
 * all consumers of the part that had the same copy must be done. */
static tsr_status check_ahead(const checker *c)
{
    const tsri_ir *ir = c->ir;
    const tsri_timetable *t = &ir->timetable;
    const size_t n = (size_t)t->nsegments;
    int *least = tsri_pool_alloc(c->pool, n * n * sizeof *least); /* copies; 0: any number */
    int *done = tsri_pool_alloc(c->pool, n * sizeof *done);
    TSRI_NEED(least && done);
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        const bool receives = it->kind == TSRI_ITEM_COLLECTIVE && it->box.received_in;
        if (it->turn != TSRI_TURN_PARTS || it->kind == TSRI_ITEM_DEAD)
            continue;
        for (int j = 0, from; j < (receives ? it->nout : it->nin); j++) {
            const int copies = received_copies(c, receives ? it->out[j] : it->in[j], &from);
            const size_t user = (size_t)(receives ? tsri_item_arrival(it) : it->segment);
            int *at = copies ? &least[(size_t)from * n + user] : NULL;
            if (at && (!*at || copies < *at))
                *at = copies;
        }
    }
    for (int i = 0; i < t->ntasks; i++) {
        const tsri_task_of *task = &t->task[i];
        for (int user = 0; user < t->nsegments; user++) {
            const int copies = least[(size_t)task->segment * n + (size_t)user];
            if (copies && done[user] <= task->part - copies)
                return tsri_fail(TSR_ERR_INTERNAL,
                                 "the plan is wrong after the pass '%s': segment %d has too few "
                                 "copies of the values that segment %d sends",
                                 tsri_pass_name(c->after), user, task->segment);
        }
        done[task->segment]++;
    }
    return TSR_OK;
}

/* The timetable has each task once, parts ascend in each segment, and a task comes after the tasks
 * that it waits for: those of its operands' producers, and those of the consumers of the copies
 * that it overwrites. */
static tsr_status check_timetable(checker *c)
{
    const tsri_ir *ir = c->ir;
    const tsri_timetable *t = &ir->timetable;
    const size_t n = (size_t)t->nsegments;
    if (t->nstages < 2)
        return TSR_OK;
    int *done = tsri_pool_alloc(c->pool, n * sizeof *done);
    bool *uses = tsri_pool_alloc(c->pool, n * n); /* [maker * n + user] */
    TSRI_NEED(done && uses);
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->turn != TSRI_TURN_PARTS || it->kind == TSRI_ITEM_DEAD)
            continue;
        const int arrives = tsri_item_arrival(it);
        uses[(size_t)it->segment * n + (size_t)arrives] = true;
        for (int j = 0; j < it->nin; j++) {
            const tsri_item *maker =
                c->maker[it->in[j]] < 0 ? NULL : &ir->items[c->maker[it->in[j]]];
            if (!maker || maker->turn != TSRI_TURN_PARTS)
                continue;
            const int from = tsri_item_arrival(maker);
            uses[(size_t)from * n + (size_t)it->segment] = true;
        }
    }
    for (int i = 0; i < t->ntasks; i++) {
        const int s = t->task[i].segment, part = t->task[i].part;
        bool good = part == done[s];
        for (int other = 0; other < t->nsegments; other++) {
            const int slots = t->slots[t->segment[s].stage];
            if (uses[(size_t)other * n + (size_t)s] && other != s)
                good &= done[other] > part;
            if (uses[(size_t)s * n + (size_t)other] && other != s)
                good &= done[other] > part - slots;
        }
        if (!good)
            return tsri_fail(TSR_ERR_INTERNAL,
                             "the plan is wrong after the pass '%s': task %d, segment %d of part "
                             "%d, comes too early",
                             tsri_pass_name(c->after), i, s, part);
        done[s]++;
    }
    for (int s = 0; s < t->nsegments; s++)
        if (done[s] != ir->parts)
            return tsri_fail(TSR_ERR_INTERNAL,
                             "the plan is wrong after the pass '%s': segment %d has %d of %d tasks",
                             tsri_pass_name(c->after), s, done[s], ir->parts);
    return tsri_parts_are_queued(ir) ? check_ahead(c) : TSR_OK;
}

/* An item of the parts must not overwrite a value from before the parts: the next part reads it. */
static tsr_status check_repeats(const checker *c, int item, int root)
{
    const int maker = c->maker[c->holds[root]];
    const bool is_early = maker < 0 || c->ir->items[maker].turn == TSRI_TURN_HEAD;
    return c->ir->items[item].turn == TSRI_TURN_PARTS && is_early
               ? fault(c, item, "writes over what the next part reads", root)
               : TSR_OK;
}

static tsr_status enter_writes(checker *c, int entry)
{
    const tsri_entry *e = &c->ir->entries[entry];
    const tsri_item *it = &c->ir->items[e->item];
    bool early = e->phase == TSRI_PHASE_START && tsri_item_writes_early(c->ir, it);
    if ((e->phase != TSRI_PHASE_DO && e->phase != TSRI_PHASE_FINISH && !early) ||
        e->side == TSRI_SIDE_SENDS)
        return TSR_OK;
    for (int j = 0; j < it->nout; j++) {
        int v = it->out[j], root = tsri_ir_root(c->ir, v);
        TSRI_TRY(check_alive(c, entry, v));
        TSRI_TRY(check_repeats(c, e->item, root));
        if (c->peers[root])
            return fault(c, e->item, "writes what peers may still read", v);
        c->made[v] = !early;
        c->segment[root] = tsri_ir_entry_segment(c->ir, e);
        write_value(c, v);
    }
    return TSR_OK;
}

/* START, FINISH, RELEASE, once each and in this order; or DO, once. */
static tsr_status enter_phase(checker *c, int entry)
{
    const tsri_entry *e = &c->ir->entries[entry];
    bool call = c->ir->items[e->item].kind == TSRI_ITEM_COLLECTIVE;
    static const uint8_t wants[] = {[TSRI_PHASE_DO] = PHASE_NONE,
                                    [TSRI_PHASE_START] = PHASE_NONE,
                                    [TSRI_PHASE_FINISH] = PHASE_STARTED,
                                    [TSRI_PHASE_RELEASE] = PHASE_FINISHED};
    uint8_t *phase = &c->phase[3 * e->item + (int)e->side];
    const bool is_between = call && c->ir->items[e->item].box.received_in;
    if (*phase != wants[e->phase] || call != (e->phase != TSRI_PHASE_DO))
        return fault(c, e->item, "its phases are out of order", -1);
    if (is_between != (e->side != TSRI_SIDE_ALL))
        return fault(c, e->item, "it has other sides than it should", -1);
    *phase = call ? (uint8_t)(wants[e->phase] + 1) : PHASE_RELEASED;
    return TSR_OK;
}

static tsr_status check_entries(checker *c)
{
    const tsri_ir *ir = c->ir;
    for (int i = 0; i < ir->nitems; i++)
        for (int j = 0; j < ir->items[i].nout && ir->items[i].kind != TSRI_ITEM_DEAD; j++)
            c->maker[ir->items[i].out[j]] = i;
    /* Views have no entry. In program order, a view's operand has its version by then. */
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (tsri_item_shows(it))
            c->version[it->out[0]] = c->version[it->in[0]];
    }
    tsri_ir_parts(ir, &c->parts_begin, &c->parts_end);
    for (int e = 0; e < ir->nentries; e++) {
        TSRI_TRY(enter_phase(c, e));
        TSRI_TRY(enter_reads(c, e));
        TSRI_TRY(enter_writes(c, e));
    }
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->kind == TSRI_ITEM_DEAD || tsri_item_shows(it))
            continue;
        const uint8_t *phase = &c->phase[3 * i];
        const bool is_between = it->kind == TSRI_ITEM_COLLECTIVE && it->box.received_in;
        if (is_between ? phase[TSRI_SIDE_SENDS] != PHASE_FINISHED ||
                             phase[TSRI_SIDE_RECEIVES] != PHASE_RELEASED
                       : phase[TSRI_SIDE_ALL] != PHASE_RELEASED)
            return fault(c, i, "is never done", -1);
    }
    return check_timetable(c);
}

/* --- memory ----------------------------------------------------------------------------------- */
static int by_first(const void *a, const void *b)
{
    const tsri_value *x = *(tsri_value *const *)a, *y = *(tsri_value *const *)b;
    return (x->first > y->first) - (x->first < y->first);
}

/* No two values of this rank that live at the same time share a byte. */
static tsr_status check_offsets(checker *c)
{
    tsri_ir *ir = c->ir;
    const size_t size = ((size_t)ir->nvalues + 1) * sizeof(tsri_value *);
    tsri_value **all = tsri_pool_alloc(c->pool, size);
    tsri_value **alive = tsri_pool_alloc(c->pool, size);
    int n = 0, nalive = 0;
    TSRI_NEED(all && alive);
    for (int i = 0; i < ir->nvalues; i++) {
        tsri_value *v = &ir->values[i];
        if (v->storage == TSRI_STORAGE_ARENA && v->first >= 0 && v->bytes)
            all[n++] = v;
    }
    qsort(all, (size_t)n, sizeof(tsri_value *), by_first);
    for (int i = 0; i < n; i++) {
        const tsri_value *v = all[i];
        int kept = 0;
        for (int k = 0; k < nalive; k++) {
            const tsri_value *w = alive[k];
            if (w->last < v->first)
                continue;
            alive[kept++] = alive[k];
            if (tsri_value_device(v) == tsri_value_device(w) &&
                v->arena_offset < w->arena_offset + tsri_value_room(w, w->bytes) &&
                w->arena_offset < v->arena_offset + tsri_value_room(v, v->bytes))
                return tsri_fail(TSR_ERR_INTERNAL,
                                 "the plan is wrong after the pass 'memory': values %d (%s) and %d "
                                 "(%s) live at the same time and share bytes",
                                 (int)(v - ir->values), v->name, (int)(w - ir->values), w->name);
        }
        nalive = kept;
        alive[nalive++] = all[i];
    }
    return TSR_OK;
}

/* --- the order of communication --------------------------------------------------------------- */
uint64_t tsri_plan_order_hash(const tsri_ir *ir)
{
    uint64_t h = TSRI_HASH_INIT;
    for (int e = 0; e < ir->nentries; e++) {
        const tsri_entry *entry = &ir->entries[e];
        const tsri_item *it = &ir->items[entry->item];
        if (it->kind != TSRI_ITEM_COLLECTIVE)
            continue;
        const int32_t what[] = {
            entry->item,       (int32_t)entry->phase,    (int32_t)it->box.step.kind,
            it->box.step.dims, (int32_t)it->box.step.op, it->nin,
            it->box.is_bucket, it->box.broadcast,        (int32_t)entry->side};
        const char *to = tsr_placement_text(it->placement);
        h = tsri_hash(h, what, sizeof what);
        h = tsri_hash(h, &it->box.step.bytes, sizeof it->box.step.bytes);
        h = tsri_hash(h, to, strlen(to));
        for (int j = 0; j < it->nin; j++)
            h = tsri_hash(h, ir->values[it->in[j]].shape.d,
                          (size_t)ir->values[it->in[j]].shape.ndim * sizeof(int64_t));
    }
    for (int i = 0; i < ir->timetable.ntasks && ir->timetable.nstages > 1; i++) {
        const int32_t task[] = {ir->timetable.task[i].segment, ir->timetable.task[i].part};
        h = tsri_hash(h, task, sizeof task);
    }
    return h;
}

tsr_status tsri_plan_check(tsri_ir *ir, tsri_pass after)
{
    if (!tsri_checks())
        return TSR_OK;
    tsri_pool pool;
    tsri_pool_init(&pool, &ir->world->mem);
    checker c = {.ir = ir, .pool = &pool, .after = after};
    tsr_status status = start_check(&c);
    if (status == TSR_OK)
        status = after == TSRI_PASS_MEMORY     ? check_offsets(&c)
                 : after == TSRI_PASS_SCHEDULE ? check_entries(&c)
                                               : check_items(&c);
    tsri_pool_finish(&pool);
    return status;
}
