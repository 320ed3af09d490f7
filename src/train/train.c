/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_train: the loop over epochs, evaluation, checkpoints, and what ends it. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "src/core/shown.h"
#include "src/comm/comm.h"
#include "src/core/clock.h"
#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/core/world.h"
#include "src/data/loader/loader.h"
#include "src/train/program.h"

/* --- signals ---------------------------------------------------------------------------------- */
static atomic_int asked_to_end;

static void note_signal(int number)
{
    asked_to_end = number;
}

typedef struct handlers {
    bool set;
    struct sigaction term, interrupt;
} handlers;

/* Threads that are ranks share them: the first that comes finds the program's own, and puts them
 * back. */
static void set_handlers(handlers *h)
{
    const struct sigaction note = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    h->set =
        sigaction(SIGTERM, &note, &h->term) == 0 && sigaction(SIGINT, &note, &h->interrupt) == 0;
    if (h->set && h->term.sa_handler != note_signal)
        asked_to_end = 0;
}

static void unset_handlers(const handlers *h)
{
    if (!h->set)
        return;
    if (h->term.sa_handler != note_signal)
        sigaction(SIGTERM, &h->term, NULL);
    if (h->interrupt.sa_handler != note_signal)
        sigaction(SIGINT, &h->interrupt, NULL);
}

/* --- the loop --------------------------------------------------------------------------------- */
/* Sums over rows, and how many rows. */
typedef struct sums {
    double sum[TSR_TRAIN_METRICS], rows;
} sums;

/* The trainer's own part of a checkpoint. */
typedef struct progress {
    int64_t step, epochs; /* epochs that are complete */
    int64_t stale;        /* epochs without a better one */
    double best;          /* NAN: none yet */
    sums sums;            /* of the epoch under way */
} progress;

typedef struct training {
    tsr_program *program;
    tsr_world *world;
    tsr_train_opts o;
    int noutputs;
    progress *at;
    tsr_epoch last;
    bool ended; /* the epoch is complete; else the limit of steps stopped it */
    double start_s;
} training;

static tsr_status add_outputs(const training *t, tsr_plan *plan, int64_t rows, sums *to)
{
    for (int i = 0; i < t->noutputs; i++) {
        double value;
        TSRI_TRY(tsr_fetch_scalar(plan, t->o.outputs[i], &value));
        to->sum[i] += value * (double)rows;
    }
    to->rows += (double)rows;
    return TSR_OK;
}

/* Adds up what ranks have summed, where each has its own graphs. */
static tsr_status add_ranks(const training *t, sums *s)
{
    const int n = t->world->nranks;
    if (n == 1 || !tsri_program_is_local(t->program))
        return TSR_OK;
    sums *all = tsri_mem_alloc(&t->world->mem, (size_t)n * sizeof *all);
    TSRI_NEED(all);
    const tsr_status status = t->world->comm->ops->exchange(t->world->comm, s, sizeof *s, all);
    memset(s, 0, sizeof *s);
    for (int r = 0; r < n && status == TSR_OK; r++) {
        s->rows += all[r].rows;
        for (int i = 0; i < TSR_TRAIN_METRICS; i++)
            s->sum[i] += all[r].sum[i];
    }
    tsri_mem_free(all);
    return status;
}

static tsr_status put_means(const training *t, const sums *own, double *out)
{
    sums s = *own;
    TSRI_TRY(add_ranks(t, &s));
    for (int i = 0; i < TSR_TRAIN_METRICS; i++)
        out[i] = i < t->noutputs && s.rows > 0 ? s.sum[i] / s.rows : NAN;
    return TSR_OK;
}

/* Whether any rank was told to end. */
static tsr_status ask_all(const training *t, bool *end)
{
    int32_t mine = asked_to_end, all[1] = {mine}, *said = all;
    *end = mine != 0;
    if (t->world->nranks == 1 || !t->o.checkpoint)
        return TSR_OK;
    said = tsri_mem_alloc(&t->world->mem, (size_t)t->world->nranks * sizeof *said);
    TSRI_NEED(said);
    tsr_status status = t->world->comm->ops->exchange(t->world->comm, &mine, sizeof mine, said);
    for (int r = 0; r < t->world->nranks && status == TSR_OK; r++)
        *end |= said[r] != 0;
    tsri_mem_free(said);
    return status;
}

static tsr_status save(const training *t, double metric)
{
    return t->o.checkpoint ? tsr_checkpoint_save(t->o.checkpoint, t->at->step, metric) : TSR_OK;
}

/* The steps of an epoch that are left. TSR_END: a signal has ended it. */
static tsr_status train_epoch(training *t)
{
    progress *at = t->at;
    for (bool end = false;;) {
        tsr_plan *plan;
        int64_t rows;
        if (t->o.steps && at->step >= t->o.steps)
            return TSR_OK;
        tsr_status status = tsr_program_feed(t->program, t->o.train, true, &plan, &rows);
        t->ended = status == TSR_END;
        if (t->ended)
            return TSR_OK;
        TSRI_TRY(status);
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(add_outputs(t, plan, rows, &at->sums));
        at->step++;
        TSRI_TRY(ask_all(t, &end));
        if (end || (t->o.save_every && at->step % t->o.save_every == 0))
            TSRI_TRY(save(t, NAN));
        if (end && t->o.checkpoint)
            return tsri_fail(TSR_END,
                             "tsr_train: a signal has ended it; step %" PRId64 " is being saved",
                             at->step);
    }
}

static tsr_status evaluate(training *t)
{
    sums all = {0};
    if (t->o.eval)
        TSRI_TRY(tsr_loader_set_epoch(t->o.eval, 0));
    for (tsr_status status = t->o.eval ? TSR_OK : TSR_END; status != TSR_END;) {
        tsr_plan *plan;
        int64_t rows;
        status = tsr_program_feed(t->program, t->o.eval, false, &plan, &rows);
        if (status == TSR_END)
            break;
        TSRI_TRY(status);
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(add_outputs(t, plan, rows, &all));
    }
    return put_means(t, &all, t->last.eval);
}

static void print_epoch(const training *t)
{
    const tsr_epoch *e = &t->last;
    if (t->o.quiet || tsr_world_rank(t->world) != 0)
        return;
    tsri_fshow(stdout, "epoch %" PRId64 ": step %" PRId64 ", %.1f s", e->epoch, e->step,
               e->seconds);
    for (int i = 0; i < t->noutputs; i++)
        tsri_fshow(stdout, ", %s %.5g", t->o.outputs[i], e->train[i]);
    for (int i = 0; i < t->noutputs && t->o.eval; i++)
        tsri_fshow(stdout, ", eval %s %.5g", t->o.outputs[i], e->eval[i]);
    tsri_fshow(stdout, "%s\n", e->is_best && t->o.eval ? " (best)" : "");
    fflush(stdout);
}

/* Compares an epoch with the best one; *metric: by what. */
static void judge(training *t, double *metric)
{
    progress *at = t->at;
    *metric = (t->o.eval ? t->last.eval : t->last.train)[t->o.monitor];
    t->last.is_best = isnan(at->best)         ? !isnan(*metric)
                      : t->o.larger_is_better ? *metric > at->best
                                              : *metric < at->best;
    at->stale = t->last.is_best ? 0 : at->stale + 1;
    if (t->last.is_best)
        at->best = *metric;
}

static tsr_status end_epoch(training *t)
{
    progress *at = t->at;
    double metric;
    t->last = (tsr_epoch){.epoch = at->epochs, .step = at->step};
    TSRI_TRY(put_means(t, &at->sums, t->last.train));
    TSRI_TRY(evaluate(t));
    judge(t, &metric);
    t->last.seconds = tsri_now_s() - t->start_s;
    if (t->ended) {
        at->epochs++;
        at->sums = (sums){0};
    }
    print_epoch(t);
    TSRI_TRY(save(t, metric));
    return t->o.on_epoch ? t->o.on_epoch(&t->last, t->o.arg) : TSR_OK;
}

/* Tells the sampler of an epoch that begins which one it is: a distributed one draws by that. One
 * that draws from a generator of the user's goes on. */
static tsr_status begin_epoch(const training *t)
{
    tsr_loader *l = t->o.train;
    if (tsr_loader_position(l) > 0)
        return TSR_OK;
    const tsr_status status = tsr_loader_set_epoch(l, tsr_loader_epoch(l));
    return status == TSR_ERR_STATE ? TSR_OK : status;
}

static bool is_over(const training *t)
{
    return t->at->epochs >= t->o.epochs || (t->o.steps && t->at->step >= t->o.steps) ||
           (t->o.patience && t->at->stale >= t->o.patience);
}

/* Declares the first step before a checkpoint is loaded: gradients between two updates need places.
 */
static tsr_status load(const training *t)
{
    int64_t step, rows;
    tsr_plan *plan;
    if (!t->o.checkpoint)
        return TSR_OK;
    if (tsri_loader_peek(t->o.train, &rows) == TSR_OK && rows > 0)
        TSRI_TRY(tsr_program_plan(
            t->program, tsri_program_is_local(t->program) ? rows : rows * t->o.train->ranks, true,
            &plan));
    return tsr_checkpoint_load(t->o.checkpoint, NULL, &step);
}

static tsr_status train(training *t)
{
    TSRI_TRY(load(t));
    if (t->at->sums.rows > 0 && tsr_loader_position(t->o.train) == 0)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_train: the checkpoint is of the middle of an epoch, and the loader "
                         "stands at the start of one: add it to the checkpoint, too");
    while (!is_over(t)) {
        t->start_s = tsri_now_s();
        TSRI_TRY(begin_epoch(t));
        TSRI_TRY(train_epoch(t));
        TSRI_TRY(end_epoch(t));
    }
    return TSR_OK;
}

static tsr_status check(const tsr_program *p, const tsr_train_opts *o)
{
    if (!p || !o->train)
        return tsri_fail(TSR_ERR_INVALID, "tsr_train: the %s is NULL%s", p ? "loader" : "program",
                         tsri_error_cause());
    TSRI_TRY(tsri_live_check(p, TSRI_LIVE_PROGRAM, "tsr_train"));
    TSRI_TRY(tsri_live_check(o->train, TSRI_LIVE_LOADER, "tsr_train"));
    TSRI_TRY(tsri_live_check(o->eval, TSRI_LIVE_LOADER, "tsr_train"));
    TSRI_TRY(tsri_live_check(o->checkpoint, TSRI_LIVE_CHECKPOINT, "tsr_train"));
    if (o->epochs < 0 || o->steps < 0 || o->patience < 0 || o->save_every < 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_train: epochs %" PRId64 ", steps %" PRId64 ", patience %" PRId64
                         ", save_every %" PRId64 ": none may be negative",
                         o->epochs, o->steps, o->patience, o->save_every);
    return TSR_OK;
}

/* How many outputs there are: "loss", where none is named. */
static tsr_status count_outputs(training *t)
{
    if (!t->o.outputs[0])
        t->o.outputs[0] = "loss";
    while (t->noutputs < TSR_TRAIN_METRICS && t->o.outputs[t->noutputs])
        t->noutputs++;
    if (t->o.monitor >= 0 && t->o.monitor < t->noutputs)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "tsr_train: monitor is %d; there are %d outputs",
                     t->o.monitor, t->noutputs);
}

tsr_status tsr_train(tsr_program *program, const tsr_train_opts *opts, tsr_epoch *out_last)
{
    progress at = {.best = NAN};
    training t = {.program = program, .o = *TSR_TRAIN_OPTS(), .at = &at};
    handlers h = {0};
    TSRI_TRY(tsri_opts_read(&t.o, sizeof t.o, opts, __func__));
    TSRI_TRY(check(program, &t.o));
    TSRI_TRY(count_outputs(&t));
    t.world = tsri_program_world(program);
    t.last.epoch = -1;
    if (t.o.checkpoint) {
        TSRI_TRY(tsr_checkpoint_add_bytes(t.o.checkpoint, "trainer", &at, sizeof at));
        set_handlers(&h);
    }
    tsr_status status = train(&t);
    if (t.o.checkpoint) {
        const tsr_status waited =
            status == TSR_OK || status == TSR_END ? tsr_checkpoint_wait(t.o.checkpoint) : TSR_OK;
        status = waited == TSR_OK ? status : waited;
        tsr_checkpoint_remove(t.o.checkpoint, "trainer");
        unset_handlers(&h);
    }
    if (out_last)
        *out_last = t.last;
    return status;
}
