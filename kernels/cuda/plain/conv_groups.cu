/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions with groups of few channels, element by element. Forward and backward-data are one
 * gather: a thread makes an element, over taps and the group's channels. An element of the filter's
 * gradient is a sum over all positions: by the threads of a block, and where there are few
 * elements by several blocks, whose sums are added in order.
 */
#include "kernels/cuda/code/plain_conv.cuh"

enum { THREADS = 256 };
/* Operands of the walk over what the gather makes, and over what the sums make. */
enum { OUT_Y = 0, OUT_X, OUT_W, OUT_H, OUT_V, OUT_BIAS, OUT_OPS };
enum { SUM_ORDER = 0, SUM_DW, SUM_DY, SUM_X, SUM_H, SUM_V, SUM_OPS };
/* The operands of the walk over the positions that are summed. */
enum { POS_DY = 0, POS_X, POS_H, POS_V, POS_OPS };

typedef struct gather {
    tsri_cuda_walk out;
    tsri_window window;
    int taps[2], step[2]; /* a tap moves the window by step */
    int64_t channels, x_channel, w_channel, w_tap[2];
} gather;

typedef struct sums {
    tsri_cuda_walk out, positions;
    tsri_window window;
    int64_t slices, slice; /* positions of a block */
    int lanes;             /* threads side by side for as many elements; the others share them */
} sums;

typedef struct groups_kernel {
    tsri_cuda_kernel base;
    gather each;
    sums sum;
} groups_kernel;

/* Whether the window has an element at (h, v), and where. */
static __device__ __forceinline__ bool inside(const tsri_window &window, int h, int v, int64_t *out)
{
    if (h < 0 || v < 0)
        return false;
    if (window.divides) {
        int qh = h / window.div[0], qv = v / window.div[1];
        if (qh * window.div[0] != h || qv * window.div[1] != v)
            return false;
        h = qh;
        v = qv;
    }
    *out = h * window.stride[0] + v * window.stride[1];
    return h < window.size[0] && v < window.size[1];
}

template <typename T>
static __global__ void gather_kernel(gather g, const T *x, const T *w, const T *bias, T *y)
{
    typedef tsri_acc<T> A;
    for (int64_t i = tsri_first(); i < g.out.count; i += tsri_step()) {
        int64_t at[OUT_OPS];
        tsri_walk_at<OUT_OPS>(g.out, i, at);
        A sum = 0;
        for (int th = 0; th < g.taps[0]; th++)
            for (int tv = 0; tv < g.taps[1]; tv++) {
                int64_t off;
                if (!inside(g.window, (int)at[OUT_H] + g.window.base[0] + th * g.step[0],
                            (int)at[OUT_V] + g.window.base[1] + tv * g.step[1], &off))
                    continue;
                const T *xs = x + at[OUT_X] + off;
                const T *ws = w + at[OUT_W] + th * g.w_tap[0] + tv * g.w_tap[1];
                for (int64_t c = 0; c < g.channels; c++)
                    sum += tsri_to<A>(xs[c * g.x_channel]) * tsri_to<A>(ws[c * g.w_channel]);
            }
        if (bias)
            sum += tsri_to<A>(bias[at[OUT_BIAS]]);
        y[at[OUT_Y]] = tsri_to<T>(sum);
    }
}

/* partial: NULL, or where the slices' sums go, [slice][element]. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    sums_kernel(sums s, const T *x, const T *dy, T *dw, tsri_acc<T> *partial)
{
    typedef tsri_acc<T> A;
    __shared__ A shared[THREADS];
    int t = (int)threadIdx.x, lane = t % s.lanes, strand = t / s.lanes, strands = THREADS / s.lanes;
    int64_t parts = (s.out.count + s.lanes - 1) / s.lanes, jobs = parts * s.slices;
    for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
        int64_t element = job % parts * s.lanes + lane, slice = job / parts;
        int64_t begin = slice * s.slice, end = begin + s.slice, at[SUM_OPS];
        end = end < s.positions.count ? end : s.positions.count;
        A sum = 0;
        if (element < s.out.count) {
            tsri_walk_at<SUM_OPS>(s.out, element, at);
            for (int64_t i = begin + strand; i < end; i += strands) {
                int64_t pos[POS_OPS], off;
                tsri_walk_at<POS_OPS>(s.positions, i, pos);
                if (inside(s.window, (int)(at[SUM_H] + pos[POS_H]) + s.window.base[0],
                           (int)(at[SUM_V] + pos[POS_V]) + s.window.base[1], &off))
                    sum += tsri_to<A>(x[at[SUM_X] + pos[POS_X] + off]) *
                           tsri_to<A>(dy[at[SUM_DY] + pos[POS_DY]]);
            }
        }
        shared[t] = sum;
        __syncthreads();
        for (int half = strands / 2; half > 0; half /= 2) {
            if (strand < half)
                shared[t] += shared[t + half * s.lanes];
            __syncthreads();
        }
        if (strand == 0 && element < s.out.count) {
            if (partial)
                partial[slice * s.out.count + element] = shared[lane];
            else
                dw[at[SUM_DW]] = tsri_to<T>(shared[lane]);
        }
        __syncthreads();
    }
}

template <typename T>
static __global__ void sums_finish_kernel(sums s, T *dw, const tsri_acc<T> *partial)
{
    for (int64_t i = tsri_first(); i < s.out.count; i += tsri_step()) {
        int64_t at[SUM_OPS];
        tsri_acc<T> sum = 0;
        for (int64_t slice = 0; slice < s.slices; slice++)
            sum += partial[slice * s.out.count + i];
        tsri_walk_at<SUM_OPS>(s.out, i, at);
        dw[at[SUM_DW]] = tsri_to<T>(sum);
    }
}

static tsr_status gather_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    const gather *g = &((const groups_kernel *)k)->each;
    const void *bias = k->desc.nin > 2 ? in[2] : NULL;
    (void)scratch;
    if (g->out.count)
        TSRI_FLOATS(k->desc.out[0].dtype,
                    TSRI_LAUNCH((gather_kernel<T>), tsri_blocks(g->out.count, THREADS), THREADS,
                                k->stream, *g, (const T *)in[0], (const T *)in[1], (const T *)bias,
                                (T *)out[0]));
    return tsri_cuda_launched(k);
}

template <typename T>
static void launch_sums(const sums *s, const void *x, const void *dy, void *dw, void *scratch,
                        cudaStream_t stream)
{
    int64_t jobs = (s->out.count + s->lanes - 1) / s->lanes * s->slices;
    tsri_acc<T> *partial = s->slices > 1 ? (tsri_acc<T> *)scratch : nullptr;
    TSRI_LAUNCH((sums_kernel<T>), (unsigned)(jobs < 0x7fffffff ? jobs : 0x7fffffff), THREADS,
                stream, *s, (const T *)x, (const T *)dy, (T *)dw, partial);
    if (partial)
        TSRI_LAUNCH((sums_finish_kernel<T>), tsri_blocks(s->out.count, THREADS), THREADS, stream,
                    *s, (T *)dw, partial);
}

static tsr_status sums_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    const sums *s = &((const groups_kernel *)k)->sum;
    if (s->out.count)
        TSRI_FLOATS(k->desc.out[0].dtype,
                    launch_sums<T>(s, in[0], in[1], out[0], scratch, k->stream));
    return tsri_cuda_launched(k);
}

/* og, cg: output and input channels of a group. */
static void plan_gather(gather *g, const tsri_kernel_desc *d, int64_t og, int64_t cg)
{
    const tsri_arg *x = &d->in[0], *w = &d->in[1], *y = &d->out[0];
    const tsri_attrs *at = d->attrs;
    bool back = d->op == TSRI_OP_CONV2D_DX; /* then x is dy, and y is dx */
    int64_t made = back ? cg : og, h = back ? 1 : at->conv.stride[0],
            v = back ? 1 : at->conv.stride[1];
    tsri_axes axes = {};
    g->channels = back ? og : cg;
    g->x_channel = x->stride[1];
    g->w_channel = w->stride[back ? 0 : 1];
    for (int i = 0; i < 2; i++) {
        g->taps[i] = (int)w->shape[2 + i];
        g->step[i] = back ? -at->conv.dilation[i] : at->conv.dilation[i];
        g->w_tap[i] = w->stride[2 + i];
    }
    tsri_axes_add(&axes, y->shape[0], y->stride[0], x->stride[0]);
    tsri_axes_add(&axes, d->groups, made * y->stride[1], g->channels * x->stride[1],
                  og * w->stride[0], 0, 0, made);
    tsri_axes_add(&axes, made, y->stride[1], 0, w->stride[back ? 1 : 0], 0, 0, 1);
    tsri_axes_add(&axes, y->shape[2], y->stride[2], 0, 0, h);
    tsri_axes_add(&axes, y->shape[3], y->stride[3], 0, 0, 0, v);
    tsri_axes_walk(&axes, OUT_OPS, &g->out);
    tsri_conv_window(d, &g->window);
}

static size_t plan_sums(sums *s, const tsri_kernel_desc *d, int64_t og, int64_t cg)
{
    enum { BLOCKS = 528, POSITIONS = 1024 };
    const tsri_arg *x = &d->in[0], *dy = &d->in[1], *dw = &d->out[0];
    const tsri_attrs *at = d->attrs;
    int64_t o = dw->shape[0], plane = dw->shape[2] * dw->shape[3];
    tsri_axes out = {}, positions = {};
    /* Elements next to each other are those of channels that are. */
    tsri_axes_add(&out, cg, o * plane, dw->stride[1], 0, x->stride[1]);
    tsri_axes_add(&out, dw->shape[2], o * dw->shape[3], dw->stride[2], 0, 0, at->conv.dilation[0]);
    tsri_axes_add(&out, dw->shape[3], o, dw->stride[3], 0, 0, 0, at->conv.dilation[1]);
    tsri_axes_add(&out, d->groups, og, og * dw->stride[0], og * dy->stride[1], cg * x->stride[1]);
    tsri_axes_add(&out, og, 1, dw->stride[0], dy->stride[1]);
    tsri_axes_walk(&out, SUM_OPS, &s->out);
    tsri_axes_add(&positions, dy->shape[0], dy->stride[0], x->stride[0]);
    tsri_axes_add(&positions, dy->shape[2], dy->stride[2], 0, at->conv.stride[0]);
    tsri_axes_add(&positions, dy->shape[3], dy->stride[3], 0, 0, at->conv.stride[1]);
    tsri_axes_walk(&positions, POS_OPS, &s->positions);
    tsri_conv_window(d, &s->window);
    s->lanes = dy->stride[1] == 1 ? 32 : 1;
    int64_t parts = (s->out.count + s->lanes - 1) / s->lanes;
    int64_t fill = parts ? BLOCKS / parts : 1, most = s->positions.count / POSITIONS;
    s->slices = fill < most ? fill : most;
    s->slices = s->slices < 1 ? 1 : s->slices;
    s->slice = (s->positions.count + s->slices - 1) / s->slices;
    size_t each = dw->dtype == TSR_F64 ? sizeof(double) : sizeof(float);
    return s->slices > 1 ? (size_t)(s->slices * s->out.count) * each : 0;
}

tsr_status tsri_conv_groups(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    bool weight = d->op == TSRI_OP_CONV2D_DW;
    const tsri_arg *w = weight ? &d->out[0] : &d->in[1];
    int64_t og = w->shape[0] / d->groups, cg = w->shape[1];
    groups_kernel *k = (groups_kernel *)tsri_cuda_make(mem, d, weight ? sums_run : gather_run,
                                                       "plain", sizeof(groups_kernel));
    TSRI_NEED(k);
    if (weight)
        k->base.base.scratch_bytes = plan_sums(&k->sum, d, og, cg);
    else
        plan_gather(&k->each, d, og, cg);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
