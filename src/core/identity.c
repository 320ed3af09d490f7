/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/identity.h"

#include <math.h>
#include <string.h>

#define FILL(T, lowest, highest)               \
    do {                                       \
        T v_ = max ? (lowest) : (highest);     \
        for (int64_t i_ = 0; i_ < count; i_++) \
            ((T *)dst)[i_] = v_;               \
    } while (0)

#define FILL_WITH(T, value)                    \
    do {                                       \
        for (int64_t i_ = 0; i_ < count; i_++) \
            ((T *)dst)[i_] = (value);          \
    } while (0)

static void fill_one(tsr_dtype dtype, int64_t count, void *dst)
{
    switch (dtype) {
    case TSR_DTYPE_F32:
        FILL_WITH(float, 1);
        break;
    case TSR_DTYPE_F64:
        FILL_WITH(double, 1);
        break;
    case TSR_DTYPE_F16:
        FILL_WITH(uint16_t, 0x3C00);
        break;
    case TSR_DTYPE_BF16:
        FILL_WITH(uint16_t, 0x3F80);
        break;
    case TSR_DTYPE_I64:
        FILL_WITH(int64_t, 1);
        break;
    case TSR_DTYPE_I32:
        FILL_WITH(int32_t, 1);
        break;
    default:
        FILL_WITH(uint8_t, 1);
        break;
    }
}

void tsri_fill_identity(tsr_dtype dtype, tsr_reduce_op op, int64_t count, void *dst)
{
    bool max = op == TSR_REDUCE_MAX;
    if (count <= 0)
        return;
    if (op == TSR_REDUCE_SUM || op == TSR_REDUCE_AVG) {
        memset(dst, 0, (size_t)count * tsr_dtype_size(dtype));
        return;
    }
    if (op == TSR_REDUCE_PRODUCT) {
        fill_one(dtype, count, dst);
        return;
    }
    switch (dtype) {
    case TSR_DTYPE_F32:
        FILL(float, -INFINITY, INFINITY);
        break;
    case TSR_DTYPE_F64:
        FILL(double, -(double)INFINITY, (double)INFINITY);
        break;
    case TSR_DTYPE_F16:
        FILL(uint16_t, 0xFC00, 0x7C00);
        break;
    case TSR_DTYPE_BF16:
        FILL(uint16_t, 0xFF80, 0x7F80);
        break;
    case TSR_DTYPE_I64:
        FILL(int64_t, INT64_MIN, INT64_MAX);
        break;
    case TSR_DTYPE_I32:
        FILL(int32_t, INT32_MIN, INT32_MAX);
        break;
    case TSR_DTYPE_BOOL:
        FILL(uint8_t, 0, 1);
        break;
    default:
        FILL(uint8_t, 0, UINT8_MAX);
        break;
    }
}
