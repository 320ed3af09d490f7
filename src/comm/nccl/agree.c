/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/nccl/agree.h"

#include <stdio.h>
#include <string.h>

/* A lane of the host's communicator, beside those of tensors. */
enum { AGREE_LANE = 2 };

/* A call in short: whole words. */
typedef struct summary {
    int64_t hash, kind, op, algo, root, nseg, bytes, words;
    char what[64];
} summary;

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static summary sum_up(const tsri_coll *c)
{
    bool pulls = c->kind == TSRI_COLL_SEND_RECV, has_op = pulls;
    bool has_root = c->kind == TSRI_COLL_BROADCAST || c->kind == TSRI_COLL_REDUCE;
    has_op |= c->kind == TSRI_COLL_ALL_REDUCE || c->kind == TSRI_COLL_REDUCE_SCATTER ||
              c->kind == TSRI_COLL_REDUCE;
    summary s = {.kind = (int64_t)c->kind,
                 .op = has_op ? (int64_t)c->op : 0,
                 .algo = c->kind == TSRI_COLL_ALL_REDUCE ? (int64_t)c->algo : 0,
                 .root = has_root ? c->root : 0,
                 .nseg = c->nseg,
                 .words = pulls ? tsri_nccl_describe(c, -1, 0, NULL) : 0};
    uint64_t h = 0;
    for (int i = 0; i < c->nseg; i++) {
        const tsri_segment *seg = &c->seg[i];
        h = mix(h, (uint64_t)seg->dtype << 32 ^ (uint64_t)seg->shape.ndim);
        if (!pulls)
            h = mix(h, (uint64_t)(uint8_t)seg->src_axis << 8 ^ (uint64_t)(uint8_t)seg->dst_axis);
        for (int a = 0; a < seg->shape.ndim; a++)
            h = mix(h, (uint64_t)seg->shape.d[a]);
        s.bytes += tsr_dims_count(seg->shape) * (int64_t)tsr_dtype_size(seg->dtype);
    }
    snprintf(s.what, sizeof s.what, "%.63s", c->what ? c->what : "");
    s.hash = (int64_t)h;
    return s;
}

/* All members' `count` words, in their order; the caller frees them. */
static tsr_status try_gather(const tsri_group *g, const void *mine, int64_t count,
                             int64_t **out_all)
{
    tsr_world *world = g->comm->world;
    tsri_comm *host = world->comm;
    size_t bytes = (size_t)count * sizeof(int64_t);
    tsri_group *group;
    tsri_ticket ticket;
    void *src;
    TSRI_TRY(host->ops->group(host, g->nranks, g->ranks, AGREE_LANE, &group));
    int64_t *all = tsri_mem_alloc(&world->mem, bytes * (size_t)g->nranks);
    if (!all)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsri_region_alloc(&world->region, bytes, &src);
    if (status != TSR_OK) {
        tsri_mem_free(all);
        return status;
    }
    memcpy(src, mine, bytes);
    const tsri_segment seg = {.src = src,
                              .dst = all,
                              .dtype = TSR_I64,
                              .shape = TSR_DIMS(g->nranks, count),
                              .src_axis = 0,
                              .dst_axis = -1};
    const tsri_coll coll = {
        .kind = TSRI_COLL_ALL_GATHER, .nseg = 1, .seg = &seg, .what = "agreeing on a call"};
    status = host->ops->start(group, &coll, &ticket);
    if (status == TSR_OK)
        status = host->ops->finish(group, &ticket);
    if (status == TSR_OK)
        status = host->ops->release(group, &ticket);
    tsri_region_free(&world->region, src, bytes);
    if (status != TSR_OK) {
        tsri_mem_free(all);
        return status;
    }
    *out_all = all;
    return TSR_OK;
}

/* A rank that can't come to it tells the others, which would wait. */
static tsr_status gather(const tsri_group *g, const void *mine, int64_t count, int64_t **out_all)
{
    tsri_comm *host = g->comm->world->comm;
    tsr_status status = try_gather(g, mine, count, out_all);
    if (status == TSR_ERR_NO_MEMORY)
        host->ops->abort(host, tsr_last_error());
    return status;
}

static void say(const summary *s, char *buf, size_t size)
{
    static const char *const ops[] = {"sum", "max", "min"};
    snprintf(buf, size, "%s '%.63s' (%s%s, root %d, %lld segments, %lld bytes)",
             tsri_coll_kind_name((tsri_coll_kind)s->kind), s->what, ops[s->op],
             s->algo == TSRI_ALGO_TWO_PHASE ? ", two-phase" : "", (int)s->root, (long long)s->nseg,
             (long long)s->bytes);
}

static bool agrees(const summary *a, const summary *b)
{
    return a->hash == b->hash && a->kind == b->kind && a->op == b->op && a->algo == b->algo &&
           a->root == b->root && a->nseg == b->nseg && !memcmp(a->what, b->what, sizeof a->what);
}

/* With the first member; all compare all, so all find the same. */
static tsr_status compare(const tsri_group *g, const summary *all)
{
    for (int i = 1; i < g->nranks; i++) {
        char first[256], other[256];
        if (agrees(&all[0], &all[i]))
            continue;
        say(&all[0], first, sizeof first);
        say(&all[i], other, sizeof other);
        return tsri_fail(TSR_ERR_MISMATCH, "ranks disagree: rank %d is at %s; rank %d is at %s%s",
                         g->ranks[0], first, g->ranks[i], other,
                         strcmp(first, other) ? "" : " (dtypes, shapes or axes differ)");
    }
    return TSR_OK;
}

static tsr_status pass_words(const tsri_group *g, const tsri_coll *coll, int64_t most,
                             tsri_nccl_words *out_words)
{
    int64_t *all;
    int64_t *mine = tsri_mem_alloc(&g->comm->world->mem, (size_t)most * sizeof *mine);
    if (!mine) {
        g->comm->world->comm->ops->abort(g->comm->world->comm, tsr_last_error());
        return TSR_ERR_NO_MEMORY;
    }
    tsri_nccl_describe(coll, -1, most, mine);
    tsr_status status = gather(g, mine, most, &all);
    tsri_mem_free(mine);
    if (status == TSR_OK)
        *out_words = (tsri_nccl_words){all, most};
    return status;
}

tsr_status tsri_nccl_agree(const tsri_group *g, const tsri_coll *coll, tsri_nccl_words *out_words)
{
    _Static_assert(sizeof(summary) % sizeof(int64_t) == 0, "a summary goes as words");
    const summary mine = sum_up(coll);
    int64_t *words, most = 0;
    *out_words = (tsri_nccl_words){0};
    TSRI_TRY(gather(g, &mine, (int64_t)(sizeof mine / sizeof(int64_t)), &words));
    const summary *all = (const summary *)words;
    for (int i = 0; i < g->nranks; i++)
        most = all[i].words > most ? all[i].words : most;
    tsr_status status = compare(g, all);
    if (status == TSR_OK && coll->kind == TSRI_COLL_SEND_RECV && most > 0)
        status = pass_words(g, coll, most, out_words);
    tsri_mem_free(words);
    return status;
}
