/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/world/measure.h"
#include "src/comm/comm.h"
#include "src/core/clock.h"

#include <string.h>

enum { TRIES = 7, TINY_CALLS = 100 };
static const size_t most_bytes = (size_t)8 << 20, least_bytes = (size_t)64 << 10;

/* src and dst: `bytes` each, both in the region. */
typedef struct bench {
    tsr_world *world;
    tsri_group *group;
    char *src, *dst;
    size_t bytes;
    tsri_segment element;
    tsri_coll tiny; /* a call of that element, prepared where that can be done: as plans' are */
} bench;

static tsr_status tiny_calls(const bench *b)
{
    for (int i = 0; i < TINY_CALLS; i++)
        TSRI_TRY(tsri_comm_call(b->group, &b->tiny));
    return TSR_OK;
}

/* The shortest time of some, each from where all ranks are ready. The first is for warming up. */
static tsr_status best_of(const bench *b, tsr_status (*fn)(const bench *b), double *out_s)
{
    *out_s = 0;
    for (int i = 0; i <= TRIES; i++) {
        TSRI_TRY(tsr_world_barrier(b->world));
        double start = tsri_now_s();
        TSRI_TRY(fn(b));
        double s = tsri_now_s() - start;
        if (i == 1 || (i > 1 && s < *out_s))
            *out_s = s;
    }
    return TSR_OK;
}

static tsr_status time_tiny_calls(bench *b, double *out_s)
{
    const tsri_comm_ops *ops = b->world->comm->ops;
    b->element = (tsri_segment){.src = b->src,
                                .dst = b->dst,
                                .dtype = TSR_DTYPE_F32,
                                .shape = TSR_DIMS(1),
                                .src_axis = -1,
                                .dst_axis = -1};
    b->tiny = (tsri_coll){
        .kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &b->element, .what = "measuring latency"};
    if (ops->prepare)
        TSRI_TRY(ops->prepare(b->group, &b->tiny));
    tsr_status status = best_of(b, tiny_calls, out_s);
    if (b->tiny.prepared)
        ops->unprepare(b->group, &b->tiny);
    return status;
}

static tsr_status read_peer(const bench *b)
{
    const int next = (b->group->index + 1) % b->group->nranks;
    int64_t count = (int64_t)b->bytes;
    const tsri_pull p = {
        .ndim = 1, .length = {count}, .src_step = {1}, .dst_step = {1}, .nsrc = 1, .src = &next};
    const tsri_segment s = {.src = b->src,
                            .dst = b->dst,
                            .dtype = TSR_DTYPE_U8,
                            .shape = TSR_DIMS(count),
                            .npulls = 1,
                            .pulls = &p,
                            .dst_count = count};
    const tsri_coll c = {
        .kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "measuring bandwidth"};
    return tsri_comm_call(b->group, &c);
}

static tsr_status copy_own(const bench *b)
{
    memcpy(b->dst, b->src, b->bytes);
    return TSR_OK;
}

/* Seconds of: a tiny call, reading the buffer from a peer, copying it. Figures of the slowest rank.
 */
enum { TINY, READ, COPY, FIGURES };

static tsr_status measure(bench *b, double s[FIGURES])
{
    const double least_s = 1e-9; /* a clock may stand still for once */
    memset(b->src, 1, b->bytes);
    memset(b->dst, 0, b->bytes);
    TSRI_TRY(time_tiny_calls(b, &s[TINY]));
    TSRI_TRY(best_of(b, read_peer, &s[READ]));
    TSRI_TRY(best_of(b, copy_own, &s[COPY]));
    size_t n = (size_t)b->world->nranks;
    double *all = tsri_mem_alloc(&b->world->mem, n * FIGURES * sizeof *all);
    TSRI_NEED(all);
    tsr_status status = b->world->comm->ops->exchange(b->world->comm, s, FIGURES * sizeof *s, all);
    for (size_t k = 0; k < FIGURES && status == TSR_OK; k++) {
        s[k] = least_s;
        for (size_t r = 0; r < n; r++)
            s[k] = all[r * FIGURES + k] > s[k] ? all[r * FIGURES + k] : s[k];
    }
    tsri_mem_free(all);
    return status;
}

/* Agrees on the room that all ranks have: the least of what each has. */
static tsr_status agree_on_bytes(tsr_world *world, size_t *out_bytes)
{
    const tsri_region *region = &world->region;
    uint64_t mine = (region->top - region->plan_bytes) / 2 / 64 * 64;
    uint64_t *all = tsri_mem_alloc(&world->mem, (size_t)world->nranks * sizeof *all);
    TSRI_NEED(all);
    if (mine > most_bytes)
        mine = most_bytes;
    tsr_status status = world->comm->ops->exchange(world->comm, &mine, sizeof mine, all);
    for (int r = 0; r < world->nranks && status == TSR_OK; r++)
        mine = all[r] < mine ? all[r] : mine;
    tsri_mem_free(all);
    TSRI_TRY(status);
    if (mine < least_bytes)
        return tsri_fail(TSR_ERR_NO_MEMORY,
                         "measuring needs %zu bytes of each rank's arena; one has %llu free",
                         2 * least_bytes, 2 * (unsigned long long)mine);
    *out_bytes = (size_t)mine;
    return TSR_OK;
}

tsr_status tsri_comm_measure(tsr_world *world, double *out_latency_s, double *out_bytes_per_s,
                             double *out_local_bytes_per_s)
{
    void *src, *dst;
    double s[FIGURES];
    bench b = {.world = world};
    if (world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "measuring a virtual world: its ranks do not exist");
    TSRI_TRY(tsri_comm_everybody(world->comm, &b.group));
    TSRI_TRY(agree_on_bytes(world, &b.bytes));
    TSRI_TRY(tsri_region_alloc(&world->region, b.bytes, &src));
    tsr_status status = tsri_region_alloc(&world->region, b.bytes, &dst);
    if (status == TSR_OK) {
        memset(src, 0, b.bytes);
        memset(dst, 0, b.bytes);
        b.src = src;
        b.dst = dst;
        status = measure(&b, s);
        tsri_region_free(&world->region, dst, b.bytes);
    }
    tsri_region_free(&world->region, src, b.bytes);
    if (status != TSR_OK)
        return status;
    *out_latency_s = s[TINY] / TINY_CALLS;
    *out_bytes_per_s = (double)b.bytes / s[READ];
    *out_local_bytes_per_s = 2 * (double)b.bytes / s[COPY];
    return TSR_OK;
}
