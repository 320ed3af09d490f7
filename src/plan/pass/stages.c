/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the parts of a step into segments, so that stages work on several micro-batches at a
 * time; see src/ir/timetable.h.
 *
 * Ranks are of one stage if the ops of the parts join them. The depth of an item is the most
 * conversions between stages on a path to it: in a chain of p stages s going forward through stage
 * s, and 2(p - 1) - s back. A segment has the items of one stage at one depth, so it depends on
 * less deep segments alone. Items of backward that need no other stage, and items that are computed
 * again, are as deep as their consumers. A segment that sends nothing to other stages joins the
 * next one of its stage: so the last stage goes forward and back in one.
 */
#include <stdlib.h>
#include <string.h>

#include "src/ir/flow.h"
#include "src/plan/pass/timetable.h"

typedef struct finder {
    tsri_ir *ir;
    tsri_flow flow;
    int *leader; /* per rank: another one of its stage; itself: the stage's first; -1: no stage */
    int *number; /* per rank that leads: its stage */
    int nstages;
    int *depth; /* per item */
    int deepest;
} finder;

static bool is_part(const tsri_item *it)
{
    return it->turn == TSRI_TURN_PARTS && it->kind != TSRI_ITEM_DEAD;
}

/* --- stages ----------------------------------------------------------------------------------- */
static int leader_of(const finder *f, int rank)
{
    while (f->leader[rank] != rank)
        rank = f->leader[rank] = f->leader[f->leader[rank]];
    return rank;
}

static void join_ranks(finder *f, const tsr_placement *p)
{
    for (int i = 0; i < tsr_placement_nranks(p); i++) {
        const int rank = tsr_placement_rank(p, i);
        if (f->leader[rank] < 0)
            f->leader[rank] = rank;
        const int a = leader_of(f, tsr_placement_rank(p, 0)), b = leader_of(f, rank);
        f->leader[a > b ? a : b] = a < b ? a : b;
    }
}

static int stage_of(const finder *f, const tsr_placement *p)
{
    return f->number[leader_of(f, tsr_placement_rank(p, 0))];
}

/* Whether an item hands a value from one stage to another. */
static bool crosses(const finder *f, const tsri_item *it)
{
    return tsri_item_converts(it) && it->box.from != it->placement &&
           stage_of(f, it->box.from) != stage_of(f, it->placement);
}

static tsr_status find_stages(finder *f)
{
    const tsri_ir *ir = f->ir;
    const size_t nranks = (size_t)ir->world->nranks;
    const tsr_placement *last = NULL;
    f->leader = tsri_pool_alloc(&f->ir->scratch, 2 * nranks * sizeof *f->leader);
    TSRI_NEED(f->leader);
    f->number = f->leader + nranks;
    memset(f->leader, -1, 2 * nranks * sizeof *f->leader);
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        const tsr_placement *sides[2] = {it->placement, it->placement};
        if (tsri_item_converts(it))
            sides[1] = it->box.from;
        for (int s = 0; s < 2 && is_part(it); s++) {
            if (sides[s] != last)
                join_ranks(f, sides[s]);
            last = sides[s];
        }
    }
    for (int r = 0; r < ir->world->nranks; r++)
        if (f->leader[r] == r)
            f->number[r] = f->nstages++;
    return TSR_OK;
}

/* Returns the stage that executes an item; of a conversion, the one that sends. */
static int doer(const finder *f, const tsri_item *it)
{
    return stage_of(f, tsri_item_converts(it) ? it->box.from : it->placement);
}

/* Sets *out_divides to whether the parts can be divided: each stage does something, nobody
 * overwrites a value, and devices of one kind execute all parts, which a virtual world, where
 * nothing runs, does not need. */
static tsr_status find_whether_divides(const finder *f, bool *out_divides)
{
    const tsri_ir *ir = f->ir;
    bool *does = tsri_pool_alloc(&f->ir->scratch, (size_t)f->nstages);
    int ndo = 0;
    const tsr_placement *first = NULL;
    TSRI_NEED(does);
    *out_divides = false;
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (is_part(it) && !does[doer(f, it)]) {
            does[doer(f, it)] = true;
            ndo++;
        }
        for (int j = 0; j < it->nout && is_part(it) && !tsri_item_shows(it); j++)
            if (ir->values[it->out[j]].storage == TSRI_STORAGE_ALIAS)
                return TSR_OK;
        if (!is_part(it))
            continue;
        first = first ? first : it->placement;
        if ((!ir->world->is_virtual &&
             tsr_placement_device(first) != tsr_placement_device(it->placement)) ||
            (it->kind == TSRI_ITEM_COLLECTIVE && it->box.ranks))
            return TSR_OK;
    }
    *out_divides = ndo == f->nstages && f->nstages > 1;
    return TSR_OK;
}

/* --- depth ------------------------------------------------------------------------------------ */
/* Whether an item need not be done as early as it could. */
static bool may_wait(const finder *f, const tsri_item *it)
{
    const bool computes = it->kind == TSRI_ITEM_KERNEL || it->kind == TSRI_ITEM_VIEW;
    return (it->backward || (computes && it->kernel.recomputes)) && !crosses(f, it);
}

/* The depth of an item's least deep consumer in the parts; -1: it has none. */
static int least_deep(const finder *f, const tsri_item *it)
{
    int least = -1;
    for (int j = 0; j < it->nout; j++)
        for (int r = f->flow.first[it->out[j]]; r < f->flow.first[it->out[j] + 1]; r++) {
            const int reader = f->flow.reader[r];
            if (is_part(&f->ir->items[reader]) && (least < 0 || f->depth[reader] < least))
                least = f->depth[reader];
        }
    return least;
}

static tsr_status find_depths(finder *f)
{
    const tsri_ir *ir = f->ir;
    f->depth = tsri_pool_alloc(&f->ir->scratch, (size_t)ir->nitems * sizeof *f->depth);
    TSRI_NEED(f->depth);
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        f->depth[i] = 0;
        for (int j = 0; j < it->nin && is_part(it); j++) {
            const int maker = f->flow.maker[it->in[j]];
            if (maker < 0 || !is_part(&ir->items[maker]))
                continue;
            const int after = f->depth[maker] + crosses(f, &ir->items[maker]);
            f->depth[i] = after > f->depth[i] ? after : f->depth[i];
        }
        f->deepest = f->depth[i] > f->deepest ? f->depth[i] : f->deepest;
    }
    for (int i = ir->nitems; i-- > 0;) {
        const int least = is_part(&ir->items[i]) && may_wait(f, &ir->items[i])
                              ? least_deep(f, &ir->items[i])
                              : -1;
        f->depth[i] = least > f->depth[i] ? least : f->depth[i];
    }
    return TSR_OK;
}

/* --- segments --------------------------------------------------------------------------------- */
/* The place of a stage at a depth in tables. */
static size_t at(const finder *f, int stage, int depth)
{
    return (size_t)depth * (size_t)f->nstages + (size_t)stage;
}

/* Moves the items of segments that send nothing to the next segment of their stage. */
static tsr_status merge(finder *f)
{
    const tsri_ir *ir = f->ir;
    const size_t n = (size_t)f->nstages * ((size_t)f->deepest + 1);
    bool *used = tsri_pool_alloc(&f->ir->scratch, 2 * n);
    int *to = tsri_pool_alloc(&f->ir->scratch, n * sizeof *to);
    TSRI_NEED(used && to);
    bool *sends = used + n;
    for (int i = 0; i < ir->nitems; i++)
        if (is_part(&ir->items[i])) {
            const size_t cell = at(f, doer(f, &ir->items[i]), f->depth[i]);
            used[cell] = true;
            sends[cell] |= crosses(f, &ir->items[i]);
        }
    for (int s = 0; s < f->nstages; s++)
        for (int d = f->deepest, next = -1; d >= 0; d--)
            if (used[at(f, s, d)]) {
                to[at(f, s, d)] = sends[at(f, s, d)] || next < 0 ? d : next;
                next = to[at(f, s, d)];
            }
    for (int i = 0; i < ir->nitems; i++)
        if (is_part(&ir->items[i]))
            f->depth[i] = to[at(f, doer(f, &ir->items[i]), f->depth[i])];
    return TSR_OK;
}

/* Numbers the stages anew, in the order in which they begin. */
static tsr_status order_stages(finder *f)
{
    const tsri_ir *ir = f->ir;
    int *is = tsri_pool_alloc(&f->ir->scratch, (size_t)f->nstages * sizeof *is);
    int n = 0;
    TSRI_NEED(is);
    memset(is, -1, (size_t)f->nstages * sizeof *is);
    for (int d = 0; d <= f->deepest && n < f->nstages; d++)
        for (int i = 0; i < ir->nitems; i++)
            if (is_part(&ir->items[i]) && f->depth[i] == d && is[doer(f, &ir->items[i])] < 0)
                is[doer(f, &ir->items[i])] = n++;
    for (int r = 0; r < ir->world->nranks; r++)
        if (f->number[r] >= 0 && f->leader[r] == r)
            f->number[r] = is[f->number[r]];
    return TSR_OK;
}

static tsr_status number_segments(finder *f)
{
    tsri_ir *ir = f->ir;
    tsri_timetable *t = &ir->timetable;
    const size_t n = (size_t)f->nstages * ((size_t)f->deepest + 1);
    int *segment = tsri_pool_alloc(&ir->scratch, n * sizeof *segment);
    t->segment = tsri_pool_alloc(&ir->scratch, n * sizeof *t->segment);
    TSRI_NEED(segment && t->segment);
    memset(segment, -1, n * sizeof *segment);
    for (int i = 0; i < ir->nitems; i++)
        if (is_part(&ir->items[i]))
            segment[at(f, doer(f, &ir->items[i]), f->depth[i])] = 0;
    for (int d = 0; d <= f->deepest; d++)
        for (int s = 0; s < f->nstages; s++)
            if (segment[at(f, s, d)] == 0) {
                t->segment[t->nsegments] = (tsri_part_segment){.stage = s, .depth = d};
                segment[at(f, s, d)] = t->nsegments++;
            }
    for (int i = 0; i < ir->nitems; i++)
        if (is_part(&ir->items[i]))
            ir->items[i].segment = segment[at(f, doer(f, &ir->items[i]), f->depth[i])];
    return TSR_OK;
}

/* Finds for each conversion between stages the segment of its first consumer, in which the stage
 * receives the value. Without a consumer this is the last segment of the stage. */
static void find_receivers(finder *f)
{
    tsri_ir *ir = f->ir;
    for (int i = 0; i < ir->nitems; i++) {
        tsri_item *it = &ir->items[i];
        if (!is_part(it) || !crosses(f, it))
            continue;
        int first = -1;
        for (int r = f->flow.first[it->out[0]]; r < f->flow.first[it->out[0] + 1]; r++) {
            const tsri_item *reader = &ir->items[f->flow.reader[r]];
            if (is_part(reader) && (first < 0 || reader->segment < first))
                first = reader->segment;
        }
        for (int s = 0; s < ir->timetable.nsegments && first < 0; s++)
            if (ir->timetable.segment[s].stage == stage_of(f, it->placement))
                it->box.received_in = s + 1;
        if (first >= 0)
            it->box.received_in = first + 1;
    }
}

/* Puts the items of the parts into the order of their segments. */
static tsr_status sort(finder *f)
{
    tsri_ir *ir = f->ir;
    tsri_item *old = ir->items;
    const int n = ir->nitems;
    TSRI_TRY(tsri_ir_new_items(ir, n));
    for (int turn = TSRI_TURN_HEAD; turn <= TSRI_TURN_TAIL; turn++)
        for (int s = 0; s < (turn == TSRI_TURN_PARTS ? ir->timetable.nsegments : 1); s++)
            for (int i = 0; i < n; i++)
                if ((int)old[i].turn == turn && old[i].segment == s)
                    ir->items[ir->nitems++] = old[i];
    return TSR_OK;
}

/* All parts are one segment of one stage. */
static tsr_status keep_whole(tsri_ir *ir)
{
    tsri_timetable *t = &ir->timetable;
    *t = (tsri_timetable){.nstages = 1, .nsegments = 1};
    t->segment = tsri_pool_alloc(&ir->scratch, sizeof *t->segment);
    TSRI_NEED(t->segment);
    *t->segment = (tsri_part_segment){0};
    return tsri_timetable_fill(ir);
}

tsr_status tsri_plan_stages(tsri_ir *ir)
{
    finder f = {.ir = ir};
    ir->timetable = (tsri_timetable){0};
    if (ir->parts < 2)
        return TSR_OK;
    TSRI_TRY(find_stages(&f));
    bool divides;
    TSRI_TRY(find_whether_divides(&f, &divides));
    if (!divides)
        return keep_whole(ir);
    TSRI_TRY(tsri_flow_find(ir, &ir->scratch, &f.flow));
    TSRI_TRY(find_depths(&f));
    TSRI_TRY(merge(&f));
    TSRI_TRY(order_stages(&f));
    TSRI_TRY(number_segments(&f));
    find_receivers(&f);
    TSRI_TRY(sort(&f));
    ir->timetable.nstages = f.nstages;
    ir->timetable.stage_of =
        tsri_pool_alloc(&ir->scratch, (size_t)ir->world->nranks * sizeof *f.number);
    TSRI_NEED(ir->timetable.stage_of);
    for (int r = 0; r < ir->world->nranks; r++)
        ir->timetable.stage_of[r] = f.leader[r] < 0 ? -1 : f.number[leader_of(&f, r)];
    return tsri_timetable_fill(ir);
}
