/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling, channels last: the mean of whole planes, and maxima and means of any windows. */
#include "kernels/cuda/code/pool.cuh"
#include "kernels/cuda/code/channels.cuh"

/* --- means of planes -------------------------------------------------------------------------- */
enum { THREADS = 256, UNROLL = 4 };

typedef struct plane_mean {
    tsri_cuda_kernel base;
    tsri_tiles tiles;
    int64_t n, plane; /* local samples, pixels */
    double count;     /* global pixels */
} plane_mean;

/* A block per sample and tile of channels. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    mean_kernel(tsri_tiles t, int64_t plane, tsri_acc<T> count, const T *__restrict__ x,
                T *__restrict__ y)
{
    typedef tsri_acc<T> A;
    __shared__ A shared[V][THREADS];
    const int me = (int)threadIdx.x;
    const int64_t n = blockIdx.x / t.tiles;
    const tsri_tile_place at = tsri_tile_place_of(t, blockIdx.x % t.tiles);
    const int64_t step = t.height * t.c;
    const T *from = x + (n * plane + at.row) * t.c + at.channel;
    A sum[V] = {};
    for (int64_t left = tsri_channel_rows_left(t, {0, plane}, at); left > 0; left -= UNROLL) {
        tsri_pack<T, V> in[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (u < left)
                in[u] = tsri_load_pack<T, V>(from + u * step);
#pragma unroll
        for (int i = 0; i < V; i++)
            sum[i] += (tsri_pack_at(in[0], i) + tsri_pack_at(in[1], i)) +
                      (tsri_pack_at(in[2], i) + tsri_pack_at(in[3], i));
        from += UNROLL * step;
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        shared[i][me] = sum[i];
    int half = 1;
    while (2 * half < t.height)
        half *= 2;
    for (; half > 0; half /= 2) {
        __syncthreads();
        if (at.row < half && at.row + half < t.height) {
#pragma unroll
            for (int i = 0; i < V; i++)
                shared[i][me] += shared[i][me + half * t.width];
        }
    }
    if (at.row > 0 || at.idle)
        return;
    tsri_pack<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++)
        out.v[i] = tsri_to<T>(shared[i][me] / count);
    tsri_store_pack<T, V>(y + n * t.c + at.channel, out);
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    mean_dx_kernel(tsri_tiles t, int64_t plane, tsri_acc<T> count, const T *__restrict__ dy,
                   T *__restrict__ dx)
{
    const int64_t n = blockIdx.x / t.tiles;
    const tsri_tile_place at = tsri_tile_place_of(t, blockIdx.x % t.tiles);
    if (at.idle)
        return;
    tsri_pack<T, V> v = tsri_load_pack<T, V>(dy + n * t.c + at.channel);
#pragma unroll
    for (int i = 0; i < V; i++)
        v.v[i] = tsri_to<T>(tsri_pack_at(v, i) / count);
    T *to = dx + n * plane * t.c + at.channel;
#pragma unroll 4
    for (int64_t p = at.row; p < plane; p += t.height)
        tsri_store_pack<T, V>(to + p * t.c, v);
}

template <typename T, int V> static void launch_mean(const plane_mean *m, const void *in, void *out)
{
    const unsigned grid = (unsigned)m->n * m->tiles.tiles;
    const int threads = (m->tiles.width * m->tiles.height + 31) / 32 * 32;
    const tsri_acc<T> count = (tsri_acc<T>)m->count;
    if (m->base.desc.op == TSRI_OP_ADAPTIVE_POOL)
        TSRI_LAUNCH((mean_kernel<T, V>), grid, threads, m->base.stream, m->tiles, m->plane, count,
                    (const T *)in, (T *)out);
    else
        TSRI_LAUNCH((mean_dx_kernel<T, V>), grid, threads, m->base.stream, m->tiles, m->plane,
                    count, (const T *)in, (T *)out);
}

static tsr_status mean_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const plane_mean *m = (const plane_mean *)k;
    if (!tsri_cuda_count(&k->desc.out[0]))
        return TSR_OK;
    TSRI_FLOATS(k->desc.out[0].dtype, {
        if (m->tiles.pack == 1)
            launch_mean<T, 1>(m, in[0], out[0]);
        else
            launch_mean<T, tsri_full_pack<T>()>(m, in[0], out[0]);
    })
    return tsri_cuda_launched(k);
}

/* big: what has planes. */
static tsr_status create_mean(tsri_mem *mem, const tsri_kernel_desc *d, const tsri_arg *big,
                              const tsri_arg *small, tsri_kernel **out_kernel)
{
    if (!tsri_pool_takes(d) || small->gshape[2] != 1 || small->gshape[3] != 1 ||
        small->shape[2] != 1 || small->shape[3] != 1 || !tsri_cuda_is_nhwc(big) ||
        !tsri_cuda_is_nhwc(small))
        return tsri_cuda_decline(d);
    const int full = 16 / (int)tsr_dtype_size(big->dtype), pack = big->shape[1] % full ? 1 : full;
    tsri_tiles t = tsri_tiles_of(big->shape[1], pack, pack == 1 ? 128 : 32, THREADS);
    if (big->shape[0] * t.tiles > 1 << 30)
        return tsri_cuda_decline(d);
    plane_mean *m = (plane_mean *)tsri_cuda_make(mem, d, mean_run, "cuda", sizeof *m);
    TSRI_NEED(m);
    m->n = big->shape[0];
    m->plane = big->shape[2] * big->shape[3];
    m->count = (double)big->gshape[2] * (double)big->gshape[3];
    /* A small plane has no work for more threads. */
    const int64_t rows = (m->plane + UNROLL - 1) / UNROLL;
    t.height = t.height < rows ? t.height : (int)(rows > 0 ? rows : 1);
    m->tiles = t;
    *out_kernel = &m->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_adaptive_pool(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create_mean(mem, d, &d->in[0], &d->out[0], out);
}

tsr_status tsri_fast_adaptive_pool_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create_mean(mem, d, &d->out[0], &d->in[0], out);
}

/* --- windows ---------------------------------------------------------------------------------- */
enum { PACK = 4 };

/* Counts are below 2^31. */
typedef struct windows {
    int kernel[2], stride[2], pad[2];
    int big[2], small[2];
    int packs, count; /* of channels; packs of the result */
    bool count_pad;   /* means: the divisor counts positions outside */
} windows;

typedef struct window_pool {
    tsri_cuda_kernel base;
    windows w;
} window_pool;

/* Where pack i of a channels-last tensor is. */
typedef struct spot {
    int pack, w, h, n;
} spot;

static __device__ __forceinline__ spot spot_of(int i, int packs, const int *size)
{
    spot s;
    int rest = i / packs;
    s.pack = i - rest * packs;
    i = rest / size[1];
    s.w = rest - i * size[1];
    s.n = i / size[0];
    s.h = i - s.n * size[0];
    return s;
}

static __device__ __forceinline__ int64_t offset(int n, int h, int w, int pack, const int *size,
                                                 int packs)
{
    return ((((int64_t)n * size[0] + h) * size[1] + w) * packs + pack) * PACK;
}

/* The part inside of output position o's window; the windows that hold input position p. */
static __device__ __forceinline__ void window(const windows &v, int i, int o, int *begin, int *end)
{
    int b = o * v.stride[i] - v.pad[i], e = b + v.kernel[i];
    *begin = b < 0 ? 0 : b;
    *end = e > v.big[i] ? v.big[i] : e;
}
static __device__ __forceinline__ void holders(const windows &v, int i, int p, int *begin, int *end)
{
    int q = p + v.pad[i], e = q / v.stride[i] + 1;
    *begin = q < v.kernel[i] ? 0 : (q - v.kernel[i]) / v.stride[i] + 1;
    *end = e > v.small[i] ? v.small[i] : e;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    max_kernel(windows v, const T *__restrict__ x, T *__restrict__ y, int32_t *__restrict__ idx)
{
    const int64_t i = tsri_first();
    if (i >= v.count)
        return;
    const spot s = spot_of((int)i, v.packs, v.small);
    int h0, h1, w0, w1;
    window(v, 0, s.h, &h0, &h1);
    window(v, 1, s.w, &w0, &w1);
    tsri_pack<int32_t, PACK> found;
    float best[PACK];
#pragma unroll
    for (int k = 0; k < PACK; k++) {
        found.v[k] = -1;
        best[k] = -INFINITY;
    }
    for (int a = h0; a < h1; a++)
        for (int b = w0; b < w1; b++) {
            const tsri_pack<T, PACK> in =
                tsri_load_pack<T, PACK>(x + offset(s.n, a, b, s.pack, v.big, v.packs));
            const int32_t here = a * v.big[1] + b;
#pragma unroll
            for (int k = 0; k < PACK; k++) {
                float value = tsri_pack_at(in, k);
                if (found.v[k] < 0 || value > best[k] || (value != value && best[k] == best[k])) {
                    best[k] = value;
                    found.v[k] = here;
                }
            }
        }
    tsri_pack<T, PACK> out;
#pragma unroll
    for (int k = 0; k < PACK; k++)
        out.v[k] = tsri_to<T>(best[k]);
    tsri_store_pack<T, PACK>(y + i * PACK, out);
    if (idx)
        tsri_store_pack<int32_t, PACK>(idx + i * PACK, found);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    max_dx_kernel(windows v, const int32_t *__restrict__ idx, const T *__restrict__ dy,
                  T *__restrict__ dx)
{
    const int64_t i = tsri_first();
    if (i >= v.count)
        return;
    const spot s = spot_of((int)i, v.packs, v.big);
    const int32_t me = s.h * v.big[1] + s.w;
    int h0, h1, w0, w1;
    holders(v, 0, s.h, &h0, &h1);
    holders(v, 1, s.w, &w0, &w1);
    float sum[PACK] = {};
    for (int a = h0; a < h1; a++)
        for (int b = w0; b < w1; b++) {
            const int64_t at = offset(s.n, a, b, s.pack, v.small, v.packs);
            const tsri_pack<int32_t, PACK> from = tsri_load_pack<int32_t, PACK>(idx + at);
            const tsri_pack<T, PACK> g = tsri_load_pack<T, PACK>(dy + at);
#pragma unroll
            for (int k = 0; k < PACK; k++)
                sum[k] += from.v[k] == me ? tsri_pack_at(g, k) : 0.0f;
        }
    tsri_pack<T, PACK> out;
#pragma unroll
    for (int k = 0; k < PACK; k++)
        out.v[k] = tsri_to<T>(sum[k]);
    tsri_store_pack<T, PACK>(dx + i * PACK, out);
}

static __device__ __forceinline__ float divisor(const windows &v, int h, int w)
{
    if (v.count_pad)
        return (float)(v.kernel[0] * v.kernel[1]);
    int h0, h1, w0, w1;
    window(v, 0, h, &h0, &h1);
    window(v, 1, w, &w0, &w1);
    return (float)((h1 - h0) * (w1 - w0));
}

/* Sums as plain/pool.cu's, line by line. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    window_mean_kernel(windows v, const T *__restrict__ x, T *__restrict__ y)
{
    const int64_t i = tsri_first();
    if (i >= v.count)
        return;
    const spot s = spot_of((int)i, v.packs, v.small);
    int h0, h1, w0, w1;
    window(v, 0, s.h, &h0, &h1);
    window(v, 1, s.w, &w0, &w1);
    float sum[PACK] = {};
    for (int a = h0; a < h1; a++) {
        float line[PACK] = {};
        for (int b = w0; b < w1; b++) {
            const tsri_pack<T, PACK> in =
                tsri_load_pack<T, PACK>(x + offset(s.n, a, b, s.pack, v.big, v.packs));
#pragma unroll
            for (int k = 0; k < PACK; k++)
                line[k] += tsri_pack_at(in, k);
        }
#pragma unroll
        for (int k = 0; k < PACK; k++)
            sum[k] += line[k];
    }
    const float by = divisor(v, s.h, s.w);
    tsri_pack<T, PACK> out;
#pragma unroll
    for (int k = 0; k < PACK; k++)
        out.v[k] = tsri_to<T>(sum[k] / by);
    tsri_store_pack<T, PACK>(y + i * PACK, out);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    window_mean_dx_kernel(windows v, const T *__restrict__ dy, T *__restrict__ dx)
{
    const int64_t i = tsri_first();
    if (i >= v.count)
        return;
    const spot s = spot_of((int)i, v.packs, v.big);
    int h0, h1, w0, w1;
    holders(v, 0, s.h, &h0, &h1);
    holders(v, 1, s.w, &w0, &w1);
    float sum[PACK] = {};
    for (int a = h0; a < h1; a++)
        for (int b = w0; b < w1; b++) {
            const tsri_pack<T, PACK> g =
                tsri_load_pack<T, PACK>(dy + offset(s.n, a, b, s.pack, v.small, v.packs));
            const float part = 1 / divisor(v, a, b);
#pragma unroll
            for (int k = 0; k < PACK; k++)
                sum[k] = fmaf(tsri_pack_at(g, k), part, sum[k]);
        }
    tsri_pack<T, PACK> out;
#pragma unroll
    for (int k = 0; k < PACK; k++)
        out.v[k] = tsri_to<T>(sum[k]);
    tsri_store_pack<T, PACK>(dx + i * PACK, out);
}

template <typename T>
static void launch_windows(const window_pool *m, void *const *in, void *const *out)
{
    const unsigned grid = tsri_blocks(m->w.count, THREADS);
    switch (m->base.desc.op) {
    case TSRI_OP_MAX_POOL:
        TSRI_LAUNCH((max_kernel<T>), grid, THREADS, m->base.stream, m->w, (const T *)in[0],
                    (T *)out[0], m->base.desc.nout > 1 ? (int32_t *)out[1] : NULL);
        break;
    case TSRI_OP_MAX_POOL_DX:
        TSRI_LAUNCH((max_dx_kernel<T>), grid, THREADS, m->base.stream, m->w, (const int32_t *)in[0],
                    (const T *)in[1], (T *)out[0]);
        break;
    case TSRI_OP_AVG_POOL:
        TSRI_LAUNCH((window_mean_kernel<T>), grid, THREADS, m->base.stream, m->w, (const T *)in[0],
                    (T *)out[0]);
        break;
    default:
        TSRI_LAUNCH((window_mean_dx_kernel<T>), grid, THREADS, m->base.stream, m->w,
                    (const T *)in[0], (T *)out[0]);
    }
}

static tsr_status windows_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const window_pool *m = (const window_pool *)k;
    if (!m->w.count)
        return TSR_OK;
    switch (k->desc.out[0].dtype) {
    case TSR_DTYPE_F32:
        launch_windows<float>(m, in, out);
        break;
    case TSR_DTYPE_F16:
        launch_windows<__half>(m, in, out);
        break;
    default:
        launch_windows<__nv_bfloat16>(m, in, out);
    }
    return tsri_cuda_launched(k);
}

static tsr_status create_windows(tsri_mem *mem, const tsri_kernel_desc *d, const tsri_arg *big,
                                 const tsri_arg *small, tsri_kernel **out_kernel)
{
    const int64_t count = tsri_cuda_count(&d->out[0]) / PACK;
    bool nhwc = true;
    for (int i = 0; i < d->nin; i++)
        nhwc = nhwc && tsri_cuda_is_nhwc(&d->in[i]);
    for (int i = 0; i < d->nout; i++)
        nhwc = nhwc && tsri_cuda_is_nhwc(&d->out[i]);
    /* tsri_blocks goes round above 2^20 blocks; these kernels don't. */
    if (!tsri_pool_takes(d) || big->dtype == TSR_F64 || !nhwc || big->shape[1] % PACK ||
        count > (int64_t)THREADS << 20)
        return tsri_cuda_decline(d);
    window_pool *m = (window_pool *)tsri_cuda_make(mem, d, windows_run, "cuda", sizeof *m);
    TSRI_NEED(m);
    m->w.count_pad = d->attrs->pool.count_include_pad;
    for (int i = 0; i < 2; i++) {
        m->w.kernel[i] = d->attrs->pool.kernel[i];
        m->w.stride[i] = d->attrs->pool.stride[i];
        m->w.pad[i] = d->attrs->pool.pad[i];
        m->w.big[i] = (int)big->shape[2 + i];
        m->w.small[i] = (int)small->shape[2 + i];
    }
    m->w.packs = (int)(big->shape[1] / PACK);
    m->w.count = (int)count;
    *out_kernel = &m->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_max_pool(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create_windows(mem, d, &d->in[0], &d->out[0], out);
}

tsr_status tsri_fast_max_pool_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create_windows(mem, d, &d->out[0], &d->in[1], out);
}

tsr_status tsri_fast_avg_pool(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create_windows(mem, d, &d->in[0], &d->out[0], out);
}

tsr_status tsri_fast_avg_pool_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create_windows(mem, d, &d->out[0], &d->in[0], out);
}
