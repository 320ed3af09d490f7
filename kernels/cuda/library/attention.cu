/* SPDX-License-Identifier: Apache-2.0 */
/* The work on scores between the products of attention: a warp has a row. */
#include "kernels/cuda/library/attention.h"

#include "kernels/cuda/code/softmax.cuh"

enum { THREADS = 128, KEPT = 32 /* scores that a lane keeps, in 4 bytes each */ };

/* W: elements of one store of 16 bytes. */
template <typename T> struct score_traits {
    typedef tsri_acc<T> A;
    enum { W = 16 / sizeof(T), STEP = W * TSRI_WARP, STEPS = KEPT * 4 / (W * (int)sizeof(A)) };
};

/* A row of scores, and of its mask. */
template <typename T> struct score_row {
    typedef tsri_acc<T> A;
    A *scores;
    const T *mask;
    int64_t step, seen; /* of the mask's columns; keys that the order of both lets the query see */
    bool wide;          /* the mask may be loaded by 16 bytes */
};

template <typename T>
static __device__ __forceinline__ const T *at_row(const tsri_matrices &m, int64_t sample,
                                                  int64_t head, int64_t row)
{
    return m.at ? (const T *)m.at + sample * m.step[0] + head * m.step[1] + row * m.step[2] : NULL;
}

/* Where row r of all is: its sample, head and query. */
struct score_place {
    int64_t sample, head, query;
};

static __device__ __forceinline__ score_place place_of(const tsri_scores &v, int64_t r)
{
    const int64_t i = r / v.rows, number = v.number + i * v.number_step;
    return {number / v.of_sample, number % v.of_sample, v.first + r % v.rows};
}

template <typename T>
static __device__ __forceinline__ score_row<T> row_of(const tsri_scores &v, bool wide,
                                                      const score_place &p, int64_t r)
{
    const int64_t n = p.query + v.ahead + 1;
    return {(tsri_acc<T> *)v.scores + r * v.pitch, at_row<T>(v.mask, p.sample, p.head, p.query),
            v.mask.step[3],
            n < 0        ? 0
            : n < v.keys ? n
                         : v.keys,
            wide};
}

/* Adds the mask of columns [c, c + W); -inf hides a key, whatever its score. */
template <typename T>
static __device__ __forceinline__ void add_mask(const score_row<T> &row, int64_t c, tsri_acc<T> *x)
{
    enum { W = score_traits<T>::W };
    typedef tsri_acc<T> A;
    tsri_pack<T, W> m;
    if (row.wide && c + W <= row.seen) {
        m = tsri_load_pack<T, W>(row.mask + c);
    } else {
#pragma unroll
        for (int j = 0; j < W; j++)
            m.v[j] = row.mask[c + j < row.seen ? (c + j) * row.step : 0];
    }
#pragma unroll
    for (int j = 0; j < W; j++) {
        const A add = tsri_to<A>(m.v[j]);
        x[j] = add == -tsri_infinity<A>() ? add : x[j] + add;
    }
}

/* The scores of columns [c, c + W); -inf where the key is hidden. */
template <typename T>
static __device__ __forceinline__ void load_scores(const score_row<T> &row, int64_t c,
                                                   tsri_acc<T> *x)
{
    enum { W = score_traits<T>::W };
    typedef tsri_acc<T> A;
    if (c >= row.seen) {
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = -tsri_infinity<A>();
        return;
    }
    const tsri_pack<A, W> v = tsri_load_pack<A, W>(row.scores + c);
#pragma unroll
    for (int j = 0; j < W; j++)
        x[j] = v.v[j];
    if (row.mask)
        add_mask(row, c, x);
#pragma unroll
    for (int j = 0; j < W; j++)
        x[j] = c + j < row.seen ? x[j] : -tsri_infinity<A>();
}

template <typename T>
static __device__ __forceinline__ void store_weights(tsri_acc<T> *row, int64_t c,
                                                     const tsri_acc<T> *x)
{
    enum { W = score_traits<T>::W };
    tsri_pack<T, W> y;
#pragma unroll
    for (int j = 0; j < W; j++)
        y.v[j] = tsri_to<T>(x[j]);
    tsri_store_pack((T *)row + c, y);
}

/* A row whose scores stay in registers. */
template <typename T>
static __device__ __forceinline__ tsri_exp_sum<tsri_acc<T>> weigh_kept(const score_row<T> &row,
                                                                       int64_t keys)
{
    enum { W = score_traits<T>::W, STEP = score_traits<T>::STEP, STEPS = score_traits<T>::STEPS };
    typedef tsri_acc<T> A;
    const int64_t own = (int64_t)tsri_lane<TSRI_WARP>() * W;
    A x[STEPS][W];
    tsri_exp_sum<A> sum;
    sum.clear();
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        load_scores(row, own + i * STEP, x[i]);
#pragma unroll
        for (int j = 0; j < W; j++)
            sum.max = tsri_top_fn::of(sum.max, x[i][j]);
    }
    sum.max = tsri_warp_all<tsri_top_fn>(sum.max); /* all lanes have loaded now */
    const A base = tsri_exp_sum<A>::base(sum.max);
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        if ((int64_t)i * STEP < row.seen)
#pragma unroll
            for (int j = 0; j < W; j++) {
                x[i][j] = tsri_exp(x[i][j] - base);
                sum.sum += x[i][j];
            }
    sum.sum = tsri_warp_all<tsri_sum_fn>(sum.sum);
    const A scale = sum.sum == 0 ? (A)0 : 1 / sum.sum;
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        if (own + i * STEP < keys) {
#pragma unroll
            for (int j = 0; j < W; j++)
                x[i][j] = (int64_t)i * STEP < row.seen ? x[i][j] * scale : (A)0;
            store_weights<T>(row.scores, own + i * STEP, x[i]);
        }
    return sum;
}

/* A row of any length, read twice. Weights are not longer than scores, so a warp that has loaded
 * its columns overwrites none that it has still to load. */
template <typename T>
static __device__ __forceinline__ tsri_exp_sum<tsri_acc<T>> weigh_long(const score_row<T> &row,
                                                                       int64_t keys)
{
    enum { W = score_traits<T>::W, STEP = score_traits<T>::STEP };
    typedef tsri_acc<T> A;
    const int64_t own = (int64_t)tsri_lane<TSRI_WARP>() * W;
    tsri_exp_sum<A> sum;
    A x[W];
    sum.clear();
    for (int64_t c = own; c < row.seen; c += STEP) {
        load_scores(row, c, x);
        sum.template add<W>(x);
    }
    sum.template gather<TSRI_WARP>(0);
    const A base = tsri_exp_sum<A>::base(sum.max);
    const A scale = sum.sum == 0 ? (A)0 : 1 / sum.sum;
    for (int64_t first = 0; first < keys; first += STEP) {
        load_scores(row, first + own, x);
#pragma unroll
        for (int j = 0; j < W; j++)
            x[j] = tsri_exp(x[j] - base) * scale;
        __syncwarp();
        if (first + own < keys)
            store_weights<T>(row.scores, first + own, x);
    }
    return sum;
}

template <typename T, bool IS_LONG>
static __global__ void __launch_bounds__(THREADS) forward_rows(tsri_scores v, bool wide)
{
    for (int64_t r = tsri_first_row<TSRI_WARP>(); r < v.heads * v.rows;
         r += tsri_row_step<TSRI_WARP>()) {
        const score_place p = place_of(v, r);
        const score_row<T> row = row_of<T>(v, wide, p, r);
        const tsri_exp_sum<tsri_acc<T>> sum =
            IS_LONG ? weigh_long(row, v.keys) : weigh_kept(row, v.keys);
        if (v.lse.at && tsri_lane<TSRI_WARP>() == 0)
            *(double *)at_row<double>(v.lse, p.sample, p.head, p.query) =
                sum.sum == 0 ? -tsri_infinity<double>() : (double)sum.max + log((double)sum.sum);
    }
}

/* The sum of y dy, over the features of a query. */
template <typename T>
static __device__ __forceinline__ double mean_of(const tsri_scores &v, const score_place &p)
{
    const T *y = at_row<T>(v.y, p.sample, p.head, p.query);
    const T *dy = at_row<T>(v.dy, p.sample, p.head, p.query);
    double sum = 0;
    for (int64_t c = tsri_lane<TSRI_WARP>(); c < v.features; c += TSRI_WARP)
        sum += tsri_to<double>(y[c * v.y.step[3]]) * tsri_to<double>(dy[c * v.dy.step[3]]);
    return tsri_warp_all<tsri_sum_fn>(sum);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) backward_rows(tsri_scores v, bool wide)
{
    enum { W = score_traits<T>::W, STEP = score_traits<T>::STEP };
    typedef tsri_acc<T> A;
    const int64_t own = (int64_t)tsri_lane<TSRI_WARP>() * W;
    for (int64_t r = tsri_first_row<TSRI_WARP>(); r < v.heads * v.rows;
         r += tsri_row_step<TSRI_WARP>()) {
        const score_place p = place_of(v, r);
        const score_row<T> row = row_of<T>(v, wide, p, r);
        const double lse = *at_row<double>(v.lse, p.sample, p.head, p.query);
        const bool none = lse == -tsri_infinity<double>();
        /* lse has more digits than A: what A leaves of it is a factor. */
        const A about = none ? (A)0 : (A)lse, rest = none ? (A)0 : (A)exp((double)about - lse);
        const A mean = (A)mean_of<T>(v, p);
        A *slopes = (A *)v.slopes + (row.scores - (A *)v.scores);
        for (int64_t first = 0; first < v.keys; first += STEP) {
            const int64_t c = first + own;
            tsri_pack<A, W> slope = {};
            A x[W];
            load_scores(row, c, x);
            if (c < row.seen)
                slope = tsri_load_pack<A, W>(slopes + c);
#pragma unroll
            for (int j = 0; j < W; j++) {
                x[j] = x[j] == -tsri_infinity<A>() ? (A)0 : tsri_exp(x[j] - about) * rest;
                slope.v[j] = x[j] != 0 ? x[j] * (slope.v[j] - mean) : (A)0;
            }
            __syncwarp(); /* as in weigh_long */
            if (c < v.keys) {
                store_weights<T>(row.scores, c, x);
                store_weights<T>(slopes, c, slope.v);
            }
        }
    }
}

/* Whether rows of the mask begin at multiples of 16 bytes, their columns one after the other. */
static bool is_wide(const tsri_scores *v)
{
    const int64_t size = (int64_t)tsr_dtype_size(v->dtype);
    bool is = v->mask.at && v->mask.step[3] == 1 && (uintptr_t)v->mask.at % 16 == 0;
    for (int i = 0; i < 3; i++)
        is = is && v->mask.step[i] * size % 16 == 0;
    return is;
}

void tsri_scores_forward(const tsri_scores *s, cudaStream_t stream)
{
    const unsigned blocks = tsri_blocks(s->heads * s->rows, THREADS / TSRI_WARP);
    TSRI_FLOATS(s->dtype, {
        if (s->keys <= score_traits<T>::STEP * score_traits<T>::STEPS)
            TSRI_LAUNCH((forward_rows<T, false>), blocks, THREADS, stream, *s, is_wide(s));
        else
            TSRI_LAUNCH((forward_rows<T, true>), blocks, THREADS, stream, *s, is_wide(s));
    });
}

void tsri_scores_backward(const tsri_scores *s, cudaStream_t stream)
{
    TSRI_FLOATS(s->dtype, {
        TSRI_LAUNCH((backward_rows<T>), tsri_blocks(s->heads * s->rows, THREADS / TSRI_WARP),
                    THREADS, stream, *s, is_wide(s));
    });
}

template <typename To, typename From> static __global__ void copy_rows(tsri_rows_copy v)
{
    typedef tsri_acc<From> A;
    for (int64_t i = tsri_first(); i < v.heads * v.rows * v.cols; i += tsri_step()) {
        const int64_t c = i % v.cols, row = i / v.cols % v.rows, head = i / v.cols / v.rows;
        const A x = tsri_to<A>(
            ((const From *)v.src)[head * v.src_step[1] + row * v.src_step[2] + c * v.src_step[3]]);
        ((To *)v.dst)[head * v.dst_step[1] + row * v.dst_step[2] + c * v.dst_step[3]] =
            tsri_to<To>(v.only_finite && x - x != 0 ? (A)0 : x);
    }
}

void tsri_scores_copy(const tsri_rows_copy *c, cudaStream_t stream)
{
    const unsigned blocks = tsri_blocks(c->heads * c->rows * c->cols, THREADS);
    if (c->from == TSR_F64 && c->to == TSR_F32)
        TSRI_LAUNCH((copy_rows<float, double>), blocks, THREADS, stream, *c);
    else
        TSRI_FLOATS(c->to, {
            if (c->from == c->to)
                TSRI_LAUNCH((copy_rows<T, T>), blocks, THREADS, stream, *c);
            else
                TSRI_LAUNCH((copy_rows<T, float>), blocks, THREADS, stream, *c);
        });
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    without_nan(int64_t packs, const T *__restrict__ src, T *__restrict__ dst)
{
    enum { W = 16 / sizeof(T) };
    for (int64_t i = tsri_first(); i < packs; i += tsri_step()) {
        tsri_pack<T, W> x = tsri_load_pack<T, W>(src + i * W);
#pragma unroll
        for (int j = 0; j < W; j++) {
            const float v = tsri_to<float>(x.v[j]);
            if (v != v)
                x.v[j] = tsri_to<T>(0.0f);
        }
        tsri_store_pack(dst + i * W, x);
    }
}

void tsri_halves_without_nan(tsr_dtype dtype, int64_t n, const void *src, void *dst,
                             cudaStream_t stream)
{
    const int64_t packs = n / 8;
    if (dtype == TSR_F16)
        TSRI_LAUNCH((without_nan<__half>), tsri_blocks(packs, THREADS), THREADS, stream, packs,
                    (const __half *)src, (__half *)dst);
    else
        TSRI_LAUNCH((without_nan<__nv_bfloat16>), tsri_blocks(packs, THREADS), THREADS, stream,
                    packs, (const __nv_bfloat16 *)src, (__nv_bfloat16 *)dst);
}
