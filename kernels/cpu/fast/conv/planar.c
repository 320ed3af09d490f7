/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense convolutions of stride 1 with results of few channels, which would leave most of a vector
 * empty: vectors are of pixels instead. Lines of an image are brought into planes, a channel each,
 * with zeros around them; register tiles multiply the weights, as rows, with pixels that lie one
 * tap further for each term. Products with the zeros between lines are left out of the result.
 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

enum { CHUNK_BYTES = 32 << 10 }; /* of planes: what a first-level cache holds */

typedef struct planar {
    tsri_fast base;
    bool dx, bias;
    int64_t images, k, n; /* channels read and written */
    int64_t in[2], out[2], pad[2], kernel[2], dilation[2];
    int64_t lines, chunks;       /* of results; of an image */
    int64_t pitch, plane, width; /* pixels of a plane's line, of a plane, of the results' lines */
    int64_t *at;                 /* where a run of taps begins in the planes: [channel][kh] */
    tsri_pool pool;
} planar;

static int64_t aligned(int64_t floats)
{
    return (floats + 15) / 16 * 16;
}

/* The scratch: weights w[n][k][taps], the windows of dx turned, then planes and results of each
 * part. */
typedef struct room {
    float *w, *planes, *sums;
} room;

static int64_t weight_floats(const planar *k)
{
    return aligned(k->n * k->k * k->kernel[0] * k->kernel[1]);
}

static int64_t part_floats(const planar *k)
{
    return aligned(k->k * k->plane) + aligned(k->n * k->width);
}

static room room_of(const planar *k, void *scratch, int part)
{
    room r = {.w = scratch};
    r.planes = r.w + weight_floats(k) + part * part_floats(k);
    r.sums = r.planes + aligned(k->k * k->plane);
    return r;
}

static void turn_weights(const tsri_fast *f, const tsri_fast_part *p)
{
    const planar *k = (const planar *)f;
    const int64_t taps = k->kernel[0] * k->kernel[1];
    const float *from = p->in[1];
    float *to = p->scratch;
    for (int64_t i = p->index; i < k->n * k->k; i += f->threads)
        for (int64_t t = 0; t < taps; t++)
            to[i * taps + t] = k->dx ? from[(i % k->k * k->n + i / k->k) * taps + taps - 1 - t]
                                     : from[i * taps + t];
}

/* Planes of what `lines` results from `line` on read. */
static void fill_planes(const planar *k, const float *image, int64_t line, int64_t lines,
                        float *planes)
{
    const int64_t count = lines + (k->kernel[0] - 1) * k->dilation[0];
    const int64_t left = k->pad[1] > 0 ? tsri_fast_least(k->pad[1], k->pitch) : 0;
    const int64_t first = k->pad[1] < 0 ? -k->pad[1] : 0;
    const int64_t n = tsri_fast_least(k->in[1] - first, k->pitch - left);
    memset(planes, 0, (size_t)(k->k * k->plane) * sizeof *planes);
    for (int64_t l = 0; l < count && n > 0; l++) {
        const int64_t h = line + l - k->pad[0];
        if (h >= 0 && h < k->in[0])
            k->base.isa->transpose(image + (h * k->in[1] + first) * k->k, k->k,
                                   planes + l * k->pitch + left, k->plane, k->k, n);
    }
}

static void multiply(const planar *k, int64_t lines, const float *bias, const room *r)
{
    const int64_t w = k->base.isa->width, columns = (lines - 1) * k->pitch + k->out[1];
    tsri_fast_tile t = {.a = r->w,
                        .ar = k->k * k->kernel[0] * k->kernel[1],
                        .ak = 1,
                        .bk = k->dilation[1],
                        .ldc = k->width,
                        .rows = k->n,
                        .k = k->kernel[1],
                        .b_at = k->at,
                        .runs = k->k * k->kernel[0],
                        .add = bias != NULL};
    for (int64_t o = 0; bias && o < k->n; o++) {
        const tsri_fast_map map = {.out = r->sums + o * k->width, .a = bias[o]};
        k->base.isa->fill(&map, 0, columns);
    }
    for (int64_t at = 0; at < columns; at += t.cols) {
        t.cols = tsri_fast_least(3 * w, columns - at);
        t.b = r->planes + at;
        t.c = r->sums + at;
        k->base.isa->tile[(t.cols + w - 1) / w](&t);
    }
}

static void planar_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const planar *k = (const planar *)f;
    const room r = room_of(k, p->scratch, p->index);
    for (int64_t i = p->begin; i < p->end; i++) {
        const int64_t image = i / k->chunks, line = i % k->chunks * k->lines;
        const int64_t lines = tsri_fast_least(k->lines, k->out[0] - line);
        float *y = (float *)p->out[0] + (image * k->out[0] + line) * k->out[1] * k->n;
        fill_planes(k, (const float *)p->in[0] + image * k->in[0] * k->in[1] * k->k, line, lines,
                    r.planes);
        multiply(k, lines, k->bias ? p->in[2] : NULL, &r);
        for (int64_t l = 0; l < lines; l++)
            f->isa->transpose(r.sums + l * k->pitch, k->width, y + l * k->out[1] * k->n, k->n,
                              k->out[1], k->n);
    }
}

static void planar_destroy(tsri_kernel *kernel)
{
    planar *k = (planar *)(void *)kernel;
    tsri_pool_finish(&k->pool);
    tsri_mem_free(k);
}

bool tsri_fast_planar_suits(const tsri_kernel_desc *desc, const tsri_fast_conv *c)
{
    const bool dx = desc->op == TSRI_OP_CONV2D_DX;
    const int64_t reach = (c->kernel[1] - 1) * (int64_t)c->dilation[1];
    return desc->op != TSRI_OP_CONV2D_DW && c->groups == 1 && !c->bf16 && c->stride[0] == 1 &&
           c->stride[1] == 1 && 2 * (dx ? c->ci : c->co) <= tsri_fast_isa_best()->width &&
           reach < (dx ? c->in[1] : c->out[1]);
}

/* Lines of results whose planes stay in the cache, as even as can be, and some for each thread. */
static void plan_lines(planar *k)
{
    const int64_t reach[2] = {(k->kernel[0] - 1) * k->dilation[0],
                              (k->kernel[1] - 1) * k->dilation[1]};
    k->pitch = k->out[1] + reach[1];
    const int64_t fit = CHUNK_BYTES / (k->pitch * k->k * (int64_t)sizeof(float)) - reach[0];
    int64_t lines = fit < 4 ? tsri_fast_least(4, k->out[0]) : tsri_fast_least(fit, k->out[0]);
    if (k->images < k->base.threads)
        lines =
            tsri_fast_least(lines, (k->out[0] * k->images + k->base.threads - 1) / k->base.threads);
    k->chunks = (k->out[0] + lines - 1) / lines;
    k->lines = (k->out[0] + k->chunks - 1) / k->chunks;
    k->chunks = (k->out[0] + k->lines - 1) / k->lines;
    k->plane = (k->lines + reach[0]) * k->pitch;
    k->width = aligned(k->lines * k->pitch);
}

tsr_status tsri_fast_planar(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                            tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_CONV2D_DX;
    planar *k =
        tsri_fast_make(mem, desc, planar_part, sizeof *k,
                       c->n * c->out[0] * c->out[1] * c->kernel[0] * c->kernel[1] * c->ci, 0);
    TSRI_NEED(k);
    tsri_pool_init(&k->pool, mem);
    k->base.begin = turn_weights;
    k->base.base.destroy = planar_destroy;
    k->dx = dx;
    k->bias = c->bias;
    k->images = c->n;
    k->k = dx ? c->co : c->ci;
    k->n = dx ? c->ci : c->co;
    for (int i = 0; i < 2; i++) {
        k->in[i] = dx ? c->out[i] : c->in[i];
        k->out[i] = dx ? c->in[i] : c->out[i];
        k->kernel[i] = c->kernel[i];
        k->dilation[i] = c->dilation[i];
        k->pad[i] = dx ? (c->kernel[i] - 1) * (int64_t)c->dilation[i] - c->pad[i] : c->pad[i];
    }
    plan_lines(k);
    k->base.items = k->images * k->chunks;
    k->base.base.scratch_bytes =
        (size_t)(weight_floats(k) + k->base.threads * part_floats(k)) * sizeof(float);
    k->at = tsri_pool_alloc(&k->pool, (size_t)(k->k * k->kernel[0]) * sizeof *k->at);
    if (!k->at) {
        planar_destroy(&k->base.base);
        return TSR_ERR_NO_MEMORY;
    }
    for (int64_t i = 0; i < k->k * k->kernel[0]; i++)
        k->at[i] = i / k->kernel[0] * k->plane + i % k->kernel[0] * k->dilation[0] * k->pitch;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
