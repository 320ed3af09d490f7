/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_pool.c for each element type T. Rows are (n, h) of what is written. */

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

static void FN(max_pool)(const tsri_ref *ref, const T *x, T *y, int32_t *idx)
{
    const tsri_arg *a = &ref->desc.in[0], *o = &ref->desc.out[0], *ix = &ref->desc.out[1];
    TSRI_REF_EACH(r, 0, o->shape[0] * o->shape[2], tsri_arg_count(a) > 1 << 14, {
        int64_t n = r / o->shape[2], p = r % o->shape[2];
        span h = window(ref, 0, p, a, o);
        for (int64_t q = 0; q < o->shape[3]; q++) {
            span w = window(ref, 1, q, a, o);
            const T *plane = x ? x + n * a->stride[0] : x;
            for (int64_t c = 0; c < o->shape[1]; c++)
                FN(max_window)
            (plane ? plane + c * a->stride[1] : plane, a, h, w,
             y + FN(at)(o, n, p, q) + c * o->stride[1],
             idx ? idx + FN(at)(ix, n, p, q) + c * ix->stride[1] : NULL);
        }
    });
}

static void FN(max_pool_dx)(const tsri_ref *ref, const int32_t *idx, const T *dy, T *dx)
{
    const tsri_arg *ix = &ref->desc.in[0], *g = &ref->desc.in[1], *a = &ref->desc.out[0];
    TSRI_REF_EACH(r, 0, a->shape[0] * a->shape[2], tsri_arg_count(a) > 1 << 14, {
        int64_t n = r / a->shape[2], p = r % a->shape[2];
        span h = holders(ref, 0, p, a, g);
        for (int64_t q = 0; q < a->shape[3]; q++) {
            span w = holders(ref, 1, q, a, g);
            for (int64_t c = 0; c < a->shape[1]; c++) {
                double sum = 0;
                for (int64_t i = h.begin; i < h.end; i++)
                    for (int64_t j = w.begin; j < w.end; j++)
                        if (idx[FN(at)(ix, n, i, j) + c * ix->stride[1]] == p * a->shape[3] + q)
                            sum += (double)dy[FN(at)(g, n, i, j) + c * g->stride[1]];
                dx[FN(at)(a, n, p, q) + c * a->stride[1]] = (T)sum;
            }
        }
    });
}

static void FN(avg_pool)(const tsri_ref *ref, const T *x, T *y)
{
    const tsri_arg *a = &ref->desc.in[0], *o = &ref->desc.out[0];
    TSRI_REF_EACH(r, 0, o->shape[0] * o->shape[2], tsri_arg_count(a) > 1 << 14, {
        int64_t n = r / o->shape[2], p = r % o->shape[2];
        span h = window(ref, 0, p, a, o);
        for (int64_t q = 0; q < o->shape[3]; q++) {
            span w = window(ref, 1, q, a, o);
            double by = divisor(ref, p, q, a, o);
            for (int64_t c = 0; c < o->shape[1]; c++) {
                double sum = 0;
                for (int64_t i = h.begin; i < h.end; i++)
                    for (int64_t j = w.begin; j < w.end; j++)
                        sum += (double)x[FN(at)(a, n, i, j) + c * a->stride[1]];
                y[FN(at)(o, n, p, q) + c * o->stride[1]] = (T)(sum / by);
            }
        }
    });
}

static void FN(avg_pool_dx)(const tsri_ref *ref, const T *dy, T *dx)
{
    const tsri_arg *g = &ref->desc.in[0], *a = &ref->desc.out[0];
    TSRI_REF_EACH(r, 0, a->shape[0] * a->shape[2], tsri_arg_count(a) > 1 << 14, {
        int64_t n = r / a->shape[2], p = r % a->shape[2];
        span h = holders(ref, 0, p, a, g);
        for (int64_t q = 0; q < a->shape[3]; q++) {
            span w = holders(ref, 1, q, a, g);
            T *to = dx + FN(at)(a, n, p, q);
            for (int64_t c0 = 0; c0 < a->shape[1]; c0 += TSRI_REF_BLOCK) {
                int64_t left = a->shape[1] - c0, nc = left < TSRI_REF_BLOCK ? left : TSRI_REF_BLOCK;
                double sum[TSRI_REF_BLOCK] = {0};
                for (int64_t i = h.begin; i < h.end; i++)
                    for (int64_t j = w.begin; j < w.end; j++) {
                        double by = divisor(ref, i, j, a, g);
                        const T *from = dy + FN(at)(g, n, i, j) + c0 * g->stride[1];
                        for (int64_t c = 0; c < nc; c++)
                            sum[c] += (double)from[c * g->stride[1]] / by;
                    }
                for (int64_t c = 0; c < nc; c++)
                    to[(c0 + c) * a->stride[1]] = (T)sum[c];
            }
        }
    });
}

static void FN(pool)(const tsri_ref *ref, void *const *in, void *const *out)
{
    switch (ref->desc.op) {
    case TSRI_OP_MAX_POOL:
        FN(max_pool)(ref, in[0], out[0], out[1]);
        break;
    case TSRI_OP_MAX_POOL_DX:
        FN(max_pool_dx)(ref, in[0], in[1], out[0]);
        break;
    case TSRI_OP_AVG_POOL:
    case TSRI_OP_ADAPTIVE_POOL:
        FN(avg_pool)(ref, in[0], out[0]);
        break;
    default:
        FN(avg_pool_dx)(ref, in[0], out[0]);
    }
}
