/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/identity.h"

#include <math.h>
#include <string.h>

#include "src/core/convert.h"
#include "src/core/dims.h"

/* Writes one integer or bool: 1 for a product, the lowest value for a maximum, the highest for a
 * minimum. */
static void write_integer(tsr_dtype dtype, bool one, bool max, void *dst)
{
    int64_t i64 = one ? 1 : max ? INT64_MIN : INT64_MAX;
    int32_t i32 = one ? 1 : max ? INT32_MIN : INT32_MAX;
    uint8_t u8 = one || (dtype == TSR_DTYPE_BOOL && !max) ? 1 : max ? 0 : UINT8_MAX;
    const void *value = dtype == TSR_DTYPE_I64   ? (const void *)&i64
                        : dtype == TSR_DTYPE_I32 ? (const void *)&i32
                                                 : &u8;
    memcpy(dst, value, tsr_dtype_size(dtype));
}

void tsri_fill_identity(tsr_dtype dtype, tsr_reduce_op op, int64_t count, void *dst)
{
    const bool one = op == TSR_REDUCE_PRODUCT, max = op == TSR_REDUCE_MAX;
    const bool sum = op == TSR_REDUCE_SUM || op == TSR_REDUCE_AVG;
    const double value = sum ? -0.0 : one ? 1 : max ? -INFINITY : INFINITY; /* -0 + x is x */
    const size_t size = tsr_dtype_size(dtype), all = (size_t)count * size;
    if (count <= 0)
        return;
    if (sum && !tsri_is_float(dtype)) {
        memset(dst, 0, all);
        return;
    }
    if (tsri_is_float(dtype))
        (void)tsri_convert(dst, dtype, &value, TSR_F64, 1); /* floats always convert */
    else
        write_integer(dtype, one, max, dst);
    /* Each round copies all elements so far behind themselves. */
    for (size_t done = size; done < all; done += done)
        memcpy((char *)dst + done, dst, done < all - done ? done : all - done);
}
