/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a plan: those on this rank, and the messages of the others. */
#include "src/comm/gloo/inside.h"
#include "src/core/identity.h"

void tsri_gloo_do_here(const tsri_coll *coll, const tsri_nccl_plan *plan, char *staging,
                       const tsri_nccl_step *s)
{
    const char *sources[TSRI_PLAN_MAX_PARTS];
    char *dst = tsri_nccl_locate(coll, staging, s->dst);
    if (s->kind == TSRI_NCCL_FILL) {
        tsri_fill_identity(s->dtype, coll->op, s->count, dst);
        return;
    }
    tsri_pull pull = {.ndim = s->move.ndim,
                      .src_at = s->move.src_at,
                      .dst_at = s->move.dst_at,
                      .nsrc = s->move.nsrc};
    for (int i = 0; i < s->move.nsrc; i++)
        sources[i] = tsri_nccl_locate(coll, staging, plan->sources[s->first + i]);
    for (int a = 0; a < s->move.ndim; a++) {
        pull.length[a] = s->move.length[a];
        pull.src_step[a] = s->move.src_step[a];
        pull.dst_step[a] = s->move.dst_step[a];
    }
    const tsri_walk w = tsri_walk_pull(&pull);
    tsri_walk_run(&w, s->move.dtype, coll->op, s->move.nsrc, sources, dst, 1);
}

tsr_status tsri_gloo_pieces_of(tsri_gloo_group *g, const tsri_coll *coll,
                               const tsri_nccl_plan *plan, char *staging, int first, int end,
                               tsri_gloo_way way, int *out_count, uint64_t *received)
{
    int count = 0;
    TSRI_TRY(tsri_gloo_reserve_pieces(g, end - first));
    for (int i = first; i < end; i++) {
        const tsri_nccl_step *s = &plan->steps[i];
        bool sends = s->kind == TSRI_NCCL_SEND;
        if (!(sends ? way != TSRI_GLOO_IN : s->kind == TSRI_NCCL_RECV && way != TSRI_GLOO_OUT))
            continue;
        tsri_gloo_piece *p = &g->room.pieces[count++];
        *p = (tsri_gloo_piece){.data = tsri_nccl_locate(coll, staging, sends ? s->src : s->dst),
                               .bytes = (size_t)s->count * tsr_dtype_size(s->dtype),
                               .peer = s->peer,
                               .send = sends};
        *received += sends ? 0 : p->bytes;
    }
    *out_count = count;
    return TSR_OK;
}

static void pull_own(const tsri_coll *coll, const tsri_segment *s)
{
    const char *src = s->src;
    if (s->fill && s->dst_count)
        tsri_fill_identity(s->dtype, coll->op, s->dst_count, s->dst);
    for (int k = 0; k < s->npulls; k++) {
        const tsri_walk w = tsri_walk_pull(&s->pulls[k]);
        tsri_walk_run(&w, s->dtype, coll->op, 1, &src, s->dst, 1);
    }
}

void tsri_gloo_do_own(const tsri_gloo_group *g, const tsri_coll *coll)
{
    int threads = g->comm->root->world->threads;
    for (int i = 0; i < coll->nseg; i++) {
        const tsri_segment *s = &coll->seg[i];
        const char *src = s->src;
        if (coll->kind == TSRI_COLL_SEND_RECV) {
            pull_own(coll, s);
            continue;
        }
        const tsri_walk w = tsri_walk_flat(0, tsr_dims_count(s->shape));
        tsri_walk_run(&w, s->dtype, coll->op, 1, &src, s->dst, threads);
    }
}
