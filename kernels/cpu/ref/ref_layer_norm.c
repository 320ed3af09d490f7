/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm in its parts. Sums are f64, over a row by one thread, or over a feature by one thread.
 * Formulas: src/core/op_list.h. */
#include "kernels/cpu/ref/ref.h"
#include "kernels/norm.h"

#include <math.h>

typedef struct norm {
    tsri_ref ref;
    int64_t rows, features;
    tsri_norm_roles role;
} norm;

/* Where the rows of an operand of x's shape begin, and its features in them. */
typedef struct places {
    const tsri_arg *arg;
    void *p;
    int64_t *row, *feature;
} places;

static places find(const norm *v, const tsri_arg *a, void *p, int64_t **scratch)
{
    const int lead = a->ndim - v->ref.attrs.ln.axes;
    places q = {.arg = a, .p = p, .row = *scratch, .feature = *scratch + v->rows};
    *scratch += v->rows + v->features;
    for (int64_t i = 0; i < v->rows; i++)
        q.row[i] = tsri_ref_offset(a, 0, lead, i);
    for (int64_t i = 0; i < v->features; i++)
        q.feature[i] = tsri_ref_offset(a, lead, a->ndim, i);
    return q;
}

static double load(const places *q, int64_t row, int64_t feature)
{
    return tsri_ref_load(q->arg->dtype, q->p, q->row[row] + q->feature[feature]);
}

/* gamma or beta, which broadcasts to x: it has the features, or rows too, or some axes of size 1.
 */
static double param(const norm *v, int operand, void *const *in, int64_t row, int64_t feature)
{
    const tsri_arg *a = &v->ref.desc.in[operand], *x = &v->ref.desc.in[0];
    int64_t rest = row * v->features + feature, at = 0;
    for (int i = x->ndim - 1, j = a->ndim - 1; j >= 0; rest /= x->shape[i], i--, j--)
        at += a->shape[j] == 1 ? 0 : rest % x->shape[i] * a->stride[j];
    return tsri_ref_load(a->dtype, in[operand], at);
}

/* The two numbers of a row. */
static double *pair(const tsri_arg *a, void *p, int64_t row)
{
    return (double *)p + tsri_ref_offset(a, 0, a->ndim - 1, row);
}

static void moments(const norm *v, void *const *in, int64_t row, double *mean, double *rstd)
{
    const tsri_arg *a = &v->ref.desc.in[1];
    const double *s = pair(a, in[1], row), n = (double)v->ref.attrs.ln.count;
    *mean = s[0] / n;
    double var = s[a->stride[a->ndim - 1]] / n - *mean * *mean;
    *rstd = 1 / sqrt((var < 0 ? 0 : var) + v->ref.attrs.ln.eps);
}

static tsr_status stats_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const norm *v = (const norm *)k;
    const tsri_arg *o = &v->ref.desc.out[0];
    int64_t *room = scratch;
    places x = find(v, &v->ref.desc.in[0], in[0], &room);
    TSRI_REF_EACH(r, 0, v->rows, v->rows * v->features > 1 << 16, {
        double s0 = 0, s1 = 0, *to = pair(o, out[0], r);
        for (int64_t f = 0; f < v->features; f++) {
            const double e = load(&x, r, f);
            s0 += e;
            s1 += e * e;
        }
        to[0] = s0;
        to[o->stride[o->ndim - 1]] = s1;
    });
    return TSR_OK;
}

static tsr_status apply_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const norm *v = (const norm *)k;
    int64_t *room = scratch;
    places x = find(v, &v->ref.desc.in[0], in[0], &room);
    places y = find(v, &v->ref.desc.out[0], out[0], &room);
    TSRI_REF_EACH(r, 0, v->rows, v->rows * v->features > 1 << 16, {
        double mean, rstd;
        moments(v, in, r, &mean, &rstd);
        for (int64_t f = 0; f < v->features; f++) {
            double e = (load(&x, r, f) - mean) * rstd;
            e *= v->role.gamma ? param(v, v->role.gamma, in, r, f) : 1;
            e += v->role.beta ? param(v, v->role.beta, in, r, f) : 0;
            tsri_ref_store(y.arg->dtype, y.p, y.row[r] + y.feature[f], e);
        }
    });
    return TSR_OK;
}

static tsr_status bwd_stats_run(const tsri_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const norm *v = (const norm *)k;
    const tsri_arg *o = &v->ref.desc.out[0];
    int64_t *room = scratch;
    places x = find(v, &v->ref.desc.in[0], in[0], &room);
    places dy = find(v, &v->ref.desc.in[v->role.dy], in[v->role.dy], &room);
    TSRI_REF_EACH(r, 0, v->rows, v->rows * v->features > 1 << 16, {
        double mean, rstd, s0 = 0, s1 = 0, *to = pair(o, out[0], r);
        moments(v, in, r, &mean, &rstd);
        for (int64_t f = 0; f < v->features; f++) {
            const double g =
                load(&dy, r, f) * (v->role.gamma ? param(v, v->role.gamma, in, r, f) : 1);
            s0 += g;
            s1 += g * (load(&x, r, f) - mean) * rstd;
        }
        to[0] = s0;
        to[o->stride[o->ndim - 1]] = s1;
    });
    return TSR_OK;
}

static tsr_status bwd_apply_run(const tsri_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const norm *v = (const norm *)k;
    const tsri_arg *b = &v->ref.desc.in[v->role.bstats];
    const double n = (double)v->ref.attrs.ln.count;
    int64_t *room = scratch;
    places x = find(v, &v->ref.desc.in[0], in[0], &room);
    places dy = find(v, &v->ref.desc.in[v->role.dy], in[v->role.dy], &room);
    places dx = find(v, &v->ref.desc.out[0], out[0], &room);
    TSRI_REF_EACH(r, 0, v->rows, v->rows * v->features > 1 << 16, {
        double mean, rstd;
        moments(v, in, r, &mean, &rstd);
        const double *s = pair(b, in[v->role.bstats], r);
        const double d0 = s[0] / n, d1 = s[b->stride[b->ndim - 1]] / n;
        for (int64_t f = 0; f < v->features; f++) {
            const double g =
                load(&dy, r, f) * (v->role.gamma ? param(v, v->role.gamma, in, r, f) : 1);
            const double xhat = (load(&x, r, f) - mean) * rstd;
            tsri_ref_store(dx.arg->dtype, dx.p, dx.row[r] + dx.feature[f],
                           rstd * (g - d0 - xhat * d1));
        }
    });
    return TSR_OK;
}

static tsr_status param_grad_run(const tsri_kernel *k, void *const *in, void *const *out,
                                 void *scratch)
{
    const norm *v = (const norm *)k;
    const tsri_kernel_desc *d = &v->ref.desc;
    int64_t *room = scratch;
    places x = find(v, &d->in[0], in[0], &room), dy = find(v, &d->in[2], in[2], &room);
    double *mean = (double *)(void *)room, *rstd = mean + v->rows;
    for (int64_t r = 0; r < v->rows; r++)
        moments(v, in, r, &mean[r], &rstd[r]);
    TSRI_REF_EACH(f, 0, v->features, v->rows * v->features > 1 << 16, {
        double sum[2] = {0};
        for (int64_t r = 0; r < v->rows; r++) {
            const double g = load(&dy, r, f);
            sum[0] += g * (load(&x, r, f) - mean[r]) * rstd[r];
            sum[1] += g;
        }
        for (int o = 0; o < 2; o++)
            tsri_ref_store(d->out[o].dtype, out[o],
                           tsri_ref_offset(&d->out[o], 0, d->out[o].ndim, f), sum[o]);
    });
    return TSR_OK;
}

tsr_status tsri_ref_ln_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0];
    tsri_ref_run_fn *run = d->op == TSRI_OP_LN_STATS       ? stats_run
                           : d->op == TSRI_OP_LN_APPLY     ? apply_run
                           : d->op == TSRI_OP_LN_BWD_STATS ? bwd_stats_run
                           : d->op == TSRI_OP_LN_BWD_APPLY ? bwd_apply_run
                                                           : param_grad_run;
    if (!tsri_ref_all_float(d) || (d->nin > 1 && d->in[1].dtype != TSR_F64))
        return tsri_ref_decline(d);
    norm *v = tsri_ref_make(mem, d, run, sizeof *v);
    TSRI_NEED(v);
    const tsri_attrs *at = &v->ref.attrs;
    v->rows = v->features = 1;
    for (int i = 0; i < x->ndim; i++)
        *(i < x->ndim - at->ln.axes ? &v->rows : &v->features) *= x->shape[i];
    v->role = tsri_ln_roles(d);
    /* Places of at most three operands, or of two and the moments of all rows. */
    v->ref.base.scratch_bytes = (size_t)(4 * v->rows + 3 * v->features) * sizeof(int64_t);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(ln_apply, ln_stats);
TSRI_REF_SAME(ln_bwd_stats, ln_stats);
TSRI_REF_SAME(ln_bwd_apply, ln_stats);
TSRI_REF_SAME(ln_param_grad, ln_stats);
