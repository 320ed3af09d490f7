/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and its parts along any axis of operands with any strides. */
#include "kernels/cuda/code/softmax.cuh"

typedef struct softmax {
    tsri_cuda_kernel kernel;
    tsri_cuda_walk rows, columns;
} softmax;

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const softmax *v = (const softmax *)k;
    TSRI_FLOATS(k->desc.out[0].dtype,
                tsri_softmax_dispatch<T>(&k->desc, in, out, [&](const auto &op) {
                    tsri_launch_plain(op, v->rows, v->columns, k->stream);
                }));
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_softmax_takes(d))
        return tsri_cuda_decline(d);
    softmax *v = (softmax *)tsri_cuda_make(mem, d, run, "plain", sizeof *v);
    TSRI_NEED(v);
    const tsri_arg *operands[TSRI_WALK_OPS];
    int full, n = tsri_softmax_operands(d, operands, &full);
    tsri_axis_walks(n, full, operands, d->attrs->softmax.axis, &v->rows, &v->columns);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

#define SLOT(op)                                                                                   \
    tsr_status tsri_plain_##op(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel) \
    {                                                                                              \
        return create(mem, d, out_kernel);                                                         \
    }
SLOT(softmax)
SLOT(softmax_dx)
SLOT(softmax_sum)
SLOT(softmax_finish)
SLOT(softmax_dot)
SLOT(softmax_bwd)
