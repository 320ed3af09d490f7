/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers, in place. The formulas are those of torch.optim (SGD, Adam, AdamW), computed in the
 * parameter's dtype as there; scalars are prepared in f64 and rounded once. */
#include "kernels/cpu/ref/ref.h"

#include <math.h>

/* in: operands by the walk (op 1 + i), results are in place. */
typedef struct job {
    const tsri_ref *ref;
    void *const *out;
    const void *g;
    const double *hyper;
} job;

#define SGD(T, name)                                                                         \
    static void name(void *arg, const tsri_ref_row *r)                                       \
    {                                                                                        \
        const job *j = arg;                                                                  \
        const tsri_attrs *at = &j->ref->attrs;                                               \
        const bool momentum = j->ref->desc.nin == 4, first = j->hyper[TSRI_HYPER_STEP] == 1; \
        const int og = momentum ? 3 : 2;                                                     \
        const T lr = (T)j->hyper[TSRI_HYPER_LR], decay = (T)at->sgd.weight_decay;            \
        const T mom = (T)at->sgd.momentum, damp = (T)(1 - at->sgd.dampening);                \
        T *p = (T *)j->out[0] + r->off[1];                                                   \
        T *v = momentum ? (T *)j->out[1] + r->off[2] : NULL;                                 \
        const T *grad = (const T *)j->g + r->off[og];                                        \
        for (int64_t i = 0; i < r->n; i++) {                                                 \
            T *pi = p + i * r->step[1], g = grad[i * r->step[og]];                           \
            if (at->sgd.weight_decay != 0)                                                   \
                g += decay * *pi;                                                            \
            if (momentum) {                                                                  \
                T *vi = v + i * r->step[2];                                                  \
                *vi = first ? g : mom * *vi + damp * g;                                      \
                g = at->sgd.nesterov ? g + mom * *vi : *vi;                                  \
            }                                                                                \
            *pi -= lr * g;                                                                   \
        }                                                                                    \
    }
SGD(float, sgd_f32)
SGD(double, sgd_f64)

/* sqrt of T in T. */
static inline float root_f32(float x)
{
    return sqrtf(x);
}

static inline double root_f64(double x)
{
    return sqrt(x);
}

#define ADAM(T, name, root)                                                                 \
    static void name(void *arg, const tsri_ref_row *r)                                      \
    {                                                                                       \
        const job *j = arg;                                                                 \
        const tsri_attrs *at = &j->ref->attrs;                                              \
        const double lr = j->hyper[TSRI_HYPER_LR], step = j->hyper[TSRI_HYPER_STEP];        \
        const double b1 = at->adam.beta1, b2 = at->adam.beta2, wd = at->adam.weight_decay;  \
        const T move = (T)(lr / (1 - pow(b1, step)));                                       \
        const T correct = (T)sqrt(1 - pow(b2, step)), eps = (T)at->adam.eps;                \
        const T keep2 = (T)b2, take1 = (T)(1 - b1), take2 = (T)(1 - b2);                    \
        const T shrink = (T)(1 - lr * wd), decay = (T)wd;                                   \
        T *p = (T *)j->out[0] + r->off[1];                                                  \
        T *m = (T *)j->out[1] + r->off[2], *v = (T *)j->out[2] + r->off[3];                 \
        const T *grad = (const T *)j->g + r->off[4];                                        \
        for (int64_t i = 0; i < r->n; i++) {                                                \
            T *pi = p + i * r->step[1], *mi = m + i * r->step[2], *vi = v + i * r->step[3]; \
            T g = grad[i * r->step[4]];                                                     \
            if (wd != 0 && at->adam.decoupled)                                              \
                *pi *= shrink;                                                              \
            else if (wd != 0)                                                               \
                g += decay * *pi;                                                           \
            *mi += take1 * (g - *mi);                                                       \
            *vi = *vi * keep2 + take2 * g * g;                                              \
            *pi -= move * *mi / (root(*vi) / correct + eps);                                \
        }                                                                                   \
    }
ADAM(float, adam_f32, root_f32)
ADAM(double, adam_f64, root_f64)

static tsr_status optim_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    int nin = ref->desc.nin;
    bool f32 = ref->desc.out[0].dtype == TSR_F32, adam = ref->desc.op == TSRI_OP_ADAM;
    job j = {ref, out, in[nin - 2], in[nin - 1]};
    tsri_ref_iter_run(&ref->iter,
                      adam  ? f32 ? adam_f32 : adam_f64
                      : f32 ? sgd_f32
                            : sgd_f64,
                      &j, true);
    return TSR_OK;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_ref_is_float(d->out[0].dtype) || d->in[d->nin - 1].dtype != TSR_F64)
        return tsri_ref_decline(d);
    for (int i = 0; i < d->nin - 1; i++)
        if (d->in[i].dtype != d->out[0].dtype)
            return tsri_ref_decline(d);
    tsri_ref *ref = tsri_ref_make(mem, d, optim_run, sizeof *ref);
    TSRI_NEED(ref);
    tsri_ref_iter_init(&ref->iter, d->out[0].ndim, d->out[0].shape);
    tsri_ref_iter_push(&ref->iter, d->out[0].stride);
    for (int i = 0; i < d->nin - 1; i++) /* all but hyper */
        tsri_ref_iter_push(&ref->iter, d->in[i].stride);
    tsri_ref_iter_finish(&ref->iter);
    *out_kernel = &ref->base;
    return TSR_OK;
}

tsr_status tsri_ref_sgd(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}

tsr_status tsri_ref_adam(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}
