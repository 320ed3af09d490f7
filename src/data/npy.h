/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's .npy files, versions 1 to 3 of the format (NEP 1 and numpy.lib.format): one array with
 * its dtype and shape. Both byte orders and both orders of axes are read; values come row by row.
 */
#ifndef TESSERA_DATA_NPY_H
#define TESSERA_DATA_NPY_H

#include "src/core/mem.h"

/* The contents of a header. */
typedef struct tsri_npy {
    tsr_dtype dtype; /* f2 f4 f8 i4 i8 u1 b1 as F16 F32 F64 I32 I64 U8 BOOL */
    tsr_dims dims;
    bool fortran;         /* the first axis runs fastest */
    bool swapped;         /* the other byte order than this machine's */
    size_t offset, bytes; /* of the values in the file */
} tsri_npy;

/*
 * Reads the header of a file in memory. `name` is for errors: TSR_ERR_FORMAT for what is no .npy
 * file, incomplete or longer than it says, TSR_ERR_DTYPE for elements that Tessera doesn't have.
 */
tsr_status tsri_npy_parse(const char *name, const void *data, size_t size, tsri_npy *out_npy);
/* Writes the values of a parsed file, row-major, of npy->dtype in this machine's order, into
 * out_values (npy->bytes). `data` is the file. */
void tsri_npy_values(const tsri_npy *npy, const void *data, void *out_values);

/* The header of a file. TSR_ERR_IO if it can't be read. */
tsr_status tsri_npy_open(const char *path, tsri_npy *out_npy);
/* The header and the values, which the caller frees with tsri_mem_free. */
tsr_status tsri_npy_read(tsri_mem *mem, const char *path, tsri_npy *out_npy, void **out_values);
/*
 * Writes a row-major array as a version 1 file; bf16, which NumPy doesn't have, as f4. The file
 * takes its name when it is complete. Errors: TSR_ERR_IO, TSR_ERR_NO_MEMORY, TSR_ERR_INVALID.
 */
tsr_status tsri_npy_write(const char *path, tsr_dtype dtype, tsr_dims dims, const void *values);

#endif
