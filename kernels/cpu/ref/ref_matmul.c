/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: each op is an arrangement of indices for the common product. */
#include "kernels/cpu/ref/ref.h"

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

/* Axes of the batch, which those of c are; operands' axes of size 1 broadcast. */
static void batch(tsri_ref_index *index, const tsri_arg *c, const tsri_arg *x)
{
    for (int i = 0; i < c->ndim - 2; i++) {
        int j = i + x->ndim - c->ndim;
        int64_t stride = j >= 0 && x->shape[j] != 1 ? x->stride[j] : 0;
        tsri_ref_index_add(index, c->shape[i], stride, 0, 0);
    }
}

tsr_status tsri_ref_matmul(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *a = &d->in[0], *b = &d->in[1], *c = &d->out[0];
    tsri_ref_gemm *g = NULL;
    TSRI_TRY(tsri_ref_gemm_make(mem, d, 0, 1, &g));
    int ta = d->attrs->matmul.ta != 0, tb = d->attrs->matmul.tb != 0;
    axis(&g->a.row, a, a->ndim - 2 + ta);
    axis(&g->a.col, a, a->ndim - 1 - ta);
    axis(&g->b.row, b, b->ndim - 1 - tb);
    axis(&g->b.col, b, b->ndim - 2 + tb);
    axis(&g->c.row, c, c->ndim - 2);
    axis(&g->c.col, c, c->ndim - 1);
    batch(&g->a.batch, c, a);
    batch(&g->b.batch, c, b);
    batch(&g->c.batch, c, c);
    return tsri_ref_gemm_finish(g, out_kernel);
}
TSRI_REF_SAME(batch_matmul, matmul);

tsr_status tsri_ref_linear(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const bool dx = d->op == TSRI_OP_LINEAR_DX;
    tsri_ref_gemm *g = NULL;
    TSRI_TRY(tsri_ref_gemm_make(mem, d, 0, 1, &g));
    lead(&g->a.row, x);
    axis(&g->a.col, x, x->ndim - 1);
    axis(&g->b.row, &d->in[1], dx);
    axis(&g->b.col, &d->in[1], !dx);
    lead(&g->c.row, y);
    axis(&g->c.col, y, y->ndim - 1);
    return tsri_ref_gemm_finish(g, out_kernel);
}
TSRI_REF_SAME(linear_dx, linear);

tsr_status tsri_ref_linear_dw(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *dy = &d->in[1];
    tsri_ref_gemm *g = NULL;
    TSRI_TRY(tsri_ref_gemm_make(mem, d, 1, 0, &g));
    axis(&g->a.row, dy, dy->ndim - 1);
    lead(&g->a.col, dy);
    axis(&g->b.row, x, x->ndim - 1);
    lead(&g->b.col, x);
    axis(&g->c.row, &d->out[0], 0);
    axis(&g->c.col, &d->out[0], 1);
    return tsri_ref_gemm_finish(g, out_kernel);
}
