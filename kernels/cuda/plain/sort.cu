/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting lines along an axis, by Batcher's bitonic network (1968) over lines of 2^k items: a key
 * and a place, which decides between equals, so that the order is the stable one. Items that
 * fill a line up sort behind all others. Each layer of the network is one launch for all lines.
 */
#include "kernels/cuda/rows.cuh"

#include <string.h>

#define SORT_FN static __device__ __forceinline__
#include "kernels/sort_key.h"

enum { THREADS = 256 };

typedef struct item {
    uint64_t key;
    int64_t place;
} item;

typedef struct sort {
    tsri_cuda_kernel kernel;
    tsri_cuda_walk lines; /* of the result and of x */
    int64_t n, wide, count;
    int64_t step[2]; /* along the axis */
} sort;

template <typename T> static __device__ __forceinline__ uint64_t key_of(T v)
{
    return sort_key_f64(tsri_to<double>(v));
}
template <> __device__ __forceinline__ uint64_t key_of<int64_t>(int64_t v)
{
    return sort_key_whole(v);
}

template <typename T>
static __global__ void load_kernel(tsri_cuda_walk lines, int64_t n, int64_t wide, int64_t step,
                                   bool descending, const T *x, item *to)
{
    for (int64_t i = tsri_first(); i < lines.count * wide; i += tsri_step()) {
        int64_t at[2];
        const int64_t place = i % wide;
        item it = {UINT64_MAX, place};
        if (place < n) {
            tsri_walk_at<2>(lines, i / wide, at);
            it.key = key_of<T>(x[at[1] + place * step]);
            it.key = descending ? ~it.key : it.key;
        }
        to[i] = it;
    }
}

static __device__ __forceinline__ bool is_behind(const item &a, const item &b)
{
    return a.key != b.key ? a.key > b.key : a.place > b.place;
}

/* Compares items that are `apart`; runs of `run` are in order then, every second the other way
 * round. */
static __global__ void merge_kernel(item *x, int64_t pairs, int64_t wide, int64_t run,
                                    int64_t apart)
{
    for (int64_t i = tsri_first(); i < pairs; i += tsri_step()) {
        const int64_t first = i / apart * 2 * apart + i % apart, second = first + apart;
        const bool up = (first % wide & run) == 0 || run == wide;
        const item a = x[first], b = x[second];
        if (is_behind(a, b) == up) {
            x[first] = b;
            x[second] = a;
        }
    }
}

static __global__ void store_kernel(tsri_cuda_walk lines, int64_t count, int64_t wide, int64_t step,
                                    const item *x, int64_t *y)
{
    for (int64_t i = tsri_first(); i < lines.count * count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(lines, i / count, at);
        y[at[0] + i % count * step] = x[i / count * wide + i % count].place;
    }
}

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const sort *v = (const sort *)k;
    const int64_t items = v->lines.count * v->wide, pairs = items / 2;
    item *x = (item *)scratch;
    if (!out[0] || !items || !v->count)
        return TSR_OK;
    TSRI_NUMBERS(k->desc.in[0].dtype,
                 TSRI_LAUNCH((load_kernel<T>), tsri_blocks(items, THREADS), THREADS, k->stream,
                             v->lines, v->n, v->wide, v->step[1], k->attrs.sort.descending != 0,
                             (const T *)in[0], x))
    for (int64_t run = 2; run <= v->wide; run *= 2)
        for (int64_t apart = run / 2; apart; apart /= 2)
            TSRI_LAUNCH(merge_kernel, tsri_blocks(pairs, THREADS), THREADS, k->stream, x, pairs,
                        v->wide, run, apart);
    TSRI_LAUNCH(store_kernel, tsri_blocks(v->lines.count * v->count, THREADS), THREADS, k->stream,
                v->lines, v->count, v->wide, v->step[0], (const item *)x, (int64_t *)out[0]);
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_argsort(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->sort.axis;
    if (y->dtype != TSR_I64)
        return tsri_cuda_decline(d);
    sort *v = (sort *)tsri_cuda_make(mem, d, run, "plain", sizeof *v);
    TSRI_NEED(v);
    int64_t shape[TSR_MAX_NDIM];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = i == axis ? 1 : x->shape[i];
    tsri_cuda_walk_init(&v->lines, x->ndim, shape);
    tsri_cuda_walk_push(&v->lines, y->stride);
    tsri_cuda_walk_push(&v->lines, x->stride);
    tsri_cuda_walk_finish(&v->lines);
    v->n = x->shape[axis];
    v->count = y->shape[axis];
    v->step[0] = y->stride[axis];
    v->step[1] = x->stride[axis];
    for (v->wide = 1; v->wide < v->n; v->wide *= 2)
        ;
    v->kernel.base.scratch_bytes = (size_t)(v->lines.count * v->wide) * sizeof(item);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}
