/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera plan --long` prints the strategy, bars for the step's time, for the memory of a rank and
 * for the traffic, and the next best signatures. */
#include "src/cli/plan/fold.h"
#include "src/cli/plan/plan.h"
#include "src/plan/report/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 11, NAME = 23, BAR_LEAST = 8, BAR_MOST = 30, RANKS_TEXT = 24 };

/* The most lines of each part, on a screen of at least 40 lines and on a lower one. */
typedef struct sizes {
    int shares, parts, traffic, others;
    tsri_stages_shown stages;
    bool source; /* all that is known of where figures come from */
} sizes;

static sizes find_sizes(void)
{
    enum { ROWS = 40 };
    const int more = (cli_lines() - ROWS) / 2; /* a stage has a line in a table and a picture */
    const sizes usual = {6, 5, 5, 3, {5 + more, true, false}, true},
                low = {3, 3, 3, 1, {4, false, false}, false};
    return more < 0 ? low : usual;
}

/* --- small texts ------------------------------------------------------------------------------ */
static void print_more(const char *words)
{
    cli_say("%*s", LABEL, "");
    cli_wrap(words, LABEL, LABEL, cli_columns());
}

char *plan_along(const tsri_traffic *t, char buf[64])
{
    char name[24];
    size_t n = (size_t)snprintf(buf, 64, " over");
    if (t->from != t->to)
        return buf[0] = 0, buf;
    for (int d = 0; d < tsr_placement_ndim(t->to) && t->group_size < tsr_placement_nranks(t->to);
         d++)
        if (t->dims >> d & 1)
            n += (size_t)snprintf(buf + n, 64 - n, "%s%s", n > 5 ? "+" : " ",
                                  tsri_axis_name(t->to, d, name));
    snprintf(buf + n, 64 - n, n > 5 ? " (%d ranks)" : " %d ranks", t->group_size);
    return buf;
}

/* --- bars ------------------------------------------------------------------------------------- */
typedef struct bar {
    const char *name, *figure;
    double part; /* of what the longest bar can be */
    char more[48];
} bar;

/* name: the columns for names. */
static void print_bar(const bar *b, int name, const cli_style *style)
{
    int room = cli_columns() - (name > NAME + 11 ? name : NAME + 11) - 23;
    int most = room > BAR_MOST ? BAR_MOST : room < BAR_LEAST ? BAR_LEAST : room;
    int n = (int)(b->part * most + 0.5);
    n = n < 0 ? 0 : n > most ? most : n;
    cli_say("  %-*s %10s %7s%s%s", name, b->name, b->figure, b->more, n ? "  " : "", style->dim);
    for (int i = 0; i < n; i++)
        putchar('#');
    cli_say("%s\n", style->plain);
}

/* --- time ------------------------------------------------------------------------------------- */
static int by_seconds(const void *a, const void *b)
{
    const plan_share *x = a, *y = b;
    return (x->s < y->s) - (x->s > y->s);
}

int plan_shares(const tsri_report *r, plan_share out[TSRI_SPENT_COUNT])
{
    const tsri_cost_model *m = &r->plan->ir.model;
    int n = 0;
    static const char *const own[] = {"compute", "memory", "kernel starts", "bubble"};
    for (int s = 0; s < TSRI_SPENT_LINK; s++) {
        out[n].use = snprintf(out[n].name, sizeof out[n].name, "%s", own[s]);
        out[n++].s = r->spent_s[s];
    }
    for (int l = 0; l < TSRI_MAX_LINKS; l++) {
        double bytes = r->spent_s[TSRI_SPENT_LINK + 2 * l];
        double shakes = r->spent_s[TSRI_SPENT_LINK + 2 * l + 1];
        char name[TSRI_LINK_NAME_MAX];
        out[n].use = (int)strlen(tsri_link_name(m, l, name));
        snprintf(out[n].name, sizeof out[n].name, "%s%s", name,
                 shakes > bytes ? " hand-shakes" : "");
        out[n++].s = bytes + shakes;
    }
    qsort(out, (size_t)n, sizeof *out, by_seconds);
    while (n > 0 && out[n - 1].s <= 0)
        n--;
    return n;
}

/* The columns for names of bars, as many in each part of the screen. */
static int name_width(const tsri_report *r)
{
    plan_share shares[TSRI_SPENT_COUNT];
    int n = plan_shares(r, shares), width = NAME;
    for (int i = 0; i < n && i < find_sizes().shares; i++)
        width = (int)strlen(shares[i].name) > width ? (int)strlen(shares[i].name) : width;
    return width;
}

/* ": 66.2 K tokens/s, 8.28 K samples/s". */
static void put_pace(plan_text *t, const plan_view *v)
{
    const plan_pace pace = plan_pace_of(v->report, v->experiment);
    char count[CLI_NUMBER_MAX];
    if (pace.samples_per_s <= 0)
        return;
    plan_put(t, ":");
    if (pace.tokens_per_s > 0)
        plan_put(t, " %s tokens/s,", cli_count(pace.tokens_per_s, count));
    plan_put(t, " %s samples/s", cli_count(pace.samples_per_s, count));
}

/* Puts what the step takes on the clock, where ranks compute while others, or they, communicate. */
static void put_overlap(plan_text *t, const tsri_report *r)
{
    char figure[CLI_NUMBER_MAX];
    tsri_timeline clock;
    if (tsri_timeline_make(r->plan, &clock) == TSR_OK && clock.end_s < 0.995 * r->step_s)
        plan_put(t, "added up; %s where communication overlaps", cli_seconds(clock.end_s, figure));
    else
        plan_put(t, "nothing overlaps");
    tsri_timeline_finish(&clock);
}

static void print_stage_line(const char *line, void *arg)
{
    const int indent = (int)strspn(line, " ") + 2;
    (void)arg;
    if ((int)strlen(line) + 2 <= cli_columns())
        cli_say("  %s\n", line);
    else {
        cli_say("%*s", indent, "");
        cli_wrap(line, indent, indent, cli_columns());
    }
}

void plan_print_stages(const tsr_plan *plan, tsri_stages_shown shown)
{
    tsri_report_stages(plan, shown, print_stage_line, NULL);
}

static void print_time(const plan_view *v, const cli_style *style)
{
    const tsri_report *r = v->report;
    plan_share shares[TSRI_SPENT_COUNT];
    char figure[CLI_NUMBER_MAX];
    plan_text line = {.used = 0}, note = {.used = 0};
    int n = plan_shares(r, shares), name = name_width(r);
    plan_put(&line, "%s", cli_seconds(r->step_s, figure));
    put_pace(&line, v);
    plan_put(&line, "; bound by %s", n ? shares[0].name : "nothing");
    const double mfu = plan_pace_of(r, v->experiment).mfu;
    if (mfu > 0)
        plan_put(&line, "; MFU %.1f %%", 100 * mfu);
    if (r->plan->ir.parts > 1 && r->plan->ir.timetable.nstages < 2)
        plan_put(&line, "; %d micro-batches", r->plan->ir.parts);
    plan_print_words(LABEL, "step", line.data, style);
    for (int i = 0; i < n && i < find_sizes().shares; i++) {
        bar b = {shares[i].name, cli_seconds(shares[i].s, figure), shares[i].s / shares[0].s, ""};
        snprintf(b.more, sizeof b.more, "%.1f %%", 100 * shares[i].s / r->step_s);
        print_bar(&b, name, style);
    }
    if (r->comm_s > 0)
        put_overlap(&note, r);
    if (r->summary.alike > 1 && r->summary.alike_s > 0.005 * r->step_s)
        plan_put(&note, "%s%s of it is computed alike on up to %d ranks", note.used ? "; " : "",
                 cli_seconds(r->summary.alike_s, figure), r->summary.alike);
    if (note.used)
        print_more(note.data);
    plan_print_stages(r->plan, find_sizes().stages);
}

/* --- memory ----------------------------------------------------------------------------------- */
static int by_size(const void *a, const void *b)
{
    const plan_part *x = a, *y = b;
    return (x->size < y->size) - (x->size > y->size);
}

int plan_memory_parts(const tsri_report_memory *m, plan_part out[PLAN_MEMORY_PARTS])
{
    const plan_part all[PLAN_MEMORY_PARTS] = {
        {"parameters", (double)m->parameters},    {"master weights", (double)m->masters},
        {"buffers", (double)m->buffers},          {"optimizer", (double)m->optimizer},
        {"inputs and outputs", (double)m->ports}, {"gradients", (double)m->gradients},
        {"activations", (double)m->activations},  {"communication", (double)m->communication},
        {"kernels' scratch", (double)m->scratch}, {"gaps", (double)m->other}};
    int n = PLAN_MEMORY_PARTS;
    memcpy(out, all, sizeof all);
    qsort(out, PLAN_MEMORY_PARTS, sizeof *out, by_size);
    while (n > 0 && out[n - 1].size == 0)
        n--;
    return n;
}

static void print_memory(const plan_view *v, const cli_style *style)
{
    const tsri_report *r = v->report;
    const tsri_report_memory *m = &r->memory[0];
    double limit = (double)r->plan->ir.opts.memory_limit, least = 0;
    plan_part parts[PLAN_MEMORY_PARTS];
    char a[CLI_NUMBER_MAX];
    plan_text line = {.used = 0};
    int n = plan_memory_parts(m, parts), name = name_width(r);
    plan_put(&line, "%s%s on ", m->exact ? "" : "at least ", cli_bytes((double)m->total, a));
    plan_put_ranks(&line, r, 0, RANKS_TEXT);
    if (limit > 0)
        plan_put(&line, ", %.0f %% of the limit, %s", 100 * (double)m->total / limit,
                 cli_bytes(limit, a));
    for (int i = 1; i < r->nmemory; i++)
        least = i == 1 || (double)r->memory[i].total < least ? (double)r->memory[i].total : least;
    if (r->nclasses > 1 && least < 0.99 * (double)m->total)
        plan_put(&line, "; others down to %s", cli_bytes(least, a));
    plan_print_words(LABEL, "memory", line.data, style);
    double whole = limit > 0 ? limit : n ? parts[0].size : 1, rest = 0;
    int most = find_sizes().parts, shown = n <= most ? n : most - 1;
    for (int i = 0; i < shown; i++) {
        bar one = {parts[i].name, cli_bytes(parts[i].size, a), parts[i].size / whole, ""};
        snprintf(one.more, sizeof one.more, "%.1f %%", 100 * parts[i].size / (double)m->total);
        print_bar(&one, name, style);
    }
    for (int i = shown; i < n; i++)
        rest += parts[i].size;
    if (shown < n) {
        bar one = {"other", cli_bytes(rest, a), rest / whole, ""};
        snprintf(one.more, sizeof one.more, "%.1f %%", 100 * rest / (double)m->total);
        print_bar(&one, name, style);
    }
}

/* --- traffic ---------------------------------------------------------------------------------- */
static void print_bytes(const char *what, const tsri_traffic *t)
{
    char bytes[CLI_NUMBER_MAX], cost[CLI_NUMBER_MAX];
    int room = cli_columns() - 26;
    room = room < 54 ? room : 54;
    bool fits = (int)strlen(what) <= room;
    cli_say("  %-*.*s%s %10s %10s\n", fits ? room : room - 3, fits ? room : room - 3, what,
            fits ? "" : "...", cli_bytes((double)t->bytes, bytes), cli_seconds(t->cost_s, cost));
}

static void print_traffic(const plan_view *v, const cli_style *style)
{
    const tsri_report *r = v->report;
    const tsri_summary *s = &r->summary;
    char bytes[CLI_NUMBER_MAX];
    plan_text line = {.used = 0};
    if (s->ntraffic)
        plan_put(&line, "%s a step, read by the busiest rank of each group",
                 cli_bytes((double)r->bytes, bytes));
    plan_print_words(LABEL, "traffic", s->ntraffic ? line.data : "none", style);
    int most = find_sizes().traffic, shown = s->ntraffic <= most ? s->ntraffic : most - 1;
    tsri_traffic rest = {.calls = 0};
    for (int i = 0; i < s->ntraffic; i++) {
        const tsri_traffic *t = &s->traffic[i];
        char along[64];
        rest.bytes += i < shown ? 0 : t->bytes;
        rest.cost_s += i < shown ? 0 : t->cost_s;
        line.used = 0;
        plan_put(&line, "%s: %s%s", tsri_traffic_name(t->kind), t->what, plan_along(t, along));
        if (t->calls > 1)
            plan_put(&line, " x%d", t->calls);
        if (i < shown)
            print_bytes(line.data, t);
    }
    line.used = 0;
    plan_put(&line, "%d more kinds", s->ntraffic - shown);
    if (shown < s->ntraffic)
        print_bytes(line.data, &rest);
}

/* --- what else was possible ------------------------------------------------------------------- */
typedef struct other {
    const tsri_report_row *row;
    double more_s;
    int at; /* of its alternatives */
} other;

static int by_more(const void *a, const void *b)
{
    const other *x = a, *y = b;
    return (x->more_s > y->more_s) - (x->more_s < y->more_s);
}

/* The cheapest other way of each op that computes; those that cost nothing more are no choice. */
static int find_others(const tsri_report *r, other *out)
{
    int n = 0;
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        const tsri_alternatives *alt = row->alternatives;
        if (row->kind == TSRI_REPORT_BOX || row->said || !alt)
            continue;
        if (row->item && (row->item->kind == TSRI_ITEM_VIEW || row->item->kernel.flops == 0))
            continue;
        for (int k = 0; k < alt->n; k++)
            if (alt->more_s[k] > 1e-3 * r->step_s || alt->more_s[k] < -1e-6 * r->step_s) {
                out[n++] = (other){row, alt->more_s[k], k};
                break;
            }
    }
    qsort(out, (size_t)n, sizeof *out, by_more);
    return n;
}

static void put_signatures(char *buf, size_t size, const other *o)
{
    const tsri_alternatives *alt = o->row->alternatives;
    char sbp[TSR_SBP_TEXT_MAX];
    size_t n = 0;
    for (int j = 0; j < alt->nin + alt->nout && n + TSR_SBP_TEXT_MAX < size; j++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s",
                              j == 0          ? ""
                              : j == alt->nin ? " -> "
                                              : ",",
                              tsr_sbp_format(j < alt->nin ? alt->sig[o->at]->in[j]
                                                          : alt->sig[o->at]->out[j - alt->nin],
                                             sbp));
}

static bool print_others(const plan_view *v, const cli_style *style)
{
    const tsri_report *r = v->report;
    other *all = malloc(((size_t)r->nrows + 1) * sizeof *all);
    fold *f = fold_create(false);
    bool ok = all && f;
    int n = ok ? find_others(r, all) : 0, most = find_sizes().others;
    for (int i = 0; i < n && ok && f->n <= most; i++) {
        char text[256], more[CLI_NUMBER_MAX], word[CLI_NUMBER_MAX + 1];
        snprintf(word, sizeof word, "%s%s", all[i].more_s < 0 ? "" : "+",
                 cli_seconds(all[i].more_s, more));
        put_signatures(text, sizeof text, &all[i]);
        char name[256];
        snprintf(name, sizeof name, "%.60s %.180s", all[i].row->what, all[i].row->name);
        ok = fold_add(f, word, name, true, text, "");
    }
    if (ok && f->n)
        plan_print_words(LABEL, "next best",
                         "one op otherwise, all others as they are, at each place", style);
    for (int i = 0; ok && i < f->n && i < most; i++) {
        const fold_line *l = f->all[i];
        char line[768], count[24] = "";
        if (l->count > 1)
            snprintf(count, sizeof count, " x%d", l->count);
        snprintf(line, sizeof line, "%s%s: %s", l->name, count, l->text);
        cli_say("  %-9s", l->what);
        cli_wrap(line, LABEL, LABEL, cli_columns());
    }
    fold_destroy(f);
    free(all);
    return ok;
}

/* --- the whole -------------------------------------------------------------------------------- */
void plan_print_head(const plan_view *v, const cli_style *style)
{
    const tsri_report *r = v->report;
    const tsri_strategy *s = &r->strategy;
    char count[CLI_NUMBER_MAX];
    plan_text line = {.used = 0};
    int nranks = r->plan->ir.world->nranks;
    bool single =
        s->nstages == 1 && tsr_placement_nranks(s->stages[0].placement) == r->summary.nranks;
    plan_put(&line, "%.60s: %s", tsri_basename(v->path), tsri_experiment_subject(v->experiment));
    if (r->summary.parameters)
        plan_put(&line, ", %s parameters in %lld tensor%s",
                 cli_count((double)r->summary.parameters, count), (long long)r->summary.tensors,
                 r->summary.tensors == 1 ? "" : "s");
    plan_put(&line, ", on ");
    if (r->summary.nranks < nranks)
        plan_put(&line, "%d of %d ranks%s", r->summary.nranks, nranks, single ? ": " : "");
    if (single)
        plan_put_mesh(&line, s->stages[0].placement);
    else if (r->summary.nranks == nranks)
        plan_put(&line, "%d rank%s", nranks, nranks == 1 ? "" : "s");
    cli_say("%s", style->bold);
    cli_wrap(line.data, 0, LABEL, cli_columns());
    cli_say("%s", style->plain);
    plan_print_words(LABEL, "strategy", s->words, style);
    char warning[160];
    if (tsri_experiment_warning(v->experiment, warning))
        plan_print_words(LABEL, "warning", warning, style);
}

bool plan_print_long(const plan_view *v)
{
    const cli_style style = cli_style_of(stdout);
    char source[256];
    plan_print_head(v, &style);
    print_time(v, &style);
    print_memory(v, &style);
    print_traffic(v, &style);
    if (!print_others(v, &style))
        return false;
    plan_links_source(v, source);
    if (!find_sizes().source)
        source[strcspn(source, ";")] = 0;
    plan_print_words(LABEL, "figures", source, &style);
    return true;
}
