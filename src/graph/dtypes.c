/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dtypes in which ops are made, where those of their operands are not the whole answer:
 * autocast, and halves in functions that are made of several ops.
 *
 * A function gives in halves what it gives in f32, rounded once. The ops that it is made of are
 * declared in halves, as in any dtype, so that it checks and reports the dtypes that the user gave;
 * but an op that reads a half which an op of the same call has made reads what was rounded there
 * instead, and is computed in f32 itself. That value is declared when the first op asks for it, as
 * a copy of the op that was rounded; the rounded one, if nothing reads it in the end, is no part of
 * a plan. So an op that is a function by itself stays as it is, with its kernels for halves.
 */
#include <string.h>

#include "src/core/live.h"
#include "src/graph/stage.h"

/* --- autocast --------------------------------------------------------------------------------- */
/* The place of a type in tsr_tensor's `as`; -1: autocast lets it be. */
static int autocast_place(tsr_dtype dtype)
{
    return dtype == TSR_F32 ? 0 : dtype == TSR_F16 ? 1 : dtype == TSR_BF16 ? 2 : -1;
}

/* Whether a cast of x stands before what brings x to a placement and a signature, so that fewer
 * bytes go there. A partial sum is of f32 addends. */
static bool goes_before(const tsr_tensor *x, tsr_dtype dtype)
{
    if (x->op->kind != TSRI_OP_TO_GLOBAL || tsr_dtype_size(dtype) >= tsr_dtype_size(x->dtype))
        return false;
    for (int d = 0; d < x->op->sbp.ndim; d++)
        if (x->op->sbp.d[d].kind == TSR_SBP_PARTIAL)
            return false;
    return true;
}

/* Whether x is a half that the open call has made and not rounded in the user's sense yet. */
static bool is_deferred(const tsr_tensor *x)
{
    return x->call && x->call == x->graph->now.call && tsri_is_half(x->dtype);
}

tsr_tensor *tsri_autocast_to(tsr_tensor *x, tsr_dtype dtype, tsri_loc loc)
{
    tsr_graph *g = x->graph;
    const int from = autocast_place(x->dtype), to = autocast_place(dtype);
    if (x->failed || x->dtype == dtype || from < 0 || to < 0)
        return x;
    if (dtype == TSR_F32 && is_deferred(x))
        return tsri_unrounded(x, loc);
    /* A tensor that autocast made wider gives its narrow one back. (One that the user made wider
     * may be what gradients are asked of.) */
    if (x->op->kind == TSRI_OP_CAST && x->op->in[0]->dtype == dtype && x->op->in[0]->as[from] == x)
        return x->op->in[0];
    tsr_tensor **as = &x->as[to];
    if (*as)
        return *as;
    tsri_op *op;
    if (goes_before(x, dtype)) {
        tsr_tensor *cast = tsri_autocast_to(x->op->in[0], dtype, loc);
        op = cast->failed ? NULL
                          : tsri_graph_append(g, TSRI_OP_TO_GLOBAL, &x->op->attrs, 1, &cast, 1,
                                              &x->shape, &dtype, x->op->placement, loc);
        if (op) {
            op->sbp = x->op->sbp;
            op->back = x->op->back;
            op->said_by = x->op->said_by;
            op->stage = x->op->stage;
        }
    } else {
        op = tsri_graph_append(g, TSRI_OP_CAST, NULL, 1, &x, 1, &x->shape, &dtype, NULL, loc);
    }
    if (!op)
        return &g->failure.tensor;
    if (x->op->kind == TSRI_OP_VARIABLE || x->op->kind == TSRI_OP_TO_GLOBAL)
        op->name = x->op->name;
    op->out[0]->call = 0; /* rounded because the user says so */
    return *as = op->out[0];
}

static tsri_autocast autocast_of(const tsri_op_def *def, const tsri_attrs *attrs)
{
    return def->autocast_of ? def->autocast_of(attrs) : def->autocast;
}

/* The type in which autocast makes an op; NONE: it lets it be. */
static tsr_dtype autocast_dtype(const tsr_graph *g, const tsri_op_def *def, const tsri_attrs *attrs,
                                int nin, tsr_tensor *const *in)
{
    const tsri_autocast how = autocast_of(def, attrs);
    tsr_dtype widest = TSR_DTYPE_NONE;
    for (int i = 0; i < nin && how != TSRI_AUTOCAST_NONE; i++)
        if (autocast_place(in[i]->dtype) >= 0)
            widest = !widest || widest == in[i]->dtype ? in[i]->dtype : TSR_F32;
    if (!widest)
        return TSR_DTYPE_NONE;
    return how == TSRI_AUTOCAST_LOW ? g->now.autocast : how == TSRI_AUTOCAST_F32 ? TSR_F32 : widest;
}

/* --- halves in functions ---------------------------------------------------------------------- */
void tsri_declare_begin(tsr_graph *g)
{
    if (g->now.depth++ == 0)
        g->now.call = ++g->now.ncalls;
}

void tsri_declare_end(tsr_graph *g)
{
    if (--g->now.depth == 0)
        g->now.call = 0;
}

/* Appends an op in f32 where its results would be halves. Its operands are what was rounded; with
 * `keep` they stay as they are. */
static tsri_op *append_wide(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                            tsr_tensor *const *in, int nout, const tsr_dims *shapes,
                            const tsr_dtype *dtypes, const tsr_placement *p, bool keep,
                            tsri_loc loc)
{
    tsr_tensor *wide_in[TSRI_RULE_MAX_ARGS];
    tsr_dtype wide_out[TSRI_RULE_MAX_ARGS];
    for (int i = 0; i < nin; i++)
        wide_in[i] = keep ? in[i] : tsri_unrounded(in[i], loc);
    for (int i = 0; i < nout; i++)
        wide_out[i] = tsri_is_half(dtypes[i]) ? TSR_F32 : dtypes[i];
    return tsri_graph_append(g, kind, attrs, nin, wide_in, nout, shapes, wide_out, p, loc);
}

/* Whether an op sums halves of which none is to be rounded: its kernels read them, and write f32.
 */
static bool sums_halves(const tsr_graph *g, const tsri_op *op)
{
    const tsri_op_def *def = g->now.def_of(op->kind);
    bool deferred = false;
    for (int i = 0; i < op->nin; i++)
        deferred |= is_deferred(op->in[i]) && !op->in[i]->moved;
    return def->sums && def->sums(&op->attrs) && !deferred;
}

/* Declares what the results of an op are the roundings of. */
static void copy_wide(tsr_graph *g, tsri_op *op)
{
    tsr_tensor *x = op->nin ? op->in[0] : NULL;
    if (op->kind == TSRI_OP_CAST && x->dtype == TSR_F32) {
        op->out[0]->full = x;
        return;
    }
    tsr_dims shapes[TSRI_RULE_MAX_ARGS];
    tsr_dtype dtypes[TSRI_RULE_MAX_ARGS];
    for (int i = 0; i < op->nout; i++) {
        shapes[i] = op->out[i]->shape;
        dtypes[i] = op->out[i]->dtype;
    }
    tsri_op *copy = append_wide(g, op->kind, &op->attrs, op->nin, op->in, op->nout, shapes, dtypes,
                                op->placement, sums_halves(g, op), op->loc);
    if (!copy)
        return;
    copy->sbp = op->sbp;
    copy->stage = op->stage;
    copy->detached = op->detached;
    copy->evaluates = op->evaluates;
    copy->is_copy = true;
    for (int i = 0; i < op->nout; i++)
        if (tsri_is_half(dtypes[i]))
            op->out[i]->full = copy->out[i];
}

tsr_tensor *tsri_unrounded(tsr_tensor *x, tsri_loc loc)
{
    if (x->failed || !tsri_is_half(x->dtype))
        return x;
    if (!is_deferred(x))
        return tsri_autocast_to(x, TSR_F32, loc);
    if (!x->full)
        copy_wide(x->graph, x->op);
    return x->full ? x->full : &x->graph->failure.tensor;
}

/* Returns the op as its caller is to see it: its results are roundings of those that are f32
 * where `dtypes` has halves. NULL: it failed. */
static tsri_op *round_results(tsr_graph *g, tsri_op *op, const tsr_dtype *dtypes, tsri_loc loc)
{
    tsri_op *seen = op ? tsri_pool_dup(&g->pool, op, sizeof *op) : NULL;
    if (seen)
        seen->out = tsri_pool_dup(&g->pool, op->out, (size_t)op->nout * sizeof *op->out);
    if (!seen || !seen->out) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return NULL;
    }
    for (int i = 0; i < op->nout; i++) {
        tsr_tensor *full = op->out[i];
        if (full->dtype == dtypes[i])
            continue;
        tsri_op *cast = tsri_graph_append(g, TSRI_OP_CAST, NULL, 1, &full, 1, &full->shape,
                                          &dtypes[i], NULL, loc);
        if (!cast)
            return NULL;
        seen->out[i] = cast->out[0];
        seen->out[i]->full = full;
    }
    return seen;
}

/* How a call declares an op: in the dtypes given, or in f32. */
typedef struct making {
    bool wide, keep; /* f32; its operands stay as they are */
    bool final;      /* rounding its results is the user's word, */
    bool moves;      /* or changes nothing */
} making;

static making how_to_make(const tsr_graph *g, const tsri_op_def *def, const tsri_attrs *attrs,
                          int nin, tsr_tensor *const *in, int nout, const tsr_dtype *dtypes)
{
    bool deferred = false, halves = false;
    for (int i = 0; i < nin; i++)
        deferred |= is_deferred(in[i]) && !in[i]->moved;
    for (int i = 0; i < nout; i++)
        halves |= tsri_is_half(dtypes[i]);
    if (def->keeps_dtype || def->is_update ||
        (tsri_autocasts(g) && autocast_of(def, attrs) == TSRI_AUTOCAST_LOW))
        return (making){.final = true};
    if (def->exact_of ? def->exact_of(attrs) : def->is_exact)
        return (making){.moves = nin > 0 && !deferred};
    if (deferred)
        return (making){.wide = true};
    const bool sums = halves && !g->now.in_backward && def->sums && def->sums(attrs);
    return (making){.wide = sums, .keep = sums};
}

/* Appends the cast of a value that is not rounded yet. */
static tsri_op *cast_unrounded(tsr_graph *g, tsr_tensor *x, tsr_dtype dtype, tsri_loc loc)
{
    tsr_tensor *full = tsri_unrounded(x, loc);
    if (full->failed)
        return NULL;
    if (dtype != TSR_F32) {
        tsri_op *op =
            tsri_graph_append(g, TSRI_OP_CAST, NULL, 1, &full, 1, &full->shape, &dtype, NULL, loc);
        if (op && tsri_is_half(dtype))
            op->out[0]->full = full;
        return op;
    }
    tsri_op *seen = tsri_pool_dup(&g->pool, full->op, sizeof *seen);
    if (seen)
        seen->out = tsri_pool_dup(&g->pool, &full, sizeof(tsr_tensor *));
    if (seen && seen->out)
        return seen;
    tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
    return NULL;
}

/* --- adding ops ------------------------------------------------------------------------------- */
/* Appends an op to the call that is open. */
static tsri_op *add_in_call(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                            tsr_tensor *const *in, int nout, const tsr_dims *shapes,
                            const tsr_dtype *dtypes, const tsr_placement *p, tsri_loc loc)
{
    if (kind == TSRI_OP_CAST && is_deferred(in[0]))
        return cast_unrounded(g, in[0], dtypes[0], loc);
    const making how = how_to_make(g, g->now.def_of(kind), attrs, nin, in, nout, dtypes);
    if (how.wide)
        return round_results(
            g, append_wide(g, kind, attrs, nin, in, nout, shapes, dtypes, p, how.keep, loc), dtypes,
            loc);
    tsri_op *op = tsri_graph_append(g, kind, attrs, nin, in, nout, shapes, dtypes, p, loc);
    for (int i = 0; op && i < nout; i++) {
        op->out[i]->call = how.final ? 0 : g->now.call;
        op->out[i]->moved = how.moves;
    }
    return op;
}

tsri_op *tsri_graph_add(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                        tsr_tensor *const *in, int nout, const tsr_dims *shapes,
                        const tsr_dtype *dtypes, const tsr_placement *p, tsri_loc loc)
{
    static const tsri_attrs none = {0};
    tsr_tensor *cast_in[TSRI_RULE_MAX_ARGS], *here[TSRI_RULE_MAX_ARGS];
    tsr_dtype cast_out[TSRI_RULE_MAX_ARGS];
    if (nin > TSRI_RULE_MAX_ARGS || nout > TSRI_RULE_MAX_ARGS || g->failure.status != TSR_OK)
        return tsri_graph_append(g, kind, attrs, nin, in, nout, shapes, dtypes, p, loc);
    attrs = attrs ? attrs : &none;
    const tsri_stage stage = tsri_stage_of(g, nin, in);
    if (!p && stage.number && kind != TSRI_OP_ASSIGN) {
        if (!tsri_stage_gather(stage, nin, in, here, loc))
            return NULL;
        in = here;
    }
    const tsr_dtype dtype =
        tsri_autocasts(g) ? autocast_dtype(g, g->now.def_of(kind), attrs, nin, in) : TSR_DTYPE_NONE;
    for (int i = 0; dtype && i < nin; i++)
        cast_in[i] = tsri_autocast_to(in[i], dtype, loc);
    for (int i = 0; dtype && i < nout; i++)
        cast_out[i] = autocast_place(dtypes[i]) >= 0 ? dtype : dtypes[i];
    if (dtype) {
        in = cast_in;
        dtypes = cast_out;
    }
    return (g->now.call ? add_in_call : tsri_graph_append)(g, kind, attrs, nin, in, nout, shapes,
                                                           dtypes, p, loc);
}

tsr_tensor *tsri_graph_add1(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                            tsr_tensor *const *in, tsr_dims shape, tsr_dtype dtype, tsri_loc loc)
{
    tsri_op *op = tsri_graph_add(g, kind, attrs, nin, in, 1, &shape, &dtype, NULL, loc);
    return op ? op->out[0] : &g->failure.tensor;
}

tsri_op *tsri_graph_add_all_like(tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                                 tsr_tensor *const *in, int nout, const tsr_tensor *like,
                                 tsri_loc loc)
{
    tsr_dims shapes[TSRI_RULE_MAX_ARGS];
    tsr_dtype dtypes[TSRI_RULE_MAX_ARGS];
    for (int i = 0; i < nout; i++) {
        shapes[i] = like->shape;
        dtypes[i] = like->dtype;
    }
    return tsri_graph_add(like->graph, kind, attrs, nin, in, nout, shapes, dtypes, NULL, loc);
}

tsr_tensor *tsri_graph_add_like(tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                                tsr_tensor *const *in, const tsr_tensor *like, tsri_loc loc)
{
    tsri_op *op = tsri_graph_add_all_like(kind, attrs, nin, in, 1, like, loc);
    return op ? op->out[0] : &like->graph->failure.tensor;
}

/* --- regions ---------------------------------------------------------------------------------- */
void tsri_autocast_begin(tsr_graph *g, tsr_dtype dtype)
{
    if (!TSRI_PUSH(&g->pool, g->now.outer_autocast, g->now.nouter, g->now.couter)) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return;
    }
    g->now.outer_autocast[g->now.nouter++] = g->now.autocast;
    g->now.autocast = dtype;
}

void tsri_autocast_end(tsr_graph *g)
{
    g->now.autocast = g->now.outer_autocast[--g->now.nouter];
}

void tsr_autocast_at(tsr_graph *g, tsr_dtype dtype, const char *file, int line)
{
    if (!tsri_is_live(g, TSRI_LIVE_GRAPH, "autocast"))
        return;
    if (tsri_is_autocast(dtype))
        tsri_autocast_begin(g, dtype);
    else
        tsri_graph_fail(g, (tsri_loc){file, line}, TSR_ERR_DTYPE,
                        "autocast to %s; legal are f16, bf16, and f32 for none",
                        tsr_dtype_name(dtype));
}

void tsr_autocast_end_at(tsr_graph *g, const char *file, int line)
{
    if (!tsri_is_live(g, TSRI_LIVE_GRAPH, "autocast_end"))
        return;
    if (g->now.nouter > 0)
        tsri_autocast_end(g);
    else if (g->failure.status == TSR_OK)
        tsri_graph_fail(g, (tsri_loc){file, line}, TSR_ERR_STATE,
                        "autocast_end: no region is open; tsr_autocast opens one");
}
