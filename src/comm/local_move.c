/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of call moves, once all members have come to it. */
#include "src/comm/local.h"

#include <tessera/placement.h>

/* What a call needs while its data moves. */
typedef struct mover {
    tsri_local_group *g;
    const tsri_coll *coll;
    uint64_t seq;
    int first; /* segment of the call that is the record's first */
} mover;

/* Where member m's src (or dst) of the record's i-th segment is in this process. */
static char *side_of(const mover *mv, int m, int i, bool dst)
{
    const tsri_local_group *g = mv->g;
    tsri_member *member = &g->members[m];
    const tsri_seg_place *p = &tsri_call_places(member, tsri_call_of(member, mv->seq))[i];
    uint64_t offset = dst ? p->dst : p->src;
    return offset == TSRI_NOWHERE ? NULL
                                  : tsri_arena_region(&g->local->arena, g->pub.ranks[m]) + offset;
}

static const char *src_of(const mover *mv, int m, int i)
{
    return m == mv->g->pub.index ? (const char *)mv->coll->seg[mv->first + i].src
                                 : side_of(mv, m, i, false);
}

static void count_read(const mover *mv, const tsri_walk *w, tsr_dtype dtype, int peers)
{
    mv->g->local->stats.bytes_read[mv->coll->kind] +=
        (uint64_t)(w->rows * w->run) * tsr_dtype_size(dtype) * (uint64_t)peers;
}

/* dst gets the reduction of the elements of w. All sides are whole but dst. */
static void reduce_walk(const mover *mv, int i, const tsri_walk *w)
{
    const tsri_segment *s = &mv->coll->seg[mv->first + i];
    int n = mv->g->pub.nranks;
    if (w->rows * w->run == 0)
        return;
    for (int m = 0; m < n; m++)
        mv->g->src[m] = src_of(mv, m, i);
    tsri_walk_run(w, s->dtype, mv->coll->op, n, mv->g->src, s->dst,
                  mv->g->local->pub.world->threads);
    count_read(mv, w, s->dtype, n - 1);
}

/* dst gets what it shares with member m's box. */
static void copy_from(const mover *mv, int i, int m, const char *src, const tsri_walk *w)
{
    const tsri_segment *s = &mv->coll->seg[mv->first + i];
    tsri_walk_run(w, s->dtype, TSR_REDUCE_SUM, 1, &src, s->dst, mv->g->local->pub.world->threads);
    if (m != mv->g->pub.index)
        count_read(mv, w, s->dtype, 1);
}

static void move_segment(const mover *mv, int i)
{
    const tsri_segment *s = &mv->coll->seg[mv->first + i];
    int n = mv->g->pub.nranks, me = mv->g->pub.index;
    tsri_box whole = tsri_box_piece(s->shape, -1, n, 0);
    tsri_box dst = tsri_box_piece(s->shape, s->dst_axis, n, me);
    tsri_walk w = tsri_walk_of(s->shape, &whole, &dst);
    switch (mv->coll->kind) {
    case TSRI_COLL_REDUCE:
        if (me != mv->coll->root)
            return;
        reduce_walk(mv, i, &w);
        return;
    case TSRI_COLL_ALL_REDUCE:
    case TSRI_COLL_REDUCE_SCATTER:
        reduce_walk(mv, i, &w);
        return;
    case TSRI_COLL_BROADCAST:
        copy_from(mv, i, mv->coll->root, src_of(mv, mv->coll->root, i), &w);
        return;
    default:
        break;
    }
    /* Gathers. Starting behind oneself keeps the ranks from reading all the same memory at once. */
    for (int k = 0; k < n; k++) {
        int m = (me + k) % n;
        tsri_box src = tsri_box_piece(s->shape, s->src_axis, n, m);
        w = tsri_walk_of(s->shape, &src, &dst);
        copy_from(mv, i, m, src_of(mv, m, i), &w);
    }
}

/* Member m's flat part of a segment, in a two-phase all-reduce. */
static tsri_walk part_of(const mover *mv, int i, int m)
{
    int64_t offset, length;
    tsr_split(tsr_dims_count(mv->coll->seg[mv->first + i].shape), mv->g->pub.nranks, m, &offset,
              &length);
    return tsri_walk_flat(offset, length);
}

static tsr_status move_two_phase(const mover *mv, const tsri_call *call)
{
    tsri_local_group *g = mv->g;
    int n = g->pub.nranks, me = g->pub.index;
    for (int i = 0; i < call->nseg; i++) {
        tsri_walk w = part_of(mv, i, me);
        reduce_walk(mv, i, &w);
    }
    tsri_local_advance(g->mine, TSRI_WAIT_PHASE1, mv->seq);
    for (int k = 1; k < n; k++) {
        int m = (me + k) % n;
        TSRI_TRY(tsri_local_await(g, m, TSRI_WAIT_PHASE1, mv->seq, call));
        for (int i = 0; i < call->nseg; i++) {
            tsri_walk w = part_of(mv, i, m);
            copy_from(mv, i, m, side_of(mv, m, i, true), &w);
        }
    }
    return TSR_OK;
}

tsr_status tsri_local_move(tsri_local_group *g, const tsri_coll *coll, uint64_t seq, int first)
{
    const mover at = {g, coll, seq, first}, *mv = &at;
    const tsri_call *call = tsri_call_of(g->mine, seq);
    if (coll->kind == TSRI_COLL_SEND_RECV)
        return tsri_send_move(g, coll, seq, first, call->nseg);
    TSRI_TRY(tsri_call_meet(g, seq));
    if (mv->coll->kind == TSRI_COLL_ALL_REDUCE && mv->coll->algo == TSRI_ALGO_TWO_PHASE) {
        TSRI_TRY(move_two_phase(mv, call));
    } else {
        for (int i = 0; i < call->nseg; i++)
            move_segment(mv, i);
        tsri_local_advance(g->mine, TSRI_WAIT_PHASE1, mv->seq);
    }
    tsri_call_done(g, seq);
    return TSR_OK;
}

void tsri_local_move_alone(tsri_local_group *g, const tsri_coll *coll)
{
    for (int i = 0; i < coll->nseg; i++) {
        const tsri_segment *s = &coll->seg[i];
        if (coll->kind == TSRI_COLL_SEND_RECV) {
            tsri_send_own(g, coll, i);
            continue;
        }
        const char *src = s->src;
        tsri_walk w = tsri_walk_flat(0, tsr_dims_count(s->shape));
        tsri_walk_run(&w, s->dtype, coll->op, 1, &src, s->dst, g->local->pub.world->threads);
    }
}
