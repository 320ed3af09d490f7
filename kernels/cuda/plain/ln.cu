/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm's parts of operands with any strides. */
#include "kernels/cuda/code/ln.cuh"

typedef struct walks {
    tsri_cuda_walk rows, features;
} walks;

typedef struct layer_norm {
    tsri_cuda_kernel kernel;
    walks all, grads; /* grads: of gamma's and beta's gradients */
} layer_norm;

static void init_walks(walks *w, const tsri_arg *x, int lead)
{
    tsri_cuda_walk_init(&w->rows, lead, x->shape);
    tsri_cuda_walk_init(&w->features, x->ndim - lead, x->shape + lead);
}

/* Adds an operand: its steps along rows and along features; NULL: it has none. */
static void push(walks *w, const int64_t *row, const int64_t *feature)
{
    static const int64_t none[TSR_MAX_NDIM] = {0};
    tsri_cuda_walk_push(&w->rows, row ? row : none);
    tsri_cuda_walk_push(&w->features, feature ? feature : none);
}

static void finish(walks *w)
{
    tsri_cuda_walk_finish(&w->rows);
    tsri_cuda_walk_finish(&w->features);
}

/* Steps of gamma or beta, or of none (NULL), along the axes of x, to which it broadcasts. */
static void broadcast(const tsri_arg *param, const tsri_arg *x, int64_t *step)
{
    for (int i = 1; i <= x->ndim; i++) {
        const int at = param ? param->ndim - i : -1;
        step[x->ndim - i] = at < 0 || param->shape[at] == 1 ? 0 : param->stride[at];
    }
}

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const layer_norm *v = (const layer_norm *)k;
    TSRI_FLOATS(k->desc.in[0].dtype, tsri_ln_dispatch<T>(&k->desc, in, out, [&](const auto &op) {
                    tsri_launch_plain(op, v->all.rows, v->all.features, k->stream);
                }));
    return tsri_cuda_launched(k);
}

/* --- gradients of gamma and beta -------------------------------------------------------------- */
enum { FEATURES = 32, LANES = 8, BLOCK = 64, THREADS = FEATURES * LANES };

/* Operands of the rows: x, dy, stats. moments: mean and 1/deviation of each row, by the walk. */
template <typename A>
static __global__ void moments_kernel(tsri_cuda_walk rows, tsri_moments stats, A *moments)
{
    for (int64_t r = tsri_first(); r < rows.count; r += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(rows, r, at);
        tsri_moments_of(stats, at[2], &moments[2 * r], &moments[2 * r + 1]);
    }
}

/* Operands of the features: x, dy, dgamma, dbeta. Lanes take turns with the rows; every BLOCK of
 * theirs is summed on its own. */
template <typename T>
static __global__ void grads_kernel(tsri_cuda_walk rows, tsri_cuda_walk features, const T *x,
                                    const T *dy, const tsri_acc<T> *moments, tsri_param dgamma,
                                    tsri_param dbeta)
{
    typedef tsri_acc<T> A;
    __shared__ A sums[2][LANES][FEATURES];
    const int column = (int)threadIdx.x % FEATURES, lane = (int)threadIdx.x / FEATURES;
    for (int64_t f0 = (int64_t)blockIdx.x * FEATURES; f0 < features.count;
         f0 += (int64_t)gridDim.x * FEATURES) {
        const int64_t f = f0 + column;
        int64_t to[4] = {0};
        if (f < features.count)
            tsri_walk_at<4>(features, f, to);
        A sum[2] = {0}, part[2] = {0};
        int waiting = 0;
        for (int64_t r = lane; r < rows.count && f < features.count; r += LANES) {
            int64_t at[2];
            tsri_walk_at<2>(rows, r, at);
            const A g = tsri_to<A>(dy[at[1] + to[1]]);
            part[0] += g * ((tsri_to<A>(x[at[0] + to[0]]) - moments[2 * r]) * moments[2 * r + 1]);
            part[1] += g;
            if (++waiting < BLOCK)
                continue;
            for (int o = 0; o < 2; o++) {
                sum[o] += part[o];
                part[o] = 0;
            }
            waiting = 0;
        }
        for (int o = 0; o < 2; o++)
            sums[o][lane][column] = sum[o] + part[o];
        __syncthreads();
        if (lane < 2 && f < features.count) {
            A all = 0;
            for (int l = 0; l < LANES; l++)
                all += sums[lane][l][column];
            const tsri_param p = lane ? dbeta : dgamma;
            tsri_store_any<A>(p.dtype, (void *)p.p, lane ? to[3] : to[2], all);
        }
        __syncthreads(); /* sums is written again */
    }
}

/* Makes dgamma and dbeta, the results from `first` on. */
static void launch_grads(const layer_norm *v, int first, void *const *in, void *const *out,
                         void *scratch)
{
    const tsri_kernel_desc *d = &v->kernel.desc;
    const tsri_cuda_walk *rows = &v->grads.rows, *features = &v->grads.features;
    const tsri_moments stats = tsri_ln_moments(d, in);
    const int dy = tsri_ln_find(d).dy;
    const tsri_param dgamma = {d->out[first].dtype, out[first]};
    const tsri_param dbeta = {d->out[first + 1].dtype, out[first + 1]};
    if (rows->count > 0)
        TSRI_FLOATS(d->in[0].dtype,
                    TSRI_LAUNCH((moments_kernel<tsri_acc<T>>), tsri_blocks(rows->count, THREADS),
                                THREADS, v->kernel.stream, *rows, stats, (tsri_acc<T> *)scratch));
    if (features->count > 0)
        TSRI_FLOATS(d->in[0].dtype,
                    TSRI_LAUNCH((grads_kernel<T>), tsri_blocks(features->count, FEATURES), THREADS,
                                v->kernel.stream, *rows, *features, (const T *)in[0],
                                (const T *)in[dy], (const tsri_acc<T> *)scratch, dgamma, dbeta));
}

static tsr_status run_grads(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                            void *scratch)
{
    launch_grads((const layer_norm *)k, 0, in, out, scratch);
    return tsri_cuda_launched(k);
}

static void init_grads(layer_norm *v, int first)
{
    const tsri_kernel_desc *d = &v->kernel.desc;
    const tsri_arg *x = &d->in[0], *dy = &d->in[tsri_ln_find(d).dy];
    const int lead = x->ndim - d->attrs->ln.axes;
    init_walks(&v->grads, x, lead);
    push(&v->grads, x->stride, x->stride + lead);
    push(&v->grads, dy->stride, dy->stride + lead);
    tsri_cuda_walk_push(&v->grads.rows, d->in[1].stride);
    tsri_cuda_walk_push(&v->grads.features, d->out[first].stride);
    tsri_cuda_walk_push(&v->grads.features, d->out[first + 1].stride);
    finish(&v->grads);
    v->kernel.base.scratch_bytes = (size_t)v->grads.rows.count * 2 * sizeof(double);
}

tsr_status tsri_plain_ln_param_grad(tsri_mem *mem, const tsri_kernel_desc *d,
                                    tsri_kernel **out_kernel)
{
    if (!tsri_ln_takes(d))
        return tsri_cuda_decline(d);
    layer_norm *v = (layer_norm *)tsri_cuda_make(mem, d, run_grads, "plain", sizeof *v);
    TSRI_NEED(v);
    init_grads(v, 0);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

/* --- the others ------------------------------------------------------------------------------- */
static tsr_status run_both(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    TSRI_TRY(run(k, in, out, scratch));
    launch_grads((const layer_norm *)k, 1, in, out, scratch);
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_ln_takes(d))
        return tsri_cuda_decline(d);
    const bool both = tsri_ln_makes_grads(d);
    layer_norm *v = (layer_norm *)tsri_cuda_make(mem, d, both ? run_both : run, "plain", sizeof *v);
    TSRI_NEED(v);
    const tsri_arg *operands[TSRI_WALK_OPS], *x = &d->in[0];
    const int lead = x->ndim - d->attrs->ln.axes;
    int full, nstats, n = tsri_ln_list(d, operands, &full, &nstats);
    init_walks(&v->all, x, lead);
    for (int o = 0; o < n; o++) {
        const int64_t *stride = operands[o] ? operands[o]->stride : NULL;
        int64_t param[TSR_MAX_NDIM];
        if (o < full + nstats) {
            push(&v->all, stride, o < full ? stride + lead : NULL);
            continue;
        }
        broadcast(operands[o], x, param);
        push(&v->all, param, param + lead);
    }
    finish(&v->all);
    if (both)
        init_grads(v, 1);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

#define SLOT(op)                                                                                   \
    tsr_status tsri_plain_##op(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel) \
    {                                                                                              \
        return create(mem, d, out_kernel);                                                         \
    }
SLOT(ln_stats)
SLOT(ln_apply)
SLOT(ln_bwd_stats)
SLOT(ln_bwd_apply)
