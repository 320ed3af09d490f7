/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the parts of a step in time, of operands and results with one order of elements. */
#include "kernels/cpu/fast/half.h"

#include <string.h>

enum {
    UNIT = 64,    /* elements: threads never share a cache line */
    PIECE = 1024, /* of halves that are widened at once */
};

typedef struct total {
    tsri_fast base;
    size_t size;          /* of an element of the result */
    tsri_widen_fn *widen; /* of halves, else NULL */
} total;

static void add_f32(const total *k, const float *x, float *y, int64_t n)
{
    const tsri_fast_map map = {.x = y, .y = x, .out = y};
    k->base.isa->binary[TSRI_BINARY_ADD](&map, 0, n);
}

static void add_halves(const total *k, const uint16_t *x, float *y, int64_t n)
{
    float piece[PIECE];
    for (int64_t i = 0, some; i < n; i += some) {
        some = tsri_fast_least(n - i, PIECE);
        k->widen(x + i, piece, some);
        add_f32(k, piece, y + i, some);
    }
}

static void add_f64(const double *x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* Elements [begin, end). The first part begins the sum. */
static void total_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const total *k = (const total *)f;
    const bool first = *(const int64_t *)p->in[1] == 0;
    const int64_t n = p->end - p->begin, size = (int64_t)k->size;
    const uint16_t *halves = (const uint16_t *)p->in[0] + p->begin;
    const void *x = (const char *)p->in[0] + p->begin * size;
    void *y = (char *)p->out[0] + p->begin * size;
    if (k->widen && first)
        k->widen(halves, y, n);
    else if (k->widen)
        add_halves(k, halves, y, n);
    else if (first)
        memcpy(y, x, (size_t)(n * size));
    else if (size == sizeof(float))
        add_f32(k, x, y, n);
    else
        add_f64(x, y, n);
}

tsr_status tsri_fast_total(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &desc->in[0], *y = &desc->out[0];
    const bool half = tsri_is_half(x->dtype) && y->dtype == TSR_F32;
    const bool alike = x->dtype == y->dtype && (y->dtype == TSR_F32 || y->dtype == TSR_F64);
    const int64_t count = tsri_arg_count(y);
    if (desc->attrs->total.op != TSR_REDUCE_SUM || (!half && !alike) || !count ||
        desc->in[1].dtype != TSR_I64 || !tsri_fast_alike(x, y))
        return tsri_fast_decline(desc);
    total *k = tsri_fast_make(mem, desc, total_part, sizeof *k, count, count);
    TSRI_NEED(k);
    k->base.unit = UNIT;
    k->size = tsr_dtype_size(y->dtype);
    k->widen = half ? tsri_widen_of(x->dtype) : NULL;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
