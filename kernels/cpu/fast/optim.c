/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' updates, one pass over flat f32 buffers, in place. */
#include "kernels/cpu/fast/fast.h"

#include <math.h>

typedef struct update {
    tsri_fast base;
    tsri_attrs attrs;
    int64_t count;
    int state; /* operands between p and g */
} update;

typedef struct job {
    const update *k;
    tsri_fast_sgd sgd;
    tsri_fast_adam adam;
} job;

static void sgd_part(void *arg, int part)
{
    const job *j = arg;
    const tsri_fast *f = &j->k->base;
    f->isa->sgd(&j->sgd, tsri_fast_cut(j->k->count, f->threads, part, 64),
                tsri_fast_cut(j->k->count, f->threads, part + 1, 64));
}

static void adam_part(void *arg, int part)
{
    const job *j = arg;
    const tsri_fast *f = &j->k->base;
    f->isa->adam(&j->adam, tsri_fast_cut(j->k->count, f->threads, part, 64),
                 tsri_fast_cut(j->k->count, f->threads, part + 1, 64));
}

static tsr_status sgd_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                          void *scratch)
{
    (void)scratch;
    const update *k = (const update *)(const void *)kernel;
    const double *hyper = in[k->state + 2];
    job j = {.k = k};
    j.sgd = (tsri_fast_sgd){
        .p = out[0],
        .v = k->state ? out[1] : NULL,
        .g = in[k->state + 1],
        .lr = (float)hyper[TSRI_HYPER_LR],
        .momentum = (float)k->attrs.sgd.momentum,
        .gain = (float)(1 - k->attrs.sgd.dampening),
        .weight_decay = (float)k->attrs.sgd.weight_decay,
        .nesterov = k->attrs.sgd.nesterov,
        .first = hyper[TSRI_HYPER_STEP] == 1,
    };
    tsri_fast_team(k->base.threads, sgd_part, &j);
    return TSR_OK;
}

static tsr_status adam_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const update *k = (const update *)(const void *)kernel;
    const double *hyper = in[k->state + 2], lr = hyper[TSRI_HYPER_LR];
    const double step = hyper[TSRI_HYPER_STEP], wd = k->attrs.adam.weight_decay;
    const double beta1 = k->attrs.adam.beta1, beta2 = k->attrs.adam.beta2;
    job j = {.k = k};
    j.adam = (tsri_fast_adam){
        .p = out[0],
        .m = out[1],
        .v = out[2],
        .g = in[k->state + 1],
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .gain1 = (float)(1 - beta1),
        .gain2 = (float)(1 - beta2),
        .eps = (float)k->attrs.adam.eps,
        .weight_decay = k->attrs.adam.decoupled ? 0.0f : (float)wd,
        .keep = k->attrs.adam.decoupled ? (float)(1 - lr * wd) : 1.0f,
        .step = (float)(lr / (1 - pow(beta1, step))),
        .root = (float)(1 / sqrt(1 - pow(beta2, step))),
    };
    tsri_fast_team(k->base.threads, adam_part, &j);
    return TSR_OK;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *desc, int state,
                         tsri_fast_run_fn *run, tsri_kernel **out_kernel)
{
    const tsri_arg *p = &desc->out[0], *hyper = &desc->in[desc->nin - 1];
    bool takes = hyper->dtype == TSR_F64 && tsri_fast_is_row_major(hyper) && tsri_fast_count(p);
    for (int i = 0; i < desc->nin - 1; i++)
        takes = takes && desc->in[i].dtype == TSR_F32 && tsri_fast_alike(&desc->in[i], p);
    if (!takes || p->dtype != TSR_F32)
        return tsri_fast_decline(desc);
    update *k = tsri_fast_make(mem, run, sizeof *k, tsri_fast_count(p));
    TSRI_NEED(k);
    k->attrs = *desc->attrs;
    k->count = tsri_fast_count(p);
    k->state = state;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_sgd_update(tsri_mem *mem, const tsri_kernel_desc *desc,
                                tsri_kernel **out_kernel)
{
    return create(mem, desc, desc->nin == 4 ? 1 : 0, sgd_run, out_kernel);
}

tsr_status tsri_fast_adam_update(tsri_mem *mem, const tsri_kernel_desc *desc,
                                 tsri_kernel **out_kernel)
{
    return create(mem, desc, 2, adam_run, out_kernel);
}
