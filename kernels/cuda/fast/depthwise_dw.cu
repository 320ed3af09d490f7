/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter gradient of 3x3 depthwise convolution. A thread keeps the sums of its channels' taps
 * over all strips that it walks, a block adds its threads', and a second kernel adds the blocks',
 * all in an order that shapes and the number of processors decide. An x that is no number, or
 * infinite, makes all taps of its channel no number, not just those that it is under.
 */
#include "kernels/cuda/code/depthwise.cuh"

enum { PACK = TSRI_DW_PACK, THREADS = TSRI_DW_THREADS, TAPS = TSRI_DW_TAPS, SUMS = TAPS * PACK };
enum { ROWS_1 = 2, ROWS_2 = 1 }; /* of dy, in a tile, by stride */
enum { BLOCKS = 2 };             /* for each processor */
/* Strips for that many threads, so that blocks have several and nearly as many each. */
enum { ENOUGH = 8 * BLOCKS * THREADS };
enum { FINISH_SUMS = 32, FINISH_PARTS = 8 };
enum { TERMS = 512 }; /* that a thread sums in f32, about; blocks' sums are added in f64 */

/* Gradients of ROWS rows of dy, as f32. */
template <int ROWS> struct grads {
    float v[ROWS][PACK];
};

template <typename T, int ROWS>
static __device__ __forceinline__ grads<ROWS> grads_of(const tsri_dw_column<T, ROWS> &dy)
{
    grads<ROWS> g;
#pragma unroll
    for (int q = 0; q < ROWS; q++)
#pragma unroll
        for (int i = 0; i < PACK; i++)
            g.v[q][i] = tsri_dw_at<T>(dy.row[q], i);
    return g;
}

/* Adds a column of x times a column of dy to the taps of column kx. */
template <typename T, int S, int ROWS>
static __device__ __forceinline__ void add_column(float (&sum)[TAPS][PACK],
                                                  const tsri_dw_column<T, (ROWS - 1) * S + 3> &x,
                                                  const grads<ROWS> &g, int kx)
{
#pragma unroll
    for (int q = 0; q < ROWS; q++)
#pragma unroll
        for (int ky = 0; ky < 3; ky++)
#pragma unroll
            for (int i = 0; i < PACK; i++)
                sum[ky * 3 + kx][i] =
                    fmaf(tsri_dw_at<T>(x.row[q * S + ky], i), g.v[q][i], sum[ky * 3 + kx][i]);
}

/* Stride 1: a column of x is in the windows of three columns of dy. */
template <typename T, int ROWS>
static __device__ __forceinline__ void walk_1(const tsri_dw &d, const tsri_dw_item &item,
                                              int64_t channel, const T *x, const T *dy,
                                              float (&sum)[TAPS][PACK])
{
    tsri_dw_reader<T, ROWS + 2> xs(x, item.n, d.h, d.w, d.c, channel, item.tile * ROWS - d.pad_h,
                                   item.begin - d.pad_w, item.end + 1 - d.pad_w);
    tsri_dw_reader<T, ROWS> ds(dy, item.n, d.oh, d.ow, d.c, channel, item.tile * ROWS, item.begin,
                               item.end - 1);
    tsri_dw_column<T, ROWS + 2> x_next = xs.read();
    tsri_dw_column<T, ROWS> dy_next = ds.read();
    grads<ROWS> g1 = {}, g2 = {};
    for (int o = item.begin; o < item.end + 2; o++) {
        const tsri_dw_column<T, ROWS + 2> now = x_next;
        const grads<ROWS> g0 = grads_of<T, ROWS>(dy_next);
        x_next = xs.read();
        dy_next = ds.read();
        add_column<T, 1, ROWS>(sum, now, g0, 0);
        add_column<T, 1, ROWS>(sum, now, g1, 1);
        add_column<T, 1, ROWS>(sum, now, g2, 2);
        g2 = g1;
        g1 = g0;
    }
}

/* Stride 2: every second column of x is in two windows. */
template <typename T, int ROWS>
static __device__ __forceinline__ void walk_2(const tsri_dw &d, const tsri_dw_item &item,
                                              int64_t channel, const T *x, const T *dy,
                                              float (&sum)[TAPS][PACK])
{
    typedef tsri_dw_column<T, 2 * ROWS + 1> column;
    tsri_dw_reader<T, 2 * ROWS + 1> xs(x, item.n, d.h, d.w, d.c, channel,
                                       item.tile * ROWS * 2 - d.pad_h, item.begin * 2 - d.pad_w,
                                       item.end * 2 - d.pad_w);
    tsri_dw_reader<T, ROWS> ds(dy, item.n, d.oh, d.ow, d.c, channel, item.tile * ROWS, item.begin,
                               item.end - 1);
    column next0 = xs.read(), next1 = xs.read();
    tsri_dw_column<T, ROWS> dy_next = ds.read();
    grads<ROWS> g1 = {};
    for (int o = item.begin; o < item.end + 1; o++) {
        const column now0 = next0, now1 = next1;
        const grads<ROWS> g0 = grads_of<T, ROWS>(dy_next);
        next0 = xs.read();
        next1 = xs.read();
        dy_next = ds.read();
        add_column<T, 2, ROWS>(sum, now0, g0, 0);
        add_column<T, 2, ROWS>(sum, now1, g0, 1);
        add_column<T, 2, ROWS>(sum, now0, g1, 2);
        g1 = g0;
    }
}

/* out: [part][tap][c]; a part has every parts-th heap of d.height items. */
template <typename T, int S>
static __global__ void __launch_bounds__(THREADS, 2)
    weight_kernel(tsri_dw d, int parts, const T *__restrict__ x, const T *__restrict__ dy,
                  float *__restrict__ out)
{
    __shared__ float sums[SUMS][THREADS];
    const unsigned chunk = blockIdx.x % (unsigned)d.chunks;
    const int part = (int)(blockIdx.x / (unsigned)d.chunks), me = (int)threadIdx.x;
    const tsri_dw_place place = tsri_dw_place_of(d, chunk);
    float sum[TAPS][PACK] = {};
    for (int64_t i = (int64_t)part * d.height + place.row; !place.idle && i < d.items;
         i += (int64_t)parts * d.height) {
        const tsri_dw_item item = tsri_dw_item_of(d, (int)i);
        if (S == 1)
            walk_1<T, ROWS_1>(d, item, place.channel, x, dy, sum);
        else
            walk_2<T, ROWS_2>(d, item, place.channel, x, dy, sum);
    }
#pragma unroll
    for (int t = 0; t < TAPS; t++)
#pragma unroll
        for (int i = 0; i < PACK; i++)
            sums[t * PACK + i][me] = sum[t][i];
    __syncthreads();
    for (int i = me; i < SUMS * d.chunk; i += THREADS) {
        const int which = i / d.chunk, column = i - which * d.chunk;
        const int64_t c = ((int64_t)chunk * d.chunk + column) * PACK + which % PACK;
        float total = 0;
        for (int r = 0; r < d.height; r++)
            total += sums[which][r * d.chunk + column];
        if (c < d.c)
            out[((int64_t)part * TAPS + which / PACK) * d.c + c] = total;
    }
}

/* Adds the parts. */
template <typename T>
static __global__ void __launch_bounds__(FINISH_SUMS *FINISH_PARTS)
    finish_kernel(tsri_dw d, int parts, const float *__restrict__ from, T *__restrict__ dw)
{
    __shared__ double sums[FINISH_PARTS][FINISH_SUMS];
    const int row = (int)threadIdx.x / FINISH_SUMS, column = (int)threadIdx.x % FINISH_SUMS;
    const int64_t n = TAPS * d.c, i = (int64_t)blockIdx.x * FINISH_SUMS + column;
    double sum = 0;
    if (i < n) {
#pragma unroll 8
        for (int p = row; p < parts; p += FINISH_PARTS)
            sum += from[p * n + i];
    }
    sums[row][column] = sum;
    for (int half = FINISH_PARTS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (row < half)
            sums[row][column] += sums[row + half][column];
    }
    if (row == 0 && i < n) {
        const int64_t tap = i / d.c, c = i - tap * d.c;
        dw[c * d.w_c + tap / 3 * d.w_h + tap % 3 * d.w_w] = tsri_to<T>(sums[0][column]);
    }
}

typedef struct weight {
    tsri_cuda_kernel base;
    tsri_dw dw;
    int parts;
} weight;

static tsr_status weight_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    const weight *g = (const weight *)k;
    const tsri_dw *d = &g->dw;
    const unsigned grid = (unsigned)(g->parts * d->chunks);
    const unsigned blocks = (unsigned)((TAPS * d->c + FINISH_SUMS - 1) / FINISH_SUMS);
    TSRI_DW_FLOATS(k->desc.out[0].dtype, {
        if (d->stride == 1)
            TSRI_LAUNCH((weight_kernel<T, 1>), grid, THREADS, k->stream, *d, g->parts,
                        (const T *)in[0], (const T *)in[1], (float *)scratch);
        else
            TSRI_LAUNCH((weight_kernel<T, 2>), grid, THREADS, k->stream, *d, g->parts,
                        (const T *)in[0], (const T *)in[1], (float *)scratch);
        TSRI_LAUNCH((finish_kernel<T>), blocks, FINISH_SUMS * FINISH_PARTS, k->stream, *d, g->parts,
                    (const float *)scratch, (T *)out[0]);
    })
    return tsri_cuda_launched(k);
}

tsr_status tsri_fast_conv2d_dw(tsri_mem *mem, const tsri_kernel_desc *desc,
                               tsri_kernel **out_kernel)
{
    if (!tsri_cuda_is_dw(desc))
        return tsri_cuda_decline(desc);
    weight *k = (weight *)tsri_cuda_make(mem, desc, weight_run, "cuda", sizeof *k);
    TSRI_NEED(k);
    tsri_dw *d = &k->dw;
    *d = tsri_cuda_dw(desc, desc->attrs->conv.stride[0] == 1 ? (int)ROWS_1 : (int)ROWS_2, ENOUGH);
    const int processors = desc->stream ? desc->stream->device->traits.processors : 1;
    const int heaps = d->items / d->height + (d->items % d->height != 0);
    const int most = (processors * BLOCKS + d->chunks - 1) / d->chunks;
    const int64_t pixels = desc->in[1].shape[0] * d->oh * d->ow;
    const int64_t least = pixels / ((int64_t)d->height * TERMS);
    k->parts = least > most ? (int)least : most;
    k->parts = heaps < k->parts ? heaps : k->parts;
    k->parts = k->parts < 1 ? 1 : k->parts;
    k->base.base.scratch_bytes = (size_t)(k->parts * TAPS * d->c) * sizeof(float);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
