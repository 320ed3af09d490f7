/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f16 and bf16 on CPUs. Kernels compute in f32, or in f64 where the f32 kernel does, and round each
 * result once, to nearest even. A "half" is a value of either dtype.
 */
#ifndef TESSERA_KERNELS_CPU_FAST_HALF_H
#define TESSERA_KERNELS_CPU_FAST_HALF_H

#include "src/core/dims.h"
#include "kernels/cpu/fast/fast.h"

/* n elements; x and y do not overlap. */
typedef void tsri_widen_fn(const uint16_t *x, float *y, int64_t n);
/* Rounds as tsri_convert does; a NaN stays one. */
typedef void tsri_narrow_fn(const float *x, uint16_t *y, int64_t n);

/* Returns the fastest conversion of a half dtype from and to f32, of this machine or of
 * TESSERA_CPU_ISA if that is less. */
tsri_widen_fn *tsri_widen_of(tsr_dtype half);
tsri_narrow_fn *tsri_narrow_of(tsr_dtype half);

extern const tsri_kernels tsri_kernels_cpu_onednn, tsri_kernels_cpu_via32, tsri_kernels_cpu_ref;

#endif
