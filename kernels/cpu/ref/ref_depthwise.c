/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolutions: blocks of channels inside, so that channels-last data is read in whole
 * vectors. Forward and backward-data are one gather: source position = (p * mul + tap * dil + add)
 * / div, which counts where it is whole and inside. Filters are kept as [tap][channel] f64 in the
 * scratch; a channel's filter gradient is summed by one thread, in the order of n, h, w.
 */
#include "kernels/cpu/ref/ref.h"

typedef struct depthwise {
    tsri_ref ref;
    int64_t taps, channels;
    int64_t mul[2], dil[2], add[2], div[2];
} depthwise;

static inline int64_t source(const depthwise *d, int i, int64_t p, int64_t tap, int64_t size)
{
    int64_t s = p * d->mul[i] + tap * d->dil[i] + d->add[i];
    if (d->div[i] != 1) {
        if (s % d->div[i])
            return -1;
        s /= d->div[i];
    }
    return s < size ? s : -1;
}

#define T float
#define FN(name) name##_f32
#include "kernels/cpu/ref/ref_depthwise_t.h"
#undef T
#undef FN
#define T double
#define FN(name) name##_f64
#include "kernels/cpu/ref/ref_depthwise_t.h"
#undef T
#undef FN

static void load_filter(const tsri_arg *w, const void *p, int64_t taps, double *out)
{
    int64_t kw = w->shape[3], channels = w->shape[0];
    for (int64_t t = 0; t < taps; t++)
        for (int64_t c = 0; c < channels; c++)
            out[t * channels + c] = tsri_ref_load(
                w->dtype, p, c * w->stride[0] + t / kw * w->stride[2] + t % kw * w->stride[3]);
}

static tsr_status gather_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const depthwise *d = (const depthwise *)k;
    const tsri_kernel_desc *desc = &d->ref.desc;
    if (!tsri_arg_count(&desc->out[0]))
        return TSR_OK;
    double *filter = scratch, *bias = filter + d->taps * d->channels;
    load_filter(&desc->in[1], in[1], d->taps, filter);
    for (int64_t c = 0; c < d->channels; c++)
        bias[c] = desc->nin > 2 ? tsri_ref_load(desc->in[2].dtype, in[2], c) : 0;
    if (desc->out[0].dtype == TSR_F32)
        gather_f32(d, in[0], filter, bias, out[0]);
    else
        gather_f64(d, in[0], filter, bias, out[0]);
    return TSR_OK;
}

static tsr_status dw_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const depthwise *d = (const depthwise *)k;
    const tsri_arg *dw = &d->ref.desc.out[0];
    double *sum = scratch;
    int64_t blocks = (d->channels + TSRI_REF_BLOCK - 1) / TSRI_REF_BLOCK;
    TSRI_REF_EACH(b, 0, blocks, true, {
        double *mine = sum + b * TSRI_REF_BLOCK * d->taps;
        if (d->ref.desc.in[0].dtype == TSR_F32)
            weight_f32(d, b * TSRI_REF_BLOCK, in[0], in[1], mine);
        else
            weight_f64(d, b * TSRI_REF_BLOCK, in[0], in[1], mine);
    });
    for (int64_t c = 0; c < d->channels; c++)
        for (int64_t t = 0; t < d->taps; t++) {
            const double *mine = sum + c / TSRI_REF_BLOCK * TSRI_REF_BLOCK * d->taps;
            tsri_ref_store(dw->dtype, out[0],
                           c * dw->stride[0] + t / dw->shape[3] * dw->stride[2] +
                               t % dw->shape[3] * dw->stride[3],
                           mine[t * TSRI_REF_BLOCK + c % TSRI_REF_BLOCK]);
        }
    return TSR_OK;
}

bool tsri_ref_is_depthwise(const tsri_kernel_desc *d)
{
    const tsri_arg *w = d->op == TSRI_OP_CONV2D_DW ? &d->out[0] : &d->in[1];
    bool same = d->in[0].dtype == d->out[0].dtype && d->in[0].dtype == d->in[1].dtype;
    return same && d->groups > 1 && w->shape[0] == d->groups && w->shape[1] == 1;
}

tsr_status tsri_ref_depthwise(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    bool weight = desc->op == TSRI_OP_CONV2D_DW, back = desc->op == TSRI_OP_CONV2D_DX;
    depthwise *d = tsri_ref_make(mem, desc, weight ? dw_run : gather_run, sizeof *d);
    TSRI_NEED(d);
    const tsri_attrs *at = desc->attrs;
    d->channels = desc->groups;
    d->taps = (int64_t)at->conv.kernel[0] * at->conv.kernel[1];
    for (int i = 0; i < 2; i++) {
        d->mul[i] = back ? 1 : at->conv.stride[i];
        d->dil[i] = back ? -at->conv.dilation[i] : at->conv.dilation[i];
        d->add[i] = back ? at->conv.pad[i] : -at->conv.pad[i];
        d->div[i] = back ? at->conv.stride[i] : 1;
    }
    int64_t padded = d->channels + TSRI_REF_BLOCK;
    d->ref.base.scratch_bytes = (size_t)((d->taps + 1) * padded) * sizeof(double);
    *out_kernel = &d->ref.base;
    return TSR_OK;
}
