/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: their threads, their jobs, and how their members connect. */
#include "src/comm/flight/flight.h"
#include "src/comm/gloo/inside.h"
#include "src/core/clock.h"
#include "src/core/thread.h"

#include <stdio.h>
#include <string.h>

enum { AGREE_LANE = -1 };

/* --- finding ---------------------------------------------------------------------------------- */
static tsr_status make_group(tsri_gloo *comm, int nranks, const int *ranks, int lane,
                             tsri_gloo_group **out_group)
{
    tsri_gloo_root *root = comm->root;
    size_t n = (size_t)nranks;
    int index;
    TSRI_TRY(tsri_ranks_check(root->world, nranks, ranks, "asks for", &index));
    tsri_gloo_group *g =
        tsri_mem_alloc(&root->world->mem, sizeof *g + n * (sizeof *g->records + 2 * sizeof *ranks));
    TSRI_NEED(g);
    g->records = (tsri_gloo_record *)(g + 1);
    int *copy = (int *)(g->records + n);
    memcpy(copy, ranks, n * sizeof *ranks);
    g->where.due = copy + n;
    g->pub = (tsri_group){.comm = &comm->pub,
                          .nranks = nranks,
                          .index = index,
                          .ranks = copy,
                          .lane = lane,
                          .by_message = true,
                          .priv = g};
    g->comm = comm;
    g->where.at = -1;
    snprintf(g->key, sizeof g->key, "%s%d/%d/%d-%016llx%016llx/", root->key, comm->twin, lane,
             nranks, (unsigned long long)tsri_ranks_hash(1, nranks, ranks),
             (unsigned long long)tsri_ranks_hash(UINT64_C(0x243f6a8885a308d3), nranks, ranks));
    /* Groups of twins on the same ranks are others: their calls are counted apart. */
    char name[16];
    snprintf(name, sizeof name, comm->twin ? "gloo.%d" : "gloo", comm->twin);
    g->pub.flight = tsri_flight_group_of(root->world->flight, name, lane, nranks, copy);
    tsri_cond_init(&g->asked);
    tsri_cond_init(&g->done);
    g->next_own = comm->groups;
    comm->groups = g;
    pthread_mutex_lock(&root->lock);
    g->next = root->groups;
    root->groups = g;
    pthread_mutex_unlock(&root->lock);
    *out_group = g;
    return TSR_OK;
}

tsr_status tsri_gloo_group_find(tsri_comm *c, int nranks, const int *ranks, int lane,
                                tsri_group **out_group)
{
    tsri_gloo *comm = (tsri_gloo *)c->priv;
    tsri_gloo_group *g;
    for (g = comm->groups; g && !tsri_group_is(&g->pub, nranks, ranks, lane);)
        g = g->next_own;
    if (!g && lane < 0)
        return tsri_fail(TSR_ERR_INVALID, "a group in lane %d: lanes count from 0", lane);
    if (!g)
        TSRI_TRY(make_group(comm, nranks, ranks, lane, &g));
    *out_group = &g->pub;
    return TSR_OK;
}

tsr_status tsri_gloo_group_agree(tsri_gloo *comm, tsri_gloo_group **out_group)
{
    tsr_world *world = comm->root->world;
    if (!comm->agree) {
        int *ranks = tsri_mem_alloc(&world->mem, (size_t)world->nranks * sizeof *ranks);
        TSRI_NEED(ranks);
        for (int i = 0; i < world->nranks; i++)
            ranks[i] = i;
        tsr_status status = make_group(comm, world->nranks, ranks, AGREE_LANE, &comm->agree);
        tsri_mem_free(ranks);
        TSRI_TRY(status);
    }
    *out_group = comm->agree;
    return TSR_OK;
}

/* --- connecting ------------------------------------------------------------------------------- */
static bool is_parting(tsri_gloo_group *g)
{
    pthread_mutex_lock(&g->comm->root->lock);
    bool parting = g->parting;
    pthread_mutex_unlock(&g->comm->root->lock);
    return parting;
}

/* Asks the store, again and again, less and less often, for where `peer` listens for this rank. */
static tsr_status await_address(tsri_gloo_group *g, int peer, char *address, size_t *out_bytes)
{
    char key[192];
    tsri_gloo_pair_key(g, peer, g->pub.index, key, sizeof key);
    for (long ms = 1;; ms = ms < 32 ? 2 * ms : ms) {
        TSRI_TRY(tsri_gloo_check(g->comm->root));
        if (tsri_gloo_is_stopped(g))
            return tsri_gloo_fail_stopped();
        TSRI_TRY(tsri_gloo_store_poll(g->comm->root, key, true, address, TSRI_GLOO_ADDRESS_BYTES,
                                      out_bytes));
        if (*out_bytes)
            return TSR_OK;
        tsri_sleep_s(1e-3 * (double)ms);
    }
}

typedef struct listener {
    size_t bytes;
    char data[TSRI_GLOO_ADDRESS_BYTES];
} listener;

/* Says where this rank listens for each member, and finds where they do: all must come for that. */
static tsr_status pass_addresses(tsri_gloo_group *g, listener *a)
{
    tsri_gloo_root *root = g->comm->root;
    char key[192];
    for (int p = 0; p < g->pub.nranks; p++) {
        if (p == g->pub.index)
            continue;
        a->bytes = root->api->mesh_address(g->mesh, p, a->data);
        tsri_gloo_pair_key(g, g->pub.index, p, key, sizeof key);
        TSRI_TRY(tsri_gloo_store_set(root, key, a->data, a->bytes));
    }
    for (int p = 0; p < g->pub.nranks; p++) {
        if (p == g->pub.index)
            continue;
        __atomic_store_n(&g->where.at, p, __ATOMIC_RELAXED);
        TSRI_TRY(await_address(g, p, a[p].data, &a[p].bytes));
        __atomic_fetch_add(&g->where.moved, 1, __ATOMIC_RELAXED);
    }
    return TSR_OK;
}

/* Connects the pairs of members in order: each waits for those before it alone. */
static tsr_status connect_pairs(tsri_gloo_group *g, const tsri_gloo_job *job, const listener *a)
{
    tsri_gloo_error err;
    for (int p = 0; p < g->pub.nranks; p++) {
        if (p == g->pub.index)
            continue;
        __atomic_store_n(&g->where.at, p, __ATOMIC_RELAXED);
        tsri_gloo_result result =
            g->comm->root->api->mesh_connect(g->mesh, p, a[p].data, a[p].bytes, &err);
        if (result != TSRI_GLOO_OK)
            return tsri_gloo_backend(g, job, result, &err);
    }
    __atomic_store_n(&g->where.at, -1, __ATOMIC_RELAXED);
    return TSR_OK;
}

/* All of the group's members do this at once, each by its group's thread. */
static tsr_status connect_group(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    tsri_gloo_root *root = g->comm->root;
    tsri_gloo_error err = {""};
    tsri_gloo_mesh *mesh;
    tsri_gloo_result result = root->api->mesh_open(root->device, g->pub.nranks, g->pub.index,
                                                   root->world->timeout_s, &mesh, &err);
    if (result != TSRI_GLOO_OK)
        return tsri_gloo_backend(g, job, result, &err);
    pthread_mutex_lock(&root->lock);
    g->mesh = mesh;
    pthread_mutex_unlock(&root->lock);
    listener *a = tsri_mem_alloc(NULL, (size_t)g->pub.nranks * sizeof *a);
    TSRI_NEED(a);
    tsr_status status = pass_addresses(g, a);
    if (status == TSR_OK)
        status = connect_pairs(g, job, a);
    tsri_mem_free(a);
    return status;
}

/* --- the thread ------------------------------------------------------------------------------- */
static void finish_job(tsri_gloo_group *g, tsri_gloo_job *job, tsr_status status)
{
    tsri_gloo_root *root = g->comm->root;
    /* Ranks that disagree have all seen that they do, but where not all meet all. */
    bool seen = status == TSR_ERR_MISMATCH &&
                !(job->kind == TSRI_GLOO_CALL && job->coll->kind == TSRI_COLL_SEND_RECV);
    if (status != TSR_OK && !seen && !tsri_gloo_is_stopped(g) && !is_parting(g) && !g->poisoned &&
        job->kind != TSRI_GLOO_POISON) {
        int at = status == TSR_ERR_DEAD ? __atomic_load_n(&g->where.at, __ATOMIC_RELAXED) : -1;
        char text[1280];
        snprintf(text, sizeof text, "%s", tsr_last_error());
        status = tsri_gloo_fail(root, status, at < 0 ? -1 : g->pub.ranks[at], text);
    }
    if (status != TSR_OK)
        snprintf(job->text, sizeof job->text, "%s", tsr_last_error());
    pthread_mutex_lock(&root->lock);
    job->status = status;
    job->done = true;
    g->stop |= g->parting && status != TSR_OK;
    if (job->kind == TSRI_GLOO_CALL && status == TSR_OK)
        g->comm->stats.bytes_read[job->coll->kind] += job->bytes_read;
    g->first = job->next;
    g->ndone++;
    pthread_cond_broadcast(&g->done);
    pthread_mutex_unlock(&root->lock);
}

static tsr_status do_job(tsri_gloo_group *g, tsri_gloo_job *job, bool *connected)
{
    tsri_error_clear();
    TSRI_TRY(tsri_gloo_check(g->comm->root));
    if (tsri_gloo_is_stopped(g))
        return tsri_gloo_fail_stopped();
    if (g->poisoned)
        return tsri_gloo_check_over(g);
    if (!*connected) {
        TSRI_TRY(connect_group(g, job));
        *connected = true;
    }
    return tsri_gloo_do(g, job);
}

static void *work(void *arg)
{
    tsri_gloo_group *g = arg;
    tsri_gloo_root *root = g->comm->root;
    bool connected = false;
    for (;;) {
        pthread_mutex_lock(&root->lock);
        while (!g->first && !g->stop)
            pthread_cond_wait(&g->asked, &root->lock);
        tsri_gloo_job *job = g->first;
        pthread_mutex_unlock(&root->lock);
        if (!job)
            return NULL;
        finish_job(g, job, do_job(g, job, &connected));
    }
}

static tsr_status start_thread(tsri_gloo_group *g)
{
    int error = tsri_thread_start(&g->thread, "tsr-gloo", work, g);
    if (error)
        return tsri_fail(TSR_ERR_NO_MEMORY, "no thread for a group of %d ranks: %s", g->pub.nranks,
                         strerror(error));
    g->has_thread = true;
    return TSR_OK;
}

void tsri_gloo_group_stop(tsri_gloo_group *g)
{
    tsri_gloo_root *root = g->comm->root;
    if (!g->has_thread)
        return;
    pthread_mutex_lock(&root->lock);
    g->stop = true;
    if (g->first && g->mesh)
        root->api->mesh_interrupt(g->mesh);
    pthread_cond_broadcast(&g->asked);
    pthread_mutex_unlock(&root->lock);
    pthread_join(g->thread, NULL);
    g->has_thread = false;
}

/* --- jobs ------------------------------------------------------------------------------------- */
tsri_gloo_job *tsri_gloo_job_make(tsri_gloo_group *g, tsri_gloo_job_kind kind,
                                  const tsri_coll *coll)
{
    tsri_gloo_job *job = g->free_jobs;
    if (job) {
        g->free_jobs = job->next;
        *job = (tsri_gloo_job){0};
    } else {
        job = tsri_mem_alloc(&g->comm->root->world->mem, sizeof *job);
        if (!job)
            return NULL;
    }
    job->kind = kind;
    job->coll = coll;
    if (coll)
        tsri_call_fill(&job->record, coll, 0, coll->nseg);
    job->older = g->all;
    g->all = job;
    return job;
}

tsr_status tsri_gloo_job_ask(tsri_gloo_group *g, tsri_gloo_job *job)
{
    tsri_gloo_root *root = g->comm->root;
    if (!g->has_thread)
        TSRI_TRY(start_thread(g));
    job->number = ++g->jobs;
    pthread_mutex_lock(&root->lock);
    if (g->first)
        g->last->next = job;
    else
        g->first = job;
    g->last = job;
    pthread_cond_signal(&g->asked);
    pthread_mutex_unlock(&root->lock);
    return TSR_OK;
}

void tsri_gloo_job_free(tsri_gloo_group *g, tsri_gloo_job *job)
{
    tsri_gloo_job **at = &g->all;
    while (*at != job)
        at = &(*at)->older;
    *at = job->older;
    job->next = g->free_jobs;
    g->free_jobs = job;
}

static void free_memory(tsri_gloo_group *g)
{
    while (g->all)
        tsri_gloo_job_free(g, g->all);
    while (g->free_jobs) {
        tsri_gloo_job *job = g->free_jobs;
        g->free_jobs = job->next;
        tsri_mem_free(job);
    }
    while (g->known) {
        tsri_gloo_call *call = g->known;
        g->known = call->next;
        tsri_gloo_call_free(g, call);
    }
    tsri_gloo_moves_finish(g, &g->meeting);
    tsri_gloo_moves_finish(g, &g->moves);
    tsri_mem_free(g->room.staging);
    tsri_mem_free(g->room.pieces);
}

void tsri_gloo_group_free(tsri_gloo_group *g)
{
    tsri_gloo_root *root = g->comm->root;
    tsri_gloo_group_stop(g);
    pthread_mutex_lock(&root->lock);
    tsri_gloo_group **at = &root->groups;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    pthread_mutex_unlock(&root->lock);
    free_memory(g);
    if (g->mesh)
        root->api->mesh_close(g->mesh);
    pthread_cond_destroy(&g->asked);
    pthread_cond_destroy(&g->done);
    tsri_mem_free(g);
}
