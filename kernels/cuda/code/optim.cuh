/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizers' arithmetic, that of torch.optim (SGD, Adam, AdamW): in f64 for f64 parameters,
 * else in f32; scalars are prepared in f64 and rounded once. Every product that is added to
 * something is an fma said to be one, so that no compiler has a choice and every kernel that makes
 * an update makes the same bits.
 */
#ifndef TESSERA_KERNELS_CUDA_OPTIM_H
#define TESSERA_KERNELS_CUDA_OPTIM_H

#include "kernels/cuda/reduce.cuh"

/* One parameter's update. */
typedef struct tsri_update {
    void *p, *state[2]; /* SGD: the momentum; Adam: the averages of g and of g^2 */
    const void *g;
    const double *hyper;
    int64_t count;
    int nstates;
    bool wide;   /* everything may be moved by whole packs */
    bool flag;   /* SGD: nesterov; Adam: decoupled */
    double a[4]; /* SGD: momentum, dampening, decay; Adam: beta1, beta2, eps, decay */
} tsri_update;

static __device__ __forceinline__ float tsri_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static __device__ __forceinline__ double tsri_fma(double a, double b, double c)
{
    return fma(a, b, c);
}
static __device__ __forceinline__ float tsri_root(float x)
{
    return sqrtf(x);
}
static __device__ __forceinline__ double tsri_root(double x)
{
    return sqrt(x);
}

template <typename A> struct tsri_sgd_rule {
    enum { STATES = 1 };
    A lr, decay, momentum, take;
    bool first, nesterov, moves; /* moves: there is a momentum */

    __device__ void prepare(const tsri_update &u)
    {
        lr = (A)u.hyper[TSRI_HYPER_LR];
        first = u.hyper[TSRI_HYPER_STEP] == 1;
        momentum = (A)u.a[0];
        take = (A)(1 - u.a[1]);
        decay = (A)u.a[2];
        nesterov = u.flag;
        moves = u.nstates > 0;
    }
    __device__ __forceinline__ void update(A &p, A *state, A g) const
    {
        if (decay != 0)
            g = tsri_fma(decay, p, g);
        if (moves) {
            state[0] = first ? g : tsri_fma(momentum, state[0], take * g);
            g = nesterov ? tsri_fma(momentum, state[0], g) : state[0];
        }
        p = tsri_fma(-lr, g, p);
    }
};

template <typename A> struct tsri_adam_rule {
    enum { STATES = 2 };
    A move, correct, eps, keep2, take1, take2, shrink, decay;

    __device__ void prepare(const tsri_update &u)
    {
        const double lr = u.hyper[TSRI_HYPER_LR], step = u.hyper[TSRI_HYPER_STEP];
        move = (A)(lr / (1 - pow(u.a[0], step)));
        correct = (A)sqrt(1 - pow(u.a[1], step));
        take1 = (A)(1 - u.a[0]);
        take2 = (A)(1 - u.a[1]);
        keep2 = (A)u.a[1];
        eps = (A)u.a[2];
        shrink = u.flag ? (A)(1 - lr * u.a[3]) : (A)1;
        decay = u.flag ? (A)0 : (A)u.a[3];
    }
    __device__ __forceinline__ void update(A &p, A *state, A g) const
    {
        p *= shrink;
        if (decay != 0)
            g = tsri_fma(decay, p, g);
        state[0] = tsri_fma(take1, g - state[0], state[0]);
        state[1] = tsri_fma(take2 * g, g, state[1] * keep2);
        p = tsri_fma(-move, state[0] / (tsri_root(state[1]) / correct + eps), p);
    }
};

/* Describes the update `desc` of these buffers. */
static inline tsri_update tsri_update_of(const tsri_kernel_desc *d, void *const *in,
                                         void *const *out)
{
    tsri_update u = {};
    u.p = out[0];
    u.nstates = d->nout - 1;
    for (int s = 0; s < u.nstates; s++)
        u.state[s] = out[1 + s];
    u.g = in[d->nin - 2];
    u.hyper = (const double *)in[d->nin - 1];
    u.count = tsri_cuda_count(&d->out[0]);
    if (d->op == TSRI_OP_SGD) {
        u.a[0] = d->attrs->sgd.momentum;
        u.a[1] = d->attrs->sgd.dampening;
        u.a[2] = d->attrs->sgd.weight_decay;
        u.flag = d->attrs->sgd.nesterov != 0;
    } else {
        u.a[0] = d->attrs->adam.beta1;
        u.a[1] = d->attrs->adam.beta2;
        u.a[2] = d->attrs->adam.eps;
        u.a[3] = d->attrs->adam.weight_decay;
        u.flag = d->attrs->adam.decoupled != 0;
    }
    return u;
}

/* Operands p, its states and g are floats, hyper is f64, results are of their operands' dtypes. */
static inline bool tsri_optim_takes(const tsri_kernel_desc *d)
{
    bool takes = d->in[d->nin - 1].dtype == TSR_F64;
    for (int i = 0; i < d->nin - 1; i++)
        takes = takes && tsri_cuda_is_float(d->in[i].dtype);
    for (int o = 0; o < d->nout; o++)
        takes = takes && d->out[o].dtype == d->in[o].dtype;
    return takes;
}

#endif
