/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of an experiment that its memory limit is enough for. */
#include "src/cli/plan/plan.h"
#include "src/cli/plan/progress.h"
#include "src/core/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A change is given up after so many seconds, and none is begun after as many in all. */
static const double MOST_S = 8;

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
static void say(const change *c, const char *tail)
{
    char text[MOST_SETS * SET_TEXT + 64] = "";
    append_sets(c, text, sizeof text);
    tsri_fshow(stderr, "  what fits:%s%s\n", text, tail);
}

static void set_batch(change *c, int64_t batch)
{
    snprintf(c->sets[c->n - 1], SET_TEXT, "data.batch_size=%lld", (long long)batch);
}

/* Beside what a change has already, the largest batch that halving comes to; the smallest tells
 * first whether any will do. Returns whether one does. */
static bool try_batches(const cli_fits *how, const change *with, double until_s)
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
    say(&c, tail);
    return true;
}

void cli_say_what_fits(const cli_fits *how)
{
    double until_s = tsri_now_s() + MOST_S;
    tsr_compile_opts opts = *how->opts;
    cli_fits quick = *how;
    opts.alternatives = false;
    quick.opts = &opts;
    if (!opts.memory_limit || !tsri_experiment_trains(how->experiment) || !strcmp(how->path, "-"))
        return;
    change none = {0}, sharded = {0};
    bool any = try_batches(&quick, &none, until_s);
    /* ZeRO's stages: the states of the optimizer, then what they are of too. */
    snprintf(sharded.sets[sharded.n++], SET_TEXT, "optimizer.state.sbp=auto");
    for (int stage = 1; stage <= 2 && tsri_now_s() < until_s; stage++) {
        bool fits = try_change(&quick, &sharded) == FITS;
        if (fits)
            say(&sharded, "");
        any |= fits;
        if (fits)
            return;
        if (stage == 1)
            snprintf(sharded.sets[sharded.n++], SET_TEXT,
                     "parameters[%d]={match: \"*\", sbp: auto}",
                     tsri_experiment_nparameters(how->experiment));
    }
    if (!any && tsri_now_s() < until_s)
        any = try_batches(&quick, &sharded, until_s);
    if (!any)
        tsri_fshow(
            stderr,
            "  nothing that was tried fits: smaller batches, sharded states and parameters\n");
}
