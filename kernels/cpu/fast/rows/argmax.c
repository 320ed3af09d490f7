/* SPDX-License-Identifier: Apache-2.0 */
/* The place of the largest element along an axis of a row-major operand, x[outer][n][inner]: the
 * first of several, and a NaN before all others. Threads share the results. */
#include "kernels/cpu/fast/fast.h"

#include <math.h>

enum { BLOCK = 4096 }; /* elements of a row that stay in the cache; columns at a time, at most */

typedef struct argmax {
    tsri_fast base;
    int64_t n, inner;
} argmax;

/* Finds the largest of each block of a row, and where it is if it is the largest so far. */
static int64_t row_place(const tsri_fast_isa *isa, const float *x, int64_t n)
{
    float best = -INFINITY;
    int64_t place = 0;
    for (int64_t i = 0; i < n && best == best; i += BLOCK) {
        const int64_t count = tsri_fast_least(n - i, BLOCK);
        float most = best;
        isa->reduce[TSR_REDUCE_MAX][0](x + i, 1, count, count, &most);
        if (most != most || most > best)
            place = i + isa->find(x + i, count, most);
        best = most;
    }
    return place;
}

static void rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const argmax *k = (const argmax *)f;
    for (int64_t r = p->begin; r < p->end; r++)
        ((int64_t *)p->out[0])[r] = row_place(f->isa, (const float *)p->in[0] + r * k->n, k->n);
}

static int64_t blocks_of(const argmax *k)
{
    return (k->inner + BLOCK - 1) / BLOCK;
}

static void columns_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const argmax *k = (const argmax *)f;
    for (int64_t b = p->begin; b < p->end; b++) {
        const int64_t outer = b / blocks_of(k), first = b % blocks_of(k) * BLOCK;
        f->isa->argmax_columns((const float *)p->in[0] + outer * k->n * k->inner + first, k->n,
                               k->inner, tsri_fast_least(k->inner - first, BLOCK),
                               (int64_t *)p->out[0] + outer * k->inner + first);
    }
}

tsr_status tsri_fast_argmax(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    enum { SHORT = 32 }; /* rows */
    const tsri_arg *x = &d->in[0];
    const int axis = d->attrs->softmax.axis;
    const int64_t n = x->shape[axis], inner = tsri_arg_count_of(x, axis + 1, x->ndim);
    if (x->dtype != TSR_F32 || d->out[0].dtype != TSR_I64 || !tsri_fast_is_full(d) ||
        n > INT32_MAX || (inner == 1 && n < SHORT))
        return tsri_fast_decline(d);
    argmax *k = tsri_fast_make(mem, d, inner == 1 ? rows_part : columns_part, sizeof *k,
                               tsri_arg_count(x), tsri_arg_count_of(x, 0, axis));
    TSRI_NEED(k);
    k->n = n;
    k->inner = inner;
    if (inner > 1)
        k->base.items *= blocks_of(k);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
