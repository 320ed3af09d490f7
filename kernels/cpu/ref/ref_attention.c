/* SPDX-License-Identifier: Apache-2.0 */
/* Attention and its gradient, a row of scores at a time. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ref/ref.h"

typedef struct attention {
    tsri_ref ref;
    int64_t heads, s, t, d, e; /* heads: of all samples */
    int64_t ahead;             /* causal: query i sees keys up to i + ahead */
    int lse;                   /* operand or result */
    size_t each;               /* numbers that the work on a head needs */
} attention;

/* The work on one head: its matrices, row-major in f64. */
typedef struct head {
    const attention *v;
    int64_t number;
    double *q, *k, *v_, *row; /* row: [t] */
    const void *mask;
} head;

static double *take(double **at, int64_t n)
{
    double *p = *at;
    *at += n;
    return p;
}

/* Element (row, column) of a head's matrix in an operand. */
static int64_t place(const tsri_arg *a, int64_t number, int64_t row, int64_t column)
{
    return tsri_ref_offset(a, 0, 2, number) + row * a->stride[2] + column * a->stride[3];
}

static double *load(const tsri_arg *a, const void *p, int64_t number, double **scratch)
{
    const int64_t rows = a->shape[2], columns = a->shape[3];
    double *to = take(scratch, rows * columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            to[i * columns + j] = tsri_ref_load(a->dtype, p, place(a, number, i, j));
    return to;
}

static void store(const tsri_arg *a, void *p, int64_t number, const double *from)
{
    const int64_t rows = a->shape[2], columns = a->shape[3];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            tsri_ref_store(a->dtype, p, place(a, number, i, j), from[i * columns + j]);
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* y += a x */
static void add(double *y, double a, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static int64_t lse_place(const attention *v, const tsri_arg *a, int64_t number, int64_t i)
{
    return tsri_ref_offset(a, 0, 3, number * v->s + i);
}

/* Returns the mask's term of a score; its axes of size 1 are for all. */
static double masked(const head *h, int64_t i, int64_t j)
{
    const tsri_arg *m = &h->v->ref.desc.in[3];
    const int64_t heads = h->v->ref.desc.in[0].shape[1];
    const int64_t at[4] = {h->number / heads, h->number % heads, i, j};
    int64_t off = 0;
    for (int a = 0; a < 4; a++)
        off += m->shape[a] == 1 ? 0 : at[a] * m->stride[a];
    return tsri_ref_load(m->dtype, h->mask, off);
}

/* Keys that query i may see, as far as the order of both tells. */
static int64_t seen(const attention *v, int64_t i)
{
    const int64_t n = v->ref.attrs.attention.causal ? i + v->ahead + 1 : v->t;
    return n < 0 ? 0 : n > v->t ? v->t : n;
}

/* Writes the scores of query i to row, and returns how many there are. */
static int64_t score(const head *h, int64_t i)
{
    const attention *v = h->v;
    const int64_t n = seen(v, i);
    for (int64_t j = 0; j < n; j++) {
        const double mask = h->mask ? masked(h, i, j) : 0;
        h->row[j] = mask; /* -inf hides the key, also a NaN in it */
        if (mask != -INFINITY)
            h->row[j] += v->ref.attrs.attention.scale * dot(h->q + i * v->d, h->k + j * v->d, v->d);
    }
    return n;
}

static head begin(const attention *v, void *const *in, int64_t number, double **scratch)
{
    head h = {.v = v, .number = number, .mask = v->ref.attrs.attention.has_mask ? in[3] : NULL};
    h.q = load(&v->ref.desc.in[0], in[0], number, scratch);
    h.k = load(&v->ref.desc.in[1], in[1], number, scratch);
    h.v_ = load(&v->ref.desc.in[2], in[2], number, scratch);
    h.row = take(scratch, v->t);
    return h;
}

static void forward(const attention *v, void *const *in, void *const *out, int64_t number,
                    double *scratch)
{
    const head h = begin(v, in, number, &scratch);
    const tsri_arg *lse = &v->ref.desc.out[v->lse];
    double *y = take(&scratch, v->s * v->e);
    memset(y, 0, (size_t)(v->s * v->e) * sizeof *y);
    for (int64_t i = 0; i < v->s; i++) {
        const int64_t n = score(&h, i);
        bool any = false;
        double most = -INFINITY, sum = 0;
        for (int64_t j = 0; j < n; j++) {
            any = any || !(h.row[j] == -INFINITY); /* a NaN is seen */
            most = h.row[j] > most ? h.row[j] : most;
        }
        for (int64_t j = 0; any && j < n; j++) {
            const double weight = exp(h.row[j] - most);
            sum += weight;
            add(y + i * v->e, weight, h.v_ + j * v->e, v->e);
        }
        for (int64_t j = 0; any && j < v->e; j++)
            y[i * v->e + j] /= sum;
        if (out[v->lse])
            ((double *)out[v->lse])[lse_place(v, lse, number, i)] =
                any ? most + log(sum) : -INFINITY;
    }
    if (out[0])
        store(&v->ref.desc.out[0], out[0], number, y);
}

static void backward(const attention *v, void *const *in, void *const *out, int64_t number,
                     double *scratch)
{
    const head h = begin(v, in, number, &scratch);
    const tsri_kernel_desc *d = &v->ref.desc;
    const double *y = load(&d->in[v->lse - 1], in[v->lse - 1], number, &scratch);
    const double *dy = load(&d->in[v->lse + 1], in[v->lse + 1], number, &scratch);
    const double scale = v->ref.attrs.attention.scale;
    double *const sums = scratch, *dq = take(&scratch, v->s * v->d);
    double *dk = take(&scratch, v->t * v->d), *dv = take(&scratch, v->t * v->e);
    memset(sums, 0, (size_t)(scratch - sums) * sizeof *sums);
    for (int64_t i = 0; i < v->s; i++) {
        const double lse = ((const double *)in[v->lse])[lse_place(v, &d->in[v->lse], number, i)];
        const double *dyi = dy + i * v->e;
        const double mean = dot(y + i * v->e, dyi, v->e);
        const int64_t n = lse == -INFINITY ? 0 : score(&h, i);
        for (int64_t j = 0; j < n; j++) {
            if (h.row[j] == -INFINITY)
                continue;
            const double weight = exp(h.row[j] - lse);
            const double slope = scale * weight * (dot(dyi, h.v_ + j * v->e, v->e) - mean);
            add(dv + j * v->e, weight, dyi, v->e);
            add(dk + j * v->d, slope, h.q + i * v->d, v->d);
            add(dq + i * v->d, slope, h.k + j * v->d, v->d);
        }
    }
    double *const all[3] = {dq, dk, dv};
    for (int i = 0; i < 3; i++)
        if (out[i])
            store(&d->out[i], out[i], number, all[i]);
}

static tsr_status run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const attention *v = (const attention *)k;
    const bool back = v->ref.desc.op == TSRI_OP_FLASH_ATTENTION_DX;
    const int64_t work = v->s * v->t * (v->d + v->e);
    TSRI_REF_EACH(i, 0, v->heads, work > 1 << 12, {
        double *mine = (double *)scratch + (size_t)omp_get_thread_num() * v->each;
        (back ? backward : forward)(v, in, out, i, mine);
    });
    return TSR_OK;
}

tsr_status tsri_ref_flash_attention(tsri_mem *mem, const tsri_kernel_desc *d,
                                    tsri_kernel **out_kernel)
{
    const bool back = d->op == TSRI_OP_FLASH_ATTENTION_DX;
    const tsri_arg *q = &d->in[0], *k = &d->in[1], *v = &d->in[2];
    const int lse = back ? d->nin - 2 : 1;
    if (!tsri_ref_is_float(q->dtype))
        return tsri_ref_decline(d);
    for (int i = 0; i < d->nin + d->nout; i++)
        if ((i < d->nin ? &d->in[i] : &d->out[i - d->nin])->dtype !=
            (i == (back ? lse : d->nin + lse) ? TSR_F64 : q->dtype))
            return tsri_ref_decline(d);
    attention *a = tsri_ref_make(mem, d, run, sizeof *a);
    TSRI_NEED(a);
    a->heads = q->shape[0] * q->shape[1];
    a->s = q->shape[2];
    a->d = q->shape[3];
    a->t = k->shape[2];
    a->e = v->shape[3];
    a->ahead = q->offset[2] - k->offset[2];
    a->lse = lse;
    const int64_t some = a->s * a->d + a->t * (a->d + a->e + 2) + a->s * a->e;
    a->each = (size_t)(back ? 2 * some + a->s * a->e : some);
    a->ref.base.scratch_bytes = (size_t)omp_get_max_threads() * a->each * sizeof(double);
    *out_kernel = &a->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(flash_attention_dx, flash_attention);
