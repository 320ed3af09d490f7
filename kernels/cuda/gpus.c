/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs there are, or what stands in their way. */
#include "kernels/cuda/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* No driver, a driver too old for this toolkit, or no device. */
static bool means_none(cudaError_t error)
{
    return error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice;
}

/* CUDA does not work in the children of a process that has started it. */
static tsr_status check_process(void)
{
    static pid_t owner;
    pid_t none = 0, me = getpid();
    if (__atomic_compare_exchange_n(&owner, &none, me, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
        none == me)
        return TSR_OK;
    return tsri_fail(TSR_ERR_STATE,
                     "process %d was forked from process %d after that one had asked for GPUs, and "
                     "CUDA works in a process of its own alone: spawn processes before the first "
                     "use of a GPU, or begin each rank anew (`tessera launch`)",
                     (int)me, (int)none);
}

tsr_status tsri_cuda_count_gpus(int *out_n)
{
    int n = 0, driver = 0, runtime = 0;
    TSRI_TRY(check_process());
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

int tsri_gpu_enter(const tsri_cuda_device *d)
{
    int now = -1;
    if (!d || cudaGetDevice(&now) != cudaSuccess || now == d->ordinal)
        return -1;
    cudaSetDevice(d->ordinal); /* an error is the next call's too */
    return now;
}

void tsri_gpu_leave(const int *before)
{
    if (*before >= 0)
        cudaSetDevice(*before);
}
