/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense convolutions of bf16 as products of matrices: a row of `col` holds what an output pixel
 * sees, in the order kh, kw, channel, and weights are brought into that order first. Rows go in
 * chunks that stay in cache; each thread has its own.
 */
#include "kernels/cpu/fast/gemm16.h"

#include <string.h>

enum { CHUNK = 192 << 10 }; /* elements: products of more terms are worth more */

typedef struct unfold {
    tsri_fast base;
    tsri_fast_conv conv;
    tsri_gemm16 gemm;           /* forward: y = col w^T; dx: dcol = dy w; dw: dy^T col */
    tsri_narrow_fn *narrow;     /* dx, dw: NULL where it is f32 */
    int64_t taps, depth, chunk; /* depth: taps * ci; chunk: output pixels */
    size_t weight_bytes, packed_bytes, col_bytes, part_bytes;
} unfold;

/* A pixel's window is walked in runs: taps of one kernel row that lie inside the image, neighbours
 * in memory unless they are dilated. */
typedef struct window_run {
    int begin, end; /* kw */
    int64_t at;     /* of tap `begin`, in the image */
} window_run;

static bool next_run(const tsri_fast_conv *c, int64_t oh, int64_t ow, int kh, window_run *out)
{
    const int64_t h = oh * c->stride[0] - c->pad[0] + (int64_t)kh * c->dilation[0];
    const int64_t w = ow * c->stride[1] - c->pad[1], d = c->dilation[1];
    int begin = 0, end = c->kernel[1];
    while (begin < end && w + begin * d < 0)
        begin++;
    while (begin < end && w + (end - 1) * d >= c->in[1])
        end--;
    if (h < 0 || h >= c->in[0] || begin == end)
        return false;
    *out = (window_run){begin, end, (h * c->in[1] + w + begin * d) * c->ci};
    return true;
}

/* to and from may be neither NULL nor overlap; n is small. */
static void copy(uint16_t *to, const uint16_t *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i];
}

/* A row of the unfolded image. */
static void fill_row(const unfold *k, const uint16_t *image, int64_t oh, int64_t ow, uint16_t *col)
{
    const tsri_fast_conv *c = &k->conv;
    const int64_t line = c->kernel[1] * c->ci;
    for (int kh = 0; kh < c->kernel[0]; kh++, col += line) {
        window_run t;
        bool any = next_run(c, oh, ow, kh, &t);
        if (!any || t.end - t.begin < c->kernel[1])
            memset(col, 0, (size_t)line * sizeof *col);
        if (any && c->dilation[1] == 1)
            copy(col + t.begin * c->ci, image + t.at, (t.end - t.begin) * c->ci);
        else if (any)
            for (int kw = t.begin; kw < t.end; kw++)
                copy(col + kw * c->ci,
                     image + t.at + (int64_t)(kw - t.begin) * c->dilation[1] * c->ci, c->ci);
    }
}

static void add_row(const unfold *k, const float *col, int64_t oh, int64_t ow, float *image)
{
    const tsri_fast_conv *c = &k->conv;
    const int64_t line = c->kernel[1] * c->ci;
    for (int kh = 0; kh < c->kernel[0]; kh++, col += line) {
        window_run t;
        if (!next_run(c, oh, ow, kh, &t))
            continue;
        for (int kw = t.begin; kw < t.end; kw++) {
            float *to = image + t.at + (int64_t)(kw - t.begin) * c->dilation[1] * c->ci;
            for (int64_t i = 0; i < c->ci; i++)
                to[i] += col[kw * c->ci + i];
        }
    }
}

/* Rows [r, r + n) of all output pixels, into col. */
static void fill_rows(const unfold *k, const uint16_t *x, int64_t r, int64_t n, uint16_t *col)
{
    const tsri_fast_conv *c = &k->conv;
    const int64_t plane = c->out[0] * c->out[1], size = c->in[0] * c->in[1] * c->ci;
    int64_t image = r / plane, oh = r % plane / c->out[1], ow = r % c->out[1];
    for (int64_t i = 0; i < n; i++) {
        fill_row(k, x + image * size, oh, ow, col + i * k->depth);
        if (++ow < c->out[1])
            continue;
        ow = 0;
        if (++oh < c->out[0])
            continue;
        oh = 0;
        image++;
    }
}

/* A part's place in the scratch, behind the weights w[co][kh][kw][ci]: packed weights or a packed
 * chunk of col, col, the room of rows of a, and sums in f32: of an image of dx, or of dw. */
typedef struct room {
    uint16_t *packed, *col;
    void *rows;
    float *sums;
} room;

static room room_of(const unfold *k, void *scratch, int part)
{
    char *at = (char *)scratch + tsri_fast_align(k->weight_bytes) + (size_t)part * k->part_bytes;
    room r = {.packed = tsri_fast_take(&at, k->packed_bytes)};
    r.col = tsri_fast_take(&at, k->col_bytes);
    r.rows = tsri_fast_take(&at, tsri_gemm16_room(k->gemm.ta ? k->chunk : k->gemm.k));
    r.sums = (float *)(void *)at;
    return r;
}

static void forward_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const unfold *k = (const unfold *)f;
    const room at = room_of(k, p->scratch, p->index);
    tsri_gemm16_pack(&k->gemm, 0, 1, p->scratch, k->depth, at.packed);
    for (int64_t r = p->begin; r < p->end; r += k->chunk) {
        const int64_t n = tsri_fast_least(p->end - r, k->chunk);
        fill_rows(k, p->in[0], r, n, at.col);
        tsri_gemm16_rows(&k->gemm, n, at.col, at.packed, k->conv.bias ? p->in[2] : NULL,
                         (char *)p->out[0] + r * k->conv.co * (k->gemm.wide ? 4 : 2), at.rows,
                         NULL);
    }
}

static void dx_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const unfold *k = (const unfold *)f;
    const tsri_fast_conv *c = &k->conv;
    const int64_t plane = c->out[0] * c->out[1], size = c->in[0] * c->in[1] * c->ci;
    const room at = room_of(k, p->scratch, p->index);
    float *col = (float *)(void *)at.col;
    tsri_gemm16_pack(&k->gemm, 0, 1, p->scratch, c->co, at.packed);
    for (int64_t image = p->begin; image < p->end; image++) {
        const uint16_t *dy = (const uint16_t *)p->in[0] + image * plane * c->co;
        float *dx = k->narrow ? at.sums : (float *)p->out[0] + image * size;
        memset(dx, 0, (size_t)size * sizeof *dx);
        for (int64_t r = 0; r < plane; r += k->chunk) {
            const int64_t n = tsri_fast_least(plane - r, k->chunk);
            tsri_gemm16_rows(&k->gemm, n, dy + r * c->co, at.packed, NULL, col, at.rows, NULL);
            for (int64_t i = 0; i < n; i++)
                add_row(k, col + i * k->depth, (r + i) / c->out[1], (r + i) % c->out[1], dx);
        }
        if (k->narrow)
            k->narrow(dx, (uint16_t *)p->out[0] + image * size, size);
    }
}

static void dw_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const unfold *k = (const unfold *)f;
    const room at = room_of(k, p->scratch, p->index);
    if (p->begin == p->end)
        memset(at.sums, 0, tsri_gemm16_sums(&k->gemm));
    for (int64_t r = p->begin; r < p->end; r += k->chunk) {
        const int64_t n = tsri_fast_least(p->end - r, k->chunk);
        fill_rows(k, p->in[0], r, n, at.col);
        tsri_gemm16_pack(&k->gemm, 0, 1, at.col, n, at.packed);
        tsri_gemm16_add(&k->gemm, n, (const uint16_t *)p->in[1] + r * k->conv.co, at.packed,
                        r == p->begin, at.sums, at.rows, NULL);
    }
}

/* The sums of all parts, which are in the order of blocks, become dw[co][ci][taps]. */
static tsr_status dw_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                         void *scratch)
{
    const unfold *k = (const unfold *)kernel;
    const int64_t floats = (int64_t)(tsri_gemm16_sums(&k->gemm) / sizeof(float));
    float *total = room_of(k, scratch, 0).sums, *w = scratch;
    TSRI_TRY(tsri_fast_run(kernel, in, out, scratch));
    for (int p = 1; p < k->base.threads; p++) {
        tsri_fast_map map = {.x = total, .y = room_of(k, scratch, p).sums, .out = total};
        k->base.isa->binary[TSRI_BINARY_ADD](&map, 0, floats);
    }
    tsri_gemm16_store(&k->gemm, 0, 1, total, w);
    float *ordered = k->narrow ? total : out[0];
    for (int64_t o = 0; o < k->conv.co; o++)
        k->base.isa->f32.transpose(w + o * k->depth, k->conv.ci, ordered + o * k->depth, k->taps,
                                   k->conv.ci, k->taps);
    if (k->narrow)
        k->narrow(ordered, out[0], k->conv.co * k->depth);
    return TSR_OK;
}

static tsr_status unfold_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                             void *scratch)
{
    const unfold *k = (const unfold *)kernel;
    const uint16_t *from = in[1];
    uint16_t *to = scratch;
    for (int64_t o = 0; o < k->conv.co; o++, from += k->depth, to += k->depth)
        for (int64_t t = 0; t < k->taps; t++)
            for (int64_t c = 0; c < k->conv.ci; c++)
                to[t * k->conv.ci + c] = from[c * k->taps + t];
    return tsri_fast_run(kernel, in, out, scratch);
}

static void plan(unfold *k, const tsri_kernel_desc *desc, const tsri_fast_gemm *product)
{
    const tsri_fast_conv *c = &k->conv;
    const bool dx = desc->op == TSRI_OP_CONV2D_DX, dw = desc->op == TSRI_OP_CONV2D_DW;
    const bool wide = desc->out[0].dtype == TSR_F32,
               wide_bias = c->bias && desc->in[2].dtype == TSR_F32;
    k->gemm = tsri_gemm16_plan_packed(product, dx || dw || wide, wide_bias);
    k->base.base.impl = k->gemm.isa->impl;
    k->narrow = wide ? NULL : tsri_narrow_of(TSR_BF16);
    k->chunk = CHUNK / (k->depth + c->co) / TSRI_BLOCK * TSRI_BLOCK;
    k->chunk = k->chunk < 2 * TSRI_BLOCK ? 2 * TSRI_BLOCK : k->chunk;
    k->weight_bytes = (size_t)(c->co * k->depth) * (dw ? sizeof(float) : 2);
    k->packed_bytes = tsri_gemm16_packed(&k->gemm, dw ? k->chunk : k->gemm.k);
    k->col_bytes = (size_t)(k->chunk * k->depth) * (dx ? sizeof(float) : 2);
    size_t sums = dx ? (size_t)(c->in[0] * c->in[1] * c->ci) * sizeof(float) : 0;
    if (dw) { /* also room for dw as it is ordered */
        sums = tsri_gemm16_sums(&k->gemm);
        sums = sums < k->weight_bytes ? k->weight_bytes : sums;
    }
    k->part_bytes = tsri_fast_align(k->packed_bytes) + tsri_fast_align(k->col_bytes) +
                    tsri_fast_align(tsri_gemm16_room(dw ? k->chunk : k->gemm.k)) +
                    tsri_fast_align(sums);
    k->base.base.scratch_bytes =
        tsri_fast_align(k->weight_bytes) + (size_t)k->base.threads * k->part_bytes;
}

tsr_status tsri_fast_unfold(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                            tsri_kernel **out_kernel)
{
    if (c->groups != 1 || !c->bf16)
        return tsri_fast_decline(desc);
    const int64_t taps = (int64_t)c->kernel[0] * c->kernel[1];
    const int64_t rows = c->n * c->out[0] * c->out[1];
    const bool dx = desc->op == TSRI_OP_CONV2D_DX, dw = desc->op == TSRI_OP_CONV2D_DW;
    unfold *k = tsri_fast_make(mem, desc,
                               dx   ? dx_part
                               : dw ? dw_part
                                    : forward_part,
                               sizeof *k, rows * taps * c->ci, dx ? c->n : rows);
    TSRI_NEED(k);
    k->base.base.run = dw ? dw_run : unfold_run;
    k->base.unit = dx ? 1 : 8;
    k->conv = *c;
    k->taps = taps;
    k->depth = taps * c->ci;
    const tsri_fast_gemm product =
        tsri_fast_gemm_linear(&k->base.isa->f32, desc->op, rows, c->co, k->depth);
    plan(k, desc, &product);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
