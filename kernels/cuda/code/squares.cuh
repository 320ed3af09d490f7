/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of squares: what fast/reduce.cu and fast/squares.cu share. */
#ifndef TESSERA_KERNELS_CUDA_SQUARES_H
#define TESSERA_KERNELS_CUDA_SQUARES_H

#include "kernels/cuda/reduce.cuh"

/* Makes the kernel of a REDUCE by TSRI_REDUCE_SQUARES, or declines. */
tsr_status tsri_cuda_squares(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel);

#endif
