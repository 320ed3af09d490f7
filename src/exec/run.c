/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_run: walks the steps, or replays them as captured graphs on a device that can. No
 * allocation, no look-up, no text unless something fails. */
#include <stdio.h>
#include <string.h>

#include "src/core/clock.h"
#include "src/core/live.h"
#include "src/exec/compare.h"
#include "src/exec/exec.h"
#include "src/exec/finite.h"
#include "src/exec/watch.h"

static tsr_status cross(const tsri_step *s)
{
    tsri_device *d = s->device;
    bool to_host = tsri_placement_can(s->item->placement, TSRI_CAN_HOST_MEMORY);
    return to_host ? d->ops->copy_out(d, s->out[0], s->in[0], s->bytes, d->stream)
                   : d->ops->copy_in(d, s->out[0], s->in[0], s->bytes, d->stream);
}

/* The call of a step, of those that it has for the copies of micro-batches. */
static tsri_call *call_of(const tsri_step *s, int part)
{
    return s->call->slots > 1 ? &s->call[part % s->call->slots] : s->call;
}

static tsr_status run_call(const tsri_step *s, int part)
{
    tsri_call *call = call_of(s, part);
    const tsri_comm_ops *ops = call->group->comm->ops;
    if (s->kind == TSRI_STEP_START) {
        call->is_sent = s->side == TSRI_SIDE_SENDS;
        return ops->start(call->group, &call->coll, &call->ticket);
    }
    return s->kind == TSRI_STEP_FINISH ? ops->finish(call->group, &call->ticket)
                                       : ops->release(call->group, &call->ticket);
}

/* part: the number of the micro-batch; 0 outside of these. */
static tsr_status run_step(tsri_step *s, int part)
{
    switch (s->kind) {
    case TSRI_STEP_KERNEL:
        return s->kernel->run(s->kernel, s->in, s->out, s->scratch);
    case TSRI_STEP_LOCAL_BOX:
        if (s->device->ops->move)
            return tsri_local_box_queue(s->device, s->box, s->in[0], s->out[0]);
        tsri_local_box_run(s->box, s->in[0], s->out[0]);
        return TSR_OK;
    case TSRI_STEP_CROSS:
        return cross(s);
    default:
        return run_call(s, part);
    }
}

/* An input was never fed. The plan can run once it is; peers, which may be in the run already, must
 * hear of it. */
static tsr_status fail_unfed(const tsr_plan *plan)
{
    const char *first = NULL;
    for (int i = 0; i < plan->ir.nports && !first; i++)
        if (plan->ir.ports[i].must_feed && !plan->ir.ports[i].fed)
            first = plan->ir.ports[i].info.name;
    tsr_status status =
        plan->nunfed > 1
            ? tsri_fail(TSR_ERR_STATE,
                        "tsr_run: input '%s' was never fed, nor were %d others; give them values "
                        "with tsr_feed, tsr_feed_shard or a loader",
                        first, plan->nunfed - 1)
            : tsri_fail(TSR_ERR_STATE,
                        "tsr_run: input '%s' was never fed; give it a value with tsr_feed, "
                        "tsr_feed_shard or a loader",
                        first);
    if (plan->ir.world->comm)
        plan->ir.world->comm->ops->abort(plan->ir.world->comm, tsr_last_error());
    return status;
}

/* Traced runs wait after each step, so that its time is its own. */
static tsr_status wait_for(tsri_device *d)
{
    if (!d || !d->ops->stream_sync)
        return TSR_OK;
    TSRI_TRY(d->ops->stream_sync(d, d->stream));
    return d->ops->check(d);
}

static tsr_status fail_step(tsr_plan *plan, const tsri_step *s, tsr_status status)
{
    if (s->kind == TSRI_STEP_KERNEL)
        status = tsri_item_fail(status, s->item);
    if (s->kind < TSRI_STEP_START)
        return tsri_plan_fail(plan, status);
    tsri_plan_note_failure(plan); /* the communicator has told the others */
    return status;
}

/* The times of a run, as the host sees them. */
typedef struct run_times {
    double last; /* the end of the last step */
    double comm;
    int spans; /* so far; see trace.h */
} run_times;

/* Runs steps [first, end). Watches are notified only in the last part. */
static tsr_status run_range(tsr_plan *plan, int first, int end, bool is_last, run_times *times)
{
    for (int i = first; i < end; i++) {
        tsri_step *s = &plan->steps[i];
        if (!tsri_step_is_due(s)) {
            if (plan->trace)
                plan->trace[++times->spans] = times->last;
            continue;
        }
        tsr_status status = run_step(s, plan->walk.part);
        if (status == TSR_OK && plan->trace)
            status = wait_for(s->device);
        if (status != TSR_OK)
            return fail_step(plan, s, status);
        if (plan->watch && is_last && (status = tsri_plan_watched(plan, i)) != TSR_OK)
            return tsri_plan_fail(plan, status);
        if (plan->finite && (status = tsri_finite_look(plan, i)) != TSR_OK)
            return tsri_plan_fail(plan, status);
        double now = tsri_now_s();
        s->time_s += now - times->last;
        times->comm += s->kind >= TSRI_STEP_START ? now - times->last : 0;
        if (plan->trace)
            plan->trace[++times->spans] = now;
        times->last = now;
    }
    return TSR_OK;
}

static tsr_status set_words(const tsr_plan *plan, bool tells_part, const int64_t *value)
{
    for (int i = 0; i < plan->nwords; i++) {
        const tsri_word *w = &plan->words[i];
        if (w->tells_part == tells_part)
            TSRI_TRY(w->device->ops->copy_in(w->device, w->ptr, value, sizeof *value,
                                             w->device->stream));
    }
    return TSR_OK;
}

/* Waits until other stages have received the values that a segment sent from the copies of the
 * current micro-batch; with `all`, from all copies. */
static tsr_status release_sent(tsr_plan *plan, int segment, bool all)
{
    const tsri_walk *w = &plan->walk;
    for (int i = w->first_send[segment]; i < w->first_send[segment + 1]; i++) {
        const tsri_step *s = &plan->steps[w->send[i]];
        const int n = all ? s->call->slots : 1;
        for (int c = 0; c < n; c++) {
            tsri_call *call = call_of(s, all ? c : w->part);
            if (!call->is_sent)
                continue;
            call->is_sent = false;
            const tsr_status status = call->group->comm->ops->release(call->group, &call->ticket);
            if (status != TSR_OK)
                return fail_step(plan, s, status);
        }
    }
    return TSR_OK;
}

/* Starts to receive the values that another stage's task sends. All ranks take the tasks, and so
 * the calls between stages, in one order, so that devices cannot deadlock. */
static tsr_status start_receives(tsr_plan *plan, const tsri_task_of *task)
{
    const tsri_walk *w = &plan->walk;
    for (int i = w->first_receive[task->segment]; i < w->first_receive[task->segment + 1]; i++) {
        tsri_step *s = &plan->steps[w->receive[i]];
        const tsr_status status = run_step(s, task->part);
        if (status != TSR_OK)
            return fail_step(plan, s, status);
    }
    return TSR_OK;
}

static void set_patches(const tsr_plan *plan, int segment, int part)
{
    const tsri_walk *w = &plan->walk;
    for (int i = w->first_patch[segment]; i < w->first_patch[segment + 1]; i++) {
        const tsri_patch *p = &w->patch[i];
        *p->at = p->base + (size_t)(part % p->slots) * p->stride;
    }
}

/* Begins a task: *out_runs is whether it is one of this rank. */
static tsr_status begin_task(tsr_plan *plan, const tsri_task_of *task, bool *out_runs)
{
    tsri_walk *w = &plan->walk;
    const int s = task->segment;
    TSRI_TRY(start_receives(plan, task));
    *out_runs = w->first[s] < w->last[s];
    if (!*out_runs)
        return TSR_OK;
    w->part = task->part;
    set_patches(plan, s, task->part);
    TSRI_TRY(release_sent(plan, s, false));
    tsr_status status = set_words(plan, true, &w->number[task->part]);
    return status == TSR_OK ? status : tsri_plan_fail(plan, status);
}

static tsr_status end_tasks(tsr_plan *plan)
{
    plan->walk.part = 0;
    for (int s = 0; s < plan->ir.timetable.nsegments; s++)
        TSRI_TRY(release_sent(plan, s, true));
    return TSR_OK;
}

static tsr_status run_tasks(tsr_plan *plan, run_times *times)
{
    const tsri_walk *w = &plan->walk;
    for (int i = 0; i < w->ntasks; i++) {
        const tsri_task_of *task = &plan->ir.timetable.task[w->task[i]];
        const int s = task->segment;
        bool runs;
        TSRI_TRY(begin_task(plan, task, &runs));
        if (runs)
            TSRI_TRY(
                run_range(plan, w->first[s], w->last[s], task->part + 1 == plan->ir.parts, times));
    }
    return end_tasks(plan);
}

/* Step by step. */
static tsr_status run_steps(tsr_plan *plan)
{
    const tsri_walk *w = &plan->walk;
    const double start = tsri_now_s();
    run_times times = {.last = start};
    if (plan->trace)
        plan->trace[0] = start;
    TSRI_TRY(run_range(plan, 0, w->begin, true, &times));
    TSRI_TRY(run_tasks(plan, &times));
    TSRI_TRY(run_range(plan, w->end, plan->nsteps, true, &times));
    plan->info.run_s += times.last - start;
    plan->info.comm_s += times.comm;
    plan->info.compute_s += times.last - start - times.comm;
    return TSR_OK;
}

/* --- captured runs ---------------------------------------------------------------------------- */
/* The communicator whose calls are captured; NULL: there are none. */
static tsri_comm *captured_comm(const tsr_plan *plan)
{
    for (int i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == TSRI_STEP_START && !tsri_step_is_apart(&plan->steps[i]))
            return plan->steps[i].call->group->comm;
    return NULL;
}

static tsr_status capture_step(tsri_step *s, int copy)
{
    const tsr_status status = run_step(s, copy);
    return status == TSR_OK || s->kind != TSRI_STEP_KERNEL ? status
                                                           : tsri_item_fail(status, s->item);
}

/* Puts steps [first, end) into the stream that is captured; none of them runs. copy: the copy of
 * the values that they use. */
static tsr_status capture_part(tsr_plan *plan, int first, int end, int copy,
                               tsri_captured **out_captured)
{
    tsri_device *d = plan->replay.device;
    tsr_status status = TSR_OK;
    char text[400];
    TSRI_TRY(d->ops->capture_begin(d, d->stream));
    for (int i = first; i < end && status == TSR_OK; i++)
        if (tsri_step_is_due(&plan->steps[i]))
            status = capture_step(&plan->steps[i], copy);
    snprintf(text, sizeof text, "%.399s", status == TSR_OK ? "" : tsr_last_error());
    tsr_status ended = d->ops->capture_end(d, d->stream, out_captured);
    return status == TSR_OK ? ended : tsri_fail(status, "%s", text);
}

/* Room for another part. */
static tsr_status grow(tsr_plan *plan, tsri_capture *r)
{
    if (r->nparts < r->cparts)
        return TSR_OK;
    int most = r->cparts ? 2 * r->cparts : 4;
    tsri_replay_part *part = tsri_pool_alloc(&plan->pool, (size_t)most * sizeof *part);
    TSRI_NEED(part);
    if (r->nparts)
        memcpy(part, r->part, (size_t)r->nparts * sizeof *part);
    r->part = part;
    r->cparts = most;
    return TSR_OK;
}

/* Where a part that begins with step `first` ends, before step `last` at the latest: where the
 * watch cuts, or where steps that are captured meet steps that are not. */
static int part_end(const tsr_plan *plan, int first, int last)
{
    int cut = tsri_plan_watch_cut(plan, first);
    cut = cut < last ? cut : last;
    const bool is_apart = tsri_step_is_apart(&plan->steps[first]);
    int end = first + 1;
    while (end < cut && tsri_step_is_apart(&plan->steps[end]) == is_apart)
        end++;
    return end;
}

/* Adds the calls and bytes since `before` to *sum, multiplied by `times`. */
static void count_since(const tsr_plan *plan, const tsri_comm_stats *before, uint64_t times,
                        tsri_comm_stats *sum)
{
    tsri_comm_stats after;
    tsri_plan_stats(plan->ir.world, &after);
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++) {
        sum->calls[k] += times * (after.calls[k] - before->calls[k]);
        sum->bytes_read[k] += times * (after.bytes_read[k] - before->bytes_read[k]);
    }
}

/* Captures a range, in parts; a run repeats it `times` times. */
static tsr_status capture_range(tsr_plan *plan, tsri_capture *r, tsri_replay_range *range,
                                uint64_t times)
{
    tsri_comm_stats before;
    tsri_plan_stats(plan->ir.world, &before);
    range->first_part = r->nparts;
    for (int first = range->first, end; first < range->end; first = end) {
        end = part_end(plan, first, range->end);
        TSRI_TRY(grow(plan, r));
        tsri_replay_part *part = &r->part[r->nparts];
        *part = (tsri_replay_part){.end = end};
        if (!tsri_step_is_apart(&plan->steps[first]))
            TSRI_TRY(capture_part(plan, first, end, range->copy, &part->captured));
        r->nparts++;
    }
    range->nparts = r->nparts - range->first_part;
    count_since(plan, &before, times, &r->per_run);
    return TSR_OK;
}

/* The number of micro-batches after which the steps of a segment have the same pointers again. */
static int copies_of(const tsr_plan *plan, int segment)
{
    const tsri_walk *w = &plan->walk;
    int n = 1;
    for (int i = w->first_patch[segment]; i < w->first_patch[segment + 1]; i++)
        n = tsri_copies_together(n, w->patch[i].slots);
    for (int i = w->first[segment]; i < w->last[segment]; i++) {
        const tsri_step *s = &plan->steps[i];
        if (s->kind == TSRI_STEP_START && !tsri_step_is_apart(s))
            n = tsri_copies_together(n, s->call->slots);
    }
    return n < plan->ir.parts ? n : plan->ir.parts;
}

/* Lists the ranges of a plan's steps. */
static tsr_status list_ranges(tsr_plan *plan, tsri_capture *r)
{
    const tsri_walk *w = &plan->walk;
    const int nsegments = w->begin < w->end ? plan->ir.timetable.nsegments : 0;
    int n = 2;
    for (int s = 0; s < nsegments; s++)
        n += copies_of(plan, s);
    r->range = tsri_pool_alloc(&plan->pool, (size_t)n * sizeof *r->range);
    r->first_range = tsri_pool_alloc(&plan->pool, ((size_t)nsegments + 1) * sizeof(int));
    TSRI_NEED(r->range && r->first_range);
    r->nranges = 0;
    r->range[r->nranges++] = (tsri_replay_range){.end = w->begin};
    for (int s = 0; s < nsegments; s++) {
        r->first_range[s] = r->nranges;
        for (int c = 0; c < copies_of(plan, s); c++)
            r->range[r->nranges++] =
                (tsri_replay_range){.first = w->first[s], .end = w->last[s], .copy = c};
    }
    r->first_range[nsegments] = r->nranges;
    r->range[r->nranges++] = (tsri_replay_range){.first = w->end, .end = plan->nsteps};
    return TSR_OK;
}

/* Captures all steps of the run that is under way. */
static tsr_status capture_steps(tsr_plan *plan, tsri_capture *r)
{
    const int nsegments = plan->walk.begin < plan->walk.end ? plan->ir.timetable.nsegments : 0;
    TSRI_TRY(list_ranges(plan, r));
    r->per_run = (tsri_comm_stats){0};
    TSRI_TRY(capture_range(plan, r, &r->range[0], 1));
    for (int s = 0; s < nsegments; s++) {
        const int n = r->first_range[s + 1] - r->first_range[s];
        for (int c = 0; c < n; c++) {
            const int times = (plan->ir.parts - c + n - 1) / n;
            set_patches(plan, s, c);
            TSRI_TRY(capture_range(plan, r, &r->range[r->first_range[s] + c], (uint64_t)times));
        }
    }
    return capture_range(plan, r, &r->range[r->nranges - 1], 1);
}

static tsr_status capture(tsr_plan *plan, tsri_capture *r)
{
    tsri_comm *comm = captured_comm(plan);
    if (comm && comm->ops->capture_begin)
        comm->ops->capture_begin(comm);
    tsr_status status = capture_steps(plan, r);
    if (comm && comm->ops->capture_end)
        comm->ops->capture_end(comm);
    return status;
}

/* Captures the plan, if it can be, on this rank and on all that its device talks with; else its
 * steps go one by one from now on, on all of them. */
static tsr_status try_capture(tsr_plan *plan, tsri_capture *to)
{
    tsri_replay *r = &plan->replay;
    tsr_status captured;
    tsr_status status = tsri_replay_agree(plan, capture(plan, to), &captured);
    if (status != TSR_OK)
        return tsri_plan_fail(plan, status);
    if (captured == TSR_OK)
        return TSR_OK;
    tsri_log(plan->ir.world, TSR_LOG_WARNING,
             "this plan's steps can't be captured as one graph and run one by one: %s",
             tsr_last_error());
    tsri_error_clear();
    tsri_replay_drop(r);
    r->device = NULL;
    return TSR_OK;
}

/* Replays a range. Watches are notified only in the last micro-batch. */
static tsr_status replay_range(tsr_plan *plan, const tsri_capture *c,
                               const tsri_replay_range *range, bool is_last)
{
    tsri_device *d = plan->replay.device;
    for (int i = 0, step = range->first; i < range->nparts; i++) {
        const tsri_replay_part *part = &c->part[range->first_part + i];
        tsr_status status = TSR_OK;
        if (part->captured)
            status = d->ops->captured_run(d, part->captured, d->stream);
        for (; step < part->end && status == TSR_OK; step++) {
            tsri_step *s = &plan->steps[step];
            if (!tsri_step_is_due(s))
                continue;
            status = part->captured ? TSR_OK : run_step(s, plan->walk.part);
            if (status != TSR_OK)
                return fail_step(plan, s, status);
            if (plan->watch && is_last)
                status = tsri_plan_watched(plan, step);
        }
        if (status != TSR_OK)
            return tsri_plan_fail(plan, status);
    }
    return TSR_OK;
}

static tsr_status replay_ranges(tsr_plan *plan, const tsri_capture *c)
{
    const tsri_walk *w = &plan->walk;
    TSRI_TRY(replay_range(plan, c, &c->range[0], true));
    for (int i = 0; i < w->ntasks; i++) {
        const tsri_task_of *task = &plan->ir.timetable.task[w->task[i]];
        const int first = c->first_range[task->segment],
                  n = c->first_range[task->segment + 1] - first;
        bool runs;
        TSRI_TRY(begin_task(plan, task, &runs));
        if (runs)
            TSRI_TRY(replay_range(plan, c, &c->range[first + task->part % n],
                                  task->part + 1 == plan->ir.parts));
    }
    TSRI_TRY(end_tasks(plan));
    return replay_range(plan, c, &c->range[c->nranges - 1], true);
}

/* Finds the captures of the run that is under way; NULL: some conditions hold and others do not. */
static tsri_capture *find_capture(tsr_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->nconditions; i++)
        n += plan->conditions[i]->holds;
    return n == plan->nconditions ? &plan->replay.capture[0]
           : n == 0               ? &plan->replay.capture[1]
                                  : NULL;
}

/* The first run goes step by step, and so does the first one in which a condition holds: libraries
 * load and choose then. The next one is captured. */
static tsr_status replay(tsr_plan *plan, bool *out_ran)
{
    tsri_capture *c = find_capture(plan);
    *out_ran = false;
    if (!plan->replay.device || plan->trace || !c || c->nruns++ == 0)
        return TSR_OK;
    if (!c->nparts)
        TSRI_TRY(try_capture(plan, c));
    if (!c->nparts)
        return TSR_OK;
    double start = tsri_now_s();
    tsr_status status = replay_ranges(plan, c);
    plan->info.run_s += tsri_now_s() - start;
    *out_ran = true;
    tsri_plan_count_replay(plan, c);
    return status;
}

/* Names the item whose kernel met the error: an item of this plan, or of another one on the same
 * device. */
static tsr_status fail_device(tsr_plan *plan, tsri_device *d, tsr_status status)
{
    const tsri_item *it = d->faulty ? d->faulty->item : NULL;
    d->faulty = NULL;
    return tsri_plan_fail(plan, it ? tsri_item_fail(status, it) : status);
}

tsr_status tsri_plan_poll(tsr_plan *plan)
{
    for (int k = 0; k < TSRI_DEVICES; k++) {
        tsri_device *d = plan->part[k].device;
        tsr_status status = d && d->ops->check ? d->ops->check(d) : TSR_OK;
        if (status == TSR_OK && d)
            status = tsri_device_poll(d);
        if (status != TSR_OK)
            return fail_device(plan, d, status);
    }
    return TSR_OK;
}

tsr_status tsr_wait(tsr_plan *plan)
{
    if (!plan)
        return tsri_fail(TSR_ERR_INVALID, "tsr_wait: no plan (did tsr_compile fail?)");
    TSRI_TRY(tsri_live_check(plan, TSRI_LIVE_PLAN, "tsr_wait"));
    for (int k = 0; k < TSRI_DEVICES; k++) {
        tsri_device *d = plan->part[k].device;
        if (d && d->ops->stream_sync && !plan->failure[0]) {
            tsr_status status = d->ops->stream_sync(d, d->stream);
            if (status != TSR_OK)
                return tsri_plan_fail(plan, status);
        }
    }
    if (plan->failure[0])
        return tsri_fail(TSR_ERR_STATE, "tsr_wait: %s", plan->failure);
    return tsri_plan_poll(plan);
}

/* Values that the host sets before a run: the step, and the optimizers' hyper-parameters. */
static tsr_status set_up(tsr_plan *plan)
{
    TSRI_TRY(set_words(plan, false, plan->ir.step_value));
    for (int i = 0; i < plan->ir.nhooks; i++)
        TSRI_TRY(plan->ir.hooks[i].fn(plan->ir.hooks[i].arg));
    return TSR_OK;
}

tsr_status tsri_plan_walk(tsr_plan *plan)
{
    if (plan->failure[0])
        return tsri_fail(TSR_ERR_STATE, "tsr_run: %s", plan->failure);
    plan->has_results = false;
    if (plan->nunfed)
        return fail_unfed(plan);
    TSRI_TRY(tsri_plan_poll(plan));
    if (plan->compare)
        TSRI_TRY(tsri_compare_run(plan));
    tsr_status status = set_up(plan);
    if (status == TSR_OK)
        status = tsri_kept_update(plan);
    if (status != TSR_OK)
        return tsri_plan_fail(plan, status);
    bool ran;
    TSRI_TRY(replay(plan, &ran));
    if (!ran)
        TSRI_TRY(run_steps(plan));
    plan->info.runs++;
    plan->ir.own_step++;
    plan->has_results = true;
    return TSR_OK;
}
