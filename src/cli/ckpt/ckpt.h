/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tessera ckpt`: checkpoints without a program.
 *
 *   source.c    the tensors of a checkpoint or of a safetensors file, whole
 *   verify.c  convert.c  compare.c    one action each
 *   command.c   the command lines, and lists
 */
#ifndef TESSERA_CLI_CKPT_CKPT_H
#define TESSERA_CLI_CKPT_CKPT_H

#include <limits.h>

#include "src/cli/cli.h"
#include "src/train/checkpoint/index.h"
#include "src/train/checkpoint/shard.h"

/* A tensor of a source. */
typedef struct ckpt_tensor {
    const char *name;
    tsr_dtype dtype;
    tsr_dims dims;
    bool is_value; /* bytes of a checkpoint that are no tensor of the program's */
    int entry;     /* of the index, or of the file */
    int piece;     /* of a tensor that each rank has of its own; -1: all pieces */
} ckpt_tensor;

typedef struct ckpt_source {
    char path[PATH_MAX]; /* of the checkpoint, or of the file */
    bool is_checkpoint;
    tsri_ckpt_index index;
    tsri_ckpt_shard **shards; /* by file; NULL: not open yet */
    tsri_st_file *file;       /* of a source that is no checkpoint */
    tsri_pool pool;
    int ntensors, capacity;
    ckpt_tensor *tensors; /* by name */
} ckpt_source;

/* Opens a checkpoint, the newest one of a run's folder, or a safetensors file. The caller closes
 * it, also after an error. `reads`: its tensors will be read, so that all of its files are opened:
 * they stay readable where a run that saves removes them meanwhile. */
tsr_status ckpt_open(const char *path, bool reads, ckpt_source *out_source);
/* The steps of the checkpoints in a run's folder, rising, which the caller frees by tsri_mem_free;
 * none for a checkpoint, or for a path that is no folder. */
tsr_status ckpt_steps(const char *path, int64_t **out_steps, int *out_n);
void ckpt_close(ckpt_source *s);
/* NULL if there is none of that name. */
const ckpt_tensor *ckpt_find(const ckpt_source *s, const char *name);
/* Reads and checks all of a tensor: row-major, of its own dtype. */
tsr_status ckpt_read(ckpt_source *s, const ckpt_tensor *t, void *out_data);
size_t ckpt_bytes(const ckpt_tensor *t);
/* Puts the rows of a piece, row-major at `from`, where they lie in the whole tensor `to`. */
void ckpt_place(const tsri_ckpt_tensor *t, const tsri_ckpt_piece *p, const char *from, char *to);
/* File `file` of a checkpoint; opened and checked if it is not yet. */
tsr_status ckpt_shard(ckpt_source *s, int file, tsri_ckpt_shard **out_shard);

/* Checks all bytes of checkpoints and safetensors files. Returns the exit code. */
int ckpt_verify(int n, char **paths);
/* Writes a source's tensors as one safetensors file. part: those of this part alone, under their
 * own names; NULL: all. dtype: floating-point ones become it; TSR_DTYPE_NONE: they stay. */
int ckpt_convert(const char *from, const char *to, const char *part, tsr_dtype dtype);
/* Tells in what two sources differ, by more than `tolerance`. Returns CLI_FAILED if they do. */
int ckpt_compare(const char *a, const char *b, const char *part, double tolerance);

#endif
