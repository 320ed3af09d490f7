/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' updates, one pass over flat f32 buffers, in place. */
#include "kernels/cpu/fast/fast.h"

typedef struct update {
    tsri_fast base;
    tsri_fast_update_fn *loop;
    int nstates, has;
} update;

/* Elements [begin, end), the gradient of element 0 being g[0]. */
static void update_some(const update *k, void *const *in, void *const *out, const float *g,
                        int64_t begin, int64_t end)
{
    const double *hyper = in[k->nstates + 2];
    if (hyper[TSRI_HYPER_SKIP] != 0)
        return;
    tsri_fast_update u = {.p = out[0], .g = g, .has = k->has};
    for (int i = 0, at = 1; i < TSRI_UPDATE_STATES; i++)
        if (k->has >> i & 1)
            u.s[i] = out[at++];
    for (int i = 0; i < TSRI_HYPER_COUNT; i++)
        u.c[i] = (float)hyper[i];
    k->loop(&u, begin, end);
}

static void update_part(const tsri_fast *f, const tsri_fast_part *part)
{
    const update *k = (const update *)f;
    update_some(k, part->in, part->out, part->in[k->nstates + 1], part->begin, part->end);
}

/* The gradients are only of these elements. */
static void update_piece(const tsri_kernel *kernel, void *const *in, void *const *out,
                         int64_t first, int64_t n, const void *g)
{
    const update *k = (const update *)(const void *)kernel;
    void *at[1 + TSRI_UPDATE_STATES];
    for (int i = 0; i <= k->nstates; i++)
        at[i] = (float *)out[i] + first;
    update_some(k, in, at, g, 0, n);
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
    k->base.base.update = update_piece;
    k->loop = k->base.isa->update[desc->op];
    k->nstates = desc->nin - 3;
    k->has = desc->attrs->update.has;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
