/* SPDX-License-Identifier: Apache-2.0 */
/* A task as a call of the communicator, whichever it is. Memory that peers read lies in the region
 * where the communicator wants that. Calls have a source and a destination: where peers read
 * memory, reductions in place and averages go through scratch memory, and so do gathers into
 * several buffers everywhere.
 *
 * On a device all is put into the side's stream. Peers there never read the program's own buffers,
 * which it may use again as soon as it has waited for the task, while peers may be late. */
#include "src/comm/collective/side.h"
#include "src/comm/flight/flight.h"

#include <stdio.h>
#include <string.h>

/* --- what it needs ---------------------------------------------------------------------------- */

static bool is_root(const tsr_group *g, const tsri_task *t)
{
    return t->root == g->index;
}

static int64_t sum_of(const int64_t *counts, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

static int64_t src_count(const tsr_group *g, const tsri_task *t)
{
    return tsri_task_src_count(g->nranks, g->index, t);
}

/* Whether the communicator does whole tasks of the group, which is of several, itself. */
static bool has_own_way(const tsr_group *g, const tsri_task *t)
{
    const tsri_comm *comm = g->engine->comm;
    return !t->side && TSRI_COMM_HAS(comm, task) &&
           (!TSRI_COMM_HAS(comm, does_tasks) || comm->ops->does_tasks(g->inner));
}

/* Whether the call is of messages, whose sources no peer reads where they lie. */
static bool by_message(const tsr_group *g, const tsri_task *t)
{
    return t->side ? t->side->inner->by_message : g->inner->by_message;
}

static bool copies_on_device(const tsri_task *t, bool is_root)
{
    bool same = t->src == t->dst;
    if (!t->side->in_place) /* peers read sources */
        return true;
    if (t->kind == TSRI_TASK_ALL_REDUCE)
        return t->op != TSR_REDUCE_SUM && t->op != TSR_REDUCE_AVG;
    if (t->op == TSR_REDUCE_AVG)
        return true;
    return same && t->kind != TSRI_TASK_BROADCAST && !(t->kind == TSRI_TASK_REDUCE && !is_root);
}

/* Whether the peers get a copy of src: it becomes the result, or is scaled, or they can't read it.
 */
static bool copies_src(const tsr_group *g, const tsri_task *t, size_t bytes)
{
    bool same = t->src == t->dst;
    if (t->side)
        return copies_on_device(t, is_root(g, t));
    if (has_own_way(g, t))
        return same && t->kind > TSRI_TASK_REDUCE;
    if (g->inner->by_message)
        return same && t->kind > TSRI_TASK_REDUCE && t->kind != TSRI_TASK_REDUCE_SCATTER;
    if (t->kind == TSRI_TASK_ALL_REDUCE || t->op == TSR_REDUCE_AVG)
        return true;
    if (same && t->kind != TSRI_TASK_BROADCAST && !(t->kind == TSRI_TASK_REDUCE && !is_root(g, t)))
        return true;
    return g->engine->comm->in_region && !tsri_region_has(&g->engine->world->region, t->src, bytes);
}

/* Room for a rank's pulls, one from each member, and for the members' numbers. */
static size_t pull_bytes(const tsr_group *g)
{
    return (size_t)g->nranks * (sizeof(tsri_pull) + sizeof(int));
}

static tsri_pull *pulls_at(const tsr_group *g, char *p, int **out_member)
{
    tsri_pull *pulls = (tsri_pull *)(void *)p;
    *out_member = (int *)(void *)(pulls + g->nranks);
    for (int i = 0; i < g->nranks; i++)
        (*out_member)[i] = i;
    return pulls;
}

/* Everybody's counts of an all_to_all, both ways: mine behind all. */
static size_t counts_bytes(const tsr_group *g)
{
    return 2 * (size_t)g->nranks * sizeof(int64_t) * ((size_t)g->nranks + 1);
}

/* Memory for data: the device's, or the host's. */
static tsr_status take_data(tsr_group *g, tsri_task *t, int i, size_t bytes)
{
    return t->side ? tsri_side_take(t->side, bytes, &t->scratch[i])
                   : tsri_scratch_take(g->engine, bytes, &t->scratch[i]);
}

tsr_status tsri_task_prepare(tsr_group *g, tsri_task *t)
{
    size_t size = tsr_dtype_size(t->dtype), bytes = (size_t)src_count(g, t) * size;
    if (t->kind == TSRI_TASK_SEND)
        return tsri_send_prepare(g, t);
    if (g->nranks == 1 || t->kind == TSRI_TASK_RECV || t->kind == TSRI_TASK_BARRIER)
        return TSR_OK;
    if (t->kind == TSRI_TASK_ALL_TO_ALL) {
        size_t all = counts_bytes(g) + (has_own_way(g, t) ? 0 : pull_bytes(g));
        TSRI_TRY(tsri_scratch_take(g->engine, all, &t->scratch[1]));
    } else if (t->kind == TSRI_TASK_GATHER && is_root(g, t) && !has_own_way(g, t)) {
        TSRI_TRY(tsri_scratch_take(g->engine, pull_bytes(g), &t->scratch[1]));
    } else if (t->list && !has_own_way(g, t)) {
        TSRI_TRY(take_data(g, t, 1, (size_t)(t->count * g->nranks) * size));
    }
    return bytes && copies_src(g, t, bytes) ? take_data(g, t, 0, bytes) : TSR_OK;
}

void tsri_task_finish(tsr_group *g, tsri_task *t)
{
    for (int i = 0; i < 2; i++) {
        if (t->scratch[i].side)
            tsri_side_give(&t->scratch[i]);
        else if (t->scratch[i].p)
            tsri_scratch_give(g->engine, &t->scratch[i]);
    }
    if (t->scale)
        t->scale->destroy(t->scale);
    t->scale = NULL;
    if (t->parcel)
        tsri_send_drop(g, t);
}

/* --- doing it --------------------------------------------------------------------------------- */

/* Whether a reduction is done in two phases, as plans choose it: by the bytes that it saves and
 * those that another hand-shake is worth. Between two ranks it saves no bytes, but half of the
 * arithmetic and of the staging memory. */
static tsri_coll_algo algo_of(const tsr_group *g, const tsri_task *t)
{
    const double handshake_bytes = 65536, large_bytes = 262144;
    double n = g->nranks, bytes = (double)t->count * (double)tsr_dtype_size(t->dtype);
    double saved = bytes * (n - 1) * (n - 2) / n;
    bool pays = bytes >= large_bytes || saved > handshake_bytes;
    return by_message(g, t) && pays ? TSRI_ALGO_TWO_PHASE : TSRI_ALGO_ONE_SHOT;
}

/* Fills in the task's call, of its segment if `has_data`. */
static void describe_call(const tsr_group *g, tsri_task *t, tsri_coll_kind kind, const char *what,
                          bool has_data)
{
    bool scaled = t->op == TSR_REDUCE_AVG && !by_message(g, t);
    bool chooses = kind == TSRI_COLL_ALL_REDUCE || kind == TSRI_COLL_REDUCE;
    t->coll =
        (tsri_coll){.kind = kind,
                    .algo = chooses ? algo_of(g, t) : TSRI_ALGO_ONE_SHOT,
                    .op = scaled ? TSR_REDUCE_SUM : t->op,
                    .root = kind == TSRI_COLL_BROADCAST || kind == TSRI_COLL_REDUCE ? t->root : 0,
                    .nseg = has_data,
                    .seg = has_data ? &t->seg : NULL,
                    .what = what,
                    .loc = t->loc,
                    .number = t->number,
                    .flight = t->flight};
    t->flight = 0; /* of its first call */
}

static tsr_status copy(const tsri_task *t, void *dst, const void *src, size_t bytes)
{
    if (t->side)
        return tsri_side_copy(t->side, dst, src, bytes);
    if (bytes)
        memcpy(dst, src, bytes);
    return TSR_OK;
}

/* Brings src to the memory that peers read, as the addends of an average if it is one. */
static tsr_status bring_source(const tsr_group *g, tsri_task *t, const void **out_src)
{
    int64_t count = src_count(g, t);
    const bool scales = t->op == TSR_REDUCE_AVG && !by_message(g, t) && count;
    char *to = t->scratch[0].p;
    *out_src = count ? (to ? to : t->src) : NULL;
    if (t->side && scales)
        return tsri_side_scale(t->side, t->dtype, count, g->nranks, (void *)(uintptr_t)*out_src,
                               t->src, &t->scale);
    if (to && count)
        TSRI_TRY(copy(t, to, t->src, (size_t)count * tsr_dtype_size(t->dtype)));
    if (scales)
        tsri_scale_by_ranks(t->dtype, g->nranks, count, to);
    return TSR_OK;
}

/* Reductions, broadcasts and gathers of equal parts. */
static tsr_status describe_even(const tsr_group *g, tsri_task *t, tsri_coll_kind kind)
{
    bool gathers = kind == TSRI_COLL_ALL_GATHER, scatters = kind == TSRI_COLL_REDUCE_SCATTER;
    const void *src;
    TSRI_TRY(bring_source(g, t, &src));
    t->seg = (tsri_segment){.src = src,
                            .dst = t->list ? t->scratch[1].p : t->dst,
                            .dtype = t->dtype,
                            .shape = gathers || scatters ? TSR_DIMS(g->nranks, t->count)
                                                         : TSR_DIMS(t->count),
                            .src_axis = gathers ? 0 : -1,
                            .dst_axis = scatters ? 0 : -1};
    if (kind == TSRI_COLL_REDUCE && !is_root(g, t))
        t->seg.dst = NULL;
    if (kind == TSRI_COLL_BROADCAST && src && src != t->src)
        t->seg.dst = (char *)t->scratch[0].p;
    describe_call(g, t, kind, t->label, true);
    return TSR_OK;
}

static tsri_pull pull_of(const int *member, int64_t src_at, int64_t dst_at, int64_t count)
{
    return (tsri_pull){.ndim = 1,
                       .length = {count},
                       .src_at = src_at,
                       .src_step = {1},
                       .dst_at = dst_at,
                       .dst_step = {1},
                       .nsrc = 1,
                       .src = member};
}

/* Describes calls whose kind does not say it: what this is, which root, and the label. */
static char *describe(const tsr_group *g, tsri_task *t, const char *name, bool rooted)
{
    char *buf = t->what;
    int at = snprintf(buf, sizeof t->what, "%s", name);
    if (rooted)
        at += snprintf(buf + at, sizeof t->what - (size_t)at, ", root %d", g->ranks[t->root]);
    if (t->label[0])
        snprintf(buf + at, sizeof t->what - (size_t)at, ", %s", t->label);
    return buf;
}

/* This rank reads `npulls` parts of its peers, which all say `shape`. */
static tsr_status describe_pulls(const tsr_group *g, tsri_task *t, tsr_dims shape, int npulls,
                                 const tsri_pull *pulls, int64_t dst_count)
{
    const void *src;
    TSRI_TRY(bring_source(g, t, &src));
    t->seg = (tsri_segment){.src = src,
                            .dst = t->dst,
                            .dtype = t->dtype,
                            .shape = shape,
                            .npulls = npulls,
                            .pulls = pulls,
                            .dst_count = npulls ? dst_count : 0};
    describe_call(g, t, TSRI_COLL_SEND_RECV, t->what, true);
    return TSR_OK;
}

/* gather and scatter. The root is part of what is compared. */
static tsr_status describe_rooted(const tsr_group *g, tsri_task *t)
{
    tsr_dims shape = TSR_DIMS(g->nranks, t->count);
    describe(g, t, tsri_task_name(t->kind), true);
    if (t->kind == TSRI_TASK_SCATTER) {
        t->pull = pull_of(&t->root, g->index * t->count, 0, t->count);
        return describe_pulls(g, t, shape, 1, &t->pull, t->count);
    }
    if (!is_root(g, t))
        return describe_pulls(g, t, shape, 0, NULL, 0);
    int *member;
    tsri_pull *pulls = pulls_at(g, t->scratch[1].p, &member);
    for (int i = 0; i < g->nranks; i++)
        pulls[i] = pull_of(&member[i], 0, i * t->count, t->count);
    return describe_pulls(g, t, shape, g->nranks, pulls, t->count * g->nranks);
}

/* On the host that is a call of its own; between devices the ranks' hosts talk beside the group's
 * calls, whose order is another one. */
static tsr_status exchange_counts(tsr_group *g, tsri_task *t)
{
    int n = g->nranks;
    int64_t *all = (int64_t *)(void *)t->scratch[1].p, *mine = all + (int64_t)2 * n * n;
    memcpy(mine, t->src_counts, (size_t)n * sizeof *mine);
    memcpy(mine + n, t->dst_counts, (size_t)n * sizeof *mine);
    char name[32];
    snprintf(name, sizeof name, "all_to_all of %s", tsr_dtype_name(t->dtype));
    describe(g, t, name, false);
    if (t->side) {
        TSRI_TRY(tsri_comm_gather_words(g->engine->world, n, g->ranks, t->what, 2 * n, mine, all));
        return tsri_all_to_all_check(n, g->ranks, t, all);
    }
    const tsri_segment s = {.src = mine,
                            .dst = all,
                            .dtype = TSR_I64,
                            .shape = TSR_DIMS(n, 2 * n),
                            .src_axis = 0,
                            .dst_axis = -1};
    describe_call(g, t, TSRI_COLL_ALL_GATHER, t->what, true);
    t->coll.seg = &s;
    TSRI_TRY(tsri_comm_call(g->inner, &t->coll));
    return tsri_all_to_all_check(n, g->ranks, t, all);
}

static tsr_status describe_all_to_all(tsr_group *g, tsri_task *t)
{
    int n = g->nranks, *member;
    int64_t dst_at = 0, total = 0;
    TSRI_TRY(exchange_counts(g, t));
    tsri_pull *pulls = pulls_at(g, t->scratch[1].p + counts_bytes(g), &member);
    const int64_t *counts = (const int64_t *)(const void *)t->scratch[1].p;
    for (int i = 0; i < n; i++) {
        const int64_t *sends = counts + (int64_t)2 * i * n;
        pulls[i] = pull_of(&member[i], sum_of(sends, g->index), dst_at, sends[g->index]);
        dst_at += sends[g->index];
        total += sum_of(sends, n);
    }
    describe(g, t, "all_to_all", false);
    return describe_pulls(g, t, TSR_DIMS(total), n, pulls, dst_at);
}

/* A group of one: the result is the source. */
static tsr_status run_alone(const tsr_group *g, const tsri_task *t)
{
    size_t bytes = (size_t)src_count(g, t) * tsr_dtype_size(t->dtype);
    char *dst = t->list ? t->list[0] : t->dst;
    if (t->kind == TSRI_TASK_ALL_TO_ALL && t->src_counts[0] != t->dst_counts[0])
        return tsri_all_to_all_check(1, g->ranks, t,
                                     (const int64_t[]){t->src_counts[0], t->dst_counts[0]});
    return bytes && dst != t->src ? copy(t, dst, t->src, bytes) : TSR_OK;
}

/* The kind of a task's call; gathers, scatters and all-to-alls end so. */
static tsri_coll_kind kind_of(const tsri_task *task)
{
    int kind = tsri_task_coll_kind(task->kind);
    return kind < TSRI_COLL_KIND_COUNT_ && kind != TSRI_COLL_ALL_TO_ALL ? (tsri_coll_kind)kind
                                                                        : TSRI_COLL_SEND_RECV;
}

/* Messages are on record when they are on their way: until then their path is not known. */
void tsri_task_schedule(const tsr_group *g, tsri_task *task)
{
    const tsri_coll c = {
        .kind = kind_of(task), .what = task->label, .loc = task->loc, .number = task->number};
    if (g->inner && task->kind != TSRI_TASK_SEND && task->kind != TSRI_TASK_RECV)
        task->flight = tsri_flight_schedule(g->engine->world->flight, g->inner->flight, &c);
}

tsr_status tsri_task_describe(tsr_group *g, tsri_task *t)
{
    switch (t->kind) {
    case TSRI_TASK_BARRIER:
        describe_call(g, t, TSRI_COLL_BARRIER, t->label, false);
        return TSR_OK;
    case TSRI_TASK_GATHER:
    case TSRI_TASK_SCATTER:
        return describe_rooted(g, t);
    case TSRI_TASK_ALL_TO_ALL:
        return describe_all_to_all(g, t);
    default:
        return describe_even(g, t, kind_of(t));
    }
}

tsr_status tsri_task_end(const tsr_group *g, const tsri_task *t)
{
    size_t bytes = (size_t)t->count * tsr_dtype_size(t->dtype);
    for (int i = 0; t->list && bytes && i < g->nranks; i++)
        TSRI_TRY(copy(t, t->list[i], t->scratch[1].p + (size_t)i * bytes, bytes));
    return TSR_OK;
}

tsr_status tsri_task_run(tsr_group *g, tsri_task *t)
{
    if (t->kind == TSRI_TASK_SEND)
        return tsri_send_run(g, t);
    if (t->kind == TSRI_TASK_RECV)
        return tsri_recv_run(g, t);
    if (g->nranks == 1)
        return run_alone(g, t);
    if (has_own_way(g, t))
        return g->engine->comm->ops->task(g->inner, t);
    TSRI_TRY(tsri_task_describe(g, t));
    TSRI_TRY(tsri_comm_call(g->inner, &t->coll));
    return tsri_task_end(g, t);
}
