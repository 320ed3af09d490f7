/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: creation, sticky errors, adding ops. */
#include "src/core/opts.h"
#include "src/graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/core/dims.h"
#include "src/core/live.h"
#include "src/core/rng.h"
#include "src/graph/stage.h"

static void destroy_graph(void *object)
{
    tsr_graph *g = object;
    if (g->evals.drop)
        g->evals.drop(g);
    tsri_pool pool = g->pool;
    tsri_world_disown(&g->owned);
    for (int i = 0; i < g->ntensors; i++)
        tsri_live_remove(g->tensors[i], TSRI_LIVE_TENSOR);
    tsri_live_remove(&g->failure.tensor, TSRI_LIVE_TENSOR);
    tsri_live_remove(g, TSRI_LIVE_GRAPH);
    tsri_pool_finish(&pool); /* g itself lives in it */
}

/* Gradients of a tsr_ddp are written and not read. */
static void forget(tsr_graph *g, tsri_op *op, const void *v)
{
    if (op->variable == v) {
        tsri_graph_fail(g, op->loc, TSR_ERR_STATE,
                        "variable %s was destroyed, with its module or optimizer; graphs that read "
                        "it can't be compiled any more",
                        op->name);
        op->variable = NULL;
    }
    for (int j = 0; j < op->nout; j++) {
        if (op->out[j]->writes != v)
            continue;
        tsri_graph_fail(g, op->loc, TSR_ERR_STATE,
                        "variable %s, which this graph writes, was destroyed, with its module, "
                        "optimizer or tsr_ddp; the graph can't be compiled any more",
                        op->out[j]->writes->name);
        op->out[j]->writes = NULL;
    }
}

static void lose_variable(void *graph, const void *gone)
{
    tsr_graph *g = graph;
    for (int i = 0; i < g->nops; i++)
        forget(g, g->ops[i], gone);
}

tsr_graph *tsri_graph_create(tsr_world *world, const tsr_graph_opts *opts, tsri_def_fn *def_of)
{
    if (!world) {
        tsri_fail(TSR_ERR_INVALID, "tsr_graph_create: no world (did its creation fail?)");
        return NULL;
    }
    if (tsri_live_check(world, TSRI_LIVE_WORLD, "tsr_graph_create") != TSR_OK)
        return NULL;
    tsr_graph_opts o = *TSR_GRAPH_OPTS();
    if (tsri_opts_read(&o, sizeof o, opts, "tsr_graph_create") != TSR_OK)
        return NULL;
    if (o.autocast != TSR_DTYPE_NONE && !tsri_is_autocast(o.autocast)) {
        tsri_fail(TSR_ERR_DTYPE, "tsr_graph_create: autocast to %s; legal are f16, bf16 and f32",
                  tsr_dtype_name(o.autocast));
        return NULL;
    }
    tsri_pool pool;
    tsri_pool_init(&pool, &world->mem);
    tsr_graph *g = tsri_live_pool_alloc(&pool, sizeof *g, TSRI_LIVE_GRAPH);
    if (!g || tsri_live_add(&world->mem, &g->failure.tensor, TSRI_LIVE_TENSOR) != TSR_OK) {
        tsri_live_remove(g, TSRI_LIVE_GRAPH);
        tsri_pool_finish(&pool);
        return NULL;
    }
    g->world = world;
    g->pool = pool;
    g->training = o.training;
    g->local = o.local;
    g->seed = o.seed;
    g->now.autocast = o.autocast;
    g->now.def_of = def_of;
    g->now.scope = g->now.label = "";
    g->failure.tensor = (tsr_tensor){.graph = g, .failed = true};
    tsri_world_own(world, &g->owned, g, destroy_graph);
    g->owned.lose = lose_variable;
    return g;
}

void tsr_graph_destroy(tsr_graph *graph)
{
    if (tsri_is_live(graph, TSRI_LIVE_GRAPH, __func__))
        destroy_graph(graph);
}

tsr_status tsr_graph_status(const tsr_graph *graph)
{
    if (!graph)
        return tsri_fail(TSR_ERR_INVALID, "tsr_graph_status: no graph%s", tsri_error_cause());
    TSRI_TRY(tsri_live_check(graph, TSRI_LIVE_GRAPH, "tsr_graph_status"));
    return tsri_graph_status(graph);
}

tsr_status tsri_graph_status(const tsr_graph *g)
{
    if (g->failure.status != TSR_OK)
        tsri_fail(g->failure.status, "%s", g->failure.text ? g->failure.text : "no memory");
    return g->failure.status;
}

tsr_tensor *tsri_graph_fail_last(tsr_graph *g, tsr_status status)
{
    if (!g)
        return NULL;
    if (g->failure.status == TSR_OK) {
        g->failure.status = status;
        g->failure.text = tsri_pool_strdup(&g->pool, tsr_last_error());
    }
    return &g->failure.tensor;
}

tsr_tensor *tsri_graph_fail(tsr_graph *g, tsri_loc loc, tsr_status status, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tsri_fail_at(loc, status, "%s%s%s", g && g->now.scope[0] ? g->now.scope : "",
                 g && g->now.scope[0] ? ": " : "", text);
    return tsri_graph_fail_last(g, status);
}

const char *tsri_dims_text(tsr_graph *g, tsr_dims dims)
{
    char buf[TSRI_DIMS_TEXT_MAX];
    const char *text = g ? tsri_pool_printf(&g->pool, "(%s)", tsri_dims_format(dims, buf)) : NULL;
    return text ? text : "(...)";
}

tsr_graph *tsri_check_operands(const char *op, int n, tsr_tensor *const *x, uint32_t optional,
                               tsri_loc loc, tsr_tensor **out_failed)
{
    tsr_graph *g = NULL;
    bool gone = false;
    for (int i = 0; i < n; i++) {
        if (tsri_live_check(x[i], TSRI_LIVE_TENSOR, op) != TSR_OK)
            gone = true;
        else if (x[i] && !g)
            g = x[i]->graph;
    }
    *out_failed = g ? &g->failure.tensor : NULL;
    if (gone) {
        tsri_graph_fail_last(g, TSR_ERR_INVALID);
        return NULL;
    }
    const tsr_tensor *first = NULL;
    for (int i = 0; i < n; i++) {
        if (!x[i] && (optional >> i & 1))
            continue;
        if (!x[i]) {
            /* Its own error is the thread's last; the graph must learn of it. */
            if (!g && !tsri_error_cause()[0])
                tsri_fail_at(loc, TSR_ERR_INVALID,
                             "%s: operand %d is NULL; tensors come from tsr_input and the ops", op,
                             i);
            if (g && g->failure.status == TSR_OK)
                *out_failed =
                    tsri_graph_fail(g, loc, TSR_ERR_INVALID, "%s: operand %d is missing%s", op, i,
                                    tsri_error_cause());
            return NULL;
        }
        if (x[i]->failed)
            return NULL;
        if (x[i]->graph != g) {
            *out_failed = tsri_graph_fail(g, loc, TSR_ERR_INVALID,
                                          "%s: operand %d belongs to another graph", op, i);
            return NULL;
        }
        if (!first)
            first = x[i];
        if (x[i]->placement != first->placement && !tsri_stage_joins(g, n, x)) {
            *out_failed = tsri_graph_fail(
                g, loc, TSR_ERR_PLACEMENT,
                "%s: operands live on two placements, %s and %s (operand %d); bring them together "
                "with tsr_to_global",
                op, tsr_placement_text(first->placement), tsr_placement_text(x[i]->placement), i);
            return NULL;
        }
    }
    return g;
}

bool tsri_graph_check_local(tsr_graph *g, tsri_loc loc, const char *what, const char *name,
                            const tsr_placement *p)
{
    int rank = g->world->rank;
    if (!g->local || (tsr_placement_nranks(p) == 1 && tsr_placement_rank(p, 0) == rank))
        return true;
    const char *kind = tsr_device_name(tsr_placement_device(p));
    tsri_graph_fail(
        g, loc, TSR_ERR_PLACEMENT,
        "%s%s%s%s lives on %s; everything in a local graph lives on its own rank alone, "
        "here %s:[%d]",
        what, name[0] ? " '" : "", name, name[0] ? "'" : "", tsr_placement_text(p), kind, rank);
    return false;
}

static tsr_tensor *new_tensor(tsr_graph *g, tsri_op *op, int out, tsr_dims shape, tsr_dtype dtype)
{
    tsr_tensor *t = tsri_pool_alloc(&g->pool, sizeof *t);
    if (!t || !TSRI_PUSH(&g->pool, g->tensors, g->ntensors, g->ctensors) ||
        tsri_live_add(&g->world->mem, t, TSRI_LIVE_TENSOR) != TSR_OK)
        return NULL;
    /* Unused axes are zero, so shapes can be compared and hashed bytewise. */
    for (int i = shape.ndim; i < TSR_MAX_NDIM; i++)
        shape.d[i] = 0;
    *t = (tsr_tensor){.graph = g,
                      .id = g->ntensors,
                      .origin = g->ntensors,
                      .dtype = dtype,
                      .shape = shape,
                      .placement = op->placement,
                      .op = op,
                      .out = out,
                      .call = g->now.call};
    g->tensors[g->ntensors++] = t;
    return t;
}

/* The stage of an op on a placement. Inputs and constants are in none: they follow their readers.
 */
static int stage_number(const tsr_graph *g, int nin, tsr_tensor *const *in, const tsr_placement *p)
{
    const tsri_stage stage = tsri_stage_of(g, nin, in);
    return nin && stage.placement == p ? stage.number : 0;
}

tsri_op *tsri_graph_append(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                           tsr_tensor *const *in, int nout, const tsr_dims *shapes,
                           const tsr_dtype *dtypes, const tsr_placement *p, tsri_loc loc)
{
    if (g->failure.status != TSR_OK)
        return NULL;
    for (int i = 0; i < nout; i++)
        if (!tsri_dims_fit(shapes[i])) {
            tsri_graph_fail(g, loc, TSR_ERR_SHAPE,
                            "%s: a result of shape %s; at most 2^56 elements are possible",
                            tsri_op_name(kind), tsri_dims_text(g, shapes[i]));
            return NULL;
        }
    if (!tsri_graph_check_local(g, loc, tsri_op_name(kind), "", p ? p : in[0]->placement))
        return NULL;
    tsri_op *op = tsri_pool_alloc(&g->pool, sizeof *op);
    if (!op || !TSRI_PUSH(&g->pool, g->ops, g->nops, g->cops))
        goto no_memory;
    *op = (tsri_op){.id = g->nops,
                    .origin = g->nops,
                    .kind = kind,
                    .nin = nin,
                    .nout = nout,
                    .placement = p ? p : in[0]->placement,
                    .name = g->now.scope,
                    .label = g->now.label,
                    .loc = loc,
                    .backward = g->now.in_backward,
                    .optimizes = g->now.optimizes,
                    .stage = stage_number(g, nin, in, p ? p : in[0]->placement),
                    .only_if = g->now.only_if,
                    .region = g->now.in_backward || !g->now.region_depth ? 0 : g->now.nregions};
    if (attrs)
        op->attrs = *attrs;
    op->in = tsri_pool_dup(&g->pool, in, (size_t)nin * sizeof *in);
    op->out = tsri_pool_alloc(&g->pool, (size_t)nout * sizeof *op->out);
    if (!op->in || !op->out)
        goto no_memory;
    for (int i = 0; i < nout; i++)
        if (!(op->out[i] = new_tensor(g, op, i, shapes[i], dtypes[i])))
            goto no_memory;
    g->ops[g->nops++] = op;
    return op;
no_memory:
    tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
    return NULL;
}

void tsri_graph_move(tsr_graph *g, tsri_op *op, int id)
{
    for (int i = op->id; i > id; i--) {
        g->ops[i] = g->ops[i - 1];
        g->ops[i]->id = i;
    }
    g->ops[id] = op;
    op->id = id;
}

/* --- reads of variables: a hash, by address --------------------------------------------------- */
static void put_read(tsr_graph *g, tsri_op *op)
{
    uint64_t h = (uint64_t)(uintptr_t)op->variable * 0x9e3779b97f4a7c15u >> 32;
    size_t at = (size_t)h & (g->reads.size - 1);
    while (g->reads.op[at])
        at = (at + 1) & (g->reads.size - 1);
    g->reads.op[at] = op;
    g->reads.n++;
}

bool tsri_graph_note_read(tsr_graph *g, tsri_op *op)
{
    if (2 * (g->reads.n + 1) > g->reads.size) {
        tsri_op **old = g->reads.op;
        size_t nold = g->reads.size, n = nold ? 2 * nold : 32;
        tsri_op **more = tsri_pool_alloc(&g->pool, n * sizeof *more);
        if (!more)
            return false;
        g->reads.op = more;
        g->reads.size = n;
        g->reads.n = 0;
        for (size_t i = 0; i < nold; i++)
            if (old[i] && old[i]->variable)
                put_read(g, old[i]);
    }
    put_read(g, op);
    return true;
}

bool tsri_graph_note_stage(tsr_graph *g, tsri_stage stage)
{
    for (int i = 0; i < g->now.nstages; i++)
        if (g->now.stages[i].number == stage.number &&
            g->now.stages[i].placement == stage.placement)
            return true;
    if (!TSRI_PUSH(&g->pool, g->now.stages, g->now.nstages, g->now.cstages)) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return false;
    }
    g->now.stages[g->now.nstages++] = stage;
    return true;
}

tsr_tensor *tsri_graph_find_read(const tsr_graph *g, const tsr_variable *v)
{
    uint64_t h = (uint64_t)(uintptr_t)v * 0x9e3779b97f4a7c15u >> 32;
    for (size_t i = 0, at = (size_t)h; i < g->reads.size; i++, at++) {
        tsri_op *op = g->reads.op[at & (g->reads.size - 1)];
        if (!op)
            return NULL;
        /* Reads of variables that are no more have none. */
        if (op->variable == v)
            return op->out[0];
    }
    return NULL;
}

void tsri_graph_mark_live(const tsr_graph *g, bool *live)
{
    for (int i = 0; i < g->nports; i++)
        live[g->ports[i].tensor->op->id] = true;
    for (int i = g->nops; i-- > 0;) {
        const tsri_op *op = g->ops[i];
        for (int j = 0; j < op->nout; j++) {
            const tsr_tensor *t = op->out[j];
            const tsr_tensor *read = t->writes ? tsri_graph_find_read(g, t->writes) : NULL;
            live[i] |= t->writes && !t->superseded;
            if (read && live[i])
                live[read->op->id] = true;
        }
        for (int j = 0; j < op->nin && live[i]; j++)
            live[op->in[j]->op->id] = true;
    }
}

tsr_tensor *tsri_graph_read(tsr_graph *g, tsr_variable *v, tsri_loc loc)
{
    tsr_tensor *before = tsri_graph_find_read(g, v);
    if (before)
        return before;
    if (v->world != g->world)
        return tsri_graph_fail(g, loc, TSR_ERR_INVALID, "variable %s belongs to another world",
                               v->name);
    char name[512];
    tsri_variable_qualified_name(v, name, sizeof name);
    if (!tsri_graph_check_local(g, loc, "variable", name, v->placement))
        return &g->failure.tensor;
    const tsri_attrs attrs = {.variable = {.adds_up = v->adds_up.may, .base = v->adds_up.base}};
    tsri_op *op = tsri_graph_append(g, TSRI_OP_VARIABLE, &attrs, 0, NULL, 1, &v->shape, &v->dtype,
                                    v->placement, loc);
    if (!op)
        return &g->failure.tensor;
    op->only_if = NULL;
    op->out[0]->call = 0; /* as it is, in whichever call it is read first */
    op->name = tsri_pool_strdup(&g->pool, name);
    if (!op->name)
        return tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
    op->variable = v;
    const tsri_stage stage = tsri_scope_stage(v->scope);
    op->stage = stage.placement == v->placement ? stage.number : 0;
    if (!tsri_graph_note_read(g, op))
        return tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
    if (op->stage && !tsri_graph_note_stage(g, stage))
        return &g->failure.tensor;
    v->used = true;
    return op->out[0];
}

tsr_tensor *tsri_graph_current(tsr_graph *g, tsr_variable *v, tsri_loc loc)
{
    tsr_tensor *read = tsri_graph_read(g, v, loc);
    return read->failed || !read->op->latest ? read : read->op->latest;
}

void tsri_graph_write(tsr_graph *g, tsri_op *op, int i, tsr_variable *v)
{
    tsr_tensor *read = tsri_graph_find_read(g, v);
    if (op->placement != v->placement) {
        char name[TSRI_NAME_MAX];
        tsri_variable_qualified_name(v, name, sizeof name);
        tsri_graph_fail(g, op->loc, TSR_ERR_PLACEMENT,
                        "%s: variable %s lives on %s, and its new value is computed on %s: its "
                        "module's stage; place it there",
                        tsri_op_name(op->kind), name, tsr_placement_text(v->placement),
                        tsr_placement_text(op->placement));
        return;
    }
    op->out[i]->writes = v;
    if (!read)
        return;
    tsr_tensor *before = read->op->latest;
    if (before)
        before->superseded = true;
    read->op->latest = op->out[i];
}

tsr_tensor *tsri_graph_step(tsr_graph *g, const tsr_placement *p, tsri_loc loc)
{
    /* One per placement: found again among the inputs named "(step)". */
    for (int i = 0; i < g->nops; i++)
        if (g->ops[i]->kind == TSRI_OP_INPUT && g->ops[i]->placement == p &&
            !strcmp(g->ops[i]->name, TSRI_STEP_INPUT))
            return g->ops[i]->out[0];
    tsr_dims shape = TSR_SCALAR;
    tsr_dtype dtype = TSR_I64;
    tsri_op *op = tsri_graph_append(g, TSRI_OP_INPUT, NULL, 0, NULL, 1, &shape, &dtype, p, loc);
    if (!op)
        return &g->failure.tensor;
    op->name = TSRI_STEP_INPUT;
    op->sbp = tsri_sbp_b(tsr_placement_ndim(p));
    return op->out[0];
}

uint64_t tsri_graph_rng_key(tsr_graph *g, tsri_op_kind kind)
{
    int n = 0;
    for (int i = 0; i < g->nops; i++)
        n += g->ops[i]->kind == kind && g->ops[i]->nin && !g->ops[i]->backward &&
             !g->ops[i]->is_copy && !strcmp(g->ops[i]->name, g->now.scope);
    char name[768];
    snprintf(name, sizeof name, "%s/%s#%d", g->now.scope, tsri_op_name(kind), n);
    return tsri_rng_key(g->seed, name);
}

void tsri_graph_add_hook(tsr_graph *g, tsri_hook hook)
{
    if (!TSRI_PUSH(&g->pool, g->hooks, g->nhooks, g->chooks)) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return;
    }
    g->hooks[g->nhooks++] = hook;
}

bool tsr_tensor_ok(const tsr_tensor *x)
{
    return tsri_is_live(x, TSRI_LIVE_TENSOR, __func__) && !x->failed;
}

tsr_dims tsr_tensor_dims(const tsr_tensor *x)
{
    return tsr_tensor_ok(x) ? x->shape : (tsr_dims){0};
}

tsr_dtype tsr_tensor_dtype(const tsr_tensor *x)
{
    return tsr_tensor_ok(x) ? x->dtype : TSR_DTYPE_NONE;
}

const tsr_placement *tsr_tensor_placement(const tsr_tensor *x)
{
    return tsr_tensor_ok(x) ? x->placement : NULL;
}

tsr_graph *tsr_tensor_graph(const tsr_tensor *x)
{
    return tsri_is_live(x, TSRI_LIVE_TENSOR, __func__) ? x->graph : NULL;
}
