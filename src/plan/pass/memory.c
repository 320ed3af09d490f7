/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory plan: an offset in the plan's block for every value, such that values that live at the
 * same time do not overlap. Largest first, each at the lowest offset that is free over its whole
 * life (greedy by size: Pisarchyk and Lee, "Efficient memory management for deep neural net
 * inference", 2020).
 */
#include <stdlib.h>
#include <string.h>

#include "src/plan/pass/occupied.h"
#include "src/plan/pass/pass.h"

typedef struct block {
    size_t bytes;
    int first, last, value;
} block;

static int by_size(const void *a, const void *b)
{
    const block *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->value - y->value;
}

/* The values that need room, largest first. */
static tsr_status list_blocks(const tsri_ir *ir, int rank, tsr_device kind, tsri_pool *pool,
                              block **out_blocks, int *out_n)
{
    block *blocks = tsri_pool_alloc(pool, (size_t)ir->nvalues * sizeof *blocks);
    if (!blocks)
        return TSR_ERR_NO_MEMORY;
    int n = 0;
    for (int i = 0; i < ir->nvalues; i++) {
        const tsri_value *v = &ir->values[i];
        bool is_here =
            v->storage == TSRI_STORAGE_ARENA && v->first >= 0 && tsri_value_device(v) == kind;
        size_t bytes =
            is_here ? tsri_value_room(v, tsri_value_stride(tsri_value_bytes(v, rank))) : 0;
        if (bytes)
            blocks[n++] = (block){bytes, v->first, v->last, i};
    }
    qsort(blocks, (size_t)n, sizeof *blocks, by_size);
    *out_blocks = blocks;
    *out_n = n;
    return TSR_OK;
}

static tsr_status place_all(tsri_ir *ir, int rank, tsr_device kind, tsri_pool *pool,
                            size_t *out_bytes)
{
    block *blocks;
    int n, times = 0;
    TSRI_TRY(list_blocks(ir, rank, kind, pool, &blocks, &n));
    for (int i = 0; i < n; i++)
        times = blocks[i].last >= times ? blocks[i].last + 1 : times;
    tsri_occupied taken;
    TSRI_TRY(tsri_occupied_init(&taken, pool, times));
    *out_bytes = 0;
    for (int i = 0; i < n; i++) {
        const block *b = &blocks[i];
        size_t offset = tsri_occupied_lowest(&taken, b->first, b->last, b->bytes);
        TSRI_TRY(tsri_occupied_take(&taken, b->first, b->last, offset, b->bytes));
        *out_bytes = offset + b->bytes > *out_bytes ? offset + b->bytes : *out_bytes;
        if (rank == ir->world->rank)
            ir->values[b->value].arena_offset = offset;
    }
    return TSR_OK;
}

tsr_status tsri_plan_memory(tsri_ir *ir, int rank, tsr_device kind, size_t *out_bytes)
{
    tsri_pool pool;
    *out_bytes = 0;
    if (!tsri_target_of(kind)) /* so no value is on it */
        return TSR_OK;
    tsri_pool_init(&pool, &ir->world->mem);
    tsr_status st = place_all(ir, rank, kind, &pool, out_bytes);
    tsri_pool_finish(&pool);
    return st;
}

tsr_status tsri_plan_rank_bytes(tsri_ir *ir, int rank, size_t *out_variables, size_t *out_ports,
                                size_t *out_values)
{
    size_t variables = 0, ports = 0, values = 0, bytes;
    for (int i = 0; i < ir->nvalues; i++) {
        const tsri_value *v = &ir->values[i];
        if (v->storage == TSRI_STORAGE_VARIABLE && v->source)
            variables += tsri_value_bytes(v, rank);
        if (v->storage == TSRI_STORAGE_PORT)
            ports += tsri_value_bytes(v, rank);
    }
    *out_variables = variables;
    *out_ports = ports;
    for (int k = 1; k < TSRI_DEVICES; k++) {
        TSRI_TRY(tsri_plan_memory(ir, rank, (tsr_device)k, &bytes));
        values += bytes;
    }
    *out_values = values;
    return TSR_OK;
}
