/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that the kernels of this build are for. */
#include "kernels/cuda/device_code.cuh"
#include "kernels/cuda/inside.h"

/* As all others are built, and never launched. */
static __global__ void any_kernel(void)
{
}

tsr_status tsri_cuda_check_built(const tsri_cuda_device *d)
{
    static const int built[] = {__CUDA_ARCH_LIST__}; /* 900 for 9.0 */
    struct cudaFuncAttributes a;
    int major = d->traits.major, minor = d->traits.minor;
    cudaError_t error = cudaFuncGetAttributes(&a, (const void *)any_kernel);
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction)
        return tsri_cuda_check(error, "cudaFuncGetAttributes");
    cudaGetLastError();
    return tsri_fail(TSR_ERR_UNSUPPORTED,
                     "GPU %d is of compute capability %d.%d, and the kernels of this build are for "
                     "%d.%d and later ones: build with -Dgpu-arch=%d%d",
                     d->ordinal, major, minor, built[0] / 100, built[0] % 100 / 10, major, minor);
}
