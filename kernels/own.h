/* SPDX-License-Identifier: Apache-2.0 */
/* Calling the C functions of a program's own op, as the kernels of every device do. */
#ifndef TESSERA_KERNELS_OWN_H
#define TESSERA_KERNELS_OWN_H

#include "kernels/kernels.h"
#include "src/core/own_op.h"

/* The buffers of a call, in the order of desc->in and desc->out, without their data. */
typedef struct tsri_own_call {
    const tsr_op *op;
    tsr_op_fn *fn;
    bool backward, works; /* works: a result has elements */
    int nin, nout;
    tsr_op_buffer in[TSRI_KERNEL_MAX_ARGS], out[TSRI_KERNEL_MAX_ARGS];
    uint32_t want;
    double option[TSRI_OWN_OPTIONS];
} tsri_own_call;

/* Prepares a call. fn NULL, or a buffer that is not row-major, is declined. */
tsr_status tsri_own_prepare(const tsri_kernel_desc *desc, bool cuda, tsri_own_call *out_call);
/* Calls the function on these buffers. */
tsr_status tsri_own_run(const tsri_own_call *call, void *const *in, void *const *out, void *stream);

#endif
