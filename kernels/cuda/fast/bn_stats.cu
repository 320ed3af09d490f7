/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm's sums, channels last. A thread adds a few rows in the data's accumulator type and
 * those in f64; a block adds its threads in a tree. Sums of x and x^2 are a thread's of deviations
 * from its first row, of which it makes the others in f64: else f32 would lose the variance. Few
 * rows are one block's for each tile of channels, and the block's sums are the result. Many are cut
 * into ranges, whose sums go to the scratch and are added by a second kernel. Shapes alone decide
 * the order.
 */
#include "kernels/cuda/code/bn.cuh"

enum { THREADS = 256 };
/* Rows that a thread has under way at once: of x, and of x and dy. */
enum { UNROLL_X = 4, UNROLL_DY = 2 };
/* Where one block takes all rows: its threads, packs of its tiles, and the most rows of a thread.
 * About what a second launch costs. */
enum { THREADS_ONE = 512, PACKS_ONE = 4, ROWS_ONE = 16 };
/* Blocks for each processor (6 is whole waves of 1, 2 or 3), and rows that a thread has then. */
enum { BLOCKS = 6, ROWS_LEAST = 8 };
/* The block of the second kernel: sums x ranges. */
enum { FINISH_SUMS = 32, FINISH_RANGES = 16 };

/* The operands of the sums. */
enum what { OF_X, OF_DY, OF_DY_ACT };

template <typename A> struct factors {
    A mean[TSRI_TILE_CHANNELS], a[TSRI_TILE_CHANNELS], b[TSRI_TILE_CHANNELS];
    double rstd[TSRI_TILE_CHANNELS];
};

template <typename A>
static __device__ void load_factors(const tsri_bn &v, const tsri_bn_data &p, const tsri_tiles &t,
                                    unsigned tile, int64_t row, double share, factors<A> *f)
{
    const int n = t.width * t.pack;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        int64_t c = (int64_t)tile * n + i;
        if (c >= t.c)
            break;
        tsri_bn_coefs k = tsri_bn_coefs_of(v, p, row, share, c);
        f->mean[i] = (A)k.mean;
        f->a[i] = (A)k.a;
        f->b[i] = (A)(k.b - k.mean * k.a);
        f->rstd[i] = k.rstd;
    }
}

/* The sums of G channels of each of a block's packs, over its rows of threads; in row 0's s. */
template <int G>
static __device__ void add_rows(const tsri_tiles &t, const tsri_tile_place &at,
                                double (*shared)[THREADS_ONE], double *s0, double *s1)
{
    const int me = (int)threadIdx.x;
    int half = 1;
    while (2 * half < t.height)
        half *= 2;
    __syncthreads(); /* shared may be read still */
#pragma unroll
    for (int g = 0; g < G; g++) {
        shared[2 * g][me] = s0[g];
        shared[2 * g + 1][me] = s1[g];
    }
    for (; half > 0; half /= 2) {
        __syncthreads();
        if (at.row < half && at.row + half < t.height) {
#pragma unroll
            for (int g = 0; g < 2 * G; g++)
                shared[g][me] += shared[g][me + half * t.width];
        }
    }
#pragma unroll
    for (int g = 0; g < G; g++) {
        s0[g] = shared[2 * g][me];
        s1[g] = shared[2 * g + 1][me];
    }
}

/* out: [virtual batch][range][2][c]. */
template <typename T, int V, int WHAT>
static __global__ void __launch_bounds__(THREADS_ONE)
    sums_kernel(tsri_bn v, tsri_bn_data p, tsri_tiles t, int64_t plane, const T *__restrict__ x,
                const T *__restrict__ dy, double *__restrict__ out)
{
    typedef tsri_acc<T> A;
    constexpr int G = V < 4 ? V : 4, UNROLL = WHAT == OF_X ? UNROLL_X : UNROLL_DY;
    __shared__ factors<A> f;
    __shared__ double shared[2 * G][THREADS_ONE];
    const unsigned tile = blockIdx.x % t.tiles, range = blockIdx.x / t.tiles;
    const tsri_bn_part part = tsri_bn_part_of(v, blockIdx.y);
    const tsri_channel_rows rows =
        tsri_channel_rows_of(t, part.begin * plane, part.end * plane, range);
    const tsri_tile_place at = tsri_tile_place_of(t, tile);
    const int64_t step = t.height * t.c;
    int64_t here = (rows.begin + at.row) * t.c + at.channel;
    double s0[V] = {}, s1[V] = {};
    A mean[V] = {}, a[V] = {}, b[V] = {};
    if (WHAT != OF_X) {
        load_factors<A>(v, p, t, tile, blockIdx.y, part.share, &f);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < V; i++)
            if (!at.idle) {
                mean[i] = f.mean[at.column * V + i];
                a[i] = f.a[at.column * V + i];
                b[i] = f.b[at.column * V + i];
            }
    }
    const int64_t all = tsri_channel_rows_left(t, rows, at);
    for (int64_t left = all; left > 0; left -= UNROLL) {
        tsri_pack<T, V> in[UNROLL] = {}, grad[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (u < left) {
                in[u] = tsri_load_pack<T, V>(x + here + u * step);
                if (WHAT != OF_X)
                    grad[u] = tsri_load_pack<T, V>(dy + here + u * step);
            }
#pragma unroll
        for (int i = 0; i < V; i++) {
            A t0 = 0, t1 = 0;
            if (WHAT == OF_X && left == all) {
                const A first = tsri_pack_at(in[0], i);
                mean[i] = first - first == 0 ? first : (A)0; /* not about an infinity */
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                A q = tsri_pack_at(in[u], i), g;
                if (WHAT == OF_X) {
                    g = q = u < left ? q - mean[i] : (A)0;
                } else {
                    g = tsri_pack_at(grad[u], i); /* 0 behind the last row */
                    if (WHAT == OF_DY_ACT) {
                        T z = tsri_to<T>(tsri_fma(q, a[i], b[i]));
                        g = tsri_bn_through(v.act, tsri_to<A>(z)) ? g : (A)0;
                    }
                    q -= mean[i];
                }
                t0 += g;
                t1 = tsri_fma(g, q, t1);
            }
            s0[i] += t0;
            s1[i] += t1;
        }
        here += UNROLL * step;
    }
    if (WHAT == OF_X && all > 0) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            const double about = (double)mean[i], n = (double)all;
            s1[i] += about * (2 * s0[i] + n * about);
            s0[i] += n * about;
        }
    }
    out += ((int64_t)blockIdx.y * t.ranges + range) * 2 * t.c + at.channel;
#pragma unroll
    for (int g = 0; g < V; g += G) {
        add_rows<G>(t, at, shared, s0 + g, s1 + g);
        if (at.row > 0 || at.idle)
            continue;
#pragma unroll
        for (int i = g; i < g + G; i++) {
            out[i] = s0[i];
            out[t.c + i] = s1[i];
            if (WHAT != OF_X && rows.begin < rows.end) /* an empty batch's rstd is no number */
                out[t.c + i] = s1[i] * f.rstd[at.column * V + i];
        }
    }
}

/* from [virtual batch][range][n] to [virtual batch][n]. */
static __global__ void __launch_bounds__(FINISH_SUMS *FINISH_RANGES)
    finish_kernel(int64_t n, int64_t ranges, const double *__restrict__ from,
                  double *__restrict__ to)
{
    __shared__ double sums[FINISH_RANGES][FINISH_SUMS];
    const int row = (int)threadIdx.x / FINISH_SUMS, column = (int)threadIdx.x % FINISH_SUMS;
    const int64_t i = (int64_t)blockIdx.x * FINISH_SUMS + column;
    double sum = 0;
    from += (int64_t)blockIdx.y * ranges * n;
    if (i < n) {
#pragma unroll 8
        for (int64_t r = row; r < ranges; r += FINISH_RANGES)
            sum += from[r * n + i];
    }
    sums[row][column] = sum;
    for (int half = FINISH_RANGES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (row < half)
            sums[row][column] += sums[row + half][column];
    }
    if (row == 0 && i < n)
        to[(int64_t)blockIdx.y * n + i] = sums[0][column];
}

template <typename T, int V>
static void launch(const tsri_fast_bn *b, const tsri_bn_data &p, const void *x, const void *dy,
                   double *out)
{
    const tsri_tiles *t = &b->tiles;
    const dim3 grid(t->tiles * (unsigned)t->ranges, (unsigned)b->bn.rows);
    const int threads = t->ranges > 1 ? (int)THREADS : (int)THREADS_ONE;
    if (!b->bn.dy_in)
        TSRI_LAUNCH((sums_kernel<T, V, OF_X>), grid, threads, b->base.stream, b->bn, p, *t,
                    b->plane, (const T *)x, (const T *)dy, out);
    else if (b->bn.act == TSRI_ACT_NONE)
        TSRI_LAUNCH((sums_kernel<T, V, OF_DY>), grid, threads, b->base.stream, b->bn, p, *t,
                    b->plane, (const T *)x, (const T *)dy, out);
    else
        TSRI_LAUNCH((sums_kernel<T, V, OF_DY_ACT>), grid, threads, b->base.stream, b->bn, p, *t,
                    b->plane, (const T *)x, (const T *)dy, out);
}

static tsr_status sums_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    const tsri_fast_bn *b = (const tsri_fast_bn *)k;
    const tsri_tiles *t = &b->tiles;
    if (!b->bn.rows || !b->bn.c)
        return TSR_OK;
    const tsri_bn_data p = tsri_cuda_bn_data(&b->bn, in);
    double *to = t->ranges > 1 ? (double *)scratch : (double *)out[0];
    TSRI_FLOATS(k->desc.in[0].dtype, {
        if (t->pack == 1)
            launch<T, 1>(b, p, in[0], in[b->bn.dy_in], to);
        else
            launch<T, tsri_full_pack<T>()>(b, p, in[0], in[b->bn.dy_in], to);
    })
    if (t->ranges > 1) {
        const int64_t n = 2 * b->bn.c;
        const dim3 grid((unsigned)((n + FINISH_SUMS - 1) / FINISH_SUMS), (unsigned)b->bn.rows);
        TSRI_LAUNCH(finish_kernel, grid, FINISH_SUMS * FINISH_RANGES, k->stream, n, t->ranges, to,
                    (double *)out[0]);
    }
    return tsri_cuda_launched(k);
}

/* The largest virtual batch's rows of this shard, at most. */
static int64_t rows_of(const tsri_fast_bn *b)
{
    int64_t largest = (b->bn.batch + b->bn.parts - 1) / b->bn.parts;
    return (largest < b->bn.n ? largest : b->bn.n) * b->plane;
}

static void set_tiles(tsri_fast_bn *b, int pack)
{
    tsri_tiles *t = &b->tiles;
    const int64_t rows = rows_of(b), wider = pack == 1 ? 8 : 1;
    *t = tsri_tiles_of(b->bn.c, pack, PACKS_ONE * (int)wider, THREADS_ONE);
    tsri_tiles_cut(t, rows, 1);
    if (!t->tiles || rows <= (int64_t)t->height * ROWS_ONE)
        return;
    *t = tsri_tiles_of(b->bn.c, pack, pack == 1 ? 128 : 32, THREADS);
    const int64_t others = t->tiles * (b->bn.rows > 0 ? b->bn.rows : 1);
    const int64_t most = (int64_t)tsri_cuda_processors(&b->base.desc) * BLOCKS / others;
    const int64_t some = rows / ((int64_t)t->height * ROWS_LEAST);
    const int64_t ranges = some < most ? some : most;
    tsri_tiles_cut(t, rows, ranges < 2 ? 2 : ranges); /* one would need a block of THREADS_ONE */
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    tsri_fast_bn *b;
    int pack = 1;
    TSRI_TRY(tsri_cuda_fast_bn(mem, d, sums_run, &b, &pack));
    set_tiles(b, pack);
    if (b->tiles.ranges > 1)
        b->base.base.scratch_bytes =
            (size_t)(b->bn.rows * b->tiles.ranges * 2 * b->bn.c) * sizeof(double);
    *out_kernel = &b->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_bn_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_fast_bn_bwd_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_fast_bn_act_bwd_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}
