/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers by the element's index in the global tensor; fills, ranges and constants. */
#include <cmath>
#include <cstring>

#include "kernels/cuda/box.h"
#include "kernels/cuda/code/map_code.cuh"
#include "kernels/cuda/rng_code.cuh"
#include "kernels/part.h"

enum { THREADS = 256 };

/* The global index is an operand of the walk like any other: the last, begun at `begin`. */
typedef struct source {
    tsri_cuda_kernel k;
    tsri_cuda_walk w;
    uint64_t begin;
} source;

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run, int nin,
                       tsri_kernel **out_kernel)
{
    source *v = (source *)tsri_cuda_make(mem, d, run, "plain", sizeof *v);
    TSRI_NEED(v);
    int64_t index[TSR_MAX_NDIM];
    v->begin = (uint64_t)tsri_cuda_global_index(&d->out[0], index);
    tsri_cuda_walk_init(&v->w, d->out[0].ndim, d->out[0].shape);
    tsri_cuda_walk_push(&v->w, d->out[0].stride);
    if (nin)
        tsri_cuda_walk_push(&v->w, d->in[0].stride);
    tsri_cuda_walk_push(&v->w, index);
    tsri_cuda_walk_finish(&v->w);
    *out_kernel = &v->k.base;
    return TSR_OK;
}

/* --- dropout ---------------------------------------------------------------------------------- */
/* Elements of a part in time (part is not NULL) are drawn by their indices in the whole tensor. */
template <typename T>
static __global__ void dropout_kernel(tsri_cuda_walk w, T *y, const T *x, const int64_t *step,
                                      const int64_t *part, int64_t run, int parts, uint64_t key,
                                      uint64_t begin, uint32_t least, double scale)
{
    const uint64_t s = (uint64_t)*step;
    const int64_t m = part ? *part : 0;
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(w, i, at);
        uint64_t index = begin + (uint64_t)at[2];
        if (part)
            index = (uint64_t)tsri_part_index((int64_t)index, run, parts, m);
        const bool keep = tsri_philox_bits(key, s, index) >= least;
        const double v = tsri_to<double>(x[at[1]]) * scale;
        y[at[0]] = tsri_to<T>(keep ? v : 0.0);
    }
}

static tsr_status dropout_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const source *v = (const source *)k;
    if (!v->w.count)
        return TSR_OK;
    const bool is_part = k->desc.nin == 3;
    TSRI_FLOATS(k->desc.out[0].dtype,
                TSRI_LAUNCH((dropout_kernel<T>), tsri_blocks(v->w.count, THREADS), THREADS,
                            k->stream, v->w, (T *)out[0], (const T *)in[0], (const int64_t *)in[1],
                            is_part ? (const int64_t *)in[2] : NULL,
                            is_part ? tsri_part_run(&k->desc) : 1, (int)k->attrs.dropout.parts,
                            k->attrs.dropout.key, v->begin, tsri_dropout_least(k->attrs.dropout.p),
                            tsri_dropout_scale(k->attrs.dropout.p)));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_dropout(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_cuda_is_float(d->out[0].dtype) || d->in[0].dtype != d->out[0].dtype ||
        d->in[1].dtype != TSR_I64 || d->in[d->nin - 1].dtype != TSR_I64)
        return tsri_cuda_decline(d);
    return make(mem, d, dropout_run, 1, out_kernel);
}

/* --- random ----------------------------------------------------------------------------------- */
/* The value before b (that is b rounded to T). */
template <typename T> static __device__ __forceinline__ T before(double b)
{
    if constexpr (std::is_same<T, double>::value) {
        return nextafter(b, -(double)INFINITY);
    } else if constexpr (std::is_same<T, float>::value) {
        return nextafterf((float)b, -INFINITY);
    } else {
        T near = tsri_to<T>(b);
        int16_t bits;
        memcpy(&bits, (const void *)&near, sizeof bits);
        bits = (int16_t)((bits & 0x7fff) == 0 ? 0x8001 : bits > 0 ? bits - 1 : bits + 1);
        memcpy((void *)&near, &bits, sizeof bits);
        return near;
    }
}

/* Products and sums are rounded one by one, as on a CPU. */
template <typename T>
static __global__ void random_kernel(tsri_cuda_walk w, T *y, const int64_t *step, uint64_t key,
                                     uint64_t begin, int dist, double a, double b)
{
    const uint64_t s = step ? (uint64_t)*step : 0;
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        const uint64_t index = begin + (uint64_t)at[1];
        if (dist == TSRI_RANDOM_NORMAL) {
            y[at[0]] = tsri_to<T>(__dadd_rn(a, __dmul_rn(b, tsri_philox_normal(key, s, index))));
            continue;
        }
        const double u = (double)tsri_philox_bits(key, s, index) * 0x1p-24;
        T v = tsri_to<T>(__dadd_rn(a, __dmul_rn(b - a, u)));
        /* Rounding may have reached b, which is not in the interval. */
        if (a < b && tsri_to<double>(v) >= b)
            v = before<T>(b);
        y[at[0]] = v;
    }
}

static tsr_status random_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const source *v = (const source *)k;
    if (!v->w.count)
        return TSR_OK;
    TSRI_FLOATS(k->desc.out[0].dtype,
                TSRI_LAUNCH((random_kernel<T>), tsri_blocks(v->w.count, THREADS), THREADS,
                            k->stream, v->w, (T *)out[0],
                            k->desc.nin ? (const int64_t *)in[0] : NULL, k->attrs.random.key,
                            v->begin, k->attrs.random.dist, k->attrs.random.a, k->attrs.random.b));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_random(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_cuda_is_float(d->out[0].dtype) || (d->nin && d->in[0].dtype != TSR_I64))
        return tsri_cuda_decline(d);
    return make(mem, d, random_run, 0, out_kernel);
}

/* --- fill ------------------------------------------------------------------------------------- */
uint64_t tsri_cuda_element(tsr_dtype dtype, double value)
{
    union {
        uint64_t word;
        double f64;
        float f32;
        int64_t i64;
        int32_t i32;
        uint8_t u8;
        unsigned char bytes[8];
    } e = {0};
    const __half f16 = __double2half(value);
    const __nv_bfloat16 bf16 = __double2bfloat16(value);
    switch (dtype) {
    case TSR_F32:
        e.f32 = (float)value;
        break;
    case TSR_F64:
        e.f64 = value;
        break;
    case TSR_F16:
        memcpy(e.bytes, &f16, sizeof f16);
        break;
    case TSR_BF16:
        memcpy(e.bytes, &bf16, sizeof bf16);
        break;
    case TSR_I64:
        e.i64 = tsri_to_whole<int64_t>(value);
        break;
    case TSR_I32:
        e.i32 = tsri_to_whole<int32_t>(value);
        break;
    case TSR_BOOL:
        e.u8 = value != 0;
        break;
    default:
        e.u8 = tsri_to_whole<uint8_t>(value);
    }
    return e.word;
}

/* Dense: the order does not matter. */
static tsr_status fill_run(const tsri_cuda_kernel *k, void *const *, void *const *out, void *)
{
    const tsri_arg *y = &k->desc.out[0];
    const uint64_t value = tsri_cuda_element(y->dtype, k->attrs.fill.value);
    TSRI_TRY(tsri_cuda_fill_with(out[0], tsr_dtype_size(y->dtype), &value, tsri_cuda_count(y),
                                 k->stream));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_fill(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_cuda_create(mem, d, fill_run, "plain", out_kernel);
}

/* --- arange ----------------------------------------------------------------------------------- */
static __global__ void arange_kernel(int64_t n, int dtype, void *y, int64_t stride, int64_t first,
                                     double start, double step)
{
    for (int64_t i = tsri_first(); i < n; i += tsri_step())
        tsri_store(dtype, y, i * stride, __dadd_rn(start, __dmul_rn((double)(first + i), step)));
}

static tsr_status arange_run(const tsri_cuda_kernel *k, void *const *, void *const *out, void *)
{
    const tsri_arg *y = &k->desc.out[0];
    if (!y->shape[0])
        return TSR_OK;
    TSRI_LAUNCH(arange_kernel, tsri_blocks(y->shape[0], THREADS), THREADS, k->stream, y->shape[0],
                (int)y->dtype, out[0], y->stride[0], y->offset[0], k->attrs.arange.start,
                k->attrs.arange.step);
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_arange(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_cuda_create(mem, d, arange_run, "plain", out_kernel);
}

/* --- constant --------------------------------------------------------------------------------- */
/* Keeps its shard on the device, laid out as the result: a plan may outlive the graph that has the
 * data. */
typedef struct constant {
    tsri_cuda_kernel k;
    size_t bytes;
    void *part;
} constant;

static tsr_status constant_run(const tsri_cuda_kernel *k, void *const *, void *const *out, void *)
{
    const constant *v = (const constant *)k;
    if (v->bytes)
        TSRI_CUDA(cudaMemcpyAsync(out[0], v->part, v->bytes, cudaMemcpyDeviceToDevice, k->stream));
    return tsri_cuda_launched(k);
}

static void constant_finish(tsri_cuda_kernel *k)
{
    constant *v = (constant *)k;
    if (v->part)
        k->device->base.ops->buffer_free(&k->device->base, v->part, v->bytes);
}

/* Copies the shard at `whole` in the order of y's strides. */
static void take(const tsri_arg *y, const char *whole, size_t size, char *to)
{
    int64_t row[TSR_MAX_NDIM];
    const int64_t begin = tsri_cuda_global_index(y, row), count = tsri_cuda_count(y);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, from = begin, at = 0;
        for (int a = y->ndim - 1; a >= 0; a--) {
            const int64_t c = rest % y->shape[a];
            rest /= y->shape[a];
            from += c * row[a];
            at += c * y->stride[a];
        }
        memcpy(to + at * (int64_t)size, whole + from * (int64_t)size, size);
    }
}

static tsr_status upload(tsri_mem *mem, constant *v, const void *whole)
{
    const tsri_arg *y = &v->k.desc.out[0];
    tsri_device *device = &v->k.device->base;
    TSRI_TRY(device->ops->buffer_alloc(device, v->bytes, &v->part));
    char *host = (char *)tsri_mem_alloc(mem, v->bytes);
    TSRI_NEED(host);
    take(y, (const char *)whole, tsr_dtype_size(y->dtype), host);
    /* As copy_in takes what it is given before it returns. */
    tsr_status status = device->ops->copy_in(device, v->part, host, v->bytes, NULL);
    tsri_mem_free(host);
    return status;
}

tsr_status tsri_plain_constant(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!d->stream)
        return tsri_cuda_decline(d);
    constant *v = (constant *)tsri_cuda_make(mem, d, constant_run, "plain", sizeof *v);
    TSRI_NEED(v);
    v->k.finish = constant_finish;
    v->bytes = (size_t)tsri_cuda_count(&d->out[0]) * tsr_dtype_size(d->out[0].dtype);
    tsr_status status = v->bytes ? upload(mem, v, d->attrs->constant.data) : TSR_OK;
    v->k.attrs.constant.data = NULL;
    if (status != TSR_OK) {
        v->k.base.destroy(&v->k.base);
        return status;
    }
    *out_kernel = &v->k.base;
    return TSR_OK;
}
