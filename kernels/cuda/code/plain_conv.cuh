/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the plain convolutions. */
#ifndef TESSERA_KERNELS_CUDA_PLAIN_CONV_H
#define TESSERA_KERNELS_CUDA_PLAIN_CONV_H

#include "kernels/cuda/code/product.cuh"

/* plain/conv.cu: the window of a convolution, or of its gradient by x or by w, over x or dy. */
void tsri_conv_window(const tsri_kernel_desc *desc, tsri_window *out);

/* plain/conv_groups.cu: any of the three, with groups of few channels, depthwise above all. */
tsr_status tsri_conv_groups(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel);

#endif
