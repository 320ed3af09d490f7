/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that schedules are made of. */
#include "src/comm/schedule/build.h"

bool tsri_nccl_grow(tsri_nccl_build *b, void **items, int count, int *capacity, size_t bytes)
{
    b->no_memory = b->no_memory || !tsri_mem_grow(b->mem, items, count, capacity, bytes);
    return !b->no_memory;
}

/* The dtype that NCCL is told; it has no bools. */
static tsr_dtype wire_dtype(tsr_dtype dtype)
{
    return dtype == TSR_BOOL ? TSR_U8 : dtype;
}

void tsri_nccl_push(tsri_nccl_build *b, tsri_nccl_phase phase, const tsri_nccl_step *step)
{
    tsri_nccl_list *l = &b->phase[phase];
    if (tsri_nccl_grow(b, (void **)&l->steps, l->count, &l->capacity, sizeof *l->steps))
        l->steps[l->count++] = *step;
}

void tsri_nccl_push_move(tsri_nccl_build *b, tsri_nccl_phase phase, tsri_move move,
                         const tsri_nccl_place *sources, tsri_nccl_place dst)
{
    tsri_nccl_step step = {.kind = TSRI_NCCL_MOVE,
                           .dtype = move.dtype,
                           .op = move.op,
                           .dst = dst,
                           .move = move,
                           .first = b->nsources};
    for (int i = 0; i < move.nsrc; i++)
        if (tsri_nccl_grow(b, (void **)&b->sources, b->nsources, &b->csources, sizeof *b->sources))
            b->sources[b->nsources++] = sources[i];
    tsri_nccl_push(b, phase, &step);
}

void tsri_nccl_push_coll(tsri_nccl_build *b, tsri_nccl_phase phase, tsri_nccl_step_kind kind,
                         tsr_dtype dtype, int64_t count, tsri_nccl_place src, tsri_nccl_place dst,
                         int peer)
{
    tsr_reduce_op op = b->coll->op;
    if (dtype == TSR_BOOL && op == TSR_REDUCE_SUM)
        op = TSR_REDUCE_MAX;
    const tsri_nccl_step step = {.kind = kind,
                                 .dtype = wire_dtype(dtype),
                                 .op = op,
                                 .peer = peer,
                                 .count = count,
                                 .src = src,
                                 .dst = dst};
    if (count > 0)
        tsri_nccl_push(b, phase, &step);
}

void tsri_nccl_push_recv(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype, int64_t count,
                         tsri_nccl_place dst, int peer)
{
    tsri_nccl_push_coll(b, phase, TSRI_NCCL_RECV, dtype, count, tsri_nccl_nowhere, dst, peer);
}

void tsri_nccl_push_send(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype, int64_t count,
                         tsri_nccl_place src, int peer)
{
    tsri_nccl_push_coll(b, phase, TSRI_NCCL_SEND, dtype, count, src, tsri_nccl_nowhere, peer);
}

void tsri_nccl_push_flat(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype, int64_t count,
                         int nsrc, const tsri_nccl_place *sources, tsri_nccl_place dst)
{
    const tsri_move move = tsri_move_flat(dtype, b->coll->op, count, nsrc, NULL, NULL);
    if (count > 0)
        tsri_nccl_push_move(b, phase, move, sources, dst);
}

tsri_nccl_place tsri_nccl_stage(tsri_nccl_build *b, int64_t bytes)
{
    enum { ALIGNMENT = 256 };
    tsri_nccl_place p = tsri_nccl_at(TSRI_NCCL_STAGE, 0, b->stage);
    b->stage += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return p;
}

void tsri_nccl_reduce_part(tsri_nccl_build *b, tsri_nccl_phase phase, const tsri_segment *s,
                           int64_t length, int64_t unit, tsri_nccl_place from, tsri_nccl_place dst)
{
    int64_t size = (int64_t)tsr_dtype_size(s->dtype);
    int64_t mine = tsri_nccl_length(length, b->n, b->me) * unit;
    tsri_nccl_place sources[TSRI_PLAN_MAX_PARTS];
    for (int p = 0; p < b->n; p++) {
        tsri_nccl_place part =
            tsri_nccl_shift(from, tsri_nccl_offset(length, b->n, p) * unit * size);
        sources[p] = part;
        if (p == b->me)
            continue;
        tsri_nccl_push_send(b, TSRI_NCCL_TALK, s->dtype, tsri_nccl_length(length, b->n, p) * unit,
                            part, p);
        sources[p] = tsri_nccl_stage(b, mine * size);
        tsri_nccl_push_recv(b, TSRI_NCCL_TALK, s->dtype, mine, sources[p], p);
    }
    tsri_nccl_push_flat(b, phase, s->dtype, mine, b->n, sources, dst);
}
