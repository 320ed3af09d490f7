/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of stored values between dtypes. */
#ifndef TESSERA_CORE_CONVERT_H
#define TESSERA_CORE_CONVERT_H

#include "src/core/status.h"

/*
 * Converts n elements among f16, bf16, f32 and f64, rounded once, to nearest even (too large: to
 * infinity); other dtypes only to themselves. Neither pointer need be aligned; src and dst are the
 * same only if the dtypes are. TSR_ERR_DTYPE for other pairs.
 */
tsr_status tsri_convert(void *dst, tsr_dtype dst_dtype, const void *src, tsr_dtype src_dtype,
                        int64_t n);

/* Sets *out_low and *out_high to the least and the greatest value of a whole dtype or of bool. */
void tsri_whole_range(tsr_dtype dtype, int64_t *out_low, int64_t *out_high);

/* Returns v as a value of a whole dtype: toward zero; NaN is 0, and a number that does not fit is
 * the nearest that does. As bool, NaN and all else that is not 0 is 1. */
int64_t tsri_whole_of(tsr_dtype dtype, double v);

#endif
