/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention without its scores, and its gradient, of operands with any strides. A warp has a query
 * (of the gradients of keys and values: a key); its lanes make the scores of 32 keys, or queries,
 * at a time, and then share features: a lane keeps FEATURES / 32 sums in registers. Where
 * there are more features, the scores are made again for each FEATURES of them.
 */
#include "kernels/cuda/code/softmax.cuh"

enum { THREADS = 128, FEATURES = 256, SUMS = FEATURES / TSRI_WARP };

/* A matrix of each head, or a vector: steps from one sample, head, row and column to the next. */
typedef struct matrix {
    int64_t step[4];
} matrix;

typedef struct shape {
    int64_t samples, heads, s, t, d, e;
    int64_t ahead; /* query i sees keys up to i + ahead; t: all */
    double scale;
    matrix q, k, v, mask, y, lse, dy, dq, dk, dv;
} shape;

typedef struct attention {
    tsri_cuda_kernel kernel;
    shape of;
    bool has_mask;
} attention;

/* The buffers: those that are not there are NULL. sums: of y dy, of each query. */
template <typename T> struct buffers {
    const T *q, *k, *v, *mask, *y, *dy;
    T *out, *dq, *dk, *dv;
    double *lse, *sums;
};

/* Moves each buffer to a head. */
template <typename T>
static __device__ __forceinline__ T *at_head(T *p, const matrix &m, int64_t sample, int64_t head)
{
    return p ? p + sample * m.step[0] + head * m.step[1] : p;
}

template <typename T>
static __device__ __forceinline__ buffers<T> head_of(const shape &v, buffers<T> b, int64_t number)
{
    const int64_t n = number / v.heads, h = number % v.heads;
    b.q = at_head(b.q, v.q, n, h);
    b.k = at_head(b.k, v.k, n, h);
    b.v = at_head(b.v, v.v, n, h);
    b.mask = at_head(b.mask, v.mask, n, h);
    b.y = at_head(b.y, v.y, n, h);
    b.dy = at_head(b.dy, v.dy, n, h);
    b.out = at_head(b.out, v.y, n, h);
    b.lse = at_head(b.lse, v.lse, n, h);
    b.dq = at_head(b.dq, v.dq, n, h);
    b.dk = at_head(b.dk, v.dk, n, h);
    b.dv = at_head(b.dv, v.dv, n, h);
    if (b.sums)
        b.sums += number * v.s;
    return b;
}

template <typename A, typename T>
static __device__ __forceinline__ A dot(const T *x, const matrix &mx, int64_t i, const T *y,
                                        const matrix &my, int64_t j, int64_t n)
{
    A sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += tsri_to<A>(x[i * mx.step[2] + c * mx.step[3]]) *
               tsri_to<A>(y[j * my.step[2] + c * my.step[3]]);
    return sum;
}

/* The score of query i and key j; -inf where it is not seen. */
template <typename A, typename T>
static __device__ __forceinline__ A score(const shape &v, const buffers<T> &b, int64_t i, int64_t j)
{
    if (i < 0 || i >= v.s || j < 0 || j >= v.t || j > i + v.ahead)
        return -tsri_infinity<A>();
    const A mask = b.mask ? tsri_to<A>(b.mask[i * v.mask.step[2] + j * v.mask.step[3]]) : (A)0;
    if (mask == -tsri_infinity<A>()) /* hides the key, also a NaN in it */
        return mask;
    return (A)v.scale * dot<A>(b.q, v.q, i, b.k, v.k, j, v.d) + mask;
}

/* Adds to sums[] the lanes' weights times their rows of x, of features from `first` on: lane l has
 * row `row` + l. */
template <typename A, typename T>
static __device__ __forceinline__ void add_rows(A *sums, A weight, const T *x, const matrix &m,
                                                int64_t row, int64_t rows, int64_t first, int64_t n)
{
    const int lane = tsri_lane<TSRI_WARP>();
    for (int l = 0; l < TSRI_WARP && row + l < rows; l++) {
        const A by = __shfl_sync(0xffffffffu, weight, l);
        for (int c = 0; c < SUMS; c++) {
            const int64_t f = first + c * TSRI_WARP + lane;
            if (f < n && by != 0)
                sums[c] += by * tsri_to<A>(x[(row + l) * m.step[2] + f * m.step[3]]);
        }
    }
}

template <typename A, typename T>
static __device__ __forceinline__ void store_row(const A *sums, A by, T *y, const matrix &m,
                                                 int64_t row, int64_t first, int64_t n)
{
    const int lane = tsri_lane<TSRI_WARP>();
    for (int c = 0; c < SUMS; c++) {
        const int64_t f = first + c * TSRI_WARP + lane;
        if (y && f < n)
            y[row * m.step[2] + f * m.step[3]] = tsri_to<T>(sums[c] * by);
    }
}

/* The largest score of query i, and the sum of e^(score - largest), in every lane. */
template <typename A, typename T>
static __device__ __forceinline__ tsri_exp_sum<A> sum_scores(const shape &v, const buffers<T> &b,
                                                             int64_t i, int64_t keys)
{
    tsri_exp_sum<A> sum;
    sum.clear();
    for (int64_t j = tsri_lane<TSRI_WARP>(); j < keys; j += TSRI_WARP) {
        const A x = score<A>(v, b, i, j);
        sum.template add<1>(&x);
    }
    sum.template gather<TSRI_WARP>(0);
    return sum;
}

static __device__ __forceinline__ int64_t keys_seen(const shape &v, int64_t i)
{
    const int64_t n = i + v.ahead + 1;
    return n < 0 ? 0 : n < v.t ? n : v.t;
}

template <typename T> static __global__ void forward(shape v, buffers<T> all)
{
    typedef tsri_acc<T> A;
    const int lane = tsri_lane<TSRI_WARP>();
    for (int64_t r = tsri_first_row<TSRI_WARP>(); r < v.samples * v.heads * v.s;
         r += tsri_row_step<TSRI_WARP>()) {
        const int64_t i = r % v.s, keys = keys_seen(v, i);
        const buffers<T> b = head_of(v, all, r / v.s);
        const tsri_exp_sum<A> row = sum_scores<A>(v, b, i, keys);
        const A base = tsri_exp_sum<A>::base(row.max);
        const bool none = row.sum == 0;
        if (b.lse && lane == 0)
            b.lse[i * v.lse.step[2]] =
                none ? -tsri_infinity<double>() : (double)row.max + log((double)row.sum);
        for (int64_t first = 0; b.out && first < v.e; first += FEATURES) {
            A sums[SUMS] = {};
            for (int64_t j = 0; j < keys; j += TSRI_WARP) {
                const A weight = tsri_exp(score<A>(v, b, i, j + lane) - base);
                add_rows(sums, weight, b.v, v.v, j, keys, first, v.e);
            }
            store_row(sums, none ? (A)0 : (A)1 / row.sum, b.out, v.y, i, first, v.e);
        }
    }
}

/* The weight of key j for query i. */
template <typename A, typename T>
static __device__ __forceinline__ A weight_of(const shape &v, const buffers<T> &b, int64_t i,
                                              int64_t j)
{
    if (i < 0 || i >= v.s)
        return 0;
    const double lse = b.lse[i * v.lse.step[2]];
    if (lse == -tsri_infinity<double>())
        return 0;
    const A about = (A)lse, x = score<A>(v, b, i, j);
    return x == -tsri_infinity<A>() ? (A)0 : tsri_exp(x - about) * (A)exp((double)about - lse);
}

/* A warp a query: its sum of y dy, and dq. */
template <typename T> static __global__ void backward_queries(shape v, buffers<T> all)
{
    typedef tsri_acc<T> A;
    const int lane = tsri_lane<TSRI_WARP>();
    for (int64_t r = tsri_first_row<TSRI_WARP>(); r < v.samples * v.heads * v.s;
         r += tsri_row_step<TSRI_WARP>()) {
        const int64_t i = r % v.s, keys = keys_seen(v, i);
        const buffers<T> b = head_of(v, all, r / v.s);
        double mean = 0;
        for (int64_t c = lane; c < v.e; c += TSRI_WARP)
            mean += tsri_to<double>(b.y[i * v.y.step[2] + c * v.y.step[3]]) *
                    tsri_to<double>(b.dy[i * v.dy.step[2] + c * v.dy.step[3]]);
        mean = tsri_warp_all<tsri_sum_fn>(mean);
        if (lane == 0)
            b.sums[i] = mean;
        for (int64_t first = 0; b.dq && first < v.d; first += FEATURES) {
            A sums[SUMS] = {};
            for (int64_t j = 0; j < keys; j += TSRI_WARP) {
                A slope = weight_of<A>(v, b, i, j + lane);
                if (slope != 0)
                    slope *= dot<A>(b.dy, v.dy, i, b.v, v.v, j + lane, v.e) - (A)mean;
                add_rows(sums, slope, b.k, v.k, j, keys, first, v.d);
            }
            store_row(sums, (A)v.scale, b.dq, v.dq, i, first, v.d);
        }
    }
}

/* A warp a key: dk and dv. */
template <typename T> static __global__ void backward_keys(shape v, buffers<T> all)
{
    typedef tsri_acc<T> A;
    const int lane = tsri_lane<TSRI_WARP>();
    const int64_t wide = v.d > v.e ? v.d : v.e;
    for (int64_t r = tsri_first_row<TSRI_WARP>(); r < v.samples * v.heads * v.t;
         r += tsri_row_step<TSRI_WARP>()) {
        const int64_t j = r % v.t, from = j - v.ahead > 0 ? j - v.ahead : 0;
        const buffers<T> b = head_of(v, all, r / v.t);
        for (int64_t first = 0; first < wide; first += FEATURES) {
            A dk[SUMS] = {}, dv[SUMS] = {};
            for (int64_t i = from; i < v.s; i += TSRI_WARP) {
                const A weight = weight_of<A>(v, b, i + lane, j);
                A slope = 0;
                if (weight != 0)
                    slope = weight *
                            (dot<A>(b.dy, v.dy, i + lane, b.v, v.v, j, v.e) - (A)b.sums[i + lane]);
                add_rows(dv, weight, b.dy, v.dy, i, v.s, first, v.e);
                add_rows(dk, slope, b.q, v.q, i, v.s, first, v.d);
            }
            store_row(dk, (A)v.scale, b.dk, v.dk, j, first, v.d);
            store_row(dv, (A)1, b.dv, v.dv, j, first, v.e);
        }
    }
}

static tsr_status forward_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const attention *a = (const attention *)k;
    const int64_t rows = a->of.samples * a->of.heads * a->of.s;
    if (!rows)
        return TSR_OK;
    TSRI_FLOATS(k->desc.in[0].dtype, {
        buffers<T> b = {};
        b.q = (const T *)in[0];
        b.k = (const T *)in[1];
        b.v = (const T *)in[2];
        b.mask = a->has_mask ? (const T *)in[3] : NULL;
        b.out = (T *)out[0];
        b.lse = (double *)out[1];
        TSRI_LAUNCH((forward<T>), tsri_blocks(rows, THREADS / TSRI_WARP), THREADS, k->stream, a->of,
                    b);
    });
    return tsri_cuda_launched(k);
}

static tsr_status backward_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                               void *scratch)
{
    const attention *a = (const attention *)k;
    const int64_t heads = a->of.samples * a->of.heads;
    void *const *more = in + 3 + a->has_mask;
    TSRI_FLOATS(k->desc.in[0].dtype, {
        buffers<T> b = {};
        b.q = (const T *)in[0];
        b.k = (const T *)in[1];
        b.v = (const T *)in[2];
        b.mask = a->has_mask ? (const T *)in[3] : NULL;
        b.y = (const T *)more[0];
        b.lse = (double *)more[1];
        b.dy = (const T *)more[2];
        b.sums = (double *)scratch;
        b.dq = (T *)out[0];
        b.dk = (T *)out[1];
        b.dv = (T *)out[2];
        if (heads * a->of.s > 0)
            TSRI_LAUNCH((backward_queries<T>), tsri_blocks(heads * a->of.s, THREADS / TSRI_WARP),
                        THREADS, k->stream, a->of, b);
        if (heads * a->of.t > 0)
            TSRI_LAUNCH((backward_keys<T>), tsri_blocks(heads * a->of.t, THREADS / TSRI_WARP),
                        THREADS, k->stream, a->of, b);
    });
    return tsri_cuda_launched(k);
}

static matrix steps_of(const tsri_arg *a, bool broadcasts)
{
    matrix m = {};
    for (int i = 0; i < a->ndim; i++)
        m.step[i] = broadcasts && a->shape[i] == 1 ? 0 : a->stride[i];
    return m;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool back = d->op == TSRI_OP_FLASH_ATTENTION_DX, mask = d->attrs->attention.has_mask;
    const tsri_arg *q = &d->in[0], *k = &d->in[1], *v = &d->in[2], *more = &d->in[3 + mask];
    const tsr_dtype type = q->dtype;
    if (!tsri_cuda_is_float(type))
        return tsri_cuda_decline(d);
    for (int i = 0; i < d->nin + d->nout; i++)
        if ((i < d->nin ? &d->in[i] : &d->out[i - d->nin])->dtype !=
            (i == (back ? d->nin - 2 : d->nin + 1) ? TSR_F64 : type))
            return tsri_cuda_decline(d);
    attention *a =
        (attention *)tsri_cuda_make(mem, d, back ? backward_run : forward_run, "plain", sizeof *a);
    TSRI_NEED(a);
    shape *of = &a->of;
    of->samples = q->shape[0];
    of->heads = q->shape[1];
    of->s = q->shape[2];
    of->d = q->shape[3];
    of->t = k->shape[2];
    of->e = v->shape[3];
    of->ahead = d->attrs->attention.causal ? q->offset[2] - k->offset[2] : of->t;
    of->scale = d->attrs->attention.scale;
    of->q = steps_of(q, false);
    of->k = steps_of(k, false);
    of->v = steps_of(v, false);
    if (mask)
        of->mask = steps_of(&d->in[3], true);
    a->has_mask = mask;
    of->y = steps_of(back ? &more[0] : &d->out[0], false);
    of->lse = steps_of(back ? &more[1] : &d->out[1], false);
    if (back) {
        of->dy = steps_of(&more[2], false);
        of->dq = steps_of(&d->out[0], false);
        of->dk = steps_of(&d->out[1], false);
        of->dv = steps_of(&d->out[2], false);
        a->kernel.base.scratch_bytes = (size_t)(of->samples * of->heads * of->s) * sizeof(double);
    }
    *out_kernel = &a->kernel.base;
    return TSR_OK;
}

tsr_status tsri_plain_flash_attention(tsri_mem *mem, const tsri_kernel_desc *d,
                                      tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}

tsr_status tsri_plain_flash_attention_dx(tsri_mem *mem, const tsri_kernel_desc *d,
                                         tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}
