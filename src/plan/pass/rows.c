/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains without a product, on CPUs: element-wise ops with broadcasting, and reductions that they
 * end in or begin with, as losses, norms and what gradients are made of. The tensors between them
 * are as large as the operands; in a chain they stay in the cache, piece by piece.
 *
 * All members go by the same rows: those of a frame, which is the axes that the operands have in
 * front. An operand without these axes, or of size 1 along them, is read whole. A reduction over
 * axes behind the frame gives rows, as layer norm's does; one over all axes of the frame gives a
 * result of all rows, which no member may read.
 */
#include <string.h>

#include "src/plan/pass/chainer.h"

typedef struct frame {
    int n;
    int64_t dim[TSR_MAX_NDIM];
} frame;

/* The operands that a member takes by rows (bits), and whether its result is rows. */
typedef struct part {
    uint32_t walks;
    bool gives;
} part;

typedef struct grower {
    tsri_chainer *c;
    frame frame;
    part part[TSRI_CHAIN_MAX]; /* of c->member */
} grower;

static tsri_rows_role role_of(const tsri_ir *ir, const tsri_item *it)
{
    if (it->kind != TSRI_ITEM_KERNEL || it->kernel.updates || it->kernel.again ||
        !tsri_placement_can(it->placement, TSRI_CAN_ROW_KERNELS) || it->nout != 1)
        return TSRI_ROWS_NONE;
    const tsri_op_def *def = tsri_op_def_of(it->kernel.op);
    for (int i = 0; i < it->nin + it->nout; i++) {
        const tsri_value *v = &ir->values[i < it->nin ? it->in[i] : it->out[i - it->nin]];
        const bool sums = def->rows == TSRI_ROWS_NORM && i > 0 && v->dtype == TSR_F64;
        if ((v->dtype != TSR_F32 && !sums) || v->nhwc)
            return TSRI_ROWS_NONE;
    }
    return def->may_chain && !def->may_chain(&it->kernel.attrs) ? TSRI_ROWS_NONE : def->rows;
}

/* --- frames ----------------------------------------------------------------------------------- */
/* Size of axis i of a result of `ndim` axes in an operand that broadcasts to it. */
static int64_t size_along(tsr_dims d, int ndim, int i)
{
    const int lead = ndim - d.ndim;
    return i < lead ? 1 : d.d[i - lead];
}

/* Whether an operand has the frame's rows, or none of its axes. */
static bool has_rows(const frame *f, tsr_dims d, int ndim)
{
    for (int i = 0; i < f->n; i++)
        if (ndim < f->n || size_along(d, ndim, i) != f->dim[i])
            return false;
    return true;
}

static bool is_whole(const frame *f, tsr_dims d, int ndim)
{
    for (int i = 0; i < f->n; i++)
        if (ndim < f->n || size_along(d, ndim, i) != 1)
            return false;
    return true;
}

/* Whether an operand broadcasts to a result along axes in front and behind alone, so that the
 * kernels do it by runs. */
static bool spreads(tsr_dims d, tsr_dims y)
{
    int first = y.ndim, last = -1;
    for (int i = 0; i < y.ndim; i++)
        if (y.d[i] != 1 && size_along(d, y.ndim, i) != 1) {
            first = i < first ? i : first;
            last = i;
        }
    for (int i = first; i <= last; i++)
        if (size_along(d, y.ndim, i) != y.d[i])
            return false;
    return true;
}

static bool fit_map(const grower *g, const tsri_item *it, part *out)
{
    const tsri_value *values = g->c->ir->values;
    const tsr_dims y = values[it->out[0]].shape;
    int nspread = 0;
    *out = (part){0, true};
    if (!has_rows(&g->frame, y, y.ndim))
        return false;
    for (int j = 0; j < it->nin; j++) {
        const tsr_dims d = values[it->in[j]].shape;
        const bool rows = has_rows(&g->frame, d, y.ndim);
        nspread += tsr_dims_count(d) != tsr_dims_count(y);
        if ((!rows && !is_whole(&g->frame, d, y.ndim)) || !spreads(d, y))
            return false;
        out->walks |= (uint32_t)rows << j;
    }
    return nspread == 0 || (nspread == 1 && it->nin <= 2);
}

/* Finds the axes [first, end) that a reduction is over, axes of one element aside; false where it
 * is over others between them, or over none. */
static bool reduced_axes(const tsri_item *it, tsr_dims x, int *out_first, int *out_end)
{
    const uint32_t axes = it->kernel.attrs.reduce.axes;
    int first = x.ndim, end = 0;
    for (int i = 0; i < x.ndim; i++)
        if (axes >> i & 1 && x.d[i] != 1) {
            first = i < first ? i : first;
            end = i + 1;
        }
    for (int i = first; i < end; i++)
        if (!(axes >> i & 1) && x.d[i] != 1)
            return false;
    *out_first = first;
    *out_end = end;
    return first < end;
}

static bool fit_fold(const grower *g, const tsri_item *it, part *out)
{
    const tsr_dims x = g->c->ir->values[it->in[0]].shape;
    int first, end;
    if (!has_rows(&g->frame, x, x.ndim) || !reduced_axes(it, x, &first, &end))
        return false;
    *out = (part){1, first >= g->frame.n};
    for (int i = 0; i < first; i++)
        if (!out->gives && x.d[i] != 1)
            return false;
    return out->gives || end >= g->frame.n;
}

/* Layer norm takes by rows its data, which is as large as the first operand, and sums of rows. Not
 * if rows have parameters of their own. */
static bool fit_norm(const grower *g, const tsri_item *it, part *out)
{
    const tsri_value *values = g->c->ir->values;
    const tsr_dims x = values[it->in[0]].shape;
    *out = (part){0, true};
    if (g->frame.n > x.ndim - it->kernel.attrs.ln.axes || !has_rows(&g->frame, x, x.ndim))
        return false;
    for (int j = 0; j < it->nin; j++) {
        const tsri_value *v = &values[it->in[j]];
        const bool walked = v->dtype == TSR_F64 || tsr_dims_equal(v->shape, x);
        if (!walked && v->shape.ndim > it->kernel.attrs.ln.axes)
            return false;
        out->walks |= (uint32_t)walked << j;
    }
    return true;
}

/* Whether an item can be in a chain of the frame's rows. */
static bool fit(const grower *g, int item, part *out)
{
    const tsri_item *it = &g->c->ir->items[item];
    switch (role_of(g->c->ir, it)) {
    case TSRI_ROWS_MAP:
        return fit_map(g, it, out);
    case TSRI_ROWS_FOLD:
        return fit_fold(g, it, out);
    case TSRI_ROWS_NORM:
        return fit_norm(g, it, out);
    default:
        return false;
    }
}

/* --- growing a chain -------------------------------------------------------------------------- */
static bool join(grower *g, int item)
{
    tsri_chainer *c = g->c;
    const tsri_item *it = &c->ir->items[item], *first = &c->ir->items[c->member[0]];
    if (tsri_chainer_is_member(c, item))
        return true;
    if (c->nmembers == TSRI_CHAIN_MAX || c->chain[item] || it->placement != first->placement ||
        it->backward != first->backward || it->turn != first->turn ||
        !fit(g, item, &g->part[c->nmembers]))
        return false;
    c->member[c->nmembers++] = item;
    c->at = c->position[item] > c->at ? c->position[item] : c->at;
    return true;
}

/* Whether the members can be done where the last of them stands: they hand on rows alone, others
 * that read their results come behind, and what they read is made before. */
static bool holds(const grower *g)
{
    const tsri_chainer *c = g->c;
    for (int i = 0; i < c->nmembers; i++) {
        const tsri_item *it = &c->ir->items[c->member[i]];
        for (int j = 0; j < it->nin; j++) {
            const int maker = c->flow.maker[it->in[j]];
            const int from = maker >= 0 ? tsri_chainer_find(c, maker) : -1;
            if (from >= 0 ? !g->part[from].gives || !(g->part[i].walks >> j & 1)
                          : maker >= 0 && c->position[maker] >= c->at)
                return false;
        }
        const int v = it->out[0];
        for (int r = c->flow.first[v]; r < c->flow.first[v + 1]; r++)
            if (!tsri_chainer_is_member(c, c->flow.reader[r]) &&
                c->position[c->flow.reader[r]] <= c->at)
                return false;
    }
    return tsri_chainer_is_small(c);
}

/* Joins what makes a value and all that reads it, so that the value is the chain's own. */
static bool join_around(grower *g, int value)
{
    tsri_chainer *c = g->c;
    const int before = c->nmembers, at = c->at, maker = c->flow.maker[value];
    bool all = maker >= 0 && c->ir->values[value].storage == TSRI_STORAGE_ARENA &&
               c->flow.first[value] < c->flow.first[value + 1] && join(g, maker);
    for (int r = c->flow.first[value]; r < c->flow.first[value + 1] && all; r++)
        all = join(g, c->flow.reader[r]);
    if (all && holds(g))
        return c->nmembers > before;
    c->nmembers = before;
    c->at = at;
    return false;
}

static bool is_inner(const tsri_chainer *c, int value)
{
    bool inner = c->flow.first[value] < c->flow.first[value + 1];
    for (int r = c->flow.first[value]; r < c->flow.first[value + 1] && inner; r++)
        inner = tsri_chainer_is_member(c, c->flow.reader[r]);
    return inner;
}

/* Whether what the chain need not store is much beside its largest operand or result. Layer norm by
 * itself, whose inside is two sums a row, is faster op by op. */
static bool is_worth(const tsri_chainer *c)
{
    enum { PART = 8 };
    int64_t inner = 0, most = 0;
    for (int i = 0; i < c->nmembers; i++) {
        const tsri_item *it = &c->ir->items[c->member[i]];
        for (int j = 0; j <= it->nin; j++) {
            const int value = j < it->nin ? it->in[j] : it->out[0];
            const tsri_value *v = &c->ir->values[value];
            const int64_t bytes = tsr_dims_count(v->shape) * (int64_t)tsr_dtype_size(v->dtype);
            most = bytes > most ? bytes : most;
            inner += j == it->nin && is_inner(c, value) ? bytes : 0;
        }
    }
    return inner >= most / PART;
}

/* Grows a chain from an item. */
static void grow(grower *g, int item)
{
    tsri_chainer *c = g->c;
    if (!fit(g, item, &g->part[0]))
        return;
    c->member[0] = item;
    c->nmembers = 1;
    c->at = c->position[item];
    for (bool any = true; any;) {
        any = false;
        for (int i = 0; i < c->nmembers; i++) {
            const tsri_item *it = &c->ir->items[c->member[i]];
            for (int j = 0; j < it->nin; j++)
                if (g->part[i].walks >> j & 1)
                    any |= join_around(g, it->in[j]);
            if (g->part[i].gives)
                any |= join_around(g, it->out[0]);
        }
    }
    if (c->nmembers > 1 && is_worth(c))
        tsri_chainer_finish(c);
}

/* Returns the number of axes of the frame that is tried next about an item; 0: all were tried. A
 * reduction has the axes in front of those that it is over (step 0), or all up to their end (step
 * 1), layer norm the axes in front of its own, and an element-wise item any number, most first. */
static int frame_of(const grower *g, const tsri_item *it, int step, int tried)
{
    const tsr_dims x = g->c->ir->values[it->in[0]].shape;
    const tsri_rows_role role = tsri_op_def_of(it->kernel.op)->rows;
    int first, end;
    if (role == TSRI_ROWS_MAP)
        return step == 2 ? g->c->ir->values[it->out[0]].shape.ndim - tried : 0;
    if (tried > 0 || step == 2)
        return 0;
    if (role == TSRI_ROWS_NORM)
        return step == 0 ? x.ndim - it->kernel.attrs.ln.axes : 0;
    return !reduced_axes(it, x, &first, &end) ? 0 : step == 0 ? first : end;
}

/* The passes over the items begin chains with a reduction of rows, then with one of all rows, then
 * with an element-wise item. */
void tsri_chainer_rows(tsri_chainer *c)
{
    const tsri_ir *ir = c->ir;
    grower g = {.c = c};
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < ir->nitems; i++) {
            const tsri_item *it = &ir->items[i];
            if (c->chain[i] || it->nin == 0 || role_of(ir, it) == TSRI_ROWS_NONE)
                continue;
            const bool is_map = tsri_op_def_of(it->kernel.op)->rows == TSRI_ROWS_MAP;
            for (int tried = 0; !c->chain[i]; tried++) {
                g.frame.n = frame_of(&g, it, step, tried);
                if (g.frame.n <= 0)
                    break;
                memcpy(g.frame.dim, ir->values[is_map ? it->out[0] : it->in[0]].shape.d,
                       sizeof g.frame.dim);
                grow(&g, i);
            }
        }
}
