/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, of a batch or one, on row-major operands: threads share the batch's products, or
 * each product in turn where those are fewer than threads. */
#include "kernels/cpu/fast/gemm16.h"

#include <omp.h>

enum { WORTH_A_TEAM = 1 << 17 }; /* multiplications */

typedef struct batch {
    tsri_fast base; /* threads: that share products */
    tsri_fast_gemm gemm;
    tsri_gemm16 gemm16;               /* of bf16 */
    size_t scratch_bytes, size_of[3]; /* of a product; of an element of a, b, c */
    int ndim;                         /* of the batch */
    int64_t size[TSR_MAX_NDIM];
    int64_t step[3][TSR_MAX_NDIM]; /* elements of a, b, c from one to the next along an axis */
} batch;

static void batch_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const batch *k = (const batch *)f;
    char *scratch = (char *)p->scratch + (size_t)p->index * tsri_fast_align(k->scratch_bytes);
    for (int64_t i = p->begin; i < p->end; i++) {
        int64_t off[3] = {0}, rest = i;
        for (int j = k->ndim - 1; j >= 0; j--) {
            for (int o = 0; o < 3; o++)
                off[o] += rest % k->size[j] * k->step[o][j];
            rest /= k->size[j];
        }
        const void *a = (const char *)p->in[0] + (size_t)off[0] * k->size_of[0];
        const void *b = (const char *)p->in[1] + (size_t)off[1] * k->size_of[1];
        void *c = (char *)p->out[0] + (size_t)off[2] * k->size_of[2];
        if (k->gemm16.isa)
            tsri_gemm16_run(&k->gemm16, a, b, NULL, c, scratch);
        else
            tsri_fast_gemm_run(&k->gemm, a, b, NULL, c, scratch);
    }
}

/* Elements from one matrix to the next along each of the batch's axes; 0 where x broadcasts. */
static void set_steps(const tsri_arg *c, const tsri_arg *x, int64_t step[TSR_MAX_NDIM])
{
    int64_t pitch = x->shape[x->ndim - 1] * x->shape[x->ndim - 2];
    for (int i = c->ndim - 3, j = x->ndim - 3; i >= 0; i--, j--) {
        step[i] = j < 0 || x->shape[j] == 1 ? 0 : pitch;
        if (j >= 0)
            pitch *= x->shape[j];
    }
}

/* One matrix b for the whole batch, and rows of a behind each other: one product of all rows. */
static bool is_one(const batch *k)
{
    int64_t count = 1;
    if (k->gemm.ta)
        return false;
    for (int i = k->ndim - 1; i >= 0; i--) {
        if (k->size[i] != 1 &&
            (k->step[1][i] != 0 || k->step[0][i] != count * k->gemm.m * k->gemm.k))
            return false;
        count *= k->size[i];
    }
    return true;
}

static void plan(batch *k, const tsri_kernel_desc *desc)
{
    tsri_fast_gemm *g = &k->gemm;
    tsri_fast *f = &k->base;
    int team = omp_get_max_threads();
    if (is_one(k)) {
        g->m *= f->items;
        f->items = 1;
        k->ndim = 0;
    }
    f->threads = f->items >= team && g->m * g->n * g->k * f->items >= WORTH_A_TEAM ? team : 1;
    if (tsri_gemm16_takes(desc)) {
        k->gemm16 = tsri_gemm16_plan(desc, g, f->threads > 1);
        k->scratch_bytes = k->gemm16.scratch_bytes;
        f->base.impl = k->gemm16.isa->impl;
    } else {
        if (f->threads == 1)
            tsri_fast_gemm_plan(g, 0);
        else
            tsri_fast_gemm_plan_alone(g);
        k->scratch_bytes = g->scratch_bytes;
    }
    f->base.scratch_bytes = (size_t)f->threads * tsri_fast_align(k->scratch_bytes);
}

tsr_status tsri_fast_matmul(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const bool ta = desc->attrs->matmul.ta, tb = desc->attrs->matmul.tb;
    const tsri_arg *a = &desc->in[0], *b = &desc->in[1], *c = &desc->out[0];
    if ((!tsri_fast_is_plain_or_wide(desc) &&
         !(tsri_fast_is_full(desc) && tsri_gemm16_takes(desc))) ||
        (ta && tb))
        return tsri_fast_decline(desc);
    const int64_t rows = a->shape[a->ndim - 2], cols = a->shape[a->ndim - 1];
    const int64_t n = c->shape[c->ndim - 1];
    batch *k = tsri_fast_make(mem, desc, batch_part, sizeof *k, 0, 1);
    TSRI_NEED(k);
    k->ndim = c->ndim - 2;
    for (int i = 0; i < k->ndim; i++)
        k->base.items *= k->size[i] = c->shape[i];
    set_steps(c, a, k->step[0]);
    set_steps(c, b, k->step[1]);
    set_steps(c, c, k->step[2]);
    k->gemm = tsri_fast_gemm_of(tsri_fast_loops_of(k->base.isa, a->dtype), ta ? cols : rows, n,
                                ta ? rows : cols, ta, tb);
    for (int o = 0; o < 3; o++)
        k->size_of[o] = tsr_dtype_size(o < 2 ? desc->in[o].dtype : c->dtype);
    plan(k, desc);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
