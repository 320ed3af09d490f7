/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates over time: those of torch.optim.lr_scheduler, after a linear warm-up. The cosines
 * are Loshchilov and Hutter's (2017), the one cycle is Smith's (2018). */
#include <math.h>

#include "src/optim/optim.h"

static const double pi = 3.14159265358979323846;

/* From a to b, as part goes from 0 to 1. */
static double anneal(bool linear, double a, double b, double part)
{
    return linear ? a + (b - a) * part : b + (a - b) / 2 * (1 + cos(pi * part));
}

/* The step within its period, and how long that is. */
static double restart_part(const tsr_schedule *s, int64_t step)
{
    int64_t period = s->steps;
    if (s->restart_factor == 1)
        step %= period;
    while (step >= period) {
        step -= period;
        period *= s->restart_factor;
    }
    return (double)step / (double)period;
}

/* The phase of a cycle that a step is in, and the part of it that is over. */
static int cycle_phase(const tsr_schedule *s, int64_t step, double *out_part)
{
    const double n = (double)s->steps, up = s->pct_start * n - 1;
    const double ends[3] = {up, s->three_phase ? 2 * s->pct_start * n - 2 : n - 1, n - 1};
    const int last = s->three_phase ? 2 : 1;
    double at = step < s->steps ? (double)step : n - 1, begin = 0;
    int phase = 0;
    for (; phase < last && at > ends[phase]; phase++)
        begin = ends[phase];
    *out_part = (at - begin) / (ends[phase] - begin);
    return phase;
}

static double cycle_lr(const tsr_schedule *s, double base, int64_t step)
{
    double part, top = s->max_lr > 0 ? s->max_lr : base, start = top / s->div_factor;
    const double end = start / s->final_div_factor;
    switch (cycle_phase(s, step, &part)) {
    case 0:
        return anneal(s->linear, start, top, part);
    case 1:
        return anneal(s->linear, top, s->three_phase ? start : end, part);
    default:
        return anneal(s->linear, start, end, part);
    }
}

double tsri_schedule_momentum(const tsr_schedule *s, double base, int64_t step)
{
    if (s->kind != TSR_SCHEDULE_ONE_CYCLE || s->keep_momentum)
        return base;
    double part;
    switch (cycle_phase(s, step < s->warmup ? 0 : step - s->warmup, &part)) {
    case 0:
        return anneal(s->linear, s->max_momentum, s->base_momentum, part);
    case 1:
        return anneal(s->linear, s->base_momentum, s->max_momentum, part);
    default:
        return s->max_momentum;
    }
}

static int64_t milestones_reached(const tsr_schedule *s, int64_t step)
{
    int n = 0;
    while (n < s->nmilestones && s->milestones[n] <= step)
        n++;
    return n;
}

double tsri_schedule_lr(const tsr_schedule *s, double base, int64_t step)
{
    if (step < s->warmup)
        return base * (double)(step + 1) / (double)s->warmup;
    step -= s->warmup;
    switch (s->kind) {
    case TSR_SCHEDULE_STEP:
        return base * pow(s->gamma, (double)(step / s->step_size));
    case TSR_SCHEDULE_COSINE:
        return step >= s->steps ? s->min_lr
                                : anneal(false, base, s->min_lr, (double)step / (double)s->steps);
    case TSR_SCHEDULE_MULTI_STEP:
        return base * pow(s->gamma, (double)milestones_reached(s, step));
    case TSR_SCHEDULE_EXPONENTIAL:
        return base * pow(s->gamma, (double)step);
    case TSR_SCHEDULE_LINEAR:
        return base * anneal(true, s->start_factor, s->end_factor,
                             step < s->steps ? (double)step / (double)s->steps : 1);
    case TSR_SCHEDULE_COSINE_RESTARTS:
        return anneal(false, base, s->min_lr, restart_part(s, step));
    case TSR_SCHEDULE_ONE_CYCLE:
        return cycle_lr(s, base, step);
    case TSR_SCHEDULE_CALLBACK:
        return s->callback(step, base, s->arg);
    default: /* PLATEAU: base is the rate after its reductions */
        return base;
    }
}

/* Whether a metric improves on the best one so far. One that is not finite improves on none, and
 * none is measured against it. */
static bool improves(const tsri_plateau *p, const tsr_schedule *s, double metric)
{
    if (!isfinite(metric) || !p->has_best || !isfinite(p->best))
        return isfinite(metric);
    const double best = p->best;
    const double by = s->absolute ? s->threshold : s->threshold * best;
    return s->rises ? metric > best + by : metric < best - by;
}

void tsri_plateau_report(tsri_plateau *p, const tsr_schedule *s, double lr, double metric)
{
    if (improves(p, s, metric)) {
        p->has_best = true;
        p->best = metric;
        p->bad = 0;
    } else {
        p->bad++;
    }
    if (p->cooldown > 0) {
        p->cooldown--;
        p->bad = 0;
    }
    if (p->bad <= s->patience)
        return;
    const double now = p->lr > 0 ? p->lr : lr, next = fmax(now * s->factor, s->min_lr);
    if (now - next > 1e-8) /* PyTorch's eps */
        p->lr = next;
    p->cooldown = s->cooldown;
    p->bad = 0;
}

/* --- what is legal ---------------------------------------------------------------------------- */
static const char *kind_name(tsr_schedule_kind kind)
{
    static const char *const names[] = {
        [TSR_SCHEDULE_CONSTANT] = "TSR_SCHEDULE_CONSTANT",
        [TSR_SCHEDULE_STEP] = "TSR_SCHEDULE_STEP",
        [TSR_SCHEDULE_COSINE] = "TSR_SCHEDULE_COSINE",
        [TSR_SCHEDULE_MULTI_STEP] = "TSR_SCHEDULE_MULTI_STEP",
        [TSR_SCHEDULE_EXPONENTIAL] = "TSR_SCHEDULE_EXPONENTIAL",
        [TSR_SCHEDULE_LINEAR] = "TSR_SCHEDULE_LINEAR",
        [TSR_SCHEDULE_COSINE_RESTARTS] = "TSR_SCHEDULE_COSINE_RESTARTS",
        [TSR_SCHEDULE_ONE_CYCLE] = "TSR_SCHEDULE_ONE_CYCLE",
        [TSR_SCHEDULE_PLATEAU] = "TSR_SCHEDULE_PLATEAU",
        [TSR_SCHEDULE_CALLBACK] = "TSR_SCHEDULE_CALLBACK",
    };
    return names[kind];
}

/* The schedule needs `what`, which is `found`. */
static tsr_status want(const tsr_schedule *s, bool ok, const char *what, double found)
{
    if (ok)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "schedule: %s needs %s; found %g", kind_name(s->kind), what,
                     found);
}

static bool is_positive(double x)
{
    return x > 0 && isfinite(x);
}

static tsr_status check_milestones(const tsr_schedule *s)
{
    TSRI_TRY(want(s, s->milestones && s->nmilestones > 0, "milestones", s->nmilestones));
    for (int i = 1; i < s->nmilestones; i++)
        TSRI_TRY(want(s, s->milestones[i - 1] <= s->milestones[i], "milestones that rise",
                      (double)s->milestones[i]));
    return TSR_OK;
}

static tsr_status check_cycle(const tsr_schedule *s)
{
    const double pct = s->pct_start, n = (double)s->steps;
    TSRI_TRY(want(s, s->max_lr >= 0 && isfinite(s->max_lr), "a max_lr of at least 0", s->max_lr));
    TSRI_TRY(want(
        s, pct > 0 && pct < 1 && pct * n > 1 && (!s->three_phase || pct * n < n / 2 + 0.5),
        "a pct_start in (0, 1), of more than one step, and with three phases at most 0.5", pct));
    TSRI_TRY(want(s, is_positive(s->div_factor), "a div_factor above 0", s->div_factor));
    TSRI_TRY(want(s, is_positive(s->final_div_factor), "a final_div_factor above 0",
                  s->final_div_factor));
    TSRI_TRY(want(s, s->base_momentum >= 0 && s->base_momentum < 1, "a base_momentum in [0, 1)",
                  s->base_momentum));
    return want(s, s->max_momentum >= 0 && s->max_momentum < 1, "a max_momentum in [0, 1)",
                s->max_momentum);
}

static tsr_status check_plateau(const tsr_schedule *s)
{
    TSRI_TRY(want(s, s->factor > 0 && s->factor < 1, "a factor in (0, 1)", s->factor));
    TSRI_TRY(want(s, s->patience >= 0, "a patience of at least 0", (double)s->patience));
    TSRI_TRY(want(s, s->cooldown >= 0, "a cooldown of at least 0", (double)s->cooldown));
    return want(s, s->threshold >= 0 && isfinite(s->threshold), "a threshold of at least 0",
                s->threshold);
}

tsr_status tsri_schedule_check(const tsr_schedule *s)
{
    if (s->kind < TSR_SCHEDULE_CONSTANT || s->kind > TSR_SCHEDULE_CALLBACK)
        return tsri_fail(TSR_ERR_INVALID, "schedule: %d is no tsr_schedule_kind", (int)s->kind);
    if (s->by_name)
        return tsri_fail(TSR_ERR_INVALID, "schedule: %s has a number without a name",
                         kind_name(s->kind));
    if (s->warmup < 0)
        return tsri_fail(TSR_ERR_INVALID, "schedule: warmup = %lld is negative",
                         (long long)s->warmup);
    if (!(s->min_lr >= 0 && isfinite(s->min_lr)))
        return tsri_fail(TSR_ERR_INVALID, "schedule: min_lr = %g must be finite and not negative",
                         s->min_lr);
    const tsr_schedule_kind kind = s->kind;
    if (kind == TSR_SCHEDULE_STEP)
        TSRI_TRY(want(s, s->step_size >= 1, "a step_size of at least 1", (double)s->step_size));
    if (kind == TSR_SCHEDULE_STEP || kind == TSR_SCHEDULE_MULTI_STEP ||
        kind == TSR_SCHEDULE_EXPONENTIAL)
        TSRI_TRY(want(s, is_positive(s->gamma), "a gamma above 0, such as 0.1", s->gamma));
    if (kind == TSR_SCHEDULE_COSINE || kind == TSR_SCHEDULE_LINEAR ||
        kind == TSR_SCHEDULE_COSINE_RESTARTS || kind == TSR_SCHEDULE_ONE_CYCLE)
        TSRI_TRY(want(s, s->steps >= 1, "steps of at least 1", (double)s->steps));
    switch (kind) {
    case TSR_SCHEDULE_MULTI_STEP:
        return check_milestones(s);
    case TSR_SCHEDULE_LINEAR:
        TSRI_TRY(want(s, is_positive(s->start_factor), "a start_factor above 0", s->start_factor));
        return want(s, s->end_factor >= 0 && isfinite(s->end_factor), "an end_factor of at least 0",
                    s->end_factor);
    case TSR_SCHEDULE_COSINE_RESTARTS:
        return want(s, s->restart_factor >= 1, "a restart_factor of at least 1",
                    (double)s->restart_factor);
    case TSR_SCHEDULE_ONE_CYCLE:
        return check_cycle(s);
    case TSR_SCHEDULE_PLATEAU:
        return check_plateau(s);
    case TSR_SCHEDULE_CALLBACK:
        return want(s, s->callback, "a callback", 0);
    default:
        return TSR_OK;
    }
}
