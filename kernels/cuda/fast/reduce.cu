/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions of floats whose axes, in memory's order, are [batch, leading, kept, trailing], where
 * leading and trailing ones are reduced (some may be absent): rows, columns, a whole tensor, all
 * but the channels.
 *
 *   trailing axes: rows are reduced, in chunks if they are few and long: partial[rows, chunks],
 *                  and these again
 *   leading axes:  columns are reduced, in chunks of them: partial[batch, chunks, kept], and these
 *                  folded
 *   both:          rows first, then columns of what they give
 *
 * Chunks follow from shapes alone, so that results are those of every GPU.
 */
#include "kernels/cuda/code/fold.cuh"
#include "kernels/cuda/code/squares.cuh"

enum {
    THREADS = 256,
    BLOCKS = 1024,       /* as many as a large GPU has room for, about */
    SHORT_ROW = 1 << 10, /* bytes that a warp reduces at best */
    CHUNK = 1 << 15,     /* least bytes of a row that are worth a chunk */
};

typedef struct reduce {
    tsri_cuda_kernel kernel;
    int64_t batch, leading, kept, trailing;
    int64_t chunks, chunk; /* of a row or a column, and the elements of one */
    size_t second;         /* bytes of scratch that the first partial results take */
} reduce;

/* --- rows ------------------------------------------------------------------------------------- */
typedef struct row_args {
    int64_t rows, n, chunks, chunk;
    tsri_result to;
} row_args;

/* Elements [0, n) of x by the lanes, each with as many accumulators as a load has elements. */
template <typename T, typename F, int LANES>
static __device__ __forceinline__ tsri_acc<T> reduce_span(const T *x, int64_t odd, int64_t n)
{
    typedef tsri_acc<T> A;
    enum { N = tsri_wide<T>::N };
    const int64_t lane = tsri_lane<LANES>(), lanes = tsri_lanes<LANES>();
    const int64_t head = odd ? (N - odd < n ? N - odd : n) : 0;
    const int64_t packs = (n - head) / N, tail = head + packs * N;
    A acc[N];
#pragma unroll
    for (int j = 0; j < N; j++)
        acc[j] = F::template identity<A>();
    if (lane < head)
        acc[0] = F::of(acc[0], tsri_to<A>(x[lane]));
    if (lane < n - tail)
        acc[N - 1] = F::of(acc[N - 1], tsri_to<A>(x[tail + lane]));
#pragma unroll 4
    for (int64_t p = lane; p < packs; p += lanes) {
        const tsri_pack<T, N> v = tsri_load_pack<T, N>(x + head + p * N);
#pragma unroll
        for (int j = 0; j < N; j++)
            acc[j] = F::of(acc[j], tsri_to<A>(v.v[j]));
    }
#pragma unroll
    for (int h = N / 2; h; h /= 2)
#pragma unroll
        for (int j = 0; j < h; j++)
            acc[j] = F::of(acc[j], acc[j + h]);
    return tsri_all<LANES, F>(acc[0]);
}

template <typename T, typename F, int LANES>
static __global__ void rows_kernel(const T *x, row_args g)
{
    typedef tsri_acc<T> A;
    for (int64_t r = tsri_first_row<LANES>(); r < g.rows * g.chunks; r += tsri_row_step<LANES>()) {
        int64_t begin = r * g.n, n = g.n;
        if (g.chunks > 1) {
            const int64_t row = r / g.chunks, from = (r - row * g.chunks) * g.chunk;
            begin = row * g.n + from;
            n = g.n - from < g.chunk ? g.n - from : g.chunk;
        }
        const A v = reduce_span<T, F, LANES>(x + begin, begin % tsri_wide<T>::N, n);
        if (tsri_lane<LANES>() == 0)
            tsri_store_result(g.to, r, v);
    }
}

template <typename T, typename F>
static void launch_rows(const T *x, const row_args &g, cudaStream_t stream)
{
    const int64_t rows = g.rows * g.chunks;
    if ((g.chunks > 1 ? g.chunk : g.n) * (int64_t)sizeof(T) <= SHORT_ROW)
        TSRI_LAUNCH((rows_kernel<T, F, TSRI_WARP>), tsri_blocks(rows, THREADS / TSRI_WARP), THREADS,
                    stream, x, g);
    else
        TSRI_LAUNCH((rows_kernel<T, F, TSRI_BLOCK>), tsri_blocks(rows, 1), THREADS, stream, x, g);
}

/* --- columns ---------------------------------------------------------------------------------- */
/* x[batch, rows, n] -> [batch, chunks, n]. A block has `width` threads side by side along n, each
 * with N columns, and THREADS / width lanes that take turns with the rows of its chunk. */
typedef struct column_args {
    int64_t batch, rows, n, chunks, chunk;
    int width;
    tsri_result to;
} column_args;

template <typename T, typename F, int N>
static __global__ void columns_kernel(const T *x, column_args g)
{
    typedef tsri_acc<T> A;
    __shared__ A sums[N][THREADS];
    const int t = (int)threadIdx.x, lane = t / g.width, lanes = THREADS / g.width;
    const int64_t wide = (g.n + g.width * N - 1) / (g.width * N);
    for (int64_t tile = blockIdx.x; tile < g.batch * g.chunks * wide; tile += gridDim.x) {
        const int64_t part = tile / wide, b = part / g.chunks;
        const int64_t c = ((tile - part * wide) * g.width + t % g.width) * N;
        const int64_t begin = (part - b * g.chunks) * g.chunk;
        const int64_t end = begin + g.chunk < g.rows ? begin + g.chunk : g.rows;
        A acc[N];
#pragma unroll
        for (int j = 0; j < N; j++)
            acc[j] = F::template identity<A>();
        if (c < g.n) {
#pragma unroll 4
            for (int64_t r = begin + lane; r < end; r += lanes) {
                const tsri_pack<T, N> v = tsri_load_pack<T, N>(x + (b * g.rows + r) * g.n + c);
#pragma unroll
                for (int j = 0; j < N; j++)
                    acc[j] = F::of(acc[j], tsri_to<A>(v.v[j]));
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++)
            sums[j][t] = acc[j];
        for (int h = lanes / 2; h; h /= 2) {
            __syncthreads();
            if (lane < h) {
#pragma unroll
                for (int j = 0; j < N; j++)
                    sums[j][t] = F::of(sums[j][t], sums[j][t + h * g.width]);
            }
        }
        if (lane == 0 && c < g.n) {
#pragma unroll
            for (int j = 0; j < N; j++)
                tsri_store_result(g.to, part * g.n + c + j, sums[j][t]);
        }
        __syncthreads(); /* sums is written again */
    }
}

/* Columns that a thread takes at once. */
static int columns_at_once(tsr_dtype dtype, int64_t n)
{
    const int wide = 16 / (int)tsr_dtype_size(dtype);
    return n % wide == 0 ? wide : 1;
}

/* Threads side by side: a power of two, of a warp at most. */
static int width_of(tsr_dtype dtype, int64_t n)
{
    int width = 1;
    while (width < TSRI_WARP && width * columns_at_once(dtype, n) < n)
        width *= 2;
    return width;
}

template <typename T, typename F>
static void launch_columns(const T *x, const column_args &g, cudaStream_t stream)
{
    const int wide = tsri_wide<T>::N;
    if (g.n % wide == 0)
        TSRI_LAUNCH((columns_kernel<T, F, tsri_wide<T>::N>),
                    tsri_blocks(g.batch * g.chunks * tsri_ceil(g.n, g.width * wide), 1), THREADS,
                    stream, x, g);
    else
        TSRI_LAUNCH((columns_kernel<T, F, 1>),
                    tsri_blocks(g.batch * g.chunks * tsri_ceil(g.n, g.width), 1), THREADS, stream,
                    x, g);
}

/* --- running ---------------------------------------------------------------------------------- */
template <typename T, typename F>
static void run_rows(const reduce *v, const T *x, const tsri_result &to, char *scratch)
{
    typedef tsri_acc<T> A;
    const cudaStream_t stream = v->kernel.stream;
    const tsr_dtype sums = (tsr_dtype)tsri_dtype_of<A>::value;
    const int64_t rows = v->batch * v->leading * v->kept;
    const tsri_result chunks = {sums, scratch, 1}, partial = {sums, scratch + v->second, 1};
    const tsri_result last = v->leading > 1 ? partial : to;
    row_args g = {rows, v->trailing, v->chunks, v->chunk, v->chunks > 1 ? chunks : last};
    launch_rows<T, F>(x, g, stream);
    if (v->chunks > 1)
        launch_rows<A, F>((const A *)scratch, row_args{rows, v->chunks, 1, v->chunks, last},
                          stream);
    if (v->leading > 1)
        tsri_fold<F, A>((const A *)partial.p, v->batch, v->leading, v->kept,
                        tsri_results{{to, to}, INT64_MAX}, stream);
}

template <typename T, typename F>
static void run_columns(const reduce *v, const T *x, const tsri_result &to, char *scratch)
{
    typedef tsri_acc<T> A;
    const tsri_result partial = {(tsr_dtype)tsri_dtype_of<A>::value, scratch, 1};
    const column_args g = {v->batch,
                           v->leading,
                           v->kept,
                           v->chunks,
                           v->chunk,
                           width_of((tsr_dtype)tsri_dtype_of<T>::value, v->kept),
                           v->chunks > 1 ? partial : to};
    launch_columns<T, F>(x, g, v->kernel.stream);
    if (v->chunks > 1)
        tsri_fold<F, A>((const A *)scratch, v->batch, v->chunks, v->kept,
                        tsri_results{{to, to}, INT64_MAX}, v->kernel.stream);
}

template <typename F>
static void run_with(const reduce *v, const void *x, const tsri_result &to, void *scratch)
{
    const tsr_dtype dtype = v->kernel.desc.in[0].dtype;
    if (v->trailing > 1)
        TSRI_FLOATS(dtype, (run_rows<T, F>(v, (const T *)x, to, (char *)scratch)))
    else
        TSRI_FLOATS(dtype, (run_columns<T, F>(v, (const T *)x, to, (char *)scratch)))
}

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const reduce *v = (const reduce *)k;
    const int op = k->attrs.reduce.op;
    const tsri_result to = {k->desc.out[0].dtype, out[0],
                            op == TSR_REDUCE_SUM ? k->attrs.reduce.scale : 1};
    if (op == TSR_REDUCE_SUM)
        run_with<tsri_sum_fn>(v, in[0], to, scratch);
    else if (op == TSR_REDUCE_MAX)
        run_with<tsri_max_fn>(v, in[0], to, scratch);
    else if (op == TSRI_REDUCE_FAULT)
        run_with<tsri_fault_fn>(v, in[0], to, scratch);
    else
        run_with<tsri_min_fn>(v, in[0], to, scratch);
    return tsri_cuda_launched(k);
}

/* --- making ----------------------------------------------------------------------------------- */
/* x's axes longer than 1, outermost in memory first. */
static int sort_axes(const tsri_arg *x, int *axes)
{
    int n = 0;
    for (int a = 0; a < x->ndim; a++) {
        if (x->shape[a] == 1)
            continue;
        int i = n++;
        for (; i > 0 && x->stride[axes[i - 1]] < x->stride[a]; i--)
            axes[i] = axes[i - 1];
        axes[i] = a;
    }
    return n;
}

/* Reads the four sizes off x's axes. False: they are of another kind, or something is not dense in
 * that order. */
static bool classify(const tsri_kernel_desc *d, reduce *v)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    int axes[TSR_MAX_NDIM], n = sort_axes(x, axes);
    int64_t *size[4] = {&v->trailing, &v->kept, &v->leading, &v->batch};
    int64_t dense = 1, dense_y = 1;
    int at = 0; /* from the inside: reduced, kept, reduced, kept */
    v->batch = v->leading = v->kept = v->trailing = 1;
    for (int i = n - 1; i >= 0; i--) {
        const int a = axes[i];
        const bool reduced = d->attrs->reduce.axes >> a & 1;
        at += (at % 2 == 0) != reduced;
        if (at > 3 || x->shape[a] == 0 || x->stride[a] != dense)
            return false;
        int o = a;
        for (int b = 0; b < a && !d->attrs->reduce.keepdim; b++)
            o -= d->attrs->reduce.axes >> b & 1;
        if (!reduced && y->stride[o] != dense_y)
            return false;
        *size[at] *= x->shape[a];
        dense *= x->shape[a];
        dense_y *= reduced ? 1 : x->shape[a];
    }
    return v->trailing > 1 || v->leading > 1;
}

static void plan_chunks(const tsri_kernel_desc *d, reduce *v)
{
    const int64_t size = (int64_t)tsr_dtype_size(d->in[0].dtype);
    const int64_t rows = v->batch * v->leading * v->kept;
    int64_t whole = v->leading, tiles, least;
    if (v->trailing > 1) {
        whole = v->trailing;
        tiles = rows;
        least = CHUNK / size;
    } else {
        const int width = width_of(d->in[0].dtype, v->kept);
        tiles = v->batch * tsri_ceil(v->kept, width * columns_at_once(d->in[0].dtype, v->kept));
        least = 16 * (THREADS / width);
    }
    const int64_t most = tsri_ceil(BLOCKS, tiles), chunks = tsri_ceil(whole, least);
    /* Whole 16-byte loads, so that chunks of aligned rows are aligned. */
    v->chunk = tsri_ceil(tsri_ceil(whole, chunks < most ? chunks : most), 16) * 16;
    v->chunks = tsri_ceil(whole, v->chunk);
    if (v->trailing > 1) {
        v->second = v->chunks > 1 ? (size_t)tsri_ceil(rows * v->chunks, 8) * 64 : 0;
        v->kernel.base.scratch_bytes = v->second + (v->leading > 1 ? (size_t)rows * 8 : 0);
    } else {
        v->kernel.base.scratch_bytes =
            v->chunks > 1 ? (size_t)(v->batch * v->chunks * v->kept) * 8 : 0;
    }
}

tsr_status tsri_fast_reduce(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    reduce plan = {};
    if (d->attrs->reduce.op == TSRI_REDUCE_SQUARES)
        return tsri_cuda_squares(mem, d, out_kernel);
    if (!tsri_cuda_is_float(d->in[0].dtype) || !tsri_cuda_is_float(d->out[0].dtype) ||
        !classify(d, &plan))
        return tsri_cuda_decline(d);
    reduce *v = (reduce *)tsri_cuda_make(mem, d, run, "cuda", sizeof *v);
    TSRI_NEED(v);
    v->batch = plan.batch;
    v->leading = plan.leading;
    v->kept = plan.kept;
    v->trailing = plan.trailing;
    plan_chunks(d, v);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

tsr_status tsri_fast_softmax_max(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_fast_reduce(mem, d, out_kernel);
}
