/* SPDX-License-Identifier: Apache-2.0 */
/* A report as text, all of it: `tessera plan --full`. Rows that say the same are one line with
 * their number. No line is longer than the terminal's. */
#include "src/cli/plan/fold.h"
#include "src/cli/plan/plan.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { WHAT_WIDTH = 14, NAME_WIDTH = 30, NOTE_INDENT = 6, RANKS_TEXT = 21 };

/* --- rows ------------------------------------------------------------------------------------- */
void plan_put(plan_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->data + t->used, sizeof t->data - t->used, fmt, ap);
    va_end(ap);
    t->used += n > 0 ? (size_t)n : 0;
    t->used = t->used < sizeof t->data ? t->used : sizeof t->data - 1;
}

void plan_print_label(int width, const char *label, const cli_style *style)
{
    cli_say("%s%-*s%s", style->bold, width, label, style->plain);
}

void plan_print_words(int width, const char *label, const char *words, const cli_style *style)
{
    plan_print_label(width, label, style);
    cli_wrap(words, width, width, cli_columns());
}

static void put_value(plan_text *t, const tsri_value *v, bool shape)
{
    char sbp[TSRI_LAYOUT_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
    if (shape)
        plan_put(t, "%s[%s] ", tsr_dtype_name(v->dtype), tsri_dims_format(v->shape, dims));
    plan_put(t, "%s", tsri_layout_format(&v->layout, sbp));
}

/* Placements are told where a program has several. */
static bool has_several_placements(const tsr_plan *plan)
{
    for (int i = 1; i < plan->ir.nvalues; i++)
        if (plan->ir.values[i].placement != plan->ir.values[0].placement)
            return true;
    return false;
}

static void put_placement(plan_text *t, const tsr_placement *p, bool several)
{
    if (!several)
        return;
    plan_put(t, " on ");
    plan_put_placement(t, p);
}

/* The reason of a row, and where it stands if the file itself declares the op. */
static void put_note(plan_text *t, const plan_view *v, const tsri_report_row *row)
{
    char why[TSRI_WHY_MAX];
    const tsri_item *it = row->kind == TSRI_REPORT_OP && !row->said ? row->item : NULL;
    plan_put(t, "%s", tsri_report_why(row, why));
    if (it && it->loc.file && !strcmp(it->loc.file, v->path))
        plan_put(t, "%s%.60s:%d", t->used ? "; " : "", tsri_basename(it->loc.file), it->loc.line);
}

static void put_row(plan_text *t, const tsr_plan *plan, const tsri_report_row *row, bool several)
{
    for (int i = 0; row->item && i < row->item->nin; i++) {
        plan_put(t, i ? ", " : "");
        put_value(t, &plan->ir.values[row->item->in[i]], false);
    }
    if (row->item && row->item->nin)
        plan_put(t, " -> ");
    for (int i = 0; row->item && i < row->item->nout; i++) {
        plan_put(t, i ? ", " : "");
        put_value(t, &plan->ir.values[row->item->out[i]], true);
    }
    if (!row->item)
        put_value(t, &plan->ir.values[row->value], true);
    if (row->value >= 0)
        put_placement(t, plan->ir.values[row->value].placement, several);
}

char *plan_call_text(const tsr_plan *plan, const tsri_report_row *row, char buf[PLAN_CALL_MAX])
{
    char bytes[CLI_NUMBER_MAX], cost[CLI_NUMBER_MAX], link[TSRI_LINK_NAME_MAX];
    int n = 0;
    if (row->times > 1)
        n = snprintf(buf, PLAN_CALL_MAX, "%d times, ", row->times);
    if (row->link >= 0)
        n += snprintf(buf + n, PLAN_CALL_MAX - (size_t)n, "%d group%s of %d ranks, %s, %s, ",
                      row->groups, row->groups > 1 ? "s" : "", row->group_size,
                      tsri_link_name(&plan->ir.model, row->link, link),
                      cli_bytes((double)row->bytes, bytes));
    snprintf(buf + n, PLAN_CALL_MAX - (size_t)n, "%s", cli_seconds(row->cost_s, cost));
    return buf;
}

static void put_box(plan_text *t, const tsr_plan *plan, const tsri_report_row *row, bool several)
{
    char call[PLAN_CALL_MAX];
    const tsri_item *it = row->item;
    const tsri_value *from = &plan->ir.values[it->in[0]], *to = &plan->ir.values[it->out[0]];
    put_value(t, from, it->nin == 1);
    put_placement(t, from->placement, several);
    plan_put(t, " -> ");
    put_value(t, to, false);
    put_placement(t, to->placement, several && to->placement != from->placement);
    if (it->nin > 1)
        plan_put(t, ", %d tensors", it->nin);
    plan_put(t, "\n%s", plan_call_text(plan, row, call));
}

/* A line's text up to a line end stands behind its name; the rest and the note on the line too, if
 * they fit and there is no such rest, else below. */
static void print_line(const fold_line *l, const cli_style *style, int columns)
{
    plan_text t = {.used = 0}, line = {.used = 0}, note = {.used = 0};
    const char *rest = strchr(l->text, '\n');
    plan_put(&line, "%.*s", (int)(rest ? rest - l->text : (long)strlen(l->text)), l->text);
    plan_put(&note, "%s%s%s", rest ? rest + 1 : "", rest && l->note[0] ? "; " : "", l->note);
    plan_put(&t, "%s", l->name);
    if (l->count > 1)
        plan_put(&t, l->alike ? " x%d" : " +%d", l->alike ? l->count : l->count - 1);
    int word = (int)strcspn(line.data, " "), what = (int)strlen(l->what);
    int used = (what > WHAT_WIDTH ? what : WHAT_WIDTH) + 4;
    used += t.used > NAME_WIDTH ? (int)t.used : NAME_WIDTH;
    if (used + word > columns) /* the name leaves no room beside it */
        cli_say("  %-*s %s\n%*s", WHAT_WIDTH, l->what, t.data, used = NOTE_INDENT, "");
    else
        cli_say("  %-*s %-*s ", WHAT_WIDTH, l->what, NAME_WIDTH, t.data);
    bool fits = !rest && used + (int)(line.used + note.used) + 2 <= columns;
    if (fits && note.used)
        plan_put(&line, "  %s", note.data);
    if (fits)
        cli_say("%s\n", line.data);
    else
        cli_wrap(line.data, used, NOTE_INDENT, columns);
    if (fits || !note.used)
        return;
    cli_say("%s%*s", style->dim, NOTE_INDENT, "");
    cli_wrap(note.data, NOTE_INDENT, NOTE_INDENT, columns);
    cli_say("%s", style->plain);
}

static bool print_rows(const plan_view *v, bool boxes, const cli_style *style)
{
    const tsri_report *r = v->report;
    fold *f = fold_create(v->verbose);
    if (!f)
        return false;
    bool several = has_several_placements(r->plan), ok = true;
    for (int i = 0; i < r->nrows && ok; i++) {
        const tsri_report_row *row = &r->rows[i];
        plan_text t = {.used = 0}, note = {.used = 0};
        if ((row->kind == TSRI_REPORT_BOX) != boxes)
            continue;
        (boxes ? put_box : put_row)(&t, r->plan, row, several);
        put_note(&note, v, row);
        ok = fold_add(f, row->what, row->name, false, t.data, note.data);
    }
    if (f->n == 0)
        cli_say("  none\n");
    for (int i = 0; i < f->n && ok; i++)
        print_line(f->all[i], style, cli_columns());
    fold_destroy(f);
    return ok;
}

/* --- layers of a mixed layout ----------------------------------------------------------------- */
static bool is_mixed(const tsri_stage_strategy *stage)
{
    bool mixed = false;
    for (int d = 0; d < stage->naxes; d++)
        mixed |= stage->axis[d].kind == TSRI_STRATEGY_NONE;
    return mixed;
}

static bool do_same(const tsri_stage_strategy *stage, int a, int b)
{
    bool same = true;
    for (int d = 0; d < stage->naxes; d++)
        same &= stage->layers[a].kind[d] == stage->layers[b].kind[d];
    return same;
}

/* Appends the name of a layer; of several that do the same the first and the last. */
static void put_layers(plan_text *t, const tsri_stage_strategy *stage, int first, int end)
{
    const tsri_layer_way *a = &stage->layers[first], *b = &stage->layers[end - 1];
    plan_put(t, "%.*s", tsri_layer_name_length(a), a->name);
    if (end - first > 1)
        plan_put(t, " to %.*s x%d", tsri_layer_name_length(b), b->name, end - first);
}

static void print_stage_layers(const tsri_stage_strategy *stage, const cli_style *style)
{
    for (int first = 0, end; first < stage->nlayers; first = end) {
        plan_text t = {.used = 0}, name = {.used = 0};
        for (end = first + 1; end < stage->nlayers && do_same(stage, first, end); end++)
            ;
        put_layers(&name, stage, first, end);
        for (int d = 0; d < stage->naxes; d++) {
            char axis[24];
            plan_put(&t, "%s%s", d ? ", " : "", tsri_layer_words(stage->layers[first].kind[d]));
            if (stage->naxes > 1)
                plan_put(&t, " over %s",
                         tsri_axis_name(stage->placement, stage->axis[d].dim, axis));
        }
        const fold_line line = {.what = end - first > 1 ? "layers" : "layer",
                                .text = t.data,
                                .name = name.data,
                                .note = (char[]){""},
                                .count = 1};
        print_line(&line, style, cli_columns());
    }
}

/* Lists what each layer does where these differ and have no common name. */
static void print_layers(const plan_view *v, const cli_style *style)
{
    const tsri_strategy *s = &v->report->strategy;
    bool any = false;
    for (int i = 0; i < s->nstages; i++) {
        if (!is_mixed(&s->stages[i]))
            continue;
        if (!any)
            cli_say("%slayers%s (by what they split)\n", style->bold, style->plain);
        any = true;
        print_stage_layers(&s->stages[i], style);
    }
}

/* --- fusion ----------------------------------------------------------------------------------- */
static bool add_fused(void *arg, const tsri_report_fused *line)
{
    return fold_add(arg, line->how, line->name, false, line->text, "");
}

static bool print_fusions(const plan_view *v, const cli_style *style)
{
    fold *f = fold_create(v->verbose);
    bool ok = f && tsri_report_fusions(v->report->plan, add_fused, f) == TSR_OK;
    if (ok && f->n > 0)
        cli_say("%sfusion%s (of ops in one pass over memory)\n", style->bold, style->plain);
    for (int i = 0; ok && i < f->n; i++)
        print_line(f->all[i], style, cli_columns());
    if (f)
        fold_destroy(f);
    return ok;
}

/* --- the rest --------------------------------------------------------------------------------- */
static void print_text(const plan_text *t)
{
    cli_say("  ");
    cli_wrap(t->data, 2, NOTE_INDENT, cli_columns());
}

static void print_totals(const tsri_report *r)
{
    char bytes[CLI_NUMBER_MAX], cost[CLI_NUMBER_MAX], along[64];
    for (int i = 0; i < r->ntotals; i++)
        cli_say("  %-14s %6d call%s %12s %12s\n", r->totals[i].what, r->totals[i].calls,
                r->totals[i].calls == 1 ? " " : "s", cli_bytes((double)r->totals[i].bytes, bytes),
                cli_seconds(r->totals[i].cost_s, cost));
    if (r->ntotals == 0)
        cli_say("  none\n");
    for (int i = 0; i < r->summary.ntraffic; i++) {
        const tsri_traffic *t = &r->summary.traffic[i];
        plan_text line = {.used = 0};
        plan_put(&line, "for %s: %s%s, %d call%s, %s, %s", tsri_traffic_name(t->kind), t->what,
                 plan_along(t, along), t->calls, t->calls == 1 ? "" : "s",
                 cli_bytes((double)t->bytes, bytes), cli_seconds(t->cost_s, cost));
        print_text(&line);
    }
}

static void print_memory(const tsri_report *r)
{
    for (int i = 0; i < r->nmemory; i++) {
        const tsri_report_memory *m = &r->memory[i];
        plan_part parts[PLAN_MEMORY_PARTS];
        char bytes[CLI_NUMBER_MAX];
        plan_text t = {.used = 0};
        plan_put_ranks(&t, r, i, RANKS_TEXT);
        plan_put(&t, ": %s%s", m->exact ? "" : "at least ", cli_bytes((double)m->total, bytes));
        int n = plan_memory_parts(m, parts);
        for (int k = 0; k < n; k++)
            plan_put(&t, "%s%s %s", k ? ", " : " = ", cli_bytes(parts[k].size, bytes),
                     parts[k].name);
        print_text(&t);
    }
    if (r->nclasses > r->nmemory)
        cli_say("  ... and %d more kinds of ranks\n", r->nclasses - r->nmemory);
}

bool plan_put_search(plan_text *t, const tsr_plan *plan)
{
    const bool has_stages = plan->ir.timetable.nstages > 1;
    const double least = plan->info.bound_s,
                 chosen = has_stages ? plan->info.step_s : plan->info.cost_s;
    char bound[CLI_NUMBER_MAX];
    if (plan->info.exact || (least > 0 && chosen <= least * (1 + 1e-6)))
        return false;
    if (least <= 0)
        plan_put(t, "not proven the least, as ops have too many signatures to search them all");
    else
        plan_put(t, "at most %.2g %% above the least cost of any signatures, which is %s or more%s",
                 100 * (chosen / least - 1), cli_seconds(least, bound),
                 plan->ir.opts.memory_limit ? " in any memory" : "");
    plan_put(t, "%s", plan->is_cut ? "; ended by search.seconds" : "");
    return true;
}

/* How the estimate came of that by which signatures were chosen. */
static void print_changes(const plan_view *v)
{
    const tsr_plan *plan = v->report->plan;
    char a[CLI_NUMBER_MAX];
    plan_text t = {.used = 0};
    bool any = false;
    for (int i = 0; i < TSRI_CHANGES; i++)
        any |= tsri_change_counts(plan, &plan->ir.change[i]);
    plan_put(&t, "signatures were chosen op by op at %s, ", cli_seconds(plan->info.cost_s, a));
    if (!plan_put_search(&t, plan))
        plan_put(&t, plan->info.exact ? "proven the least" : "the least by that count");
    for (int i = 0; i < TSRI_CHANGES && any; i++)
        if (tsri_change_counts(plan, &plan->ir.change[i]))
            plan_put(&t, "; %s%s for %s", plan->ir.change[i].more_s < 0 ? "less " : "more ",
                     cli_seconds(fabs(plan->ir.change[i].more_s), a), plan->ir.change[i].reason);
    if (any)
        plan_put(&t, ": %s", cli_seconds(v->report->step_s, a));
    print_text(&t);
}

static void print_time(const plan_view *v)
{
    const tsri_report *r = v->report;
    char step[CLI_NUMBER_MAX], compute[CLI_NUMBER_MAX], comm[CLI_NUMBER_MAX];
    plan_share shares[TSRI_SPENT_COUNT];
    const int n = plan_shares(r, shares);
    plan_text t = {.used = 0};
    plan_put(&t, "%s: compute %s, communication %s, one behind the other",
             cli_seconds(r->step_s, step), cli_seconds(r->compute_s, compute),
             cli_seconds(r->comm_s, comm));
    print_text(&t);
    t.used = 0;
    plan_put(&t, "spent on");
    for (int i = 0; i < n; i++)
        plan_put(&t, "%s %s %.1f %%", i ? "," : "", shares[i].name, 100 * shares[i].s / r->step_s);
    plan_put(&t, "; bound by %s", n ? shares[0].name : "nothing");
    print_text(&t);
    plan_print_stages(r->plan, (tsri_stages_shown){INT_MAX, true, true});
    print_changes(v);
    if (r->summary.alike > 1 && r->summary.alike_s > 0) {
        t.used = 0;
        plan_put(&t, "%s of it is computed alike on up to %d ranks",
                 cli_seconds(r->summary.alike_s, step), r->summary.alike);
        print_text(&t);
    }
}

static void print_links(const plan_view *v)
{
    const tsri_cost_model *m = &v->report->plan->ir.model;
    char source[256], latency[CLI_NUMBER_MAX], speed[CLI_NUMBER_MAX], name[TSRI_LINK_NAME_MAX];
    int width = 0;
    plan_links_source(v, source);
    for (int i = 0; i < m->nlinks; i++) {
        int length = (int)strlen(tsri_link_name(m, i, name));
        width = length > width ? length : width;
    }
    for (int i = 0; i < m->nlinks; i++) {
        char who[48];
        snprintf(who, sizeof who, m->link[i].ranks ? "within %d ranks" : "among all ranks",
                 m->link[i].ranks);
        cli_say("  %-*s %-20s hand-shake %s, %s/s\n", width, tsri_link_name(m, i, name), who,
                cli_seconds(m->link[i].latency_s, latency),
                cli_bytes(m->link[i].bytes_per_s, speed));
    }
    plan_text t = {.used = 0};
    plan_put(&t, "own memory %s/s, ", cli_bytes(m->local_bytes_per_s, speed));
    const tsr_dtype dtype = tsri_experiment_dtype(v->experiment);
    plan_put(&t, "%s/s in %s, kernel start %s", cli_flops(tsri_flops_of(m, dtype), speed),
             tsr_dtype_name(dtype), cli_seconds(m->kernel_s, latency));
    print_text(&t);
    t.used = 0;
    plan_put(&t, "figures: %s", source);
    print_text(&t);
    if (v->limit_is) {
        t.used = 0;
        plan_put(&t, "memory limit of a rank: %s, %s",
                 cli_bytes((double)v->report->plan->ir.opts.memory_limit, speed), v->limit_is);
        print_text(&t);
    }
}

bool plan_print_full(const plan_view *v)
{
    char took[CLI_NUMBER_MAX];
    const cli_style style = cli_style_of(stdout);
    plan_print_head(v, &style);
    cli_say("%d ops; compiled in %s\n", v->report->plan->info.ops,
            cli_seconds(v->report->plan->info.compile_s, took));
    cli_say("%stensors%s\n", style.bold, style.plain);
    if (!print_rows(v, false, &style))
        return false;
    print_layers(v, &style);
    if (!print_fusions(v, &style))
        return false;
    cli_say("%sboxing%s\n", style.bold, style.plain);
    if (!print_rows(v, true, &style))
        return false;
    cli_say("%scommunication of a step%s (what the busiest rank reads)\n", style.bold, style.plain);
    print_totals(v->report);
    cli_say("%smemory of a rank%s\n", style.bold, style.plain);
    print_memory(v->report);
    cli_say("%stime of a step%s (estimated)\n", style.bold, style.plain);
    print_time(v);
    print_links(v);
    return true;
}
