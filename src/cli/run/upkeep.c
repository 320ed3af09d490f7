/* SPDX-License-Identifier: Apache-2.0 */
/* A training run beside its steps: it evaluates, keeps checkpoints, and goes on from one. */
#include "src/cli/run/run.h"
#include "src/core/clock.h"
#include "src/comm/agree.h"
#include "src/core/new_file.h"
#include "src/core/text_stream.h"
#include "src/train/checkpoint/folder.h"
#include "src/train/resume.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the experiment of a checkpoint ----------------------------------------------------------- */
/* Runs `put` on a stream in memory. *out_text is the caller's to free. */
static tsr_status put_text(tsr_status (*put)(const void *arg, FILE *f), const void *arg,
                           char **out_text)
{
    tsri_text_stream t;
    *out_text = NULL;
    if (!tsri_text_open(&t, NULL))
        return run_no_memory();
    tsr_status status = put(arg, t.stream);
    char *text = tsri_text_close(&t, NULL);
    if (!text && status == TSR_OK)
        status = run_no_memory();
    if (status != TSR_OK) {
        free(text);
        text = NULL;
    }
    *out_text = text;
    return status;
}

static tsr_status put_experiment(const void *arg, FILE *f)
{
    return tsri_experiment_dump(arg, f);
}

typedef struct changes {
    const run_rank *rank;
    int n;
    const tsri_resume_change *list;
} changes;

/* A line for each change that has an effect; a warning for each that has none. */
static tsr_status put_changes(const void *arg, FILE *f)
{
    const changes *c = arg;
    for (int i = 0; i < c->n; i++) {
        const tsri_resume_change *x = &c->list[i];
        if (!x->is_kept)
            tsri_fshow(f, "  %s: %s, was %s\n", x->key, x->now, x->was);
        else if (tsr_world_rank(c->rank->world) == 0)
            tsri_log(c->rank->world, TSR_LOG_WARNING,
                     "%s: %s now, and %s in the run that goes on: it speaks of the beginning, and "
                     "what the checkpoint holds stays",
                     x->key, x->now, x->was);
    }
    return TSR_OK;
}

/* Compares the experiment that a checkpoint holds with this one: a tsri_ckpt_resume_fn. */
static tsr_status compare_experiments(void *arg, const char *path, const char *then)
{
    run_rank *r = arg;
    changes c = {.rank = r};
    tsri_resume_change *list;
    tsri_pool pool;
    free(r->changes);
    r->changes = NULL;
    if (!then && tsr_world_rank(r->world) == 0)
        tsri_log(r->world, TSR_LOG_WARNING,
                 "%s: it holds no experiment, as those of earlier versions: the optimizer goes on "
                 "with the checkpoint's numbers, whatever the file says now",
                 path);
    if (!then)
        return TSR_OK;
    tsri_pool_init(&pool, NULL);
    tsr_status status =
        tsri_experiment_resume(r->job->experiment, path, r->dump, then, &pool, &c.n, &list);
    r->is_refused = status == TSR_ERR_STATE;
    c.list = list;
    if (status == TSR_OK)
        status = put_text(put_changes, &c, &r->changes);
    tsri_pool_finish(&pool);
    return status;
}

/* --- checkpoints ------------------------------------------------------------------------------ */
static tsr_status add_parts(run_rank *r)
{
    TSRI_TRY(tsri_checkpoint_add_experiment(r->checkpoint, "experiment", r->dump,
                                            compare_experiments, r));
    TSRI_TRY(tsr_checkpoint_add_bytes(r->checkpoint, "run", &r->of, sizeof r->of));
    TSRI_TRY(tsr_checkpoint_add_module(r->checkpoint, "model", r->program->module));
    TSRI_TRY(tsr_checkpoint_add_optimizer(r->checkpoint, "optimizer", r->program->optimizer));
    if (r->program->scaler)
        TSRI_TRY(tsr_checkpoint_add_grad_scaler(r->checkpoint, "scaler", r->program->scaler));
    return r->program->loader
               ? tsr_checkpoint_add_loader(r->checkpoint, "loader", r->program->loader)
               : TSR_OK;
}

/* The loader's place is a number of batches: of others it would be another place. */
static tsr_status check_loaded(const run_rank *r, int64_t step)
{
    const tsri_program *p = r->program;
    if (r->of.rows == p->rows && r->of.steps_per_epoch == p->steps_per_epoch)
        return TSR_OK;
    return tsr_set_error(TSR_ERR_STATE,
                         "the checkpoint of step %lld is of batches of %lld rows, %lld an epoch; "
                         "here they have %lld, %lld an epoch",
                         (long long)step, (long long)r->of.rows, (long long)r->of.steps_per_epoch,
                         (long long)p->rows, (long long)p->steps_per_epoch);
}

/* Says now, not after hours, that the folder can't be made. */
static tsr_status make_folder(const char *folder)
{
    const int rc = -tsri_make_folders(folder, 0777);
    if (rc || access(folder, W_OK))
        return tsr_set_error(TSR_ERR_IO, "%s: %s", folder, strerror(rc ? rc : errno));
    return TSR_OK;
}

/* Goes on from the newest checkpoint, if there is one. */
static tsr_status open_checkpoint(run_rank *r, const tsri_upkeep *u)
{
    TSRI_TRY(tsr_checkpoint_create(r->world, u->checkpoint, TSR_CHECKPOINT_OPTS(.keep = u->keep),
                                   &r->checkpoint));
    r->of = (run_saved){r->program->rows, r->program->steps_per_epoch};
    TSRI_TRY(put_text(put_experiment, r->job->experiment, &r->dump));
    TSRI_TRY(add_parts(r));
    TSRI_TRY(make_folder(u->checkpoint));
    /* No rank may save before all have looked. */
    int64_t *steps, step;
    int n;
    tsr_status status = tsri_ckpt_list(NULL, u->checkpoint, &steps, &n);
    tsri_mem_free(steps);
    TSRI_TRY(tsri_agree(r->world, status));
    if (n && !u->resumes)
        return tsr_set_error(TSR_ERR_STATE,
                             "%s: has checkpoints of another run, and resume is false: name "
                             "another folder, or remove them",
                             u->checkpoint);
    TSRI_TRY(tsr_checkpoint_load(r->checkpoint, NULL, &step));
    TSRI_TRY(check_loaded(r, step));
    r->first = step > 0 ? step : 0;
    r->saved = step;
    return TSR_OK;
}

tsr_status run_upkeep_open(run_rank *r)
{
    const tsri_upkeep u = tsri_experiment_upkeep(r->job->experiment);
    r->saved = r->evaluated = -1;
    if (u.evaluates)
        TSRI_TRY(tsri_program_open_eval(r->program, &r->job->opts));
    if (!u.checkpoint)
        return TSR_OK;
    TSRI_TRY(tsri_program_start(r->program, r->plan));
    const tsr_status status = open_checkpoint(r, &u);
    return r->is_refused ? status : tsri_experiment_fail(r->job->experiment, "checkpoint", status);
}

static tsr_status save(run_rank *r, int64_t step)
{
    const double start = tsri_now_s();
    if (r->saved == step)
        return TSR_OK;
    const double metric =
        r->nevals > 0 && r->evaluated == step ? r->evals[r->nevals - 1].mean.loss : NAN;
    TSRI_TRY(tsr_checkpoint_save(r->checkpoint, step, metric));
    r->saved = step;
    run_metrics_checkpoint(r, step, tsri_now_s() - start);
    return TSR_OK;
}

/* --- evaluation ------------------------------------------------------------------------------- */
/* All ranks get the figures of the one that has the loss. */
static tsr_status add_eval(run_rank *r, run_eval mine)
{
    const size_t n = (size_t)tsr_world_size(r->world);
    run_eval *more = realloc(r->evals, (size_t)(r->nevals + 1) * sizeof *more);
    run_eval *all = calloc(n, sizeof *all);
    r->evals = more ? more : r->evals;
    tsr_status status = more && all ? TSR_OK : run_no_memory();
    if (status == TSR_OK)
        status = r->world->comm->ops->exchange(r->world->comm, &mine, sizeof mine, all);
    if (status == TSR_OK)
        r->evals[r->nevals++] = all[run_owner(r, run_loss(r->program)->name)];
    free(all);
    return status;
}

static bool is_due(const run_rank *r, tsri_every every, int64_t step)
{
    const int64_t unit = every.epochs ? r->program->steps_per_epoch : 1;
    return every.n > 0 && unit > 0 && every.n <= INT64_MAX / unit && step % (every.n * unit) == 0;
}

/* Leaves the evaluation where the run is to stop. */
static tsr_status evaluate(run_rank *r, int64_t step, bool *stops)
{
    run_eval e = {.step = step};
    const double start = tsri_now_s();
    tsr_status status = TSR_OK;
    TSRI_TRY(tsri_program_eval_begin(r->program, &e.mean));
    for (;;) {
        TSRI_TRY(run_agree_to_stop(r, stops));
        if (*stops)
            return TSR_OK;
        status = tsri_program_eval_next(r->program, &e.mean);
        if (status == TSR_END)
            break;
        TSRI_TRY(status);
    }
    e.seconds = tsri_now_s() - start;
    TSRI_TRY(add_eval(r, e));
    r->evaluated = step;
    if (is_due(r, tsri_experiment_upkeep(r->job->experiment).eval, step))
        tsr_optimizer_report(r->program->optimizer, r->evals[r->nevals - 1].mean.loss);
    if (!r->speaks)
        return TSR_OK;
    if (!r->job->json)
        run_show_eval(r, &r->evals[r->nevals - 1]);
    run_metrics_eval(r, &r->evals[r->nevals - 1]);
    return TSR_OK;
}

/* --- when ------------------------------------------------------------------------------------- */
tsr_status run_upkeep_step(run_rank *r, bool *stops)
{
    const tsri_upkeep u = tsri_experiment_upkeep(r->job->experiment);
    const int64_t step = r->first + r->steps;
    const bool evaluates = u.evaluates && (is_due(r, u.eval, step) || step == r->planned);
    const bool saves = r->checkpoint && is_due(r, u.save, step);
    if (!evaluates && !saves)
        return TSR_OK;
    run_watch_hold(r->watch, true);
    if (evaluates)
        TSRI_TRY(evaluate(r, step, stops));
    if (saves && !*stops)
        TSRI_TRY(save(r, step));
    /* A signal that came meanwhile ends the run here, not by the watch. */
    if (!*stops)
        TSRI_TRY(run_agree_to_stop(r, stops));
    run_watch_hold(r->watch, *stops);
    return TSR_OK;
}

static tsr_status save_weights(const run_rank *r, const char *folder)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    if (n < 0 || n >= PATH_MAX)
        return tsr_set_error(TSR_ERR_IO, "%.100s...: the name is too long", folder);
    return tsr_save(r->program->module, path);
}

tsr_status run_upkeep_finish(run_rank *r)
{
    const tsri_upkeep u = tsri_experiment_upkeep(r->job->experiment);
    if (!tsri_experiment_trains(r->job->experiment) || r->steps == 0)
        return TSR_OK;
    if (u.checkpoint) {
        TSRI_TRY(save(r, r->first + r->steps));
        TSRI_TRY(save_weights(r, u.checkpoint));
    }
    return r->job->out ? save_weights(r, r->job->out) : TSR_OK;
}
