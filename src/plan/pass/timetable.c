/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list scheduler for the tasks of stages. It follows the clock: the next task is always the one
 * that can begin first, and of the tasks that a stage can begin then it takes
 *
 *   1F1B    the deepest, so that a stage goes back as soon as it can. Stage s of p begins a
 *           micro-batch only if fewer than p - s of its micro-batches are not done
 *           (PipeDream-Flush: Narayanan et al., "Memory-efficient pipeline-parallel DNN training",
 *           2021).
 *   GPipe   the least deep; a stage goes back when all micro-batches have gone forward (Huang et
 *           al., "GPipe", 2019).
 *
 * Parts ascend in each segment, so that sums have the same bits under every schedule.
 */
#include "src/plan/pass/timetable.h"

#include <math.h>
#include <string.h>

typedef struct lister {
    tsri_ir *ir;
    tsri_timetable *t;
    int parts, n;    /* n: segments */
    bool *needs;     /* [n * n] a task of segment b (column) waits for that of a (row) */
    int *calls;      /* [n * n] calls by which a gives to b, of another stage */
    int *first;      /* per stage: its least deep segment */
    int *last;       /* per stage: its deepest segment */
    int *most;       /* per stage: micro-batches that have begun and are not done, at most */
    int *next;       /* per segment: the part of its next task */
    double *free_at; /* per stage: the end of its last task */
    double *start_s, *end_s; /* [n * parts] */
} lister;

/* --- what waits for what ---------------------------------------------------------------------- */
/* The segment in which a rank of the item's placement has the results. */
static int arrival(const tsri_item *it)
{
    return tsri_item_converts(it) && it->box.taken_in ? it->box.taken_in - 1 : it->segment;
}

static tsr_status find_needs(lister *l)
{
    const tsri_ir *ir = l->ir;
    int *made_in = tsri_pool_alloc(&l->ir->scratch, (size_t)ir->nvalues * sizeof *made_in);
    TSRI_NEED(made_in);
    memset(made_in, -1, (size_t)ir->nvalues * sizeof *made_in);
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->turn != TSRI_TURN_PARTS || it->kind == TSRI_ITEM_DEAD)
            continue;
        for (int j = 0; j < it->nin; j++)
            if (made_in[it->in[j]] >= 0 && made_in[it->in[j]] != it->segment)
                l->needs[made_in[it->in[j]] * l->n + it->segment] = true;
        for (int j = 0; j < it->nout; j++)
            made_in[it->out[j]] = arrival(it);
        if (arrival(it) != it->segment) {
            l->needs[it->segment * l->n + arrival(it)] = true;
            l->calls[it->segment * l->n + arrival(it)] += it->kind == TSRI_ITEM_COLLECTIVE;
        }
        if (!tsri_item_shows(it))
            l->t->segment[arrival(it)].task_s += it->cost_s / l->parts;
    }
    return TSR_OK;
}

/* --- the list --------------------------------------------------------------------------------- */
static double *of_task(const lister *l, double *times, int segment, int part)
{
    return &times[(size_t)segment * (size_t)l->parts + (size_t)part];
}

/* How many tasks of segment a may run ahead of those of b, to which it gives: by the copies of what
 * it gives, and by the calls that may be under way. */
static int ahead(const lister *l, int a, int b)
{
    const int slots = l->t->slots[l->t->segment[a].stage];
    const int calls = TSRI_CALLS_BETWEEN_STAGES / l->calls[a * l->n + b];
    return calls < 1 ? 1 : calls < slots ? calls : slots;
}

/* The earliest start of a segment's next task; infinity: it is not known yet. */
static double earliest(const lister *l, int segment)
{
    const tsri_part_segment *s = &l->t->segment[segment];
    const int part = l->next[segment], stage = s->stage, first = l->first[stage];
    double start = l->free_at[stage];
    if (part == l->parts || (segment == first && first != l->last[stage] &&
                             part - l->next[l->last[stage]] >= l->most[stage]))
        return INFINITY;
    for (int other = 0; other < l->n; other++) {
        if (l->needs[other * l->n + segment]) {
            if (l->next[other] <= part)
                return INFINITY;
            start = fmax(start, *of_task(l, l->end_s, other, part));
        }
        if (l->ir->opts.pipeline == TSR_PIPELINE_GPIPE && other < segment &&
            l->t->segment[other].stage == stage && l->next[other] < l->parts)
            return INFINITY;
        /* A value that outlives its task has so many copies. */
        if (l->needs[segment * l->n + other] && l->t->segment[other].stage == stage &&
            part >= l->t->slots[stage] && l->next[other] <= part - l->t->slots[stage])
            return INFINITY;
        if (!l->calls[segment * l->n + other] || part < ahead(l, segment, other))
            continue;
        const int before = part - ahead(l, segment, other);
        if (l->next[other] <= before)
            return INFINITY;
        start = fmax(start, *of_task(l, l->start_s, other, before));
    }
    return start;
}

/* The segment whose task is next; -1: none can be. */
static int choose(const lister *l, double *out_start)
{
    double soonest = INFINITY;
    int stage = -1, best = -1;
    for (int s = 0; s < l->n; s++) {
        const double start = earliest(l, s);
        if (start < soonest) {
            soonest = start;
            stage = l->t->segment[s].stage;
        }
    }
    for (int s = 0; s < l->n && stage >= 0; s++) {
        const bool deeper = best < 0 || l->ir->opts.pipeline != TSR_PIPELINE_GPIPE;
        if (l->t->segment[s].stage == stage && deeper && earliest(l, s) <= soonest)
            best = s;
    }
    *out_start = soonest;
    return best;
}

/* Lists all tasks; sets *out_all to whether it could. */
static void list(lister *l, bool *out_all)
{
    tsri_timetable *t = l->t;
    memset(l->next, 0, (size_t)l->n * sizeof *l->next);
    memset(l->free_at, 0, (size_t)t->nstages * sizeof *l->free_at);
    t->ntasks = 0;
    for (int all = l->n * l->parts; t->ntasks < all;) {
        double start;
        const int s = choose(l, &start);
        if (s < 0)
            break;
        const int part = l->next[s]++;
        const double end = start + t->segment[s].task_s;
        *of_task(l, l->start_s, s, part) = start;
        *of_task(l, l->end_s, s, part) = end;
        l->free_at[t->segment[s].stage] = end;
        t->task[t->ntasks++] = (tsri_task_of){s, part, start, end};
    }
    *out_all = t->ntasks == l->n * l->parts;
}

/* Sets how many micro-batches a stage may have begun: as the schedule has it, or all. */
static void set_most(lister *l, bool all)
{
    for (int s = 0; s < l->t->nstages; s++) {
        const int most =
            all || l->ir->opts.pipeline == TSR_PIPELINE_GPIPE ? l->parts : l->t->nstages - s;
        l->most[s] = most < l->parts ? most : l->parts;
        /* Two, so that a stage need not wait until another has taken what it gives. */
        l->t->slots[s] = l->t->nstages == 1 ? 1 : l->most[s] < 2 ? 2 : l->most[s];
    }
}

tsr_status tsri_timetable_fill(tsri_ir *ir)
{
    tsri_timetable *t = &ir->timetable;
    const size_t n = (size_t)t->nsegments, stages = (size_t)t->nstages,
                 tasks = n * (size_t)ir->parts;
    tsri_pool *pool = &ir->scratch;
    lister l = {.ir = ir,
                .t = t,
                .parts = ir->parts,
                .n = t->nsegments,
                .needs = tsri_pool_alloc(pool, n * n),
                .calls = tsri_pool_alloc(pool, n * n * sizeof *l.calls),
                .first = tsri_pool_alloc(pool, 3 * stages * sizeof *l.first),
                .next = tsri_pool_alloc(pool, n * sizeof *l.next),
                .free_at = tsri_pool_alloc(pool, stages * sizeof *l.free_at),
                .start_s = tsri_pool_alloc(pool, 2 * tasks * sizeof *l.start_s)};
    t->slots = tsri_pool_alloc(pool, stages * sizeof *t->slots);
    t->task = tsri_pool_alloc(pool, tasks * sizeof *t->task);
    TSRI_NEED(l.needs && l.calls && l.first && l.next && l.free_at && l.start_s && t->slots &&
              t->task);
    l.last = l.first + stages;
    l.most = l.first + 2 * stages;
    l.end_s = l.start_s + tasks;
    TSRI_TRY(find_needs(&l));
    for (int s = t->nsegments; s-- > 0;)
        l.first[t->segment[s].stage] = s;
    for (int s = 0; s < t->nsegments; s++)
        l.last[t->segment[s].stage] = s;
    bool all = false;
    for (int i = 0; i < 2 && !all; i++) {
        set_most(&l, i > 0);
        list(&l, &all);
    }
    return all ? TSR_OK
               : tsri_fail(TSR_ERR_INTERNAL, "%d of %zu tasks of the stages wait for each other",
                           (int)tasks - t->ntasks, tasks);
}
