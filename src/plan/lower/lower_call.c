/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowering of conversions that talk: the group of ranks, and what of each tensor moves. Steps whose
 * parts are balanced pieces along one axis within the group become the collective of their name;
 * all others (uneven pieces of several dimensions, between placements) move boxes by send_recv.
 */
#include <string.h>

#include "src/comm/collective/side.h"
#include "src/plan/lower/lower.h"

static tsri_coll_kind coll_kind(const tsri_item *it)
{
    if (it->box.broadcast)
        return TSRI_COLL_BROADCAST;
    switch (it->box.step.kind) {
    case TSRI_BOX_ALL_GATHER:
        return TSRI_COLL_ALL_GATHER;
    case TSRI_BOX_REDUCE_SCATTER:
        return TSRI_COLL_REDUCE_SCATTER;
    case TSRI_BOX_ALL_TO_ALL:
        return TSRI_COLL_ALL_TO_ALL;
    case TSRI_BOX_ALL_REDUCE:
        return TSRI_COLL_ALL_REDUCE;
    default:
        return TSRI_COLL_SEND_RECV;
    }
}

/* The ranks that take part with this one. The list is the plan's, until the next call. */
static tsr_status find_group(tsr_plan *plan, const tsri_item *it, int **out_ranks, int *out_n)
{
    if (it->box.ranks) {
        *out_ranks = (int *)(uintptr_t)it->box.ranks;
        *out_n = it->box.nranks;
        return TSR_OK;
    }
    int most = tsr_placement_nranks(it->placement);
    if (it->box.from != it->placement)
        most += tsr_placement_nranks(it->box.from);
    if (most > plan->cgroup) {
        plan->group = tsri_pool_alloc(&plan->ir.scratch, (size_t)most * sizeof *plan->group);
        plan->cgroup = plan->group ? most : 0;
        TSRI_NEED(plan->group);
    }
    const tsri_route_query q = tsri_item_query(&plan->ir, it, 0);
    *out_n = tsri_step_group(&q, &it->box.step, plan->ir.world->rank, plan->group);
    *out_ranks = plan->group;
    return TSR_OK;
}

static int index_of(const int *ranks, int n, int rank)
{
    for (int i = 0; i < n; i++)
        if (ranks[i] == rank)
            return i;
    return -1;
}

/* The step of one pair of a bucket: its members may split different axes. */
static tsri_route_step step_of(const tsr_plan *plan, const tsri_item *it, int pair)
{
    tsri_route_step step = it->box.step;
    step.from = plan->ir.values[it->in[pair]].layout;
    step.to = plan->ir.values[it->out[pair]].layout;
    return step;
}

/* --- pieces along one axis -------------------------------------------------------------------- */
/* The axis that the step's dimensions split in a layout; -1 if none, -2 if several. */
static int axis_of(const tsri_layout *l, uint8_t dims)
{
    int axis = -1;
    for (int d = 0; d < l->sbp.ndim; d++) {
        if (!(dims >> d & 1) || l->sbp.d[d].kind != TSR_SBP_SPLIT)
            continue;
        if (axis >= 0 && axis != l->sbp.d[d].arg)
            return -2;
        axis = l->sbp.d[d].arg;
    }
    return axis;
}

/* Whether the step's dimensions, as many as they are, cut `length` of their axis just as the
 * balanced split over all n ranks of the group, in its order, does. */
static bool is_flat(const tsri_value *v, uint8_t dims, int axis, int n, int64_t length)
{
    const tsri_layout *l = &v->layout;
    int before = -1, several = 0;
    for (int d = 0; d < l->sbp.ndim; d++) {
        if (!(dims >> d & 1) || tsr_placement_dim(v->placement, d) == 1)
            continue;
        several++;
        if (l->sbp.d[d].kind != TSR_SBP_SPLIT || l->sbp.d[d].arg != axis || l->depth[d] < before)
            return false;
        before = l->depth[d];
    }
    return several == 1 || length % n == 0;
}

static int physical_axis(const tsri_value *v, int axis)
{
    int order[TSR_MAX_NDIM];
    tsri_physical_order(v, order);
    for (int i = 0; i < v->shape.ndim; i++)
        if (order[i] == axis)
            return i;
    return -1;
}

/* Fills a segment of the collective of the step's name. False if its parts are no such pieces. */
static bool fill_segment(const tsr_plan *plan, const tsri_item *it, int pair, int n,
                         tsri_segment *seg)
{
    const tsri_value *src = &plan->ir.values[it->in[pair]], *dst = &plan->ir.values[it->out[pair]];
    int from = axis_of(&src->layout, it->box.step.dims),
        to = axis_of(&dst->layout, it->box.step.dims);
    tsri_coll_kind kind = coll_kind(it);
    tsr_dims whole = src->lshape;
    *seg = (tsri_segment){.dtype = src->dtype, .src_axis = -1, .dst_axis = -1};
    if (kind == TSRI_COLL_SEND_RECV)
        return false;
    if (kind == TSRI_COLL_ALL_GATHER || kind == TSRI_COLL_ALL_TO_ALL) {
        if (from < 0)
            return false;
        whole.d[from] = dst->lshape.d[from];
        if (!is_flat(src, it->box.step.dims, from, n, whole.d[from]))
            return false;
        seg->src_axis = physical_axis(src, from);
    }
    if (kind == TSRI_COLL_REDUCE_SCATTER || kind == TSRI_COLL_ALL_TO_ALL) {
        if (to < 0 || !is_flat(dst, it->box.step.dims, to, n, whole.d[to]))
            return false;
        seg->dst_axis = physical_axis(dst, to);
    }
    int order[TSR_MAX_NDIM];
    tsri_physical_order(src, order);
    seg->shape.ndim = src->shape.ndim;
    for (int i = 0; i < src->shape.ndim; i++)
        seg->shape.d[i] = whole.d[order[i]];
    return true;
}

/* --- boxes ------------------------------------------------------------------------------------ */
static void strides_of(const tsri_value *v, const int64_t *length, int64_t *stride)
{
    int order[TSR_MAX_NDIM];
    int64_t step = 1;
    tsri_physical_order(v, order);
    for (int i = v->shape.ndim - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step *= length[order[i]] > 0 ? length[order[i]] : 1;
    }
}

static tsr_status fill_pull(tsr_plan *plan, const tsri_value *src, const tsri_value *dst,
                            const tsri_piece *piece, const int *ranks, int n, tsri_pull *pull)
{
    int64_t from[TSR_MAX_NDIM], to[TSR_MAX_NDIM];
    strides_of(src, piece->part_length, from);
    strides_of(dst, dst->lshape.d, to);
    *pull = (tsri_pull){.ndim = src->shape.ndim, .nsrc = piece->nsrc};
    for (int i = 0; i < pull->ndim; i++) {
        pull->length[i] = piece->length[i];
        pull->src_step[i] = from[i];
        pull->dst_step[i] = to[i];
        pull->src_at += (piece->offset[i] - piece->part_offset[i]) * from[i];
        pull->dst_at += (piece->offset[i] - dst->offset[i]) * to[i];
    }
    int *members = tsri_pool_alloc(&plan->pool, (size_t)piece->nsrc * sizeof *members);
    TSRI_NEED(members);
    for (int i = 0; i < piece->nsrc; i++)
        if ((members[i] = index_of(ranks, n, piece->src[i])) < 0)
            return tsri_fail(TSR_ERR_INTERNAL, "rank %d of a piece is not in its step's group",
                             piece->src[i]);
    pull->src = members;
    return TSR_OK;
}

static tsr_status fill_boxes(tsr_plan *plan, const tsri_item *it, int pair, const int *ranks, int n,
                             tsri_segment *seg)
{
    const tsri_value *src = &plan->ir.values[it->in[pair]], *dst = &plan->ir.values[it->out[pair]];
    const tsri_route_query q = tsri_item_query(&plan->ir, it, pair);
    const tsri_route_step step = step_of(plan, it, pair);
    tsri_piece *pieces;
    *seg = (tsri_segment){.dtype = src->dtype,
                          .shape = src->shape,
                          .src_axis = -1,
                          .dst_axis = -1,
                          .dst_count = tsr_dims_count(dst->lshape)};
    if (tsr_placement_find(dst->placement, plan->ir.world->rank) < 0)
        seg->dst_count = 0;
    TSRI_TRY(tsri_step_pieces(&plan->ir.scratch, &q, &step, plan->ir.world->rank, &seg->npulls,
                              &pieces, &seg->fill));
    tsri_pull *pulls = tsri_pool_alloc(&plan->pool, (size_t)seg->npulls * sizeof *pulls);
    TSRI_NEED(pulls);
    for (int i = 0; i < seg->npulls; i++)
        TSRI_TRY(fill_pull(plan, src, dst, &pieces[i], ranks, n, &pulls[i]));
    seg->pulls = pulls;
    return TSR_OK;
}

/* --- the call --------------------------------------------------------------------------------- */
/* The calls that an item needs, one for each copy of its operands and results, on any rank. */
static int count_calls(const tsr_plan *plan, const tsri_item *it)
{
    int n = 1;
    for (int i = 0; i < it->nin; i++)
        for (int side = 0; side < 2; side++) {
            const int root = tsri_ir_root(&plan->ir, side ? it->out[i] : it->in[i]);
            n = tsri_copies_together(n, plan->ir.values[root].slots);
        }
    return n;
}

tsr_status tsri_lower_call(tsr_plan *plan, const tsri_item *it, tsri_call **out_call)
{
    tsr_world *w = plan->ir.world;
    const tsri_timetable *t = &plan->ir.timetable;
    tsri_call *call = tsri_pool_alloc(&plan->pool, (size_t)count_calls(plan, it) * sizeof *call);
    tsri_segment *seg = tsri_pool_alloc(&plan->pool, (size_t)it->nin * sizeof *seg);
    int *ranks, n;
    TSRI_NEED(call && seg);
    TSRI_TRY(find_group(plan, it, &ranks, &n));
    tsri_coll_kind kind = coll_kind(it);
    for (int i = 0; i < it->nin && kind != TSRI_COLL_SEND_RECV; i++)
        if (!fill_segment(plan, it, i, n, &seg[i]))
            kind = TSRI_COLL_SEND_RECV;
    for (int i = 0; i < it->nin && kind == TSRI_COLL_SEND_RECV; i++)
        TSRI_TRY(fill_boxes(plan, it, i, ranks, n, &seg[i]));
    call->coll = (tsri_coll){.kind = kind,
                             .op = it->box.step.op,
                             .nseg = it->nin,
                             .seg = seg,
                             .what = it->name,
                             .loc = it->loc};
    if (kind == TSRI_COLL_ALL_REDUCE && it->box.step.two_phase)
        call->coll.algo = TSRI_ALGO_TWO_PHASE;
    int index = index_of(ranks, n, w->rank);
    for (int i = 0; i < it->nin; i++)
        call->bytes += tsri_coll_bytes(kind, call->coll.algo, n, index, 0, &seg[i]);
    plan->info.collectives += tsri_item_times(&plan->ir, it);
    plan->info.comm_bytes += call->bytes * (uint64_t)tsri_item_times(&plan->ir, it);
    *out_call = call;
    tsri_device *device = plan->part[tsr_placement_device(it->placement)].device;
    if (it->box.group && !tsri_placement_can(it->placement, TSRI_CAN_HOST_MEMORY))
        return device ? tsri_side_group_make((tsr_group *)(uintptr_t)it->box.group, device,
                                             &call->coll, &call->group)
                      : TSR_OK;
    tsri_comm *comm = tsri_plan_comm(plan, it);
    if (!comm)
        return TSR_OK;
    call->coll.stream = device ? device->stream : NULL;
    /* A lane for each pair of segments: its calls are in the order of parts on both sides. */
    const int lane = it->box.received_in
                         ? TSRI_LANE_SENDS + it->segment * t->nsegments + it->box.received_in - 1
                         : it->box.is_bucket;
    return comm->ops->group(comm, n, ranks, lane, &call->group);
}

void tsri_physical_order(const tsri_value *v, int *order)
{
    static const int nhwc[4] = {0, 2, 3, 1}, by_head[4] = {0, 2, 1, 3};
    for (int i = 0; i < v->shape.ndim; i++)
        order[i] = v->nhwc ? nhwc[i] : v->by_head ? by_head[i] : i;
}
