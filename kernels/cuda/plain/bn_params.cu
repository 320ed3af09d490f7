/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small ops around batch norm: per channel, and the one that applies their result. A network
 * has one parameter gradient and one update of the running averages a layer, each far less work
 * than a launch costs; so kernels of these ops can be joined: a launch takes a list of them, with
 * a row of blocks for each.
 */
#include "kernels/cuda/code/bn.cuh"

enum { THREADS = 128, MAX_ITEMS = 64 };

/* --- parameter gradients ---------------------------------------------------------------------- */
typedef struct grad_item {
    const double *sums;
    void *dgamma, *dbeta;
    int64_t rows, c;
    int64_t sr, sk, sc; /* of sums: virtual batch, which sum, channel */
    int64_t sgamma, sbeta;
    int gamma_type, beta_type;
} grad_item;

/* Sums over virtual batches, in their order. gamma's is the second sum. */
static __device__ void work(const grad_item &p)
{
    for (int64_t c = tsri_first(); c < p.c; c += tsri_step()) {
        double gamma = 0, beta = 0;
        for (int64_t r = 0; r < p.rows; r++) {
            const double *s = p.sums + r * p.sr + c * p.sc;
            beta += s[0];
            gamma += s[p.sk];
        }
        tsri_put_float(p.gamma_type, p.dgamma, c * p.sgamma, gamma);
        tsri_put_float(p.beta_type, p.dbeta, c * p.sbeta, beta);
    }
}

static void set_item(grad_item *item, const tsri_cuda_kernel *k, void *const *in, void *const *out)
{
    const tsri_arg *b = &k->desc.in[0], *g = &k->desc.out[0], *h = &k->desc.out[1];
    grad_item p = {};
    p.sums = (const double *)in[0];
    p.dgamma = out[0];
    p.dbeta = out[1];
    p.rows = b->shape[0];
    p.c = b->shape[2];
    p.sr = b->stride[0];
    p.sk = b->stride[1];
    p.sc = b->stride[2];
    p.sgamma = g->stride[0];
    p.sbeta = h->stride[0];
    p.gamma_type = g->dtype;
    p.beta_type = h->dtype;
    *item = p;
}

/* --- running averages ------------------------------------------------------------------------- */
typedef struct running_item {
    const double *sums, *count;   /* count: NULL, or the number of values */
    const double *centre;         /* NULL, or sums of the data before it was centred */
    int64_t er, ec, centre_first; /* its strides, and the virtual batch of its row 0 */
    void *mean, *var;
    int64_t rows, c;
    int64_t sr, sk, sc;     /* of sums */
    int64_t mr, mc, vr, vc; /* of mean and var: virtual batch, channel */
    int64_t batch, parts, spatial;
    int64_t first, sums_first, sums_rows; /* virtual batches: of mean's row 0, of sums */
    double momentum;
    int mean_type, var_type;
} running_item;

static __device__ __forceinline__ void keep(int dtype, void *p, int64_t i, double momentum,
                                            double fresh)
{
    double old = tsri_get_float(dtype, p, i);
    tsri_put_float(dtype, p, i, (1 - momentum) * old + momentum * fresh);
}

static __device__ void work(const running_item &p)
{
    for (int64_t i = 0; i < p.rows; i++) {
        int64_t r = p.first + i, row = r - p.sums_first;
        double n = (double)(p.batch / p.parts + (r < p.batch % p.parts)) * (double)p.spatial;
        if (p.count)
            n = *p.count;
        if (row < 0 || row >= p.sums_rows || n == 0)
            continue;
        for (int64_t c = tsri_first(); c < p.c; c += tsri_step()) {
            const double *s = p.sums + row * p.sr + c * p.sc;
            double mean = s[0] / n, var = s[p.sk] / n - mean * mean;
            var = (var < 0 ? 0 : var) * (n > 1 ? n / (n - 1) : 1);
            if (p.centre) {
                double centre = p.centre[(r - p.centre_first) * p.er + c * p.ec] / n;
                mean = centre - centre == 0 ? centre + mean : centre; /* infinite: mean is NaN */
            }
            keep(p.mean_type, p.mean, i * p.mr + c * p.mc, p.momentum, mean);
            keep(p.var_type, p.var, i * p.vr + c * p.vc, p.momentum, var);
        }
    }
}

static void set_item(running_item *item, const tsri_cuda_kernel *k, void *const *in,
                     void *const *out)
{
    const tsri_arg *s = &k->desc.in[0], *m = &k->desc.in[1], *v = &k->desc.in[2];
    const bool many = m->ndim == 2; /* [R, c]: rows are virtual batches */
    running_item p = {};
    p.sums = (const double *)in[0];
    for (int i = 3; i < k->desc.nin; i++) {
        const tsri_arg *a = &k->desc.in[i];
        if (a->ndim == 0) {
            p.count = (const double *)in[i];
            continue;
        }
        p.centre = (const double *)in[i];
        p.er = a->stride[0];
        p.ec = a->stride[2];
        p.centre_first = a->offset[0];
    }
    p.mean = out[0];
    p.var = out[1];
    p.rows = many ? m->shape[0] : 1;
    p.c = s->shape[2];
    p.sr = s->stride[0];
    p.sk = s->stride[1];
    p.sc = s->stride[2];
    p.mr = many ? m->stride[0] : 0;
    p.vr = many ? v->stride[0] : 0;
    p.mc = m->stride[m->ndim - 1];
    p.vc = v->stride[v->ndim - 1];
    p.batch = k->attrs.bn.batch;
    p.parts = k->attrs.bn.parts;
    p.spatial = k->attrs.bn.spatial;
    p.first = many ? m->offset[0] : 0;
    p.sums_first = s->offset[0];
    p.sums_rows = s->shape[0];
    p.momentum = k->attrs.bn.momentum;
    p.mean_type = m->dtype;
    p.var_type = v->dtype;
    *item = p;
}

/* --- one or many ------------------------------------------------------------------------------ */
/* An argument of the launch: a graph keeps its own copy. */
template <typename Item, int N> struct item_list {
    Item item[N];
};

template <typename Item, int N>
static __global__ void items_kernel(const __grid_constant__ item_list<Item, N> list)
{
    work(list.item[blockIdx.y]);
}

/* At most N. */
template <typename Item, int N> static void launch(cudaStream_t stream, const Item *item, int n)
{
    item_list<Item, N> list = {};
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        list.item[i] = item[i];
        most = item[i].c > most ? item[i].c : most;
    }
    if (most) {
        dim3 grid(tsri_blocks(most, THREADS), (unsigned)n);
        TSRI_LAUNCH((items_kernel<Item, N>), grid, THREADS, stream, list);
    }
}

template <typename Item>
static tsr_status single_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    (void)scratch;
    Item item;
    set_item(&item, k, in, out);
    launch<Item, 1>(k->stream, &item, 1);
    return tsri_cuda_launched(k);
}

template <typename Item> struct joined {
    tsri_cuda_kernel base;
    int n;
    Item item[1]; /* n */
};

template <typename Item>
static tsr_status joined_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    (void)in;
    (void)out;
    (void)scratch;
    const joined<Item> *j = (const joined<Item> *)k;
    for (int at = 0; at < j->n; at += MAX_ITEMS)
        launch<Item, MAX_ITEMS>(k->stream, &j->item[at],
                                j->n - at < MAX_ITEMS ? j->n - at : MAX_ITEMS);
    return tsri_cuda_launched(k);
}

template <typename Item>
static tsr_status join(tsri_mem *mem, int n, tsri_kernel *const *kernels, void *const *const *in,
                       void *const *const *out, tsri_kernel **out_kernel)
{
    if (n < 1)
        return tsri_fail(TSR_ERR_INVALID, "no kernels to join");
    const tsri_cuda_kernel *first = (const tsri_cuda_kernel *)kernels[0];
    joined<Item> *j = (joined<Item> *)tsri_cuda_make(mem, &first->desc, joined_run<Item>, "plain",
                                                     sizeof *j + (size_t)n * sizeof(Item));
    TSRI_NEED(j);
    j->n = n;
    for (int i = 0; i < n; i++)
        set_item(&j->item[i], (const tsri_cuda_kernel *)kernels[i], in[i], out[i]);
    *out_kernel = &j->base.base;
    return TSR_OK;
}

template <typename Item>
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    TSRI_TRY(tsri_cuda_create(mem, d, single_run<Item>, "plain", out_kernel));
    (*out_kernel)->join = join<Item>;
    return TSR_OK;
}

tsr_status tsri_plain_bn_param_grad(tsri_mem *mem, const tsri_kernel_desc *d,
                                    tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != TSR_F64 || !tsri_cuda_is_float(d->out[0].dtype) ||
        !tsri_cuda_is_float(d->out[1].dtype))
        return tsri_cuda_decline(d);
    return create<grad_item>(mem, d, out_kernel);
}

tsr_status tsri_plain_bn_running(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != TSR_F64 || !tsri_cuda_is_float(d->in[1].dtype) ||
        !tsri_cuda_is_float(d->in[2].dtype))
        return tsri_cuda_decline(d);
    for (int i = 3; i < d->nin; i++)
        if (d->in[i].dtype != TSR_F64)
            return tsri_cuda_decline(d);
    return create<running_item>(mem, d, out_kernel);
}

/* --- inference -------------------------------------------------------------------------------- */
typedef struct fold_args {
    const void *in[4]; /* gamma, beta, mean, var */
    void *out[2];      /* scale, shift */
    int64_t in_step[4], out_step[2], c;
    int in_type[4], out_type[2];
    double eps;
} fold_args;

static __global__ void fold_kernel(fold_args a)
{
    for (int64_t c = tsri_first(); c < a.c; c += tsri_step()) {
        double p[4];
        for (int i = 0; i < 4; i++)
            p[i] = tsri_get_float(a.in_type[i], a.in[i], c * a.in_step[i]);
        double scale = p[0] / sqrt(p[3] + a.eps);
        tsri_put_float(a.out_type[0], a.out[0], c * a.out_step[0], scale);
        tsri_put_float(a.out_type[1], a.out[1], c * a.out_step[1], p[1] - p[2] * scale);
    }
}

static tsr_status fold_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    fold_args a = {};
    a.c = k->desc.out[0].shape[0];
    a.eps = k->attrs.bn.eps;
    for (int i = 0; i < 4; i++) {
        a.in[i] = in[i];
        a.in_step[i] = k->desc.in[i].stride[k->desc.in[i].ndim - 1]; /* the last axis is c */
        a.in_type[i] = k->desc.in[i].dtype;
    }
    for (int i = 0; i < 2; i++) {
        a.out[i] = out[i];
        a.out_step[i] = k->desc.out[i].stride[0];
        a.out_type[i] = k->desc.out[i].dtype;
    }
    if (a.c)
        TSRI_LAUNCH(fold_kernel, tsri_blocks(a.c, THREADS), THREADS, k->stream, a);
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_bn_fold(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    for (int i = 0; i < 4; i++)
        if (!tsri_cuda_is_float(d->in[i].dtype))
            return tsri_cuda_decline(d);
    return tsri_cuda_create(mem, d, fold_run, "plain", out_kernel);
}

typedef struct scale_shift {
    tsri_cuda_kernel base;
    tsri_cuda_walk walk; /* result, x, scale, shift */
} scale_shift;

template <typename T>
static __global__ void scale_shift_kernel(tsri_cuda_walk w, const T *x, const T *a, const T *b,
                                          T *y)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[4];
        tsri_walk_at<4>(w, i, at);
        y[at[0]] = tsri_to<T>(tsri_to<double>(x[at[1]]) * tsri_to<double>(a[at[2]]) +
                              tsri_to<double>(b[at[3]]));
    }
}

static tsr_status scale_shift_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                  void *scratch)
{
    (void)scratch;
    const scale_shift *s = (const scale_shift *)k;
    if (s->walk.count)
        TSRI_FLOATS(k->desc.out[0].dtype,
                    TSRI_LAUNCH((scale_shift_kernel<T>), tsri_blocks(s->walk.count, THREADS),
                                THREADS, k->stream, s->walk, (const T *)in[0], (const T *)in[1],
                                (const T *)in[2], (T *)out[0]))
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_scale_shift(tsri_mem *mem, const tsri_kernel_desc *d,
                                  tsri_kernel **out_kernel)
{
    for (int i = 0; i < 3; i++)
        if (!tsri_cuda_is_float(d->out[0].dtype) || d->in[i].dtype != d->out[0].dtype)
            return tsri_cuda_decline(d);
    scale_shift *s = (scale_shift *)tsri_cuda_make(mem, d, scale_shift_run, "plain", sizeof *s);
    TSRI_NEED(s);
    tsri_cuda_walk_init(&s->walk, d->out[0].ndim, d->out[0].shape);
    tsri_cuda_walk_push(&s->walk, d->out[0].stride);
    tsri_cuda_walk_push(&s->walk, d->in[0].stride);
    for (int i = 1; i < 3; i++) { /* along the channels, axis 1 */
        const int64_t stride[TSR_MAX_NDIM] = {0, d->in[i].stride[0]};
        tsri_cuda_walk_push(&s->walk, stride);
    }
    tsri_cuda_walk_finish(&s->walk);
    *out_kernel = &s->base.base;
    return TSR_OK;
}
