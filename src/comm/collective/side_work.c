/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks between devices. The rank's thread puts a task into the side's stream when it is called,
 * and has the stream of compute wait for it when it is waited for. A handle outlives both the wait
 * and the release of the call, whichever comes last: peers may read its memory until then.
 *
 * A send or recv goes through host memory, by the host's paths.
 */
#include "src/comm/collective/side.h"
#include "src/core/clock.h"
#include "src/core/live.h"

/* --- where buffers are ------------------------------------------------------------------------ */

tsri_device *tsri_device_of_memory(const tsr_world *w, const void *p)
{
    for (int k = 1; k < TSRI_DEVICES; k++) {
        tsri_device *d =
            tsri_target_can((tsr_device)k, TSRI_CAN_HOST_MEMORY) ? NULL : w->devices[k];
        if (p && d && d->region && tsri_region_has(d->region, p, 1))
            return d;
    }
    return NULL;
}

/* Places of a task's buffers. */
typedef struct places {
    tsri_device *device;
    const char *on_device, *on_host; /* the name of one there; NULL: none is */
} places;

static void look_at(const tsr_world *w, const void *p, const char *name, places *out)
{
    tsri_device *d = tsri_device_of_memory(w, p);
    if (!p)
        return;
    if (d) {
        out->device = d;
        out->on_device = name;
    } else {
        out->on_host = name;
    }
}

/* Returns whether a device with memory of its own has been opened. */
static bool has_device_memory(const tsr_world *w)
{
    for (int k = 1; k < TSRI_DEVICES; k++)
        if (w->devices[k] && !tsri_target_can((tsr_device)k, TSRI_CAN_HOST_MEMORY))
            return true;
    return false;
}

tsr_status tsri_task_device(const tsr_group *g, const tsri_task *t, tsri_device **out_device)
{
    const tsr_world *w = g->engine->world;
    places at = {0};
    *out_device = NULL;
    if (!has_device_memory(w))
        return TSR_OK;
    const bool in_place = t->src == t->dst;
    const bool is_root = t->root == g->index;
    if (t->kind != TSRI_TASK_SCATTER || is_root)
        look_at(w, t->src, in_place ? "data" : "src", &at);
    if (!in_place && (t->kind != TSRI_TASK_GATHER || is_root))
        look_at(w, t->dst, "dst", &at);
    for (int i = 0; t->list && i < g->nranks; i++)
        look_at(w, t->list[i], "dst", &at);
    if (at.on_device && at.on_host)
        return tsri_fail_at(t->loc, TSR_ERR_INVALID,
                            "%s: %s is in the memory of a GPU and %s in the host's; expected all "
                            "in one",
                            tsri_task_name(t->kind), at.on_device, at.on_host);
    *out_device = at.device;
    return TSR_OK;
}

/* --- a send or recv --------------------------------------------------------------------------- */

/* Host memory that stands for the task's buffer, with what is sent in it. */
static tsr_status stage(tsri_device *d, const tsri_task *t, void **out_host)
{
    size_t bytes = (size_t)t->count * tsr_dtype_size(t->dtype);
    void *host = tsri_mem_alloc(&d->world->mem, bytes ? bytes : 1);
    TSRI_NEED(host);
    tsr_status status =
        t->kind == TSRI_TASK_SEND ? d->ops->copy_out(d, host, t->src, bytes, d->stream) : TSR_OK;
    if (status != TSR_OK) {
        tsri_mem_free(host);
        return status;
    }
    *out_host = host;
    return TSR_OK;
}

static tsr_status submit_message(tsr_group *g, tsri_device *d, const tsri_task *task,
                                 tsr_work **out_work)
{
    tsri_task t = *task;
    void *host;
    TSRI_TRY(stage(d, task, &host));
    if (t.kind == TSRI_TASK_SEND)
        t.src = host;
    else
        t.dst = host;
    tsr_status status = tsri_work_submit_host(g, &t, out_work);
    if (status == TSR_OK && out_work) {
        (*out_work)->staged = host;
        (*out_work)->staged_for = t.kind == TSRI_TASK_RECV ? task->dst : NULL;
        (*out_work)->device = d;
        return TSR_OK;
    }
    if (status == TSR_OK && t.kind == TSRI_TASK_RECV)
        status = d->ops->copy_in(d, task->dst, host, (size_t)t.count * tsr_dtype_size(t.dtype),
                                 d->stream);
    tsri_mem_free(host);
    return status;
}

/* --- a collective ----------------------------------------------------------------------------- */

static tsr_status end(tsri_side_call *call)
{
    tsr_work *w = call->arg;
    if (w->group->nranks > 1)
        TSRI_TRY(tsri_task_end(w->group, &w->task));
    return w->event ? call->side->device->ops->event_record(call->side->device, w->event,
                                                            call->side->stream)
                    : TSR_OK;
}

/* The handle of a call that nobody waits for, or has waited for, goes with it. */
static void over(tsri_side_call *call)
{
    tsr_work *w = call->arg;
    tsri_task_finish(w->group, &w->task);
    w->over = true;
    if (w->waited)
        tsri_work_free(w);
}

/* Puts the task's call into the side's stream. */
static tsr_status start(tsr_group *g, tsri_side *s, tsr_work *w, bool async)
{
    tsri_device *d = s->device;
    w->task.side = s;
    w->device = d;
    w->task.number = ++s->works;
    if (async)
        TSRI_TRY(d->ops->event_create(d, false, false, &w->event));
    TSRI_TRY(tsri_task_prepare(g, &w->task));
    TSRI_TRY(tsri_side_follow(s));
    if (g->nranks > 1)
        TSRI_TRY(tsri_task_describe(g, &w->task));
    else
        TSRI_TRY(tsri_task_run(g, &w->task));
    w->call = (tsri_side_call){.coll = w->task.coll, .end = end, .over = over, .arg = w};
    TSRI_TRY(tsri_side_prepare(s, &w->call, false));
    return tsri_side_start(&w->call);
}

/* Frees the handle now, or when its call is over. */
static void let_go(tsr_work *w)
{
    w->waited = true;
    if (w->over)
        tsri_work_free(w);
}

tsr_status tsri_side_submit(tsr_group *g, tsri_device *device, const tsri_task *task,
                            tsr_work **out_work)
{
    tsri_side *s;
    if (task->kind == TSRI_TASK_SEND || task->kind == TSRI_TASK_RECV)
        return submit_message(g, device, task, out_work);
    TSRI_TRY(tsri_side_of(g, device, &s));
    tsr_work *w = tsri_work_new(g, task);
    TSRI_NEED(w);
    tsr_status status = start(g, s, w, out_work != NULL);
    if (status != TSR_OK) {
        w->over = true;
        let_go(w);
        return status;
    }
    if (out_work) {
        *out_work = w;
        return TSR_OK;
    }
    status = tsri_side_finish(&w->call);
    if (status == TSR_OK)
        status = tsri_side_lead(s);
    let_go(w);
    return status;
}

/* --- handles ---------------------------------------------------------------------------------- */

bool tsri_side_test(tsr_work *w)
{
    tsri_device *d = w->device;
    bool done = false;
    if (tsri_group_is_over(w->group))
        return true;
    tsri_side_advance_all(w->group->engine);
    if (!tsri_side_is_ready(&w->call))
        return false;
    if (tsri_side_finish(&w->call) != TSR_OK)
        return true;
    return d->ops->event_done(d, w->event, &done) != TSR_OK || done;
}

/* With a limit the host waits until the work is done. */
static tsr_status await(tsr_work *w, double timeout_s)
{
    double until = tsri_now_s() + timeout_s;
    while (!tsri_side_test(w)) {
        TSRI_TRY(tsri_device_poll(w->device));
        if (tsri_now_s() > until)
            return tsri_fail_at(
                w->task.loc, TSR_ERR_TIMEOUT,
                "%s #%llu of rank %d is not done after %g s; it goes on, and can be "
                "waited for again",
                tsri_task_name(w->task.kind), (unsigned long long)w->task.number,
                w->device->world->rank, timeout_s);
        tsri_sleep_s(20e-6);
    }
    return TSR_OK;
}

/* TSR_ERR_TIMEOUT leaves the handle, if the group is not over. */
tsr_status tsri_side_wait(tsr_work *w, double timeout_s)
{
    tsri_device *d = w->device;
    tsr_group *g = w->group;
    if (timeout_s > 0 && !tsri_group_is_over(g)) {
        tsr_status status = await(w, timeout_s);
        if (status == TSR_ERR_TIMEOUT && !tsri_group_is_over(g))
            return status;
    }
    tsr_status status = tsri_group_check(g);
    if (status == TSR_OK)
        status = tsri_side_finish(&w->call);
    if (status == TSR_OK)
        status = d->ops->event_wait(d, d->stream, w->event);
    let_go(w);
    return status;
}
