/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of `tessera run`, printed by the lowest rank that has the loss: a header, the losses
 * while they come, and how far it is. All are flushed, so that a pipe has them at once. */
#include "src/cli/run/run.h"
#include "src/core/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 20, CLEARED = 78 };
static const double LINE_S = 5;

char *run_number(double v, int digits, char buf[CLI_NUMBER_MAX])
{
    if (isnan(v))
        snprintf(buf, CLI_NUMBER_MAX, "nan"); /* of either sign */
    else
        snprintf(buf, CLI_NUMBER_MAX, "%.*g", digits, v);
    return buf;
}

/* --- the header ------------------------------------------------------------------------------- */
/* "2,236,682". */
static char *count_text(int64_t n, char buf[CLI_NUMBER_MAX])
{
    char digits[CLI_NUMBER_MAX], *to = buf;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = 0;
    return buf;
}

uint64_t run_memory(const run_figures *f)
{
    return f->variables + f->activations + f->ports + f->kept + f->host;
}

void run_show_header(const run_rank *r)
{
    const tsri_program *p = r->program;
    char count[CLI_NUMBER_MAX], step[CLI_NUMBER_MAX], bytes[CLI_NUMBER_MAX];
    int n = tsr_world_size(r->world), most = 0;
    for (int i = 1; i < n; i++)
        most = run_memory(&r->all[i]) > run_memory(&r->all[most]) ? i : most;
    cli_say("%s: %s parameters on %d rank%s (%s%s); %lld step%s",
            tsri_experiment_subject(p->experiment), count_text(tsr_module_count(p->module), count),
            n, n == 1 ? "" : "s", tsr_device_name(tsri_experiment_device(p->experiment)),
            run_is_launched() ? ", processes"
            : n > 1           ? ", threads"
                              : "",
            (long long)r->planned, r->planned == 1 ? "" : "s");
    if (p->rows > 0)
        cli_say(" of %lld rows, %lld an epoch", (long long)p->rows, (long long)p->steps_per_epoch);
    putchar('\n');
    if (r->first > 0)
        cli_say("goes on after step %lld, from %s\n", (long long)r->first,
                tsri_experiment_upkeep(p->experiment).checkpoint);
    if (r->first > 0 && r->changes)
        cli_put_shown(stdout, r->changes);
    const run_figures *f = &r->all[most];
    cli_say("planned: %s a step; %s on rank %d, which needs most",
            cli_seconds(r->mine.step_s, step), cli_bytes((double)run_memory(f), bytes), most);
    cli_say(":\n  %s tensors, as in `tessera plan`",
            cli_bytes((double)(run_memory(f) - f->scratch - f->kept - f->host), bytes));
    if (f->scratch)
        cli_say("; %s kernels' scratch", cli_bytes((double)f->scratch, bytes));
    if (f->kept)
        cli_say("; %s packed weights", cli_bytes((double)f->kept, bytes));
    cli_say("; %s records\n", cli_bytes((double)f->host, bytes));
    cli_flush();
}

/* --- steps ------------------------------------------------------------------------------------ */
void run_clear_progress(const run_rank *r)
{
    if (r->job->progress && r->steps > 0)
        cli_say("\r%*s\r", CLEARED, "");
}

void run_show_progress(const run_rank *r, int64_t i)
{
    const int64_t step = r->first + i;
    const tsri_program *p = r->program;
    char loss[CLI_NUMBER_MAX], text[CLEARED + 2];
    int n = snprintf(text, sizeof text, "step %lld of %lld", (long long)step + 1,
                     (long long)r->planned);
    if (p->steps_per_epoch > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, ", epoch %lld",
                      (long long)(step / p->steps_per_epoch) + 1);
    if (r->losses)
        n += snprintf(text + n, sizeof text - (size_t)n, ", loss %s",
                      run_number(r->losses[i], 6, loss));
    snprintf(text + n, sizeof text - (size_t)n, ", %.3f s", r->seconds[i]);
    cli_say("\r%-*s", CLEARED, text);
    cli_flush();
}

/* Whether a step has a line: the first and the last three, each twentieth part of many, and one in
 * LINE_S seconds. */
static bool is_shown(const run_rank *r, int64_t step)
{
    int64_t n = r->planned;
    return n <= LINES || step < 3 || step >= n - 3 || (step + 1) % (n / LINES) == 0 ||
           tsri_now_s() - r->printed_s >= LINE_S;
}

void run_show_loss(run_rank *r, int64_t i)
{
    const int64_t step = r->first + i;
    char loss[CLI_NUMBER_MAX];
    double s = 0;
    if (!is_shown(r, step))
        return;
    for (int64_t k = r->printed_steps; k <= i; k++)
        s += r->seconds[k];
    run_clear_progress(r);
    cli_say("step %lld: loss %s", (long long)step + 1, run_number(r->losses[i], 8, loss));
    if (s > 0 && r->program->rows > 0) {
        const double rate = (double)((i + 1 - r->printed_steps) * r->program->rows) / s;
        cli_say(", %.*f rows/s", rate < 100 ? 1 : 0, rate);
    }
    putchar('\n');
    cli_flush();
    r->printed_s = tsri_now_s();
    r->printed_steps = i + 1;
}

void run_show_eval(const run_rank *r, const run_eval *e)
{
    char loss[CLI_NUMBER_MAX];
    run_clear_progress(r);
    cli_say("evaluation after step %lld: loss %s", (long long)e->step,
            run_number(e->mean.loss, 8, loss));
    if (e->mean.has_classes)
        cli_say(", accuracy %.2f %%, top-5 %.2f %%", 100 * e->mean.accuracy, 100 * e->mean.top5);
    cli_say(", of %lld rows in %.3f s\n", (long long)e->mean.rows, e->seconds);
    cli_flush();
}

/* --- values ----------------------------------------------------------------------------------- */
static tsr_status print_fetch(const run_rank *r, const tsri_fetch *f)
{
    size_t bytes = (size_t)tsr_dims_count(f->dims) * tsr_dtype_size(f->dtype);
    void *data = malloc(bytes + 1);
    if (!data)
        return run_no_memory();
    tsr_status status = tsr_fetch(r->plan, f->name, data, bytes);
    if (status == TSR_OK) {
        char dims[TSRI_DIMS_TEXT_MAX];
        cli_say("%s: %s[%s]\n", f->name, tsr_dtype_name(f->dtype), tsri_dims_format(f->dims, dims));
        cli_print_array(stdout, f->dtype, f->dims, data);
        cli_flush();
    }
    free(data);
    return status;
}

tsr_status run_print_values(const run_rank *r)
{
    const tsri_program *p = r->program;
    for (int i = 0; i < p->nfetches; i++) {
        if (tsr_world_rank(r->world) == run_owner(r, p->fetches[i].name))
            TSRI_TRY(print_fetch(r, &p->fetches[i]));
        TSRI_TRY(tsr_world_barrier(r->world));
    }
    return TSR_OK;
}
