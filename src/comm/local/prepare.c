/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's words to its peers about the segments of a call; said once for all, of a call that is
 * made again and again. */
#include "src/comm/local/local.h"

#include <string.h>

/* Elements of this rank's sides. */
static void count_sides(const tsri_local_group *g, const tsri_coll *c, const tsri_segment *s,
                        int64_t *out_src, int64_t *out_dst)
{
    bool is_root = g->pub.index == c->root;
    tsri_box src = tsri_box_piece(s->shape, s->src_axis, g->pub.nranks, g->pub.index);
    tsri_box dst = tsri_box_piece(s->shape, s->dst_axis, g->pub.nranks, g->pub.index);
    *out_src = tsri_box_count(s->shape, &src);
    *out_dst = tsri_box_count(s->shape, &dst);
    if (c->kind == TSRI_COLL_BROADCAST && !is_root)
        *out_src = 0;
    if (c->kind == TSRI_COLL_REDUCE && !is_root)
        *out_dst = 0;
}

tsr_status tsri_local_place_segment(const tsri_local_group *g, const tsri_coll *c, int i,
                                    tsri_seg_place *out)
{
    const tsri_segment *s = &c->seg[i];
    int64_t nsrc, ndst;
    if (c->kind == TSRI_COLL_SEND_RECV)
        return tsri_send_place(g, c, i, out);
    count_sides(g, c, s, &nsrc, &ndst);
    size_t src_bytes = (size_t)nsrc * tsr_dtype_size(s->dtype);
    size_t dst_bytes = (size_t)ndst * tsr_dtype_size(s->dtype);
    *out = (tsri_seg_place){TSRI_NOWHERE, TSRI_NOWHERE};
    if ((src_bytes && !s->src) || (dst_bytes && !s->dst))
        return tsri_coll_invalid(c, i, src_bytes && !s->src ? "src is NULL" : "dst is NULL");
    uintptr_t src = (uintptr_t)s->src, dst = (uintptr_t)s->dst;
    bool same = src == dst && (g->pub.nranks == 1 || c->kind == TSRI_COLL_BROADCAST);
    if (src_bytes && dst_bytes && src < dst + dst_bytes && dst < src + src_bytes && !same)
        return tsri_coll_invalid(c, i, "src and dst overlap");
    if (g->pub.nranks == 1)
        return TSR_OK;
    bool src_read = c->kind != TSRI_COLL_REDUCE || g->pub.index != c->root;
    bool dst_read = c->kind == TSRI_COLL_ALL_REDUCE && c->algo == TSRI_ALGO_TWO_PHASE;
    if (src_bytes && src_read)
        TSRI_TRY(tsri_local_place(g, s->src, src_bytes, c, i, "src", &out->src));
    if (dst_bytes && dst_read)
        TSRI_TRY(tsri_local_place(g, s->dst, dst_bytes, c, i, "dst", &out->dst));
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
    out->gives = tsri_send_only_gives(g, coll, first, nseg);
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
    if (!p)
        return TSR_ERR_NO_MEMORY;
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
    const tsri_call *call = &p->record[0].call;
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
