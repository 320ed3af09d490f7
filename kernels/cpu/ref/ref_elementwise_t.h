/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_elementwise.c for each floating type T. */

static void FN(unary)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const double a = j->ref->attrs.unary.a;
    const T *x = (const T *)j->in[0] + r->off[1];
    T *y = (T *)j->out[0] + r->off[0];
    const int64_t n = r->n, sx = r->step[1], sy = r->step[0];
#define FORWARD(t, FN_, name, gets, cost, by, forward, ...) \
    case TSRI_UNARY_##FN_:                                  \
        MAP1(forward);                                      \
        break;
    switch ((tsri_unary_fn)j->ref->attrs.unary.fn) {
        TSRI_UNARY_LIST(FORWARD, )
    case TSRI_UNARY_COUNT_:
        break;
    }
#undef FORWARD
}

/* v: the operand or the result, u: dy. */
static void FN(unary_grad)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const double a = j->ref->attrs.unary.a;
    const T *x = (const T *)j->in[0] + r->off[1], *x2 = (const T *)j->in[1] + r->off[2];
    T *y = (T *)j->out[0] + r->off[0];
    const int64_t n = r->n, sx = r->step[1], su = r->step[2], sy = r->step[0];
#define GRADIENT(t, FN_, name, gets, cost, by, forward, gradient, doc) \
    case TSRI_UNARY_##FN_:                                             \
        MAP2(gradient);                                                \
        break;
    switch ((tsri_unary_fn)j->ref->attrs.unary.fn) {
        TSRI_UNARY_LIST(GRADIENT, )
    case TSRI_UNARY_COUNT_:
        break;
    }
#undef GRADIENT
}

static void FN(scale)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const double a = j->ref->attrs.scale.a;
    const T *x = (const T *)j->in[0] + r->off[1];
    T *y = (T *)j->out[0] + r->off[0];
    const int64_t n = r->n, sx = r->step[1], sy = r->step[0];
    MAP1(v * a);
}

static void FN(add_n)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
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
