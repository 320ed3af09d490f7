/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm's element-wise halves, channels last: y and dx, with the activation. Per channel they
 * come to y = act(a x + b) and dx = a t + p x + q; a block works out its channels' factors in f64
 * while its first loads are under way.
 */
#include "kernels/cuda/code/bn.cuh"

enum { THREADS = 256, UNROLL = 4, UNROLL_BWD = 2 };

/* Blocks whose threads have a row each are enough for a small tensor; a large one gets as many as
 * this for each processor, so that factors are worked out seldom. */
enum { BLOCKS = 12 };

/* A tile's channels of row `row` of stats into shared memory. */
template <typename A>
static __device__ void load_factors(const tsri_bn &v, const tsri_bn_data &p, const tsri_tiles &t,
                                    unsigned tile, int64_t row, double share, A *a, A *b, A *slope,
                                    A *shift)
{
    const int n = t.width * t.pack;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        int64_t c = (int64_t)tile * n + i;
        if (c >= t.c)
            break;
        if (!p.stats) { /* scale_shift */
            a[i] = (A)tsri_get_float(v.gamma_type, p.gamma, c);
            b[i] = (A)tsri_get_float(v.beta_type, p.beta, c);
            continue;
        }
        tsri_bn_coefs k = tsri_bn_coefs_of(v, p, row, share, c);
        a[i] = (A)k.a;
        b[i] = (A)(k.b - k.mean * k.a);
        if (slope) {
            tsri_bn_slopes s = tsri_bn_slopes_of(v, p, row, share, k.rstd, c);
            slope[i] = (A)(-k.a * s.k1);
            shift[i] = (A)(k.a * (s.k1 * k.mean - s.k0));
        }
    }
}

template <typename A, int V>
static __device__ __forceinline__ void take(A (&to)[V], const A *from, const tsri_tile_place &at)
{
#pragma unroll
    for (int i = 0; i < V; i++)
        to[i] = at.idle ? (A)0 : from[at.column * V + i];
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS, 4)
    apply_kernel(tsri_bn v, tsri_bn_data p, tsri_tiles t, int64_t plane, const T *__restrict__ x,
                 T *__restrict__ y)
{
    typedef tsri_acc<T> A;
    __shared__ A scales[TSRI_TILE_CHANNELS], shifts[TSRI_TILE_CHANNELS];
    const unsigned tile = blockIdx.x % t.tiles;
    const tsri_bn_part part = tsri_bn_part_of(v, blockIdx.y);
    const tsri_channel_rows rows =
        tsri_channel_rows_of(t, part.begin * plane, part.end * plane, blockIdx.x / t.tiles);
    const tsri_tile_place at = tsri_tile_place_of(t, tile);
    const int64_t step = t.height * t.c, begin = (rows.begin + at.row) * t.c + at.channel;
    int64_t left = tsri_channel_rows_left(t, rows, at);
    const T *from = x + begin;
    T *to = y + begin;
    tsri_pack<T, V> in[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (u < left)
            in[u] = tsri_load_pack<T, V>(from + u * step);
    load_factors<A>(v, p, t, tile, blockIdx.y, part.share, scales, shifts, NULL, NULL);
    __syncthreads();
    A a[V], b[V];
    take(a, scales, at);
    take(b, shifts, at);
    while (left > 0) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (u < left) {
                tsri_pack<T, V> out;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    T z = tsri_to<T>(tsri_fma(tsri_pack_at(in[u], i), a[i], b[i]));
                    out.v[i] = tsri_to<T>(tsri_bn_act(v.act, tsri_to<A>(z)));
                }
                tsri_store_pack<T, V>(to + u * step, out);
            }
        left -= UNROLL;
        from += UNROLL * step;
        to += UNROLL * step;
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (u < left)
                in[u] = tsri_load_pack<T, V>(from + u * step);
    }
}

/* ACT: whether there is an activation. */
template <typename T, int V, bool ACT>
static __global__ void __launch_bounds__(THREADS, 3)
    bwd_apply_kernel(tsri_bn v, tsri_bn_data p, tsri_tiles t, int64_t plane,
                     const T *__restrict__ x, const T *__restrict__ dy, T *__restrict__ dx)
{
    typedef tsri_acc<T> A;
    __shared__ A factors[4][TSRI_TILE_CHANNELS];
    const unsigned tile = blockIdx.x % t.tiles;
    const tsri_bn_part part = tsri_bn_part_of(v, blockIdx.y);
    const tsri_channel_rows rows =
        tsri_channel_rows_of(t, part.begin * plane, part.end * plane, blockIdx.x / t.tiles);
    const tsri_tile_place at = tsri_tile_place_of(t, tile);
    const int64_t step = t.height * t.c;
    int64_t left = tsri_channel_rows_left(t, rows, at),
            here = (rows.begin + at.row) * t.c + at.channel;
    tsri_pack<T, V> in[UNROLL_BWD], grad[UNROLL_BWD];
#pragma unroll
    for (int u = 0; u < UNROLL_BWD; u++)
        if (u < left) {
            in[u] = tsri_load_pack<T, V>(x + here + u * step);
            grad[u] = tsri_load_pack<T, V>(dy + here + u * step);
        }
    load_factors<A>(v, p, t, tile, blockIdx.y, part.share, factors[0], factors[1], factors[2],
                    factors[3]);
    __syncthreads();
    A a[V], b[V], slope[V], shift[V];
    take(a, factors[0], at);
    take(b, factors[1], at);
    take(slope, factors[2], at);
    take(shift, factors[3], at);
    while (left > 0) {
#pragma unroll
        for (int u = 0; u < UNROLL_BWD; u++)
            if (u < left) {
                tsri_pack<T, V> out;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    A q = tsri_pack_at(in[u], i), g = tsri_pack_at(grad[u], i);
                    if (ACT) {
                        T z = tsri_to<T>(tsri_fma(q, a[i], b[i]));
                        g = tsri_bn_through(v.act, tsri_to<A>(z)) ? g : (A)0;
                    }
                    out.v[i] = tsri_to<T>(tsri_fma(a[i], g, tsri_fma(slope[i], q, shift[i])));
                }
                tsri_store_pack<T, V>(dx + here + u * step, out);
            }
        left -= UNROLL_BWD;
        here += UNROLL_BWD * step;
#pragma unroll
        for (int u = 0; u < UNROLL_BWD; u++)
            if (u < left) {
                in[u] = tsri_load_pack<T, V>(x + here + u * step);
                grad[u] = tsri_load_pack<T, V>(dy + here + u * step);
            }
    }
}

template <typename T, int V>
static void launch(const tsri_fast_bn *b, const tsri_bn_data &p, const void *x, const void *dy,
                   void *y)
{
    const tsri_tiles *t = &b->tiles;
    const dim3 grid(t->tiles * (unsigned)t->ranges, (unsigned)b->bn.rows);
    if (!b->bn.dy_in)
        TSRI_LAUNCH((apply_kernel<T, V>), grid, THREADS, b->base.stream, b->bn, p, *t, b->plane,
                    (const T *)x, (T *)y);
    else if (b->bn.act == TSRI_ACT_NONE)
        TSRI_LAUNCH((bwd_apply_kernel<T, V, false>), grid, THREADS, b->base.stream, b->bn, p, *t,
                    b->plane, (const T *)x, (const T *)dy, (T *)y);
    else
        TSRI_LAUNCH((bwd_apply_kernel<T, V, true>), grid, THREADS, b->base.stream, b->bn, p, *t,
                    b->plane, (const T *)x, (const T *)dy, (T *)y);
}

static tsr_status apply_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                            void *scratch)
{
    (void)scratch;
    const tsri_fast_bn *b = (const tsri_fast_bn *)k;
    if (!b->bn.n || !b->bn.c || !b->plane)
        return TSR_OK;
    const tsri_bn_data p = tsri_cuda_bn_data(&b->bn, in);
    const void *dy = in[b->bn.dy_in];
    TSRI_FLOATS(k->desc.in[0].dtype, {
        if (b->tiles.pack == 1)
            launch<T, 1>(b, p, in[0], dy, out[0]);
        else
            launch<T, tsri_full_pack<T>()>(b, p, in[0], dy, out[0]);
    })
    return tsri_cuda_launched(k);
}

/* Ranges so that threads have a row each, until there are many blocks. */
static void set_tiles(tsri_fast_bn *b, int pack)
{
    tsri_tiles *t = &b->tiles;
    *t = tsri_tiles_of(b->bn.c, pack, pack == 1 ? 128 : 32, THREADS);
    if (!t->tiles)
        return;
    const int64_t others = t->tiles * (b->bn.rows > 0 ? b->bn.rows : 1);
    const int64_t heights = (b->bn.n * b->plane + t->height - 1) / t->height;
    const int64_t most = (int64_t)tsri_cuda_processors(&b->base.desc) * BLOCKS / others;
    tsri_tiles_cut(t, b->bn.n * b->plane, heights < most ? heights : most);
}

static bool is_channels_last(const tsri_arg *a)
{
    return a->ndim == 2 ? tsri_cuda_is_row(a) : tsri_cuda_is_nhwc(a);
}

tsr_status tsri_cuda_fast_bn(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run,
                             tsri_fast_bn **out_kernel, int *out_pack)
{
    tsri_bn v;
    TSRI_TRY(tsri_cuda_bn(d, &v));
    const tsri_arg *x = &d->in[0];
    const bool sums = d->out[0].ndim == 3;
    if (!is_channels_last(x) || (v.dy_in && !is_channels_last(&d->in[v.dy_in])) ||
        !(sums ? tsri_cuda_is_row(&d->out[0]) : is_channels_last(&d->out[0])) || v.rows > 65535)
        return tsri_cuda_decline(d);
    const int full = 16 / (int)tsr_dtype_size(x->dtype), pack = v.c % full ? 1 : full;
    tsri_fast_bn *b = (tsri_fast_bn *)tsri_cuda_make(mem, d, run, "cuda", sizeof *b);
    TSRI_NEED(b);
    b->bn = v;
    b->plane = x->ndim == 4 ? x->shape[2] * x->shape[3] : 1;
    *out_kernel = b;
    *out_pack = pack;
    return TSR_OK;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    tsri_fast_bn *b;
    int pack = 1;
    TSRI_TRY(tsri_cuda_fast_bn(mem, d, apply_run, &b, &pack));
    set_tiles(b, pack);
    *out_kernel = &b->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_bn_apply(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_fast_bn_act(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_fast_bn_bwd_apply(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_fast_bn_act_bwd_apply(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

/* Applies factors that are given, as batch norm applies its own. */
tsr_status tsri_fast_scale_shift(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0], *a = &d->in[1], *b = &d->in[2];
    const bool floats = tsri_cuda_is_float(x->dtype) && y->dtype == x->dtype &&
                        tsri_cuda_is_float(a->dtype) && tsri_cuda_is_float(b->dtype);
    if (!floats || !is_channels_last(x) || !is_channels_last(y) || !tsri_cuda_is_row(a) ||
        !tsri_cuda_is_row(b))
        return tsri_cuda_decline(d);
    tsri_fast_bn *k = (tsri_fast_bn *)tsri_cuda_make(mem, d, apply_run, "cuda", sizeof *k);
    TSRI_NEED(k);
    k->bn.parts = k->bn.rows = 1;
    k->bn.n = x->shape[0];
    k->bn.c = x->shape[1];
    k->bn.gamma_in = 1;
    k->bn.gamma_type = a->dtype;
    k->bn.beta_type = b->dtype;
    k->plane = x->ndim == 4 ? x->shape[2] * x->shape[3] : 1;
    const int full = 16 / (int)tsr_dtype_size(x->dtype);
    set_tiles(k, k->bn.c % full ? 1 : full);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
