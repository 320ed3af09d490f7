/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowering: makes a kernel for each op, a call for each collective, lays out memory, and writes the
 * steps that the executor walks. Ranks outside an item's placement have no step for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/clock.h"
#include "src/plan/lower/lower.h"

/* --- kernels ---------------------------------------------------------------------------------- */
static tsr_status make_kernel(tsr_plan *plan, tsri_item *it, tsri_step *step)
{
    tsri_kernel_desc d = tsri_lower_desc(plan, it);
    d.fixed = tsri_lower_fixed(plan, it);
    step->device = plan->part[tsr_placement_device(it->placement)].device;
    step->kind = TSRI_STEP_KERNEL;
    /* One operand more: the kernel's packed weights. */
    TSRI_TRY(tsri_lower_ports(plan, step, it->nin + 1, it->nout));
    double t = tsri_now_s();
    tsr_status status =
        tsri_kernel_create(&plan->ir.world->mem, step->device->ops->kernels(), &d, &step->kernel);
    plan->info.library_s += tsri_now_s() - t;
    if (status != TSR_OK)
        return tsri_item_fail(status, it);
    step->kernel->item = it;
    tsri_lower_took(plan, it, step->kernel->impl, step->kernel->scratch_bytes);
    return TSR_OK;
}

/* --- conversions without communication -------------------------------------------------------- */
static tsr_status make_local_box(tsr_plan *plan, const tsri_item *it, tsri_step *step)
{
    const tsri_value *src = &plan->ir.values[it->in[0]], *dst = &plan->ir.values[it->out[0]];
    const tsri_route_query q = tsri_item_query(&plan->ir, it, 0);
    tsri_arg a = tsri_plan_arg(src), b = tsri_plan_arg(dst);
    tsri_local_box *box = tsri_pool_alloc(&plan->pool, sizeof *box);
    tsri_piece *piece;
    int n;
    TSRI_NEED(box);
    *box = (tsri_local_box){.reduce = it->box.step.op,
                            .dtype = src->dtype,
                            .ndim = a.ndim,
                            .dst_count = tsr_dims_count(dst->lshape)};
    TSRI_TRY(tsri_step_pieces(&plan->ir.scratch, &q, &it->box.step, plan->ir.world->rank, &n,
                              &piece, &box->fill));
    if (n > 1)
        return tsri_fail(TSR_ERR_INTERNAL, "a local step of %s in %d pieces", it->name, n);
    box->copy = n == 1;
    for (int i = 0; i < a.ndim && n; i++) {
        box->box[i] = piece->length[i];
        box->src_stride[i] = a.stride[i];
        box->dst_stride[i] = b.stride[i];
        box->src_offset += (piece->offset[i] - a.offset[i]) * a.stride[i];
        box->dst_offset += (piece->offset[i] - b.offset[i]) * b.stride[i];
    }
    step->kind = TSRI_STEP_LOCAL_BOX;
    step->box = box;
    step->device = plan->part[tsr_placement_device(it->placement)].device;
    return TSR_OK;
}

static void make_crossing(const tsr_plan *plan, const tsri_item *it, tsri_step *step)
{
    const bool from_host = tsri_placement_can(it->box.from, TSRI_CAN_HOST_MEMORY);
    tsr_device kind = tsr_placement_device(from_host ? it->placement : it->box.from);
    step->kind = TSRI_STEP_CROSS;
    step->device = plan->part[kind].device;
    step->bytes = plan->ir.values[it->out[0]].bytes;
}

static tsr_status make_conversion(tsr_plan *plan, const tsri_item *it, tsri_step *step)
{
    step->in = tsri_pool_alloc(&plan->pool, sizeof *step->in);
    step->out = tsri_pool_alloc(&plan->pool, sizeof *step->out);
    TSRI_NEED(step->in && step->out);
    if (!tsri_item_crosses(it))
        return make_local_box(plan, it, step);
    make_crossing(plan, it, step);
    return TSR_OK;
}

/* --- pointers --------------------------------------------------------------------------------- */
/* The inputs that carry the training step and the number of the part that runs. */
static tsr_status allocate_words(tsr_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->ir.nvalues; i++)
        n += plan->ir.values[i].storage == TSRI_STORAGE_PORT && plan->ir.values[i].port < 0;
    plan->words = tsri_pool_alloc(&plan->pool, (size_t)n * sizeof *plan->words);
    TSRI_NEED(plan->words);
    for (int i = 0; i < plan->ir.nvalues; i++) {
        tsri_value *v = &plan->ir.values[i];
        tsri_device *device = plan->part[tsri_value_device(v)].device;
        if (v->storage == TSRI_STORAGE_PORT && v->port < 0 && device) {
            TSRI_TRY(device->ops->buffer_alloc(device, sizeof(int64_t), &v->ptr));
            plan->words[plan->nwords++] =
                (tsri_word){v->ptr, device, !strcmp(v->name, TSRI_PART_INPUT)};
        }
    }
    return TSR_OK;
}

static tsr_status allocate_ports(tsr_plan *plan)
{
    for (int i = 0; i < plan->ir.nports; i++)
        if (plan->ir.ports[i].bytes) {
            tsri_device *device =
                plan->part[tsr_placement_device(plan->ir.ports[i].info.placement)].device;
            TSRI_TRY(
                device->ops->buffer_alloc(device, plan->ir.ports[i].bytes, &plan->ir.ports[i].ptr));
            plan->info.port_bytes += plan->ir.ports[i].bytes;
        }
    return allocate_words(plan);
}

static void point_values(tsr_plan *plan)
{
    for (int i = 0; i < plan->ir.nvalues; i++) {
        tsri_value *v = &plan->ir.values[i];
        if (!v->bytes)
            continue;
        if (v->storage == TSRI_STORAGE_ARENA && v->first >= 0)
            v->ptr = plan->part[tsri_value_device(v)].block + v->arena_offset;
        else if (v->storage == TSRI_STORAGE_VARIABLE)
            v->ptr = v->variable->data;
        else if (v->storage == TSRI_STORAGE_PORT && v->port >= 0)
            v->ptr = plan->ir.ports[v->port].ptr;
    }
    for (int i = 0; i < plan->ir.nvalues; i++)
        if (plan->ir.values[i].bytes)
            plan->ir.values[i].ptr = plan->ir.values[tsri_ir_root(&plan->ir, i)].ptr;
}

/* The number of a value's copies on this rank, and the distance between them. */
static int copies(const tsr_plan *plan, int value, size_t *out_stride)
{
    const tsri_value *root = &plan->ir.values[tsri_ir_root(&plan->ir, value)];
    *out_stride = tsri_value_stride(root->bytes);
    return root->ptr && root->slots > 1 ? root->slots : 1;
}

void *tsri_plan_value_now(const tsr_plan *plan, int value)
{
    size_t stride;
    const int n = copies(plan, value, &stride);
    char *ptr = plan->ir.values[value].ptr;
    return n > 1 ? ptr + (size_t)(plan->walk.part % n) * stride : ptr;
}

/* Sets a pointer of a step to a value, and notes it if the value has copies. */
static tsr_status point_at(tsr_plan *plan, tsri_step *step, void **at, int value)
{
    tsri_walk *w = &plan->walk;
    size_t stride;
    const int n = copies(plan, value, &stride);
    *at = plan->ir.values[value].ptr;
    if (n == 1)
        return TSR_OK;
    step->has_copies = true;
    TSRI_NEED(TSRI_PUSH(&plan->pool, w->patch, w->npatches, w->cpatches));
    w->patch[w->npatches++] = (tsri_patch){at, *at, stride, n};
    return TSR_OK;
}

/* Gives a collective one call for each copy of its operands and results. */
static tsr_status point_calls(tsr_plan *plan, const tsri_step *step)
{
    const tsri_item *it = step->item;
    tsri_call first = *step->call;
    size_t stride;
    first.slots = 1;
    for (int i = 0; i < it->nin; i++) {
        const int in = copies(plan, it->in[i], &stride), out = copies(plan, it->out[i], &stride);
        first.slots = tsri_copies_together(first.slots, tsri_copies_together(in, out));
    }
    for (int c = 0; c < first.slots; c++) {
        tsri_segment *seg =
            tsri_pool_dup(&plan->pool, first.coll.seg, (size_t)it->nin * sizeof *seg);
        TSRI_NEED(seg);
        plan->walk.part = c;
        for (int i = 0; i < it->nin; i++) {
            seg[i].src = tsri_plan_value_now(plan, it->in[i]);
            seg[i].dst = tsri_plan_value_now(plan, it->out[i]);
        }
        step->call[c] = first;
        step->call[c].coll.seg = seg;
    }
    plan->walk.part = 0;
    return TSR_OK;
}

static tsr_status point_step(tsr_plan *plan, tsri_step *step)
{
    const tsri_item *it = step->item;
    const int *in = step->values ? step->values : it->in;
    const int *out = step->values ? step->values + step->nin : it->out;
    const int nin = step->values ? step->nin : it->nin;
    const int nout = step->values ? step->nout : it->nout;
    if (step->kind == TSRI_STEP_KERNEL) {
        const tsri_part *part = &plan->part[tsr_placement_device(it->placement)];
        step->scratch = part->block + part->scratch_offset;
    }
    for (int i = 0; i < nin && step->in; i++)
        TSRI_TRY(point_at(plan, step, &step->in[i], in[i]));
    for (int i = 0; i < nout && step->out; i++)
        TSRI_TRY(point_at(plan, step, &step->out[i], out[i]));
    return step->kind == TSRI_STEP_START ? point_calls(plan, step) : TSR_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */
/* The segment of a step of the parts. */
static int segment_of(const tsr_plan *plan, const tsri_step *step)
{
    return tsri_ir_entry_segment(&plan->ir, &plan->ir.entries[step->entry]);
}

static bool starts(const tsri_step *step, tsri_entry_side side)
{
    return step->kind == TSRI_STEP_START && step->side == side;
}

/* Finds the steps of each segment, and the steps among them that start to send. If the device
 * queues its work, the steps that start to receive come first and are not in [first, last). */
static tsr_status find_segments(tsr_plan *plan, bool queued)
{
    tsri_walk *w = &plan->walk;
    const int n = plan->ir.timetable.nsegments;
    for (int s = 0, i = w->begin; s <= n; s++) {
        w->first_send[s] = w->nsends;
        while (queued && i < w->end && starts(&plan->steps[i], TSRI_SIDE_RECEIVES))
            i++;
        w->first[s] = i;
        for (; i < w->end && segment_of(plan, &plan->steps[i]) == s; i++)
            if (starts(&plan->steps[i], TSRI_SIDE_SENDS)) {
                TSRI_NEED(TSRI_PUSH(&plan->pool, w->send, w->nsends, w->csends));
                w->send[w->nsends++] = i;
            }
        w->last[s] = i;
    }
    return TSR_OK;
}

/* Finds, for each segment that sends, the steps that start to receive its values, in the order of
 * the sends. */
static tsr_status find_receives(tsr_plan *plan)
{
    tsri_walk *w = &plan->walk;
    const int n = plan->ir.timetable.nsegments;
    for (int s = 0; s <= n; s++) {
        w->first_receive[s] = w->nreceives;
        for (int i = w->begin; i < w->end && s < n; i++) {
            const tsri_step *step = &plan->steps[i];
            if (!starts(step, TSRI_SIDE_RECEIVES) || step->item->segment != s)
                continue;
            TSRI_NEED(TSRI_PUSH(&plan->pool, w->receive, w->nreceives, w->creceives));
            int at = w->nreceives++;
            for (; at > w->first_receive[s] && plan->steps[w->receive[at - 1]].item > step->item;
                 at--)
                w->receive[at] = w->receive[at - 1];
            w->receive[at] = i;
        }
    }
    return TSR_OK;
}

static void find_turns(tsr_plan *plan)
{
    tsri_walk *w = &plan->walk;
    w->begin = w->end = plan->nsteps;
    for (int i = plan->nsteps; i-- > 0;) {
        const tsri_turn turn = plan->steps[i].item->turn;
        w->end = turn == TSRI_TURN_TAIL ? i : w->end;
        w->begin = turn != TSRI_TURN_HEAD ? i : w->begin;
    }
    if (w->begin > w->end || !plan->ir.timetable.ntasks)
        w->begin = w->end;
}

/* Finds the steps of each segment, and this rank's tasks. */
static tsr_status find_walk(tsr_plan *plan)
{
    tsri_walk *w = &plan->walk;
    const tsri_timetable *t = &plan->ir.timetable;
    const size_t n = (size_t)t->nsegments + 1;
    const bool queued = t->nstages > 1 && tsri_parts_are_queued(&plan->ir);
    find_turns(plan);
    if (!t->ntasks)
        return TSR_OK;
    w->first = tsri_pool_alloc(&plan->pool, 4 * n * sizeof *w->first);
    w->number = tsri_pool_alloc(&plan->pool, (size_t)plan->ir.parts * sizeof *w->number);
    w->task = tsri_pool_alloc(&plan->pool, (size_t)t->ntasks * sizeof *w->task);
    TSRI_NEED(w->first && w->number && w->task);
    for (int i = 0; i < plan->ir.parts; i++)
        w->number[i] = i;
    w->last = w->first + n;
    w->first_send = w->first + 2 * n;
    w->first_receive = w->first + 3 * n;
    TSRI_TRY(find_segments(plan, queued));
    if (queued)
        TSRI_TRY(find_receives(plan));
    const int stage = tsri_ir_stage_of(&plan->ir, plan->ir.world->rank);
    for (int i = 0; i < t->ntasks && w->begin < w->end; i++) {
        const int s = t->task[i].segment;
        if (t->segment[s].stage == stage || w->first_receive[s + 1] > w->first_receive[s])
            w->task[w->ntasks++] = i;
    }
    return TSR_OK;
}

/* Sets the pointers of all steps, and lists the patches of each segment. */
static tsr_status point_steps(tsr_plan *plan)
{
    tsri_walk *w = &plan->walk;
    const int n = plan->ir.timetable.ntasks ? plan->ir.timetable.nsegments + 1 : 0;
    int s = 0;
    if (n)
        TSRI_NEED(w->first_patch =
                      tsri_pool_alloc(&plan->pool, (size_t)n * sizeof *w->first_patch));
    for (int i = 0; i < plan->nsteps; i++) {
        const bool in_parts = plan->steps[i].item->turn == TSRI_TURN_PARTS;
        for (; in_parts && s <= segment_of(plan, &plan->steps[i]); s++)
            w->first_patch[s] = w->npatches;
        TSRI_TRY(point_step(plan, &plan->steps[i]));
    }
    for (; s < n; s++)
        w->first_patch[s] = w->npatches;
    return TSR_OK;
}

static tsr_status make_step(tsr_plan *plan, const tsri_entry *entry, tsri_call **call_of)
{
    tsri_item *it = &plan->ir.items[entry->item];
    tsri_step step = {.item = it,
                      .only_if = it->only_if,
                      .entry = (int)(entry - plan->ir.entries),
                      .side = entry->side};
    if (it->kind == TSRI_ITEM_COLLECTIVE) {
        if (entry->phase == TSRI_PHASE_START)
            TSRI_TRY(tsri_lower_call(plan, it, &call_of[entry->item]));
        step.call = call_of[entry->item];
        step.device = plan->part[tsr_placement_device(it->placement)].device;
        step.kind = entry->phase == TSRI_PHASE_START    ? TSRI_STEP_START
                    : entry->phase == TSRI_PHASE_FINISH ? TSRI_STEP_FINISH
                                                        : TSRI_STEP_RELEASE;
    } else if (plan->ir.world->is_virtual) {
        tsri_lower_expect(plan, it);
        return TSR_OK;
    } else if (it->kind == TSRI_ITEM_LOCAL_BOX) {
        TSRI_TRY(make_conversion(plan, it, &step));
    } else if (it->kernel.chain) {
        TSRI_TRY(tsri_lower_chain(plan, entry->item, &step));
    } else {
        TSRI_TRY(make_kernel(plan, it, &step));
    }
    plan->steps[plan->nsteps++] = step;
    return TSR_OK;
}

size_t tsri_plan_scratch(const tsr_plan *plan)
{
    size_t bytes = 0;
    for (int k = 0; k < TSRI_DEVICES; k++)
        bytes += plan->part[k].scratch_bytes;
    return bytes;
}

/* Where values lie in the blocks of all kinds of device. */
static tsr_status lay_out(tsr_plan *plan)
{
    for (int k = 1; k < TSRI_DEVICES; k++) {
        tsri_part *part = &plan->part[k];
        TSRI_TRY(tsri_plan_memory(&plan->ir, plan->ir.world->rank, (tsr_device)k,
                                  &part->scratch_offset));
        part->arena_bytes = part->scratch_offset + part->scratch_bytes;
    }
    return TSR_OK;
}

static tsr_status take_blocks(tsr_plan *plan)
{
    for (int k = 1; k < TSRI_DEVICES; k++) {
        tsri_part *part = &plan->part[k];
        void *block;
        if (!part->device)
            continue;
        TSRI_TRY(part->device->ops->plan_block(part->device, part->arena_bytes, &block));
        part->block = block;
    }
    return TSR_OK;
}

/* Preparing is collective: what local graphs ask for is not prepared, nor are calls of which ranks
 * may have several, unless those but the first can be prepared without the others. */
static tsr_status prepare_calls(const tsri_item *it, tsri_call *call)
{
    const tsri_comm *comm = call->group->comm;
    const bool alike = TSRI_COMM_HAS(comm, prepare_like);
    if (!comm->ops->prepare || it->box.ranks ||
        (!alike && (it->box.received_in || call->slots > 1)))
        return TSR_OK;
    TSRI_TRY(comm->ops->prepare(call->group, &call->coll));
    for (int c = 1; c < call->slots; c++)
        TSRI_TRY(comm->ops->prepare_like(call->group, &call->coll, &call[c].coll));
    return TSR_OK;
}

bool tsri_step_is_apart(const tsri_step *s)
{
    return s->kind >= TSRI_STEP_START && (s->item->box.ranks || s->side != TSRI_SIDE_ALL);
}

/* Whether captured runs can have the step: a call that is captured, or one of a group's side or
 * between stages, which is made between two captured parts. */
static bool can_replay(const tsri_step *s)
{
    if (s->kind < TSRI_STEP_START)
        return s->kind != TSRI_STEP_CROSS;
    if (tsri_step_is_apart(s))
        return s->item->box.group || s->side != TSRI_SIDE_ALL;
    return s->call->group->comm->capturable;
}

/* The device whose stream all of the plan's work goes through, if it can be captured. */
static tsri_device *device_to_replay(const tsr_plan *plan)
{
    const char *said = getenv("TESSERA_CUDA_GRAPH");
    tsri_device *device = NULL;
    if (said && !strcmp(said, "0"))
        return NULL;
    /* Graphs that are launched by several threads of one process may wait for each other. */
    if (plan->ir.world->is_thread && !(said && !strcmp(said, "1")))
        return NULL;
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        if (!can_replay(s))
            return NULL;
        if (device && s->device && s->device != device)
            return NULL;
        device = s->device ? s->device : device;
    }
    return device && device->ops->capture_begin ? device : NULL;
}

tsr_status tsri_plan_lower(tsr_plan *plan)
{
    plan->steps = tsri_pool_alloc(&plan->pool, (size_t)plan->ir.nentries * sizeof *plan->steps);
    tsri_call **call_of =
        tsri_pool_alloc(&plan->ir.scratch, (size_t)plan->ir.nitems * sizeof *call_of);
    TSRI_NEED(plan->steps && call_of);
    for (int i = 0; i < plan->ir.nentries; i++) {
        const int item = plan->ir.entries[i].item;
        const tsri_item *it = &plan->ir.items[item];
        /* The first item of a chain makes the step of all. */
        const bool goes_on = item && it->kind == TSRI_ITEM_KERNEL && it->kernel.chain &&
                             tsri_chain_end(&plan->ir, item - 1) > item;
        if (tsri_entry_has(&plan->ir, &plan->ir.entries[i], plan->ir.world->rank) && !goes_on)
            TSRI_TRY(make_step(plan, &plan->ir.entries[i], call_of));
    }
    TSRI_TRY(lay_out(plan));
    return tsri_plan_check(&plan->ir, TSRI_PASS_MEMORY);
}

/* Lists the conditions of all items, those of other ranks too, so that ranks agree on them. */
static tsr_status find_conditions(tsr_plan *plan)
{
    int capacity = 0;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_condition *c = plan->ir.items[i].only_if;
        bool known = !c;
        for (int k = 0; k < plan->nconditions; k++)
            known |= plan->conditions[k] == c;
        if (known)
            continue;
        TSRI_NEED(TSRI_PUSH(&plan->pool, plan->conditions, plan->nconditions, capacity));
        plan->conditions[plan->nconditions++] = c;
    }
    return TSR_OK;
}

tsr_status tsri_plan_bind(tsr_plan *plan)
{
    if (plan->ir.world->is_virtual)
        return TSR_OK;
    TSRI_TRY(take_blocks(plan));
    TSRI_TRY(allocate_ports(plan));
    point_values(plan);
    TSRI_TRY(point_steps(plan));
    TSRI_TRY(tsri_lower_join(plan));
    TSRI_TRY(find_walk(plan));
    TSRI_TRY(find_conditions(plan));
    plan->replay.device = device_to_replay(plan);
    return TSR_OK;
}

/* Calls between stages are steps of different segments on the two sides, and so are prepared in the
 * order of the items, after all other calls. */
static tsr_status list_calls(tsr_plan *plan, const tsri_step ***out_list, int *out_n)
{
    const tsri_step **of_item = tsri_pool_alloc(
        &plan->ir.scratch, (size_t)(plan->nsteps + plan->ir.nitems) * sizeof(void *));
    const tsri_step **list = of_item + plan->ir.nitems;
    int n = 0;
    TSRI_NEED(of_item);
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        if (s->kind == TSRI_STEP_START && s->side == TSRI_SIDE_ALL)
            list[n++] = s;
        else if (s->kind == TSRI_STEP_START)
            of_item[s->item - plan->ir.items] = s;
    }
    for (int i = 0; i < plan->ir.nitems; i++)
        if (of_item[i])
            list[n++] = of_item[i];
    *out_list = list;
    *out_n = n;
    return TSR_OK;
}

/* An error of one call keeps no rank from the others, to which its peers come. */
tsr_status tsri_plan_prepare(tsr_plan *plan)
{
    tsr_status first = TSR_OK;
    char text[2000] = "";
    const tsri_step **list;
    int n;
    if (plan->ir.world->is_virtual)
        return TSR_OK;
    TSRI_TRY(list_calls(plan, &list, &n));
    for (int i = 0; i < n; i++) {
        tsr_status status = prepare_calls(list[i]->item, list[i]->call);
        if (status == TSR_OK || first != TSR_OK)
            continue;
        first = status;
        snprintf(text, sizeof text, "%s", tsr_last_error());
    }
    return first == TSR_OK ? TSR_OK : tsri_fail(first, "%s", text);
}
