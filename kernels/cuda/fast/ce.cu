/* SPDX-License-Identifier: Apache-2.0 */
/* Cross entropy of row-major operands. */
#include "kernels/cuda/code/ce.cuh"

typedef struct cross_entropy {
    tsri_cuda_kernel kernel;
    tsri_rows rows;
} cross_entropy;

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_rows &rows = ((const cross_entropy *)k)->rows;
    TSRI_FLOATS(k->desc.in[0].dtype, tsri_ce_dispatch<T>(k, in, out, [&](const auto &op) {
                    tsri_launch_loop(op, rows, k->stream);
                }));
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *operands[TSRI_WALK_OPS];
    int full, n = tsri_ce_operands(d, operands, &full);
    bool takes = tsri_ce_takes(d);
    for (int o = 0; o < n && takes; o++)
        takes = tsri_cuda_is_row(operands[o]);
    /* Labels find their class by its stride, which means nothing where there is one class. */
    if (!takes || d->in[0].stride[1] != 1)
        return tsri_cuda_decline(d);
    cross_entropy *v = (cross_entropy *)tsri_cuda_make(mem, d, run, "cuda", sizeof *v);
    TSRI_NEED(v);
    v->rows.count = d->in[0].shape[0];
    v->rows.n = d->in[0].shape[1];
    for (int o = 0; o < n; o++)
        v->rows.step[o] = o < full ? v->rows.n : operands[o]->ndim == 2 ? operands[o]->shape[1] : 1;
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

#define SLOT(op)                                                                                  \
    tsr_status tsri_fast_##op(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel) \
    {                                                                                             \
        return create(mem, d, out_kernel);                                                        \
    }
SLOT(ce)
SLOT(ce_terms)
SLOT(ce_dx)
