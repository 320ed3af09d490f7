/* SPDX-License-Identifier: Apache-2.0 */
/* The work of each rank of `tessera run`. */
#include "src/cli/run/run.h"
#include "src/core/clock.h"
#include "src/exec/trace.h"
#include "src/optim/scaler.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096 /* losses that are sent around at once */ };
static const double LOOK_S = 0.05;

tsr_status run_no_memory(void)
{
    return tsr_set_error(TSR_ERR_NO_MEMORY, "out of memory");
}

/* --- outputs ---------------------------------------------------------------------------------- */
tsr_port run_port(const run_rank *r, const char *output)
{
    for (int i = 0; i < tsr_plan_nports(r->plan); i++) {
        tsr_port port = tsr_plan_port(r->plan, i);
        if (!port.is_input && !strcmp(port.name, output))
            return port;
    }
    return (tsr_port){0};
}

int run_owner(const run_rank *r, const char *output)
{
    const tsr_placement *p = run_port(r, output).placement;
    int owner = tsr_placement_rank(p, 0);
    for (int i = 1; i < tsr_placement_nranks(p); i++)
        if (tsr_placement_rank(p, i) < owner)
            owner = tsr_placement_rank(p, i);
    return owner;
}

const tsri_fetch *run_loss(const tsri_program *p)
{
    for (int i = 0; i < p->nfetches; i++)
        if (p->fetches[i].is_loss)
            return &p->fetches[i];
    return NULL;
}

/* --- steps ------------------------------------------------------------------------------------ */
static void count_step(run_rank *r, const tsri_comm_stats *before, const tsri_comm_stats *after)
{
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++) {
        r->mine.coll[k].calls += after->calls[k] - before->calls[k];
        r->mine.coll[k].bytes += after->bytes_read[k] - before->bytes_read[k];
    }
}

/* The words of a rank when it looks about. */
typedef struct look {
    double step_s;
    int64_t signal;
} look;

/* Brings the words of all ranks together: the longest step, and a signal that came to any. */
static tsr_status look_about(run_rank *r, look *io, bool *stops)
{
    size_t n = (size_t)tsr_world_size(r->world);
    const look mine = *io;
    look *all = calloc(n, sizeof *all);
    if (!all)
        return run_no_memory();
    tsr_status status = r->world->comm->ops->exchange(r->world->comm, &mine, sizeof mine, all);
    for (size_t i = 0; i < n && status == TSR_OK; i++) {
        io->step_s = all[i].step_s > io->step_s ? all[i].step_s : io->step_s;
        io->signal = io->signal ? io->signal : all[i].signal;
    }
    free(all);
    *stops = io->signal != 0;
    if (*stops)
        r->job->stopped_by = (int)io->signal;
    return status;
}

tsr_status run_agree_to_stop(run_rank *r, bool *stops)
{
    look any = {.signal = run_stop_signal()};
    return look_about(r, &any, stops);
}

/*
 * Whether a signal has come to any rank: they all stop in front of the same step. The ranks look
 * about every 50 ms, at steps that follow from what all of them have measured, so that looking
 * costs short steps nothing. *next: the step to look at next, and from where.
 */
static tsr_status look_for_stop(run_rank *r, int64_t step, int64_t next[2], bool *stops)
{
    double sum = 0;
    for (int64_t i = next[1]; i < step; i++)
        sum += r->seconds[i];
    int64_t steps = step - next[1];
    look worst = {steps > 0 ? sum / (double)steps : LOOK_S, run_stop_signal()};
    TSRI_TRY(look_about(r, &worst, stops));
    double ahead = worst.step_s > 0 ? LOOK_S / worst.step_s : 1, most = 2 * (double)steps;
    ahead = ahead > most ? most : ahead;
    next[1] = step;
    next[0] = step + (ahead > 1 ? (int64_t)ahead : 1);
    return TSR_OK;
}

/* One step, the i-th of this run. */
static tsr_status run_step(run_rank *r, int64_t i)
{
    tsri_comm_stats before, after;
    double t = tsri_now_s();
    TSRI_TRY(tsri_program_feed(r->program, r->plan));
    tsri_plan_stats(r->world, &before);
    TSRI_TRY(tsr_run(r->plan));
    tsri_plan_stats(r->world, &after);
    count_step(r, &before, &after);
    TSRI_TRY(tsr_wait(r->plan));
    r->seconds[i] = tsri_now_s() - t;
    if (r->losses && r->speaks)
        TSRI_TRY(tsr_fetch_scalar(r->plan, run_loss(r->program)->name, &r->losses[i]));
    r->steps = i + 1;
    run_watch_step(r->watch, r->seconds[i]);
    /* As a loss that is not finite: nothing is learnt any more. */
    if (r->program->scaler && r->job->opts.on_nan == TSR_NAN_STOP &&
        tsr_grad_scaler_scale(r->program->scaler) == 0)
        return tsr_set_error(TSR_ERR_NAN, "%s", tsri_scaler_gave_up);
    return TSR_OK;
}

static tsr_status run_steps(run_rank *r)
{
    bool trains = tsri_experiment_trains(r->job->experiment), stops = false;
    bool shows = r->losses && r->speaks && !r->job->json && trains;
    int64_t next[2] = {0};
    for (int64_t i = 0; i < r->planned - r->first && !stops; i++) {
        if (i == next[0])
            TSRI_TRY(look_for_stop(r, i, next, &stops));
        if (stops)
            break;
        const double lr = trains ? tsr_optimizer_lr(r->program->optimizer) : 0;
        TSRI_TRY(run_step(r, i));
        run_metrics_step(r, i, lr);
        if (shows)
            run_show_loss(r, i);
        if (r->job->progress && r->speaks)
            run_show_progress(r, i);
        TSRI_TRY(run_upkeep_step(r, &stops));
    }
    if (r->speaks)
        run_clear_progress(r);
    return TSR_OK;
}

/* --- figures ---------------------------------------------------------------------------------- */
static tsr_status take_figures(run_rank *r)
{
    tsr_plan_info info = {.size = sizeof info};
    run_figures *m = &r->mine;
    TSRI_TRY(tsr_plan_get_info(r->plan, &info));
    m->compile_s = info.compile_s;
    m->infer_s = info.infer_s;
    m->cost_s = info.cost_s;
    m->step_s = info.step_s;
    m->run_s = info.run_s;
    m->compute_s = info.compute_s;
    m->comm_s = info.comm_s;
    m->variables = info.variable_bytes;
    m->activations = info.activation_bytes;
    m->scratch = info.scratch_bytes;
    m->kept = info.kept_bytes;
    m->ports = info.port_bytes;
    m->host = info.host_bytes;
    for (int i = 0; i < r->plan->nsteps && !r->all; i++) { /* once */
        const tsri_step *s = &r->plan->steps[i];
        if (s->kind == TSRI_STEP_START) {
            const uint64_t times = (uint64_t)tsri_item_times(&r->plan->ir, s->item);
            const tsri_coll_kind kind = s->call->coll.kind;
            *(s->only_if ? &m->coll[kind].once_calls : &m->coll[kind].planned_calls) += times;
            *(s->only_if ? &m->coll[kind].once_bytes : &m->coll[kind].planned_bytes) +=
                s->call->bytes * times;
        }
    }
    if (tsri_trace_count(r->plan))
        m->trace_start_s = tsri_trace_get(r->plan, 0).start_s;
    return TSR_OK;
}

/* All ranks get all ranks' figures. */
static tsr_status gather_figures(run_rank *r)
{
    tsri_comm *comm = r->world->comm;
    TSRI_TRY(take_figures(r));
    if (!r->all && !(r->all = calloc((size_t)tsr_world_size(r->world), sizeof *r->all)))
        return run_no_memory();
    return comm->ops->exchange(comm, &r->mine, sizeof r->mine, r->all);
}

/* And the losses, from the one that has them. */
static tsr_status gather(run_rank *r)
{
    tsri_comm *comm = r->world->comm;
    const tsri_fetch *loss = run_loss(r->program);
    size_t n = (size_t)tsr_world_size(r->world);
    TSRI_TRY(gather_figures(r));
    double *all = r->losses ? calloc(n, CHUNK * sizeof *all) : NULL;
    if (r->losses && !all)
        return run_no_memory();
    tsr_status status = TSR_OK;
    for (int64_t i = 0; i < r->steps && r->losses && status == TSR_OK; i += CHUNK) {
        size_t m = (size_t)(r->steps - i < CHUNK ? r->steps - i : CHUNK);
        status = comm->ops->exchange(comm, &r->losses[i], m * sizeof *all, all);
        memcpy(&r->losses[i], &all[(size_t)run_owner(r, loss->name) * m], m * sizeof *all);
    }
    free(all);
    return status;
}

/* --- the end ---------------------------------------------------------------------------------- */
static tsr_status finish(run_rank *r)
{
    const run_job *job = r->job;
    bool has_values = r->steps > 0 || r->planned == 0;
    TSRI_TRY(run_upkeep_finish(r));
    TSRI_TRY(gather(r));
    if (job->out && has_values)
        TSRI_TRY(run_write_arrays(r));
    if (job->trace && has_values)
        TSRI_TRY(run_write_trace(r));
    r->is_traced = job->trace && has_values;
    if (job->out && tsr_world_rank(r->world) == 0)
        TSRI_TRY(run_write_result(r));
    if (tsr_world_rank(r->world) == 0)
        TSRI_TRY(run_write_page(r));
    if (!job->json && !tsri_experiment_trains(job->experiment))
        return has_values ? run_print_values(r) : TSR_OK;
    if (!job->json && r->speaks)
        run_print_summary(r);
    if (!job->json)
        return TSR_OK;
    if (tsr_world_rank(r->world) == 0 && cli_print_json(run_make_result(r)) != CLI_OK)
        return tsr_set_error(TSR_ERR_IO, "the result can't be printed");
    return TSR_OK;
}

/* A step was left in the middle, or failed, and no rank can reach the others any more: the one that
 * has the losses leaves what it knows. */
static tsr_status finish_alone(run_rank *r)
{
    r->is_alone = true;
    if (!r->speaks)
        return TSR_OK;
    TSRI_TRY(take_figures(r));
    r->all[tsr_world_rank(r->world)] = r->mine;
    if (r->job->out)
        TSRI_TRY(run_write_result(r));
    TSRI_TRY(run_write_page(r));
    if (!r->job->json && tsri_experiment_trains(r->job->experiment))
        run_print_summary(r);
    if (r->job->json && cli_print_json(run_make_result(r)) != CLI_OK)
        return tsr_set_error(TSR_ERR_IO, "the result can't be printed");
    return TSR_OK;
}

/* The run has failed, with the thread's last error; what was done before stays. Returns `status`,
 * with its text. */
static tsr_status finish_failed(run_rank *r, tsr_status status)
{
    char left[512] = "";
    snprintf(r->failure, sizeof r->failure, "%s", tsr_last_error());
    if (r->steps > 0 && finish_alone(r) != TSR_OK)
        snprintf(left, sizeof left, "\nNor is there a result: %s", tsr_last_error());
    return tsr_set_error(status, "%s%s", r->failure, left);
}

static void say_stop(const run_rank *r)
{
    if (!r->job->stopped_by || !r->speaks)
        return;
    tsri_fshow(stderr, "tessera run: stopped by SIG%s after step %lld of %lld%s\n",
               sigabbrev_np(r->job->stopped_by), (long long)(r->first + r->steps),
               (long long)r->planned,
               r->is_alone ? "; the step under way did not end and was left" : "");
}

/* --- a rank ----------------------------------------------------------------------------------- */
static tsr_status run_program(run_rank *r)
{
    const tsri_fetch *loss = run_loss(r->program);
    tsr_status compiled = tsr_compile_with(r->program->graph, &r->job->opts, &r->plan);
    if (compiled != TSR_OK)
        return tsri_program_say_device(r->program, compiled);
    if (r->job->trace)
        TSRI_TRY(tsri_trace_enable(r->plan));
    r->planned = r->program->steps;
    r->seconds = calloc((size_t)r->planned + 1, sizeof *r->seconds);
    bool scalar = loss && tsr_dims_count(loss->dims) == 1;
    r->losses = scalar ? calloc((size_t)r->planned + 1, sizeof *r->losses) : NULL;
    if (!r->seconds || (scalar && !r->losses))
        return run_no_memory();
    r->speaks = tsr_world_rank(r->world) == (loss ? run_owner(r, loss->name) : 0);
    TSRI_TRY(run_upkeep_open(r));
    TSRI_TRY(run_metrics_open(r));
    TSRI_TRY(gather_figures(r));
    if (r->speaks && !r->job->json && tsri_experiment_trains(r->job->experiment))
        run_show_header(r);
    if (tsr_world_rank(r->world) == 0 || run_is_launched())
        r->watch = run_watch_start(r->world);
    tsr_status status = run_steps(r);
    run_watch_end(r->watch);
    if (status == TSR_OK)
        status = finish(r);
    else if (!run_stop_signal() || !strstr(tsr_last_error(), RUN_STEP_LEFT))
        return finish_failed(r, status);
    else {
        r->job->stopped_by = run_stop_signal();
        status = finish_alone(r);
    }
    if (status == TSR_OK)
        say_stop(r);
    return status;
}

tsr_status run_on_rank(tsr_world *world, void *arg)
{
    run_rank r = {.job = arg, .world = world};
    const tsri_program_opts opts = {
        .steps = r.job->steps, .shards = r.job->out != NULL, .compile = &r.job->opts};
    TSRI_TRY(tsri_program_build(r.job->experiment, world, &opts, &r.program));
    tsr_status status = run_program(&r);
    const tsr_status closed = run_metrics_close(&r);
    status = status == TSR_OK ? closed : status;
    tsr_checkpoint_destroy(r.checkpoint);
    free(r.dump);
    free(r.changes);
    free(r.evals);
    free(r.losses);
    free(r.seconds);
    free(r.all);
    tsr_plan_destroy(r.plan);
    tsri_program_destroy(r.program);
    return status;
}
