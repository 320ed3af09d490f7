/* SPDX-License-Identifier: Apache-2.0 */
/* The implementations for a CPU. */
#include "kernels/kernels.h"

extern const tsri_kernels tsri_kernels_cpu_fast, tsri_kernels_cpu_onednn, tsri_kernels_cpu_via32,
    tsri_kernels_cpu_ref;

const tsri_kernels *const *tsri_kernels_cpu(void)
{
    static const tsri_kernels *const list[] = {&tsri_kernels_cpu_fast, &tsri_kernels_cpu_onednn,
                                               &tsri_kernels_cpu_via32, &tsri_kernels_cpu_ref,
                                               NULL};
    return list;
}
