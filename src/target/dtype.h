/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of element types: one static table that all code reads; a further dtype is a row. */
#ifndef TESSERA_TARGET_DTYPE_H
#define TESSERA_TARGET_DTYPE_H

#include <tessera/base.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct tsri_dtype_facts {
    const char *name;              /* "bf16" */
    size_t size;                   /* bytes of an element */
    const char *safetensors, *npy; /* names in files; in .npy files bf16 is stored as f32 */
    bool is_float;
    /* These are 0 unless is_float. */
    int exponent, fraction; /* bits; the sign's is one more */
    double max;             /* the largest finite value */
    int digits;             /* significant decimals that tell values apart at a glance */
    /* The relative difference of results whose sums run in other orders; 1e-9 for integers. */
    double tolerance;
} tsri_dtype_facts;

extern const tsri_dtype_facts tsri_dtypes[TSR_DTYPE_COUNT_];

/* Returns the facts of a dtype; of an invalid one those of TSR_DTYPE_NONE, whose name is "?", whose
 * size is 0 and whose names in files are NULL. */
static inline const tsri_dtype_facts *tsri_dtype_of(tsr_dtype dtype)
{
    return &tsri_dtypes[(int)dtype > 0 && (int)dtype < TSR_DTYPE_COUNT_ ? (int)dtype : 0];
}

static inline bool tsri_is_float(tsr_dtype dtype)
{
    return tsri_dtype_of(dtype)->is_float;
}

/* Returns whether a dtype is a float of 16 bits. */
static inline bool tsri_is_half(tsr_dtype dtype)
{
    const tsri_dtype_facts *facts = tsri_dtype_of(dtype);
    return facts->is_float && facts->size == 2;
}

/* Returns whether autocast accepts a dtype: f16, bf16, or f32, which changes nothing. */
static inline bool tsri_is_autocast(tsr_dtype dtype)
{
    const tsri_dtype_facts *facts = tsri_dtype_of(dtype);
    return facts->is_float && facts->size <= 4;
}

#endif
