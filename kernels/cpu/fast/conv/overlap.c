/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward-data of dense convolutions with few channels, which would leave much of a vector empty:
 * vectors are of all channels of all pixels that a pixel of dy reaches along its line, which are
 * neighbours in memory. The register tiles sum over the taps down a window and the channels of dy,
 * and add each such run of pixels to those that it overlaps. Taps that meet no line of dy are left
 * out.
 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

enum {
    CHUNK_BYTES = 64 << 10, /* of dy: images at a time */
    TERMS = 256,            /* of a tile's sums */
    WORTH = 4,              /* fifths of the products that other kernels take, below which this one
                             * is worth its additions */
};

/* Lines of results, a stride apart, that read the same taps of a window. A line reads each
 * stride-th tap; of these it reads [k0, k1). */
typedef struct band {
    int64_t lines, k0, k1;
    int64_t packed;           /* taps before its first one among the packed weights */
    const tsri_fast_row *row; /* of a chunk: [column][image][line] */
} band;

typedef struct overlap {
    tsri_fast base;
    int64_t ci, co, chunk;         /* chunk: images at a time */
    int64_t in[2], out[2], pad[2]; /* dy's and dx's sizes */
    int64_t kernel[2], stride[2];
    int64_t *tap;  /* down a window, as weights are packed: those a stride apart are neighbours */
    int64_t width; /* floats of a run of pixels */
    int64_t pitch; /* floats of a line of results, */
    bool copies;   /* which is longer than dx's */
    int nbands;
    band *band;
    int64_t *at; /* where the taps down a window begin in dy */
    tsri_pool pool;
} overlap;

static int64_t vectors(const tsri_fast_isa *isa, int64_t floats)
{
    return (floats + isa->width - 1) / isa->width;
}

static int64_t weight_floats(const overlap *k)
{
    return vectors(k->base.isa, k->width) * k->base.isa->width * k->co * k->kernel[0];
}

static int64_t result_floats(const overlap *k)
{
    return k->copies ? (k->chunk * k->out[0] * k->pitch + 15) / 16 * 16 : 0;
}

/* Packs w[co][ci][kh][kw] as [panel][kh][co][kw][ci], with kh in the order of `tap`. */
static void pack_weights(const tsri_fast *f, const tsri_fast_part *p)
{
    const overlap *k = (const overlap *)f;
    const int64_t w = f->isa->width, taps = k->kernel[0] * k->kernel[1],
                  end = vectors(f->isa, k->width);
    const int64_t depth = k->co * k->kernel[0];
    const float *from = p->in[1];
    for (int64_t v = 0, nv; v < end; v += nv) {
        nv = tsri_fast_panel(end - v);
        float *to = (float *)p->scratch + v * w * depth;
        for (int64_t i = p->index; i < depth; i += f->threads)
            for (int64_t j = 0; j < nv * w; j++) {
                const int64_t at = v * w + j, c = at % k->ci, tap = at / k->ci;
                to[i * nv * w + j] = at < k->width ? from[(i % k->co * k->ci + c) * taps +
                                                          k->tap[i / k->co] * k->kernel[1] + tap]
                                                   : 0;
            }
    }
}

/* A band's sums over a chunk of images, whose results begin at c. */
static void add_band(const overlap *k, const band *b, int64_t images, const float *dy,
                     const float *packed, float *c)
{
    const int64_t w = k->base.isa->width, end = vectors(k->base.isa, k->width);
    const int64_t depth = k->co * k->kernel[0];
    const int64_t joined = k->co < TERMS ? TERMS / k->co : 1;
    for (int64_t v = 0, nv; v < end; v += nv) {
        nv = tsri_fast_panel(end - v);
        tsri_fast_tile t = {.ak = 1, .bk = nv * w, .packed = true, .add = true, .k = k->co};
        t.cols = tsri_fast_least(nv * w, k->width - v * w);
        t.c = c + v * w;
        t.a = dy;
        for (int64_t i = b->k0; i < b->k1; i += t.runs) {
            t.runs = tsri_fast_least(joined, b->k1 - i);
            t.a_at = k->at + i;
            t.b = packed + v * w * depth + (b->packed + i) * k->co * nv * w;
            /* Rows are there for a whole chunk, [column][image][line]. */
            t.rows = images == k->chunk ? k->in[1] * images * b->lines : images * b->lines;
            for (int64_t column = 0; column < k->in[1]; column += t.rows / (images * b->lines)) {
                t.row = b->row + column * k->chunk * b->lines;
                k->base.isa->f32.tile[nv](&t);
            }
        }
    }
}

static void overlap_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const overlap *k = (const overlap *)f;
    const int64_t size = k->out[0] * k->out[1] * k->ci, line = k->out[1] * k->ci;
    float *room = (float *)p->scratch + weight_floats(k) + p->index * result_floats(k);
    for (int64_t at = p->begin; at < p->end; at += k->chunk) {
        const int64_t images = tsri_fast_least(k->chunk, p->end - at);
        float *dx = (float *)p->out[0] + at * size, *c = k->copies ? room : dx;
        memset(c, 0, (size_t)(images * k->out[0] * k->pitch) * sizeof *c);
        for (int i = 0; i < k->nbands; i++)
            add_band(k, &k->band[i], images,
                     (const float *)p->in[0] + at * k->in[0] * k->in[1] * k->co, p->scratch, c);
        for (int64_t l = 0; k->copies && l < images * k->out[0]; l++)
            memcpy(dx + l * line, c + l * k->pitch + k->pad[1] * k->ci, (size_t)line * sizeof *c);
    }
}

static void overlap_destroy(tsri_kernel *kernel)
{
    overlap *k = (overlap *)(void *)kernel;
    tsri_pool_finish(&k->pool);
    tsri_mem_free(k);
}

/* Sets [*k0, *k1): of the taps down a window that are a stride apart, those from which line `line`
 * of dx gets something. */
static void taps_inside(const tsri_fast_conv *c, int64_t line, int64_t *k0, int64_t *k1)
{
    const int64_t stride = c->stride[0], phase = (line + c->pad[0]) % stride;
    const int64_t last = (line + c->pad[0]) / stride; /* the line of dy that the first one reads */
    *k0 = 0;
    *k1 = phase < c->kernel[0] ? (c->kernel[0] - phase - 1) / stride + 1 : 0;
    while (*k0 < *k1 && last - *k0 >= c->out[0])
        ++*k0;
    while (*k1 > *k0 && last - (*k1 - 1) < 0)
        --*k1;
}

bool tsri_fast_overlap_suits(const tsri_kernel_desc *desc, const tsri_fast_conv *c)
{
    const tsri_fast_isa *isa = tsri_fast_isa_best();
    const int64_t blocks = (c->in[1] + c->stride[1] - 1) / c->stride[1];
    return desc->op == TSRI_OP_CONV2D_DX && c->groups == 1 && !c->bf16 && c->dilation[0] == 1 &&
           c->dilation[1] == 1 && c->stride[0] <= c->kernel[0] && c->stride[1] <= c->kernel[1] &&
           5 * c->out[1] * vectors(isa, c->kernel[1] * c->ci) <=
               WORTH * blocks * vectors(isa, c->ci) * c->kernel[1];
}

/* Lists the rows of a band: lines of dx from `line` on. */
static tsr_status plan_band(overlap *k, int64_t line, band *b)
{
    tsri_fast_row *row =
        tsri_pool_alloc(&k->pool, (size_t)(k->in[1] * k->chunk * b->lines) * sizeof *row);
    TSRI_NEED(row);
    b->row = row;
    for (int64_t w = 0; w < k->in[1]; w++)
        for (int64_t m = 0; m < k->chunk; m++)
            for (int64_t i = 0, l = line; i < b->lines; i++, l += k->stride[0])
                *row++ = (tsri_fast_row){
                    ((m * k->in[0] + (l + k->pad[0]) / k->stride[0]) * k->in[1] + w) * k->co,
                    (m * k->out[0] + l) * k->pitch + w * k->stride[1] * k->ci};
    return TSR_OK;
}

/* Adds the bands of the lines `line`, line + stride and so on. */
static tsr_status plan_bands(overlap *k, const tsri_fast_conv *c, int64_t line)
{
    const int64_t stride = k->stride[0], phase = (line + k->pad[0]) % stride;
    const int64_t rest = k->kernel[0] % stride; /* phases that have one tap more than others */
    while (line < k->out[0]) {
        band b = {.lines = 1};
        int64_t k0, k1;
        b.packed = phase * (k->kernel[0] / stride) + tsri_fast_least(phase, rest);
        taps_inside(c, line, &b.k0, &b.k1);
        for (; line + b.lines * stride < k->out[0]; b.lines++) {
            taps_inside(c, line + b.lines * stride, &k0, &k1);
            if (k0 != b.k0 || k1 != b.k1)
                break;
        }
        TSRI_TRY(plan_band(k, line, &b));
        k->band[k->nbands++] = b;
        line += b.lines * stride;
    }
    return TSR_OK;
}

static tsr_status plan(overlap *k, const tsri_fast_conv *c)
{
    const int64_t stride = k->stride[0];
    int64_t n = 0;
    k->band = tsri_pool_alloc(&k->pool, (size_t)k->out[0] * sizeof *k->band);
    k->at = tsri_pool_alloc(&k->pool, (size_t)k->kernel[0] * sizeof *k->at);
    k->tap = tsri_pool_alloc(&k->pool, (size_t)k->kernel[0] * sizeof *k->tap);
    TSRI_NEED(k->band && k->at && k->tap);
    for (int64_t i = 0; i < k->kernel[0]; i++)
        k->at[i] = -i * k->in[1] * k->co;
    for (int64_t phase = 0; phase < stride && phase < k->kernel[0]; phase++)
        for (int64_t tap = phase; tap < k->kernel[0]; tap += stride)
            k->tap[n++] = tap;
    for (int64_t line = 0; line < stride && line < k->out[0]; line++)
        TSRI_TRY(plan_bands(k, c, line));
    return TSR_OK;
}

tsr_status tsri_fast_overlap(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                             tsri_kernel **out_kernel)
{
    overlap *k =
        tsri_fast_make(mem, desc, overlap_part, sizeof *k,
                       c->n * c->out[0] * c->out[1] * c->kernel[0] * c->kernel[1] * c->ci, c->n);
    TSRI_NEED(k);
    tsri_pool_init(&k->pool, mem);
    k->base.begin = pack_weights;
    k->base.base.destroy = overlap_destroy;
    k->ci = c->ci;
    k->co = c->co;
    for (int i = 0; i < 2; i++) {
        k->in[i] = c->out[i];
        k->out[i] = c->in[i];
        k->kernel[i] = c->kernel[i];
        k->stride[i] = c->stride[i];
        k->pad[i] = c->pad[i];
    }
    k->width = k->kernel[1] * k->ci;
    const int64_t reach = (k->in[1] - 1) * k->stride[1] + k->kernel[1], end = k->pad[1] + k->out[1];
    k->pitch = (reach > end ? reach : end) * k->ci;
    k->copies = k->pitch != k->out[1] * k->ci;
    const int64_t own = (c->n + k->base.threads - 1) / k->base.threads; /* as even as can be */
    const int64_t fit = CHUNK_BYTES / (k->in[0] * k->in[1] * k->co * (int64_t)sizeof(float));
    const int64_t chunks = fit < 1 ? own : (own + fit - 1) / fit;
    k->chunk = (own + chunks - 1) / chunks;
    k->base.base.scratch_bytes =
        (size_t)(weight_floats(k) + k->base.threads * result_floats(k)) * sizeof(float);
    const tsr_status status = plan(k, c);
    if (status != TSR_OK) {
        overlap_destroy(&k->base.base);
        return status;
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}
