/* SPDX-License-Identifier: Apache-2.0 */
/* A program's life, its values and items: appending them, and what their bytes are. */
#include "src/ir/ir.h"

#include <string.h>

void tsri_ir_init(tsri_ir *ir, tsr_world *world)
{
    *ir = (tsri_ir){.world = world};
    tsri_pool_init(&ir->program, &world->mem);
    tsri_pool_init(&ir->scratch, &world->mem);
}

void tsri_ir_finish(tsri_ir *ir)
{
    tsri_pool_finish(&ir->scratch);
    tsri_pool_finish(&ir->program);
}

void tsri_ir_reset(tsri_ir *ir)
{
    const tsri_ir was = *ir;
    tsri_ir_finish(ir);
    tsri_ir_init(ir, was.world);
    ir->opts = was.opts;
    ir->model = was.model;
}

static tsr_status settle_timetable(tsri_ir *ir)
{
    tsri_timetable *t = &ir->timetable;
    tsri_pool *pool = &ir->program;
    t->segment = tsri_pool_dup(pool, t->segment, (size_t)t->nsegments * sizeof *t->segment);
    if (t->stage_of)
        t->stage_of =
            tsri_pool_dup(pool, t->stage_of, (size_t)ir->world->nranks * sizeof *t->stage_of);
    t->slots = tsri_pool_dup(pool, t->slots, (size_t)t->nstages * sizeof *t->slots);
    t->task = tsri_pool_dup(pool, t->task, (size_t)t->ntasks * sizeof *t->task);
    return t->segment && t->slots && t->task ? TSR_OK : TSR_ERR_NO_MEMORY;
}

tsr_status tsri_ir_settle(tsri_ir *ir)
{
    tsri_pool *pool = &ir->program;
    ir->values = tsri_pool_dup(pool, ir->values, (size_t)ir->nvalues * sizeof *ir->values);
    ir->items = tsri_pool_dup(pool, ir->items, (size_t)ir->nitems * sizeof *ir->items);
    ir->entries = tsri_pool_dup(pool, ir->entries, (size_t)ir->nentries * sizeof *ir->entries);
    TSRI_NEED(ir->values && ir->items && ir->entries);
    if (ir->timetable.ntasks)
        TSRI_TRY(settle_timetable(ir));
    for (int i = 0; i < ir->nitems; i++) {
        tsri_item *it = &ir->items[i];
        it->in = tsri_pool_dup(pool, it->in, (size_t)it->nin * sizeof *it->in);
        it->out = tsri_pool_dup(pool, it->out, (size_t)it->nout * sizeof *it->out);
        TSRI_NEED(it->in && it->out);
    }
    return TSR_OK;
}

static size_t part_of(const tsri_value *v, int rank, int64_t *offset, tsr_dims *lshape)
{
    int at = tsr_placement_find(v->placement, rank);
    *lshape = (tsr_dims){.ndim = v->shape.ndim};
    memset(offset, 0, TSR_MAX_NDIM * sizeof *offset);
    if (at < 0)
        return 0;
    tsri_mesh mesh = tsri_mesh_of(v->placement);
    tsri_layout_part(v->shape, &mesh, &v->layout, at, offset, lshape);
    return (size_t)tsr_dims_count(*lshape) * tsr_dtype_size(v->dtype);
}

tsri_item *tsri_ir_add_item(tsri_ir *ir, const tsri_item *item, const int *in, const int *out)
{
    if (!TSRI_PUSH(&ir->scratch, ir->items, ir->nitems, ir->citems))
        return NULL;
    tsri_item *it = &ir->items[ir->nitems];
    *it = *item;
    it->in = tsri_pool_dup(&ir->scratch, in, (size_t)it->nin * sizeof *in);
    it->out = tsri_pool_dup(&ir->scratch, out, (size_t)it->nout * sizeof *out);
    if (!it->in || !it->out)
        return NULL;
    ir->nitems++;
    return it;
}

int tsri_ir_add_value(tsri_ir *ir, const tsri_value *value)
{
    if (!TSRI_PUSH(&ir->scratch, ir->values, ir->nvalues, ir->cvalues))
        return -1;
    tsri_value *v = &ir->values[ir->nvalues];
    *v = *value;
    v->first = v->last = -1;
    v->bytes = part_of(v, ir->world->rank, v->offset, &v->lshape);
    return ir->nvalues++;
}

tsr_status tsri_ir_new_items(tsri_ir *ir, int n)
{
    ir->nitems = 0;
    ir->citems = n;
    ir->items = tsri_pool_alloc(&ir->scratch, (size_t)n * sizeof *ir->items);
    return ir->items ? TSR_OK : TSR_ERR_NO_MEMORY;
}

size_t tsri_value_bytes(const tsri_value *v, int rank)
{
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM];
    return part_of(v, rank, offset, &lshape);
}

size_t tsri_value_stride(size_t bytes)
{
    enum { ALIGNMENT = 64 };
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

size_t tsri_value_room(const tsri_value *v, size_t bytes)
{
    return v->slots > 1 ? tsri_value_stride(bytes) * (size_t)v->slots : bytes;
}

bool tsri_item_shows(const tsri_item *item)
{
    return item->kind == TSRI_ITEM_VIEW || item->kind == TSRI_ITEM_RELABEL;
}

bool tsri_item_converts(const tsri_item *item)
{
    return item->kind == TSRI_ITEM_RELABEL || item->kind == TSRI_ITEM_LOCAL_BOX ||
           item->kind == TSRI_ITEM_COLLECTIVE;
}

int tsri_ir_root(const tsri_ir *ir, int v)
{
    while (ir->values[v].storage == TSRI_STORAGE_ALIAS)
        v = ir->values[v].alias;
    return v;
}

tsr_device tsri_value_device(const tsri_value *v)
{
    return tsr_placement_device(v->placement);
}

bool tsri_item_has(const tsri_item *it, int rank)
{
    return tsr_placement_find(it->placement, rank) >= 0 ||
           (tsri_item_converts(it) && it->box.from != it->placement &&
            tsr_placement_find(it->box.from, rank) >= 0);
}

bool tsri_item_crosses(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_LOCAL_BOX &&
           tsr_placement_device(it->box.from) != tsr_placement_device(it->placement);
}

int tsri_item_times(const tsri_ir *ir, const tsri_item *item)
{
    return item->turn == TSRI_TURN_PARTS ? ir->parts : 1;
}

int64_t tsri_ir_every(const tsri_ir *ir)
{
    for (int i = 0; i < ir->nitems; i++)
        if (ir->items[i].only_if)
            return tsri_item_every(&ir->items[i]);
    return 0;
}

void tsri_ir_parts(const tsri_ir *ir, int *out_begin, int *out_end)
{
    *out_begin = *out_end = 0;
    for (int e = 0; e < ir->nentries && ir->parts > 1; e++) {
        const tsri_turn turn = ir->items[ir->entries[e].item].turn;
        *out_begin += turn == TSRI_TURN_HEAD;
        *out_end += turn != TSRI_TURN_TAIL;
    }
}

bool tsri_item_collects(const tsri_item *item)
{
    return item->kind == TSRI_ITEM_KERNEL && tsri_op_def_of(item->kernel.op)->collects;
}

bool tsri_item_is_update(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_KERNEL && tsri_op_def_of(it->kernel.op)->is_update;
}

/* 20 GB/s is a common PCI Express link's. */
double tsri_crossing_seconds(tsr_dims shape, size_t element, const tsr_placement *p, tsr_sbp sbp)
{
    return 10e-6 + tsri_largest_part(shape, p, sbp) * (double)element / 20e9;
}
