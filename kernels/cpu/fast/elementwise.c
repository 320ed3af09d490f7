/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops whose operands have one shape and one order of elements, walked flat; dropout.
 */
#include "kernels/cpu/fast/fast.h"

#include <math.h>

enum { UNIT = 64 }; /* elements: threads never share a cache line */

typedef struct flat {
    tsri_fast base;
    tsri_fast_map_fn *map;
    int nin;
    int64_t count;
    float a;
} flat;

typedef struct job {
    const flat *k;
    tsri_fast_map map;
} job;

static void flat_part(void *arg, int part)
{
    const job *j = arg;
    const tsri_fast *f = &j->k->base;
    j->k->map(&j->map, tsri_fast_cut(j->k->count, f->threads, part, UNIT),
              tsri_fast_cut(j->k->count, f->threads, part + 1, UNIT));
}

/* More than two operands (add_n) join the result one by one. */
static tsr_status flat_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const flat *k = (const flat *)(const void *)kernel;
    job j = {.k = k, .map = {.out = out[0], .a = k->a}};
    j.map.x = k->nin > 0 ? in[0] : NULL;
    j.map.y = k->nin > 1 ? in[1] : NULL;
    tsri_fast_team(k->base.threads, flat_part, &j);
    for (int i = 2; i < k->nin; i++) {
        j.map.x = out[0];
        j.map.y = in[i];
        tsri_fast_team(k->base.threads, flat_part, &j);
    }
    return TSR_OK;
}

static bool takes(const tsri_kernel_desc *desc)
{
    if (!tsri_fast_is_f32(desc) || !tsri_fast_count(&desc->out[0]))
        return false;
    for (int i = 0; i < desc->nin; i++)
        if (!tsri_fast_alike(&desc->in[i], &desc->out[0]))
            return false;
    return true;
}

/* map NULL: declines. */
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_fast_map_fn *map,
                         double a, tsri_kernel **out_kernel)
{
    if (!map || !takes(desc))
        return tsri_fast_decline(desc);
    int64_t count = tsri_fast_count(&desc->out[0]);
    flat *k = tsri_fast_make(mem, flat_run, sizeof *k, count);
    TSRI_NEED(k);
    k->map = map;
    k->nin = desc->nin;
    k->count = count;
    k->a = (float)a;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_unary(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const unsigned fn = (unsigned)desc->attrs->unary.fn;
    return create(mem, desc, fn < TSRI_UNARY_COUNT_ ? tsri_fast_isa_best()->unary[fn] : NULL,
                  desc->attrs->unary.a, out_kernel);
}

tsr_status tsri_fast_unary_grad(tsri_mem *mem, const tsri_kernel_desc *desc,
                                tsri_kernel **out_kernel)
{
    const unsigned fn = (unsigned)desc->attrs->unary.fn;
    return create(mem, desc, fn < TSRI_UNARY_COUNT_ ? tsri_fast_isa_best()->unary_grad[fn] : NULL,
                  desc->attrs->unary.a, out_kernel);
}

tsr_status tsri_fast_scale(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    return create(mem, desc, tsri_fast_isa_best()->scale, desc->attrs->scale.a, out_kernel);
}

tsr_status tsri_fast_binary(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const unsigned fn = (unsigned)desc->attrs->binary.fn;
    return create(mem, desc, fn < TSRI_BINARY_COUNT_ ? tsri_fast_isa_best()->binary[fn] : NULL, 0,
                  out_kernel);
}

tsr_status tsri_fast_add_n(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    if (desc->nin < 2)
        return tsri_fast_decline(desc);
    return create(mem, desc, tsri_fast_isa_best()->binary[TSRI_BINARY_ADD], 0, out_kernel);
}

tsr_status tsri_fast_fill(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    return create(mem, desc, tsri_fast_isa_best()->fill, desc->attrs->fill.value, out_kernel);
}

typedef struct drop {
    tsri_fast base;
    int64_t count;
    tsri_fast_dropout_args args;
} drop;

typedef struct drop_job {
    const drop *k;
    tsri_fast_dropout_args args;
} drop_job;

static void drop_part(void *arg, int part)
{
    const drop_job *j = arg;
    const tsri_fast *f = &j->k->base;
    f->isa->dropout(&j->args, tsri_fast_cut(j->k->count, f->threads, part, UNIT),
                    tsri_fast_cut(j->k->count, f->threads, part + 1, UNIT));
}

static tsr_status drop_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const drop *k = (const drop *)(const void *)kernel;
    drop_job j = {.k = k, .args = k->args};
    j.args.step = (uint64_t) * (const int64_t *)in[1];
    j.args.x = in[0];
    j.args.y = out[0];
    tsri_fast_team(k->base.threads, drop_part, &j);
    return TSR_OK;
}

/* The shard must be one run of the global tensor's elements, begun at a block of random words. */
tsr_status tsri_fast_dropout(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &desc->in[0], *y = &desc->out[0];
    int64_t count = tsri_fast_count(y);
    bool run = x->dtype == TSR_F32 && y->dtype == TSR_F32 && desc->in[1].dtype == TSR_I64 &&
               count && tsri_fast_is_row_major(x) && tsri_fast_is_row_major(y);
    for (int i = 1; i < y->ndim; i++)
        run = run && y->shape[i] == y->gshape[i];
    int64_t begin = run && y->ndim ? y->offset[0] * (count / y->shape[0]) : 0;
    if (!run || begin % 4)
        return tsri_fast_decline(desc);
    drop *k = tsri_fast_make(mem, drop_run, sizeof *k, count);
    TSRI_NEED(k);
    const double p = desc->attrs->dropout.p;
    k->count = count;
    k->args.key = desc->attrs->dropout.key;
    k->args.block = (uint64_t)(begin / 4);
    k->args.least = (uint32_t)ceil(p * 0x1p24);
    k->args.scale = p < 1 ? (float)(1 / (1 - p)) : 0.0f;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
