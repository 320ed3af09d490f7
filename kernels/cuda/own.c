/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of a program's own: what their CUDA functions launch on the stream. */
#include "kernels/cuda/gpu.h"
#include "kernels/own.h"

typedef struct own {
    tsri_cuda_kernel k;
    tsri_own_call call;
} own;

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    TSRI_TRY(tsri_own_run(&((const own *)k)->call, in, out, k->stream));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_own(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    tsri_own_call call;
    TSRI_TRY(tsri_own_prepare(d, true, &call));
    own *v = tsri_cuda_make(mem, d, run, "own", sizeof *v);
    TSRI_NEED(v);
    v->call = call;
    *out_kernel = &v->k.base;
    return TSR_OK;
}

tsr_status tsri_plain_own_backward(tsri_mem *mem, const tsri_kernel_desc *d,
                                   tsri_kernel **out_kernel)
{
    return tsri_plain_own(mem, d, out_kernel);
}
