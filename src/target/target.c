/* SPDX-License-Identifier: Apache-2.0 */
#include "src/target/target.h"

#include <stddef.h>

#define CPU "cpu"
#define CUDA "cuda"

const char *const tsri_target_names[TSRI_DEVICES] = {CPU, CUDA, NULL};

static const tsri_target targets[TSRI_DEVICES] = {
    /* Figures: measured on 2-core server CPUs, whose ranks share memory. */
    [TSR_DEVICE_CPU] = {.kind = TSR_DEVICE_CPU,
                        .name = CPU,
                        .can = TSRI_CAN_HOST_MEMORY | TSRI_CAN_ROW_KERNELS,
                        .figures = {.latency_s = 3e-6,
                                    .bytes_per_s = 8e9,
                                    .local_bytes_per_s = 16e9,
                                    .flops_per_s = 80e9,
                                    .kernel_s = 0.5e-6,
                                    .link_name = "shared memory"}},
    /* Figures: orders of magnitude of an H100's data sheet, not measured. */
    [TSR_DEVICE_CUDA] = {.kind = TSR_DEVICE_CUDA,
                         .name = CUDA,
                         .can = TSRI_CAN_QUEUE | TSRI_CAN_JOIN_LAUNCHES | TSRI_CAN_WRITE_EARLY |
                                TSRI_CAN_RINGS | TSRI_CAN_WHOLE_LAYER_NORM | TSRI_CAN_LIE_BY_HEAD |
                                TSRI_CAN_USE_WORKSPACE,
                         .figures = {.latency_s = 12e-6,
                                     .bytes_per_s = 300e9,
                                     .local_bytes_per_s = 4e12,
                                     .flops_per_s = 50e12,
                                     .kernel_s = 2e-6,
                                     .link_name = "NVLink"},
                         .module = "libtessera_cuda.so",
                         .module_variable = "TESSERA_CUDA_MODULE",
                         .module_entry = "tsri_cuda_module",
                         .module_needs = "nvcc, cuBLAS, cuDNN and NCCL",
                         .comm_variable = "TESSERA_CUDA_COMM"},
};

const tsri_target *tsri_target_of(tsr_device kind)
{
    const int k = (int)kind;
    return k > 0 && k < TSRI_DEVICES && targets[k].name ? &targets[k] : NULL;
}

bool tsri_target_can(tsr_device kind, tsri_ability ability)
{
    const tsri_target *target = tsri_target_of(kind);
    return target && target->can & ability;
}
