/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in ten seconds: does it fit, how long is a step and what bounds it, how the work is laid
 * out, which other layouts are worth a look, and what the estimate leaves out. */
#include "placement/placement.h"
#include "src/cli/plan/ask.h"

#include <string.h>

enum { LABEL = 9, HEAD = 56, NAME = 18, FIGURE = 9, SHARES = 6 };

/* Between the figures of a line. */
static const char gap[] = "   ";

/* Prints figures with gaps between them; where they don't fit on a line, with commas. */
static void print_spaced(const char *label, const plan_text *figures, const cli_style *style)
{
    plan_text t = {.used = 0};
    plan_print_label(LABEL, label, style);
    if (LABEL + (int)figures->used <= cli_columns()) {
        cli_say("%s\n", figures->data);
        return;
    }
    for (const char *at = figures->data; *at;) {
        const char *end = strstr(at, gap);
        plan_put(&t, "%.*s%s", end ? (int)(end - at) : (int)strlen(at), at, end ? ", " : "");
        at += end ? (size_t)(end - at) + strlen(gap) : strlen(at);
    }
    cli_wrap(t.data, LABEL, LABEL, cli_columns());
}

/* --- the head --------------------------------------------------------------------------------- */
/* "128 h100-sxm (dp 16 x tp 8)", "4 cpu ranks". */
static void put_ranks(plan_text *t, const plan_view *v)
{
    const tsri_report *r = v->report;
    const tsri_cluster *cluster = tsri_experiment_cluster(v->experiment);
    const tsri_strategy *s = &r->strategy;
    const tsr_placement *p = s->nstages == 1 ? s->stages[0].placement : NULL;
    const int n = r->summary.nranks;
    char name[24];
    if (cluster && cluster->gpu)
        plan_put(t, "%d %s", n, tsri_gpu_specs[cluster->gpu].name);
    else
        plan_put(t, "%d %s rank%s", n, tsr_device_name(tsri_experiment_device(v->experiment)),
                 n == 1 ? "" : "s");
    const bool named = p && tsri_placement_axis(p, 0);
    if (!p || (tsr_placement_ndim(p) < 2 && !named))
        return;
    for (int d = 0; d < tsr_placement_ndim(p); d++)
        plan_put(t, "%s%s%s%d", d ? " x " : " (", named ? tsri_axis_name(p, d, name) : "",
                 named ? " " : "", tsr_placement_dim(p, d));
    plan_put(t, ")");
}

/* Writes "FITS  39.0 GB of 80.0 GB"; where no limit is known, the memory alone. */
static void put_verdict(plan_text *t, const plan_view *v)
{
    const tsri_report *r = v->report;
    const tsri_report_memory *m = &r->memory[0];
    const size_t limit = v->refused_limit ? v->refused_limit : r->plan->ir.opts.memory_limit;
    char need[CLI_NUMBER_MAX], most[CLI_NUMBER_MAX];
    plan_put(t, "%s", v->refused_limit ? "DOES NOT FIT  " : limit ? "FITS  " : "");
    plan_put(t, "%s%s", m->exact ? "" : "at least ", cli_bytes((double)m->total, need));
    if (limit)
        plan_put(t, " of %s", cli_bytes((double)limit, most));
    else
        plan_put(t, " a rank, no limit known");
}

static void print_head(const plan_view *v, const cli_style *style)
{
    const tsri_summary *s = &v->report->summary;
    const char *colour = v->refused_limit                             ? style->red
                         : v->report->plan->ir.opts.memory_limit != 0 ? style->green
                                                                      : "";
    plan_text t = {.used = 0}, verdict = {.used = 0};
    char count[CLI_NUMBER_MAX];
    plan_put(&t, "%s", tsri_experiment_subject(v->experiment));
    if (s->parameters)
        plan_put(&t, " of %s parameter%s", cli_count((double)s->parameters, count),
                 s->parameters == 1 ? "" : "s");
    plan_put(&t, " on ");
    put_ranks(&t, v);
    put_verdict(&verdict, v);
    const int used = (int)(t.used < HEAD ? HEAD : t.used);
    if (used + 2 + (int)verdict.used <= cli_columns())
        cli_say("%s%-*s%s  ", style->bold, HEAD, t.data, style->plain);
    else
        cli_say("%s%s%s\n%*s", style->bold, t.data, style->plain, LABEL, "");
    cli_say("%s%s%s\n", colour, verdict.data, *colour ? style->plain : "");
}

/* --- time ------------------------------------------------------------------------------------- */
/* "4 stages by 1f1b   bubble 27.3 %" */
static void print_stages(const plan_view *v, const cli_style *style)
{
    const tsri_ir *ir = &v->report->plan->ir;
    plan_text t = {.used = 0};
    if (ir->timetable.nstages < 2)
        return;
    plan_put(&t, "%d stages by %s%sbubble %.1f %%", ir->timetable.nstages,
             tsri_pipeline_name(ir->opts.pipeline), gap, 100 * tsri_stages_bubble(ir));
    if (!tsri_stages_run(ir))
        plan_put(&t, "%sruns on several kinds of device do not follow it", gap);
    print_spaced("pipeline", &t, style);
}

static void print_step(const plan_view *v, const cli_style *style)
{
    const plan_pace pace = plan_pace_of(v->report, v->experiment);
    char figure[CLI_NUMBER_MAX];
    plan_text t = {.used = 0};
    plan_put(&t, "%s (estimate)", cli_seconds(v->report->step_s, figure));
    if (pace.tokens_per_s > 0)
        plan_put(&t, "%s%s tokens/s", gap, cli_count(pace.tokens_per_s, figure));
    else if (pace.samples_per_s > 0)
        plan_put(&t, "%s%s samples/s", gap, cli_count(pace.samples_per_s, figure));
    if (pace.mfu > 0)
        plan_put(&t, "%sMFU %.1f %%", gap, 100 * pace.mfu);
    if (v->report->plan->ir.parts > 1)
        plan_put(&t, "%s%d micro-batches", gap, v->report->plan->ir.parts);
    print_spaced("step", &t, style);
    print_stages(v, style);
}

static void print_time(const plan_view *v, const cli_style *style)
{
    const tsri_report *r = v->report;
    plan_share shares[TSRI_SPENT_COUNT];
    plan_text t = {.used = 0};
    const int n = plan_shares(r, shares);
    if (n == 0)
        plan_put(&t, "nothing");
    for (int i = 0; i < n && i < SHARES; i++) {
        const double part = 100 * shares[i].s / r->step_s;
        if (i > 0 && part < 1)
            break;
        plan_put(&t, "%s%s %.0f %%", i ? gap : "bound by ", shares[i].name, part);
    }
    print_spaced("time", &t, style);
}

static void print_search(const plan_view *v, const cli_style *style)
{
    plan_text t = {.used = 0};
    if (plan_put_search(&t, v->report->plan))
        plan_print_words(LABEL, "search", t.data, style);
}

/* --- other layouts ---------------------------------------------------------------------------- */
/* Appends in 9 columns by how much a figure would change. */
static void put_change(plan_text *t, double now, double then)
{
    const double percent = 100 * (then / now - 1);
    char text[32];
    if (then >= 2 * now)
        snprintf(text, sizeof text, "x%.3g", then / now);
    else
        snprintf(text, sizeof text, percent > -0.95 && percent < 0.95 ? "%+.1f %%" : "%+.0f %%",
                 percent);
    plan_put(t, "  %-7s", text);
}

/* Prints overrides below a line, in lines that a shell takes as one. */
static void print_sets(const char *sets, const cli_style *style)
{
    int used = sets[0] ? cli_say("\n%*s", LABEL + 2, "") - 1 : 0;
    for (const char *at = sets; *at;) {
        const char *end = strstr(at + 1, " --set ");
        const int length = end ? (int)(end - at) : (int)strlen(at);
        if (at > sets && used + length + 2 > cli_columns())
            used = cli_say(" \\\n%*s", LABEL + 1, "") - 3;
        used += cli_say("%.*s", length, at);
        at += length;
    }
    cli_say("%s\n", style->plain);
}

static void print_tried(const plan_view *v, const cli_style *style)
{
    const plan_figures base = plan_figures_of(v->report);
    plan_tried tried[PLAN_TRIED_MOST];
    int left;
    const int n = plan_try_layouts(v, tried, &left), columns = cli_columns();
    char step[CLI_NUMBER_MAX], memory[CLI_NUMBER_MAX];
    for (int i = 0; i < n; i++) {
        const plan_tried *x = &tried[i];
        plan_text t = {.used = 0};
        plan_put(&t, "%-*s %*s", NAME, x->name, FIGURE, cli_seconds(x->step_s, step));
        put_change(&t, base.step_s, x->step_s);
        plan_put(&t, "%*s", FIGURE, cli_bytes((double)x->memory, memory));
        put_change(&t, (double)base.memory, (double)x->memory);
        plan_print_label(LABEL, i ? "" : "try", style);
        const bool fits = x->sets[0] && LABEL + (int)(t.used + strlen(x->sets)) <= columns;
        while (!fits && t.data[t.used - 1] == ' ')
            t.data[--t.used] = 0;
        cli_say("%s%s", t.data, style->dim);
        if (fits)
            cli_say("%s%s\n", x->sets, style->plain);
        else
            print_sets(x->sets, style);
    }
    if (v->refused_limit && left > 0) {
        plan_text t = {.used = 0};
        plan_put(&t, "%d layout%s not planned, for want of time: %s may fit", left,
                 left == 1 ? " was" : "s were", left == 1 ? "it" : "others");
        plan_print_words(LABEL, "note", t.data, style);
    }
}

/* --- the whole -------------------------------------------------------------------------------- */
static void print_ignored(const plan_view *v, const cli_style *style)
{
    plan_text t = {.used = 0};
    plan_put(&t, "data loading, host, stragglers");
    if (v->report->comm_s > 0)
        plan_put(&t, ", communication beside computation");
    if (!tsri_target_can(tsri_experiment_device(v->experiment), TSRI_CAN_USE_WORKSPACE))
        plan_put(&t, ", kernels' scratch");
    plan_print_words(LABEL, "ignored", t.data, style);
}

/* Says of a training whose parameters are halves that no one keeps them in f32. */
static void print_masters(const plan_view *v, const cli_style *style)
{
    const tsri_report *r = v->report;
    const tsr_plan *plan = r->plan;
    if (!r->nmemory || r->memory[0].masters || !r->memory[0].optimizer)
        return;
    for (int i = 0; i < plan->ir.nvalues; i++) {
        const tsri_value *x = &plan->ir.values[i];
        char text[160];
        if (x->storage != TSRI_STORAGE_VARIABLE || r->kind_of[i] != TSRI_MEMORY_PARAMETERS ||
            !tsri_is_half(x->dtype))
            continue;
        snprintf(text, sizeof text,
                 "parameters and states are %s, without master weights in f32, which dtype: f32 "
                 "with train.amp: %s has",
                 tsr_dtype_name(x->dtype), tsr_dtype_name(x->dtype));
        plan_print_words(LABEL, "note", text, style);
        return;
    }
}

static void print_uneven(const plan_view *v, const cli_style *style)
{
    plan_text t = {.used = 0};
    if (plan_put_uneven(&t, v->report->plan))
        plan_print_words(LABEL, "note", t.data, style);
}

bool plan_print_screen(const plan_view *v)
{
    const cli_style style = cli_style_of(stdout);
    char text[256];
    print_head(v, &style);
    print_step(v, &style);
    plan_print_words(LABEL, "layout", v->report->strategy.layout, &style);
    print_time(v, &style);
    print_search(v, &style);
    if (tsri_experiment_warning(v->experiment, text))
        plan_print_words(LABEL, "warning", text, &style);
    print_masters(v, &style);
    print_uneven(v, &style);
    print_tried(v, &style);
    print_ignored(v, &style);
    plan_links_source(v, text);
    plan_print_words(LABEL, "figures", text, &style);
    return true;
}
