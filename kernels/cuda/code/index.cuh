/* SPDX-License-Identifier: Apache-2.0 */
/* The ids of indexing kernels. */
#ifndef TESSERA_KERNELS_CUDA_INDEX_H
#define TESSERA_KERNELS_CUDA_INDEX_H

#include "kernels/cuda/box.h"
#include "kernels/cuda/device_code.cuh"

extern "C" {
#include "src/core/identity.h"
}

typedef struct tsri_ids {
    int64_t first, len, size; /* of the indexed axis: this shard's part, and all of it */
    int64_t pad;              /* gather_dx: the id that gets no gradient; -1: none */
    tsri_cuda_fault *fault;
    unsigned long long kernel;
} tsri_ids;

static inline tsri_ids tsri_ids_of(const tsri_cuda_kernel *k)
{
    const tsri_kernel_desc *d = &k->desc;
    const bool gather = d->op == TSRI_OP_INDEX_SELECT || d->op == TSRI_OP_GATHER;
    const bool one_hot = d->op == TSRI_OP_ONE_HOT;
    const tsri_arg *x = gather ? &d->in[0] : &d->out[0];
    const int axis = one_hot ? x->ndim - 1 : k->attrs.gather.axis;
    const bool has_pad = d->op == TSRI_OP_INDEX_SELECT_DX && k->attrs.gather.has_pad;
    tsri_ids ids;
    ids.first = x->offset[axis];
    ids.len = x->shape[axis];
    ids.size = x->gshape[axis];
    ids.pad = has_pad ? k->attrs.gather.pad : -1;
    ids.fault = k->device->fault_device;
    ids.kernel = (unsigned long long)(uintptr_t)k;
    return ids;
}

/* The place in this shard of an id, which is element `at` of the ids; negative where there is none.
 * One outside the global axis is noted as the run's error. */
static __device__ __forceinline__ int64_t tsri_local_id(const tsri_ids &ids, int64_t at, int64_t id)
{
    if (id < 0 || id >= ids.size) {
        tsri_fault(ids.fault, ids.kernel, at, id);
        return -1;
    }
    const int64_t local = id - ids.first;
    return local < ids.len ? local : -1;
}

/* A walk in row-major order of the ids: op 0 is the element's index, op 1 where the id is, op 2
 * has `stride`. */
static inline void tsri_walk_ids(tsri_cuda_walk *w, const tsri_arg *ids, const int64_t *stride)
{
    int64_t row[TSR_MAX_NDIM], step = 1;
    for (int i = ids->ndim - 1; i >= 0; i--) {
        row[i] = step;
        step *= ids->shape[i];
    }
    tsri_cuda_walk_init(w, ids->ndim, ids->shape);
    tsri_cuda_walk_push(w, row);
    tsri_cuda_walk_push(w, ids->stride);
    tsri_cuda_walk_push(w, stride);
    tsri_cuda_walk_finish(w);
}

/* --- checking and reading ids ----------------------------------------------------------------- */
enum { TSRI_ID_THREADS = 256 };

static __global__ void tsri_check_ids_kernel(tsri_cuda_walk w, const int64_t *ids, tsri_ids of)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        tsri_local_id(of, at[0], ids[at[1]]);
    }
}

/* Looks at every id of a walk (their row-major index; ids) once: where no element of the result
 * would meet them. */
static inline void tsri_check_ids(const tsri_cuda_kernel *k, const tsri_cuda_walk *w,
                                  const void *ids, tsri_ids of)
{
    if (w->count)
        TSRI_LAUNCH(tsri_check_ids_kernel, tsri_blocks(w->count, TSRI_ID_THREADS), TSRI_ID_THREADS,
                    k->stream, *w, (const int64_t *)ids, of);
}

/* Returns addends of nothing: an id of another shard gives them to the elements of its rank. */
template <typename T> static T tsri_no_addend(tsr_dtype dtype)
{
    T v;
    tsri_fill_identity(dtype, TSR_REDUCE_SUM, (int64_t)(sizeof v / tsr_dtype_size(dtype)), &v);
    return v;
}

/* Walks y, x at id 0, the ids' row-major index, ids; `stride` is x's along the indexed axis; `none`
 * is for ids of other shards. */
template <typename T>
static __global__ void tsri_gather_kernel(tsri_cuda_walk w, T *y, const T *x, const int64_t *ids,
                                          int64_t stride, tsri_ids of, T none)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[4];
        tsri_walk_at<4>(w, i, at);
        const int64_t id = tsri_local_id(of, at[2], ids[at[3]]);
        T v = none;
        if (id >= 0)
            v = x[at[1] + id * stride];
        y[at[0]] = v;
    }
}

#endif
