/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of parameters, the numbers of each, and what the user may change and ask at any time. */
#include "src/optim/optim.h"
#include "src/optim/own.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/core/attrs_text.h"
#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/nn/module.h"
#include "src/nn/place.h"

/* --- numbers ---------------------------------------------------------------------------------- */
const tsr_schedule *tsri_group_schedule(const tsr_optimizer *o, const tsri_optim_group *group)
{
    return group->has_schedule ? &group->schedule : &o->groups[0].schedule;
}

double tsri_group_lr(const tsr_optimizer *o, const tsri_optim_group *group)
{
    const double base =
        group->plateau.lr > 0 ? group->plateau.lr : tsri_optim_number(o, group, TSRI_LR);
    return tsri_schedule_lr(tsri_group_schedule(o, group), base, o->step);
}

tsr_status tsri_group_set_schedule(tsr_optimizer *o, tsri_optim_group *group,
                                   const tsr_schedule *schedule)
{
    int64_t *copy = NULL;
    if (schedule->kind == TSR_SCHEDULE_MULTI_STEP) {
        const size_t bytes = (size_t)schedule->nmilestones * sizeof *copy;
        copy = tsri_mem_alloc(&o->world->mem, bytes);
        TSRI_NEED(copy);
        memcpy(copy, schedule->milestones, bytes);
    }
    tsri_mem_free(group->milestones);
    group->schedule = *schedule;
    group->schedule.milestones = group->milestones = copy;
    group->has_schedule = true;
    group->plateau = (tsri_plateau){0};
    return TSR_OK;
}

/* --- by pattern ------------------------------------------------------------------------------- */
static tsri_optim_group *find_group(const tsr_optimizer *o, const char *pattern)
{
    for (int i = 1; i < o->ngroups; i++)
        if (!strcmp(o->groups[i].pattern, pattern))
            return &o->groups[i];
    return NULL;
}

static bool fits(const tsri_optim_slot *slot, const char *pattern)
{
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(slot->param, name, sizeof name);
    return tsri_glob(pattern, name);
}

/* Checks what both calls need: some parameter's name fits. */
static tsr_status check_pattern(const tsr_optimizer *o, const char *pattern, const char *who)
{
    if (!o)
        return tsri_fail(TSR_ERR_INVALID, "%s: the optimizer is NULL%s", who, tsri_error_cause());
    TSRI_TRY(tsri_live_check(o, TSRI_LIVE_OPTIMIZER, who));
    if (!pattern)
        return tsri_fail(TSR_ERR_INVALID, "%s: the pattern is NULL", who);
    tsri_optim_settle(o); /* as it was frozen until now */
    for (int i = 0; i < o->nslots; i++)
        if (fits(&o->slots[i], pattern))
            return TSR_OK;
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(o->slots[0].param, name, sizeof name);
    return tsri_fail(TSR_ERR_INVALID,
                     "%s: no name of the optimizer's %d parameters fits '%s'; the first is '%s'",
                     who, o->nslots, pattern, name);
}

/* Puts the slots that a pattern fits into a class of their own, where they share one with others.
 * Updates that are declared read the numbers of their class, so that is legal before only. */
static tsr_status part_class(tsr_optimizer *o, int class, const char *pattern, const char *who)
{
    int in = 0, out = 0;
    for (int i = 0; i < o->nslots; i++)
        if (o->slots[i].class == class)
            *(fits(&o->slots[i], pattern) ? &in : &out) += 1;
    if (!in || !out)
        return TSR_OK;
    if (o->nhypers)
        return tsri_fail(TSR_ERR_STATE,
                         "%s: '%s' fits %d of %d parameters that share their numbers in a graph; "
                         "tell them apart before the graph is declared",
                         who, pattern, in, in + out);
    const size_t n = (size_t)o->nclasses + 1;
    tsri_optim_class *classes = tsri_mem_realloc(&o->world->mem, o->classes, n * sizeof *classes);
    TSRI_NEED(classes);
    o->classes = classes;
    classes[o->nclasses] = classes[class];
    for (int i = 0; i < o->nslots; i++)
        if (o->slots[i].class == class && fits(&o->slots[i], pattern))
            o->slots[i].class = o->nclasses;
    o->nclasses++;
    return TSR_OK;
}

static tsr_status part_classes(tsr_optimizer *o, const char *pattern, const char *who)
{
    for (int i = 0, n = o->nclasses; i < n; i++)
        TSRI_TRY(part_class(o, i, pattern, who));
    return TSR_OK;
}

/* Holds a group's number against an optimizer of the program's own: its rate, or a number that its
 * definition has by this name. */
static tsr_status check_own(const tsr_optimizer *o, const char *who, tsri_number which,
                            double value)
{
    for (int i = 0; i < o->own->nnumbers; i++)
        if (tsri_own_shared(o->own, i) == (int)which)
            return tsri_own_check(o->own, who, i, value);
    return tsri_number_check(who, which, value);
}

/* The numbers that options give, others NAN. */
static tsr_status read_numbers(const tsr_optimizer *o, const tsr_param_group_opts *opts,
                               const char *who, double *number)
{
    const struct {
        tsri_number which;
        double value;
    } given[] = {
        {TSRI_LR, opts->lr},
        {TSRI_WEIGHT_DECAY, opts->weight_decay},
        {TSRI_MOMENTUM, opts->momentum},
        {TSRI_BETA1, opts->beta1},
        {TSRI_BETA2, opts->beta2},
        {TSRI_EPS, opts->eps},
    };
    for (int i = 0; i < TSRI_NUMBERS; i++)
        number[i] = NAN;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const tsri_number which = given[i].which;
        const double value = given[i].value;
        if (isnan(value))
            continue;
        if (!(o->numbers >> which & 1))
            return tsri_fail(TSR_ERR_INVALID, "%s: %s%s has no %s", who, o->own ? "" : "tsr_",
                             o->own ? o->own->def.name : o->name, tsri_number_name(which));
        if (o->own) {
            TSRI_TRY(check_own(o, who, which, value));
            number[which] = value;
            continue;
        }
        TSRI_TRY(tsri_number_check(who, which, value));
        if (which == TSRI_MOMENTUM && (value != 0) != (o->groups[0].number[which] != 0))
            return tsri_fail(TSR_ERR_INVALID,
                             "%s: momentum = %g, where the optimizer was made with %g: all "
                             "parameters have a momentum, or none has",
                             who, value, o->groups[0].number[which]);
        number[which] = value;
    }
    return TSR_OK;
}

static tsr_status add_group(tsr_optimizer *o, const char *pattern, tsri_optim_group **out_group)
{
    TSRI_TRY(part_classes(o, pattern, "tsr_optimizer_param_group"));
    const size_t n = (size_t)o->ngroups + 1;
    char *copy = tsri_mem_strdup(&o->world->mem, pattern);
    tsri_optim_group *groups =
        copy ? tsri_mem_realloc(&o->world->mem, o->groups, n * sizeof *groups) : NULL;
    if (!groups) {
        tsri_mem_free(copy);
        return TSR_ERR_NO_MEMORY;
    }
    o->groups = groups;
    *out_group = &groups[o->ngroups];
    **out_group = (tsri_optim_group){.pattern = copy};
    for (int i = 0; i < TSRI_NUMBERS; i++)
        (*out_group)->number[i] = NAN;
    for (int i = 0; i < o->nslots; i++)
        if (fits(&o->slots[i], pattern))
            o->classes[o->slots[i].class].group = o->ngroups;
    o->ngroups++;
    return TSR_OK;
}

tsr_status tsr_optimizer_param_group(tsr_optimizer *o, const char *pattern,
                                     const tsr_param_group_opts *opts)
{
    tsr_param_group_opts given = *TSR_PARAM_GROUP_OPTS();
    double number[TSRI_NUMBERS];
    TSRI_TRY(check_pattern(o, pattern, __func__));
    TSRI_TRY(tsri_opts_read(&given, sizeof given, opts, __func__));
    TSRI_TRY(read_numbers(o, &given, __func__, number));
    if (given.schedule) {
        tsr_status status = tsri_schedule_check(given.schedule);
        if (status != TSR_OK)
            return tsri_fail_prefix(status, "%s", __func__);
    }
    tsri_optim_group *group = find_group(o, pattern);
    if (!group)
        TSRI_TRY(add_group(o, pattern, &group));
    for (int i = 0; i < TSRI_NUMBERS; i++)
        if (!isnan(number[i]))
            group->number[i] = number[i];
    if (!isnan(number[TSRI_LR]))
        group->plateau.lr = 0;
    return given.schedule ? tsri_group_set_schedule(o, group, given.schedule) : TSR_OK;
}

tsr_status tsr_optimizer_freeze(tsr_optimizer *o, const char *pattern, bool frozen)
{
    TSRI_TRY(check_pattern(o, pattern, __func__));
    TSRI_TRY(part_classes(o, pattern, __func__));
    for (int i = 0; i < o->nslots; i++)
        if (fits(&o->slots[i], pattern))
            o->classes[o->slots[i].class].frozen = frozen;
    return TSR_OK;
}

/* --- rate and step ---------------------------------------------------------------------------- */
void tsr_optimizer_set_lr(tsr_optimizer *o, double lr)
{
    if (!tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__))
        return;
    if (lr >= 0 && isfinite(lr)) {
        o->groups[0].number[TSRI_LR] = lr;
        for (int i = 0; i < o->ngroups; i++)
            if (i == 0 || isnan(o->groups[i].number[TSRI_LR]))
                o->groups[i].plateau.lr = 0;
    } else {
        tsri_log(o->world, TSR_LOG_ERROR,
                 "tsr_optimizer_set_lr: lr = %g must be finite and not negative; %g stays", lr,
                 o->groups[0].number[TSRI_LR]);
    }
}

double tsr_optimizer_lr(const tsr_optimizer *o)
{
    if (!tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__))
        return 0;
    tsri_optim_settle(o);
    return tsri_group_lr(o, &o->groups[0]);
}

double tsr_optimizer_group_lr(const tsr_optimizer *o, const char *pattern)
{
    if (!tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__))
        return NAN;
    tsri_optim_settle(o);
    const tsri_optim_group *group = pattern ? find_group(o, pattern) : NULL;
    if (group)
        return tsri_group_lr(o, group);
    tsri_fail(TSR_ERR_INVALID, "tsr_optimizer_group_lr: there is no group '%s'",
              pattern ? pattern : "(NULL)");
    return NAN;
}

int64_t tsr_optimizer_steps(const tsr_optimizer *o)
{
    if (!tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__))
        return 0;
    tsri_optim_settle(o);
    return o->step;
}

void tsr_optimizer_report(tsr_optimizer *o, double metric)
{
    if (!tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__))
        return;
    for (int i = 0; i < o->ngroups; i++) {
        tsri_optim_group *group = &o->groups[i];
        const tsr_schedule *s = tsri_group_schedule(o, group);
        if (s->kind == TSR_SCHEDULE_PLATEAU)
            tsri_plateau_report(&group->plateau, s, tsri_optim_number(o, group, TSRI_LR), metric);
    }
}

/* --- what ranks must share -------------------------------------------------------------------- */
static void describe_schedule(const tsr_schedule *s, FILE *f)
{
    fprintf(f, "kind of the schedule: %d\n", (int)s->kind);
    fprintf(f, "warmup: %lld\n", (long long)s->warmup);
    fprintf(f, "step_size: %lld\n", (long long)s->step_size);
    tsri_put_number(f, "gamma", s->gamma);
    fprintf(f, "steps: %lld\n", (long long)s->steps);
    tsri_put_number(f, "min_lr", s->min_lr);
    for (int i = 0; i < s->nmilestones; i++)
        fprintf(f, "milestone: %lld\n", (long long)s->milestones[i]);
    tsri_put_number(f, "start_factor", s->start_factor);
    tsri_put_number(f, "end_factor", s->end_factor);
    fprintf(f, "restart_factor: %lld\n", (long long)s->restart_factor);
    tsri_put_number(f, "max_lr", s->max_lr);
    tsri_put_number(f, "pct_start", s->pct_start);
    tsri_put_number(f, "div_factor", s->div_factor);
    tsri_put_number(f, "final_div_factor", s->final_div_factor);
    tsri_put_number(f, "base_momentum", s->base_momentum);
    tsri_put_number(f, "max_momentum", s->max_momentum);
    fprintf(f, "linear, three_phase, keep_momentum: %d, %d, %d\n", s->linear, s->three_phase,
            s->keep_momentum);
    fprintf(f, "rises, absolute: %d, %d\n", s->rises, s->absolute);
    tsri_put_number(f, "factor", s->factor);
    fprintf(f, "patience: %lld\n", (long long)s->patience);
    fprintf(f, "cooldown: %lld\n", (long long)s->cooldown);
    tsri_put_number(f, "threshold", s->threshold);
}

static void describe_group(const tsr_optimizer *o, const tsri_optim_group *group, FILE *f)
{
    if (group->pattern)
        fprintf(f, "group: %s\n", group->pattern);
    for (int i = 0; i < TSRI_NUMBERS; i++)
        if (o->numbers >> i & 1 && !isnan(group->number[i]))
            tsri_put_number(f, tsri_number_name((tsri_number)i), group->number[i]);
    if (group->has_schedule)
        describe_schedule(&group->schedule, f);
    tsri_put_number(f, "rate after reports", group->plateau.lr);
}

void tsri_optimizer_describe(const void *optimizer, FILE *f)
{
    const tsr_optimizer *o = optimizer;
    char sbp[TSR_SBP_TEXT_MAX];
    fprintf(f, "tsr_%s\nkind: %s\n", o->name, o->name);
    for (int i = 0; i < o->ngroups; i++)
        describe_group(o, &o->groups[i], f);
    for (int i = 0; o->own && i < o->own->nnumbers; i++)
        if (tsri_own_shared(o->own, i) < 0) /* the others are the groups' */
            tsri_put_number(f, o->own->def.numbers[i].name, o->own_numbers[i]);
    fprintf(f, "nesterov: %d\n", o->nesterov);
    fprintf(f, "runs of an update: %lld\n", (long long)o->accumulate);
    if (o->accumulate > 1)
        fprintf(f, "runs since the last update: %lld\n", (long long)(o->runs % o->accumulate));
    fprintf(f, "state: %s\n", o->state_sbp.ndim ? tsr_sbp_format(o->state_sbp, sbp) : "auto");
    for (int i = 0; i < o->nslots; i++)
        if (o->classes[o->slots[i].class].frozen)
            fprintf(f, "frozen parameter: %d\n", i);
}
