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

#endif
