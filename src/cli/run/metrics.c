/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a training run as they come: JSON lines, and TensorBoard's events. The rank that
 * speaks writes them, each line at once. */
#include "src/cli/run/run.h"
#include "src/core/clock.h"
#include "src/core/new_file.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- opening ---------------------------------------------------------------------------------- */
static tsr_status metrics_failed(const char *path, int rc)
{
    return tsr_set_error(TSR_ERR_IO, "%s: %s", path, strerror(rc));
}

/* Copies the lines of the steps up to `last`. Lines begin with {"event":"...","step":N. */
static void copy_lines(FILE *from, FILE *to, int64_t last)
{
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; (n = getline(&line, &room, from)) > 0;) {
        const char *step = strstr(line, "\"step\":");
        if (step && line[n - 1] == '\n' && strtoll(step + 7, NULL, 10) <= last)
            fwrite(line, 1, (size_t)n, to);
    }
    free(line);
}

/* A run that goes on keeps the lines of the steps before it, and drops those that it does again. */
static int keep_lines(const char *path, int64_t first)
{
    tsri_new_file file;
    FILE *old = first > 0 ? fopen(path, "re") : NULL;
    if (!old)
        return 0;
    int rc = tsri_new_file_stream(&file, path);
    if (!rc) {
        copy_lines(old, file.stream, first);
        rc = tsri_new_file_keep(&file, false);
    }
    fclose(old);
    return -rc;
}

static tsr_status open_lines(run_metrics *m, const char *path, int64_t first)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int rc = 0;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 0, path);
    if (folder[0])
        rc = -tsri_make_folders(folder, 0777);
    if (!rc)
        rc = keep_lines(path, first);
    if (!rc && !(m->lines = fopen(path, first > 0 ? "ae" : "we")))
        rc = errno;
    return rc ? metrics_failed(path, rc) : TSR_OK;
}

tsr_status run_metrics_open(run_rank *r)
{
    const tsri_upkeep u = tsri_experiment_upkeep(r->job->experiment);
    r->metrics.start_s = tsri_now_s();
    if (r->speaks && u.metrics)
        TSRI_TRY(open_lines(&r->metrics, u.metrics, r->first));
    return r->speaks && u.tensorboard ? run_events_open(u.tensorboard, r->first, &r->metrics.events)
                                      : TSR_OK;
}

/* --- lines ------------------------------------------------------------------------------------ */
/* JSON has no word for what is not finite. */
static void put_number(FILE *f, const char *key, double v, int digits)
{
    if (isfinite(v))
        fprintf(f, ",\"%s\":%.*g", key, digits, v);
    else
        fprintf(f, ",\"%s\":null", key);
}

static void begin_line(const run_rank *r, const char *event, int64_t step)
{
    FILE *f = r->metrics.lines;
    fprintf(f, "{\"event\":\"%s\",\"step\":%lld", event, (long long)step);
    put_number(f, "epoch", (double)step / (double)r->program->steps_per_epoch, 9);
}

static void end_line(const run_rank *r)
{
    put_number(r->metrics.lines, "elapsed_s", tsri_now_s() - r->metrics.start_s, 9);
    fputs("}\n", r->metrics.lines);
    fflush(r->metrics.lines);
}

void run_metrics_step(const run_rank *r, int64_t i, double lr)
{
    const int64_t step = r->first + i + 1;
    const double s = r->seconds[i], loss = r->losses ? r->losses[i] : NAN;
    const double rate = s > 0 ? (double)r->program->rows / s : 0;
    const run_scalar scalars[] = {
        {"train/loss", loss}, {"train/lr", lr}, {"train/rows_per_s", rate}};
    run_events_add(r->metrics.events, step, 3, scalars);
    if (!r->metrics.lines)
        return;
    begin_line(r, "step", step);
    put_number(r->metrics.lines, "loss", loss, 9);
    put_number(r->metrics.lines, "lr", lr, 9);
    put_number(r->metrics.lines, "seconds", s, 6);
    put_number(r->metrics.lines, "rows_per_s", rate, 6);
    end_line(r);
}

void run_metrics_eval(const run_rank *r, const run_eval *e)
{
    const run_scalar scalars[] = {{"eval/loss", e->mean.loss},
                                  {"eval/accuracy", e->mean.accuracy},
                                  {"eval/top5", e->mean.top5}};
    run_events_add(r->metrics.events, e->step, e->mean.has_classes ? 3 : 1, scalars);
    if (!r->metrics.lines)
        return;
    begin_line(r, "eval", e->step);
    put_number(r->metrics.lines, "loss", e->mean.loss, 9);
    if (e->mean.has_classes) {
        put_number(r->metrics.lines, "accuracy", e->mean.accuracy, 9);
        put_number(r->metrics.lines, "top5", e->mean.top5, 9);
    }
    put_number(r->metrics.lines, "rows", (double)e->mean.rows, 17);
    put_number(r->metrics.lines, "seconds", e->seconds, 6);
    end_line(r);
}

void run_metrics_checkpoint(const run_rank *r, int64_t step, double seconds)
{
    if (!r->metrics.lines)
        return;
    begin_line(r, "checkpoint", step);
    put_number(r->metrics.lines, "seconds", seconds, 6);
    end_line(r);
}

/* --- closing ---------------------------------------------------------------------------------- */
static tsr_status close_stream(FILE **f, const char *path)
{
    errno = 0;
    bool failed = *f && ferror(*f);
    failed |= *f && fclose(*f) != 0;
    *f = NULL;
    return failed ? metrics_failed(path, errno ? errno : EIO) : TSR_OK;
}

tsr_status run_metrics_close(run_rank *r)
{
    const tsri_upkeep u = tsri_experiment_upkeep(r->job->experiment);
    const tsr_status events = close_stream(&r->metrics.events, u.tensorboard);
    const tsr_status lines = close_stream(&r->metrics.lines, u.metrics);
    return lines == TSR_OK ? events : lines;
}
