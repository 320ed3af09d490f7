/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of all kinds of call but SEND_RECV. */
#include "src/comm/schedule/build.h"

#include <tessera/placement.h>

#include <string.h>

#include "src/target/dtype.h"

/* --- pieces ----------------------------------------------------------------------------------- */
/* An array as seen by one of its axes. */
typedef struct view {
    int64_t outer, length, inner;
} view;

static view view_of(const tsr_dims *d, int axis)
{
    view v = {1, d->d[axis], 1};
    for (int a = 0; a < axis; a++)
        v.outer *= d->d[a];
    for (int a = axis + 1; a < d->ndim; a++)
        v.inner *= d->d[a];
    return v;
}

/*
 * Moves the pieces along the view's axis, but that of member `but`, from the array to packed
 * memory, where they stand one after the other, or back. Neighbours of one length go in one move.
 */
static void move_pieces(tsri_nccl_build *b, bool pack, tsr_dtype dtype, const view *v, int but,
                        tsri_nccl_place array, tsri_nccl_place packed)
{
    int64_t size = (int64_t)tsr_dtype_size(dtype);
    for (int first = 0, end; first < b->n; first = end) {
        int64_t length = tsri_nccl_length(v->length, b->n, first), run = length * v->inner;
        end = first + 1;
        if (first == but)
            continue;
        while (end < b->n && end != but && tsri_nccl_length(v->length, b->n, end) == length)
            end++;
        if (v->outer * run == 0)
            continue;
        const int64_t in_array[] = {v->length * v->inner, run, 1};
        const int64_t in_packed[] = {run, v->outer * run, 1};
        int64_t at = tsri_nccl_offset(v->length, b->n, first) * v->inner * size;
        tsri_nccl_place a = tsri_nccl_shift(array, at);
        tsri_nccl_place p = tsri_nccl_shift(packed, at * v->outer);
        tsri_move move = {
            .dtype = dtype, .ndim = 3, .length = {v->outer, end - first, run}, .nsrc = 1};
        memcpy(move.src_step, pack ? in_array : in_packed, sizeof in_array);
        memcpy(move.dst_step, pack ? in_packed : in_array, sizeof in_array);
        tsri_nccl_push_move(b, pack ? TSRI_NCCL_PACK : TSRI_NCCL_UNPACK, move, pack ? &a : &p,
                            pack ? p : a);
    }
}

/* Everyone gets all pieces, of rows of `unit` elements, one after the other; src is mine. */
static void gather_flat(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype, int64_t length,
                        int64_t unit, tsri_nccl_place src, tsri_nccl_place to)
{
    int64_t size = (int64_t)tsr_dtype_size(dtype);
    if (b->direct) {
        tsri_nccl_gather_direct(b, phase, dtype, length, unit, src, to);
        return;
    }
    if (length % b->n == 0) {
        tsri_nccl_push_coll(b, phase, TSRI_NCCL_ALL_GATHER, dtype, length / b->n * unit, src, to,
                            0);
        return;
    }
    for (int p = 0; p < b->n; p++)
        tsri_nccl_push_coll(
            b, phase, TSRI_NCCL_BROADCAST, dtype, tsri_nccl_length(length, b->n, p) * unit,
            p == b->me ? src : tsri_nccl_nowhere,
            tsri_nccl_shift(to, tsri_nccl_offset(length, b->n, p) * unit * size), p);
}

/* --- reductions in the order of members ------------------------------------------------------- */
/* Whether NCCL's reduction would not do: see the header. */
static bool is_ordered(const tsri_nccl_build *b, tsr_dtype dtype)
{
    if (b->direct)
        return true;
    return tsri_is_float(dtype) && b->coll->op != TSR_REDUCE_SUM && b->n <= TSRI_NCCL_MAX_PARTS;
}

static void all_reduce_ordered(tsri_nccl_build *b, int i, int64_t count)
{
    const tsri_segment *s = &b->coll->seg[i];
    int64_t size = (int64_t)tsr_dtype_size(s->dtype);
    tsri_nccl_place src = tsri_nccl_src(i), dst = tsri_nccl_dst(i);
    if (b->coll->algo == TSRI_ALGO_TWO_PHASE) {
        tsri_nccl_place mine = tsri_nccl_shift(dst, tsri_nccl_offset(count, b->n, b->me) * size);
        tsri_nccl_reduce_part(b, TSRI_NCCL_BETWEEN, s, count, 1, src, mine);
        gather_flat(b, TSRI_NCCL_TALK_AGAIN, s->dtype, count, 1, mine, dst);
        return;
    }
    tsri_nccl_place sources[TSRI_PLAN_MAX_PARTS];
    if (b->direct) {
        for (int k = 1; k < b->n; k++) {
            int p = (b->me + k) % b->n, q = (b->me + b->n - k) % b->n;
            sources[q] = tsri_nccl_stage(b, count * size);
            tsri_nccl_push_send(b, TSRI_NCCL_TALK, s->dtype, count, src, p);
            tsri_nccl_push_recv(b, TSRI_NCCL_TALK, s->dtype, count, sources[q], q);
        }
        sources[b->me] = src;
    } else {
        tsri_nccl_place all = tsri_nccl_stage(b, b->n * count * size);
        for (int p = 0; p < b->n; p++)
            sources[p] = tsri_nccl_shift(all, p * count * size);
        tsri_nccl_push_coll(b, TSRI_NCCL_TALK, TSRI_NCCL_ALL_GATHER, s->dtype, count, src, all, 0);
    }
    tsri_nccl_push_flat(b, TSRI_NCCL_UNPACK, s->dtype, count, b->n, sources, dst);
}

static void reduce_ordered(tsri_nccl_build *b, int i, int64_t count)
{
    const tsri_segment *s = &b->coll->seg[i];
    tsri_nccl_place src = tsri_nccl_src(i), sources[TSRI_PLAN_MAX_PARTS];
    if (b->direct && b->coll->algo == TSRI_ALGO_TWO_PHASE) {
        tsri_nccl_reduce_direct(b, i, count);
        return;
    }
    if (b->me != b->coll->root) {
        tsri_nccl_push_send(b, TSRI_NCCL_TALK, s->dtype, count, src, b->coll->root);
        return;
    }
    for (int p = 0; p < b->n; p++) {
        sources[p] = src;
        if (p == b->me)
            continue;
        sources[p] = tsri_nccl_stage(b, count * (int64_t)tsr_dtype_size(s->dtype));
        tsri_nccl_push_recv(b, TSRI_NCCL_TALK, s->dtype, count, sources[p], p);
    }
    tsri_nccl_push_flat(b, TSRI_NCCL_UNPACK, s->dtype, count, b->n, sources, tsri_nccl_dst(i));
}

/* --- the kinds -------------------------------------------------------------------------------- */
static void all_gather(tsri_nccl_build *b, int i, int64_t count)
{
    const tsri_segment *s = &b->coll->seg[i];
    const view v = view_of(&s->shape, s->src_axis);
    tsri_nccl_place src = tsri_nccl_src(i), dst = tsri_nccl_dst(i);
    tsri_nccl_place to = dst;
    if (v.outer > 1)
        to = tsri_nccl_stage(b, count * (int64_t)tsr_dtype_size(s->dtype));
    gather_flat(b, TSRI_NCCL_TALK, s->dtype, v.length, v.outer * v.inner, src, to);
    if (v.outer > 1)
        move_pieces(b, false, s->dtype, &v, -1, dst, to);
}

static void reduce_scatter(tsri_nccl_build *b, int i, int64_t count)
{
    const tsri_segment *s = &b->coll->seg[i];
    const view v = view_of(&s->shape, s->dst_axis);
    int64_t size = (int64_t)tsr_dtype_size(s->dtype), unit = v.outer * v.inner;
    tsri_nccl_place from = tsri_nccl_src(i), dst = tsri_nccl_dst(i);
    if (v.outer > 1) {
        tsri_nccl_place src = from;
        from = tsri_nccl_stage(b, count * size);
        move_pieces(b, true, s->dtype, &v, -1, src, from);
    }
    if (is_ordered(b, s->dtype)) {
        tsri_nccl_reduce_part(b, TSRI_NCCL_UNPACK, s, v.length, unit, from, dst);
        return;
    }
    if (v.length % b->n == 0) {
        tsri_nccl_push_coll(b, TSRI_NCCL_TALK, TSRI_NCCL_REDUCE_SCATTER, s->dtype,
                            v.length / b->n * unit, from, dst, 0);
        return;
    }
    for (int p = 0; p < b->n; p++)
        tsri_nccl_push_coll(
            b, TSRI_NCCL_TALK, TSRI_NCCL_REDUCE, s->dtype,
            tsri_nccl_length(v.length, b->n, p) * unit,
            tsri_nccl_shift(from, tsri_nccl_offset(v.length, b->n, p) * unit * size),
            p == b->me ? dst : tsri_nccl_nowhere, p);
}

/* The part of both its pieces that a member keeps. src and dst are its sides' shapes. */
static void keep_own(tsri_nccl_build *b, int i, const tsr_dims *src, const tsr_dims *dst)
{
    const tsri_segment *s = &b->coll->seg[i];
    tsri_move move = {.dtype = s->dtype, .ndim = s->shape.ndim, .nsrc = 1};
    int64_t from = 1, to = 1;
    for (int a = s->shape.ndim - 1; a >= 0; a--) {
        move.length[a] = src->d[a] < dst->d[a] ? src->d[a] : dst->d[a];
        if (move.length[a] == 0)
            return;
        move.src_step[a] = from;
        move.dst_step[a] = to;
        from *= src->d[a];
        to *= dst->d[a];
    }
    move.src_at =
        tsri_nccl_offset(s->shape.d[s->dst_axis], b->n, b->me) * move.src_step[s->dst_axis];
    move.dst_at =
        tsri_nccl_offset(s->shape.d[s->src_axis], b->n, b->me) * move.dst_step[s->src_axis];
    tsri_nccl_place place = tsri_nccl_src(i);
    tsri_nccl_push_move(b, TSRI_NCCL_UNPACK, move, &place, tsri_nccl_dst(i));
}

static void all_to_all(tsri_nccl_build *b, int i)
{
    const tsri_segment *s = &b->coll->seg[i];
    int64_t size = (int64_t)tsr_dtype_size(s->dtype);
    tsr_dims src = s->shape, dst = s->shape;
    src.d[s->src_axis] = tsri_nccl_length(s->shape.d[s->src_axis], b->n, b->me);
    dst.d[s->dst_axis] = tsri_nccl_length(s->shape.d[s->dst_axis], b->n, b->me);
    tsri_nccl_place from = tsri_nccl_src(i), to = tsri_nccl_dst(i);
    if (s->src_axis == s->dst_axis) {
        tsri_nccl_push_flat(b, TSRI_NCCL_UNPACK, s->dtype, tsr_dims_count(src), 1, &from, to);
        return;
    }
    const view v = view_of(&src, s->dst_axis), w = view_of(&dst, s->src_axis);
    if (v.outer > 1) {
        from = tsri_nccl_stage(b, tsr_dims_count(src) * size);
        move_pieces(b, true, s->dtype, &v, b->me, tsri_nccl_src(i), from);
    }
    if (w.outer > 1)
        to = tsri_nccl_stage(b, tsr_dims_count(dst) * size);
    for (int k = 1; k < b->n; k++) {
        int p = (b->me + k) % b->n, q = (b->me + b->n - k) % b->n;
        int64_t sent = v.outer * v.inner, got = w.outer * w.inner;
        tsri_nccl_push_send(
            b, TSRI_NCCL_TALK, s->dtype, tsri_nccl_length(v.length, b->n, p) * sent,
            tsri_nccl_shift(from, tsri_nccl_offset(v.length, b->n, p) * sent * size), p);
        tsri_nccl_push_recv(b, TSRI_NCCL_TALK, s->dtype, tsri_nccl_length(w.length, b->n, q) * got,
                            tsri_nccl_shift(to, tsri_nccl_offset(w.length, b->n, q) * got * size),
                            q);
    }
    keep_own(b, i, &src, &dst);
    if (w.outer > 1)
        move_pieces(b, false, s->dtype, &w, b->me, tsri_nccl_dst(i), to);
}

static void build_segment(tsri_nccl_build *b, int i)
{
    const tsri_coll *c = b->coll;
    const tsri_segment *s = &c->seg[i];
    int64_t count = tsr_dims_count(s->shape);
    bool is_root = b->me == c->root, ordered = is_ordered(b, s->dtype);
    tsri_nccl_place src = tsri_nccl_src(i), dst = tsri_nccl_dst(i);
    if (count == 0)
        return;
    if (b->n == 1) {
        tsri_nccl_push_flat(b, TSRI_NCCL_UNPACK, s->dtype, count, 1, &src, dst);
        return;
    }
    switch (c->kind) {
    case TSRI_COLL_ALL_REDUCE:
        if (ordered)
            all_reduce_ordered(b, i, count);
        else
            tsri_nccl_push_coll(b, TSRI_NCCL_TALK, TSRI_NCCL_ALL_REDUCE, s->dtype, count, src, dst,
                                0);
        break;
    case TSRI_COLL_REDUCE:
        if (ordered)
            reduce_ordered(b, i, count);
        else
            tsri_nccl_push_coll(b, TSRI_NCCL_TALK, TSRI_NCCL_REDUCE, s->dtype, count, src,
                                is_root ? dst : tsri_nccl_nowhere, c->root);
        break;
    case TSRI_COLL_BROADCAST:
        if (b->direct)
            tsri_nccl_broadcast_direct(b, i, count);
        else
            tsri_nccl_push_coll(b, TSRI_NCCL_TALK, TSRI_NCCL_BROADCAST, s->dtype, count,
                                is_root ? src : tsri_nccl_nowhere, dst, c->root);
        break;
    case TSRI_COLL_ALL_GATHER:
        all_gather(b, i, count);
        break;
    case TSRI_COLL_REDUCE_SCATTER:
        reduce_scatter(b, i, count);
        break;
    case TSRI_COLL_ALL_TO_ALL:
        all_to_all(b, i);
        break;
    default:
        break;
    }
}

/* --- the whole -------------------------------------------------------------------------------- */
static bool is_talk(int phase)
{
    return phase == TSRI_NCCL_TALK || phase == TSRI_NCCL_TALK_AGAIN;
}

/* Joins the phases. Several steps of NCCL go as a group. */
static tsr_status join(tsri_nccl_build *b, tsri_nccl_plan *out)
{
    int count = 2 * TSRI_NCCL_PHASES;
    for (int p = 0; p < TSRI_NCCL_PHASES; p++)
        count += b->phase[p].count;
    out->steps = tsri_mem_alloc(b->mem, (size_t)count * sizeof *out->steps);
    TSRI_NEED(out->steps);
    for (int p = 0; p < TSRI_NCCL_PHASES; p++) {
        const tsri_nccl_list *l = &b->phase[p];
        bool group = is_talk(p) && l->count > 1;
        out->talks |= is_talk(p) && l->count > 0;
        if (group)
            out->steps[out->nsteps++].kind = TSRI_NCCL_GROUP_START;
        if (l->count)
            memcpy(&out->steps[out->nsteps], l->steps, (size_t)l->count * sizeof *l->steps);
        out->nsteps += l->count;
        if (group)
            out->steps[out->nsteps++].kind = TSRI_NCCL_GROUP_END;
    }
    return TSR_OK;
}

static uint64_t bytes_read(const tsri_nccl_build *b)
{
    const tsri_coll *c = b->coll;
    const tsri_nccl_list *l = &b->phase[TSRI_NCCL_TALK];
    uint64_t bytes = 0;
    for (int i = 0; i < c->nseg && c->kind != TSRI_COLL_SEND_RECV; i++)
        bytes += tsri_coll_bytes(c->kind, c->algo, b->n, b->me, c->root, &c->seg[i]);
    for (int i = 0; i < l->count && c->kind == TSRI_COLL_SEND_RECV; i++)
        if (l->steps[i].kind == TSRI_NCCL_RECV)
            bytes += (uint64_t)l->steps[i].count * tsr_dtype_size(l->steps[i].dtype);
    return bytes;
}

static tsr_status build(tsri_nccl_build *b)
{
    if (b->coll->kind == TSRI_COLL_SEND_RECV)
        return tsri_nccl_build_pulls(b);
    for (int i = 0; i < b->coll->nseg; i++)
        build_segment(b, i);
    if (b->coll->kind == TSRI_COLL_BARRIER && b->n > 1 && !b->direct) {
        tsri_nccl_place byte = tsri_nccl_stage(b, 1);
        tsri_nccl_push_coll(b, TSRI_NCCL_TALK, TSRI_NCCL_ALL_REDUCE, TSR_U8, 1, byte, byte, 0);
    }
    return TSR_OK;
}

tsr_status tsri_nccl_plan_make(tsri_mem *mem, const tsri_coll *coll, int n, int index,
                               const int *ranks, const tsri_nccl_words *words, bool direct,
                               tsri_nccl_plan *out_plan)
{
    tsri_nccl_build b = {.mem = mem,
                         .coll = coll,
                         .n = n,
                         .me = index,
                         .ranks = ranks,
                         .words = words,
                         .direct = direct};
    tsri_nccl_plan plan = {0};
    tsr_status status = build(&b);
    if (status == TSR_OK && b.no_memory)
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = join(&b, &plan);
    plan.bytes_read = bytes_read(&b);
    for (int p = 0; p < TSRI_NCCL_PHASES; p++)
        tsri_mem_free(b.phase[p].steps);
    if (status != TSR_OK) {
        tsri_mem_free(b.sources);
        return status;
    }
    plan.sources = b.sources;
    plan.nsources = b.nsources;
    plan.stage_bytes = (size_t)b.stage;
    *out_plan = plan;
    return TSR_OK;
}

int tsri_nccl_talk_end(const tsri_nccl_plan *plan, int first)
{
    int end = first + 1;
    if (plan->steps[first].kind == TSRI_NCCL_GROUP_START)
        while (plan->steps[end++].kind != TSRI_NCCL_GROUP_END)
            ;
    return end;
}

char *tsri_nccl_locate(const tsri_coll *coll, char *stage, tsri_nccl_place p)
{
    switch (p.where) {
    case TSRI_NCCL_SRC:
        return (char *)(uintptr_t)coll->seg[p.seg].src + p.at;
    case TSRI_NCCL_DST:
        return (char *)coll->seg[p.seg].dst + p.at;
    case TSRI_NCCL_STAGE:
        return stage + p.at;
    case TSRI_NCCL_NOWHERE:
        break;
    }
    return NULL;
}

void tsri_nccl_plan_finish(tsri_nccl_plan *plan)
{
    tsri_mem_free(plan->steps);
    tsri_mem_free(plan->sources);
    *plan = (tsri_nccl_plan){0};
}
