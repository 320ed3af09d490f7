/* SPDX-License-Identifier: Apache-2.0 */
/* Max pooling of channels-last images, and means, over windows and over whole planes, of these and
 * of row-major ones. */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

/* Elements that are summed one by one in f32, and most of such sums. */
enum { MEAN_BLOCK = 64, MEAN_BLOCKS = 64 };

typedef struct pool {
    tsri_fast base;
    int64_t channels, in[2], out[2];
    int kernel[2], stride[2], pad[2];
    bool idx;
    bool padding; /* of a mean over windows: counts too */
    float scale;  /* of means */
    double count; /* elements of a mean */
} pool;

/* Returns the first line under the windows of a line of results, and the end of these. */
static int64_t window(const pool *k, int64_t line, int64_t *end)
{
    int64_t begin = line * k->stride[0] - k->pad[0];
    *end = begin + k->kernel[0];
    *end = *end > k->in[0] ? k->in[0] : *end;
    return begin < 0 ? 0 : begin;
}

static tsri_fast_pool line_of(const pool *k)
{
    return (tsri_fast_pool){.width = k->in[1],
                            .channels = k->channels,
                            .results = k->out[1],
                            .kernel = k->kernel[1],
                            .stride = k->stride[1],
                            .pad = k->pad[1]};
}

static void max_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const pool *k = (const pool *)f;
    const int64_t size = k->in[0] * k->in[1] * k->channels, line = k->out[1] * k->channels;
    tsri_fast_pool max = line_of(k);
    for (int64_t at = p->begin; at < p->end; at++) {
        int64_t end, begin = window(k, at % k->out[0], &end);
        max.image = (const float *)p->in[0] + at / k->out[0] * size;
        f->isa->max_line(&max, begin, end, (float *)p->out[0] + at * line,
                         k->idx ? (int32_t *)p->out[1] + at * line : NULL);
    }
}

static void max_dx_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const pool *k = (const pool *)f;
    const int64_t size = k->in[0] * k->in[1] * k->channels, plane = k->out[0] * k->out[1];
    const int32_t *from = p->in[0];
    const float *dy = p->in[1];
    float *images = p->out[0];
    memset(images + p->begin * size, 0, (size_t)((p->end - p->begin) * size) * sizeof *images);
    for (int64_t at = p->begin * plane; at < p->end * plane; at++) {
        float *dx = images + at / plane * size;
        for (int64_t c = 0; c < k->channels; c++)
            dx[(int64_t)from[at * k->channels + c] * k->channels + c] += dy[at * k->channels + c];
    }
}

/* Returns whether each pixel of the images is under one window. */
static bool windows_tile(const pool *k)
{
    for (int i = 0; i < 2; i++)
        if (k->stride[i] != k->kernel[i] || k->pad[i] || k->out[i] * k->stride[i] != k->in[i])
            return false;
    return true;
}

static void max_dx_tiles_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const pool *k = (const pool *)f;
    const int64_t size = k->in[0] * k->in[1] * k->channels, line = k->out[1] * k->channels;
    const tsri_fast_pool max = line_of(k);
    for (int64_t at = p->begin * k->out[0]; at < p->end * k->out[0]; at++) {
        int64_t end, begin = window(k, at % k->out[0], &end);
        f->isa->max_line_dx(&max, begin, end, (const int32_t *)p->in[0] + at * line,
                            (const float *)p->in[1] + at * line,
                            (float *)p->out[0] + at / k->out[0] * size);
    }
}

/* Fills in sizes from the large and the small operand; images are the items. */
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_arg *large,
                         const tsri_arg *small, tsri_fast_part_fn *part, pool **out_pool)
{
    int64_t rows, channels;
    if (large->dtype != TSR_F32 || small->dtype != TSR_F32 || large->ndim != 4 ||
        small->ndim != 4 || !tsri_fast_is_rows(large, &rows, &channels) ||
        !tsri_fast_is_rows(small, &rows, &channels))
        return tsri_fast_decline(desc);
    pool *k = tsri_fast_make(mem, desc, part, sizeof *k, tsri_arg_count(large), large->shape[0]);
    TSRI_NEED(k);
    k->channels = channels;
    for (int i = 0; i < 2; i++) {
        k->in[i] = large->shape[2 + i];
        k->out[i] = small->shape[2 + i];
    }
    *out_pool = k;
    return TSR_OK;
}

static void read_windows(pool *k, const tsri_attrs *at)
{
    for (int i = 0; i < 2; i++) {
        k->kernel[i] = at->pool.kernel[i];
        k->stride[i] = at->pool.stride[i];
        k->pad[i] = at->pool.pad[i];
    }
}

tsr_status tsri_fast_max_pool(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_MAX_POOL_DX;
    const tsri_arg *large = dx ? &desc->out[0] : &desc->in[0];
    const tsri_arg *small = dx ? &desc->in[1] : &desc->out[0];
    const tsri_arg *idx = dx ? &desc->in[0] : desc->nout > 1 ? &desc->out[1] : NULL;
    if (idx && (idx->dtype != TSR_I32 || !tsri_fast_alike(idx, small)))
        return tsri_fast_decline(desc);
    pool *k = NULL;
    TSRI_TRY(create(mem, desc, large, small, dx ? max_dx_part : max_part, &k));
    read_windows(k, desc->attrs);
    k->idx = idx != NULL;
    if (!dx)
        k->base.items *= k->out[0];
    else if (windows_tile(k))
        k->base.part = max_dx_tiles_part;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

/* --- means over windows ----------------------------------------------------------------------- */
/* Floats of a thread's scratch: a line with its padding and three vectors, and the line's counts.
 */
static int64_t room_of(const pool *k)
{
    return k->in[1] + 2 * (int64_t)k->pad[1] + 3 * k->base.isa->width;
}

static int64_t own_of(const pool *k)
{
    return (room_of(k) + k->out[1] + 15) / 16 * 16;
}

static void window_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const pool *k = (const pool *)f;
    const int64_t size = k->in[0] * k->in[1] * k->channels, line = k->out[1] * k->channels;
    float *room = (float *)p->scratch + p->index * own_of(k), *counts = room + room_of(k);
    tsri_fast_pool mean = line_of(k);
    mean.counts = counts;
    mean.room = room;
    memset(room, 0, (size_t)room_of(k) * sizeof *room);
    for (int64_t o = 0; o < k->out[1]; o++) {
        const int64_t first = o * k->stride[1] - k->pad[1], end = first + k->kernel[1];
        counts[o] = (float)(k->padding ? k->kernel[1]
                                       : tsri_fast_least(end, k->in[1]) - (first < 0 ? 0 : first));
    }
    for (int64_t at = p->begin; at < p->end; at++) {
        int64_t end, begin = window(k, at % k->out[0], &end);
        mean.image = (const float *)p->in[0] + at / k->out[0] * size;
        mean.lines_count = (float)(k->padding ? k->kernel[0] : end - begin);
        f->isa->mean_line(&mean, begin, end, (float *)p->out[0] + at * line);
    }
}

tsr_status tsri_fast_avg_pool(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &desc->in[0], *y = &desc->out[0];
    const int64_t most = (int64_t)desc->attrs->pool.kernel[0] * desc->attrs->pool.kernel[1];
    pool *k = NULL;
    if (most > MEAN_BLOCK)
        return tsri_fast_decline(desc);
    if (tsri_fast_is_plain(desc)) { /* each plane is an image of one channel */
        k = tsri_fast_make(mem, desc, window_part, sizeof *k, tsri_arg_count(x),
                           x->shape[0] * x->shape[1]);
        TSRI_NEED(k);
        k->channels = 1;
        for (int i = 0; i < 2; i++) {
            k->in[i] = x->shape[2 + i];
            k->out[i] = y->shape[2 + i];
        }
    } else {
        TSRI_TRY(create(mem, desc, x, y, window_part, &k));
    }
    read_windows(k, desc->attrs);
    k->padding = desc->attrs->pool.count_include_pad;
    k->base.items *= k->out[0];
    k->base.base.scratch_bytes = (size_t)(k->base.threads * own_of(k)) * sizeof(float);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

/* --- means over planes ------------------------------------------------------------------------ */
/* y = the sum of n > 0 pixels. */
static void sum_pixels(const pool *k, const float *x, int64_t n, float *y)
{
    tsri_fast_map map = {.x = y, .out = y};
    memcpy(y, x, (size_t)k->channels * sizeof *y);
    for (int64_t i = 1; i < n; i++) {
        map.y = x + i * k->channels;
        k->base.isa->binary[TSRI_BINARY_ADD](&map, 0, k->channels);
    }
}

static void mean_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const pool *k = (const pool *)f;
    const int64_t plane = k->in[0] * k->in[1];
    for (int64_t n = p->begin; n < p->end; n++) {
        float *y = (float *)p->out[0] + n * k->channels;
        const float *x = (const float *)p->in[0] + n * plane * k->channels;
        float *block = (float *)p->scratch + p->index * k->channels;
        tsri_fast_map map = {.x = y, .y = block, .out = y, .a = k->scale};
        sum_pixels(k, x, plane < MEAN_BLOCK ? plane : MEAN_BLOCK, y);
        for (int64_t i = MEAN_BLOCK; i < plane; i += MEAN_BLOCK) {
            sum_pixels(k, x + i * k->channels, plane - i < MEAN_BLOCK ? plane - i : MEAN_BLOCK,
                       block);
            f->isa->binary[TSRI_BINARY_ADD](&map, 0, k->channels);
        }
        f->isa->scale(&map, 0, k->channels);
    }
}

/* Means of planes of row-major images. */
static void plane_part(const tsri_fast *f, const tsri_fast_part *p)
{
    enum { AT_ONCE = 64 };
    const pool *k = (const pool *)f;
    const int64_t plane = k->in[0] * k->in[1];
    for (int64_t at = p->begin; at < p->end; at += AT_ONCE) {
        double sum[AT_ONCE] = {0};
        const int64_t n = tsri_fast_least(p->end - at, AT_ONCE);
        f->isa->reduce[TSR_REDUCE_SUM][0]((const float *)p->in[0] + at * plane, n, plane, plane,
                                          sum);
        for (int64_t i = 0; i < n; i++)
            ((float *)p->out[0])[at + i] = (float)(sum[i] / k->count);
    }
}

static tsr_status create_planes(tsri_mem *mem, const tsri_kernel_desc *desc, double count,
                                tsri_kernel **out_kernel)
{
    const tsri_arg *x = &desc->in[0];
    pool *k = tsri_fast_make(mem, desc, plane_part, sizeof *k, tsri_arg_count(x),
                             tsri_arg_count(&desc->out[0]));
    TSRI_NEED(k);
    k->in[0] = x->shape[2];
    k->in[1] = x->shape[3];
    k->count = count;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

static void mean_dx_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const pool *k = (const pool *)f;
    const int64_t plane = k->in[0] * k->in[1];
    for (int64_t at = p->begin * plane; at < p->end * plane; at++) {
        tsri_fast_map map = {.x = (const float *)p->in[0] + at / plane * k->channels,
                             .out = (float *)p->out[0] + at * k->channels,
                             .a = k->scale};
        f->isa->scale(&map, 0, k->channels);
    }
}

tsr_status tsri_fast_adaptive_pool(tsri_mem *mem, const tsri_kernel_desc *desc,
                                   tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_ADAPTIVE_POOL_DX;
    const tsri_arg *large = dx ? &desc->out[0] : &desc->in[0];
    const tsri_arg *small = dx ? &desc->in[0] : &desc->out[0];
    if (small->ndim != 4 || large->ndim != 4 || small->shape[2] != 1 || small->shape[3] != 1)
        return tsri_fast_decline(desc);
    /* The mean is over the elements of the whole window, of which this part may have only some. */
    const int64_t count =
        large->gshape[2] / small->gshape[2] * (large->gshape[3] / small->gshape[3]);
    if (!dx && tsri_fast_is_plain(desc))
        return create_planes(mem, desc, (double)count, out_kernel);
    if (large->shape[2] * large->shape[3] > MEAN_BLOCK * MEAN_BLOCKS)
        return tsri_fast_decline(desc);
    pool *k = NULL;
    TSRI_TRY(create(mem, desc, large, small, dx ? mean_dx_part : mean_part, &k));
    if (!dx)
        k->base.base.scratch_bytes = (size_t)k->base.threads * (size_t)k->channels * sizeof(float);
    k->scale = 1.0f / (float)count;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
