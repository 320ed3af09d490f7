/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers and their gradients, a sample at a time. */
#include "kernels/recurrent.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/ref/ref.h"

typedef struct recurrent {
    tsri_ref ref;
    tsri_cell cell;
    tsri_recurrent_sizes size;
    tsri_recurrent_roles role;
    size_t each; /* numbers that the work on a sample needs */
} recurrent;

/* An operand or result of a run. */
typedef struct buffer {
    const tsri_arg *arg;
    void *data;
} buffer;

static buffer in_of(const recurrent *r, void *const *in, int i)
{
    return (buffer){&r->ref.desc.in[i], in[i]};
}

static buffer out_of(const recurrent *r, void *const *out, int i)
{
    return (buffer){&r->ref.desc.out[i], out[i]};
}

/* Where the rows of sample n at time t begin; t is for operands of three axes. */
static int64_t place(const tsri_arg *a, int64_t t, int64_t n)
{
    return a->ndim == 3 ? t * a->stride[0] + n * a->stride[1] : n * a->stride[0];
}

static void load(buffer b, int64_t t, int64_t n, double *to)
{
    const int last = b.arg->ndim - 1;
    for (int64_t i = 0; i < b.arg->shape[last]; i++)
        to[i] = tsri_ref_load(b.arg->dtype, b.data, place(b.arg, t, n) + i * b.arg->stride[last]);
}

static void store(buffer b, int64_t t, int64_t n, const double *from)
{
    const int last = b.arg->ndim - 1;
    for (int64_t i = 0; i < b.arg->shape[last]; i++)
        tsri_ref_store(b.arg->dtype, b.data, place(b.arg, t, n) + i * b.arg->stride[last], from[i]);
}

static double weight(buffer w, int64_t row, int64_t column)
{
    return tsri_ref_load(w.arg->dtype, w.data, row * w.arg->stride[0] + column * w.arg->stride[1]);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Makes unit j of a step from the input's and the state's parts x and s, whose gates are `pitch`
 * apart: replaces h and c of before, and saves the gates. */
static void step_unit(tsri_cell cell, int64_t pitch, const double *x, const double *s, double *h,
                      double *c, double *gates)
{
    const double first = x[0] + s[0];
    if (cell == TSRI_CELL_LSTM) {
        gates[0] = sigmoid(first);
        gates[pitch] = sigmoid(x[pitch] + s[pitch]);
        gates[2 * pitch] = tanh(x[2 * pitch] + s[2 * pitch]);
        gates[3 * pitch] = sigmoid(x[3 * pitch] + s[3 * pitch]);
        *c = gates[pitch] * *c + gates[0] * gates[2 * pitch];
        *h = gates[3 * pitch] * tanh(*c);
    } else if (cell == TSRI_CELL_GRU) {
        gates[0] = sigmoid(first);
        gates[pitch] = sigmoid(x[pitch] + s[pitch]);
        gates[2 * pitch] = tanh(x[2 * pitch] + gates[0] * s[2 * pitch]);
        gates[3 * pitch] = s[2 * pitch];
        *h = gates[2 * pitch] + gates[pitch] * (*h - gates[2 * pitch]);
    } else {
        *h = cell == TSRI_CELL_TANH ? tanh(first) : first <= 0 ? 0 : first;
    }
}

static void forward(const recurrent *r, void *const *in, void *const *out, int64_t n, double *x)
{
    const tsri_recurrent_roles *role = &r->role;
    const int64_t h = r->size.h, wide = r->size.gates * h;
    double *s = x + wide, *state = s + wide, *c = state + h, *gates = c + h;
    const buffer w = in_of(r, in, role->w);
    load(in_of(r, in, role->h0), 0, n, state);
    if (role->c0 >= 0)
        load(in_of(r, in, role->c0), 0, n, c);
    for (int64_t i = 0; i < r->size.t; i++) {
        const int64_t at = tsri_recurrent_at(&r->ref.attrs, r->size.t, i);
        load(in_of(r, in, role->x), at, n, x);
        memset(s, 0, (size_t)wide * sizeof *s);
        if (role->b >= 0)
            load(in_of(r, in, role->b), 0, 0, s);
        for (int64_t row = 0; row < wide; row++)
            for (int64_t j = 0; j < h; j++)
                s[row] += weight(w, row, j) * state[j];
        for (int64_t j = 0; j < h; j++)
            step_unit(r->cell, h, x + j, s + j, state + j, c + j, gates + j);
        store(out_of(r, out, role->y), at, n, state);
        if (role->cells >= 0)
            store(out_of(r, out, role->cells), at, n, c);
        if (role->gates >= 0)
            store(out_of(r, out, role->gates), at, n, gates);
    }
}

/* The work on a step of the gradient, of a sample. dh, dc: of what the step gave, and then of what
 * it was given, but for its products. */
typedef struct slopes {
    double *before, *state, *gates, *dy, *dcells, *dh, *dc, *dx, *ds;
} slopes;

static void back_unit(tsri_cell cell, int64_t pitch, const slopes *v, int64_t j)
{
    const double *g = v->gates + j, dh = v->dh[j] + v->dy[j], state = v->state[j];
    double *dx = v->dx + j, *ds = v->ds + j;
    v->dh[j] = 0;
    if (cell == TSRI_CELL_LSTM) {
        const double i = g[0], f = g[pitch], n = g[2 * pitch], o = g[3 * pitch], e = tanh(state);
        const double dc = v->dc[j] + v->dcells[j] + dh * o * (1 - e * e);
        dx[0] = dc * n * i * (1 - i);
        dx[pitch] = dc * v->before[j] * f * (1 - f);
        dx[2 * pitch] = dc * i * (1 - n * n);
        dx[3 * pitch] = dh * e * o * (1 - o);
        v->dc[j] = dc * f;
    } else if (cell == TSRI_CELL_GRU) {
        const double by_r = g[0], z = g[pitch], n = g[2 * pitch], s = g[3 * pitch];
        const double dn = dh * (1 - z) * (1 - n * n);
        dx[0] = dn * s * by_r * (1 - by_r);
        dx[pitch] = dh * (v->before[j] - n) * z * (1 - z);
        dx[2 * pitch] = dn;
        ds[2 * pitch] = dn * by_r;
        v->dh[j] = dh * z;
    } else {
        dx[0] = cell == TSRI_CELL_TANH ? dh * (1 - state * state) : state > 0 ? dh : 0;
    }
    for (int i = 0; i < (cell == TSRI_CELL_GRU ? 2 : tsri_cell_gates(cell)); i++)
        ds[i * pitch] = dx[i * pitch];
}

static void load_before(const recurrent *r, void *const *in, int64_t i, int64_t n, double *to)
{
    const tsri_recurrent_roles *role = &r->role;
    if (role->first < 0)
        return;
    if (i == 0)
        load(in_of(r, in, role->first), 0, n, to);
    else
        load(in_of(r, in, role->states), tsri_recurrent_at(&r->ref.attrs, r->size.t, i - 1), n, to);
}

static void backward(const recurrent *r, void *const *in, void *const *out, int64_t n, double *all)
{
    const tsri_recurrent_roles *role = &r->role;
    const int64_t h = r->size.h, wide = r->size.gates * h;
    const buffer w = in_of(r, in, role->w);
    slopes v = {.before = all, .state = all + h, .dy = all + 2 * h, .dcells = all + 3 * h};
    v.dh = all + 4 * h;
    v.dc = all + 5 * h;
    v.gates = all + 6 * h;
    v.dx = v.gates + TSRI_CELL_GATES * h;
    v.ds = v.dx + wide;
    memset(v.dcells, 0, (size_t)(3 * h) * sizeof(double));
    for (int64_t i = r->size.t - 1; i >= 0; i--) {
        const int64_t at = tsri_recurrent_at(&r->ref.attrs, r->size.t, i);
        load_before(r, in, i, n, v.before);
        load(in_of(r, in, role->states), at, n, v.state);
        load(in_of(r, in, role->dy), at, n, v.dy);
        if (role->gates >= 0)
            load(in_of(r, in, role->gates), at, n, v.gates);
        if (role->dc >= 0)
            load(in_of(r, in, role->dc), at, n, v.dcells);
        for (int64_t j = 0; j < h; j++)
            back_unit(r->cell, h, &v, j);
        for (int64_t row = 0; row < wide; row++)
            for (int64_t j = 0; j < h; j++)
                v.dh[j] += v.ds[row] * weight(w, row, j);
        store(out_of(r, out, role->dx), at, n, v.dx);
        if (role->ds >= 0)
            store(out_of(r, out, role->ds), at, n, v.ds);
    }
    store(out_of(r, out, role->dh0), 0, n, v.dh);
    if (role->dc0 >= 0)
        store(out_of(r, out, role->dc0), 0, n, v.dc);
}

static tsr_status run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const recurrent *r = (const recurrent *)k;
    const bool back = r->ref.desc.op == TSRI_OP_RECURRENT_DX;
    const int64_t work = r->size.t * r->size.gates * r->size.h * r->size.h;
    TSRI_REF_EACH(i, 0, r->size.n, work > 1 << 12, {
        double *mine = (double *)scratch + (size_t)omp_get_thread_num() * r->each;
        (back ? backward : forward)(r, in, out, i, mine);
    });
    return TSR_OK;
}

tsr_status tsri_ref_recurrent(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    bool alike = tsri_ref_all_float(d) && tsri_ref_alike(d, 0, d->nin);
    for (int i = 1; i < d->nout; i++)
        alike = alike && d->out[i].dtype == d->out[0].dtype;
    if (!alike)
        return tsri_ref_decline(d);
    recurrent *r = tsri_ref_make(mem, d, run, sizeof *r);
    TSRI_NEED(r);
    r->cell = (tsri_cell)d->attrs->recurrent.cell;
    r->size = tsri_recurrent_sizes_of(d);
    r->role = tsri_recurrent_roles_of(d->op, d->attrs);
    r->each = (size_t)((2 * r->size.gates + TSRI_CELL_GATES + 6) * r->size.h);
    r->ref.base.scratch_bytes = (size_t)omp_get_max_threads() * r->each * sizeof(double);
    *out_kernel = &r->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(recurrent_dx, recurrent);
