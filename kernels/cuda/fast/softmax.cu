/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and its parts along the last axis of row-major operands. */
#include "kernels/cuda/code/softmax.cuh"

typedef struct softmax {
    tsri_cuda_kernel kernel;
    tsri_rows rows;
} softmax;

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_rows &rows = ((const softmax *)k)->rows;
    TSRI_FLOATS(k->desc.out[0].dtype,
                tsri_softmax_dispatch<T>(&k->desc, in, out, [&](const auto &op) {
                    typedef std::decay_t<decltype(op)> Op;
                    if constexpr (Op::REDUCES && Op::MAPS)
                        tsri_launch_kept(op, rows, k->stream);
                    else
                        tsri_launch_loop(op, rows, k->stream);
                }));
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *operands[TSRI_WALK_OPS], *x = &d->in[0];
    int full, n = tsri_softmax_operands(d, operands, &full);
    bool takes = tsri_softmax_takes(d) && d->attrs->softmax.axis == x->ndim - 1;
    for (int o = 0; o < n && takes; o++)
        takes = tsri_cuda_is_row(operands[o]);
    if (!takes)
        return tsri_cuda_decline(d);
    softmax *v = (softmax *)tsri_cuda_make(mem, d, run, "cuda", sizeof *v);
    TSRI_NEED(v);
    v->rows.n = x->shape[x->ndim - 1];
    v->rows.count = 1;
    for (int i = 0; i < x->ndim - 1; i++)
        v->rows.count *= x->shape[i];
    for (int o = 0; o < n; o++)
        v->rows.step[o] = o < full ? v->rows.n : 1;
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

#define SLOT(op)                                                                                  \
    tsr_status tsri_fast_##op(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel) \
    {                                                                                             \
        return create(mem, d, out_kernel);                                                        \
    }
SLOT(softmax)
SLOT(softmax_dx)
SLOT(softmax_sum)
SLOT(softmax_finish)
SLOT(softmax_dot)
SLOT(softmax_bwd)
