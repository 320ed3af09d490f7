/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a step in time: rows taken from the whole tensor or written into it, and totals. The
 * number of the part is in the device's memory, and is read by the kernels. */
#include "kernels/cuda/box.h"
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/part.h"

enum { THREADS = 256, WIDE = 16 };

/* --- rows ------------------------------------------------------------------------------------- */
typedef struct rows {
    tsri_cuda_kernel k;
    tsri_part_box box;
    tsri_cuda_walk w; /* of the result and of the operand */
} rows;

/* to, from: elements between two parts at the same position. */
template <typename T>
static __global__ void rows_kernel(tsri_cuda_walk w, T *y, const T *x, const int64_t *part,
                                   int64_t to, int64_t from)
{
    const int64_t m = *part;
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        y[at[0] + m * to] = x[at[1] + m * from];
    }
}

/* Moves a box, by elements as wide as strides, addresses and the shift allow. */
static void launch_rows(const rows *v, void *y, const void *x, const int64_t *part)
{
    const bool takes = v->k.desc.op == TSRI_OP_PART;
    size_t size = tsr_dtype_size(v->k.desc.out[0].dtype);
    tsri_cuda_walk w = v->w;
    const int by = tsri_cuda_walk_widen(
        &w, 2, size, (uintptr_t)y | (uintptr_t)x | (uintptr_t)v->box.shift * size);
    const int64_t shift = v->box.shift / by, to = takes ? 0 : shift, from = takes ? shift : 0;
    const unsigned blocks = tsri_blocks(w.count, THREADS);
    size *= (size_t)by;
    if (size == WIDE) {
        TSRI_LAUNCH((rows_kernel<uint4>), blocks, THREADS, v->k.stream, w, (uint4 *)y,
                    (const uint4 *)x, part, to, from);
        return;
    }
    TSRI_SIZES(size, TSRI_LAUNCH((rows_kernel<T>), blocks, THREADS, v->k.stream, w, (T *)y,
                                 (const T *)x, part, to, from));
}

static tsr_status rows_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const rows *v = (const rows *)k;
    const bool takes = k->desc.op == TSRI_OP_PART;
    const int64_t size = (int64_t)tsr_dtype_size(k->desc.out[0].dtype);
    for (int64_t i = 0; i < v->box.boxes && v->w.count; i++) {
        const int64_t part = i * v->box.part_step * size, whole = i * v->box.whole_step * size;
        launch_rows(v, (char *)out[0] + (takes ? part : whole),
                    (const char *)in[0] + (takes ? whole : part), (const int64_t *)in[1]);
    }
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_part(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool takes = d->op == TSRI_OP_PART;
    if (d->in[0].dtype != d->out[0].dtype || d->in[1].dtype != TSR_I64)
        return tsri_cuda_decline(d);
    rows *v = (rows *)tsri_cuda_make(mem, d, rows_run, "plain", sizeof *v);
    TSRI_NEED(v);
    v->box = tsri_part_box_of(d);
    tsri_cuda_walk_init(&v->w, v->box.ndim, v->box.shape);
    tsri_cuda_walk_push(&v->w, takes ? v->box.part : v->box.whole);
    tsri_cuda_walk_push(&v->w, takes ? v->box.whole : v->box.part);
    tsri_cuda_walk_finish(&v->w);
    *out_kernel = &v->k.base;
    return TSR_OK;
}

tsr_status tsri_plain_whole(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_plain_part(mem, d, out_kernel);
}

/* --- totals ----------------------------------------------------------------------------------- */
typedef struct total {
    tsri_cuda_kernel k;
    tsri_cuda_walk w;
} total;

template <typename A> static __device__ __forceinline__ A combine(int op, A a, A v)
{
    return op == TSR_REDUCE_SUM   ? tsri_sum_fn::of(a, v)
           : op == TSR_REDUCE_MAX ? tsri_max_fn::of(a, v)
                                  : tsri_min_fn::of(a, v);
}

/* Whole numbers are totalled in i64, and wrap where they are stored. */
template <typename Ty, typename T>
static __global__ void total_kernel(tsri_cuda_walk w, Ty *y, const T *x, const int64_t *part,
                                    int op)
{
    typedef typename std::conditional<std::is_integral<T>::value, int64_t, Ty>::type A;
    const bool first = *part == 0;
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        const A v = tsri_to<A>(x[at[1]]);
        y[at[0]] = (Ty)(first ? v : combine<A>(op, (A)y[at[0]], v));
    }
}

static tsr_status total_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const total *v = (const total *)k;
    if (!v->w.count)
        return TSR_OK;
    TSRI_NUMBERS(k->desc.in[0].dtype,
                 TSRI_LAUNCH((total_kernel<tsri_acc<T>, T>), tsri_blocks(v->w.count, THREADS),
                             THREADS, k->stream, v->w, (tsri_acc<T> *)out[0], (const T *)in[0],
                             (const int64_t *)in[1], (int)k->attrs.total.op));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_total(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const bool half = x->dtype == TSR_F16 || x->dtype == TSR_BF16;
    if (y->dtype != (half ? TSR_F32 : x->dtype) || d->in[1].dtype != TSR_I64 ||
        (y->dtype == TSR_BOOL && d->attrs->total.op == TSR_REDUCE_SUM))
        return tsri_cuda_decline(d);
    total *v = (total *)tsri_cuda_make(mem, d, total_run, "plain", sizeof *v);
    TSRI_NEED(v);
    tsri_cuda_walk_init(&v->w, y->ndim, y->shape);
    tsri_cuda_walk_push(&v->w, y->stride);
    tsri_cuda_walk_push(&v->w, x->stride);
    tsri_cuda_walk_finish(&v->w);
    *out_kernel = &v->k.base;
    return TSR_OK;
}
