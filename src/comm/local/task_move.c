/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that move parts from some members to others, and perhaps reduce them on arrival. */
#include "src/comm/local/task.h"

#include <string.h>

/* A movement: reader j takes gives(i, j) elements of member i's source, W at each step. */
typedef struct moves {
    bool shared; /* a member shows all readers the same: one place a step; else one for each */
    bool reduces;
    int64_t most; /* elements of the longest part */
    int64_t window;
    const int64_t *counts;                /* all_to_all's: see collective/run.c */
    int64_t src_at[TSRI_ARENA_MAX_RANKS]; /* by reader, in this rank's source */
    int64_t dst_at[TSRI_ARENA_MAX_RANKS]; /* by member, in dst */
} moves;

static int64_t gives(const tsri_flow *f, const moves *mv, int from, int to)
{
    const tsri_task *t = f->task;
    switch (t->kind) {
    case TSRI_TASK_BROADCAST:
    case TSRI_TASK_SCATTER:
        return from == t->root ? t->count : 0;
    case TSRI_TASK_GATHER:
    case TSRI_TASK_REDUCE:
        return to == t->root ? t->count : 0;
    case TSRI_TASK_ALL_TO_ALL:
        return mv->counts[2 * from * f->g->pub.nranks + to];
    default:
        return t->count;
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The elements of step `step` of a part of `count`. */
static int64_t in_step(const moves *mv, int64_t count, int64_t step)
{
    int64_t left = count - step * mv->window;
    return left < 0 ? 0 : least(left, mv->window);
}

static void plan(const tsri_flow *f, moves *mv, const int64_t *counts)
{
    const tsri_task *t = f->task;
    int n = f->g->pub.nranks, me = f->g->pub.index;
    bool rows = t->kind == TSRI_TASK_SCATTER || t->kind == TSRI_TASK_REDUCE_SCATTER;
    bool uneven = t->kind == TSRI_TASK_ALL_TO_ALL;
    bool stacks = t->kind == TSRI_TASK_ALL_GATHER || t->kind == TSRI_TASK_GATHER;
    int64_t src_at = 0, dst_at = 0;
    mv->shared = !rows && !uneven;
    mv->reduces = t->kind == TSRI_TASK_REDUCE || t->kind == TSRI_TASK_REDUCE_SCATTER;
    mv->counts = counts;
    mv->most = t->count;
    for (int i = 0; uneven && i < n * n; i++)
        mv->most =
            mv->most > counts[2 * (i / n) * n + i % n] ? mv->most : counts[2 * (i / n) * n + i % n];
    for (int m = 0; m < n; m++) {
        mv->src_at[m] = src_at;
        mv->dst_at[m] = dst_at;
        src_at += rows || uneven ? gives(f, mv, me, m) : 0;
        dst_at += stacks || uneven ? gives(f, mv, m, me) : 0;
    }
    int64_t readers = mv->shared ? 1 : n - 1, fits = (int64_t)(f->slot / f->size) / readers;
    mv->window = fits > 0 ? fits : 1;
}

/* Shows this rank's windows of a step. */
static tsr_status show(tsri_flow *f, const moves *mv, int64_t step)
{
    tsri_local_group *g = f->g;
    int n = g->pub.nranks, me = g->pub.index, places = mv->shared ? 1 : n;
    uint64_t at[TSRI_ARENA_MAX_RANKS], seq;
    char *slot = NULL;
    for (int p = 0; p < places; p++) {
        int64_t length = 0, from = mv->src_at[p] + step * mv->window;
        for (int m = mv->shared ? 0 : p; m < (mv->shared ? n : p + 1); m++)
            if (m != me && in_step(mv, gives(f, mv, me, m), step) > length)
                length = in_step(mv, gives(f, mv, me, m), step);
        const char *src = f->src + (size_t)from * f->size;
        at[p] = TSRI_NOWHERE;
        if (length && f->direct) {
            at[p] = tsri_flow_offset(f, src);
        } else if (length) {
            if (!slot)
                TSRI_TRY(tsri_flow_slot(f, g->started + 1, &slot));
            tsri_copy_stream(slot, src, (size_t)length * f->size);
            at[p] = tsri_flow_offset(f, slot);
            slot += (size_t)length * f->size;
        }
    }
    tsri_stream_end();
    tsri_seg_place *place;
    TSRI_TRY(tsri_flow_enter(f, places, &seq, &place));
    for (int p = 0; p < places; p++)
        place[p].src = at[p];
    return tsri_flow_show(f, seq);
}

static void count_read(tsri_flow *f, int64_t elements)
{
    int kind = f->call.kind < TSRI_COLL_KIND_COUNT_ ? f->call.kind : TSRI_COLL_SEND_RECV;
    f->g->stats.bytes_read[kind] += (uint64_t)elements * f->size;
}

/* The memory that member m shows this rank. */
static const char *shown(const tsri_flow *f, const moves *mv, int m, uint64_t seq)
{
    int n = f->g->pub.nranks, me = f->g->pub.index;
    return tsri_flow_peer(f, m, seq, mv->shared ? 1 : n, mv->shared ? 0 : me);
}

static tsr_status take_reduced(tsri_flow *f, const moves *mv, int64_t step, uint64_t seq)
{
    tsri_local_group *g = f->g;
    const tsri_task *t = f->task;
    int n = g->pub.nranks, me = g->pub.index;
    int64_t length = in_step(mv, gives(f, mv, me, me), step), at = step * mv->window;
    if (!length)
        return TSR_OK;
    TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_PUBLISHED, seq, &f->call));
    for (int m = 0; m < n; m++)
        g->src[m] =
            m == me ? f->src + (size_t)(mv->src_at[me] + at) * f->size : shown(f, mv, m, seq);
    tsri_reduce_of(t->dtype, t->op)(t->dst + (size_t)at * f->size, g->src, 0, n, length);
    count_read(f, length * (n - 1));
    return TSR_OK;
}

/* Starting behind oneself keeps the ranks from reading all the same memory at once. */
static tsr_status take_copies(tsri_flow *f, const moves *mv, int64_t step, uint64_t seq)
{
    tsri_local_group *g = f->g;
    const tsri_task *t = f->task;
    int n = g->pub.nranks, me = g->pub.index;
    for (int k = 0; k < n; k++) {
        int m = (me + k) % n;
        int64_t length = in_step(mv, gives(f, mv, m, me), step), at = step * mv->window;
        if (!length)
            continue;
        char *to = (t->list ? (char *)t->list[m] : t->dst + (size_t)mv->dst_at[m] * f->size) +
                   (size_t)at * f->size;
        const char *from = f->src + (size_t)(mv->src_at[me] + at) * f->size;
        if (m != me) {
            TSRI_TRY(tsri_local_await(g, m, TSRI_WAIT_PUBLISHED, seq, &f->call));
            from = shown(f, mv, m, seq);
            count_read(f, length);
        }
        if (to != from)
            tsri_copy(to, from, (size_t)length * f->size);
    }
    return TSR_OK;
}

static tsr_status move_all(tsri_flow *f, const int64_t *counts)
{
    moves mv;
    plan(f, &mv, counts);
    uint64_t first = f->g->started + 1;
    int64_t steps = mv.most ? (mv.most + mv.window - 1) / mv.window : 1;
    TSRI_TRY(show(f, &mv, 0));
    for (int64_t i = 0; i < steps; i++) {
        uint64_t seq = first + (uint64_t)i;
        if (i + 1 < steps)
            TSRI_TRY(show(f, &mv, i + 1));
        if (mv.reduces)
            TSRI_TRY(take_reduced(f, &mv, i, seq));
        else
            TSRI_TRY(take_copies(f, &mv, i, seq));
        tsri_call_done(f->g, seq);
    }
    return tsri_flow_end(f);
}

tsr_status tsri_flow_move(tsri_flow *f)
{
    return move_all(f, NULL);
}

/* Everybody's counts first. */
tsr_status tsri_flow_all_to_all(tsri_flow *f)
{
    tsri_local_group *g = f->g;
    const tsri_task *t = f->task;
    int n = g->pub.nranks;
    size_t half = (size_t)n * sizeof(int64_t);
    int64_t *counts = (int64_t *)(void *)t->scratch[1].p;
    uint64_t seq;
    char *slot;
    tsri_seg_place *place;
    TSRI_TRY(tsri_flow_slot(f, g->started + 1, &slot));
    memcpy(slot, t->src_counts, half);
    memcpy(slot + half, t->dst_counts, half);
    TSRI_TRY(tsri_flow_enter(f, 1, &seq, &place));
    place->src = tsri_flow_offset(f, slot);
    TSRI_TRY(tsri_flow_show(f, seq));
    for (int m = 0; m < n; m++)
        memcpy(counts + 2 * m * n, m == g->pub.index ? slot : tsri_flow_peer(f, m, seq, 1, 0),
               2 * half);
    tsri_call_done(g, seq);
    TSRI_TRY(tsri_all_to_all_check(g->pub.nranks, g->pub.ranks, t, counts));
    return move_all(f, counts);
}
