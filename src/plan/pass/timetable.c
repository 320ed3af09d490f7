/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list scheduler for the tasks of stages. It follows the clock: the next task is always the one
 * that can begin first, and of the tasks that a stage can begin then it takes
 *
 *   1F1B    the deepest, so that a stage goes back as soon as it can. Stage s of p begins a
 *           micro-batch only if fewer than p - s of its micro-batches are not done
 *           (PipeDream-Flush: Narayanan et al., "Memory-efficient pipeline-parallel DNN training",
 *           2021).
 *           Stages that come again have chunks, which are interleaved.
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
    int parts, n;        /* n: segments */
    bool *needs;         /* [n * n] a task of segment b (column) waits for that of a (row) */
    int *calls;          /* [n * n] calls from segment a to b, of another stage */
    bool limits;         /* stages begin no more micro-batches than the schedule says */
    tsri_task_of *order; /* [n * parts] the tasks that stages do in a fixed order; or NULL */
    int *turn;           /* per stage: the place of its next task there */
    int *next;           /* per segment: the part of its next task */
    double *soonest;     /* per segment: the earliest start of that task; infinity: not known yet */
    double *free_at;     /* per stage: the end of its last task */
    double *start_s, *end_s; /* [n * parts] */
    int *place;              /* [n * parts] its place in the list */
} lister;

/* --- what waits for what ---------------------------------------------------------------------- */
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
            made_in[it->out[j]] = tsri_item_arrival(it);
        if (tsri_item_arrival(it) != it->segment) {
            l->needs[it->segment * l->n + tsri_item_arrival(it)] = true;
            l->calls[it->segment * l->n + tsri_item_arrival(it)] +=
                it->kind == TSRI_ITEM_COLLECTIVE;
        }
        if (!tsri_item_shows(it))
            l->t->segment[tsri_item_arrival(it)].task_s += it->cost_s / l->parts;
    }
    return TSR_OK;
}

/* Sets the depth at which micro-batches turn: the least of any segment that goes back. */
static void find_turn(lister *l)
{
    l->t->turn_depth = -1;
    for (int i = 0; i < l->ir->nitems; i++) {
        const tsri_item *it = &l->ir->items[i];
        if (it->turn != TSRI_TURN_PARTS || it->kind != TSRI_ITEM_KERNEL || !it->backward)
            continue;
        const int depth = l->t->segment[it->segment].depth;
        if (l->t->turn_depth < 0 || depth < l->t->turn_depth)
            l->t->turn_depth = depth;
    }
}

/* --- the list --------------------------------------------------------------------------------- */
static size_t at(const lister *l, int segment, int part)
{
    return (size_t)segment * (size_t)l->parts + (size_t)part;
}

/* Whether a stage has begun as many micro-batches as it may, where `segment` is the first one of
 * its stage that goes forward. With several such segments, of chunks that are interleaved, tasks
 * are counted: Megatron-LM's number (Narayanan et al., "Efficient large-scale language model
 * training on GPU clusters", 2021). */
static bool is_full(const lister *l, int segment)
{
    const tsri_timetable *t = l->t;
    const int stage = t->segment[segment].stage;
    int chunks = 0, under_way = 0;
    if (!l->limits || t->segment[segment].depth >= t->turn_depth)
        return false;
    for (int s = 0; s < l->n; s++) {
        if (t->segment[s].stage != stage)
            continue;
        if (s < segment)
            return false;
        const int way = t->segment[s].depth - t->turn_depth;
        chunks += way <= 0;
        under_way += way < 0 ? l->next[s] : way > 0 ? -l->next[s] : 0;
    }
    return under_way >= tsri_tasks_ahead(t->nstages, stage, chunks);
}

/* Whether the schedule lets a stage do the next task of a segment. */
static bool is_allowed(const lister *l, int segment)
{
    const int part = l->next[segment];
    if (part == l->parts || !l->order)
        return part < l->parts && !is_full(l, segment);
    const tsri_task_of *first = &l->order[l->turn[l->t->segment[segment].stage]];
    return first->segment == segment && first->part == part;
}

/* The earliest start of a segment's next task; infinity: it is not known yet. */
static double find_soonest(const lister *l, int segment)
{
    const tsri_timetable *t = l->t;
    const int part = l->next[segment], stage = t->segment[segment].stage;
    double start = l->free_at[stage];
    if (!is_allowed(l, segment))
        return INFINITY;
    for (int other = 0; other < l->n; other++) {
        const int calls = l->calls[segment * l->n + other];
        const int ahead = !calls                              ? 0
                          : TSRI_CALLS_BETWEEN_STAGES > calls ? TSRI_CALLS_BETWEEN_STAGES / calls
                                                              : 1;
        const bool waits = l->ir->opts.pipeline == TSR_PIPELINE_GPIPE && other < segment &&
                           t->segment[other].stage == stage;
        if ((l->needs[other * l->n + segment] && l->next[other] <= part) ||
            (waits && l->next[other] < l->parts) ||
            (calls && part >= ahead && l->next[other] <= part - ahead))
            return INFINITY;
        if (l->needs[other * l->n + segment])
            start = fmax(start, l->end_s[at(l, other, part)]);
        if (calls && part >= ahead)
            start = fmax(start, l->start_s[at(l, other, part - ahead)]);
    }
    return start;
}

/* Returns the segment of the next task; -1 if no task can begin. */
static int choose(const lister *l)
{
    const tsri_timetable *t = l->t;
    int best = -1;
    for (int s = 0; s < l->n; s++)
        if (l->soonest[s] < INFINITY && (best < 0 || l->soonest[s] < l->soonest[best]))
            best = s;
    const bool deeper = l->ir->opts.pipeline != TSR_PIPELINE_GPIPE;
    for (int s = best + 1; s < l->n && best >= 0 && deeper; s++)
        if (t->segment[s].stage == t->segment[best].stage && l->soonest[s] <= l->soonest[best])
            best = s;
    return best;
}

/* Updates the earliest starts that a task of segment `done` affects. */
static void look_again(lister *l, int done)
{
    for (int s = 0; s < l->n; s++)
        if (l->t->segment[s].stage == l->t->segment[done].stage || l->needs[done * l->n + s] ||
            l->calls[s * l->n + done])
            l->soonest[s] = find_soonest(l, s);
}

/* Lists all tasks; sets *out_all to whether it could. */
static void list(lister *l, bool *out_all)
{
    tsri_timetable *t = l->t;
    memset(l->next, 0, (size_t)l->n * sizeof *l->next);
    memset(l->free_at, 0, (size_t)t->nstages * sizeof *l->free_at);
    for (int s = 0; s < l->n; s++)
        l->soonest[s] = find_soonest(l, s);
    t->ntasks = 0;
    for (int all = l->n * l->parts, s; t->ntasks < all && (s = choose(l)) >= 0; t->ntasks++) {
        const int part = l->next[s]++;
        const double start = l->soonest[s], end = start + t->segment[s].task_s;
        l->start_s[at(l, s, part)] = start;
        l->end_s[at(l, s, part)] = end;
        l->place[at(l, s, part)] = t->ntasks;
        l->free_at[t->segment[s].stage] = end;
        l->turn[t->segment[s].stage]++;
        t->task[t->ntasks] = (tsri_task_of){s, part, start, end};
        look_again(l, s);
    }
    *out_all = t->ntasks == l->n * l->parts;
}

/* --- interleaved chunks ----------------------------------------------------------------------- */
/* The segments of a stage that go forward, and those that go back, in the order in which a
 * micro-batch meets them; the segment where it turns is the last of the former. */
typedef struct ways {
    int n[2];
    int *segment[2];
} ways;

static tsr_status find_ways(const lister *l, int stage, ways *out)
{
    const tsri_timetable *t = l->t;
    *out = (ways){0};
    for (int w = 0; w < 2; w++) {
        out->segment[w] = tsri_pool_alloc(&l->ir->scratch, (size_t)l->n * sizeof(int));
        TSRI_NEED(out->segment[w]);
    }
    for (int s = 0; s < l->n; s++)
        if (t->segment[s].stage == stage) {
            const int w = t->segment[s].depth > t->turn_depth;
            out->segment[w][out->n[w]++] = s;
        }
    return TSR_OK;
}

/* The i-th task of one way: each chunk in turn has as many micro-batches as there are stages. */
static tsri_task_of task_of(const lister *l, const ways *w, int way, int chunks, int i)
{
    const int p = l->t->nstages, chunk = i / p % chunks;
    const bool turned = way == 1 && w->n[1] < chunks; /* the turn is its first way back */
    const int segment = way == 0     ? w->segment[0][chunk]
                        : !turned    ? w->segment[1][chunk]
                        : chunk == 0 ? w->segment[0][chunks - 1]
                                     : w->segment[1][chunk - 1];
    return (tsri_task_of){.segment = segment, .part = i / (p * chunks) * p + i % p};
}

/* Megatron-LM's order of interleaved chunks: a stage goes forward some tasks ahead, then forward
 * and back by turns. Sets l->order, unless stages have one chunk, or different numbers of them. */
static tsr_status interleave(lister *l)
{
    tsri_timetable *t = l->t;
    const int p = t->nstages, chunks = l->n / (2 * p) + (l->n % (2 * p) != 0);
    tsri_task_of *order =
        tsri_pool_alloc(&l->ir->scratch, 2 * (size_t)l->n * (size_t)l->parts * sizeof *order);
    TSRI_NEED(order);
    if (chunks < 2 || l->parts % p || l->n != 2 * p * chunks - 1)
        return TSR_OK;
    for (int s = 0, n = 0; s < p; s++) {
        const int all = chunks * l->parts, ahead = 2 * (p - s - 1) + (chunks - 1) * p;
        ways w;
        TSRI_TRY(find_ways(l, s, &w));
        if (w.n[0] != chunks || w.n[1] != chunks - (s == p - 1))
            return TSR_OK;
        l->turn[s] = n;
        for (int i = 0; i < all + ahead; i++) {
            if (i < all)
                order[n++] = task_of(l, &w, 0, chunks, i);
            if (i < ahead)
                continue;
            const tsri_task_of back = task_of(l, &w, 1, chunks, i - ahead);
            if (t->segment[back.segment].depth > t->turn_depth)
                order[n++] = back;
        }
    }
    l->order = order;
    return TSR_OK;
}

/* --- copies ----------------------------------------------------------------------------------- */
/* Returns the number of copies that the values of segment a need so that no task of a overwrites a
 * copy before the task of segment b that consumes it. */
static int copies(const lister *l, int a, int b)
{
    int most = 1;
    for (int i = 0, j = 0; i < l->parts; i++) {
        for (; j < l->parts && l->place[at(l, a, j)] < l->place[at(l, b, i)]; j++)
            ;
        most = j - i > most ? j - i : most;
    }
    return most;
}

/* Sets the copies that stages hold. A value that is sent has at least two, so that its stage need
 * not wait for the receiver. */
static void find_slots(lister *l)
{
    tsri_timetable *t = l->t;
    for (int a = 0; a < l->n; a++)
        for (int b = 0; b < l->n; b++) {
            int *slots = &t->slots[t->segment[a].stage];
            if (!l->needs[a * l->n + b])
                continue;
            const int n = copies(l, a, b), least = l->parts < 2 ? 1 : 2;
            *slots = n > *slots ? n : *slots;
            *slots = least > *slots ? least : *slots;
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
                .next = tsri_pool_alloc(pool, n * sizeof *l.next),
                .turn = tsri_pool_alloc(pool, stages * sizeof *l.turn),
                .soonest = tsri_pool_alloc(pool, n * sizeof *l.soonest),
                .free_at = tsri_pool_alloc(pool, stages * sizeof *l.free_at),
                .start_s = tsri_pool_alloc(pool, 2 * tasks * sizeof *l.start_s),
                .place = tsri_pool_alloc(pool, tasks * sizeof *l.place)};
    t->slots = tsri_pool_alloc(pool, stages * sizeof *t->slots);
    t->task = tsri_pool_alloc(pool, tasks * sizeof *t->task);
    TSRI_NEED(l.needs && l.calls && l.next && l.turn && l.soonest && l.free_at && l.start_s &&
              l.place && t->slots && t->task);
    l.end_s = l.start_s + tasks;
    for (int s = 0; s < t->nstages; s++)
        t->slots[s] = 1;
    TSRI_TRY(find_needs(&l));
    find_turn(&l);
    bool all = false;
    l.limits = ir->opts.pipeline != TSR_PIPELINE_GPIPE && t->turn_depth >= 0;
    if (l.limits)
        TSRI_TRY(interleave(&l));
    if (l.order)
        list(&l, &all);
    l.order = NULL;
    for (int i = 0; i < 2 && !all; i++, l.limits = false)
        list(&l, &all);
    if (!all)
        return tsri_fail(TSR_ERR_INTERNAL, "%d of %zu tasks of the stages wait for each other",
                         (int)tasks - t->ntasks, tasks);
    find_slots(&l);
    return TSR_OK;
}
