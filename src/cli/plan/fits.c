/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of an experiment that its memory limit is enough for. */
#include "src/cli/plan/plan.h"
#include "src/cli/plan/progress.h"
#include "src/core/clock.h"
#include "src/exec/exec.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Seconds after which one change is abandoned, and after which no further change is started. The
 * refusal counts the abandoned and the unstarted changes. */
static const double MOST_S = 20, ALL_S = 40;

typedef struct change_trial {
    const cli_fits *how;
    const tsri_experiment *changed;
} change_trial;

/* The overrides of a trial, which follow those of the command line. */
enum { MOST_SETS = TSRI_RELAY_MOST + 2, SET_TEXT = TSRI_RELAY_TEXT };
typedef struct change {
    int n;
    char sets[MOST_SETS][SET_TEXT];
} change;

typedef enum verdict {
    FITS = 0,
    DOES_NOT_FIT,
    ILLEGAL,   /* not a legal experiment */
    CUT_SHORT, /* abandoned, or not started for want of time */
} verdict;

/* The trials of one refusal. */
typedef struct trials {
    const cli_fits *how;
    double until_s;
    int cut; /* number of changes with the verdict CUT_SHORT */
} trials;

/* --- one change ------------------------------------------------------------------------------- */
/* Compiles the changed experiment without its data; a tsr_rank_fn. */
static tsr_status compile_changed(tsr_world *world, void *arg)
{
    const change_trial *t = arg;
    const tsri_program_opts opts = {.no_data = true, .compile = t->how->opts};
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
    return status == TSR_OK ? FITS : status == TSR_ERR_NO_MEMORY ? DOES_NOT_FIT : ILLEGAL;
}

/* Waits for a child and tells how far it is; kills it when its time is over. */
static verdict await_child(pid_t child, const char *what)
{
    double started_at = tsri_now_s();
    int code = 0;
    for (;;) {
        pid_t done = waitpid(child, &code, WNOHANG);
        if (done == child)
            return WIFEXITED(code) && WEXITSTATUS(code) < ILLEGAL ? (verdict)WEXITSTATUS(code)
                                                                  : ILLEGAL;
        if (done < 0 && errno != EINTR)
            return ILLEGAL;
        if (tsri_now_s() - started_at > MOST_S) {
            kill(child, SIGKILL);
            while (waitpid(child, &code, 0) < 0 && errno == EINTR)
                ;
            return CUT_SHORT;
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
static verdict try_change(trials *t, const change *c)
{
    char what[MOST_SETS * (SET_TEXT + 16) + 32] = "trying";
    verdict v = CUT_SHORT;
    append_sets(c, what, sizeof what);
    if (tsri_now_s() < t->until_s && t->how->with_devices) {
        v = verdict_of(compile_change(t->how, c));
    } else if (tsri_now_s() < t->until_s) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(verdict_of(compile_change(t->how, c)));
        v = child < 0 ? ILLEGAL : await_child(child, what);
        cli_progress_clear();
    }
    t->cut += v == CUT_SHORT;
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

/* Beside what a change has already, the largest batch that halving comes to. Returns whether one
 * fits, and writes its line. */
static bool try_batches(trials *t, const change *with, char line[LINE])
{
    const int64_t batch = tsri_experiment_batch_size(t->how->experiment);
    char tail[64];
    change c = *with;
    if (batch < 2)
        return false;
    c.n++;
    set_batch(&c, 1);
    const verdict least = try_change(t, &c);
    if (least == DOES_NOT_FIT && !with->n)
        tsri_fshow(stderr, "  a smaller batch is not enough: --set %s does not fit\n", c.sets[0]);
    if (least != FITS)
        return false;
    /* Between a halving that does not fit (0: the file's own), and one that does. */
    int too_few = 0, enough = 1;
    while (batch >> enough > 1)
        enough++;
    while (enough - too_few > 1) {
        int halvings = (too_few + enough) / 2;
        set_batch(&c, batch >> halvings);
        *(try_change(t, &c) == FITS ? &enough : &too_few) = halvings;
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

/* --- layouts ---------------------------------------------------------------------------------- */
/* The layouts that are tried, from the file's own to the leanest: each splits more. */
enum { MOST_CHANGES = 9 };
typedef struct ladder {
    int n, searched; /* searched: the number of the step whose signatures are all searched for */
    bool recomputes; /* some step lets backward compute blocks again */
    change steps[MOST_CHANGES];
} ladder;

static change *add_step(ladder *l)
{
    l->steps[l->n] = (change){0};
    return &l->steps[l->n++];
}

/* Adds ZeRO-3 over the ranks beside tp of tensor parallelism, in place of the file's own rules.
 * Returns whether the file can be laid out so. */
static bool add_relaid(ladder *l, const tsri_experiment *e, int ranks, int tp)
{
    static const char *const names[] = {"dp", "tp"};
    const int sizes[] = {ranks / tp, tp}, naxes = tp > 1 ? 2 : 1;
    change *c = add_step(l);
    c->n = tsri_experiment_relay(e, naxes, names, sizes, tp > 1 ? "[zero3, megatron]" : "zero3",
                                 c->sets);
    if (!c->n)
        l->n--;
    return c->n > 0;
}

/* Lists what ranks could share that each has for itself: the optimizer's states, then parameters
 * too (ZeRO's stages; zero3 gives gathered weights back as well); then blocks that backward
 * computes again; then products, over more ranks of a node; and at last all of it. */
static void list_steps(ladder *l, const cli_fits *how)
{
    enum { MOST_TP = 8 };
    const tsri_experiment *e = how->experiment;
    const tsri_cluster *cluster = tsri_experiment_cluster(e);
    const int64_t node = cluster ? tsri_cluster_node(cluster) : 0;
    const int most = node > 0 && node < MOST_TP ? (int)node : MOST_TP;
    const int tp = tsri_experiment_axis(e, "tp"), dp = tsri_experiment_axis(e, "dp");
    add_set(add_step(l), "optimizer.state.sbp=auto");
    if (tsri_experiment_says(e, "strategy"))
        add_set(add_step(l), tp ? "strategy.dp=zero3" : "strategy=zero3");
    l->searched = l->n;
    change *sharded = add_step(l);
    add_set(sharded, "optimizer.state.sbp=auto");
    add_set(sharded, "parameters[%d]={match: \"*\", sbp: auto}", tsri_experiment_nparameters(e));
    change again = {.n = 1};
    l->recomputes = tsri_experiment_recompute(e, again.sets[0]);
    if (l->recomputes)
        *add_step(l) = again;
    for (int zero = 0; zero < 2 && tp && dp > 1 && dp % 2 == 0; zero++) {
        change *wider = add_step(l);
        add_set(wider, "mesh={dp: %d, tp: %d}", dp / 2, 2 * tp);
        if (zero)
            add_set(wider, "strategy.dp=zero3");
    }
    bool relaid = !tp && how->ranks > 1 && add_relaid(l, e, how->ranks, 1);
    if (most > tp && how->ranks % most == 0 && how->ranks > most)
        relaid |= add_relaid(l, e, how->ranks, most);
    if (relaid && l->recomputes)
        add_set(&l->steps[l->n - 1], "%s", again.sets[0]);
}

/* Prints the first step that fits with the file's batch. The leanest comes first: where it does not
 * fit, the one that is searched for is the only other that may. Returns whether one does. */
static bool try_steps(trials *t, const ladder *l)
{
    int last = l->n - 1;
    verdict leanest = ILLEGAL;
    while (last >= 0 && (leanest = try_change(t, &l->steps[last])) == ILLEGAL)
        last--;
    for (int i = 0; i < last; i++)
        if ((leanest != DOES_NOT_FIT || i == l->searched) && try_change(t, &l->steps[i]) == FITS) {
            say(&l->steps[i]);
            return true;
        }
    if (leanest == FITS)
        say(&l->steps[last]);
    return leanest == FITS;
}

void cli_say_what_fits(const cli_fits *how)
{
    tsr_compile_opts opts = *how->opts;
    cli_fits quick = *how;
    opts.alternatives = false;
    quick.opts = &opts;
    if (!opts.memory_limit || !tsri_experiment_trains(how->experiment) || !strcmp(how->path, "-"))
        return;
    trials t = {.how = &quick, .until_s = tsri_now_s() + ALL_S};
    const change none = {0};
    ladder l = {0};
    char own[LINE] = "", leanest[LINE] = "";
    list_steps(&l, how);
    bool any = try_steps(&t, &l);
    any |= try_batches(&t, &none, own);
    for (int i = l.n - 1; i >= 0 && !any; i--)
        any = try_batches(&t, &l.steps[i], leanest);
    /* Changes that keep the batch are named first. */
    if (own[0] || leanest[0])
        tsri_fshow(stderr, "%s\n", own[0] ? own : leanest);
    if (t.cut)
        tsri_fshow(stderr, "  %d change%s not tried to the end, for want of time: others may fit\n",
                   t.cut, t.cut == 1 ? " was" : "s were");
    else if (!any)
        tsri_fshow(stderr,
                   "  nothing fits of what was tried: smaller batches, ZeRO, %sa wider tp\n",
                   l.recomputes ? "recomputation, " : "");
}
