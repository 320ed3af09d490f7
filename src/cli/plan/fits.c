/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of an experiment that its memory limit is enough for. */
#include "src/cli/plan/plan.h"
#include "src/cli/plan/progress.h"
#include "src/core/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A change is given up after so many seconds; no batch is begun after as many in all, and no other
 * change after ALL_S. */
static const double MOST_S = 8, ALL_S = 20;

typedef struct change_trial {
    const cli_fits *how;
    const tsri_experiment *changed;
} change_trial;

/* The overrides of a trial, behind those of the command line. */
enum { MOST_SETS = 3, SET_TEXT = 96 };
typedef struct change {
    int n;
    char sets[MOST_SETS][SET_TEXT];
} change;

typedef enum verdict {
    FITS = 0,
    DOES_NOT_FIT,
    UNKNOWN, /* it took too long, or is no legal experiment */
} verdict;

/* --- one change ------------------------------------------------------------------------------- */
/* Compiles the changed experiment, without its data. A tsr_spawn_fn. */
static tsr_status compile_changed(tsr_world *world, void *arg)
{
    const change_trial *t = arg;
    const tsri_program_opts opts = {.no_data = true};
    tsri_program *program;
    tsr_plan *plan = NULL;
    bool fits = true;
    TSRI_TRY(tsri_program_build(t->changed, world, &opts, &program));
    tsr_status status = t->how->with_devices ? tsr_compile_with(program->graph, t->how->opts, &plan)
                                             : tsri_plan_fits(program->graph, t->how->opts, &fits);
    tsr_plan_destroy(plan);
    tsri_program_destroy(program);
    return status == TSR_OK && !fits ? TSR_ERR_NO_MEMORY : status;
}

/* Compiles the experiment with the overrides of a change. TSR_ERR_NO_MEMORY: it does not fit. */
static tsr_status compile_change(const cli_fits *how, const change *c)
{
    size_t n = (size_t)how->nsets;
    const char **sets = malloc((n + MOST_SETS) * sizeof *sets);
    tsri_experiment *changed = NULL;
    tsr_world *world = NULL;
    if (!sets)
        return TSR_ERR_INVALID;
    if (n)
        memcpy(sets, how->sets, n * sizeof *sets);
    for (int i = 0; i < c->n; i++)
        sets[n++] = c->sets[i];
    tsr_status status = tsri_experiment_load_for(how->path, tsri_experiment_asked(how->experiment),
                                                 (int)n, sets, &changed);
    change_trial trial = {how, changed};
    if (status == TSR_OK && how->with_devices)
        status = tsr_spawn(how->ranks, compile_changed, &trial);
    else if (status == TSR_OK)
        status = tsr_world_create_virtual(how->ranks, 0, &world);
    if (status == TSR_OK && world)
        status = compile_changed(world, &trial);
    tsr_world_destroy(world);
    tsri_experiment_destroy(changed);
    free(sets);
    return status;
}

static verdict verdict_of(tsr_status status)
{
    return status == TSR_OK ? FITS : status == TSR_ERR_NO_MEMORY ? DOES_NOT_FIT : UNKNOWN;
}

/* Waits for a child and tells how far it is; kills it when its time is over. */
static verdict await_child(pid_t child, const char *what)
{
    double started_at = tsri_now_s();
    int code = 0;
    for (;;) {
        pid_t done = waitpid(child, &code, WNOHANG);
        if (done == child)
            return WIFEXITED(code) && WEXITSTATUS(code) <= UNKNOWN ? (verdict)WEXITSTATUS(code)
                                                                   : UNKNOWN;
        if (done < 0 && errno != EINTR)
            return UNKNOWN;
        if (tsri_now_s() - started_at > MOST_S) {
            kill(child, SIGKILL);
            while (waitpid(child, &code, 0) < 0 && errno == EINTR)
                ;
            return UNKNOWN;
        }
        cli_progress_show(what, tsri_now_s() - started_at);
        usleep(20000);
    }
}

/* Appends " --set ..." for each override, quoted where a shell would read it otherwise. */
static void append_sets(const change *c, char *text, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz_.=0123456789";
    for (int i = 0; i < c->n; i++) {
        const char *quote = c->sets[i][strspn(c->sets[i], plain)] ? "'" : "";
        snprintf(text + strlen(text), size - strlen(text), " --set %s%s%s", quote, c->sets[i],
                 quote);
    }
}

/* Tries a change in a process of its own, whose time is limited; where ranks are threads with
 * devices, in this one. */
static verdict try_change(const cli_fits *how, const change *c)
{
    char what[MOST_SETS * SET_TEXT + 32] = "trying";
    append_sets(c, what, sizeof what);
    if (how->with_devices)
        return verdict_of(compile_change(how, c));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(verdict_of(compile_change(how, c)));
    verdict v = child < 0 ? UNKNOWN : await_child(child, what);
    cli_progress_clear();
    return v;
}

/* --- changes ---------------------------------------------------------------------------------- */
enum { LINE = MOST_SETS * SET_TEXT + 128 };

/* Writes the line that names a change which fits. */
static void write_line(const change *c, const char *tail, char line[LINE])
{
    char text[MOST_SETS * SET_TEXT + 64] = "";
    append_sets(c, text, sizeof text);
    snprintf(line, LINE, "  what fits:%s%s", text, tail);
}

static void say(const change *c)
{
    char line[LINE];
    write_line(c, "", line);
    tsri_fshow(stderr, "%s\n", line);
}

static void set_batch(change *c, int64_t batch)
{
    snprintf(c->sets[c->n - 1], SET_TEXT, "data.batch_size=%lld", (long long)batch);
}

/* Beside what a change has already, the largest batch that halving comes to; the smallest tells
 * first whether any will do. Returns whether one does, and writes its line. */
static bool try_batches(const cli_fits *how, const change *with, double until_s, char line[LINE])
{
    int64_t batch = tsri_experiment_batch_size(how->experiment);
    char tail[64];
    change c = *with;
    if (batch < 2)
        return false;
    c.n++;
    set_batch(&c, 1);
    verdict least = try_change(how, &c);
    if (least != FITS) {
        if (least == DOES_NOT_FIT && !with->n)
            tsri_fshow(stderr, "  a smaller batch is not enough: --set %s does not fit\n",
                       c.sets[c.n - 1]);
        return false;
    }
    /* Between a halving that does not fit (0: the file's own), and one that does. */
    int too_few = 0, enough = 1;
    while (batch >> enough > 1)
        enough++;
    while (enough - too_few > 1 && tsri_now_s() < until_s) {
        int halvings = (too_few + enough) / 2;
        set_batch(&c, batch >> halvings);
        *(try_change(how, &c) == FITS ? &enough : &too_few) = halvings;
    }
    set_batch(&c, batch >> enough);
    snprintf(tail, sizeof tail, ", where the file has %lld", (long long)batch);
    write_line(&c, tail, line);
    return true;
}

static void add_set(change *c, const char *format, ...) TSR_PRINTF(2, 3);
static void add_set(change *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->sets[c->n++], SET_TEXT, format, args);
    va_end(args);
}

/* Tries a change if there is time, and says that it fits. */
static bool try_and_say(const cli_fits *how, const change *c, double until_s)
{
    if (tsri_now_s() >= until_s || try_change(how, c) != FITS)
        return false;
    say(c);
    return true;
}

/* Tries what ranks could share that each has for itself: the optimizer's states, then parameters
 * too (ZeRO's stages; zero3 gives gathered weights back as well), then products, over more ranks.
 */
static bool try_sharing(const cli_fits *how, change *sharded, double until_s)
{
    const int dp = tsri_experiment_axis(how->experiment, "dp");
    const int tp = tsri_experiment_axis(how->experiment, "tp");
    const bool has_strategy = tsri_experiment_says(how->experiment, "strategy");
    change zero3 = {0}, wider = {0};
    add_set(&zero3, tp ? "strategy.dp=zero3" : "strategy=zero3");
    add_set(sharded, "optimizer.state.sbp=auto");
    if (try_and_say(how, sharded, until_s))
        return true;
    if (has_strategy && try_and_say(how, &zero3, until_s))
        return true;
    add_set(sharded, "parameters[%d]={match: \"*\", sbp: auto}",
            tsri_experiment_nparameters(how->experiment));
    if (try_and_say(how, sharded, until_s))
        return true;
    if (!tp || dp < 2 || dp % 2)
        return false;
    add_set(&wider, "mesh={dp: %d, tp: %d}", dp / 2, 2 * tp);
    if (try_and_say(how, &wider, until_s))
        return true;
    add_set(&wider, "strategy.dp=zero3");
    return has_strategy && try_and_say(how, &wider, until_s);
}

void cli_say_what_fits(const cli_fits *how)
{
    const double began_s = tsri_now_s();
    tsr_compile_opts opts = *how->opts;
    cli_fits quick = *how;
    opts.alternatives = false;
    quick.opts = &opts;
    if (!opts.memory_limit || !tsri_experiment_trains(how->experiment) || !strcmp(how->path, "-"))
        return;
    change none = {0}, sharded = {0};
    char batch[LINE] = "";
    bool any = try_batches(&quick, &none, began_s + MOST_S, batch);
    any |= try_sharing(&quick, &sharded, began_s + ALL_S);
    /* Changes that keep the batch are named first. */
    if (!any && tsri_now_s() < began_s + ALL_S)
        any = try_batches(&quick, &sharded, began_s + ALL_S, batch);
    if (batch[0])
        tsri_fshow(stderr, "%s\n", batch);
    if (!any)
        tsri_fshow(stderr, "  nothing that was tried fits: smaller batches, sharded states and "
                           "parameters, a wider tp\n");
}
