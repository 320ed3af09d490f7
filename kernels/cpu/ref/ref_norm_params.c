/* SPDX-License-Identifier: Apache-2.0 */
/* The small per-channel ops around batch norm, and the one that applies their result. */
#include "kernels/cpu/ref/ref.h"
#include "kernels/norm.h"

#include <math.h>

static tsr_status param_grad_run(const tsri_kernel *k, void *const *in, void *const *out,
                                 void *scratch)
{
    (void)scratch;
    const tsri_kernel_desc *d = &((const tsri_ref *)k)->desc;
    const tsri_arg *b = &d->in[0];
    for (int64_t c = 0; c < b->shape[2]; c++)
        for (int which = 0; which < 2; which++) {
            double sum = 0; /* gamma's is the second row */
            for (int64_t r = 0; r < b->shape[0]; r++)
                sum += ((const double *)
                            in[0])[r * b->stride[0] + !which * b->stride[1] + c * b->stride[2]];
            tsri_ref_store(d->out[which].dtype, out[which], c * d->out[which].stride[0], sum);
        }
    return TSR_OK;
}

tsr_status tsri_ref_bn_param_grad(tsri_mem *mem, const tsri_kernel_desc *d,
                                  tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != TSR_F64 || !tsri_ref_is_float(d->out[0].dtype) ||
        !tsri_ref_is_float(d->out[1].dtype))
        return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, param_grad_run, out_kernel);
}

/* running' = (1 - momentum) running + momentum new */
static void keep_running(const tsri_arg *a, void *p, int64_t i, double momentum, double fresh)
{
    double old = tsri_ref_load(a->dtype, p, i);
    tsri_ref_store(a->dtype, p, i, (1 - momentum) * old + momentum * fresh);
}

/* The mean of data from that of the centred data, which is NaN where the centre is infinite. */
static double add_back(double centre, double mean)
{
    return isfinite(centre) ? centre + mean : centre;
}

static tsr_status running_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_arg *s = &ref->desc.in[0], *m = &ref->desc.in[1], *v = &ref->desc.in[2];
    const bool many = m->ndim == 2; /* [R, c]: rows are virtual batches */
    const double *count = NULL, *centre = NULL;
    for (int i = 3; i < ref->desc.nin; i++)
        *(ref->desc.in[i].ndim == 0 ? &count : &centre) = in[i];
    const tsri_arg *from = &ref->desc.in[ref->desc.nin - 1]; /* of centre */
    if (count && *count == 1)
        return tsri_fail(TSR_ERR_SHAPE,
                         "all ranks together have one value per channel, of which there is no "
                         "variance; train with larger batches");
    for (int64_t i = 0; i < (many ? m->shape[0] : 1); i++) {
        int64_t r = many ? m->offset[0] + i : 0, row = r - s->offset[0];
        double n = count ? *count : tsri_bn_count(&ref->attrs, r);
        if (row < 0 || row >= s->shape[0] || n == 0)
            continue;
        const double *sums = (const double *)in[0] + row * s->stride[0];
        for (int64_t c = 0; c < s->shape[2]; c++) {
            double mean = sums[c * s->stride[2]] / n;
            double var = sums[s->stride[1] + c * s->stride[2]] / n - mean * mean;
            var = (var < 0 ? 0 : var) * (n > 1 ? n / (n - 1) : 1);
            if (centre)
                mean = add_back(
                    centre[(r - from->offset[0]) * from->stride[0] + c * from->stride[2]] / n,
                    mean);
            keep_running(m, out[0], (many ? i * m->stride[0] : 0) + c * m->stride[m->ndim - 1],
                         ref->attrs.bn.momentum, mean);
            keep_running(v, out[1], (many ? i * v->stride[0] : 0) + c * v->stride[v->ndim - 1],
                         ref->attrs.bn.momentum, var);
        }
    }
    return TSR_OK;
}

tsr_status tsri_ref_bn_running(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != TSR_F64 || !tsri_ref_is_float(d->in[1].dtype) ||
        !tsri_ref_is_float(d->in[2].dtype))
        return tsri_ref_decline(d);
    for (int i = 3; i < d->nin; i++)
        if (d->in[i].dtype != TSR_F64)
            return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, running_run, out_kernel);
}

static tsr_status fold_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_kernel_desc *d = &ref->desc;
    for (int64_t c = 0; c < d->out[0].shape[0]; c++) {
        double p[4]; /* gamma, beta, mean, var: the last axis is c */
        for (int i = 0; i < 4; i++)
            p[i] = tsri_ref_load(d->in[i].dtype, in[i], c * d->in[i].stride[d->in[i].ndim - 1]);
        double scale = p[0] / sqrt(p[3] + ref->attrs.bn.eps);
        tsri_ref_store(d->out[0].dtype, out[0], c * d->out[0].stride[0], scale);
        tsri_ref_store(d->out[1].dtype, out[1], c * d->out[1].stride[0], p[1] - p[2] * scale);
    }
    return TSR_OK;
}

tsr_status tsri_ref_bn_fold(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    for (int i = 0; i < 4; i++)
        if (!tsri_ref_is_float(d->in[i].dtype))
            return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, fold_run, out_kernel);
}

#define ROW(T, name)                                                                        \
    static void name(void *arg, const tsri_ref_row *r)                                      \
    {                                                                                       \
        const tsri_ref_job *j = arg;                                                        \
        const T *x = (const T *)j->in[0] + r->off[1];                                       \
        const T *a = (const T *)j->in[1] + r->off[2], *b = (const T *)j->in[2] + r->off[3]; \
        T *y = (T *)j->out[0] + r->off[0];                                                  \
        const int64_t sx = r->step[1], sa = r->step[2], sb = r->step[3], sy = r->step[0];   \
        for (int64_t i = 0; i < r->n; i++)                                                  \
            y[i * sy] = (T)((double)x[i * sx] * (double)a[i * sa] + (double)b[i * sb]);     \
    }
ROW(float, scale_shift_f32)
ROW(double, scale_shift_f64)

tsr_status tsri_ref_scale_shift(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *y = &d->out[0];
    if (!tsri_ref_is_float(y->dtype) || !tsri_ref_alike(d, 0, 3))
        return tsri_ref_decline(d);
    /* Scale and shift go along the channels, axis 1. */
    const int64_t scale[TSR_MAX_NDIM] = {0, d->in[1].stride[0]};
    const int64_t shift[TSR_MAX_NDIM] = {0, d->in[2].stride[0]};
    return tsri_ref_create_rows(mem, d, y->dtype == TSR_F32 ? scale_shift_f32 : scale_shift_f64, 4,
                                (const int64_t *[]){y->stride, d->in[0].stride, scale, shift},
                                out_kernel);
}
