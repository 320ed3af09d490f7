/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_minimize: gradients of a loss, and the update of what they belong to, as ops of its graph. */
#include "src/nn/module.h"
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

/* A parameter that the graph reads. */
typedef struct target {
    tsri_optim_slot *slot;
    tsr_tensor *value, *grad;
} target;

/* Declares the update of one parameter: (p, state..., g, hyper) -> p, state... in place. */
static bool add_update(tsr_optimizer *o, tsr_graph *g, const target *t, tsri_loc loc)
{
    tsr_variable *p = t->slot->param, *hyper = NULL;
    for (int i = 0; i < o->nhypers; i++)
        if (o->hypers[i]->placement == p->placement)
            hyper = o->hypers[i];
    tsr_tensor *in[5];
    tsr_variable *writes[3];
    tsr_dims shapes[3];
    tsr_dtype dtypes[3];
    int n = 0;
    in[n] = t->value;
    writes[n++] = p;
    for (int j = 0; j < o->nstates; j++) {
        tsr_variable *s = t->slot->state[j];
        /* The parameter's signature may have been fixed since the state was declared. */
        if (!s->ready)
            s->sbp = tsri_optim_state_sbp(o, p);
        in[n] = tsri_graph_read(g, s, loc);
        writes[n++] = s;
    }
    int nout = n;
    for (int i = 0; i < nout; i++) {
        shapes[i] = p->shape;
        dtypes[i] = p->dtype;
    }
    in[n++] = t->grad;
    in[n++] = tsri_graph_read(g, hyper, loc);
    tsri_op *op = tsri_graph_add(g, o->kind == TSRI_OPTIM_SGD ? TSRI_OP_SGD : TSRI_OP_ADAM,
                                 &o->attrs, n, in, nout, shapes, dtypes, p->placement, loc);
    if (!op)
        return false;
    op->name = t->value->op->name;
    op->backward = true;
    for (int i = 0; i < nout; i++)
        op->writes[i] = writes[i];
    return true;
}

/* The parameters that the graph reads, into targets; returns how many. */
static int find_targets(tsr_optimizer *o, const tsr_graph *g, target *targets)
{
    int n = 0;
    for (int i = 0; i < o->nslots; i++) {
        tsr_tensor *value = tsri_graph_find_read(g, o->slots[i].param);
        if (value)
            targets[n++] = (target){.slot = &o->slots[i], .value = value};
    }
    return n;
}

/* Sets the targets' gradients; whether there are any. Failures are the graph's. */
static bool find_gradients(tsr_optimizer *o, tsr_graph *g, tsr_tensor *loss, int n, target *targets,
                           tsri_loc loc)
{
    tsr_tensor **x = tsri_pool_alloc(&g->pool, (size_t)n * 2 * sizeof(tsr_tensor *));
    if (!x) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return false;
    }
    tsr_tensor **dx = x + n;
    for (int i = 0; i < n; i++)
        x[i] = targets[i].value;
    if (n && !tsri_differentiate(loss, n, x, dx, loc))
        return false;
    bool any = false;
    for (int i = 0; i < n; i++) {
        targets[i].grad = dx[i];
        any |= dx[i] != NULL;
    }
    if (!any)
        tsri_graph_fail(g, loc, TSR_ERR_STATE,
                        "minimize: the loss depends on none of the optimizer's %d parameters (the "
                        "graph reads %d of them)",
                        o->nslots, n);
    return any;
}

/* What must hold before anything is declared. */
static bool check(tsr_optimizer *o, tsr_graph *g, tsr_tensor *loss, tsri_loc loc)
{
    if (!o) {
        tsri_graph_fail(g, loc, TSR_ERR_INVALID, "minimize: the optimizer is NULL%s%s",
                        tsr_last_error()[0] ? ": " : "", tsr_last_error());
        return false;
    }
    if (o->world != g->world) {
        tsri_graph_fail(g, loc, TSR_ERR_INVALID,
                        "minimize: the optimizer belongs to another world than the loss");
        return false;
    }
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

void tsr_minimize_at(tsr_optimizer *o, tsr_tensor *loss, const char *file, int line)
{
    tsri_loc loc = {file, line};
    if (!loss || loss->failed)
        return;
    tsr_graph *g = loss->graph;
    if (!check(o, g, loss, loc))
        return;
    target *targets = tsri_pool_alloc(&g->pool, (size_t)o->nslots * sizeof *targets);
    if (!targets) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return;
    }
    int n = find_targets(o, g, targets);
    if (!find_gradients(o, g, loss, n, targets, loc))
        return;
    for (int i = 0; i < n; i++)
        if (targets[i].grad && !add_update(o, g, &targets[i], loc))
            return;
    tsri_graph_add_hook(g, before_run, o);
    /* Masks follow the training step, whichever graph runs it. */
    if (g->step_value == &g->own_step)
        g->step_value = &o->step;
}
