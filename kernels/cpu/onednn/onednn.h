/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneDNN's convolutions, f32, channels last. The fast kernels leave it none; a mask of kernels
 * (TESSERA_KERNELS=onednn,ref) asks for it. Weights come row-major and are brought into the order
 * that oneDNN likes, in scratch, in every run. oneDNN's own execution allocates small objects.
 */
#ifndef TESSERA_KERNELS_CPU_ONEDNN_H
#define TESSERA_KERNELS_CPU_ONEDNN_H

#include "kernels/kernels.h"

extern const tsri_kernels tsri_kernels_cpu_onednn;
/* The version of the library that was loaded; "" where this build has none. */
void tsri_onednn_version(char *buf, size_t size);

#endif
