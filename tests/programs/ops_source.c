/* SPDX-License-Identifier: Apache-2.0 */
/* Where values come from: inputs, variables, random numbers, constants; other signatures of a
 * value; gradients. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "src/core/rng.h"

static int leaf(walk *w, const pnode *n, double *v, bool diff)
{
    return tape_leaf(w->t, count_of(n->shape), v, NULL, unit_of(n->dtype),
                     diff && unit_of(n->dtype) != 0);
}

static double *room(walk *w, const pnode *n)
{
    return tape_alloc(w->t, (count_of(n->shape) + 1) * 8);
}

/* Numbers that f32 holds and that can be added without rounding: multiples of 2^-10. */
static double number(const pnode *n, uint64_t seed, int64_t i)
{
    double r = rnd_number(seed, i);
    if (n->dtype == TSR_BOOL)
        return r < 0.5;
    if (n->dtype == TSR_U8)
        return floor(r * 256);
    if (n->dtype == TSR_I32) {
        static const double ends[] = {INT32_MIN, INT32_MAX, INT32_MIN + 1, INT32_MAX - 1, 1 << 16};
        return r < 0.3   ? ends[(int)(r / 0.3 * 5)]
               : r < 0.6 ? floor((r - 0.3) * 30) - 4
                         : floor((r - 0.6) / 0.4 * 0x1p32) - 0x1p31;
    }
    if (n->dtype == TSR_I64)
        return n->below ? floor(r * (double)n->below) : floor(r * 9) - 4;
    switch (n->i[0]) {
    case 1: /* positive */
        return (floor(r * 1800) + 200) / 1024;
    case 2: /* ties */
        return floor(r * 5) - 2;
    case 3: /* anything */
        return r < 0.1 ? INFINITY : r < 0.15 ? NAN : r < 0.3 ? 0 : floor(r * 4096) / 1024 - 2;
    case 4: /* a mean far from 0 */
        return 1e6 + floor(r * 4096) / 1024 - 2;
    default:
        return floor(r * 4096) / 1024 - 2;
    }
}

void store_number(void *to, tsr_dtype dtype, int64_t i, double v)
{
    if (dtype == TSR_F64)
        ((double *)to)[i] = v;
    else if (dtype == TSR_F32)
        ((float *)to)[i] = (float)v;
    else if (dtype == TSR_I64)
        ((int64_t *)to)[i] = (int64_t)v;
    else if (dtype == TSR_I32)
        ((uint32_t *)to)[i] = (uint32_t)(int64_t)v;
    else
        ((uint8_t *)to)[i] = dtype == TSR_BOOL ? v != 0 : (uint8_t)(int64_t)v;
}

double input_number(const pnode *n, uint64_t seed, int64_t i)
{
    const uint64_t own = seed * 1000003 + (uint64_t)n->tag;
    const double v = number(n, own, i);
    return n->i[1] ? special_number(n->dtype, own, i, v) : v;
}

static int eval_input(walk *w, const pnode *n, const int *in)
{
    (void)in;
    double *v = room(w, n);
    for (int64_t i = 0; i < count_of(n->shape); i++)
        v[i] = input_number(n, w->run_seed, i);
    return leaf(w, n, v, true);
}

static void input_name(char name[16], const pnode *n)
{
    snprintf(name, 16, "x%d", n->tag);
}

static tsr_tensor *declare_input(declared *d, const pnode *n, tsr_tensor *const *in)
{
    char name[16];
    (void)in;
    input_name(name, n);
    return tsr_input_with(d->graph, name, n->dtype, n->shape, d->place[n->place], n->sbp,
                          TSR_INPUT_OPTS(.batch_axis = n->batch - 1));
}

static tsr_tensor *declare_from_local(declared *d, const pnode *n, tsr_tensor *const *in)
{
    char name[16];
    (void)in;
    input_name(name, n);
    return tsr_from_local(d->graph, name, n->dtype, n->shape, d->place[n->place], n->sbp);
}

static const op_def op_input = {
    "input", "tsr_input(g, \"^N\", ^D, @s, ^P, ^S)", NULL, declare_input, eval_input, 0};
static const op_def op_from_local = {"from_local", "tsr_from_local(g, \"^N\", ^D, @s, ^P, ^S)",
                                     NULL,         declare_from_local,
                                     eval_input,   0};

/* --- variables -------------------------------------------------------------------------------- */
static tsr_tensor *declare_use(declared *d, const pnode *n, tsr_tensor *const *in)
{
    const pvar *v = &d->p->var[n->var];
    (void)in;
    return tsr_use(d->module[v->module], v->last, d->tensor[0]);
}

/* One value per variable and run: that of the run's beginning. */
static int eval_use(walk *w, const pnode *n, const int *in)
{
    (void)in;
    if (w->reads[n->var] < 0)
        w->reads[n->var] = tape_leaf(w->t, count_of(n->shape), w->var_v[n->var], w->var_e[n->var],
                                     unit_of(n->dtype), unit_of(n->dtype) != 0);
    return w->reads[n->var];
}
static const op_def op_use = {"use", "tsr_use(^M, ^V, t0)", NULL, declare_use, eval_use, 0};

/* The value behind the updates so far, through which no gradient flows. */
static tsr_tensor *declare_updated(declared *d, const pnode *n, tsr_tensor *const *in)
{
    const pvar *v = &d->p->var[n->var];
    (void)in;
    return tsr_detach(tsr_read_updated(d->graph, tsr_module_find(d->module[v->module], v->last)));
}

static int eval_updated(walk *w, const pnode *n, const int *in)
{
    int now = w->updated[n->var] >= 0 ? w->updated[n->var] : eval_use(w, n, in);
    return w->nudge ? now : tape_detach(w->t, now); /* differences look through it */
}
static const op_def op_updated = {
    "updated",    "tsr_detach(tsr_read_updated(g, tsr_module_find(^M, ^V)))",
    NULL,         declare_updated,
    eval_updated, 0};

/* --- made of nothing -------------------------------------------------------------------------- */
static tsr_tensor *declare_random(declared *d, const pnode *n, tsr_tensor *const *in)
{
    char name[16];
    (void)in;
    input_name(name, n);
    return (n->i[0] ? tsr_normal_at : tsr_uniform_at)(
        d->graph, name, n->dtype, n->shape, d->place[n->place], n->sbp, n->f[0], n->f[1], TSR_HERE);
}

static int eval_random(walk *w, const pnode *n, const int *in)
{
    char name[16];
    double *v = room(w, n), *e = room(w, n);
    (void)in;
    input_name(name, n);
    uint64_t key = tsri_rng_key(w->g->seed, name);
    for (int64_t i = 0; i < count_of(n->shape); i++) {
        v[i] = n->i[0] ? n->f[0] + n->f[1] * tsri_rng_normal(key, 0, (uint64_t)i)
                       : n->f[0] + (n->f[1] - n->f[0]) * tsri_rng_uniform(key, 0, (uint64_t)i);
        e[i] = unit_of(n->dtype) * (fabs(v[i]) + fabs(n->f[0]));
    }
    return tape_leaf(w->t, count_of(n->shape), v, e, unit_of(n->dtype), true);
}
static const op_def op_random = {"random", "RANDOM", NULL, declare_random, eval_random, 0};

static tsr_tensor *declare_full(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)in;
    return tsr_full(d->graph, n->dtype, n->shape, d->place[n->place], n->sbp, n->f[0]);
}

static int eval_full(walk *w, const pnode *n, const int *in)
{
    double *v = room(w, n);
    (void)in;
    for (int64_t i = 0; i < count_of(n->shape); i++)
        v[i] = n->f[0];
    return leaf(w, n, v, true);
}
static const op_def op_full = {
    "full", "tsr_full(g, ^D, @s, ^P, ^S, %0)", NULL, declare_full, eval_full, 0};

static tsr_tensor *declare_arange(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)in;
    return tsr_arange(d->graph, n->dtype, n->shape.d[0], n->f[0], n->f[1], d->place[n->place],
                      n->sbp);
}

static int eval_arange(walk *w, const pnode *n, const int *in)
{
    double *v = room(w, n);
    (void)in;
    for (int64_t i = 0; i < count_of(n->shape); i++)
        v[i] = n->f[0] + (double)i * n->f[1];
    return leaf(w, n, v, true);
}
static const op_def op_arange = {
    "arange", "tsr_arange(g, ^D, @n, %0, %1, ^P, ^S)", NULL, declare_arange, eval_arange, 0};

static tsr_tensor *declare_constant(declared *d, const pnode *n, tsr_tensor *const *in)
{
    char data[300 * 8];
    (void)in;
    for (int64_t i = 0; i < count_of(n->shape); i++)
        store_number(data, n->dtype, i, input_number(n, d->g->seed, i));
    return tsr_constant(d->graph, n->dtype, n->shape, data, d->place[n->place], n->sbp);
}

static int eval_constant(walk *w, const pnode *n, const int *in)
{
    double *v = room(w, n);
    (void)in;
    for (int64_t i = 0; i < count_of(n->shape); i++)
        v[i] = input_number(n, w->g->seed, i);
    return leaf(w, n, v, true);
}
static const op_def op_constant = {"constant",       "CONSTANT",    NULL,
                                   declare_constant, eval_constant, 0};

/* --- another signature ------------------------------------------------------------------------ */
static bool draw_to_global(gen *g, pnode *n)
{
    int x = rnd_chance(&g->r, 0.15) ? gen_any(g, TSR_DTYPE_NONE) : gen_float(g, 0, 5);
    if (x < 0)
        return false;
    const pnode *a = gen_at(g, x);
    n->nin = 1;
    n->in[0] = x;
    n->shape = a->shape;
    n->dtype = a->dtype;
    n->below = a->below;
    n->place = rnd_below(&g->r, g->p->nplaces);
    bool whole = a->dtype != TSR_F32 && a->dtype != TSR_F64;
    n->sbp = gen_sbp(g, a->shape, n->place, !whole);
    return true;
}

static tsr_tensor *declare_to_global(declared *d, const pnode *n, tsr_tensor *const *in)
{
    return tsr_to_global(in[0], d->place[n->place], n->sbp);
}

static int eval_to_global(walk *w, const pnode *n, const int *in)
{
    int64_t count = count_of(n->shape);
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < count; i++)
        from[i] = (tape_from){0, (int32_t)i, 1};
    return tape_move(w->t, count, 1, in, from);
}
static const op_def op_to_global = {"to_global",    "tsr_to_global($0, ^P, ^S)",
                                    draw_to_global, declare_to_global,
                                    eval_to_global, 10};

/* --- gradients: in[0] = y, in[1..] = x -------------------------------------------------------- */
static bool draw_gradients(gen *g, pnode *n)
{
    int y = rnd_chance(&g->r, 0.6) ? gen_loss(g) : -1, want = 1 + rnd_below(&g->r, 3);
    for (int k = 0; k < 8 && y < 0; k++) {
        y = gen_float(g, 0, 5);
        if (y >= 0 && (gen_at(g, y)->opaque || !gen_value(g, y)->diff))
            y = -1;
    }
    if (y < 0)
        return false;
    tape_backward(g->w.t, g->w.value[y]);
    n->nin = 1;
    n->in[0] = y;
    for (int k = 0; k < 12 && n->nin <= want; k++) {
        int x = rnd_below(&g->r, y + 1);
        /* A value inside of what lowering joins has readers of its gradient besides. */
        for (int i = 0; i < y && k % 4 == 0; i++)
            if (gen_at(g, i)->op == op_find("batch_norm") && rnd_chance(&g->r, 0.5))
                x = i;
        const tape_value *v = gen_value(g, x);
        if (x == y || !v->diff || !v->reached || g->w.value[x] == g->w.value[y])
            continue;
        n->in[n->nin++] = x;
        int from = gen_at(g, x)->op == op_find("batch_norm") ? gen_at(g, x)->in[0] : -1;
        if (from >= 0 && gen_value(g, from)->diff && gen_value(g, from)->reached)
            n->in[n->nin++] = from;
    }
    if (n->nin < 2)
        return false;
    n->opaque = true;
    n->shape = gen_at(g, n->in[1])->shape;
    n->dtype = gen_at(g, n->in[1])->dtype;
    n->place = gen_at(g, n->in[1])->place;
    return true;
}

static tsr_tensor *declare_gradients(declared *d, const pnode *n, tsr_tensor *const *in)
{
    int node = (int)(n - d->g->node);
    tsr_gradients(in[0], n->nin - 1, in + 1, d->parts[node]);
    return d->parts[node][0];
}

static int gradient_of(walk *w, int y, int x)
{
    tape_backward(w->t, y);
    const tape_value *v = tape_at(w->t, x);
    const int id = tape_leaf(w->t, v->n, v->g, v->ge, v->u, false);
    tape_at(w->t, id)->partial = true;
    return id;
}

static int eval_gradients(walk *w, const pnode *n, const int *in)
{
    (void)n;
    return gradient_of(w, in[0], in[1]);
}
static const op_def op_gradients = {"gradients",       "GRADIENTS",    draw_gradients,
                                    declare_gradients, eval_gradients, 14};

/* Another result of the same call: i[0] which. */
static bool draw_other_gradient(gen *g, pnode *n)
{
    int from = -1, op = op_find("gradients");
    for (int k = 0; k < g->g->nnodes; k++)
        if (gen_at(g, k)->op == op && gen_at(g, k)->nin > 2 && (from < 0 || rnd_chance(&g->r, 0.5)))
            from = k;
    if (from < 0)
        return false;
    const pnode *a = gen_at(g, from);
    n->nin = 1;
    n->in[0] = from;
    n->i[0] = 1 + rnd_below(&g->r, a->nin - 2);
    const pnode *x = gen_at(g, a->in[1 + n->i[0]]);
    n->opaque = true;
    n->shape = x->shape;
    n->dtype = x->dtype;
    n->place = x->place;
    return true;
}

static tsr_tensor *declare_other_gradient(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)in;
    return d->parts[n->in[0]][n->i[0]];
}

static int eval_other_gradient(walk *w, const pnode *n, const int *in)
{
    const pnode *a = &w->g->node[n->in[0]];
    (void)in;
    return gradient_of(w, w->value[a->in[0]], w->value[a->in[1 + n->i[0]]]);
}
static const op_def op_other_gradient = {
    "other_gradient", "OTHER", draw_other_gradient, declare_other_gradient, eval_other_gradient, 8};

extern const op_def *const ops_source[];
const op_def *const ops_source[] = {
    &op_input,  &op_from_local, &op_use,       &op_updated,   &op_random,         &op_full,
    &op_arange, &op_constant,   &op_to_global, &op_gradients, &op_other_gradient, NULL};
