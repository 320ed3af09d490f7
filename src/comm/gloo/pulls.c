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

/* The dealings with one other member. */
typedef struct other {
    tsri_gloo_record said;              /* by this rank */
    int64_t *words;                     /* of this rank on that member; NULL: reads nothing of it */
    tsri_gloo_post *record, *described; /* sends of these two */
    /* Sends of what it reads of this rank. */
    tsri_nccl_plan plan;
    char *staging;
    tsri_gloo_post *answer, *data;
    int ndata;
} other;

typedef struct caller {
    tsri_gloo_group *g;
    tsri_gloo_job *job;
    const tsri_coll *coll;
    tsri_coll gives;        /* coll without pulls: what this rank gives */
    uint64_t slot;          /* of data */
    other *others;          /* an entry per member */
    int64_t *table, stride; /* words of all members, as plans want them */
    int answers;            /* that are due */
    int over;               /* a member that has ended the group, -1: none */
    bool lacks;             /* something that such a one does not give */
    /* Its plan of what it reads itself. */
    tsri_nccl_plan plan;
    char *staging;
    tsri_gloo_post *data;
    int ndata;
} caller;

/* A plan of `sub`, when all others read nothing and give everything, but for `member`, of which
 * these are the words. */
static tsr_status plan_with(caller *c, const tsri_coll *sub, int member, const int64_t *words,
                            int64_t nwords, tsri_nccl_plan *out_plan)
{
    int n = c->g->pub.nranks, nseg = sub->nseg;
    if (nwords > c->stride) {
        tsri_mem_free(c->table);
        c->stride = nwords;
        c->table = tsri_mem_alloc(NULL, (size_t)(nwords * n) * sizeof *c->table);
    }
    TSRI_NEED(c->table);
    for (int m = 0; m < n; m++)
        for (int i = 0; i < nseg; i++) {
            c->table[m * c->stride + 2 * i] = m != c->g->pub.index || sub->seg[i].src;
            c->table[m * c->stride + 2 * i + 1] = 0;
        }
    memcpy(c->table + member * c->stride, words, (size_t)nwords * sizeof *words);
    const tsri_nccl_words all = {c->table, c->stride};
    return tsri_nccl_plan_make(NULL, sub, n, c->g->pub.index, c->g->pub.ranks, &all, true,
                               out_plan);
}

/* The words on what this rank reads of a member; -1: of all. */
static tsr_status describe(caller *c, int member, int64_t **out_words, int64_t *out_count)
{
    int64_t count = tsri_nccl_describe(c->coll, member, 0, NULL);
    int64_t *words = tsri_mem_alloc(NULL, (size_t)count * sizeof *words);
    TSRI_NEED(words);
    tsri_nccl_describe(c->coll, member, count, words);
    *out_words = words;
    *out_count = count;
    return TSR_OK;
}

/* Moves on this rank of a plan, and fills. */
static void do_here(caller *c, const tsri_nccl_plan *plan, char *staging, tsri_nccl_step_kind kind)
{
    for (int i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == kind)
            tsri_gloo_do_here(c->coll, plan, staging, &plan->steps[i]);
}

/* --- messages --------------------------------------------------------------------------------- */
static tsr_status post_one(caller *c, int round, const void *data, size_t bytes, int member,
                           bool send, tsri_gloo_post **out_post)
{
    const tsri_gloo_piece piece = {
        .data = (void *)(uintptr_t)data, .bytes = bytes, .peer = member, .send = send};
    return tsri_gloo_post_pieces(c->g, c->job, tsri_gloo_slot(c->job, round, 0), 1, &piece,
                                 out_post);
}

/* The sends, or receives, of a plan. */
static tsr_status post_data(caller *c, const tsri_nccl_plan *plan, char *staging, tsri_gloo_way way,
                            int *out_count, tsri_gloo_post **out_post)
{
    TSRI_TRY(tsri_gloo_pieces_of(c->g, c->coll, plan, staging, 0, plan->nsteps, way, out_count,
                                 &c->job->bytes_read));
    return *out_count ? tsri_gloo_post_pieces(c->g, c->job, c->slot, *out_count, c->g->room.pieces,
                                              out_post)
                      : TSR_OK;
}

/* Returns when the first n pieces have gone, or come; at once if nothing was posted. */
static tsr_status await(caller *c, tsri_gloo_post *post, int n)
{
    return post ? tsri_gloo_wait_pieces(c->g, c->job, post, 0, n) : TSR_OK;
}

static void set_due(caller *c, int member, int messages)
{
    __atomic_store_n(&c->g->where.due[member], messages, __ATOMIC_RELAXED);
}

/* --- saying what this rank reads -------------------------------------------------------------- */
static tsr_status tell(caller *c)
{
    int n = c->g->pub.nranks, me = c->g->pub.index;
    for (int m = 0; m < n; m++) {
        other *o = &c->others[m];
        if (m == me)
            continue;
        o->said = (tsri_gloo_record){.call = c->job->record};
        set_due(c, m, 1);
        if (tsri_nccl_describe(c->coll, m, 0, NULL) == 2 * c->coll->nseg)
            continue;
        TSRI_TRY(describe(c, m, &o->words, &o->said.words));
        set_due(c, m, 2);
        c->answers++;
    }
    for (int k = 1; k < n; k++) {
        int m = (me + k) % n;
        other *o = &c->others[m];
        TSRI_TRY(post_one(c, TSRI_GLOO_RECORDS, &o->said, sizeof o->said, m, true, &o->record));
        if (o->words)
            TSRI_TRY(post_one(c, TSRI_GLOO_WORDS, o->words, (size_t)o->said.words * 8, m, true,
                              &o->described));
    }
    return TSR_OK;
}

/* Room is made at once for all that comes, before anybody is told that it is wanted. */
static tsr_status ask(caller *c)
{
    int64_t count, *mine;
    TSRI_TRY(describe(c, -1, &mine, &count));
    tsr_status status = plan_with(c, c->coll, c->g->pub.index, mine, count, &c->plan);
    tsri_mem_free(mine);
    TSRI_TRY(status);
    c->staging = tsri_mem_alloc(NULL, c->plan.stage_bytes);
    TSRI_NEED(c->staging);
    if (!c->job->early)
        do_here(c, &c->plan, c->staging, TSRI_NCCL_FILL);
    return post_data(c, &c->plan, c->staging, TSRI_GLOO_IN, &c->ndata, &c->data);
}

/* All that this rank reads is on its way, if not here. */
static tsr_status complete(caller *c)
{
    TSRI_TRY(await(c, c->data, c->ndata));
    if (!c->job->early)
        do_here(c, &c->plan, c->staging, TSRI_NCCL_MOVE);
    tsri_gloo_job_pulled(c->g, c->job);
    return TSR_OK;
}

/* --- answering -------------------------------------------------------------------------------- */
static tsr_status get_words(caller *c, int member, int64_t *words, int64_t count)
{
    tsri_gloo_post *post;
    TSRI_TRY(
        post_one(c, TSRI_GLOO_WORDS, words, (size_t)count * sizeof *words, member, false, &post));
    tsr_status status = await(c, post, 1);
    c->g->comm->root->api->mesh_drop(c->g->mesh, post);
    return status;
}

/* Sends what a member reads, and that it is on its way. That one may be busy with others, who may
 * wait for this rank: so nothing is waited for here. */
static tsr_status give(caller *c, int member, const int64_t *words, int64_t nwords)
{
    static const tsri_gloo_record gives = {.gives = 1};
    other *to = &c->others[member];
    TSRI_TRY(plan_with(c, &c->gives, member, words, nwords, &to->plan));
    to->staging = tsri_mem_alloc(NULL, to->plan.stage_bytes);
    TSRI_NEED(to->staging);
    do_here(c, &to->plan, to->staging, TSRI_NCCL_MOVE);
    TSRI_TRY(post_one(c, TSRI_GLOO_RECORDS, &gives, sizeof gives, member, true, &to->answer));
    return post_data(c, &to->plan, to->staging, TSRI_GLOO_OUT, &to->ndata, &to->data);
}

static tsr_status answer(caller *c, int member, const tsri_gloo_record *record)
{
    if (!tsri_call_agrees(&c->job->record, &record->call))
        return tsri_gloo_differ(c->g, member);
    if (!record->words)
        return TSR_OK;
    int64_t *words = tsri_mem_alloc(NULL, (size_t)record->words * sizeof *words);
    TSRI_NEED(words);
    tsr_status status = get_words(c, member, words, record->words);
    if (status == TSR_OK)
        status = give(c, member, words, record->words);
    tsri_mem_free(words);
    return status;
}

static tsr_status next_message(caller *c, int *out_member, tsri_gloo_record *out)
{
    tsri_gloo_group *g = c->g;
    tsri_gloo_error err;
    tsri_gloo_result result = g->comm->root->api->mesh_any(
        g->mesh, tsri_gloo_slot(c->job, TSRI_GLOO_RECORDS, 0), out, sizeof *out, g->pub.nranks,
        g->where.due, &g->where.at, &g->where.moved, out_member, &err);
    if (result != TSRI_GLOO_OK)
        return tsri_gloo_backend(g, c->job, result, &err);
    __atomic_fetch_sub(&g->where.due[*out_member], 1, __ATOMIC_RELAXED);
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
    for (int k = 1; k < n; k++) {
        int m = (me + k) % n;
        TSRI_TRY(await(c, c->others[m].record, 1));
        if (!has_ended(c, m))
            TSRI_TRY(await(c, c->others[m].described, 1));
    }
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
    TSRI_TRY(tell(c));
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
        if (c->others[member].words) {
            c->lacks = true;
            set_due(c, member, 0);
            due--;
        }
    }
    TSRI_TRY(await_others(c));
    for (int m = 0; m < c->g->pub.nranks; m++) {
        TSRI_TRY(await(c, c->others[m].answer, 1));
        TSRI_TRY(await(c, c->others[m].data, c->others[m].ndata));
    }
    return c->over < 0 ? TSR_OK : tsri_gloo_take_poison(c->g, c->job, c->over);
}

/* --- the whole -------------------------------------------------------------------------------- */
static void finish(caller *c)
{
    const tsri_gloo_api *api = c->g->comm->root->api;
    tsri_gloo_mesh *mesh = c->g->mesh;
    api->mesh_drop(mesh, c->data);
    for (int m = 0; m < c->g->pub.nranks; m++) {
        other *o = &c->others[m];
        set_due(c, m, 0);
        api->mesh_drop(mesh, o->record);
        api->mesh_drop(mesh, o->described);
        api->mesh_drop(mesh, o->answer);
        api->mesh_drop(mesh, o->data);
        tsri_nccl_plan_finish(&o->plan);
        tsri_mem_free(o->staging);
        tsri_mem_free(o->words);
    }
    tsri_nccl_plan_finish(&c->plan);
    tsri_mem_free(c->staging);
    tsri_mem_free(c->table);
}

tsr_status tsri_gloo_send_recv(tsri_gloo_group *g, tsri_gloo_job *job)
{
    const tsri_coll *coll = job->coll;
    size_t n = (size_t)g->pub.nranks, nseg = (size_t)coll->nseg;
    caller c = {.g = g, .job = job, .coll = coll, .gives = *coll, .over = -1};
    c.slot = tsri_gloo_slot(job, TSRI_GLOO_DATA, job->record.hash ^ job->record.hash >> 32);
    atomic_store(&g->where.stage, TSRI_GLOO_MEETING);
    g->records[g->pub.index] = (tsri_gloo_record){.call = job->record};
    c.others = tsri_mem_alloc(NULL, n * sizeof *c.others + nseg * sizeof *coll->seg);
    TSRI_NEED(c.others);
    tsri_segment *part = (tsri_segment *)(void *)(c.others + n);
    for (size_t i = 0; i < nseg; i++) {
        part[i] = coll->seg[i];
        part[i].fill = false;
        part[i].npulls = 0;
    }
    c.gives.seg = part;
    tsr_status status = talk(&c);
    finish(&c);
    tsri_mem_free(c.others);
    return status;
}
