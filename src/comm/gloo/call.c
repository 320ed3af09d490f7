/* SPDX-License-Identifier: Apache-2.0 */
/* A group's thread at work on a call: agreeing on it, then the steps of its plan. */
#include "src/comm/gloo/inside.h"
#include "src/core/identity.h"

#include <string.h>

/* --- messages --------------------------------------------------------------------------------- */
tsr_status tsri_gloo_reserve_pieces(tsri_gloo_group *g, int count)
{
    if (count <= g->cpieces)
        return TSR_OK;
    tsri_gloo_piece *p = tsri_mem_realloc(NULL, g->pieces, (size_t)count * sizeof *p);
    if (!p)
        return TSR_ERR_NO_MEMORY;
    g->pieces = p;
    g->cpieces = count;
    return TSR_OK;
}

tsr_status tsri_gloo_post_again(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot,
                                tsri_gloo_post *post)
{
    tsri_gloo_error err;
    tsri_gloo_result result = g->comm->root->api->mesh_post(g->mesh, slot, post, &g->at, &err);
    return result == TSRI_GLOO_OK ? TSR_OK : tsri_gloo_backend(g, job, result, &err);
}

tsr_status tsri_gloo_post_pieces(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot, int n,
                                 const tsri_gloo_piece *pieces, tsri_gloo_post **out_post)
{
    const tsri_gloo_api *api = g->comm->root->api;
    tsri_gloo_error err;
    tsri_gloo_post *post = NULL;
    tsri_gloo_result result = api->mesh_make(g->mesh, n, pieces, &post, &err);
    tsr_status status = result == TSRI_GLOO_OK ? TSR_OK : tsri_gloo_backend(g, job, result, &err);
    if (status == TSR_OK)
        status = tsri_gloo_post_again(g, job, slot, post);
    if (status != TSR_OK) {
        api->mesh_drop(g->mesh, post);
        return status;
    }
    *out_post = post;
    return TSR_OK;
}

tsr_status tsri_gloo_wait_pieces(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_post *post,
                                 int first, int end)
{
    tsri_gloo_error err;
    tsri_gloo_result result =
        g->comm->root->api->mesh_wait(g->mesh, post, first, end, &g->at, &g->moved, &err);
    return result == TSRI_GLOO_OK ? TSR_OK : tsri_gloo_backend(g, job, result, &err);
}

/* Member i's bytes[i] bytes to all, at `all` + i * stride; mine stand there already. */
static tsr_status pass_around(tsri_gloo_group *g, const tsri_gloo_job *job, int round, void *all,
                              size_t stride, const size_t *bytes, size_t same_bytes)
{
    tsri_gloo_moves *moves = round == TSRI_GLOO_RECORDS ? &g->meeting : &g->moves;
    int n = g->pub.nranks, me = g->pub.index, count = 0;
    TSRI_TRY(tsri_gloo_reserve_pieces(g, 2 * n));
    for (int k = 1; k < n; k++) {
        int to = (me + k) % n, from = (me + n - k) % n;
        size_t sent = bytes ? bytes[me] : same_bytes, got = bytes ? bytes[from] : same_bytes;
        if (got)
            g->pieces[count++] = (tsri_gloo_piece){
                .data = (char *)all + stride * (size_t)from, .bytes = got, .peer = from};
        if (sent)
            g->pieces[count++] = (tsri_gloo_piece){
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
    g->pieces[0] = (tsri_gloo_piece){.data = &over, .bytes = sizeof over, .peer = member};
    TSRI_TRY(tsri_gloo_move(g, job, tsri_gloo_slot(job, TSRI_GLOO_DATA, 0), 1));
    over.text[sizeof over.text - 1] = 0;
    g->poisoned = true;
    return tsri_gloo_set_over(g, over.status ? (tsr_status)over.status : TSR_ERR_REMOTE, over.text);
}

/* --- agreeing --------------------------------------------------------------------------------- */
/* Everybody's record is here afterwards, and they agree; else all members find that they do not. */
static tsr_status meet(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    int me = g->pub.index, differs = -1;
    bool pulls = job->coll && job->coll->kind == TSRI_COLL_SEND_RECV;
    atomic_store(&g->stage, TSRI_GLOO_MEETING);
    g->records[me] = (tsri_gloo_record){
        .call = job->record, .words = pulls ? tsri_nccl_describe(job->coll, 0, NULL) : 0};
    TSRI_TRY(pass_around(g, job, TSRI_GLOO_RECORDS, g->records, sizeof *g->records, NULL,
                         sizeof *g->records));
    for (int i = 0; i < g->pub.nranks; i++)
        if (i != me && g->records[i].call.kind == TSRI_COLL_POISON_)
            return tsri_gloo_take_poison(g, job, i);
    for (int i = g->pub.nranks - 1; i >= 0; i--)
        if (!tsri_call_agrees(&g->records[me].call, &g->records[i].call))
            differs = i;
    return differs < 0 ? TSR_OK : tsri_gloo_differ(g, differs);
}

/* The reads of each member from the others. The caller frees out->words. */
static tsr_status pass_words(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_nccl_words *out)
{
    int n = g->pub.nranks;
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        most = g->records[i].words > most ? g->records[i].words : most;
    size_t stride = (size_t)most * sizeof(int64_t);
    int64_t *all = tsri_mem_alloc(NULL, stride * (size_t)n + (size_t)n * sizeof(size_t));
    if (!all)
        return TSR_ERR_NO_MEMORY;
    size_t *bytes = (size_t *)(all + most * n);
    for (int i = 0; i < n; i++)
        bytes[i] = (size_t)g->records[i].words * sizeof(int64_t);
    tsri_nccl_describe(job->coll, most, all + most * g->pub.index);
    tsr_status status = pass_around(g, job, TSRI_GLOO_WORDS, all, stride, bytes, 0);
    if (status != TSR_OK) {
        tsri_mem_free(all);
        return status;
    }
    *out = (tsri_nccl_words){all, most};
    return TSR_OK;
}

/* --- steps on this rank ----------------------------------------------------------------------- */
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

static tsr_status reserve_staging(tsri_gloo_group *g, size_t bytes)
{
    if (bytes <= g->staging_bytes)
        return TSR_OK;
    tsri_mem_free(g->staging);
    g->staging_bytes = 0;
    g->staging = tsri_mem_alloc(NULL, bytes);
    if (!g->staging)
        return TSR_ERR_NO_MEMORY;
    g->staging_bytes = bytes;
    return TSR_OK;
}

/* --- working a call out ----------------------------------------------------------------------- */
/* The messages of the steps [first, end). */
static tsr_status resolve_talk(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_call *call,
                               tsri_gloo_moves *talk, int first, int end)
{
    int count = 0;
    TSRI_TRY(tsri_gloo_reserve_pieces(g, end - first));
    for (int i = first; i < end; i++) {
        const tsri_nccl_step *s = &call->plan.steps[i];
        bool sends = s->kind == TSRI_NCCL_SEND;
        if (!sends && s->kind != TSRI_NCCL_RECV)
            continue;
        tsri_gloo_piece *p = &g->pieces[count++];
        *p = (tsri_gloo_piece){.data =
                                   tsri_nccl_locate(job->coll, g->staging, sends ? s->src : s->dst),
                               .bytes = (size_t)s->count * tsr_dtype_size(s->dtype),
                               .peer = s->peer,
                               .send = sends};
        call->bytes_read += sends ? 0 : p->bytes;
    }
    return tsri_gloo_moves_make(g, job, talk, count);
}

/* Makes the messages of a plan, again if the group's staging memory has grown since. */
static tsr_status resolve(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_call *call)
{
    const tsri_nccl_plan *p = &call->plan;
    int talks = 0;
    TSRI_TRY(reserve_staging(g, p->stage_bytes));
    if (call->is_resolved && call->staging == g->staging)
        return TSR_OK;
    call->is_resolved = false;
    call->bytes_read = 0;
    for (int i = 0, end; i < p->nsteps; i = end) {
        end = tsri_nccl_talk_end(p, i);
        if (!tsri_nccl_is_here(&p->steps[i]))
            TSRI_TRY(resolve_talk(g, job, call, &call->talk[talks++], i, end));
    }
    call->staging = g->staging;
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
    if (!call)
        return TSR_ERR_NO_MEMORY;
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
    TSRI_TRY(meet(g, job));
    if (job->coll->kind == TSRI_COLL_SEND_RECV)
        TSRI_TRY(pass_words(g, job, &words));
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
        g->pieces[0] =
            (tsri_gloo_piece){.data = &bytes[0], .bytes = 1, .peer = (me + n - step) % n};
        g->pieces[1] =
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
            tsri_gloo_do_here(job->coll, p, g->staging, s);
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
    atomic_store(&g->stage, TSRI_GLOO_MEETING);
    if (!call) {
        TSRI_TRY(meet(g, job));
        atomic_store(&g->stage, TSRI_GLOO_MOVING);
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
    TSRI_TRY(meet(g, job));
    atomic_store(&g->stage, TSRI_GLOO_MOVING);
    if (job->bytes)
        memcpy((char *)job->all + job->bytes * (size_t)g->pub.index, job->mine, job->bytes);
    return pass_around(g, job, TSRI_GLOO_DATA, job->all, job->bytes, NULL, job->bytes);
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
    TSRI_TRY(pass_around(g, job, TSRI_GLOO_RECORDS, g->records, sizeof *g->records, NULL,
                         sizeof *g->records));
    for (int k = 1; k < n; k++)
        g->pieces[k - 1] = (tsri_gloo_piece){
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

/* --- on the rank's own thread ----------------------------------------------------------------- */
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
