/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops of any strides: a thread per element. */
#include "kernels/cuda/box.h"
#include "kernels/cuda/code/map_code.cuh"

enum { THREADS = 256 };

typedef struct map {
    tsri_cuda_kernel k;
    tsri_cuda_walk w;
} map;

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run,
                       tsri_kernel **out_kernel)
{
    map *m = (map *)tsri_cuda_make(mem, d, run, "plain", sizeof *m);
    TSRI_NEED(m);
    tsri_cuda_walk_of(&m->w, d);
    *out_kernel = &m->k.base;
    return TSR_OK;
}

/* All operands and results of one float dtype. */
static tsr_status make_float(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run,
                             tsri_kernel **out_kernel)
{
    bool alike = tsri_cuda_is_float(d->out[0].dtype);
    for (int i = 0; i < d->nin; i++)
        alike &= d->in[i].dtype == d->out[0].dtype;
    return alike ? make(mem, d, run, out_kernel) : tsri_cuda_decline(d);
}

/* --- one operand ------------------------------------------------------------------------------ */
template <typename T>
static __global__ void unary_kernel(tsri_cuda_walk w, T *y, const T *x, int fn, double a, double b)
{
    typedef tsri_acc<T> A;
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        y[at[0]] = tsri_to<T>(tsri_unary<A>(fn, tsri_to<A>(x[at[1]]), (A)a, (A)b));
    }
}

static tsr_status unary_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const tsri_cuda_walk *w = &((const map *)k)->w;
    if (!w->count)
        return TSR_OK;
    TSRI_FLOATS(k->desc.out[0].dtype,
                TSRI_LAUNCH((unary_kernel<T>), tsri_blocks(w->count, THREADS), THREADS, k->stream,
                            *w, (T *)out[0], (const T *)in[0], k->attrs.unary.fn, k->attrs.unary.a,
                            k->attrs.unary.b));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_unary(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if ((unsigned)d->attrs->unary.fn >= TSRI_UNARY_COUNT_)
        return tsri_cuda_decline(d);
    return make_float(mem, d, unary_run, out_kernel);
}

template <typename T>
static __global__ void unary_grad_kernel(tsri_cuda_walk w, T *y, const T *x, const T *u, int fn,
                                         double a, double b)
{
    typedef tsri_acc<T> A;
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(w, i, at);
        y[at[0]] = tsri_to<T>(
            tsri_unary_grad<A>(fn, tsri_to<A>(x[at[1]]), tsri_to<A>(u[at[2]]), (A)a, (A)b));
    }
}

static tsr_status unary_grad_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                 void *)
{
    const tsri_cuda_walk *w = &((const map *)k)->w;
    if (!w->count)
        return TSR_OK;
    TSRI_FLOATS(k->desc.out[0].dtype,
                TSRI_LAUNCH((unary_grad_kernel<T>), tsri_blocks(w->count, THREADS), THREADS,
                            k->stream, *w, (T *)out[0], (const T *)in[0], (const T *)in[1],
                            k->attrs.unary.fn, k->attrs.unary.a, k->attrs.unary.b));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_unary_grad(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if ((unsigned)d->attrs->unary.fn >= TSRI_UNARY_COUNT_)
        return tsri_cuda_decline(d);
    return make_float(mem, d, unary_grad_run, out_kernel);
}

template <typename T>
static __global__ void scale_kernel(tsri_cuda_walk w, T *y, const T *x, double a)
{
    typedef tsri_acc<T> A;
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        y[at[0]] = tsri_to<T>(tsri_to<A>(x[at[1]]) * (A)a);
    }
}

static tsr_status scale_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const tsri_cuda_walk *w = &((const map *)k)->w;
    if (!w->count)
        return TSR_OK;
    TSRI_FLOATS(k->desc.out[0].dtype,
                TSRI_LAUNCH((scale_kernel<T>), tsri_blocks(w->count, THREADS), THREADS, k->stream,
                            *w, (T *)out[0], (const T *)in[0], k->attrs.scale.a));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_scale(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make_float(mem, d, scale_run, out_kernel);
}

/* --- conversions ------------------------------------------------------------------------------ */
template <typename From>
static __global__ void cast_kernel(tsri_cuda_walk w, int to, void *y, const From *x)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        tsri_store(to, y, at[0], x[at[1]]);
    }
}

static tsr_status cast_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const tsri_cuda_walk *w = &((const map *)k)->w;
    tsr_dtype from = k->desc.in[0].dtype;
    if (!w->count)
        return TSR_OK;
    TSRI_OPERANDS(from,
                  TSRI_LAUNCH((cast_kernel<T>), tsri_blocks(w->count, THREADS), THREADS, k->stream,
                              *w, (int)k->desc.out[0].dtype, out[0], (const T *)in[0]));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_cast(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make(mem, d, cast_run, out_kernel);
}

/* --- two operands ----------------------------------------------------------------------------- */
template <typename T>
static __global__ void binary_kernel(tsri_cuda_walk w, T *z, const T *x, const T *y, int fn)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(w, i, at);
        z[at[0]] = tsri_binary<T>(fn, x[at[1]], y[at[2]]);
    }
}

template <typename T>
static __global__ void compare_kernel(tsri_cuda_walk w, int to, void *z, const T *x, const T *y,
                                      tsri_orders orders)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(w, i, at);
        tsri_store(to, z, at[0], tsri_order<T>(orders, x[at[1]], y[at[2]]));
    }
}

static tsr_status binary_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const tsri_cuda_walk *w = &((const map *)k)->w;
    const int fn = k->attrs.binary.fn;
    const unsigned blocks = tsri_blocks(w->count, THREADS);
    if (!w->count)
        return TSR_OK;
    if (tsri_binary_compares((tsri_binary_fn)fn)) {
        TSRI_OPERANDS(k->desc.in[0].dtype,
                      TSRI_LAUNCH((compare_kernel<T>), blocks, THREADS, k->stream, *w,
                                  (int)k->desc.out[0].dtype, out[0], (const T *)in[0],
                                  (const T *)in[1], tsri_binary_orders((tsri_binary_fn)fn)));
    } else {
        TSRI_OPERANDS(k->desc.in[0].dtype,
                      TSRI_LAUNCH((binary_kernel<T>), blocks, THREADS, k->stream, *w, (T *)out[0],
                                  (const T *)in[0], (const T *)in[1], fn));
    }
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_binary(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsr_dtype x = d->in[0].dtype;
    const unsigned fn = (unsigned)d->attrs->binary.fn;
    if (fn >= TSRI_BINARY_COUNT_ || x != d->in[1].dtype ||
        (!tsri_binary_compares((tsri_binary_fn)fn) && (x == TSR_BOOL || x != d->out[0].dtype)))
        return tsri_cuda_decline(d);
    return make(mem, d, binary_run, out_kernel);
}

/* --- sums ------------------------------------------------------------------------------------- */
/* More operands than a walk has: several walks, each led by the result, so that element i is the
 * same one in all of them. */
enum { PER_WALK = TSRI_WALK_OPS - 1, WALKS = (TSRI_KERNEL_MAX_ARGS + PER_WALK - 1) / PER_WALK };

typedef struct terms {
    int n;
    tsri_cuda_walk w[WALKS];
    const void *x[TSRI_KERNEL_MAX_ARGS];
} terms;

typedef struct add_n {
    tsri_cuda_kernel k;
    terms t;
} add_n;

template <typename T> static __global__ void add_n_kernel(terms t, T *y)
{
    for (int64_t i = tsri_first(); i < t.w[0].count; i += tsri_step()) {
        tsri_acc<T> sum = 0;
        int64_t at[TSRI_WALK_OPS], to = 0;
        for (int g = 0; g * PER_WALK < t.n; g++) {
            tsri_walk_at<TSRI_WALK_OPS>(t.w[g], i, at);
            to = at[0];
#pragma unroll
            for (int o = 0; o < PER_WALK; o++)
                if (g * PER_WALK + o < t.n)
                    sum += tsri_to<tsri_acc<T>>(((const T *)t.x[g * PER_WALK + o])[at[1 + o]]);
        }
        y[to] = tsri_to<T>(sum);
    }
}

static tsr_status add_n_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    terms t = ((const add_n *)k)->t;
    for (int i = 0; i < t.n; i++)
        t.x[i] = in[i];
    if (!t.w[0].count)
        return TSR_OK;
    TSRI_FLOATS(k->desc.out[0].dtype,
                TSRI_LAUNCH((add_n_kernel<T>), tsri_blocks(t.w[0].count, THREADS), THREADS,
                            k->stream, t, (T *)out[0]));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_add_n(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    bool alike = tsri_cuda_is_float(d->out[0].dtype);
    for (int i = 0; i < d->nin; i++)
        alike &= d->in[i].dtype == d->out[0].dtype;
    if (!alike)
        return tsri_cuda_decline(d);
    add_n *v = (add_n *)tsri_cuda_make(mem, d, add_n_run, "plain", sizeof *v);
    TSRI_NEED(v);
    v->t.n = d->nin;
    for (int g = 0; g < WALKS; g++) {
        tsri_cuda_walk *w = &v->t.w[g];
        tsri_cuda_walk_init(w, d->out[0].ndim, d->out[0].shape);
        tsri_cuda_walk_push(w, d->out[0].stride);
        for (int i = g * PER_WALK; i < d->nin && i < (g + 1) * PER_WALK; i++)
            tsri_cuda_walk_push_arg(w, &d->in[i]);
        tsri_cuda_walk_finish(w);
    }
    *out_kernel = &v->k.base;
    return TSR_OK;
}

/* --- broadcasting ----------------------------------------------------------------------------- */
typedef struct spread {
    tsri_cuda_kernel k;
    tsri_cuda_box box;
} spread;

static tsr_status broadcast_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                void *)
{
    return tsri_cuda_box_run(&((const spread *)k)->box, out[0], in[0], k->stream);
}

tsr_status tsri_plain_expand(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != d->out[0].dtype)
        return tsri_cuda_decline(d);
    spread *v = (spread *)tsri_cuda_make(mem, d, broadcast_run, "plain", sizeof *v);
    TSRI_NEED(v);
    v->box.size = tsr_dtype_size(d->out[0].dtype);
    tsri_cuda_walk_of(&v->box.walk, d);
    *out_kernel = &v->k.base;
    return TSR_OK;
}
