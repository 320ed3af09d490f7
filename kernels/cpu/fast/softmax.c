/* SPDX-License-Identifier: Apache-2.0 */
/* The causal mask of row-major scores; softmax and its gradient. Threads share rows of the axis. */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

typedef struct rows {
    tsri_fast base;
    int64_t width, inner; /* of softmax's axis, and the elements behind it */
    bool back, log;
    float value;
    int64_t high, most; /* of the mask: rows of a matrix; a row i keeps columns up to i + most */
} rows;

static void softmax_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const rows *k = (const rows *)f;
    for (int64_t r = p->begin; r < p->end; r++) {
        const float *x = (const float *)p->in[0] + r * k->width;
        float *y = (float *)p->out[0] + r * k->width;
        if (k->back)
            f->isa->softmax_dx(x, (const float *)p->in[1] + r * k->width, y, k->width, k->log);
        else
            f->isa->softmax(x, y, k->width, k->log);
    }
}

/* Blocks of columns of x[outer][width][inner]. */
static void columns_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const rows *k = (const rows *)f;
    const int64_t blocks = (k->inner + TSRI_FAST_COLUMNS - 1) / TSRI_FAST_COLUMNS;
    for (int64_t b = p->begin; b < p->end; b++) {
        const int64_t first = b % blocks * TSRI_FAST_COLUMNS, rest = k->inner - first;
        const int64_t cols = rest < TSRI_FAST_COLUMNS ? rest : TSRI_FAST_COLUMNS;
        const int64_t at = b / blocks * k->width * k->inner + first;
        const float *x = (const float *)p->in[0] + at;
        float *y = (float *)p->out[0] + at;
        if (k->back)
            f->isa->softmax_dx_columns(x, (const float *)p->in[1] + at, y, k->width, k->inner, cols,
                                       k->log);
        else
            f->isa->softmax_columns(x, y, k->width, k->inner, cols, k->log);
    }
}

/* May be in place. */
static void mask_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const rows *k = (const rows *)f;
    for (int64_t r = p->begin; r < p->end; r++) {
        const float *x = (const float *)p->in[0] + r * k->width;
        float *y = (float *)p->out[0] + r * k->width;
        int64_t kept = r % k->high + k->most + 1;
        kept = kept < 0 ? 0 : kept > k->width ? k->width : kept;
        if (y != x)
            memcpy(y, x, (size_t)kept * sizeof *y);
        tsri_fast_map map = {.out = y + kept, .a = k->value};
        f->isa->fill(&map, 0, k->width - kept);
    }
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_fast_part_fn *part,
                         rows **out_rows)
{
    if (!tsri_fast_is_plain(d))
        return tsri_fast_decline(d);
    const int64_t width = d->out[0].shape[d->out[0].ndim - 1], count = tsri_arg_count(&d->out[0]);
    rows *k = tsri_fast_make(mem, d, part, sizeof *k, count, count / width);
    TSRI_NEED(k);
    k->width = width;
    *out_rows = k;
    return TSR_OK;
}

tsr_status tsri_fast_softmax(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    rows *k = NULL;
    const tsri_arg *y = &d->out[0];
    const int axis = d->attrs->softmax.axis;
    TSRI_TRY(create(mem, d, softmax_part, &k));
    k->inner = tsri_arg_count_of(y, axis + 1, y->ndim);
    k->width = y->shape[axis];
    k->base.items = tsri_arg_count_of(y, 0, axis);
    if (k->inner > 1) {
        k->base.part = columns_part;
        k->base.items *= (k->inner + TSRI_FAST_COLUMNS - 1) / TSRI_FAST_COLUMNS;
    }
    k->back = d->op == TSRI_OP_SOFTMAX_DX;
    k->log = d->attrs->softmax.log;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_causal_mask(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0];
    rows *k = NULL;
    TSRI_TRY(create(mem, d, mask_part, &k));
    k->value = (float)d->attrs->mask_above.value;
    k->high = x->shape[x->ndim - 2];
    k->most = d->attrs->mask_above.diagonal + x->offset[x->ndim - 2] - x->offset[x->ndim - 1];
    *out_kernel = &k->base.base;
    return TSR_OK;
}
