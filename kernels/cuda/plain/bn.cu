/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm for any strides: a block per sum, a thread per element, in f64 and rounded once.
 * Formulas: src/core/op_list.h. */
#include "kernels/cuda/code/bn.cuh"

enum { THREADS = 256, SUM_THREADS = 64 };

/* Which operands an op has; 0: none (operand 0 is x everywhere). beta stands behind gamma. */
static void find_operands(tsri_op_kind op, tsri_bn *v)
{
    const bool sums = op == TSRI_OP_BN_BWD_STATS || op == TSRI_OP_BN_ACT_BWD_STATS;
    const bool fused = op == TSRI_OP_BN_ACT_BWD_STATS || op == TSRI_OP_BN_ACT_BWD_APPLY;
    const bool grad = op == TSRI_OP_BN_BWD_APPLY || op == TSRI_OP_BN_ACT_BWD_APPLY;
    v->stats_in = op != TSRI_OP_BN_STATS;
    v->centers = op == TSRI_OP_BN_CENTER;
    v->gamma_in = op == TSRI_OP_BN_STATS || op == TSRI_OP_BN_BWD_STATS || v->centers ? 0 : 2;
    v->dy_in = sums || grad ? 2 + (v->gamma_in ? 1 : 0) + (fused ? 1 : 0) : 0;
    v->bstats_in = grad ? v->dy_in + 1 : 0;
}

/* Whether every local sample lies in a virtual batch of stats. */
static tsr_status check_parts(const tsri_kernel_desc *d, const tsri_bn *v)
{
    if (v->parts < 1)
        return tsri_fail(TSR_ERR_INVALID, "%s: %d virtual batches", tsri_op_name(d->op),
                         (int)v->parts);
    if (!v->n || !v->c)
        return TSR_OK;
    int64_t last = v->first + v->rows;
    int64_t lo = v->first < v->parts ? tsri_bn_begin(v->batch, v->parts, v->first) : v->batch;
    int64_t hi = last <= v->parts ? tsri_bn_begin(v->batch, v->parts, last) : v->batch;
    if (v->offset < lo || v->offset + v->n > hi)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: the shard holds samples %lld..%lld, but statistics of samples "
                         "%lld..%lld: split both by the same virtual batches",
                         tsri_op_name(d->op), (long long)v->offset, (long long)(v->offset + v->n),
                         (long long)lo, (long long)hi);
    return TSR_OK;
}

tsr_status tsri_cuda_bn(const tsri_kernel_desc *d, tsri_bn *out)
{
    tsri_bn v = {};
    find_operands(d->op, &v);
    const tsri_arg *x = &d->in[0], *s = v.stats_in ? &d->in[v.stats_in] : &d->out[0];
    const bool sums = d->out[0].ndim == 3;
    if (!tsri_cuda_is_float(x->dtype) || s->dtype != TSR_F64 ||
        (v.dy_in && d->in[v.dy_in].dtype != x->dtype) ||
        (v.bstats_in && d->in[v.bstats_in].dtype != TSR_F64) ||
        d->out[0].dtype != (sums ? TSR_F64 : x->dtype))
        return tsri_cuda_decline(d);
    v.batch = d->attrs->bn.batch;
    v.parts = d->attrs->bn.parts;
    v.spatial = d->attrs->bn.spatial;
    v.eps = d->attrs->bn.eps;
    v.share = 1 / ((double)v.batch * (double)v.spatial);
    if (d->op == TSRI_OP_BN_ACT || d->op == TSRI_OP_BN_ACT_BWD_STATS ||
        d->op == TSRI_OP_BN_ACT_BWD_APPLY)
        v.act = d->attrs->bn.act;
    v.counted = v.centers && d->nin == 3;
    if (v.counted && d->in[2].dtype != TSR_F64)
        return tsri_cuda_decline(d);
    v.first = s->offset[0];
    v.rows = s->shape[0];
    v.offset = x->offset[0];
    v.n = x->shape[0];
    v.c = x->shape[1];
    if (v.gamma_in) {
        v.gamma_type = d->in[v.gamma_in].dtype;
        /* In the unfused gradient the operand behind gamma is dy. */
        v.beta_type = v.dy_in == v.gamma_in + 1 ? TSR_DTYPE_NONE : d->in[v.gamma_in + 1].dtype;
        if (!tsri_cuda_is_float((tsr_dtype)v.gamma_type) ||
            (v.beta_type && !tsri_cuda_is_float((tsr_dtype)v.beta_type)))
            return tsri_cuda_decline(d);
    }
    for (int i = 0; i < 3; i++) {
        v.stats[i] = s->stride[i];
        v.bstats[i] = v.bstats_in ? d->in[v.bstats_in].stride[i] : 0;
    }
    v.bstats_first = v.bstats_in ? d->in[v.bstats_in].offset[0] : 0;
    TSRI_TRY(check_parts(d, &v));
    *out = v;
    return TSR_OK;
}

tsri_bn_data tsri_cuda_bn_data(const tsri_bn *v, void *const *in)
{
    tsri_bn_data p = {};
    p.stats = v->stats_in ? (const double *)in[v->stats_in] : NULL;
    p.bstats = v->bstats_in ? (const double *)in[v->bstats_in] : NULL;
    p.gamma = v->gamma_in ? in[v->gamma_in] : NULL;
    p.beta = v->beta_type ? in[v->gamma_in + 1] : NULL;
    p.count = v->counted ? (const double *)in[2] : NULL;
    return p;
}

/* An operand as [n][c][h][w], whatever its axes. */
typedef struct view {
    int64_t sn, sc, sh, sw;
} view;

typedef struct plain_bn {
    tsri_cuda_kernel base;
    tsri_bn bn;
    view x, dy;
    int64_t h, w;
    int64_t out[3];      /* strides of sums */
    tsri_cuda_walk walk; /* result, x, dy (or x once more), sample, channel */
} plain_bn;

static view view_of(const tsri_arg *a)
{
    view v = {a->stride[0], a->stride[1], 0, 0};
    if (a->ndim == 4) {
        v.sh = a->stride[2];
        v.sw = a->stride[3];
    }
    return v;
}

/* The sums of a and b over the block, in thread 0: a tree, so the order is fixed. */
static __device__ void block_sums(double *a, double *b)
{
    __shared__ double sum[2][SUM_THREADS];
    int t = (int)threadIdx.x;
    sum[0][t] = *a;
    sum[1][t] = *b;
    for (int half = SUM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            sum[0][t] += sum[0][t + half];
            sum[1][t] += sum[1][t + half];
        }
    }
    *a = sum[0][t];
    *b = sum[1][t];
}

/* A block per channel (x) and virtual batch (y). dy: NULL for the sums of x and x^2. */
template <typename T>
static __global__ void sums_kernel(tsri_bn v, tsri_bn_data p, view vx, view vd, int64_t h,
                                   int64_t w, const T *x, const T *dy, int64_t so, int64_t sk,
                                   int64_t sc, double *out)
{
    const int64_t c = blockIdx.x;
    for (int64_t row = blockIdx.y; row < v.rows; row += gridDim.y) {
        const tsri_bn_part part = tsri_bn_part_of(v, row);
        const int64_t plane = h * w;
        const int64_t from = part.begin * plane, end = part.end * plane;
        tsri_bn_coefs k = {};
        if (dy && from < end)
            k = tsri_bn_coefs_of(v, p, row, part.share, c);
        double s0 = 0, s1 = 0;
        for (int64_t i = from + threadIdx.x; i < end; i += SUM_THREADS) {
            int64_t n = i / plane, at = i - n * plane, ih = at / w, iw = at - ih * w;
            double t = tsri_to<double>(x[n * vx.sn + c * vx.sc + ih * vx.sh + iw * vx.sw]);
            if (!dy) {
                s0 += t;
                s1 += t * t;
                continue;
            }
            double z = tsri_to<double>(tsri_to<T>((t - k.mean) * k.a + k.b));
            double g = tsri_to<double>(dy[n * vd.sn + c * vd.sc + ih * vd.sh + iw * vd.sw]);
            g = tsri_bn_through(v.act, z) ? g : 0;
            s0 += g;
            s1 += g * ((t - k.mean) * k.rstd);
        }
        block_sums(&s0, &s1);
        if (threadIdx.x == 0) {
            out[row * so + c * sc] = s0;
            out[row * so + sk + c * sc] = s1;
        }
        __syncthreads(); /* the shared sums are used again */
    }
}

template <typename T>
static __global__ void apply_kernel(tsri_bn v, tsri_bn_data p, tsri_cuda_walk w, const T *x, T *y)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[5];
        tsri_walk_at<5>(w, i, at);
        int64_t row = tsri_bn_row_of(v, at[3]), c = at[4];
        tsri_bn_coefs k = tsri_bn_coefs_of(v, p, row, tsri_bn_part_of(v, row).share, c);
        double z = (tsri_to<double>(x[at[1]]) - k.mean) * k.a + k.b;
        y[at[0]] = tsri_to<T>(tsri_bn_act(v.act, tsri_to<double>(tsri_to<T>(z))));
    }
}

template <typename T>
static __global__ void bwd_apply_kernel(tsri_bn v, tsri_bn_data p, tsri_cuda_walk w, const T *x,
                                        const T *dy, T *dx)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[5];
        tsri_walk_at<5>(w, i, at);
        int64_t row = tsri_bn_row_of(v, at[3]), c = at[4];
        double share = tsri_bn_part_of(v, row).share;
        tsri_bn_coefs k = tsri_bn_coefs_of(v, p, row, share, c);
        tsri_bn_slopes s = tsri_bn_slopes_of(v, p, row, share, k.rstd, c);
        double t = tsri_to<double>(x[at[1]]) - k.mean;
        double z = tsri_to<double>(tsri_to<T>(t * k.a + k.b));
        double g = tsri_bn_through(v.act, z) ? tsri_to<double>(dy[at[2]]) : 0;
        dx[at[0]] = tsri_to<T>(k.a * (g - s.k0 - t * s.k1));
    }
}

static tsr_status sums_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const plain_bn *b = (const plain_bn *)k;
    const tsri_bn *v = &b->bn;
    if (!v->c || !v->rows)
        return TSR_OK;
    dim3 grid((unsigned)v->c, (unsigned)(v->rows < 65535 ? v->rows : 65535));
    tsri_bn_data p = tsri_cuda_bn_data(v, in);
    const void *dy = v->dy_in && v->n ? in[v->dy_in] : NULL;
    TSRI_FLOATS(k->desc.in[0].dtype,
                TSRI_LAUNCH((sums_kernel<T>), grid, SUM_THREADS, k->stream, *v, p, b->x, b->dy,
                            b->h, b->w, (const T *)in[0], (const T *)dy, b->out[0], b->out[1],
                            b->out[2], (double *)out[0]));
    return tsri_cuda_launched(k);
}

static tsr_status apply_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                            void *scratch)
{
    (void)scratch;
    const plain_bn *b = (const plain_bn *)k;
    if (!b->walk.count)
        return TSR_OK;
    unsigned blocks = tsri_blocks(b->walk.count, THREADS);
    tsri_bn_data p = tsri_cuda_bn_data(&b->bn, in);
    if (b->bn.dy_in)
        TSRI_FLOATS(k->desc.in[0].dtype,
                    TSRI_LAUNCH((bwd_apply_kernel<T>), blocks, THREADS, k->stream, b->bn, p,
                                b->walk, (const T *)in[0], (const T *)in[b->bn.dy_in], (T *)out[0]))
    else
        TSRI_FLOATS(k->desc.in[0].dtype,
                    TSRI_LAUNCH((apply_kernel<T>), blocks, THREADS, k->stream, b->bn, p, b->walk,
                                (const T *)in[0], (T *)out[0]))
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    tsri_bn v;
    TSRI_TRY(tsri_cuda_bn(d, &v));
    const bool sums = d->out[0].ndim == 3;
    plain_bn *b =
        (plain_bn *)tsri_cuda_make(mem, d, sums ? sums_run : apply_run, "plain", sizeof *b);
    TSRI_NEED(b);
    const tsri_arg *x = &d->in[0];
    b->bn = v;
    b->x = view_of(x);
    b->dy = view_of(&d->in[v.dy_in]);
    b->h = x->ndim == 4 ? x->shape[2] : 1;
    b->w = x->ndim == 4 ? x->shape[3] : 1;
    for (int i = 0; i < 3; i++)
        b->out[i] = d->out[0].stride[i];
    if (!sums) {
        const int64_t sample[TSR_MAX_NDIM] = {1}, channel[TSR_MAX_NDIM] = {0, 1};
        tsri_cuda_walk_init(&b->walk, x->ndim, x->shape);
        tsri_cuda_walk_push(&b->walk, d->out[0].stride);
        tsri_cuda_walk_push(&b->walk, x->stride);
        tsri_cuda_walk_push(&b->walk, d->in[v.dy_in].stride);
        tsri_cuda_walk_push(&b->walk, sample);
        tsri_cuda_walk_push(&b->walk, channel);
        tsri_cuda_walk_finish(&b->walk);
    }
    *out_kernel = &b->base.base;
    return TSR_OK;
}

tsr_status tsri_plain_bn_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_plain_bn_center(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_plain_bn_apply(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_plain_bn_bwd_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_plain_bn_bwd_apply(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_plain_bn_act(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_plain_bn_act_bwd_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}

tsr_status tsri_plain_bn_act_bwd_apply(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, out);
}
