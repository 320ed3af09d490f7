/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexing: gather, gather_dx, one_hot. x has axes before the indexed one ("outer") and behind it
 * ("inner"); y the same with the ids' axes between. A shard of x that begins at `first` answers for
 * the ids first <= id < first + len.
 */
#include "kernels/cuda/code/index.cuh"

enum { THREADS = 256 };

/* --- forward ---------------------------------------------------------------------------------- */
typedef struct gather {
    tsri_cuda_kernel k;
    tsri_cuda_walk w;   /* y; x at id 0; the ids' row-major index; ids */
    tsri_cuda_walk ids; /* their row-major index; ids */
    int64_t axis_stride;
} gather;

typedef tsri_pack<uint32_t, 4> wide;

static tsr_status gather_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const gather *v = (const gather *)k;
    const tsri_ids of = tsri_ids_of(k);
    size_t size = tsr_dtype_size(k->desc.out[0].dtype);
    if (!v->w.count) {
        tsri_check_ids(k, &v->ids, in[1], of);
        return tsri_cuda_launched(k);
    }
    tsri_cuda_walk w = v->w;
    /* Rows of x begin at multiples of what its axis is a multiple of. */
    const uintptr_t address =
        (uintptr_t)in[0] | (uintptr_t)out[0] | (uintptr_t)(v->axis_stride * (int64_t)size);
    const int by = tsri_cuda_walk_widen(&w, 2, size, address);
    const unsigned blocks = tsri_blocks(w.count, THREADS);
    size *= (size_t)by;
    if (size == sizeof(wide)) {
        TSRI_LAUNCH((tsri_gather_kernel<wide>), blocks, THREADS, k->stream, w, (wide *)out[0],
                    (const wide *)in[0], (const int64_t *)in[1], v->axis_stride / by, of,
                    tsri_no_addend<wide>(k->desc.out[0].dtype));
        return tsri_cuda_launched(k);
    }
    TSRI_SIZES(size, TSRI_LAUNCH((tsri_gather_kernel<T>), blocks, THREADS, k->stream, w,
                                 (T *)out[0], (const T *)in[0], (const int64_t *)in[1],
                                 v->axis_stride / by, of, tsri_no_addend<T>(k->desc.out[0].dtype)));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_index_select(tsri_mem *mem, const tsri_kernel_desc *d,
                                   tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *ids = &d->in[1], *y = &d->out[0];
    if (ids->dtype != TSR_I64 || x->dtype != y->dtype)
        return tsri_cuda_decline(d);
    gather *v = (gather *)tsri_cuda_make(mem, d, gather_run, "plain", sizeof *v);
    TSRI_NEED(v);
    const int axis = d->attrs->gather.axis;
    int64_t from[TSR_MAX_NDIM] = {0}, index[TSR_MAX_NDIM] = {0}, id[TSR_MAX_NDIM] = {0}, step = 1;
    for (int i = 0; i < y->ndim; i++)
        if (i < axis || i >= axis + ids->ndim)
            from[i] = x->stride[i < axis ? i : i - ids->ndim + 1];
    for (int i = ids->ndim - 1; i >= 0; i--) {
        index[axis + i] = step;
        id[axis + i] = ids->stride[i];
        step *= ids->shape[i];
    }
    tsri_cuda_walk_init(&v->w, y->ndim, y->shape);
    tsri_cuda_walk_push(&v->w, y->stride);
    tsri_cuda_walk_push(&v->w, from);
    tsri_cuda_walk_push(&v->w, index);
    tsri_cuda_walk_push(&v->w, id);
    tsri_cuda_walk_finish(&v->w);
    tsri_walk_ids(&v->ids, ids, ids->stride);
    v->axis_stride = x->stride[axis];
    *out_kernel = &v->k.base;
    return TSR_OK;
}

/* --- gradient --------------------------------------------------------------------------------- */
typedef struct gather_dx {
    tsri_cuda_kernel k;
    tsri_cuda_walk w;   /* dx; dy at the first id; the row of dx */
    tsri_cuda_walk ids; /* their row-major index; ids; dy */
} gather_dx;

/* A thread per element of dx goes through all ids: dear, but in their order. */
template <typename T>
static __global__ void gather_dx_kernel(tsri_cuda_walk w, tsri_cuda_walk wids, T *dx,
                                        const int64_t *ids, const T *dy, tsri_ids of)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3], id[3];
        double sum = 0;
        tsri_walk_at<3>(w, i, at);
        for (int64_t j = 0; j < wids.count; j++) {
            tsri_walk_at<3>(wids, j, id);
            if (ids[id[1]] - of.first == at[2] && ids[id[1]] != of.pad)
                sum += tsri_to<double>(dy[at[1] + id[2]]);
        }
        dx[at[0]] = tsri_to<T>(sum);
    }
}

static tsr_status gather_dx_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                void *)
{
    const gather_dx *v = (const gather_dx *)k;
    const tsri_ids of = tsri_ids_of(k);
    tsri_check_ids(k, &v->ids, in[0], of);
    if (v->w.count)
        TSRI_FLOATS(k->desc.out[0].dtype,
                    TSRI_LAUNCH((gather_dx_kernel<T>), tsri_blocks(v->w.count, THREADS), THREADS,
                                k->stream, v->w, v->ids, (T *)out[0], (const int64_t *)in[0],
                                (const T *)in[1], of));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_index_select_dx(tsri_mem *mem, const tsri_kernel_desc *d,
                                      tsri_kernel **out_kernel)
{
    const tsri_arg *ids = &d->in[0], *dy = &d->in[1], *dx = &d->out[0];
    if (ids->dtype != TSR_I64 || dx->dtype != dy->dtype || !tsri_cuda_is_float(dx->dtype))
        return tsri_cuda_decline(d);
    gather_dx *v = (gather_dx *)tsri_cuda_make(mem, d, gather_dx_run, "plain", sizeof *v);
    TSRI_NEED(v);
    const int axis = d->attrs->gather.axis;
    int64_t from[TSR_MAX_NDIM] = {0}, row[TSR_MAX_NDIM] = {0};
    for (int i = 0; i < dx->ndim; i++)
        if (i != axis)
            from[i] = dy->stride[i < axis ? i : i + ids->ndim - 1];
    row[axis] = 1;
    tsri_cuda_walk_init(&v->w, dx->ndim, dx->shape);
    tsri_cuda_walk_push(&v->w, dx->stride);
    tsri_cuda_walk_push(&v->w, from);
    tsri_cuda_walk_push(&v->w, row);
    tsri_cuda_walk_finish(&v->w);
    tsri_walk_ids(&v->ids, ids, dy->stride + axis);
    *out_kernel = &v->k.base;
    return TSR_OK;
}

/* --- one_hot ---------------------------------------------------------------------------------- */
typedef struct one_hot {
    tsri_cuda_kernel k;
    tsri_cuda_walk w; /* y; the ids' row-major index; ids; the class */
    tsri_cuda_walk ids;
    uint64_t one;
} one_hot;

template <typename T>
static __global__ void one_hot_kernel(tsri_cuda_walk w, T *y, const int64_t *ids, tsri_ids of,
                                      T one)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[4];
        tsri_walk_at<4>(w, i, at);
        y[at[0]] = tsri_local_id(of, at[1], ids[at[2]]) == at[3] ? one : (T)0;
    }
}

static tsr_status one_hot_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const one_hot *v = (const one_hot *)k;
    const tsri_ids of = tsri_ids_of(k);
    if (!v->w.count)
        tsri_check_ids(k, &v->ids, in[0], of);
    else
        TSRI_SIZES(tsr_dtype_size(k->desc.out[0].dtype),
                   TSRI_LAUNCH((one_hot_kernel<T>), tsri_blocks(v->w.count, THREADS), THREADS,
                               k->stream, v->w, (T *)out[0], (const int64_t *)in[0], of,
                               (T)v->one));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_one_hot(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *ids = &d->in[0], *y = &d->out[0];
    if (ids->dtype != TSR_I64)
        return tsri_cuda_decline(d);
    one_hot *v = (one_hot *)tsri_cuda_make(mem, d, one_hot_run, "plain", sizeof *v);
    TSRI_NEED(v);
    int64_t index[TSR_MAX_NDIM] = {0}, id[TSR_MAX_NDIM] = {0}, place[TSR_MAX_NDIM] = {0}, step = 1;
    for (int i = ids->ndim - 1; i >= 0; i--) {
        index[i] = step;
        id[i] = ids->stride[i];
        step *= ids->shape[i];
    }
    place[y->ndim - 1] = 1;
    tsri_cuda_walk_init(&v->w, y->ndim, y->shape);
    tsri_cuda_walk_push(&v->w, y->stride);
    tsri_cuda_walk_push(&v->w, index);
    tsri_cuda_walk_push(&v->w, id);
    tsri_cuda_walk_push(&v->w, place);
    tsri_cuda_walk_finish(&v->w);
    tsri_walk_ids(&v->ids, ids, ids->stride);
    v->one = tsri_cuda_element(y->dtype, 1);
    *out_kernel = &v->k.base;
    return TSR_OK;
}
