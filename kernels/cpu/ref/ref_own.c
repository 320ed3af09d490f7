/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of a program's own: their C functions. */
#include "kernels/cpu/ref/ref.h"
#include "kernels/own.h"

typedef struct own {
    tsri_ref ref;
    tsri_own_call call;
} own;

static tsr_status run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    return tsri_own_run(&((const own *)k)->call, in, out, NULL);
}

tsr_status tsri_ref_own(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    tsri_own_call call;
    TSRI_TRY(tsri_own_prepare(d, false, &call));
    own *v = tsri_ref_make(mem, d, run, sizeof *v);
    TSRI_NEED(v);
    v->ref.base.impl = "own";
    v->call = call;
    *out_kernel = &v->ref.base;
    return TSR_OK;
}

tsr_status tsri_ref_own_backward(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_ref_own(mem, d, out_kernel);
}
