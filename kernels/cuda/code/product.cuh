/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix product under the plain matmul, linear and convolutions:
 *   c[m, n] = sum over k of a[m, k] b[n, k] (+ bias), for every product of a batch.
 * m, n, k and the batch are each a walk over several axes with any strides, so transposes, layouts,
 * broadcasts and patches of an image (a window, gathered while a tile is loaded) are all the same
 * code. A block makes a tile of 64 x 64 from tiles of 16 terms in shared memory. Where there are
 * too few tiles to fill a GPU, the terms are cut into slices, whose sums go through the scratch and
 * are added in their order: results depend on shapes alone, and repeat.
 */
#ifndef TESSERA_KERNELS_CUDA_PRODUCT_H
#define TESSERA_KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/device_code.cuh"

enum {
    TSRI_TILE = 64,
    TSRI_TILE_K = 16,
    TSRI_TILE_THREADS = 256,
    TSRI_TILE_EACH = 4,   /* a thread makes 4 x 4 elements */
    TSRI_TILE_CHUNK = 16, /* tiles of terms that are summed by themselves: the error grows less */
};

/* The operands of the walks over m and n, over k, and over the batch. H, W: where the window of
 * that element, or term, begins; a term's order is what the terms are sorted by. */
enum { TSRI_SIDE_C = 0, TSRI_SIDE_SRC, TSRI_SIDE_H, TSRI_SIDE_W, TSRI_SIDE_BIAS, TSRI_SIDE_OPS };
enum { TSRI_TERM_ORDER = 0, TSRI_TERM_A, TSRI_TERM_B, TSRI_TERM_H, TSRI_TERM_W, TSRI_TERM_OPS };
enum { TSRI_BATCH_C = 0, TSRI_BATCH_A, TSRI_BATCH_B, TSRI_BATCH_BIAS, TSRI_BATCH_OPS };

/* A walk in the making: axes, outermost first. */
typedef struct tsri_axes {
    int n;
    int64_t size[TSR_MAX_NDIM], stride[TSRI_WALK_OPS][TSR_MAX_NDIM];
} tsri_axes;

static inline void tsri_axes_add(tsri_axes *x, int64_t size, int64_t s0, int64_t s1, int64_t s2 = 0,
                                 int64_t s3 = 0, int64_t s4 = 0, int64_t s5 = 0)
{
    const int64_t strides[TSRI_WALK_OPS] = {s0, s1, s2, s3, s4, s5};
    x->size[x->n] = size;
    for (int o = 0; o < TSRI_WALK_OPS; o++)
        x->stride[o][x->n] = strides[o];
    x->n++;
}

static inline void tsri_axes_walk(const tsri_axes *x, int nops, tsri_cuda_walk *out)
{
    tsri_cuda_walk_init(out, x->n, x->size);
    for (int o = 0; o < nops; o++)
        tsri_cuda_walk_push(out, x->stride[o]);
    tsri_cuda_walk_finish(out);
}

/* A window over an image: an element at (h, w), added up from its parts, stands at (h, w) / div,
 * and is 0 where div does not divide it or that is outside size. */
typedef struct tsri_window {
    int base[2], div[2], size[2]; /* base is added */
    bool divides;
    int64_t stride[2];
} tsri_window;

/* Passed to the kernels by value. */
typedef struct tsri_product {
    tsri_cuda_walk m, n, k, batch;
    tsri_window window;    /* of a or b: window_a, window_b */
    int64_t slices, slice; /* terms of a slice: a multiple of TSRI_TILE_K */
    int64_t tiles_m, tiles_n;
    bool window_a, window_b;
    bool a_by_k, b_by_k; /* terms are next to each other in memory */
    bool swapped;        /* a and b have changed places */
} tsri_product;

/* --- on the device ---------------------------------------------------------------------------- */
template <typename T>
static __device__ __forceinline__ T tsri_product_load(bool windowed, const tsri_window &window,
                                                      const T *x, int64_t row, int64_t term, int h,
                                                      int w)
{
    if (row < 0 || term < 0)
        return tsri_to<T>(0.0f);
    int64_t at = row + term;
    if (windowed) {
        if (h < 0 || w < 0)
            return tsri_to<T>(0.0f);
        if (window.divides) {
            int qh = h / window.div[0], qw = w / window.div[1];
            if (qh * window.div[0] != h || qw * window.div[1] != w)
                return tsri_to<T>(0.0f);
            h = qh;
            w = qw;
        }
        if (h >= window.size[0] || w >= window.size[1])
            return tsri_to<T>(0.0f);
        at += h * window.stride[0] + w * window.stride[1];
    }
    return x[at];
}

/* Where the rows of an operand's tile begin, and its terms; -1 where there is none. */
template <int ROWS> struct tsri_places {
    int64_t at[ROWS];
    int h[ROWS], w[ROWS];
};

template <typename A> struct tsri_product_tiles {
    A a[TSRI_TILE_K][TSRI_TILE + 1], b[TSRI_TILE_K][TSRI_TILE + 1];
    tsri_places<TSRI_TILE> row_a, row_b;
    /* Places in two tiles of terms: that in use, and the next. */
    tsri_places<TSRI_TILE_K> term_a[2];
    int64_t term_b[2][TSRI_TILE_K];
};

static __device__ __forceinline__ void tsri_product_rows(const tsri_cuda_walk &walk,
                                                         const tsri_window &window, int64_t first,
                                                         tsri_places<TSRI_TILE> &out, int i)
{
    int64_t at[TSRI_SIDE_OPS];
    out.at[i] = -1;
    if (first + i >= walk.count)
        return;
    tsri_walk_at<TSRI_SIDE_OPS>(walk, first + i, at);
    out.at[i] = at[TSRI_SIDE_SRC];
    out.h[i] = (int)at[TSRI_SIDE_H] + window.base[0];
    out.w[i] = (int)at[TSRI_SIDE_W] + window.base[1];
}

template <typename A>
static __device__ __forceinline__ void tsri_product_terms(const tsri_product &p, int64_t first,
                                                          int64_t end, tsri_product_tiles<A> &s,
                                                          int buffer, int i)
{
    int64_t at[TSRI_TERM_OPS];
    s.term_a[buffer].at[i] = s.term_b[buffer][i] = -1;
    if (first + i >= end)
        return;
    tsri_walk_at<TSRI_TERM_OPS>(p.k, first + i, at);
    s.term_a[buffer].at[i] = at[TSRI_TERM_A];
    s.term_a[buffer].h[i] = (int)at[TSRI_TERM_H];
    s.term_a[buffer].w[i] = (int)at[TSRI_TERM_W];
    s.term_b[buffer][i] = at[TSRI_TERM_B];
}

/* Which element of a tile a thread loads as its i-th. Threads that follow each other take terms
 * that do, or rows. */
static __device__ __forceinline__ void tsri_product_mine(bool by_k, int i, int *row, int *term)
{
    int t = (int)threadIdx.x;
    *row = by_k ? t / TSRI_TILE_K + i * (TSRI_TILE_THREADS / TSRI_TILE_K) : t % TSRI_TILE;
    *term = by_k ? t % TSRI_TILE_K : t / TSRI_TILE + i * (TSRI_TILE_THREADS / TSRI_TILE);
}

template <typename T, bool WINDOWS>
static __device__ __forceinline__ void
tsri_product_fetch(const tsri_product &p, const tsri_product_tiles<tsri_acc<T>> &s, int buffer,
                   const T *a, const T *b, T *from_a, T *from_b)
{
    const tsri_places<TSRI_TILE_K> &terms = s.term_a[buffer];
#pragma unroll
    for (int i = 0; i < TSRI_TILE_EACH; i++) {
        int r, k;
        tsri_product_mine(p.a_by_k, i, &r, &k);
        from_a[i] =
            tsri_product_load<T>(WINDOWS && p.window_a, p.window, a, s.row_a.at[r], terms.at[k],
                                 s.row_a.h[r] + terms.h[k], s.row_a.w[r] + terms.w[k]);
        tsri_product_mine(p.b_by_k, i, &r, &k);
        from_b[i] = tsri_product_load<T>(WINDOWS && p.window_b, p.window, b, s.row_b.at[r],
                                         s.term_b[buffer][k], s.row_b.h[r] + terms.h[k],
                                         s.row_b.w[r] + terms.w[k]);
    }
}

template <typename T>
static __device__ __forceinline__ void tsri_product_keep(const tsri_product &p,
                                                         tsri_product_tiles<tsri_acc<T>> &s,
                                                         const T *from_a, const T *from_b)
{
#pragma unroll
    for (int i = 0; i < TSRI_TILE_EACH; i++) {
        int r, k;
        tsri_product_mine(p.a_by_k, i, &r, &k);
        s.a[k][r] = tsri_to<tsri_acc<T>>(from_a[i]);
        tsri_product_mine(p.b_by_k, i, &r, &k);
        s.b[k][r] = tsri_to<tsri_acc<T>>(from_b[i]);
    }
}

/* The sums of tile (m0, n0) over the terms [begin, end): while a tile is summed, the next is on its
 * way from memory. */
template <typename T, bool WINDOWS>
static __device__ __forceinline__ void
tsri_product_sum(const tsri_product &p, tsri_product_tiles<tsri_acc<T>> &s, const T *a, const T *b,
                 int64_t begin, int64_t end, tsri_acc<T> (&total)[TSRI_TILE_EACH][TSRI_TILE_EACH])
{
    typedef tsri_acc<T> A;
    constexpr bool CHUNKS = sizeof(A) < 8; /* f64 has bits to spare, and no registers */
    int t = (int)threadIdx.x, tx = t % 16, ty = t / 16, buffer = 0, chunk = 0;
    A part[TSRI_TILE_EACH][TSRI_TILE_EACH] = {};
    T from_a[TSRI_TILE_EACH], from_b[TSRI_TILE_EACH];
    if (begin < end)
        tsri_product_fetch<T, WINDOWS>(p, s, 0, a, b, from_a, from_b);
    for (int64_t k0 = begin; k0 < end; k0 += TSRI_TILE_K, buffer ^= 1) {
        tsri_product_keep<T>(p, s, from_a, from_b);
        if (t < TSRI_TILE_K)
            tsri_product_terms(p, k0 + TSRI_TILE_K, end, s, buffer ^ 1, t);
        __syncthreads();
        if (k0 + TSRI_TILE_K < end)
            tsri_product_fetch<T, WINDOWS>(p, s, buffer ^ 1, a, b, from_a, from_b);
#pragma unroll
        for (int k = 0; k < TSRI_TILE_K; k++) {
            A x[TSRI_TILE_EACH], y[TSRI_TILE_EACH];
#pragma unroll
            for (int i = 0; i < TSRI_TILE_EACH; i++) {
                x[i] = s.a[k][ty + 16 * i];
                y[i] = s.b[k][tx + 16 * i];
            }
#pragma unroll
            for (int i = 0; i < TSRI_TILE_EACH; i++)
#pragma unroll
                for (int j = 0; j < TSRI_TILE_EACH; j++)
                    (CHUNKS ? part : total)[i][j] += x[i] * y[j];
        }
        if (CHUNKS && (++chunk == TSRI_TILE_CHUNK || k0 + TSRI_TILE_K >= end)) {
            chunk = 0;
#pragma unroll
            for (int i = 0; i < TSRI_TILE_EACH; i++)
#pragma unroll
                for (int j = 0; j < TSRI_TILE_EACH; j++) {
                    total[i][j] += part[i][j];
                    part[i][j] = 0;
                }
        }
        __syncthreads();
    }
}

/* One element of the result; bias: at the batch's and the sides' offsets, one of which moves it. */
template <typename T>
static __device__ __forceinline__ void tsri_product_put(T *c, int64_t at, tsri_acc<T> v,
                                                        const T *bias, int64_t bias_at)
{
    if (bias)
        v += tsri_to<tsri_acc<T>>(bias[bias_at]);
    c[at] = tsri_to<T>(v);
}

template <typename T>
static __device__ __forceinline__ void
tsri_product_store(const tsri_product &p, int64_t m0, int64_t n0, const int64_t *at_batch,
                   const T *bias, T *c, tsri_acc<T> *partial,
                   const tsri_acc<T> (&total)[TSRI_TILE_EACH][TSRI_TILE_EACH])
{
    int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    int64_t at_n[TSRI_TILE_EACH][TSRI_SIDE_OPS], at_m[TSRI_SIDE_OPS];
#pragma unroll
    for (int j = 0; j < TSRI_TILE_EACH; j++)
        if (!partial && n0 + tx + 16 * j < p.n.count)
            tsri_walk_at<TSRI_SIDE_OPS>(p.n, n0 + tx + 16 * j, at_n[j]);
#pragma unroll
    for (int i = 0; i < TSRI_TILE_EACH; i++) {
        int64_t m = m0 + ty + 16 * i;
        if (m >= p.m.count)
            continue;
        if (!partial)
            tsri_walk_at<TSRI_SIDE_OPS>(p.m, m, at_m);
#pragma unroll
        for (int j = 0; j < TSRI_TILE_EACH; j++) {
            int64_t n = n0 + tx + 16 * j;
            if (n >= p.n.count)
                continue;
            if (partial)
                partial[m * p.n.count + n] = total[i][j];
            else
                tsri_product_put(
                    c, at_batch[TSRI_BATCH_C] + at_m[TSRI_SIDE_C] + at_n[j][TSRI_SIDE_C],
                    total[i][j], bias,
                    at_batch[TSRI_BATCH_BIAS] + at_m[TSRI_SIDE_BIAS] + at_n[j][TSRI_SIDE_BIAS]);
        }
    }
}

/* partial: NULL, or where the slices' sums go, [batch][slice][m][n]. WINDOWS: whether p's window
 * may stand over an operand; which one is read at run time, as each variant of this kernel takes
 * nvcc many seconds. */
template <typename T, bool WINDOWS>
static __global__ void __launch_bounds__(TSRI_TILE_THREADS, 2)
    tsri_product_kernel(tsri_product p, const T *a, const T *b, const T *bias, T *c,
                        tsri_acc<T> *partial)
{
    typedef tsri_acc<T> A;
    __shared__ tsri_product_tiles<A> s;
    int t = (int)threadIdx.x;
    int64_t tiles = p.tiles_m * p.tiles_n, all = tiles * p.slices * p.batch.count;
    for (int64_t job = blockIdx.x; job < all; job += gridDim.x) {
        int64_t tile = job % tiles, part = job / tiles, batch = part / p.slices;
        int64_t m0 = tile / p.tiles_n * TSRI_TILE, n0 = tile % p.tiles_n * TSRI_TILE;
        int64_t begin = part % p.slices * p.slice;
        int64_t end = begin + p.slice < p.k.count ? begin + p.slice : p.k.count;
        int64_t at[TSRI_BATCH_OPS];
        A total[TSRI_TILE_EACH][TSRI_TILE_EACH] = {};
        tsri_walk_at<TSRI_BATCH_OPS>(p.batch, batch, at);
        if (t < TSRI_TILE)
            tsri_product_rows(p.m, p.window, m0, s.row_a, t);
        else if (t < 2 * TSRI_TILE)
            tsri_product_rows(p.n, p.window, n0, s.row_b, t - TSRI_TILE);
        else if (t < 2 * TSRI_TILE + TSRI_TILE_K)
            tsri_product_terms(p, begin, end, s, 0, t - 2 * TSRI_TILE);
        __syncthreads();
        tsri_product_sum<T, WINDOWS>(p, s, a + at[TSRI_BATCH_A], b + at[TSRI_BATCH_B], begin, end,
                                     total);
        tsri_product_store(p, m0, n0, at, bias, c,
                           partial ? partial + part * p.m.count * p.n.count : partial, total);
        __syncthreads(); /* where there were no terms, nothing else kept the next job off s */
    }
}

/* Adds up the slices. */
template <typename T>
static __global__ void tsri_product_finish_kernel(tsri_product p, const T *bias, T *c,
                                                  const tsri_acc<T> *partial)
{
    int64_t each = p.m.count * p.n.count, count = each * p.batch.count;
    for (int64_t i = tsri_first(); i < count; i += tsri_step()) {
        int64_t batch = i / each, rest = i - batch * each;
        const tsri_acc<T> *from = partial + batch * p.slices * each + rest;
        tsri_acc<T> sum = 0;
        for (int64_t s = 0; s < p.slices; s++)
            sum += from[s * each];
        int64_t at[TSRI_BATCH_OPS], at_m[TSRI_SIDE_OPS], at_n[TSRI_SIDE_OPS];
        tsri_walk_at<TSRI_BATCH_OPS>(p.batch, batch, at);
        tsri_walk_at<TSRI_SIDE_OPS>(p.m, rest / p.n.count, at_m);
        tsri_walk_at<TSRI_SIDE_OPS>(p.n, rest % p.n.count, at_n);
        tsri_product_put(c, at[TSRI_BATCH_C] + at_m[TSRI_SIDE_C] + at_n[TSRI_SIDE_C], sum, bias,
                         at[TSRI_BATCH_BIAS] + at_m[TSRI_SIDE_BIAS] + at_n[TSRI_SIDE_BIAS]);
    }
}

/* --- on the host ------------------------------------------------------------------------------ */
/* Decides, from walks and window, how it runs. Returns the bytes of scratch. */
static inline size_t tsri_product_plan(tsri_product *p, tsr_dtype dtype)
{
    enum { BLOCKS = 264, TERMS = 512, SCRATCH = 64 << 20 };
    /* Threads that follow each other write along n. */
    if (p->m.stride[TSRI_SIDE_C][0] == 1 && p->n.stride[TSRI_SIDE_C][0] != 1 && p->m.count > 1) {
        tsri_cuda_walk m = p->m, k = p->k, batch = p->batch;
        p->m = p->n;
        p->n = m;
        for (int i = 0; i < TSR_MAX_NDIM; i++) {
            p->k.stride[TSRI_TERM_A][i] = k.stride[TSRI_TERM_B][i];
            p->k.stride[TSRI_TERM_B][i] = k.stride[TSRI_TERM_A][i];
            p->batch.stride[TSRI_BATCH_A][i] = batch.stride[TSRI_BATCH_B][i];
            p->batch.stride[TSRI_BATCH_B][i] = batch.stride[TSRI_BATCH_A][i];
        }
        bool window_a = p->window_a;
        p->window_a = p->window_b;
        p->window_b = window_a;
        p->swapped = true;
    }
    p->a_by_k = p->k.stride[TSRI_TERM_A][0] == 1;
    p->b_by_k = p->k.stride[TSRI_TERM_B][0] == 1;
    p->tiles_m = (p->m.count + TSRI_TILE - 1) / TSRI_TILE;
    p->tiles_n = (p->n.count + TSRI_TILE - 1) / TSRI_TILE;
    int64_t tiles = p->tiles_m * p->tiles_n * p->batch.count;
    int64_t bytes = p->m.count * p->n.count * p->batch.count * (dtype == TSR_F64 ? 8 : 4);
    p->slices = 1;
    if (tiles > 0 && tiles < BLOCKS) {
        int64_t fill = BLOCKS / tiles, terms = p->k.count / TERMS, room = SCRATCH / bytes;
        p->slices = fill < terms ? fill : terms;
        p->slices = p->slices < room ? p->slices : room;
        p->slices = p->slices < 1 ? 1 : p->slices;
    }
    int64_t slice = (p->k.count + p->slices - 1) / p->slices;
    p->slice = (slice + TSRI_TILE_K - 1) / TSRI_TILE_K * TSRI_TILE_K;
    p->slice = p->slice ? p->slice : (int64_t)TSRI_TILE_K;
    return p->slices > 1 ? (size_t)(bytes * p->slices) : 0;
}

/* Puts it into the stream. WINDOWS: whether a window may stand over an operand. */
template <typename T, bool WINDOWS>
static inline void tsri_product_launch(const tsri_product &p, const void *a, const void *b,
                                       const void *bias, void *c, void *scratch,
                                       cudaStream_t stream)
{
    int64_t jobs = p.tiles_m * p.tiles_n * p.slices * p.batch.count;
    int64_t count = p.m.count * p.n.count * p.batch.count;
    if (!count)
        return;
    const T *left = (const T *)(p.swapped ? b : a), *right = (const T *)(p.swapped ? a : b);
    tsri_acc<T> *partial = p.slices > 1 ? (tsri_acc<T> *)scratch : nullptr;
    unsigned blocks = (unsigned)(jobs < 0x7fffffff ? jobs : 0x7fffffff);
    TSRI_LAUNCH((tsri_product_kernel<T, WINDOWS>), blocks, TSRI_TILE_THREADS, stream, p, left,
                right, (const T *)bias, (T *)c, partial);
    if (partial)
        TSRI_LAUNCH((tsri_product_finish_kernel<T>), tsri_blocks(count, 256), 256, stream, p,
                    (const T *)bias, (T *)c, partial);
}

#endif
