/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/nccl_mark.h"

/* The count is in device memory, as reading the mark would cross the bus. */
static __global__ void mark_kernel(volatile tsri_nccl_mark *mark, unsigned long long *count,
                                   unsigned long long call, bool begin)
{
    if (!begin) {
        mark->done = *count;
        return;
    }
    unsigned long long number = *count + 1;
    *count = number;
    mark->call = call;
    __threadfence_system(); /* who sees the number sees the call */
    mark->begun = number;
}

tsr_status tsri_cuda_mark(tsri_nccl_mark *mark, unsigned long long *count, unsigned long long call,
                          bool begin, struct CUstream_st *stream)
{
    TSRI_LAUNCH(mark_kernel, 1, 1, stream, mark, count, call, begin);
    return tsri_cuda_check(cudaGetLastError(), "a mark");
}
