/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that reduce rows, or compute elements from what is known of their row, or both, one after
 * the other: softmax, cross entropy, layer norm. The computation is an Op, a struct that is passed
 * to the kernel by value; how a row is walked is here:
 *
 *   rows_plain  any strides; a thread or a warp a row
 *   rows_kept   contiguous rows that a warp holds in registers between the two phases
 *   rows_loop   contiguous rows of any length; a warp or a block each, which reads twice what
 *               it needs twice (the second time mostly from a cache)
 *
 * An Op has
 *   type T             of the elements; A is what they are computed in
 *   in[2], out         the operands with an element per place; INPUTS says how many there are
 *   OPERANDS           number of its operands: first the inputs, then out if MAPS, then others,
 *                      to which offsets of the row, at[], are told
 *   GAMMA, BETA        operands that have an element per column; -1: none
 *   Row, begin         what is known of a row
 *   State, start, add  if REDUCES: what the lanes gather, each of its own elements,
 *   finish             and what becomes of it: may complete Row, and write results
 *   map                if MAPS: elements of out
 */
#ifndef TESSERA_KERNELS_CUDA_ROWS_H
#define TESSERA_KERNELS_CUDA_ROWS_H

#include "kernels/cuda/reduce.cuh"

/* A place in a row: its column, and that of gamma and beta in memory. */
typedef struct tsri_spot {
    int64_t column, gamma, beta;
} tsri_spot;

/* Contiguous rows: how far apart the rows of each operand are. */
typedef struct tsri_rows {
    int64_t count, n;
    int64_t step[TSRI_WALK_OPS];
} tsri_rows;

template <typename T> struct tsri_row_op {
    typedef T type;
    typedef tsri_acc<T> A;
    enum { GAMMA = -1, BETA = -1 };
    const T *in[2];
    T *out;
};

/* --- any strides ------------------------------------------------------------------------------ */
template <typename Op, typename F>
static __device__ __forceinline__ void tsri_each_plain(const Op &op, const tsri_cuda_walk &columns,
                                                       const int64_t *at, int64_t first,
                                                       int64_t step, const F &f)
{
    for (int64_t c = first; c < columns.count; c += step) {
        int64_t to[TSRI_WALK_OPS];
        tsri_walk_at<Op::OPERANDS>(columns, c, to);
        tsri_pack<typename Op::type, 1> v[2];
#pragma unroll
        for (int i = 0; i < Op::INPUTS; i++)
            v[i].v[0] = op.in[i][at[i] + to[i]];
        tsri_spot spot = {c, 0, 0};
        if constexpr (Op::GAMMA >= 0)
            spot.gamma = at[Op::GAMMA] + to[Op::GAMMA];
        if constexpr (Op::BETA >= 0)
            spot.beta = at[Op::BETA] + to[Op::BETA];
        f(v, spot, at[Op::INPUTS] + to[Op::INPUTS]);
    }
}

template <typename Op, int LANES>
static __global__ void tsri_rows_plain(Op op, tsri_cuda_walk rows, tsri_cuda_walk columns)
{
    typedef tsri_pack<typename Op::type, 1> pack;
    const int lane = tsri_lane<LANES>();
    for (int64_t r = tsri_first_row<LANES>(); r < rows.count; r += tsri_row_step<LANES>()) {
        int64_t at[TSRI_WALK_OPS];
        tsri_walk_at<Op::OPERANDS>(rows, r, at);
        typename Op::Row row;
        op.begin(row, r, at);
        if constexpr (Op::REDUCES) {
            typename Op::State state = op.start();
            tsri_each_plain(op, columns, at, lane, LANES,
                            [&](const pack *v, const tsri_spot &spot, int64_t) {
                                op.template add<1>(state, row, v, spot);
                            });
            op.template finish<LANES>(state, row, r, columns.count, at);
        }
        if constexpr (Op::MAPS)
            tsri_each_plain(op, columns, at, lane, LANES,
                            [&](const pack *v, const tsri_spot &spot, int64_t y) {
                                op.out[y] = op.template map<1>(row, v, spot).v[0];
                            });
    }
}

/* Walks over the rows of operand 0 along `axis`, and over the axis. The first `full` operands have
 * an element per place, the others one a row: their axis, if they have it, is of size 1. */
static inline void tsri_axis_walks(int n, int full, const tsri_arg *const *operands, int axis,
                                   tsri_cuda_walk *rows, tsri_cuda_walk *columns)
{
    const tsri_arg *x = operands[0];
    int64_t shape[TSR_MAX_NDIM];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = i == axis ? 1 : x->shape[i];
    tsri_cuda_walk_init(rows, x->ndim, shape);
    tsri_cuda_walk_init(columns, 1, &x->shape[axis]);
    for (int o = 0; o < n; o++) {
        const int64_t none = 0;
        tsri_cuda_walk_push(rows, operands[o]->stride);
        tsri_cuda_walk_push(columns, o < full ? &operands[o]->stride[axis] : &none);
    }
    tsri_cuda_walk_finish(rows);
    tsri_cuda_walk_finish(columns);
}

/* Threads side by side take what lies side by side: places of a row, or rows. */
template <typename Op>
static void tsri_launch_plain(const Op &op, const tsri_cuda_walk &rows,
                              const tsri_cuda_walk &columns, cudaStream_t stream)
{
    enum { THREADS = 128, FEW_ROWS = 1 << 14, LONG_ROW = 512 };
    if (rows.count == 0)
        return;
    bool across = columns.stride[0][0] <= rows.stride[0][0] || rows.count == 1;
    if (columns.count >= TSRI_WARP / 2 &&
        (across || rows.count < FEW_ROWS || columns.count > LONG_ROW))
        TSRI_LAUNCH((tsri_rows_plain<Op, TSRI_WARP>), tsri_blocks(rows.count, THREADS / TSRI_WARP),
                    THREADS, stream, op, rows, columns);
    else
        TSRI_LAUNCH((tsri_rows_plain<Op, TSRI_THREAD>), tsri_blocks(rows.count, THREADS), THREADS,
                    stream, op, rows, columns);
}

/* --- contiguous rows -------------------------------------------------------------------------- */
/* N elements from column c on. */
template <typename Op, int N>
static __device__ __forceinline__ void tsri_row_add(const Op &op, typename Op::State &state,
                                                    const typename Op::Row &row, const int64_t *at,
                                                    int64_t c)
{
    tsri_pack<typename Op::type, N> v[2];
#pragma unroll
    for (int i = 0; i < Op::INPUTS; i++)
        v[i] = tsri_load_pack<typename Op::type, N>(op.in[i] + at[i] + c);
    op.template add<N>(state, row, v, tsri_spot{c, c, c});
}
/* PACKS times N, `step` apart: all are loaded before the first is stored. */
template <typename Op, int N, int PACKS>
static __device__ __forceinline__ void tsri_row_map(const Op &op, const typename Op::Row &row,
                                                    const int64_t *at, int64_t c, int64_t step)
{
    tsri_pack<typename Op::type, N> v[PACKS][2];
#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
        for (int i = 0; i < Op::INPUTS; i++)
            v[p][i] = tsri_load_pack<typename Op::type, N>(op.in[i] + at[i] + c + p * step);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int64_t to = c + p * step;
        tsri_store_pack<typename Op::type, N>(op.out + at[Op::INPUTS] + to,
                                              op.template map<N>(row, v[p], tsri_spot{to, to, to}));
    }
}

/* Rows of odd length begin anywhere, but all operands' alike: elements up to the first 16-byte
 * boundary and after the last one are taken singly. */
template <typename Op, int LANES>
static __global__ void __launch_bounds__(LANES == TSRI_BLOCK ? 1024 : 256)
    tsri_rows_loop(Op op, tsri_rows rows)
{
    typedef typename Op::type T;
    enum { N = tsri_wide<T>::N };
    const int64_t lane = tsri_lane<LANES>(), lanes = tsri_lanes<LANES>(), n = rows.n;
    for (int64_t r = tsri_first_row<LANES>(); r < rows.count; r += tsri_row_step<LANES>()) {
        int64_t at[TSRI_WALK_OPS];
#pragma unroll
        for (int o = 0; o < TSRI_WALK_OPS; o++)
            at[o] = r * rows.step[o];
        const int64_t odd = at[0] % N, head = odd ? (N - odd < n ? N - odd : n) : 0;
        const int64_t packs = (n - head) / N, tail = head + packs * N;
        typename Op::Row row;
        op.begin(row, r, at);
        if constexpr (Op::REDUCES) {
            typename Op::State state = op.start();
            if (lane < head)
                tsri_row_add<Op, 1>(op, state, row, at, lane);
#pragma unroll 2
            for (int64_t p = lane; p < packs; p += lanes)
                tsri_row_add<Op, N>(op, state, row, at, head + p * N);
            if (lane < n - tail)
                tsri_row_add<Op, 1>(op, state, row, at, tail + lane);
            op.template finish<LANES>(state, row, r, n, at);
        }
        if constexpr (Op::MAPS) {
            int64_t p = lane;
            if (lane < head)
                tsri_row_map<Op, 1, 1>(op, row, at, lane, 0);
            for (; p + lanes < packs; p += 2 * lanes)
                tsri_row_map<Op, N, 2>(op, row, at, head + p * N, lanes * N);
            if (p < packs)
                tsri_row_map<Op, N, 1>(op, row, at, head + p * N, 0);
            if (lane < n - tail)
                tsri_row_map<Op, 1, 1>(op, row, at, tail + lane, 0);
        }
    }
}

/* A warp a row, of at most PACKS 16-byte packs a lane; rows begin at 16-byte boundaries. */
template <typename Op, int PACKS>
static __global__ void __launch_bounds__(128) tsri_rows_kept(Op op, tsri_rows rows)
{
    typedef typename Op::type T;
    enum { N = tsri_wide<T>::N };
    const int lane = tsri_lane<TSRI_WARP>();
    for (int64_t r = tsri_first_row<TSRI_WARP>(); r < rows.count; r += tsri_row_step<TSRI_WARP>()) {
        int64_t at[TSRI_WALK_OPS];
#pragma unroll
        for (int o = 0; o < TSRI_WALK_OPS; o++)
            at[o] = r * rows.step[o];
        tsri_pack<T, N> kept[PACKS][2];
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int64_t c = (int64_t)(p * TSRI_WARP + lane) * N;
#pragma unroll
            for (int i = 0; i < Op::INPUTS; i++)
                if (c < rows.n)
                    kept[p][i] = tsri_load_pack<T, N>(op.in[i] + at[i] + c);
        }
        typename Op::Row row;
        op.begin(row, r, at);
        typename Op::State state = op.start();
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int64_t c = (int64_t)(p * TSRI_WARP + lane) * N;
            if (c < rows.n)
                op.template add<N>(state, row, kept[p], tsri_spot{c, c, c});
        }
        op.template finish<TSRI_WARP>(state, row, r, rows.n, at);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int64_t c = (int64_t)(p * TSRI_WARP + lane) * N;
            if (c < rows.n)
                tsri_store_pack<T, N>(op.out + at[Op::INPUTS] + c,
                                      op.template map<N>(row, kept[p], tsri_spot{c, c, c}));
        }
    }
}

/* A warp for short rows, if there are enough of them to fill a GPU with warps; else a block, of as
 * many threads as find some packs to do. */
template <typename Op>
static void tsri_launch_loop(const Op &op, const tsri_rows &rows, cudaStream_t stream)
{
    enum { THREADS = 256, SHORT = 256, SHORTER = 64, MANY_ROWS = 2048 };
    const int64_t packs = rows.n / tsri_wide<typename Op::type>::N;
    if (rows.count == 0)
        return;
    if (packs <= SHORTER || (packs <= SHORT && rows.count >= MANY_ROWS)) {
        TSRI_LAUNCH((tsri_rows_loop<Op, TSRI_WARP>), tsri_blocks(rows.count, THREADS / TSRI_WARP),
                    THREADS, stream, op, rows);
        return;
    }
    const int threads = packs <= 512 ? 128 : packs <= 2048 ? 256 : packs <= 8192 ? 512 : 1024;
    TSRI_LAUNCH((tsri_rows_loop<Op, TSRI_BLOCK>), tsri_blocks(rows.count, 1), threads, stream, op,
                rows);
}

/* For ops of two phases. */
template <typename Op>
static void tsri_launch_kept(const Op &op, const tsri_rows &rows, cudaStream_t stream)
{
    enum { THREADS = 128, N = tsri_wide<typename Op::type>::N, ROUND = TSRI_WARP * N };
    const unsigned blocks = tsri_blocks(rows.count, THREADS / TSRI_WARP);
    if (rows.count == 0)
        return;
    if (rows.n % N || rows.n > 8 * ROUND)
        tsri_launch_loop(op, rows, stream);
    else if (rows.n <= ROUND)
        TSRI_LAUNCH((tsri_rows_kept<Op, 1>), blocks, THREADS, stream, op, rows);
    else if (rows.n <= 2 * ROUND)
        TSRI_LAUNCH((tsri_rows_kept<Op, 2>), blocks, THREADS, stream, op, rows);
    else if (rows.n <= 4 * ROUND)
        TSRI_LAUNCH((tsri_rows_kept<Op, 4>), blocks, THREADS, stream, op, rows);
    else
        TSRI_LAUNCH((tsri_rows_kept<Op, 8>), blocks, THREADS, stream, op, rows);
}

#endif
