/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation, softmax, attention, losses, dropout. */
#include <math.h>

#include "program.h"

enum { MOST_VIRTUAL = 32 }; /* batches of a batch norm */

#include "src/core/rng.h"

static void unary_like(gen *g, pnode *n, int x)
{
    n->nin = 1;
    n->in[0] = x;
    n->shape = gen_at(g, x)->shape;
    n->dtype = gen_at(g, x)->dtype;
    n->place = gen_at(g, x)->place;
}

/* (x - mean) / sqrt(var + eps) of groups, [groups] sums in *out_mean, *out_var. */
static int normalise(walk *w, int x, tsr_dims dims, uint32_t mask, double eps, double u,
                     int *out_mean, int *out_var)
{
    tape *t = w->t;
    tsr_dims keep = reduced_dims(dims, mask, true);
    double by = (double)count_of(dims) / (double)count_of(keep);
    int m = tape_unary(t, eval_sum(t, x, dims, mask, u), FN_DIVS, by, u);
    int d = eval_binary(t, FN_SUB, x, dims, m, keep, dims, u);
    int q = eval_binary(t, FN_MUL, d, dims, d, dims, dims, u);
    int v = tape_unary(t, eval_sum(t, q, dims, mask, u), FN_DIVS, by, u);
    int s = tape_unary(t, tape_unary(t, v, FN_ADDS, eps, u), FN_SQRT, 0, u);
    if (out_mean) {
        *out_mean = m;
        *out_var = v;
    }
    return eval_binary(t, FN_DIV, d, dims, s, keep, dims, u);
}

/* --- batch norm: i[0] parts (0: global), f = eps, momentum ------------------------------------ */
static bool draw_batch_norm(gen *g, pnode *n)
{
    int x = rnd_chance(&g->r, 0.5) ? gen_float(g, 4, 4) : gen_float(g, 2, 2);
    if (x < 0)
        return false;
    unary_like(g, n, x);
    tsr_dims d = n->shape;
    int64_t c = d.d[1], per = count_of(d) / (c ? c : 1);
    bool local = rnd_chance(&g->r, 0.25);
    n->i[0] = local ? 1 + rnd_below(&g->r, 3) : 0;
    if (g->parts && rnd_chance(&g->r, 0.6))
        n->i[0] = g->parts * (rnd_chance(&g->r, 0.5) ? g->pieces : 1 + rnd_below(&g->r, 2));
    local = n->i[0] > 0;
    if (local && (n->i[0] > d.d[0] || n->i[0] > MOST_VIRTUAL))
        return false;
    n->nin = 5;
    n->in[1] = gen_like(g, TSR_DIMS(c), n->dtype, n->place);
    n->in[2] = gen_like(g, TSR_DIMS(c), n->dtype, n->place);
    n->in[3] = n->in[4] = -1;
    n->f[0] = rnd_chance(&g->r, 0.5) ? 1e-5 : 0.1;
    n->f[1] = rnd_chance(&g->r, 0.5) ? 0.1 : 0.3;
    /* One value per channel has no variance. */
    int64_t parts = n->i[0] ? n->i[0] : 1;
    if (c == 0 || d.d[0] == 0 || d.d[0] / parts * (per / d.d[0]) < 2 || n->in[1] < 0 ||
        n->in[2] < 0)
        return false;
    if (rnd_chance(&g->r, 0.7)) {
        tsr_dims rows = n->i[0] > 1 ? TSR_DIMS(n->i[0], c) : TSR_DIMS(c);
        int mean = gen_var(g, rows, n->dtype, n->place, false), var;
        var = gen_var(g, rows, n->dtype, n->place, false);
        if (mean < 0 || var < 0 || gen_at(g, mean)->var == gen_at(g, var)->var)
            return false;
        n->in[3] = mean;
        n->in[4] = var;
        const tape_value *v = gen_value(g, var);
        for (int64_t i = 0; i < v->n && !g->g->training; i++)
            if (!(v->v[i] > 0.05))
                return false;
    }
    return true;
}

static tsr_tensor *declare_batch_norm(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_batch_norm(in[0], in[1], in[2], in[3], in[4],
                          TSR_BATCH_NORM_OPTS(.eps = n->f[0], .momentum = n->f[1],
                                              .stats = n->i[0] ? TSR_BN_LOCAL : TSR_BN_GLOBAL,
                                              .parts = (int)n->i[0]));
}

/* The running average after this batch, which the run's end shows. */
static void update_running(walk *w, int node, int64_t row, int stat, double momentum, double factor)
{
    int var = w->g->node[node].var;
    const tape_value *old = tape_at(w->t, w->updated[var] >= 0 ? w->updated[var] : w->value[node]);
    const tape_value *s = tape_at(w->t, stat);
    int64_t n = old->n, c = s->n;
    double *v = tape_alloc(w->t, (n + 1) * 8), *e = tape_alloc(w->t, (n + 1) * 8);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i - row * c;
        bool own = k >= 0 && k < c;
        v[i] = own ? (1 - momentum) * old->v[i] + momentum * factor * s->v[k] : old->v[i];
        e[i] = own ? old->e[i] + momentum * factor * s->e[k] +
                         4 * s->u * (fabs(old->v[i]) + momentum * factor * fabs(s->v[k]))
                   : old->e[i];
        if (!isfinite(v[i]))
            e[i] = w->p->special ? (own && isinf(s->e[k]) ? INFINITY : old->e[i])
                   : isfinite(e[i]) || isfinite(s->v[own ? k : 0]) ? 0
                                                                   : INFINITY;
    }
    w->updated[var] = tape_leaf(w->t, n, v, e, s->u, false);
}

/* Rows [first, first + count) of x. */
static int rows_of(walk *w, int x, tsr_dims d, int64_t first, int64_t count)
{
    int64_t row = d.d[0] ? count_of(d) / d.d[0] : 0, n = count * row;
    tape_from *from = tape_alloc(w->t, (n + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < n; i++)
        from[i] = (tape_from){0, (int32_t)(first * row + i), 1};
    return tape_move(w->t, n, 1, &x, from);
}

static int batch_norm_train(walk *w, const pnode *n, const int *in)
{
    tsr_dims d = n->shape;
    uint32_t mask = d.ndim == 4 ? 0xd : 1;
    int64_t parts = n->i[0] ? n->i[0] : 1, at = 0;
    int pieces[MOST_VIRTUAL];
    int64_t total = count_of(d);
    tape_from *from = tape_alloc(w->t, (total + 1) * (int64_t)sizeof *from);
    for (int64_t r = 0; r < parts; r++) {
        tsr_dims pd = d;
        pd.d[0] = d.d[0] / parts + (r < d.d[0] % parts);
        int64_t first = r * (d.d[0] / parts) + (r < d.d[0] % parts ? r : d.d[0] % parts);
        int x = rows_of(w, in[0], d, first, pd.d[0]), mean, var;
        pieces[r] = normalise(w, x, pd, mask, n->f[0], unit_of(n->dtype), &mean, &var);
        double by = (double)count_of(pd) / (double)d.d[1];
        for (int64_t i = 0; i < count_of(pd); i++)
            from[at++] = (tape_from){(int32_t)r, (int32_t)i, 1};
        if (n->in[3] < 0)
            continue;
        update_running(w, n->in[3], r, mean, n->f[1], 1);
        update_running(w, n->in[4], r, var, n->f[1], by / (by - 1));
    }
    return tape_move(w->t, total, (int)parts, pieces, from);
}

static int64_t channel_of(tsr_dims d, int64_t i)
{
    return d.ndim == 4 ? i / (d.d[2] * d.d[3]) % d.d[1] : i % d.d[1];
}

/* Leaves results open in channels whose weight is not finite: the library folds it into a factor
 * and an addend, as PyTorch does, and so gives NaN where the formula gives infinities. */
static int leave_open(walk *w, tsr_dims d, int y, int weight)
{
    tape_value *out = tape_at(w->t, y);
    for (int64_t i = 0; i < out->n; i++)
        if (!isfinite(tape_at(w->t, weight)->v[channel_of(d, i)]))
            out->e[i] = INFINITY;
    return y;
}

static int eval_batch_norm(walk *w, const pnode *n, const int *in)
{
    tsr_dims d = n->shape, cd = d.ndim == 4 ? TSR_DIMS(d.d[1], 1, 1) : TSR_DIMS(d.d[1]);
    double u = unit_of(n->dtype);
    int y;
    if (w->g->training || n->in[3] < 0) {
        y = batch_norm_train(w, n, in);
    } else {
        /* The first row of the running averages. */
        tsr_dims rows = w->g->node[n->in[3]].shape;
        bool many = rows.ndim == 2;
        int m = many ? rows_of(w, in[3], rows, 0, 1) : in[3],
            v = many ? rows_of(w, in[4], rows, 0, 1) : in[4];
        int s = tape_unary(w->t, tape_unary(w->t, v, FN_ADDS, n->f[0], u), FN_SQRT, 0, u);
        /* The library folds scale and shift: gamma/s x + (beta - m gamma/s). */
        y = eval_binary(w->t, FN_DIV, eval_binary(w->t, FN_SUB, in[0], d, m, cd, d, u), d, s, cd, d,
                        u);
        int shift = eval_binary(w->t, FN_DIV, eval_binary(w->t, FN_MUL, m, cd, in[1], cd, cd, u),
                                cd, s, cd, cd, u);
        y = eval_binary(w->t, FN_MUL, y, d, in[1], cd, d, u);
        y = eval_binary(w->t, FN_ADD, y, d, in[2], cd, d, u);
        tape_value *out = tape_at(w->t, y);
        for (int64_t i = 0; i < out->n; i++)
            out->e[i] += 4 * u * fabs(tape_at(w->t, shift)->v[channel_of(d, i)]);
        return leave_open(w, d, y, in[1]);
    }
    y = eval_binary(w->t, FN_MUL, y, d, in[1], cd, d, u);
    return leave_open(w, d, eval_binary(w->t, FN_ADD, y, d, in[2], cd, d, u), in[1]);
}
static const op_def op_batch_norm = {
    "batch_norm",
    "tsr_batch_norm($0, $1, $2, $3, $4, TSR_BATCH_NORM_OPTS(.eps = %0, .momentum = %1, .stats = #0 "
    "? TSR_BN_LOCAL : TSR_BN_GLOBAL, .parts = #0))",
    draw_batch_norm,
    declare_batch_norm,
    eval_batch_norm,
    8};

/* --- layer norm: i[0] axes -------------------------------------------------------------------- */
static bool draw_layer_norm(gen *g, pnode *n)
{
    int x = gen_float(g, 1, 4);
    if (x < 0)
        return false;
    unary_like(g, n, x);
    n->i[0] = 1 + rnd_below(&g->r, n->shape.ndim);
    n->f[0] = rnd_chance(&g->r, 0.5) ? 1e-5 : 0.1;
    tsr_dims f = {.ndim = (int)n->i[0]};
    for (int i = 0; i < f.ndim; i++)
        f.d[i] = n->shape.d[n->shape.ndim - f.ndim + i];
    if (count_of(f) < 2)
        return false;
    tsr_dtype dtype = n->dtype;
    int place = n->place;
    n->nin = 3;
    n->in[1] = rnd_chance(&g->r, 0.6) ? gen_like(g, f, dtype, place) : -1;
    n->in[2] = rnd_chance(&g->r, 0.6) ? gen_like(g, f, dtype, place) : -1;
    return true;
}

static tsr_tensor *declare_layer_norm(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_layer_norm(in[0], in[1], in[2],
                          TSR_LAYER_NORM_OPTS(.eps = n->f[0], .axes = (int)n->i[0]));
}

static int eval_layer_norm(walk *w, const pnode *n, const int *in)
{
    tsr_dims d = n->shape, f = {.ndim = (int)n->i[0]};
    double u = unit_of(n->dtype);
    uint32_t mask = 0;
    for (int i = 0; i < f.ndim; i++) {
        f.d[i] = d.d[d.ndim - f.ndim + i];
        mask |= 1u << (d.ndim - f.ndim + i);
    }
    int y = normalise(w, in[0], d, mask, n->f[0], u, NULL, NULL);
    if (in[1] >= 0)
        y = eval_binary(w->t, FN_MUL, y, d, in[1], f, d, u);
    return in[2] < 0 ? y : eval_binary(w->t, FN_ADD, y, d, in[2], f, d, u);
}
static const op_def op_layer_norm = {
    "layer_norm",    "tsr_layer_norm($0, $1, $2, TSR_LAYER_NORM_OPTS(.eps = %0, .axes = #0))",
    draw_layer_norm, declare_layer_norm,
    eval_layer_norm, 5};

/* --- softmax and attention -------------------------------------------------------------------- */
static bool draw_softmax(gen *g, pnode *n)
{
    int x = gen_float(g, 1, 4);
    if (x < 0)
        return false;
    unary_like(g, n, x);
    n->i[0] = rnd_below(&g->r, n->shape.ndim) - (rnd_chance(&g->r, 0.2) ? n->shape.ndim : 0);
    return true;
}

static tsr_tensor *declare_softmax(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_softmax(in[0], (int)n->i[0]);
}

static tsr_tensor *declare_log_softmax(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_log_softmax(in[0], (int)n->i[0]);
}

static int eval_softmax_op(walk *w, const pnode *n, const int *in)
{
    return eval_softmax(w, in[0], n->shape, (int)n->i[0], false, unit_of(n->dtype));
}

static int eval_log_softmax(walk *w, const pnode *n, const int *in)
{
    return eval_softmax(w, in[0], n->shape, (int)n->i[0], true, unit_of(n->dtype));
}
static const op_def op_softmax = {"softmax",       "tsr_softmax($0, #0)", draw_softmax,
                                  declare_softmax, eval_softmax_op,       4};
static const op_def op_log_softmax = {"log_softmax",       "tsr_log_softmax($0, #0)", draw_softmax,
                                      declare_log_softmax, eval_log_softmax,          3};

static int eval_masked(walk *w, int x, tsr_dims d, int64_t diagonal, double value)
{
    int64_t n = count_of(d), t = d.d[d.ndim - 1], s = d.d[d.ndim - 2];
    tape_from *from = tape_alloc(w->t, (n + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < n; i++) {
        bool keep = i % t <= i / t % s + diagonal;
        from[i] = keep ? (tape_from){0, (int32_t)i, 1} : (tape_from){0, -1, value};
    }
    return tape_move(w->t, n, 1, &x, from);
}

static bool draw_causal_mask(gen *g, pnode *n)
{
    static const double some[] = {0, -1, 0.5, 2};
    int x = gen_float(g, 2, 4);
    if (x < 0)
        return false;
    unary_like(g, n, x);
    n->i[0] = rnd_below(&g->r, 5) - 2;
    n->f[0] = some[rnd_below(&g->r, 4)];
    return true;
}

static tsr_tensor *declare_causal_mask(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_causal_mask(in[0], n->i[0], n->f[0]);
}

static int eval_causal_mask(walk *w, const pnode *n, const int *in)
{
    return eval_masked(w, in[0], n->shape, n->i[0], n->f[0]);
}
static const op_def op_causal_mask = {"causal_mask",    "tsr_causal_mask($0, #0, %0)",
                                      draw_causal_mask, declare_causal_mask,
                                      eval_causal_mask, 2};

/* i[0] causal; f = scale (negative: not given), dropout; with `masked` operand 3 is a mask */
static bool draw_attention_of(gen *g, pnode *n, bool masked)
{
    int64_t b = 1 + rnd_below(&g->r, 3), h = 1 + rnd_below(&g->r, 3), s = 1 + rnd_below(&g->r, 4),
            t = rnd_chance(&g->r, 0.5) ? s : 1 + rnd_below(&g->r, 4), d = 1 + rnd_below(&g->r, 3),
            e = 1 + rnd_below(&g->r, 3);
    int q = gen_float(g, 4, 4), place;
    if (q >= 0 && rnd_chance(&g->r, 0.5)) {
        const int64_t *qd = gen_at(g, q)->shape.d;
        b = qd[0], h = qd[1], s = qd[2], d = qd[3];
        if (b * h * s * t > 200 || b * h * t * d > 200 || d == 0)
            return false;
    } else {
        b = gen_rows(g, b);
        q = gen_like(g, TSR_DIMS(b, h, s, d), g->dtype, 0);
    }
    if (q < 0)
        return false;
    place = gen_at(g, q)->place;
    n->dtype = gen_at(g, q)->dtype;
    n->nin = 3;
    n->in[0] = q;
    n->in[1] = gen_like(g, TSR_DIMS(b, h, t, d), n->dtype, place);
    n->in[2] = gen_like(g, TSR_DIMS(b, h, t, e), n->dtype, place);
    n->i[0] = rnd_chance(&g->r, 0.5);
    n->f[0] = rnd_chance(&g->r, 0.5) ? -1 : rnd_chance(&g->r, 0.1) ? 0 : 0.7;
    n->f[1] = rnd_chance(&g->r, 0.3) ? 0.25 : 0;
    n->shape = TSR_DIMS(b, h, s, e);
    n->place = place;
    if (masked) {
        int64_t all[4] = {b, h, s, t};
        tsr_dims m = {.ndim = (int)rnd_below(&g->r, 5)};
        for (int i = 0; i < m.ndim; i++)
            m.d[i] = rnd_chance(&g->r, 0.6) ? all[4 - m.ndim + i] : 1;
        n->nin = 4;
        n->in[3] = gen_like(g, m, n->dtype, place);
        if (n->in[3] < 0)
            return false;
    }
    return n->in[1] >= 0 && n->in[2] >= 0 && count_of(n->shape) <= 200;
}

static bool draw_attention(gen *g, pnode *n)
{
    return draw_attention_of(g, n, false);
}

static bool draw_masked_attention(gen *g, pnode *n)
{
    return draw_attention_of(g, n, true);
}

static tsr_tensor *declare_attention(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_attention(in[0], in[1], in[2],
                         TSR_ATTENTION_OPTS(.causal = n->i[0],
                                            .scale = n->f[0] < 0 ? TSR_NOT_GIVEN : n->f[0],
                                            .dropout = n->f[1]));
}

static int eval_attention(walk *w, const pnode *n, const int *in)
{
    double u = unit_of(n->dtype);
    tsr_dims qd = w->g->node[n->in[0]].shape, kd = w->g->node[n->in[1]].shape,
             vd = w->g->node[n->in[2]].shape, sd;
    double scale = n->f[0] >= 0 ? n->f[0] : 1 / sqrt((double)qd.d[3]);
    int q = tape_unary(w->t, in[0], FN_MULS, scale, u);
    int s = eval_matmul(w, q, qd, in[1], kd, false, true, &sd, u);
    if (n->nin == 4)
        s = eval_binary(w->t, FN_ADD, s, sd, in[3], w->g->node[n->in[3]].shape, sd, u);
    if (n->i[0])
        s = eval_masked(w, s, sd, 0, -INFINITY);
    s = eval_softmax(w, s, sd, 3, false, u);
    s = eval_dropout(w, s, n->f[1], "");
    const int y = eval_matmul(w, s, sd, in[2], vd, false, false, NULL, u);
    tape_stuffed(w->t, y, true); /* a weight of 0 may be multiplied or left out */
    return y;
}
static const op_def op_attention = {
    "attention",
    "tsr_attention($0, $1, $2, TSR_ATTENTION_OPTS(.causal = #0, .scale = %0 < 0 ? TSR_NOT_GIVEN : "
    "%0, .dropout = %1))",
    draw_attention,
    declare_attention,
    eval_attention,
    2};

static tsr_tensor *declare_flash(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_scaled_dot_product_attention(
        in[0], in[1], in[2], n->nin == 4 ? in[3] : NULL,
        TSR_ATTENTION_OPTS(.causal = n->i[0], .scale = n->f[0] < 0 ? TSR_NOT_GIVEN : n->f[0],
                           .dropout = n->f[1]));
}
#define FLASH(mask)                                                                            \
    "tsr_scaled_dot_product_attention($0, $1, $2, " mask ", TSR_ATTENTION_OPTS(.causal = #0, " \
    ".scale = %0 < 0 ? TSR_NOT_GIVEN : %0, .dropout = %1))"
static const op_def op_flash = {"flash_attention", FLASH("NULL"),  draw_attention,
                                declare_flash,     eval_attention, 2};
static const op_def op_masked_flash = {"masked_attention", FLASH("$3"),    draw_masked_attention,
                                       declare_flash,      eval_attention, 2};

/* --- losses ----------------------------------------------------------------------------------- */
/* i = reduction, has_ignore, ignore; f[0] smoothing */
static bool draw_cross_entropy(gen *g, pnode *n)
{
    int x = gen_float(g, 2, 2);
    if (x < 0)
        return false;
    tsr_dims d = gen_at(g, x)->shape;
    int place = gen_at(g, x)->place;
    if (d.d[1] < 1)
        return false;
    int ids = gen_ids(g, TSR_DIMS(d.d[0]), d.d[1], place);
    if (ids < 0)
        return false;
    n->nin = 2;
    n->in[0] = x;
    n->in[1] = ids;
    n->i[0] = rnd_below(&g->r, 3);
    n->i[1] = rnd_chance(&g->r, 0.3);
    n->i[2] = n->i[1] ? rnd_below(&g->r, (int)d.d[1]) : 0;
    n->f[0] = rnd_chance(&g->r, 0.4) ? 0.2 : 0;
    n->shape = n->i[0] == TSR_NONE ? TSR_DIMS(d.d[0]) : TSR_SCALAR;
    n->dtype = gen_at(g, x)->dtype;
    n->place = place;
    return true;
}

static tsr_tensor *declare_cross_entropy(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_cross_entropy_with(
        in[0], in[1],
        TSR_CROSS_ENTROPY_OPTS(.reduction = (tsr_reduction)n->i[0], .label_smoothing = n->f[0],
                               .has_ignore_index = n->i[1], .ignore_index = n->i[2]));
}

static int eval_cross_entropy(walk *w, const pnode *n, const int *in)
{
    tsr_dims d = w->g->node[n->in[0]].shape;
    double u = unit_of(n->dtype);
    const tape_value *label = tape_at(w->t, in[1]);
    int64_t rows = d.d[0], c = d.d[1], count = 0, k = 0;
    int l = eval_softmax(w, in[0], d, 1, true, u);
    tape_term *terms = tape_alloc(w->t, (rows * c + 1) * (int64_t)sizeof *terms);
    for (int64_t i = 0; i < rows; i++) {
        bool ignored = n->i[1] && (int64_t)label->v[i] == n->i[2];
        count += !ignored;
        for (int64_t j = 0; j < c && !ignored; j++) {
            double p = (1 - n->f[0]) * (j == (int64_t)label->v[i]) + n->f[0] / (double)c;
            if (p != 0)
                terms[k++] = (tape_term){(int32_t)(n->i[0] == TSR_NONE ? i : 0),
                                         (int32_t)(i * c + j), 0, -p};
        }
    }
    int y = tape_terms(w->t, n->i[0] == TSR_NONE ? rows : 1, l, -1, k, terms, u);
    for (int64_t i = 0; i < label->n; i++)
        if (label->e[i] != 0)
            tape_at(w->t, y)->e[0] = INFINITY;
    /* A mean of no rows is 0, also where all are ignored. */
    if (n->i[0] == TSR_MEAN && count > 0)
        y = tape_unary(w->t, y, FN_DIVS, (double)count, u);
    return y;
}
static const op_def op_cross_entropy = {
    "cross_entropy",
    "tsr_cross_entropy_with($0, $1, TSR_CROSS_ENTROPY_OPTS(.reduction = (tsr_reduction)#0, "
    ".label_smoothing = %0, .has_ignore_index = #1, .ignore_index = #2))",
    draw_cross_entropy,
    declare_cross_entropy,
    eval_cross_entropy,
    6};

static bool draw_mse(gen *g, pnode *n)
{
    int x = gen_float(g, 0, 4);
    if (x < 0)
        return false;
    int y = gen_like(g, gen_at(g, x)->shape, gen_at(g, x)->dtype, gen_at(g, x)->place);
    if (y < 0)
        return false;
    n->nin = 2;
    n->in[0] = x;
    n->in[1] = y;
    n->i[0] = rnd_below(&g->r, 3);
    n->shape = n->i[0] == TSR_NONE ? gen_at(g, x)->shape : TSR_SCALAR;
    n->dtype = gen_at(g, x)->dtype;
    n->place = gen_at(g, x)->place;
    return true;
}

static tsr_tensor *declare_mse(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_mse_loss(in[0], in[1], (tsr_reduction)n->i[0]);
}

static int eval_mse(walk *w, const pnode *n, const int *in)
{
    tsr_dims d = w->g->node[n->in[0]].shape;
    double u = unit_of(n->dtype);
    int x = eval_binary(w->t, FN_SUB, in[0], d, in[1], d, d, u);
    x = eval_binary(w->t, FN_MUL, x, d, x, d, d, u);
    if (n->i[0] == TSR_NONE)
        return x;
    x = eval_sum(w->t, x, d, (1u << d.ndim) - 1, u);
    return n->i[0] == TSR_MEAN && count_of(d) ? tape_unary(w->t, x, FN_DIVS, (double)count_of(d), u)
                                              : x;
}
static const op_def op_mse = {
    "mse_loss", "tsr_mse_loss($0, $1, (tsr_reduction)#0)", draw_mse, declare_mse, eval_mse, 5};

static bool draw_dropout(gen *g, pnode *n)
{
    static const double some[] = {0, 0.25, 0.5, 0.8};
    int x = gen_float(g, 0, 4);
    if (x < 0)
        return false;
    unary_like(g, n, x);
    n->f[0] = some[rnd_below(&g->r, 4)];
    return true;
}

static tsr_tensor *declare_dropout(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_dropout(in[0], n->f[0]);
}

static int eval_dropout_op(walk *w, const pnode *n, const int *in)
{
    return eval_dropout(w, in[0], n->f[0], "");
}
static const op_def op_dropout = {"dropout",       "tsr_dropout($0, %0)", draw_dropout,
                                  declare_dropout, eval_dropout_op,       5};

/* i[0]: normal */
static bool draw_noise(gen *g, pnode *n)
{
    const int x = gen_float(g, 0, 4);
    if (x < 0)
        return false;
    unary_like(g, n, x);
    n->i[0] = rnd_chance(&g->r, 0.5);
    return true;
}

static tsr_tensor *declare_noise(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return n->i[0] ? tsr_randn_like(in[0]) : tsr_rand_like(in[0]);
}

static int eval_noise(walk *w, const pnode *n, const int *in)
{
    const int64_t count = count_of(n->shape);
    double *v = tape_alloc(w->t, (count + 1) * 8), *e = tape_alloc(w->t, (count + 1) * 8);
    const uint64_t key = eval_key(w, "", "random");
    (void)in;
    for (int64_t i = 0; i < count; i++) {
        v[i] = n->i[0] ? tsri_rng_normal(key, w->step, (uint64_t)i)
                       : tsri_rng_uniform(key, w->step, (uint64_t)i);
        e[i] = unit_of(n->dtype) * fabs(v[i]);
    }
    return tape_leaf(w->t, count, v, e, unit_of(n->dtype), true);
}
static const op_def op_noise = {"noise",    "#0 ? tsr_randn_like($0) : tsr_rand_like($0)",
                                draw_noise, declare_noise,
                                eval_noise, 3};

extern const op_def *const ops_norm[];
const op_def *const ops_norm[] = {&op_batch_norm,
                                  &op_layer_norm,
                                  &op_softmax,
                                  &op_log_softmax,
                                  &op_causal_mask,
                                  &op_attention,
                                  &op_flash,
                                  &op_masked_flash,
                                  &op_cross_entropy,
                                  &op_mse,
                                  &op_dropout,
                                  &op_noise,
                                  NULL};
