/* SPDX-License-Identifier: Apache-2.0 */
/* linear and its gradients, on row-major operands; 1x1 convolutions are of these too. */
#include "kernels/cpu/fast/gemm16.h"

typedef struct product {
    tsri_fast base;
    tsri_fast_gemm gemm;
    tsri_gemm16 gemm16; /* of bf16 */
    bool swap, bias;    /* swap: a is operand 1, b operand 0 */
} product;

static tsr_status product_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    const product *p = (const product *)k;
    tsri_fast_gemm_run(&p->gemm, in[p->swap], in[!p->swap], p->bias ? in[2] : NULL, out[0],
                       scratch);
    return TSR_OK;
}

static tsr_status product16_run(const tsri_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const product *p = (const product *)k;
    tsri_gemm16_run(&p->gemm16, in[p->swap], in[!p->swap], p->bias ? in[2] : NULL, out[0], scratch);
    return TSR_OK;
}

tsr_status tsri_fast_product(tsri_mem *mem, const tsri_kernel_desc *desc, int64_t rows, int64_t out,
                             int64_t in, tsri_kernel **out_kernel)
{
    product *p = tsri_fast_make(mem, NULL, sizeof *p, 0, 0);
    TSRI_NEED(p);
    p->base.base.run = product_run;
    p->gemm = tsri_fast_gemm_linear(p->base.isa, desc->op, rows, out, in);
    p->swap = p->gemm.ta; /* dw[out, in]: dy is its a, x its b */
    p->bias = desc->nin > 2;
    if (tsri_gemm16_takes(desc)) {
        p->gemm16 = tsri_gemm16_plan(desc, &p->gemm, false);
        p->base.base.run = product16_run;
        p->base.base.impl = p->gemm16.isa->impl;
        p->base.base.scratch_bytes = p->gemm16.scratch_bytes;
    } else {
        tsri_fast_gemm_plan(&p->gemm);
        p->base.base.scratch_bytes = p->gemm.scratch_bytes;
    }
    *out_kernel = &p->base.base;
    return TSR_OK;
}

/* x[..., in], w[out, in], b[out]? */
tsr_status tsri_fast_linear(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    if (!tsri_fast_is_plain(desc) && !(tsri_fast_is_full(desc) && tsri_gemm16_takes(desc)))
        return tsri_fast_decline(desc);
    const tsri_arg *w = desc->op == TSRI_OP_LINEAR_DW ? &desc->out[0] : &desc->in[1];
    const int64_t out = w->shape[0], in = w->shape[1];
    const int64_t rows = tsri_arg_count(&desc->in[0]) / (desc->op == TSRI_OP_LINEAR_DX ? out : in);
    return tsri_fast_product(mem, desc, rows, out, in, out_kernel);
}
