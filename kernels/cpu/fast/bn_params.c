/* SPDX-License-Identifier: Apache-2.0 */
/* The small per-channel ops around batch norm, over one virtual batch of f32 data: loops that the
 * compiler vectorises. Each result is rounded from f64 as the reference rounds it. */
#include "kernels/cpu/fast/fast.h"

typedef struct params {
    tsri_fast base;
    int64_t channels;
    double n, momentum;
} params;

static tsr_status param_grad_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                                 void *scratch)
{
    (void)scratch;
    const int64_t channels = ((const params *)kernel)->channels;
    const double *restrict sums = in[0];
    float *restrict dgamma = out[0], *restrict dbeta = out[1];
    for (int64_t c = 0; c < channels; c++) {
        dbeta[c] = (float)sums[c];
        dgamma[c] = (float)sums[channels + c];
    }
    return TSR_OK;
}

static tsr_status running_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const params *k = (const params *)kernel;
    const double *restrict sums = in[0];
    float *restrict means = out[0], *restrict vars = out[1];
    const double n = k->n, momentum = k->momentum, rest = 1 - momentum;
    const double unbiased = n > 1 ? n / (n - 1) : 1;
    for (int64_t c = 0; c < k->channels; c++) {
        double mean = sums[c] / n, var = sums[k->channels + c] / n - mean * mean;
        var = (var < 0 ? 0 : var) * unbiased;
        means[c] = (float)(rest * (double)means[c] + momentum * mean);
        vars[c] = (float)(rest * (double)vars[c] + momentum * var);
    }
    return TSR_OK;
}

/* Sums f64 [1, 2, c], all else f32 [c]. */
static bool takes(const tsri_kernel_desc *desc)
{
    const tsri_arg *sums = &desc->in[0];
    bool all = sums->dtype == TSR_F64 && sums->ndim == 3 && sums->shape[0] == 1 &&
               sums->offset[0] == 0 && tsri_fast_is_row_major(sums) && sums->shape[2] > 0;
    for (int i = 1; i < desc->nin + desc->nout; i++) {
        const tsri_arg *a = i < desc->nin ? &desc->in[i] : &desc->out[i - desc->nin];
        all = all && a->dtype == TSR_F32 && a->ndim == 1 && a->shape[0] == sums->shape[2] &&
              tsri_fast_is_row_major(a);
    }
    return all;
}

/* bn_running without the operands for a count that only a run knows, and for centred data. */
tsr_status tsri_fast_bn_params(tsri_mem *mem, const tsri_kernel_desc *desc,
                               tsri_kernel **out_kernel)
{
    const bool running = desc->op == TSRI_OP_BN_RUNNING;
    const double n = (double)desc->attrs->bn.batch * (double)desc->attrs->bn.spatial;
    if (!takes(desc) || (running && (desc->nin != 3 || desc->attrs->bn.parts > 1 || n == 0)))
        return tsri_fast_decline(desc);
    params *k = tsri_fast_make(mem, desc, NULL, sizeof *k, 0, 0);
    TSRI_NEED(k);
    k->base.base.run = running ? running_run : param_grad_run;
    k->channels = desc->in[0].shape[2];
    k->n = n;
    k->momentum = desc->attrs->bn.momentum;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
