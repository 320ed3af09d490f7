/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/dims.h"

#include <stdio.h>
#include <string.h>

size_t tsr_dtype_size(tsr_dtype dtype)
{
    return tsri_dtype_of(dtype)->size;
}

const char *tsr_dtype_name(tsr_dtype dtype)
{
    return tsri_dtype_of(dtype)->name;
}

tsr_dtype tsr_dtype_parse(const char *name)
{
    for (int i = 1; name && i < TSR_DTYPE_COUNT_; i++)
        if (!strcmp(name, tsri_dtypes[i].name))
            return (tsr_dtype)i;
    return TSR_DTYPE_NONE;
}

int64_t tsr_dims_count(tsr_dims dims)
{
    int64_t n = 1;
    for (int i = 0; i < dims.ndim; i++)
        if (!dims.d[i])
            return 0;
    for (int i = 0; i < dims.ndim; i++)
        if (__builtin_mul_overflow(n, dims.d[i], &n))
            return INT64_MAX;
    return n;
}

const char *tsri_dims_format(tsr_dims dims, char buf[TSRI_DIMS_TEXT_MAX])
{
    char *p = buf;
    *p = 0;
    for (int i = 0; i < dims.ndim; i++)
        p += sprintf(p, i ? ",%lld" : "%lld", (long long)dims.d[i]);
    return buf;
}

bool tsri_dims_fit(tsr_dims dims)
{
    int64_t n = 1;
    for (int i = 0; i < dims.ndim; i++) {
        if (dims.d[i] < 0 || dims.d[i] > TSRI_MAX_COUNT / n)
            return false;
        n *= dims.d[i] ? dims.d[i] : 1;
    }
    return true;
}

bool tsr_dims_equal(tsr_dims a, tsr_dims b)
{
    return a.ndim == b.ndim && !memcmp(a.d, b.d, (size_t)a.ndim * sizeof a.d[0]);
}
