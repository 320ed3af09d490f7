/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/fast/half.h"

#include <string.h>

enum { NEAR_BYTES = 16 << 10 }; /* of a result: some of a first-level cache */

typedef struct depthwise {
    tsri_fast base;
    tsri_fast_dw dw;
    bool bias, half; /* half: operands and results are bf16 */
    int kept;        /* the operand that has the weights as f32, [tap][channel]; 0: none has */
    int64_t lines;   /* of the result, that are made at a time: they stay in the first cache */
    tsri_widen_fn *widen;
    tsri_narrow_fn *narrow;
    size_t weight_bytes, zero_bytes, part_bytes;
    size_t wide_at; /* of weights that are bf16: where they are as f32, not yet turned */
} depthwise;

/* Returns the arguments of all parts: the scratch holds the weights (unused by the gradient of
 * weights), then zeros. */
static tsri_fast_dw dw_of(const depthwise *k, void *scratch, void *const *in, void *const *out)
{
    char *at = scratch;
    tsri_fast_dw dw = k->dw;
    dw.x = in[0];
    dw.y = out[0];
    dw.w = tsri_fast_take(&at, k->weight_bytes);
    if (k->kept)
        dw.w = in[k->kept];
    dw.zeros = at;
    return dw;
}

/* Sums of the weights' gradient, of one part. */
static double *sums_of(const depthwise *k, void *scratch, int part)
{
    return (double *)(void *)((char *)scratch + tsri_fast_align(k->weight_bytes) +
                              tsri_fast_align(k->zero_bytes) + (size_t)part * k->part_bytes);
}

static void rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const depthwise *k = (const depthwise *)f;
    const tsri_fast_dw dw = dw_of(k, p->scratch, p->in, p->out);
    for (int64_t at = p->begin, end; at < p->end; at = end) {
        end = tsri_fast_least(at + k->lines, p->end);
        f->isa->dw_rows[k->half](&dw, at, end);
        for (int64_t i = at * dw.out[1]; k->bias && i < end * dw.out[1]; i++) {
            float *y = (float *)dw.y + i * dw.channels;
            tsri_fast_map map = {.x = y, .y = p->in[2], .out = y};
            f->isa->binary[TSRI_BINARY_ADD](&map, 0, dw.channels);
        }
        tsri_fast_end_rows(f, p->in, dw.y, at * dw.out[1], (end - at) * dw.out[1], 0, dw.channels);
    }
}

/* w[channel][tap] -> f32 [tap][channel] */
static void turn_weights(const depthwise *k, const void *w, void *to, void *scratch)
{
    const int64_t taps = (int64_t)k->dw.kernel[0] * k->dw.kernel[1], channels = k->dw.channels;
    if (k->half) {
        float *wide = (float *)(void *)((char *)scratch + k->wide_at);
        k->widen(w, wide, taps * channels);
        w = wide;
    }
    k->base.isa->f32.transpose(w, taps, to, channels, taps, channels);
}

static void rows_begin(const tsri_fast *f, const tsri_fast_part *p)
{
    const depthwise *k = (const depthwise *)f;
    if (p->index)
        return;
    memset((char *)p->scratch + tsri_fast_align(k->weight_bytes), 0, k->zero_bytes);
    if (!k->kept)
        turn_weights(k, p->in[1], p->scratch, p->scratch);
}

static tsr_status keep_weights(const tsri_kernel *kernel, void *const *in, void *kept,
                               void *scratch)
{
    turn_weights((const depthwise *)kernel, in[1], kept, scratch);
    return TSR_OK;
}

static void weights_begin(const tsri_fast *f, const tsri_fast_part *p)
{
    const depthwise *k = (const depthwise *)f;
    if (!p->index)
        memset((char *)p->scratch + tsri_fast_align(k->weight_bytes), 0, k->zero_bytes);
    memset(sums_of(k, p->scratch, p->index), 0, k->part_bytes);
}

static void weights_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const depthwise *k = (const depthwise *)f;
    const tsri_fast_dw dw = dw_of(k, p->scratch, p->in, &p->in[1]);
    f->isa->dw_weights[k->half](&dw, p->begin, p->end, sums_of(k, p->scratch, p->index));
}

static void weights_end(const tsri_fast *f, const tsri_fast_part *p)
{
    const depthwise *k = (const depthwise *)f;
    const int64_t taps = (int64_t)k->dw.kernel[0] * k->dw.kernel[1];
    const int64_t c1 = tsri_fast_cut(k->dw.channels, f->threads, p->index + 1, 16);
    for (int64_t c = tsri_fast_cut(k->dw.channels, f->threads, p->index, 16); c < c1; c++) {
        float own[TSRI_FAST_TAPS], *dw = k->half ? own : (float *)p->out[0] + c * taps;
        for (int64_t t = 0; t < taps; t++) {
            double sum = 0;
            for (int i = 0; i < f->threads; i++)
                sum += sums_of(k, p->scratch, i)[t * k->dw.pitch + c];
            dw[t] = (float)sum;
        }
        if (k->half)
            k->narrow(own, (uint16_t *)p->out[0] + c * taps, taps);
    }
}

/* --- line by line ----------------------------------------------------------------------------- */
static void do_lines(const tsri_kernel *kernel, const tsri_kernel_piece *p, int64_t first)
{
    const tsri_fast *f = (const tsri_fast *)kernel;
    const tsri_fast_part part = {.index = p->thread,
                                 .begin = first,
                                 .end = first + p->n,
                                 .in = p->in,
                                 .out = p->out,
                                 .scratch = p->scratch};
    rows_part(f, &part);
}

static void do_weight_lines(const tsri_kernel *kernel, const tsri_kernel_piece *p, int64_t first)
{
    const depthwise *k = (const depthwise *)kernel;
    tsri_fast_dw dw = dw_of(k, p->scratch, p->in, &p->in[1]);
    dw.lines[0] = first;
    dw.lines[1] = first + p->n;
    k->base.isa->dw_weights[k->half](&dw, 0, 1, sums_of(k, p->scratch, p->thread));
}

static void needs(const tsri_kernel *kernel, int64_t first, int64_t n, int64_t *lo, int64_t *hi)
{
    const tsri_fast_dw *dw = &((const depthwise *)kernel)->dw;
    const int64_t stride = dw->stride[0], pad = dw->pad[0], last = first + n - 1;
    const int64_t reach = (int64_t)(dw->kernel[0] - 1) * dw->dilation[0];
    if (dw->backward) { /* result line i is line o of the operand where i + pad - o * stride is a
                           tap */
        const int64_t from = first + pad - reach;
        *lo = from <= 0 ? 0 : (from + stride - 1) / stride;
        *hi = tsri_fast_least((last + pad) / stride + 1, dw->in[0]);
    } else {
        const int64_t from = first * stride - pad;
        *lo = from < 0 ? 0 : from;
        *hi = tsri_fast_least(last * stride - pad + reach + 1, dw->in[0]);
    }
    *lo = tsri_fast_least(*lo, dw->in[0]);
    *hi = *hi < *lo ? *lo : *hi;
}

tsr_status tsri_fast_depthwise(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                               tsri_kernel **out_kernel)
{
    const int taps = c->kernel[0] * c->kernel[1];
    if (c->bf16 && (c->bias || desc->out[0].dtype != TSR_BF16))
        return tsri_fast_decline(desc);
    const bool dx = desc->op == TSRI_OP_CONV2D_DX, dw = desc->op == TSRI_OP_CONV2D_DW;
    depthwise *k = tsri_fast_make(mem, desc, dw ? weights_part : rows_part, sizeof *k,
                                  c->n * c->in[0] * c->in[1] * c->ci,
                                  dw   ? c->n
                                  : dx ? c->n * c->in[0]
                                       : c->n * c->out[0]);
    TSRI_NEED(k);
    k->base.begin = dw ? weights_begin : rows_begin;
    k->base.end = dw ? weights_end : NULL;
    tsri_fast_walks(&k->base, dw ? 3 : 1, dw ? 0 : 1, true);
    k->base.pieces.lines = dw ? do_weight_lines : do_lines;
    k->base.pieces.needs = needs;
    k->bias = c->bias;
    k->half = c->bf16;
    k->widen = tsri_widen_of(TSR_BF16);
    k->narrow = tsri_narrow_of(TSR_BF16);
    k->dw.channels = c->ci;
    k->dw.backward = dx;
    k->dw.lines[1] = c->out[0];
    k->dw.slide = true;
    for (int i = 0; i < 2; i++) {
        k->dw.in[i] = dx ? c->out[i] : c->in[i];
        k->dw.out[i] = dx ? c->in[i] : c->out[i];
        k->dw.kernel[i] = c->kernel[i];
        k->dw.stride[i] = c->stride[i];
        k->dw.pad[i] = c->pad[i];
        k->dw.dilation[i] = c->dilation[i];
        /* Smaller images have fewer taps than what sliding would waste on zeros. */
        k->dw.slide = k->dw.slide && c->kernel[i] == 3 && c->stride[i] == 1 && c->pad[i] == 1 &&
                      c->dilation[i] == 1 && c->in[i] > 2;
    }
    k->weight_bytes = (size_t)taps * (size_t)c->ci * sizeof(float);
    if (!dw && desc->fixed >> 1 & 1) {
        k->kept = desc->nin;
        k->base.base.keep = keep_weights;
        k->base.base.kept_bytes = k->weight_bytes;
    }
    k->dw.three = c->kernel[0] == 3 && c->kernel[1] == 3;
    const int64_t w = k->base.isa->width;
    k->dw.pitch = (c->ci + w - 1) / w * w;
    k->zero_bytes = k->dw.three ? (size_t)(k->dw.in[1] * c->ci) * sizeof(float) : 0;
    k->part_bytes = tsri_fast_align((size_t)(taps * k->dw.pitch) * sizeof(double));
    k->base.base.scratch_bytes = tsri_fast_align(k->weight_bytes) + tsri_fast_align(k->zero_bytes) +
                                 (dw ? (size_t)k->base.threads * k->part_bytes : 0);
    k->wide_at = k->base.base.scratch_bytes;
    if (k->half && !dw)
        k->base.base.scratch_bytes += tsri_fast_align(k->weight_bytes);
    const int64_t line_bytes = k->dw.out[1] * c->ci * (int64_t)sizeof(float);
    k->lines = line_bytes < NEAR_BYTES ? NEAR_BYTES / line_bytes : 1;
    if (desc->op == TSRI_OP_CONV2D && !k->half)
        tsri_fast_takes_end(&k->base, desc, c->co);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
