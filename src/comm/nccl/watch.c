/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/nccl/watch.h"
#include "src/core/clock.h"
#include "src/core/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* A thing that a mark may name. */
typedef struct named {
    const char *kind;
    char rest[256]; /* " 'grad bucket 3' (model.c:31) of ranks [0,1]" */
    int next_free;
} named;

/* A lane as it was seen last. */
typedef struct seen {
    unsigned long long begun, done;
    double since;
} seen;

enum { MAX_MARKS = 4 };

struct tsri_watch {
    tsr_world *world;
    const tsri_watch_ops *ops;
    void *arg;
    int nmarks;
    const volatile tsri_nccl_mark *marks;
    seen seen[MAX_MARKS];
    pthread_t thread;
    pthread_mutex_t library; /* held by who uses the library */
    pthread_mutex_t lock;    /* of what is below */
    pthread_cond_t wake;
    bool ends, told; /* told: it has failed, and the other ranks know */
    named *names;
    int nnames, cnames, free_name; /* the first free one plus 1 */
    atomic_bool failed;            /* status and text don't change any more */
    tsr_status status;
    char text[1024];
};

/* --- names ------------------------------------------------------------------------------------ */
tsr_status tsri_watch_name(tsri_watch *w, const tsri_group *g, const tsri_coll *coll, int *out_name)
{
    named new_name = {.kind = tsri_coll_kind_name(coll->kind)};
    char ranks[96], place[80] = "";
    if (coll->loc.file)
        snprintf(place, sizeof place, " (%.48s:%d)", tsri_basename(coll->loc.file), coll->loc.line);
    snprintf(new_name.rest, sizeof new_name.rest, " '%.64s'%s of ranks %s",
             coll->what ? coll->what : "", place,
             tsri_ranks_text(g->nranks, g->ranks, ranks, sizeof ranks));
    pthread_mutex_lock(&w->lock);
    int name = w->free_name - 1;
    if (name >= 0)
        w->free_name = w->names[name].next_free;
    else if (tsri_mem_grow(&w->world->mem, (void **)&w->names, w->nnames, &w->cnames,
                           sizeof *w->names))
        name = w->nnames++;
    if (name >= 0)
        w->names[name] = new_name;
    pthread_mutex_unlock(&w->lock);
    if (name < 0)
        return TSR_ERR_NO_MEMORY;
    *out_name = name;
    return TSR_OK;
}

void tsri_watch_unname(tsri_watch *w, int name)
{
    pthread_mutex_lock(&w->lock);
    w->names[name].next_free = w->free_name;
    w->free_name = name + 1;
    pthread_mutex_unlock(&w->lock);
}

/* --- failing ---------------------------------------------------------------------------------- */
tsr_status tsri_watch_check(tsri_watch *w)
{
    if (!atomic_load(&w->failed))
        return TSR_OK;
    return tsri_fail(w->status, "%s", w->text);
}

tsr_status tsri_watch_enter(tsri_watch *w)
{
    /* A thread that stops the library's work holds the lock, and may wait for what this thread
     * alone can free. */
    while (pthread_mutex_trylock(&w->library) != 0) {
        TSRI_TRY(tsri_watch_check(w));
        sched_yield();
    }
    tsr_status status = tsri_watch_check(w);
    if (status != TSR_OK)
        pthread_mutex_unlock(&w->library);
    return status;
}

void tsri_watch_leave(tsri_watch *w)
{
    pthread_mutex_unlock(&w->library);
}

static bool note(tsri_watch *w, tsr_status status, const char *text)
{
    pthread_mutex_lock(&w->lock);
    bool first = !atomic_load(&w->failed);
    if (first) {
        w->status = status;
        snprintf(w->text, sizeof w->text, "%s", text);
        atomic_store(&w->failed, true);
    }
    pthread_mutex_unlock(&w->lock);
    return first;
}

tsr_status tsri_watch_fail(tsri_watch *w, tsr_status status, const char *text)
{
    if (note(w, status, text)) {
        if (w->status != TSR_ERR_REMOTE)
            w->world->comm->ops->abort(w->world->comm, w->text);
        pthread_mutex_lock(&w->lock);
        w->told = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
    }
    return tsri_watch_check(w);
}

/* --- the thread ------------------------------------------------------------------------------- */
static void fail_late(tsri_watch *w, int mark, unsigned long long number)
{
    char text[512];
    unsigned long long name = w->marks[mark].call;
    pthread_mutex_lock(&w->lock);
    const named *n = name < (unsigned long long)w->nnames ? &w->names[name] : NULL;
    snprintf(text, sizeof text,
             "rank %d: %s #%llu%s did not finish within %g s: some rank did not come to it, or "
             "came to another call",
             w->world->rank, n ? n->kind : "a collective", number, n ? n->rest : "",
             w->world->timeout_s);
    pthread_mutex_unlock(&w->lock);
    tsri_watch_fail(w, TSR_ERR_TIMEOUT, text);
}

static void look_at_marks(tsri_watch *w)
{
    double now = tsri_now_s();
    for (int i = 0; i < w->nmarks; i++) {
        seen *s = &w->seen[i];
        unsigned long long begun = w->marks[i].begun, done = w->marks[i].done;
        if (begun == done || begun != s->begun || done != s->done)
            *s = (seen){begun, done, now};
        else if (now - s->since > w->world->timeout_s)
            fail_late(w, i, begun);
    }
}

static void look(tsri_watch *w)
{
    tsri_comm *host = w->world->comm;
    tsr_status status = host->ops->check ? host->ops->check(host) : TSR_OK;
    if (status == TSR_OK && pthread_mutex_trylock(&w->library) == 0) {
        status = w->ops->look(w->arg);
        pthread_mutex_unlock(&w->library);
    }
    if (status != TSR_OK)
        tsri_watch_fail(w, status, tsr_last_error());
    else
        look_at_marks(w);
}

/* A tenth of the timeout, but not too often or seldom. */
static double period_of(const tsr_world *world)
{
    double s = world->timeout_s / 10;
    return s < 1e-3 ? 1e-3 : s > 0.1 ? 0.1 : s;
}

/* The rank's thread is in the library for moments only, unless the library itself hangs. */
static bool stop_soon(tsri_watch *w)
{
    for (int i = 0; i < 1000; i++) {
        if (pthread_mutex_trylock(&w->library) == 0) {
            w->ops->stop(w->arg);
            pthread_mutex_unlock(&w->library);
            return true;
        }
        tsri_sleep_s(1e-3);
    }
    return false;
}

/* Between lock and unlock. */
static void sleep_a_while(tsri_watch *w)
{
    const struct timespec t = tsri_in_s(period_of(w->world));
    pthread_cond_timedwait(&w->wake, &w->lock, &t);
}

static void *run(void *arg)
{
    tsri_watch *w = arg;
    bool stopped = false;
    pthread_mutex_lock(&w->lock);
    while (!w->ends || (w->told && !stopped)) {
        if (!w->told)
            sleep_a_while(w);
        else if (stopped)
            pthread_cond_wait(&w->wake, &w->lock);
        bool stops = w->told && !stopped, looks = !w->ends && !atomic_load(&w->failed);
        pthread_mutex_unlock(&w->lock);
        if (stops)
            stopped = stop_soon(w);
        else if (looks)
            look(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void finish(tsri_watch *w)
{
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->library);
    tsri_mem_free(w->names);
    tsri_mem_free(w);
}

tsr_status tsri_watch_create(tsr_world *world, int nmarks, const tsri_nccl_mark *marks,
                             const tsri_watch_ops *ops, void *arg, tsri_watch **out_watch)
{
    tsri_watch *w = tsri_mem_alloc(&world->mem, sizeof *w);
    TSRI_NEED(w);
    w->world = world;
    w->ops = ops;
    w->arg = arg;
    w->nmarks = nmarks < MAX_MARKS ? nmarks : MAX_MARKS;
    w->marks = marks;
    pthread_mutex_init(&w->library, NULL);
    pthread_mutex_init(&w->lock, NULL);
    tsri_cond_init(&w->wake);
    int rc = tsri_thread_start(&w->thread, "tsr-watch", run, w);
    if (rc) {
        finish(w);
        return tsri_fail(TSR_ERR_NO_MEMORY, "can't start the watchdog's thread: %s", strerror(rc));
    }
    *out_watch = w;
    return TSR_OK;
}

void tsri_watch_destroy(tsri_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    finish(w);
}
