/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_elementwise.c for each floating type T. */

/* unary, scale: v is the operand. unary_grad: v is the operand or the result, u is dy. */
static void FN(map)(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const tsri_attrs *at = &j->ref->attrs;
    const bool scale = j->ref->desc.op == TSRI_OP_SCALE, two = j->ref->desc.nin > 1;
    const double a = scale ? at->scale.a : at->unary.a, b = at->unary.b;
    const T *x = (const T *)j->in[0] + r->off[1];
    const T *x2 = two ? (const T *)j->in[1] + r->off[2] : x;
    T *y = (T *)j->out[0] + r->off[0];
    const int64_t sx = r->step[1], su = two ? r->step[2] : sx, sy = r->step[0];
#define CASES(t, FN_, name, gets, cost, by, forward, gradient, doc) \
    case TSRI_UNARY_##FN_:                                          \
        if (two)                                                    \
            MAP(gradient);                                          \
        else                                                        \
            MAP(forward);                                           \
        break;
    switch (scale ? TSRI_UNARY_COUNT_ : (tsri_unary_fn)at->unary.fn) {
        TSRI_UNARY_LIST(CASES, )
    case TSRI_UNARY_COUNT_:
        MAP(v * a);
        break;
    }
#undef CASES
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
