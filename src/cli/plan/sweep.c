/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera plan FILE --sweep PATH=V,V,...`: the plans of a grid of overrides. */
#include "src/cli/plan/ask.h"
#include "src/plan/price/price.h"

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
    fprintf(stderr, "tessera plan: out of memory\n");
    return CLI_FAILED;
}

/* Reads "PATH=VALUE,VALUE"; the exit code. */
static int read_axis(const char *text, sweep_axis *axis)
{
    const char *at = strchr(text, '=');
    if (!at || at == text || !at[1]) {
        fprintf(stderr,
                "tessera plan: --sweep needs PATH=VALUE,VALUE,..., like data.batch_size=16,32, "
                "not '%s'\n",
                text);
        return CLI_USAGE;
    }
    axis->key = strndup(text, (size_t)(at - text));
    for (bool more = axis->key != NULL; more;) {
        size_t length = value_length(++at);
        if (!length) {
            fprintf(stderr, "tessera plan: --sweep %s: a value is missing behind '%.*s'\n", text,
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
            fprintf(stderr, "tessera plan: more than %d --sweep\n", MOST_AXES);
            return CLI_USAGE;
        }
        g->naxes++;
        int code = read_axis(keys->items[i], &g->axes[i]);
        if (code != CLI_OK)
            return code;
        points *= g->axes[i].n;
        if (points > MOST_POINTS) {
            fprintf(stderr, "tessera plan: --sweep: more than %d points\n", MOST_POINTS);
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
/* A batch at which the program was declared. */
typedef struct checked_batch {
    int64_t batch;
    char failure[160]; /* "": it is priced rightly there */
} checked_batch;

typedef struct sweeper {
    const plan_source *from;
    sweep_grid grid;
    const char **sets,
        **other_sets; /* the command line's, and room for more: of a point; of open_at */
    /* --fixed */
    plan_made base;
    tsri_pricer *pricer;
    checked_batch *checked;
    int nchecked;
} sweeper;

static plan_source source_of(const sweeper *s, int point)
{
    plan_source from = *s->from;
    from.sets = s->sets;
    for (int i = 0; i < s->grid.naxes; i++)
        s->sets[from.nsets++] = s->grid.axes[i].sets[sweep_value(&s->grid, point, i)];
    return from;
}

static double samples_of(const tsri_experiment *e, double step_s)
{
    return step_s > 0 ? (double)tsri_experiment_batch_size(e) / step_s : 0;
}

static tsr_status plan_point(const plan_source *from, sweep_point *x)
{
    plan_made m;
    tsr_status status = plan_make(from, &m);
    if (status == TSR_OK) {
        const plan_figures f = plan_figures_of(m.report);
        x->step_s = f.step_s;
        x->compute_s = f.compute_s;
        x->comm_s = f.step_s - f.compute_s;
        x->memory = f.memory;
        x->bytes = f.bytes;
        x->samples_per_s = samples_of(m.experiment, f.step_s);
    }
    plan_drop(&m);
    return status;
}

/* --- the plan that is priced again ------------------------------------------------------------ */
static const char batch_key[] = "data.batch_size";

/* Figures of a cluster that prices alone depend on; others may say which ranks there are. */
static const char *const link_keys[] = {"cluster.ranks_per_node",
                                        "cluster.latency_us",
                                        "cluster.bandwidth_gb_s",
                                        "cluster.node_latency_us",
                                        "cluster.node_bandwidth_gb_s",
                                        "cluster.memory_gb_s",
                                        "cluster.tflops",
                                        "cluster.kernel_us"};

static bool may_vary(const char *key)
{
    bool any = !strcmp(key, batch_key);
    for (size_t i = 0; i < sizeof link_keys / sizeof *link_keys; i++)
        any |= !strcmp(key, link_keys[i]);
    return any;
}

/* Opens the base at another batch. */
static tsr_status open_at(const sweeper *s, int64_t batch, plan_made *m)
{
    char set[64];
    plan_source from = *s->from;
    snprintf(set, sizeof set, "%s=%lld", batch_key, (long long)batch);
    from.sets = s->other_sets;
    s->other_sets[from.nsets++] = set;
    return plan_open(&from, m);
}

/* The batches that are asked for, and others that may do for learning; returns how many. */
static int list_batches(const sweeper *s, int64_t base, int64_t *out, int most)
{
    int n = 0;
    for (int i = 0; i < s->grid.naxes; i++)
        for (int j = 0; j < s->grid.axes[i].n && n + 4 < most; j++)
            if (!strcmp(s->grid.axes[i].key, batch_key))
                out[n++] = strtoll(s->grid.axes[i].values[j], NULL, 10);
    if (!n)
        return 0;
    const int64_t others[] = {base / 2, base / 2 + 1, base + 1, base + 2};
    for (int i = 0; i < 4; i++)
        out[n++] = others[i];
    return n;
}

/* Opens the program at two other batches, if any is swept: small ones may leave ops out. */
static tsr_status learn_batches(const sweeper *s, tsri_price_sizes *sizes, plan_made *other)
{
    enum { MOST = 64 };
    int64_t batches[MOST], base = tsri_experiment_batch_size(s->base.experiment);
    int n = base ? list_batches(s, base, batches, MOST) : 0, learned = 0;
    sizes->size[0] = base;
    sizes->graph[0] = s->base.program->graph;
    for (int i = 0; i < n && learned < 2; i++) {
        bool is_new = batches[i] > 1 && batches[i] != base && batches[i] != sizes->size[1];
        if (!is_new)
            continue;
        plan_drop(&other[learned]);
        if (open_at(s, batches[i], &other[learned]) != TSR_OK)
            continue;
        sizes->size[1 + learned] = batches[i];
        sizes->graph[1 + learned] = other[learned].program->graph;
        learned++;
    }
    if (n && learned < 2)
        return tsr_set_error(TSR_ERR_UNSUPPORTED, "--fixed: there are no two other batches that "
                                                  "the program can be declared with");
    return TSR_OK;
}

static tsr_status make_pricer(sweeper *s)
{
    plan_made other[2] = {0};
    tsri_price_sizes sizes = {0};
    TSRI_TRY(plan_make(s->from, &s->base));
    const tsri_report *r = s->base.report;
    int *ranks = calloc((size_t)r->nmemory, sizeof *ranks);
    for (int i = 0; ranks && i < r->nmemory; i++)
        ranks[i] = r->memory[i].rank;
    tsr_status status = ranks ? learn_batches(s, &sizes, other) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsri_pricer_create(s->base.plan, &sizes, r->nmemory, ranks, &s->pricer);
    free(ranks);
    plan_drop(&other[0]);
    plan_drop(&other[1]);
    return status;
}

/* Checks, once for each batch that is swept, that the program is there what the pricer thinks. */
static tsr_status check_batch(sweeper *s, const tsri_experiment *e)
{
    int64_t batch = tsri_experiment_batch_size(e);
    if (batch == tsri_experiment_batch_size(s->base.experiment))
        return TSR_OK;
    for (int i = 0; i < s->nchecked; i++)
        if (s->checked[i].batch == batch)
            return s->checked[i].failure[0]
                       ? tsr_set_error(TSR_ERR_UNSUPPORTED, "%s", s->checked[i].failure)
                       : TSR_OK;
    checked_batch *grown = realloc(s->checked, ((size_t)s->nchecked + 1) * sizeof *grown);
    if (!grown)
        return TSR_ERR_NO_MEMORY;
    s->checked = grown;
    plan_made m;
    tsr_status status = open_at(s, batch, &m);
    if (status == TSR_OK)
        status = tsri_pricer_check(s->pricer, m.program->graph, batch);
    checked_batch *x = &s->checked[s->nchecked++];
    *x = (checked_batch){.batch = batch};
    if (status != TSR_OK)
        snprintf(x->failure, sizeof x->failure, "%s", tsr_last_error());
    plan_drop(&m);
    return status;
}

/* The links and the size of a point are read from its file; the rest is the base's. */
static tsr_status price_of(sweeper *s, const plan_source *from, const tsri_experiment *e,
                           sweep_point *x)
{
    tsr_compile_opts opts = *TSR_COMPILE_OPTS();
    tsri_experiment_fill(e, &opts);
    opts.memory_limit = from->memory_limit ? from->memory_limit : opts.memory_limit;
    cli_links_fill(&s->base.links, tsri_experiment_cluster(e), &opts);
    const tsri_cost_model model = tsri_plan_cost_model(&opts, tsri_experiment_device(e));
    tsri_price price = {0};
    char needs[CLI_NUMBER_MAX], limit[CLI_NUMBER_MAX];
    TSRI_TRY(tsri_pricer_price(s->pricer, &model, tsri_experiment_batch_size(e), &price));
    if (opts.memory_limit && price.memory > opts.memory_limit)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "this plan needs %s a rank; memory_limit is %s",
                             cli_bytes((double)price.memory, needs),
                             cli_bytes((double)opts.memory_limit, limit));
    *x = (sweep_point){.step_s = price.step_s,
                       .compute_s = price.compute_s,
                       .comm_s = price.comm_s,
                       .samples_per_s = samples_of(e, price.step_s),
                       .memory = price.memory,
                       .bytes = price.bytes};
    return TSR_OK;
}

static tsr_status price_point(sweeper *s, const plan_source *from, sweep_point *x)
{
    tsri_experiment *e;
    TSRI_TRY(tsri_experiment_load(from->path, from->nsets, from->sets, &e));
    tsr_status status = check_batch(s, e);
    if (status == TSR_OK)
        status = price_of(s, from, e, x);
    tsri_experiment_destroy(e);
    return status;
}

static int start_fixed(sweeper *s)
{
    for (int i = 0; i < s->grid.naxes; i++)
        if (!may_vary(s->grid.axes[i].key)) {
            fprintf(stderr,
                    "tessera plan: --fixed prices one plan for other figures of cluster and "
                    "data.batch_size; %s may change the plan: sweep it without "
                    "--fixed\n",
                    s->grid.axes[i].key);
            return CLI_USAGE;
        }
    tsr_status status = make_pricer(s);
    return status == TSR_OK ? CLI_OK : plan_failed(status);
}

/* --- the whole -------------------------------------------------------------------------------- */
static void work_out(void *arg, int i, sweep_point *x)
{
    sweeper *s = arg;
    const plan_source from = source_of(s, i);
    tsr_status status = s->grid.fixed ? price_point(s, &from, x) : plan_point(&from, x);
    const char *error = tsr_last_error();
    if (status == TSR_OK)
        return;
    const tsr_compile_opts any = {.memory_limit = 1}; /* a refused limit is told by its own text */
    bool lacks = plan_lacks_memory(status, &any) ||
                 (status == TSR_ERR_NO_MEMORY && !strstr(error, "memory"));
    *x = (sweep_point){.lacks_memory = lacks};
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
        failed += g->points[i].failure[0] != 0;
        g->trains |= g->points[i].samples_per_s > 0;
        lacking |= g->points[i].lacks_memory;
    }
    if (lacking)
        no_memory();
    return lacking ? g->npoints : failed;
}

int plan_sweep_run(const plan_source *from, const plan_sweep *how)
{
    plan_source asked = *from;
    asked.alternatives = how->fixed; /* a pricer needs them */
    sweeper s = {.from = &asked, .grid.fixed = how->fixed};
    int code = read_grid(how->keys, &s.grid);
    s.sets = calloc((size_t)from->nsets + MOST_AXES, sizeof *s.sets);
    s.other_sets = calloc((size_t)from->nsets + 1, sizeof *s.other_sets);
    for (int i = 0; s.sets && s.other_sets && i < from->nsets; i++)
        s.sets[i] = s.other_sets[i] = from->sets[i];
    if (code == CLI_OK && !(s.sets && s.other_sets))
        code = no_memory();
    if (code == CLI_OK && how->fixed)
        code = start_fixed(&s);
    if (code == CLI_OK) {
        int failed = sweep_all(&s), rc = 0;
        sweep_print(&s.grid, how->verbose);
        if (how->csv && (rc = sweep_write_csv(&s.grid, how->csv)) != 0)
            fprintf(stderr, "tessera plan: %s: %s\n", how->csv, strerror(-rc));
        code = rc || failed == s.grid.npoints ? CLI_FAILED : CLI_OK;
    }
    tsri_pricer_destroy(s.pricer);
    free(s.checked);
    plan_drop(&s.base);
    drop_grid(&s.grid);
    free(s.sets);
    free(s.other_sets);
    return code;
}
