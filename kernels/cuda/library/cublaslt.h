/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cublasLt.h as a system header, wherever it lies: a folder that CPATH names is searched
 * like one of ours (-isystem for it does nothing then), and our warnings would judge what is not
 * our code.
 */
#ifndef TESSERA_KERNELS_CUDA_CUBLASLT_H
#define TESSERA_KERNELS_CUDA_CUBLASLT_H

#pragma GCC system_header

#include <cublasLt.h>

#endif
