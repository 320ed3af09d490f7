/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of a batch: threads share the batch's products, or the one that there is. */
#include "kernels/cpu/ref/ref.h"

typedef struct batch {
    tsri_ref ref;
    tsri_ref_gemm gemm; /* of one product */
    int threads;        /* that share products */
    int64_t count;
} batch;

static void *at(void *p, tsr_dtype dtype, int64_t element)
{
    return p ? (char *)p + element * (int64_t)tsr_dtype_size(dtype) : NULL;
}

/* Where product i begins in an operand, whose axes of size 1 broadcast. */
static int64_t place(const tsri_arg *c, const tsri_arg *x, int64_t i)
{
    int64_t off = 0;
    for (int axis = c->ndim - 3, j = x->ndim - 3; axis >= 0; axis--, j--) {
        int64_t n = i % c->shape[axis];
        i /= c->shape[axis];
        if (j >= 0 && x->shape[j] != 1)
            off += n * x->stride[j];
    }
    return off;
}

static void product(const batch *v, int64_t i, void *const *in, void *const *out, void *scratch)
{
    const tsri_kernel_desc *d = &v->ref.desc;
    const tsri_arg *c = &d->out[0];
    tsri_ref_gemm_run(&v->gemm, at(in[0], d->in[0].dtype, place(c, &d->in[0], i)),
                      at(in[1], d->in[1].dtype, place(c, &d->in[1], i)), NULL,
                      at(out[0], c->dtype, place(c, c, i)), scratch);
}

static tsr_status batch_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const batch *v = (const batch *)k;
    if (v->threads == 1) {
        for (int64_t i = 0; i < v->count; i++)
            product(v, i, in, out, scratch);
        return TSR_OK;
    }
#pragma omp parallel for schedule(static) num_threads(v->threads)
    for (int64_t i = 0; i < v->count; i++)
        product(v, i, in, out,
                (char *)scratch + (size_t)omp_get_thread_num() * v->gemm.scratch_bytes);
    return TSR_OK;
}

static void axis(tsri_ref_index *index, const tsri_arg *arg, int from_end)
{
    int i = arg->ndim - from_end;
    tsri_ref_index_add(index, arg->shape[i], arg->stride[i], 0, 0);
}

/* A batch for every thread: products are made by one thread each. */
static void plan(batch *v)
{
    tsri_ref_gemm *g = &v->gemm;
    int team = omp_get_max_threads();
    double work = (double)g->c.row.count * (double)g->c.col.count * (double)g->a.col.count;
    tsri_ref_gemm_plan(g);
    v->threads = 1;
    if (v->count >= team && work * (double)v->count > 1e6) {
        v->threads = team;
        g->scratch_bytes /= (size_t)g->threads;
        g->threads = 1;
    }
    v->ref.base.scratch_bytes = (size_t)v->threads * g->scratch_bytes;
}

tsr_status tsri_ref_batch_matmul(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *a = &d->in[0], *b = &d->in[1], *c = &d->out[0];
    if (!tsri_ref_is_float(a->dtype) || !tsri_ref_is_float(b->dtype) ||
        !tsri_ref_is_float(c->dtype))
        return tsri_ref_decline(d);
    batch *v = tsri_ref_make(mem, d, batch_run, sizeof *v);
    TSRI_NEED(v);
    int ta = d->attrs->matmul.ta != 0, tb = d->attrs->matmul.tb != 0;
    tsri_ref_gemm *g = &v->gemm;
    g->a.dtype = a->dtype;
    g->b.dtype = b->dtype;
    g->c.dtype = c->dtype;
    axis(&g->a.row, a, 2 - ta);
    axis(&g->a.col, a, 1 + ta);
    axis(&g->b.row, b, 1 + tb);
    axis(&g->b.col, b, 2 - tb);
    axis(&g->c.row, c, 2);
    axis(&g->c.col, c, 1);
    v->count = 1;
    for (int i = 0; i < c->ndim - 2; i++)
        v->count *= c->shape[i];
    if (!g->c.row.count || !g->c.col.count)
        v->count = 0;
    plan(v);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
