/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for oneDNN where the build has none: a table that does nothing. */
#include "kernels/cpu/onednn/onednn.h"

const tsri_kernels tsri_kernels_cpu_onednn = {.size = sizeof(tsri_kernels), .name = "onednn"};

void tsri_onednn_version(char *buf, size_t size)
{
    if (size)
        buf[0] = 0;
}
