/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling images at places that are themselves computed: torch's affine_grid and grid_sample. */
#include "src/functional/inside.h"

/* Returns the coordinates of n pixels in [-1, 1], of like's dtype and placement: of their centres,
 * or with corners of a line that begins at -1 and ends at 1 (of one pixel: 0). */
static tsr_tensor *pixel_line(const tsr_tensor *like, int64_t n, bool corners, tsri_loc loc)
{
    const double size = (double)n;
    double start = 1 / size - 1, step = 2 / size;
    if (corners) {
        start = n > 1 ? -1 : 0;
        step = n > 1 ? 2 / (size - 1) : 0;
    }
    return tsr_arange_at(like->graph, like->dtype, n, start, step, like->placement, TSR_AUTO,
                         loc.file, loc.line);
}

tsr_tensor *tsr_affine_grid_at(tsr_tensor *theta, int64_t out_h, int64_t out_w, bool corners,
                               const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "affine_grid", 1, &theta, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, theta))
        return c.failed;
    const int64_t most = 1 << 24, n = theta->shape.d[0];
    if (theta->shape.ndim != 3 || theta->shape.d[1] != 2 || theta->shape.d[2] != 3 || out_h < 1 ||
        out_w < 1 || out_h > most || out_w > most)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "theta is %s, the size %lld x %lld; theta must be (n,2,3), and no size "
                            "0 or above %lld",
                            tsri_op_dims(&c, theta), (long long)out_h, (long long)out_w,
                            (long long)most);
    const tsr_dims image = TSR_DIMS(out_h, out_w);
    tsr_tensor *base[3] = {tsr_expand(pixel_line(theta, out_w, corners, c.loc), image),
                           tsr_expand(tsri_shaped(pixel_line(theta, out_h, corners, c.loc),
                                                  TSR_DIMS(out_h, 1), file, line),
                                      image),
                           tsr_expand(tsri_number(theta, 1, file, line), image)};
    tsr_tensor *both[2] = {
        tsri_shaped(tsr_stack(3, base, 2), TSR_DIMS(out_h * out_w, 3), file, line), theta};
    tsri_autocast_begin(c.g, TSR_F32); /* a grid keeps theta's digits */
    tsr_tensor *grid = tsr_einsum("pk,nck->npc", 2, both);
    tsri_autocast_end(c.g);
    return tsri_shaped(grid, TSR_DIMS(n, out_h, out_w, 2), file, line);
}

/* One coordinate of all samples, (n,1,samples), in pixels: what is left of it, and the share of the
 * next pixel. */
typedef struct axis_place {
    tsr_tensor *low, *share;
    int64_t size;
} axis_place;

static axis_place place_on(tsr_tensor *grid, int coordinate, int64_t size, tsr_interpolation how,
                           bool border, const char *file, int line)
{
    const int64_t *d = grid->shape.d;
    const double n = (double)size;
    tsr_tensor *x =
        tsri_shaped(tsr_narrow(grid, 3, coordinate, 1), TSR_DIMS(d[0], 1, d[1] * d[2]), file, line);
    x = how == TSR_BILINEAR_CORNERS
            ? tsr_mul_scalar(tsr_add_scalar(x, 1), (n - 1) / 2)
            : tsr_add_scalar(tsr_mul_scalar(tsr_add_scalar(x, 1), n / 2), -0.5);
    if (border)
        x = tsr_hardtanh(x, 0, n - 1); /* a place on the edge has no slope, as in PyTorch */
    axis_place p = {.size = size};
    p.low = how == TSR_NEAREST ? tsr_round(x) : tsr_floor(x);
    p.share = how == TSR_NEAREST ? NULL : tsr_sub(x, p.low);
    return p;
}

/* Returns the pixel numbers `next` behind the low ones, and in *inout_inside, and-ed, whether they
 * are of the image. */
static tsr_tensor *pixel_of(const axis_place *p, int next, tsr_tensor **inout_inside,
                            const char *file, int line)
{
    tsr_tensor *i = next ? tsr_add_scalar(p->low, 1) : p->low;
    tsr_tensor *inside =
        tsr_logical_and(tsr_greater_equal(i, tsri_number(i, 0, file, line)),
                        tsr_less_equal(i, tsri_number(i, (double)(p->size - 1), file, line)));
    *inout_inside = *inout_inside ? tsr_logical_and(*inout_inside, inside) : inside;
    return i;
}

/* Returns a corner's share of the samples: the product of its two lines' shares. */
static tsr_tensor *share_of(const axis_place *p, int next, const char *file, int line)
{
    return next ? p->share : tsr_sub(tsri_number(p->share, 1, file, line), p->share);
}

/* Returns the pixels at one corner of each sample (n,c,samples), 0 outside of the image. */
static tsr_tensor *corner(tsr_tensor *flat, const axis_place *x, const axis_place *y, int right,
                          int below, const char *file, int line)
{
    const int64_t *d = flat->shape.d;
    tsr_tensor *inside = NULL;
    tsr_tensor *column = pixel_of(x, right, &inside, file, line);
    tsr_tensor *row = pixel_of(y, below, &inside, file, line);
    tsr_tensor *id = tsr_add(tsr_mul_scalar(row, (double)x->size), column);
    const int64_t samples = column->shape.d[2];
    const tsr_dims all = TSR_DIMS(d[0], d[1], samples);
    tsr_tensor *none = tsri_number(flat, 0, file, line);
    id = tsr_cast(tsr_where(inside, id, none), TSR_I64);
    tsr_tensor *pixel = tsr_gather(flat, 2, tsr_expand(id, all));
    pixel = tsr_where(inside, pixel, none);
    if (!x->share)
        return pixel;
    return tsr_mul(pixel, tsr_mul(share_of(x, right, file, line), share_of(y, below, file, line)));
}

tsr_tensor *tsr_grid_sample_at(tsr_tensor *x, tsr_tensor *grid, tsr_interpolation how, bool border,
                               const char *file, int line)
{
    tsr_tensor *in[2] = {x, grid};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "grid_sample", 2, in, 0, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(&c, 2, in) || !tsri_want_float(&c, x) ||
        !tsri_want_interpolation(&c, how))
        return c.failed;
    if (x->dtype != grid->dtype) {
        x = tsri_full(&c, x);
        grid = tsri_full(&c, grid);
    }
    const int64_t *d = x->shape.d, *g = grid->shape.d;
    if (x->shape.ndim != 4 || grid->shape.ndim != 4 || g[0] != d[0] || g[3] != 2 || d[2] < 1 ||
        d[3] < 1)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "x is %s, the grid %s; legal are (n,c,h,w) with pixels and "
                            "(n,out_h,out_w,2)",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, grid));
    tsr_tensor *flat = tsri_shaped(x, TSR_DIMS(d[0], d[1], d[2] * d[3]), file, line);
    const axis_place column = place_on(grid, 0, d[3], how, border, file, line),
                     row = place_on(grid, 1, d[2], how, border, file, line);
    if (column.low->failed || row.low->failed)
        return c.failed;
    tsr_tensor *y = corner(flat, &column, &row, 0, 0, file, line);
    for (int k = 1; k < 4 && how != TSR_NEAREST; k++)
        y = tsr_add(y, corner(flat, &column, &row, k & 1, k >> 1, file, line));
    return tsri_shaped(y, TSR_DIMS(d[0], d[1], g[1], g[2]), file, line);
}
