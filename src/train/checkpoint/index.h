/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint on the disk, and its index:
 *
 *   FOLDER/step-00000100/index.json                         what there is, and where
 *   FOLDER/step-00000100/shard-00000-of-00004.safetensors   the pieces that rank 0 has written
 *
 * The index is an object of one tensor a line. Its last member, "checksum", is the XXH3 (64 bits,
 * hexadecimal) of all text before that line.
 */
#ifndef TESSERA_TRAIN_CHECKPOINT_INDEX_H
#define TESSERA_TRAIN_CHECKPOINT_INDEX_H

#include "src/core/mem.h"

enum {
    TSRI_CKPT_ID = 33,        /* bytes of an id's text, its NUL included */
    TSRI_CKPT_NAME = 1024,    /* of a tensor's name, a rank's number included */
    TSRI_CKPT_FILE_NAME = 64, /* of the name of a file of a checkpoint */
};

/* A box of a tensor, all of which is one tensor of a file. */
typedef struct tsri_ckpt_piece {
    int file;
    int64_t offset[TSR_MAX_NDIM];
    tsr_dims dims;
} tsri_ckpt_piece;

typedef struct tsri_ckpt_tensor {
    const char *name; /* "model/fc.weight" */
    tsr_dtype dtype;
    tsr_dims dims;               /* of the boxes */
    tsr_dims saved;              /* that its program has in files; of as many elements */
    const char *placement, *sbp; /* texts: how it was laid out when it was saved; "" for values */
    /* Every rank has one of its own. One piece: they were equal; else piece i is rank i's, whole.
     */
    bool own;
    int npieces; /* cells of a grid over the tensor: disjoint, and all of it; each in another file
                  */
    tsri_ckpt_piece *pieces;
} tsri_ckpt_tensor;

typedef struct tsri_ckpt_index {
    tsri_pool pool;
    char id[TSRI_CKPT_ID]; /* of this save, the same in all its files */
    char time[32];         /* of the save, UTC */
    int64_t step;
    double metric; /* NAN: none */
    int nfiles;    /* and ranks of the run that saved, unless it asked for one file */
    int nranks;
    int ntensors, capacity;
    tsri_ckpt_tensor *tensors; /* by name */
} tsri_ckpt_index;

/* "shard-00000-of-00004.safetensors" */
void tsri_ckpt_file_name(char buf[TSRI_CKPT_FILE_NAME], int file, int nfiles);

/* The text of an index, whose tensors are sorted by it; the caller frees it (free). */
tsr_status tsri_ckpt_index_text(tsri_ckpt_index *index, char **out_text, size_t *out_bytes);
/* An index from its text; see tsri_ckpt_index_read. `path` is for messages. */
tsr_status tsri_ckpt_index_parse(tsri_mem *mem, const char *path, const char *text, size_t bytes,
                                 tsri_ckpt_index *out_index);
/* Writes an index into `folder`; its tensors are sorted by it. */
tsr_status tsri_ckpt_index_write(tsri_ckpt_index *index, const char *folder);
/*
 * Reads the index of a checkpoint. On success the caller frees it by tsri_ckpt_index_finish.
 * Errors: TSR_ERR_IO, TSR_ERR_NO_MEMORY, TSR_ERR_FORMAT saying what is wrong with it.
 */
tsr_status tsri_ckpt_index_read(tsri_mem *mem, const char *folder, tsri_ckpt_index *out_index);
void tsri_ckpt_index_finish(tsri_ckpt_index *index);
/* NULL if there is none of that name. */
const tsri_ckpt_tensor *tsri_ckpt_index_find(const tsri_ckpt_index *index, const char *name);

#endif
