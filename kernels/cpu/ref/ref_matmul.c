/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: each op is an arrangement of indices for the common product. */
#include "kernels/cpu/ref/ref.h"

typedef struct product {
    tsri_ref ref;
    tsri_ref_gemm gemm;
    int a, b; /* operands in those places */
} product;

static tsr_status product_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    const product *p = (const product *)k;
    const void *bias = p->gemm.bias_dtype ? in[2] : NULL;
    tsri_ref_gemm_run(&p->gemm, in[p->a], in[p->b], bias, out[0], scratch);
    return TSR_OK;
}

/* All axes but the last. */
static void lead(tsri_ref_index *index, const tsri_arg *arg)
{
    index->count = 1;
    for (int i = 0; i < arg->ndim - 1; i++)
        tsri_ref_index_add(index, arg->shape[i], arg->stride[i], 0, 0);
}

static void axis(tsri_ref_index *index, const tsri_arg *arg, int i)
{
    tsri_ref_index_add(index, arg->shape[i], arg->stride[i], 0, 0);
}

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, int a, int b, product **out)
{
    for (int i = 0; i < d->nin; i++)
        if (!tsri_ref_is_float(d->in[i].dtype))
            return tsri_ref_decline(d);
    if (!tsri_ref_is_float(d->out[0].dtype))
        return tsri_ref_decline(d);
    product *p = tsri_ref_make(mem, d, product_run, sizeof *p);
    TSRI_NEED(p);
    p->a = a;
    p->b = b;
    p->gemm.a.dtype = d->in[a].dtype;
    p->gemm.b.dtype = d->in[b].dtype;
    p->gemm.c.dtype = d->out[0].dtype;
    *out = p;
    return TSR_OK;
}

static tsr_status finish(product *p, tsri_kernel **out_kernel)
{
    tsri_ref_gemm_plan(&p->gemm);
    p->ref.base.scratch_bytes = p->gemm.scratch_bytes;
    *out_kernel = &p->ref.base;
    return TSR_OK;
}

tsr_status tsri_ref_matmul(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    product *p;
    TSRI_TRY(make(mem, d, 0, 1, &p));
    int ta = d->attrs->matmul.ta != 0, tb = d->attrs->matmul.tb != 0;
    axis(&p->gemm.a.row, &d->in[0], ta);
    axis(&p->gemm.a.col, &d->in[0], !ta);
    axis(&p->gemm.b.row, &d->in[1], !tb);
    axis(&p->gemm.b.col, &d->in[1], tb);
    axis(&p->gemm.c.row, &d->out[0], 0);
    axis(&p->gemm.c.col, &d->out[0], 1);
    return finish(p, out_kernel);
}

tsr_status tsri_ref_linear(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    product *p;
    TSRI_TRY(make(mem, d, 0, 1, &p));
    lead(&p->gemm.a.row, &d->in[0]);
    axis(&p->gemm.a.col, &d->in[0], d->in[0].ndim - 1);
    axis(&p->gemm.b.row, &d->in[1], 0);
    axis(&p->gemm.b.col, &d->in[1], 1);
    lead(&p->gemm.c.row, &d->out[0]);
    axis(&p->gemm.c.col, &d->out[0], d->out[0].ndim - 1);
    p->gemm.bias_dtype = d->nin > 2 ? d->in[2].dtype : TSR_DTYPE_NONE;
    return finish(p, out_kernel);
}

tsr_status tsri_ref_linear_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    product *p;
    TSRI_TRY(make(mem, d, 0, 1, &p));
    lead(&p->gemm.a.row, &d->in[0]);
    axis(&p->gemm.a.col, &d->in[0], d->in[0].ndim - 1);
    axis(&p->gemm.b.row, &d->in[1], 1);
    axis(&p->gemm.b.col, &d->in[1], 0);
    lead(&p->gemm.c.row, &d->out[0]);
    axis(&p->gemm.c.col, &d->out[0], d->out[0].ndim - 1);
    return finish(p, out_kernel);
}

tsr_status tsri_ref_linear_dw(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    product *p;
    TSRI_TRY(make(mem, d, 1, 0, &p));
    axis(&p->gemm.a.row, &d->in[1], d->in[1].ndim - 1);
    lead(&p->gemm.a.col, &d->in[1]);
    axis(&p->gemm.b.row, &d->in[0], d->in[0].ndim - 1);
    lead(&p->gemm.b.col, &d->in[0]);
    axis(&p->gemm.c.row, &d->out[0], 0);
    axis(&p->gemm.c.col, &d->out[0], 1);
    return finish(p, out_kernel);
}
