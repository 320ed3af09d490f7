/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of shapes, so that products of any of their axes, and bytes, stay within 64 bits; divisors
 * of sizes; shapes as text. */
#ifndef TESSERA_CORE_DIMS_H
#define TESSERA_CORE_DIMS_H

#include <tessera/base.h>
#include "src/target/dtype.h"

#define TSRI_MAX_COUNT (INT64_C(1) << 56)

/* Whether the axes that are not empty make at most TSRI_MAX_COUNT elements; none may be negative.
 * A shape with no elements at all can fail, too: parts of it are counted without its empty axes. */
bool tsri_dims_fit(tsr_dims dims);

/* Returns the greatest common divisor of two numbers that are not negative; of 0 and b it is b. */
static inline int64_t tsri_gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Returns the least common multiple of two positive numbers. */
static inline int64_t tsri_lcm(int64_t a, int64_t b)
{
    return a / tsri_gcd(a, b) * b;
}

/* Writes "4,5", without brackets, and returns buf. */
enum { TSRI_DIMS_TEXT_MAX = 21 * TSR_MAX_NDIM + 1 };
const char *tsri_dims_format(tsr_dims dims, char buf[TSRI_DIMS_TEXT_MAX]);

#endif
