/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of rows by number: windows of a text, rows of .npy files, drawn ones. None is kept in
 * memory: a row is read from its file, or drawn, when a batch is made of it, by any thread.
 */
#ifndef TESSERA_DATA_ROW_SET_H
#define TESSERA_DATA_ROW_SET_H

#include <tessera/loader.h>

#include "src/data/npy.h"

typedef struct tsri_row_set tsri_row_set;
struct tsri_row_set {
    tsr_dtype dtype; /* of x; labels are i64 */
    tsr_dims x, y;   /* of a row; y of no axes: one label */
    int64_t count;
    tsr_status (*get)(const tsri_row_set *set, int64_t row, void *x, int64_t *y);
    void (*close)(tsri_row_set *set);
};

/* Closes a set, which no loader reads any more; NULL is fine. */
void tsri_row_set_close(tsri_row_set *set);

/* Rows first .. first + count - 1 of a set. It must stay where it is while a loader reads it. */
typedef struct tsri_row_part {
    const tsri_row_set *set;
    int64_t first, count;
} tsri_row_part;
/* Makes a loader of fields x and y; opts says how, but for the fields. */
tsr_status tsri_row_loader_create(tsr_world *world, tsri_row_part *part,
                                  const tsr_map_loader_opts *opts, tsr_loader **out_loader);

/* --- text ------------------------------------------------------------------------------------- */
/*
 * Opens windows of `context` elements, one behind the other, of x (context), and as labels y
 * (context) the element behind each. Elements are the bytes of the file; or, of a .npy file of one
 * axis, whole numbers below `vocab`. Errors, which name the file: TSR_ERR_IO, TSR_ERR_FORMAT where
 * it is shorter than a window, TSR_ERR_DTYPE where its elements are no whole numbers.
 */
tsr_status tsri_text_set_open(tsri_mem *mem, const char *path, bool is_npy, int64_t context,
                              int64_t vocab, tsri_row_set **out_set);
/* The largest element of a .npy file of whole numbers, all of which it reads; -1: it is empty.
 * Errors, which name the file: as above, and TSR_ERR_FORMAT for a negative number. */
tsr_status tsri_npy_largest(const char *path, int64_t *out_largest);

/* --- .npy files ------------------------------------------------------------------------------- */
typedef struct tsri_npy_set_opts {
    const char *x, *y; /* files of as many rows; y has one axis, of whole numbers below classes */
    int64_t classes;
    tsr_dtype dtype;  /* f32 or f64: of (x - mean) / std */
    double mean, std; /* std is not 0 */
} tsri_npy_set_opts;
/* The headers of both files, which must have as many rows, x at least two axes, and y one, of whole
 * numbers. Errors name the file: TSR_ERR_IO, TSR_ERR_FORMAT, TSR_ERR_SHAPE, TSR_ERR_DTYPE. */
tsr_status tsri_npy_set_check(const char *x, const char *y, tsri_npy *out_x, tsri_npy *out_y);
tsr_status tsri_npy_set_open(tsri_mem *mem, const tsri_npy_set_opts *opts, tsri_row_set **out_set);

/* --- drawn ------------------------------------------------------------------------------------ */
/* Rows of any shape as tsr_synthetic_open draws images, equal to its own: bytes / 255 in f32 or
 * f64, normalized to a mean of 0 and a deviation of 1 if asked to. classes: up to 2^31. */
tsr_status tsri_drawn_set_open(tsri_mem *mem, tsr_dtype dtype, tsr_dims shape, int64_t classes,
                               int64_t count, uint64_t seed, bool normalize,
                               tsri_row_set **out_set);

#endif
