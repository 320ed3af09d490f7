/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of SEND_RECV. A member knows what it reads, not who reads it: so each describes its pulls
 * to all others, in words, and finds in theirs what it has to send. For any two members, both go
 * through the reader's pulls in the same order, so that sends meet their receives.
 */
#include "src/comm/move/move.h"
#include "src/comm/schedule/build.h"

#include <string.h>

/* A pull as it goes over the wire: axes by dst's steps, outermost first, axes of one dropped,
 * neighbours joined where both sides allow it. So most boxes are one run where they arrive. */
typedef struct wire {
    int ndim, nsrc;
    int64_t length[TSR_MAX_NDIM], src_step[TSR_MAX_NDIM], dst_step[TSR_MAX_NDIM];
    int64_t src_at, dst_at, count;
    const int *own_src;       /* the members read: of this rank's pulls */
    const int64_t *their_src; /* of those that others described */
} wire;

static int source_of(const wire *w, int k)
{
    return w->own_src ? w->own_src[k] : (int)w->their_src[k];
}

/* False if there is nothing to pull. */
static bool wire_of(const tsri_pull *p, wire *w)
{
    const tsri_walk walk = tsri_walk_pull(p);
    *w = (wire){.src_at = walk.src_at,
                .dst_at = walk.dst_at,
                .count = walk.rows * walk.run,
                .nsrc = p->nsrc,
                .own_src = p->src};
    w->ndim = tsri_walk_axes(&walk, w->length, w->src_step, w->dst_step);
    return w->count > 0;
}

static void row_steps(const wire *w, int64_t *step)
{
    int64_t next = 1;
    for (int a = w->ndim - 1; a >= 0; a--) {
        step[a] = next;
        next *= w->length[a];
    }
}

/* Whether a side is one run. */
static bool is_run(const wire *w, const int64_t *step)
{
    int64_t row[TSR_MAX_NDIM];
    row_steps(w, row);
    return !memcmp(row, step, (size_t)w->ndim * sizeof *row);
}

/* --- words ------------------------------------------------------------------------------------ */
/*
 * Writes for each segment whether its src is given and the number of pulls; for each pull its axes
 * and sources, where it begins, then lengths, src's steps, sources.
 */
typedef struct writer {
    int64_t *words, room, count;
} writer;

static void put(writer *out, int64_t word)
{
    if (out->count < out->room)
        out->words[out->count] = word;
    out->count++;
}

static void put_pull(writer *out, const wire *w)
{
    put(out, w->ndim);
    put(out, w->nsrc);
    put(out, w->src_at);
    for (int a = 0; a < w->ndim; a++)
        put(out, w->length[a]);
    for (int a = 0; a < w->ndim; a++)
        put(out, w->src_step[a]);
    for (int k = 0; k < w->nsrc; k++)
        put(out, w->own_src[k]);
}

static bool is_told(const tsri_pull *p, int of)
{
    return !tsri_pull_is_empty(p) && (of < 0 || tsri_pull_reads(p, of));
}

int64_t tsri_nccl_describe(const tsri_coll *coll, int of, int64_t room, int64_t *words)
{
    writer out = {words, room, 0};
    wire w;
    for (int i = 0; i < coll->nseg; i++) {
        const tsri_segment *s = &coll->seg[i];
        int count = 0;
        for (int k = 0; k < s->npulls; k++)
            count += is_told(&s->pulls[k], of);
        put(&out, s->src != NULL);
        put(&out, count);
        for (int k = 0; k < s->npulls; k++)
            if (is_told(&s->pulls[k], of) && wire_of(&s->pulls[k], &w))
                put_pull(&out, &w);
    }
    return out.count;
}

/* Returns where the next pull begins. */
static const int64_t *take_pull(const int64_t *at, wire *w)
{
    *w = (wire){.ndim = (int)at[0], .nsrc = (int)at[1], .src_at = at[2], .count = 1};
    at += 3;
    for (int a = 0; a < w->ndim; a++) {
        w->length[a] = at[a];
        w->src_step[a] = at[w->ndim + a];
        w->count *= at[a];
    }
    w->their_src = at + 2 * w->ndim;
    return w->their_src + w->nsrc;
}

/* Where each member's words on each segment begin: starts[m * nseg + i]. */
static const int64_t **find_segments(const tsri_nccl_build *b)
{
    size_t nseg = (size_t)b->coll->nseg;
    const int64_t **starts = tsri_mem_alloc(b->mem, (size_t)b->n * nseg * sizeof *starts);
    for (int m = 0; starts && m < b->n; m++) {
        const int64_t *at = b->words->words + m * b->words->stride;
        wire w;
        for (size_t i = 0; i < nseg; i++) {
            starts[(size_t)m * nseg + i] = at;
            int64_t npulls = at[1];
            at += 2;
            while (npulls-- > 0)
                at = take_pull(at, &w);
        }
    }
    return starts;
}

/* Nobody may read what is not given. All members look at all pulls, so all find the same. */
static tsr_status check_given(const tsri_nccl_build *b, const int64_t **starts)
{
    int nseg = b->coll->nseg;
    for (int m = 0; m < b->n; m++)
        for (int i = 0; i < nseg; i++) {
            const int64_t *at = starts[m * nseg + i];
            wire w;
            int64_t npulls = at[1];
            for (at += 2; npulls > 0; npulls--) {
                at = take_pull(at, &w);
                for (int k = 0; k < w.nsrc; k++)
                    if (!*starts[source_of(&w, k) * nseg + i])
                        return tsri_fail(TSR_ERR_MISMATCH,
                                         "ranks disagree: in send_recv '%s', segment %d, rank %d "
                                         "reads from rank %d, which gives nothing (its src is "
                                         "NULL)",
                                         b->coll->what ? b->coll->what : "", i, b->ranks[m],
                                         b->ranks[source_of(&w, k)]);
            }
        }
    return TSR_OK;
}

/* --- giving ----------------------------------------------------------------------------------- */
/* A box of a segment that is packed already: several members may want the same box. */
typedef struct packed {
    wire what;
    tsri_nccl_place where;
} packed;

typedef struct packer {
    packed *boxes;
    int count, capacity;
} packer;

static bool is_same_box(const wire *a, const wire *b)
{
    size_t bytes = (size_t)a->ndim * sizeof *a->length;
    return a->ndim == b->ndim && a->src_at == b->src_at && !memcmp(a->length, b->length, bytes) &&
           !memcmp(a->src_step, b->src_step, bytes);
}

/* Where the box of this rank's src of segment i is one run: there, or packed. */
static tsri_nccl_place as_run(tsri_nccl_build *b, packer *p, int i, const wire *w)
{
    const tsri_segment *s = &b->coll->seg[i];
    int64_t size = (int64_t)tsr_dtype_size(s->dtype);
    tsri_nccl_place src = tsri_nccl_src(i);
    if (is_run(w, w->src_step))
        return tsri_nccl_shift(src, w->src_at * size);
    for (int k = 0; k < p->count; k++)
        if (is_same_box(&p->boxes[k].what, w))
            return p->boxes[k].where;
    if (!tsri_nccl_grow(b, (void **)&p->boxes, p->count, &p->capacity, sizeof *p->boxes))
        return src;
    tsri_nccl_place where = tsri_nccl_stage(b, w->count * size);
    tsri_move move = {.dtype = s->dtype, .ndim = w->ndim, .src_at = w->src_at, .nsrc = 1};
    memcpy(move.length, w->length, sizeof move.length);
    memcpy(move.src_step, w->src_step, sizeof move.src_step);
    row_steps(w, move.dst_step);
    tsri_nccl_push_move(b, TSRI_NCCL_PACK, move, &src, where);
    p->boxes[p->count++] = (packed){*w, where};
    return where;
}

/* Sends what the other members read of this rank's src of segment i. */
static void give(tsri_nccl_build *b, packer *p, int i, const int64_t **starts)
{
    const tsri_segment *s = &b->coll->seg[i];
    for (int k = 1; k < b->n; k++) {
        int m = (b->me + k) % b->n;
        const int64_t *at = starts[m * b->coll->nseg + i];
        wire w;
        int64_t npulls = at[1];
        for (at += 2; npulls > 0; npulls--) {
            at = take_pull(at, &w);
            for (int j = 0; j < w.nsrc; j++)
                if (source_of(&w, j) == b->me)
                    tsri_nccl_push_send(b, TSRI_NCCL_TALK, s->dtype, w.count, as_run(b, p, i, &w),
                                        m);
        }
    }
}

/* --- getting ---------------------------------------------------------------------------------- */
/* Whether pull k of the segment may arrive in place: pulls that write the same elements must do so
 * in their order. */
static bool stands_alone(const tsri_segment *s, int k)
{
    const tsri_pull *p = &s->pulls[k];
    int64_t low, high, their_low, their_high;
    tsri_pull_extent(p, p->dst_at, p->dst_step, &low, &high);
    for (int j = 0; j < s->npulls; j++) {
        const tsri_pull *other = &s->pulls[j];
        if (j == k || tsri_pull_is_empty(other))
            continue;
        tsri_pull_extent(other, other->dst_at, other->dst_step, &their_low, &their_high);
        if (low <= their_high && their_low <= high)
            return false;
    }
    return true;
}

static tsr_status get_pull(tsri_nccl_build *b, packer *p, int i, int k)
{
    const tsri_segment *s = &b->coll->seg[i];
    int64_t size = (int64_t)tsr_dtype_size(s->dtype);
    tsri_nccl_place dst = tsri_nccl_dst(i), sources[TSRI_PLAN_MAX_PARTS];
    wire w;
    if (!wire_of(&s->pulls[k], &w))
        return TSR_OK;
    if (w.nsrc > (b->direct ? TSRI_PLAN_MAX_PARTS : TSRI_NCCL_MAX_PARTS))
        return tsri_fail_at(b->coll->loc, TSR_ERR_UNSUPPORTED,
                            "send_recv '%s', segment %d: pull %d reduces %d parts; at most %d",
                            b->coll->what ? b->coll->what : "", i, k, w.nsrc, TSRI_NCCL_MAX_PARTS);
    bool own = w.nsrc == 1 && w.own_src[0] == b->me;
    if (w.nsrc == 1 && !own && is_run(&w, w.dst_step) && stands_alone(s, k)) {
        tsri_nccl_push_recv(b, TSRI_NCCL_TALK, s->dtype, w.count,
                            tsri_nccl_shift(dst, w.dst_at * size), w.own_src[0]);
        return TSR_OK;
    }
    for (int j = 0; j < w.nsrc; j++) {
        if (own) {
            sources[j] = tsri_nccl_src(i);
        } else if (w.own_src[j] == b->me) {
            sources[j] = as_run(b, p, i, &w);
        } else {
            sources[j] = tsri_nccl_stage(b, w.count * size);
            tsri_nccl_push_recv(b, TSRI_NCCL_TALK, s->dtype, w.count, sources[j], w.own_src[j]);
        }
    }
    tsri_move move = {.dtype = s->dtype,
                      .op = b->coll->op,
                      .ndim = w.ndim,
                      .src_at = own ? w.src_at : 0,
                      .dst_at = w.dst_at,
                      .nsrc = w.nsrc};
    memcpy(move.length, w.length, sizeof move.length);
    memcpy(move.dst_step, w.dst_step, sizeof move.dst_step);
    memcpy(move.src_step, w.src_step, sizeof move.src_step);
    if (!own)
        row_steps(&w, move.src_step);
    tsri_nccl_push_move(b, TSRI_NCCL_UNPACK, move, sources, dst);
    return TSR_OK;
}

static tsr_status build_segment(tsri_nccl_build *b, int i, const int64_t **starts, packer *p)
{
    const tsri_segment *s = &b->coll->seg[i];
    p->count = 0;
    const tsri_nccl_step fill = {.kind = TSRI_NCCL_FILL,
                                 .dtype = s->dtype,
                                 .op = b->coll->op,
                                 .count = s->dst_count,
                                 .dst = tsri_nccl_dst(i)};
    if (s->fill && s->dst_count)
        tsri_nccl_push(b, TSRI_NCCL_PACK, &fill);
    if (starts)
        give(b, p, i, starts);
    for (int k = 0; k < s->npulls; k++)
        TSRI_TRY(get_pull(b, p, i, k));
    return TSR_OK;
}

tsr_status tsri_nccl_build_pulls(tsri_nccl_build *b)
{
    const int64_t **starts = NULL;
    packer p = {0};
    tsr_status status = TSR_OK;
    if (b->n > 1) {
        starts = find_segments(b);
        TSRI_NEED(starts);
        status = check_given(b, starts);
    }
    for (int i = 0; i < b->coll->nseg && status == TSR_OK; i++)
        status = build_segment(b, i, starts, &p);
    tsri_mem_free(p.boxes);
    tsri_mem_free(starts);
    return status;
}
