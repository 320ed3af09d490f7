/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing an axis, which is not split, and its gradient: a thread an element of the result. */
#include "kernels/cuda/device_code.cuh"

#define RESIZE_FN static __host__ __device__ inline
#include "kernels/resize.h"

enum { THREADS = 256 };

typedef struct resize {
    tsri_cuda_kernel k;
    tsri_cuda_walk w;      /* the result; its place on the axis; the operand without the axis */
    int64_t in, out, from; /* sizes before and behind; the operand's step */
    int how;
} resize;

template <typename T>
static __global__ void forward(tsri_cuda_walk w, T *y, const T *x, int64_t in, int64_t out,
                               int64_t from, int how)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(w, i, at);
        const tsri_resize_source s = tsri_resize_source_of(at[1], in, out, how);
        const double low = tsri_to<double>(x[at[2] + s.low * from]);
        const double high = tsri_to<double>(x[at[2] + s.high * from]);
        y[at[0]] = tsri_to<T>(s.high == s.low ? low : low + (high - low) * s.part);
    }
}

template <typename T>
static __global__ void backward(tsri_cuda_walk w, T *dx, const T *dy, int64_t in, int64_t out,
                                int64_t from, int how)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(w, i, at);
        double sum = 0;
        for (int64_t k = tsri_resize_first(at[1], in, out, how); k < out; k++) {
            const tsri_resize_source s = tsri_resize_source_of(k, in, out, how);
            if (s.low > at[1])
                break;
            sum += tsri_resize_weight(s, at[1]) * tsri_to<double>(dy[at[2] + k * from]);
        }
        dx[at[0]] = tsri_to<T>(sum);
    }
}

static tsr_status resize_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const resize *v = (const resize *)k;
    const unsigned blocks = tsri_blocks(v->w.count, THREADS);
    if (v->w.count && k->desc.op == TSRI_OP_RESIZE_DX) {
        TSRI_FLOATS(k->desc.out[0].dtype,
                    TSRI_LAUNCH((backward<T>), blocks, THREADS, k->stream, v->w, (T *)out[0],
                                (const T *)in[0], v->in, v->out, v->from, v->how));
    } else if (v->w.count) {
        TSRI_FLOATS(k->desc.out[0].dtype,
                    TSRI_LAUNCH((forward<T>), blocks, THREADS, k->stream, v->w, (T *)out[0],
                                (const T *)in[0], v->in, v->out, v->from, v->how));
    }
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_resize(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool dx = d->op == TSRI_OP_RESIZE_DX;
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->resize.axis;
    if (x->dtype != y->dtype)
        return tsri_cuda_decline(d);
    resize *v = (resize *)tsri_cuda_make(mem, d, resize_run, "plain", sizeof *v);
    TSRI_NEED(v);
    int64_t rest[TSR_MAX_NDIM], place[TSR_MAX_NDIM];
    for (int i = 0; i < y->ndim; i++) {
        rest[i] = i == axis ? 0 : x->stride[i];
        place[i] = i == axis;
    }
    tsri_cuda_walk_init(&v->w, y->ndim, y->shape);
    tsri_cuda_walk_push(&v->w, y->stride);
    tsri_cuda_walk_push(&v->w, place);
    tsri_cuda_walk_push(&v->w, rest);
    tsri_cuda_walk_finish(&v->w);
    v->in = (dx ? y : x)->shape[axis];
    v->out = (dx ? x : y)->shape[axis];
    v->from = x->stride[axis];
    v->how = d->attrs->resize.how;
    *out_kernel = &v->k.base;
    return TSR_OK;
}

tsr_status tsri_plain_resize_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_plain_resize(mem, d, out_kernel);
}
