/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_elementwise.c for each floating type T. */

static void FN(unary)(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    const double a = j->ref->attrs.unary.a;
    const T *x = (const T *)j->in[0] + r->off[1];
    T *y = (T *)j->out[0] + r->off[0];
    const int64_t n = r->n, sx = r->step[1], sy = r->step[0];
    switch ((tsri_unary_fn)j->ref->attrs.unary.fn) {
    case TSRI_UNARY_ABS:
        MAP1(v < 0 ? -v : v == 0 ? 0 : v);
        break;
    case TSRI_UNARY_EXP:
        MAP1(exp((double)v));
        break;
    case TSRI_UNARY_LOG:
        MAP1(log((double)v));
        break;
    case TSRI_UNARY_SQRT:
        MAP1(sqrt((double)v));
        break;
    case TSRI_UNARY_RELU: /* NaN stays NaN */
        MAP1(v <= 0 ? 0 : v);
        break;
    case TSRI_UNARY_RELU6:
        MAP1(v <= 0 ? 0 : v >= 6 ? 6 : v);
        break;
    case TSRI_UNARY_TANH:
        MAP1(tanh((double)v));
        break;
    case TSRI_UNARY_SIGMOID:
        MAP1(1 / (1 + exp(-(double)v)));
        break;
    case TSRI_UNARY_SILU:
        MAP1((double)v / (1 + exp(-(double)v)));
        break;
    case TSRI_UNARY_POW:
        MAP1(pow((double)v, a));
        break;
    case TSRI_UNARY_ADD:
        MAP1((double)v + a);
        break;
    case TSRI_UNARY_RDIV:
        MAP1(a / (double)v);
        break;
    case TSRI_UNARY_GELU:
        MAP1((double)v * normal((double)v));
        break;
    case TSRI_UNARY_GELU_TANH:
        MAP1((double)v * gelu_gate((double)v));
        break;
    case TSRI_UNARY_COUNT_:
        break;
    }
}

/* v: what was saved, u: dy. */
static void FN(unary_grad)(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    const double a = j->ref->attrs.unary.a;
    const T *x = (const T *)j->in[0] + r->off[1], *x2 = (const T *)j->in[1] + r->off[2];
    T *y = (T *)j->out[0] + r->off[0];
    const int64_t n = r->n, sx = r->step[1], su = r->step[2], sy = r->step[0];
    switch ((tsri_unary_fn)j->ref->attrs.unary.fn) {
    case TSRI_UNARY_ABS:
        MAP2(v > 0 ? u : v < 0 ? -u : 0);
        break;
    case TSRI_UNARY_EXP:
        MAP2(u * v);
        break;
    case TSRI_UNARY_LOG:
        MAP2(u / v);
        break;
    case TSRI_UNARY_SQRT:
        MAP2(u / (2 * v));
        break;
    case TSRI_UNARY_RELU:
        MAP2(v > 0 ? u : 0);
        break;
    case TSRI_UNARY_RELU6:
        MAP2(v > 0 && v < 6 ? u : 0);
        break;
    case TSRI_UNARY_TANH:
        MAP2((double)u * (1 - (double)v * (double)v));
        break;
    case TSRI_UNARY_SIGMOID:
        MAP2((double)u * (1 - (double)v) * (double)v);
        break;
    case TSRI_UNARY_SILU:
        for (int64_t i = 0; i < n; i++) {
            const double v = (double)x[i * sx], s = 1 / (1 + exp(-v));
            y[i * sy] = (T)((double)x2[i * su] * s * (1 + v * (1 - s)));
        }
        break;
    case TSRI_UNARY_POW: /* x^0 is flat everywhere */
        MAP2(a == 0 ? 0 : (double)u * a * pow((double)v, a - 1));
        break;
    case TSRI_UNARY_ADD:
        for (int64_t i = 0; i < n; i++)
            y[i * sy] = x2[i * su];
        break;
    case TSRI_UNARY_RDIV:
        MAP2(-(double)u * a / ((double)v * (double)v));
        break;
    case TSRI_UNARY_GELU:
        MAP2((double)u * gelu_grad((double)v));
        break;
    case TSRI_UNARY_GELU_TANH:
        MAP2((double)u * gelu_tanh_grad((double)v));
        break;
    case TSRI_UNARY_COUNT_:
        break;
    }
}

static void FN(scale)(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    const double a = j->ref->attrs.scale.a;
    const T *x = (const T *)j->in[0] + r->off[1];
    T *y = (T *)j->out[0] + r->off[0];
    const int64_t n = r->n, sx = r->step[1], sy = r->step[0];
    MAP1((double)v * a);
}

static void FN(add_n)(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    T *y = (T *)j->out[0] + r->off[0];
    for (int64_t begin = 0; begin < r->n; begin += 256) {
        int64_t n = r->n - begin < 256 ? r->n - begin : 256;
        double sum[256] = {0};
        for (int o = 0; o < j->ref->desc.nin; o++) {
            const int64_t step = r->step[1 + o];
            const T *x = (const T *)j->in[o] + r->off[1 + o] + begin * step;
            if (step == 1)
                for (int64_t i = 0; i < n; i++)
                    sum[i] += (double)x[i];
            else
                for (int64_t i = 0; i < n; i++)
                    sum[i] += (double)x[i * step];
        }
        for (int64_t i = 0; i < n; i++)
            y[(begin + i) * r->step[0]] = (T)sum[i];
    }
}
