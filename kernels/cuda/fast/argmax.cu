/* SPDX-License-Identifier: Apache-2.0 */
/* Argmax along the last axis of row-major operands: a warp or a block a row, by 16 bytes. */
#include "kernels/cuda/code/argmax.cuh"

typedef struct argmax {
    tsri_cuda_kernel kernel;
    tsri_rows rows;
} argmax;

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    TSRI_NUMBERS(
        k->desc.in[0].dtype,
        tsri_launch_loop(tsri_argmax_op<T>{{{(const T *)in[0], NULL}, NULL}, (int64_t *)out[0]},
                         ((const argmax *)k)->rows, k->stream));
    return tsri_cuda_launched(k);
}

tsr_status tsri_fast_argmax(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->softmax.axis;
    if (y->dtype != TSR_I64 || axis != x->ndim - 1 || !x->shape[axis] || !tsri_cuda_is_row(x) ||
        !tsri_cuda_is_row(y))
        return tsri_cuda_decline(d);
    argmax *v = (argmax *)tsri_cuda_make(mem, d, run, "cuda", sizeof *v);
    TSRI_NEED(v);
    v->rows = {tsri_cuda_count(y), x->shape[axis], {x->shape[axis], 1}};
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}
