/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy and its parts as Ops of rows.cuh; formulas: src/core/op_list.h. An operand or
 * result of one number a row may be of any float dtype. */
#ifndef TESSERA_KERNELS_CUDA_CE_H
#define TESSERA_KERNELS_CUDA_CE_H

#include "kernels/cuda/code/softmax.cuh"

/* Labels, and the classes that x has here: `n` of `classes`, from `first` on. */
typedef struct tsri_labels {
    const int64_t *label;
    int64_t classes, first, n, ignore;
    bool has_ignore;
    tsri_cuda_fault *fault;
    unsigned long long kernel;
} tsri_labels;

/* The label's column here; -1: none, it is ignored, of another shard, or an error. */
static __device__ __forceinline__ int64_t tsri_label_column(const tsri_labels &l, int64_t row,
                                                            int64_t at, bool *ignored)
{
    const int64_t label = l.label[at], column = label - l.first;
    *ignored = l.has_ignore && label == l.ignore;
    if (*ignored)
        return -1;
    if (label < 0 || label >= l.classes) {
        tsri_fault(l.fault, l.kernel, row, label);
        return -1;
    }
    return column >= 0 && column < l.n ? column : -1;
}

/* One number a row, or two. */
typedef struct tsri_column {
    tsr_dtype dtype;
    void *p;
} tsri_column;

/* Operands: x, then label, loss, weight, lse. */
template <typename T> struct tsri_ce_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    enum { INPUTS = 1, OPERANDS = 5, REDUCES = 1, MAPS = 0 };
    tsri_labels labels;
    tsri_column to[3];          /* loss, weight, lse */
    int64_t stride, lse_stride; /* between classes; between the two of lse */
    A smoothing;

    struct State {
        tsri_exp_sum<A> exps;
        A all; /* sum of x */
    };
    struct Row {};
    __device__ __forceinline__ void begin(Row &, int64_t, const int64_t *) const
    {
    }
    __device__ __forceinline__ State start(void) const
    {
        State s;
        s.exps.clear();
        s.all = 0;
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
        s.exps.template add<N>(x);
        if (smoothing > 0) {
#pragma unroll
            for (int j = 0; j < N; j++)
                s.all += x[j];
        }
    }
    template <int LANES>
    __device__ __forceinline__ void finish(State &s, Row &, int64_t r, int64_t n,
                                           const int64_t *at) const
    {
        s.exps.template gather<LANES>(n);
        if (smoothing > 0)
            s.all = tsri_all<LANES, tsri_sum_fn>(s.all);
        if (tsri_lane<LANES>() != 0)
            return;
        bool ignored;
        const int64_t column = tsri_label_column(labels, r, at[1], &ignored);
        const A max = s.exps.max, log_sum = tsri_log(s.exps.sum);
        A loss = 0;
        if (!ignored) {
            const A hit =
                column < 0 ? (A)0 : tsri_to<A>(this->in[0][at[0] + column * stride]) - max;
            loss = (1 - smoothing) * (log_sum - hit);
            if (smoothing > 0)
                loss += smoothing * (log_sum - (s.all / (A)n - max));
        }
        tsri_store_any<A>(to[0].dtype, to[0].p, at[2], loss);
        tsri_store_any<A>(to[1].dtype, to[1].p, at[3], ignored ? 0 : 1);
        tsri_store_any<A>(to[2].dtype, to[2].p, at[4], max);
        tsri_store_any<A>(to[2].dtype, to[2].p, at[4] + lse_stride, log_sum);
    }
};

/* Operands: x, then terms, label, m. */
template <typename T> struct tsri_ce_terms_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    enum { INPUTS = 1, OPERANDS = 4, REDUCES = 1, MAPS = 0 };
    tsri_labels labels;
    tsri_column m;
    double *terms;
    int64_t stride, terms_stride; /* between classes; between terms */
    bool smooths;

    struct State {
        double sum, all;
    };
    struct Row {
        A max;
    };
    __device__ __forceinline__ void begin(Row &row, int64_t, const int64_t *at) const
    {
        row.max = tsri_load_any<A>(m.dtype, m.p, at[3]);
    }
    __device__ __forceinline__ State start(void) const
    {
        return State{0, 0};
    }
    template <int N>
    __device__ __forceinline__ void add(State &s, const Row &row, const tsri_pack<T, N> *v,
                                        const tsri_spot &) const
    {
#pragma unroll
        for (int j = 0; j < N; j++) {
            const A x = tsri_to<A>(v[0].v[j]) - row.max;
            s.sum += (double)tsri_exp(x);
            if (smooths)
                s.all += (double)x;
        }
    }
    template <int LANES>
    __device__ __forceinline__ void finish(State &s, Row &row, int64_t r, int64_t,
                                           const int64_t *at) const
    {
        s.sum = tsri_all<LANES, tsri_sum_fn>(s.sum);
        s.all = tsri_all<LANES, tsri_sum_fn>(s.all);
        if (tsri_lane<LANES>() != 0)
            return;
        bool ignored;
        const int64_t column = tsri_label_column(labels, r, at[2], &ignored);
        double *to = terms + at[1];
        to[0] = s.sum;
        to[terms_stride] =
            column < 0 ? 0.0
                       : tsri_to<double>(this->in[0][at[0] + column * stride]) - (double)row.max;
        to[2 * terms_stride] = s.all;
    }
};

/* Operands: x, dx, then label, lse, dl. */
template <typename T> struct tsri_ce_dx_op : tsri_row_op<T> {
    typedef tsri_acc<T> A;
    enum { INPUTS = 1, OPERANDS = 5, REDUCES = 0, MAPS = 1 };
    tsri_labels labels;
    tsri_column lse, dl;
    int64_t lse_stride;
    A even, peak; /* the target's value at every class, and what the label's has more */

    struct Row {
        A max, log_sum, dl;
        int64_t column;
        bool ignored;
    };
    __device__ __forceinline__ void begin(Row &row, int64_t r, const int64_t *at) const
    {
        row.column = tsri_label_column(labels, r, at[2], &row.ignored);
        row.max = tsri_load_any<A>(lse.dtype, lse.p, at[3]);
        row.log_sum = tsri_load_any<A>(lse.dtype, lse.p, at[3] + lse_stride);
        row.dl = tsri_load_any<A>(dl.dtype, dl.p, at[4]);
    }
    template <int N>
    __device__ __forceinline__ tsri_pack<T, N> map(const Row &row, const tsri_pack<T, N> *v,
                                                   const tsri_spot &spot) const
    {
        tsri_pack<T, N> dx;
#pragma unroll
        for (int j = 0; j < N; j++) {
            const A target = even + (spot.column + j == row.column ? peak : (A)0);
            const A p = tsri_exp(tsri_to<A>(v[0].v[j]) - row.max - row.log_sum);
            dx.v[j] = tsri_to<T>(row.ignored ? (A)0 : row.dl * (p - target));
        }
        return dx;
    }
};

static inline tsri_column tsri_column_of(const tsri_arg *arg, void *p)
{
    return tsri_column{arg->dtype, p};
}

/* Makes the Op of kernel `k` (of element type T) and gives it to `launch`. */
template <typename T, typename L>
static void tsri_ce_dispatch(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             const L &launch)
{
    typedef tsri_acc<T> A;
    const tsri_kernel_desc *d = &k->desc;
    const tsri_arg *x = &d->in[0];
    const double s = k->attrs.ce.smoothing;
    const tsri_labels labels = {(const int64_t *)in[1],
                                x->gshape[1],
                                x->offset[1],
                                x->shape[1],
                                k->attrs.ce.ignore_index,
                                k->attrs.ce.has_ignore != 0,
                                k->device->fault_device,
                                (unsigned long long)(uintptr_t)k};
    const T *p = (const T *)in[0];
    switch (d->op) {
    case TSRI_OP_CE:
        launch(
            tsri_ce_op<T>{{{p, NULL}, NULL},
                          labels,
                          {tsri_column_of(&d->out[0], out[0]), tsri_column_of(&d->out[1], out[1]),
                           tsri_column_of(&d->out[2], out[2])},
                          x->stride[1],
                          d->out[2].stride[1],
                          (A)s});
        break;
    case TSRI_OP_CE_TERMS:
        launch(tsri_ce_terms_op<T>{{{p, NULL}, NULL},
                                   labels,
                                   tsri_column_of(&d->in[2], in[2]),
                                   (double *)out[0],
                                   x->stride[1],
                                   d->out[0].stride[1],
                                   s > 0});
        break;
    default:
        launch(tsri_ce_dx_op<T>{{{p, NULL}, (T *)out[0]},
                                labels,
                                tsri_column_of(&d->in[2], in[2]),
                                tsri_column_of(&d->in[3], in[3]),
                                d->in[2].stride[1],
                                (A)(s / (double)x->gshape[1]),
                                (A)(1 - s)});
        break;
    }
}

/* The operands in the Ops' order; the first *full have an element per place. */
static inline int tsri_ce_operands(const tsri_kernel_desc *d, const tsri_arg **to, int *full)
{
    int n = 0;
    to[n++] = &d->in[0];
    if (d->op != TSRI_OP_CE)
        to[n++] = &d->out[0];
    *full = d->op == TSRI_OP_CE_DX ? 2 : 1;
    for (int i = 1; i < d->nin; i++)
        to[n++] = &d->in[i];
    for (int i = 0; i < d->nout && d->op == TSRI_OP_CE; i++)
        to[n++] = &d->out[i];
    return n;
}

static inline bool tsri_ce_takes(const tsri_kernel_desc *d)
{
    bool takes = tsri_cuda_is_float(d->in[0].dtype) && d->in[1].dtype == TSR_I64;
    for (int i = 2; i < d->nin; i++)
        takes = takes && tsri_cuda_is_float(d->in[i].dtype);
    for (int i = 0; i < d->nout; i++)
        takes = takes && (d->op == TSRI_OP_CE_TERMS ? d->out[i].dtype == TSR_F64
                                                    : tsri_cuda_is_float(d->out[i].dtype));
    return takes && (d->op != TSRI_OP_CE_DX || d->out[0].dtype == d->in[0].dtype);
}

#endif
