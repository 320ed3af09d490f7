/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs there are, or what stands in their way. */
#include "kernels/cuda/inside.h"

#include <stdio.h>
#include <stdlib.h>

/* No driver, a driver too old for this toolkit, or no device. */
static bool means_none(cudaError_t error)
{
    return error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice;
}

tsr_status tsri_cuda_count_gpus(int *out_n)
{
    int n = 0, driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error == cudaSuccess && n > 0) {
        *out_n = n;
        return TSR_OK;
    }
    cudaGetLastError();
    if (error == cudaErrorStubLibrary)
        return tsri_fail(
            TSR_ERR_UNSUPPORTED,
            "libcuda.so.1 is the toolkit's stub, which is for linking alone, and no CUDA "
            "driver: take its folder out of LD_LIBRARY_PATH, and install a driver");
    if (error != cudaSuccess && !means_none(error)) {
        tsri_cuda_check(error, "cudaGetDeviceCount");
        return tsri_fail_prefix(TSR_ERR_UNSUPPORTED,
                                "the CUDA driver does not start (`nvidia-smi` may say more)");
    }
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (driver == 0)
        return tsri_fail(
            TSR_ERR_UNSUPPORTED,
            "no CUDA driver is installed here (libcuda.so.1 was not found); `nvidia-smi` "
            "shows whether there is one");
    if (driver < runtime / 1000 * 1000)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "the CUDA driver is for CUDA %d.%d, older than the %d.%d that this build "
                         "needs: update the driver (`nvidia-smi` shows its version)",
                         driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    return tsri_fail(
        TSR_ERR_UNSUPPORTED,
        "the CUDA driver (for CUDA %d.%d) finds no GPU%s%s%s: `nvidia-smi -L` lists them",
        driver / 1000, driver % 1000 / 10, visible ? "; CUDA_VISIBLE_DEVICES is '" : "",
        visible ? visible : "", visible ? "'" : "");
}

static tsr_status describe(int ordinal, tsri_module_gpu *out)
{
    struct cudaDeviceProp p;
    TSRI_CUDA(cudaGetDeviceProperties(&p, ordinal));
    *out = (tsri_module_gpu){.major = p.major,
                             .minor = p.minor,
                             .processors = p.multiProcessorCount,
                             .bytes = p.totalGlobalMem};
    snprintf(out->name, sizeof out->name, "%.120s", p.name);
    TSRI_CUDA(cudaDeviceGetPCIBusId(out->id, (int)sizeof out->id, ordinal));
    return TSR_OK;
}

tsr_status tsri_cuda_gpus(int most, tsri_module_gpu *out_gpus, int *out_n)
{
    TSRI_TRY(tsri_cuda_count_gpus(out_n));
    for (int i = 0; i < *out_n && i < most; i++)
        TSRI_TRY(describe(i, &out_gpus[i]));
    return TSR_OK;
}
