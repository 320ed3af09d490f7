/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling for any strides. Gradients gather: each input position asks the windows that hold it, so
 * every element is written once, by one thread, in a fixed order. */
#include "kernels/cuda/code/pool.cuh"

enum { THREADS = 256 };

/* A 4-D operand's strides. */
typedef struct strides {
    int64_t n, c, h, w;
} strides;

static strides strides_of(const tsri_arg *a)
{
    return {a->stride[0], a->stride[1], a->stride[2], a->stride[3]};
}

/* The written tensor: a thread per element. */
typedef struct sweep {
    int64_t count, c, h, w;
    bool channels_last;
} sweep;

typedef struct place {
    int64_t n, c, h, w;
} place;

/* Neighbouring threads take elements that are neighbours in memory. */
static __device__ __forceinline__ place place_of(const sweep &s, int64_t i)
{
    place p;
    if (s.channels_last) {
        p.c = i % s.c;
        i /= s.c;
    }
    p.w = i % s.w;
    i /= s.w;
    p.h = i % s.h;
    i /= s.h;
    if (!s.channels_last) {
        p.c = i % s.c;
        i /= s.c;
    }
    p.n = i;
    return p;
}

static __device__ __forceinline__ int64_t at(const strides &s, int64_t n, int64_t c, int64_t h,
                                             int64_t w)
{
    return n * s.n + c * s.c + h * s.h + w * s.w;
}

static sweep sweep_of(const tsri_arg *a)
{
    sweep s = {tsri_cuda_count(a), a->shape[1], a->shape[2], a->shape[3], false};
    s.channels_last = a->stride[1] == 1;
    return s;
}

template <typename T>
static __global__ void max_kernel(tsri_pooling p, sweep s, strides sx, strides sy, strides si,
                                  const T *x, T *y, int32_t *idx)
{
    for (int64_t i = tsri_first(); i < s.count; i += tsri_step()) {
        place o = place_of(s, i);
        tsri_span h = tsri_pool_window(p, 0, o.h), w = tsri_pool_window(p, 1, o.w);
        tsri_acc<T> best = (tsri_acc<T>)-INFINITY;
        int32_t found = -1;
        for (int64_t a = h.begin; a < h.end; a++)
            for (int64_t b = w.begin; b < w.end; b++) {
                tsri_acc<T> v = tsri_to<tsri_acc<T>>(x[at(sx, o.n, o.c, a, b)]);
                if (found < 0 || v > best || (v != v && best == best)) {
                    best = v;
                    found = (int32_t)(a * p.big[1] + b);
                }
            }
        y[at(sy, o.n, o.c, o.h, o.w)] = tsri_to<T>(best);
        if (idx)
            idx[at(si, o.n, o.c, o.h, o.w)] = found;
    }
}

template <typename T>
static __global__ void max_dx_kernel(tsri_pooling p, sweep s, strides si, strides sg, strides sx,
                                     const int32_t *idx, const T *dy, T *dx)
{
    for (int64_t i = tsri_first(); i < s.count; i += tsri_step()) {
        place o = place_of(s, i);
        tsri_span h = tsri_pool_holders(p, 0, o.h), w = tsri_pool_holders(p, 1, o.w);
        int32_t me = (int32_t)(o.h * p.big[1] + o.w);
        tsri_acc<T> sum = 0;
        for (int64_t a = h.begin; a < h.end; a++)
            for (int64_t b = w.begin; b < w.end; b++)
                if (idx[at(si, o.n, o.c, a, b)] == me)
                    sum += tsri_to<tsri_acc<T>>(dy[at(sg, o.n, o.c, a, b)]);
        dx[at(sx, o.n, o.c, o.h, o.w)] = tsri_to<T>(sum);
    }
}

template <typename T>
static __global__ void avg_kernel(tsri_pooling p, sweep s, strides sx, strides sy, const T *x, T *y)
{
    for (int64_t i = tsri_first(); i < s.count; i += tsri_step()) {
        place o = place_of(s, i);
        tsri_span h = tsri_pool_window(p, 0, o.h), w = tsri_pool_window(p, 1, o.w);
        tsri_acc<T> sum = 0;
        for (int64_t a = h.begin; a < h.end; a++) {
            tsri_acc<T> line = 0; /* large windows: shorter runs of additions */
            for (int64_t b = w.begin; b < w.end; b++)
                line += tsri_to<tsri_acc<T>>(x[at(sx, o.n, o.c, a, b)]);
            sum += line;
        }
        y[at(sy, o.n, o.c, o.h, o.w)] =
            tsri_to<T>(sum / (tsri_acc<T>)tsri_pool_divisor(p, o.h, o.w));
    }
}

template <typename T>
static __global__ void avg_dx_kernel(tsri_pooling p, sweep s, strides sg, strides sx, const T *dy,
                                     T *dx)
{
    for (int64_t i = tsri_first(); i < s.count; i += tsri_step()) {
        place o = place_of(s, i);
        tsri_span h = tsri_pool_holders(p, 0, o.h), w = tsri_pool_holders(p, 1, o.w);
        tsri_acc<T> sum = 0;
        for (int64_t a = h.begin; a < h.end; a++)
            for (int64_t b = w.begin; b < w.end; b++)
                sum += tsri_to<tsri_acc<T>>(dy[at(sg, o.n, o.c, a, b)]) /
                       (tsri_acc<T>)tsri_pool_divisor(p, a, b);
        dx[at(sx, o.n, o.c, o.h, o.w)] = tsri_to<T>(sum);
    }
}

typedef struct plain_pool {
    tsri_cuda_kernel base;
    tsri_pooling pool;
    sweep result; /* of out[0] */
    strides in[2], out[2];
} plain_pool;

static tsr_status pool_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const plain_pool *q = (const plain_pool *)k;
    const tsri_pooling *p = &q->pool;
    if (!q->result.count)
        return TSR_OK;
    const unsigned blocks = tsri_blocks(q->result.count, THREADS);
    const tsr_dtype t = k->desc.out[0].dtype;
    switch (k->desc.op) {
    case TSRI_OP_MAX_POOL:
        TSRI_FLOATS(t, TSRI_LAUNCH((max_kernel<T>), blocks, THREADS, k->stream, *p, q->result,
                                   q->in[0], q->out[0], q->out[1], (const T *)in[0], (T *)out[0],
                                   k->desc.nout > 1 ? (int32_t *)out[1] : NULL))
        break;
    case TSRI_OP_MAX_POOL_DX:
        TSRI_FLOATS(t, TSRI_LAUNCH((max_dx_kernel<T>), blocks, THREADS, k->stream, *p, q->result,
                                   q->in[0], q->in[1], q->out[0], (const int32_t *)in[0],
                                   (const T *)in[1], (T *)out[0]))
        break;
    case TSRI_OP_AVG_POOL:
    case TSRI_OP_ADAPTIVE_POOL:
        TSRI_FLOATS(t, TSRI_LAUNCH((avg_kernel<T>), blocks, THREADS, k->stream, *p, q->result,
                                   q->in[0], q->out[0], (const T *)in[0], (T *)out[0]))
        break;
    default:
        TSRI_FLOATS(t, TSRI_LAUNCH((avg_dx_kernel<T>), blocks, THREADS, k->stream, *p, q->result,
                                   q->in[0], q->out[0], (const T *)in[0], (T *)out[0]))
    }
    return tsri_cuda_launched(k);
}

/* big, small: what is pooled, and what it is pooled to. */
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, const tsri_arg *big,
                         const tsri_arg *small, tsri_kernel **out_kernel)
{
    if (!tsri_pool_takes(d))
        return tsri_cuda_decline(d);
    plain_pool *q = (plain_pool *)tsri_cuda_make(mem, d, pool_run, "plain", sizeof *q);
    TSRI_NEED(q);
    q->pool = tsri_pool_of(d, big, small);
    q->result = sweep_of(&d->out[0]);
    for (int i = 0; i < d->nin; i++)
        q->in[i] = strides_of(&d->in[i]);
    for (int i = 0; i < d->nout; i++)
        q->out[i] = strides_of(&d->out[i]);
    *out_kernel = &q->base.base;
    return TSR_OK;
}

tsr_status tsri_plain_max_pool(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, &d->in[0], &d->out[0], out);
}

tsr_status tsri_plain_max_pool_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, &d->out[0], &d->in[1], out);
}

tsr_status tsri_plain_avg_pool(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, &d->in[0], &d->out[0], out);
}

tsr_status tsri_plain_avg_pool_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, &d->out[0], &d->in[0], out);
}

tsr_status tsri_plain_adaptive_pool(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, &d->in[0], &d->out[0], out);
}

tsr_status tsri_plain_adaptive_pool_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out)
{
    return create(mem, d, &d->out[0], &d->in[0], out);
}
