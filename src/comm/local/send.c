/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SEND_RECV: any boxes between any members. A rank waits for those alone that it reads from, box by
 * box, so stages of a pipeline run apart; who reads nothing is done as soon as it has published.
 */
#include "src/comm/local/local.h"

#include <stdio.h>

/* The least and the greatest element of one side of a pull, from where its buffer starts. */
typedef struct extent {
    int64_t low, high;
} extent;

static extent extent_of(const tsri_pull *p, int64_t at, const int64_t *step)
{
    extent e = {at, at};
    for (int a = 0; a < p->ndim; a++) {
        int64_t reach = (p->length[a] - 1) * step[a];
        *(reach < 0 ? &e.low : &e.high) += reach;
    }
    return e;
}

static bool is_empty(const tsri_pull *p)
{
    for (int a = 0; a < p->ndim; a++)
        if (p->length[a] == 0)
            return true;
    return false;
}

static bool reads_own(const tsri_local_group *g, const tsri_pull *p)
{
    for (int k = 0; k < p->nsrc; k++)
        if (p->src[k] == g->pub.index)
            return true;
    return false;
}

/* --- what is asked for ------------------------------------------------------------------------ */

static tsr_status check_sources(const tsri_local_group *g, const tsri_coll *c, int i, int k)
{
    const tsri_pull *p = &c->seg[i].pulls[k];
    if (p->nsrc < 1 || p->nsrc > g->pub.nranks || !p->src)
        return tsri_coll_invalid(c, i, "pull %d has %d sources in a group of %d ranks", k, p->nsrc,
                                 g->pub.nranks);
    for (int s = 0; s < p->nsrc; s++)
        if (p->src[s] < 0 || p->src[s] >= g->pub.nranks)
            return tsri_coll_invalid(c, i, "pull %d reads member %d of a group of %d ranks", k,
                                     p->src[s], g->pub.nranks);
    return TSR_OK;
}

static tsr_status check_pull(const tsri_local_group *g, const tsri_coll *c, int i, int k)
{
    const tsri_segment *s = &c->seg[i];
    const tsri_pull *p = &s->pulls[k];
    TSRI_TRY(check_sources(g, c, i, k));
    if (p->ndim < 0 || p->ndim > TSR_MAX_NDIM)
        return tsri_coll_invalid(c, i, "pull %d has %d axes; at most %d", k, p->ndim, TSR_MAX_NDIM);
    for (int a = 0; a < p->ndim; a++)
        if (p->length[a] < 0 || (p->length[a] > 1 && p->dst_step[a] == 0))
            return tsri_coll_invalid(c, i, "axis %d of pull %d has length %lld and dst_step %lld",
                                     a, k, (long long)p->length[a], (long long)p->dst_step[a]);
    if (is_empty(p))
        return TSR_OK;
    extent src = extent_of(p, p->src_at, p->src_step), dst = extent_of(p, p->dst_at, p->dst_step);
    if (dst.low < 0 || dst.high >= s->dst_count)
        return tsri_coll_invalid(c, i,
                                 "pull %d writes elements %lld to %lld of dst, which has %lld", k,
                                 (long long)dst.low, (long long)dst.high, (long long)s->dst_count);
    if (src.low < 0)
        return tsri_coll_invalid(c, i, "pull %d reads element %lld", k, (long long)src.low);
    if (!reads_own(g, p))
        return TSR_OK;
    if (!s->src)
        return tsri_coll_invalid(c, i, "pull %d reads this rank's src, which is NULL", k);
    size_t size = tsr_dtype_size(s->dtype);
    uintptr_t from = (uintptr_t)s->src, to = (uintptr_t)s->dst;
    if (from < to + (size_t)s->dst_count * size && to < from + (size_t)(src.high + 1) * size)
        return tsri_coll_invalid(c, i, "src and dst overlap");
    return TSR_OK;
}

tsr_status tsri_send_place(const tsri_local_group *g, const tsri_coll *c, int i,
                           tsri_seg_place *out)
{
    const tsri_segment *s = &c->seg[i];
    *out = (tsri_seg_place){TSRI_NOWHERE, TSRI_NOWHERE};
    if (s->npulls < 0 || (s->npulls > 0 && !s->pulls) || s->dst_count < 0)
        return tsri_coll_invalid(c, i, "%d pulls at %p, dst of %lld elements", s->npulls,
                                 (const void *)s->pulls, (long long)s->dst_count);
    if (s->dst_count && (s->npulls || s->fill) && !s->dst)
        return tsri_coll_invalid(c, i, "dst is NULL");
    for (int k = 0; k < s->npulls; k++)
        TSRI_TRY(check_pull(g, c, i, k));
    if (g->pub.nranks == 1 || !s->src)
        return TSR_OK;
    return tsri_local_place(g, s->src, 0, c, i, "src", &out->src);
}

bool tsri_send_only_gives(const tsri_local_group *g, const tsri_coll *c, int first, int nseg)
{
    if (c->kind != TSRI_COLL_SEND_RECV)
        return false;
    for (int i = first; i < first + nseg; i++)
        for (int k = 0; k < c->seg[i].npulls; k++) {
            const tsri_pull *p = &c->seg[i].pulls[k];
            if (!is_empty(p) && (p->nsrc > 1 || p->src[0] != g->pub.index))
                return false;
        }
    return true;
}

/* --- what is done ----------------------------------------------------------------------------- */

/* A call under way; `met` has a bit per member whose record is known to agree. */
typedef struct sender {
    tsri_local_group *g;
    const tsri_coll *coll;
    uint64_t seq;
    int first;
    uint64_t met[TSRI_ARENA_MAX_RANKS / 64];
} sender;

/* Where member m's src of segment i is, of which the pull reads up to element `high`. */
static tsr_status find_source(sender *sd, int i, int m, int64_t high, const char **out_src)
{
    tsri_local_group *g = sd->g;
    const tsri_segment *s = &sd->coll->seg[i];
    if (m == g->pub.index) {
        *out_src = s->src;
        return TSR_OK;
    }
    if (!(sd->met[m / 64] >> m % 64 & 1)) {
        TSRI_TRY(tsri_call_meet_one(g, sd->seq, m));
        TSRI_TRY(tsri_local_follow(g, sd->coll, m, TSRI_WAIT_PUBLISHED, sd->seq));
        sd->met[m / 64] |= UINT64_C(1) << m % 64;
    }
    tsri_member *member = &g->members[m];
    tsri_call *record = tsri_call_of(member, sd->seq);
    uint64_t offset = tsri_call_places(member, record)[i - sd->first].src;
    uint64_t room = g->peer[m].bytes;
    if (offset < room && (uint64_t)high < (room - offset) / tsr_dtype_size(s->dtype)) {
        *out_src = g->peer[m].base + offset;
        return TSR_OK;
    }
    char call[192], text[512];
    snprintf(text, sizeof text, "ranks disagree: in %s, segment %d, rank %d reads from rank %d, %s",
             tsri_call_text(record, call, sizeof call), i, g->pub.ranks[g->pub.index],
             g->pub.ranks[m],
             offset == TSRI_NOWHERE ? "which gives nothing (its src is NULL)"
                                    : "beyond the end of its arena");
    return tsri_call_fault(g, sd->seq, text);
}

static tsr_status do_pull(sender *sd, int i, const tsri_pull *p)
{
    tsri_local_group *g = sd->g;
    const tsri_segment *s = &sd->coll->seg[i];
    int64_t high = extent_of(p, p->src_at, p->src_step).high, peers = 0;
    for (int k = 0; k < p->nsrc; k++) {
        TSRI_TRY(find_source(sd, i, p->src[k], high, &g->src[k]));
        peers += p->src[k] != g->pub.index;
    }
    tsri_walk w = tsri_walk_pull(p);
    TSRI_TRY(g->local->mover->walk(g, sd->coll, &w, s->dtype, p->nsrc, g->src, s->dst));
    g->stats.bytes_read[TSRI_COLL_SEND_RECV] +=
        (uint64_t)(w.rows * w.run * peers) * tsr_dtype_size(s->dtype);
    return TSR_OK;
}

static tsr_status do_segment(sender *sd, int i)
{
    const tsri_segment *s = &sd->coll->seg[i];
    tsri_local_group *g = sd->g;
    if (s->fill)
        TSRI_TRY(g->local->mover->fill(g, sd->coll, s));
    for (int k = 0; k < s->npulls; k++)
        if (!is_empty(&s->pulls[k]))
            TSRI_TRY(do_pull(sd, i, &s->pulls[k]));
    return TSR_OK;
}

tsr_status tsri_send_move(tsri_local_group *g, const tsri_coll *c, uint64_t seq, int first,
                          int nseg)
{
    sender sd = {.g = g, .coll = c, .seq = seq, .first = first};
    tsr_status status = TSR_OK;
    for (int i = first; i < first + nseg && status == TSR_OK; i++)
        status = do_segment(&sd, i);
    /* A call that reads nothing of peers may be done already, and nobody waits for more. */
    if (!(g->gives >> seq % TSRI_CALL_RING & 1)) {
        tsr_status marked = tsri_local_mark(g, c, TSRI_WAIT_DONE, seq);
        status = status != TSR_OK ? status : marked;
    }
    /* A member that disagrees is told; one that waits in vain goes on waiting for those that wait
     * for it. */
    if (status != TSR_OK && status != TSR_ERR_MISMATCH)
        return status;
    if (seq > g->done)
        tsri_call_compare(g, seq);
    tsri_call_done(g, seq);
    return status != TSR_OK ? status : tsri_call_check_fault(g, seq);
}

tsr_status tsri_send_own(tsri_local_group *g, const tsri_coll *c, int i)
{
    sender sd = {.g = g, .coll = c};
    return do_segment(&sd, i);
}
