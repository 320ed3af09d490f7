/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks under way: each group's queue, and the threads that work it off. */
#include "src/comm/collective/collective.h"
#include "src/comm/flight/flight.h"
#include "src/core/clock.h"
#include "src/core/live.h"
#include "src/core/thread.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static tsr_status run(tsr_group *g, tsri_task *task)
{
    if (tsri_group_is_over(g)) {
        tsri_flight_refused(g->engine->world->flight, task->flight);
        return tsri_group_fail_over(g);
    }
    tsr_status status = tsri_task_run(g, task);
    if (status != TSR_OK)
        /* A sender does not tell: another thread may be in a call of the inner group. */
        tsri_group_end_by(g, task->kind != TSRI_TASK_SEND, status);
    return status;
}

/* --- queues ----------------------------------------------------------------------------------- */

static tsri_queue *queue_of(tsr_group *g, const tsri_task *task)
{
    return task->kind == TSRI_TASK_SEND ? &g->sends : &g->queue;
}

static bool has_left(tsri_queue *q)
{
    return atomic_load_explicit(&q->left, memory_order_acquire) > 0;
}

/* Does the first task of a queue; the lock is held at both ends, but not between. */
static void run_first(tsr_group *g, tsri_queue *q)
{
    tsr_work *w = q->head;
    q->head = w->next;
    if (!q->head)
        q->tail = NULL;
    q->running = w;
    pthread_mutex_unlock(&g->lock);
    w->status = run(g, &w->task);
    pthread_mutex_lock(&g->lock);
    q->running = NULL;
    /* From here on the handle may be freed. */
    atomic_store(&w->done, true);
    atomic_fetch_sub(&q->left, 1);
    pthread_cond_broadcast(&g->changed);
}

static void *work_off(void *queue)
{
    tsri_queue *q = queue;
    tsr_group *g = q->group;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        if (q->head && !q->running)
            run_first(g, q);
        else if (g->stop && !q->head)
            break;
        else
            pthread_cond_wait(&g->changed, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static tsr_status start_thread(tsri_queue *q)
{
    if (q->has_thread)
        return TSR_OK;
    int rc = tsri_thread_start(&q->thread, "tsr-group", work_off, q);
    if (rc)
        return tsri_fail(TSR_ERR_NO_MEMORY, "can't start the thread of a group: %s", strerror(rc));
    q->has_thread = true;
    return TSR_OK;
}

/* The number of the first task that is not done; UINT64_MAX if all are. */
static uint64_t first_left(const tsri_queue *q)
{
    const tsr_work *w = q->running ? q->running : q->head;
    return w ? w->task.number : UINT64_MAX;
}

/* Returns when tasks before `number` are done, and does what of them nobody does. */
static void drain(tsr_group *g, tsri_queue *q, uint64_t number)
{
    if (!has_left(q))
        return;
    pthread_mutex_lock(&g->lock);
    while (first_left(q) < number) {
        if (q->head && !q->running)
            run_first(g, q);
        else
            pthread_cond_wait(&g->changed, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

/* --- handles ---------------------------------------------------------------------------------- */

void tsri_work_free(tsr_work *w)
{
    *w->link = w->newer;
    if (w->newer)
        w->newer->link = w->link;
    tsri_task_finish(w->group, &w->task);
    if (w->event)
        w->device->ops->event_destroy(w->device, w->event);
    tsri_mem_free(w->staged);
    tsri_live_free(w, TSRI_LIVE_WORK);
}

/* A handle with a copy of the task and its arrays. */
tsr_work *tsri_work_new(tsr_group *g, const tsri_task *task)
{
    size_t n = (size_t)g->nranks, lists = task->list ? n * sizeof *task->list : 0;
    size_t counts = task->src_counts ? n * sizeof *task->src_counts : 0;
    tsr_work *w =
        tsri_live_alloc(&g->engine->world->mem, sizeof *w + lists + 2 * counts, TSRI_LIVE_WORK);
    if (!w)
        return NULL;
    char *at = (char *)(w + 1);
    w->task = *task;
    memcpy(w->task.label, g->label, sizeof g->label);
    w->group = g;
    w->queue = queue_of(g, task);
    if (lists)
        w->task.list = memcpy(at, task->list, lists);
    if (counts) {
        w->task.src_counts = memcpy(at, task->src_counts, counts);
        w->task.dst_counts = memcpy(at + counts, task->dst_counts, counts);
    }
    w->newer = g->works;
    w->link = &g->works;
    if (w->newer)
        w->newer->link = &w->newer;
    g->works = w;
    return w;
}

static void put_into_queue(tsr_group *g, tsr_work *w)
{
    tsri_queue *q = w->queue;
    pthread_mutex_lock(&g->lock);
    if (q->tail)
        q->tail->next = w;
    else
        q->head = w;
    q->tail = w;
    atomic_fetch_add(&q->left, 1);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Whether a task waits for nobody. */
static bool goes_at_once(tsr_group *g, const tsri_task *task)
{
    return g->nranks == 1 ||
           (task->kind == TSRI_TASK_SEND && !has_left(&g->sends) && tsri_send_is_ready(g, task));
}

static tsr_status submit_async(tsr_group *g, const tsri_task *task, tsr_work **out_work)
{
    tsr_work *w = tsri_work_new(g, task);
    TSRI_NEED(w);
    tsr_status status = tsri_task_prepare(g, &w->task);
    bool now = status == TSR_OK && goes_at_once(g, &w->task);
    if (status == TSR_OK && !now)
        status = start_thread(w->queue);
    if (status != TSR_OK) {
        tsri_work_free(w);
        return status;
    }
    w->task.number = ++g->calls;
    if (now) {
        w->status = run(g, &w->task);
        atomic_store(&w->done, true);
    } else {
        tsri_task_schedule(g, &w->task);
        put_into_queue(g, w);
    }
    *out_work = w;
    return TSR_OK;
}

tsr_status tsri_work_submit_host(tsr_group *g, const tsri_task *task, tsr_work **out_work)
{
    if (out_work)
        return submit_async(g, task, out_work);
    tsri_task own = *task;
    memcpy(own.label, g->label, sizeof own.label);
    tsr_status status = tsri_task_prepare(g, &own);
    if (status == TSR_OK) {
        tsri_queue *q = queue_of(g, &own);
        own.number = ++g->calls;
        drain(g, q, own.number);
        status = run(g, &own);
        if (q == &g->queue)
            drain(g, &g->sends, own.number);
    }
    tsri_task_finish(g, &own);
    return status;
}

static void join(tsri_queue *q)
{
    if (q->has_thread)
        pthread_join(q->thread, NULL);
}

void tsri_work_close(tsr_group *g)
{
    drain(g, &g->queue, UINT64_MAX);
    drain(g, &g->sends, UINT64_MAX);
    pthread_mutex_lock(&g->lock);
    g->stop = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    join(&g->queue);
    join(&g->sends);
    while (g->works)
        tsri_work_free(g->works);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* Whether it is done, and what was called before it. The lock is held. */
static bool is_done(tsr_work *w)
{
    tsr_group *g = w->group;
    tsri_queue *other = w->queue == &g->queue ? &g->sends : &g->queue;
    bool is_send = w->queue == &g->sends; /* which overtakes, and waits for nobody */
    return atomic_load(&w->done) && (is_send || first_left(other) > w->task.number);
}

/* Without a limit of its own the waiter does what nobody does. */
static bool await_done(tsr_work *w, double timeout_s)
{
    tsr_group *g = w->group;
    const struct timespec until = tsri_in_s(timeout_s);
    int rc = 0;
    bool done;
    pthread_mutex_lock(&g->lock);
    while (!(done = is_done(w)) && rc != ETIMEDOUT) {
        tsri_queue *q = atomic_load(&w->done) ? &g->sends : w->queue;
        if (timeout_s > 0)
            rc = pthread_cond_timedwait(&g->changed, &g->lock, &until);
        else if (q->head && !q->running)
            run_first(g, q);
        else
            pthread_cond_wait(&g->changed, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return done;
}

tsr_status tsri_work_wait_host(tsr_work *w, double timeout_s)
{
    tsr_group *g = w->group;
    bool at_once = atomic_load_explicit(&w->done, memory_order_acquire) && !has_left(&g->sends);
    if (!at_once && !await_done(w, timeout_s))
        return tsri_fail_at(w->task.loc, TSR_ERR_TIMEOUT,
                            "%s #%llu of rank %d is not done after %g s; it goes on, and can be "
                            "waited for again",
                            tsri_task_name(w->task.kind), (unsigned long long)w->task.number,
                            g->engine->world->rank, timeout_s);
    return TSR_OK;
}
