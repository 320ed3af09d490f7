/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_CORE_IDENTITY_H
#define TESSERA_CORE_IDENTITY_H

#include <tessera/sbp.h>

/* Fills dst[0, count) with the identity of a reduction: -0 for a sum or average of floats (0 for
 * whole numbers, false for bools), the lowest value or -inf for max, the highest or +inf for min, 1
 * (true) for a product. */
void tsri_fill_identity(tsr_dtype dtype, tsr_reduce_op op, int64_t count, void *dst);

#endif
