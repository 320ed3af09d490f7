/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's work on rows of row-major scores: the causal mask, softmax over the last axis and
 * its gradient. Threads share rows. */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

typedef struct rows {
    tsri_fast base;
    int64_t count, width;
    bool back, log;
    float value;
    int64_t high, most; /* of the mask: rows of a matrix; a row i keeps columns up to i + most */
} rows;

typedef struct job {
    const rows *k;
    const float *x, *dy;
    float *y;
} job;

static void cut(const rows *k, int part, int64_t *r0, int64_t *r1)
{
    *r0 = tsri_fast_cut(k->count, k->base.threads, part, 1);
    *r1 = tsri_fast_cut(k->count, k->base.threads, part + 1, 1);
}

static void softmax_part(void *arg, int part)
{
    const job *j = arg;
    const rows *k = j->k;
    int64_t r0, r1;
    cut(k, part, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        const float *x = j->x + r * k->width;
        float *y = j->y + r * k->width;
        if (k->back)
            k->base.isa->softmax_dx(x, j->dy + r * k->width, y, k->width, k->log);
        else
            k->base.isa->softmax(x, y, k->width, k->log);
    }
}

static tsr_status softmax_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const rows *k = (const rows *)(const void *)kernel;
    job j = {.k = k, .x = in[0], .dy = k->back ? in[1] : NULL, .y = out[0]};
    tsri_fast_team(k->base.threads, softmax_part, &j);
    return TSR_OK;
}

/* May be in place. */
static void mask_part(void *arg, int part)
{
    const job *j = arg;
    const rows *k = j->k;
    int64_t r0, r1;
    cut(k, part, &r0, &r1);
    for (int64_t r = r0; r < r1; r++) {
        const float *x = j->x + r * k->width;
        float *y = j->y + r * k->width;
        int64_t kept = r % k->high + k->most + 1;
        kept = kept < 0 ? 0 : kept > k->width ? k->width : kept;
        if (y != x)
            memcpy(y, x, (size_t)kept * sizeof *y);
        tsri_fast_map map = {.out = y + kept, .a = k->value};
        k->base.isa->fill(&map, 0, k->width - kept);
    }
}

static tsr_status mask_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const rows *k = (const rows *)(const void *)kernel;
    job j = {.k = k, .x = in[0], .y = out[0]};
    tsri_fast_team(k->base.threads, mask_part, &j);
    return TSR_OK;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_fast_run_fn *run,
                         rows **out_rows)
{
    const tsri_arg *y = &d->out[0];
    bool fits = tsri_fast_is_f32(d) && tsri_fast_count(y) && tsri_fast_is_row_major(y);
    for (int i = 0; i < d->nin; i++)
        fits = fits && tsri_fast_is_row_major(&d->in[i]);
    if (!fits)
        return tsri_fast_decline(d);
    rows *k = tsri_fast_make(mem, run, sizeof *k, tsri_fast_count(y));
    TSRI_NEED(k);
    k->width = y->shape[y->ndim - 1];
    k->count = tsri_fast_count(y) / k->width;
    *out_rows = k;
    return TSR_OK;
}

tsr_status tsri_fast_softmax(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    rows *k;
    if (d->attrs->softmax.axis != d->out[0].ndim - 1)
        return tsri_fast_decline(d);
    TSRI_TRY(create(mem, d, softmax_run, &k));
    k->back = d->op == TSRI_OP_SOFTMAX_DX;
    k->log = d->attrs->softmax.log;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_causal_mask(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0];
    rows *k;
    TSRI_TRY(create(mem, d, mask_run, &k));
    k->value = (float)d->attrs->mask_above.value;
    k->high = x->shape[x->ndim - 2];
    k->most = d->attrs->mask_above.diagonal + x->offset[x->ndim - 2] - x->offset[x->ndim - 1];
    *out_kernel = &k->base.base;
    return TSR_OK;
}
