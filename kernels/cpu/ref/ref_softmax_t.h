/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_softmax.c for each element type T. */

static void FN(softmax)(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    const softmax *v = j->kernel;
    const int64_t sy = v->stride[0], sx = v->stride[1];
    const bool is_log = v->ref.attrs.softmax.log != 0;
    for (int64_t i = 0; i < r->n; i++) {
        const T *x = (const T *)j->in[0] + r->off[1] + i * r->step[1];
        T *y = (T *)j->out + r->off[0] + i * r->step[0];
        double max = -INFINITY, sum = 0;
        for (int64_t c = 0; c < v->size; c++)
            max = (double)x[c * sx] > max ? (double)x[c * sx] : max;
        for (int64_t c = 0; c < v->size; c++)
            sum += exp((double)x[c * sx] - max);
        double shift = max + log(sum);
        for (int64_t c = 0; c < v->size; c++)
            y[c * sy] =
                (T)(is_log ? (double)x[c * sx] - shift : exp((double)x[c * sx] - max) / sum);
    }
}

static void FN(softmax_dx)(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    const softmax *v = j->kernel;
    const int64_t sx = v->stride[0], sy = v->stride[1], sg = v->stride[2];
    const bool is_log = v->ref.attrs.softmax.log != 0;
    for (int64_t i = 0; i < r->n; i++) {
        const T *y = (const T *)j->in[0] + r->off[1] + i * r->step[1];
        const T *dy = (const T *)j->in[1] + r->off[2] + i * r->step[2];
        T *dx = (T *)j->out + r->off[0] + i * r->step[0];
        double sum = 0;
        for (int64_t c = 0; c < v->size; c++)
            sum += (double)dy[c * sg] * (is_log ? 1 : (double)y[c * sy]);
        for (int64_t c = 0; c < v->size; c++) {
            double p = (double)y[c * sy], g = (double)dy[c * sg];
            dx[c * sx] = (T)(is_log ? g - exp(p) * sum : p * (g - sum));
        }
    }
}

static void FN(ce_row)(const tsri_arg *a, const T *x, double *lse, double *mean)
{
    const int64_t s = a->stride[1], n = a->shape[1];
    double max = -INFINITY, sum = 0, all = 0;
    for (int64_t c = 0; c < n; c++)
        max = (double)x[c * s] > max ? (double)x[c * s] : max;
    for (int64_t c = 0; c < n; c++) {
        sum += exp((double)x[c * s] - max);
        all += (double)x[c * s];
    }
    *lse = max + log(sum);
    *mean = all / (double)n;
}

/* label -1: ignored. */
static void FN(ce_dx_row)(const tsri_ref *ref, const T *x, int64_t label, double lse, double dl,
                          T *dx)
{
    const tsri_arg *a = &ref->desc.in[0];
    const int64_t sx = a->stride[1], sd = ref->desc.out[0].stride[1], n = a->shape[1];
    const double s = ref->attrs.ce.smoothing, even = s / (double)n;
    for (int64_t c = 0; c < n; c++) {
        double target = even + (c == label ? 1 - s : 0);
        dx[c * sd] = label < 0 ? 0 : (T)(dl * (exp((double)x[c * sx] - lse) - target));
    }
}
