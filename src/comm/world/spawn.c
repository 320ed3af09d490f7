/* SPDX-License-Identifier: Apache-2.0 */
/* Thread ranks. */
#include "src/comm/world/make.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct spawn {
    tsr_rank_fn *fn;
    void *arg;
    tsr_world_opts opts;
    tsri_arena arena;
    /* The first rank that failed by itself; failing that, the first that failed. */
    pthread_mutex_t lock;
    tsr_status status;
    int rank;
    char text[3800];
} spawn;

typedef struct thread_rank {
    spawn *all;
    int rank;
    pthread_t thread;
} thread_rank;

static void note_failure(spawn *s, int rank, tsr_status status)
{
    pthread_mutex_lock(&s->lock);
    if (s->status == TSR_OK || (s->status == TSR_ERR_REMOTE && status != TSR_ERR_REMOTE)) {
        s->status = status;
        s->rank = rank;
        snprintf(s->text, sizeof s->text, "%s", tsr_last_error());
    }
    pthread_mutex_unlock(&s->lock);
}

static void *run_rank(void *arg)
{
    thread_rank *t = arg;
    spawn *s = t->all;
    tsr_world *world;
    tsri_error_clear();
    tsr_status status =
        tsri_world_make(&s->opts, s->arena.nranks, t->rank, t->rank, s->arena, false, NULL, &world);
    if (status != TSR_OK) {
        note_failure(s, t->rank, status);
        tsri_arena_abort(&s->arena, t->rank, tsr_last_error());
        return NULL;
    }
    status = tsri_world_run(world, s->fn, s->arg);
    if (status != TSR_OK) {
        note_failure(s, t->rank, status);
        tsr_world_abort(world, tsr_last_error());
    }
    tsr_world_destroy(world);
    return NULL;
}

/* Starts the ranks, as far as it can, and waits for those that run. */
static void run_all(spawn *s, thread_rank *ranks)
{
    int n = s->arena.nranks, started = 0, rc = 0;
    for (; started < n; started++) {
        ranks[started] = (thread_rank){.all = s, .rank = started};
        rc = pthread_create(&ranks[started].thread, NULL, run_rank, &ranks[started]);
        if (rc)
            break;
    }
    if (rc) {
        note_failure(s, started,
                     tsri_fail(TSR_ERR_NO_MEMORY, "can't start a thread: %s", strerror(rc)));
        tsri_arena_abort(&s->arena, started, tsr_last_error());
    }
    for (int i = 0; i < started; i++)
        pthread_join(ranks[i].thread, NULL);
}

tsr_status tsr_spawn_with(int nranks, tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts)
{
    if (nranks < 1 || nranks > TSRI_ARENA_MAX_RANKS)
        return tsri_fail(TSR_ERR_INVALID, "tsr_spawn of %d ranks: expected 1 to %d", nranks,
                         TSRI_ARENA_MAX_RANKS);
    if (!fn)
        return tsri_fail(TSR_ERR_INVALID, "tsr_spawn without a function");
    spawn s = {.fn = fn, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER};
    TSRI_TRY(tsri_world_opts_resolve(opts, nranks, &s.opts));
    TSRI_TRY(tsri_arena_make(nranks, s.opts.arena_bytes, &s.arena));
    thread_rank *ranks = tsri_mem_alloc(NULL, (size_t)nranks * sizeof *ranks);
    if (!ranks) {
        tsri_arena_unmap(&s.arena);
        return TSR_ERR_NO_MEMORY;
    }
    run_all(&s, ranks);
    tsri_mem_free(ranks);
    /* The ranks that failed have left theirs. */
    for (int r = 0; r < nranks && s.status != TSR_OK; r++)
        tsri_flight_leave(
            tsri_arena_flight(&s.arena, r),
            &(tsri_flight_about){
                .rank = r, .nranks = nranks, .log = s.opts.log, .log_arg = s.opts.log_arg});
    tsri_arena_unmap(&s.arena);
    pthread_mutex_destroy(&s.lock);
    if (s.status == TSR_OK)
        return TSR_OK;
    return tsri_fail(s.status, "rank %d: %s", s.rank, s.text);
}

tsr_status tsr_spawn(int nranks, tsr_rank_fn *fn, void *arg)
{
    return tsr_spawn_with(nranks, fn, arg, NULL);
}
