/* SPDX-License-Identifier: Apache-2.0 */
#include "src/ir/flow.h"

#include <string.h>

tsr_status tsri_flow_find(const tsri_ir *ir, tsri_pool *pool, tsri_flow *out_flow)
{
    size_t n = (size_t)ir->nvalues + 1, reads = 0;
    for (int i = 0; i < ir->nitems; i++)
        reads += (size_t)ir->items[i].nin;
    tsri_flow f = {.ir = ir,
                   .maker = tsri_pool_alloc(pool, n * sizeof *f.maker),
                   .first = tsri_pool_alloc(pool, (n + 1) * sizeof *f.first),
                   .reader = tsri_pool_alloc(pool, (reads + 1) * sizeof *f.reader)};
    TSRI_NEED(f.maker && f.first && f.reader);
    memset(f.maker, -1, n * sizeof *f.maker);
    /* Counted two places ahead, added up, and moved one back while the list is written. */
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        for (int j = 0; it->kind != TSRI_ITEM_DEAD && j < it->nin; j++)
            f.first[it->in[j] + 2]++;
        for (int j = 0; it->kind != TSRI_ITEM_DEAD && j < it->nout; j++)
            f.maker[it->out[j]] = i;
    }
    for (size_t v = 2; v <= n; v++)
        f.first[v] += f.first[v - 1];
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        for (int j = 0; it->kind != TSRI_ITEM_DEAD && j < it->nin; j++)
            f.reader[f.first[it->in[j] + 1]++] = i;
    }
    *out_flow = f;
    return TSR_OK;
}

int tsri_operand_behind(const tsri_item *it, int value)
{
    for (int j = 0; it->nin == it->nout && j < it->nout; j++)
        if (it->out[j] == value)
            return it->in[j];
    return it->in[0];
}

int tsri_variable_behind(const tsri_flow *f, int value)
{
    while (value >= 0) {
        const tsri_value *v = &f->ir->values[value];
        const tsri_item *it = f->maker[value] >= 0 ? &f->ir->items[f->maker[value]] : NULL;
        if (v->storage == TSRI_STORAGE_VARIABLE && v->source)
            return value;
        bool form = it && (tsri_item_converts(it) || it->kind == TSRI_ITEM_VIEW ||
                           (it->kind == TSRI_ITEM_KERNEL && it->nin == 1));
        value = form ? tsri_operand_behind(it, value) : -1;
    }
    return -1;
}
