/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_pool.c for each element type T. */

static inline int64_t FN(at)(const tsri_arg *a, int64_t n, int64_t h, int64_t w)
{
    return n * a->stride[0] + h * a->stride[2] + w * a->stride[3];
}

static void FN(max_window)(const T *x, const tsri_arg *a, span h, span w, T *y, int32_t *idx)
{
    double best = -INFINITY;
    int64_t at = -1;
    for (int64_t i = h.begin; i < h.end; i++)
        for (int64_t j = w.begin; j < w.end; j++) {
            double v = (double)x[i * a->stride[2] + j * a->stride[3]];
            if (at < 0 || v > best || (isnan(v) && !isnan(best))) {
                best = v;
                at = i * a->shape[3] + j;
            }
        }
    *y = (T)best;
    if (idx)
        *idx = (int32_t)at;
}

static void FN(max_pool)(const pixel *e)
{
    const tsri_arg *a = e->big, *o = e->small, *ix = &e->ref->desc.out[1];
    const T *x = e->in[0] ? (const T *)e->in[0] + e->n * a->stride[0] : NULL;
    T *y = (T *)e->out[0] + FN(at)(o, e->n, e->p, e->q);
    int32_t *idx = e->out[1] ? (int32_t *)e->out[1] + FN(at)(ix, e->n, e->p, e->q) : NULL;
    for (int64_t c = 0; c < o->shape[1]; c++)
        FN(max_window)
    (x ? x + c * a->stride[1] : x, a, e->h, e->w, y + c * o->stride[1],
     idx ? idx + c * ix->stride[1] : NULL);
}

static void FN(max_pool_dx)(const pixel *e)
{
    const tsri_arg *a = e->big, *g = e->small, *ix = &e->ref->desc.in[0];
    const int32_t *idx = e->in[0];
    const T *dy = e->in[1];
    T *dx = (T *)e->out[0] + FN(at)(a, e->n, e->p, e->q);
    for (int64_t c = 0; c < a->shape[1]; c++) {
        double sum = 0;
        for (int64_t i = e->h.begin; i < e->h.end; i++)
            for (int64_t j = e->w.begin; j < e->w.end; j++)
                if (idx[FN(at)(ix, e->n, i, j) + c * ix->stride[1]] == e->p * a->shape[3] + e->q)
                    sum += (double)dy[FN(at)(g, e->n, i, j) + c * g->stride[1]];
        dx[c * a->stride[1]] = (T)sum;
    }
}

static void FN(avg_pool)(const pixel *e)
{
    const tsri_arg *a = e->big, *o = e->small;
    const T *x = e->in[0];
    T *y = (T *)e->out[0] + FN(at)(o, e->n, e->p, e->q);
    const double by = divisor(e->ref, e->p, e->q, a, o);
    for (int64_t c = 0; c < o->shape[1]; c++) {
        double sum = 0;
        for (int64_t i = e->h.begin; i < e->h.end; i++)
            for (int64_t j = e->w.begin; j < e->w.end; j++)
                sum += (double)x[FN(at)(a, e->n, i, j) + c * a->stride[1]];
        y[c * o->stride[1]] = (T)(sum / by);
    }
}

static void FN(avg_pool_dx)(const pixel *e)
{
    const tsri_arg *a = e->big, *g = e->small;
    T *to = (T *)e->out[0] + FN(at)(a, e->n, e->p, e->q);
    for (int64_t c0 = 0; c0 < a->shape[1]; c0 += TSRI_REF_BLOCK) {
        int64_t left = a->shape[1] - c0, nc = left < TSRI_REF_BLOCK ? left : TSRI_REF_BLOCK;
        double sum[TSRI_REF_BLOCK] = {0};
        for (int64_t i = e->h.begin; i < e->h.end; i++)
            for (int64_t j = e->w.begin; j < e->w.end; j++) {
                double by = divisor(e->ref, i, j, a, g);
                const T *from = (const T *)e->in[0] + FN(at)(g, e->n, i, j) + c0 * g->stride[1];
                for (int64_t c = 0; c < nc; c++)
                    sum[c] += (double)from[c * g->stride[1]] / by;
            }
        for (int64_t c = 0; c < nc; c++)
            to[(c0 + c) * a->stride[1]] = (T)sum[c];
    }
}

static void FN(pool)(const pixel *e)
{
    switch (e->ref->desc.op) {
    case TSRI_OP_MAX_POOL:
        FN(max_pool)(e);
        break;
    case TSRI_OP_MAX_POOL_DX:
        FN(max_pool_dx)(e);
        break;
    case TSRI_OP_AVG_POOL:
    case TSRI_OP_ADAPTIVE_POOL:
        FN(avg_pool)(e);
        break;
    default:
        FN(avg_pool_dx)(e);
    }
}
