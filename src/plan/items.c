/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's values and items: appending them, and what their bytes are. */
#include "src/plan/plan.h"

#include <string.h>

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

tsri_item *tsri_plan_add_item(tsr_plan *plan, const tsri_item *item, const int *in, const int *out)
{
    if (!TSRI_PUSH(&plan->scratch, plan->items, plan->nitems, plan->citems))
        return NULL;
    tsri_item *it = &plan->items[plan->nitems];
    *it = *item;
    it->in = tsri_pool_dup(&plan->scratch, in, (size_t)it->nin * sizeof *in);
    it->out = tsri_pool_dup(&plan->scratch, out, (size_t)it->nout * sizeof *out);
    if (!it->in || !it->out)
        return NULL;
    plan->nitems++;
    return it;
}

int tsri_plan_add_value(tsr_plan *plan, const tsri_value *value)
{
    if (!TSRI_PUSH(&plan->scratch, plan->values, plan->nvalues, plan->cvalues))
        return -1;
    tsri_value *v = &plan->values[plan->nvalues];
    *v = *value;
    v->first = v->last = -1;
    v->bytes = part_of(v, plan->world->rank, v->offset, &v->lshape);
    return plan->nvalues++;
}

tsr_status tsri_plan_new_items(tsr_plan *plan, int n)
{
    plan->nitems = 0;
    plan->citems = n;
    plan->items = tsri_pool_alloc(&plan->scratch, (size_t)n * sizeof *plan->items);
    return plan->items ? TSR_OK : TSR_ERR_NO_MEMORY;
}

size_t tsri_value_bytes(const tsri_value *v, int rank)
{
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM];
    return part_of(v, rank, offset, &lshape);
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

int tsri_plan_root(const tsr_plan *plan, int v)
{
    while (plan->values[v].storage == TSRI_STORAGE_ALIAS)
        v = plan->values[v].alias;
    return v;
}

/* 20 GB/s is a common PCI Express link's. */
double tsri_crossing_seconds(tsr_dims shape, size_t element, const tsr_placement *p, tsr_sbp sbp)
{
    return 10e-6 + tsri_largest_part(shape, p, sbp) * (double)element / 20e9;
}
