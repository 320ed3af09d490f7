/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling along one and three axes, and with as many windows as the caller says. A maximum or a
 * mean over a window of a volume is that along the depth of those in its planes. */
#include "src/functional/inside.h"

#include <math.h>
#include <stdlib.h>

typedef tsr_tensor *pool2d_fn(tsr_tensor *x, const tsr_pool2d_opts *opts, const char *file,
                              int line);

/* The windows along n axes, which follow the batch and the channels. */
typedef struct pool {
    int n;
    int kernel[3], stride[3], padding[3];
    bool count_include_pad;
} pool;

enum { MOST_WINDOWS = 1 << 24 };

static const char *const x_text[4] = {"", "(n,c,l)", "(n,c,h,w)", "(n,c,d,h,w)"};

/* Checks that x has n axes behind its batch and channels, none of them empty, and that its pixels
 * can be numbered. */
static bool want_pixels(const tsri_ctx *c, const tsr_tensor *x, int n)
{
    int64_t pixels = 1;
    bool fits = x->shape.ndim == 2 + n;
    for (int i = 0; fits && i < n; i++) {
        const int64_t d = x->shape.d[2 + i];
        fits = d >= 1 && d <= INT32_MAX / pixels;
        pixels *= d;
    }
    if (!fits)
        return tsri_op_refuse(c, TSR_ERR_SHAPE,
                              "x is %s; it must be %s, with 1 to %d elements behind its channels",
                              tsri_op_dims(c, x), x_text[n], INT32_MAX);
    return tsri_want_float(c, x);
}

/* Checks the options against x, which fits; where no stride is given, it becomes the kernel. */
static bool want_pool(const tsri_ctx *c, const tsr_tensor *x, pool *v)
{
    const bool moves = v->stride[0] || v->stride[1] || v->stride[2];
    for (int i = 0; i < v->n; i++) {
        const int k = v->kernel[i], pad = v->padding[i];
        if (!moves)
            v->stride[i] = k;
        if (k < 1 || v->stride[i] < 1 || pad < 0 || pad > k / 2)
            return tsri_op_refuse(c, TSR_ERR_INVALID,
                                  "kernel %d, stride %d and padding %d along axis %d; kernel and "
                                  "stride must be at least 1, padding 0 to half the kernel",
                                  k, v->stride[i], pad, 2 + i);
        if (x->shape.d[2 + i] + 2 * (int64_t)pad < k)
            return tsri_op_refuse(
                c, TSR_ERR_SHAPE,
                "x %s: kernel %d is larger than the %lld elements of axis %d with padding",
                tsri_op_dims(c, x), k, (long long)(x->shape.d[2 + i] + 2 * (int64_t)pad), 2 + i);
    }
    return true;
}

/* Returns x (n,c,l) or (n,c,d,h,w) pooled, by a function that pools images. */
static tsr_tensor *pooled(const tsri_ctx *c, tsr_tensor *x, const pool *v, pool2d_fn *fn)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    tsr_pool2d_opts o = {.size = sizeof o, .count_include_pad = v->count_include_pad};
    tsr_dims y = x->shape;
    const int64_t *d = x->shape.d;
    for (int i = 0; i < v->n; i++)
        y.d[2 + i] = (d[2 + i] + 2 * (int64_t)v->padding[i] - v->kernel[i]) / v->stride[i] + 1;
    if (v->n == 1) {
        o.kernel = (tsr_hw){1, v->kernel[0]};
        o.stride = (tsr_hw){1, v->stride[0]};
        o.padding.w = v->padding[0];
        x = tsri_shaped(x, TSR_DIMS(d[0], d[1], 1, d[2]), file, line);
        return tsri_shaped(fn(x, &o, file, line), y, file, line);
    }
    o.kernel = (tsr_hw){v->kernel[1], v->kernel[2]};
    o.stride = (tsr_hw){v->stride[1], v->stride[2]};
    o.padding = (tsr_hw){v->padding[1], v->padding[2]};
    x = tsri_shaped(x, TSR_DIMS(d[0], d[1] * d[2], d[3], d[4]), file, line);
    x = fn(x, &o, file, line);
    o.kernel = (tsr_hw){v->kernel[0], 1};
    o.stride = (tsr_hw){v->stride[0], 1};
    o.padding = (tsr_hw){v->padding[0], 0};
    x = tsri_shaped(x, TSR_DIMS(y.d[0], y.d[1], d[2], y.d[3] * y.d[4]), file, line);
    return tsri_shaped(fn(x, &o, file, line), y, file, line);
}

static tsr_tensor *pool1d(const char *name, tsr_tensor *x, const tsr_pool1d_opts *opts,
                          pool2d_fn *fn, tsri_loc loc)
{
    tsr_pool1d_opts o = *TSR_POOL1D_OPTS();
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, name, 1, &x, 0, loc) || !tsri_want_options(&c, &o, sizeof o, opts))
        return c.failed;
    pool v = {.n = 1,
              .kernel = {o.kernel},
              .stride = {o.stride},
              .padding = {o.padding},
              .count_include_pad = o.count_include_pad};
    if (!want_pixels(&c, x, 1) || !want_pool(&c, x, &v))
        return c.failed;
    return pooled(&c, x, &v, fn);
}

static tsr_tensor *pool3d(const char *name, tsr_tensor *x, const tsr_pool3d_opts *opts,
                          pool2d_fn *fn, tsri_loc loc)
{
    tsr_pool3d_opts o = *TSR_POOL3D_OPTS();
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, name, 1, &x, 0, loc) || !tsri_want_options(&c, &o, sizeof o, opts))
        return c.failed;
    pool v = {.n = 3,
              .kernel = {o.kernel.d, o.kernel.h, o.kernel.w},
              .stride = {o.stride.d, o.stride.h, o.stride.w},
              .padding = {o.padding.d, o.padding.h, o.padding.w},
              .count_include_pad = o.count_include_pad};
    if (!want_pixels(&c, x, 3) || !want_pool(&c, x, &v))
        return c.failed;
    return pooled(&c, x, &v, fn);
}

tsr_tensor *tsr_max_pool1d_at(tsr_tensor *x, const tsr_pool1d_opts *opts, const char *file,
                              int line)
{
    return pool1d("max_pool1d", x, opts, tsr_max_pool2d_at, (tsri_loc){file, line});
}

tsr_tensor *tsr_avg_pool1d_at(tsr_tensor *x, const tsr_pool1d_opts *opts, const char *file,
                              int line)
{
    return pool1d("avg_pool1d", x, opts, tsr_avg_pool2d_at, (tsri_loc){file, line});
}

tsr_tensor *tsr_max_pool3d_at(tsr_tensor *x, const tsr_pool3d_opts *opts, const char *file,
                              int line)
{
    return pool3d("max_pool3d", x, opts, tsr_max_pool2d_at, (tsri_loc){file, line});
}

tsr_tensor *tsr_avg_pool3d_at(tsr_tensor *x, const tsr_pool3d_opts *opts, const char *file,
                              int line)
{
    return pool3d("avg_pool3d", x, opts, tsr_avg_pool2d_at, (tsri_loc){file, line});
}

tsr_tensor *tsr_lp_pool2d_at(tsr_tensor *x, double p, tsr_hw kernel, tsr_hw stride,
                             const char *file, int line)
{
    TSRI_FUNCTION(c);
    pool v = {.n = 2, .kernel = {kernel.h, kernel.w}, .stride = {stride.h, stride.w}};
    if (!tsri_function_begin(&c, "lp_pool2d", 1, &x, 0, (tsri_loc){file, line}) ||
        !want_pixels(&c, x, 2) || !want_pool(&c, x, &v))
        return c.failed;
    if (!isfinite(p) || p == 0)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "p is %g; it must be finite and not 0", p);
    const tsr_pool2d_opts o =
        *TSR_POOL2D_OPTS(.kernel = kernel, .stride = {v.stride[0], v.stride[1]});
    tsr_tensor *mean = tsr_avg_pool2d(tsr_pow_scalar(x, p), &o);
    return tsr_pow_scalar(tsr_mul_scalar(mean, (double)kernel.h * kernel.w), 1 / p);
}

/* --- adaptive --------------------------------------------------------------------------------- */

/* Checks the number of windows along each of n axes. */
static bool want_windows(const tsri_ctx *c, int n, const int64_t *out)
{
    for (int i = 0; i < n; i++)
        if (out[i] < 1 || out[i] > MOST_WINDOWS)
            return tsri_op_refuse(c, TSR_ERR_INVALID,
                                  "%lld windows along axis %d; legal are 1 to %d",
                                  (long long)out[i], 2 + i, MOST_WINDOWS);
    return true;
}

tsr_tensor *tsr_adaptive_avg_pool1d_at(tsr_tensor *x, int64_t out, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "adaptive_avg_pool1d", 1, &x, 0, (tsri_loc){file, line}) ||
        !want_pixels(&c, x, 1) || !want_windows(&c, 1, &out))
        return c.failed;
    const int64_t *d = x->shape.d;
    tsr_tensor *images = tsri_shaped(x, TSR_DIMS(d[0], d[1], 1, d[2]), file, line);
    return tsri_shaped(tsr_adaptive_avg_pool2d(images, 1, out), TSR_DIMS(d[0], d[1], out), file,
                       line);
}

tsr_tensor *tsr_adaptive_avg_pool3d_at(tsr_tensor *x, int64_t out_d, int64_t out_h, int64_t out_w,
                                       const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "adaptive_avg_pool3d", 1, &x, 0, (tsri_loc){file, line}) ||
        !want_pixels(&c, x, 3) || !want_windows(&c, 3, (int64_t[]){out_d, out_h, out_w}))
        return c.failed;
    const int64_t *d = x->shape.d, pixels = out_h * out_w;
    tsr_tensor *y = tsri_shaped(x, TSR_DIMS(d[0], d[1] * d[2], d[3], d[4]), file, line);
    y = tsr_adaptive_avg_pool2d(y, out_h, out_w);
    y = tsri_shaped(y, TSR_DIMS(d[0], d[1], d[2], pixels), file, line);
    y = tsr_adaptive_avg_pool2d(y, out_d, pixels);
    return tsri_shaped(y, TSR_DIMS(d[0], d[1], out_d, out_h, out_w), file, line);
}

/* Returns x with the windows along an axis one behind the other, each of *out_kernel elements: the
 * last element of a shorter window stands there again, which changes no maximum. */
static tsr_tensor *laid_out(const tsri_ctx *c, tsr_tensor *x, int axis, int64_t out,
                            int *out_kernel)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    if (x->failed)
        return x;
    const int64_t n = x->shape.d[axis];
    int64_t most = 1;
    for (int64_t i = 0; i < out; i++) {
        const int64_t length = ((i + 1) * n + out - 1) / out - i * n / out;
        most = length > most ? length : most;
    }
    *out_kernel = (int)most;
    if (n % out == 0)
        return x;
    int64_t *ids = calloc((size_t)(out * most), sizeof *ids);
    if (!ids)
        return tsri_op_fail(c, TSR_ERR_NO_MEMORY, "no memory for %lld places",
                            (long long)(out * most));
    for (int64_t i = 0; i < out * most; i++) {
        const int64_t window = i / most, from = window * n / out + i % most;
        const int64_t end = ((window + 1) * n + out - 1) / out;
        ids[i] = from < end ? from : end - 1;
    }
    tsr_tensor *places =
        tsr_constant(c->g, TSR_I64, TSR_DIMS(out * most), ids, x->placement, TSR_AUTO);
    free(ids);
    return tsr_index_select(x, axis, places);
}

/* Returns the largest of images x (n,c,h,w) in out_h x out_w windows. */
static tsr_tensor *largest(const tsri_ctx *c, tsr_tensor *x, int64_t out_h, int64_t out_w)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    int h = 1, w = 1;
    x = laid_out(c, x, 2, out_h, &h);
    x = laid_out(c, x, 3, out_w, &w);
    return tsr_max_pool2d(x, TSR_POOL2D_OPTS(.kernel = {h, w}));
}

tsr_tensor *tsr_adaptive_max_pool1d_at(tsr_tensor *x, int64_t out, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "adaptive_max_pool1d", 1, &x, 0, (tsri_loc){file, line}) ||
        !want_pixels(&c, x, 1) || !want_windows(&c, 1, &out))
        return c.failed;
    const int64_t *d = x->shape.d;
    tsr_tensor *images = tsri_shaped(x, TSR_DIMS(d[0], d[1], 1, d[2]), file, line);
    return tsri_shaped(largest(&c, images, 1, out), TSR_DIMS(d[0], d[1], out), file, line);
}

tsr_tensor *tsr_adaptive_max_pool2d_at(tsr_tensor *x, int64_t out_h, int64_t out_w,
                                       const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "adaptive_max_pool2d", 1, &x, 0, (tsri_loc){file, line}) ||
        !want_pixels(&c, x, 2) || !want_windows(&c, 2, (int64_t[]){out_h, out_w}))
        return c.failed;
    return largest(&c, x, out_h, out_w);
}

tsr_tensor *tsr_adaptive_max_pool3d_at(tsr_tensor *x, int64_t out_d, int64_t out_h, int64_t out_w,
                                       const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "adaptive_max_pool3d", 1, &x, 0, (tsri_loc){file, line}) ||
        !want_pixels(&c, x, 3) || !want_windows(&c, 3, (int64_t[]){out_d, out_h, out_w}))
        return c.failed;
    const int64_t *d = x->shape.d, pixels = out_h * out_w;
    tsr_tensor *y = tsri_shaped(x, TSR_DIMS(d[0], d[1] * d[2], d[3], d[4]), file, line);
    y = tsri_shaped(largest(&c, y, out_h, out_w), TSR_DIMS(d[0], d[1], d[2], pixels), file, line);
    return tsri_shaped(largest(&c, y, out_d, pixels), TSR_DIMS(d[0], d[1], out_d, out_h, out_w),
                       file, line);
}
