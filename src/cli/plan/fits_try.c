/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles changed experiments within a limited time. */
#include "src/cli/plan/ask.h"
#include "src/cli/plan/fits.h"
#include "src/cli/plan/progress.h"
#include "src/core/clock.h"
#include "src/exec/exec.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Seconds after which one change is abandoned, and after which all are. The refusal counts the
 * abandoned and the unstarted changes. */
static const double MOST_S = 20, ALL_S = 60;
/* Seconds after which the figures of one change, and of all, are given up: lines have none then. */
static const double MOST_PRICE_S = 8, ALL_PRICES_S = ALL_S + 12;

typedef struct change_trial {
    const cli_fits *how;
    const tsri_experiment *changed;
} change_trial;

/* --- overrides -------------------------------------------------------------------------------- */
void fits_add(fits_change *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->sets[c->n++], sizeof c->sets[0], format, args);
    va_end(args);
}

void fits_put_sets(const fits_change *c, char *text, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz_.=0123456789";
    for (int i = 0; i < c->n; i++) {
        const char *quote = c->sets[i][strspn(c->sets[i], plain)] ? "'" : "";
        snprintf(text + strlen(text), size - strlen(text), " --set %s%s%s", quote, c->sets[i],
                 quote);
    }
}

/* Returns the overrides of the command line and those of a change after them; NULL: no memory. */
static const char **join_sets(const cli_fits *how, const fits_change *c, int *out_n)
{
    size_t n = (size_t)how->nsets;
    const char **sets = malloc((n + FITS_SETS) * sizeof *sets);
    if (!sets)
        return NULL;
    if (n)
        memcpy(sets, how->sets, n * sizeof *sets);
    for (int i = 0; i < c->n; i++)
        sets[n++] = c->sets[i];
    *out_n = (int)n;
    return sets;
}

static tsr_status load_change(const cli_fits *how, const fits_change *c,
                              tsri_experiment **out_changed)
{
    int n;
    const char **sets = join_sets(how, c, &n);
    if (!sets)
        return TSR_ERR_INVALID;
    tsr_status status = tsri_experiment_load_for(how->path, tsri_experiment_asked(how->experiment),
                                                 n, sets, out_changed);
    free(sets);
    return status;
}

bool fits_is_legal(const fits_trials *t, const fits_change *c)
{
    tsri_experiment *changed = NULL;
    tsr_status status = load_change(t->how, c, &changed);
    tsri_experiment_destroy(changed);
    return status == TSR_OK;
}

/* --- one change ------------------------------------------------------------------------------- */
/* Compiles the changed experiment without its data; a tsr_rank_fn. */
static tsr_status compile_changed(tsr_world *world, void *arg)
{
    const change_trial *t = arg;
    tsr_compile_opts compile = *t->how->opts;
    tsri_experiment_fill(t->changed, &compile);
    compile.memory_limit = t->how->opts->memory_limit;
    const tsri_program_opts opts = {.no_data = true, .compile = &compile};
    tsri_program *program;
    tsr_plan *plan = NULL;
    bool fits = true;
    TSRI_TRY(tsri_program_build(t->changed, world, &opts, &program));
    tsr_status status = t->how->with_devices ? tsr_compile_with(program->graph, &compile, &plan)
                                             : tsri_plan_fits(program->graph, &compile, &fits);
    tsr_plan_destroy(plan);
    tsri_program_destroy(program);
    return status == TSR_OK && !fits ? TSR_ERR_NO_MEMORY : status;
}

/* Compiles the experiment with the overrides of a change. TSR_ERR_NO_MEMORY: it does not fit. */
static tsr_status compile_change(const cli_fits *how, const fits_change *c)
{
    tsri_experiment *changed = NULL;
    tsr_world *world = NULL;
    tsr_status status = load_change(how, c, &changed);
    change_trial trial = {how, changed};
    if (status == TSR_OK && how->with_devices)
        status = tsr_spawn(how->ranks, compile_changed, &trial);
    else if (status == TSR_OK)
        status = tsr_world_create_virtual(how->ranks, 0, &world);
    if (status == TSR_OK && world)
        status = compile_changed(world, &trial);
    tsr_world_destroy(world);
    tsri_experiment_destroy(changed);
    return status;
}

static fits_verdict verdict_of(tsr_status status)
{
    return status == TSR_OK ? FITS : status == TSR_ERR_NO_MEMORY ? DOES_NOT_FIT : ILLEGAL;
}

/* Waits for a child process and shows its progress; kills it after most_s. */
static fits_verdict await_child(pid_t child, const char *what, double most_s)
{
    double started_at = tsri_now_s();
    int code = 0;
    for (;;) {
        pid_t done = waitpid(child, &code, WNOHANG);
        if (done == child)
            return WIFEXITED(code) && WEXITSTATUS(code) < ILLEGAL ? (fits_verdict)WEXITSTATUS(code)
                                                                  : ILLEGAL;
        if (done < 0 && errno != EINTR)
            return ILLEGAL;
        if (tsri_now_s() - started_at > most_s) {
            kill(child, SIGKILL);
            while (waitpid(child, &code, 0) < 0 && errno == EINTR)
                ;
            return CUT_SHORT;
        }
        cli_progress_show(what, tsri_now_s() - started_at);
        usleep(20000);
    }
}

fits_trials fits_begin(const cli_fits *how)
{
    const double now_s = tsri_now_s();
    return (fits_trials){
        .how = how, .until_s = now_s + ALL_S, .priced_until_s = now_s + ALL_PRICES_S};
}

fits_verdict fits_try(fits_trials *t, const fits_change *c)
{
    char what[FITS_TEXT + 32] = "trying";
    fits_verdict v = CUT_SHORT;
    fits_put_sets(c, what, sizeof what);
    if (tsri_now_s() < t->until_s && t->how->with_devices) {
        v = verdict_of(compile_change(t->how, c));
    } else if (tsri_now_s() < t->until_s) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(verdict_of(compile_change(t->how, c)));
        v = child < 0 ? ILLEGAL : await_child(child, what, fmin(MOST_S, t->until_s - tsri_now_s()));
        cli_progress_clear();
    }
    t->cut += v == CUT_SHORT;
    return v;
}

/* --- figures ---------------------------------------------------------------------------------- */
static fits_verdict price_change(const cli_fits *how, const fits_change *c, fits_price *out)
{
    plan_source from = {.path = how->path,
                        .ranks = tsri_experiment_asked(how->experiment),
                        .memory_limit = how->opts->memory_limit};
    plan_made made;
    const char **sets = join_sets(how, c, &from.nsets);
    from.sets = sets;
    tsr_status status = sets ? plan_make(&from, &made) : TSR_ERR_INVALID;
    if (status == TSR_OK) {
        const plan_figures f = plan_figures_of(made.report);
        *out = (fits_price){.step_s = f.step_s, .memory = f.memory};
        out->known = f.memory > 0 && f.memory <= from.memory_limit;
    }
    if (sets)
        plan_drop(&made);
    free(sets);
    return verdict_of(status);
}

fits_verdict fits_find_price(fits_trials *t, const fits_change *c, fits_price *out)
{
    char what[FITS_TEXT + 32] = "planning";
    *out = (fits_price){0};
    if (t->how->with_devices || tsri_now_s() > t->priced_until_s)
        return FITS;
    fits_price *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return FITS;
    *shared = *out;
    fits_put_sets(c, what, sizeof what);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(price_change(t->how, c, shared));
    const double most_s = fmin(MOST_PRICE_S, t->priced_until_s - tsri_now_s());
    const fits_verdict v = child < 0 ? CUT_SHORT : await_child(child, what, most_s);
    cli_progress_clear();
    if (v == FITS)
        *out = *shared;
    munmap(shared, sizeof *shared);
    return v == DOES_NOT_FIT ? DOES_NOT_FIT : FITS;
}
