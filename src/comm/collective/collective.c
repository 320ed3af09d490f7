/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tessera/collective.h: what can be seen to be wrong by one rank is refused before
 * anybody hears of it. */
#include "src/comm/collective/collective.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/core/live.h"
#include "src/target/dtype.h"

/* --- what is refused -------------------------------------------------------------------------- */

static tsr_status refuse(const tsri_task *t, const char *fmt, ...) TSR_PRINTF(2, 3);

static tsr_status refuse(const tsri_task *t, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return tsri_fail_at(t->loc, TSR_ERR_INVALID, "%s: %s", tsri_task_name(t->kind), text);
}

static tsr_status check_group(const tsr_group *g, const tsri_task *t)
{
    if (!g)
        return refuse(t, "the group is NULL (did tsr_world_group fail?)");
    return tsri_live_check(g, TSRI_LIVE_GROUP, tsri_task_name(t->kind));
}

/* `all`: how many times count elements lie in one buffer. */
static tsr_status check_count(const tsri_task *t, int64_t all)
{
    if (t->dtype <= TSR_DTYPE_NONE || t->dtype >= TSR_DTYPE_COUNT_)
        return refuse(t, "there is no dtype %d", (int)t->dtype);
    int64_t most = INT64_MAX / (int64_t)tsr_dtype_size(t->dtype) / all;
    if (t->count < 0 || t->count > most)
        return refuse(t, "a count of %lld elements of %s; expected 0 to %lld", (long long)t->count,
                      tsr_dtype_name(t->dtype), (long long)most);
    return TSR_OK;
}

static tsr_status check_op(const tsri_task *t)
{
    if (t->op < TSR_REDUCE_SUM || t->op > TSR_REDUCE_AVG)
        return refuse(t, "there is no reduction %d", (int)t->op);
    if (t->op == TSR_REDUCE_AVG && !tsri_is_float(t->dtype))
        return refuse(t, "an average of %s; averages are of f32, f64, f16 and bf16",
                      tsr_dtype_name(t->dtype));
    return TSR_OK;
}

/* A world rank of the group; the task gets its place. */
static tsr_status find_rank(const tsr_group *g, tsri_task *t, int rank, const char *role)
{
    char list[128];
    int at = 0;
    for (int i = 0; i < g->nranks; i++) {
        if (g->ranks[i] == rank) {
            t->root = i;
            return TSR_OK;
        }
        if (at < 100)
            at += snprintf(list + at, sizeof list - (size_t)at, "%s%d", i ? "," : "", g->ranks[i]);
        else if (i == g->nranks - 1)
            snprintf(list + at, sizeof list - (size_t)at, ",...,%d", g->ranks[i]);
    }
    return refuse(t, "%s %d is no rank of the group [%s]", role, rank, list);
}

static tsr_status check_buffer(const tsri_task *t, const void *p, int64_t count, const char *name)
{
    return p || count == 0 ? TSR_OK
                           : refuse(t, "%s is NULL, for %lld elements", name, (long long)count);
}

/* Two buffers are one, or apart. */
static tsr_status check_apart(const tsri_task *t, const void *a, int64_t na, const void *b,
                              int64_t nb)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b, size = tsr_dtype_size(t->dtype);
    if (a == b || !na || !nb || x >= y + (uintptr_t)nb * size || y >= x + (uintptr_t)na * size)
        return TSR_OK;
    return refuse(t,
                  "buffers overlap: %lld elements at %p and %lld at %p; they may be the same, "
                  "or apart",
                  (long long)na, a, (long long)nb, b);
}

static tsr_status check_both(const tsri_task *t, int64_t nsrc, int64_t ndst)
{
    TSRI_TRY(check_buffer(t, t->src, nsrc, "src"));
    TSRI_TRY(check_buffer(t, t->dst, ndst, "dst"));
    return check_apart(t, t->src, nsrc, t->dst, ndst);
}

/* --- in place --------------------------------------------------------------------------------- */

static tsri_task task_of(tsri_task_kind kind, const void *src, void *dst, int64_t count,
                         tsr_dtype dtype, const char *file, int line)
{
    return (tsri_task){
        .kind = kind, .dtype = dtype, .count = count, .src = src, .dst = dst, .loc = {file, line}};
}

tsr_status tsr_all_reduce_at(tsr_group *g, void *data, int64_t count, tsr_dtype dtype,
                             tsr_reduce_op op, tsr_work **out_work, const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_ALL_REDUCE, data, data, count, dtype, file, line);
    t.op = op;
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, 1));
    TSRI_TRY(check_op(&t));
    TSRI_TRY(check_buffer(&t, data, count, "data"));
    return tsri_work_submit(g, &t, out_work);
}

tsr_status tsr_broadcast_at(tsr_group *g, void *data, int64_t count, tsr_dtype dtype, int root,
                            tsr_work **out_work, const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_BROADCAST, data, data, count, dtype, file, line);
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, 1));
    TSRI_TRY(find_rank(g, &t, root, "root"));
    TSRI_TRY(check_buffer(&t, data, count, "data"));
    return tsri_work_submit(g, &t, out_work);
}

tsr_status tsr_reduce_at(tsr_group *g, void *data, int64_t count, tsr_dtype dtype, tsr_reduce_op op,
                         int root, tsr_work **out_work, const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_REDUCE, data, data, count, dtype, file, line);
    t.op = op;
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, 1));
    TSRI_TRY(check_op(&t));
    TSRI_TRY(find_rank(g, &t, root, "root"));
    TSRI_TRY(check_buffer(&t, data, count, "data"));
    return tsri_work_submit(g, &t, out_work);
}

/* --- from src to dst -------------------------------------------------------------------------- */

static tsr_status check_list(const tsr_group *g, const tsri_task *t)
{
    if (!t->list)
        return refuse(t, "dst is NULL; expected %d pointers", g->nranks);
    for (int i = 0; i < g->nranks; i++) {
        if (!t->list[i] && t->count)
            return refuse(t, "dst[%d] is NULL, for %lld elements", i, (long long)t->count);
        /* Peers read src while this rank fills what is theirs. */
        if (t->list[i] == t->src && t->count && i != g->index)
            return refuse(t, "dst[%d] is src; of all dst, dst[%d] alone may be", i, g->index);
        TSRI_TRY(check_apart(t, t->src, t->count, t->list[i], t->count));
        for (int j = 0; j < i && t->count; j++) {
            if (t->list[i] == t->list[j])
                return refuse(t, "dst[%d] and dst[%d] are the same buffer", j, i);
            TSRI_TRY(check_apart(t, t->list[i], t->count, t->list[j], t->count));
        }
    }
    return TSR_OK;
}

tsr_status tsr_all_gather_at(tsr_group *g, const void *src, void *const *dst, int64_t count,
                             tsr_dtype dtype, tsr_work **out_work, const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_ALL_GATHER, src, NULL, count, dtype, file, line);
    t.list = dst;
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, g->nranks));
    TSRI_TRY(check_buffer(&t, src, count, "src"));
    TSRI_TRY(check_list(g, &t));
    return tsri_work_submit(g, &t, out_work);
}

tsr_status tsr_all_gather_into_at(tsr_group *g, const void *src, void *dst, int64_t count,
                                  tsr_dtype dtype, tsr_work **out_work, const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_ALL_GATHER, src, dst, count, dtype, file, line);
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, g->nranks));
    TSRI_TRY(check_both(&t, count, count * g->nranks));
    return tsri_work_submit(g, &t, out_work);
}

tsr_status tsr_reduce_scatter_at(tsr_group *g, const void *src, void *dst, int64_t count,
                                 tsr_dtype dtype, tsr_reduce_op op, tsr_work **out_work,
                                 const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_REDUCE_SCATTER, src, dst, count, dtype, file, line);
    t.op = op;
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, g->nranks));
    TSRI_TRY(check_op(&t));
    TSRI_TRY(check_both(&t, count * g->nranks, count));
    return tsri_work_submit(g, &t, out_work);
}

/* The sum of n counts, none below 0. */
static tsr_status check_counts(const tsri_task *t, int n, const int64_t *counts, const char *name,
                               int64_t *out_sum)
{
    int64_t sum = 0, most = INT64_MAX / (int64_t)tsr_dtype_size(t->dtype);
    if (!counts)
        return refuse(t, "%s is NULL; expected %d counts", name, n);
    for (int i = 0; i < n; i++) {
        if (counts[i] < 0 || counts[i] > most - sum)
            return refuse(t, "%s[%d] is %lld; expected 0 or more, at most %lld together", name, i,
                          (long long)counts[i], (long long)most);
        sum += counts[i];
    }
    *out_sum = sum;
    return TSR_OK;
}

tsr_status tsr_all_to_all_at(tsr_group *g, const void *src, const int64_t *src_counts, void *dst,
                             const int64_t *dst_counts, tsr_dtype dtype, tsr_work **out_work,
                             const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_ALL_TO_ALL, src, dst, 0, dtype, file, line);
    int64_t nsrc = 0, ndst = 0;
    t.src_counts = src_counts;
    t.dst_counts = dst_counts;
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, 1));
    TSRI_TRY(check_counts(&t, g->nranks, src_counts, "src_counts", &nsrc));
    TSRI_TRY(check_counts(&t, g->nranks, dst_counts, "dst_counts", &ndst));
    TSRI_TRY(check_both(&t, nsrc, ndst));
    return tsri_work_submit(g, &t, out_work);
}

tsr_status tsr_gather_to_at(tsr_group *g, const void *src, void *dst, int64_t count,
                            tsr_dtype dtype, int root, tsr_work **out_work, const char *file,
                            int line)
{
    tsri_task t = task_of(TSRI_TASK_GATHER, src, dst, count, dtype, file, line);
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, g->nranks));
    TSRI_TRY(find_rank(g, &t, root, "root"));
    TSRI_TRY(check_both(&t, count, t.root == g->index ? count * g->nranks : 0));
    if (t.root != g->index)
        t.dst = NULL;
    return tsri_work_submit(g, &t, out_work);
}

tsr_status tsr_scatter_from_at(tsr_group *g, const void *src, void *dst, int64_t count,
                               tsr_dtype dtype, int root, tsr_work **out_work, const char *file,
                               int line)
{
    tsri_task t = task_of(TSRI_TASK_SCATTER, src, dst, count, dtype, file, line);
    TSRI_TRY(check_group(g, &t));
    TSRI_TRY(check_count(&t, g->nranks));
    TSRI_TRY(find_rank(g, &t, root, "root"));
    TSRI_TRY(check_both(&t, t.root == g->index ? count * g->nranks : 0, count));
    if (t.root != g->index)
        t.src = NULL;
    return tsri_work_submit(g, &t, out_work);
}

tsr_status tsr_barrier_at(tsr_group *g, tsr_work **out_work, const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_BARRIER, NULL, NULL, 0, TSR_U8, file, line);
    TSRI_TRY(check_group(g, &t));
    return tsri_work_submit(g, &t, out_work);
}

/* --- between two ------------------------------------------------------------------------------ */

static tsr_status submit_message(tsr_group *g, tsri_task *t, int other, const char *role, int tag,
                                 tsr_work **out_work)
{
    TSRI_TRY(check_group(g, t));
    TSRI_TRY(check_count(t, 1));
    TSRI_TRY(find_rank(g, t, other, role));
    if (t->root == g->index)
        return refuse(t, "%s %d is this rank itself", role, other);
    if (tag < 0 || tag > 65535)
        return refuse(t, "a tag of %d; expected 0 to 65535", tag);
    TSRI_TRY(check_buffer(t, t->src ? t->src : t->dst, t->count, "data"));
    t->tag = tag;
    return tsri_work_submit(g, t, out_work);
}

tsr_status tsr_send_at(tsr_group *g, const void *data, int64_t count, tsr_dtype dtype, int to,
                       int tag, tsr_work **out_work, const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_SEND, data, NULL, count, dtype, file, line);
    return submit_message(g, &t, to, "to", tag, out_work);
}

tsr_status tsr_recv_at(tsr_group *g, void *data, int64_t count, tsr_dtype dtype, int from, int tag,
                       tsr_work **out_work, const char *file, int line)
{
    tsri_task t = task_of(TSRI_TASK_RECV, NULL, data, count, dtype, file, line);
    return submit_message(g, &t, from, "from", tag, out_work);
}
