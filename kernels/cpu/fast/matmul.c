/* SPDX-License-Identifier: Apache-2.0 */
/* matmul, linear and its gradients, on row-major operands. */
#include "kernels/cpu/fast/fast.h"

typedef struct product {
    tsri_fast base;
    tsri_fast_gemm gemm;
    int a, b; /* operands */
    bool bias;
} product;

static tsr_status product_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    const product *p = (const product *)(const void *)k;
    tsri_fast_gemm_run(&p->gemm, in[p->a], in[p->b], p->bias ? in[2] : NULL, out[0], scratch);
    return TSR_OK;
}

static bool takes(const tsri_kernel_desc *desc)
{
    if (!tsri_fast_is_f32(desc))
        return false;
    for (int i = 0; i < desc->nin; i++)
        if (!tsri_fast_count(&desc->in[i]) || !tsri_fast_is_row_major(&desc->in[i]))
            return false;
    return tsri_fast_is_row_major(&desc->out[0]);
}

static tsr_status create(tsri_mem *mem, const product *like, tsri_kernel **out_kernel)
{
    product *p = tsri_fast_make(mem, product_run, sizeof *p, 0);
    TSRI_NEED(p);
    p->a = like->a;
    p->b = like->b;
    p->bias = like->bias;
    p->gemm = like->gemm;
    p->gemm.isa = p->base.isa;
    p->gemm.ldc = p->gemm.n;
    tsri_fast_gemm_plan(&p->gemm);
    p->base.base.scratch_bytes = p->gemm.scratch_bytes;
    *out_kernel = &p->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_matmul(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const bool ta = desc->attrs->matmul.ta, tb = desc->attrs->matmul.tb;
    const tsri_arg *a = &desc->in[0], *b = &desc->in[1];
    if (!takes(desc) || a->ndim != 2 || b->ndim != 2 || (ta && tb))
        return tsri_fast_decline(desc);
    product p = {.b = 1};
    p.gemm.m = a->shape[ta];
    p.gemm.k = a->shape[!ta];
    p.gemm.n = b->shape[!tb];
    p.gemm.ta = ta;
    p.gemm.lda = a->shape[1];
    p.gemm.bk = tb ? 1 : p.gemm.n;
    p.gemm.bn = tb ? p.gemm.k : 1;
    return create(mem, &p, out_kernel);
}

/* x[..., k], w[n, k], b[n]? */
tsr_status tsri_fast_linear(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    if (!takes(desc))
        return tsri_fast_decline(desc);
    product p = {.b = 1, .bias = desc->nin > 2};
    p.gemm.n = desc->in[1].shape[0];
    p.gemm.k = desc->in[1].shape[1];
    p.gemm.m = tsri_fast_count(&desc->in[0]) / p.gemm.k;
    p.gemm.lda = p.gemm.k;
    p.gemm.bk = 1;
    p.gemm.bn = p.gemm.k;
    return create(mem, &p, out_kernel);
}

tsr_status tsri_fast_linear_dx(tsri_mem *mem, const tsri_kernel_desc *desc,
                               tsri_kernel **out_kernel)
{
    if (!takes(desc))
        return tsri_fast_decline(desc);
    product p = {.b = 1};
    p.gemm.k = desc->in[1].shape[0];
    p.gemm.n = desc->in[1].shape[1];
    p.gemm.m = tsri_fast_count(&desc->in[0]) / p.gemm.k;
    p.gemm.lda = p.gemm.k;
    p.gemm.bk = p.gemm.n;
    p.gemm.bn = 1;
    return create(mem, &p, out_kernel);
}

/* dw[n, k] is the product's c[m, n]: dy is its a, x its b. */
tsr_status tsri_fast_linear_dw(tsri_mem *mem, const tsri_kernel_desc *desc,
                               tsri_kernel **out_kernel)
{
    if (!takes(desc))
        return tsri_fast_decline(desc);
    product p = {.a = 1, .gemm.ta = true};
    p.gemm.m = desc->out[0].shape[0];
    p.gemm.n = desc->out[0].shape[1];
    p.gemm.k = tsri_fast_count(&desc->in[0]) / p.gemm.n;
    p.gemm.lda = p.gemm.m;
    p.gemm.bk = p.gemm.n;
    p.gemm.bn = 1;
    return create(mem, &p, out_kernel);
}
