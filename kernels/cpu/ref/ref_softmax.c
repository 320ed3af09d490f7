/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and cross entropy. */
#include "kernels/cpu/ref/ref.h"

#include <math.h>

typedef struct softmax {
    tsri_ref ref;
    int64_t size, stride[4]; /* of the axis, in the order of the walk: out, in */
} softmax;

#define T float
#define FN(name) name##_f32
#include "kernels/cpu/ref/ref_softmax_t.h"
#undef T
#undef FN
#define T double
#define FN(name) name##_f64
#include "kernels/cpu/ref/ref_softmax_t.h"
#undef T
#undef FN

/* Walks the shape without the axis. */
tsr_status tsri_ref_softmax(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    int axis = d->attrs->softmax.axis;
    if (!tsri_ref_is_float(y->dtype) || !tsri_ref_alike(d, 0, d->nin))
        return tsri_ref_decline(d);
    softmax *v =
        tsri_ref_make_rows(mem, d, y->dtype == TSR_F32 ? softmax_f32 : softmax_f64, sizeof *v);
    TSRI_NEED(v);
    int64_t shape[TSR_MAX_NDIM];
    for (int i = 0; i < y->ndim; i++)
        shape[i] = i == axis && y->shape[i] ? 1 : y->shape[i];
    v->size = x->shape[axis];
    const int64_t *stride[4] = {y->stride};
    for (int i = 0; i < d->nin; i++)
        stride[1 + i] = d->in[i].stride;
    for (int i = 0; i <= d->nin; i++)
        v->stride[i] = stride[i][axis];
    tsri_ref_walk(&v->ref.iter, y->ndim, shape, 1 + d->nin, stride);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(softmax_dx, softmax);
TSRI_REF_SAME(softmax_sum, softmax);
TSRI_REF_SAME(softmax_finish, softmax);
TSRI_REF_SAME(softmax_dot, softmax);
TSRI_REF_SAME(softmax_bwd, softmax);

static bool is_ignored(const tsri_ref *ref, int64_t label)
{
    return tsri_label_is_ignored(&ref->desc, label);
}

static void store_row(const tsri_kernel_desc *d, void *const *out, int64_t i, double loss,
                      double weight, double max, double log_sum)
{
    const tsri_arg *lse = &d->out[2];
    tsri_ref_store(d->out[0].dtype, out[0], i * d->out[0].stride[0], loss);
    tsri_ref_store(d->out[1].dtype, out[1], i * d->out[1].stride[0], weight);
    tsri_ref_store(lse->dtype, out[2], i * lse->stride[0], max);
    tsri_ref_store(lse->dtype, out[2], i * lse->stride[0] + lse->stride[1], log_sum);
}

static tsr_status ce_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_arg *x = &ref->desc.in[0];
    const double s = ref->attrs.ce.smoothing;
    for (int64_t i = 0; i < x->shape[0]; i++) {
        int64_t label = ((const int64_t *)in[1])[i * ref->desc.in[1].stride[0]];
        TSRI_TRY(tsri_check_label(&ref->desc, i, label));
        double max, log_sum, mean, loss = 0, weight = 0;
        if (x->dtype == TSR_F32)
            ce_row_f32(x, (const float *)in[0] + i * x->stride[0], &max, &log_sum, &mean);
        else
            ce_row_f64(x, (const double *)in[0] + i * x->stride[0], &max, &log_sum, &mean);
        if (!is_ignored(ref, label)) {
            int64_t at = i * x->stride[0] + label * x->stride[1];
            loss = (1 - s) * (log_sum - (tsri_ref_load(x->dtype, in[0], at) - max));
            loss += s > 0 ? s * (log_sum - mean) : 0;
            weight = 1;
        }
        store_row(&ref->desc, out, i, loss, weight, max, log_sum);
    }
    return TSR_OK;
}

tsr_status tsri_ref_ce(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_ref_is_float(d->in[0].dtype) || d->in[1].dtype != TSR_I64)
        return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, ce_run, out_kernel);
}

/* Rows of the terms and of what follows from them. */
static tsr_status ce_terms_run(const tsri_kernel *k, void *const *in, void *const *out,
                               void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_arg *x = &ref->desc.in[0], *t = &ref->desc.out[0];
    for (int64_t i = 0; i < x->shape[0]; i++) {
        int64_t label = ((const int64_t *)in[1])[i * ref->desc.in[1].stride[0]];
        TSRI_TRY(tsri_check_label(&ref->desc, i, label));
        double m = tsri_ref_load(ref->desc.in[2].dtype, in[2], i * ref->desc.in[2].stride[0]);
        int64_t at = is_ignored(ref, label) ? -1 : label - x->offset[1];
        double sum = 0, hit = 0, all = 0;
        for (int64_t c = 0; c < x->shape[1]; c++) {
            double v = tsri_ref_load(x->dtype, in[0], i * x->stride[0] + c * x->stride[1]) - m;
            sum += exp(v);
            hit = c == at ? v : hit;
            all += v;
        }
        double *to = (double *)out[0] + i * t->stride[0];
        to[0] = sum;
        to[t->stride[1]] = hit;
        to[2 * t->stride[1]] = ref->attrs.ce.smoothing > 0 ? all : 0;
    }
    return TSR_OK;
}

tsr_status tsri_ref_ce_terms(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_ref_is_float(d->in[0].dtype) || d->in[1].dtype != TSR_I64 ||
        d->out[0].dtype != TSR_F64)
        return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, ce_terms_run, out_kernel);
}

static tsr_status ce_finish_run(const tsri_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_kernel_desc *d = &ref->desc;
    const tsri_arg *t = &d->in[0];
    const double s = ref->attrs.ce.smoothing, classes = (double)ref->attrs.ce.classes;
    for (int64_t i = 0; i < t->shape[0]; i++) {
        const double *row = (const double *)in[0] + i * t->stride[0];
        double log_sum = log(row[0]);
        bool counts =
            d->nin < 3 || !is_ignored(ref, ((const int64_t *)in[2])[i * d->in[2].stride[0]]);
        double loss = (1 - s) * (log_sum - row[t->stride[1]]);
        loss += s > 0 ? s * (log_sum - row[2 * t->stride[1]] / classes) : 0;
        double m = tsri_ref_load(d->in[1].dtype, in[1], i * d->in[1].stride[0]);
        store_row(d, out, i, counts ? loss : 0, counts, m, log_sum);
    }
    return TSR_OK;
}

tsr_status tsri_ref_ce_finish(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != TSR_F64 || !tsri_ref_is_float(d->in[1].dtype) ||
        (d->nin > 2 && d->in[2].dtype != TSR_I64))
        return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, ce_finish_run, out_kernel);
}

static tsr_status ce_dx_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_kernel_desc *d = &ref->desc;
    const tsri_arg *x = &d->in[0], *l = &d->in[2], *y = &d->out[0];
    for (int64_t i = 0; i < x->shape[0]; i++) {
        int64_t label = ((const int64_t *)in[1])[i * d->in[1].stride[0]];
        TSRI_TRY(tsri_check_label(&ref->desc, i, label));
        double lse[2];
        for (int j = 0; j < 2; j++)
            lse[j] = tsri_ref_load(l->dtype, in[2], i * l->stride[0] + j * l->stride[1]);
        double dl = tsri_ref_load(d->in[3].dtype, in[3], i * d->in[3].stride[0]);
        bool ignored = is_ignored(ref, label);
        int64_t at = ignored ? INT64_MIN : label - x->offset[1];
        if (x->dtype == TSR_F32)
            ce_dx_row_f32(ref, (const float *)in[0] + i * x->stride[0], at, lse, dl,
                          (float *)out[0] + i * y->stride[0]);
        else
            ce_dx_row_f64(ref, (const double *)in[0] + i * x->stride[0], at, lse, dl,
                          (double *)out[0] + i * y->stride[0]);
    }
    return TSR_OK;
}

tsr_status tsri_ref_ce_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_ref_is_float(d->in[0].dtype) || d->in[1].dtype != TSR_I64 ||
        d->out[0].dtype != d->in[0].dtype)
        return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, ce_dx_run, out_kernel);
}
