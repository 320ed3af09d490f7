/* SPDX-License-Identifier: Apache-2.0 */
/* How a kernel tells the host of an error in its data: the host does not wait for the device, so at
 * the fence all but the kernel must be there, and the kernel only after it. */
#include "tests/cuda/emulator/emulator.h"

static void fence(void);
#define __threadfence_system fence
#include "kernels/cuda/device_code.cuh"
#undef __threadfence_system

#include <cstdio>

static int fences, bad;
static tsri_cuda_fault fault;

static void check(bool good, const char *what)
{
    if (!good) {
        printf("FAIL %s\n", what);
        bad++;
    }
}

static void fence(void)
{
    fences++;
    check(fault.claim == 1, "a thread has claimed it");
    check(fault.kernel == 0, "the kernel is not there before what it met");
    check(fault.at == 3 && fault.value == -9, "what it met is there first");
    /* Another thread, meanwhile. */
    tsri_fault(&fault, 88, 4, 5);
}

int main()
{
    for (int round = 1; round <= 2; round++) {
        tsri_fault(&fault, 77, 3, -9);
        check(fences == round, "one fence an error");
        check(tsri_cuda_fault_kernel(&fault) == 77, "the kernel is there");
        tsri_fault(&fault, 99, 6, 7);
        check(tsri_cuda_fault_kernel(&fault) == 77 && fault.at == 3 && fault.value == -9,
              "the first error stays");
        tsri_cuda_fault_clear(&fault);
        check(tsri_cuda_fault_kernel(&fault) == 0 && fault.claim == 0, "it can be claimed again");
    }
    if (!bad)
        puts("ok");
    return bad > 0;
}
