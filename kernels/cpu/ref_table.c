/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel serves which op: each has one of its own name. */
#include "kernels/cpu/ref/ref.h"

#define SLOT(upper, lower) [TSRI_OP_##upper] = tsri_ref_##lower,
const tsri_kernels tsri_kernels_cpu_ref = {
    .size = sizeof(tsri_kernels), .name = "ref", .slot = {TSRI_OP_KERNEL_LIST(SLOT)}};
