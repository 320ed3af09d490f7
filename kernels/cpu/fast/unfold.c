/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense convolutions as products of matrices: a row of `col` holds what an output pixel sees, in
 * the order kh, kw, channel, and weights are brought into that order first. Rows go in chunks that
 * stay in cache; each thread has its own.
 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

enum {
    CHUNK_FLOATS = 32 << 10,
    LONG_ROWS =
        16 << 10, /* dw: beyond, these are summed on their own before they join the others */
};

typedef struct unfold {
    tsri_fast base;
    tsri_op_kind op;
    tsri_fast_conv conv;
    tsri_fast_gemm gemm;              /* forward: y = col w^T; dx: dcol = dy w; dw: dy^T col */
    int64_t taps, depth, rows, chunk; /* depth: taps * ci; rows: output pixels */
    size_t weight_bytes, packed_bytes, col_bytes, part_bytes;
    size_t block_bytes; /* dw: of long sums */
} unfold;

typedef struct job {
    const unfold *k;
    const float *x, *dy, *bias, *w; /* w: [co][kh][kw][ci] */
    float *y;                       /* or dx */
    char *parts;
} job;

/* [co][ci][taps] <-> [co][taps][ci] */
static void reorder(const unfold *k, const float *from, float *to, int64_t lds, int64_t rows)
{
    for (int64_t o = 0; o < k->conv.co; o++)
        k->base.isa->transpose(from + o * k->depth, lds, to + o * k->depth, k->depth / rows, rows,
                               k->depth / rows);
}

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
static void copy(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i];
}

static void fill_row(const unfold *k, const float *image, int64_t oh, int64_t ow, float *col)
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
static void fill_rows(const unfold *k, const float *x, int64_t r, int64_t n, float *col)
{
    const tsri_fast_conv *c = &k->conv;
    const int64_t plane = c->out[0] * c->out[1], size = c->in[0] * c->in[1] * c->ci;
    int64_t image = r / plane, oh = r % plane / c->out[1], ow = r % c->out[1];
    for (int64_t i = 0; i < n; i++, col += k->depth) {
        fill_row(k, x + image * size, oh, ow, col);
        if (++ow < c->out[1])
            continue;
        ow = 0;
        if (++oh < c->out[0])
            continue;
        oh = 0;
        image++;
    }
}

static void forward_part(void *arg, int part)
{
    const job *j = arg;
    const unfold *k = j->k;
    char *at = j->parts + (size_t)part * k->part_bytes;
    float *packed = tsri_fast_take(&at, k->packed_bytes);
    float *col = tsri_fast_take(&at, k->col_bytes);
    int64_t r0 = tsri_fast_cut(k->rows, k->base.threads, part, 8);
    int64_t r1 = tsri_fast_cut(k->rows, k->base.threads, part + 1, 8);
    tsri_fast_gemm_pack(&k->gemm, j->w, packed);
    for (int64_t r = r0; r < r1; r += k->chunk) {
        int64_t n = r1 - r < k->chunk ? r1 - r : k->chunk;
        fill_rows(k, j->x, r, n, col);
        tsri_fast_gemm_rows(&k->gemm, n, col, packed, j->bias, j->y + r * k->conv.co);
    }
}

/* Images, not rows, are shared: windows of neighbouring rows overlap in dx. */
static void dx_part(void *arg, int part)
{
    const job *j = arg;
    const unfold *k = j->k;
    const tsri_fast_conv *c = &k->conv;
    const int64_t plane = c->out[0] * c->out[1], size = c->in[0] * c->in[1] * c->ci;
    char *at = j->parts + (size_t)part * k->part_bytes;
    float *packed = tsri_fast_take(&at, k->packed_bytes);
    float *col = tsri_fast_take(&at, k->col_bytes);
    int64_t n0 = tsri_fast_cut(c->n, k->base.threads, part, 1);
    int64_t n1 = tsri_fast_cut(c->n, k->base.threads, part + 1, 1);
    tsri_fast_gemm_pack(&k->gemm, j->w, packed);
    memset(j->y + n0 * size, 0, (size_t)((n1 - n0) * size) * sizeof(float));
    for (int64_t r = n0 * plane; r < n1 * plane; r += k->chunk) {
        int64_t n = n1 * plane - r < k->chunk ? n1 * plane - r : k->chunk;
        tsri_fast_gemm_rows(&k->gemm, n, j->dy + r * c->co, packed, NULL, col);
        for (int64_t i = 0; i < n; i++)
            add_row(k, col + i * k->depth, (r + i) % plane / c->out[1], (r + i) % c->out[1],
                    j->y + (r + i) / plane * size);
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void dw_rows(const job *j, int64_t r0, int64_t r1, float *col, float *sum)
{
    const unfold *k = j->k;
    memset(sum, 0, k->weight_bytes);
    for (int64_t r = r0; r < r1; r += k->chunk) {
        const int64_t n = least(r1 - r, k->chunk);
        fill_rows(k, j->x, r, n, col);
        tsri_fast_gemm_ta(&k->gemm, 0, n, 0, k->conv.co, j->dy + r * k->conv.co, col, sum, true);
    }
}

static void dw_part(void *arg, int part)
{
    const job *j = arg;
    const unfold *k = j->k;
    char *at = j->parts + (size_t)part * k->part_bytes;
    float *sum = tsri_fast_take(&at, k->weight_bytes);
    float *col = tsri_fast_take(&at, k->col_bytes);
    float *block = tsri_fast_take(&at, k->block_bytes);
    int64_t r0 = tsri_fast_cut(k->rows, k->base.threads, part, 8);
    int64_t r1 = tsri_fast_cut(k->rows, k->base.threads, part + 1, 8);
    dw_rows(j, r0, least(r0 + LONG_ROWS, r1), col, sum);
    for (int64_t r = r0 + LONG_ROWS; r < r1; r += LONG_ROWS) {
        tsri_fast_map map = {.x = sum, .y = block, .out = sum};
        dw_rows(j, r, least(r + LONG_ROWS, r1), col, block);
        k->base.isa->binary[TSRI_BINARY_ADD](&map, 0, k->conv.co * k->depth);
    }
}

static tsr_status unfold_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                             void *scratch)
{
    const unfold *k = (const unfold *)(const void *)kernel;
    char *at = scratch;
    float *w = tsri_fast_take(&at, k->weight_bytes);
    job j = {.k = k, .w = w, .parts = at, .y = out[0]};
    if (k->op == TSRI_OP_CONV2D_DW) {
        j.x = in[0];
        j.dy = in[1];
        tsri_fast_team(k->base.threads, dw_part, &j);
        float *total = (float *)(void *)at;
        for (int p = 1; p < k->base.threads; p++) {
            const char *from = at + (size_t)p * k->part_bytes;
            tsri_fast_map map = {.x = total, .y = (const float *)(const void *)from, .out = total};
            k->base.isa->binary[TSRI_BINARY_ADD](&map, 0, k->conv.co * k->depth);
        }
        reorder(k, total, out[0], k->conv.ci, k->conv.ci);
        return TSR_OK;
    }
    reorder(k, in[1], w, k->taps, k->taps);
    j.x = j.dy = in[0];
    j.bias = k->conv.bias ? in[2] : NULL;
    tsri_fast_team(k->base.threads, k->op == TSRI_OP_CONV2D ? forward_part : dx_part, &j);
    return TSR_OK;
}

static void plan_gemm(unfold *k)
{
    const int64_t co = k->conv.co, depth = k->depth;
    const tsri_fast_isa *isa = k->base.isa;
    if (k->op == TSRI_OP_CONV2D)
        k->gemm = (tsri_fast_gemm){.isa = isa,
                                   .m = k->rows,
                                   .n = co,
                                   .k = depth,
                                   .lda = depth,
                                   .bk = 1,
                                   .bn = depth,
                                   .ldc = co};
    else if (k->op == TSRI_OP_CONV2D_DX)
        k->gemm = (tsri_fast_gemm){.isa = isa,
                                   .m = k->rows,
                                   .n = depth,
                                   .k = co,
                                   .lda = co,
                                   .bk = depth,
                                   .bn = 1,
                                   .ldc = depth};
    else
        k->gemm = (tsri_fast_gemm){.isa = isa,
                                   .m = co,
                                   .n = depth,
                                   .k = k->rows,
                                   .lda = co,
                                   .bk = depth,
                                   .bn = 1,
                                   .ldc = depth,
                                   .ta = true};
}

tsr_status tsri_fast_unfold(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                            tsri_kernel **out_kernel)
{
    if (c->groups != 1)
        return tsri_fast_decline(desc);
    const int64_t taps = (int64_t)c->kernel[0] * c->kernel[1];
    const int64_t rows = c->n * c->out[0] * c->out[1];
    unfold *k = tsri_fast_make(mem, unfold_run, sizeof *k, rows * taps * c->ci);
    TSRI_NEED(k);
    k->op = desc->op;
    k->conv = *c;
    k->taps = taps;
    k->depth = taps * c->ci;
    k->rows = rows;
    k->chunk = CHUNK_FLOATS / (k->depth + c->co) / 8 * 8;
    k->chunk = k->chunk < 32 ? 32 : k->chunk;
    plan_gemm(k);
    k->weight_bytes = (size_t)(c->co * k->depth) * sizeof(float);
    k->packed_bytes = (size_t)tsri_fast_packed(&k->gemm) * sizeof(float);
    k->col_bytes = (size_t)(k->chunk * k->depth) * sizeof(float);
    k->block_bytes = k->gemm.ta && rows > LONG_ROWS ? k->weight_bytes : 0;
    k->part_bytes = tsri_fast_align(k->col_bytes) + tsri_fast_align(k->block_bytes) +
                    tsri_fast_align(k->gemm.ta ? k->weight_bytes : k->packed_bytes);
    k->base.base.scratch_bytes =
        tsri_fast_align(k->weight_bytes) + (size_t)k->base.threads * k->part_bytes;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
