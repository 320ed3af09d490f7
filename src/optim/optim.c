/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: their options, and what they keep for each parameter. */
#include "src/optim/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/core/opts.h"
#include "src/core/live.h"
#include "src/nn/module.h"
#include "src/optim/own.h"
#include "src/optim/scaler.h"
#include "src/graph/variable.h"

static void destroy_optimizer(void *object)
{
    tsr_optimizer *o = object;
    tsri_world_disown(&o->owned);
    tsri_live_remove(o, TSRI_LIVE_OPTIMIZER);
    if (o->flag)
        tsri_scaler_forget(o->flag->scaler, o);
    for (int i = 0; i < o->nslots; i++) {
        if (!o->slots[i].is_lent)
            tsri_variable_destroy(o->slots[i].gradient);
        for (int j = 0; j < TSRI_UPDATE_STATES; j++)
            tsri_variable_destroy(o->slots[i].state[j]);
    }
    for (int i = 0; i < o->nhypers; i++)
        tsri_variable_destroy(o->hypers[i].variable);
    for (int i = 0; i < o->ngroups; i++) {
        tsri_mem_free(o->groups[i].pattern);
        tsri_mem_free(o->groups[i].milestones);
    }
    tsri_mem_free(o->slots);
    tsri_mem_free(o->groups);
    tsri_mem_free(o->classes);
    tsri_mem_free(o->hypers);
    tsri_mem_free(o);
}

void tsr_optimizer_destroy(tsr_optimizer *o)
{
    if (!tsri_is_live(o, TSRI_LIVE_OPTIMIZER, __func__))
        return;
    tsri_optim_settle(o);
    destroy_optimizer(o);
}

const char *tsri_optim_name(tsri_optim_kind kind)
{
#define NAME(KIND, name) [TSRI_OPTIM_##KIND] = #name,
    static const char *const names[] = {TSRI_OPTIM_LIST(NAME)};
#undef NAME
    return names[kind];
}

/* --- what is kept for each parameter ---------------------------------------------------------- */
/* The names of the states that an update may keep. */
static const char *const *state_names(tsri_optim_kind kind)
{
#define STATES(KIND, name, flops, n, ...) \
    static const char *const name[TSRI_UPDATE_STATES] = {__VA_ARGS__};
    TSRI_UPDATE_LIST(STATES)
#undef STATES
    switch (kind) {
    case TSRI_OPTIM_SGD:
        return sgd;
    case TSRI_OPTIM_RMSPROP:
        return rmsprop;
    case TSRI_OPTIM_ADAGRAD:
        return adagrad;
    case TSRI_OPTIM_LION:
        return lion;
    default:
        return adam;
    }
}

tsr_sbp tsri_optim_state_sbp(const tsr_optimizer *o, const tsri_optim_slot *slot)
{
    const tsr_variable *p = slot->param;
    const tsr_sbp said = slot->state_sbp.ndim ? slot->state_sbp : o->state_sbp;
    tsr_sbp sbp = tsri_sbp_for_axes(said, p->shape.ndim);
    for (int d = 0; d < sbp.ndim; d++)
        if (sbp.d[d].kind == TSR_SBP_AUTO && d < p->sbp.ndim)
            sbp.d[d] = p->sbp.d[d];
        else if (sbp.d[d].kind == TSR_SBP_AUTO)
            return p->sbp; /* left to the compiler, or of another placement: refused as such */
    return sbp.ndim ? sbp : p->sbp;
}

tsr_status tsri_optim_place(tsr_optimizer *o, tsri_optim_place_fn *place, void *arg)
{
    for (int i = 0; i < o->nslots; i++) {
        tsri_optim_slot *slot = &o->slots[i];
        tsri_optim_said said = {.state = slot->state_sbp, .gradient = slot->gradient_sbp};
        TSRI_TRY(place(arg, slot->param, &said));
        slot->state_sbp = said.state;
        slot->gradient_sbp = said.gradient;
        for (int j = 0; j < TSRI_UPDATE_STATES && said.by; j++)
            if (slot->state[j]) {
                slot->state[j]->sbp = tsri_optim_state_sbp(o, slot);
                slot->state[j]->said_by = said.by;
                slot->state[j]->said_at = said.at;
            }
    }
    return TSR_OK;
}

void tsri_optim_say_states(tsr_optimizer *o, const char *by, tsri_loc at)
{
    for (int i = 0; i < o->nslots; i++)
        for (int j = 0; j < TSRI_UPDATE_STATES; j++)
            if (o->slots[i].state[j]) {
                o->slots[i].state[j]->said_by = by;
                o->slots[i].state[j]->said_at = at;
            }
}

static tsr_status count_param(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    int *n = arg;
    *n += v->trainable;
    return TSR_OK;
}

static tsr_status add_slot(tsr_variable *v, const char *below, void *arg)
{
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
    for (int j = 0; j < TSRI_UPDATE_STATES; j++) {
        if (!(o->has >> j & 1))
            continue;
        snprintf(state, sizeof state, "%s.%s", name,
                 o->own ? o->own->def.states[j] : state_names(o->kind)[j]);
        const tsr_init init = {.kind = TSR_INIT_CONSTANT, .a = o->groups[0].number[TSRI_START]};
        TSRI_TRY(tsri_variable_create(o->world, state, v->placement, v->dtype, v->shape,
                                      tsri_optim_state_sbp(o, slot), init, &slot->state[j]));
        slot->state[j]->saved = v->saved;
        slot->state[j]->said_by = o->state_sbp.ndim ? "state" : v->said_by;
        slot->state[j]->said_at = o->state_sbp.ndim ? (tsri_loc){0} : v->said_at;
    }
    return TSR_OK;
}

static tsr_status fill_slots(tsr_optimizer *o, tsr_module *m)
{
    int n = 0;
    TSRI_TRY(tsr_module_visit(m, count_param, &n));
    if (!n)
        return tsri_fail(TSR_ERR_INVALID, "the module has no parameters to train");
    o->slots = tsri_mem_alloc(&o->world->mem, (size_t)n * sizeof *o->slots);
    TSRI_NEED(o->slots);
    return tsr_module_visit(m, add_slot, o);
}

/* --- making ----------------------------------------------------------------------------------- */
/* An optimizer to be made: o and its first group are copied. */
typedef struct recipe {
    tsr_optimizer o;
    tsri_optim_group group;
} recipe;

static tsr_status fill(tsr_optimizer *o, tsr_module *m, const recipe *from)
{
    o->groups = tsri_mem_alloc(&o->world->mem, sizeof *o->groups);
    o->classes = tsri_mem_alloc(&o->world->mem, sizeof *o->classes);
    TSRI_NEED(o->groups && o->classes);
    o->ngroups = o->nclasses = 1;
    memcpy(o->groups[0].number, from->group.number, sizeof o->groups[0].number);
    TSRI_TRY(tsri_group_set_schedule(o, &o->groups[0], &from->group.schedule));
    return fill_slots(o, m);
}

static tsr_status check_recipe(const char *who, const tsr_module *m, const recipe *r)
{
    if (!m)
        return tsri_fail(TSR_ERR_INVALID, "%s: the module is NULL%s", who, tsri_error_cause());
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, who));
    tsr_status status = tsri_schedule_check(&r->group.schedule);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "%s", who);
    for (int i = 0; i < TSRI_NUMBERS; i++)
        if (r->o.numbers >> i & 1)
            TSRI_TRY(tsri_number_check(who, i, r->group.number[i]));
    return TSR_OK;
}

static tsr_optimizer *create(tsr_module *m, tsri_optim_kind kind, recipe *r)
{
    char who[32];
    snprintf(who, sizeof who, "tsr_%s", r->o.own ? "optimizer_create" : tsri_optim_name(kind));
    if (check_recipe(who, m, r) != TSR_OK)
        return NULL;
    tsr_optimizer *o = tsri_live_alloc(&m->world->mem, sizeof *o, TSRI_LIVE_OPTIMIZER);
    if (!o)
        return NULL;
    *o = r->o;
    o->kind = kind;
    o->name = o->own ? o->own->def.name : tsri_optim_name(kind);
    o->world = m->world;
    tsri_world_own(o->world, &o->owned, o, destroy_optimizer);
    tsr_status status = fill(o, m, r);
    if (status == TSR_OK)
        return o;
    tsri_fail_prefix(status, "%s", who);
    destroy_optimizer(o);
    return NULL;
}

static void set_number(recipe *r, tsri_number which, double value)
{
    r->group.number[which] = value;
    r->o.numbers |= 1u << which;
}

/* --- one call for each kind ------------------------------------------------------------------- */
/* Sets the fields that all options have. */
#define SET_COMMON(r, s)                    \
    do {                                    \
        set_number(r, TSRI_LR, (s).lr);     \
        (r)->group.schedule = (s).schedule; \
        (r)->o.state_sbp = (s).state;       \
    } while (0)

tsr_optimizer *tsr_sgd(tsr_module *m, const tsr_sgd_opts *opts)
{
    tsr_sgd_opts s = *TSR_SGD_OPTS();
    recipe r = {0};
    if (tsri_opts_read(&s, sizeof s, opts, __func__) != TSR_OK)
        return NULL;
    SET_COMMON(&r, s);
    set_number(&r, TSRI_MOMENTUM, s.momentum);
    set_number(&r, TSRI_DAMPENING, s.dampening);
    set_number(&r, TSRI_WEIGHT_DECAY, s.weight_decay);
    r.o.nesterov = s.nesterov;
    r.o.has = s.momentum != 0;
    if (s.nesterov && (s.momentum == 0 || s.dampening != 0)) {
        tsri_fail(TSR_ERR_INVALID,
                  "tsr_sgd: nesterov needs a momentum above 0 and no dampening; found momentum "
                  "%g, dampening %g",
                  s.momentum, s.dampening);
        return NULL;
    }
    return create(m, TSRI_OPTIM_SGD, &r);
}

static tsr_optimizer *make_adam(tsri_optim_kind kind, const char *who, double weight_decay,
                                tsr_module *m, const tsr_adam_opts *opts)
{
    tsr_adam_opts a = *TSR_ADAM_OPTS();
    recipe r = {0};
    if (tsri_opts_read(&a, sizeof a, opts, who) != TSR_OK)
        return NULL;
    SET_COMMON(&r, a);
    set_number(&r, TSRI_BETA1, a.beta1);
    set_number(&r, TSRI_BETA2, a.beta2);
    set_number(&r, TSRI_EPS, a.eps);
    set_number(&r, TSRI_WEIGHT_DECAY, isnan(a.weight_decay) ? weight_decay : a.weight_decay);
    r.o.decoupled = kind != TSRI_OPTIM_ADAM;
    r.o.has = 3;
    return create(m, kind, &r);
}

tsr_optimizer *tsr_adam(tsr_module *m, const tsr_adam_opts *opts)
{
    return make_adam(TSRI_OPTIM_ADAM, __func__, 0, m, opts);
}

tsr_optimizer *tsr_adamw(tsr_module *m, const tsr_adam_opts *opts)
{
    return make_adam(TSRI_OPTIM_ADAMW, __func__, 0.01, m, opts);
}

tsr_optimizer *tsr_lamb(tsr_module *m, const tsr_adam_opts *opts)
{
    return make_adam(TSRI_OPTIM_LAMB, __func__, 0, m, opts);
}

tsr_optimizer *tsr_rmsprop(tsr_module *m, const tsr_rmsprop_opts *opts)
{
    tsr_rmsprop_opts s = *TSR_RMSPROP_OPTS();
    recipe r = {0};
    if (tsri_opts_read(&s, sizeof s, opts, __func__) != TSR_OK)
        return NULL;
    SET_COMMON(&r, s);
    set_number(&r, TSRI_ALPHA, s.alpha);
    set_number(&r, TSRI_EPS, s.eps);
    set_number(&r, TSRI_MOMENTUM, s.momentum);
    set_number(&r, TSRI_WEIGHT_DECAY, s.weight_decay);
    r.o.has = 1 | (s.momentum != 0) << 1 | s.centered << 2;
    return create(m, TSRI_OPTIM_RMSPROP, &r);
}

tsr_optimizer *tsr_adagrad(tsr_module *m, const tsr_adagrad_opts *opts)
{
    tsr_adagrad_opts s = *TSR_ADAGRAD_OPTS();
    recipe r = {0};
    if (tsri_opts_read(&s, sizeof s, opts, __func__) != TSR_OK)
        return NULL;
    SET_COMMON(&r, s);
    set_number(&r, TSRI_LR_DECAY, s.lr_decay);
    set_number(&r, TSRI_EPS, s.eps);
    set_number(&r, TSRI_WEIGHT_DECAY, s.weight_decay);
    set_number(&r, TSRI_START, s.initial_accumulator_value);
    r.o.has = 1;
    return create(m, TSRI_OPTIM_ADAGRAD, &r);
}

tsr_optimizer *tsr_lion(tsr_module *m, const tsr_lion_opts *opts)
{
    tsr_lion_opts s = *TSR_LION_OPTS();
    recipe r = {0};
    if (tsri_opts_read(&s, sizeof s, opts, __func__) != TSR_OK)
        return NULL;
    SET_COMMON(&r, s);
    set_number(&r, TSRI_BETA1, s.beta1);
    set_number(&r, TSRI_BETA2, s.beta2);
    set_number(&r, TSRI_WEIGHT_DECAY, s.weight_decay);
    r.o.decoupled = true;
    r.o.has = 1;
    return create(m, TSRI_OPTIM_LION, &r);
}

static tsr_status find_own(const tsr_module *m, const char *name, recipe *r)
{
    if (!m || !name)
        return tsri_fail(TSR_ERR_INVALID, "tsr_optimizer_create: the %s is NULL%s",
                         m ? "name" : "module", m ? "" : tsri_error_cause());
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, "tsr_optimizer_create"));
    r->o.own = tsri_own_optimizer_find(m->world, name);
    return r->o.own ? TSR_OK
                    : tsri_fail(TSR_ERR_INVALID,
                                "tsr_optimizer_create: no optimizer '%.60s' is defined", name);
}

tsr_optimizer *tsr_optimizer_create(tsr_module *m, const char *name,
                                    const tsr_own_optimizer_opts *opts)
{
    tsr_own_optimizer_opts s = *TSR_OWN_OPTIMIZER_OPTS();
    recipe r = {0};
    if (tsri_opts_read(&s, sizeof s, opts, __func__) != TSR_OK || find_own(m, name, &r) != TSR_OK)
        return NULL;
    SET_COMMON(&r, s);
    for (int i = 0; i < r.o.own->nnumbers; i++) {
        const tsr_op_option *n = &r.o.own->def.numbers[i];
        const double value = r.o.own_numbers[i] = s.numbers ? s.numbers[i] : n->value;
        if (tsri_own_check(r.o.own, __func__, i, value) != TSR_OK)
            return NULL;
        const int shared = tsri_own_shared(r.o.own, i);
        if (shared >= 0)
            set_number(&r, (tsri_number)shared, value);
    }
    r.o.has = (1 << r.o.own->nstates) - 1;
    return create(m, TSRI_OPTIM_OWN, &r);
}
