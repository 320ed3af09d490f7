/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_minimize: gradients of losses, and the update of what they belong to, as ops of a graph. */
#include <math.h>

#include "src/nn/module.h"
#include "src/core/live.h"
#include "src/graph/op.h"
#include "src/optim/clip.h"
#include "src/optim/optim.h"
#include "src/optim/scaler.h"
#include "src/optim/update.h"

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
        if (!value || o->classes[o->slots[i].class].frozen)
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
                          "reads %d of them that are not frozen)",
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
void tsri_warn_of_evaluation(tsr_graph *g, const tsr_tensor *loss, tsri_loc loc)
{
    const tsri_op *op = g->training || g->now.warned ? NULL : find_evaluating(g, loss);
    if (!op)
        return;
    g->now.warned = true;
    if (g->world->rank == 0 || g->local)
        tsri_log(g->world, TSR_LOG_WARNING,
                 "%s:%d: minimize in a graph without .training: %s (%s%s%s:%d, the first of its "
                 "kind); make the graph with TSR_GRAPH_OPTS(.training = true) unless that is meant",
                 tsri_basename(loc.file), loc.line, op->evaluates, op->name, *op->name ? ", " : "",
                 tsri_basename(op->loc.file), op->loc.line);
}

/* --- options ---------------------------------------------------------------------------------- */
bool tsri_want_minimize(const tsri_ctx *c, const tsr_minimize_opts *m)
{
    if (!(m->clip_norm >= 0) || !(m->clip_value >= 0))
        return tsri_op_refuse(c, TSR_ERR_INVALID,
                              "clip_norm %g and clip_value %g must be above 0, or 0 for none",
                              m->clip_norm, m->clip_value);
    if (!(m->loss_scale > 0 && isfinite(m->loss_scale)))
        return tsri_op_refuse(c, TSR_ERR_INVALID, "loss_scale %g must be finite and above 0",
                              m->loss_scale);
    if (m->accumulate < 1)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "accumulate %lld must be at least 1",
                              (long long)m->accumulate);
    return tsri_want_norm(c, 1, m->norm_type) && tsri_want_scaler(c, m->scaler);
}

tsr_tensor *tsri_add_losses(const tsri_ctx *c, int n, tsr_tensor *const *losses, double scale)
{
    tsr_tensor *sum = losses[0];
    for (int i = 0; i < n; i++) {
        tsr_tensor *next = losses[i];
        if (!next) {
            tsri_op_refuse(c, TSR_ERR_INVALID, "loss %d is NULL%s", i, tsri_error_cause());
            return NULL;
        }
        if (!tsri_want_loss(c, next))
            return NULL;
        next->is_loss = true;
        if (i > 0 && next->placement != sum->placement)
            next = tsr_to_global_at(next, sum->placement, TSR_AUTO, c->loc.file, c->loc.line);
        if (i > 0)
            sum = tsr_add_at(sum, tsri_make_reshape(next, sum->shape, c->loc), c->loc.file,
                             c->loc.line);
    }
    if (scale != 1)
        sum = tsri_make_scale(sum, scale, c->loc);
    return sum->failed ? NULL : sum;
}

/* The f64 scalar by which n gradients, which are of the scaled loss, are multiplied; NULL: none.
 * Sets *out_norm where that is asked for. */
static tsr_tensor *make_scale(const tsri_ctx *c, tsr_optimizer *o, const tsr_minimize_opts *m,
                              int n, tsr_tensor *const *grads, const tsr_placement *p)
{
    const double back = 1 / m->loss_scale;
    tsr_tensor *scale = NULL;
    if (m->clip_norm > 0 || m->out_norm) {
        tsr_tensor *norm = tsri_make_global_norm(c, n, grads, m->norm_type);
        if (back != 1 && !norm->failed)
            norm = tsri_make_scale(norm, back, c->loc);
        if (m->out_norm)
            *m->out_norm = c->g->now.only_if ? tsri_update_norm(c, o, norm) : norm;
        if (m->clip_norm > 0 && !norm->failed)
            scale = tsri_make_clip_scale(c, norm, m->clip_norm);
        if (scale && !scale->failed && back != 1)
            scale = tsri_make_scale(scale, back, c->loc);
    } else if (back != 1) {
        scale = tsri_make_fill(c->g, TSR_SCALAR, TSR_F64, p, back, c->loc);
    }
    return scale;
}

/* Declares whether the gradients are finite. Returns the f64 scalar by which they are multiplied;
 * where they are clipped, they are multiplied here, and it is NULL. */
static tsr_tensor *unscale(const tsri_ctx *c, tsr_optimizer *o, const tsr_minimize_opts *m, int n,
                           const tsr_placement *p, tsr_tensor **grads)
{
    if (!tsri_scaler_works(m->scaler))
        return NULL;
    tsr_tensor *found = tsri_scaler_find(c, m->scaler, o, n, grads);
    if (!found)
        return NULL;
    if (m->out_found_inf)
        *m->out_found_inf = tsri_scaler_found(c->g, o)->seen;
    tsr_tensor *inverse = tsri_scaler_inverse(c, m->scaler, p);
    if (!(m->clip_value > 0 || m->clip_norm > 0 || m->out_norm) || inverse->failed)
        return inverse;
    for (int i = 0; i < n; i++)
        if (grads[i])
            grads[i] = tsri_scaler_unscaled(c, grads[i],
                                            tsri_scaler_inverse(c, m->scaler, grads[i]->placement));
    return NULL;
}

void tsri_apply_clipped(const tsri_ctx *c, tsr_optimizer *o, const tsr_minimize_opts *m, int n,
                        tsr_variable *const *params, tsr_tensor **grads)
{
    tsr_tensor *inverse = unscale(c, o, m, n, params[0]->placement, grads);
    for (int i = 0; i < n && m->clip_value > 0; i++)
        if (grads[i])
            grads[i] = tsri_make_clipped(c, grads[i], m->clip_value * m->loss_scale);
    tsr_tensor *scale = make_scale(c, o, m, n, grads, params[0]->placement);
    if (inverse)
        scale = scale ? tsr_mul_at(scale, inverse, c->loc.file, c->loc.line) : inverse;
    tsri_apply_gradients(c, o, n, params, grads, scale);
}

/* Notes the gradients, of the scaled loss, for tsr_read_gradient. */
static bool note_gradients(const tsri_ctx *c, const targets *t, const tsr_minimize_opts *m)
{
    tsr_graph *g = c->g;
    tsr_tensor *inverse = tsri_scaler_works(m->scaler)
                              ? tsri_scaler_inverse(c, m->scaler, t->params[0]->placement)
                              : NULL;
    for (int i = 0; i < t->n; i++) {
        if (!t->grads[i])
            continue;
        if (!TSRI_PUSH(&g->pool, g->minimized.gradients, g->minimized.ngradients,
                       g->minimized.cgradients))
            return tsri_op_refuse_last(c, TSR_ERR_NO_MEMORY);
        g->minimized.gradients[g->minimized.ngradients++] =
            (tsri_graph_gradient){t->params[i], t->grads[i], m->loss_scale, inverse};
    }
    return true;
}

tsr_tensor *tsr_read_gradient_at(tsr_graph *g, const tsr_variable *v, const char *file, int line)
{
    const tsri_ctx c = {.g = g, .loc = {file, line}, .op = "read_gradient"};
    if (!g || !v) {
        tsri_graph_fail(g, c.loc, TSR_ERR_INVALID, "read_gradient: the %s is NULL%s",
                        g ? "variable" : "graph", tsri_error_cause());
        return g && tsri_is_live(g, TSRI_LIVE_GRAPH, c.op) ? &g->failure.tensor : NULL;
    }
    if (!tsri_is_live(g, TSRI_LIVE_GRAPH, c.op))
        return NULL;
    if (!tsri_is_live(v, TSRI_LIVE_VARIABLE, c.op)) {
        tsri_op_refuse_last(&c, TSR_ERR_INVALID);
        return &g->failure.tensor;
    }
    for (int i = g->minimized.ngradients - 1; i >= 0; i--) {
        const tsri_graph_gradient *at = &g->minimized.gradients[i];
        if (at->variable == v) {
            tsr_tensor *x = tsri_make_scale(at->gradient, 1 / at->scale, c.loc);
            return at->inverse ? tsri_scaler_unscaled(&c, x, at->inverse) : x;
        }
    }
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    return tsri_op_fail(&c, TSR_ERR_STATE, "no tsr_minimize of this graph has a gradient of %s",
                        name);
}

/* Casts gradients that differentiation has cast from 16 bits anew, behind all gradients: they are
 * reduced as they are, and those of many parameters together. */
static void widen_last(const tsri_ctx *c, targets *t)
{
    for (int i = 0; i < t->n; i++) {
        const tsr_tensor *x = t->grads[i];
        if (x && !x->failed && x->op->kind == TSRI_OP_CAST &&
            tsr_dtype_size(x->op->in[0]->dtype) < tsr_dtype_size(x->dtype))
            t->grads[i] = tsr_cast_at(x->op->in[0], x->dtype, c->loc.file, c->loc.line);
    }
}

static void minimize(tsri_ctx *c, tsr_optimizer *o, int n, tsr_tensor *const *losses,
                     const tsr_minimize_opts *m)
{
    targets t = {0};
    if (!tsri_want_optimizer(c, o) || !tsri_want_minimize(c, m) ||
        !tsri_want_scaled(c, m->scaler, m->accumulate))
        return;
    tsr_tensor *loss = tsri_add_losses(c, n, losses, m->loss_scale);
    loss = loss ? tsri_scale_loss(c, m->scaler, loss) : NULL;
    if (!loss || !find_targets(c, o, &t) || !find_gradients(c, o, loss, &t))
        return;
    tsri_warn_of_evaluation(c->g, loss, c->loc);
    const bool was_backward = c->g->now.in_backward;
    const char *label = c->g->now.label;
    c->g->now.in_backward = c->g->now.optimizes = true;
    c->g->now.label = "optimizer";
    widen_last(c, &t);
    if (m->accumulate > 1 && tsri_scaler_works(m->scaler))
        tsri_scaler_look(c, m->scaler, o, t.n, t.grads);
    if (note_gradients(c, &t, m) && tsri_accumulate(c, o, m->accumulate, t.n, t.params, t.grads)) {
        c->g->now.only_if = m->accumulate > 1 ? &o->updates : NULL;
        tsri_apply_clipped(c, o, m, t.n, t.params, t.grads);
        c->g->now.only_if = NULL;
    }
    c->g->now.in_backward = was_backward;
    c->g->now.optimizes = false;
    c->g->now.label = label;
}

void tsr_minimize_at(tsr_optimizer *o, tsr_tensor *loss, const char *file, int line)
{
    if (!tsri_is_live(loss, TSRI_LIVE_TENSOR, "minimize") || loss->failed)
        return;
    tsri_ctx c = {.g = loss->graph, .loc = {file, line}, .op = "minimize"};
    minimize(&c, o, 1, &loss, TSR_MINIMIZE_OPTS());
}

void tsr_minimize_with_at(tsr_optimizer *o, int n, tsr_tensor *const *losses,
                          const tsr_minimize_opts *opts, const char *file, int line)
{
    tsr_minimize_opts m = *TSR_MINIMIZE_OPTS();
    tsri_ctx c = {.loc = {file, line}, .op = "minimize_with"};
    if (!tsri_begin_tensors(&c, n, losses) || !tsri_want_options(&c, &m, sizeof m, opts))
        return;
    if (m.out_norm)
        *m.out_norm = &c.g->failure.tensor;
    if (m.out_found_inf)
        *m.out_found_inf = &c.g->failure.tensor;
    minimize(&c, o, n, losses, &m);
}
