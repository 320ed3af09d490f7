/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of a checkpoint: a safetensors file in which all is checked by sums. Its "__metadata__"
 * has the save's id, the sum of the header (as it is with zeros in that place), and the sum of
 * "tessera.checksums", a tensor with a sum of each block of the others, by their names.
 */
#ifndef TESSERA_TRAIN_CHECKPOINT_SHARD_H
#define TESSERA_TRAIN_CHECKPOINT_SHARD_H

#include "src/nn/safetensors.h"
#include "src/train/checkpoint/index.h"

/* Bytes of a block: what is read at least, and the memory that reading takes. */
enum { TSRI_CKPT_BLOCK = 256 * 1024 };

/* A tensor to be written. */
typedef struct tsri_ckpt_source {
    const char *name;
    tsr_dtype dtype;
    tsr_dims dims;
    const void *data; /* host memory, row-major */
} tsri_ckpt_source;

/* Writes a file that has its name when it is whole, and synced. `sources` are sorted by name. May
 * be called on any thread; mem is that thread's. */
tsr_status tsri_ckpt_shard_write(tsri_mem *mem, const char *path, const char *id, int n,
                                 tsri_ckpt_source *sources);

typedef struct tsri_ckpt_shard tsri_ckpt_shard;

/* Opens file `file` of the checkpoint in `folder`, and checks its header and its list of sums.
 * Errors: TSR_ERR_IO, TSR_ERR_FORMAT (malformed, damaged, of another save), TSR_ERR_NO_MEMORY. */
tsr_status tsri_ckpt_shard_open(tsri_mem *mem, const char *folder, const tsri_ckpt_index *index,
                                int file, tsri_ckpt_shard **out_shard);
/* NULL is fine. */
void tsri_ckpt_shard_close(tsri_ckpt_shard *shard);

/* Writes the name of a rank's own tensor, in its file, where ranks have different ones:
 * "loader@3". */
void tsri_ckpt_own_name(const char *name, int rank, char *buf, size_t size);
/* The tensor of the file that is this piece. TSR_ERR_FORMAT if it is not as the index says. */
tsr_status tsri_ckpt_shard_find(const tsri_ckpt_shard *shard, const tsri_ckpt_tensor *t, int piece,
                                const tsri_st_entry **out_entry);
/*
 * Reads bytes of an entry into dst (NULL: nowhere), and checks the blocks that they are in.
 * TSR_ERR_FORMAT naming the tensor if one is damaged.
 */
tsr_status tsri_ckpt_shard_read(tsri_ckpt_shard *shard, const tsri_st_entry *entry, uint64_t offset,
                                size_t bytes, void *dst);

#endif
