/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm over several virtual batches: each has a kernel for its samples, and they run in turn.
 */
#include "kernels/cpu/fast/fast.h"
#include "kernels/norm.h"

#include <string.h>

typedef struct bn_part {
    tsri_kernel *kernel;
    int64_t sample; /* its first local one */
    int64_t batch;  /* its virtual batch */
} bn_part;

typedef struct bn_parts {
    tsri_kernel base;
    int n, nin, nout;
    /* Bytes from one sample, or row of statistics, to the next; 0: all parts see the same. */
    int64_t step[2 * TSRI_KERNEL_MAX_ARGS];
    int64_t row[2 * TSRI_KERNEL_MAX_ARGS]; /* of statistics: the first; -1: of samples */
    bn_part part[];
} bn_parts;

static void destroy(tsri_kernel *kernel)
{
    bn_parts *k = (bn_parts *)(void *)kernel;
    for (int i = 0; i < k->n; i++)
        if (k->part[i].kernel)
            k->part[i].kernel->destroy(k->part[i].kernel);
    tsri_mem_free(k);
}

static void *at(const bn_parts *k, const bn_part *p, int arg, void *all)
{
    const int64_t i = k->row[arg] < 0 ? p->sample : p->batch - k->row[arg];
    return all ? (char *)all + i * k->step[arg] : NULL;
}

static tsr_status run(const tsri_kernel *kernel, void *const *in, void *const *out, void *scratch)
{
    const bn_parts *k = (const bn_parts *)(const void *)kernel;
    for (int i = 0; i < k->n; i++) {
        const bn_part *p = &k->part[i];
        void *from[TSRI_KERNEL_MAX_ARGS], *to[TSRI_KERNEL_MAX_ARGS];
        for (int a = 0; a < k->nin; a++)
            from[a] = at(k, p, a, in[a]);
        for (int a = 0; a < k->nout; a++)
            to[a] = at(k, p, k->nin + a, out[a]);
        TSRI_TRY(p->kernel->run(p->kernel, from, to, scratch));
    }
    return TSR_OK;
}

/* An operand or result as part p, of n samples, sees it. */
static tsri_arg arg_of(const bn_parts *k, const bn_part *p, int64_t n, int i, const tsri_arg *all)
{
    tsri_arg a = *all;
    if (!k->step[i])
        return a;
    a.shape[0] = k->row[i] < 0 ? n : 1;
    a.offset[0] = k->row[i] < 0 ? all->offset[0] + p->sample : p->batch;
    return a;
}

static tsr_status make_part(const bn_parts *k, tsri_mem *mem, const tsri_kernel_desc *desc,
                            int64_t n, bn_part *p)
{
    tsri_kernel_desc one = *desc;
    for (int i = 0; i < k->nin; i++)
        one.in[i] = arg_of(k, p, n, i, &desc->in[i]);
    for (int i = 0; i < k->nout; i++)
        one.out[i] = arg_of(k, p, n, k->nin + i, &desc->out[i]);
    return tsri_fast_bn_one(mem, &one, &p->kernel);
}

static void note_steps(bn_parts *k, const tsri_kernel_desc *desc)
{
    for (int i = 0; i < k->nin + k->nout; i++) {
        const tsri_arg *a = i < k->nin ? &desc->in[i] : &desc->out[i - k->nin];
        const bool is_stats = a->dtype == TSR_F64 && a->ndim == 3;
        k->row[i] = is_stats ? a->offset[0] : -1;
        k->step[i] = a->ndim > 1 ? a->stride[0] * (int64_t)tsr_dtype_size(a->dtype) : 0;
    }
}

static tsr_status make(bn_parts *k, tsri_mem *mem, const tsri_kernel_desc *desc,
                       const tsri_arg *stats)
{
    const tsri_arg *x = &desc->in[0];
    const tsri_attrs *at = desc->attrs;
    int64_t done = 0;
    note_steps(k, desc);
    for (int i = 0; i < k->n; i++) {
        bn_part *p = &k->part[i];
        p->batch = stats->offset[0] + i;
        int64_t end = tsri_bn_begin(at, p->batch + 1) - x->offset[0];
        end = end < done ? done : end > x->shape[0] ? x->shape[0] : end;
        p->sample = done;
        TSRI_TRY(make_part(k, mem, desc, end - done, p));
        k->base.scratch_bytes = p->kernel->scratch_bytes > k->base.scratch_bytes
                                    ? p->kernel->scratch_bytes
                                    : k->base.scratch_bytes;
        done = end;
    }
    return done == x->shape[0] ? TSR_OK : tsri_fast_decline(desc);
}

tsr_status tsri_fast_batch_norm(tsri_mem *mem, const tsri_kernel_desc *desc,
                                tsri_kernel **out_kernel)
{
    const int role = tsri_bn_roles(desc->op).stats;
    const tsri_arg *stats = role ? &desc->in[role] : &desc->out[0];
    const int64_t n = stats->shape[0];
    if (stats->dtype != TSR_F64 || stats->ndim != 3 || stats->offset[0] + n > desc->attrs->bn.parts)
        return tsri_fast_decline(desc);
    if (n == 1)
        return tsri_fast_bn_one(mem, desc, out_kernel);
    bn_parts *k = tsri_mem_alloc(mem, sizeof *k + (size_t)n * sizeof *k->part);
    TSRI_NEED(k);
    k->base = (tsri_kernel){.run = run, .destroy = destroy, .impl = tsri_fast_isa_best()->impl};
    k->n = (int)n;
    k->nin = desc->nin;
    k->nout = desc->nout;
    const tsr_status status = make(k, mem, desc, stats);
    if (status != TSR_OK) {
        destroy(&k->base);
        return status;
    }
    *out_kernel = &k->base;
    return TSR_OK;
}
