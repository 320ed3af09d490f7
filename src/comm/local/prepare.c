/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's words to its peers about the segments of a call; said once for all, of a call that is
 * made again and again. */
#include "src/comm/local/local.h"

#include <string.h>

/* The offset of [p, p + bytes) in this rank's region. */
static tsr_status place_side(const tsri_local_group *g, const void *p, size_t bytes,
                             const tsri_coll *c, int seg, const char *side, uint64_t *out_offset)
{
    if (!tsri_region_has(g->local->region, p, bytes))
        return tsri_coll_invalid(c, seg,
                                 "%s %p (%zu bytes) lies outside of this rank's arena, where "
                                 "peers can't read it",
                                 side, p, bytes);
    *out_offset = (uint64_t)((const char *)p - g->local->region->base);
    return TSR_OK;
}

tsr_status tsri_local_place_segment(const tsri_local_group *g, const tsri_coll *c, int i,
                                    tsri_seg_place *out)
{
    const tsri_segment *s = &c->seg[i];
    int n = g->pub.nranks, me = g->pub.index;
    size_t src_bytes, dst_bytes;
    *out = (tsri_seg_place){TSRI_NOWHERE, TSRI_NOWHERE};
    TSRI_TRY(tsri_segment_check(c, i, n, me, false));
    if (n == 1)
        return TSR_OK;
    if (c->kind == TSRI_COLL_SEND_RECV)
        return s->src ? place_side(g, s->src, 0, c, i, "src", &out->src) : TSR_OK;
    tsri_segment_sides(c, s, n, me, &src_bytes, &dst_bytes);
    bool src_read = c->kind != TSRI_COLL_REDUCE || me != c->root;
    bool dst_read = c->kind == TSRI_COLL_ALL_REDUCE && c->algo == TSRI_ALGO_TWO_PHASE;
    if (src_bytes && src_read)
        TSRI_TRY(place_side(g, s->src, src_bytes, c, i, "src", &out->src));
    if (dst_bytes && dst_read)
        TSRI_TRY(place_side(g, s->dst, dst_bytes, c, i, "dst", &out->dst));
    return TSR_OK;
}

uint64_t tsri_local_records_of(const tsri_coll *coll)
{
    int n = (coll->nseg + TSRI_CALL_MAX_SEG - 1) / TSRI_CALL_MAX_SEG;
    return n ? (uint64_t)n : 1;
}

static tsr_status prepare_record(const tsri_local_group *g, const tsri_coll *coll, int first,
                                 tsri_prepared_record *out)
{
    int nseg = coll->nseg - first < TSRI_CALL_MAX_SEG ? coll->nseg - first : TSRI_CALL_MAX_SEG;
    tsri_call_fill(&out->call, coll, first, nseg);
    for (int i = 0; i < nseg; i++)
        TSRI_TRY(tsri_local_place_segment(g, coll, first + i, &out->place[i]));
    out->gives = tsri_coll_only_gives(coll, first, nseg, g->pub.index);
    return TSR_OK;
}

/* Members need not meet for this: they compare each call that they make. */
tsr_status tsri_local_prepare(tsri_group *pub, tsri_coll *coll)
{
    const tsri_local_group *g = pub->priv;
    TSRI_TRY(tsri_coll_check(coll, pub->nranks));
    size_t n = (size_t)tsri_local_records_of(coll), nseg = (size_t)coll->nseg;
    tsri_local_prepared *p =
        tsri_mem_alloc(&g->local->pub.world->mem,
                       sizeof *p + n * sizeof *p->record + nseg * sizeof *p->record->place);
    TSRI_NEED(p);
    tsri_seg_place *place = (tsri_seg_place *)(void *)(p->record + n);
    tsr_status status = TSR_OK;
    for (size_t r = 0; r < n && status == TSR_OK; r++) {
        p->record[r].place = place + r * TSRI_CALL_MAX_SEG;
        status = prepare_record(g, coll, (int)r * TSRI_CALL_MAX_SEG, &p->record[r]);
    }
    if (status != TSR_OK) {
        tsri_mem_free(p);
        return status;
    }
    const tsri_call_entry *call = &p->record[0].call;
    tsri_flight_describe(&p->flight, call->kind, coll, call->bytes, call->hash);
    coll->prepared = p;
    return TSR_OK;
}

void tsri_local_unprepare(tsri_group *pub, tsri_coll *coll)
{
    (void)pub;
    tsri_mem_free(coll->prepared);
    coll->prepared = NULL;
}
