/* SPDX-License-Identifier: Apache-2.0 */
/* What moves elements: reshape, permute, broadcast, joining, cutting. */
#include <math.h>

#include "program.h"

bool gen_begin(gen *g, pnode *n, int x)
{
    if (x < 0)
        return false;
    const pnode *a = gen_at(g, x);
    n->nin = 1;
    n->in[0] = x;
    n->shape = a->shape;
    n->dtype = a->dtype;
    n->place = a->place;
    n->below = a->below;
    return true;
}

static int any_x(gen *g, int low, int high)
{
    if (rnd_chance(&g->r, 0.12)) {
        int x = gen_any(g, TSR_I64);
        if (x >= 0 && gen_at(g, x)->shape.ndim >= low)
            return x;
    }
    return gen_float(g, low, high);
}

/* The same elements in the same order, as an entry of its own. */
static int eval_same(walk *w, const pnode *n, const int *in)
{
    int64_t count = count_of(n->shape);
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < count; i++)
        from[i] = (tape_from){0, (int32_t)i, 1};
    return tape_move(w->t, count, 1, in, from);
}

static bool draw_reshape(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 0, 5)))
        return false;
    int64_t count = count_of(n->shape);
    tsr_dims d = {0};
    if (count == 0) {
        d = gen_dims(g, 1, 3);
        d.d[rnd_below(&g->r, d.ndim)] = 0;
    }
    for (int64_t left = count; count && d.ndim < 4;) {
        int64_t f = 1 + rnd_below(&g->r, 6);
        while (left % f)
            f--;
        d.d[d.ndim++] = f;
        left /= f;
        if (left == 1 && rnd_chance(&g->r, 0.8))
            break;
        if (d.ndim == 3) {
            d.d[d.ndim++] = left;
            break;
        }
    }
    if (rnd_chance(&g->r, 0.15))
        d = n->shape; /* which does nothing */
    if (count == 1 && rnd_chance(&g->r, 0.3))
        d = TSR_SCALAR;
    if (count_of(d) != count)
        return false;
    n->dims[0] = d;
    if (count && d.ndim && rnd_chance(&g->r, 0.3))
        n->dims[0].d[rnd_below(&g->r, d.ndim)] = -1;
    n->shape = d;
    return true;
}

static tsr_tensor *declare_reshape(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_reshape(in[0], n->dims[0]);
}
static const op_def op_reshape = {
    "reshape", "tsr_reshape($0, @0)", draw_reshape, declare_reshape, eval_same, 8};

static bool draw_flatten(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 1, 5)))
        return false;
    int from = rnd_below(&g->r, n->shape.ndim);
    n->i[0] = from;
    for (int i = from + 1; i < n->shape.ndim; i++)
        n->shape.d[from] *= n->shape.d[i];
    for (int i = from + 1; i < n->shape.ndim; i++)
        n->shape.d[i] = 0;
    n->shape.ndim = from + 1;
    return true;
}

static tsr_tensor *declare_flatten(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_flatten(in[0], (int)n->i[0]);
}
static const op_def op_flatten = {
    "flatten", "tsr_flatten($0, #0)", draw_flatten, declare_flatten, eval_same, 3};

static bool draw_detach(gen *g, pnode *n)
{
    return gen_begin(g, n, any_x(g, 0, 5));
}

static tsr_tensor *declare_detach(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    (void)n;
    return tsr_detach(in[0]);
}

static int eval_detach(walk *w, const pnode *n, const int *in)
{
    if (w->nudge) /* differences look through it */
        return eval_same(w, n, in);
    int y = tape_detach(w->t, in[0]);
    tape_at(w->t, y)->addends = tape_at(w->t, in[0])->addends;
    return y;
}
static const op_def op_detach = {"detach",       "tsr_detach($0)", draw_detach,
                                 declare_detach, eval_detach,      3};

static bool draw_transpose(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 1, 4)) || n->shape.ndim < 1)
        return false;
    int nd = n->shape.ndim, a = rnd_below(&g->r, nd), b = rnd_below(&g->r, nd);
    int64_t t = n->shape.d[a];
    n->shape.d[a] = n->shape.d[b];
    n->shape.d[b] = t;
    n->i[0] = a;
    n->i[1] = rnd_chance(&g->r, 0.3) ? b - nd : b;
    return true;
}

static tsr_tensor *declare_transpose(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_transpose(in[0], (int)n->i[0], (int)n->i[1]);
}

static int eval_transpose(walk *w, const pnode *n, const int *in)
{
    int perm[TSR_MAX_NDIM], nd = n->shape.ndim;
    int a = (int)n->i[0], b = (int)(n->i[1] < 0 ? n->i[1] + nd : n->i[1]);
    for (int i = 0; i < nd; i++)
        perm[i] = i == a ? b : i == b ? a : i;
    return eval_permute(w->t, in[0], w->g->node[n->in[0]].shape, perm);
}
static const op_def op_transpose = {
    "transpose", "tsr_transpose($0, #0, #1)", draw_transpose, declare_transpose, eval_transpose, 5};

static bool draw_permute(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 1, 4)) || n->shape.ndim < 1)
        return false;
    tsr_dims from = n->shape;
    n->axes.n = from.ndim;
    for (int i = 0; i < from.ndim; i++) {
        int j = rnd_below(&g->r, i + 1);
        n->axes.axis[i] = n->axes.axis[j];
        n->axes.axis[j] = i;
    }
    for (int i = 0; i < from.ndim; i++)
        n->shape.d[i] = from.d[n->axes.axis[i]];
    return true;
}

static tsr_tensor *declare_permute(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_permute(in[0], n->axes);
}

static int eval_permute_op(walk *w, const pnode *n, const int *in)
{
    return eval_permute(w->t, in[0], w->g->node[n->in[0]].shape, n->axes.axis);
}
static const op_def op_permute = {"permute",       "tsr_permute($0, ^A)", draw_permute,
                                  declare_permute, eval_permute_op,       4};

static bool draw_expand(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 0, 3)))
        return false;
    tsr_dims d = n->shape;
    for (int i = 0; i < d.ndim; i++)
        if (d.d[i] == 1 && rnd_chance(&g->r, 0.6))
            d.d[i] = gen_size(g);
    if (rnd_chance(&g->r, 0.5) && d.ndim < 4) {
        for (int i = d.ndim++; i > 0; i--)
            d.d[i] = d.d[i - 1];
        d.d[0] = gen_rows(g, gen_size(g));
    }
    n->dims[0] = n->shape = d;
    return count_of(d) <= 200;
}

static tsr_tensor *declare_expand(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_expand(in[0], n->dims[0]);
}

static int eval_expand(walk *w, const pnode *n, const int *in)
{
    int64_t count = count_of(n->shape);
    const int32_t *at = eval_spread(w->t, w->g->node[n->in[0]].shape, n->shape);
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < count; i++)
        from[i] = (tape_from){0, at ? at[i] : (int32_t)i, 1};
    return tape_move(w->t, count, 1, in, from);
}
static const op_def op_expand = {"expand",       "tsr_expand($0, @0)", draw_expand,
                                 declare_expand, eval_expand,          4};

/* --- joining: i[0] the axis ------------------------------------------------------------------- */
static bool draw_join(gen *g, pnode *n, bool stack)
{
    int x = any_x(g, stack ? 0 : 1, 3);
    if (!gen_begin(g, n, x) || (!stack && !n->shape.ndim))
        return false;
    int most = rnd_chance(&g->r, 0.1) ? 11 : 4;
    int nd = n->shape.ndim + stack, axis = rnd_below(&g->r, nd), count = 1 + rnd_below(&g->r, most);
    tsr_dims d = n->shape, sum = d;
    n->below = 0;
    if (stack) {
        for (int i = sum.ndim++; i > axis; i--)
            sum.d[i] = sum.d[i - 1];
        sum.d[axis] = 1;
    }
    for (n->nin = 1; n->nin < count; n->nin++) {
        tsr_dims other = d;
        if (!stack)
            other.d[axis] = rnd_chance(&g->r, 0.5) ? d.d[axis] : gen_size(g);
        bool again = !stack && rnd_chance(&g->r, 0.2);
        int y = again ? x : gen_like(g, other, n->dtype, n->place);
        if (y < 0)
            return false;
        n->in[n->nin] = y;
        sum.d[axis] += stack ? 1 : gen_at(g, y)->shape.d[axis];
    }
    n->i[0] = rnd_chance(&g->r, 0.2) ? axis - nd : axis;
    n->shape = sum;
    return count_of(sum) <= 250;
}

static bool draw_concat(gen *g, pnode *n)
{
    return draw_join(g, n, false);
}

static bool draw_stack(gen *g, pnode *n)
{
    return draw_join(g, n, true);
}

static tsr_tensor *declare_concat(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_concat(n->nin, in, (int)n->i[0]);
}

static tsr_tensor *declare_stack(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_stack(n->nin, in, (int)n->i[0]);
}

/* A stack is a concat of operands with one more axis of 1. */
static int eval_join(walk *w, const pnode *n, const int *in)
{
    tsr_dims d = n->shape;
    int axis = (int)(n->i[0] < 0 ? n->i[0] + d.ndim : n->i[0]);
    bool stack = w->g->node[n->in[0]].shape.ndim < d.ndim;
    int64_t inner = 1, count = count_of(d);
    for (int i = axis + 1; i < d.ndim; i++)
        inner *= d.d[i];
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < count; i++) {
        int64_t in_row = i / inner % d.d[axis], row = i / inner / d.d[axis];
        int k = 0;
        int64_t size;
        while (in_row >= (size = stack ? 1 : w->g->node[n->in[k]].shape.d[axis])) {
            in_row -= size;
            k++;
        }
        from[i] = (tape_from){k, (int32_t)((row * size + in_row) * inner + i % inner), 1};
    }
    return tape_move(w->t, count, n->nin, in, from);
}
static const op_def op_concat = {
    "concat", "tsr_concat(^L, #0)", draw_concat, declare_concat, eval_join, 5};
static const op_def op_stack = {"stack",       "tsr_stack(^L, #0)", draw_stack,
                                declare_stack, eval_join,           3};

/* --- cutting ---------------------------------------------------------------------------------- */
/* Element i of the result is x[start + i step] per axis; outside of x it is `value`. */
static int eval_cut(walk *w, int x, tsr_dims xd, tsr_dims d, const int64_t *start,
                    const int64_t *step, double value)
{
    int64_t count = count_of(d);
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at = 0, stride = 1;
        bool inside = true;
        for (int k = d.ndim - 1; k >= 0; k--) {
            int64_t c = start[k] + rest % d.d[k] * step[k];
            rest /= d.d[k];
            inside &= c >= 0 && c < xd.d[k];
            at += c * stride;
            stride *= xd.d[k];
        }
        from[i] = inside ? (tape_from){0, (int32_t)at, 1} : (tape_from){0, -1, value};
    }
    return tape_move(w->t, count, 1, &x, from);
}

/* dims: starts, ends, steps */
static bool draw_slice(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 1, 4)))
        return false;
    for (int k = 0; k < 3; k++)
        n->dims[k].ndim = n->shape.ndim;
    for (int i = 0; i < n->shape.ndim; i++) {
        int64_t size = n->shape.d[i], a = 0, b = size, s = 1;
        if (size && rnd_chance(&g->r, 0.6)) {
            a = rnd_below(&g->r, (int)size);
            b = a + rnd_below(&g->r, (int)(size - a) + 1);
            s = 1 + rnd_chance(&g->r, 0.4) * rnd_below(&g->r, 3);
            if (b == a && rnd_chance(&g->r, 0.8))
                b = a + 1;
        }
        n->shape.d[i] = (b - a + s - 1) / s;
        n->dims[0].d[i] = size && rnd_chance(&g->r, 0.2) ? a - size : a;
        n->dims[1].d[i] = b == size && rnd_chance(&g->r, 0.3) ? INT64_MAX : b;
        n->dims[2].d[i] = s;
    }
    return true;
}

static tsr_tensor *declare_slice(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_slice(in[0], n->dims[0], n->dims[1], n->dims[2]);
}

static int eval_slice(walk *w, const pnode *n, const int *in)
{
    tsr_dims xd = w->g->node[n->in[0]].shape;
    int64_t start[TSR_MAX_NDIM];
    for (int i = 0; i < xd.ndim; i++)
        start[i] = n->dims[0].d[i] < 0 ? n->dims[0].d[i] + xd.d[i] : n->dims[0].d[i];
    return eval_cut(w, in[0], xd, n->shape, start, n->dims[2].d, 0);
}
static const op_def op_slice = {
    "slice", "tsr_slice($0, @0, @1, @2)", draw_slice, declare_slice, eval_slice, 5};

/* i = axis, start, length */
static bool draw_narrow(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 1, 4)) || !n->shape.ndim)
        return false;
    int axis = rnd_below(&g->r, n->shape.ndim);
    int64_t size = n->shape.d[axis], a = size ? rnd_below(&g->r, (int)size) : 0;
    int64_t length = size - a ? 1 + rnd_below(&g->r, (int)(size - a)) : 0;
    if (rnd_chance(&g->r, 0.15))
        a = 0, length = size;
    n->i[0] = axis;
    n->i[1] = a && rnd_chance(&g->r, 0.3) ? a - size : a;
    n->i[2] = length;
    n->shape.d[axis] = length;
    return true;
}

static tsr_tensor *declare_narrow(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_narrow(in[0], (int)n->i[0], n->i[1], n->i[2]);
}

static int eval_narrow(walk *w, const pnode *n, const int *in)
{
    tsr_dims xd = w->g->node[n->in[0]].shape;
    int64_t start[TSR_MAX_NDIM] = {0}, step[TSR_MAX_NDIM];
    for (int i = 0; i < xd.ndim; i++)
        step[i] = 1;
    start[n->i[0]] = n->i[1] < 0 ? n->i[1] + xd.d[n->i[0]] : n->i[1];
    return eval_cut(w, in[0], xd, n->shape, start, step, 0);
}
static const op_def op_narrow = {
    "narrow", "tsr_narrow($0, #0, #1, #2)", draw_narrow, declare_narrow, eval_narrow, 4};

/* dims: before, after; f[0] value */
static bool draw_pad(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 1, 4)))
        return false;
    n->below = 0;
    n->dims[0].ndim = n->dims[1].ndim = n->shape.ndim;
    bool none = rnd_chance(&g->r, 0.1);
    for (int i = 0; i < n->shape.ndim; i++)
        for (int k = 0; k < 2 && !none; k++) {
            n->dims[k].d[i] = rnd_chance(&g->r, 0.5) ? 0 : rnd_below(&g->r, 3);
            n->shape.d[i] += n->dims[k].d[i];
        }
    n->f[0] = rnd_chance(&g->r, 0.5) ? 0 : rnd_below(&g->r, 4);
    return count_of(n->shape) <= 250;
}

static tsr_tensor *declare_pad(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_pad(in[0], n->dims[0], n->dims[1], n->f[0]);
}

static int eval_pad(walk *w, const pnode *n, const int *in)
{
    tsr_dims xd = w->g->node[n->in[0]].shape;
    int64_t start[TSR_MAX_NDIM], step[TSR_MAX_NDIM];
    for (int i = 0; i < xd.ndim; i++) {
        start[i] = -n->dims[0].d[i];
        step[i] = 1;
    }
    return eval_cut(w, in[0], xd, n->shape, start, step, n->f[0]);
}
static const op_def op_pad = {"pad", "tsr_pad($0, @0, @1, %0)", draw_pad, declare_pad, eval_pad, 5};

/* One part of a tsr_split that cuts all of the axis: i = axis, n, which, sizes... */
static bool draw_split(gen *g, pnode *n)
{
    if (!gen_begin(g, n, any_x(g, 1, 4)) || !n->shape.ndim)
        return false;
    int axis = rnd_below(&g->r, n->shape.ndim), parts = 1 + rnd_below(&g->r, 4);
    int64_t left = n->shape.d[axis];
    n->i[0] = axis;
    n->i[1] = parts;
    n->i[2] = rnd_below(&g->r, parts);
    for (int k = 0; k < parts; k++) {
        int64_t size = k == parts - 1 ? left : left ? rnd_below(&g->r, (int)left + 1) : 0;
        n->i[3 + k] = size;
        left -= size;
    }
    n->shape.d[axis] = n->i[3 + n->i[2]];
    return true;
}

static tsr_tensor *declare_split(declared *d, const pnode *n, tsr_tensor *const *in)
{
    tsr_tensor *y[4];
    (void)d;
    tsr_split(in[0], (int)n->i[1], n->i + 3, (int)n->i[0], y);
    return y[n->i[2]];
}

static int eval_split(walk *w, const pnode *n, const int *in)
{
    tsr_dims xd = w->g->node[n->in[0]].shape;
    int64_t start[TSR_MAX_NDIM] = {0}, step[TSR_MAX_NDIM];
    for (int i = 0; i < xd.ndim; i++)
        step[i] = 1;
    for (int k = 0; k < n->i[2]; k++)
        start[n->i[0]] += n->i[3 + k];
    return eval_cut(w, in[0], xd, n->shape, start, step, 0);
}
static const op_def op_split = {"split", "SPLIT", draw_split, declare_split, eval_split, 4};

/* --- triangles: i[0] the diagonal ------------------------------------------------------------- */
static bool draw_triangle(gen *g, pnode *n)
{
    int x = any_x(g, 2, 4);
    if (!gen_begin(g, n, x) || n->shape.ndim < 2)
        return false;
    n->i[0] = rnd_below(&g->r, 5) - 2;
    return true;
}

static int eval_triangle(walk *w, const pnode *n, int x, bool upper)
{
    int64_t count = count_of(n->shape), c = n->shape.d[n->shape.ndim - 1],
            r = n->shape.d[n->shape.ndim - 2];
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < count; i++) {
        int64_t off = i % c - i / c % r;
        bool keep = upper ? off >= n->i[0] : off <= n->i[0];
        from[i] = keep ? (tape_from){0, (int32_t)i, 1} : (tape_from){0, -1, 0};
    }
    return tape_move(w->t, count, 1, &x, from);
}

static tsr_tensor *declare_triu(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_triu(in[0], n->i[0]);
}

static tsr_tensor *declare_tril(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_tril(in[0], n->i[0]);
}

static int eval_triu(walk *w, const pnode *n, const int *in)
{
    return eval_triangle(w, n, in[0], true);
}

static int eval_tril(walk *w, const pnode *n, const int *in)
{
    return eval_triangle(w, n, in[0], false);
}
static const op_def op_triu = {"triu",       "tsr_triu($0, #0)", draw_triangle,
                               declare_triu, eval_triu,          2};
static const op_def op_tril = {"tril",       "tsr_tril($0, #0)", draw_triangle,
                               declare_tril, eval_tril,          2};

extern const op_def *const ops_shape[];
const op_def *const ops_shape[] = {&op_reshape, &op_flatten, &op_detach, &op_transpose, &op_permute,
                                   &op_expand,  &op_concat,  &op_stack,  &op_slice,     &op_narrow,
                                   &op_pad,     &op_split,   &op_triu,   &op_tril,      NULL};
