/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory plan: an offset in the plan's block for every value, such that values that live at the
 * same time do not overlap. Largest first, each at the lowest offset that is free over its whole
 * life (greedy by size: Pisarchyk and Lee, "Efficient memory management for deep neural net
 * inference", 2020).
 */
#include <stdlib.h>
#include <string.h>

#include "src/plan/plan.h"

enum { ALIGNMENT = 64 };

typedef struct block {
    size_t bytes, offset;
    int first, last, value;
} block;

static int by_size(const void *a, const void *b)
{
    const block *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->value - y->value;
}

/* placed[] is sorted by offset. Finds the lowest gap for b and inserts it. */
static void place(block *placed, int nplaced, block *b)
{
    size_t offset = 0;
    for (int i = 0; i < nplaced; i++) {
        const block *p = &placed[i];
        if (p->last < b->first || b->last < p->first)
            continue;
        if (p->offset >= offset + b->bytes)
            break;
        size_t end = p->offset + p->bytes;
        offset = end > offset ? end : offset;
    }
    b->offset = offset;
    int at = nplaced;
    while (at > 0 && placed[at - 1].offset > offset)
        at--;
    memmove(&placed[at + 1], &placed[at], (size_t)(nplaced - at) * sizeof *placed);
    placed[at] = *b;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

tsr_device tsri_value_device(const tsri_value *v)
{
    return tsr_placement_device(v->placement);
}

size_t tsri_plan_scratch(const tsr_plan *plan)
{
    size_t bytes = 0;
    for (int k = 0; k < TSRI_DEVICES; k++)
        bytes += plan->part[k].scratch_bytes;
    return bytes;
}

tsr_status tsri_plan_memory(tsr_plan *plan, int rank, tsr_device kind, size_t *out_bytes)
{
    tsri_pool pool;
    tsri_pool_init(&pool, &plan->world->mem);
    size_t n = (size_t)plan->nvalues;
    block *blocks = tsri_pool_alloc(&pool, n * sizeof *blocks);
    block *placed = tsri_pool_alloc(&pool, n * sizeof *placed);
    if (!blocks || !placed) {
        tsri_pool_finish(&pool);
        return TSR_ERR_NO_MEMORY;
    }
    int nblocks = 0;
    size_t end = 0;
    for (int i = 0; i < plan->nvalues; i++) {
        const tsri_value *v = &plan->values[i];
        bool is_here =
            v->storage == TSRI_STORAGE_ARENA && v->first >= 0 && tsri_value_device(v) == kind;
        size_t bytes = is_here ? aligned(tsri_value_bytes(v, rank)) : 0;
        if (bytes)
            blocks[nblocks++] = (block){bytes, 0, v->first, v->last, i};
    }
    qsort(blocks, (size_t)nblocks, sizeof *blocks, by_size);
    for (int i = 0; i < nblocks; i++) {
        place(placed, i, &blocks[i]);
        size_t top = blocks[i].offset + blocks[i].bytes;
        end = top > end ? top : end;
        if (rank == plan->world->rank)
            plan->values[blocks[i].value].arena_offset = blocks[i].offset;
    }
    *out_bytes = end;
    tsri_pool_finish(&pool);
    return TSR_OK;
}

tsr_status tsri_plan_rank_bytes(tsr_plan *plan, int rank, size_t *out_variables, size_t *out_ports,
                                size_t *out_values)
{
    size_t variables = 0, ports = 0, values = 0, bytes;
    for (int i = 0; i < plan->nvalues; i++) {
        const tsri_value *v = &plan->values[i];
        if (v->storage == TSRI_STORAGE_VARIABLE && v->source)
            variables += tsri_value_bytes(v, rank);
        if (v->storage == TSRI_STORAGE_PORT)
            ports += tsri_value_bytes(v, rank);
    }
    *out_variables = variables;
    *out_ports = ports;
    for (int k = TSR_DEVICE_CPU; k <= TSR_DEVICE_CUDA; k++) {
        TSRI_TRY(tsri_plan_memory(plan, rank, (tsr_device)k, &bytes));
        values += bytes;
    }
    *out_values = values;
    return TSR_OK;
}
