/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that communicators have in common: the names of calls, and the cost of a call, in bytes
 * that a rank reads from its peers. */
#include "src/comm/comm.h"

#include <string.h>

#include <tessera/placement.h>

const char *tsri_coll_kind_name(int kind)
{
    static const char *const names[] = {
        "barrier", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
        "reduce",  "send_recv",  "exchange",   "gather",         "scatter",
    };
    _Static_assert(sizeof names / sizeof *names == TSRI_COLL_SCATTER_ + 1, "a word for each kind");
    return kind >= 0 && kind <= TSRI_COLL_SCATTER_ ? names[kind] : "?";
}

const char *tsri_reduce_name(int op)
{
    static const char *const names[] = {"sum", "max", "min", "product", "avg"};
    return op >= 0 && op <= TSR_REDUCE_AVG ? names[op] : "?";
}

bool tsri_coll_has_op(int kind)
{
    return kind == TSRI_COLL_ALL_REDUCE || kind == TSRI_COLL_REDUCE_SCATTER ||
           kind == TSRI_COLL_REDUCE || kind == TSRI_COLL_SEND_RECV;
}

bool tsri_coll_has_root(int kind)
{
    return kind == TSRI_COLL_BROADCAST || kind == TSRI_COLL_REDUCE || kind == TSRI_COLL_GATHER_ ||
           kind == TSRI_COLL_SCATTER_;
}

tsr_status tsri_comm_everybody(tsri_comm *c, tsri_group **out_group)
{
    enum { FEW = 256 };
    int n = c->world->nranks, few[FEW] = {0};
    int *ranks = n <= FEW ? few : tsri_mem_alloc(&c->world->mem, (size_t)n * sizeof *ranks);
    TSRI_NEED(ranks);
    for (int r = 0; r < n; r++)
        ranks[r] = r;
    tsr_status status = c->ops->group(c, n, ranks, 0, out_group);
    if (ranks != few)
        tsri_mem_free(ranks);
    return status;
}

tsr_status tsri_comm_call(tsri_group *g, const tsri_coll *coll)
{
    const tsri_comm_ops *ops = g->comm->ops;
    tsri_ticket ticket;
    TSRI_TRY(ops->start(g, coll, &ticket));
    TSRI_TRY(ops->finish(g, &ticket));
    return ops->release(g, &ticket);
}

tsr_status tsri_comm_gather_words(tsr_world *world, int n, const int *ranks, const char *what,
                                  int64_t count, const void *mine, int64_t *all)
{
    enum { BESIDE_LANE = 2 };
    tsri_comm *host = world->comm;
    size_t bytes = (size_t)count * sizeof *all;
    tsri_group *group;
    void *src; /* what peers read lies in the rank's region */
    TSRI_TRY(host->ops->group(host, n, ranks, BESIDE_LANE, &group));
    TSRI_TRY(tsri_region_alloc(&world->region, bytes, &src));
    memcpy(src, mine, bytes);
    const tsri_segment seg = {.src = src,
                              .dst = all,
                              .dtype = TSR_I64,
                              .shape = TSR_DIMS(n, count),
                              .src_axis = 0,
                              .dst_axis = -1};
    const tsri_coll coll = {.kind = TSRI_COLL_ALL_GATHER, .nseg = 1, .seg = &seg, .what = what};
    tsr_status status = tsri_comm_call(group, &coll);
    tsri_region_free(&world->region, src, bytes);
    return status;
}

tsri_comm *tsri_comm_on_machine(tsri_comm *c)
{
    return c && TSRI_COMM_HAS(c, on_machine) ? c->ops->on_machine(c) : NULL;
}

int64_t tsri_segment_count(const tsri_segment *seg, int axis, int n, int i)
{
    int64_t offset, length, count = tsr_dims_count(seg->shape);
    if (axis < 0 || count == 0)
        return count;
    tsr_balanced_split(seg->shape.d[axis], n, i, &offset, &length);
    return count / seg->shape.d[axis] * length;
}

/* Elements that rank i holds before an all-to-all and keeps: the meeting of its two pieces. */
static int64_t kept_count(const tsri_segment *seg, int n, int i)
{
    int64_t count = tsr_dims_count(seg->shape), offset, from, to;
    if (count == 0 || seg->src_axis == seg->dst_axis)
        return tsri_segment_count(seg, seg->src_axis, n, i);
    int64_t d_src = seg->shape.d[seg->src_axis], d_dst = seg->shape.d[seg->dst_axis];
    tsr_balanced_split(d_src, n, i, &offset, &from);
    tsr_balanced_split(d_dst, n, i, &offset, &to);
    return count / d_src / d_dst * from * to;
}

/* Elements that rank `index` reads of peers, a box once for each source. */
static int64_t pulled_count(const tsri_segment *seg, int index)
{
    int64_t total = 0;
    for (int i = 0; i < seg->npulls; i++) {
        const tsri_pull *p = &seg->pulls[i];
        int64_t count = 1, peers = 0;
        for (int a = 0; a < p->ndim; a++)
            count *= p->length[a];
        for (int s = 0; s < p->nsrc; s++)
            peers += p->src[s] != index;
        total += count * peers;
    }
    return total;
}

uint64_t tsri_coll_bytes(tsri_coll_kind kind, tsri_coll_algo algo, int n, int index, int root,
                         const tsri_segment *seg)
{
    int64_t total = tsr_dims_count(seg->shape), offset, part = 0, elements = 0;
    switch (kind) {
    case TSRI_COLL_ALL_REDUCE:
        tsr_balanced_split(total, n, index, &offset, &part);
        elements = algo == TSRI_ALGO_TWO_PHASE ? (n - 1) * part + total - part : (n - 1) * total;
        break;
    case TSRI_COLL_ALL_GATHER:
        elements = total - tsri_segment_count(seg, seg->src_axis, n, index);
        break;
    case TSRI_COLL_REDUCE_SCATTER:
        elements = (n - 1) * tsri_segment_count(seg, seg->dst_axis, n, index);
        break;
    case TSRI_COLL_ALL_TO_ALL:
        elements = tsri_segment_count(seg, seg->dst_axis, n, index) - kept_count(seg, n, index);
        break;
    case TSRI_COLL_BROADCAST:
        elements = index == root ? 0 : total;
        break;
    case TSRI_COLL_REDUCE:
        tsr_balanced_split(total, n, index, &offset, &part);
        if (algo == TSRI_ALGO_TWO_PHASE)
            elements = (n - 1) * part + (index == root ? total - part : 0);
        else
            elements = index == root ? (n - 1) * total : 0;
        break;
    case TSRI_COLL_SEND_RECV:
        elements = pulled_count(seg, index);
        break;
    default:
        break;
    }
    return (uint64_t)elements * tsr_dtype_size(seg->dtype);
}
