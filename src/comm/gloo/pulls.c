/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SEND_RECV that was not prepared. Nobody waits for members that it has nothing to do with, but
 * for its call's end: so there is no meeting. Each member tells each other what it reads of that
 * one (its record, and words as for NCCL), and then does what comes, in the order in which it
 * comes: a record is compared and answered with what its member reads; an answer says that what
 * this rank reads is on its way. With the last answer dst is complete, and with the last record
 * the call is over.
 *
 * A member that has ended the group says so in its record, and neither asks nor answers. The others
 * do all the same for each other what they have been promised, as a message that comes for a buffer
 * which is gone would hold up all that follow: then they get the reason.
 */
#include "src/comm/gloo/inside.h"

#include <string.h>

/* Sends to one member that are under way. */
typedef struct gift {
    tsri_nccl_plan plan;
    char *staging;
    tsri_gloo_post *answer, *data;
    int ndata;
} gift;

typedef struct caller {
    tsri_gloo_group *g;
    tsri_gloo_job *job;
    const tsri_coll *coll;
    uint64_t slot; /* of data */
    /* An entry per member. */
    tsri_gloo_record *said; /* by this rank */
    int64_t **words;        /* of this rank on each member; NULL: reads nothing of it */
    gift *gifts;
    const tsri_gloo_record *gives; /* the one answer to all */
    tsri_segment *part;            /* of coll, an entry per segment: for sub-calls */
    tsri_pull *pulls;              /* room for all of a call's */
    int64_t *table, stride;        /* words of all members, as plans want them */
    tsri_gloo_post *records, *described, *data;
    int nrecords, ndata, answers; /* answers: that are due */
    int over;                     /* a member that has ended the group, -1: none */
    bool lacks;                   /* something that such a one does not give */
    tsri_nccl_plan plan;          /* of what this rank reads */
    char *staging;
} caller;

/* The call with nothing but those pulls of mine that read of one member (-1: none at all). */
static tsri_coll part_of(caller *c, int member)
{
    tsri_coll sub = *c->coll;
    int used = 0;
    for (int i = 0; i < sub.nseg; i++) {
        const tsri_segment *s = &c->coll->seg[i];
        c->part[i] = *s;
        c->part[i].fill = false;
        c->part[i].npulls = 0;
        c->part[i].pulls = c->pulls + used;
        for (int k = 0; k < s->npulls; k++)
            if (member >= 0 && tsri_pull_reads(&s->pulls[k], member)) {
                c->pulls[used++] = s->pulls[k];
                c->part[i].npulls++;
            }
    }
    sub.seg = c->part;
    return sub;
}

/* A plan of `sub`, when all others read nothing and give everything, but for `member`, of which
 * these are the words. */
static tsr_status plan_with(caller *c, const tsri_coll *sub, int member, const int64_t *words,
                            int64_t nwords, tsri_nccl_plan *out_plan)
{
    int n = c->g->pub.nranks, nseg = sub->nseg;
    for (int m = 0; m < n; m++)
        for (int i = 0; i < nseg; i++) {
            c->table[m * c->stride + 2 * i] = m != c->g->pub.index || sub->seg[i].src;
            c->table[m * c->stride + 2 * i + 1] = 0;
        }
    if (member >= 0)
        memcpy(c->table + member * c->stride, words, (size_t)nwords * sizeof *words);
    const tsri_nccl_words all = {c->table, c->stride};
    return tsri_nccl_plan_make(NULL, sub, n, c->g->pub.index, c->g->pub.ranks, &all, true,
                               out_plan);
}

static tsr_status reserve_table(caller *c, int64_t words)
{
    if (words <= c->stride)
        return TSR_OK;
    tsri_mem_free(c->table);
    c->stride = words;
    c->table = tsri_mem_alloc(NULL, (size_t)(words * c->g->pub.nranks) * sizeof *c->table);
    return c->table ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Pieces of a plan's steps of one kind, in g->pieces. */
static tsr_status collect(caller *c, const tsri_nccl_plan *plan, char *staging, bool send,
                          int *out_count)
{
    int count = 0;
    TSRI_TRY(tsri_gloo_reserve_pieces(c->g, plan->nsteps));
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_nccl_step *s = &plan->steps[i];
        if (s->kind != (send ? TSRI_NCCL_SEND : TSRI_NCCL_RECV))
            continue;
        c->g->pieces[count++] =
            (tsri_gloo_piece){.data = tsri_nccl_locate(c->coll, staging, send ? s->src : s->dst),
                              .bytes = (size_t)s->count * tsr_dtype_size(s->dtype),
                              .peer = s->peer,
                              .send = send};
    }
    *out_count = count;
    return TSR_OK;
}

/* --- saying what this rank reads -------------------------------------------------------------- */
static tsr_status describe(caller *c)
{
    int n = c->g->pub.nranks, me = c->g->pub.index, count = 0;
    for (int m = 0; m < n; m++) {
        int npulls = 0;
        if (m == me)
            continue;
        const tsri_coll sub = part_of(c, m);
        for (int i = 0; i < sub.nseg; i++)
            npulls += sub.seg[i].npulls;
        c->said[m] = (tsri_gloo_record){.call = c->job->record};
        __atomic_store_n(&c->g->due[m], 1, __ATOMIC_RELAXED);
        if (npulls == 0)
            continue;
        int64_t words = tsri_nccl_describe(&sub, 0, NULL);
        c->words[m] = tsri_mem_alloc(NULL, (size_t)words * sizeof(int64_t));
        if (!c->words[m])
            return TSR_ERR_NO_MEMORY;
        tsri_nccl_describe(&sub, words, c->words[m]);
        c->said[m].words = words;
        __atomic_store_n(&c->g->due[m], 2, __ATOMIC_RELAXED);
        c->answers++;
    }
    TSRI_TRY(tsri_gloo_reserve_pieces(c->g, n));
    for (int k = 1; k < n; k++) {
        int m = (me + k) % n;
        c->g->pieces[c->nrecords++] = (tsri_gloo_piece){
            .data = &c->said[m], .bytes = sizeof *c->said, .peer = m, .send = true};
    }
    TSRI_TRY(tsri_gloo_post_pieces(c->g, c->job, tsri_gloo_slot(c->job, TSRI_GLOO_RECORDS, 0),
                                   c->nrecords, c->g->pieces, &c->records));
    for (int k = 1; k < n; k++) {
        int m = (me + k) % n;
        if (c->words[m])
            c->g->pieces[count++] = (tsri_gloo_piece){.data = c->words[m],
                                                      .bytes = (size_t)c->said[m].words * 8,
                                                      .peer = m,
                                                      .send = true};
    }
    return count ? tsri_gloo_post_pieces(c->g, c->job, tsri_gloo_slot(c->job, TSRI_GLOO_WORDS, 0),
                                         count, c->g->pieces, &c->described)
                 : TSR_OK;
}

/* Room is made at once for all that comes, before anybody is told that it is wanted. */
static tsr_status ask(caller *c)
{
    int64_t words = tsri_nccl_describe(c->coll, 0, NULL);
    int64_t *mine = tsri_mem_alloc(NULL, (size_t)words * sizeof *mine);
    if (!mine)
        return TSR_ERR_NO_MEMORY;
    tsri_nccl_describe(c->coll, words, mine);
    tsr_status status = reserve_table(c, words);
    if (status == TSR_OK)
        status = plan_with(c, c->coll, c->g->pub.index, mine, words, &c->plan);
    tsri_mem_free(mine);
    TSRI_TRY(status);
    c->staging = tsri_mem_alloc(NULL, c->plan.stage_bytes);
    if (!c->staging)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < c->plan.nsteps && !c->job->early; i++)
        if (c->plan.steps[i].kind == TSRI_NCCL_FILL)
            tsri_gloo_do_here(c->coll, &c->plan, c->staging, &c->plan.steps[i]);
    TSRI_TRY(collect(c, &c->plan, c->staging, false, &c->ndata));
    for (int i = 0; i < c->ndata; i++)
        c->job->bytes_read += c->g->pieces[i].bytes;
    return c->ndata ? tsri_gloo_post_pieces(c->g, c->job, c->slot, c->ndata, c->g->pieces, &c->data)
                    : TSR_OK;
}

/* All that this rank reads is on its way, if not here. */
static tsr_status complete(caller *c)
{
    if (c->ndata)
        TSRI_TRY(tsri_gloo_wait_pieces(c->g, c->job, c->data, 0, c->ndata));
    for (int i = 0; i < c->plan.nsteps && !c->job->early; i++)
        if (c->plan.steps[i].kind == TSRI_NCCL_MOVE)
            tsri_gloo_do_here(c->coll, &c->plan, c->staging, &c->plan.steps[i]);
    tsri_gloo_job_pulled(c->g, c->job);
    return TSR_OK;
}

/* --- answering -------------------------------------------------------------------------------- */
static tsr_status get_words(caller *c, int member, int64_t words, int64_t **out)
{
    tsri_gloo_post *post;
    int64_t *w = tsri_mem_alloc(NULL, (size_t)words * sizeof *w);
    if (!w)
        return TSR_ERR_NO_MEMORY;
    c->g->pieces[0] =
        (tsri_gloo_piece){.data = w, .bytes = (size_t)words * sizeof *w, .peer = member};
    tsr_status status = tsri_gloo_post_pieces(
        c->g, c->job, tsri_gloo_slot(c->job, TSRI_GLOO_WORDS, 0), 1, c->g->pieces, &post);
    if (status == TSR_OK) {
        status = tsri_gloo_wait_pieces(c->g, c->job, post, 0, 1);
        c->g->comm->root->api->mesh_drop(c->g->mesh, post);
    }
    if (status != TSR_OK) {
        tsri_mem_free(w);
        return status;
    }
    *out = w;
    return TSR_OK;
}

/* Sends what a member reads, and that it is on its way. That one may be busy with others, who may
 * wait for this rank: so nothing is waited for here. */
static tsr_status give(caller *c, int member, const int64_t *words, int64_t nwords)
{
    gift *to = &c->gifts[member];
    TSRI_TRY(reserve_table(c, nwords));
    const tsri_coll sub = part_of(c, -1);
    TSRI_TRY(plan_with(c, &sub, member, words, nwords, &to->plan));
    to->staging = tsri_mem_alloc(NULL, to->plan.stage_bytes);
    if (!to->staging)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < to->plan.nsteps; i++)
        if (to->plan.steps[i].kind == TSRI_NCCL_MOVE)
            tsri_gloo_do_here(c->coll, &to->plan, to->staging, &to->plan.steps[i]);
    TSRI_TRY(tsri_gloo_reserve_pieces(c->g, 1));
    c->g->pieces[0] = (tsri_gloo_piece){.data = (void *)(uintptr_t)c->gives,
                                        .bytes = sizeof *c->gives,
                                        .peer = member,
                                        .send = true};
    TSRI_TRY(tsri_gloo_post_pieces(c->g, c->job, tsri_gloo_slot(c->job, TSRI_GLOO_RECORDS, 0), 1,
                                   c->g->pieces, &to->answer));
    TSRI_TRY(collect(c, &to->plan, to->staging, true, &to->ndata));
    return to->ndata
               ? tsri_gloo_post_pieces(c->g, c->job, c->slot, to->ndata, c->g->pieces, &to->data)
               : TSR_OK;
}

static tsr_status answer(caller *c, int member, const tsri_gloo_record *record)
{
    int64_t *words;
    if (!tsri_call_agrees(&c->job->record, &record->call))
        return tsri_gloo_differ(c->g, member);
    if (!record->words)
        return TSR_OK;
    TSRI_TRY(get_words(c, member, record->words, &words));
    tsr_status status = give(c, member, words, record->words);
    tsri_mem_free(words);
    return status;
}

static tsr_status next_message(caller *c, int *out_member, tsri_gloo_record *out)
{
    tsri_gloo_group *g = c->g;
    tsri_gloo_error err;
    tsri_gloo_result result = g->comm->root->api->mesh_any(
        g->mesh, tsri_gloo_slot(c->job, TSRI_GLOO_RECORDS, 0), out, sizeof *out, g->pub.nranks,
        g->due, &g->at, &g->moved, out_member, &err);
    if (result != TSRI_GLOO_OK)
        return tsri_gloo_backend(g, c->job, result, &err);
    __atomic_fetch_sub(&g->due[*out_member], 1, __ATOMIC_RELAXED);
    return TSR_OK;
}

static bool has_ended(const caller *c, int member)
{
    return c->g->records[member].call.kind == TSRI_COLL_POISON_;
}

/* Waits until the members that are still there, and have given, have got what they read. */
static tsr_status await_others(caller *c)
{
    int n = c->g->pub.nranks, me = c->g->pub.index, at = 0;
    TSRI_TRY(tsri_gloo_wait_pieces(c->g, c->job, c->records, 0, c->nrecords));
    for (int k = 1; k < n; k++) {
        int m = (me + k) % n;
        if (c->words[m] && !has_ended(c, m))
            TSRI_TRY(tsri_gloo_wait_pieces(c->g, c->job, c->described, at, at + 1));
        at += c->words[m] != NULL;
    }
    at = 0;
    for (int i = 0; i < c->plan.nsteps && c->lacks; i++) {
        const tsri_nccl_step *s = &c->plan.steps[i];
        if (s->kind != TSRI_NCCL_RECV)
            continue;
        if (!has_ended(c, s->peer))
            TSRI_TRY(tsri_gloo_wait_pieces(c->g, c->job, c->data, at, at + 1));
        at++;
    }
    return TSR_OK;
}

static tsr_status talk(caller *c)
{
    tsri_gloo_record message;
    int due, member;
    TSRI_TRY(ask(c));
    TSRI_TRY(describe(c));
    due = c->g->pub.nranks - 1 + c->answers;
    if (!c->answers)
        TSRI_TRY(complete(c));
    while (due-- > 0) {
        TSRI_TRY(next_message(c, &member, &message));
        if (message.gives) {
            if (--c->answers == 0)
                TSRI_TRY(complete(c));
            continue;
        }
        c->g->records[member] = message;
        if (!has_ended(c, member)) {
            TSRI_TRY(answer(c, member, &message));
            continue;
        }
        c->over = member;
        if (c->words[member]) {
            c->lacks = true;
            __atomic_store_n(&c->g->due[member], 0, __ATOMIC_RELAXED);
            due--;
        }
    }
    return await_others(c);
}

static tsr_status await_gifts(caller *c)
{
    for (int m = 0; m < c->g->pub.nranks; m++) {
        const gift *to = &c->gifts[m];
        if (to->answer)
            TSRI_TRY(tsri_gloo_wait_pieces(c->g, c->job, to->answer, 0, 1));
        if (to->data)
            TSRI_TRY(tsri_gloo_wait_pieces(c->g, c->job, to->data, 0, to->ndata));
    }
    return TSR_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */
static void finish(caller *c)
{
    const tsri_gloo_api *api = c->g->comm->root->api;
    tsri_gloo_mesh *mesh = c->g->mesh;
    api->mesh_drop(mesh, c->records);
    api->mesh_drop(mesh, c->described);
    api->mesh_drop(mesh, c->data);
    for (int m = 0; m < c->g->pub.nranks; m++) {
        __atomic_store_n(&c->g->due[m], 0, __ATOMIC_RELAXED);
        api->mesh_drop(mesh, c->gifts[m].answer);
        api->mesh_drop(mesh, c->gifts[m].data);
        tsri_nccl_plan_finish(&c->gifts[m].plan);
        tsri_mem_free(c->gifts[m].staging);
        tsri_mem_free(c->words[m]);
    }
    tsri_nccl_plan_finish(&c->plan);
    tsri_mem_free(c->staging);
    tsri_mem_free(c->table);
}

tsr_status tsri_gloo_send_recv(tsri_gloo_group *g, tsri_gloo_job *job)
{
    const tsri_coll *coll = job->coll;
    size_t n = (size_t)g->pub.nranks, npulls = 0;
    for (int i = 0; i < coll->nseg; i++)
        npulls += (size_t)coll->seg[i].npulls;
    caller c = {.g = g, .job = job, .coll = coll, .over = -1};
    c.slot = tsri_gloo_slot(job, TSRI_GLOO_DATA, job->record.hash ^ job->record.hash >> 32);
    const tsri_gloo_record gives = {.gives = 1};
    c.gives = &gives;
    atomic_store(&g->stage, TSRI_GLOO_MEETING);
    g->records[g->pub.index] = (tsri_gloo_record){.call = job->record};
    /* One block: what is of each member, of each segment, of each pull. */
    char *block =
        tsri_mem_alloc(NULL, n * (sizeof *c.said + sizeof *c.words + sizeof *c.gifts) +
                                 (size_t)coll->nseg * sizeof *c.part + npulls * sizeof *c.pulls);
    if (!block)
        return TSR_ERR_NO_MEMORY;
    c.said = (tsri_gloo_record *)(void *)block;
    c.words = (int64_t **)(void *)(c.said + n);
    c.gifts = (gift *)(void *)(c.words + n);
    c.part = (tsri_segment *)(void *)(c.gifts + n);
    c.pulls = (tsri_pull *)(void *)(c.part + coll->nseg);
    tsr_status status = reserve_table(&c, 2 * coll->nseg + 1);
    if (status == TSR_OK)
        status = talk(&c);
    if (status == TSR_OK)
        status = await_gifts(&c);
    if (status == TSR_OK && c.over >= 0)
        status = tsri_gloo_take_poison(g, job, c.over);
    finish(&c);
    tsri_mem_free(block);
    return status;
}
