/* SPDX-License-Identifier: Apache-2.0 */
/* The update of parameters from gradients: what each reads before a run, and its ops. */
#include <math.h>
#include <stdio.h>

#include "src/core/live.h"
#include "src/graph/op.h"
#include "src/graph/variable.h"
#include "src/optim/clip.h"
#include "src/optim/optim.h"
#include "src/optim/own.h"
#include "src/optim/scaler.h"
#include "src/optim/update.h"

/* --- before each run -------------------------------------------------------------------------- */
/* The formulas of torch.optim, as far as they are of no element: corrections of bias, complements.
 */
static void prepare_adam(const tsr_optimizer *o, const tsri_optim_group *group, double beta1,
                         double t, double *h)
{
    const double beta2 = tsri_optim_number(o, group, TSRI_BETA2);
    h[TSRI_HYPER_LR] /= 1 - pow(beta1, t);
    h[TSRI_HYPER_TAKE1] = 1 - beta1;
    h[TSRI_HYPER_KEEP2] = beta2;
    h[TSRI_HYPER_TAKE2] = 1 - beta2;
    h[TSRI_HYPER_EPS] = tsri_optim_number(o, group, TSRI_EPS);
    h[TSRI_HYPER_ROOT] = 1 / sqrt(1 - pow(beta2, t));
}

static void prepare_moments(const tsr_optimizer *o, const tsri_optim_group *group, double t,
                            double *h)
{
    const tsri_number first = o->numbers >> TSRI_BETA1 & 1 ? TSRI_BETA1 : TSRI_MOMENTUM;
    const double momentum = tsri_schedule_momentum(tsri_group_schedule(o, group),
                                                   tsri_optim_number(o, group, first), o->step);
    switch (o->kind) {
    case TSRI_OPTIM_SGD:
        h[TSRI_HYPER_KEEP1] = t == 1 ? 0 : momentum;
        h[TSRI_HYPER_TAKE1] = t == 1 ? 1 : 1 - tsri_optim_number(o, group, TSRI_DAMPENING);
        h[TSRI_HYPER_LOOK] = o->nesterov ? momentum : 0;
        break;
    case TSRI_OPTIM_RMSPROP:
        h[TSRI_HYPER_KEEP1] = momentum;
        h[TSRI_HYPER_KEEP2] = tsri_optim_number(o, group, TSRI_ALPHA);
        h[TSRI_HYPER_TAKE2] = 1 - h[TSRI_HYPER_KEEP2];
        h[TSRI_HYPER_EPS] = tsri_optim_number(o, group, TSRI_EPS);
        break;
    case TSRI_OPTIM_ADAGRAD:
        h[TSRI_HYPER_LR] /= 1 + (t - 1) * tsri_optim_number(o, group, TSRI_LR_DECAY);
        h[TSRI_HYPER_EPS] = tsri_optim_number(o, group, TSRI_EPS);
        break;
    case TSRI_OPTIM_LION:
        h[TSRI_HYPER_KEEP1] = momentum;
        h[TSRI_HYPER_TAKE1] = 1 - momentum;
        h[TSRI_HYPER_TAKE2] = 1 - tsri_optim_number(o, group, TSRI_BETA2);
        break;
    default:
        prepare_adam(o, group, momentum, t, h);
        break;
    }
}

/* Sets h to the numbers that the updates of a class read in the next run. */
static void prepare(const tsr_optimizer *o, const tsri_hyper *hyper, double *h)
{
    const tsri_optim_class *class = &o->classes[hyper->class];
    const tsri_optim_group *group = &o->groups[class->group];
    const double lr = tsri_group_lr(o, group), t = (double)class->step + 1;
    const double decay = tsri_optim_number(o, group, TSRI_WEIGHT_DECAY);
    const bool skips = class->frozen || (o->runs + 1) % o->accumulate != 0;
    h[TSRI_HYPER_LR] = lr;
    h[TSRI_HYPER_SKIP] = skips;
    h[TSRI_HYPER_SCALE] = 1;
    h[TSRI_HYPER_SHRINK] = o->decoupled ? 1 - lr * decay : 1;
    h[TSRI_HYPER_DECAY] = o->decoupled ? 0 : decay;
    if (hyper->part == TSRI_HYPER_MEAN) { /* p is the mean */
        h[TSRI_HYPER_LR] = -1 / (double)o->accumulate;
        h[TSRI_HYPER_SKIP] = class->frozen;
        h[TSRI_HYPER_DECAY] = 0;
        h[TSRI_HYPER_SHRINK] = o->runs % o->accumulate == 0 ? 0 : 1;
        return;
    }
    if (hyper->part == TSRI_HYPER_LAMB) {
        h[TSRI_HYPER_SHRINK] = 1;
        h[TSRI_HYPER_DECAY] = 0;
        h[TSRI_HYPER_LAMB_DECAY] = decay;
        return;
    }
    if (o->kind == TSRI_OPTIM_OWN) {
        tsri_own_hyper(o, group, t, h);
        return;
    }
    if (o->kind == TSRI_OPTIM_LAMB) { /* Adam's step is added to p, the weight decay's */
        h[TSRI_HYPER_LR] = -1;
        h[TSRI_HYPER_SHRINK] = 1;
    }
    prepare_moments(o, group, t, h);
}

static tsr_status prepare_run(tsr_optimizer *o)
{
    const double no_norm = -1;
    o->updates.holds = (o->runs + 1) % o->accumulate == 0;
    for (int i = 0; i < o->nhypers; i++) {
        double h[TSRI_HYPER_COUNT] = {0};
        if (o->hypers[i].part == TSRI_HYPER_NORM) {
            TSRI_TRY(tsri_variable_write(o->hypers[i].variable, 0, &no_norm, sizeof no_norm));
            continue;
        }
        prepare(o, &o->hypers[i], h);
        TSRI_TRY(tsri_variable_write(o->hypers[i].variable, 0, h, sizeof h));
    }
    return TSR_OK;
}

static tsr_status before_run(void *arg)
{
    tsr_optimizer *o = arg;
    TSRI_TRY(o->flag ? tsri_scaler_settle(o->flag->scaler) : TSR_OK);
    TSRI_TRY(prepare_run(o));
    if (++o->runs % o->accumulate == 0)
        tsri_optim_count_update(o);
    return TSR_OK;
}

/* As before_run, where the run tells whether there is an update. */
static tsr_status before_scaled_run(void *arg)
{
    tsri_scaler_flag *flag = arg;
    tsr_optimizer *o = flag->optimizer;
    const float none = 0;
    TSRI_TRY(o->flag ? tsri_scaler_settle(o->flag->scaler) : TSR_OK);
    TSRI_TRY(prepare_run(o));
    if (!o->updates.holds) /* the run does not write it */
        TSRI_TRY(tsri_variable_write(flag->found, 0, &none, sizeof none));
    if (flag->found_so_far && o->runs % o->accumulate == 0)
        TSRI_TRY(tsri_variable_write(flag->found_so_far, 0, &none, sizeof none));
    if (++o->runs % o->accumulate == 0) {
        flag->waits = true;
        o->flag = flag;
    }
    return TSR_OK;
}

static void describe_scaled(const void *flag, FILE *f)
{
    const tsr_optimizer *o = ((const tsri_scaler_flag *)flag)->optimizer;
    tsri_optimizer_describe(o, f);
}

/* --- declaring -------------------------------------------------------------------------------- */
static tsri_op_kind op_of(tsri_optim_kind kind)
{
    switch (kind) {
    case TSRI_OPTIM_SGD:
        return TSRI_OP_SGD;
    case TSRI_OPTIM_RMSPROP:
        return TSRI_OP_RMSPROP;
    case TSRI_OPTIM_ADAGRAD:
        return TSRI_OP_ADAGRAD;
    case TSRI_OPTIM_LION:
        return TSRI_OP_LION;
    default:
        return TSRI_OP_ADAM;
    }
}

/* The numbers of an update that its own function declares. */
typedef struct own_numbers {
    const tsri_applying *a;
    tsr_tensor *numbers;
    tsr_dtype dtype;
} own_numbers;

static tsr_tensor *own_number(void *arg, int which)
{
    const own_numbers *n = arg;
    return tsri_update_number(n->a, n->numbers, which, n->dtype);
}

static tsri_op *add_own(tsri_applying *a, const tsri_optim_slot *slot, tsr_tensor *value,
                        tsr_tensor *grad)
{
    own_numbers n = {a, tsri_update_numbers(a, slot, TSRI_HYPER_UPDATE), value->dtype};
    tsr_update u = {.size = sizeof u, .param = value, .grad = grad};
    for (int i = 0; i < TSRI_UPDATE_STATES; i++)
        u.state[i] = tsri_update_state(a, slot, i);
    return tsri_own_update(&a->c, a->o, slot, &u, a->scale != NULL, own_number, &n);
}

/* Whether a mean of gradients over runs is split where states are. */
static bool keeps_shard(const tsr_variable *mean)
{
    bool any = false;
    for (int d = 0; mean && d < mean->adds_up.base.ndim; d++)
        any |= mean->adds_up.base.d[d].kind == TSR_SBP_SPLIT;
    return any;
}

/* Returns the gradient of a run in the signature that is said for it. */
static tsr_tensor *lay_out(const tsri_applying *a, const tsri_optim_slot *slot, tsr_tensor *grad)
{
    if (!slot->gradient_sbp.ndim)
        return grad;
    const tsr_sbp sbp = tsri_sbp_for_axes(slot->gradient_sbp, grad->shape.ndim);
    return tsr_to_global_at(grad, NULL, sbp, a->c.loc.file, a->c.loc.line);
}

/* Declares the update of one parameter. It starts from the result of the parameter's update before
 * it in this graph, if there is one. */
static bool add_update(tsri_applying *a, const tsri_optim_slot *slot, tsr_tensor *grad)
{
    tsr_graph *g = a->c.g;
    tsr_tensor *value = tsri_graph_current(g, slot->param, a->c.loc);
    if (value->failed || grad->failed)
        return false;
    const char *scope = g->now.scope, *name = value->op->name;
    g->now.scope = name;
    tsri_op *op;
    if (a->o->kind == TSRI_OPTIM_OWN)
        op = add_own(a, slot, value, grad);
    else
        op = tsri_update_add(a, op_of(a->o->kind), slot, value, grad,
                             tsri_update_numbers(a, slot, TSRI_HYPER_UPDATE));
    g->now.scope = scope;
    if (!op)
        return false;
    op->name = name;
    tsri_graph_write(g, op, 0, slot->param);
    return g->failure.status == TSR_OK;
}

/* --- checks ----------------------------------------------------------------------------------- */
static bool updates(const tsri_hook *hook, const tsr_optimizer *o)
{
    return (hook->fn == before_run && hook->arg == o) ||
           (hook->fn == before_scaled_run && ((tsri_scaler_flag *)hook->arg)->optimizer == o);
}

/* Checks what must hold before anything is declared. */
bool tsri_want_optimizer(const tsri_ctx *c, const tsr_optimizer *o)
{
    if (!o)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "the optimizer is NULL%s", tsri_error_cause());
    if (tsri_live_check(o, TSRI_LIVE_OPTIMIZER, c->op) != TSR_OK)
        return tsri_op_refuse_last(c, TSR_ERR_INVALID);
    if (o->world != c->g->world)
        return tsri_op_refuse(c, TSR_ERR_INVALID,
                              "the optimizer belongs to another world than the loss");
    for (int i = 0; i < c->g->nhooks; i++)
        if (updates(&c->g->hooks[i], o))
            return tsri_op_refuse(c, TSR_ERR_STATE,
                                  "this optimizer minimizes a loss of this graph already; add the "
                                  "losses, or use an optimizer for each");
    return true;
}

/* The slot of a parameter; usually the one behind *last, which it becomes. */
static tsri_optim_slot *find_slot(const tsr_optimizer *o, const tsr_variable *p, int *last)
{
    for (int i = 0; i < o->nslots; i++) {
        int at = (*last + 1 + i) % o->nslots;
        if (o->slots[at].param == p) {
            *last = at;
            return &o->slots[at];
        }
    }
    return NULL;
}

tsri_optim_slot *tsri_optim_find_slot(const tsr_optimizer *o, const tsr_variable *p)
{
    int last = -1;
    return find_slot(o, p, &last);
}

/* Whether `grad` can be the gradient of p. */
static bool check_gradient(const tsri_ctx *c, const tsr_variable *p, const tsr_tensor *grad)
{
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(p, name, sizeof name);
    if (grad->graph != c->g)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "the gradient of %s belongs to another graph",
                              name);
    if (tsr_dims_equal(grad->shape, p->shape) && grad->dtype == p->dtype &&
        grad->placement == p->placement)
        return true;
    return tsri_op_refuse(
        c, TSR_ERR_SHAPE,
        "the gradient of %s is %s %s on %s; it must be as the parameter: %s %s on %s", name,
        tsr_dtype_name(grad->dtype), tsri_op_dims(c, grad), tsr_placement_text(grad->placement),
        tsr_dtype_name(p->dtype), tsri_dims_text(c->g, p->shape), tsr_placement_text(p->placement));
}

/* The slot of a parameter, which must be the optimizer's and not be named before; NULL: the graph
 * has failed. */
static tsri_optim_slot *want_slot(const tsri_applying *a, const tsr_variable *p, int *last)
{
    tsri_optim_slot *slot = find_slot(a->o, p, last);
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(p, name, sizeof name);
    if (!slot)
        tsri_op_refuse(&a->c, TSR_ERR_INVALID, "%s is none of the optimizer's %d parameters", name,
                       a->o->nslots);
    else if (slot->named)
        tsri_op_refuse(&a->c, TSR_ERR_INVALID, "%s is there twice; add its gradients", name);
    else
        return slot;
    return NULL;
}

static bool add_updates(tsri_applying *a, int n, tsr_variable *const *params,
                        tsr_tensor *const *grads)
{
    for (int i = 0; i < a->o->nslots; i++)
        a->o->slots[i].named = false;
    for (int i = 0; i < a->o->nhypers; i++)
        a->o->hypers[i].scaled = NULL;
    if (!a->o->accumulate)
        a->o->accumulate = 1;
    const bool is_lamb = a->o->kind == TSRI_OPTIM_LAMB;
    tsri_lamb *lamb = is_lamb ? tsri_pool_alloc(&a->c.g->pool, (size_t)n * sizeof *lamb) : NULL;
    if (is_lamb && n && !lamb)
        return tsri_op_refuse_last(&a->c, TSR_ERR_NO_MEMORY);
    int nlamb = 0;
    for (int i = 0, last = -1; i < n; i++) {
        if (!grads[i])
            continue;
        tsri_optim_slot *slot = want_slot(a, params[i], &last);
        if (!slot || grads[i]->failed || !check_gradient(&a->c, params[i], grads[i]))
            return false;
        const bool is_laid_out = a->o->accumulate > 1 && keeps_shard(slot->gradient);
        tsr_tensor *grad = is_laid_out ? grads[i] : lay_out(a, slot, grads[i]);
        if (is_lamb)
            lamb[nlamb++] = (tsri_lamb){.slot = slot, .grad = grad};
        else if (!add_update(a, slot, grad))
            return false;
        slot->named = true;
    }
    return tsri_lamb_add(a, nlamb, lamb);
}

/* --- means over runs -------------------------------------------------------------------------- */
/* Makes the variable with the mean of a parameter's gradients. Where states are whole, ranks may
 * hold addends of it, which only the last run reduces. Where states are shards, each run reduces
 * into a shard of it, as whole addends would take more memory. */
static tsr_status make_mean(tsr_optimizer *o, tsri_optim_slot *slot)
{
    const tsr_variable *p = slot->param;
    char name[TSRI_NAME_MAX], mean[TSRI_NAME_MAX + 32];
    if (!slot->gradient) {
        tsri_variable_qualified_name(p, name, sizeof name);
        snprintf(mean, sizeof mean, "%s.gradient", name);
        TSRI_TRY(tsri_variable_create(o->world, mean, p->placement, p->dtype, p->shape, TSR_AUTO,
                                      (tsr_init){0}, &slot->gradient));
        slot->gradient->saved = p->saved;
        slot->gradient->adds_up.may = true;
    }
    if (!slot->gradient->ready && !slot->gradient->sbp.ndim)
        slot->gradient->adds_up.base = tsri_optim_state_sbp(o, slot);
    return TSR_OK;
}

/* Declares that a gradient is added to the mean so far; returns that, or NULL. */
static tsr_tensor *add_to_mean(tsri_applying *a, tsri_optim_slot *slot, tsr_tensor *grad)
{
    tsr_graph *g = a->c.g;
    const int64_t runs = a->o->accumulate < INT32_MAX ? a->o->accumulate : INT32_MAX;
    if (make_mean(a->o, slot) != TSR_OK) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return NULL;
    }
    const bool is_shard = keeps_shard(slot->gradient);
    tsr_tensor *in[] = {tsri_graph_current(g, slot->gradient, a->c.loc),
                        is_shard ? lay_out(a, slot, grad) : grad,
                        tsri_update_numbers(a, slot, TSRI_HYPER_MEAN)};
    const tsri_attrs attrs = {.update.adds = (int32_t)(is_shard ? -runs : runs)};
    if (g->failure.status != TSR_OK)
        return NULL;
    tsri_op *op = tsri_graph_add_all_like(TSRI_OP_SGD, &attrs, 3, in, 1, in[0], a->c.loc);
    if (!op)
        return NULL;
    op->name = in[0]->op->name;
    op->backward = true;
    tsri_graph_write(g, op, 0, slot->gradient);
    return op->out[0];
}

/* Checks that this graph accumulates as those before it did: as often, and the same parameters. */
static bool check_alike(const tsri_applying *a, int64_t runs)
{
    const tsr_optimizer *o = a->o;
    if (o->accumulate && o->accumulate != runs)
        return tsri_op_refuse(&a->c, TSR_ERR_STATE,
                              "the optimizer updates once in %lld runs here, and once in %lld in "
                              "another graph",
                              (long long)runs, (long long)o->accumulate);
    for (int i = 0; i < o->nslots && o->accumulate > 1; i++) {
        const tsri_optim_slot *slot = &o->slots[i];
        if ((slot->gradient != NULL) == slot->named)
            continue;
        char name[TSRI_NAME_MAX];
        tsri_variable_qualified_name(slot->param, name, sizeof name);
        return tsri_op_refuse(&a->c, TSR_ERR_STATE,
                              "%s is updated %s: graphs that accumulate with one optimizer update "
                              "the same parameters",
                              name,
                              slot->named ? "here, but not in another graph"
                                          : "in another graph, but not here");
    }
    return true;
}

bool tsri_accumulate(const tsri_ctx *c, tsr_optimizer *o, int64_t runs, int n,
                     tsr_variable *const *params, tsr_tensor **grads)
{
    tsri_applying a = {.c = *c, .o = o};
    for (int i = 0; i < o->nslots; i++)
        o->slots[i].named = false;
    for (int i = 0, last = -1; i < n; i++) {
        tsri_optim_slot *slot = grads[i] ? find_slot(o, params[i], &last) : NULL;
        if (slot)
            slot->named = true;
    }
    if (!check_alike(&a, runs))
        return false;
    o->accumulate = o->updates.every = runs;
    for (int i = 0, last = -1; i < n && runs > 1; i++) {
        if (!grads[i] || grads[i]->failed)
            continue;
        grads[i] = add_to_mean(&a, find_slot(o, params[i], &last), grads[i]);
        if (!grads[i])
            return false;
    }
    return true;
}

/* --- updates ---------------------------------------------------------------------------------- */
void tsri_apply_gradients(const tsri_ctx *c, tsr_optimizer *o, int n, tsr_variable *const *params,
                          tsr_tensor *const *grads, tsr_tensor *scale)
{
    const tsri_graph_scaled *scaled = tsri_scaler_found(c->g, o);
    tsri_applying a = {.c = *c, .o = o, .scale = scale, .found = scaled ? scaled->found : NULL};
    tsr_graph *g = c->g;
    if (g->failure.status != TSR_OK || !add_updates(&a, n, params, grads))
        return;
    if (scaled) {
        if (!g->now.only_if)
            tsr_assign_at(scaled->flag->found, scaled->found, c->loc.file, c->loc.line);
        tsri_graph_add_hook(g, (tsri_hook){before_scaled_run, describe_scaled, scaled->flag});
    } else {
        tsri_graph_add_hook(g, (tsri_hook){before_run, tsri_optimizer_describe, o});
    }
    /* Masks follow the training step, whichever graph runs it. */
    if (!g->step_value)
        g->step_value = &o->runs;
}

/* --- the user's gradients --------------------------------------------------------------------- */
/* Checks the parameters of a call; those of the gradients are checked. */
static bool check_params(const tsri_ctx *c, int n, tsr_variable *const *params)
{
    if (!params)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "params is NULL; it must have n = %d places", n);
    for (int i = 0; i < n; i++) {
        if (!params[i])
            return tsri_op_refuse(c, TSR_ERR_INVALID, "variable %d is NULL%s", i,
                                  tsri_error_cause());
        if (tsri_live_check(params[i], TSRI_LIVE_VARIABLE, c->op) != TSR_OK)
            return tsri_op_refuse_last(c, TSR_ERR_INVALID);
    }
    return true;
}

void tsr_apply_gradients_at(tsr_optimizer *o, int n, tsr_variable *const *params,
                            tsr_tensor *const *grads, const char *file, int line)
{
    tsri_ctx c = {.loc = {file, line}, .op = "apply_gradients"};
    if (!tsri_begin_tensors(&c, n, grads) || !check_params(&c, n, params) ||
        !tsri_want_optimizer(&c, o))
        return;
    if (o->accumulate > 1)
        tsri_op_refuse(&c, TSR_ERR_STATE,
                       "the optimizer updates once in %lld runs in another graph",
                       (long long)o->accumulate);
    else
        tsri_apply_gradients(&c, o, n, params, grads, NULL);
}
