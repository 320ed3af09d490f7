/* SPDX-License-Identifier: Apache-2.0 */
/* Axes and order of elements. */
#include "src/functional/inside.h"

tsr_tensor *tsr_squeeze_at(tsr_tensor *x, int axis, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "squeeze", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    if (x->shape.d[axis] != 1)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "axis %d of %s is not of size 1", axis,
                            tsri_op_dims(&c, x));
    return tsr_reshape(x, tsri_drop_axes(x->shape, 1u << axis));
}

tsr_tensor *tsr_unsqueeze_at(tsr_tensor *x, int axis, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "unsqueeze", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    const int ndim = x->shape.ndim, at = axis < 0 ? axis + ndim + 1 : axis;
    if (at < 0 || at > ndim || ndim == TSR_MAX_NDIM)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "axis %d of %s; legal are %d to %d, and at most %d axes in all", axis,
                            tsri_op_dims(&c, x), -ndim - 1, ndim, TSR_MAX_NDIM);
    tsr_dims dims = {.ndim = ndim + 1};
    for (int i = 0; i <= ndim; i++)
        dims.d[i] = i < at ? x->shape.d[i] : i == at ? 1 : x->shape.d[i - 1];
    return tsr_reshape(x, dims);
}

tsr_tensor *tsr_roll_at(tsr_tensor *x, int axis, int64_t shift, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "roll", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    const int64_t n = x->shape.d[axis], start = n ? (n - shift % n) % n : 0;
    return tsri_make_roll(x, axis, start, c.loc);
}

tsr_tensor *tsr_flip_at(tsr_tensor *x, tsr_axes axes, const char *file, int line)
{
    TSRI_FUNCTION(c);
    uint32_t mask;
    if (!tsri_function_begin(&c, "flip", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axes(&c, x, axes, &mask))
        return c.failed;
    return tsri_make_flip(x, mask, c.loc);
}

/* Repeats x along an axis: each slice by itself, or all of them. */
static tsr_tensor *repeated(const tsri_ctx *c, tsr_tensor *x, int axis, int64_t n, bool each)
{
    const char *file = c->loc.file;
    const int line = c->loc.line, ndim = x->shape.ndim, at = axis + each;
    if (x->failed || n == 1)
        return x;
    if (n < 1 || ndim == TSR_MAX_NDIM)
        return tsri_op_fail(c, TSR_ERR_INVALID,
                            "axis %d of %s %lld times; legal are 1 and more of up to %d axes", axis,
                            tsri_op_dims(c, x), (long long)n, TSR_MAX_NDIM - 1);
    tsr_dims one = {.ndim = ndim + 1}, many, whole = x->shape;
    for (int i = 0; i <= ndim; i++)
        one.d[i] = i < at ? x->shape.d[i] : i == at ? 1 : x->shape.d[i - 1];
    many = one;
    many.d[at] = n;
    if (__builtin_mul_overflow(whole.d[axis], n, &whole.d[axis]))
        return tsri_op_fail(c, TSR_ERR_SHAPE, "axis %d of %s %lld times is too long", axis,
                            tsri_op_dims(c, x), (long long)n);
    return tsr_reshape(tsr_expand(tsr_reshape(x, one), many), whole);
}

tsr_tensor *tsr_repeat_at(tsr_tensor *x, tsr_dims counts, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "repeat", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    const int more = counts.ndim - x->shape.ndim;
    if (more < 0 || counts.ndim > TSR_MAX_NDIM)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "%d counts for the %d axes of %s", counts.ndim,
                            x->shape.ndim, tsri_op_dims(&c, x));
    tsr_dims dims = counts;
    for (int i = 0; i < counts.ndim; i++)
        dims.d[i] = i < more ? 1 : x->shape.d[i - more];
    tsr_tensor *y = tsri_as_result(tsri_shaped(x, dims, file, line), x, c.loc);
    for (int i = 0; i < counts.ndim; i++)
        y = repeated(&c, y, i, counts.d[i], false);
    return y;
}

tsr_tensor *tsr_repeat_interleave_at(tsr_tensor *x, int axis, int64_t n, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "repeat_interleave", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    return repeated(&c, tsri_as_result(x, x, c.loc), axis, n, true);
}

tsr_tensor *tsr_pixel_shuffle_at(tsr_tensor *x, int64_t r, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "pixel_shuffle", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    const int64_t *d = x->shape.d;
    if (x->shape.ndim != 4 || r < 1 || r > 4096 || d[1] % (r * r))
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s, r %lld; x must be (n,c r^2,h,w)",
                            tsri_op_dims(&c, x), (long long)r);
    const int64_t channels = d[1] / (r * r);
    tsr_tensor *y = tsr_reshape(x, TSR_DIMS(d[0], channels, r, r, d[2], d[3]));
    y = tsr_permute(y, TSR_AXES(0, 1, 4, 2, 5, 3));
    return tsr_reshape(y, TSR_DIMS(d[0], channels, d[2] * r, d[3] * r));
}

tsr_tensor *tsr_pixel_unshuffle_at(tsr_tensor *x, int64_t r, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "pixel_unshuffle", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    const int64_t *d = x->shape.d;
    if (x->shape.ndim != 4 || r < 1 || d[2] % r || d[3] % r)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s, r %lld; x must be (n,c,h r,w r)",
                            tsri_op_dims(&c, x), (long long)r);
    tsr_tensor *y = tsr_reshape(x, TSR_DIMS(d[0], d[1], d[2] / r, r, d[3] / r, r));
    y = tsr_permute(y, TSR_AXES(0, 1, 3, 5, 2, 4));
    return tsr_reshape(y, TSR_DIMS(d[0], d[1] * r * r, d[2] / r, d[3] / r));
}

tsr_tensor *tsr_channel_shuffle_at(tsr_tensor *x, int64_t groups, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "channel_shuffle", 1, &x, 0, (tsri_loc){file, line}))
        return c.failed;
    const int ndim = x->shape.ndim;
    if (ndim < 2 || ndim >= TSR_MAX_NDIM || groups < 1 || x->shape.d[1] % groups)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "x is %s, groups %lld; x must be (n,c,...) of up to %d axes, and the "
                            "groups divide the channels",
                            tsri_op_dims(&c, x), (long long)groups, TSR_MAX_NDIM - 1);
    tsr_dims apart = {.ndim = ndim + 1, .d = {x->shape.d[0], groups, x->shape.d[1] / groups}};
    tsr_axes order = {.n = ndim + 1, .axis = {0, 2, 1}};
    for (int i = 2; i < ndim; i++) {
        apart.d[i + 1] = x->shape.d[i];
        order.axis[i + 1] = i + 1;
    }
    return tsr_reshape(tsr_permute(tsr_reshape(x, apart), order), x->shape);
}
