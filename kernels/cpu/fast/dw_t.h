/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolution over channels-last images, vectorised over channels. Included once per
 * instruction set; see vec.h. Weights are w[kh*kw][channels], f32; images are f32, or with `half`,
 * known when compiled, bf16.
 *
 * Any window goes by lists of taps: a pixel's sum over where it reads and with which weights;
 * forward and backward-data differ in their lists alone. 3x3 at stride 1 slides: each column of the
 * image is loaded once for the three pixels it serves.
 */

/* Input position that tap k of output position o reads; -1: none. */
VEC_FN int64_t dw_tap(const tsri_fast_dw *p, int axis, int64_t o, int64_t k)
{
    int64_t i;
    if (p->backward) {
        i = o + p->pad[axis] - k * p->dilation[axis];
        if (i < 0 || i % p->stride[axis])
            return -1;
        i /= p->stride[axis];
    } else {
        i = o * p->stride[axis] - p->pad[axis] + k * p->dilation[axis];
    }
    return i >= 0 && i < p->in[axis] ? i : -1;
}

VEC_FN void dw_sum(const void *const *src, const float *const *w, const int n, int64_t channels,
                   void *out, int64_t to, const bool half)
{
    for (int64_t c = 0; c < channels; c += W) {
        int64_t left = channels - c;
        vf a = vset1(0.0f), b = vset1(0.0f);
        if (left >= W) {
            for (int t = 0; t + 1 < n; t += 2) {
                a = vfma(vget(src[t], c, W, half), vload(w[t] + c), a);
                b = vfma(vget(src[t + 1], c, W, half), vload(w[t + 1] + c), b);
            }
            if (n & 1)
                a = vfma(vget(src[n - 1], c, W, half), vload(w[n - 1] + c), a);
            vput(out, to + c, a + b, W, half);
        } else {
            for (int t = 0; t < n; t++)
                a = vfma(vget(src[t], c, left, half), vloadn(w[t] + c, left), a);
            vput(out, to + c, a, left, half);
        }
    }
}

/* Row oh of the image, of which `to` is the first element in y. */
VEC_FN void dw_row_taps(const tsri_fast_dw *p, const void *image, int64_t oh, int64_t to,
                        const bool half)
{
    const int64_t channels = p->channels;
    for (int64_t ow = 0; ow < p->out[1]; ow++, to += channels) {
        const void *src[TSRI_FAST_TAPS];
        const float *w[TSRI_FAST_TAPS];
        int n = 0;
        for (int kh = 0; kh < p->kernel[0]; kh++) {
            int64_t ih = dw_tap(p, 0, oh, kh);
            for (int kw = 0; ih >= 0 && kw < p->kernel[1]; kw++) {
                int64_t iw = dw_tap(p, 1, ow, kw);
                if (iw < 0)
                    continue;
                src[n] = vplace(image, (ih * p->in[1] + iw) * channels, half);
                w[n++] = p->w + (kh * p->kernel[1] + kw) * channels;
            }
        }
        if (n == 9)
            dw_sum(src, w, 9, channels, p->y, to, half);
        else if (n == 4)
            dw_sum(src, w, 4, channels, p->y, to, half);
        else if (n == 1)
            dw_sum(src, w, 1, channels, p->y, to, half);
        else
            dw_sum(src, w, n, channels, p->y, to, half);
    }
}

/* n lanes with `tail`, else all. */
VEC_FN vf dw_load(const void *p, int64_t at, int64_t n, const bool tail, const bool half)
{
    return tail ? half ? vload16n((const uint16_t *)p + at, n) : vloadn((const float *)p + at, n)
                : vget(p, at, W, half);
}

VEC_FN void dw_store(void *p, int64_t at, vf v, int64_t n, const bool tail, const bool half)
{
    if (!tail)
        vput(p, at, v, W, half);
    else if (half)
        vstore16n((uint16_t *)p + at, v, n);
    else
        vstoren((float *)p + at, v, n);
}

/* One vector of channels of a row, 3x3 at stride 1 with padding 1. row[i]: the image rows under
 * the window, of zeros outside the image. Column x adds to the pixels x - 1, x, x + 1. */
VEC_FN void dw_slide(const tsri_fast_dw *p, const void *const row[3], int64_t c, int64_t to,
                     const bool tail, const bool half)
{
    const int64_t channels = p->channels, left = channels - c, width = p->in[1];
    vf w[9], a = vset1(0.0f), b = vset1(0.0f);
    VEC_LOOP
    for (int t = 0; t < 9; t++)
        w[t] = dw_load(p->w, (p->backward ? 8 - t : t) * channels + c, left, tail, false);
    for (int64_t x = 0; x < width; x++) {
        vf next = vset1(0.0f);
        VEC_LOOP
        for (int i = 0; i < 3; i++) {
            vf v = dw_load(row[i], x * channels + c, left, tail, half);
            a = vfma(v, w[3 * i + 2], a);
            b = vfma(v, w[3 * i + 1], b);
            next = vfma(v, w[3 * i], next);
        }
        if (x)
            dw_store(p->y, to + (x - 1) * channels + c, a, left, tail, half);
        a = b;
        b = next;
    }
    dw_store(p->y, to + (width - 1) * channels + c, a, left, tail, half);
}

VEC_FN void dw_row_slide(const tsri_fast_dw *p, const void *image, int64_t oh, int64_t to,
                         const bool half)
{
    const void *row[3];
    for (int i = 0; i < 3; i++) {
        int64_t h = oh + i - 1;
        row[i] =
            h < 0 || h >= p->in[0] ? p->zeros : vplace(image, h * p->in[1] * p->channels, half);
    }
    int64_t c = 0;
    for (; c + W <= p->channels; c += W)
        dw_slide(p, row, c, to, false, half);
    if (c < p->channels)
        dw_slide(p, row, c, to, true, half);
}

/* Output rows [r0, r1) of all images' n * out[0]. */
VEC_FN void dw_walk(const tsri_fast_dw *of, int64_t r0, int64_t r1, const bool half)
{
    const tsri_fast_dw own = *of, *p = &own; /* which no store can change */
    for (int64_t r = r0; r < r1; r++) {
        const int64_t image = r / p->out[0] * p->in[0] * p->in[1] * p->channels;
        const int64_t to = r * p->out[1] * p->channels;
        if (p->slide)
            dw_row_slide(p, vplace(p->x, image, half), r % p->out[0], to, half);
        else
            dw_row_taps(p, vplace(p->x, image, half), r % p->out[0], to, half);
    }
}

static void dw_rows(const tsri_fast_dw *p, int64_t r0, int64_t r1)
{
    dw_walk(p, r0, r1, false);
}

static void dw16_rows(const tsri_fast_dw *p, int64_t r0, int64_t r1)
{
    dw_walk(p, r0, r1, true);
}

/* Weights' gradient sums: acc[tap][pitch], pitch being channels rounded up to whole vectors. */
VEC_FN void dw_flush(const tsri_fast_dw *p, int64_t tap, int64_t c, vf v, double *acc)
{
    double *at = acc + tap * p->pitch + c;
    vdstore(at, vdload(at) + vlo(v));
    vdstore(at + W / 2, vdload(at + W / 2) + vhi(v));
}

enum { DW_TERMS = 256 }; /* that are summed in f32 before they join f64; less than twice as many */

/* All taps of 3x3, of which `terms` wait. */
VEC_FN void dw_flush_9(const tsri_fast_dw *p, int64_t c, int64_t *terms, vf g[9], double *acc)
{
    if (!*terms)
        return;
    *terms = 0;
    VEC_LOOP
    for (int t = 0; t < 9; t++) {
        dw_flush(p, t, c, g[t], acc);
        g[t] = vset1(0.0f);
    }
}

VEC_FN int64_t dw_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One image and vector of channels, by sliding; as above, with the pixels x - 1, x, x + 1 of dy in
 * registers. */
VEC_FN void dw_grad_slide(const tsri_fast_dw *p, const void *x, const void *dy, int64_t c,
                          double *acc, const bool tail, const bool half)
{
    const int64_t channels = p->channels, left = channels - c, width = p->in[1];
    vf g[9];
    VEC_LOOP
    for (int t = 0; t < 9; t++)
        g[t] = vset1(0.0f);
    int64_t terms = 0;
    for (int64_t oh = p->lines[0]; oh < p->lines[1]; oh++) {
        const void *d = vplace(dy, oh * width * channels + c, half), *row[3];
        for (int i = 0; i < 3; i++) {
            int64_t h = oh + i - 1;
            row[i] = h < 0 || h >= p->in[0] ? p->zeros : vplace(x, h * width * channels + c, half);
        }
        vf before = vset1(0.0f), here = dw_load(d, 0, left, tail, half);
        for (int64_t w = 0, end; w < width;) {
            end = dw_least(w + DW_TERMS, width);
            terms += end - w;
            for (; w < end; w++) {
                vf after =
                    w + 1 < width ? dw_load(d, (w + 1) * channels, left, tail, half) : vset1(0.0f);
                VEC_LOOP
                for (int i = 0; i < 3; i++) {
                    vf v = dw_load(row[i], w * channels, left, tail, half);
                    g[3 * i + 2] = vfma(v, before, g[3 * i + 2]);
                    g[3 * i + 1] = vfma(v, here, g[3 * i + 1]);
                    g[3 * i] = vfma(v, after, g[3 * i]);
                }
                before = here;
                here = after;
            }
            if (terms >= DW_TERMS)
                dw_flush_9(p, c, &terms, g, acc);
        }
    }
    dw_flush_9(p, c, &terms, g, acc);
}

/* 3x3 at any stride and padding: rows outside the image are of zeros, columns are asked for. */
VEC_FN void dw_grad_3x3(const tsri_fast_dw *p, const void *x, const void *dy, int64_t c,
                        double *acc, const bool tail, const bool half)
{
    const int64_t channels = p->channels, left = channels - c;
    vf g[9];
    VEC_LOOP
    for (int t = 0; t < 9; t++)
        g[t] = vset1(0.0f);
    int64_t terms = 0;
    for (int64_t oh = p->lines[0]; oh < p->lines[1]; oh++) {
        const void *row[3];
        for (int i = 0; i < 3; i++) {
            int64_t h = dw_tap(p, 0, oh, i);
            row[i] = h < 0 ? p->zeros : vplace(x, h * p->in[1] * channels + c, half);
        }
        for (int64_t ow = 0, end; ow < p->out[1];) {
            end = dw_least(ow + DW_TERMS, p->out[1]);
            terms += end - ow;
            for (; ow < end; ow++) {
                vf d = dw_load(dy, (oh * p->out[1] + ow) * channels + c, left, tail, half);
                VEC_LOOP
                for (int k = 0; k < 3; k++) {
                    int64_t w = ow * p->stride[1] - p->pad[1] + k * p->dilation[1];
                    if (w < 0 || w >= p->in[1])
                        continue;
                    VEC_LOOP
                    for (int i = 0; i < 3; i++)
                        g[3 * i + k] =
                            vfma(dw_load(row[i], w * channels, left, tail, half), d, g[3 * i + k]);
                }
            }
            if (terms >= DW_TERMS)
                dw_flush_9(p, c, &terms, g, acc);
        }
    }
    dw_flush_9(p, c, &terms, g, acc);
}

/* Any window over a few images: tap by tap, the pixels where it is inside. */
VEC_FN void dw_grad_taps(const tsri_fast_dw *p, const void *x, const void *dy, int64_t images,
                         int64_t c, double *acc, const bool half)
{
    const int64_t channels = p->channels, left = channels - c;
    const int64_t xs = p->in[0] * p->in[1] * channels, ds = p->out[0] * p->out[1] * channels;
    for (int kh = 0; kh < p->kernel[0]; kh++)
        for (int kw = 0; kw < p->kernel[1]; kw++) {
            vf g = vset1(0.0f), h = vset1(0.0f);
            int64_t terms = 0;
            for (int64_t at = p->lines[0] * p->out[1]; at < p->lines[1] * p->out[1]; at++) {
                int64_t ih = dw_tap(p, 0, at / p->out[1], kh);
                int64_t iw = dw_tap(p, 1, at % p->out[1], kw);
                if (ih < 0 || iw < 0)
                    continue;
                const int64_t a = (ih * p->in[1] + iw) * channels + c;
                const int64_t b = at * channels + c;
                int64_t n = 0;
                for (; n + 2 <= images; n += 2) {
                    g = vfma(vget(x, a + n * xs, left, half), vget(dy, b + n * ds, left, half), g);
                    h = vfma(vget(x, a + (n + 1) * xs, left, half),
                             vget(dy, b + (n + 1) * ds, left, half), h);
                }
                if (n < images)
                    g = vfma(vget(x, a + n * xs, left, half), vget(dy, b + n * ds, left, half), g);
                terms += images;
                if (terms >= DW_TERMS) {
                    dw_flush(p, kh * p->kernel[1] + kw, c, g + h, acc);
                    g = h = vset1(0.0f);
                    terms = 0;
                }
            }
            dw_flush(p, kh * p->kernel[1] + kw, c, g + h, acc);
        }
}

VEC_FN void dw_grad(const tsri_fast_dw *p, const void *x, const void *dy, int64_t images, int64_t c,
                    double *acc, const bool tail, const bool half)
{
    if (p->slide)
        dw_grad_slide(p, x, dy, c, acc, tail, half);
    else if (p->three && images == 1)
        dw_grad_3x3(p, x, dy, c, acc, tail, half);
    else
        dw_grad_taps(p, x, dy, images, c, acc, half);
}

/* acc += of images [n0, n1); p->y is dy. Images are small or one at a time: sums of f32 are of some
 * hundred terms before they join those of f64. */
VEC_FN void dw_weights_of(const tsri_fast_dw *of, int64_t n0, int64_t n1, double *acc,
                          const bool half)
{
    const tsri_fast_dw own = *of, *p = &own;
    const int64_t plane = p->out[0] * p->out[1];
    const int64_t some = p->slide || plane > 8 ? 1 : 128 / plane;
    for (int64_t n = n0; n < n1; n += some) {
        const void *x = vplace(p->x, n * p->in[0] * p->in[1] * p->channels, half);
        const void *dy = vplace(p->y, n * plane * p->channels, half);
        const int64_t images = n1 - n < some ? n1 - n : some;
        for (int64_t c = 0; c < p->channels; c += W)
            if (c + W <= p->channels)
                dw_grad(p, x, dy, images, c, acc, false, half);
            else
                dw_grad(p, x, dy, images, c, acc, true, half);
    }
}

static void dw_weights(const tsri_fast_dw *p, int64_t n0, int64_t n1, double *acc)
{
    dw_weights_of(p, n0, n1, acc, false);
}

static void dw16_weights(const tsri_fast_dw *p, int64_t n0, int64_t n1, double *acc)
{
    dw_weights_of(p, n0, n1, acc, true);
}
