/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 3x3 depthwise convolution, and its gradient with respect to x. That of stride 1 is a convolution
 * with the filter turned round; that of stride 2 gathers: four positions of dx, of which two rows
 * and two columns hold one of each kind, come from four of dy.
 */
#include "kernels/cuda/code/depthwise.cuh"

enum { PACK = TSRI_DW_PACK, THREADS = TSRI_DW_THREADS, TAPS = TSRI_DW_TAPS };
enum { ENOUGH = 1024 }; /* threads for each processor: twice what it can have at once */

/* The filter of a chunk of channels, and the bias. */
struct alignas(16) filter {
    float tap[TAPS][TSRI_DW_CHUNK * PACK], bias[TSRI_DW_CHUNK * PACK];
};

template <typename T>
static __device__ void load_filter(const tsri_dw &d, unsigned chunk, const T *w, const T *bias,
                                   filter *f)
{
    const int n = d.chunk * PACK;
    const int64_t first = (int64_t)chunk * n;
    for (int i = (int)threadIdx.x; i < n * TAPS; i += THREADS) {
        int c = i / TAPS, t = i - c * TAPS, ky = t / 3, kx = t - ky * 3;
        if (first + c < d.c)
            f->tap[d.flip ? TAPS - 1 - t : t][c] =
                tsri_to<float>(w[(first + c) * d.w_c + ky * d.w_h + kx * d.w_w]);
    }
    for (int c = (int)threadIdx.x; c < n; c += THREADS)
        f->bias[c] = bias && first + c < d.c ? tsri_to<float>(bias[first + c]) : 0.0f;
}

static __device__ __forceinline__ void take_taps(const filter &f, int column,
                                                 float (&taps)[TAPS][PACK])
{
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
        tsri_pack<float, PACK> p = tsri_load_pack<float, PACK>(&f.tap[t][column * PACK]);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            taps[t][i] = p.v[i];
    }
}

/* Adds a column of x, as column kx of the windows of ROWS results below each other. */
template <typename T, int S, int ROWS>
static __device__ __forceinline__ void add_column(float (&sum)[ROWS][PACK],
                                                  const tsri_dw_column<T, (ROWS - 1) * S + 3> &x,
                                                  const float (&taps)[TAPS][PACK], int kx)
{
#pragma unroll
    for (int q = 0; q < ROWS; q++)
#pragma unroll
        for (int ky = 0; ky < 3; ky++)
#pragma unroll
            for (int i = 0; i < PACK; i++)
                sum[q][i] =
                    fmaf(tsri_dw_at<T>(x.row[q * S + ky], i), taps[ky * 3 + kx][i], sum[q][i]);
}

/* Stores columns of ROWS results below each other, one after the other. */
template <typename T, int ROWS> struct writer {
    T *at;
    int64_t down, right;
    bool inside[ROWS];

    __device__ __forceinline__ writer(T *y, const tsri_dw &d, const tsri_dw_item &item)
    {
        const int row = item.tile * ROWS;
        at = y + ((int64_t)row * d.ow + item.begin) * d.c;
        down = d.ow * d.c;
        right = d.c;
#pragma unroll
        for (int q = 0; q < ROWS; q++)
            inside[q] = row + q < d.oh;
    }

    __device__ __forceinline__ void store(const float (&sum)[ROWS][PACK])
    {
        T *to = at;
#pragma unroll
        for (int q = 0; q < ROWS; q++, to += down) {
            tsri_pack<T, PACK> out;
#pragma unroll
            for (int i = 0; i < PACK; i++)
                out.v[i] = tsri_to<T>(sum[q][i]);
            if (inside[q])
                tsri_store_pack<T, PACK>(to, out);
        }
        at += right;
    }
};

/* Sums begin with the bias. */
template <int ROWS>
static __device__ __forceinline__ void begin_sums(float (&sum)[ROWS][PACK],
                                                  const float (&bias)[PACK])
{
#pragma unroll
    for (int q = 0; q < ROWS; q++)
#pragma unroll
        for (int i = 0; i < PACK; i++)
            sum[q][i] = bias[i];
}

template <int ROWS>
static __device__ __forceinline__ void move(float (&to)[ROWS][PACK],
                                            const float (&from)[ROWS][PACK])
{
#pragma unroll
    for (int q = 0; q < ROWS; q++)
#pragma unroll
        for (int i = 0; i < PACK; i++)
            to[q][i] = from[q][i];
}

/* Stride 1: a column of x belongs to three windows; AHEAD columns are under way. Columns and sums
 * change places every three columns, so three steps in a row move none of them. */
template <typename T> struct walk_1 {
    enum { ROWS = 2, AHEAD = sizeof(T) == 2 ? 3 : 1 };
    typedef tsri_dw_column<T, ROWS + 2> column;
    tsri_dw_reader<T, ROWS + 2> reader;
    column first, second, next[AHEAD];

    /* Sends for the first columns. */
    __device__ __forceinline__ walk_1(const tsri_dw &d, const tsri_dw_item &item, int64_t channel,
                                      const T *x)
        : reader(x, item.n, d.h, d.w, d.c, channel, item.tile * ROWS - d.pad_h,
                 item.begin - d.pad_w, item.end + 1 - d.pad_w)
    {
        first = reader.read();
        second = reader.read();
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            next[a] = reader.read();
    }

    __device__ __forceinline__ void run(const tsri_dw &d, const tsri_dw_item &item,
                                        const float (&taps)[TAPS][PACK], const float (&bias)[PACK],
                                        T *y)
    {
        writer<T, ROWS> to(y, d, item);
        float s0[ROWS][PACK], s1[ROWS][PACK];
        begin_sums<ROWS>(s0, bias);
        begin_sums<ROWS>(s1, bias);
        add_column<T, 1, ROWS>(s0, first, taps, 0);
        add_column<T, 1, ROWS>(s0, second, taps, 1);
        add_column<T, 1, ROWS>(s1, second, taps, 0);
#pragma unroll 3
        for (int o = item.begin; o < item.end; o++) {
            float s2[ROWS][PACK];
            begin_sums<ROWS>(s2, bias);
            add_column<T, 1, ROWS>(s0, next[0], taps, 2);
            add_column<T, 1, ROWS>(s1, next[0], taps, 1);
            add_column<T, 1, ROWS>(s2, next[0], taps, 0);
            column last = next[0];
#pragma unroll
            for (int a = 0; a + 1 < AHEAD; a++)
                next[a] = next[a + 1];
            reader.read_on(last);
            next[AHEAD - 1] = last;
            to.store(s0);
            move<ROWS>(s0, s1);
            move<ROWS>(s1, s2);
        }
    }
};

/* Stride 2: every second column of x belongs to two windows. */
template <typename T> struct walk_2 {
    enum { ROWS = 1 };
    typedef tsri_dw_column<T, 2 * ROWS + 1> column;
    tsri_dw_reader<T, 2 * ROWS + 1> reader;
    column first, next1, next2;

    __device__ __forceinline__ walk_2(const tsri_dw &d, const tsri_dw_item &item, int64_t channel,
                                      const T *x)
        : reader(x, item.n, d.h, d.w, d.c, channel, item.tile * ROWS * 2 - d.pad_h,
                 item.begin * 2 - d.pad_w, item.end * 2 - d.pad_w)
    {
        first = reader.read();
        next1 = reader.read();
        next2 = reader.read();
    }

    __device__ __forceinline__ void run(const tsri_dw &d, const tsri_dw_item &item,
                                        const float (&taps)[TAPS][PACK], const float (&bias)[PACK],
                                        T *y)
    {
        writer<T, ROWS> to(y, d, item);
        float s0[ROWS][PACK];
        begin_sums<ROWS>(s0, bias);
        add_column<T, 2, ROWS>(s0, first, taps, 0);
#pragma unroll 2
        for (int o = item.begin; o < item.end; o++) {
            float s1[ROWS][PACK];
            begin_sums<ROWS>(s1, bias);
            add_column<T, 2, ROWS>(s0, next1, taps, 1);
            add_column<T, 2, ROWS>(s0, next2, taps, 2);
            add_column<T, 2, ROWS>(s1, next2, taps, 0);
            reader.read_on(next1);
            reader.read_on(next2);
            to.store(s0);
            move<ROWS>(s0, s1);
        }
    }
};

template <typename T, int S> struct walk_of {
    typedef walk_1<T> type;
};
template <typename T> struct walk_of<T, 2> {
    typedef walk_2<T> type;
};
enum { ROWS_1 = walk_1<float>::ROWS, ROWS_2 = walk_2<float>::ROWS }; /* of y, in a tile */

template <typename T, int S>
static __global__ void __launch_bounds__(THREADS, 2)
    conv_kernel(tsri_dw d, const T *__restrict__ x, const T *__restrict__ w,
                const T *__restrict__ bias, T *__restrict__ y)
{
    __shared__ filter f;
    const unsigned chunk = blockIdx.x % (unsigned)d.chunks;
    const tsri_dw_place place = tsri_dw_place_of(d, chunk);
    const int64_t i = (int64_t)(blockIdx.x / (unsigned)d.chunks) * d.height + place.row;
    const bool idle = place.idle || i >= d.items;
    /* The first columns come while the filter does. */
    const tsri_dw_item item = tsri_dw_item_of(d, idle ? 0 : (int)i);
    typename walk_of<T, S>::type walk(d, item, idle ? 0 : place.channel, x);
    load_filter(d, chunk, w, bias, &f);
    __syncthreads();
    if (idle)
        return;
    float taps[TAPS][PACK], shift[PACK];
    take_taps(f, place.column, taps);
#pragma unroll
    for (int k = 0; k < PACK; k++)
        shift[k] = f.bias[place.column * PACK + k];
    walk.run(d, item, taps, shift, y + item.n * d.oh * d.ow * d.c + place.channel);
}

/* Adds a pack of dy with one tap. */
template <typename T>
static __device__ __forceinline__ void add(float (&sum)[PACK], const tsri_dw_pack<T> &g,
                                           const float (&tap)[PACK])
{
#pragma unroll
    for (int i = 0; i < PACK; i++)
        sum[i] = fmaf(tsri_dw_at<T>(g, i), tap[i], sum[i]);
}

template <typename T>
static __device__ __forceinline__ void store_if(bool inside, T *to, const float (&sum)[PACK])
{
    tsri_pack<T, PACK> out;
#pragma unroll
    for (int i = 0; i < PACK; i++)
        out.v[i] = tsri_to<T>(sum[i]);
    if (inside)
        tsri_store_pack<T, PACK>(to, out);
}

/* Stride 2. Padded position 2a + b of dx (per axis) is under tap b of position a of dy and, where b
 * is 0, under tap 2 of a - 1. Tiles are pairs of rows, columns are pairs too. */
template <typename T>
static __global__ void __launch_bounds__(THREADS, 3)
    gather_kernel(tsri_dw d, const T *__restrict__ dy, const T *__restrict__ w, T *__restrict__ dx)
{
    __shared__ filter f;
    const unsigned chunk = blockIdx.x % (unsigned)d.chunks;
    load_filter<T>(d, chunk, w, NULL, &f);
    __syncthreads();
    const tsri_dw_place place = tsri_dw_place_of(d, chunk);
    const int64_t i = (int64_t)(blockIdx.x / (unsigned)d.chunks) * d.height + place.row;
    if (place.idle || i >= d.items)
        return;
    const tsri_dw_item item = tsri_dw_item_of(d, (int)i);
    float taps[TAPS][PACK];
    take_taps(f, place.column, taps);
    dx += item.n * d.h * d.w * d.c + place.channel;
    const int pair = d.rows_begin + item.tile, row = 2 * pair - d.pad_h;
    const bool upper = row >= 0 && row < d.h, lower = row + 1 >= 0 && row + 1 < d.h;
    const int64_t down = d.w * d.c;
    int column = 2 * item.begin - d.pad_w;
    dx += row * down + column * d.c;
    tsri_dw_reader<T, 2> reader(dy, item.n, d.oh, d.ow, d.c, place.channel, pair - 1,
                                item.begin - 1, item.end - 1);
    tsri_dw_column<T, 2> left = reader.read(), next = reader.read();
    for (int j = item.begin; j < item.end; j++, column += 2, dx += 2 * d.c) {
        const tsri_dw_column<T, 2> now = next;
        next = reader.read();
        const bool first = (unsigned)column < (unsigned)d.w;
        const bool second = (unsigned)(column + 1) < (unsigned)d.w;
        float s00[PACK] = {}, s01[PACK] = {}, s10[PACK] = {}, s11[PACK] = {};
        add(s00, now.row[1], taps[0]);
        add(s00, left.row[1], taps[2]);
        add(s00, now.row[0], taps[6]);
        add(s00, left.row[0], taps[8]);
        add(s01, now.row[1], taps[1]);
        add(s01, now.row[0], taps[7]);
        add(s10, now.row[1], taps[3]);
        add(s10, left.row[1], taps[5]);
        add(s11, now.row[1], taps[4]);
        store_if(upper && first, dx, s00);
        store_if(upper && second, dx + d.c, s01);
        store_if(lower && first, dx + down, s10);
        store_if(lower && second, dx + down + d.c, s11);
        left = now;
    }
}

/* --- how it is cut ---------------------------------------------------------------------------- */
typedef struct depthwise {
    tsri_cuda_kernel base;
    tsri_dw dw;
} depthwise;

bool tsri_cuda_is_dw(const tsri_kernel_desc *d)
{
    const bool weight = d->op == TSRI_OP_CONV2D_DW, back = d->op == TSRI_OP_CONV2D_DX;
    const tsri_arg *w = weight ? &d->out[0] : &d->in[1];
    const tsri_arg *x = back ? &d->out[0] : &d->in[0];
    const tsri_arg *y = weight ? &d->in[1] : back ? &d->in[0] : &d->out[0];
    const tsri_attrs *at = d->attrs;
    const tsr_dtype t = x->dtype;
    if (x->ndim != 4 || y->ndim != 4 || w->ndim != 4)
        return false;
    bool one = d->groups == x->shape[1] && d->groups == y->shape[1] && d->groups == w->shape[0] &&
               w->shape[1] == 1 && d->groups % TSRI_DW_PACK == 0 && d->groups > 0;
    bool dtypes = (t == TSR_F32 || t == TSR_F16 || t == TSR_BF16) && y->dtype == t &&
                  w->dtype == t && (d->op != TSRI_OP_CONV2D || d->nin < 3 || d->in[2].dtype == t);
    bool plain = true;
    for (int i = 0; i < 2; i++)
        plain = plain && at->conv.kernel[i] == 3 && at->conv.dilation[i] == 1 &&
                at->conv.stride[i] == at->conv.stride[0];
    plain = plain && (at->conv.stride[0] == 1 || at->conv.stride[0] == 2);
    /* Walks are counted in 32 bits. */
    const int64_t limit = (int64_t)1 << 30;
    bool counted = x->shape[0] * (x->shape[2] + 2) * (x->shape[3] + 2) < limit &&
                   y->shape[0] * (y->shape[2] + 2) * (y->shape[3] + 2) < limit &&
                   x->shape[0] * (x->shape[2] + 2) * (x->shape[1] / TSRI_DW_PACK + 1) < limit;
    return one && dtypes && plain && counted && tsri_cuda_is_nhwc(x) && tsri_cuda_is_nhwc(y);
}

/* Strips as long as they may be, unless that leaves processors without threads. */
static void set_items(tsri_dw *d, int64_t n, int64_t enough)
{
    const int64_t packs = d->c / TSRI_DW_PACK;
    int strips = (d->columns + TSRI_DW_STRIP - 1) / TSRI_DW_STRIP;
    while (strips * 4 < d->columns && packs * n * d->tiles * strips < enough)
        strips++;
    d->strip = strips ? (d->columns + strips - 1) / strips : 1;
    d->strips = (d->columns + d->strip - 1) / d->strip;
    d->items = (int)(n * d->tiles * d->strips);
}

tsri_dw tsri_cuda_dw(const tsri_kernel_desc *desc, int rows, int threads)
{
    const bool weight = desc->op == TSRI_OP_CONV2D_DW, back = desc->op == TSRI_OP_CONV2D_DX;
    const tsri_arg *w = weight ? &desc->out[0] : &desc->in[1];
    const tsri_arg *x = back ? &desc->out[0] : &desc->in[0];
    const tsri_arg *y = weight ? &desc->in[1] : back ? &desc->in[0] : &desc->out[0];
    const tsri_attrs *at = desc->attrs;
    tsri_dw d = {};
    d.stride = at->conv.stride[0];
    d.pad_h = at->conv.pad[0];
    d.pad_w = at->conv.pad[1];
    d.flip = back && d.stride == 1;
    if (d.flip) { /* dy is what is convolved */
        const tsri_arg *t = x;
        x = y;
        y = t;
        d.pad_h = 2 - d.pad_h;
        d.pad_w = 2 - d.pad_w;
    }
    d.c = desc->groups;
    d.h = (int)x->shape[2];
    d.w = (int)x->shape[3];
    d.oh = (int)y->shape[2];
    d.ow = (int)y->shape[3];
    d.w_c = w->stride[0];
    d.w_h = w->stride[2];
    d.w_w = w->stride[3];
    const int packs = (int)(d.c / TSRI_DW_PACK);
    d.chunks = (packs + TSRI_DW_CHUNK - 1) / TSRI_DW_CHUNK;
    d.chunk = (packs + d.chunks - 1) / d.chunks;
    d.height = TSRI_DW_THREADS / d.chunk;
    if (back && d.stride == 2) { /* pairs of padded rows and columns */
        d.rows_begin = d.pad_h / 2;
        d.tiles = d.h ? (d.h - 1 + d.pad_h) / 2 - d.rows_begin + 1 : 0;
        d.columns_begin = d.pad_w / 2;
        d.columns = d.w ? (d.w - 1 + d.pad_w) / 2 - d.columns_begin + 1 : 0;
    } else {
        d.tiles = (d.oh + rows - 1) / rows;
        d.columns = d.ow;
    }
    const int processors = desc->stream ? desc->stream->device->traits.processors : 1;
    set_items(&d, x->shape[0], (int64_t)processors * threads);
    return d;
}

static tsr_status conv_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const tsri_dw *d = &((const depthwise *)k)->dw;
    if (!d->items)
        return TSR_OK;
    const unsigned grid = (unsigned)(((int64_t)d->items + d->height - 1) / d->height * d->chunks);
    const void *bias = k->desc.op == TSRI_OP_CONV2D && k->desc.nin > 2 ? in[2] : NULL;
    const bool gathers = k->desc.op == TSRI_OP_CONV2D_DX && !d->flip;
    TSRI_DW_FLOATS(k->desc.out[0].dtype, {
        if (gathers)
            TSRI_LAUNCH((gather_kernel<T>), grid, THREADS, k->stream, *d, (const T *)in[0],
                        (const T *)in[1], (T *)out[0]);
        else if (d->stride == 1)
            TSRI_LAUNCH((conv_kernel<T, 1>), grid, THREADS, k->stream, *d, (const T *)in[0],
                        (const T *)in[1], (const T *)bias, (T *)out[0]);
        else
            TSRI_LAUNCH((conv_kernel<T, 2>), grid, THREADS, k->stream, *d, (const T *)in[0],
                        (const T *)in[1], (const T *)bias, (T *)out[0]);
    })
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    if (!tsri_cuda_is_dw(desc))
        return tsri_cuda_decline(desc);
    depthwise *k = (depthwise *)tsri_cuda_make(mem, desc, conv_run, "cuda", sizeof *k);
    TSRI_NEED(k);
    k->dw =
        tsri_cuda_dw(desc, desc->attrs->conv.stride[0] == 1 ? (int)ROWS_1 : (int)ROWS_2, ENOUGH);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_conv2d(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    return create(mem, desc, out_kernel);
}

tsr_status tsri_fast_conv2d_dx(tsri_mem *mem, const tsri_kernel_desc *desc,
                               tsri_kernel **out_kernel)
{
    return create(mem, desc, out_kernel);
}
