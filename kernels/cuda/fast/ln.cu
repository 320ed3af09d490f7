/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm's parts of row-major operands. */
#include "kernels/cuda/code/fold.cuh"
#include "kernels/cuda/code/ln.cuh"

typedef struct layer_norm {
    tsri_cuda_kernel kernel;
    tsri_rows rows;
    int64_t split; /* rows of one partial sum of param_grad */
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

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    tsri_rows rows = {};
    if (!takes(d, &rows))
        return tsri_cuda_decline(d);
    layer_norm *v = (layer_norm *)tsri_cuda_make(mem, d, run, "cuda", sizeof *v);
    TSRI_NEED(v);
    const tsri_arg *operands[TSRI_WALK_OPS];
    int full, nstats, n = tsri_ln_list(d, operands, &full, &nstats);
    v->rows = rows;
    for (int o = 0; o < n; o++)
        v->rows.step[o] = o < full ? rows.n : o < full + nstats ? 2 : 0;
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

template <typename T>
static void run_grads_of(const layer_norm *v, void *const *in, void *const *out, void *scratch)
{
    typedef tsri_acc<T> A;
    const tsri_kernel_desc *d = &v->kernel.desc;
    const tsri_moments stats = tsri_ln_moments(d, in);
    const T *x = (const T *)in[0], *dy = (const T *)in[2];
    if (v->rows.n % tsri_wide<T>::N == 0)
        launch_grads<T, tsri_wide<T>::N>(v, x, dy, stats, (A *)scratch);
    else
        launch_grads<T, 1>(v, x, dy, stats, (A *)scratch);
    const tsri_results to = {{{d->out[0].dtype, out[0], 1}, {d->out[1].dtype, out[1], 1}},
                             v->rows.n};
    tsri_fold<tsri_sum_fn, A>((const A *)scratch, 1, splits_of(v), 2 * v->rows.n, to,
                              v->kernel.stream);
}

static tsr_status run_grads(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                            void *scratch)
{
    TSRI_FLOATS(k->desc.in[0].dtype, run_grads_of<T>((const layer_norm *)k, in, out, scratch));
    return tsri_cuda_launched(k);
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
    /* About BLOCKS blocks, whatever the GPU, so that results do not depend on it; whole tiles. */
    const int64_t wide = tsri_ceil(rows.n * (int64_t)tsr_dtype_size(d->in[0].dtype), 16 * WIDTH);
    const int64_t most = wide < BLOCKS ? BLOCKS / wide : 1;
    v->split = tsri_ceil(tsri_ceil(rows.count, most), TILE) * TILE;
    v->kernel.base.scratch_bytes = (size_t)(splits_of(v) * 2 * rows.n) * sizeof(double);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}
