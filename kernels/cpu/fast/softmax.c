/* SPDX-License-Identifier: Apache-2.0 */
/* The causal mask of row-major scores; softmax and its gradient. Threads share rows of the axis. */
#include "kernels/cpu/fast/fast.h"

#include <math.h>
#include <string.h>

#include <tessera/sbp.h>

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

/* --- cross entropy ---------------------------------------------------------------------------- */
/* Losses of x[rows][classes] by labels[rows], of all classes or of a shard's, and its gradient.
 * Threads share rows; exponentials are f32, their sums and logarithms f64. */
typedef struct entropy {
    tsri_fast base;
    tsri_kernel_desc desc; /* its attrs are those below */
    tsri_attrs attrs;
    int64_t rows, classes;
} entropy;

/* The column of this shard that is row i's label, or -1. */
static int64_t column_of(const entropy *k, const int64_t *labels, int64_t i)
{
    const int64_t at = labels[i] - k->desc.in[0].offset[1];
    return !tsri_label_is_ignored(&k->desc, labels[i]) && at >= 0 && at < k->classes ? at : -1;
}

/* Returns the largest class that is a number: a NaN shows in the sum. */
static float largest(const tsri_fast_isa *isa, const float *x, int64_t n)
{
    float most = -INFINITY;
    isa->reduce[TSR_REDUCE_MAX][0](x, 1, n, n, &most);
    if (!isnan(most))
        return most;
    most = -INFINITY;
    for (int64_t c = 0; c < n; c++)
        most = x[c] > most ? x[c] : most;
    return most;
}

static double sum_above(const float *x, int64_t n, float most)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += (double)x[c] - (double)most;
    return sum;
}

static void loss_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const entropy *k = (const entropy *)f;
    const int64_t *labels = p->in[1];
    const double s = k->attrs.ce.smoothing;
    float *loss = p->out[0], *weight = p->out[1], *lse = p->out[2];
    for (int64_t i = p->begin; i < p->end; i++) {
        const float *x = (const float *)p->in[0] + i * k->classes;
        const int64_t at = column_of(k, labels, i);
        const float most = largest(f->isa, x, k->classes);
        const double log_sum = log(f->isa->ce_sum(x, k->classes, most));
        double row = 0;
        if (at >= 0) {
            row = (1 - s) * (log_sum - ((double)x[at] - (double)most));
            if (s > 0)
                row += s * (log_sum - sum_above(x, k->classes, most) / (double)k->classes);
        }
        loss[i] = (float)row;
        weight[i] = at >= 0;
        lse[2 * i] = most;
        lse[2 * i + 1] = (float)log_sum;
    }
}

static void terms_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const entropy *k = (const entropy *)f;
    const float *most = p->in[2];
    for (int64_t i = p->begin; i < p->end; i++) {
        const float *x = (const float *)p->in[0] + i * k->classes;
        const int64_t at = column_of(k, p->in[1], i);
        double *to = (double *)p->out[0] + 3 * i;
        to[0] = f->isa->ce_sum(x, k->classes, most[i]);
        to[1] = at >= 0 ? (double)x[at] - (double)most[i] : 0;
        to[2] = k->attrs.ce.smoothing > 0 ? sum_above(x, k->classes, most[i]) : 0;
    }
}

static void dx_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const entropy *k = (const entropy *)f;
    const int64_t *labels = p->in[1];
    const float *by = p->in[3];
    const double s = k->attrs.ce.smoothing, even = s / (double)k->desc.in[0].gshape[1];
    for (int64_t i = p->begin; i < p->end; i++) {
        const float *x = (const float *)p->in[0] + i * k->classes;
        const float *lse = (const float *)p->in[2] + 2 * i;
        float *dx = (float *)p->out[0] + i * k->classes;
        const int64_t at = column_of(k, labels, i);
        if (tsri_label_is_ignored(&k->desc, labels[i])) {
            const tsri_fast_map zero = {.out = dx};
            f->isa->fill(&zero, 0, k->classes);
            continue;
        }
        f->isa->ce_dx(x, dx, k->classes, lse, by[i], (float)even);
        if (at >= 0) {
            const double share = exp((double)x[at] - (double)lse[0] - (double)lse[1]);
            dx[at] = (float)((double)by[i] * (share - even - (1 - s)));
        }
    }
}

static tsr_status entropy_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                              void *scratch)
{
    const entropy *k = (const entropy *)kernel;
    for (int64_t i = 0; i < k->rows; i++)
        TSRI_TRY(tsri_check_label(&k->desc, i, ((const int64_t *)in[1])[i]));
    return tsri_fast_run(kernel, in, out, scratch);
}

tsr_status tsri_fast_cross_entropy(tsri_mem *mem, const tsri_kernel_desc *d,
                                   tsri_kernel **out_kernel)
{
    const bool terms = d->op == TSRI_OP_CE_TERMS;
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        const tsr_dtype dtype = i == 1 ? TSR_I64 : i == d->nin && terms ? TSR_F64 : TSR_F32;
        if (a->dtype != dtype || !tsri_arg_count(a) || !tsri_fast_is_row_major(a))
            return tsri_fast_decline(d);
    }
    const int64_t nrows = d->in[0].shape[0], classes = d->in[0].shape[1];
    tsri_fast_part_fn *part = terms ? terms_part : d->op == TSRI_OP_CE ? loss_part : dx_part;
    entropy *k = tsri_fast_make(mem, d, part, sizeof *k, nrows * classes, nrows);
    TSRI_NEED(k);
    k->desc = *d;
    k->attrs = *d->attrs;
    k->desc.attrs = &k->attrs;
    k->rows = nrows;
    k->classes = classes;
    k->base.base.run = entropy_run;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
