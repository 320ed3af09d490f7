/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' updates, one pass over flat f32 buffers, in place. */
#include "kernels/cpu/fast/fast.h"

typedef struct update {
    tsri_fast base;
    tsri_fast_update_fn *loop;
    int nstates, has;
} update;

static void update_part(const tsri_fast *f, const tsri_fast_part *part)
{
    const update *k = (const update *)f;
    const double *hyper = part->in[k->nstates + 2];
    if (hyper[TSRI_HYPER_SKIP] != 0)
        return;
    tsri_fast_update u = {.p = part->out[0], .g = part->in[k->nstates + 1], .has = k->has};
    for (int i = 0, out = 1; i < TSRI_UPDATE_STATES; i++)
        if (k->has >> i & 1)
            u.s[i] = part->out[out++];
    for (int i = 0; i < TSRI_HYPER_COUNT; i++)
        u.c[i] = (float)hyper[i];
    k->loop(&u, part->begin, part->end);
}

tsr_status tsri_fast_optim(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_arg *p = &desc->out[0], *hyper = &desc->in[desc->nin - 1];
    const int64_t count = tsri_arg_count(p);
    bool takes = hyper->dtype == TSR_F64 && tsri_fast_is_row_major(hyper) && count;
    for (int i = 0; i < desc->nin - 1; i++)
        takes = takes && desc->in[i].dtype == TSR_F32 && tsri_fast_alike(&desc->in[i], p);
    if (!takes || p->dtype != TSR_F32)
        return tsri_fast_decline(desc);
    update *k = tsri_fast_make(mem, desc, update_part, sizeof *k, count, count);
    TSRI_NEED(k);
    k->base.unit = 64;
    k->loop = k->base.isa->update[desc->op];
    k->nstates = desc->nin - 3;
    k->has = desc->attrs->update.has;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
