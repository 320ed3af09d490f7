/* SPDX-License-Identifier: Apache-2.0 */
/* Included by ref_depthwise.c for each element type T. */

static void FN(gather_pixel)(const depthwise *d, int64_t c0, int64_t nc, int64_t p, int64_t q,
                             const T *src, const double *filter, double *acc)
{
    const tsri_arg *a = &d->ref.desc.in[0];
    const int64_t sc = a->stride[1], kh = d->ref.attrs.conv.kernel[0],
                  kw = d->ref.attrs.conv.kernel[1];
    for (int64_t i = 0; i < kh; i++) {
        int64_t h = source(d, 0, p, i, a->shape[2]);
        for (int64_t j = 0; h >= 0 && j < kw; j++) {
            int64_t w = source(d, 1, q, j, a->shape[3]);
            if (w < 0)
                continue;
            const T *x = src + h * a->stride[2] + w * a->stride[3] + c0 * sc;
            const double *f = filter + (i * kw + j) * d->channels + c0;
            if (sc == 1)
                for (int64_t c = 0; c < nc; c++)
                    acc[c] += (double)x[c] * f[c];
            else
                for (int64_t c = 0; c < nc; c++)
                    acc[c] += (double)x[c * sc] * f[c];
        }
    }
}

static void FN(gather)(const depthwise *d, const T *src, const double *filter, const double *bias,
                       T *dst)
{
    const tsri_arg *a = &d->ref.desc.in[0], *y = &d->ref.desc.out[0];
    const int64_t rows = y->shape[0] * y->shape[2], sc = y->stride[1];
    TSRI_REF_EACH(r, 0, rows, tsri_arg_count(y) > 1 << 14, {
        int64_t n = r / y->shape[2], p = r % y->shape[2];
        for (int64_t q = 0; q < y->shape[3]; q++) {
            for (int64_t c0 = 0; c0 < d->channels; c0 += TSRI_REF_BLOCK) {
                int64_t left = d->channels - c0, nc = left < TSRI_REF_BLOCK ? left : TSRI_REF_BLOCK;
                double acc[TSRI_REF_BLOCK];
                for (int64_t c = 0; c < nc; c++)
                    acc[c] = bias[c0 + c];
                FN(gather_pixel)
                (d, c0, nc, p, q, src ? src + n * a->stride[0] : src, filter, acc);
                T *out = dst + n * y->stride[0] + p * y->stride[2] + q * y->stride[3] + c0 * sc;
                for (int64_t c = 0; c < nc; c++)
                    out[c * sc] = (T)acc[c];
            }
        }
    });
}

/* sum[tap][TSRI_REF_BLOCK] of the channels from c0. */
static void FN(weight)(const depthwise *d, int64_t c0, const T *src, const T *grad, double *sum)
{
    const tsri_arg *a = &d->ref.desc.in[0], *g = &d->ref.desc.in[1];
    const int64_t left = d->channels - c0, nc = left < TSRI_REF_BLOCK ? left : TSRI_REF_BLOCK;
    const int64_t kw = d->ref.attrs.conv.kernel[1], xs = a->stride[1], gs = g->stride[1];
    for (int64_t i = 0; i < d->taps * TSRI_REF_BLOCK; i++)
        sum[i] = 0;
    for (int64_t pos = 0; pos < g->shape[0] * g->shape[2] * g->shape[3]; pos++) {
        int64_t n = pos / (g->shape[2] * g->shape[3]);
        int64_t p = pos / g->shape[3] % g->shape[2], q = pos % g->shape[3];
        const T *dy = grad + n * g->stride[0] + p * g->stride[2] + q * g->stride[3] + c0 * gs;
        for (int64_t t = 0; t < d->taps; t++) {
            int64_t h = source(d, 0, p, t / kw, a->shape[2]);
            int64_t w = source(d, 1, q, t % kw, a->shape[3]);
            if (h < 0 || w < 0)
                continue;
            const T *x = src + n * a->stride[0] + h * a->stride[2] + w * a->stride[3] + c0 * xs;
            double *s = sum + t * TSRI_REF_BLOCK;
            if (xs == 1 && gs == 1)
                for (int64_t c = 0; c < nc; c++)
                    s[c] += (double)x[c] * (double)dy[c];
            else
                for (int64_t c = 0; c < nc; c++)
                    s[c] += (double)x[c * xs] * (double)dy[c * gs];
        }
    }
}
