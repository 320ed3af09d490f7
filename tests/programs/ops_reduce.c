/* SPDX-License-Identifier: Apache-2.0 */
/* Over axes: sums, extremes, norms, variances; argmax and cumsum. */
#include <math.h>
#include <string.h>

#include "program.h"

static tsr_axes some_axes(gen *g, int ndim)
{
    tsr_axes a = {0};
    if (rnd_chance(&g->r, 0.3))
        return a;
    for (int i = 0; i < ndim; i++)
        if (rnd_chance(&g->r, 0.5))
            a.axis[a.n++] = rnd_chance(&g->r, 0.2) ? i - ndim : i;
    return a;
}

/* How many elements meet in one. */
static int64_t over(tsr_dims dims, uint32_t mask)
{
    int64_t n = 1;
    for (int i = 0; i < dims.ndim; i++)
        n *= mask >> i & 1 ? dims.d[i] : 1;
    return n;
}

static bool draw_over(gen *g, pnode *n, int x)
{
    if (x < 0)
        return false;
    const pnode *a = gen_at(g, x);
    n->nin = 1;
    n->in[0] = x;
    n->axes = some_axes(g, a->shape.ndim);
    n->i[0] = rnd_chance(&g->r, 0.4);
    n->dtype = a->dtype;
    n->place = a->place;
    n->shape = reduced_dims(a->shape, axes_mask(n->axes, a->shape.ndim), n->i[0]);
    return true;
}

static bool draw_sum(gen *g, pnode *n)
{
    return draw_over(g, n, rnd_chance(&g->r, 0.1) ? gen_any(g, TSR_I64) : gen_float(g, 0, 5));
}

static bool draw_float(gen *g, pnode *n)
{
    if (!draw_over(g, n, gen_float(g, 0, 5)))
        return false;
    tsr_dims d = gen_at(g, n->in[0])->shape;
    return over(d, axes_mask(n->axes, d.ndim)) > 0 || rnd_chance(&g->r, g->wild);
}

static bool draw_extreme(gen *g, pnode *n)
{
    if (!draw_over(g, n, rnd_chance(&g->r, 0.2) ? gen_any(g, TSR_I64) : gen_float(g, 0, 5)))
        return false;
    tsr_dims d = gen_at(g, n->in[0])->shape;
    return over(d, axes_mask(n->axes, d.ndim)) > 0;
}

static bool draw_variance(gen *g, pnode *n)
{
    static const double some[] = {1, 0, 0.5};
    n->f[0] = some[rnd_below(&g->r, 3)];
    if (!draw_over(g, n, gen_float(g, 0, 5)))
        return false;
    tsr_dims d = gen_at(g, n->in[0])->shape;
    return (double)over(d, axes_mask(n->axes, d.ndim)) > n->f[0];
}

static bool draw_norm(gen *g, pnode *n)
{
    static const double some[] = {2, 1, 3, 2.5};
    n->f[0] = some[rnd_below(&g->r, 4)];
    if (!draw_over(g, n, gen_float(g, 0, 5)))
        return false;
    const tape_value *v = gen_value(g, n->in[0]);
    for (int64_t i = 0; i < v->n; i++) /* the gradient at 0 is nobody's word */
        if (!(fabs(v->v[i]) > 0.01))
            return false;
    return v->n > 0;
}

static int sum_of(walk *w, const pnode *n, int x, bool mean)
{
    const pnode *a = &w->g->node[n->in[0]];
    uint32_t mask = axes_mask(n->axes, a->shape.ndim);
    double u = unit_of(n->dtype);
    int s = eval_sum(w->t, x, a->shape, mask, u);
    return mean ? tape_unary(w->t, s, FN_MULS, 1.0 / (double)over(a->shape, mask), u) : s;
}

static int eval_sum_op(walk *w, const pnode *n, const int *in)
{
    return sum_of(w, n, in[0], false);
}

static int eval_mean(walk *w, const pnode *n, const int *in)
{
    return sum_of(w, n, in[0], true);
}

static int extreme_of(walk *w, const pnode *n, int x, bool max)
{
    const pnode *a = &w->g->node[n->in[0]];
    return eval_extreme(w->t, x, a->shape, axes_mask(n->axes, a->shape.ndim), max);
}

static int eval_max(walk *w, const pnode *n, const int *in)
{
    return extreme_of(w, n, in[0], true);
}

static int eval_min(walk *w, const pnode *n, const int *in)
{
    return extreme_of(w, n, in[0], false);
}

/* Few factors, none large: the product of many is nothing or all. */
static bool draw_prod(gen *g, pnode *n)
{
    if (!draw_over(g, n, gen_float(g, 0, 5)))
        return false;
    const tape_value *v = gen_value(g, n->in[0]);
    tsr_dims d = gen_at(g, n->in[0])->shape;
    for (int64_t i = 0; i < v->n; i++)
        if (!(fabs(v->v[i]) < 4))
            return false;
    return over(d, axes_mask(n->axes, d.ndim)) <= 16;
}

/* One factor of every result after the other. */
static int eval_prod(walk *w, const pnode *n, const int *in)
{
    const pnode *a = &w->g->node[n->in[0]];
    const uint32_t mask = axes_mask(n->axes, a->shape.ndim);
    const int64_t all = count_of(a->shape), count = count_of(n->shape);
    const double u = unit_of(n->dtype);
    const int32_t *group = eval_groups(w->t, a->shape, mask);
    double *one = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *one);
    double *exact = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *exact);
    int32_t *seen = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *seen);
    for (int64_t i = 0; i < count; i++) {
        one[i] = 1;
        exact[i] = 0;
    }
    int y = tape_leaf(w->t, count, one, exact, u, false);
    for (int64_t k = 0; k < over(a->shape, mask) && count; k++) {
        int32_t *which = tape_alloc(w->t, count * (int64_t)sizeof *which);
        memset(seen, 0, (size_t)count * sizeof *seen);
        for (int64_t i = 0; i < all; i++)
            if (seen[group[i]]++ == k)
                which[group[i]] = (int32_t)i;
        y = tape_binary(w->t, count, y, NULL, in[0], which, FN_MUL, u);
    }
    if (over(a->shape, mask) == 0) /* 1 whatever x is, and yet of x: its gradient is 0 */
        y = eval_binary(w->t, FN_ADD, y, n->shape, eval_sum(w->t, in[0], a->shape, mask, u),
                        n->shape, n->shape, u);
    return y;
}

#define OVER(name, drawn, evaluated, w)                                                   \
    static tsr_tensor *declare_##name(declared *d, const pnode *n, tsr_tensor *const *in) \
    {                                                                                     \
        (void)d;                                                                          \
        return tsr_##name(in[0], n->axes, n->i[0]);                                       \
    }                                                                                     \
    static const op_def op_##name = {                                                     \
        #name, "tsr_" #name "($0, ^A, #0)", drawn, declare_##name, evaluated, w};
OVER(sum, draw_sum, eval_sum_op, 8)
OVER(mean, draw_float, eval_mean, 8)
OVER(max, draw_extreme, eval_max, 8)
OVER(min, draw_extreme, eval_min, 6)
OVER(prod, draw_prod, eval_prod, 3)

static int eval_norm(walk *w, const pnode *n, const int *in)
{
    double u = unit_of(n->dtype);
    int a = tape_unary(w->t, in[0], FN_ABS, 0, u);
    a = tape_unary(w->t, a, FN_POWS, n->f[0], u);
    return tape_unary(w->t, sum_of(w, n, a, false), FN_POWS, 1 / n->f[0], u);
}

static int variance_of(walk *w, const pnode *n, int x)
{
    const pnode *a = &w->g->node[n->in[0]];
    uint32_t mask = axes_mask(n->axes, a->shape.ndim);
    double u = unit_of(n->dtype), count = (double)over(a->shape, mask);
    int m = tape_unary(w->t, eval_sum(w->t, x, a->shape, mask, u), FN_MULS, 1 / count, u);
    int d =
        eval_binary(w->t, FN_SUB, x, a->shape, m, reduced_dims(a->shape, mask, true), a->shape, u);
    int q = eval_binary(w->t, FN_MUL, d, a->shape, d, a->shape, a->shape, u);
    return tape_unary(w->t, eval_sum(w->t, q, a->shape, mask, u), FN_MULS, 1 / (count - n->f[0]),
                      u);
}

static int eval_variance(walk *w, const pnode *n, const int *in)
{
    return variance_of(w, n, in[0]);
}

static int eval_std(walk *w, const pnode *n, const int *in)
{
    return tape_unary(w->t, variance_of(w, n, in[0]), FN_SAFE_SQRT, 0, unit_of(n->dtype));
}

static tsr_tensor *declare_norm(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_norm(in[0], n->f[0], n->axes, n->i[0]);
}

static tsr_tensor *declare_variance(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_variance(in[0], n->axes, n->i[0], n->f[0]);
}

static tsr_tensor *declare_std(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_std(in[0], n->axes, n->i[0], n->f[0]);
}

static const op_def op_norm = {
    "norm", "tsr_norm($0, %0, ^A, #0)", draw_norm, declare_norm, eval_norm, 3};
static const op_def op_variance = {
    "variance", "tsr_variance($0, ^A, #0, %0)", draw_variance, declare_variance, eval_variance, 3};
static const op_def op_std = {
    "std", "tsr_std($0, ^A, #0, %0)", draw_variance, declare_std, eval_std, 3};

/* --- along an axis ---------------------------------------------------------------------------- */
static bool draw_along(gen *g, pnode *n, int x)
{
    if (x < 0 || !gen_at(g, x)->shape.ndim)
        return false;
    const pnode *a = gen_at(g, x);
    n->nin = 1;
    n->in[0] = x;
    n->i[0] = rnd_below(&g->r, a->shape.ndim) - (rnd_chance(&g->r, 0.2) ? a->shape.ndim : 0);
    n->shape = a->shape;
    n->dtype = a->dtype;
    n->place = a->place;
    return true;
}

static int64_t axis_size(tsr_dims d, int64_t axis)
{
    return d.d[axis < 0 ? axis + d.ndim : axis];
}

static bool draw_argmax(gen *g, pnode *n)
{
    if (!draw_along(g, n, gen_float(g, 1, 4)) || axis_size(n->shape, n->i[0]) == 0)
        return false;
    n->below = axis_size(n->shape, n->i[0]);
    n->shape =
        reduced_dims(n->shape, 1u << (n->i[0] < 0 ? n->i[0] + n->shape.ndim : n->i[0]), false);
    n->dtype = TSR_I64;
    return true;
}

static tsr_tensor *declare_argmax(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_argmax(in[0], (int)n->i[0]);
}

/* The stride of an axis: elements i and i + stride are neighbours along it. */
static int64_t stride_of(tsr_dims d, int64_t axis)
{
    int64_t s = 1;
    for (int k = (int)(axis < 0 ? axis + d.ndim : axis) + 1; k < d.ndim; k++)
        s *= d.d[k];
    return s;
}

static int eval_argmax(walk *w, const pnode *n, const int *in)
{
    const pnode *a = &w->g->node[n->in[0]];
    const tape_value *x = tape_at(w->t, in[0]);
    int64_t count = count_of(n->shape), s = stride_of(a->shape, n->i[0]),
            m = axis_size(a->shape, n->i[0]);
    double *v = tape_alloc(w->t, (count + 1) * 8), *e = tape_alloc(w->t, (count + 1) * 8);
    for (int64_t i = 0; i < count; i++) {
        int64_t base = i / s * s * m + i % s, best = 0;
        for (int64_t k = 1; k < m; k++)
            if (!isnan(x->v[base + best * s]) &&
                (x->v[base + k * s] > x->v[base + best * s] || isnan(x->v[base + k * s])))
                best = k;
        double top = x->v[base + best * s], te = x->e[base + best * s];
        for (int64_t k = 0; k < m; k++) {
            double both = te + x->e[base + k * s];
            if (k != best && both > 0 && !(fabs(top - x->v[base + k * s]) > both))
                e[i] = INFINITY;
        }
        v[i] = (double)best;
    }
    return tape_leaf(w->t, count, v, e, 0, false);
}
static const op_def op_argmax = {"argmax",       "tsr_argmax($0, #0)", draw_argmax,
                                 declare_argmax, eval_argmax,          2};

static bool draw_cumsum(gen *g, pnode *n)
{
    return draw_along(g, n, gen_float(g, 1, 4));
}

static tsr_tensor *declare_cumsum(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_cumsum(in[0], (int)n->i[0]);
}

static int eval_cumsum(walk *w, const pnode *n, const int *in)
{
    int64_t count = count_of(n->shape), s = stride_of(n->shape, n->i[0]),
            m = axis_size(n->shape, n->i[0]), k = 0;
    tape_term *terms = tape_alloc(w->t, (count * m + 1) * (int64_t)sizeof *terms);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j <= i / s % m; j++)
            terms[k++] = (tape_term){(int32_t)i, (int32_t)(i - j * s), 0, 1};
    return tape_terms(w->t, count, in[0], -1, k, terms, unit_of(n->dtype));
}
static const op_def op_cumsum = {"cumsum",       "tsr_cumsum($0, #0)", draw_cumsum,
                                 declare_cumsum, eval_cumsum,          2};

extern const op_def *const ops_reduce[];
const op_def *const ops_reduce[] = {&op_sum,    &op_mean,   &op_max,      &op_min,
                                    &op_prod,   &op_norm,   &op_variance, &op_std,
                                    &op_argmax, &op_cumsum, NULL};
