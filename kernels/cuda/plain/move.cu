/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that only move elements, as boxes (box.h): reshape, permute, copy, concat, split, slice, pad,
 * assign. */
#include "kernels/cuda/box.h"
#include "kernels/cuda/device_code.cuh"

enum { THREADS = 256 };

/* One box per operand or result, where these are several; else one, or two of one. */
typedef struct boxes {
    tsri_cuda_kernel k;
    int n;
    uint64_t value; /* pad: of the elements around */
    tsri_cuda_box box[TSRI_KERNEL_MAX_ARGS];
} boxes;

static tsr_status boxes_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const boxes *v = (const boxes *)k;
    const tsri_kernel_desc *d = &k->desc;
    for (int i = 0; i < v->n; i++)
        TSRI_TRY(tsri_cuda_box_run(&v->box[i], out[d->nout > 1 ? i : 0], in[d->nin > 1 ? i : 0],
                                   k->stream));
    return tsri_cuda_launched(k);
}

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run, int n,
                       boxes **out)
{
    bool alike = true;
    for (int i = 0; i < d->nin; i++)
        alike &= d->in[i].dtype == d->out[0].dtype;
    for (int i = 0; i < d->nout; i++)
        alike &= d->out[i].dtype == d->out[0].dtype;
    if (!alike)
        return tsri_cuda_decline(d);
    *out = (boxes *)tsri_cuda_make(mem, d, run, "plain", sizeof **out);
    TSRI_NEED(*out);
    (*out)->n = n;
    return TSR_OK;
}

static tsr_status make_copy(tsri_mem *mem, const tsri_kernel_desc *d, const int64_t *src_stride,
                            tsri_kernel **out_kernel)
{
    boxes *v = NULL;
    TSRI_TRY(make(mem, d, boxes_run, 1, &v));
    tsri_cuda_box_init(&v->box[0], d->out[0].dtype, d->out[0].ndim, d->out[0].shape,
                       d->out[0].stride, src_stride);
    *out_kernel = &v->k.base;
    return TSR_OK;
}

tsr_status tsri_plain_copy(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make_copy(mem, d, d->in[0].stride, out_kernel);
}

tsr_status tsri_plain_assign(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make_copy(mem, d, d->in[0].stride, out_kernel);
}

tsr_status tsri_plain_permute(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    int64_t stride[TSR_MAX_NDIM];
    for (int i = 0; i < d->out[0].ndim; i++)
        stride[i] = d->in[0].stride[d->attrs->permute.perm[i]];
    return make_copy(mem, d, stride, out_kernel);
}

/* --- cutting ---------------------------------------------------------------------------------- */
tsr_status tsri_plain_concat(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const int axis = d->attrs->cut.axis;
    boxes *v = NULL;
    TSRI_TRY(make(mem, d, boxes_run, d->nin, &v));
    int64_t at = 0;
    for (int i = 0; i < d->nin; i++) {
        const tsri_arg *x = &d->in[i];
        tsri_cuda_box_init(&v->box[i], x->dtype, x->ndim, x->shape, d->out[0].stride, x->stride);
        v->box[i].to = at * d->out[0].stride[axis];
        at += x->shape[axis];
    }
    *out_kernel = &v->k.base;
    return TSR_OK;
}

tsr_status tsri_plain_split(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const int axis = d->attrs->cut.axis;
    boxes *v = NULL;
    TSRI_TRY(make(mem, d, boxes_run, d->nout, &v));
    int64_t at = 0;
    for (int i = 0; i < d->nout; i++) {
        const tsri_arg *y = &d->out[i];
        tsri_cuda_box_init(&v->box[i], y->dtype, y->ndim, y->shape, y->stride, d->in[0].stride);
        v->box[i].from = at * d->in[0].stride[axis];
        at += y->shape[axis];
    }
    *out_kernel = &v->k.base;
    return TSR_OK;
}

/* The view of `large` that a slice is, or that a padded operand lies in; returns its begin. */
static int64_t view(const tsri_attrs *a, const tsri_arg *large, int64_t stride[TSR_MAX_NDIM])
{
    int64_t begin = 0;
    for (int i = 0; i < large->ndim; i++) {
        stride[i] = large->stride[i] * a->slice.step[i];
        begin += large->stride[i] * a->slice.start[i];
    }
    return begin;
}

tsr_status tsri_plain_slice(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const int wraps = tsri_slice_wraps(d->attrs, &d->in[0], &d->out[0]);
    int64_t stride[TSR_MAX_NDIM];
    const int64_t begin = view(d->attrs, &d->in[0], stride);
    boxes *v = NULL;
    TSRI_TRY(make(mem, d, boxes_run, wraps < 0 ? 1 : 2, &v));
    tsri_arg part = d->out[0];
    if (wraps >= 0) {
        const int64_t start = d->attrs->slice.start[wraps], rest = part.shape[wraps] - start;
        part.shape[wraps] = start;
        tsri_cuda_box_init(&v->box[1], part.dtype, part.ndim, part.shape, part.stride, stride);
        v->box[1].from = begin - start * stride[wraps];
        v->box[1].to = rest * part.stride[wraps];
        part.shape[wraps] = rest;
    }
    tsri_cuda_box_init(&v->box[0], part.dtype, part.ndim, part.shape, part.stride, stride);
    v->box[0].from = begin;
    *out_kernel = &v->k.base;
    return TSR_OK;
}

/* The whole result first, as the operand may lie in it in steps. */
static tsr_status pad_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const boxes *v = (const boxes *)k;
    TSRI_TRY(tsri_cuda_fill_with(out[0], v->box[0].size, &v->value,
                                 tsri_cuda_count(&k->desc.out[0]), k->stream));
    TSRI_TRY(tsri_cuda_box_run(&v->box[0], out[0], in[0], k->stream));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_pad(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    boxes *v = NULL;
    TSRI_TRY(make(mem, d, pad_run, 1, &v));
    int64_t stride[TSR_MAX_NDIM];
    const int64_t begin = view(d->attrs, &d->out[0], stride);
    tsri_cuda_box_init(&v->box[0], d->in[0].dtype, d->in[0].ndim, d->in[0].shape, stride,
                       d->in[0].stride);
    v->box[0].to = begin;
    v->value = tsri_cuda_element(d->out[0].dtype, d->attrs->slice.value);
    *out_kernel = &v->k.base;
    return TSR_OK;
}

/* --- reshape ---------------------------------------------------------------------------------- */
/* A shape in which both shapes are views of axes that were cut or joined, with the strides of both;
 * where there is none, element i of each is looked up. */
typedef struct common {
    int ndim;
    int64_t shape[TSR_MAX_NDIM], y[TSR_MAX_NDIM], x[TSR_MAX_NDIM];
} common;

/* From the innermost axis on, the smaller axis is cut off the larger one. */
static bool find_common(const tsri_arg *y, const tsri_arg *x, common *c)
{
    int64_t size[2 * TSR_MAX_NDIM], ys[2 * TSR_MAX_NDIM], xs[2 * TSR_MAX_NDIM];
    int n = 0, i = y->ndim - 1, j = x->ndim - 1;
    int64_t a = i >= 0 ? y->shape[i] : 1, b = j >= 0 ? x->shape[j] : 1;
    int64_t sa = i >= 0 ? y->stride[i] : 1, sb = j >= 0 ? x->stride[j] : 1;
    while (i >= 0 || j >= 0) {
        if (a == 1 && i >= 0) {
            a = --i >= 0 ? y->shape[i] : 1;
            sa = i >= 0 ? y->stride[i] : 1;
            continue;
        }
        if (b == 1 && j >= 0) {
            b = --j >= 0 ? x->shape[j] : 1;
            sb = j >= 0 ? x->stride[j] : 1;
            continue;
        }
        const int64_t part = a < b ? a : b;
        if (a % part || b % part || n == TSR_MAX_NDIM)
            return false;
        size[n] = part;
        ys[n] = sa;
        xs[n++] = sb;
        a /= part;
        b /= part;
        sa *= part;
        sb *= part;
    }
    c->ndim = n;
    for (int o = 0; o < n; o++) {
        c->shape[o] = size[n - 1 - o];
        c->y[o] = ys[n - 1 - o];
        c->x[o] = xs[n - 1 - o];
    }
    return true;
}

typedef struct lookup {
    tsri_cuda_kernel k;
    tsri_cuda_walk y, x; /* of the element's row-major index, and of the buffer */
} lookup;

template <typename T>
static __global__ void reshape_kernel(tsri_cuda_walk wy, tsri_cuda_walk wx, T *y, const T *x)
{
    for (int64_t i = tsri_first(); i < wy.count; i += tsri_step()) {
        int64_t to[2], from[2];
        tsri_walk_at<2>(wy, i, to);
        tsri_walk_at<2>(wx, i, from);
        y[to[1]] = x[from[1]];
    }
}

static tsr_status reshape_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const lookup *v = (const lookup *)k;
    TSRI_SIZES(tsr_dtype_size(k->desc.out[0].dtype),
               TSRI_LAUNCH((reshape_kernel<T>), tsri_blocks(v->y.count, THREADS), THREADS,
                           k->stream, v->y, v->x, (T *)out[0], (const T *)in[0]));
    return tsri_cuda_launched(k);
}

static void walk_rows(tsri_cuda_walk *w, const tsri_arg *a)
{
    int64_t row[TSR_MAX_NDIM], step = 1;
    for (int i = a->ndim - 1; i >= 0; i--) {
        row[i] = step;
        step *= a->shape[i];
    }
    tsri_cuda_walk_init(w, a->ndim, a->shape);
    tsri_cuda_walk_push(w, row);
    tsri_cuda_walk_push(w, a->stride);
    tsri_cuda_walk_finish(w);
}

tsr_status tsri_plain_reshape(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int64_t count = tsri_cuda_count(x);
    if (x->dtype != y->dtype)
        return tsri_cuda_decline(d);
    if (count != tsri_cuda_count(y))
        return tsri_fail(TSR_ERR_SHAPE,
                         "reshape: a shard of %lld elements can't become one of %lld",
                         (long long)count, (long long)tsri_cuda_count(y));
    common c = {};
    if (count == 0 || find_common(y, x, &c)) {
        boxes *v = NULL;
        TSRI_TRY(make(mem, d, boxes_run, count ? 1 : 0, &v));
        tsri_cuda_box_init(&v->box[0], y->dtype, c.ndim, c.shape, c.y, c.x);
        *out_kernel = &v->k.base;
        return TSR_OK;
    }
    lookup *v = (lookup *)tsri_cuda_make(mem, d, reshape_run, "plain", sizeof *v);
    TSRI_NEED(v);
    walk_rows(&v->y, y);
    walk_rows(&v->x, x);
    *out_kernel = &v->k.base;
    return TSR_OK;
}
