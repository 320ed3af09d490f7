/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers by the element's index in the global tensor, and constants. */
#include "kernels/cpu/ref/ref.h"

#include "src/core/rng.h"

#include <math.h>

/* The global index is an operand of the walk like any other: last, begun at `begin`. */
typedef struct job {
    const tsri_ref *ref;
    const void *x;
    void *y;
    uint64_t begin, step;
} job;

/* tsri_rng_uniform for a sequence of indices: four neighbours share a block. */
typedef struct stream {
    uint64_t key, step, block;
    uint32_t word[4];
    bool filled;
} stream;

static double uniform(stream *s, uint64_t index)
{
    if (!s->filled || index / 4 != s->block) {
        s->block = index / 4;
        s->filled = true;
        tsri_rng_block(s->key, s->step, s->block, s->word);
    }
    return (double)(s->word[index % 4] >> 8) * 0x1p-24;
}

#define DROPOUT(T, name)                                                           \
    static void name(void *arg, const tsri_ref_row *r)                             \
    {                                                                              \
        const job *j = arg;                                                        \
        const double p = j->ref->attrs.dropout.p, scale = p < 1 ? 1 / (1 - p) : 0; \
        stream s = {.key = j->ref->attrs.dropout.key, .step = j->step};            \
        const T *x = (const T *)j->x + r->off[1];                                  \
        T *y = (T *)j->y + r->off[0];                                              \
        for (int64_t i = 0; i < r->n; i++) {                                       \
            uint64_t index = j->begin + (uint64_t)(r->off[2] + i * r->step[2]);    \
            double v = (double)x[i * r->step[1]] * scale;                          \
            y[i * r->step[0]] = uniform(&s, index) >= p ? (T)v : 0;                \
        }                                                                          \
    }
DROPOUT(float, dropout_f32)
DROPOUT(double, dropout_f64)

static tsr_status dropout_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    int64_t stride[TSR_MAX_NDIM];
    job j = {ref, in[0], out[0], (uint64_t)tsri_ref_global_index(&ref->desc.out[0], stride),
             (uint64_t) * (const int64_t *)in[1]};
    tsri_ref_row_fn *fn = ref->desc.out[0].dtype == TSR_F32 ? dropout_f32 : dropout_f64;
    tsri_ref_iter_run(&ref->iter, fn, &j, true);
    return TSR_OK;
}

static void random_row(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    const tsri_attrs *at = &j->ref->attrs;
    tsr_dtype d = j->ref->desc.out[0].dtype;
    const double a = at->random.a, b = at->random.b;
    stream s = {.key = at->random.key};
    for (int64_t i = 0; i < r->n; i++) {
        uint64_t index = j->begin + (uint64_t)(r->off[1] + i * r->step[1]);
        int64_t y = r->off[0] + i * r->step[0];
        if (at->random.dist == TSRI_RANDOM_NORMAL) {
            tsri_ref_store(d, j->y, y, a + b * tsri_rng_normal(at->random.key, 0, index));
            continue;
        }
        double v = a + (b - a) * uniform(&s, index);
        tsri_ref_store(d, j->y, y, v);
        /* Rounding may have reached b, which is not in the interval. */
        if (a < b && tsri_ref_load(d, j->y, y) >= b)
            tsri_ref_store(d, j->y, y,
                           d == TSR_F32 ? (double)nextafterf((float)b, (float)a) : nextafter(b, a));
    }
}

static tsr_status random_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)in;
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    int64_t stride[TSR_MAX_NDIM];
    job j = {.ref = ref,
             .y = out[0],
             .begin = (uint64_t)tsri_ref_global_index(&ref->desc.out[0], stride)};
    tsri_ref_iter_run(&ref->iter, random_row, &j, true);
    return TSR_OK;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_ref_run_fn *run, int nin,
                         tsri_kernel **out_kernel)
{
    if (!tsri_ref_is_float(d->out[0].dtype) || (nin && d->in[0].dtype != d->out[0].dtype))
        return tsri_ref_decline(d);
    tsri_ref *ref = tsri_ref_make(mem, d, run, sizeof *ref);
    TSRI_NEED(ref);
    int64_t index[TSR_MAX_NDIM];
    tsri_ref_global_index(&d->out[0], index);
    tsri_ref_iter_init(&ref->iter, d->out[0].ndim, d->out[0].shape);
    tsri_ref_iter_push(&ref->iter, d->out[0].stride);
    if (nin)
        tsri_ref_iter_push(&ref->iter, d->in[0].stride);
    tsri_ref_iter_push(&ref->iter, index);
    tsri_ref_iter_finish(&ref->iter);
    *out_kernel = &ref->base;
    return TSR_OK;
}

tsr_status tsri_ref_dropout(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[1].dtype != TSR_I64)
        return tsri_ref_decline(d);
    return create(mem, d, dropout_run, 1, out_kernel);
}

tsr_status tsri_ref_random(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, random_run, 0, out_kernel);
}

static tsr_status fill_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)in;
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_arg *y = &ref->desc.out[0]; /* dense: the order does not matter */
    for (int64_t i = 0; i < tsri_ref_count(y); i++)
        tsri_ref_store(y->dtype, out[0], i, ref->attrs.fill.value);
    return TSR_OK;
}

tsr_status tsri_ref_fill(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_ref_create(mem, d, fill_run, out_kernel);
}
