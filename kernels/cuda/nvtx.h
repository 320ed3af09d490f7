/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges for Nsight Systems and its kind. NVTX is header-only: a process that runs under such a
 * tool loads its library at the first range; in any other a range costs the test of a pointer. The
 * header is a system header here, as its code has warnings.
 */
#ifndef TESSERA_KERNELS_CUDA_NVTX_H
#define TESSERA_KERNELS_CUDA_NVTX_H

#pragma GCC system_header

#include <nvtx3/nvToolsExt.h>

#endif
