/* SPDX-License-Identifier: Apache-2.0 */
/* The module's entry point. */
#include "kernels/cuda/inside.h"

#include <stdio.h>

__attribute__((visibility("default"))) tsri_module_entry_fn tsri_cuda_module;

const tsri_module *tsri_cuda_module(const tsri_module_host *host)
{
    static char versions[128];
    static const tsri_module module = {
        .size = sizeof module,
        .abi = TSRI_MODULE_ABI,
        .versions = versions,
        .gpus = tsri_cuda_gpus,
        .device_open = tsri_cuda_open,
        .nccl_id = tsri_nccl_id,
        .nccl_create = tsri_nccl_create,
    };
    if (!tsri_host_set(host))
        return NULL;
    int cuda = 0;
    cudaRuntimeGetVersion(&cuda);
    snprintf(versions, sizeof versions, "CUDA %d.%d, cuBLASLt %s, cuDNN %s, NCCL %s", cuda / 1000,
             cuda % 1000 / 10, tsri_lt_version(), tsri_dnn_version(), tsri_nccl_version());
    return &module;
}
