/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the CUDA module's kernels begin and end with: a world of one rank and its GPU.
 * Skipped where there is none; on the emulator with TESSERA_CUDA_MODULE. */
#ifndef TESSERA_TESTS_KERNELS_ON_CUDA_H
#define TESSERA_TESTS_KERNELS_ON_CUDA_H

#include "kernels/device.h"

#include <stdio.h>

static tsr_world *world;
static tsri_device *device;

/* The last of a list, which takes everything. */
static inline const tsri_kernels *last_of(const tsri_kernels *const *list)
{
    while (list[1])
        list++;
    return *list;
}

static inline const tsri_kernels *reference(void)
{
    return last_of(tsri_kernels_cpu());
}

/* 0, or what main returns instead of running: 77 where there is no GPU. */
static inline int open_cuda(void)
{
    if (tsr_world_create(NULL, &world) != TSR_OK)
        return 1;
    if (tsri_device_get(world, TSR_DEVICE_CUDA, &device) == TSR_OK)
        return 0;
    printf("skipped: %s\n", tsr_last_error());
    tsr_world_destroy(world);
    return 77;
}

/* Passes on what the tests came to. */
static inline int close_cuda(int failed)
{
    tsr_world_destroy(world);
    return failed;
}

#endif
