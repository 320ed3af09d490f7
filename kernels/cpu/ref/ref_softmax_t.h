/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_softmax.c for each element type T. */

/* sum e^(x - max) of a line of operand 0. */
static double FN(exp_sum)(const softmax *v, const T *x, double max)
{
    double sum = 0;
    for (int64_t c = 0; c < v->size; c++)
        sum += exp((double)x[c * v->stride[1]] - max);
    return sum;
}

static void FN(finish)(const softmax *v, T *y, const T *x, double max, double sum)
{
    const double log_sum = log(sum);
    for (int64_t c = 0; c < v->size; c++) {
        const double above = (double)x[c * v->stride[1]] - max; /* exact near a large max */
        y[c * v->stride[0]] = (T)(v->ref.attrs.softmax.log ? above - log_sum : exp(above) / sum);
    }
}

/* sum y dy; of the logarithm's gradient, sum dy. */
static double FN(dot)(const softmax *v, const T *y, const T *dy, bool is_log)
{
    double sum = 0;
    for (int64_t c = 0; c < v->size; c++)
        sum += (double)dy[c * v->stride[2]] * (is_log ? 1 : (double)y[c * v->stride[1]]);
    return sum;
}

static void FN(gradient)(const softmax *v, T *dx, const T *y, const T *dy, double dot)
{
    for (int64_t c = 0; c < v->size; c++) {
        const double p = (double)y[c * v->stride[1]], g = (double)dy[c * v->stride[2]];
        dx[c * v->stride[0]] = (T)(v->ref.attrs.softmax.log ? g - exp(p) * dot : p * (g - dot));
    }
}

/* Elements of the axis of row i in operand o of the walk; NULL where there are none. */
static T *FN(line)(void *p, const tsri_ref_row *r, int o, int64_t i)
{
    return p ? (T *)p + r->off[o] + i * r->step[o] : NULL;
}

static void FN(softmax)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const softmax *v = (const softmax *)j->ref;
    const int nin = v->ref.desc.nin;
    for (int64_t i = 0; i < r->n; i++) {
        T *y = FN(line)(j->out[0], r, 0, i);
        const T *x = FN(line)(j->in[0], r, 1, i);
        const T *u = nin > 1 ? FN(line)(j->in[1], r, 2, i) : NULL;
        const T *w = nin > 2 ? FN(line)(j->in[2], r, 3, i) : NULL;
        double max = -INFINITY;
        switch (v->ref.desc.op) {
        case TSRI_OP_SOFTMAX:
            for (int64_t c = 0; c < v->size; c++)
                max = (double)x[c * v->stride[1]] > max ? (double)x[c * v->stride[1]] : max;
            FN(finish)(v, y, x, max, FN(exp_sum)(v, x, max));
            break;
        case TSRI_OP_SOFTMAX_SUM:
            *y = (T)FN(exp_sum)(v, x, (double)*u);
            break;
        case TSRI_OP_SOFTMAX_FINISH:
            FN(finish)(v, y, x, (double)*u, (double)*w);
            break;
        case TSRI_OP_SOFTMAX_DOT:
            *y = (T)FN(dot)(v, x, u, false);
            break;
        case TSRI_OP_SOFTMAX_DX:
            FN(gradient)(v, y, x, u, FN(dot)(v, x, u, v->ref.attrs.softmax.log));
            break;
        default:
            FN(gradient)(v, y, x, u, (double)*w);
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
