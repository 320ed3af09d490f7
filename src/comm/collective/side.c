/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/collective/side.h"
#include "src/core/clock.h"

#include <sched.h>
#include <stdio.h>

/* --- making and ending ------------------------------------------------------------------------ */

/* Forgets a call, which is over. */
static void forget(tsri_side *s, tsri_side_call *call)
{
    tsri_side_call **at = &s->first;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    if (!*at)
        s->last = at;
    s->ncalls--;
    call->next = NULL;
    call->state = TSRI_SIDE_IDLE;
    if (call->over)
        call->over(call);
}

void tsri_side_destroy(tsri_side *s)
{
    const tsri_device_ops *ops = s->device->ops;
    tsri_world_disown(&s->owned);
    tsri_device_poll_remove(s->device, &s->poll);
    while (s->first)
        forget(s, s->first);
    if (s->comm)
        s->comm->ops->destroy(s->comm);
    tsri_side_free_blocks(s);
    if (s->compute)
        ops->event_destroy(s->device, s->compute);
    if (s->side)
        ops->event_destroy(s->device, s->side);
    if (s->stream)
        ops->stream_destroy(s->device, s->stream);
    for (tsri_side **at = &s->group->sides; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    tsri_mem_free(s);
}

static void destroy_owned(void *object)
{
    tsri_side_destroy(object);
}

/* --- words ------------------------------------------------------------------------------------ */

static bool is_met(const tsri_side_call *call)
{
    const tsri_side *s = call->side;
    return !call->is_said || s->group->engine->comm->ops->ready(s->words, &call->word_ticket);
}

/* Compares the call with those of the others, who may have to come first. */
static tsr_status meet(tsri_side *s, tsri_side_call *call)
{
    tsri_comm *host = s->group->engine->comm;
    if (!call->is_said)
        return TSR_OK;
    call->is_said = false;
    tsr_status status = host->ops->finish(s->words, &call->word_ticket);
    if (status == TSR_ERR_MISMATCH) { /* what the others do on the device can't be undone */
        char text[1024];
        snprintf(text, sizeof text, "%.1023s", tsr_last_error());
        s->comm->ops->poison(s->inner, status, text);
        return tsri_fail(status, "%s", text);
    }
    return status;
}

/* Compares the calls to which all have come. */
static tsr_status meet_those_there(tsri_side *s)
{
    for (tsri_side_call *c = s->first; c && is_met(c); c = c->next)
        TSRI_TRY(meet(s, c));
    return TSR_OK;
}

/* Says what is behind an error of the communicator: members that mean different calls, or one that
 * has not come while the watchdog waited. */
static tsr_status explain(tsri_side *s, tsr_status status)
{
    tsri_comm *host = s->group->engine->comm;
    char text[1024];
    if (status == TSR_OK || status == TSR_ERR_MISMATCH || !s->words)
        return status;
    snprintf(text, sizeof text, "%.1023s", tsr_last_error());
    if (meet_those_there(s) == TSR_ERR_MISMATCH)
        return TSR_ERR_MISMATCH;
    for (const tsri_side_call *c = s->first; c && status == TSR_ERR_TIMEOUT; c = c->next) {
        int late = c->is_said ? host->ops->late(s->words, &c->word_ticket) : -1;
        if (late >= 0)
            return tsri_fail(status, "rank %d did not come to %s '%s' of GPUs; %s", late,
                             tsri_coll_kind_name(c->coll.kind), c->word.what ? c->word.what : "",
                             text);
    }
    return tsri_fail(status, "%s", text);
}

/* A member that has not come to a call, and never will, is an error. */
static tsr_status check_lost(const tsri_side_call *call)
{
    const tsri_side *s = call->side;
    if (call->is_said)
        return s->group->engine->comm->ops->lost(s->words, &call->word_ticket);
    return s->inner && TSRI_COMM_HAS(s->comm, lost) ? s->comm->ops->lost(s->inner, &call->ticket)
                                                    : TSR_OK;
}

static tsr_status poll_words(void *arg)
{
    tsri_side *s = arg;
    TSRI_TRY(meet_those_there(s));
    const tsri_side_call *c = s->first;
    while (c && !c->is_said)
        c = c->next;
    const double now = tsri_now_s(), between_looks = 0.05;
    if (c && now - s->looked_s > between_looks) { /* the oldest to which not all have come */
        s->looked_s = now;
        TSRI_TRY(check_lost(c));
    }
    return explain(s, s->comm->ops->check(s->comm));
}

/* Where the host's communicator can tell without a wait who has come. */
static tsr_status open_words(tsri_side *s)
{
    enum { WORDS_LANE = 3 };
    tsri_engine *engine = s->group->engine;
    if (!TSRI_COMM_HAS(engine->comm, late))
        return TSR_OK;
    pthread_mutex_lock(&engine->lock);
    tsr_status status = engine->comm->ops->group(engine->comm, s->group->nranks, s->group->ranks,
                                                 WORDS_LANE, &s->words);
    pthread_mutex_unlock(&engine->lock);
    TSRI_TRY(status);
    s->poll = (tsri_poll){.fn = poll_words, .arg = s};
    tsri_device_poll_add(s->device, &s->poll);
    return TSR_OK;
}

static tsr_status say(tsri_side *s, tsri_side_call *call)
{
    tsri_comm *host = s->group->engine->comm;
    if (!s->words)
        return TSR_OK;
    call->word = call->coll;
    call->word.is_word = true;
    call->word.stream = NULL;
    call->word.prepared = NULL;
    call->word.flight = 0;
    TSRI_TRY(host->ops->start(s->words, &call->word, &call->word_ticket));
    call->is_said = true;
    return TSR_OK;
}

/* --- making, with words ----------------------------------------------------------------------- */

static tsr_status fill_side(tsri_side *s)
{
    tsr_group *g = s->group;
    tsri_device *d = s->device;
    TSRI_TRY(d->ops->stream_create(d, &s->stream));
    TSRI_TRY(d->ops->event_create(d, false, false, &s->compute));
    TSRI_TRY(d->ops->event_create(d, false, false, &s->side));
    if (g->nranks == 1) {
        s->in_place = true;
        return TSR_OK;
    }
    TSRI_TRY(tsri_comm_create_device(d->world, d, g->nranks, g->ranks, TSRI_DEVICE_COMM_GROUP,
                                     &s->comm));
    TSRI_TRY(s->comm->ops->group(s->comm, g->nranks, g->ranks, 0, &s->inner));
    s->in_place = s->inner->in_place;
    return s->comm->capturable ? open_words(s) : TSR_OK;
}

tsr_status tsri_side_of(tsr_group *g, tsri_device *device, tsri_side **out_side)
{
    for (tsri_side *s = g->sides; s; s = s->next)
        if (s->device == device) {
            *out_side = s;
            return TSR_OK;
        }
    TSRI_TRY(tsri_group_check(g));
    tsri_side *s = tsri_mem_alloc(&device->world->mem, sizeof *s);
    if (!s) {
        tsri_group_end(g, TSR_ERR_NO_MEMORY); /* the others come to it */
        return TSR_ERR_NO_MEMORY;
    }
    s->group = g;
    s->device = device;
    s->last = &s->first;
    s->next = g->sides;
    g->sides = s;
    tsri_world_own_before(&device->owned, &s->owned, s, destroy_owned);
    tsr_status status = fill_side(s);
    if (status != TSR_OK) {
        tsri_group_end(g, status);
        tsri_side_destroy(s);
        return status;
    }
    *out_side = s;
    return TSR_OK;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The first error ends the group. */
static tsr_status judge(tsri_side *s, tsr_status status)
{
    status = explain(s, status);
    if (status != TSR_OK)
        tsri_group_end(s->group, status);
    return status;
}

/* Where a call is compared whenever it is made, it is so with its label, and needs no preparing. */
tsr_status tsri_side_prepare(tsri_side *s, tsri_side_call *call, bool again)
{
    call->side = s;
    call->coll.stream = s->stream;
    if (!again || !s->inner || !s->comm->capturable)
        return TSR_OK;
    return judge(s, s->comm->ops->prepare(s->inner, &call->coll));
}

void tsri_side_unprepare(tsri_side_call *call)
{
    tsri_side *s = call->side;
    if (!s)
        return;
    if (call->state != TSRI_SIDE_IDLE &&
        (tsri_group_check(s->group) != TSR_OK || tsri_side_release(call) != TSR_OK))
        forget(s, call);
    if (call->coll.prepared)
        s->comm->ops->unprepare(s->inner, &call->coll);
    call->side = NULL;
}

/* --- progress --------------------------------------------------------------------------------- */

/* Finishes one call, all before which are finished. */
static tsr_status finish_one(tsri_side *s, tsri_side_call *call)
{
    if (call->state != TSRI_SIDE_STARTED)
        return TSR_OK;
    if (s->inner)
        TSRI_TRY(judge(s, s->comm->ops->finish(s->inner, &call->ticket)));
    call->state = TSRI_SIDE_FINISHED;
    return call->end ? judge(s, call->end(call)) : TSR_OK;
}

bool tsri_side_is_ready(const tsri_side_call *call)
{
    const tsri_side *s = call->side;
    if (call->state != TSRI_SIDE_STARTED || !s->inner || !TSRI_COMM_HAS(s->comm, ready))
        return true;
    return s->comm->ops->ready(s->inner, &call->ticket);
}

/* Whether the release of a finished call would not wait. */
static bool is_released(const tsri_side_call *call)
{
    const tsri_side *s = call->side;
    if (!is_met(call))
        return false;
    return !s->inner || !TSRI_COMM_HAS(s->comm, released) ||
           s->comm->ops->released(s->inner, &call->ticket);
}

/* Finishes what can be finished without a wait. An error ends that group, which tells its users. */
static void advance(tsri_side *s)
{
    for (tsri_side_call *c = s->first; c && tsri_side_is_ready(c); c = c->next)
        if (tsri_group_is_over(s->group) || finish_one(s, c) != TSR_OK)
            return;
    tsr_status ignored = judge(s, meet_those_there(s));
    (void)ignored;
}

void tsri_side_advance_all(const tsri_engine *engine)
{
    for (tsr_group *g = engine->groups; g; g = g->next)
        for (tsri_side *s = g->sides; s; s = s->next)
            advance(s);
}

/* A peer may be waiting for this rank in another group, so no call is waited for without looking
 * after all others. After half of the time that it may take, the communicator waits, which knows
 * what to say of the late. */
static void await_peers(const tsri_side_call *call, bool (*is_there)(const tsri_side_call *))
{
    const tsri_side *s = call->side;
    double until = tsri_now_s() + s->device->world->timeout_s / 2;
    for (int turn = 1; !is_there(call); turn++) {
        tsri_side_advance_all(s->group->engine);
        if (tsri_group_is_over(s->group) || s->comm->ops->check(s->comm) != TSR_OK ||
            (turn % 500 == 0 && check_lost(call) != TSR_OK) || tsri_now_s() > until)
            return;
        if (turn < 100)
            sched_yield();
        else
            tsri_sleep_s(20e-6);
    }
}

/* --- from start to release -------------------------------------------------------------------- */

/* The ring of a communicator's calls has room for 64. */
enum { MOST_CALLS = 32 };

tsr_status tsri_side_start(tsri_side_call *call)
{
    tsri_side *s = call->side;
    TSRI_TRY(tsri_group_check(s->group));
    if (call->state != TSRI_SIDE_IDLE)
        TSRI_TRY(tsri_side_release(call));
    if (s->ncalls == MOST_CALLS)
        TSRI_TRY(tsri_side_release(s->first));
    TSRI_TRY(judge(s, say(s, call)));
    call->coll.is_agreed = s->words != NULL;
    call->next = NULL;
    *s->last = call;
    s->last = &call->next;
    s->ncalls++;
    tsr_status status =
        s->inner ? s->comm->ops->start(s->inner, &call->coll, &call->ticket) : TSR_OK;
    if (status != TSR_OK) {
        status = judge(s, status); /* which looks at its word, too */
        void (*over)(tsri_side_call *) = call->over;
        call->over = NULL;
        forget(s, call);
        call->over = over;
        return status;
    }
    call->state = TSRI_SIDE_STARTED;
    return TSR_OK;
}

tsr_status tsri_side_finish(tsri_side_call *call)
{
    tsri_side *s = call->side;
    if (call->state != TSRI_SIDE_STARTED)
        return TSR_OK;
    await_peers(call, tsri_side_is_ready);
    for (tsri_side_call *c = s->first; c != call; c = c->next)
        TSRI_TRY(finish_one(s, c));
    return finish_one(s, call);
}

tsr_status tsri_side_release(tsri_side_call *call)
{
    tsri_side *s = call->side;
    if (call->state == TSRI_SIDE_IDLE)
        return TSR_OK;
    TSRI_TRY(tsri_side_finish(call));
    await_peers(call, is_released);
    for (bool is_last = false; !is_last;) { /* a call that is over may be gone */
        tsri_side_call *c = s->first;
        is_last = c == call;
        TSRI_TRY(judge(s, meet(s, c)));
        if (s->inner)
            TSRI_TRY(judge(s, s->comm->ops->release(s->inner, &c->ticket)));
        forget(s, c);
    }
    return TSR_OK;
}

tsr_status tsri_side_once(tsri_side *s, const tsri_coll *coll)
{
    tsri_side_call call = {.side = s, .coll = *coll};
    call.coll.stream = s->stream;
    TSRI_TRY(tsri_side_start(&call));
    tsr_status status = tsri_side_release(&call);
    if (call.state != TSRI_SIDE_IDLE)
        forget(s, &call);
    return status;
}
