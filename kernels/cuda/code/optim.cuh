/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizers' arithmetic, that of kernels/update_t.h: in f64 for f64 parameters, else in f32.
 * Every product that is added to something is an fma said to be one, so that no compiler has a
 * choice and every kernel that makes an update makes the same bits.
 */
#ifndef TESSERA_KERNELS_CUDA_OPTIM_H
#define TESSERA_KERNELS_CUDA_OPTIM_H

#include "kernels/cuda/reduce.cuh"

/* One parameter's update. */
typedef struct tsri_update {
    void *p, *state[TSRI_UPDATE_STATES]; /* NULL: there is none */
    const void *g;
    const double *hyper;
    int64_t count;
    int has;
    bool wide; /* everything may be moved by whole packs */
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
template <typename A> static __device__ __forceinline__ A tsri_sign(A x)
{
    return x > 0 ? (A)1 : x < 0 ? (A)-1 : x;
}

#define REAL_FN template <typename REAL> static __device__ __forceinline__
#define SCALAR REAL
#define num(c) (c)
#define mad(a, b, c) tsri_fma(a, b, c)
#define root(x) tsri_root(x)
#define sign(x) tsri_sign(x)
#define UPDATE(name) tsri_update_##name
#include "kernels/update_t.h"
#undef REAL_FN
#undef SCALAR
#undef num
#undef mad
#undef root
#undef sign
#undef UPDATE

/* The update by an op's rule, which is a constant of every caller; its numbers are read once, into
 * memory that the block shares. */
template <int OP> static constexpr int tsri_update_states()
{
#define CASE(KIND, name, flops, states, ...) \
    if (OP == TSRI_OP_##KIND)                \
        return states;
    TSRI_UPDATE_LIST(CASE)
#undef CASE
    return 0;
}
template <int OP, typename A> struct tsri_update_rule {
    enum { STATES = tsri_update_states<OP>() };
    A c[TSRI_HYPER_COUNT];
    bool skips;

    __device__ void prepare(const tsri_update &u)
    {
        for (int i = 0; i < TSRI_HYPER_COUNT; i++)
            c[i] = (A)u.hyper[i];
        skips = u.hyper[TSRI_HYPER_SKIP] != 0;
    }
    __device__ __forceinline__ void update(A &p, A *state, int has, A g) const
    {
        g = tsri_update_begin<A>(c, &p, g);
#define CASE(KIND, name, ...) \
    if (OP == TSRI_OP_##KIND) \
        tsri_update_##name<A>(c, &p, state, has, g);
        TSRI_UPDATE_LIST(CASE)
#undef CASE
    }
};

/* Describes the update `desc` of these buffers. */
static inline tsri_update tsri_update_of(const tsri_kernel_desc *d, void *const *in,
                                         void *const *out)
{
    tsri_update u = {};
    u.p = out[0];
    u.has = d->attrs->update.has;
    for (int s = 0, o = 1; s < TSRI_UPDATE_STATES; s++)
        if (u.has >> s & 1)
            u.state[s] = out[o++];
    u.g = in[d->nin - 2];
    u.hyper = (const double *)in[d->nin - 1];
    u.count = tsri_cuda_count(&d->out[0]);
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
