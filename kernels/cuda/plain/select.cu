/* SPDX-License-Identifier: Apache-2.0 */
/* Selection: where, mask, triangle, causal_mask. Elements are moved by their size. */
#include "kernels/cuda/box.h"
#include "kernels/cuda/device_code.cuh"

enum { THREADS = 256 };

typedef struct choice {
    tsri_cuda_kernel k;
    tsri_cuda_walk w;
    uint64_t value; /* causal_mask: of what is masked */
} choice;

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run,
                       choice **out)
{
    *out = (choice *)tsri_cuda_make(mem, d, run, "plain", sizeof **out);
    return *out ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* --- by a condition --------------------------------------------------------------------------- */
template <typename T>
static __global__ void where_kernel(tsri_cuda_walk w, T *z, const uint8_t *cond, const T *x,
                                    const T *y)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[4];
        tsri_walk_at<4>(w, i, at);
        z[at[0]] = cond[at[1]] ? x[at[2]] : y[at[3]];
    }
}

template <typename T>
static __global__ void mask_kernel(tsri_cuda_walk w, T *y, const uint8_t *cond, const T *x,
                                   bool keep)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(w, i, at);
        y[at[0]] = (cond[at[1]] != 0) == keep ? x[at[2]] : (T)0;
    }
}

static tsr_status select_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const tsri_cuda_walk *w = &((const choice *)k)->w;
    const size_t size = tsr_dtype_size(k->desc.out[0].dtype);
    const unsigned blocks = tsri_blocks(w->count, THREADS);
    if (!w->count)
        return TSR_OK;
    if (k->desc.op == TSRI_OP_WHERE) {
        TSRI_SIZES(size, TSRI_LAUNCH((where_kernel<T>), blocks, THREADS, k->stream, *w, (T *)out[0],
                                     (const uint8_t *)in[0], (const T *)in[1], (const T *)in[2]));
    } else {
        TSRI_SIZES(size,
                   TSRI_LAUNCH((mask_kernel<T>), blocks, THREADS, k->stream, *w, (T *)out[0],
                               (const uint8_t *)in[0], (const T *)in[1], k->attrs.mask.keep != 0));
    }
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_where(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    bool alike = d->in[0].dtype == TSR_BOOL;
    for (int i = 1; i < d->nin; i++)
        alike &= d->in[i].dtype == d->out[0].dtype;
    if (!alike)
        return tsri_cuda_decline(d);
    choice *v = NULL;
    TSRI_TRY(make(mem, d, select_run, &v));
    tsri_cuda_walk_of(&v->w, d);
    *out_kernel = &v->k.base;
    return TSR_OK;
}

tsr_status tsri_plain_mask(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_plain_where(mem, d, out_kernel);
}

/* --- by place --------------------------------------------------------------------------------- */
/* Column - row, of this shard, is an operand of the walk like any other: the last. An element above
 * (or below) `edge` becomes `value`. */
template <typename T>
static __global__ void side_kernel(tsri_cuda_walk w, T *y, const T *x, int64_t edge, bool above,
                                   T value)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(w, i, at);
        y[at[0]] = (above ? at[2] > edge : at[2] < edge) ? value : x[at[1]];
    }
}

static tsr_status side_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const choice *v = (const choice *)k;
    const tsri_arg *y = &k->desc.out[0];
    const bool causal = k->desc.op == TSRI_OP_CAUSAL_MASK;
    const bool above = causal || !k->attrs.triangle.upper;
    if (!v->w.count)
        return TSR_OK;
    const int64_t edge = (causal ? k->attrs.mask_above.diagonal : k->attrs.triangle.diagonal) +
                         y->offset[y->ndim - 2] - y->offset[y->ndim - 1];
    TSRI_SIZES(tsr_dtype_size(y->dtype),
               TSRI_LAUNCH((side_kernel<T>), tsri_blocks(v->w.count, THREADS), THREADS, k->stream,
                           v->w, (T *)out[0], (const T *)in[0], edge, above, (T)v->value));
    return tsri_cuda_launched(k);
}

static tsr_status make_side(tsri_mem *mem, const tsri_kernel_desc *d, double value,
                            tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    int64_t place[TSR_MAX_NDIM] = {0};
    choice *v = NULL;
    if (x->dtype != y->dtype)
        return tsri_cuda_decline(d);
    TSRI_TRY(make(mem, d, side_run, &v));
    place[y->ndim - 1] = 1;
    place[y->ndim - 2] = -1;
    tsri_cuda_walk_init(&v->w, y->ndim, y->shape);
    tsri_cuda_walk_push(&v->w, y->stride);
    tsri_cuda_walk_push(&v->w, x->stride);
    tsri_cuda_walk_push(&v->w, place);
    tsri_cuda_walk_finish(&v->w);
    v->value = tsri_cuda_element(y->dtype, value);
    *out_kernel = &v->k.base;
    return TSR_OK;
}

tsr_status tsri_plain_triangle(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make_side(mem, d, 0, out_kernel);
}

tsr_status tsri_plain_causal_mask(tsri_mem *mem, const tsri_kernel_desc *d,
                                  tsri_kernel **out_kernel)
{
    if (!tsri_cuda_is_float(d->in[0].dtype))
        return tsri_cuda_decline(d);
    return make_side(mem, d, d->attrs->mask_above.value, out_kernel);
}
