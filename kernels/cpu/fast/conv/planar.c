/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense convolutions of stride 1 with results of few channels, which would leave most of a vector
 * empty: vectors are of pixels instead. Lines of an image are brought into planes, a channel each,
 * with zeros around them; register tiles multiply the weights, as rows, with pixels that lie one
 * tap further for each term. Either vectors go on over the ends of lines, and products with the
 * zeros between these are left out of the result; or each has pixels of one line, and taps that
 * meet zero lines alone are left out.
 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

enum { CHUNK_BYTES = 32 << 10 }; /* of planes: what a first-level cache holds */

typedef struct planar {
    tsri_fast base;
    bool dx, bias;
    bool by_lines;        /* vectors have pixels of one line */
    int64_t images, k, n; /* channels read and written */
    int64_t in[2], out[2], pad[2], kernel[2], dilation[2];
    int64_t lines, chunks;       /* of results; of an image */
    int64_t pitch, plane, width; /* pixels of a plane's line, of a plane, of the results' lines, */
    int64_t line_width;          /* and of one of these */
    int64_t *at;                 /* where a run of taps begins in the planes: [kh][channel] */
    tsri_pool pool;
} planar;

static int64_t aligned(int64_t floats)
{
    return (floats + 15) / 16 * 16;
}

/* The scratch: weights w[n][kh][k][kw], the windows of dx turned, then planes and results of each
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
    const int64_t across = k->kernel[1], taps = k->kernel[0] * across;
    for (int64_t i = p->index; i < k->n * k->k; i += f->threads) {
        const int64_t n = i / k->k, c = i % k->k;
        const float *from = (const float *)p->in[1] + (k->dx ? c * k->n + n : i) * taps;
        float *to = (float *)p->scratch + n * k->k * taps + c * across;
        for (int64_t t = 0; t < taps; t++)
            to[t / across * k->k * across + t % across] = from[k->dx ? taps - 1 - t : t];
    }
}

/* Planes of what `lines` results from `line` on read. */
static void fill_planes(const planar *k, const float *image, int64_t line, int64_t lines,
                        float *planes)
{
    const int64_t count = lines + (k->kernel[0] - 1) * k->dilation[0];
    const int64_t left = k->pad[1] > 0 ? tsri_fast_least(k->pad[1], k->pitch) : 0;
    const int64_t first = k->pad[1] < 0 ? -k->pad[1] : 0;
    const int64_t n = tsri_fast_least(k->in[1] - first, k->pitch - left);
    const int64_t h0 = line - k->pad[0], l0 = h0 < 0 ? -h0 : 0;
    const int64_t l1 = tsri_fast_least(count, k->in[0] - h0);
    const tsri_fast_planes p = {.channels = k->k,
                                .pixels = n,
                                .lines = l1 - l0,
                                .plane = k->plane,
                                .plane_pitch = k->pitch,
                                .pixel_pitch = k->in[1] * k->k};
    memset(planes, 0, (size_t)(k->k * k->plane) * sizeof *planes);
    if (n > 0 && l1 > l0)
        k->base.isa->split_planes(&p, image + ((h0 + l0) * k->in[1] + first) * k->k,
                                  planes + l0 * k->pitch + left);
}

static tsri_fast_tile tile_of(const planar *k, const room *r, bool bias)
{
    return (tsri_fast_tile){.a = r->w,
                            .ar = k->k * k->kernel[0] * k->kernel[1],
                            .ak = 1,
                            .bk = k->dilation[1],
                            .ldc = k->width,
                            .rows = k->n,
                            .k = k->kernel[1],
                            .b_at = k->at,
                            .b_unit = 1,
                            .runs = k->k * k->kernel[0],
                            .add = bias};
}

static void multiply_across(const planar *k, int64_t columns, bool bias, const room *r)
{
    const int64_t w = k->base.isa->width;
    tsri_fast_tile t = tile_of(k, r, bias);
    for (int64_t at = 0; at < columns; at += t.cols) {
        t.cols = tsri_fast_least(3 * w, columns - at);
        t.b = r->planes + at;
        t.c = r->sums + at;
        k->base.isa->f32.tile[(t.cols + w - 1) / w](&t);
    }
}

/* Sets the taps [*k0, *k1) down a window that meet the image from one of n results' lines on. */
static void taps_inside(const planar *k, int64_t line, int64_t n, int64_t *k0, int64_t *k1)
{
    const int64_t step = k->dilation[0], first = k->pad[0] - line; /* the image's, from `line` on */
    *k0 = 0;
    *k1 = k->kernel[0];
    while (*k0 < *k1 && *k0 * step + n - 1 < first)
        ++*k0;
    while (*k1 > *k0 && (*k1 - 1) * step >= first + k->in[0])
        --*k1;
}

/* `line`: of the image's results, the first one of all. */
static void multiply_lines(const planar *k, int64_t line, int64_t lines, bool bias, const room *r)
{
    const int64_t w = k->base.isa->width;
    tsri_fast_tile t = tile_of(k, r, bias);
    for (int64_t l = 0, nv; l < lines; l += nv) {
        int64_t k0, k1;
        nv = tsri_fast_panel(lines - l);
        taps_inside(k, line + l, nv, &k0, &k1);
        t.a = r->w + k0 * k->k * k->kernel[1];
        t.b_at = k->at + k0 * k->k;
        t.runs = (k1 - k0) * k->k;
        t.k = t.runs ? k->kernel[1] : 0;
        t.apart = nv > 1 ? k->pitch : 0;
        t.c_apart = k->line_width;
        for (int64_t at = 0; at < k->out[1]; at += w) {
            t.cols = tsri_fast_least(w, k->out[1] - at);
            t.b = r->planes + l * k->pitch + at;
            t.c = r->sums + l * k->line_width + at;
            k->base.isa->f32.tile[nv](&t);
        }
    }
}

static void multiply(const planar *k, int64_t line, int64_t lines, const float *bias, const room *r)
{
    const int64_t columns = (lines - 1) * k->line_width + k->out[1];
    for (int64_t o = 0; bias && o < k->n; o++) {
        const tsri_fast_map map = {.out = r->sums + o * k->width, .a = bias[o]};
        k->base.isa->fill(&map, 0, columns);
    }
    if (k->by_lines)
        multiply_lines(k, line, lines, bias != NULL, r);
    else
        multiply_across(k, columns, bias != NULL, r);
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
        multiply(k, line, lines, k->bias ? p->in[2] : NULL, &r);
        const tsri_fast_planes results = {.channels = k->n,
                                          .pixels = k->out[1],
                                          .lines = lines,
                                          .plane = k->width,
                                          .plane_pitch = k->line_width,
                                          .pixel_pitch = k->out[1] * k->n};
        f->isa->join_planes(&results, r.sums, y);
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

/* Returns whether vectors of single lines take fewer products. */
static bool lines_are_less(const planar *k)
{
    const int64_t w = k->base.isa->width;
    int64_t by_lines = 0, across = 0;
    for (int64_t line = 0; line < k->out[0]; line += k->lines) {
        const int64_t lines = tsri_fast_least(k->lines, k->out[0] - line);
        across += (((lines - 1) * k->pitch + k->out[1] + w - 1) / w) * k->kernel[0];
        for (int64_t l = 0, nv, k0, k1; l < lines; l += nv) {
            nv = tsri_fast_panel(lines - l);
            taps_inside(k, line + l, nv, &k0, &k1);
            by_lines += (k->out[1] + w - 1) / w * nv * (k1 - k0);
        }
    }
    return by_lines < across;
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
    k->by_lines = lines_are_less(k);
    k->line_width = k->by_lines ? aligned(k->out[1]) : k->pitch;
    k->width = aligned(k->lines * k->line_width);
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
        k->at[i] = i % k->k * k->plane + i / k->k * k->dilation[0] * k->pitch;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
