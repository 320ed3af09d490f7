/* SPDX-License-Identifier: Apache-2.0 */
/* A group's thread at work on a call: the messages of its plan are made once, where they can be. */
#include "src/comm/gloo/inside.h"

#include <string.h>

/* --- working a call out ----------------------------------------------------------------------- */
static tsr_status reserve_staging(tsri_gloo_group *g, size_t bytes)
{
    if (bytes <= g->room.staging_bytes)
        return TSR_OK;
    tsri_mem_free(g->room.staging);
    g->room.staging_bytes = 0;
    g->room.staging = tsri_mem_alloc(NULL, bytes);
    TSRI_NEED(g->room.staging);
    g->room.staging_bytes = bytes;
    return TSR_OK;
}

/* Makes the messages of a plan, again if the group's staging memory has grown since. */
static tsr_status resolve(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_call *call)
{
    const tsri_nccl_plan *p = &call->plan;
    int talks = 0, count;
    TSRI_TRY(reserve_staging(g, p->stage_bytes));
    if (call->is_resolved && call->staging == g->room.staging)
        return TSR_OK;
    call->is_resolved = false;
    call->bytes_read = 0;
    for (int i = 0, end; i < p->nsteps; i = end) {
        end = tsri_nccl_talk_end(p, i);
        if (tsri_nccl_is_here(&p->steps[i]))
            continue;
        TSRI_TRY(tsri_gloo_pieces_of(g, job->coll, p, g->room.staging, i, end, TSRI_GLOO_BOTH,
                                     &count, &call->bytes_read));
        TSRI_TRY(tsri_gloo_moves_make(g, job, &call->talk[talks++], count));
    }
    call->staging = g->room.staging;
    call->is_resolved = true;
    return TSR_OK;
}

void tsri_gloo_call_free(tsri_gloo_group *g, tsri_gloo_call *call)
{
    if (!call)
        return;
    for (int i = 0; i < TSRI_GLOO_TALKS; i++)
        tsri_gloo_moves_finish(g, &call->talk[i]);
    tsri_nccl_plan_finish(&call->plan);
    tsri_mem_free(call);
}

/* Works out what the members agree on. */
static tsr_status make_call(tsri_gloo_group *g, const tsri_gloo_job *job,
                            const tsri_nccl_words *words, tsri_gloo_call **out_call)
{
    const tsri_coll *coll = job->coll;
    size_t segs = (size_t)coll->nseg * sizeof *coll->seg;
    tsri_gloo_call *call = tsri_mem_alloc(NULL, sizeof *call + segs);
    TSRI_NEED(call);
    call->coll = *coll;
    call->coll.seg = segs ? memcpy(call + 1, coll->seg, segs) : NULL;
    call->hash = job->record.hash ^ job->record.hash >> 32;
    tsr_status status = tsri_nccl_plan_make(NULL, coll, g->pub.nranks, g->pub.index, g->pub.ranks,
                                            words, true, &call->plan);
    if (status == TSR_OK)
        status = resolve(g, job, call);
    if (status != TSR_OK) {
        tsri_gloo_call_free(g, call);
        return status;
    }
    *out_call = call;
    return TSR_OK;
}

/* Agrees on the call with the other members, and works it out. */
static tsr_status prepare(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_call **out_call)
{
    tsri_nccl_words words = {0};
    TSRI_TRY(tsri_gloo_meet(g, job));
    if (job->coll->kind == TSRI_COLL_SEND_RECV)
        TSRI_TRY(tsri_gloo_pass_words(g, job, &words));
    tsr_status status = make_call(g, job, &words, out_call);
    tsri_mem_free((void *)(uintptr_t)words.words);
    return status;
}

/* --- calls that were not prepared ------------------------------------------------------------- */
static bool is_same_segment(const tsri_segment *a, const tsri_segment *b)
{
    if (a->src != b->src || a->dst != b->dst || a->dtype != b->dtype ||
        a->src_axis != b->src_axis || a->dst_axis != b->dst_axis || a->shape.ndim != b->shape.ndim)
        return false;
    return !memcmp(a->shape.d, b->shape.d, (size_t)a->shape.ndim * sizeof *a->shape.d);
}

/* Whether what was worked out for one call is right for another. */
static bool is_same_call(const tsri_coll *a, const tsri_coll *b)
{
    if (a->kind != b->kind || a->algo != b->algo || a->op != b->op || a->root != b->root ||
        a->nseg != b->nseg)
        return false;
    for (int i = 0; i < a->nseg; i++)
        if (!is_same_segment(&a->seg[i], &b->seg[i]))
            return false;
    return true;
}

/* Training reduces the same buffers in each step: the latest calls are kept. */
static tsr_status find_known(tsri_gloo_group *g, const tsri_gloo_job *job,
                             tsri_gloo_call **out_call)
{
    enum { MOST = 64 };
    tsri_gloo_call **at = &g->known, *call;
    for (int n = 1; *at && !is_same_call(&(*at)->coll, job->coll); n++, at = &(*at)->next) {
        if (n < MOST)
            continue;
        tsri_gloo_call_free(g, *at);
        *at = NULL;
        break;
    }
    call = *at;
    if (call) {
        *at = call->next;
        call->hash = job->record.hash ^ job->record.hash >> 32;
    } else {
        TSRI_TRY(make_call(g, job, NULL, &call));
    }
    call->next = g->known;
    g->known = call;
    *out_call = call;
    return TSR_OK;
}

/* --- steps ------------------------------------------------------------------------------------ */
/* By dissemination: after k rounds a member has heard of 2^k. */
static tsr_status barrier(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot)
{
    int n = g->pub.nranks, me = g->pub.index;
    char bytes[2] = {0};
    TSRI_TRY(tsri_gloo_reserve_pieces(g, 2));
    for (int step = 1; step < n; step *= 2) {
        g->room.pieces[0] =
            (tsri_gloo_piece){.data = &bytes[0], .bytes = 1, .peer = (me + n - step) % n};
        g->room.pieces[1] =
            (tsri_gloo_piece){.data = &bytes[1], .bytes = 1, .peer = (me + step) % n, .send = true};
        TSRI_TRY(tsri_gloo_move(g, job, slot, 2));
    }
    return TSR_OK;
}

/* Runs the plan of a call; dst is left alone where the rank's own thread has filled it already. */
static tsr_status run(tsri_gloo_group *g, tsri_gloo_job *job, tsri_gloo_call *call)
{
    const tsri_nccl_plan *p = &call->plan;
    uint64_t slot = tsri_gloo_slot(job, TSRI_GLOO_DATA, call->hash);
    int talks = 0;
    TSRI_TRY(resolve(g, job, call));
    for (int i = 0, end; i < p->nsteps; i = end) {
        const tsri_nccl_step *s = &p->steps[i];
        end = tsri_nccl_talk_end(p, i);
        if (!tsri_nccl_is_here(s)) {
            call->is_resolved = false; /* until it has gone well */
            TSRI_TRY(tsri_gloo_moves_run(g, job, slot, &call->talk[talks++]));
            call->is_resolved = true;
        } else if (!job->early || s->dst.where != TSRI_NCCL_DST)
            tsri_gloo_do_here(job->coll, p, g->room.staging, s);
    }
    job->bytes_read += call->bytes_read;
    return TSR_OK;
}

static tsr_status do_call(tsri_gloo_group *g, tsri_gloo_job *job)
{
    const tsri_coll *coll = job->coll;
    tsri_gloo_call *call = coll->prepared;
    if (!call && coll->kind == TSRI_COLL_SEND_RECV)
        return tsri_gloo_send_recv(g, job);
    atomic_store(&g->where.stage, TSRI_GLOO_MEETING);
    if (!call) {
        TSRI_TRY(tsri_gloo_meet(g, job));
        atomic_store(&g->where.stage, TSRI_GLOO_MOVING);
        if (coll->kind == TSRI_COLL_BARRIER) /* all members have come */
            return TSR_OK;
        TSRI_TRY(find_known(g, job, &call));
    } else if (coll->kind == TSRI_COLL_BARRIER) {
        return barrier(g, job, tsri_gloo_slot(job, TSRI_GLOO_DATA, call->hash));
    }
    return run(g, job, call);
}

static tsr_status exchange(tsri_gloo_group *g, tsri_gloo_job *job)
{
    TSRI_TRY(tsri_gloo_meet(g, job));
    atomic_store(&g->where.stage, TSRI_GLOO_MOVING);
    if (job->bytes)
        memcpy((char *)job->all + job->bytes * (size_t)g->pub.index, job->mine, job->bytes);
    return tsri_gloo_pass_around(g, job, TSRI_GLOO_DATA, job->all, job->bytes, NULL, job->bytes);
}

/* Comes to the members' next call in this rank's stead, and tells them why there is none. */
static tsr_status poison(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    int n = g->pub.nranks, me = g->pub.index;
    tsri_gloo_over mine;
    pthread_mutex_lock(&g->comm->root->lock);
    mine = g->over;
    pthread_mutex_unlock(&g->comm->root->lock);
    g->records[me] = (tsri_gloo_record){.call = job->record};
    TSRI_TRY(tsri_gloo_pass_around(g, job, TSRI_GLOO_RECORDS, g->records, sizeof *g->records, NULL,
                                   sizeof *g->records));
    for (int k = 1; k < n; k++)
        g->room.pieces[k - 1] = (tsri_gloo_piece){
            .data = &mine, .bytes = sizeof mine, .peer = (me + k) % n, .send = true};
    return tsri_gloo_move(g, job, tsri_gloo_slot(job, TSRI_GLOO_DATA, 0), n - 1);
}

tsr_status tsri_gloo_do(tsri_gloo_group *g, tsri_gloo_job *job)
{
    switch (job->kind) {
    case TSRI_GLOO_PREPARE:
        TSRI_TRY(prepare(g, job, &job->prepared));
        return TSR_OK;
    case TSRI_GLOO_EXCHANGE:
        return exchange(g, job);
    case TSRI_GLOO_POISON:
        return poison(g, job);
    case TSRI_GLOO_CALL:
        break;
    }
    return do_call(g, job);
}
