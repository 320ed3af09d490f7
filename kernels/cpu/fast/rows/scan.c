/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums and products along an axis of a row-major operand, x[outer][n][inner]. Threads share
 * lines. */
#include "kernels/cpu/fast/fast.h"

typedef struct scan {
    tsri_fast base;
    bool product, reverse;
    int64_t n, inner;
} scan;

static void rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const scan *k = (const scan *)f;
    const int64_t at = p->begin * k->n;
    f->isa->scan_rows[k->product]((const float *)p->in[0] + at, (float *)p->out[0] + at,
                                  p->end - p->begin, k->n, k->reverse ? -1 : 1);
}

static int64_t blocks_of(const scan *k)
{
    return (k->inner + TSRI_FAST_SCANNED - 1) / TSRI_FAST_SCANNED;
}

static void columns_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const scan *k = (const scan *)f;
    for (int64_t b = p->begin; b < p->end; b++) {
        const int64_t first = b % blocks_of(k) * TSRI_FAST_SCANNED;
        const int64_t at = b / blocks_of(k) * k->n * k->inner + first;
        f->isa->scan_columns[k->product]((const float *)p->in[0] + at, (float *)p->out[0] + at,
                                         k->n, k->reverse ? -k->inner : k->inner,
                                         tsri_fast_least(k->inner - first, TSRI_FAST_SCANNED));
    }
}

tsr_status tsri_fast_scan(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0];
    const bool product = d->op == TSRI_OP_SCAN;
    const int axis = product ? d->attrs->scan.axis : d->attrs->cumsum.axis;
    if (!tsri_fast_is_plain(d) || (product && d->attrs->scan.fn != TSRI_SCAN_PRODUCT))
        return tsri_fast_decline(d);
    scan *k = tsri_fast_make(mem, d, rows_part, sizeof *k, tsri_arg_count(x),
                             tsri_arg_count_of(x, 0, axis));
    TSRI_NEED(k);
    k->product = product;
    k->reverse = !product && d->attrs->cumsum.reverse;
    k->n = x->shape[axis];
    k->inner = tsri_arg_count_of(x, axis + 1, x->ndim);
    if (k->inner > 1) {
        k->base.part = columns_part;
        k->base.items *= blocks_of(k);
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}
