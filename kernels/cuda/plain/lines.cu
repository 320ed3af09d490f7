/* SPDX-License-Identifier: Apache-2.0 */
/* gather: elements of lines along an axis, by ids of their own; and the sums into their places. */
#include "kernels/cuda/code/index.cuh"

enum { THREADS = 256 };

typedef struct lines {
    tsri_cuda_kernel k;
    tsri_cuda_walk w;    /* forward: y; x without the axis; the ids' row-major index; ids.
                            dx: dx; the place on the axis; the line's first of ids, dy, the index */
    tsri_cuda_walk ids;  /* their row-major index; ids */
    int64_t stride;      /* forward: of x along the axis */
    int64_t n, steps[3]; /* dx: ids of a line; their steps along it in ids, dy and the index */
} lines;

static tsr_status gather_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const lines *v = (const lines *)k;
    const tsri_ids of = tsri_ids_of(k);
    if (v->w.count)
        TSRI_SIZES(tsr_dtype_size(k->desc.out[0].dtype),
                   TSRI_LAUNCH((tsri_gather_kernel<T>), tsri_blocks(v->w.count, THREADS), THREADS,
                               k->stream, v->w, (T *)out[0], (const T *)in[0],
                               (const int64_t *)in[1], v->stride, of,
                               tsri_no_addend<T>(k->desc.out[0].dtype)));
    return tsri_cuda_launched(k);
}

/* A thread per element of dx goes through its line's ids, in their order. */
template <typename T>
static __global__ void gather_dx_kernel(tsri_cuda_walk w, T *dx, const int64_t *ids, const T *dy,
                                        int64_t n, int64_t id_step, int64_t dy_step, int64_t first)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[4];
        double sum = 0;
        tsri_walk_at<4>(w, i, at);
        for (int64_t j = 0; j < n; j++)
            if (ids[at[2] + j * id_step] - first == at[1])
                sum += tsri_to<double>(dy[at[3] + j * dy_step]);
        dx[at[0]] = tsri_to<T>(sum);
    }
}

static tsr_status gather_dx_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                void *)
{
    const lines *v = (const lines *)k;
    const tsri_ids of = tsri_ids_of(k);
    tsri_check_ids(&v->k, &v->ids, in[0], of);
    if (v->w.count)
        TSRI_FLOATS(k->desc.out[0].dtype,
                    TSRI_LAUNCH((gather_dx_kernel<T>), tsri_blocks(v->w.count, THREADS), THREADS,
                                k->stream, v->w, (T *)out[0], (const int64_t *)in[0],
                                (const T *)in[1], v->n, v->steps[0], v->steps[1], of.first));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_gather(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *ids = &d->in[1], *y = &d->out[0];
    const int axis = d->attrs->gather.axis;
    if (ids->dtype != TSR_I64 || x->dtype != y->dtype)
        return tsri_cuda_decline(d);
    lines *v = (lines *)tsri_cuda_make(mem, d, gather_run, "plain", sizeof *v);
    TSRI_NEED(v);
    int64_t rest[TSR_MAX_NDIM], index[TSR_MAX_NDIM], step = 1;
    for (int i = y->ndim - 1; i >= 0; i--) {
        rest[i] = i == axis ? 0 : x->stride[i];
        index[i] = step;
        step *= y->shape[i];
    }
    tsri_cuda_walk_init(&v->w, y->ndim, y->shape);
    tsri_cuda_walk_push(&v->w, y->stride);
    tsri_cuda_walk_push(&v->w, rest);
    tsri_cuda_walk_push(&v->w, index);
    tsri_cuda_walk_push(&v->w, ids->stride);
    tsri_cuda_walk_finish(&v->w);
    v->stride = x->stride[axis];
    *out_kernel = &v->k.base;
    return TSR_OK;
}

tsr_status tsri_plain_gather_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *ids = &d->in[0], *dy = &d->in[1], *dx = &d->out[0];
    const int axis = d->attrs->gather.axis;
    if (ids->dtype != TSR_I64 || dx->dtype != dy->dtype || !tsri_cuda_is_float(dx->dtype))
        return tsri_cuda_decline(d);
    lines *v = (lines *)tsri_cuda_make(mem, d, gather_dx_run, "plain", sizeof *v);
    TSRI_NEED(v);
    int64_t place[TSR_MAX_NDIM] = {0}, id[TSR_MAX_NDIM], from[TSR_MAX_NDIM];
    for (int i = 0; i < dx->ndim; i++) {
        id[i] = i == axis ? 0 : ids->stride[i];
        from[i] = i == axis ? 0 : dy->stride[i];
    }
    place[axis] = 1;
    tsri_cuda_walk_init(&v->w, dx->ndim, dx->shape);
    tsri_cuda_walk_push(&v->w, dx->stride);
    tsri_cuda_walk_push(&v->w, place);
    tsri_cuda_walk_push(&v->w, id);
    tsri_cuda_walk_push(&v->w, from);
    tsri_cuda_walk_finish(&v->w);
    tsri_walk_ids(&v->ids, ids, ids->stride);
    v->n = ids->shape[axis];
    v->steps[0] = ids->stride[axis];
    v->steps[1] = dy->stride[axis];
    *out_kernel = &v->k.base;
    return TSR_OK;
}
