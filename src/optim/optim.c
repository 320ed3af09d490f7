/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: what they keep for each parameter, and the rate and step that their updates read. */
#include "src/optim/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/core/opts.h"
#include "src/core/attrs_text.h"
#include "src/core/live.h"
#include "src/nn/module.h"
#include "src/graph/variable.h"

static void destroy_optimizer(void *object)
{
    tsr_optimizer *o = object;
    tsri_world_disown(&o->owned);
    tsri_live_remove(o, TSRI_LIVE_OPTIMIZER);
    for (int i = 0; i < o->nslots; i++)
        for (int j = 0; j < o->nstates; j++)
            tsri_variable_destroy(o->slots[i].state[j]);
    for (int i = 0; i < o->nhypers; i++)
        tsri_variable_destroy(o->hypers[i]);
    tsri_mem_free(o->slots);
    tsri_mem_free(o->hypers);
    tsri_mem_free(o);
}

void tsr_optimizer_destroy(tsr_optimizer *o)
{
    if (tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__))
        destroy_optimizer(o);
}

/* --- making ----------------------------------------------------------------------------------- */
static tsr_status count_param(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    int *n = arg;
    *n += v->trainable;
    return TSR_OK;
}

static tsr_status add_hyper(tsr_optimizer *o, const tsr_placement *p)
{
    for (int i = 0; i < o->nhypers; i++)
        if (o->hypers[i]->placement == p)
            return TSR_OK;
    char name[64];
    snprintf(name, sizeof name, "%s.hyper%d", o->name, o->nhypers);
    TSRI_TRY(tsri_variable_create(o->world, name, p, TSR_F64, TSR_DIMS(TSRI_HYPER_COUNT),
                                  tsri_sbp_b(tsr_placement_ndim(p)), (tsr_init){0},
                                  &o->hypers[o->nhypers]));
    o->nhypers++;
    return TSR_OK;
}

tsr_sbp tsri_optim_state_sbp(const tsr_optimizer *o, const tsr_variable *p)
{
    return o->state_sbp.ndim ? tsri_sbp_for_axes(o->state_sbp, p->shape.ndim) : p->sbp;
}

static tsr_status add_slot(tsr_variable *v, const char *below, void *arg)
{
    static const char *const suffix[2][2] = {{"momentum_buffer", ""}, {"exp_avg", "exp_avg_sq"}};
    (void)below;
    tsr_optimizer *o = arg;
    if (!v->trainable)
        return TSR_OK;
    char name[TSRI_NAME_MAX], state[TSRI_NAME_MAX + 32];
    tsri_variable_qualified_name(v, name, sizeof name);
    if (!tsri_is_float(v->dtype))
        return tsri_fail(TSR_ERR_DTYPE, "parameter %s is %s; only floating point can be trained",
                         name, tsr_dtype_name(v->dtype));
    tsri_optim_slot *slot = &o->slots[o->nslots++];
    slot->param = v;
    v->used = true;
    for (int j = 0; j < o->nstates; j++) {
        snprintf(state, sizeof state, "%s.%s", name, suffix[o->kind != TSRI_OPTIM_SGD][j]);
        TSRI_TRY(tsri_variable_create(o->world, state, v->placement, v->dtype, v->shape,
                                      tsri_optim_state_sbp(o, v), (tsr_init){0}, &slot->state[j]));
    }
    return add_hyper(o, v->placement);
}

static tsr_status fill_slots(tsr_optimizer *o, tsr_module *m)
{
    int n = 0;
    TSRI_TRY(tsr_module_visit(m, count_param, &n));
    if (!n)
        return tsri_fail(TSR_ERR_INVALID, "the module has no parameters to train");
    o->slots = tsri_mem_alloc(&o->world->mem, (size_t)n * sizeof *o->slots);
    o->hypers = tsri_mem_alloc(&o->world->mem, (size_t)n * sizeof(tsr_variable *));
    TSRI_NEED(o->slots && o->hypers);
    return tsr_module_visit(m, add_slot, o);
}

static tsr_optimizer *create(tsr_module *m, const tsr_optimizer *what)
{
    tsr_optimizer *o = tsri_live_alloc(&m->world->mem, sizeof *o, TSRI_LIVE_OPTIMIZER);
    if (!o)
        return NULL;
    *o = *what;
    o->world = m->world;
    tsri_world_own(o->world, &o->owned, o, destroy_optimizer);
    tsr_status status = fill_slots(o, m);
    if (status == TSR_OK)
        return o;
    tsri_fail_prefix(status, "tsr_%s", o->name);
    destroy_optimizer(o);
    return NULL;
}

/* --- options ---------------------------------------------------------------------------------- */
static tsr_status check_not_negative(const char *who, const char *what, double value)
{
    if (value >= 0 && isfinite(value))
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "%s: %s = %g must be finite and not negative", who, what,
                     value);
}

static tsr_status check_module(const char *who, const tsr_module *m)
{
    if (m)
        return tsri_live_check(m, TSRI_LIVE_MODULE, who);
    return tsri_fail(TSR_ERR_INVALID, "%s: the module is NULL%s", who, tsri_error_cause());
}

static tsr_status check_schedule(const char *who, const tsr_schedule *schedule)
{
    tsr_status status = tsri_schedule_check(schedule);
    return status != TSR_OK ? tsri_fail_prefix(status, "%s", who) : TSR_OK;
}

static tsr_status check_sgd(const tsr_module *m, const tsr_sgd_opts *opts, tsr_sgd_opts *s)
{
    static const char who[] = "tsr_sgd";
    *s = *TSR_SGD_OPTS();
    TSRI_TRY(check_module(who, m));
    TSRI_TRY(tsri_opts_read(s, sizeof *s, opts, who));
    TSRI_TRY(check_schedule(who, &s->schedule));
    TSRI_TRY(check_not_negative(who, "lr", s->lr));
    TSRI_TRY(check_not_negative(who, "momentum", s->momentum));
    TSRI_TRY(check_not_negative(who, "weight_decay", s->weight_decay));
    if (!isfinite(s->dampening))
        return tsri_fail(TSR_ERR_INVALID, "tsr_sgd: dampening = %g must be finite", s->dampening);
    if (s->nesterov && (s->momentum == 0 || s->dampening != 0))
        return tsri_fail(
            TSR_ERR_INVALID,
            "tsr_sgd: nesterov needs a momentum above 0 and no dampening; found momentum "
            "%g, dampening %g",
            s->momentum, s->dampening);
    return TSR_OK;
}

tsr_optimizer *tsr_sgd(tsr_module *m, const tsr_sgd_opts *opts)
{
    tsr_sgd_opts s;
    if (check_sgd(m, opts, &s) != TSR_OK)
        return NULL;
    tsr_optimizer o = {.kind = TSRI_OPTIM_SGD,
                       .name = "sgd",
                       .lr = s.lr,
                       .schedule = s.schedule,
                       .state_sbp = s.state,
                       .nstates = s.momentum != 0 ? 1 : 0};
    o.attrs.sgd.momentum = s.momentum;
    o.attrs.sgd.dampening = s.dampening;
    o.attrs.sgd.weight_decay = s.weight_decay;
    o.attrs.sgd.nesterov = s.nesterov;
    return create(m, &o);
}

static tsr_status check_beta(const char *who, const char *what, double value)
{
    if (value >= 0 && value < 1)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "%s: %s = %g must be in [0, 1)", who, what, value);
}

static tsr_status check_adam(const char *who, double weight_decay, const tsr_module *m,
                             const tsr_adam_opts *opts, tsr_adam_opts *a)
{
    *a = *TSR_ADAM_OPTS();
    TSRI_TRY(check_module(who, m));
    TSRI_TRY(tsri_opts_read(a, sizeof *a, opts, who));
    TSRI_TRY(check_schedule(who, &a->schedule));
    if (isnan(a->weight_decay))
        a->weight_decay = weight_decay;
    TSRI_TRY(check_not_negative(who, "lr", a->lr));
    TSRI_TRY(check_not_negative(who, "eps", a->eps));
    TSRI_TRY(check_not_negative(who, "weight_decay", a->weight_decay));
    TSRI_TRY(check_beta(who, "beta1", a->beta1));
    return check_beta(who, "beta2", a->beta2);
}

static tsr_optimizer *make_adam(tsri_optim_kind kind, tsr_module *m, const tsr_adam_opts *opts)
{
    bool decoupled = kind == TSRI_OPTIM_ADAMW;
    const char *name = decoupled ? "adamw" : "adam";
    tsr_adam_opts a;
    if (check_adam(decoupled ? "tsr_adamw" : "tsr_adam", decoupled ? 0.01 : 0, m, opts, &a) !=
        TSR_OK)
        return NULL;
    tsr_optimizer o = {.kind = kind,
                       .name = name,
                       .lr = a.lr,
                       .schedule = a.schedule,
                       .state_sbp = a.state,
                       .nstates = 2};
    o.attrs.adam.beta1 = a.beta1;
    o.attrs.adam.beta2 = a.beta2;
    o.attrs.adam.eps = a.eps;
    o.attrs.adam.weight_decay = a.weight_decay;
    o.attrs.adam.decoupled = decoupled;
    return create(m, &o);
}

tsr_optimizer *tsr_adam(tsr_module *m, const tsr_adam_opts *opts)
{
    return make_adam(TSRI_OPTIM_ADAM, m, opts);
}

tsr_optimizer *tsr_adamw(tsr_module *m, const tsr_adam_opts *opts)
{
    return make_adam(TSRI_OPTIM_ADAMW, m, opts);
}

void tsri_optimizer_describe(const void *optimizer, FILE *f)
{
    const tsr_optimizer *o = optimizer;
    const tsr_schedule *s = &o->schedule;
    char sbp[TSR_SBP_TEXT_MAX];
    fprintf(f, "tsr_%s\nkind: %s\n", o->name, o->name);
    tsri_put_number(f, "lr", o->lr);
    fprintf(f, "kind of the schedule: %d\n", (int)s->kind);
    fprintf(f, "warmup: %lld\n", (long long)s->warmup);
    fprintf(f, "step_size: %lld\n", (long long)s->step_size);
    tsri_put_number(f, "gamma", s->gamma);
    fprintf(f, "steps: %lld\n", (long long)s->steps);
    tsri_put_number(f, "min_lr", s->min_lr);
    fprintf(f, "state: %s\n", o->state_sbp.ndim ? tsr_sbp_format(o->state_sbp, sbp) : "auto");
}

/* --- rate and step ---------------------------------------------------------------------------- */
void tsr_optimizer_set_lr(tsr_optimizer *o, double lr)
{
    if (!tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__))
        return;
    if (lr >= 0 && isfinite(lr))
        o->lr = lr;
    else
        tsri_log(o->world, TSR_LOG_ERROR,
                 "tsr_optimizer_set_lr: lr = %g must be finite and not negative; %g stays", lr,
                 o->lr);
}

double tsr_optimizer_lr(const tsr_optimizer *o)
{
    return tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__)
               ? tsri_schedule_lr(&o->schedule, o->lr, o->step)
               : 0;
}

int64_t tsr_optimizer_step(const tsr_optimizer *o)
{
    return tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__) ? o->step : 0;
}
