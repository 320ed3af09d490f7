/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_minimize: gradients of a loss, and the update of what they belong to, as ops of its graph. */
#include "src/nn/module.h"
#include "src/core/live.h"
#include "src/graph/op.h"
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
    in[n++] = grad;
    in[n++] = tsri_graph_read(g, hyper, loc);
    tsri_op *op = tsri_graph_add_all_like(o->kind == TSRI_OPTIM_SGD ? TSRI_OP_SGD : TSRI_OP_ADAM,
                                          &o->attrs, n, in, nout, value, loc);
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
static bool check_optimizer(const tsri_ctx *c, const tsr_optimizer *o)
{
    if (!o)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "the optimizer is NULL%s", tsri_error_cause());
    if (tsri_live_check(o, TSRI_LIVE_OPTIMIZER, c->op) != TSR_OK)
        return tsri_op_refuse_last(c, TSR_ERR_INVALID);
    if (o->world != c->g->world)
        return tsri_op_refuse(c, TSR_ERR_INVALID,
                              "the optimizer belongs to another world than the loss");
    for (int i = 0; i < c->g->nhooks; i++)
        if (c->g->hooks[i].fn == before_run && c->g->hooks[i].arg == o)
            return tsri_op_refuse(c, TSR_ERR_STATE,
                                  "this optimizer minimizes a loss of this graph already; add the "
                                  "losses, or use an optimizer for each");
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

static bool add_updates(const tsri_ctx *c, tsr_optimizer *o, int n, tsr_variable *const *params,
                        tsr_tensor *const *grads)
{
    for (int i = 0, last = -1; i < n; i++) {
        if (!grads[i])
            continue;
        const tsri_optim_slot *slot = find_slot(o, params[i], &last);
        if (!slot) {
            char name[TSRI_NAME_MAX];
            tsri_variable_qualified_name(params[i], name, sizeof name);
            return tsri_op_refuse(c, TSR_ERR_INVALID, "%s is none of the optimizer's %d parameters",
                                  name, o->nslots);
        }
        if (grads[i]->failed || !check_gradient(c, params[i], grads[i]) ||
            !add_update(o, c->g, slot, grads[i], c->loc))
            return false;
    }
    return true;
}

void tsri_optimizer_apply(tsr_optimizer *o, tsr_graph *g, int n, tsr_variable *const *params,
                          tsr_tensor *const *grads, tsri_loc loc)
{
    const tsri_ctx c = {.g = g, .loc = loc, .op = "minimize"};
    if (g->status != TSR_OK || !check_optimizer(&c, o) || !add_updates(&c, o, n, params, grads))
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

static bool find_targets(const tsri_ctx *c, const tsr_optimizer *o, targets *t)
{
    tsr_graph *g = c->g;
    size_t n = (size_t)o->nslots;
    t->params = tsri_pool_alloc(&g->pool, n * sizeof *t->params);
    t->values = tsri_pool_alloc(&g->pool, n * sizeof *t->values);
    t->grads = tsri_pool_alloc(&g->pool, n * sizeof *t->grads);
    if (!t->params || !t->values || !t->grads)
        return tsri_op_refuse_last(c, TSR_ERR_NO_MEMORY);
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
static bool find_gradients(const tsri_ctx *c, const tsr_optimizer *o, tsr_tensor *loss, targets *t)
{
    if (t->n && !tsri_differentiate(loss, t->n, t->values, t->grads, c->loc))
        return false;
    for (int i = 0; i < t->n; i++)
        if (t->grads[i])
            return true;
    return tsri_op_refuse(c, TSR_ERR_STATE,
                          "the loss depends on none of the optimizer's %d parameters (the graph "
                          "reads %d of them)",
                          o->nslots, t->n);
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
    const tsri_ctx c = {.g = g, .loc = loc, .op = "minimize"};
    targets t = {0};
    if (!check_optimizer(&c, o) || !tsri_want_loss(&c, loss) || !find_targets(&c, o, &t) ||
        !find_gradients(&c, o, loss, &t))
        return;
    warn_of_evaluation(g, loss, loc);
    tsri_optimizer_apply(o, g, t.n, t.params, t.grads, loc);
}
