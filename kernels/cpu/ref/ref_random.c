/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers by the element's index in the global tensor, and constants. */
#include "kernels/cpu/ref/ref.h"

#include "kernels/part.h"
#include "src/core/dims.h"
#include "src/core/rng.h"

#include <math.h>

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

/* The global index is an operand of the walk like any other: last, begun here. In dropout of a part
 * in time it is the index in the part, from which that in the whole tensor follows. */
static uint64_t first_index(const tsri_ref_job *j)
{
    int64_t stride[TSR_MAX_NDIM];
    return (uint64_t)tsri_ref_global_index(&j->ref->desc.out[0], stride);
}

/* Returns the index in the whole tensor of element `index` of the tensor that dropout is given. */
static uint64_t whole_index(const tsri_ref_job *j, uint64_t index)
{
    const tsri_kernel_desc *d = &j->ref->desc;
    if (d->nin < 3)
        return index;
    return (uint64_t)tsri_part_index((int64_t)index, tsri_part_run(d), d->attrs->dropout.parts,
                                     *(const int64_t *)j->in[2]);
}

#define DROPOUT(T, name)                                                           \
    static void name(void *arg, const tsri_ref_row *r)                             \
    {                                                                              \
        const tsri_ref_job *j = arg;                                               \
        const double p = j->ref->attrs.dropout.p, scale = p < 1 ? 1 / (1 - p) : 0; \
        stream s = {.key = j->ref->attrs.dropout.key,                              \
                    .step = (uint64_t) * (const int64_t *)j->in[1]};               \
        const uint64_t begin = first_index(j);                                     \
        const T *x = (const T *)j->in[0] + r->off[1];                              \
        T *y = (T *)j->out[0] + r->off[0];                                         \
        for (int64_t i = 0; i < r->n; i++) {                                       \
            uint64_t index = begin + (uint64_t)(r->off[2] + i * r->step[2]);       \
            index = whole_index(j, index);                                         \
            double v = (double)x[i * r->step[1]] * scale;                          \
            y[i * r->step[0]] = uniform(&s, index) >= p ? (T)v : 0;                \
        }                                                                          \
    }
DROPOUT(float, dropout_f32)
DROPOUT(double, dropout_f64)

/* The value of dtype d before b, rounded to it. */
static double before(tsr_dtype d, double b)
{
    if (d == TSR_F64)
        return nextafter(b, -INFINITY);
    if (d == TSR_F32)
        return (double)nextafterf((float)b, -INFINITY);
    uint16_t bits; /* sign and magnitude */
    tsri_ref_store(d, &bits, 0, b);
    bits = (uint16_t)((bits & 0x7fff) == 0 ? 0x8001 : bits >> 15 ? bits + 1 : bits - 1);
    return tsri_ref_load(d, &bits, 0);
}

static void random_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const tsri_attrs *at = &j->ref->attrs;
    tsr_dtype d = j->ref->desc.out[0].dtype;
    const double a = at->random.a, b = at->random.b;
    const uint64_t begin = first_index(j);
    const uint64_t step = j->ref->desc.nin ? (uint64_t) * (const int64_t *)j->in[0] : 0;
    stream s = {.key = at->random.key, .step = step};
    for (int64_t i = 0; i < r->n; i++) {
        uint64_t index = begin + (uint64_t)(r->off[1] + i * r->step[1]);
        int64_t y = r->off[0] + i * r->step[0];
        if (at->random.dist == TSRI_RANDOM_NORMAL) {
            tsri_ref_store(d, j->out[0], y, a + b * tsri_rng_normal(at->random.key, step, index));
            continue;
        }
        double v = a + (b - a) * uniform(&s, index);
        tsri_ref_store(d, j->out[0], y, v);
        /* Rounding may have reached b, which is not in the interval. */
        if (a < b && tsri_ref_load(d, j->out[0], y) >= b)
            tsri_ref_store(d, j->out[0], y, before(d, b));
    }
}

tsr_status tsri_ref_dropout(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *y = &d->out[0];
    if (d->in[1].dtype != TSR_I64 || d->in[d->nin - 1].dtype != TSR_I64 ||
        !tsri_ref_is_float(y->dtype) || !tsri_ref_alike(d, 0, 1))
        return tsri_ref_decline(d);
    int64_t index[TSR_MAX_NDIM];
    tsri_ref_global_index(y, index);
    return tsri_ref_create_rows(mem, d, y->dtype == TSR_F32 ? dropout_f32 : dropout_f64, 3,
                                (const int64_t *[]){y->stride, d->in[0].stride, index}, out_kernel);
}

tsr_status tsri_ref_random(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_is_float(d->out[0].dtype) || (d->nin && d->in[0].dtype != TSR_I64))
        return tsri_ref_decline(d);
    int64_t index[TSR_MAX_NDIM];
    tsri_ref_global_index(&d->out[0], index);
    return tsri_ref_create_rows(mem, d, random_row, 2, (const int64_t *[]){d->out[0].stride, index},
                                out_kernel);
}

static tsr_status fill_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)in;
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_arg *y = &ref->desc.out[0]; /* dense: the order does not matter */
    for (int64_t i = 0; i < tsri_arg_count(y); i++)
        tsri_ref_store(y->dtype, out[0], i, ref->attrs.fill.value);
    return TSR_OK;
}

tsr_status tsri_ref_fill(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_ref_create(mem, d, fill_run, out_kernel);
}
