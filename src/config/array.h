/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in nested lists. */
#ifndef TESSERA_CONFIG_ARRAY_H
#define TESSERA_CONFIG_ARRAY_H

#include <tessera/base.h>
#include "src/config/tree.h"

/* Checks that the lists are even and that each number is one of the dtype; tells the shape. */
tsr_status tsri_array_check(const tsri_yaml *node, tsr_dtype dtype, tsr_dims *out_dims);
/* Writes the numbers of a checked array, row by row. */
tsr_status tsri_array_fill(const tsri_yaml *node, tsr_dtype dtype, void *data);
/* Writes one number: v where the dtype is a floating one, else i, which is in its range. */
void tsri_number_store(tsr_dtype dtype, double v, int64_t i, void *at);
/* The largest finite number of a floating-point dtype. */
double tsri_dtype_max(tsr_dtype dtype);

#endif
