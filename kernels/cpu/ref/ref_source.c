/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges and constants: this shard's part of them. */
#include "kernels/cpu/ref/ref.h"

#include <string.h>

static tsr_status arange_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)in;
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_arg *y = &ref->desc.out[0];
    const double start = ref->attrs.arange.start, step = ref->attrs.arange.step;
    for (int64_t i = 0; i < y->shape[0]; i++)
        tsri_ref_store(y->dtype, out[0], i * y->stride[0],
                       start + (double)(y->offset[0] + i) * step);
    return TSR_OK;
}

tsr_status tsri_ref_arange(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_ref_create(mem, d, arange_run, out_kernel);
}

/* Keeps its own copy, laid out as the result: a plan may outlive the graph that has the data. */
typedef struct constant {
    tsri_ref ref;
    size_t bytes;
    char *part;
} constant;

static tsr_status constant_run(const tsri_kernel *k, void *const *in, void *const *out,
                               void *scratch)
{
    (void)in;
    (void)scratch;
    const constant *v = (const constant *)k;
    if (v->bytes)
        memcpy(out[0], v->part, v->bytes);
    return TSR_OK;
}

tsr_status tsri_ref_constant(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *y = &d->out[0];
    const size_t size = tsr_dtype_size(y->dtype), bytes = (size_t)tsri_arg_count(y) * size;
    constant *v = tsri_ref_make(mem, d, constant_run, sizeof *v + bytes);
    TSRI_NEED(v);
    *out_kernel = &v->ref.base;
    v->bytes = bytes;
    v->part = (char *)(v + 1);
    if (!bytes)
        return TSR_OK;
    int64_t stride[TSR_MAX_NDIM];
    int64_t begin = tsri_ref_global_index(y, stride);
    tsri_ref_moved m = {size, v->part,
                        (const char *)d->attrs->constant.data + begin * (int64_t)size};
    tsri_ref_walk(&v->ref.iter, y->ndim, y->shape, 2, (const int64_t *[]){y->stride, stride});
    tsri_ref_iter_run(&v->ref.iter, tsri_ref_move_row, &m, false);
    v->ref.attrs.constant.data = NULL;
    return TSR_OK;
}
