/* SPDX-License-Identifier: Apache-2.0 */
/* Products: matmul, linear, convolution; pooling. */
#include <math.h>

#include "program.h"

static bool draw_matmul_of(gen *g, pnode *n, bool ta, bool tb)
{
    int a = gen_float(g, 2, 4);
    if (a < 0)
        return false;
    tsr_dims ad = gen_at(g, a)->shape, bd = {.ndim = 2};
    if (rnd_chance(&g->r, 0.3)) { /* batch axes, some of them 1 */
        int lead = rnd_below(&g->r, 3);
        bd.ndim = lead + 2;
        for (int i = 0; i < lead; i++) {
            int k = ad.ndim - 2 - lead + i;
            bd.d[i] = k >= 0 && rnd_chance(&g->r, 0.7) ? ad.d[k] : 1;
        }
    }
    int64_t inner = ad.d[ad.ndim - (ta ? 2 : 1)], size = gen_size(g);
    bd.d[bd.ndim - (tb ? 1 : 2)] = inner;
    bd.d[bd.ndim - (tb ? 2 : 1)] = size;
    if (count_of(bd) > 200)
        return false;
    int b = gen_like(g, bd, gen_at(g, a)->dtype, gen_at(g, a)->place);
    if (b < 0 || !matmul_dims(ad, bd, ta, tb, &n->shape) || count_of(n->shape) > 200)
        return false;
    n->nin = 2;
    n->in[0] = a;
    n->in[1] = b;
    n->i[0] = ta;
    n->i[1] = tb;
    n->dtype = gen_at(g, a)->dtype;
    n->place = gen_at(g, a)->place;
    return true;
}

static bool draw_matmul(gen *g, pnode *n)
{
    return draw_matmul_of(g, n, false, false);
}

static bool draw_matmul_t(gen *g, pnode *n)
{
    int which = 1 + rnd_below(&g->r, 3);
    return draw_matmul_of(g, n, which & 1, which & 2);
}

static tsr_tensor *declare_matmul(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d, (void)n;
    return tsr_matmul(in[0], in[1]);
}

static tsr_tensor *declare_matmul_t(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_matmul_t(in[0], in[1], n->i[0], n->i[1]);
}

static int eval_product(walk *w, const pnode *n, const int *in)
{
    return eval_matmul(w, in[0], w->g->node[n->in[0]].shape, in[1], w->g->node[n->in[1]].shape,
                       n->i[0], n->i[1], NULL, unit_of(n->dtype));
}
static const op_def op_matmul = {"matmul",       "tsr_matmul($0, $1)", draw_matmul,
                                 declare_matmul, eval_product,         8};
static const op_def op_matmul_t = {
    "matmul_t", "tsr_matmul_t($0, $1, #0, #1)", draw_matmul_t, declare_matmul_t, eval_product, 7};

static bool draw_linear(gen *g, pnode *n)
{
    int x = gen_float(g, 1, 4);
    if (x < 0)
        return false;
    const pnode *a = gen_at(g, x);
    tsr_dims xd = a->shape;
    tsr_dtype dtype = a->dtype;
    int place = a->place;
    int64_t k = xd.d[xd.ndim - 1], size = gen_size(g);
    if (k * size > 100 || count_of(xd) / (k ? k : 1) * size > 200)
        return false;
    n->nin = 3;
    n->in[0] = x;
    n->in[1] = gen_like(g, TSR_DIMS(size, k), dtype, place);
    n->in[2] = rnd_chance(&g->r, 0.6) ? gen_like(g, TSR_DIMS(size), dtype, place) : -1;
    n->shape = xd;
    n->shape.d[xd.ndim - 1] = size;
    n->dtype = dtype;
    n->place = place;
    return n->in[1] >= 0;
}

static tsr_tensor *declare_linear(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d, (void)n;
    return tsr_linear(in[0], in[1], in[2]);
}

static int eval_linear(walk *w, const pnode *n, const int *in)
{
    double u = unit_of(n->dtype);
    tsr_dims xd = w->g->node[n->in[0]].shape, wd = w->g->node[n->in[1]].shape, od;
    bool vector = xd.ndim == 1;
    if (vector)
        xd = TSR_DIMS(1, xd.d[0]);
    int y = eval_matmul(w, in[0], xd, in[1], wd, false, true, &od, u);
    return in[2] < 0 ? y : eval_binary(w->t, FN_ADD, y, od, in[2], TSR_DIMS(wd.d[0]), od, u);
}
static const op_def op_linear = {
    "linear", "tsr_linear($0, $1, $2)", draw_linear, declare_linear, eval_linear, 12};

/* --- convolution: i = stride 2, padding 2, dilation 2, groups --------------------------------- */
static int64_t conv_out(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation)
{
    int64_t room = size + 2 * pad - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}

/* Lets an input be split along an axis, most of the time. */
static void split_input(gen *g, int node, int axis)
{
    pnode *a = &g->g->node[node];
    if (node == g->g->nnodes - 1 && a->op == op_find("input") && !g->data_parallel &&
        g->p->place_ndim[a->place] == 1 && rnd_chance(&g->r, 0.7))
        a->sbp = TSR_S(axis);
}

static bool draw_conv2d(gen *g, pnode *n)
{
    int x = gen_float(g, 4, 4);
    if (x < 0) {
        x = gen_leaf(g,
                     TSR_DIMS(gen_rows(g, 1 + rnd_below(&g->r, 4)), 1 + rnd_below(&g->r, 5),
                              2 + rnd_below(&g->r, 4), 2 + rnd_below(&g->r, 4)),
                     g->dtype, 0);
        if (x < 0)
            return false;
        split_input(g, x, 1);
    }
    const tsr_dims xd = gen_at(g, x)->shape;
    tsr_dtype dtype = gen_at(g, x)->dtype;
    int place = gen_at(g, x)->place;
    int64_t c = xd.d[1], groups = rnd_chance(&g->r, 0.6) ? 1 : rnd_chance(&g->r, 0.5) ? c : 2;
    if (c == 0 || c % groups)
        groups = 1;
    int64_t o = groups * (1 + rnd_below(&g->r, 3)), k[2];
    for (int i = 0; i < 2; i++) {
        k[i] = 1 + rnd_below(&g->r, 3);
        n->i[i] = 1 + rnd_below(&g->r, 2);
        n->i[2 + i] = rnd_below(&g->r, 2);
        n->i[4 + i] = 1 + rnd_chance(&g->r, 0.3);
    }
    n->i[6] = groups;
    tsr_dims wd = TSR_DIMS(o, c / groups, k[0], k[1]);
    n->shape = TSR_DIMS(xd.d[0], o, conv_out(xd.d[2], k[0], n->i[0], n->i[2], n->i[4]),
                        conv_out(xd.d[3], k[1], n->i[1], n->i[3], n->i[5]));
    if (n->shape.d[2] < 1 || n->shape.d[3] < 1 || count_of(n->shape) > 250 || count_of(wd) > 100)
        return false;
    n->nin = 3;
    n->in[0] = x;
    n->in[1] = gen_like(g, wd, dtype, place);
    if (n->in[1] >= 0 && groups > 1)
        split_input(g, n->in[1], 0);
    n->in[2] = rnd_chance(&g->r, 0.4) ? gen_like(g, TSR_DIMS(o), dtype, place) : -1;
    n->dtype = dtype;
    n->place = place;
    return n->in[1] >= 0;
}

static tsr_tensor *declare_conv2d(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_conv2d(in[0], in[1], in[2],
                      TSR_CONV2D_OPTS(.stride = {(int)n->i[0], (int)n->i[1]},
                                      .padding = {(int)n->i[2], (int)n->i[3]},
                                      .dilation = {(int)n->i[4], (int)n->i[5]}, .groups = n->i[6]));
}

static int eval_conv2d(walk *w, const pnode *n, const int *in)
{
    const int64_t *x = w->g->node[n->in[0]].shape.d, *k = w->g->node[n->in[1]].shape.d,
                  *o = n->shape.d;
    int64_t og = k[0] / n->i[6], at = 0;
    tape_term *terms =
        tape_alloc(w->t, (count_of(n->shape) * k[1] * k[2] * k[3] + 1) * (int64_t)sizeof *terms);
    for (int64_t b = 0; b < o[0]; b++)
        for (int64_t c = 0; c < o[1]; c++)
            for (int64_t p = 0; p < o[2]; p++)
                for (int64_t q = 0; q < o[3]; q++)
                    for (int64_t j = 0; j < k[1] * k[2] * k[3]; j++) {
                        int64_t s = j % k[3], r = j / k[3] % k[2], ch = j / k[3] / k[2];
                        int64_t h = p * n->i[0] + r * n->i[4] - n->i[2];
                        int64_t v = q * n->i[1] + s * n->i[5] - n->i[3];
                        if (h < 0 || h >= x[2] || v < 0 || v >= x[3])
                            continue;
                        terms[at++] = (tape_term){
                            (int32_t)(((b * o[1] + c) * o[2] + p) * o[3] + q),
                            (int32_t)(((b * x[1] + c / og * k[1] + ch) * x[2] + h) * x[3] + v),
                            (int32_t)(((c * k[1] + ch) * k[2] + r) * k[3] + s), 1};
                    }
    double u = unit_of(n->dtype);
    int y = tape_terms(w->t, count_of(n->shape), in[0], in[1], at, terms, u);
    tape_stuffed(w->t, y, false);
    return in[2] < 0
               ? y
               : eval_binary(w->t, FN_ADD, y, n->shape, in[2], TSR_DIMS(k[0], 1, 1), n->shape, u);
}
static const op_def op_conv2d = {"conv2d",
                                 "tsr_conv2d($0, $1, $2, TSR_CONV2D_OPTS(.stride = {#0, #1}, "
                                 ".padding = {#2, #3}, .dilation = {#4, #5}, .groups = #6))",
                                 draw_conv2d,
                                 declare_conv2d,
                                 eval_conv2d,
                                 5};

/* --- transposed convolution: i = stride 2, padding 2, dilation 2, groups, output_padding 2 ---- */
static bool draw_conv_transpose2d(gen *g, pnode *n)
{
    int x = gen_float(g, 4, 4);
    if (x < 0) {
        x = gen_leaf(g,
                     TSR_DIMS(gen_rows(g, 1 + rnd_below(&g->r, 3)), 1 + rnd_below(&g->r, 4),
                              1 + rnd_below(&g->r, 3), 1 + rnd_below(&g->r, 3)),
                     g->dtype, 0);
        if (x < 0)
            return false;
        split_input(g, x, 1);
    }
    const tsr_dims xd = gen_at(g, x)->shape;
    tsr_dtype dtype = gen_at(g, x)->dtype;
    int place = gen_at(g, x)->place;
    int64_t c = xd.d[1], groups = rnd_chance(&g->r, 0.6) ? 1 : rnd_chance(&g->r, 0.5) ? c : 2;
    if (c == 0 || c % groups)
        groups = 1;
    int64_t o = 1 + rnd_below(&g->r, 3), k[2];
    n->shape = TSR_DIMS(xd.d[0], groups * o, 0, 0);
    for (int i = 0; i < 2; i++) {
        k[i] = 1 + rnd_below(&g->r, 3);
        n->i[i] = 1 + rnd_below(&g->r, 3);
        n->i[2 + i] = rnd_below(&g->r, 2);
        n->i[4 + i] = 1 + rnd_chance(&g->r, 0.3);
        int64_t most = n->i[i] > n->i[4 + i] ? n->i[i] : n->i[4 + i];
        n->i[7 + i] = rnd_chance(&g->r, 0.5) ? 0 : rnd_below(&g->r, most);
        if (xd.d[2 + i] < 1)
            return false;
        n->shape.d[2 + i] = (xd.d[2 + i] - 1) * n->i[i] - 2 * n->i[2 + i] +
                            n->i[4 + i] * (k[i] - 1) + 1 + n->i[7 + i];
    }
    n->i[6] = groups;
    tsr_dims wd = TSR_DIMS(c, o, k[0], k[1]);
    if (n->shape.d[2] < 1 || n->shape.d[3] < 1 || count_of(n->shape) > 250 || count_of(wd) > 100)
        return false;
    n->nin = 3;
    n->in[0] = x;
    n->in[1] = gen_like(g, wd, dtype, place);
    if (n->in[1] >= 0 && groups > 1)
        split_input(g, n->in[1], 0);
    n->in[2] = rnd_chance(&g->r, 0.4) ? gen_like(g, TSR_DIMS(groups * o), dtype, place) : -1;
    n->dtype = dtype;
    n->place = place;
    return n->in[1] >= 0;
}

static tsr_tensor *declare_conv_transpose2d(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_conv_transpose2d(
        in[0], in[1], in[2],
        TSR_CONV_TRANSPOSE2D_OPTS(.stride = {(int)n->i[0], (int)n->i[1]},
                                  .padding = {(int)n->i[2], (int)n->i[3]},
                                  .output_padding = {(int)n->i[7], (int)n->i[8]},
                                  .dilation = {(int)n->i[4], (int)n->i[5]}, .groups = n->i[6]));
}

static int eval_conv_transpose2d(walk *w, const pnode *n, const int *in)
{
    const int64_t *x = w->g->node[n->in[0]].shape.d, *k = w->g->node[n->in[1]].shape.d,
                  *o = n->shape.d;
    int64_t cg = k[0] / n->i[6], at = 0;
    tape_term *terms = tape_alloc(w->t, (x[0] * x[1] * x[2] * x[3] * k[1] * k[2] * k[3] + 1) *
                                            (int64_t)sizeof *terms);
    for (int64_t b = 0; b < x[0]; b++)
        for (int64_t c = 0; c < x[1]; c++)
            for (int64_t p = 0; p < x[2]; p++)
                for (int64_t q = 0; q < x[3]; q++)
                    for (int64_t j = 0; j < k[1] * k[2] * k[3]; j++) {
                        int64_t s = j % k[3], r = j / k[3] % k[2], ch = j / k[3] / k[2];
                        int64_t h = p * n->i[0] + r * n->i[4] - n->i[2];
                        int64_t v = q * n->i[1] + s * n->i[5] - n->i[3];
                        if (h < 0 || h >= o[2] || v < 0 || v >= o[3])
                            continue;
                        terms[at++] = (tape_term){
                            (int32_t)(((b * o[1] + c / cg * k[1] + ch) * o[2] + h) * o[3] + v),
                            (int32_t)(((b * x[1] + c) * x[2] + p) * x[3] + q),
                            (int32_t)(((c * k[1] + ch) * k[2] + r) * k[3] + s), 1};
                    }
    double u = unit_of(n->dtype);
    int y = tape_terms(w->t, count_of(n->shape), in[0], in[1], at, terms, u);
    tape_stuffed(w->t, y, false);
    return in[2] < 0
               ? y
               : eval_binary(w->t, FN_ADD, y, n->shape, in[2], TSR_DIMS(o[1], 1, 1), n->shape, u);
}
static const op_def op_conv_transpose2d = {
    "conv_transpose2d",
    "tsr_conv_transpose2d($0, $1, $2, TSR_CONV_TRANSPOSE2D_OPTS(.stride = {#0, #1}, "
    ".padding = {#2, #3}, .output_padding = {#7, #8}, .dilation = {#4, #5}, .groups = #6))",
    draw_conv_transpose2d,
    declare_conv_transpose2d,
    eval_conv_transpose2d,
    3};

/* --- pooling: i = kernel 2, stride 2, padding 2, count_include_pad ---------------------------- */
static bool draw_pool(gen *g, pnode *n)
{
    int x = gen_float(g, 4, 4);
    if (x < 0)
        return false;
    if (rnd_chance(&g->r, 0.3)) { /* ties */
        pnode relu = *gen_at(g, x);
        relu = (pnode){.op = op_find("relu"),
                       .nin = 1,
                       .in = {x},
                       .shape = relu.shape,
                       .dtype = relu.dtype,
                       .place = relu.place,
                       .var = -1};
        x = gen_append(g, relu);
    }
    const pnode *a = gen_at(g, x);
    n->shape = a->shape;
    for (int i = 0; i < 2; i++) {
        n->i[i] = 1 + rnd_below(&g->r, 3);
        n->i[2 + i] = 1 + rnd_below(&g->r, 3);
        n->i[4 + i] = n->i[i] > 1 && rnd_chance(&g->r, 0.3);
        n->shape.d[2 + i] = conv_out(a->shape.d[2 + i], n->i[i], n->i[2 + i], n->i[4 + i], 1);
        if (a->shape.d[2 + i] < 1 || n->shape.d[2 + i] < 1)
            return false;
    }
    n->i[6] = rnd_chance(&g->r, 0.5);
    n->nin = 1;
    n->in[0] = x;
    n->dtype = a->dtype;
    n->place = a->place;
    return true;
}

#define POOL_OPTS                                           \
    TSR_POOL2D_OPTS(.kernel = {(int)n->i[0], (int)n->i[1]}, \
                    .stride = {(int)n->i[2], (int)n->i[3]}, \
                    .padding = {(int)n->i[4], (int)n->i[5]}, .count_include_pad = (int)n->i[6])
static tsr_tensor *declare_max_pool2d(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_max_pool2d(in[0], POOL_OPTS);
}

static tsr_tensor *declare_avg_pool2d(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_avg_pool2d(in[0], POOL_OPTS);
}

/* The elements of a window; their number. */
static int window(const pnode *n, const int64_t *x, int64_t i, int32_t at[9])
{
    const int64_t *o = n->shape.d;
    int64_t q = i % o[3], p = i / o[3] % o[2], plane = i / o[3] / o[2];
    int count = 0;
    for (int64_t r = 0; r < n->i[0]; r++)
        for (int64_t s = 0; s < n->i[1]; s++) {
            int64_t h = p * n->i[2] + r - n->i[4], v = q * n->i[3] + s - n->i[5];
            if (h >= 0 && h < x[2] && v >= 0 && v < x[3])
                at[count++] = (int32_t)((plane * x[2] + h) * x[3] + v);
        }
    return count;
}

/* The first of equals; one that is nearly as large takes the certainty away from all. */
static int eval_max_pool2d(walk *w, const pnode *n, const int *in)
{
    const int64_t *d = w->g->node[n->in[0]].shape.d;
    const tape_value *x = tape_at(w->t, in[0]);
    int64_t count = count_of(n->shape), nterms = 0;
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    tape_term *terms = tape_alloc(w->t, (9 * count + 1) * (int64_t)sizeof *terms);
    double *doubt = tape_alloc(w->t, (9 * count + 1) * 8),
           *zero = tape_alloc(w->t, (9 * count + 1) * 8);
    for (int64_t i = 0; i < count; i++) {
        int32_t at[9] = {0}, best;
        int m = window(n, d, i, at);
        best = at[0];
        for (int k = 1; k < m; k++)
            if (x->v[at[k]] > x->v[best] || (isnan(x->v[at[k]]) && !isnan(x->v[best])))
                best = at[k];
        from[i] = (tape_from){0, best, 1};
        bool near = false;
        for (int k = 0; k < m; k++) {
            double both = x->e[at[k]] + x->e[best];
            near |= at[k] != best && both > 0 && !(fabs(x->v[at[k]] - x->v[best]) > both);
        }
        for (int k = 0; k < m && near; k++) {
            doubt[nterms] = 1;
            terms[nterms] = (tape_term){(int32_t)i, at[k], (int32_t)nterms, 1};
            nterms++;
        }
    }
    int y = tape_move(w->t, count, 1, in, from);
    if (!nterms)
        return y;
    /* Adds 0 (give or take 1) times each that could have been it. The error of the value itself is
     * not so large, but a smaller one would not be worth the lines. */
    int factors = tape_leaf(w->t, nterms, zero, doubt, 0, false);
    int extra = tape_terms(w->t, count, in[0], factors, nterms, terms, unit_of(n->dtype));
    return tape_binary(w->t, count, y, NULL, extra, NULL, FN_ADD, unit_of(n->dtype));
}

static int eval_avg_pool2d(walk *w, const pnode *n, const int *in)
{
    const int64_t *d = w->g->node[n->in[0]].shape.d, *o = n->shape.d;
    int64_t count = count_of(n->shape), nterms = 0;
    tape_term *terms = tape_alloc(w->t, (9 * count + 1) * (int64_t)sizeof *terms);
    for (int64_t i = 0; i < count; i++) {
        int32_t at[9];
        int m = window(n, d, i, at);
        /* PyTorch counts the padding that a window covers, but not what is beyond it. */
        int64_t h0 = i / o[3] % o[2] * n->i[2] - n->i[4], v0 = i % o[3] * n->i[3] - n->i[5];
        int64_t h1 = h0 + n->i[0], v1 = v0 + n->i[1];
        h1 = h1 > d[2] + n->i[4] ? d[2] + n->i[4] : h1;
        v1 = v1 > d[3] + n->i[5] ? d[3] + n->i[5] : v1;
        double by = !n->i[6] ? m : (double)((h1 - h0) * (v1 - v0));
        for (int k = 0; k < m; k++)
            terms[nterms++] = (tape_term){(int32_t)i, at[k], 0, 1 / by};
    }
    return tape_terms(w->t, count, in[0], -1, nterms, terms, unit_of(n->dtype));
}
static const op_def op_max_pool2d = {"max_pool2d",
                                     "tsr_max_pool2d($0, TSR_POOL2D_OPTS(.kernel = {#0, #1}, "
                                     ".stride = {#2, #3}, .padding = {#4, #5}))",
                                     draw_pool,
                                     declare_max_pool2d,
                                     eval_max_pool2d,
                                     4};
static const op_def op_avg_pool2d = {
    "avg_pool2d",
    "tsr_avg_pool2d($0, TSR_POOL2D_OPTS(.kernel = {#0, #1}, .stride = {#2, #3}, .padding = {#4, "
    "#5}, .count_include_pad = #6))",
    draw_pool,
    declare_avg_pool2d,
    eval_avg_pool2d,
    4};

static bool draw_adaptive(gen *g, pnode *n)
{
    int x = gen_float(g, 4, 4);
    if (x < 0)
        return false;
    const pnode *a = gen_at(g, x);
    if (a->shape.d[2] < 1 || a->shape.d[3] < 1)
        return false;
    n->nin = 1;
    n->in[0] = x;
    n->i[0] = 1 + rnd_below(&g->r, 4);
    n->i[1] = 1 + rnd_below(&g->r, 4);
    n->shape = TSR_DIMS(a->shape.d[0], a->shape.d[1], n->i[0], n->i[1]);
    n->dtype = a->dtype;
    n->place = a->place;
    return count_of(n->shape) <= 250;
}

static tsr_tensor *declare_adaptive(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_adaptive_avg_pool2d(in[0], n->i[0], n->i[1]);
}

static int eval_adaptive(walk *w, const pnode *n, const int *in)
{
    const int64_t *d = w->g->node[n->in[0]].shape.d, *o = n->shape.d;
    int64_t count = count_of(n->shape), nterms = 0;
    tape_term *terms =
        tape_alloc(w->t, ((d[2] + 1) * (d[3] + 1) * count + 1) * (int64_t)sizeof *terms);
    for (int64_t i = 0; i < count; i++) {
        int64_t q = i % o[3], p = i / o[3] % o[2], plane = i / o[3] / o[2];
        int64_t h0 = p * d[2] / o[2], h1 = ((p + 1) * d[2] + o[2] - 1) / o[2];
        int64_t v0 = q * d[3] / o[3], v1 = ((q + 1) * d[3] + o[3] - 1) / o[3];
        for (int64_t h = h0; h < h1; h++)
            for (int64_t v = v0; v < v1; v++)
                terms[nterms++] = (tape_term){(int32_t)i, (int32_t)((plane * d[2] + h) * d[3] + v),
                                              0, 1 / (double)((h1 - h0) * (v1 - v0))};
    }
    return tape_terms(w->t, count, in[0], -1, nterms, terms, unit_of(n->dtype));
}
static const op_def op_adaptive = {"adaptive_avg_pool2d", "tsr_adaptive_avg_pool2d($0, #0, #1)",
                                   draw_adaptive,         declare_adaptive,
                                   eval_adaptive,         3};

extern const op_def *const ops_matrix[];
const op_def *const ops_matrix[] = {&op_matmul,     &op_matmul_t,         &op_linear,
                                    &op_conv2d,     &op_conv_transpose2d, &op_max_pool2d,
                                    &op_avg_pool2d, &op_adaptive,         NULL};
