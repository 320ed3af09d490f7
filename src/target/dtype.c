/* SPDX-License-Identifier: Apache-2.0 */
#include "src/target/dtype.h"

#include <float.h>

#define FLOAT(exponent_, fraction_, max_, digits_, tolerance_)                         \
    .is_float = true, .exponent = (exponent_), .fraction = (fraction_), .max = (max_), \
    .digits = (digits_), .tolerance = (tolerance_)

// clang-format off
const tsri_dtype_facts tsri_dtypes[TSR_DTYPE_COUNT_] = {
    [TSR_DTYPE_NONE] = {"?",    0, .tolerance = 1e-9},
    [TSR_DTYPE_F32] = {"f32", 4, "F32", "<f4", FLOAT(8, 23, (double)FLT_MAX, 8, 1e-5)},
    [TSR_DTYPE_F16] = {"f16", 2, "F16", "<f2", FLOAT(5, 10, 65504, 5, 1e-3)},
    [TSR_DTYPE_BF16] = {"bf16", 2, "BF16", "<f4", FLOAT(8, 7, 0x1.fep127, 4, 1e-2)},
    [TSR_DTYPE_F64] = {"f64", 8, "F64", "<f8", FLOAT(11, 52, DBL_MAX, 8, 1e-9)},
    [TSR_DTYPE_I64] = {"i64", 8, "I64", "<i8", .tolerance = 1e-9},
    [TSR_DTYPE_I32] = {"i32", 4, "I32", "<i4", .tolerance = 1e-9},
    [TSR_DTYPE_U8] = {"u8", 1, "U8", "|u1", .tolerance = 1e-9},
    [TSR_DTYPE_BOOL] = {"bool", 1, "BOOL", "|b1", .tolerance = 1e-9},
};
// clang-format on
