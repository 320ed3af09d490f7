/* SPDX-License-Identifier: Apache-2.0 */
/* A file of which rows are read while it lies on the disk: by any thread, at any place. A file that
 * shrinks meanwhile is an error, where under a mapping it would be a signal. */
#ifndef TESSERA_DATA_SETS_ROW_FILE_H
#define TESSERA_DATA_SETS_ROW_FILE_H

#include <limits.h>

#include "src/data/npy.h"

typedef struct tsri_row_file {
    char path[PATH_MAX];
    int fd;        /* -1: it is not open */
    int64_t bytes; /* when it was opened */
} tsri_row_file;

/* Opens a regular file. On an error there is nothing to close. */
tsr_status tsri_row_file_open(const char *path, tsri_row_file *out_file);
void tsri_row_file_close(tsri_row_file *file);
/* Reads exactly `bytes`, which begin at byte `at`. */
tsr_status tsri_row_file_read(const tsri_row_file *file, int64_t at, void *data, size_t bytes);
/* Opens a .npy file whose rows lie one behind the other in this machine's byte order; refuses
 * others by name. */
tsr_status tsri_row_file_open_npy(const char *path, tsri_npy *out_npy, tsri_row_file *out_file);
/* A whole number at `data`; *out_value. u8, i32 and i64 are such. */
bool tsri_is_whole(tsr_dtype dtype);
int64_t tsri_whole_number(tsr_dtype dtype, const void *data, int64_t i);

#endif
