/* SPDX-License-Identifier: Apache-2.0 */
/* The data of each kind of call, once all members have come to it. */
#include "src/comm/local/local.h"

#include <tessera/placement.h>

/* State of a call while its data moves. */
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
    tsri_call_entry *record = tsri_call_of(member, mv->seq);
    const tsri_seg_place *p = &tsri_call_places(member, record, record->nseg)[i];
    uint64_t offset = dst ? p->dst : p->src;
    return offset == TSRI_NOWHERE ? NULL : g->peer[m].base + offset;
}

static const char *src_of(const mover *mv, int m, int i)
{
    return m == mv->g->pub.index ? (const char *)mv->coll->seg[mv->first + i].src
                                 : side_of(mv, m, i, false);
}

static void count_read(const mover *mv, const tsri_walk *w, tsr_dtype dtype, int peers)
{
    mv->g->stats.bytes_read[mv->coll->kind] +=
        (uint64_t)(w->rows * w->run) * tsr_dtype_size(dtype) * (uint64_t)peers;
}

/* dst gets the reduction of the elements of w. All sides are whole but dst. */
static tsr_status reduce_walk(const mover *mv, int i, const tsri_walk *w)
{
    const tsri_segment *s = &mv->coll->seg[mv->first + i];
    int n = mv->g->pub.nranks;
    if (w->rows * w->run == 0)
        return TSR_OK;
    for (int m = 0; m < n; m++)
        mv->g->src[m] = src_of(mv, m, i);
    TSRI_TRY(mv->g->local->mover->walk(mv->g, mv->coll, w, s->dtype, n, mv->g->src, s->dst));
    count_read(mv, w, s->dtype, n - 1);
    return TSR_OK;
}

/* dst gets what it shares with member m's box. */
static tsr_status copy_from(const mover *mv, int i, int m, const char *src, const tsri_walk *w)
{
    const tsri_segment *s = &mv->coll->seg[mv->first + i];
    TSRI_TRY(mv->g->local->mover->walk(mv->g, mv->coll, w, s->dtype, 1, &src, s->dst));
    if (m != mv->g->pub.index)
        count_read(mv, w, s->dtype, 1);
    return TSR_OK;
}

static tsr_status move_segment(const mover *mv, int i)
{
    const tsri_segment *s = &mv->coll->seg[mv->first + i];
    int n = mv->g->pub.nranks, me = mv->g->pub.index;
    tsri_box whole = tsri_box_piece(s->shape, -1, n, 0);
    tsri_box dst = tsri_box_piece(s->shape, s->dst_axis, n, me);
    tsri_walk w = tsri_walk_of(s->shape, &whole, &dst);
    switch (mv->coll->kind) {
    case TSRI_COLL_REDUCE:
        return me == mv->coll->root ? reduce_walk(mv, i, &w) : TSR_OK;
    case TSRI_COLL_ALL_REDUCE:
    case TSRI_COLL_REDUCE_SCATTER:
        return reduce_walk(mv, i, &w);
    case TSRI_COLL_BROADCAST:
        return copy_from(mv, i, mv->coll->root, src_of(mv, mv->coll->root, i), &w);
    default:
        break;
    }
    /* Gathers. Starting behind oneself keeps the ranks from reading all the same memory at once. */
    for (int k = 0; k < n; k++) {
        int m = (me + k) % n;
        tsri_box src = tsri_box_piece(s->shape, s->src_axis, n, m);
        w = tsri_walk_of(s->shape, &src, &dst);
        TSRI_TRY(copy_from(mv, i, m, src_of(mv, m, i), &w));
    }
    return TSR_OK;
}

/* Member m's flat part of a segment, in a two-phase all-reduce. */
static tsri_walk part_of(const mover *mv, int i, int m)
{
    int64_t offset, length;
    tsr_balanced_split(tsr_dims_count(mv->coll->seg[mv->first + i].shape), mv->g->pub.nranks, m,
                       &offset, &length);
    return tsri_walk_flat(offset, length);
}

static tsr_status move_two_phase(const mover *mv, const tsri_call_entry *call)
{
    tsri_local_group *g = mv->g;
    int n = g->pub.nranks, me = g->pub.index;
    for (int i = 0; i < call->nseg; i++) {
        tsri_walk w = part_of(mv, i, me);
        TSRI_TRY(reduce_walk(mv, i, &w));
    }
    TSRI_TRY(tsri_local_mark(g, mv->coll, TSRI_WAIT_PHASE1, mv->seq));
    tsri_local_advance(g->mine, TSRI_WAIT_PHASE1, mv->seq);
    for (int k = 1; k < n; k++) {
        int m = (me + k) % n;
        TSRI_TRY(tsri_local_await(g, m, TSRI_WAIT_PHASE1, mv->seq, call));
        TSRI_TRY(tsri_local_follow(g, mv->coll, m, TSRI_WAIT_PHASE1, mv->seq));
        for (int i = 0; i < call->nseg; i++) {
            tsri_walk w = part_of(mv, i, m);
            TSRI_TRY(copy_from(mv, i, m, side_of(mv, m, i, true), &w));
        }
    }
    return TSR_OK;
}

/* All have come to the call, and agree. */
static tsr_status move_record(const mover *mv)
{
    tsri_local_group *g = mv->g;
    const tsri_call_entry *call = tsri_call_of(g->mine, mv->seq);
    TSRI_TRY(tsri_local_follow_all(g, mv->coll, TSRI_WAIT_PUBLISHED, mv->seq));
    if (mv->coll->kind == TSRI_COLL_ALL_REDUCE && mv->coll->algo == TSRI_ALGO_TWO_PHASE)
        return move_two_phase(mv, call);
    for (int i = 0; i < call->nseg; i++)
        TSRI_TRY(move_segment(mv, i));
    tsri_local_advance(g->mine, TSRI_WAIT_PHASE1, mv->seq);
    return TSR_OK;
}

tsr_status tsri_local_move(tsri_local_group *g, const tsri_coll *coll, uint64_t seq, int first)
{
    const mover mv = {g, coll, seq, first};
    if (coll->is_word) {
        TSRI_TRY(tsri_call_meet(g, seq));
        tsri_call_done(g, seq);
        return TSR_OK;
    }
    if (coll->kind == TSRI_COLL_SEND_RECV)
        return tsri_send_move(g, coll, seq, first, tsri_call_of(g->mine, seq)->nseg);
    TSRI_TRY(tsri_call_meet(g, seq));
    tsr_status status = move_record(&mv), marked = tsri_local_mark(g, coll, TSRI_WAIT_DONE, seq);
    if (status == TSR_OK)
        status = marked;
    if (status == TSR_OK)
        tsri_call_done(g, seq);
    return status;
}

tsr_status tsri_local_move_alone(tsri_local_group *g, const tsri_coll *coll)
{
    for (int i = 0; i < coll->nseg; i++) {
        const tsri_segment *s = &coll->seg[i];
        if (coll->kind == TSRI_COLL_SEND_RECV) {
            TSRI_TRY(tsri_send_own(g, coll, i));
            continue;
        }
        const char *src = s->src;
        tsri_walk w = tsri_walk_flat(0, tsr_dims_count(s->shape));
        TSRI_TRY(g->local->mover->walk(g, coll, &w, s->dtype, 1, &src, s->dst));
    }
    return TSR_OK;
}
