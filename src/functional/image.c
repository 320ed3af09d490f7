/* SPDX-License-Identifier: Apache-2.0 */
/* Images (n,c,h,w): other sizes, windows as columns and back, and channels dropped whole. */
#include "src/functional/inside.h"

#include <stdlib.h>

tsr_tensor *tsr_interpolate_at(tsr_tensor *x, int64_t out_h, int64_t out_w, tsr_interpolation how,
                               const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "interpolate", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_interpolation(&c, how))
        return c.failed;
    const int64_t most = 1 << 24;
    if (x->shape.ndim != 4 || x->shape.d[2] < 1 || x->shape.d[3] < 1 || out_h < 1 || out_w < 1 ||
        out_h > most || out_w > most)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "x is %s, its new size %lld x %lld; x must be (n,c,h,w), and no size "
                            "0 or above %lld",
                            tsri_op_dims(&c, x), (long long)out_h, (long long)out_w,
                            (long long)most);
    static const tsri_resize_how hows[] = {[TSR_NEAREST] = TSRI_RESIZE_NEAREST,
                                           [TSR_BILINEAR] = TSRI_RESIZE_CENTRES,
                                           [TSR_BILINEAR_CORNERS] = TSRI_RESIZE_CORNERS};
    tsr_tensor *wide = tsri_make_resize(x, 3, out_w, hows[how], c.loc);
    return tsri_as_result(tsri_make_resize(wide, 2, out_h, hows[how], c.loc), x, c.loc);
}

tsr_tensor *tsr_unfold_at(tsr_tensor *x, tsr_hw kernel, tsr_hw stride, tsr_hw padding,
                          const char *file, int line)
{
    TSRI_FUNCTION(c);
    int32_t k[2], s[2], p[2];
    if (!tsri_function_begin(&c, "unfold", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_pair(&c, "kernel", kernel, 1, k) ||
        !tsri_want_pair(&c, "stride", stride, 1, s) ||
        !tsri_want_pair(&c, "padding", padding, 0, p))
        return c.failed;
    enum { MOST = 4096 };
    const int64_t *d = x->shape.d;
    if (x->shape.ndim != 4 || d[2] + 2 * (int64_t)p[0] < k[0] || d[3] + 2 * (int64_t)p[1] < k[1] ||
        (int64_t)k[0] * k[1] > MOST)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "x is %s, the kernel %d x %d; x must be (n,c,h,w), and no smaller with "
                            "its padding",
                            tsri_op_dims(&c, x), k[0], k[1]);
    const tsr_dims around = TSR_DIMS(0, 0, p[0], p[1]);
    tsr_tensor *wide = p[0] || p[1] ? tsr_pad(x, around, around, 0) : x;
    const int64_t h = d[2] + 2 * (int64_t)p[0] - k[0] + 1, w = d[3] + 2 * (int64_t)p[1] - k[1] + 1;
    const int64_t windows = ((h - 1) / s[0] + 1) * ((w - 1) / s[1] + 1);
    const int n = k[0] * k[1];
    tsr_tensor **at = malloc((size_t)n * sizeof *at);
    if (!at)
        return tsri_op_fail(&c, TSR_ERR_NO_MEMORY, "no memory for %d tensors", n);
    for (int i = 0; i < n; i++) {
        const int64_t y0 = i / k[1], x0 = i % k[1];
        tsr_tensor *slice =
            tsr_slice(wide, TSR_DIMS(0, 0, y0, x0), TSR_DIMS(d[0], d[1], y0 + h, x0 + w),
                      TSR_DIMS(1, 1, s[0], s[1]));
        at[i] = tsri_shaped(slice, TSR_DIMS(d[0], d[1], windows), file, line);
    }
    tsr_tensor *y = tsr_stack(n, at, 2);
    free(at);
    return tsri_shaped(y, TSR_DIMS(d[0], d[1] * n, windows), file, line);
}

/* Returns the places of windows' elements in an image that is `wide` wide, as tsr_unfold orders
 * them: (kh kw windows), i64. */
static tsr_tensor *pixels_of(const tsri_ctx *c, const tsr_placement *p, const int32_t k[2],
                             const int32_t s[2], const int64_t windows[2], int64_t wide)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    const int64_t n[4] = {k[0], k[1], windows[0], windows[1]};
    const double step[4] = {(double)wide, 1, (double)(s[0] * wide), s[1]};
    tsr_tensor *ids = NULL;
    for (int i = 0; i < 4; i++) {
        tsr_dims dims = TSR_DIMS(1, 1, 1, 1);
        dims.d[i] = n[i];
        tsr_tensor *along = tsr_arange(c->g, TSR_I64, n[i], 0, step[i], p, TSR_AUTO);
        along = tsri_shaped(along, dims, file, line);
        ids = ids ? tsr_add(ids, along) : along;
    }
    return tsri_shaped(ids, TSR_DIMS(n[0] * n[1] * n[2] * n[3]), file, line);
}

tsr_tensor *tsr_fold_at(tsr_tensor *x, int64_t out_h, int64_t out_w, tsr_hw kernel, tsr_hw stride,
                        tsr_hw padding, const char *file, int line)
{
    TSRI_FUNCTION(c);
    int32_t k[2], s[2], p[2];
    if (!tsri_function_begin(&c, "fold", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_pair(&c, "kernel", kernel, 1, k) ||
        !tsri_want_pair(&c, "stride", stride, 1, s) ||
        !tsri_want_pair(&c, "padding", padding, 0, p))
        return c.failed;
    const int64_t most = 1 << 24, out[2] = {out_h, out_w};
    int64_t wide[2], windows[2];
    bool fits = x->shape.ndim == 3;
    for (int i = 0; i < 2 && fits; i++) {
        fits = out[i] >= 1 && out[i] <= most && p[i] <= most;
        wide[i] = fits ? out[i] + 2 * (int64_t)p[i] : 0;
        fits = fits && k[i] <= wide[i];
        windows[i] = fits ? (wide[i] - k[i]) / s[i] + 1 : 0;
    }
    const int64_t *d = x->shape.d, taps = (int64_t)k[0] * k[1];
    if (!fits || d[1] % taps || d[2] != windows[0] * windows[1])
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "x is %s, the images %lld x %lld, the kernel %d x %d; x must be (n,c "
                            "kh kw,windows), with the windows that tsr_unfold of such images has",
                            tsri_op_dims(&c, x), (long long)out_h, (long long)out_w, k[0], k[1]);
    const int64_t channels = d[1] / taps;
    tsr_tensor *all = tsri_make_fill(c.g, TSR_DIMS(d[0], channels, wide[0] * wide[1]), x->dtype,
                                     x->placement, 0, c.loc);
    tsr_tensor *y = tsri_shaped(x, TSR_DIMS(d[0], channels, taps * d[2]), file, line);
    y = tsr_index_add(all, 2, pixels_of(&c, x->placement, k, s, windows, wide[1]), y);
    y = tsri_shaped(y, TSR_DIMS(d[0], channels, wide[0], wide[1]), file, line);
    if (p[0] || p[1])
        y = tsr_slice(y, TSR_DIMS(0, 0, p[0], p[1]),
                      TSR_DIMS(d[0], channels, p[0] + out_h, p[1] + out_w), TSR_SCALAR);
    return y;
}

tsr_tensor *tsr_dropout2d_at(tsr_tensor *x, double p, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "dropout2d", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x))
        return c.failed;
    if (!(p >= 0 && p < 1) || x->shape.ndim < 2)
        return tsri_op_fail(&c, x->shape.ndim < 2 ? TSR_ERR_SHAPE : TSR_ERR_INVALID,
                            "p is %g, x %s; p must be in [0, 1), x (n,c,...)", p,
                            tsri_op_dims(&c, x));
    if (!c.g->training || p == 0)
        return tsr_dropout(x, p);
    return tsr_mul(x, tsri_dropped_ones(x, true, p, file, line));
}
