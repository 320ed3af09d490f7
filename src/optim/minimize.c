/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_minimize: gradients of a loss, and the update of what they belong to, as ops of its graph. */
#include "src/nn/module.h"
#include "src/core/live.h"
#include "src/optim/optim.h"

/* Before each run, on the host: what the updates of this run read. */
static tsr_status before_run(void *arg)
{
    tsr_optimizer *o = arg;
    const double hyper[] = {[TSRI_HYPER_LR] = tsri_schedule_lr(&o->schedule, o->lr, o->step),
                            [TSRI_HYPER_STEP] = (double)(o->step + 1)};
    for (int i = 0; i < o->nhypers; i++)
        TSRI_TRY(tsri_variable_write(o->hypers[i], 0, hyper, sizeof hyper));
    o->step++;
    return TSR_OK;
}

/* Declares the update of one parameter: (p, state..., g, hyper) -> p, state... It starts from the
 * result of the parameter's update before it in this graph, if there is one. */
static bool add_update(tsr_optimizer *o, tsr_graph *g, const tsri_optim_slot *slot,
                       tsr_tensor *grad, tsri_loc loc)
{
    tsr_variable *p = slot->param, *hyper = NULL;
    for (int i = 0; i < o->nhypers; i++)
        if (o->hypers[i]->placement == p->placement)
            hyper = o->hypers[i];
    tsr_tensor *in[5];
    tsr_variable *writes[3];
    tsr_dims shapes[3];
    tsr_dtype dtypes[3];
    int n = 0;
    tsr_tensor *value = tsri_graph_current(g, p, loc);
    if (value->failed)
        return false;
    in[n] = value;
    writes[n++] = p;
    for (int j = 0; j < o->nstates; j++) {
        tsr_variable *s = slot->state[j];
        /* The parameter's signature may have been fixed since the state was declared. */
        if (!s->ready)
            s->sbp = tsri_optim_state_sbp(o, p);
        in[n] = tsri_graph_current(g, s, loc);
        writes[n++] = s;
    }
    int nout = n;
    for (int i = 0; i < nout; i++) {
        shapes[i] = p->shape;
        dtypes[i] = p->dtype;
    }
    in[n++] = grad;
    in[n++] = tsri_graph_read(g, hyper, loc);
    tsri_op *op = tsri_graph_add(g, o->kind == TSRI_OPTIM_SGD ? TSRI_OP_SGD : TSRI_OP_ADAM,
                                 &o->attrs, n, in, nout, shapes, dtypes, p->placement, loc);
    if (!op)
        return false;
    op->name = value->op->name;
    op->backward = true;
    for (int i = 0; i < nout; i++)
        tsri_graph_write(g, op, i, writes[i]);
    return true;
}

/* --- updates from gradients ------------------------------------------------------------------- */
/* Checks what must hold before anything is declared. */
static bool check_optimizer(const tsr_optimizer *o, tsr_graph *g, tsri_loc loc)
{
    if (!o) {
        tsri_graph_fail(g, loc, TSR_ERR_INVALID, "minimize: the optimizer is NULL%s",
                        tsri_error_cause());
        return false;
    }
    if (tsri_live_check(o, TSRI_LIVE_OPTIMIZER, "minimize") != TSR_OK) {
        tsri_graph_fail_last(g, TSR_ERR_INVALID);
        return false;
    }
    if (o->world != g->world) {
        tsri_graph_fail(g, loc, TSR_ERR_INVALID,
                        "minimize: the optimizer belongs to another world than the loss");
        return false;
    }
    for (int i = 0; i < g->nhooks; i++)
        if (g->hooks[i].fn == before_run && g->hooks[i].arg == o) {
            tsri_graph_fail(
                g, loc, TSR_ERR_STATE,
                "minimize: this optimizer minimizes a loss of this graph already; add the "
                "losses, or use an optimizer for each");
            return false;
        }
    return true;
}

/* The slot of a parameter; usually the one behind *last, which it becomes. */
static const tsri_optim_slot *find_slot(const tsr_optimizer *o, const tsr_variable *p, int *last)
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

/* Whether `grad` can be the gradient of p. */
static bool check_gradient(tsr_graph *g, const tsr_variable *p, const tsr_tensor *grad,
                           tsri_loc loc)
{
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(p, name, sizeof name);
    if (grad->graph != g) {
        tsri_graph_fail(g, loc, TSR_ERR_INVALID, "the gradient of %s belongs to another graph",
                        name);
        return false;
    }
    if (tsr_dims_equal(grad->shape, p->shape) && grad->dtype == p->dtype &&
        grad->placement == p->placement)
        return true;
    tsri_graph_fail(g, loc, TSR_ERR_SHAPE,
                    "the gradient of %s is %s %s on %s; it must be as the parameter: %s %s on %s",
                    name, tsr_dtype_name(grad->dtype), tsri_dims_text(g, grad->shape),
                    tsr_placement_text(grad->placement), tsr_dtype_name(p->dtype),
                    tsri_dims_text(g, p->shape), tsr_placement_text(p->placement));
    return false;
}

static bool add_updates(tsr_optimizer *o, tsr_graph *g, int n, tsr_variable *const *params,
                        tsr_tensor *const *grads, tsri_loc loc)
{
    for (int i = 0, last = -1; i < n; i++) {
        if (!grads[i])
            continue;
        const tsri_optim_slot *slot = find_slot(o, params[i], &last);
        if (!slot) {
            char name[TSRI_NAME_MAX];
            tsri_variable_qualified_name(params[i], name, sizeof name);
            tsri_graph_fail(g, loc, TSR_ERR_INVALID, "%s is none of the optimizer's %d parameters",
                            name, o->nslots);
            return false;
        }
        if (grads[i]->failed || !check_gradient(g, params[i], grads[i], loc) ||
            !add_update(o, g, slot, grads[i], loc))
            return false;
    }
    return true;
}

void tsri_optimizer_apply(tsr_optimizer *o, tsr_graph *g, int n, tsr_variable *const *params,
                          tsr_tensor *const *grads, tsri_loc loc)
{
    if (g->status != TSR_OK || !check_optimizer(o, g, loc) ||
        !add_updates(o, g, n, params, grads, loc))
        return;
    tsri_graph_add_hook(g, (tsri_hook){before_run, tsri_optimizer_describe, o});
    /* Masks follow the training step, whichever graph runs it. */
    if (g->step_value == &g->own_step)
        g->step_value = &o->step;
}

/* --- minimize --------------------------------------------------------------------------------- */
/* The parameters that the graph reads and their gradients, NULL where the loss doesn't depend on
 * them. */
typedef struct targets {
    int n;
    tsr_variable **params;
    tsr_tensor **values, **grads;
} targets;

static bool find_targets(const tsr_optimizer *o, tsr_graph *g, targets *t)
{
    size_t n = (size_t)o->nslots;
    t->params = tsri_pool_alloc(&g->pool, n * sizeof *t->params);
    t->values = tsri_pool_alloc(&g->pool, n * sizeof *t->values);
    t->grads = tsri_pool_alloc(&g->pool, n * sizeof *t->grads);
    if (!t->params || !t->values || !t->grads) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return false;
    }
    for (int i = 0; i < o->nslots; i++) {
        tsr_tensor *value = tsri_graph_find_read(g, o->slots[i].param);
        if (!value)
            continue;
        t->params[t->n] = o->slots[i].param;
        t->values[t->n++] = value;
    }
    return true;
}

/* Sets the targets' gradients; whether there are any. Failures are the graph's. */
static bool find_gradients(const tsr_optimizer *o, tsr_graph *g, tsr_tensor *loss, targets *t,
                           tsri_loc loc)
{
    if (t->n && !tsri_differentiate(loss, t->n, t->values, t->grads, loc))
        return false;
    bool any = false;
    for (int i = 0; i < t->n; i++)
        any |= t->grads[i] != NULL;
    if (!any)
        tsri_graph_fail(g, loc, TSR_ERR_STATE,
                        "minimize: the loss depends on none of the optimizer's %d parameters (the "
                        "graph reads %d of them)",
                        o->nslots, t->n);
    return any;
}

static bool check_loss(tsr_graph *g, const tsr_tensor *loss, tsri_loc loc)
{
    if (loss->shape.ndim != 0) {
        tsri_graph_fail(g, loc, TSR_ERR_SHAPE,
                        "minimize: the loss must be a scalar, but has shape %s; reduce it with "
                        "tsr_mean or tsr_sum",
                        tsri_dims_text(g, loss->shape));
        return false;
    }
    if (!tsri_is_float(loss->dtype)) {
        tsri_graph_fail(g, loc, TSR_ERR_DTYPE,
                        "minimize: the loss is %s; it must be floating point",
                        tsr_dtype_name(loss->dtype));
        return false;
    }
    return true;
}

/* The first op that the loss depends on and that evaluates; NULL: none, or no memory. */
static const tsri_op *find_evaluating(const tsr_graph *g, const tsr_tensor *loss)
{
    const tsri_op *first = NULL;
    int last = loss->op->id;
    bool *needed = tsri_mem_alloc(&g->world->mem, (size_t)last + 1);
    if (!needed)
        return NULL;
    needed[last] = true;
    for (int i = last; i >= 0; i--) {
        const tsri_op *op = g->ops[i];
        if (!needed[i])
            continue;
        first = op->evaluates ? op : first;
        for (int j = 0; j < op->nin; j++)
            needed[op->in[j]->op->id] = true;
    }
    tsri_mem_free(needed);
    return first;
}

/* Training a net that evaluates is legal, for frozen statistics as an example, but is more often a
 * graph whose .training was forgotten: its first rank says so, once. */
static void warn_of_evaluation(tsr_graph *g, const tsr_tensor *loss, tsri_loc loc)
{
    const tsri_op *op = g->training || g->warned ? NULL : find_evaluating(g, loss);
    if (!op)
        return;
    g->warned = true;
    if (g->world->rank == 0 || g->local)
        tsri_log(g->world, TSR_LOG_WARNING,
                 "%s:%d: minimize in a graph without .training: %s (%s%s%s:%d, the first of its "
                 "kind); make the graph with TSR_GRAPH_OPTS(.training = true) unless that is meant",
                 tsri_basename(loc.file), loc.line, op->evaluates, op->name, *op->name ? ", " : "",
                 tsri_basename(op->loc.file), op->loc.line);
}

void tsr_minimize_at(tsr_optimizer *o, tsr_tensor *loss, const char *file, int line)
{
    tsri_loc loc = {file, line};
    if (!tsri_is_live(loss, TSRI_LIVE_TENSOR, "minimize") || loss->failed)
        return;
    tsr_graph *g = loss->graph;
    targets t = {0};
    if (!check_optimizer(o, g, loc) || !check_loss(g, loss, loc) || !find_targets(o, g, &t) ||
        !find_gradients(o, g, loss, &t, loc))
        return;
    warn_of_evaluation(g, loss, loc);
    tsri_optimizer_apply(o, g, t.n, t.params, t.grads, loc);
}
