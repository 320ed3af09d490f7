/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowering: makes a kernel for each op, a call for each collective, lays out memory, and writes the
 * steps that the executor walks. Ranks outside an item's placement have no step for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/clock.h"
#include "src/plan/plan.h"

/* The order of axes in memory. */
static void physical_order(const tsri_value *v, int *order)
{
    static const int nhwc[4] = {0, 2, 3, 1};
    for (int i = 0; i < v->shape.ndim; i++)
        order[i] = v->nhwc ? nhwc[i] : i;
}

tsri_arg tsri_plan_arg(const tsri_value *v)
{
    tsri_arg a = {.dtype = v->dtype, .ndim = v->shape.ndim};
    int order[TSR_MAX_NDIM];
    physical_order(v, order);
    int64_t stride = 1;
    for (int i = a.ndim - 1; i >= 0; i--) {
        a.stride[order[i]] = stride;
        stride *= v->lshape.d[order[i]] > 0 ? v->lshape.d[order[i]] : 1;
    }
    for (int i = 0; i < a.ndim; i++) {
        a.shape[i] = v->lshape.d[i];
        a.gshape[i] = v->shape.d[i];
        a.offset[i] = v->offset[i];
    }
    return a;
}

static bool here(const tsr_plan *plan, const tsri_item *it)
{
    return tsr_placement_find(it->placement, plan->world->rank) >= 0;
}

/* --- kernels -------------------------------------------------------------------------------------
 */
static tsr_status make_kernel(tsr_plan *plan, tsri_item *it, tsri_step *step)
{
    tsri_kernel_desc d = {.op = it->op,
                          .attrs = &it->attrs,
                          .nin = it->nin,
                          .nout = it->nout,
                          .groups = it->groups,
                          .stream = plan->device->stream};
    for (int i = 0; i < it->nin; i++)
        d.in[i] = tsri_plan_arg(&plan->values[it->in[i]]);
    for (int i = 0; i < it->nout; i++)
        d.out[i] = tsri_plan_arg(&plan->values[it->out[i]]);
    step->kind = TSRI_STEP_KERNEL;
    step->in = tsri_pool_alloc(&plan->pool, (size_t)(it->nin + 1) * sizeof *step->in);
    step->out = tsri_pool_alloc(&plan->pool, (size_t)(it->nout + 1) * sizeof *step->out);
    if (!step->in || !step->out)
        return TSR_ERR_NO_MEMORY;
    double t = tsri_now_s();
    tsr_status status =
        tsri_kernel_create(&plan->world->mem, plan->device->ops->kernels(), &d, &step->kernel);
    plan->info.library_s += tsri_now_s() - t;
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "%s:%d: %s %s", tsri_basename(it->loc.file), it->loc.line,
                                tsri_op_name(it->op), it->name);
    it->impl = step->kernel->impl;
    it->scratch = step->kernel->scratch_bytes;
    if (it->scratch > plan->scratch_bytes)
        plan->scratch_bytes = it->scratch;
    const char *verbose = getenv("TESSERA_VERBOSE");
    if (verbose && strstr(verbose, "dispatch"))
        tsri_log(plan->world, TSR_LOG_INFO, "dispatch: %s %s -> %s", tsri_op_name(it->op), it->name,
                 it->impl);
    return TSR_OK;
}

/* --- conversions ---------------------------------------------------------------------------------
 */
static tsr_status make_local_box(tsr_plan *plan, const tsri_item *it, tsri_step *step)
{
    const tsri_value *src = &plan->values[it->in[0]], *dst = &plan->values[it->out[0]];
    tsri_arg a = tsri_plan_arg(src), b = tsri_plan_arg(dst);
    tsri_local_box *box = tsri_pool_alloc(&plan->pool, sizeof *box);
    if (!box)
        return TSR_ERR_NO_MEMORY;
    *box = (tsri_local_box){.kind = it->box,
                            .reduce = it->reduce,
                            .dtype = src->dtype,
                            .ndim = a.ndim,
                            .dst_count = tsr_dims_count(dst->lshape),
                            .copy = true};
    const tsri_arg *small = it->box == TSRI_BOX_SLICE ? &b : &a;
    for (int i = 0; i < a.ndim; i++) {
        box->box[i] = small->shape[i];
        box->src_stride[i] = a.stride[i];
        box->dst_stride[i] = b.stride[i];
        if (it->box == TSRI_BOX_SLICE)
            box->src_offset += b.offset[i] * a.stride[i];
        if (it->box == TSRI_BOX_FILL)
            box->dst_offset += a.offset[i] * b.stride[i];
    }
    if (it->box == TSRI_BOX_KEEP)
        box->copy = tsr_placement_find(it->placement, plan->world->rank) == 0;
    box->fill = it->box == TSRI_BOX_FILL || (it->box == TSRI_BOX_KEEP && !box->copy);
    step->kind = TSRI_STEP_LOCAL_BOX;
    step->box = box;
    step->in = tsri_pool_alloc(&plan->pool, sizeof *step->in);
    step->out = tsri_pool_alloc(&plan->pool, sizeof *step->out);
    return step->in && step->out ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* A split axis as it lies in memory. */
static int physical_axis(const tsri_value *v)
{
    int order[TSR_MAX_NDIM];
    if (v->sbp.kind != TSR_SBP_SPLIT)
        return -1;
    physical_order(v, order);
    for (int i = 0; i < v->shape.ndim; i++)
        if (order[i] == v->sbp.arg)
            return i;
    return -1;
}

static tsri_coll_kind coll_kind(const tsri_item *it)
{
    if (it->broadcast)
        return TSRI_COLL_BROADCAST;
    switch (it->box) {
    case TSRI_BOX_ALL_GATHER:
        return TSRI_COLL_ALL_GATHER;
    case TSRI_BOX_REDUCE_SCATTER:
        return TSRI_COLL_REDUCE_SCATTER;
    case TSRI_BOX_ALL_TO_ALL:
        return TSRI_COLL_ALL_TO_ALL;
    default:
        return TSRI_COLL_ALL_REDUCE;
    }
}

static tsr_status make_call(tsr_plan *plan, const tsri_item *it, tsri_call **out_call)
{
    tsr_world *w = plan->world;
    int n = tsr_placement_nranks(it->placement);
    tsri_call *call = tsri_pool_alloc(&plan->pool, sizeof *call);
    tsri_segment *seg = tsri_pool_alloc(&plan->pool, (size_t)it->nin * sizeof *seg);
    int *ranks = tsri_pool_alloc(&plan->pool, (size_t)n * sizeof *ranks);
    if (!call || !seg || !ranks)
        return TSR_ERR_NO_MEMORY;
    double bytes = 0;
    for (int i = 0; i < it->nin; i++) {
        const tsri_value *src = &plan->values[it->in[i]], *dst = &plan->values[it->out[i]];
        int order[TSR_MAX_NDIM];
        physical_order(src, order);
        seg[i] = (tsri_segment){.dtype = src->dtype,
                                .shape = {.ndim = src->shape.ndim},
                                .src_axis = it->broadcast ? -1 : physical_axis(src),
                                .dst_axis = it->broadcast ? -1 : physical_axis(dst)};
        for (int j = 0; j < src->shape.ndim; j++)
            seg[i].shape.d[j] = src->shape.d[order[j]];
        bytes += (double)tsr_dims_count(src->shape) * (double)tsr_dtype_size(src->dtype);
    }
    call->coll = (tsri_coll){.kind = coll_kind(it),
                             .op = it->reduce,
                             .nseg = it->nin,
                             .seg = seg,
                             .what = it->name,
                             .loc = it->loc};
    if (call->coll.kind == TSRI_COLL_ALL_REDUCE && tsri_box_two_phase(&plan->model, bytes, n))
        call->coll.algo = TSRI_ALGO_TWO_PHASE;
    int index = tsr_placement_find(it->placement, w->rank);
    for (int i = 0; i < it->nin; i++)
        call->bytes += tsri_coll_bytes(call->coll.kind, call->coll.algo, n, index, 0, &seg[i]);
    for (int i = 0; i < n; i++)
        ranks[i] = tsr_placement_rank(it->placement, i);
    plan->info.collectives++;
    plan->info.comm_bytes += call->bytes;
    *out_call = call;
    if (!w->comm)
        return TSR_OK;
    return w->comm->ops->group(w->comm, n, ranks, it->bucket >= 0, &call->group);
}

/* --- pointers ------------------------------------------------------------------------------------
 */
static tsr_status allocate_ports(tsr_plan *plan)
{
    tsri_device *device = plan->device;
    for (int i = 0; i < plan->nports; i++)
        if (plan->ports[i].bytes) {
            TSRI_TRY(device->ops->buffer_alloc(device, plan->ports[i].bytes, &plan->ports[i].ptr));
            plan->info.port_bytes += plan->ports[i].bytes;
        }
    /* The inputs that carry the training step. */
    int n = 0;
    for (int i = 0; i < plan->nvalues; i++)
        n += plan->values[i].storage == TSRI_STORAGE_PORT && plan->values[i].port < 0;
    plan->step_ptrs = tsri_pool_alloc(&plan->pool, (size_t)(n + 1) * sizeof *plan->step_ptrs);
    if (!plan->step_ptrs)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < plan->nvalues; i++) {
        tsri_value *v = &plan->values[i];
        if (v->storage == TSRI_STORAGE_PORT && v->port < 0) {
            TSRI_TRY(device->ops->buffer_alloc(device, sizeof(int64_t), &v->ptr));
            plan->step_ptrs[plan->nstep_ptrs++] = v->ptr;
        }
    }
    return TSR_OK;
}

static void point_values(tsr_plan *plan)
{
    for (int i = 0; i < plan->nvalues; i++) {
        tsri_value *v = &plan->values[i];
        if (!v->bytes)
            continue;
        if (v->storage == TSRI_STORAGE_ARENA && v->first >= 0)
            v->ptr = plan->block + v->arena_offset;
        else if (v->storage == TSRI_STORAGE_VARIABLE)
            v->ptr = v->variable->data;
        else if (v->storage == TSRI_STORAGE_PORT && v->port >= 0)
            v->ptr = plan->ports[v->port].ptr;
    }
    for (int i = 0; i < plan->nvalues; i++)
        if (plan->values[i].bytes)
            plan->values[i].ptr = plan->values[tsri_plan_root(plan, i)].ptr;
}

static tsr_status point_step(tsr_plan *plan, tsri_step *step)
{
    const tsri_item *it = step->item;
    for (int i = 0; i < it->nin && step->in; i++)
        step->in[i] = plan->values[it->in[i]].ptr;
    for (int i = 0; i < it->nout && step->out; i++)
        step->out[i] = plan->values[it->out[i]].ptr;
    if (step->kind == TSRI_STEP_START) {
        tsri_segment *seg =
            tsri_pool_dup(&plan->pool, step->call->coll.seg, (size_t)it->nin * sizeof *seg);
        if (!seg)
            return TSR_ERR_NO_MEMORY;
        for (int i = 0; i < it->nin; i++) {
            seg[i].src = plan->values[it->in[i]].ptr;
            seg[i].dst = plan->values[it->out[i]].ptr;
        }
        step->call->coll.seg = seg;
    }
    return TSR_OK;
}

/* --- the whole
 * ------------------------------------------------------------------------------------ */
static tsr_status make_step(tsr_plan *plan, const tsri_entry *entry, tsri_call **call_of)
{
    tsri_item *it = &plan->items[entry->item];
    tsri_step step = {.item = it};
    if (it->kind == TSRI_ITEM_COLLECTIVE) {
        if (entry->phase == TSRI_PHASE_START)
            TSRI_TRY(make_call(plan, it, &call_of[entry->item]));
        step.call = call_of[entry->item];
        step.kind = entry->phase == TSRI_PHASE_START    ? TSRI_STEP_START
                    : entry->phase == TSRI_PHASE_FINISH ? TSRI_STEP_FINISH
                                                        : TSRI_STEP_RELEASE;
    } else if (plan->world->is_virtual) {
        return TSR_OK;
    } else if (it->kind == TSRI_ITEM_LOCAL_BOX) {
        TSRI_TRY(make_local_box(plan, it, &step));
    } else {
        TSRI_TRY(make_kernel(plan, it, &step));
    }
    plan->steps[plan->nsteps++] = step;
    return TSR_OK;
}

tsr_status tsri_plan_settle(tsr_plan *plan)
{
    tsri_pool *pool = &plan->pool;
    plan->values = tsri_pool_dup(pool, plan->values, (size_t)plan->nvalues * sizeof *plan->values);
    plan->items = tsri_pool_dup(pool, plan->items, (size_t)plan->nitems * sizeof *plan->items);
    plan->entries =
        tsri_pool_dup(pool, plan->entries, (size_t)plan->nentries * sizeof *plan->entries);
    if (!plan->values || !plan->items || !plan->entries)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < plan->nitems; i++) {
        tsri_item *it = &plan->items[i];
        it->in = tsri_pool_dup(pool, it->in, (size_t)it->nin * sizeof *it->in);
        it->out = tsri_pool_dup(pool, it->out, (size_t)it->nout * sizeof *it->out);
        if (!it->in || !it->out)
            return TSR_ERR_NO_MEMORY;
    }
    return TSR_OK;
}

tsr_status tsri_plan_lower(tsr_plan *plan)
{
    plan->steps = tsri_pool_alloc(&plan->pool, (size_t)(plan->nentries + 1) * sizeof *plan->steps);
    tsri_call **call_of =
        tsri_pool_alloc(&plan->scratch, (size_t)(plan->nitems + 1) * sizeof *call_of);
    if (!plan->steps || !call_of)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < plan->nentries; i++)
        if (here(plan, &plan->items[plan->entries[i].item]))
            TSRI_TRY(make_step(plan, &plan->entries[i], call_of));
    size_t bytes;
    TSRI_TRY(tsri_plan_memory(plan, plan->world->rank, &bytes));
    plan->scratch_offset = bytes;
    plan->arena_bytes = bytes + plan->scratch_bytes;
    if (plan->world->is_virtual)
        return TSR_OK;
    void *block;
    TSRI_TRY(plan->device->ops->plan_block(plan->device, plan->arena_bytes, &block));
    plan->block = block;
    TSRI_TRY(allocate_ports(plan));
    point_values(plan);
    for (int i = 0; i < plan->nsteps; i++)
        TSRI_TRY(point_step(plan, &plan->steps[i]));
    return TSR_OK;
}
