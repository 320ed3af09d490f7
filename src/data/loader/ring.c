/* SPDX-License-Identifier: Apache-2.0 */
#include "src/data/loader/ring.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "src/core/thread.h"

struct tsri_ring {
    tsri_ring_fn *fn;
    void *arg;
    int nslots, nthreads;
    size_t slot_bytes;
    char *slots;
    bool *ready; /* [nslots] */
    pthread_t *threads;

    pthread_mutex_t lock; /* over what follows, and ready[] */
    pthread_cond_t work;  /* there may be an item to make, or it is time to stop */
    pthread_cond_t done;  /* an item was made */
    int64_t next;         /* the item that the next free thread makes */
    int64_t taken; /* the item that the consumer takes next: its slot is the oldest one in use */
    int64_t end;
    int busy;
    bool stop;
};

static void *slot_of(const tsri_ring *r, int64_t item)
{
    return r->slots + (size_t)(item % r->nslots) * r->slot_bytes;
}

static void *work_loop(void *arg)
{
    tsri_ring *r = arg;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->stop && !(r->next < r->end && r->next < r->taken + r->nslots))
            pthread_cond_wait(&r->work, &r->lock);
        if (r->stop)
            break;
        int64_t item = r->next++;
        r->busy++;
        pthread_mutex_unlock(&r->lock);
        r->fn(r->arg, item, slot_of(r, item));
        pthread_mutex_lock(&r->lock);
        r->busy--;
        r->ready[item % r->nslots] = true;
        pthread_cond_signal(&r->done);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static tsr_status start_threads(tsri_ring *r, int nthreads)
{
    int error = 0;
    while (r->nthreads < nthreads && !error) {
        error = tsri_thread_start(&r->threads[r->nthreads], "tsr-ring", work_loop, r);
        if (!error)
            r->nthreads++;
    }
    return error ? tsri_fail(TSR_ERR_BACKEND, "can't start a loader's thread: %s", strerror(error))
                 : TSR_OK;
}

tsr_status tsri_ring_create(tsri_mem *mem, int nslots, size_t slot_bytes, int nthreads,
                            tsri_ring_fn *fn, void *arg, tsri_ring **out_ring)
{
    tsri_ring *r = tsri_mem_alloc(mem, sizeof *r);
    TSRI_NEED(r);
    r->fn = fn;
    r->arg = arg;
    r->nslots = nslots;
    r->slot_bytes = slot_bytes;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->done, NULL);
    r->slots = tsri_mem_alloc(mem, (size_t)nslots * slot_bytes);
    r->ready = r->slots ? tsri_mem_alloc(mem, (size_t)nslots * sizeof *r->ready) : NULL;
    r->threads = r->ready ? tsri_mem_alloc(mem, (size_t)nthreads * sizeof *r->threads) : NULL;
    tsr_status status = r->threads ? start_threads(r, nthreads) : TSR_ERR_NO_MEMORY;
    if (status != TSR_OK) {
        tsri_ring_destroy(r);
        return status;
    }
    *out_ring = r;
    return TSR_OK;
}

void tsri_ring_destroy(tsri_ring *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->nthreads; i++)
        pthread_join(r->threads[i], NULL);
    pthread_cond_destroy(&r->done);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    tsri_mem_free(r->slots);
    tsri_mem_free(r->ready);
    tsri_mem_free(r->threads);
    tsri_mem_free(r);
}

void tsri_ring_pause(tsri_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->end = r->next;
    while (r->busy)
        pthread_cond_wait(&r->done, &r->lock);
    memset(r->ready, 0, (size_t)r->nslots * sizeof *r->ready);
    pthread_mutex_unlock(&r->lock);
}

void tsri_ring_start(tsri_ring *r, int64_t first, int64_t end)
{
    pthread_mutex_lock(&r->lock);
    assert(!r->busy);
    r->next = r->taken = first;
    r->end = end;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
}

const void *tsri_ring_take(tsri_ring *r)
{
    pthread_mutex_lock(&r->lock);
    assert(r->taken < r->end);
    while (!r->ready[r->taken % r->nslots])
        pthread_cond_wait(&r->done, &r->lock);
    const void *slot = slot_of(r, r->taken);
    pthread_mutex_unlock(&r->lock);
    return slot;
}

void tsri_ring_release(tsri_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->ready[r->taken % r->nslots] = false;
    r->taken++;
    pthread_cond_signal(&r->work);
    pthread_mutex_unlock(&r->lock);
}
