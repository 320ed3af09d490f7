/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode differentiation of the declared graph: walks the ops behind y backwards and declares
 * their gradients. Signatures play no part: the gradients' are inferred like any other. */
#include <string.h>

#include "src/core/live.h"
#include "src/graph/op.h"

/* Gradients that flow into one tensor, from each of its uses. */
typedef struct flow {
    struct flow *next;
    tsr_tensor *grad;
} flow;

typedef struct walk {
    tsr_graph *g;
    bool *depends; /* per tensor: on one of x */
    flow **flows;  /* per tensor: what has arrived, latest first */
    tsri_pool *pool;
    int ntensors; /* when the walk began */
    int call;     /* that declared the ops whose gradients are declared now; 0: none is open */
} walk;

static void close_call(walk *w)
{
    if (w->call)
        tsri_declare_end(w->g);
    w->call = 0;
}

/* Whether an op only moves elements for the function whose other ops were visited last. Its
 * gradient is then part of that function's: halves are rounded behind it, once. */
static bool goes_on(const walk *w, const tsri_op *op)
{
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    const bool is_exact = def->exact_of ? def->exact_of(&op->attrs) : def->is_exact;
    return w->call && is_exact && op->out[0]->call == w->call;
}

/* Sums what has arrived at a tensor: NULL if nothing. */
static tsr_tensor *collect(walk *w, const tsr_tensor *t)
{
    int n = 0;
    for (flow *f = w->flows[t->id]; f; f = f->next)
        n++;
    if (n == 0)
        return NULL;
    flow *f = w->flows[t->id];
    if (n == 1)
        return f->grad;
    tsr_tensor **all = tsri_pool_alloc(w->pool, (size_t)n * sizeof *all);
    if (!all)
        return tsri_graph_fail_last(w->g, TSR_ERR_NO_MEMORY);
    for (int i = n; i-- > 0; f = f->next)
        all[i] = f->grad; /* in order of arrival */
    tsri_declare_begin(w->g);
    tsr_tensor *sum = all[0];
    const int most = 8; /* operands of one add_n */
    for (int i = 1; i < n; i += most - 1) {
        tsr_tensor *part[8] = {sum};
        int m = 1;
        while (m < most && i + m - 1 < n) {
            part[m] = all[i + m - 1];
            m++;
        }
        sum = tsri_graph_add_like(TSRI_OP_ADD_N, NULL, m, part, t, t->op->loc);
    }
    tsri_declare_end(w->g);
    w->flows[t->id]->next = NULL;
    w->flows[t->id]->grad = sum;
    return sum;
}

static bool arrive(walk *w, const tsr_tensor *t, tsr_tensor *grad)
{
    flow *f = tsri_pool_alloc(w->pool, sizeof *f);
    if (!f) {
        tsri_graph_fail_last(w->g, TSR_ERR_NO_MEMORY);
        return false;
    }
    *f = (flow){w->flows[t->id], grad};
    w->flows[t->id] = f;
    return true;
}

static bool visit(walk *w, tsri_op *op)
{
    tsr_tensor *dout[TSRI_RULE_MAX_ARGS] = {0}, *din[TSRI_RULE_MAX_ARGS] = {0};
    bool want[TSRI_RULE_MAX_ARGS] = {0}, any_want = false, any_dout = false;
    for (int i = 0; i < op->nin && !op->detached; i++)
        any_want |= want[i] = w->depends[op->in[i]->id];
    if (!any_want)
        return true;
    const char *scope = w->g->now.scope, *label = w->g->now.label;
    const tsri_stage stage = w->g->now.stage;
    w->g->now.scope = op->name;
    w->g->now.label = op->label;
    w->g->now.stage = (tsri_stage){op->stage, op->placement};
    const bool goes_on_here = goes_on(w, op);
    if (!goes_on_here)
        close_call(w);
    for (int i = 0; i < op->nout; i++)
        any_dout |= (dout[i] = collect(w, op->out[i])) != NULL;
    if (!goes_on_here)
        tsri_declare_begin(w->g);
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    bool ok = true;
    if (any_dout && op->kind == TSRI_OP_TO_GLOBAL) {
        if (op->back.ndim)
            dout[0] = tsr_to_global_at(dout[0], NULL, op->back, op->loc.file, op->loc.line);
        /* Back to where the value came from; the signature is inferred like any other. */
        din[0] = op->in[0]->placement == op->placement
                     ? dout[0]
                     : tsr_to_global_at(dout[0], op->in[0]->placement, TSR_AUTO, op->loc.file,
                                        op->loc.line);
        if (!din[0]->failed)
            din[0]->op->stage = op->in[0]->op->stage;
    } else if (any_dout && def && def->gradient) {
        def->gradient(op, dout, want, din);
    } else if (any_dout) {
        tsri_graph_fail(w->g, op->loc, TSR_ERR_UNSUPPORTED, "%s has no gradient",
                        tsri_op_title(op->kind, &op->attrs));
    }
    w->call = op->out[0]->call;
    if (!w->call)
        tsri_declare_end(w->g);
    for (int i = 0; i < op->nin && ok; i++)
        if (din[i] && want[i])
            ok = arrive(w, op->in[i], din[i]);
    w->g->now.scope = scope;
    w->g->now.label = label;
    w->g->now.stage = stage;
    return ok && w->g->failure.status == TSR_OK;
}

/* Returns the tensor that autocast made in place of x in another type without reading x: it casts
 * the operand of tsr_to_global, and not the result. NULL: there is none. */
static const tsr_tensor *twin_of(const walk *w, const tsr_tensor *x, int i)
{
    const tsr_tensor *as = x->as[i];
    return as && as->op->kind == TSRI_OP_TO_GLOBAL && as->id < w->ntensors ? as : NULL;
}

/* Marks what depends on x among the first `nops` ops. */
static void mark(walk *w, int nops, int n, tsr_tensor *const *x)
{
    for (int i = 0; i < n; i++) {
        w->depends[x[i]->id] = true;
        for (int k = 0; k < TSRI_AUTOCAST_DTYPES; k++)
            if (twin_of(w, x[i], k))
                w->depends[twin_of(w, x[i], k)->id] = true;
    }
    for (int i = 0; i < nops; i++) {
        const tsri_op *op = w->g->ops[i];
        bool any = false;
        for (int j = 0; j < op->nin && !op->detached; j++)
            any |= w->depends[op->in[j]->id];
        for (int j = 0; j < op->nout && any; j++)
            w->depends[op->out[j]->id] |= tsri_is_float(op->out[j]->dtype);
    }
}

/* Sums what has arrived at x and its twins: NULL if nothing. */
static tsr_tensor *collect_all(walk *w, const tsr_tensor *x, tsri_loc loc)
{
    tsr_tensor *dx = collect(w, x);
    for (int i = 0; i < TSRI_AUTOCAST_DTYPES; i++) {
        const tsr_tensor *twin = twin_of(w, x, i);
        tsr_tensor *dtwin = twin ? collect(w, twin) : NULL;
        if (!dtwin)
            continue;
        dtwin = tsr_cast_at(dtwin, x->dtype, loc.file, loc.line);
        dx = dx ? tsr_add_at(dx, dtwin, loc.file, loc.line) : dtwin;
    }
    return dx;
}

bool tsri_differentiate(tsr_tensor *y, int n, tsr_tensor *const *x, tsr_tensor **out, tsri_loc loc)
{
    tsr_graph *g = y->graph;
    int ntensors = g->ntensors, last = y->op->id;
    tsri_pool pool;
    tsri_pool_init(&pool, &g->world->mem);
    walk w = {.g = g, .pool = &pool, .ntensors = ntensors};
    w.depends = tsri_pool_alloc(&pool, (size_t)ntensors * sizeof *w.depends);
    w.flows = tsri_pool_alloc(&pool, (size_t)ntensors * sizeof(flow *));
    const bool was_backward = g->now.in_backward;
    const char *label = g->now.label;
    y->is_loss = tsr_dims_count(y->shape) == 1;
    g->now.in_backward = true;
    g->now.label = tsri_op_called(y->op);
    bool ok = w.depends && w.flows;
    if (!ok)
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
    if (ok) {
        mark(&w, last + 1, n, x);
        ok = arrive(&w, y, tsri_make_fill(g, y->shape, y->dtype, y->placement, 1, loc));
    }
    /* Operands come before their op, so going down the list all uses of a tensor have been seen
     * when the op that makes it is reached. */
    for (int i = last; i >= 0 && ok; i--)
        ok = visit(&w, g->ops[i]);
    close_call(&w);
    /* A gradient may be a tensor that the program already has: that of x * u to x is u. The user
     * gets a view of it, so that gradients of the view do not hold what other readers of u add. */
    for (int i = 0; i < n && ok; i++) {
        x[i]->op->differentiated = true;
        tsr_tensor *dx = w.depends[y->id] ? collect_all(&w, x[i], loc) : NULL;
        out[i] = dx && dx->id < ntensors ? tsri_as_result(dx, dx, loc) : dx;
    }
    g->now.in_backward = was_backward;
    g->now.label = label;
    tsri_pool_finish(&pool);
    return ok && g->failure.status == TSR_OK;
}

static bool check_gradients(const tsri_ctx *c, const tsr_tensor *y, int n, tsr_tensor *const *x,
                            tsr_tensor *const *out_dx)
{
    if (n > 0 && (!x || !out_dx))
        return tsri_op_refuse(c, TSR_ERR_INVALID, "%s is NULL; it must have n = %d places",
                              x ? "out_dx" : "x", n);
    for (int i = 0; i < n; i++) {
        if (tsri_live_check(x[i], TSRI_LIVE_TENSOR, c->op) != TSR_OK)
            return tsri_op_refuse_last(c, TSR_ERR_INVALID);
        if (!x[i] || x[i]->failed)
            return false;
        if (x[i]->graph != c->g)
            return tsri_op_refuse(c, TSR_ERR_INVALID, "x[%d] belongs to another graph", i);
    }
    return tsri_is_float(y->dtype) ||
           tsri_op_refuse(c, TSR_ERR_DTYPE, "y is %s; only floating-point values have gradients",
                          tsr_dtype_name(y->dtype));
}

void tsr_gradients_at(tsr_tensor *y, int n, tsr_tensor *const *x, tsr_tensor **out_dx,
                      const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    bool ok = tsri_op_begin(&c, "gradients", 1, &y, 0, loc);
    for (int i = 0; i < n && out_dx; i++)
        out_dx[i] = c.failed;
    if (!ok || !check_gradients(&c, y, n, x, out_dx))
        return;
    ok = tsri_differentiate(y, n, x, out_dx, loc);
    for (int i = 0; i < n; i++)
        if (!ok)
            out_dx[i] = c.failed;
        else if (!out_dx[i])
            out_dx[i] = tsri_op_fail(&c, TSR_ERR_STATE, "y does not depend on x[%d]", i);
}
