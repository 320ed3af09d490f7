/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SEND_RECV: any boxes between any members. A rank waits for those alone that it reads from, box by
 * box, so stages of a pipeline run apart; who reads nothing is done as soon as it has published.
 */
#include "src/comm/local/local.h"

#include <stdio.h>

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
    tsri_call_entry *record = tsri_call_of(member, sd->seq);
    uint64_t offset = tsri_call_places(member, record, record->nseg)[i - sd->first].src;
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
    int64_t low, high, peers = 0;
    tsri_pull_extent(p, p->src_at, p->src_step, &low, &high);
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
        if (!tsri_pull_is_empty(&s->pulls[k]))
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
