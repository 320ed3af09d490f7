/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm's parts over rows as Ops of rows.cuh; formulas: src/core/op_list.h. Sums are f64, what
 * is made of them is computed in f64 once a row. */
#ifndef TESSERA_KERNELS_CUDA_LN_H
#define TESSERA_KERNELS_CUDA_LN_H

#include "kernels/cuda/rows.cuh"

/* gamma or beta; p is NULL where there is no such operand. */
typedef struct tsri_param {
    tsr_dtype dtype;
    const void *p;
} tsri_param;

/* Elements from `at` on; `none` where there is no such operand. One may be of any float dtype,
 * several are of T. */
template <typename T, int N>
static __device__ __forceinline__ void tsri_load_param(const tsri_param &g, int64_t at, float none,
                                                       tsri_acc<T> *v)
{
    typedef tsri_acc<T> A;
    if (!g.p) {
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = (A)none;
    } else if constexpr (N == 1) {
        v[0] = tsri_load_any<A>(g.dtype, g.p, at);
    } else {
        tsri_pack<T, N> pack;
        if (at % N == 0) {
            pack = tsri_load_pack<T, N>((const T *)g.p + at);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++)
                pack.v[j] = ((const T *)g.p)[at + j];
        }
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = tsri_to<A>(pack.v[j]);
    }
}

/* The statistics: two numbers a row, `step` apart. tsri_ln_op writes them, the others read them. */
typedef struct tsri_moments {
    double *p;
    int64_t step;
    double n, eps; /* features, global */
} tsri_moments;

/* The mean and 1/deviation of a row whose elements and squares sum to a and b. */
template <typename A>
static __device__ __forceinline__ void tsri_moments_from(const tsri_moments &s, double a, double b,
                                                         A *mean, A *rstd)
{
    const double m = a / s.n, var = b / s.n - m * m;
    *mean = (A)m;
    *rstd = (A)(1 / sqrt((var < 0 ? 0 : var) + s.eps));
}

template <typename A>
static __device__ __forceinline__ void tsri_moments_of(const tsri_moments &s, int64_t at, A *mean,
                                                       A *rstd)
{
    tsri_moments_from(s, s.p[at], s.p[at + s.step], mean, rstd);
}

/* Two f64 sums over a row, and where they go. */
struct tsri_two_sums {
    double a, b;

    template <int LANES> __device__ __forceinline__ void gather(void)
    {
        a = tsri_all<LANES, tsri_sum_fn>(a);
        b = tsri_all<LANES, tsri_sum_fn>(b);
    }
    template <int LANES> __device__ __forceinline__ void store(double *to, int64_t step)
    {
        gather<LANES>();
        if (tsri_lane<LANES>() == 0) {
            to[0] = a;
            to[step] = b;
        }
    }
};

/* The sums of a row's elements and of their squares. */
template <typename T> struct tsri_ln_sums_op : tsri_row_op<T> {
    typedef tsri_two_sums State;

    __device__ __forceinline__ State start(void) const
    {
        return State{0, 0};
    }
    template <int N, typename Row>
    __device__ __forceinline__ void add(State &s, const Row &, const tsri_pack<T, N> *v,
                                        const tsri_spot &) const
    {
#pragma unroll
        for (int j = 0; j < N; j++) {
            const double x = tsri_to<double>(v[0].v[j]);
            s.a += x;
            s.b += x * x;
        }
    }
};

/* Operands: x, then stats. */
template <typename T> struct tsri_ln_stats_op : tsri_ln_sums_op<T> {
    enum { INPUTS = 1, OPERANDS = 2, REDUCES = 1, MAPS = 0 };
    double *to;
    int64_t to_step;

    struct Row {};
    __device__ __forceinline__ void begin(Row &, int64_t, const int64_t *) const
    {
    }
    template <int LANES>
    __device__ __forceinline__ void finish(tsri_two_sums &s, Row &, int64_t, int64_t,
                                           const int64_t *at) const
    {
        s.store<LANES>(to + at[1], to_step);
    }
};

/* Operands: x, y, then stats, gamma, beta. */
template <typename T, typename Base> struct tsri_ln_y_op : Base {
    typedef tsri_acc<T> A;
    enum { INPUTS = 1, OPERANDS = 5, MAPS = 1, GAMMA = 3, BETA = 4 };
    tsri_moments stats;
    tsri_param gamma, beta;

    struct Row {
        A mean, rstd;
    };
    template <int N>
    __device__ __forceinline__ tsri_pack<T, N> map(const Row &row, const tsri_pack<T, N> *v,
                                                   const tsri_spot &spot) const
    {
        A g[N], b[N];
        tsri_load_param<T, N>(gamma, spot.gamma, 1, g);
        tsri_load_param<T, N>(beta, spot.beta, 0, b);
        tsri_pack<T, N> y;
#pragma unroll
        for (int j = 0; j < N; j++)
            y.v[j] = tsri_to<T>((tsri_to<A>(v[0].v[j]) - row.mean) * row.rstd * g[j] + b[j]);
        return y;
    }
};

template <typename T> struct tsri_ln_apply_op : tsri_ln_y_op<T, tsri_row_op<T>> {
    typedef typename tsri_ln_y_op<T, tsri_row_op<T>>::Row Row;
    enum { REDUCES = 0 };

    __device__ __forceinline__ void begin(Row &row, int64_t, const int64_t *at) const
    {
        tsri_moments_of(this->stats, at[2], &row.mean, &row.rstd);
    }
};

/* Rows that are whole here: their statistics, which are a result too, and y in one go. */
template <typename T> struct tsri_ln_op : tsri_ln_y_op<T, tsri_ln_sums_op<T>> {
    typedef typename tsri_ln_y_op<T, tsri_ln_sums_op<T>>::Row Row;
    enum { REDUCES = 1 };

    __device__ __forceinline__ void begin(Row &, int64_t, const int64_t *) const
    {
    }
    template <int LANES>
    __device__ __forceinline__ void finish(tsri_two_sums &s, Row &row, int64_t, int64_t,
                                           const int64_t *at) const
    {
        s.store<LANES>(this->stats.p + at[2], this->stats.step);
        tsri_moments_from(this->stats, s.a, s.b, &row.mean, &row.rstd);
    }
};

/* Shared by the two halves of the gradient of x, and by both at once: what a row is known by, and
 * its elements' part in the sums and in dx. */
template <typename T> struct tsri_ln_bwd_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    typedef tsri_two_sums State;
    tsri_moments stats;
    tsri_param gamma;

    struct Row {
        A mean, rstd, d0, d1;
    };
    __device__ __forceinline__ void set_sums(Row &row, double a, double b) const
    {
        row.d0 = (A)(a / stats.n);
        row.d1 = (A)(b / stats.n);
    }
    __device__ __forceinline__ State start(void) const
    {
        return State{0, 0};
    }
    template <int N>
    __device__ __forceinline__ void add(State &s, const Row &row, const tsri_pack<T, N> *v,
                                        const tsri_spot &spot) const
    {
        A scale[N];
        tsri_load_param<T, N>(gamma, spot.gamma, 1, scale);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const A g = tsri_to<A>(v[1].v[j]) * scale[j];
            s.a += (double)g;
            s.b += (double)(g * ((tsri_to<A>(v[0].v[j]) - row.mean) * row.rstd));
        }
    }
    template <int N>
    __device__ __forceinline__ tsri_pack<T, N> map(const Row &row, const tsri_pack<T, N> *v,
                                                   const tsri_spot &spot) const
    {
        A scale[N];
        tsri_load_param<T, N>(gamma, spot.gamma, 1, scale);
        tsri_pack<T, N> dx;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const A g = tsri_to<A>(v[1].v[j]) * scale[j];
            const A xhat = (tsri_to<A>(v[0].v[j]) - row.mean) * row.rstd;
            dx.v[j] = tsri_to<T>(row.rstd * (g - row.d0 - xhat * row.d1));
        }
        return dx;
    }
};

/* Operands: x, dy, then bstats, stats, gamma. */
template <typename T> struct tsri_ln_bwd_stats_op : tsri_ln_bwd_op<T> {
    typedef typename tsri_ln_bwd_op<T>::Row Row;
    enum { INPUTS = 2, OPERANDS = 5, REDUCES = 1, MAPS = 0, GAMMA = 4 };
    double *to;
    int64_t to_step;

    __device__ __forceinline__ void begin(Row &row, int64_t, const int64_t *at) const
    {
        tsri_moments_of(this->stats, at[3], &row.mean, &row.rstd);
    }
    template <int LANES>
    __device__ __forceinline__ void finish(tsri_two_sums &s, Row &, int64_t, int64_t,
                                           const int64_t *at) const
    {
        s.store<LANES>(to + at[2], to_step);
    }
};

/* Operands: x, dy, dx, then stats, bstats, gamma. */
template <typename T> struct tsri_ln_bwd_apply_op : tsri_ln_bwd_op<T> {
    typedef typename tsri_ln_bwd_op<T>::Row Row;
    enum { INPUTS = 2, OPERANDS = 6, REDUCES = 0, MAPS = 1, GAMMA = 5 };
    const double *sums;
    int64_t sums_step;

    __device__ __forceinline__ void begin(Row &row, int64_t, const int64_t *at) const
    {
        tsri_moments_of(this->stats, at[3], &row.mean, &row.rstd);
        this->set_sums(row, sums[at[4]], sums[at[4] + sums_step]);
    }
};

/* Rows that are whole here: their sums and dx in one go. Operands: x, dy, dx, then stats, gamma. */
template <typename T> struct tsri_ln_dx_op : tsri_ln_bwd_op<T> {
    typedef typename tsri_ln_bwd_op<T>::Row Row;
    enum { INPUTS = 2, OPERANDS = 5, REDUCES = 1, MAPS = 1, GAMMA = 4 };

    __device__ __forceinline__ void begin(Row &row, int64_t, const int64_t *at) const
    {
        tsri_moments_of(this->stats, at[3], &row.mean, &row.rstd);
    }
    template <int LANES>
    __device__ __forceinline__ void finish(tsri_two_sums &s, Row &row, int64_t, int64_t,
                                           const int64_t *) const
    {
        s.gather<LANES>();
        this->set_sums(row, s.a, s.b);
    }
};

/* --- on the host ------------------------------------------------------------------------------ */
/* Which operand of the desc is what; -1: none. An LN_APPLY without statistics makes them, as its
 * second result; a gradient without bstats makes its rows' sums. */
typedef struct tsri_ln_operands {
    int stats, gamma, beta, dy, bstats;
} tsri_ln_operands;

static inline bool tsri_ln_makes_stats(const tsri_kernel_desc *d)
{
    return d->op == TSRI_OP_LN_APPLY && d->nout > 1;
}

/* Whether a gradient of x gives those of gamma and beta too. */
static inline bool tsri_ln_makes_grads(const tsri_kernel_desc *d)
{
    return d->op == TSRI_OP_LN_BWD_APPLY && d->nout > 1;
}

static inline tsri_ln_operands tsri_ln_find(const tsri_kernel_desc *d)
{
    const bool scaled = d->attrs->ln.has_gamma && d->op != TSRI_OP_LN_PARAM_GRAD;
    tsri_ln_operands at;
    at.stats = d->op == TSRI_OP_LN_STATS || tsri_ln_makes_stats(d) ? -1 : 1;
    at.gamma = scaled && d->op != TSRI_OP_LN_STATS ? (at.stats < 0 ? 1 : 2) : -1;
    at.beta = d->op == TSRI_OP_LN_APPLY && d->attrs->ln.has_beta ? d->nin - 1 : -1;
    at.dy = 2 + scaled;
    at.bstats = d->nin > 3 + scaled ? 3 + scaled : -1;
    return at;
}

/* Returns whether x and the operands of its shape share one float dtype. gamma, beta and their
 * gradients may have any. */
static inline bool tsri_ln_takes(const tsri_kernel_desc *d)
{
    const tsr_dtype dtype = d->in[0].dtype;
    const tsri_ln_operands at = tsri_ln_find(d);
    bool takes = tsri_cuda_is_float(dtype);
    for (int i = 0; i < d->nin; i++)
        takes = takes && tsri_cuda_is_float(d->in[i].dtype);
    for (int i = 0; i < d->nout; i++)
        takes = takes && tsri_cuda_is_float(d->out[i].dtype);
    if (at.stats >= 0)
        takes = takes && d->in[at.stats].dtype == TSR_F64;
    switch (d->op) {
    case TSRI_OP_LN_STATS:
        return takes && d->out[0].dtype == TSR_F64;
    case TSRI_OP_LN_APPLY:
        return takes && d->out[0].dtype == dtype &&
               (!tsri_ln_makes_stats(d) || d->out[1].dtype == TSR_F64);
    case TSRI_OP_LN_BWD_STATS:
        return takes && d->in[at.dy].dtype == dtype && d->out[0].dtype == TSR_F64;
    case TSRI_OP_LN_BWD_APPLY:
        return takes && d->in[at.dy].dtype == dtype && d->out[0].dtype == dtype &&
               (at.bstats < 0 || d->in[at.bstats].dtype == TSR_F64);
    default:
        return takes && d->in[2].dtype == dtype;
    }
}

static inline int64_t tsri_ln_pair_step(const tsri_arg *stats)
{
    return stats->stride[stats->ndim - 1];
}

static inline tsri_moments tsri_ln_moments_at(const tsri_kernel_desc *d, const tsri_arg *stats,
                                              void *p)
{
    return tsri_moments{(double *)p, tsri_ln_pair_step(stats), (double)d->attrs->ln.count,
                        d->attrs->ln.eps};
}

static inline tsri_moments tsri_ln_moments(const tsri_kernel_desc *d, void *const *in)
{
    return tsri_ln_moments_at(d, &d->in[1], in[1]);
}

static inline tsri_param tsri_ln_param(const tsri_kernel_desc *d, void *const *in, int operand)
{
    return operand < 0 ? tsri_param{TSR_F32, NULL} : tsri_param{d->in[operand].dtype, in[operand]};
}

/* Makes the Op of `d` (of element type T) from its buffers and gives it to `launch`. */
template <typename T, typename L>
static void tsri_ln_dispatch(const tsri_kernel_desc *d, void *const *in, void *const *out,
                             const L &launch)
{
    const tsri_ln_operands at = tsri_ln_find(d);
    const tsri_param gamma = tsri_ln_param(d, in, at.gamma);
    const T *x = (const T *)in[0];
    switch (d->op) {
    case TSRI_OP_LN_STATS:
        launch(tsri_ln_stats_op<T>{
            {{{x, NULL}, NULL}}, (double *)out[0], tsri_ln_pair_step(&d->out[0])});
        break;
    case TSRI_OP_LN_APPLY: {
        const tsri_row_op<T> op = {{x, NULL}, (T *)out[0]};
        const tsri_param beta = tsri_ln_param(d, in, at.beta);
        if (at.stats < 0)
            launch(tsri_ln_op<T>{{{op}, tsri_ln_moments_at(d, &d->out[1], out[1]), gamma, beta}});
        else
            launch(tsri_ln_apply_op<T>{{op, tsri_ln_moments(d, in), gamma, beta}});
        break;
    }
    case TSRI_OP_LN_BWD_STATS:
        launch(tsri_ln_bwd_stats_op<T>{
            {{{x, (const T *)in[at.dy]}, NULL}, tsri_ln_moments(d, in), gamma},
            (double *)out[0],
            tsri_ln_pair_step(&d->out[0])});
        break;
    default: {
        const tsri_ln_bwd_op<T> op = {
            {{x, (const T *)in[at.dy]}, (T *)out[0]}, tsri_ln_moments(d, in), gamma};
        if (at.bstats < 0)
            launch(tsri_ln_dx_op<T>{op});
        else
            launch(tsri_ln_bwd_apply_op<T>{op, (const double *)in[at.bstats],
                                           tsri_ln_pair_step(&d->in[at.bstats])});
        break;
    }
    }
}

/* The operands in the Ops' order, NULL where there is none. The first *full have the shape of x;
 * then come statistics, which have the rows, and gamma and beta, which broadcast to x. */
static inline int tsri_ln_list(const tsri_kernel_desc *d, const tsri_arg **to, int *full,
                               int *nstats)
{
    const tsri_ln_operands at = tsri_ln_find(d);
    const tsri_arg *gamma = at.gamma < 0 ? NULL : &d->in[at.gamma];
    int n = 0;
    to[n++] = &d->in[0];
    *nstats = 1;
    switch (d->op) {
    case TSRI_OP_LN_STATS:
        *full = 1;
        to[n++] = &d->out[0];
        break;
    case TSRI_OP_LN_APPLY:
        *full = 2;
        to[n++] = &d->out[0];
        to[n++] = at.stats < 0 ? &d->out[1] : &d->in[at.stats];
        to[n++] = gamma;
        to[n++] = at.beta < 0 ? NULL : &d->in[at.beta];
        break;
    case TSRI_OP_LN_BWD_STATS:
        *full = *nstats = 2;
        to[n++] = &d->in[at.dy];
        to[n++] = &d->out[0];
        to[n++] = &d->in[1];
        to[n++] = gamma;
        break;
    default:
        *full = 3;
        *nstats = at.bstats < 0 ? 1 : 2;
        to[n++] = &d->in[at.dy];
        to[n++] = &d->out[0];
        to[n++] = &d->in[1];
        if (at.bstats >= 0)
            to[n++] = &d->in[at.bstats];
        to[n++] = gamma;
        break;
    }
    return n;
}

#endif
