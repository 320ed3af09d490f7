/* SPDX-License-Identifier: Apache-2.0 */
/* Other layouts of an experiment, each of which is planned with the same model and batch. */
#include "src/cli/plan/ask.h"
#include "src/core/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* No layout is planned any longer after so many seconds in all; where a limit was refused, which
 * has taken as long, after more. */
static const double MOST_S = 2, MOST_REFUSED_S = 8;
/* A figure that is better by less than these parts of it is no reason to try a layout. */
static const double less_time = 0.005, less_memory = 0.01;

enum { MOST_LAYOUTS = 24, MOST_WORKERS = 8, MOST_TP = 8 };

typedef struct layout {
    plan_tried tried;
    /* Set by the process that tries: planned within the limit; no experiment; it was searched for.
     */
    bool done, illegal, sought;
    int nsets;
    char sets[TSRI_RELAY_MOST][TSRI_RELAY_TEXT];
} layout;

typedef struct trier {
    const plan_view *v;
    int nranks, n;
    layout *all; /* shared with the processes that plan them */
} trier;

/* --- which layouts ---------------------------------------------------------------------------- */
/* Appends " --set ..." for each override, quoted where a shell would read it otherwise. */
static void put_sets(const layout *l, char text[PLAN_SETS_TEXT])
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz_.=0123456789";
    size_t n = 0;
    for (int i = 0; i < l->nsets && n < PLAN_SETS_TEXT; i++) {
        const char *quote = l->sets[i][strspn(l->sets[i], plain)] ? "'" : "";
        n += (size_t)snprintf(text + n, PLAN_SETS_TEXT - n, "%s--set %s%s%s", i ? " " : "", quote,
                              l->sets[i], quote);
    }
    if (n >= PLAN_SETS_TEXT)
        text[0] = 0;
}

/* Adds a layout of dp x tp ranks; `data` is the strategy of dp's ranks. */
static void add_layout(trier *t, int dp, int tp, const char *data)
{
    static const char *const names[] = {"dp", "tp"};
    const int sizes[] = {dp, tp}, first = dp == 1 && tp > 1, naxes = dp > 1 && tp > 1 ? 2 : 1;
    const bool plain = !strcmp(data, "data");
    char strategy[48];
    layout *l = &t->all[t->n];
    if (t->n == MOST_LAYOUTS)
        return;
    plan_tried *x = &l->tried;
    if (naxes == 2) {
        snprintf(strategy, sizeof strategy, "[%s, megatron]", data);
        snprintf(x->name, sizeof x->name, "%s %d x tp %d", plain ? "dp" : data, dp, tp);
    } else {
        snprintf(strategy, sizeof strategy, "%s", tp > 1 ? "megatron" : data);
        if (!plain)
            snprintf(x->name, sizeof x->name, "%s", data);
        else if (dp * tp == 1)
            snprintf(x->name, sizeof x->name, "1 rank");
        else
            snprintf(x->name, sizeof x->name, "%s %d", names[first], sizes[first]);
    }
    l->nsets = tsri_experiment_relay(t->v->experiment, naxes, names + first, sizes + first,
                                     strategy, l->sets);
    put_sets(l, x->sets);
    t->n += l->nsets > 0;
}

/* Adds the file's own layout with recomputation of the model's blocks. */
static void add_recomputed(trier *t)
{
    layout *l = &t->all[t->n];
    if (!tsri_experiment_recompute(t->v->experiment, l->sets[0]))
        return;
    l->nsets = 1;
    snprintf(l->tried.name, sizeof l->tried.name, "recompute");
    put_sets(l, l->tried.sets);
    t->n++;
}

/* Ranks over which the plan splits layers in pairs. */
static int tensor_ranks(const tsri_strategy *s)
{
    int tp = 1;
    for (int d = 0; s->nstages == 1 && d < s->stages[0].naxes; d++)
        if (s->stages[0].axis[d].kind == TSRI_STRATEGY_MEGATRON)
            tp *= s->stages[0].axis[d].size;
    return tp;
}

/* Adds data parallelism and ZeRO's stages over the ranks beside tp of tensor parallelism. */
static void add_beside(trier *t, int tp)
{
    static const char *const usual[] = {"zero2", "zero3", "data", "zero1"};
    static const char *const lean[] = {"zero3", "zero2", "zero1", "data"};
    const char *const *data = t->v->refused_limit ? lean : usual;
    const int dp = t->nranks / tp;
    if (t->nranks % tp != 0)
        return;
    for (int i = 0; i < 4; i++)
        if (dp > 1 || !strcmp(data[i], "data"))
            add_layout(t, dp, tp, data[i]);
}

/* Lists the layouts of all ranks, with tensor parallelism within a node. There may be no time for
 * all: first come those that differ least from the plan, or where a limit was refused, those that
 * split most. */
static void list_layouts(trier *t)
{
    const tsri_cluster *cluster = tsri_experiment_cluster(t->v->experiment);
    const int64_t node = cluster ? tsri_cluster_node(cluster) : 0;
    const int most = node > 0 && node < MOST_TP ? (int)node : MOST_TP;
    const int now = t->v->refused_limit ? 0 : tensor_ranks(&t->v->report->strategy);
    if (t->nranks >= 2 && now)
        add_beside(t, now);
    if (!t->v->refused_limit) /* a refusal has tried it: add_fitting */
        add_recomputed(t);
    if (t->nranks < 2)
        return;
    for (int i = 1; i <= most && i <= t->nranks; i *= 2) {
        const int tp = now ? i : most / i;
        if (tp != now && tp <= t->nranks)
            add_beside(t, tp);
    }
    if (t->nranks <= MOST_TP && !node && !t->v->from->ranks)
        add_layout(t, 1, 1, "data");
}

/* Adds the changes that were found to keep a refused limit, whose figures are known. */
static void add_fitting(trier *t)
{
    for (int i = 0; i < t->v->nfitting && t->n < MOST_LAYOUTS; i++) {
        const plan_tried *x = &t->v->fitting[i];
        bool is_new = x->sets[0] != 0;
        for (int j = 0; j < t->n; j++)
            is_new &= !t->all[j].done || strcmp(t->all[j].tried.sets, x->sets) != 0;
        if (is_new)
            t->all[t->n++] = (layout){.tried = *x, .done = true};
    }
}

/* --- planning them ---------------------------------------------------------------------------- */
/* Plans a layout. searches: for signatures that keep a memory limit, which takes long, where those
 * that are quickest do not. */
static void plan_layout(const trier *t, layout *l, bool searches)
{
    plan_source from = *t->v->from;
    plan_made made;
    const char **sets = malloc(((size_t)from.nsets + TSRI_RELAY_MOST) * sizeof *sets);
    if (!sets)
        return;
    if (from.nsets)
        memcpy(sets, from.sets, (size_t)from.nsets * sizeof *sets);
    for (int i = 0; i < l->nsets; i++)
        sets[from.nsets++] = l->sets[i];
    from.sets = sets;
    from.alternatives = false;
    tsr_status status = plan_open(&from, &made);
    const size_t limit = status == TSR_OK ? made.opts.memory_limit : 0;
    if (!searches)
        made.opts.memory_limit = 0;
    if (status == TSR_OK && plan_compile(&made) == TSR_OK) {
        const plan_figures f = plan_figures_of(made.report);
        l->tried.step_s = f.step_s;
        l->tried.memory = f.memory;
        l->done = !limit || f.memory <= limit;
    }
    l->illegal = status != TSR_OK;
    l->sought |= searches;
    plan_drop(&made);
    free(sets);
}

/* Plans every n-th layout from the first on: all without a search, and then those that need one. */
static void plan_every(const trier *t, int first, int n)
{
    for (int i = first; i < t->n; i += n)
        plan_layout(t, &t->all[i], false);
    for (int i = first; i < t->n; i += n)
        if (!t->all[i].done && !t->all[i].illegal)
            plan_layout(t, &t->all[i], true);
}

/* Ends what a worker that takes too long does. */
static void await_worker(pid_t worker, double until_s)
{
    int code;
    for (;;) {
        pid_t ended = waitpid(worker, &code, WNOHANG);
        if (ended == worker || (ended < 0 && errno != EINTR))
            return;
        if (tsri_now_s() > until_s)
            kill(worker, SIGKILL);
        usleep(1000);
    }
}

/* Plans the layouts in as many processes as there are cores, until the time is over. */
static void plan_layouts(const trier *t)
{
    const double until_s = tsri_now_s() + (t->v->refused_limit ? MOST_REFUSED_S : MOST_S);
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const int n = cores < 1 ? 1 : cores > MOST_WORKERS ? MOST_WORKERS : (int)cores;
    pid_t workers[MOST_WORKERS];
    int started = 0;
    fflush(NULL);
    for (; started < n && started < t->n; started++) {
        workers[started] = fork();
        if (workers[started] < 0)
            break;
        if (workers[started] > 0)
            continue;
        plan_every(t, started, n);
        _exit(0);
    }
    for (int i = 0; i < started; i++)
        await_worker(workers[i], until_s);
}

/* --- which of them say something -------------------------------------------------------------- */
static int by_step(const void *a, const void *b)
{
    const plan_tried *x = a, *y = b;
    if (x->step_s != y->step_s)
        return x->step_s < y->step_s ? -1 : 1;
    return x->memory < y->memory ? -1 : x->memory > y->memory;
}

static bool is_better(const plan_view *v, const plan_figures *base, const plan_tried *x)
{
    return v->refused_limit || x->step_s < base->step_s * (1 - less_time) ||
           (double)x->memory < (double)base->memory * (1 - less_memory);
}

static bool is_same(const plan_figures *base, const plan_tried *x)
{
    return x->memory == base->memory && x->step_s > base->step_s * (1 - 1e-9) &&
           x->step_s < base->step_s * (1 + 1e-9);
}

/* Keeps those of n layouts, quickest first, that need less memory than each quicker one. */
static int keep_best(plan_tried *x, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (kept == 0 || (double)x[i].memory < (double)x[kept - 1].memory * (1 - less_memory))
            x[kept++] = x[i];
    return kept;
}

/* Keeps the quickest, the leanest, and the one that is quickest of those between. */
static int pick(plan_tried *x, int n, plan_tried out[PLAN_TRIED_MOST])
{
    int picked = 0;
    for (int i = 0; i < n; i++)
        if (i < PLAN_TRIED_MOST - 1 || i == n - 1)
            out[picked++] = x[i];
    return picked;
}

static int choose(const trier *t, plan_tried out[PLAN_TRIED_MOST])
{
    const plan_figures base = plan_figures_of(t->v->report);
    plan_tried better[MOST_LAYOUTS], others[MOST_LAYOUTS];
    int nbetter = 0, nothers = 0;
    for (int i = 0; i < t->n; i++) {
        const plan_tried *x = &t->all[i].tried;
        if (!t->all[i].done || is_same(&base, x))
            continue;
        if (is_better(t->v, &base, x))
            better[nbetter++] = *x;
        else
            others[nothers++] = *x;
    }
    qsort(better, (size_t)nbetter, sizeof *better, by_step);
    qsort(others, (size_t)nothers, sizeof *others, by_step);
    if (nbetter)
        return pick(better, keep_best(better, nbetter), out);
    return pick(others, nothers < 2 ? nothers : 2, out);
}

/* Whether ranks 0, 1, 2, ... of the world are the only placement's, in this order. */
static bool is_whole(const tsri_report *r)
{
    const tsr_placement *p = r->strategy.nstages == 1 ? r->strategy.stages[0].placement : NULL;
    const int n = r->plan->ir.world->nranks;
    if (!p || tsr_placement_nranks(p) != n)
        return false;
    for (int i = 0; i < n; i++)
        if (tsr_placement_rank(p, i) != i)
            return false;
    return true;
}

int plan_try_layouts(const plan_view *v, plan_tried out[PLAN_TRIED_MOST], int *out_left)
{
    trier t = {.v = v, .nranks = v->report->plan->ir.world->nranks};
    const size_t size = MOST_LAYOUTS * sizeof(layout);
    *out_left = 0;
    if (!v->from || !tsri_experiment_trains(v->experiment) || !strcmp(v->path, "-"))
        return 0;
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 0;
    t.all = shared;
    if (is_whole(v->report)) {
        list_layouts(&t);
        plan_layouts(&t);
    }
    add_fitting(&t);
    int n = choose(&t, out);
    for (int i = 0; i < t.n; i++)
        *out_left += !t.all[i].done && !t.all[i].illegal && !t.all[i].sought;
    munmap(shared, size);
    return n;
}
