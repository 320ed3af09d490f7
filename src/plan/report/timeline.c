/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/report/timeline.h"

#include <string.h>

#include "src/core/rng.h"
#include "src/plan/report/rank_classes.h"

enum { LANES = 2 };

/* A group's place on the clock. */
typedef struct clock_hand {
    double now_s, lane_s[LANES]; /* when it is free to compute; when its lanes are */
    int last, lane_last[LANES];  /* the spans that it was busy with until then; -1 */
} clock_hand;

typedef struct clockwork {
    const tsr_plan *plan;
    tsri_timeline *t;
    tsri_pool pool;
    int capacity;
    clock_hand *hand;  /* [groups] */
    int *span_of_call; /* per item: the first span of its call; -1 */
    double share; /* the part of an item's cost in the current task: of one micro-batch, or all */
    int stage;    /* the stage whose groups execute the current task; -1: all */
} clockwork;

/* --- groups of ranks -------------------------------------------------------------------------- */
/* Mixes the number of a set of ranks into the keys of its members. */
static void mix_placement(uint64_t *key, const tsr_placement *p, uint64_t number)
{
    for (int i = 0; i < tsr_placement_nranks(p); i++) {
        uint64_t *its = &key[tsr_placement_rank(p, i)];
        *its = tsri_hash(*its, &number, sizeof number);
    }
}

static bool is_new(const tsr_placement **seen, int n, const tsr_placement *p)
{
    for (int i = 0; i < n; i++)
        if (seen[i] == p)
            return false;
    return p != NULL;
}

/* Tells apart the ranks that have a part in different items. */
static tsr_status find_keys(clockwork *c, uint64_t *key)
{
    const tsr_plan *plan = c->plan;
    const tsr_placement **seen = NULL;
    int nseen = 0, cseen = 0;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        const tsr_placement *ends[2] = {it->placement,
                                        tsri_item_converts(it) ? it->box.from : NULL};
        uint64_t number = (uint64_t)plan->ir.nitems + (uint64_t)i;
        for (int j = 0; tsri_item_converts(it) && j < it->box.nranks; j++) {
            uint64_t *its = &key[it->box.ranks[j]];
            *its = tsri_hash(*its, &number, sizeof number);
        }
        for (int e = 0; e < 2; e++)
            if (is_new(seen, nseen, ends[e])) {
                TSRI_NEED(TSRI_PUSH(&c->pool, seen, nseen, cseen));
                seen[nseen++] = ends[e];
                mix_placement(key, ends[e], (uint64_t)nseen);
            }
    }
    return TSR_OK;
}

static tsr_status find_groups(clockwork *c)
{
    tsri_timeline *t = c->t;
    int n = c->plan->ir.world->nranks;
    uint64_t *key = tsri_pool_alloc(&c->pool, (size_t)n * sizeof *key);
    tsri_rank_classes classes;
    TSRI_NEED(key);
    for (int i = 0; i < n; i++)
        key[i] = TSRI_HASH_INIT;
    TSRI_TRY(find_keys(c, key));
    TSRI_TRY(tsri_rank_classes_find(&t->pool, n, key, &classes));
    t->group = tsri_pool_alloc(&t->pool, (size_t)classes.n * sizeof *t->group);
    TSRI_NEED(t->group);
    t->group_of = classes.of;
    for (; t->ngroups < classes.n; t->ngroups++)
        t->group[t->ngroups] = (tsri_timeline_group){.rank = classes.first[t->ngroups],
                                                     .nranks = classes.count[t->ngroups]};
    return TSR_OK;
}

/* --- the clock -------------------------------------------------------------------------------- */
static tsr_status add_span(clockwork *c, int item, int group, int before, double start_s)
{
    const double cost_s = c->plan->ir.items[item].cost_s * c->share;
    tsri_timeline *t = c->t;
    TSRI_NEED(TSRI_PUSH(&t->pool, t->span, t->nspans, c->capacity));
    t->span[t->nspans++] = (tsri_span){.item = item,
                                       .group = group,
                                       .before = before,
                                       .start_s = start_s,
                                       .end_s = start_s + cost_s};
    return TSR_OK;
}

static bool has_part(const clockwork *c, const tsri_item *it, int group)
{
    const int rank = c->t->group[group].rank;
    return c->stage >= 0 ? tsri_ir_stage_of(&c->plan->ir, rank) == c->stage
                         : tsri_item_has(it, rank);
}

static tsr_status compute(clockwork *c, int item)
{
    const tsri_item *it = &c->plan->ir.items[item];
    for (int g = 0; g < c->t->ngroups; g++) {
        clock_hand *h = &c->hand[g];
        if (!has_part(c, it, g))
            continue;
        TSRI_TRY(add_span(c, item, g, h->last, h->now_s));
        h->last = c->t->nspans - 1;
        h->now_s += it->cost_s * c->share;
        c->t->group[g].compute_s += it->cost_s * c->share;
    }
    return TSR_OK;
}

/* All groups of a call start together, when the last of them is ready. */
static tsr_status start(clockwork *c, int item)
{
    const tsri_item *it = &c->plan->ir.items[item];
    int lane = it->box.is_bucket, before = -1;
    double at = 0;
    for (int g = 0; g < c->t->ngroups; g++) {
        const clock_hand *h = &c->hand[g];
        if (!has_part(c, it, g))
            continue;
        if (h->now_s > at || (before < 0 && h->last >= 0)) {
            at = h->now_s;
            before = h->last;
        }
        if (h->lane_s[lane] > at) {
            at = h->lane_s[lane];
            before = h->lane_last[lane];
        }
    }
    c->span_of_call[item] = c->t->nspans;
    for (int g = 0; g < c->t->ngroups; g++) {
        clock_hand *h = &c->hand[g];
        if (!has_part(c, it, g))
            continue;
        TSRI_TRY(add_span(c, item, g, before, at));
        h->lane_s[lane] = at + it->cost_s * c->share;
        h->lane_last[lane] = c->t->nspans - 1;
    }
    return TSR_OK;
}

static void finish(clockwork *c, int item)
{
    const tsri_timeline *t = c->t;
    for (int s = c->span_of_call[item]; s >= 0 && s < t->nspans && t->span[s].item == item; s++) {
        clock_hand *h = &c->hand[t->span[s].group];
        if (t->span[s].end_s >= h->now_s) {
            h->now_s = t->span[s].end_s;
            h->last = s;
        }
    }
}

static void mark_critical(clockwork *c)
{
    tsri_timeline *t = c->t;
    int last = -1;
    for (int g = 0; g < t->ngroups; g++) {
        t->group[g].end_s = c->hand[g].now_s;
        if (c->hand[g].now_s > t->end_s) {
            t->end_s = c->hand[g].now_s;
            last = c->hand[g].last;
        }
    }
    for (; last >= 0; last = t->span[last].before)
        t->span[last].critical = true;
}

/* Lets the clock run over the entries [first, end). Sending takes no time of the sender. */
static tsr_status run_entries(clockwork *c, int first, int end)
{
    const tsr_plan *plan = c->plan;
    for (int e = first; e < end; e++) {
        const tsri_entry *entry = &plan->ir.entries[e];
        if (entry->side == TSRI_SIDE_SENDS)
            continue;
        if (entry->phase == TSRI_PHASE_DO)
            TSRI_TRY(compute(c, entry->item));
        else if (entry->phase == TSRI_PHASE_START)
            TSRI_TRY(start(c, entry->item));
        else if (entry->phase == TSRI_PHASE_FINISH)
            finish(c, entry->item);
    }
    return TSR_OK;
}

/* Returns the first entry from `from` on of this segment or a later one; `end` if there is none. */
static int segment_begin(const tsri_ir *ir, int from, int end, int segment)
{
    while (from < end && tsri_ir_entry_segment(ir, &ir->entries[from]) < segment)
        from++;
    return from;
}

/* When a task began and ended on the clock, and the spans that it and its successors wait for. */
typedef struct task_span {
    double start_s, end_s;
    int before, last;
} task_span;

/* Returns the group of the current stage that is free last; -1 if it has none. */
static int find_latest(const clockwork *c)
{
    int latest = -1;
    for (int g = 0; g < c->t->ngroups; g++)
        if (has_part(c, NULL, g) && (latest < 0 || c->hand[g].now_s > c->hand[latest].now_s))
            latest = g;
    return latest;
}

/* Moves the hands of the current stage's groups to the start of task i. In the timetable a task
 * starts when another one ends, or starts together with one; the clock takes its time of that. */
static void wait_for_task(clockwork *c, const task_span *done, int i)
{
    const tsri_task_of *task = c->plan->ir.timetable.task;
    int j = i - 1;
    while (j >= 0 && task[j].end_s != task[i].start_s && task[j].start_s != task[i].start_s)
        j--;
    if (j < 0)
        return;
    const bool ends = task[j].end_s == task[i].start_s;
    const double from_s = ends ? done[j].end_s : done[j].start_s;
    for (int g = 0; g < c->t->ngroups; g++)
        if (has_part(c, NULL, g) && c->hand[g].now_s < from_s) {
            c->hand[g].now_s = from_s;
            c->hand[g].last = ends ? done[j].last : done[j].before;
        }
}

/* Lets the clock run over the tasks of stages, in the timetable's order. */
static tsr_status run_tasks(clockwork *c, int begin, int end)
{
    const tsri_ir *ir = &c->plan->ir;
    const tsri_timetable *t = &ir->timetable;
    int *first = tsri_pool_alloc(&c->pool, ((size_t)t->nsegments + 1) * sizeof *first);
    task_span *done = tsri_pool_alloc(&c->pool, (size_t)t->ntasks * sizeof *done);
    TSRI_NEED(first && done);
    for (int s = 0, e = begin; s <= t->nsegments; s++)
        first[s] = e = segment_begin(ir, e, end, s);
    c->share = 1.0 / ir->parts;
    for (int i = 0; i < t->ntasks; i++) {
        const int segment = t->task[i].segment;
        c->stage = t->segment[segment].stage;
        wait_for_task(c, done, i);
        const int from = find_latest(c);
        if (from >= 0)
            done[i] = (task_span){.start_s = c->hand[from].now_s, .before = c->hand[from].last};
        TSRI_TRY(run_entries(c, first[segment], first[segment + 1]));
        const int to = find_latest(c);
        if (to >= 0) {
            done[i].end_s = c->hand[to].now_s;
            done[i].last = c->hand[to].last;
        }
    }
    c->share = 1;
    c->stage = -1;
    return TSR_OK;
}

static tsr_status run_clock(clockwork *c)
{
    const tsr_plan *plan = c->plan;
    int begin, end;
    c->hand = tsri_pool_alloc(&c->pool, (size_t)c->t->ngroups * sizeof *c->hand);
    c->span_of_call = tsri_pool_alloc(&c->pool, (size_t)plan->ir.nitems * sizeof *c->span_of_call);
    TSRI_NEED(c->hand && c->span_of_call);
    for (int g = 0; g < c->t->ngroups; g++)
        c->hand[g] = (clock_hand){.last = -1, .lane_last = {-1, -1}};
    for (int i = 0; i < plan->ir.nitems; i++)
        c->span_of_call[i] = -1;
    tsri_ir_parts(&plan->ir, &begin, &end);
    if (plan->ir.timetable.nstages > 1) {
        TSRI_TRY(run_entries(c, 0, begin));
        TSRI_TRY(run_tasks(c, begin, end));
        TSRI_TRY(run_entries(c, end, plan->ir.nentries));
    } else {
        TSRI_TRY(run_entries(c, 0, plan->ir.nentries));
    }
    mark_critical(c);
    return TSR_OK;
}

tsr_status tsri_timeline_make(const tsr_plan *plan, tsri_timeline *out_timeline)
{
    *out_timeline = (tsri_timeline){0};
    tsri_pool_init(&out_timeline->pool, &plan->ir.world->mem);
    clockwork c = {.plan = plan, .t = out_timeline, .share = 1, .stage = -1};
    tsri_pool_init(&c.pool, &plan->ir.world->mem);
    tsr_status status = find_groups(&c);
    if (status == TSR_OK)
        status = run_clock(&c);
    tsri_pool_finish(&c.pool);
    return status;
}

void tsri_timeline_finish(tsri_timeline *timeline)
{
    tsri_pool_finish(&timeline->pool);
}
