/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm's parts of row-major operands. */
#include "kernels/cuda/code/fold.cuh"
#include "kernels/cuda/code/ln.cuh"

typedef struct layer_norm {
    tsri_cuda_kernel kernel;
    tsri_rows rows;
    int64_t split;      /* rows of one partial sum of param_grad */
    int64_t both_split; /* of one made on the way to dx; 0: rows are too long, or of odd length */
} layer_norm;

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_rows &rows = ((const layer_norm *)k)->rows;
    TSRI_FLOATS(k->desc.in[0].dtype, tsri_ln_dispatch<T>(&k->desc, in, out, [&](const auto &op) {
                    if constexpr (std::decay_t<decltype(op)>::REDUCES &&
                                  std::decay_t<decltype(op)>::MAPS)
                        tsri_launch_kept(op, rows, k->stream);
                    else
                        tsri_launch_loop(op, rows, k->stream);
                }));
    return tsri_cuda_launched(k);
}

/* Rows and features of x. False: there are none, which is not worth a fast kernel. */
static bool measure(const tsri_kernel_desc *d, tsri_rows *rows)
{
    const tsri_arg *x = &d->in[0];
    rows->count = rows->n = 1;
    for (int i = 0; i < x->ndim; i++)
        *(i < x->ndim - d->attrs->ln.axes ? &rows->count : &rows->n) *= x->shape[i];
    return rows->count > 0 && rows->n > 0;
}

/* Whether gamma or beta (operand -1: there is none) has the features, each once. */
static bool has_features(const tsri_kernel_desc *d, int operand)
{
    const tsri_arg *x = &d->in[0], *a = &d->in[operand < 0 ? 0 : operand];
    const int axes = d->attrs->ln.axes;
    bool has = operand < 0 || a->ndim == axes;
    for (int i = 0; operand >= 0 && has && i < axes; i++)
        has = a->shape[i] == x->shape[x->ndim - axes + i];
    return has;
}

static bool takes(const tsri_kernel_desc *d, tsri_rows *rows)
{
    const tsri_ln_operands at = tsri_ln_find(d);
    bool all = tsri_ln_takes(d) && measure(d, rows);
    all = all && has_features(d, at.gamma) && has_features(d, at.beta);
    if (at.gamma >= 0)
        all = all && d->in[at.gamma].dtype == d->in[0].dtype;
    if (at.beta >= 0)
        all = all && d->in[at.beta].dtype == d->in[0].dtype;
    for (int i = 0; i < d->nin; i++)
        all = all && tsri_cuda_is_row(&d->in[i]);
    for (int i = 0; i < d->nout; i++)
        all = all && tsri_cuda_is_row(&d->out[i]);
    return all;
}

/* --- gradients of gamma and beta -------------------------------------------------------------- */
/* A block has WIDTH threads side by side along the features, each with N of them, and LANES that
 * take turns with the rows of its split. */
enum { WIDTH = 32, LANES = 8, THREADS = WIDTH * LANES, TILE = 64, BLOCKS = 1024 };

/* partial[split][dgamma, dbeta][n] */
template <typename T, int N>
static __global__ void grads_kernel(int64_t count, int64_t n, int64_t split, const T *x,
                                    const T *dy, tsri_moments stats, tsri_acc<T> *partial)
{
    typedef tsri_acc<T> A;
    __shared__ A mean[TILE], rstd[TILE], sums[LANES][N * WIDTH];
    const int t = (int)threadIdx.x, lane = t / WIDTH;
    const int64_t first = (int64_t)blockIdx.x * (N * WIDTH), c = first + t % WIDTH * N;
    const int64_t begin = (int64_t)blockIdx.y * split;
    const int64_t end = begin + split < count ? begin + split : count;
    A sum[2][N];
    for (int j = 0; j < N; j++)
        sum[0][j] = sum[1][j] = 0;
    for (int64_t r0 = begin; r0 < end; r0 += TILE) {
        const int64_t rows = end - r0 < TILE ? end - r0 : (int64_t)TILE;
        __syncthreads();
        if (t < rows)
            tsri_moments_of(stats, 2 * (r0 + t), &mean[t], &rstd[t]);
        __syncthreads();
#pragma unroll 2
        for (int64_t r = lane; r < rows && c < n; r += LANES) {
            const tsri_pack<T, N> px = tsri_load_pack<T, N>(x + (r0 + r) * n + c);
            const tsri_pack<T, N> pg = tsri_load_pack<T, N>(dy + (r0 + r) * n + c);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const A g = tsri_to<A>(pg.v[j]);
                sum[0][j] += g * ((tsri_to<A>(px.v[j]) - mean[r]) * rstd[r]);
                sum[1][j] += g;
            }
        }
    }
    for (int o = 0; o < 2; o++) {
        __syncthreads();
        for (int j = 0; j < N; j++)
            sums[lane][t % WIDTH * N + j] = sum[o][j];
        __syncthreads();
        if (t < N * WIDTH && first + t < n) {
            A all = 0;
            for (int l = 0; l < LANES; l++)
                all += sums[l][t];
            partial[((int64_t)blockIdx.y * 2 + o) * n + first + t] = all;
        }
    }
}

static int64_t splits_of(const layer_norm *v)
{
    return tsri_ceil(v->rows.count, v->split);
}

template <typename T, int N>
static void launch_grads(const layer_norm *v, const T *x, const T *dy, const tsri_moments &stats,
                         tsri_acc<T> *partial)
{
    const dim3 grid((unsigned)tsri_ceil(v->rows.n, N * WIDTH), (unsigned)splits_of(v));
    TSRI_LAUNCH((grads_kernel<T, N>), grid, THREADS, v->kernel.stream, v->rows.count, v->rows.n,
                v->split, x, dy, stats, partial);
}

/* The parts' sums to dgamma and dbeta, the results from `first` on. */
template <typename A>
static void fold_grads(const layer_norm *v, int first, int64_t parts, const void *partial,
                       void *const *out)
{
    const tsri_arg *to = &v->kernel.desc.out[first];
    const tsri_results both = {{{to[0].dtype, out[first], 1}, {to[1].dtype, out[first + 1], 1}},
                               v->rows.n};
    tsri_fold<tsri_sum_fn, A>((const A *)partial, 1, parts, 2 * v->rows.n, both, v->kernel.stream);
}

template <typename T>
static void run_grads_of(const layer_norm *v, int first, void *const *in, void *const *out,
                         void *scratch)
{
    typedef tsri_acc<T> A;
    const tsri_kernel_desc *d = &v->kernel.desc;
    const tsri_moments stats = tsri_ln_moments(d, in);
    const T *x = (const T *)in[0], *dy = (const T *)in[tsri_ln_find(d).dy];
    if (v->rows.n % tsri_wide<T>::N == 0)
        launch_grads<T, tsri_wide<T>::N>(v, x, dy, stats, (A *)scratch);
    else
        launch_grads<T, 1>(v, x, dy, stats, (A *)scratch);
    fold_grads<A>(v, first, splits_of(v), scratch, out);
}

static tsr_status run_grads(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                            void *scratch)
{
    TSRI_FLOATS(k->desc.in[0].dtype, run_grads_of<T>((const layer_norm *)k, 0, in, out, scratch));
    return tsri_cuda_launched(k);
}

/* About BLOCKS blocks, whatever the GPU, so that results do not depend on it; whole tiles. */
static void set_split(layer_norm *v)
{
    const int64_t bytes = v->rows.n * (int64_t)tsr_dtype_size(v->kernel.desc.in[0].dtype);
    const int64_t wide = tsri_ceil(bytes, 16 * WIDTH), most = wide < BLOCKS ? BLOCKS / wide : 1;
    v->split = tsri_ceil(tsri_ceil(v->rows.count, most), TILE) * TILE;
    v->kernel.base.scratch_bytes = (size_t)(splits_of(v) * 2 * v->rows.n) * sizeof(double);
}

tsr_status tsri_fast_ln_param_grad(tsri_mem *mem, const tsri_kernel_desc *d,
                                   tsri_kernel **out_kernel)
{
    tsri_rows rows = {};
    if (!takes(d, &rows))
        return tsri_cuda_decline(d);
    layer_norm *v = (layer_norm *)tsri_cuda_make(mem, d, run_grads, "cuda", sizeof *v);
    TSRI_NEED(v);
    v->rows = rows;
    set_split(v);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

/* --- all gradients at once -------------------------------------------------------------------- */
/* Rows of at most WARP_PACKS packs a lane of a warp, or BLOCK_PACKS a thread of a block. */
enum { WARP_PACKS = 4, BLOCK_PACKS = 2, WARP_THREADS = 128, BLOCK_THREADS = 512 };
enum { WARP_PARTS = 384, BLOCK_PARTS = 512 }; /* about, whatever the GPU */

/* Adds the warps' sums in their order, and writes them. Element j of lane l's pack p is in column
 * (32 p + l) N + j; they lie in shared memory so that lanes side by side meet all banks either way.
 */
template <typename A, int PACKS, int N>
static __device__ void store_warps(const A (&sum)[2][PACKS][N], int n, A *to)
{
    enum { PITCH = TSRI_WARP + 1, WARPS = WARP_THREADS / TSRI_WARP };
    __shared__ A all[2][PACKS * N * PITCH];
    const int lane = (int)threadIdx.x % TSRI_WARP, warp = (int)threadIdx.x / TSRI_WARP;
    for (int w = 0; w < WARPS; w++) {
        if (w == warp)
#pragma unroll
            for (int i = 0; i < 2 * PACKS * N; i++) {
                A *at = &all[i / (PACKS * N)][i % (PACKS * N) * PITCH + lane];
                const A v = sum[i / (PACKS * N)][i / N % PACKS][i % N];
                *at = w ? *at + v : v;
            }
        __syncthreads();
    }
    for (int o = 0; o < 2; o++)
        for (int c = (int)threadIdx.x; c < n; c += WARP_THREADS) {
            const int p = c / (TSRI_WARP * N), l = c / N % TSRI_WARP, j = c % N;
            to[o * n + c] = all[o][(p * N + j) * PITCH + l];
        }
}

/* Makes the compiler convert elements of 2 bytes again where they are used again: as f32 they would
 * stay in twice the registers. */
template <typename T, int N> static __device__ __forceinline__ void keep_packed(tsri_pack<T, N> &v)
{
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(T) == 2) {
        uint32_t word[N / 2];
        memcpy(word, &v, sizeof word);
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            asm volatile("" : "+r"(word[i]));
        memcpy(&v, word, sizeof word);
    }
#else
    (void)v;
#endif
}

/* The rows of a part: dx, and the sums for gamma and beta, which a lane keeps for its columns.
 * partial[part][dgamma, dbeta][n] */
template <typename T, int LANES, int PACKS>
static __global__ void __launch_bounds__(LANES ? (int)WARP_THREADS : (int)BLOCK_THREADS,
                                         LANES ? 3 : 3 - PACKS)
    both_kernel(tsri_ln_dx_op<T> op, tsri_rows rows, int64_t split, tsri_acc<T> *partial)
{
    typedef tsri_acc<T> A;
    enum { N = tsri_wide<T>::N };
    const int lane = tsri_lane<LANES>(), lanes = tsri_lanes<LANES>();
    const int n = (int)rows.n, groups = LANES ? WARP_THREADS / TSRI_WARP : 1;
    const int64_t begin = (int64_t)blockIdx.x * split;
    const int64_t end = begin + split < rows.count ? begin + split : rows.count;
    A sum[2][PACKS][N] = {};
    for (int64_t r = begin + (int)threadIdx.x / lanes; r < end; r += groups) {
        int64_t at[TSRI_WALK_OPS];
#pragma unroll
        for (int o = 0; o < TSRI_WALK_OPS; o++)
            at[o] = r * rows.step[o];
        tsri_pack<T, N> kept[PACKS][2];
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int c = (p * lanes + lane) * N;
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (c < n)
                    kept[p][i] = tsri_load_pack<T, N>(op.in[i] + at[i] + c);
        }
        typename tsri_ln_dx_op<T>::Row row;
        op.begin(row, r, at);
        tsri_two_sums state = op.start();
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int c = (p * lanes + lane) * N;
            if (c >= n)
                continue;
            keep_packed(kept[p][0]);
            keep_packed(kept[p][1]);
            op.template add<N>(state, row, kept[p], tsri_spot{c, c, c});
        }
        op.template finish<LANES>(state, row, r, n, at);
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            const int c = (p * lanes + lane) * N;
            if (c >= n)
                continue;
            keep_packed(kept[p][0]);
            keep_packed(kept[p][1]);
            tsri_store_pack<T, N>(op.out + at[2] + c,
                                  op.template map<N>(row, kept[p], tsri_spot{c, c, c}));
#pragma unroll
            for (int j = 0; j < N; j++) {
                const A g = tsri_to<A>(kept[p][1].v[j]);
                sum[0][p][j] += g * ((tsri_to<A>(kept[p][0].v[j]) - row.mean) * row.rstd);
                sum[1][p][j] += g;
            }
        }
    }
    A *to = partial + (int64_t)blockIdx.x * 2 * n;
    if constexpr (LANES == TSRI_WARP) {
        store_warps<A, PACKS, N>(sum, n, to);
    } else {
#pragma unroll
        for (int i = 0; i < 2 * PACKS; i++) {
            const int c = (i % PACKS * lanes + lane) * N;
            tsri_pack<A, N> one;
            memcpy(&one, sum[i / PACKS][i % PACKS], sizeof one);
            if (c < n)
                tsri_store_pack<A, N>(to + i / PACKS * n + c, one);
        }
    }
}

/* 16-byte packs of a row; -1: it does not come out even. */
static int64_t packs_of(const layer_norm *v)
{
    const int64_t n = 16 / (int64_t)tsr_dtype_size(v->kernel.desc.in[0].dtype);
    return v->rows.n % n ? -1 : v->rows.n / n;
}

static void set_both_split(layer_norm *v)
{
    enum { WARPS = WARP_THREADS / TSRI_WARP, LEAST = 4 };
    const int64_t packs = packs_of(v), count = v->rows.count;
    v->both_split = 0;
    if (packs < 0 || packs > BLOCK_PACKS * BLOCK_THREADS)
        return;
    if (packs <= WARP_PACKS * TSRI_WARP)
        v->both_split = tsri_ceil(tsri_ceil(count, WARP_PARTS), WARPS) * WARPS;
    else
        v->both_split =
            count > LEAST * BLOCK_PARTS ? tsri_ceil(count, BLOCK_PARTS) : (int64_t)LEAST;
    const int64_t parts = tsri_ceil(count, v->both_split);
    v->kernel.base.scratch_bytes = (size_t)(parts * 2 * v->rows.n) * sizeof(double);
}

template <typename T>
static void run_both_of(const layer_norm *v, const tsri_ln_dx_op<T> &op, void *const *out,
                        void *scratch)
{
    typedef tsri_acc<T> A;
    const int64_t packs = packs_of(v), parts = tsri_ceil(v->rows.count, v->both_split);
    A *to = (A *)scratch;
#define BOTH(lanes, packs, threads)                                                   \
    TSRI_LAUNCH((both_kernel<T, lanes, packs>), (unsigned)parts, (unsigned)(threads), \
                v->kernel.stream, op, v->rows, v->both_split, to)
    if (packs <= TSRI_WARP)
        BOTH(TSRI_WARP, 1, WARP_THREADS);
    else if (packs <= 2 * TSRI_WARP)
        BOTH(TSRI_WARP, 2, WARP_THREADS);
    else if (packs <= 3 * TSRI_WARP)
        BOTH(TSRI_WARP, 3, WARP_THREADS);
    else if (packs <= WARP_PACKS * TSRI_WARP)
        BOTH(TSRI_WARP, WARP_PACKS, WARP_THREADS);
    else if (sizeof(T) > 2 && packs <= BLOCK_THREADS)
        BOTH(TSRI_BLOCK, (sizeof(T) > 2 ? 1 : (int)BLOCK_PACKS),
             tsri_ceil(packs, TSRI_WARP) * TSRI_WARP);
    else
        BOTH(TSRI_BLOCK, BLOCK_PACKS, tsri_ceil(packs, BLOCK_PACKS * TSRI_WARP) * TSRI_WARP);
#undef BOTH
    fold_grads<A>(v, 1, parts, scratch, out);
}

static tsr_status run_both(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    const layer_norm *v = (const layer_norm *)k;
    if (!v->both_split) {
        TSRI_TRY(run(k, in, out, scratch));
        TSRI_FLOATS(k->desc.in[0].dtype, run_grads_of<T>(v, 1, in, out, scratch));
        return tsri_cuda_launched(k);
    }
    TSRI_FLOATS(k->desc.in[0].dtype, tsri_ln_dispatch<T>(&k->desc, in, out, [&](const auto &op) {
                    if constexpr (std::is_same<std::decay_t<decltype(op)>, tsri_ln_dx_op<T>>::value)
                        run_both_of<T>(v, op, out, scratch);
                }));
    return tsri_cuda_launched(k);
}

/* --- the others ------------------------------------------------------------------------------- */
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool both = tsri_ln_makes_grads(d);
    tsri_rows rows = {};
    if (!takes(d, &rows))
        return tsri_cuda_decline(d);
    layer_norm *v = (layer_norm *)tsri_cuda_make(mem, d, both ? run_both : run, "cuda", sizeof *v);
    TSRI_NEED(v);
    const tsri_arg *operands[TSRI_WALK_OPS];
    int full, nstats, n = tsri_ln_list(d, operands, &full, &nstats);
    v->rows = rows;
    for (int o = 0; o < n; o++)
        v->rows.step[o] = o < full ? rows.n : o < full + nstats ? 2 : 0;
    if (both) {
        set_split(v);
        set_both_split(v);
    }
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

#define SLOT(op)                                                                                  \
    tsr_status tsri_fast_##op(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel) \
    {                                                                                             \
        return create(mem, d, out_kernel);                                                        \
    }
SLOT(ln_stats)
SLOT(ln_apply)
SLOT(ln_bwd_stats)
SLOT(ln_bwd_apply)
