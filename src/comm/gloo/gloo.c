/* SPDX-License-Identifier: Apache-2.0 */
/* Loading Gloo, making its communicator, and that one's vtable. */
#include "src/comm/flight/flight.h"
#include "src/comm/gloo/inside.h"
#include "src/core/library.h"
#include "src/core/thread.h"

#include <stdio.h>
#include <string.h>

/* --- the module ------------------------------------------------------------------------------- */
/* The result of loading, for all threads: the module stays loaded while the process lives. */
static struct {
    pthread_once_t once;
    const tsri_gloo_api *api;
    char why[1024];
} loaded = {.once = PTHREAD_ONCE_INIT};

static bool take(void *entry)
{
    tsri_gloo_entry_fn *fn;
    *(void **)&fn = entry;
    const tsri_gloo_api *api = fn();
    if (!api || api->abi != TSRI_GLOO_ABI || api->size != sizeof *api)
        return false;
    loaded.api = api;
    return true;
}

static void load(void)
{
    static const tsri_library library = {"libtessera_gloo.so", "TESSERA_GLOO_MODULE",
                                         TSRI_GLOO_ENTRY, take};
    tsri_library_load(&library, loaded.why, sizeof loaded.why);
}

static tsr_status find_api(const tsri_gloo_api **out_api)
{
    pthread_once(&loaded.once, load);
    if (!loaded.api)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "ranks on several machines talk through Gloo, and its module could not be "
                         "loaded: %s. It is built where Gloo is found (Debian: libgloo-dev to "
                         "build, libgloo0 to run) and is looked for beside the library or where "
                         "TESSERA_GLOO_MODULE says; ranks of one machine need none of it",
                         loaded.why);
    *out_api = loaded.api;
    return TSR_OK;
}

/* --- the vtable ------------------------------------------------------------------------------- */
static tsri_gloo *of(tsri_comm *c)
{
    return (tsri_gloo *)c->priv;
}

static tsri_gloo_group *group_of(tsri_group *g)
{
    return (tsri_gloo_group *)g->priv;
}

static tsri_gloo_job *job_of(const tsri_ticket *ticket)
{
    return (tsri_gloo_job *)(uintptr_t)ticket->priv[0];
}

/* The plans' own limit; barriers have none. */
static tsr_status check_size(const tsri_group *pub, const tsri_coll *coll)
{
    if (pub->nranks <= TSRI_PLAN_MAX_PARTS || coll->kind == TSRI_COLL_BARRIER)
        return TSR_OK;
    return tsri_fail_at(coll->loc, TSR_ERR_UNSUPPORTED,
                        "%s '%s' of a group of %d ranks: over Gloo a group of at most %d ranks can "
                        "do that",
                        tsri_coll_kind_name(coll->kind), coll->what ? coll->what : "", pub->nranks,
                        TSRI_PLAN_MAX_PARTS);
}

static tsr_status start(tsri_group *pub, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    tsri_gloo_group *g = group_of(pub);
    tsri_gloo_root *root = g->comm->root;
    tsri_gloo_job *job = NULL;
    TSRI_TRY(tsri_gloo_check(root));
    TSRI_TRY(tsri_gloo_check_over(g));
    TSRI_TRY(check_size(pub, coll));
    TSRI_TRY(tsri_coll_check_here(coll, pub->nranks, pub->index, true));
    if (g->started - g->finished >= TSRI_CALL_RING)
        return tsri_fail_at(coll->loc, TSR_ERR_STATE,
                            "%s '%s': at most %d calls of a group may be under way; finish some "
                            "first",
                            tsri_coll_kind_name(coll->kind), coll->what ? coll->what : "",
                            TSRI_CALL_RING);
    if (pub->nranks > 1) {
        /* A member that only gives runs ahead of its readers, so far. */
        TSRI_TRY(tsri_gloo_jobs_wait(g, TSRI_CALL_RING - 1));
        job = tsri_gloo_job_make(g, TSRI_GLOO_CALL, coll);
        TSRI_NEED(job);
        job->record.seq = g->started + 1;
        job->early = tsri_coll_only_gives(coll, 0, coll->nseg, pub->index);
        job->flight = tsri_flight_begin(root->world->flight, pub->flight, job->record.seq,
                                        (int)coll->kind, coll, job->record.bytes, job->record.hash);
        tsr_status status = tsri_gloo_job_ask(g, job);
        if (status != TSR_OK) {
            tsri_flight_refused(root->world->flight, job->flight);
            tsri_gloo_job_free(g, job);
            return status;
        }
    }
    pthread_mutex_lock(&root->lock);
    g->comm->stats.calls[coll->kind]++;
    pthread_mutex_unlock(&root->lock);
    *out_ticket =
        (tsri_ticket){.seq = ++g->started, .coll = coll, .priv = {(uint64_t)(uintptr_t)job}};
    return TSR_OK;
}

static tsr_status gloo_start(tsri_group *pub, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    tsr_status status = start(pub, coll, out_ticket);
    return status == TSR_OK ? TSR_OK
                            : tsri_flight_fail_start(pub->comm->world, coll->flight, status);
}

static tsr_status finish(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_gloo_group *g = group_of(pub);
    const tsri_coll *coll = ticket->coll;
    tsri_gloo_job *job = job_of(ticket);
    TSRI_TRY(tsri_coll_check_turn(coll, ticket->seq, g->finished + 1));
    g->finished++;
    if (!job || job->early)
        tsri_gloo_do_own(g, coll);
    return job && !job->early ? tsri_gloo_job_wait_pulled(g, job) : TSR_OK;
}

static tsr_status gloo_finish(tsri_group *pub, tsri_ticket *ticket)
{
    const tsri_gloo_job *job = job_of(ticket);
    return tsri_flight_end(pub->comm->world, job ? job->flight : 0, finish(pub, ticket));
}

static tsr_status gloo_release(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_gloo_group *g = group_of(pub);
    tsri_gloo_job *job = job_of(ticket);
    if (!job)
        return TSR_OK;
    uint64_t number = job->flight;
    tsr_status status = tsri_gloo_job_wait(g, job);
    tsri_gloo_job_free(g, job);
    ticket->priv[0] = 0;
    return status == TSR_OK ? TSR_OK : tsri_flight_fail(pub->comm->world, number, status);
}

static bool gloo_released(tsri_group *pub, const tsri_ticket *ticket)
{
    tsri_gloo_group *g = group_of(pub);
    const tsri_gloo_job *job = job_of(ticket);
    pthread_mutex_lock(&g->comm->root->lock);
    bool done = !job || job->done;
    pthread_mutex_unlock(&g->comm->root->lock);
    return done;
}

/* Members hear of it when they come to their next call, for which they meet; where calls were
 * prepared they would not meet, and so all is over. */
static void gloo_poison(tsri_group *pub, tsr_status status, const char *text)
{
    tsri_gloo_group *g = group_of(pub);
    char last[4096];
    snprintf(last, sizeof last, "%s", tsr_last_error());
    bool is_new = tsri_gloo_check(g->comm->root) == TSR_OK && tsri_gloo_check_over(g) == TSR_OK;
    if (is_new && g->nprepared) {
        tsri_gloo_fail(g->comm->root, status, -1, text);
    } else if (is_new) {
        tsri_gloo_set_over(g, status, text);
        tsri_gloo_job *job = pub->nranks > 1 ? tsri_gloo_job_make(g, TSRI_GLOO_POISON, NULL) : NULL;
        if (job)
            job->record.kind = TSRI_COLL_POISON_;
        if (job && tsri_gloo_job_ask(g, job) != TSR_OK)
            tsri_gloo_job_free(g, job);
    }
    tsri_fail(TSR_OK, "%s", last);
}

static tsr_status gloo_prepare(tsri_group *pub, tsri_coll *coll)
{
    tsri_gloo_group *g = group_of(pub);
    TSRI_TRY(tsri_gloo_check(g->comm->root));
    TSRI_TRY(check_size(pub, coll));
    TSRI_TRY(tsri_coll_check_here(coll, pub->nranks, pub->index, true));
    if (pub->nranks == 1)
        return TSR_OK;
    tsri_gloo_job *job = tsri_gloo_job_make(g, TSRI_GLOO_PREPARE, coll);
    if (!job) /* the others wait */
        return tsri_gloo_fail(g->comm->root, TSR_ERR_NO_MEMORY, -1, tsr_last_error());
    job->record.seq = g->started + 1;
    tsr_status status = tsri_gloo_job_ask(g, job);
    if (status == TSR_OK)
        status = tsri_gloo_job_wait(g, job);
    if (status == TSR_OK) {
        coll->prepared = job->prepared;
        g->nprepared++;
    }
    tsri_gloo_job_free(g, job);
    return status;
}

static void gloo_unprepare(tsri_group *pub, tsri_coll *coll)
{
    group_of(pub)->nprepared -= coll->prepared != NULL;
    tsri_gloo_call_free(group_of(pub), coll->prepared);
    coll->prepared = NULL;
}

static tsr_status gloo_exchange(tsri_comm *c, const void *mine, size_t bytes, void *all)
{
    tsri_gloo *comm = of(c);
    tsri_gloo_group *g;
    TSRI_TRY(tsri_gloo_check(comm->root));
    if (bytes > TSRI_EXCHANGE_MAX)
        return tsri_fail(TSR_ERR_INVALID, "exchange of %zu bytes: at most %d", bytes,
                         TSRI_EXCHANGE_MAX);
    if (c->world->nranks == 1) {
        if (bytes)
            memcpy(all, mine, bytes);
        return TSR_OK;
    }
    TSRI_TRY(tsri_gloo_group_agree(comm, &g));
    tsri_gloo_job *job = tsri_gloo_job_make(g, TSRI_GLOO_EXCHANGE, NULL);
    TSRI_NEED(job);
    job->mine = mine;
    job->all = all;
    job->bytes = bytes;
    job->record.kind = TSRI_COLL_EXCHANGE_;
    job->record.bytes = bytes;
    job->record.seq = ++g->started;
    job->flight = tsri_flight_begin(c->world->flight, g->pub.flight, g->started,
                                    TSRI_COLL_EXCHANGE_, &(tsri_coll){0}, bytes, 0);
    uint64_t number = job->flight;
    tsr_status status = tsri_gloo_job_ask(g, job);
    if (status == TSR_OK)
        status = tsri_gloo_job_wait(g, job);
    tsri_gloo_job_free(g, job);
    return tsri_flight_end(c->world, number, status);
}

/* Leaves the thread's error text as it is. */
static void gloo_abort(tsri_comm *c, const char *text)
{
    char last[4096];
    snprintf(last, sizeof last, "%s", tsr_last_error());
    tsri_gloo_fail(of(c)->root, TSR_ERR_REMOTE, -1, text);
    tsri_fail(TSR_OK, "%s", last);
}

static tsr_status gloo_check(tsri_comm *c)
{
    return tsri_gloo_check(of(c)->root);
}

static void gloo_stats(tsri_comm *c, tsri_comm_stats *out_stats)
{
    pthread_mutex_lock(&of(c)->root->lock);
    *out_stats = of(c)->stats;
    pthread_mutex_unlock(&of(c)->root->lock);
}

/* --- making and ending ------------------------------------------------------------------------ */
static void free_root(tsri_gloo_root *root)
{
    tsri_gloo_unwatch(root);
    if (root->device)
        root->api->device_close(root->device);
    pthread_cond_destroy(&root->changed);
    pthread_mutex_destroy(&root->lock);
    pthread_mutex_destroy(&root->store_lock);
    tsri_mem_free(root);
}

static void gloo_destroy(tsri_comm *c)
{
    if (!c)
        return;
    tsri_gloo *comm = of(c);
    tsri_gloo_root *root = comm->root;
    if (root->watches && !atomic_load(&root->ended)) {
        char key[96];
        tsri_gloo_left_key(comm, root->world->rank, key, sizeof key);
        tsri_gloo_store_set(root, key, "1", 1);
    }
    while (comm->groups) {
        tsri_gloo_group *next = comm->groups->next_own;
        tsri_gloo_group_free(comm->groups);
        comm->groups = next;
    }
    if (comm->owns_root)
        free_root(root);
    tsri_mem_free(comm);
}

static tsr_status gloo_twin(tsri_comm *c, tsri_comm **out_comm);

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "gloo",
    .group = tsri_gloo_group_find,
    .start = gloo_start,
    .finish = gloo_finish,
    .release = gloo_release,
    .prepare = gloo_prepare,
    .unprepare = gloo_unprepare,
    .exchange = gloo_exchange,
    .abort = gloo_abort,
    .stats = gloo_stats,
    .destroy = gloo_destroy,
    .check = gloo_check,
    .twin = gloo_twin,
    .released = gloo_released,
    .poison = gloo_poison,
    .leave = tsri_gloo_leave,
};

static tsr_status make_comm(tsri_gloo_root *root, tsri_gloo **out_comm)
{
    tsri_gloo *comm = tsri_mem_alloc(&root->world->mem, sizeof *comm);
    TSRI_NEED(comm);
    comm->pub = (tsri_comm){.ops = &ops, .world = root->world, .priv = comm, .early = true};
    comm->root = root;
    comm->twin = root->twins++;
    *out_comm = comm;
    return TSR_OK;
}

static tsr_status gloo_twin(tsri_comm *c, tsri_comm **out_comm)
{
    tsri_gloo *twin;
    TSRI_TRY(make_comm(of(c)->root, &twin));
    *out_comm = &twin->pub;
    return TSR_OK;
}

/* A rank may meet others in one store several times, always together with them. */
static tsr_status number_world(tsri_gloo_root *root)
{
    /* The longest wait for a request. Where the server has stopped without a word, nobody is to
     * wait much longer than the world's timeout to be told so. */
    const double request_s = 20;
    char key[64];
    int64_t number;
    TSRI_TRY(tsr_store_set_timeout(root->store, request_s));
    snprintf(key, sizeof key, "gloo/worlds/%d", root->world->rank);
    TSRI_TRY(tsr_store_add(root->store, key, 1, &number));
    snprintf(root->key, sizeof root->key, "gloo/%lld/", (long long)number);
    return TSR_OK;
}

static tsr_status make_root(tsr_world *world, tsr_store *store, const char *address,
                            tsri_gloo_root **out_root)
{
    const tsri_gloo_api *api = NULL;
    tsri_gloo_error err = {""};
    TSRI_TRY(find_api(&api));
    tsri_gloo_root *root = tsri_mem_alloc(&world->mem, sizeof *root);
    TSRI_NEED(root);
    root->world = world;
    root->store = store;
    root->api = api;
    pthread_mutex_init(&root->store_lock, NULL);
    pthread_mutex_init(&root->lock, NULL);
    tsri_cond_init(&root->changed);
    tsr_status status = number_world(root);
    if (status == TSR_OK && api->device_open(address, &root->device, &err) != TSRI_GLOO_OK)
        status = tsri_fail(TSR_ERR_BACKEND, "Gloo can't listen at the address '%s': %s", address,
                           err.text);
    if (status == TSR_OK && world->nranks > 1)
        status = tsri_gloo_watch(root);
    if (status != TSR_OK) {
        free_root(root);
        return status;
    }
    *out_root = root;
    return TSR_OK;
}

tsr_status tsri_gloo_create(tsr_world *world, tsr_store *store, const char *address,
                            tsri_comm **out_comm)
{
    tsri_gloo_root *root;
    tsri_gloo *comm;
    TSRI_TRY(make_root(world, store, address, &root));
    tsr_status status = make_comm(root, &comm);
    if (status != TSR_OK) {
        free_root(root);
        return status;
    }
    comm->owns_root = true;
    status = gloo_exchange(&comm->pub, NULL, 0, NULL);
    if (status != TSR_OK) {
        gloo_destroy(&comm->pub);
        return status;
    }
    *out_comm = &comm->pub;
    return TSR_OK;
}
