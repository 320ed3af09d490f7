/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_softmax.c for each element type T. */

static void FN(softmax)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const softmax *v = (const softmax *)j->ref;
    const int64_t sy = v->stride[0], sx = v->stride[1];
    const bool is_log = v->ref.attrs.softmax.log != 0;
    for (int64_t i = 0; i < r->n; i++) {
        const T *x = (const T *)j->in[0] + r->off[1] + i * r->step[1];
        T *y = (T *)j->out[0] + r->off[0] + i * r->step[0];
        double max = -INFINITY, sum = 0;
        for (int64_t c = 0; c < v->size; c++)
            max = (double)x[c * sx] > max ? (double)x[c * sx] : max;
        for (int64_t c = 0; c < v->size; c++)
            sum += exp((double)x[c * sx] - max);
        double log_sum = log(sum);
        for (int64_t c = 0; c < v->size; c++) {
            const double above = (double)x[c * sx] - max; /* exact near a large max */
            y[c * sy] = (T)(is_log ? above - log_sum : exp(above) / sum);
        }
    }
}

static void FN(softmax_dx)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const softmax *v = (const softmax *)j->ref;
    const int64_t sx = v->stride[0], sy = v->stride[1], sg = v->stride[2];
    const bool is_log = v->ref.attrs.softmax.log != 0;
    for (int64_t i = 0; i < r->n; i++) {
        const T *y = (const T *)j->in[0] + r->off[1] + i * r->step[1];
        const T *dy = (const T *)j->in[1] + r->off[2] + i * r->step[2];
        T *dx = (T *)j->out[0] + r->off[0] + i * r->step[0];
        double sum = 0;
        for (int64_t c = 0; c < v->size; c++)
            sum += (double)dy[c * sg] * (is_log ? 1 : (double)y[c * sy]);
        for (int64_t c = 0; c < v->size; c++) {
            double p = (double)y[c * sy], g = (double)dy[c * sg];
            dx[c * sx] = (T)(is_log ? g - exp(p) * sum : p * (g - sum));
        }
    }
}

/* Elements of the axis of row i in operand o of the walk; NULL where there are none. */
static T *FN(line)(void *p, const tsri_ref_row *r, int o, int64_t i)
{
    return p ? (T *)p + r->off[o] + i * r->step[o] : NULL;
}

static void FN(softmax_sum)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const softmax *v = (const softmax *)j->ref;
    for (int64_t i = 0; i < r->n; i++) {
        const T *x = FN(line)(j->in[0], r, 1, i);
        const double m = (double)*FN(line)(j->in[1], r, 2, i);
        double sum = 0;
        for (int64_t c = 0; c < v->size; c++)
            sum += exp((double)x[c * v->stride[1]] - m);
        *FN(line)(j->out[0], r, 0, i) = (T)sum;
    }
}

static void FN(softmax_finish)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const softmax *v = (const softmax *)j->ref;
    const bool is_log = v->ref.attrs.softmax.log != 0;
    for (int64_t i = 0; i < r->n; i++) {
        const T *x = FN(line)(j->in[0], r, 1, i);
        T *y = FN(line)(j->out[0], r, 0, i);
        const double m = (double)*FN(line)(j->in[1], r, 2, i);
        const double sum = (double)*FN(line)(j->in[2], r, 3, i), log_sum = log(sum);
        for (int64_t c = 0; c < v->size; c++) {
            const double above = (double)x[c * v->stride[1]] - m;
            y[c * v->stride[0]] = (T)(is_log ? above - log_sum : exp(above) / sum);
        }
    }
}

static void FN(softmax_dot)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const softmax *v = (const softmax *)j->ref;
    for (int64_t i = 0; i < r->n; i++) {
        const T *y = FN(line)(j->in[0], r, 1, i), *dy = FN(line)(j->in[1], r, 2, i);
        double sum = 0;
        for (int64_t c = 0; c < v->size; c++)
            sum += (double)y[c * v->stride[1]] * (double)dy[c * v->stride[2]];
        *FN(line)(j->out[0], r, 0, i) = (T)sum;
    }
}

static void FN(softmax_bwd)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const softmax *v = (const softmax *)j->ref;
    const bool is_log = v->ref.attrs.softmax.log != 0;
    for (int64_t i = 0; i < r->n; i++) {
        const T *y = FN(line)(j->in[0], r, 1, i), *dy = FN(line)(j->in[1], r, 2, i);
        T *dx = FN(line)(j->out[0], r, 0, i);
        const double d = (double)*FN(line)(j->in[2], r, 3, i);
        for (int64_t c = 0; c < v->size; c++) {
            const double p = (double)y[c * v->stride[1]], g = (double)dy[c * v->stride[2]];
            dx[c * v->stride[0]] = (T)(is_log ? g - exp(p) * d : p * (g - d));
        }
    }
}

/* Takes a row's largest element, log sum exp(x - max), and the mean of x - max. */
static void FN(ce_row)(const tsri_arg *a, const T *x, double *max, double *log_sum, double *mean)
{
    const int64_t s = a->stride[1], n = a->shape[1];
    double most = -INFINITY, sum = 0, all = 0;
    for (int64_t c = 0; c < n; c++)
        most = (double)x[c * s] > most ? (double)x[c * s] : most;
    for (int64_t c = 0; c < n; c++) {
        const double above = (double)x[c * s] - most;
        sum += exp(above);
        all += above;
    }
    *max = most;
    *log_sum = log(sum);
    *mean = all / (double)n;
}

/* label: of this shard's classes, or another number; INT64_MIN: ignored. */
static void FN(ce_dx_row)(const tsri_ref *ref, const T *x, int64_t label, const double *lse,
                          double dl, T *dx)
{
    const tsri_arg *a = &ref->desc.in[0];
    const int64_t sx = a->stride[1], sd = ref->desc.out[0].stride[1], n = a->shape[1];
    const double s = ref->attrs.ce.smoothing, even = s / (double)a->gshape[1];
    for (int64_t c = 0; c < n; c++) {
        double target = even + (c == label ? 1 - s : 0);
        dx[c * sd] =
            label == INT64_MIN ? 0 : (T)(dl * (exp((double)x[c * sx] - lse[0] - lse[1]) - target));
    }
}
