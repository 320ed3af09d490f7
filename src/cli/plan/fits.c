/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of an experiment that its memory limit is enough for. */
#include "src/cli/plan/fits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- changes that were found ------------------------------------------------------------------ */
/* Ways to need less memory; of several changes in one way the quickest is named. */
typedef enum fits_way { SHARED, RECOMPUTED, IN_PARTS, STAGED } fits_way;
typedef struct found {
    fits_change change;
    fits_way way;
    int parts, stages;  /* that the change asks for; 0: none */
    const char *layout; /* the ladder's name of a change; NULL: it is no layout */
    fits_price price;
} found;

enum { MOST_FOUND = PLAN_FITS_MOST };
typedef struct findings {
    int n;
    found all[MOST_FOUND];
} findings;

static void add_found(findings *f, found x)
{
    if (f->n < MOST_FOUND)
        f->all[f->n++] = x;
}

/* Sorts by the step; changes without figures come last. */
static int by_step(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->price.known != y->price.known)
        return x->price.known ? -1 : 1;
    if (x->price.step_s != y->price.step_s)
        return x->price.step_s < y->price.step_s ? -1 : 1;
    return (x->way > y->way) - (x->way < y->way);
}

/* Finds the figures of all changes, and drops those whose plan is refused after all and those that
 * a quicker one of the same way comes before. */
static void price_found(fits_trials *t, findings *f)
{
    int kept = 0;
    for (int i = 0; i < f->n; i++)
        if (fits_find_price(t, &f->all[i].change, &f->all[i].price) == FITS)
            f->all[kept++] = f->all[i];
    qsort(f->all, (size_t)kept, sizeof *f->all, by_step);
    f->n = 0;
    for (int i = 0; i < kept; i++) {
        bool is_first = true;
        for (int j = 0; j < f->n; j++)
            is_first &= f->all[j].way != f->all[i].way;
        if (is_first)
            f->all[f->n++] = f->all[i];
    }
}

enum { LINE = FITS_TEXT + 128 };

/* Writes the line that names a change which fits. */
static void write_line(const fits_change *c, const char *tail, char line[LINE])
{
    char text[FITS_TEXT] = "";
    fits_put_sets(c, text, sizeof text);
    snprintf(line, LINE, "  what fits:%s%s", text, tail);
}

static void print_found(const findings *f)
{
    char line[LINE], tail[128], step[CLI_NUMBER_MAX], memory[CLI_NUMBER_MAX];
    for (int i = 0; i < f->n; i++) {
        const fits_price *p = &f->all[i].price;
        snprintf(tail, sizeof tail, ", where a step takes %s and a rank %s",
                 cli_seconds(p->step_s, step), cli_bytes((double)p->memory, memory));
        write_line(&f->all[i].change, p->known ? tail : "", line);
        tsri_fshow(stderr, "%s\n", line);
    }
}

/* Writes a change's name for the first screen: "4 stages, 16 parts". */
static void write_name(const found *x, char *name, size_t size)
{
    if (x->layout && x->parts)
        snprintf(name, size, "%s, %d parts", x->layout, x->parts);
    else if (x->layout)
        snprintf(name, size, "%s", x->layout);
    else if (x->stages)
        snprintf(name, size, "%d stages, %d parts", x->stages, x->parts);
    else
        snprintf(name, size, "%d micro-batches", x->parts);
}

/* --- smaller batches -------------------------------------------------------------------------- */
static void set_batch(fits_change *c, int64_t batch)
{
    snprintf(c->sets[c->n - 1], sizeof c->sets[0], "data.batch_size=%lld", (long long)batch);
}

/* Beside what a change has already, the largest batch that halving comes to. Returns whether one
 * fits, and writes its line. */
static bool try_batches(fits_trials *t, const fits_change *with, char line[LINE])
{
    const int64_t batch = tsri_experiment_batch_size(t->how->experiment);
    char tail[64];
    fits_change c = *with;
    if (batch < 2)
        return false;
    c.n++;
    set_batch(&c, 1);
    const fits_verdict least = fits_try(t, &c);
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
        *(fits_try(t, &c) == FITS ? &enough : &too_few) = halvings;
    }
    set_batch(&c, batch >> enough);
    snprintf(tail, sizeof tail, ", where the file has %lld", (long long)batch);
    write_line(&c, tail, line);
    return true;
}

/* --- layouts ---------------------------------------------------------------------------------- */
/* The layouts that are tried, from the file's own to the leanest: each splits more. */
enum { MOST_CHANGES = 9 };
typedef struct ladder {
    int n, searched; /* searched: the number of the step whose signatures are all searched for */
    int again;       /* the number of the step that only recomputes blocks in backward; -1: none */
    fits_change steps[MOST_CHANGES];
    const char *names[MOST_CHANGES]; /* as the first screen has them */
} ladder;

static fits_change *add_step(ladder *l, const char *name)
{
    l->names[l->n] = name;
    l->steps[l->n] = (fits_change){0};
    return &l->steps[l->n++];
}

/* Adds ZeRO-3 over the ranks beside tp of tensor parallelism, in place of the file's own rules.
 * Returns whether the file can be laid out so. */
static bool add_relaid(ladder *l, const tsri_experiment *e, int ranks, int tp)
{
    static const char *const names[] = {"dp", "tp"};
    const int sizes[] = {ranks / tp, tp}, naxes = tp > 1 ? 2 : 1;
    fits_change *c = add_step(l, tp > 1 ? "zero3 x tp" : "zero3");
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
    fits_add(add_step(l, "split states"), "optimizer.state.sbp=auto");
    if (tsri_experiment_says(e, "strategy"))
        fits_add(add_step(l, "zero3"), tp ? "strategy.dp=zero3" : "strategy=zero3");
    l->searched = l->n;
    fits_change *sharded = add_step(l, "split parameters");
    fits_add(sharded, "optimizer.state.sbp=auto");
    fits_add(sharded, "parameters[%d]={match: \"*\", sbp: auto}", tsri_experiment_nparameters(e));
    fits_change again = {.n = 1};
    l->again = tsri_experiment_recompute(e, again.sets[0]) ? l->n : -1;
    if (l->again >= 0)
        *add_step(l, "recompute") = again;
    for (int zero = 0; zero < 2 && tp && dp > 1 && dp % 2 == 0; zero++) {
        fits_change *wider = add_step(l, zero ? "zero3, wider tp" : "wider tp");
        fits_add(wider, "mesh={dp: %d, tp: %d}", dp / 2, 2 * tp);
        if (zero)
            fits_add(wider, "strategy.dp=zero3");
    }
    bool relaid = !tp && how->ranks > 1 && add_relaid(l, e, how->ranks, 1);
    if (most > tp && how->ranks % most == 0 && how->ranks > most)
        relaid |= add_relaid(l, e, how->ranks, most);
    if (relaid && l->again >= 0) {
        fits_add(&l->steps[l->n - 1], "%s", again.sets[0]);
        const bool has_tp = strcmp(l->names[l->n - 1], "zero3") != 0;
        l->names[l->n - 1] = has_tp ? "zero3 tp recompute" : "zero3 + recompute";
    }
}

static found step_of(const ladder *l, int i)
{
    return (found){
        .change = l->steps[i], .way = i == l->again ? RECOMPUTED : SHARED, .layout = l->names[i]};
}

/* Finds the first step that fits with the file's batch, but for recomputation alone. The leanest
 * comes first: if it does not fit, the one that is searched for is the only other that may. Returns
 * its number; -1: none does. */
static int find_step(fits_trials *t, const ladder *l)
{
    int last = l->n;
    fits_verdict leanest = ILLEGAL;
    while (last > 0 && leanest == ILLEGAL)
        if (--last != l->again)
            leanest = fits_try(t, &l->steps[last]);
    for (int i = 0; i < last; i++)
        if (i != l->again && (leanest != DOES_NOT_FIT || i == l->searched) &&
            fits_try(t, &l->steps[i]) == FITS)
            return i;
    return leanest == FITS ? last : -1;
}

/* --- micro-batches ---------------------------------------------------------------------------- */
static void set_parts(fits_change *c, int64_t parts)
{
    snprintf(c->sets[c->n - 1], sizeof c->sets[0], "schedule.microbatches=%lld", (long long)parts);
}

/* Lists the legal numbers of micro-batches that are multiples of the file's own, in rising order.
 * Returns how many. */
enum { MOST_PARTS = 64 };
static int list_parts(const fits_trials *t, const fits_change *with, int64_t parts[MOST_PARTS])
{
    const int64_t own = tsri_experiment_microbatches(t->how->experiment);
    const int64_t rows = tsri_experiment_rank_rows(t->how->experiment) / own;
    fits_change c = *with;
    int n = 0;
    c.n++;
    for (int64_t times = 2; times <= MOST_PARTS && times <= rows; times++) {
        set_parts(&c, own * times);
        if (rows % times == 0 && fits_is_legal(t, &c))
            parts[n++] = own * times;
    }
    return n;
}

/* Finds the fewest micro-batches that fit together with a change: fewer are quicker. Returns the
 * verdict of the most. */
static fits_verdict try_parts(fits_trials *t, const found *with, findings *f)
{
    int64_t parts[MOST_PARTS];
    found x = *with;
    int n = list_parts(t, &with->change, parts), too_few = -1;
    fits_verdict most = ILLEGAL;
    x.way = IN_PARTS;
    x.change.n++;
    if (n > 0) {
        set_parts(&x.change, parts[n - 1]);
        most = fits_try(t, &x.change);
    }
    if (most != FITS)
        return most;
    for (n--; n - too_few > 1;) {
        const int i = (too_few + n) / 2;
        set_parts(&x.change, parts[i]);
        *(fits_try(t, &x.change) == FITS ? &n : &too_few) = i;
    }
    set_parts(&x.change, parts[n]);
    x.parts = (int)parts[n];
    add_found(f, x);
    return FITS;
}

/* --- stages ----------------------------------------------------------------------------------- */
/* Tries a number of stages with four micro-batches for each, or two, or one, as far as they are
 * legal: without micro-batches stages only take turns. Adds the two largest numbers that fit, of
 * which either may be the quicker. Returns the verdict of the larger one. */
static fits_verdict try_stages(fits_trials *t, int stages, findings *f)
{
    fits_verdict first = ILLEGAL;
    fits_change c = {0};
    c.n = tsri_experiment_stage(t->how->experiment, stages, c.sets);
    for (int each = 4, tried = 0; c.n > 0 && each > 0 && tried < 2; each /= 2) {
        const int parts = stages * each;
        fits_change with = c;
        fits_add(&with, "schedule.microbatches=%d", parts);
        if (!fits_is_legal(t, &with))
            continue;
        const fits_verdict v = fits_try(t, &with);
        if (v == FITS)
            add_found(f, (found){.change = with, .way = STAGED, .parts = parts, .stages = stages});
        first = tried++ == 0 ? v : first;
        if (v != FITS)
            break;
    }
    return first;
}

static void try_pipelines(fits_trials *t, findings *f)
{
    enum { MOST_STAGES = 8 };
    fits_verdict v = ILLEGAL;
    for (int stages = 2; stages <= MOST_STAGES && v != FITS && v != CUT_SHORT; stages *= 2)
        v = try_stages(t, stages, f);
}

/* --- all of them ------------------------------------------------------------------------------ */
/* Finds changes that keep the batch. Micro-batches and recomputation are tried together if neither
 * is enough, and micro-batches with the leanest layout if nothing else is. */
static void try_all(fits_trials *t, const ladder *l, findings *f)
{
    const found none = {.way = IN_PARTS};
    const found again = l->again >= 0 ? step_of(l, l->again) : none;
    const fits_verdict recomputed = l->again >= 0 ? fits_try(t, &again.change) : ILLEGAL;
    if (recomputed == FITS)
        add_found(f, again);
    if (try_parts(t, &none, f) == DOES_NOT_FIT && recomputed == DOES_NOT_FIT)
        try_parts(t, &again, f);
    const int step = find_step(t, l);
    if (step >= 0)
        add_found(f, step_of(l, step));
    try_pipelines(t, f);
    fits_verdict v = ILLEGAL;
    for (int i = l->n - 1; i >= 0 && f->n == 0 && v == ILLEGAL; i--) {
        const found with = step_of(l, i);
        v = i == l->again ? ILLEGAL : try_parts(t, &with, f);
    }
}

/* Says which changes were not tried to the end, or which were all in vain. */
static void say_what_else(const fits_trials *t, const ladder *l, bool any)
{
    if (t->cut)
        tsri_fshow(stderr, "  %d change%s not tried to the end, for want of time: others may fit\n",
                   t->cut, t->cut == 1 ? " was" : "s were");
    else if (!any)
        tsri_fshow(stderr,
                   "  nothing fits of what was tried: smaller batches, micro-batches, stages, "
                   "ZeRO%s, tp\n",
                   l->again >= 0 ? ", recomputation" : "");
}

/* Copies the changes whose figures are known. Returns how many. */
static int copy_found(const findings *f, plan_tried out[PLAN_FITS_MOST])
{
    int n = 0;
    for (int i = 0; i < f->n && out; i++) {
        const found *x = &f->all[i];
        char text[FITS_TEXT] = "";
        if (!x->price.known)
            continue;
        plan_tried *to = &out[n++];
        *to = (plan_tried){.step_s = x->price.step_s, .memory = x->price.memory};
        write_name(x, to->name, sizeof to->name);
        fits_put_sets(&x->change, text, sizeof text);
        if (strlen(text) <= sizeof to->sets)
            memcpy(to->sets, text + 1, strlen(text)); /* without the blank in front */
    }
    return n;
}

int cli_say_what_fits(const cli_fits *how, plan_tried out[PLAN_FITS_MOST])
{
    tsr_compile_opts opts = *how->opts;
    cli_fits quick = *how;
    opts.alternatives = false;
    quick.opts = &opts;
    if (!opts.memory_limit || !tsri_experiment_trains(how->experiment) || !strcmp(how->path, "-"))
        return 0;
    fits_trials t = fits_begin(&quick);
    const fits_change none = {0};
    ladder l = {0};
    findings f = {0};
    char own[LINE] = "", leanest[LINE] = "";
    list_steps(&l, how);
    try_all(&t, &l, &f);
    price_found(&t, &f);
    print_found(&f);
    bool any = f.n > 0;
    any |= try_batches(&t, &none, own);
    for (int i = l.n - 1; i >= 0 && !any; i--)
        any = try_batches(&t, &l.steps[i], leanest);
    /* Changes that keep the batch are named first. */
    if (own[0] || leanest[0])
        tsri_fshow(stderr, "%s\n", own[0] ? own : leanest);
    say_what_else(&t, &l, any);
    return copy_found(&f, out);
}
