/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and its parts as Ops of rows.cuh; formulas: src/core/op_list.h. */
#ifndef TESSERA_KERNELS_CUDA_SOFTMAX_H
#define TESSERA_KERNELS_CUDA_SOFTMAX_H

#include "kernels/cuda/rows.cuh"

/* A running maximum, and the sum of exp(x - maximum) so far: one pass over a row gives both. */
template <typename A> struct tsri_exp_sum {
    A max, sum;

    __device__ __forceinline__ void clear(void)
    {
        max = -tsri_infinity<A>();
        sum = 0;
    }
    /* The number that exp is taken relative to: while nothing but -inf was seen, 0 does not spoil
     * the sum. */
    static __device__ __forceinline__ A base(A max)
    {
        return max == -tsri_infinity<A>() ? (A)0 : max;
    }
    template <int N> __device__ __forceinline__ void add(const A *v)
    {
        A top = max;
#pragma unroll
        for (int j = 0; j < N; j++)
            top = tsri_top_fn::of(top, v[j]);
        if (top > max) {
            sum *= tsri_exp(max - top);
            max = top;
        }
        const A b = base(max);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum += tsri_exp(v[j] - b);
    }
    /* Over all lanes. A row of n > 0 elements that are all -inf has no sum: NaN. */
    template <int LANES> __device__ __forceinline__ void gather(int64_t n)
    {
        const A top = tsri_all<LANES, tsri_top_fn>(max);
        if (max != top && max != -tsri_infinity<A>())
            sum *= tsri_exp(max - top);
        sum = tsri_all<LANES, tsri_sum_fn>(sum);
        max = top;
        if (n > 0 && max == -tsri_infinity<A>())
            sum = max - max;
    }
};

/* Operands: x, y. */
template <typename T> struct tsri_softmax_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    typedef tsri_exp_sum<A> State;
    enum { INPUTS = 1, OPERANDS = 2, REDUCES = 1, MAPS = 1 };
    bool log;

    struct Row {
        A max, scale; /* log: what is subtracted too */
    };
    __device__ __forceinline__ void begin(Row &, int64_t, const int64_t *) const
    {
    }
    __device__ __forceinline__ State start(void) const
    {
        State s;
        s.clear();
        return s;
    }
    template <int N>
    __device__ __forceinline__ void add(State &s, const Row &, const tsri_pack<T, N> *v,
                                        const tsri_spot &) const
    {
        A x[N];
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = tsri_to<A>(v[0].v[j]);
        s.template add<N>(x);
    }
    template <int LANES>
    __device__ __forceinline__ void finish(State &s, Row &row, int64_t, int64_t n,
                                           const int64_t *) const
    {
        s.template gather<LANES>(n);
        row.max = s.max;
        row.scale = log ? tsri_log(s.sum) : 1 / s.sum;
    }
    template <int N>
    __device__ __forceinline__ tsri_pack<T, N> map(const Row &row, const tsri_pack<T, N> *v,
                                                   const tsri_spot &) const
    {
        tsri_pack<T, N> y;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const A x = tsri_to<A>(v[0].v[j]) - row.max;
            y.v[j] = tsri_to<T>(log ? x - row.scale : tsri_exp(x) * row.scale);
        }
        return y;
    }
};

/* Operands: x, then sum, m. */
template <typename T> struct tsri_softmax_sum_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    typedef A State;
    enum { INPUTS = 1, OPERANDS = 3, REDUCES = 1, MAPS = 0 };
    T *sum;
    const T *m;

    struct Row {
        A max;
    };
    __device__ __forceinline__ void begin(Row &row, int64_t, const int64_t *at) const
    {
        row.max = tsri_to<A>(m[at[2]]);
    }
    __device__ __forceinline__ State start(void) const
    {
        return 0;
    }
    template <int N>
    __device__ __forceinline__ void add(State &s, const Row &row, const tsri_pack<T, N> *v,
                                        const tsri_spot &) const
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            s += tsri_exp(tsri_to<A>(v[0].v[j]) - row.max);
    }
    template <int LANES>
    __device__ __forceinline__ void finish(State &s, Row &, int64_t, int64_t,
                                           const int64_t *at) const
    {
        s = tsri_all<LANES, tsri_sum_fn>(s);
        if (tsri_lane<LANES>() == 0)
            sum[at[1]] = tsri_to<T>(s);
    }
};

/* Operands: x, y, m, sum. */
template <typename T> struct tsri_softmax_finish_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    enum { INPUTS = 1, OPERANDS = 4, REDUCES = 0, MAPS = 1 };
    const T *m, *sum;
    bool log;

    struct Row {
        A max, scale;
    };
    __device__ __forceinline__ void begin(Row &row, int64_t, const int64_t *at) const
    {
        const A s = tsri_to<A>(sum[at[3]]);
        row.max = tsri_to<A>(m[at[2]]);
        row.scale = log ? tsri_log(s) : 1 / s;
    }
    template <int N>
    __device__ __forceinline__ tsri_pack<T, N> map(const Row &row, const tsri_pack<T, N> *v,
                                                   const tsri_spot &) const
    {
        tsri_pack<T, N> y;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const A x = tsri_to<A>(v[0].v[j]) - row.max;
            y.v[j] = tsri_to<T>(log ? x - row.scale : tsri_exp(x) * row.scale);
        }
        return y;
    }
};

/* The gradient of an element. */
template <typename A>
static __device__ __forceinline__ A tsri_softmax_slope(bool log, A p, A g, A d)
{
    return log ? g - tsri_exp(p) * d : p * (g - d);
}

/* Operands: y, dy, dx. */
template <typename T> struct tsri_softmax_dx_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    typedef A State;
    enum { INPUTS = 2, OPERANDS = 3, REDUCES = 1, MAPS = 1 };
    bool log;

    struct Row {
        A dot;
    };
    __device__ __forceinline__ void begin(Row &, int64_t, const int64_t *) const
    {
    }
    __device__ __forceinline__ State start(void) const
    {
        return 0;
    }
    template <int N>
    __device__ __forceinline__ void add(State &s, const Row &, const tsri_pack<T, N> *v,
                                        const tsri_spot &) const
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            s += tsri_to<A>(v[1].v[j]) * (log ? (A)1 : tsri_to<A>(v[0].v[j]));
    }
    template <int LANES>
    __device__ __forceinline__ void finish(State &s, Row &row, int64_t, int64_t,
                                           const int64_t *) const
    {
        row.dot = tsri_all<LANES, tsri_sum_fn>(s);
    }
    template <int N>
    __device__ __forceinline__ tsri_pack<T, N> map(const Row &row, const tsri_pack<T, N> *v,
                                                   const tsri_spot &) const
    {
        tsri_pack<T, N> dx;
#pragma unroll
        for (int j = 0; j < N; j++)
            dx.v[j] = tsri_to<T>(
                tsri_softmax_slope(log, tsri_to<A>(v[0].v[j]), tsri_to<A>(v[1].v[j]), row.dot));
        return dx;
    }
};

/* Operands: y, dy, then d. */
template <typename T> struct tsri_softmax_dot_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    typedef A State;
    enum { INPUTS = 2, OPERANDS = 3, REDUCES = 1, MAPS = 0 };
    T *d;

    struct Row {};
    __device__ __forceinline__ void begin(Row &, int64_t, const int64_t *) const
    {
    }
    __device__ __forceinline__ State start(void) const
    {
        return 0;
    }
    template <int N>
    __device__ __forceinline__ void add(State &s, const Row &, const tsri_pack<T, N> *v,
                                        const tsri_spot &) const
    {
#pragma unroll
        for (int j = 0; j < N; j++)
            s += tsri_to<A>(v[0].v[j]) * tsri_to<A>(v[1].v[j]);
    }
    template <int LANES>
    __device__ __forceinline__ void finish(State &s, Row &, int64_t, int64_t,
                                           const int64_t *at) const
    {
        s = tsri_all<LANES, tsri_sum_fn>(s);
        if (tsri_lane<LANES>() == 0)
            d[at[2]] = tsri_to<T>(s);
    }
};

/* Operands: y, dy, dx, d. */
template <typename T> struct tsri_softmax_bwd_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    enum { INPUTS = 2, OPERANDS = 4, REDUCES = 0, MAPS = 1 };
    const T *d;
    bool log;

    struct Row {
        A dot;
    };
    __device__ __forceinline__ void begin(Row &row, int64_t, const int64_t *at) const
    {
        row.dot = tsri_to<A>(d[at[3]]);
    }
    template <int N>
    __device__ __forceinline__ tsri_pack<T, N> map(const Row &row, const tsri_pack<T, N> *v,
                                                   const tsri_spot &) const
    {
        tsri_pack<T, N> dx;
#pragma unroll
        for (int j = 0; j < N; j++)
            dx.v[j] = tsri_to<T>(
                tsri_softmax_slope(log, tsri_to<A>(v[0].v[j]), tsri_to<A>(v[1].v[j]), row.dot));
        return dx;
    }
};

/* Makes the Op of `d` (of element type T) from its buffers and gives it to `launch`. */
template <typename T, typename L>
static void tsri_softmax_dispatch(const tsri_kernel_desc *d, void *const *in, void *const *out,
                                  const L &launch)
{
    const bool log = d->attrs->softmax.log != 0;
    const T *a = (const T *)in[0], *b = d->nin > 1 ? (const T *)in[1] : NULL;
    const T *c = d->nin > 2 ? (const T *)in[2] : NULL;
    T *y = (T *)out[0];
    switch (d->op) {
    case TSRI_OP_SOFTMAX:
        launch(tsri_softmax_op<T>{{{a, NULL}, y}, log});
        break;
    case TSRI_OP_SOFTMAX_DX:
        launch(tsri_softmax_dx_op<T>{{{a, b}, y}, log});
        break;
    case TSRI_OP_SOFTMAX_SUM:
        launch(tsri_softmax_sum_op<T>{{{a, NULL}, NULL}, y, b});
        break;
    case TSRI_OP_SOFTMAX_FINISH:
        launch(tsri_softmax_finish_op<T>{{{a, NULL}, y}, b, c, log});
        break;
    case TSRI_OP_SOFTMAX_DOT:
        launch(tsri_softmax_dot_op<T>{{{a, b}, NULL}, y});
        break;
    default:
        launch(tsri_softmax_bwd_op<T>{{{a, b}, y}, c, log});
        break;
    }
}

/* The operands in the Ops' order: inputs with an element per place, the result, the others. The
 * first *full have an element per place. Returns how many there are. */
static inline int tsri_softmax_operands(const tsri_kernel_desc *d, const tsri_arg **to, int *full)
{
    const bool two =
        d->op == TSRI_OP_SOFTMAX_DX || d->op == TSRI_OP_SOFTMAX_DOT || d->op == TSRI_OP_SOFTMAX_BWD;
    const bool maps = d->op != TSRI_OP_SOFTMAX_SUM && d->op != TSRI_OP_SOFTMAX_DOT;
    int n = 0;
    for (int i = 0; i < 1 + two; i++)
        to[n++] = &d->in[i];
    *full = n + maps;
    to[n++] = &d->out[0];
    for (int i = 1 + two; i < d->nin; i++)
        to[n++] = &d->in[i];
    return n;
}

/* All operands are of one float dtype. */
static inline bool tsri_softmax_takes(const tsri_kernel_desc *d)
{
    for (int i = 0; i < d->nin; i++)
        if (d->in[i].dtype != d->out[0].dtype)
            return false;
    return tsri_cuda_is_float(d->out[0].dtype);
}

#endif
