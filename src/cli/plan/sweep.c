/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera plan FILE --sweep PATH=V,V,...`: the plans of a grid of overrides. */
#include "src/cli/plan/ask.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_AXES = 8, MOST_POINTS = 1000000 };

/* --- the grid --------------------------------------------------------------------------------- */
/* Where a value ends: at a comma that is in no bracket and no quotes. */
static size_t value_length(const char *text)
{
    int depth = 0;
    char quote = 0;
    size_t i = 0;
    for (; text[i] && (depth > 0 || quote || text[i] != ','); i++) {
        if (quote)
            quote = text[i] == quote ? 0 : quote;
        else if (text[i] == '"' || text[i] == '\'')
            quote = text[i];
        else if (strchr("([{", text[i]))
            depth++;
        else if (strchr(")]}", text[i]))
            depth--;
    }
    return i;
}

static bool add_value(sweep_axis *axis, const char *text, size_t length)
{
    char **values = realloc(axis->values, ((size_t)axis->n + 1) * sizeof(char *));
    axis->values = values ? values : axis->values;
    char **sets = realloc(axis->sets, ((size_t)axis->n + 1) * sizeof(char *));
    axis->sets = sets ? sets : axis->sets;
    if (!values || !sets)
        return false;
    char *value = values[axis->n] = strndup(text, length), *set = NULL;
    if (!value || asprintf(&set, "%s=%s", axis->key, value) < 0) {
        free(value);
        return false;
    }
    sets[axis->n++] = set;
    return true;
}

static int no_memory(void)
{
    tsri_fshow(stderr, "tessera plan: out of memory\n");
    return CLI_FAILED;
}

/* Reads "PATH=VALUE,VALUE"; the exit code. */
static int read_axis(const char *text, sweep_axis *axis)
{
    const char *at = strchr(text, '=');
    if (!at || at == text || !at[1]) {
        tsri_fshow(stderr,
                   "tessera plan: --sweep needs PATH=VALUE,VALUE,..., like data.batch_size=16,32, "
                   "not '%s'\n",
                   text);
        return CLI_USAGE;
    }
    axis->key = strndup(text, (size_t)(at - text));
    for (bool more = axis->key != NULL; more;) {
        size_t length = value_length(++at);
        if (!length) {
            tsri_fshow(stderr, "tessera plan: --sweep %s: a value is missing behind '%.*s'\n", text,
                       (int)(at - text), text);
            return CLI_USAGE;
        }
        if (!add_value(axis, at, length))
            return no_memory();
        at += length;
        more = *at == ',';
    }
    return axis->key ? CLI_OK : no_memory();
}

static int read_grid(const cli_list *keys, sweep_grid *g)
{
    int64_t points = 1;
    g->axes = calloc((size_t)keys->n, sizeof *g->axes);
    for (int i = 0; g->axes && i < keys->n; i++) {
        if (i == MOST_AXES) {
            tsri_fshow(stderr, "tessera plan: more than %d --sweep\n", MOST_AXES);
            return CLI_USAGE;
        }
        g->naxes++;
        int code = read_axis(keys->items[i], &g->axes[i]);
        if (code != CLI_OK)
            return code;
        points *= g->axes[i].n;
        if (points > MOST_POINTS) {
            tsri_fshow(stderr, "tessera plan: --sweep: more than %d points\n", MOST_POINTS);
            return CLI_USAGE;
        }
    }
    g->npoints = (int)points;
    g->points = sweep_points_create((int)points);
    return g->axes && g->points ? CLI_OK : no_memory();
}

static void drop_grid(sweep_grid *g)
{
    for (int i = 0; i < g->naxes; i++) {
        for (int j = 0; j < g->axes[i].n; j++) {
            free(g->axes[i].values[j]);
            free(g->axes[i].sets[j]);
        }
        free(g->axes[i].values);
        free(g->axes[i].sets);
        free(g->axes[i].key);
    }
    free(g->axes);
    sweep_points_destroy(g->points, g->npoints);
}

int sweep_value(const sweep_grid *g, int point, int axis)
{
    for (int i = g->naxes - 1; i > axis; i--)
        point /= g->axes[i].n;
    return point % g->axes[axis].n;
}

/* --- points ----------------------------------------------------------------------------------- */
/* Rows of up to so many points are priced by each other's plans too. */
enum { MOST_COMPARED = 100 };
/* The part of a memory limit that another point's plan must leave: its gaps are not known. */
static const double spare_memory = 0.1;

typedef struct sweeper {
    const plan_source *from;
    sweep_grid grid;
    const char **sets;        /* the command line's, and room for those of a point */
    sweep_pricer fixed;       /* of the file's own plan */
    sweep_point *offers;      /* [point][plan of]; shared; NULL: none is compared */
    tsri_experiment **loaded; /* by point, in each process */
} sweeper;

/* The file at a point; it holds until the next. */
static plan_source source_of(const sweeper *s, int point)
{
    plan_source from = *s->from;
    from.sets = s->sets;
    for (int i = 0; i < s->grid.naxes; i++)
        s->sets[from.nsets++] = s->grid.axes[i].sets[sweep_value(&s->grid, point, i)];
    return from;
}

static tsr_status load_point(const sweeper *s, int point, tsri_experiment **out_experiment)
{
    const plan_source from = source_of(s, point);
    return tsri_experiment_load_for(from.path, from.ranks, from.nsets, from.sets, out_experiment);
}

/* Whether two points differ in figures alone, for which a plan can be priced again. */
static bool differ_in_figures(const sweep_grid *g, int a, int b)
{
    for (int i = 0; i < g->naxes; i++)
        if (sweep_value(g, a, i) != sweep_value(g, b, i) && !sweep_reprices(g->axes[i].key))
            return false;
    return a != b;
}

/* Prices the plan of point i at all points that it could be the plan of. */
static void offer_plan(sweeper *s, int i, sweep_pricer *p)
{
    const int n = s->grid.npoints;
    sweep_point *x = &s->grid.points[i];
    if (sweep_pricer_learn(p, &s->grid) != TSR_OK) {
        snprintf(x->alone, sizeof x->alone, "%.*s", (int)strcspn(tsr_last_error(), "\n"),
                 tsr_last_error());
        return;
    }
    for (int k = 0; k < n; k++) {
        sweep_point *offer = &s->offers[k * n + i];
        if (!differ_in_figures(&s->grid, i, k))
            continue;
        if (!s->loaded[k] && load_point(s, k, &s->loaded[k]) != TSR_OK)
            continue;
        offer->done = sweep_pricer_price(p, s->loaded[k], spare_memory, offer) == TSR_OK;
    }
}

static tsr_status plan_point(sweeper *s, int i, sweep_point *x)
{
    sweep_pricer p;
    const plan_source from = source_of(s, i);
    /* Another point's sets take the place of these while the plan is priced. */
    const char **sets = malloc((size_t)(from.nsets + 1) * sizeof *sets);
    plan_source own = from;
    if (!sets)
        return TSR_ERR_NO_MEMORY;
    for (int k = 0; k < from.nsets; k++)
        sets[k] = from.sets[k];
    own.sets = sets;
    own.alternatives = s->offers != NULL; /* a pricer needs them */
    tsr_status status = sweep_pricer_plan(&own, &p);
    if (status == TSR_OK) {
        const plan_figures f = plan_figures_of(p.base.report);
        *x = (sweep_point){.step_s = f.step_s,
                           .compute_s = f.compute_s,
                           .comm_s = f.step_s - f.compute_s,
                           .memory = f.memory,
                           .bytes = f.bytes,
                           .pace = plan_pace_of(p.base.report, p.base.experiment),
                           .by = -1};
        if (s->offers)
            offer_plan(s, i, &p);
    }
    sweep_pricer_finish(&p);
    free(sets);
    return status;
}

static tsr_status price_point(sweeper *s, int i, sweep_point *x)
{
    tsri_experiment *e;
    TSRI_TRY(load_point(s, i, &e));
    tsr_status status = sweep_pricer_price(&s->fixed, e, 0, x);
    tsri_experiment_destroy(e);
    return status;
}

/* Gives a point the cheapest plan that another one has, where its own is costlier. */
static void take_offers(sweeper *s, int i)
{
    const int n = s->grid.npoints;
    sweep_point *x = &s->grid.points[i];
    const double own_s = x->step_s;
    for (int k = 0; k < n && !x->failure[0]; k++) {
        const sweep_point *offer = &s->offers[i * n + k];
        if (!offer->done || offer->step_s >= x->step_s * (1 - 1e-6))
            continue;
        *x = *offer;
        x->by = k;
        x->anew_s = own_s;
    }
}

static int start_fixed(sweeper *s)
{
    for (int i = 0; i < s->grid.naxes; i++)
        if (!sweep_reprices(s->grid.axes[i].key)) {
            tsri_fshow(stderr,
                       "tessera plan: --fixed prices one plan for other figures of cluster and "
                       "data.batch_size; %s may change the plan: sweep it without "
                       "--fixed\n",
                       s->grid.axes[i].key);
            return CLI_USAGE;
        }
    plan_source from = *s->from;
    from.alternatives = true; /* a pricer needs them */
    tsr_status status = sweep_pricer_plan(&from, &s->fixed);
    if (status == TSR_OK)
        status = sweep_pricer_learn(&s->fixed, &s->grid);
    return status == TSR_OK ? CLI_OK : plan_failed(status);
}

/* Makes room for plans that are priced at other points, if any can be. */
static int start_anew(sweeper *s)
{
    const int n = s->grid.npoints;
    bool any = false;
    for (int i = 0; i < s->grid.naxes; i++)
        any |= s->grid.axes[i].n > 1 && sweep_reprices(s->grid.axes[i].key);
    s->grid.compared = any && n <= MOST_COMPARED;
    s->grid.left = any && n > MOST_COMPARED;
    if (!s->grid.compared)
        return CLI_OK;
    s->offers = sweep_points_create(n * n);
    s->loaded = calloc((size_t)n, sizeof(tsri_experiment *));
    return s->offers && s->loaded ? CLI_OK : no_memory();
}

/* --- the whole -------------------------------------------------------------------------------- */
static void work_out(void *arg, int i, sweep_point *x)
{
    sweeper *s = arg;
    tsr_status status = s->grid.fixed ? price_point(s, i, x) : plan_point(s, i, x);
    const char *error = tsr_last_error();
    if (status == TSR_OK)
        return;
    const tsr_compile_opts any = {.memory_limit = 1}; /* a refused limit is told by its own text */
    bool lacks = plan_lacks_memory(status, &any) ||
                 (status == TSR_ERR_NO_MEMORY && !strstr(error, "memory"));
    *x = (sweep_point){.lacks_memory = lacks, .by = -1};
    error = lacks ? "out of memory" : error;
    snprintf(x->failure, sizeof x->failure, "%.*s", (int)strcspn(error, "\n"), error);
}

/* Returns how many have no plan. */
static int sweep_all(sweeper *s)
{
    sweep_grid *g = &s->grid;
    int failed = 0;
    bool lacking = false;
    if (!g->fixed)
        sweep_each(g->points, g->npoints, work_out, s);
    for (int i = 0; i < g->npoints; i++) {
        if (g->fixed)
            work_out(s, i, &g->points[i]);
        else if (s->offers)
            take_offers(s, i);
        failed += g->points[i].failure[0] != 0;
        lacking |= g->points[i].lacks_memory;
    }
    if (lacking)
        no_memory();
    return lacking ? g->npoints : failed;
}

int plan_sweep_run(const plan_source *from, const plan_sweep *how)
{
    const int best = how->best ? sweep_column(how->best) : -1;
    sweeper s = {.from = from, .grid.fixed = how->fixed, .grid.best = best};
    if (how->best && best < 0) {
        tsri_fshow(stderr,
                   "tessera plan: --best is step, samples_per_s, tokens_per_s, mfu, memory or "
                   "sent, not '%s'\n",
                   how->best);
        return CLI_USAGE;
    }
    int code = read_grid(how->keys, &s.grid);
    s.sets = calloc((size_t)from->nsets + MOST_AXES, sizeof *s.sets);
    for (int i = 0; s.sets && i < from->nsets; i++)
        s.sets[i] = from->sets[i];
    if (code == CLI_OK && !s.sets)
        code = no_memory();
    if (code == CLI_OK)
        code = how->fixed ? start_fixed(&s) : start_anew(&s);
    if (code == CLI_OK) {
        int failed = sweep_all(&s), rc = 0;
        if (best >= 0 && failed < s.grid.npoints && !sweep_has_column(&s.grid, best)) {
            tsri_fshow(stderr, "tessera plan: --best %s: no row has that figure\n", how->best);
            s.grid.best = -1;
        }
        sweep_print(&s.grid, how->verbose);
        if (how->csv && (rc = sweep_write_csv(&s.grid, how->csv)) != 0)
            tsri_fshow(stderr, "tessera plan: %s: %s\n", how->csv, strerror(-rc));
        code = rc || failed == s.grid.npoints || s.grid.best != best ? CLI_FAILED : CLI_OK;
    }
    sweep_pricer_finish(&s.fixed);
    for (int i = 0; s.loaded && i < s.grid.npoints; i++)
        tsri_experiment_destroy(s.loaded[i]);
    free(s.loaded);
    sweep_points_destroy(s.offers, s.grid.npoints * s.grid.npoints);
    drop_grid(&s.grid);
    free(s.sets);
    return code;
}
