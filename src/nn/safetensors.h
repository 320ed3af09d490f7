/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors file format (github.com/huggingface/safetensors): 8 bytes little-endian N, N
 * bytes of a JSON header, and the tensors' bytes, row-major and little-endian, in one buffer
 * without gaps. The header maps names to {"dtype", "shape", "data_offsets": [begin, end]}, and
 * "__metadata__" to strings. Errors name the file and, where there is one, the tensor.
 */
#ifndef TESSERA_NN_SAFETENSORS_H
#define TESSERA_NN_SAFETENSORS_H

#include "src/core/mem.h"

#define TSRI_ST_MAX_HEADER 100000000 /* bytes, as the reference implementation has it */

/* --- reading ---------------------------------------------------------------------------------- */
typedef struct tsri_st_file tsri_st_file;

typedef struct tsri_st_entry {
    const char *name;
    const char *stored_dtype; /* as the file says it: "F32" */
    tsr_dtype dtype;          /* TSR_DTYPE_NONE: the format has it, Tessera hasn't */
    int ndim;                 /* may exceed TSR_MAX_NDIM: then dims is empty */
    tsr_dims dims;
    uint64_t begin, end; /* bytes, from the start of the buffer */
} tsri_st_entry;

/*
 * Opens a file and checks all of its header. Errors: TSR_ERR_IO, TSR_ERR_NO_MEMORY, and
 * TSR_ERR_FORMAT for whatever is malformed. Tensors that Tessera can't hold are no error here: see
 * tsri_st_usable.
 */
tsr_status tsri_st_open(tsri_mem *mem, const char *path, tsri_st_file **out_file);
/* NULL is fine. */
void tsri_st_close(tsri_st_file *file);
const char *tsri_st_path(const tsri_st_file *file);
/* The tensors, in the order of their bytes. They live as long as the file. */
int64_t tsri_st_count(const tsri_st_file *file);
const tsri_st_entry *tsri_st_at(const tsri_st_file *file, int64_t i);
/* By name; NULL if there is none. */
const tsri_st_entry *tsri_st_find(const tsri_st_file *file, const char *name);
/* The header's bytes as they are in the file, in memory of mem's. */
tsr_status tsri_st_header(const tsri_st_file *file, tsri_mem *mem, char **out_header,
                          size_t *out_bytes);
/* The value of a key of "__metadata__"; NULL if there is none. */
const char *tsri_st_metadata(const tsri_st_file *file, const char *key);
/* TSR_ERR_UNSUPPORTED if Tessera lacks the tensor's dtype, or takes fewer axes. */
tsr_status tsri_st_usable(const tsri_st_file *file, const tsri_st_entry *entry);
/* Reads `bytes` of the tensor from its byte `offset` on. Errors: tsri_st_usable's, TSR_ERR_INVALID
 * (outside of the tensor), TSR_ERR_IO (also when the file became shorter). */
tsr_status tsri_st_read(const tsri_st_file *file, const tsri_st_entry *entry, uint64_t offset,
                        size_t bytes, void *buf);

/* --- writing ---------------------------------------------------------------------------------- */
/* Writes a file that has its name when it is complete (src/core/new_file.h). */
typedef struct tsri_st_writer tsri_st_writer;

tsr_status tsri_st_writer_create(tsri_mem *mem, const char *path, tsri_st_writer **out_writer);
/* Declares a tensor, or a pair of "__metadata__". Names are unique, in UTF-8. */
tsr_status tsri_st_writer_add(tsri_st_writer *w, const char *name, tsr_dtype dtype, tsr_dims dims);
tsr_status tsri_st_writer_add_metadata(tsri_st_writer *w, const char *key, const char *value);
/* Changes the header in place, just before it is written: to put a checksum of it where a pair of
 * "__metadata__" has kept room. */
typedef void tsri_st_seal_fn(char *header, size_t bytes);
void tsri_st_writer_set_seal(tsri_st_writer *w, tsri_st_seal_fn *seal);
/* Ends the declarations: makes the file and writes its header. Tensors are laid out by alignment
 * (larger first), then by name. */
tsr_status tsri_st_writer_begin(tsri_st_writer *w);
/* Writes `bytes` of a tensor from its byte `offset` on. Pieces may come in any order, but each byte
 * once. */
tsr_status tsri_st_writer_write(tsri_st_writer *w, const char *name, uint64_t offset,
                                const void *data, size_t bytes);
/* Syncs the file and gives it its name. TSR_ERR_STATE naming a tensor that is not all written. Only
 * tsri_st_writer_destroy may follow. */
tsr_status tsri_st_writer_finish(tsri_st_writer *w);
/* Frees the writer; what isn't finished is removed. NULL is fine. */
void tsri_st_writer_destroy(tsri_st_writer *w);

#endif
