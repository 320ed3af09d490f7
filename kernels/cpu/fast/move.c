/* SPDX-License-Identifier: Apache-2.0 */
/* cast between buffers of one order of elements, and copy between row-major and channels last. */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

typedef struct flat_cast {
    tsri_fast base;
    int64_t count;
    tsr_dtype from, to;
} flat_cast;

typedef struct cast_job {
    const flat_cast *k;
    const void *x;
    void *y;
} cast_job;

#define CAST(FROM, TO)                        \
    do {                                      \
        const FROM *x = j->x;                 \
        TO *y = j->y;                         \
        for (int64_t i = begin; i < end; i++) \
            y[i] = (TO)x[i];                  \
    } while (0)

static void cast_part(void *arg, int part)
{
    const cast_job *j = arg;
    const flat_cast *k = j->k;
    int64_t begin = tsri_fast_cut(k->count, k->base.threads, part, 64);
    int64_t end = tsri_fast_cut(k->count, k->base.threads, part + 1, 64);
    if (k->from == TSR_U8)
        CAST(uint8_t, float);
    else if (k->from == TSR_F32)
        CAST(float, double);
    else
        CAST(double, float);
}

static tsr_status cast_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const flat_cast *k = (const flat_cast *)(const void *)kernel;
    cast_job j = {k, in[0], out[0]};
    tsri_fast_team(k->base.threads, cast_part, &j);
    return TSR_OK;
}

tsr_status tsri_fast_cast(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    tsr_dtype from = desc->in[0].dtype, to = desc->out[0].dtype;
    bool known = (from == TSR_U8 && to == TSR_F32) || (from == TSR_F32 && to == TSR_F64) ||
                 (from == TSR_F64 && to == TSR_F32);
    int64_t count = tsri_fast_count(&desc->out[0]);
    if (!known || !count || !tsri_fast_alike(&desc->in[0], &desc->out[0]))
        return tsri_fast_decline(desc);
    flat_cast *k = tsri_fast_make(mem, cast_run, sizeof *k, count);
    TSRI_NEED(k);
    k->count = count;
    k->from = from;
    k->to = to;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

/* Images [rows][cols] -> [cols][rows]; rows 0: a plain copy of cols elements. */
typedef struct turn {
    tsri_fast base;
    int64_t images, rows, cols;
} turn;

typedef struct turn_job {
    const turn *k;
    const float *x;
    float *y;
} turn_job;

static void turn_part(void *arg, int part)
{
    const turn_job *j = arg;
    const turn *k = j->k;
    if (!k->rows) {
        int64_t begin = tsri_fast_cut(k->cols, k->base.threads, part, 64);
        int64_t end = tsri_fast_cut(k->cols, k->base.threads, part + 1, 64);
        memcpy(j->y + begin, j->x + begin, (size_t)(end - begin) * sizeof *j->y);
        return;
    }
    int64_t n1 = tsri_fast_cut(k->images, k->base.threads, part + 1, 1);
    for (int64_t n = tsri_fast_cut(k->images, k->base.threads, part, 1); n < n1; n++) {
        const float *x = j->x + n * k->rows * k->cols;
        k->base.isa->transpose(x, k->cols, j->y + n * k->rows * k->cols, k->rows, k->cols, k->rows);
    }
}

static tsr_status turn_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const turn *k = (const turn *)(const void *)kernel;
    turn_job j = {k, in[0], out[0]};
    tsri_fast_team(k->base.threads, turn_part, &j);
    return TSR_OK;
}

tsr_status tsri_fast_copy(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &desc->in[0], *y = &desc->out[0];
    int64_t count = tsri_fast_count(y), rows, channels;
    bool f32 = x->dtype == TSR_F32 && y->dtype == TSR_F32 && count;
    bool same = f32 && tsri_fast_alike(x, y);
    bool four = f32 && !same && x->ndim == 4 && y->ndim == 4;
    bool to_last = four && tsri_fast_is_row_major(x) && tsri_fast_is_rows(y, &rows, &channels);
    bool from_last =
        four && !to_last && tsri_fast_is_rows(x, &rows, &channels) && tsri_fast_is_row_major(y);
    if (!same && !to_last && !from_last)
        return tsri_fast_decline(desc);
    turn *k = tsri_fast_make(mem, turn_run, sizeof *k, count);
    TSRI_NEED(k);
    k->cols = count;
    if (!same) {
        int64_t plane = x->shape[2] * x->shape[3];
        k->images = x->shape[0];
        k->rows = to_last ? x->shape[1] : plane;
        k->cols = to_last ? plane : x->shape[1];
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}
