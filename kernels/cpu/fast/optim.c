/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers' updates, one pass over flat f32 buffers, in place. */
#include "kernels/cpu/fast/fast.h"

#include <math.h>

typedef struct update {
    tsri_fast base;
    tsri_attrs attrs;
    int state; /* operands between p and g */
} update;

static void sgd_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const update *k = (const update *)f;
    const double *hyper = p->in[k->state + 2];
    const tsri_fast_sgd sgd = {
        .p = p->out[0],
        .v = k->state ? p->out[1] : NULL,
        .g = p->in[k->state + 1],
        .lr = (float)hyper[TSRI_HYPER_LR],
        .momentum = (float)k->attrs.sgd.momentum,
        .gain = (float)(1 - k->attrs.sgd.dampening),
        .weight_decay = (float)k->attrs.sgd.weight_decay,
        .nesterov = k->attrs.sgd.nesterov,
        .first = hyper[TSRI_HYPER_STEP] == 1,
    };
    f->isa->sgd(&sgd, p->begin, p->end);
}

static void adam_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const update *k = (const update *)f;
    const double *hyper = p->in[k->state + 2], lr = hyper[TSRI_HYPER_LR];
    const double step = hyper[TSRI_HYPER_STEP], wd = k->attrs.adam.weight_decay;
    const double beta1 = k->attrs.adam.beta1, beta2 = k->attrs.adam.beta2;
    const tsri_fast_adam adam = {
        .p = p->out[0],
        .m = p->out[1],
        .v = p->out[2],
        .g = p->in[k->state + 1],
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
    f->isa->adam(&adam, p->begin, p->end);
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
    update *k = tsri_fast_make(mem, desc->op == TSRI_OP_SGD ? sgd_part : adam_part, sizeof *k,
                               count, count);
    TSRI_NEED(k);
    k->base.unit = 64;
    k->attrs = *desc->attrs;
    k->state = desc->nin - 3;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
