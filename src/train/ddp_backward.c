/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_ddp_backward: the gradients of a loss, written to their places in the buckets. */
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"
#include "src/graph/op.h"
#include "src/optim/optim.h"
#include "src/plan/plan.h"
#include "src/train/ddp.h"

/* A first pass may have left any of the parameters out. */
static bool has_backward(const tsr_ddp *d, const tsr_graph *g)
{
    for (int i = 0; i < g->nops; i++)
        for (int j = 0; j < g->ops[i]->nout; j++) {
            const tsr_variable *v = g->ops[i]->out[j]->writes;
            for (int k = 0; k < d->nparams && v; k++)
                if (v == d->params[k].grad)
                    return true;
        }
    return false;
}

bool tsri_ddp_trains(const tsr_optimizer *o, const tsri_ddp_param *p)
{
    const tsri_optim_slot *slot = o ? tsri_optim_find_slot(o, p->v) : NULL;
    return !o || (slot && !o->classes[slot->class].frozen);
}

static bool check(const tsri_ctx *c, tsr_ddp *d, const tsr_tensor *loss)
{
    if (!d)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "ddp is NULL%s", tsri_error_cause());
    if (!tsri_is_live(d, TSRI_LIVE_DDP, c->op))
        return tsri_op_refuse_last(c, TSR_ERR_INVALID);
    if (d->world != c->g->world)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "ddp belongs to another world than the loss");
    if (!c->g->local)
        return tsri_op_refuse(c, TSR_ERR_STATE,
                              "the loss is in a graph of all ranks; make it with "
                              "TSR_GRAPH_OPTS(.local = true)");
    if (!tsri_want_loss(c, loss))
        return false;
    if (c->g->runner.arg)
        return tsri_op_refuse(
            c, TSR_ERR_STATE,
            "this graph has a tsr_ddp_minimize already; declare a graph for each");
    return !has_backward(d, c->g) ||
           tsri_op_refuse(c, TSR_ERR_STATE,
                          "this graph has a backward pass already; add the losses, or declare a "
                          "graph for each");
}

/* Whether an op's first result has the order of axes that variables have. */
static bool makes_rows(const tsri_op_def *def)
{
    return def->layout == TSRI_LAYOUT_ROW || (def->rows_out & 1);
}

/*
 * Whether the op that makes a gradient may write it to its place, where it is added to and averaged
 * while the pass goes on: nobody else may have a use for it. first: the pass's own ops begin there.
 */
static bool can_write(const tsr_tensor *dx, int first, const int *nuses)
{
    const tsri_op *op = dx->op;
    if (op->id < first || nuses[dx->id] > 1 || dx->writes)
        return false;
    if (tsri_op_def_of(op->kind)->is_view || op->kind == TSRI_OP_RANK_SUM)
        return false; /* what shows another's bytes, or is made by peers */
    return dx->shape.ndim < 4 || makes_rows(tsri_op_def_of(op->kind));
}

/* Otherwise it is copied there, as soon as it is made: before those that read it too. */
static bool copy_gradient(tsr_graph *g, const tsri_ddp_param *p, tsr_tensor *dx, int first,
                          tsri_loc loc)
{
    tsri_op *op = tsri_graph_add(g, TSRI_OP_ASSIGN, NULL, 1, &dx, 1, &p->v->shape, &p->v->dtype,
                                 p->v->placement, loc);
    if (!op)
        return false;
    op->name = p->name;
    op->backward = true;
    op->out[0]->writes = p->grad;
    tsri_graph_move(g, op, dx->op->id < first ? first : dx->op->id + 1);
    return true;
}

/* By tensor: as operands, outputs, and gradients of parameters. */
static int *count_uses(tsr_graph *g, int n, tsr_tensor *const *dx)
{
    int *nuses = tsri_pool_alloc(&g->pool, (size_t)g->ntensors * sizeof *nuses);
    if (!nuses) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return NULL;
    }
    for (int i = 0; i < g->nops; i++)
        for (int j = 0; j < g->ops[i]->nin; j++)
            nuses[g->ops[i]->in[j]->id]++;
    for (int i = 0; i < g->nports; i++)
        nuses[g->ports[i].tensor->id]++;
    for (int i = 0; i < n; i++)
        if (dx[i])
            nuses[dx[i]->id]++;
    return nuses;
}

/* first: the ops of this pass begin there. */
static void write_gradients(tsr_ddp *d, tsr_graph *g, int first, int n, const int *of,
                            tsr_tensor *const *dx, tsri_loc loc)
{
    const int *nuses = count_uses(g, n, dx);
    for (int i = 0; i < n && nuses; i++) {
        const tsri_ddp_param *p = &d->params[of[i]];
        if (!dx[i])
            continue;
        if (can_write(dx[i], first, nuses))
            dx[i]->writes = p->grad;
        else if (!copy_gradient(g, p, dx[i], first, loc))
            return;
    }
}

/* "'features.0.0.weight' (0), 'fc.bias' (3) and 4 more": as many as fit. */
static void list_unused(const tsr_ddp *d, const bool *used, char *buf, size_t size)
{
    size_t at = 0;
    int left = 0;
    buf[0] = 0;
    for (int n = 0; n < d->nparams; n++)
        for (int i = 0; i < d->nparams; i++) {
            if (d->params[i].number != n || used[i])
                continue;
            if (at + strlen(d->params[i].name) + 48 > size) {
                left++;
                continue;
            }
            at += (size_t)snprintf(buf + at, size - at, "%s'%s' (%d)", at ? ", " : "",
                                   d->params[i].name, n);
        }
    if (left)
        snprintf(buf + at, size - at, " and %d more", left);
}

static bool fail_unused(const tsri_ctx *c, const tsr_ddp *d, const bool *used)
{
    char names[600];
    list_unused(d, used, names, sizeof names);
    return tsri_op_refuse(c, TSR_ERR_STATE,
                          "on rank %d the loss does not depend on these parameters: %s; set "
                          "find_unused_parameters, or static_graph, or ignore them",
                          tsr_world_rank(d->world), names);
}

/* The runner of plans that tsr_ddp_run runs. */
static tsr_status refuse_run(void *ddp, void *arg, tsr_plan *plan)
{
    (void)ddp;
    (void)arg;
    if (plan->failure[0])
        return tsri_fail(TSR_ERR_STATE, "tsr_run: %s", plan->failure);
    return tsri_fail(TSR_ERR_STATE,
                     "tsr_run: the gradients of this plan belong to a tsr_ddp, which would not "
                     "average them; run it with tsr_ddp_run");
}

bool tsri_ddp_backward(const tsri_ctx *c, tsr_ddp *d, const tsr_optimizer *o, tsr_tensor *loss)
{
    tsr_graph *g = c->g;
    if (!check(c, d, loss))
        return false;
    size_t n = (size_t)d->nparams;
    tsr_tensor **x = tsri_pool_alloc(&g->pool, n * 2 * sizeof(tsr_tensor *));
    int *of = tsri_pool_alloc(&g->pool, n * sizeof *of);
    bool *used = tsri_pool_alloc(&g->pool, n);
    if (!x || !of || !used)
        return tsri_op_refuse_last(c, TSR_ERR_NO_MEMORY);
    int nread = 0, nused = 0;
    for (int i = 0; i < d->nparams; i++) {
        used[i] = !tsri_ddp_trains(o, &d->params[i]);
        nused += used[i];
        if (!used[i] && (x[nread] = tsri_graph_find_read(g, d->params[i].v)))
            of[nread++] = i;
    }
    tsr_tensor **dx = x + n;
    int first = g->nops;
    if (nread && !tsri_differentiate(loss, nread, x, dx, c->loc))
        return false;
    for (int i = 0; i < nread; i++)
        if (dx[i]) {
            used[of[i]] = true;
            nused++;
        }
    if (nused < d->nparams && !d->opts.find_unused_parameters && !d->opts.static_graph)
        return fail_unused(c, d, used);
    write_gradients(d, g, first, nread, of, dx, c->loc);
    g->runner = (tsri_runner){refuse_run, d, NULL};
    return g->failure.status == TSR_OK;
}

tsr_tensor *tsr_ddp_read_gradient_at(tsr_graph *g, tsr_ddp *d, const tsr_variable *v,
                                     const char *file, int line)
{
    const tsri_ctx c = {.g = g, .loc = {file, line}, .op = "ddp_read_gradient"};
    if (!g || !d || !v) {
        tsri_graph_fail(g, c.loc, TSR_ERR_INVALID, "ddp_read_gradient: the %s is NULL%s",
                        !g   ? "graph"
                        : !d ? "tsr_ddp"
                             : "variable",
                        tsri_error_cause());
        return g ? &g->failure.tensor : NULL;
    }
    if (!tsri_is_live(g, TSRI_LIVE_GRAPH, c.op))
        return NULL;
    if (!tsri_is_live(d, TSRI_LIVE_DDP, c.op) || !tsri_is_live(v, TSRI_LIVE_VARIABLE, c.op)) {
        tsri_op_refuse_last(&c, TSR_ERR_INVALID);
        return &g->failure.tensor;
    }
    for (int i = 0; i < d->nparams; i++)
        if (d->params[i].v == v)
            return tsr_read_at(g, d->params[i].grad, file, line);
    return tsri_op_fail(&c, TSR_ERR_INVALID, "the variable is none of ddp's parameters");
}

void tsr_ddp_backward_at(tsr_ddp *d, tsr_tensor *loss, const char *file, int line)
{
    if (!tsri_is_live(loss, TSRI_LIVE_TENSOR, "ddp_backward") || loss->failed)
        return;
    const tsri_ctx c = {.g = loss->graph, .loc = {file, line}, .op = "ddp_backward"};
    tsri_ddp_backward(&c, d, NULL, loss);
}
