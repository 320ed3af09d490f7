/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

typedef struct depthwise {
    tsri_fast base;
    tsri_op_kind op;
    tsri_fast_dw dw;
    int64_t images;
    bool bias;
    size_t weight_bytes, zero_bytes, part_bytes;
} depthwise;

typedef struct job {
    const depthwise *k;
    tsri_fast_dw dw;
    const float *bias;
    char *acc;
} job;

static void add_bias(const job *j, int64_t r0, int64_t r1)
{
    const tsri_fast_dw *p = &j->dw;
    for (int64_t i = r0 * p->out[1]; i < r1 * p->out[1]; i++) {
        float *y = p->y + i * p->channels;
        tsri_fast_map map = {.x = y, .y = j->bias, .out = y};
        j->k->base.isa->binary[TSRI_BINARY_ADD](&map, 0, p->channels);
    }
}

static void rows_part(void *arg, int part)
{
    const job *j = arg;
    int64_t rows = j->k->images * j->dw.out[0];
    int64_t r0 = tsri_fast_cut(rows, j->k->base.threads, part, 1);
    int64_t r1 = tsri_fast_cut(rows, j->k->base.threads, part + 1, 1);
    j->k->base.isa->dw_rows(&j->dw, r0, r1);
    if (j->bias)
        add_bias(j, r0, r1);
}

static void weights_part(void *arg, int part)
{
    const job *j = arg;
    const depthwise *k = j->k;
    double *acc = (double *)(void *)(j->acc + (size_t)part * k->part_bytes);
    memset(acc, 0, k->part_bytes);
    k->base.isa->dw_weights(&j->dw, tsri_fast_cut(k->images, k->base.threads, part, 1),
                            tsri_fast_cut(k->images, k->base.threads, part + 1, 1), acc);
}

static double total(const depthwise *k, const char *parts, int64_t i)
{
    double sum = 0;
    for (int p = 0; p < k->base.threads; p++)
        sum += ((const double *)(const void *)(parts + (size_t)p * k->part_bytes))[i];
    return sum;
}

static tsr_status depthwise_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                                void *scratch)
{
    const depthwise *k = (const depthwise *)(const void *)kernel;
    const int64_t taps = (int64_t)k->dw.kernel[0] * k->dw.kernel[1], channels = k->dw.channels;
    char *at = scratch;
    float *w = tsri_fast_take(&at, k->weight_bytes);
    float *zeros = tsri_fast_take(&at, k->zero_bytes);
    job j = {.k = k, .dw = k->dw, .acc = at};
    memset(zeros, 0, k->zero_bytes);
    j.dw.zeros = zeros;
    j.dw.x = in[0];
    if (k->op == TSRI_OP_CONV2D_DW) {
        j.dw.y = in[1];
        tsri_fast_team(k->base.threads, weights_part, &j);
        float *dw = out[0];
        for (int64_t c = 0; c < channels; c++)
            for (int64_t t = 0; t < taps; t++)
                dw[c * taps + t] = (float)total(k, at, t * k->dw.pitch + c);
        return TSR_OK;
    }
    j.dw.w = w;
    j.dw.y = out[0];
    j.bias = k->bias ? in[2] : NULL;
    k->base.isa->transpose(in[1], taps, w, channels, taps, channels);
    tsri_fast_team(k->base.threads, rows_part, &j);
    return TSR_OK;
}

tsr_status tsri_fast_depthwise(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                               tsri_kernel **out_kernel)
{
    const int taps = c->kernel[0] * c->kernel[1];
    if (taps > TSRI_FAST_TAPS)
        return tsri_fast_decline(desc);
    depthwise *k =
        tsri_fast_make(mem, depthwise_run, sizeof *k, c->n * c->in[0] * c->in[1] * c->ci);
    TSRI_NEED(k);
    const bool dx = desc->op == TSRI_OP_CONV2D_DX;
    k->op = desc->op;
    k->images = c->n;
    k->bias = c->bias;
    k->dw.channels = c->ci;
    k->dw.backward = dx;
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
    k->dw.three = c->kernel[0] == 3 && c->kernel[1] == 3;
    const int64_t w = k->base.isa->width;
    k->dw.pitch = (c->ci + w - 1) / w * w;
    k->zero_bytes = k->dw.three ? (size_t)(k->dw.in[1] * c->ci) * sizeof(float) : 0;
    k->part_bytes = tsri_fast_align((size_t)(taps * k->dw.pitch) * sizeof(double));
    k->base.base.scratch_bytes =
        tsri_fast_align(k->weight_bytes) + tsri_fast_align(k->zero_bytes) +
        (desc->op == TSRI_OP_CONV2D_DW ? (size_t)k->base.threads * k->part_bytes : 0);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
