/* SPDX-License-Identifier: Apache-2.0 */
/* Max pooling, and the mean over whole planes, of channels-last images. */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

/* Elements that are summed one by one in f32, and most of such sums. */
enum { MEAN_BLOCK = 64, MEAN_BLOCKS = 64 };

typedef struct pool {
    tsri_fast base;
    int64_t n, channels, in[2], out[2];
    int kernel[2], stride[2], pad[2];
    bool idx;
    float scale; /* of means */
} pool;

typedef struct job {
    const pool *k;
    const float *x;
    float *y;
    int32_t *idx;
    const int32_t *from; /* dx: whose maximum */
    float *block;        /* [threads][channels], of means */
} job;

static int64_t window(const pool *k, int axis, int64_t o, int64_t *end)
{
    int64_t begin = o * k->stride[axis] - k->pad[axis];
    *end = begin + k->kernel[axis];
    *end = *end > k->in[axis] ? k->in[axis] : *end;
    return begin < 0 ? 0 : begin;
}

static void max_pixel(const job *j, int64_t n, int64_t oh, int64_t ow, float *y, int32_t *idx)
{
    const pool *k = j->k;
    const float *image = j->x + n * k->in[0] * k->in[1] * k->channels;
    int64_t h1, w1, h0 = window(k, 0, oh, &h1), w0 = window(k, 1, ow, &w1);
    int64_t first = h0 * k->in[1] + w0;
    memcpy(y, image + first * k->channels, (size_t)k->channels * sizeof *y);
    for (int64_t c = 0; c < k->channels; c++)
        idx[c] = (int32_t)first;
    for (int64_t h = h0; h < h1; h++)
        for (int64_t w = w0; w < w1; w++) {
            int64_t at = h * k->in[1] + w;
            if (at != first)
                k->base.isa->max_join(image + at * k->channels, (int32_t)at, k->channels, y, idx);
        }
}

static void max_part(void *arg, int part)
{
    const job *j = arg;
    const pool *k = j->k;
    const int64_t plane = k->out[0] * k->out[1];
    int64_t end = tsri_fast_cut(k->n * plane, k->base.threads, part + 1, 1);
    int64_t at = tsri_fast_cut(k->n * plane, k->base.threads, part, 1);
    for (; at < end; at++) {
        int64_t o = k->idx ? at : part; /* nobody wants the indices: they share a row of scratch */
        max_pixel(j, at / plane, at % plane / k->out[1], at % k->out[1], j->y + at * k->channels,
                  j->idx + o * k->channels);
    }
}

static void max_dx_part(void *arg, int part)
{
    const job *j = arg;
    const pool *k = j->k;
    const int64_t size = k->in[0] * k->in[1] * k->channels, plane = k->out[0] * k->out[1];
    int64_t n0 = tsri_fast_cut(k->n, k->base.threads, part, 1);
    int64_t n1 = tsri_fast_cut(k->n, k->base.threads, part + 1, 1);
    memset(j->y + n0 * size, 0, (size_t)((n1 - n0) * size) * sizeof(float));
    for (int64_t at = n0 * plane; at < n1 * plane; at++) {
        float *dx = j->y + at / plane * size;
        for (int64_t c = 0; c < k->channels; c++)
            dx[(int64_t)j->from[at * k->channels + c] * k->channels + c] +=
                j->x[at * k->channels + c];
    }
}

static tsr_status max_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                          void *scratch)
{
    const pool *k = (const pool *)(const void *)kernel;
    job j = {.k = k, .x = in[0], .y = out[0], .idx = k->idx ? out[1] : scratch};
    tsri_fast_team(k->base.threads, max_part, &j);
    return TSR_OK;
}

static tsr_status max_dx_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                             void *scratch)
{
    (void)scratch;
    const pool *k = (const pool *)(const void *)kernel;
    job j = {.k = k, .x = in[1], .y = out[0], .from = in[0]};
    tsri_fast_team(k->base.threads, max_dx_part, &j);
    return TSR_OK;
}

/* Fills in sizes from the large and the small operand. */
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_arg *large,
                         const tsri_arg *small, tsri_fast_run_fn *run, pool **out_pool)
{
    int64_t rows, channels;
    if (large->dtype != TSR_F32 || small->dtype != TSR_F32 || large->ndim != 4 ||
        small->ndim != 4 || !tsri_fast_is_rows(large, &rows, &channels) ||
        !tsri_fast_is_rows(small, &rows, &channels))
        return tsri_fast_decline(desc);
    pool *k = tsri_fast_make(mem, run, sizeof *k, tsri_fast_count(large));
    TSRI_NEED(k);
    k->n = large->shape[0];
    k->channels = channels;
    for (int i = 0; i < 2; i++) {
        k->in[i] = large->shape[2 + i];
        k->out[i] = small->shape[2 + i];
    }
    *out_pool = k;
    return TSR_OK;
}

tsr_status tsri_fast_pool(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_MAX_POOL_DX;
    const tsri_arg *large = dx ? &desc->out[0] : &desc->in[0];
    const tsri_arg *small = dx ? &desc->in[1] : &desc->out[0];
    const tsri_arg *idx = dx ? &desc->in[0] : desc->nout > 1 ? &desc->out[1] : NULL;
    if (idx && (idx->dtype != TSR_I32 || !tsri_fast_alike(idx, small)))
        return tsri_fast_decline(desc);
    pool *k = NULL;
    TSRI_TRY(create(mem, desc, large, small, dx ? max_dx_run : max_run, &k));
    for (int i = 0; i < 2; i++) {
        k->kernel[i] = desc->attrs->pool.kernel[i];
        k->stride[i] = desc->attrs->pool.stride[i];
        k->pad[i] = desc->attrs->pool.pad[i];
    }
    k->idx = idx != NULL;
    if (!idx)
        k->base.base.scratch_bytes =
            (size_t)k->base.threads * (size_t)k->channels * sizeof(int32_t);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

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

static void mean_part(void *arg, int part)
{
    const job *j = arg;
    const pool *k = j->k;
    const int64_t plane = k->in[0] * k->in[1];
    const tsri_fast_isa *isa = k->base.isa;
    int64_t n1 = tsri_fast_cut(k->n, k->base.threads, part + 1, 1);
    for (int64_t n = tsri_fast_cut(k->n, k->base.threads, part, 1); n < n1; n++) {
        float *y = j->y + n * k->channels;
        const float *x = j->x + n * plane * k->channels;
        float *block = j->block + part * k->channels;
        tsri_fast_map map = {.x = y, .y = block, .out = y, .a = k->scale};
        sum_pixels(k, x, plane < MEAN_BLOCK ? plane : MEAN_BLOCK, y);
        for (int64_t i = MEAN_BLOCK; i < plane; i += MEAN_BLOCK) {
            sum_pixels(k, x + i * k->channels, plane - i < MEAN_BLOCK ? plane - i : MEAN_BLOCK,
                       block);
            isa->binary[TSRI_BINARY_ADD](&map, 0, k->channels);
        }
        isa->scale(&map, 0, k->channels);
    }
}

static void mean_dx_part(void *arg, int part)
{
    const job *j = arg;
    const pool *k = j->k;
    const int64_t plane = k->in[0] * k->in[1];
    int64_t n1 = tsri_fast_cut(k->n, k->base.threads, part + 1, 1);
    for (int64_t n = tsri_fast_cut(k->n, k->base.threads, part, 1); n < n1; n++)
        for (int64_t i = 0; i < plane; i++) {
            tsri_fast_map map = {.x = j->x + n * k->channels,
                                 .out = j->y + (n * plane + i) * k->channels,
                                 .a = k->scale};
            k->base.isa->scale(&map, 0, k->channels);
        }
}

static tsr_status mean_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    const pool *k = (const pool *)(const void *)kernel;
    job j = {.k = k, .x = in[0], .y = out[0], .block = scratch};
    tsri_fast_team(k->base.threads, mean_part, &j);
    return TSR_OK;
}

static tsr_status mean_dx_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const pool *k = (const pool *)(const void *)kernel;
    job j = {.k = k, .x = in[0], .y = out[0]};
    tsri_fast_team(k->base.threads, mean_dx_part, &j);
    return TSR_OK;
}

tsr_status tsri_fast_adaptive_pool(tsri_mem *mem, const tsri_kernel_desc *desc,
                                   tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_ADAPTIVE_POOL_DX;
    const tsri_arg *large = dx ? &desc->out[0] : &desc->in[0];
    const tsri_arg *small = dx ? &desc->in[0] : &desc->out[0];
    if (small->ndim != 4 || large->ndim != 4 || small->shape[2] != 1 || small->shape[3] != 1 ||
        large->shape[2] * large->shape[3] > MEAN_BLOCK * MEAN_BLOCKS)
        return tsri_fast_decline(desc);
    pool *k = NULL;
    TSRI_TRY(create(mem, desc, large, small, dx ? mean_dx_run : mean_run, &k));
    if (!dx)
        k->base.base.scratch_bytes = (size_t)k->base.threads * (size_t)k->channels * sizeof(float);
    /* By the elements of the whole window, of which this part may have some. */
    k->scale =
        1.0f / (float)(large->gshape[2] / small->gshape[2] * (large->gshape[3] / small->gshape[3]));
    *out_kernel = &k->base.base;
    return TSR_OK;
}
