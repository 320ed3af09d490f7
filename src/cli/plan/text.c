/* SPDX-License-Identifier: Apache-2.0 */
/* A report as text. Rows that say the same are one line with their number. */
#include "src/cli/plan/plan.h"

#include "src/core/rng.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_ = 1536, BUCKETS = 4096, LINES_MAX = 80 };

typedef struct line {
    struct line *next; /* of its hash */
    char *text;        /* all but the name */
    const char *name;  /* of the first */
    int count;
} line;

typedef struct lines {
    tsri_pool pool;
    line *buckets[BUCKETS];
    line **all;
    int n, capacity;
    bool verbose, failed;
} lines;

/* --- lines that are alike --------------------------------------------------------------------- */
static void add_line(lines *l, const char *name, const char *text)
{
    uint64_t h = tsri_hash(TSRI_HASH_INIT, text, strlen(text));
    line **bucket = &l->buckets[h % BUCKETS];
    for (line *x = *bucket; x && !l->verbose; x = x->next)
        if (!strcmp(x->text, text)) {
            x->count++;
            return;
        }
    line *x = tsri_pool_alloc(&l->pool, sizeof *x);
    l->failed |= !x || !TSRI_PUSH(&l->pool, l->all, l->n, l->capacity);
    if (l->failed)
        return;
    *x = (line){*bucket, tsri_pool_strdup(&l->pool, text), name, 1};
    l->failed |= !x->text;
    *bucket = x;
    l->all[l->n++] = x;
}

/* A line's text has its name's place marked by a '\1', so that all that is equal is compared. */
static void print_lines(const lines *l, const cli_style *style)
{
    for (int i = 0; i < l->n && !l->failed; i++) {
        const line *x = l->all[i];
        if (i == LINES_MAX && !l->verbose) {
            printf("  ... and %d more kinds of lines (--verbose)\n", l->n - i);
            return;
        }
        const char *at = strchr(x->text, '\1');
        char name[96];
        snprintf(name, sizeof name, x->count > 1 ? "%.60s +%d" : "%.60s", x->name, x->count - 1);
        const char *second = strchr(at, '\n');
        int rest = second ? (int)(second - at) - 1 : (int)strlen(at + 1);
        printf("  %.*s%-30s%.*s\n", (int)(at - x->text), x->text, name, rest, at + 1);
        if (second && second[1])
            printf("%s      %s%s\n", style->dim, second + 1, style->plain);
    }
}

static void finish_lines(lines *l)
{
    tsri_pool_finish(&l->pool);
}

/* --- rows ------------------------------------------------------------------------------------- */
typedef struct text {
    char data[LINE_MAX_];
    size_t used;
} text;

TSR_PRINTF(2, 3) static void put(text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->data + t->used, sizeof t->data - t->used, fmt, ap);
    va_end(ap);
    t->used += n > 0 ? (size_t)n : 0;
    t->used = t->used < sizeof t->data ? t->used : sizeof t->data - 1;
}

static void put_value(text *t, const tsri_value *v, bool shape)
{
    char sbp[TSRI_LAYOUT_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
    if (shape)
        put(t, "%s[%s] ", tsr_dtype_name(v->dtype), tsri_dims_format(v->shape, dims));
    put(t, "%s", tsri_layout_format(&v->layout, sbp));
}

/* Placements are told where a program has several. */
static bool has_several_placements(const tsr_plan *plan)
{
    for (int i = 1; i < plan->nvalues; i++)
        if (plan->values[i].placement != plan->values[0].placement)
            return true;
    return false;
}

static void put_placement(text *t, const tsr_placement *p, bool several)
{
    const char *name = tsr_placement_text(p);
    if (several)
        put(t, " on %.60s%s", name, strlen(name) > 60 ? "..." : "");
}

static void put_row(text *t, const tsr_plan *plan, const tsri_report_row *row, bool several)
{
    char why[TSRI_WHY_MAX];
    put(t, "%-14s \1 ", row->what);
    for (int i = 0; row->item && i < row->item->nin; i++) {
        put(t, i ? ", " : "");
        put_value(t, &plan->values[row->item->in[i]], false);
    }
    if (row->item && row->item->nin)
        put(t, " -> ");
    for (int i = 0; row->item && i < row->item->nout; i++) {
        put(t, i ? ", " : "");
        put_value(t, &plan->values[row->item->out[i]], true);
    }
    if (!row->item)
        put_value(t, &plan->values[row->value], true);
    if (row->value >= 0)
        put_placement(t, plan->values[row->value].placement, several);
    tsri_report_why(row, why);
    if (row->said || !row->alternatives || row->alternatives->n == 0)
        put(t, "%s%s", why[0] ? "  " : "", why);
    else
        put(t, "\n%s", why);
}

static void put_box(text *t, const tsr_plan *plan, const tsri_report_row *row, bool several)
{
    char bytes[CLI_NUMBER_MAX], cost[CLI_NUMBER_MAX], why[TSRI_WHY_MAX];
    const tsri_item *it = row->item;
    const tsri_value *from = &plan->values[it->in[0]], *to = &plan->values[it->out[0]];
    put(t, "%-14s \1 ", row->what);
    put_value(t, from, it->nin == 1);
    put_placement(t, from->placement, several);
    put(t, " -> ");
    put_value(t, to, false);
    put_placement(t, to->placement, several && to->placement != from->placement);
    if (it->nin > 1)
        put(t, ", %d tensors", it->nin);
    put(t, "\n");
    if (row->link >= 0)
        put(t, "%d group%s of %d ranks, link %d, %s, ", row->groups, row->groups > 1 ? "s" : "",
            row->group_size, row->link + 1, cli_bytes((double)row->bytes, bytes));
    put(t, "%s; %s", cli_seconds(row->cost_s, cost), tsri_report_why(row, why));
}

static bool print_rows(const plan_view *v, bool boxes, const cli_style *style)
{
    const tsri_report *r = v->report;
    lines *l = calloc(1, sizeof *l);
    if (!l)
        return false;
    tsri_pool_init(&l->pool, NULL);
    l->verbose = v->verbose;
    bool several = has_several_placements(r->plan);
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        text t = {.used = 0};
        if ((row->kind == TSRI_REPORT_BOX) != boxes)
            continue;
        if (boxes)
            put_box(&t, r->plan, row, several);
        else
            put_row(&t, r->plan, row, several);
        add_line(l, row->name, t.data);
    }
    if (l->n == 0)
        printf("  none\n");
    print_lines(l, style);
    bool ok = !l->failed;
    finish_lines(l);
    free(l);
    return ok;
}

/* --- the rest --------------------------------------------------------------------------------- */
static void print_totals(const tsri_report *r)
{
    char bytes[CLI_NUMBER_MAX], cost[CLI_NUMBER_MAX];
    for (int i = 0; i < r->ntotals; i++)
        printf("  %-14s %6d calls %12s %12s\n", r->totals[i].what, r->totals[i].calls,
               cli_bytes((double)r->totals[i].bytes, bytes),
               cli_seconds(r->totals[i].cost_s, cost));
    if (r->ntotals == 0)
        printf("  none\n");
}

static void print_memory(const tsri_report *r)
{
    static const char *const heads[] = {"parameters", "buffers",   "optimizer",
                                        "in, out",    "gradients", "activations",
                                        "boxing",     "other",     "total"};
    printf("  %-20s", "ranks");
    for (int i = 0; i < 9; i++)
        printf(" %11s", heads[i]);
    putchar('\n');
    for (int i = 0; i < r->nmemory; i++) {
        const tsri_report_memory *m = &r->memory[i];
        const uint64_t cells[] = {m->parameters,    m->buffers,   m->optimizer,
                                  m->ports,         m->gradients, m->activations,
                                  m->communication, m->other,     m->total};
        char ranks[21], bytes[CLI_NUMBER_MAX];
        printf("  %-20s", plan_ranks_text(r, i, ranks, sizeof ranks));
        for (int c = 0; c < 9; c++)
            printf(" %11s", cli_bytes((double)cells[c], bytes));
        puts(m->exact ? "" : " at least");
    }
    if (r->nclasses > r->nmemory)
        printf("  ... and %d more kinds of ranks\n", r->nclasses - r->nmemory);
}

static void print_time(const plan_view *v)
{
    const tsri_report *r = v->report;
    const tsr_plan *plan = r->plan;
    char step[CLI_NUMBER_MAX], compute[CLI_NUMBER_MAX], comm[CLI_NUMBER_MAX], bound[CLI_NUMBER_MAX],
        name[32];
    printf("  %s: compute %s, communication %s, one behind the other\n",
           cli_seconds(r->step_s, step), cli_seconds(r->compute_s, compute),
           cli_seconds(r->comm_s, comm));
    printf("  spent on");
    for (int s = 0, first = 1; s < TSRI_SPENT_COUNT; s++)
        if (r->spent_s[s] > 0) {
            printf("%s %s %.1f %%", first ? "" : ",", tsri_spent_name((tsri_spent)s, name),
                   100 * r->spent_s[s] / r->step_s);
            first = 0;
        }
    printf("\n  bound by %s\n", tsri_spent_name(r->most, name));
    for (int i = 0; i < TSRI_CHANGES; i++)
        if (tsri_change_counts(plan, &plan->change[i]))
            printf("  %s%s for %s\n", plan->change[i].more_s < 0 ? "less " : "more ",
                   cli_seconds(fabs(plan->change[i].more_s), step), plan->change[i].reason);
    printf("  no choice of signatures takes less than %s; these take %s%s\n",
           cli_seconds(plan->info.bound_s, bound), cli_seconds(plan->info.cost_s, step),
           plan->info.exact ? " and are proven cheapest" : "");
}

static void print_links(const plan_view *v)
{
    const tsri_cost_model *m = &v->report->plan->model;
    char source[256], latency[CLI_NUMBER_MAX], speed[CLI_NUMBER_MAX];
    plan_links_source(v, source);
    for (int i = 0; i < m->nlinks; i++) {
        char who[48];
        snprintf(who, sizeof who, m->link[i].ranks ? "within %d ranks" : "among all ranks",
                 m->link[i].ranks);
        printf("  link %d %-20s hand-shake %s, %s/s\n", i + 1, who,
               cli_seconds(m->link[i].latency_s, latency),
               cli_bytes(m->link[i].bytes_per_s, speed));
    }
    printf("  own memory %s/s, ", cli_bytes(m->local_bytes_per_s, speed));
    printf("%.0f GFLOP/s, kernel start %s\n", m->flops_per_s / 1e9,
           cli_seconds(m->kernel_s, latency));
    printf("  figures: %s\n", source);
    if (v->limit_is)
        printf("  memory limit of a rank: %s, %s\n",
               cli_bytes((double)v->report->plan->opts.memory_limit, speed), v->limit_is);
}

bool plan_print_text(const plan_view *v)
{
    const cli_style style = cli_style_of(stdout);
    const tsr_plan *plan = v->report->plan;
    char compile[CLI_NUMBER_MAX];
    printf("%s%s%s: %d rank%s, %d ops; compiled in %s\n", style.bold, v->path, style.plain,
           plan->world->nranks, plan->world->nranks > 1 ? "s" : "", plan->info.ops,
           cli_seconds(plan->info.compile_s, compile));
    printf("%stensors%s\n", style.bold, style.plain);
    if (!print_rows(v, false, &style))
        return false;
    printf("%sboxing%s\n", style.bold, style.plain);
    if (!print_rows(v, true, &style))
        return false;
    printf("%scommunication of a step%s (what the busiest rank reads)\n", style.bold, style.plain);
    print_totals(v->report);
    printf("%smemory of a rank%s\n", style.bold, style.plain);
    print_memory(v->report);
    printf("%stime of a step%s (estimated)\n", style.bold, style.plain);
    print_time(v);
    print_links(v);
    return true;
}
