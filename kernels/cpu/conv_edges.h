/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_KERNELS_CPU_CONV_EDGES_H
#define TESSERA_KERNELS_CPU_CONV_EDGES_H

#include "kernels/kernels.h"

/* Of a convolution whose kernel multiplies zeros around the image (or between the pixels of dy)
 * with the weights, or with dy: replaces *kernel, which the new one owns, by one that computes
 * channels with an infinite or NaN factor by the definition, where nothing is around an image.
 * Leaves others as they are. On failure *kernel is destroyed. */
tsr_status tsri_conv_edges(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **kernel);

#endif
