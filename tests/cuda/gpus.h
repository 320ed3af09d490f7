/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs that a test finds: a test of ranks over NCCL, which takes one rank of a communicator on
 * a GPU, runs on as many ranks as there are GPUs, and is skipped where there is only one. */
#ifndef TESSERA_TESTS_CUDA_GPUS_H
#define TESSERA_TESTS_CUDA_GPUS_H

#include "kernels/module.h"

#include <stdio.h>
#include <string.h>

typedef struct test_gpus {
    int n;
    bool emulated; /* by tests/cuda/emulator, which takes orders from EMULATED_... variables */
} test_gpus;

/* Counts the GPUs. Returns 0, or 77, main's exit status, after saying why fewer than `least` GPUs
 * skip the test. */
static inline int test_gpus_find(int least, test_gpus *out)
{
    const tsri_module *module;
    tsri_module_gpu first = {0};
    *out = (test_gpus){0};
    if (tsri_module_get(TSR_DEVICE_CUDA, &module) != TSR_OK ||
        module->gpus(1, &first, &out->n) != TSR_OK) {
        printf("skipped: no GPU can be used: %s\n", tsr_last_error());
        return 77;
    }
    out->emulated = !strncmp(first.name, "emulated", 8);
    if (out->n >= least)
        return 0;
    printf("skipped: NCCL takes one rank on a GPU: %d GPUs are needed, and %d is here\n", least,
           out->n);
    return 77;
}

#endif
