/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers, in place. The formulas are those of torch.optim (SGD, Adam, AdamW), computed in the
 * parameter's dtype as there; scalars are prepared in f64 and rounded once. */
#include "kernels/cpu/ref/ref.h"

#include <math.h>

/* The walk is over the operands but hyper, in their order; results are in place. */
#define SGD(T, name)                                                                      \
    static void name(void *arg, const tsri_ref_row *r)                                    \
    {                                                                                     \
        const tsri_ref_job *j = arg;                                                      \
        const tsri_attrs *at = &j->ref->attrs;                                            \
        const double *hyper = j->in[j->ref->desc.nin - 1];                                \
        const bool momentum = j->ref->desc.nin == 4, first = hyper[TSRI_HYPER_STEP] == 1; \
        const int og = momentum ? 2 : 1;                                                  \
        const T lr = (T)hyper[TSRI_HYPER_LR], decay = (T)at->sgd.weight_decay;            \
        const T mom = (T)at->sgd.momentum, damp = (T)(1 - at->sgd.dampening);             \
        T *p = (T *)j->out[0] + r->off[0];                                                \
        T *v = momentum ? (T *)j->out[1] + r->off[1] : NULL;                              \
        const T *grad = (const T *)j->in[og] + r->off[og];                                \
        for (int64_t i = 0; i < r->n; i++) {                                              \
            T *pi = p + i * r->step[0], g = grad[i * r->step[og]];                        \
            if (at->sgd.weight_decay != 0)                                                \
                g += decay * *pi;                                                         \
            if (momentum) {                                                               \
                T *vi = v + i * r->step[1];                                               \
                *vi = first ? g : mom * *vi + damp * g;                                   \
                g = at->sgd.nesterov ? g + mom * *vi : *vi;                               \
            }                                                                             \
            *pi -= lr * g;                                                                \
        }                                                                                 \
    }
SGD(float, sgd_f32)
SGD(double, sgd_f64)

#define ADAM(T, name)                                                                       \
    static void name(void *arg, const tsri_ref_row *r)                                      \
    {                                                                                       \
        const tsri_ref_job *j = arg;                                                        \
        const tsri_attrs *at = &j->ref->attrs;                                              \
        const double *hyper = j->in[4];                                                     \
        const double lr = hyper[TSRI_HYPER_LR], step = hyper[TSRI_HYPER_STEP];              \
        const double b1 = at->adam.beta1, b2 = at->adam.beta2, wd = at->adam.weight_decay;  \
        const T move = (T)(lr / (1 - pow(b1, step)));                                       \
        const T correct = (T)sqrt(1 - pow(b2, step)), eps = (T)at->adam.eps;                \
        const T keep2 = (T)b2, take1 = (T)(1 - b1), take2 = (T)(1 - b2);                    \
        const T shrink = (T)(1 - lr * wd), decay = (T)wd;                                   \
        T *p = (T *)j->out[0] + r->off[0];                                                  \
        T *m = (T *)j->out[1] + r->off[1], *v = (T *)j->out[2] + r->off[2];                 \
        const T *grad = (const T *)j->in[3] + r->off[3];                                    \
        for (int64_t i = 0; i < r->n; i++) {                                                \
            T *pi = p + i * r->step[0], *mi = m + i * r->step[1], *vi = v + i * r->step[2]; \
            T g = grad[i * r->step[3]];                                                     \
            if (wd != 0 && at->adam.decoupled)                                              \
                *pi *= shrink;                                                              \
            else if (wd != 0)                                                               \
                g += decay * *pi;                                                           \
            *mi += take1 * (g - *mi);                                                       \
            *vi = *vi * keep2 + take2 * g * g;                                              \
            *pi -= move * *mi / ((T)sqrt((double)*vi) / correct + eps);                     \
        }                                                                                   \
    }
ADAM(float, adam_f32)
ADAM(double, adam_f64)

tsr_status tsri_ref_sgd(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool f32 = d->out[0].dtype == TSR_F32;
    const int nops = d->nin - 1;
    if (!tsri_ref_is_float(d->out[0].dtype) || d->in[nops].dtype != TSR_F64 ||
        !tsri_ref_alike(d, 0, nops))
        return tsri_ref_decline(d);
    const int64_t *stride[TSRI_REF_OPS];
    for (int i = 0; i < nops; i++)
        stride[i] = d->in[i].stride;
    tsri_ref_row_fn *row = d->op == TSRI_OP_SGD ? f32 ? sgd_f32 : sgd_f64
                           : f32                ? adam_f32
                                                : adam_f64;
    return tsri_ref_create_rows(mem, d, row, nops, stride, out_kernel);
}
TSRI_REF_SAME(adam, sgd);
