/* SPDX-License-Identifier: Apache-2.0 */
#include "src/data/loader/crew.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "src/core/clock.h"
#include "src/core/thread.h"

typedef struct member {
    tsri_maker maker;
    struct tsri_crew *crew;
    pthread_t thread;
    pthread_cond_t work; /* there may be a batch to make, or it is time to go */
    /* Under the crew's lock: */
    int64_t next; /* batch that it makes next */
    bool is_busy; /* starting, or making a batch */
} member;

struct tsri_crew {
    const tsri_batch_spec *spec;
    tsri_mem *mem;
    int nworkers, nmembers; /* nmembers: at least 1, the caller */
    int nrunning;           /* threads */
    int nslots;
    tsri_batch_slot *slots;
    member *members;
    atomic_bool stop; /* makers: what you make is not wanted */

    pthread_mutex_t lock; /* over what follows, and the slots' is_done */
    pthread_cond_t done;  /* a batch was made, or a worker is idle */
    int64_t handed, taken;
    bool quit;
};

static tsri_batch_slot *slot_of(tsri_crew *c, int64_t number)
{
    return &c->slots[number % c->nslots];
}

/* --- workers ---------------------------------------------------------------------------------- */

static void *work_loop(void *arg)
{
    member *m = arg;
    tsri_crew *c = m->crew;
    tsri_maker_start(&m->maker);
    pthread_mutex_lock(&c->lock);
    m->is_busy = false;
    pthread_cond_signal(&c->done);
    for (;;) {
        while (!c->quit && m->next >= c->handed)
            pthread_cond_wait(&m->work, &c->lock);
        if (c->quit)
            break;
        tsri_batch_slot *slot = slot_of(c, m->next);
        m->is_busy = true;
        pthread_mutex_unlock(&c->lock);
        tsri_batch_make(&m->maker, slot);
        pthread_mutex_lock(&c->lock);
        m->is_busy = false;
        m->next += c->nworkers;
        slot->is_done = true;
        pthread_cond_signal(&c->done);
    }
    pthread_mutex_unlock(&c->lock);
    tsri_maker_finish(&m->maker);
    return NULL;
}

static void join(tsri_crew *c)
{
    pthread_mutex_lock(&c->lock);
    c->quit = true;
    for (int i = 0; i < c->nrunning; i++)
        pthread_cond_signal(&c->members[i].work);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->nrunning; i++)
        pthread_join(c->members[i].thread, NULL);
    c->nrunning = 0;
    c->quit = false;
}

static tsr_status start_threads(tsri_crew *c)
{
    int error = 0;
    while (c->nrunning < c->nworkers && !error) {
        member *m = &c->members[c->nrunning];
        m->is_busy = true;
        error = tsri_thread_start(&m->thread, "tsr-loader", work_loop, m);
        if (error)
            m->is_busy = false;
        else
            c->nrunning++;
    }
    if (!error)
        return TSR_OK;
    int started = c->nrunning;
    join(c);
    return tsri_fail(TSR_ERR_BACKEND, "can't start worker %d of %d: %s", started, c->nworkers,
                     strerror(error));
}

/* --- making and ending ------------------------------------------------------------------------ */

tsr_status tsri_crew_create(tsri_mem *mem, const tsri_batch_spec *spec, int nworkers, int nslots,
                            tsri_crew **out_crew)
{
    tsri_crew *c = tsri_mem_alloc(mem, sizeof *c);
    TSRI_NEED(c);
    c->spec = spec;
    c->mem = mem;
    c->nworkers = nworkers;
    c->nslots = nworkers ? nslots : 1;
    pthread_mutex_init(&c->lock, NULL);
    tsri_cond_init(&c->done);
    c->slots = tsri_mem_alloc(mem, (size_t)c->nslots * sizeof *c->slots);
    int nmembers = nworkers ? nworkers : 1;
    c->members = c->slots ? tsri_mem_alloc(mem, (size_t)nmembers * sizeof *c->members) : NULL;
    if (!c->members) {
        tsri_crew_destroy(c);
        return TSR_ERR_NO_MEMORY;
    }
    for (; c->nmembers < nmembers; c->nmembers++) {
        member *m = &c->members[c->nmembers];
        m->crew = c;
        m->maker.spec = spec;
        m->maker.stop = &c->stop;
        m->maker.mem = nworkers ? NULL : mem;
        tsri_cond_init(&m->work);
    }
    *out_crew = c;
    return TSR_OK;
}

void tsri_crew_destroy(tsri_crew *c)
{
    if (!c)
        return;
    if (c->members)
        tsri_crew_dismiss(c);
    for (int i = 0; i < c->nmembers; i++)
        pthread_cond_destroy(&c->members[i].work);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    for (int i = 0; c->slots && i < c->nslots; i++)
        tsri_slot_finish(c->spec, &c->slots[i]);
    tsri_mem_free(c->slots);
    tsri_mem_free(c->members);
    tsri_mem_free(c);
}

tsr_status tsri_crew_start(tsri_crew *c, int64_t epoch, uint64_t base_seed, int64_t first)
{
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->nmembers; i++) {
        member *m = &c->members[i];
        m->maker.worker.id = i;
        m->maker.worker.count = c->nworkers;
        m->maker.worker.epoch = epoch;
        m->maker.worker.seed = base_seed + (uint64_t)i;
        /* The first of its batches that isn't before `first`. */
        m->next = c->nworkers ? first + (i - first % c->nworkers + c->nworkers) % c->nworkers : 0;
    }
    c->handed = c->taken = first;
    pthread_mutex_unlock(&c->lock);
    if (!c->nworkers) {
        if (!c->members[0].maker.is_up)
            tsri_maker_start(&c->members[0].maker);
        return TSR_OK;
    }
    return c->nrunning ? TSR_OK : start_threads(c);
}

static bool any_busy(const tsri_crew *c)
{
    for (int i = 0; i < c->nmembers; i++)
        if (c->members[i].is_busy)
            return true;
    return false;
}

void tsri_crew_halt(tsri_crew *c)
{
    atomic_store(&c->stop, true);
    pthread_mutex_lock(&c->lock);
    c->handed = 0; /* not above any worker's next: none begins another */
    while (any_busy(c))
        pthread_cond_wait(&c->done, &c->lock);
    for (int i = 0; i < c->nslots; i++)
        c->slots[i].is_done = false;
    c->taken = 0;
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->stop, false);
}

void tsri_crew_dismiss(tsri_crew *c)
{
    tsri_crew_halt(c);
    if (c->nrunning)
        join(c);
    else if (!c->nworkers && c->members[0].maker.is_up)
        tsri_maker_finish(&c->members[0].maker);
}

/* --- handing out and taking ------------------------------------------------------------------- */

tsri_batch_slot *tsri_crew_slot(tsri_crew *c)
{
    tsri_batch_slot *slot = slot_of(c, c->handed);
    slot->number = c->handed;
    slot->status = TSR_OK;
    slot->rows = 0;
    atomic_store(&slot->row, -1);
    return slot;
}

void tsri_crew_hand(tsri_crew *c)
{
    pthread_mutex_lock(&c->lock);
    slot_of(c, c->handed)->is_done = false;
    c->handed++;
    if (c->nworkers)
        pthread_cond_signal(&c->members[(c->handed - 1) % c->nworkers].work);
    pthread_mutex_unlock(&c->lock);
}

int64_t tsri_crew_handed(const tsri_crew *c)
{
    return c->handed; /* the consumer alone changes it */
}

int64_t tsri_crew_taken(const tsri_crew *c)
{
    return c->taken;
}

int64_t tsri_crew_next_rows(tsri_crew *c)
{
    return slot_of(c, c->taken)->rows;
}

static tsr_status fail_late(const tsri_crew *c, const tsri_batch_slot *slot, double timeout_s)
{
    int id = (int)(slot->number % c->nworkers);
    int64_t row = atomic_load(&slot->row);
    char what[160];
    if (row < 0)
        snprintf(what, sizeof what, "has not begun it");
    else {
        double since = tsri_now_s() - 1e-9 * (double)atomic_load(&slot->since_ns);
        if (row == slot->rows)
            snprintf(what, sizeof what, "is in collate for %.1f s", since);
        else
            snprintf(what, sizeof what,
                     "is at sample %" PRId64 " (row %" PRId64 " of %" PRId64 ") for %.1f s",
                     slot->indices[row], row, slot->rows, since);
    }
    return tsri_fail(TSR_ERR_TIMEOUT,
                     "tsr_loader_next: batch %" PRId64
                     " was not made in %g s (timeout_s): worker %d of %d %s",
                     slot->number, timeout_s, id, c->nworkers, what);
}

static struct timespec deadline(double timeout_s)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (timeout_s > 1e9)
        timeout_s = 1e9;
    t.tv_sec += (time_t)timeout_s;
    t.tv_nsec += (long)((timeout_s - (double)(time_t)timeout_s) * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

tsr_status tsri_crew_take(tsri_crew *c, double timeout_s, tsri_batch_slot **out_slot)
{
    tsri_batch_slot *slot = slot_of(c, c->taken);
    if (!c->nworkers) {
        tsri_batch_make(&c->members[0].maker, slot);
        slot->is_done = true;
    }
    struct timespec until = deadline(timeout_s);
    pthread_mutex_lock(&c->lock);
    int error = 0;
    while (!slot->is_done && error != ETIMEDOUT)
        error = timeout_s > 0 ? pthread_cond_timedwait(&c->done, &c->lock, &until)
                              : pthread_cond_wait(&c->done, &c->lock);
    bool is_done = slot->is_done;
    c->taken += is_done;
    pthread_mutex_unlock(&c->lock);
    if (!is_done)
        return fail_late(c, slot, timeout_s);
    *out_slot = slot;
    return TSR_OK;
}
