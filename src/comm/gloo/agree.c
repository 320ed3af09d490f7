/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a group tell each other about a call before any data moves. */
#include "src/comm/gloo/inside.h"

tsr_status tsri_gloo_pass_around(tsri_gloo_group *g, const tsri_gloo_job *job, int round, void *all,
                                 size_t stride, const size_t *bytes, size_t same_bytes)
{
    tsri_gloo_moves *moves = round == TSRI_GLOO_RECORDS ? &g->meeting : &g->moves;
    int n = g->pub.nranks, me = g->pub.index, count = 0;
    TSRI_TRY(tsri_gloo_reserve_pieces(g, 2 * n));
    for (int k = 1; k < n; k++) {
        int to = (me + k) % n, from = (me + n - k) % n;
        size_t sent = bytes ? bytes[me] : same_bytes, got = bytes ? bytes[from] : same_bytes;
        if (got)
            g->room.pieces[count++] = (tsri_gloo_piece){
                .data = (char *)all + stride * (size_t)from, .bytes = got, .peer = from};
        if (sent)
            g->room.pieces[count++] = (tsri_gloo_piece){
                .data = (char *)all + stride * (size_t)me, .bytes = sent, .peer = to, .send = true};
    }
    TSRI_TRY(tsri_gloo_moves_make(g, job, moves, count));
    return tsri_gloo_moves_run(g, job, tsri_gloo_slot(job, round, 0), moves);
}

tsr_status tsri_gloo_differ(const tsri_gloo_group *g, int other)
{
    int me = g->pub.index, a = other < me ? other : me, b = other < me ? me : other;
    return tsri_call_differ(g->pub.ranks, a, &g->records[a].call, b, &g->records[b].call);
}

tsr_status tsri_gloo_take_poison(tsri_gloo_group *g, const tsri_gloo_job *job, int member)
{
    tsri_gloo_over over;
    TSRI_TRY(tsri_gloo_reserve_pieces(g, 1));
    g->room.pieces[0] = (tsri_gloo_piece){.data = &over, .bytes = sizeof over, .peer = member};
    TSRI_TRY(tsri_gloo_move(g, job, tsri_gloo_slot(job, TSRI_GLOO_DATA, 0), 1));
    over.text[sizeof over.text - 1] = 0;
    g->poisoned = true;
    return tsri_gloo_set_over(g, over.status ? (tsr_status)over.status : TSR_ERR_REMOTE, over.text);
}

tsr_status tsri_gloo_meet(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    int me = g->pub.index, differs = -1;
    bool pulls = job->coll && job->coll->kind == TSRI_COLL_SEND_RECV;
    atomic_store(&g->where.stage, TSRI_GLOO_MEETING);
    g->records[me] = (tsri_gloo_record){
        .call = job->record, .words = pulls ? tsri_nccl_describe(job->coll, -1, 0, NULL) : 0};
    TSRI_TRY(tsri_gloo_pass_around(g, job, TSRI_GLOO_RECORDS, g->records, sizeof *g->records, NULL,
                                   sizeof *g->records));
    for (int i = 0; i < g->pub.nranks; i++)
        if (i != me && g->records[i].call.kind == TSRI_COLL_POISON_)
            return tsri_gloo_take_poison(g, job, i);
    for (int i = g->pub.nranks - 1; i >= 0; i--)
        if (!tsri_call_agrees(&g->records[me].call, &g->records[i].call))
            differs = i;
    return differs < 0 ? TSR_OK : tsri_gloo_differ(g, differs);
}

tsr_status tsri_gloo_pass_words(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_nccl_words *out)
{
    int n = g->pub.nranks;
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        most = g->records[i].words > most ? g->records[i].words : most;
    size_t stride = (size_t)most * sizeof(int64_t);
    int64_t *all = tsri_mem_alloc(NULL, stride * (size_t)n + (size_t)n * sizeof(size_t));
    TSRI_NEED(all);
    size_t *bytes = (size_t *)(all + most * n);
    for (int i = 0; i < n; i++)
        bytes[i] = (size_t)g->records[i].words * sizeof(int64_t);
    tsri_nccl_describe(job->coll, -1, most, all + most * g->pub.index);
    tsr_status status = tsri_gloo_pass_around(g, job, TSRI_GLOO_WORDS, all, stride, bytes, 0);
    if (status != TSR_OK) {
        tsri_mem_free(all);
        return status;
    }
    *out = (tsri_nccl_words){all, most};
    return TSR_OK;
}
