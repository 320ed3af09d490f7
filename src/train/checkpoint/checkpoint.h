/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of checkpoints.
 *
 *   checksum.c  index.c  shard.c  folder.c     what is on the disk; they know no world
 *   parts.c     what a program adds, and its values as bytes
 *   items.c     the parts' tensors and values, one list on all ranks
 *   job.c       the writing, on a thread of its own where the user asks for it
 *   save.c      who writes what, and copies of it
 *   load.c      from the pieces of a checkpoint to the shards here
 */
#ifndef TESSERA_TRAIN_CHECKPOINT_CHECKPOINT_H
#define TESSERA_TRAIN_CHECKPOINT_CHECKPOINT_H

#include <tessera/checkpoint.h>
#include "src/graph/graph.h"
#include "src/train/resume.h"

typedef enum tsri_part_kind {
    TSRI_PART_MODULE = 0,
    TSRI_PART_OPTIMIZER,
    TSRI_PART_SCALER,
    TSRI_PART_LOADER,
    TSRI_PART_SAMPLER,
    TSRI_PART_BATCH_SAMPLER,
    TSRI_PART_GENERATOR,
    TSRI_PART_BYTES,
    TSRI_PART_EXPERIMENT,
} tsri_part_kind;

typedef struct tsri_part {
    const char *name;
    tsri_part_kind kind;
    void *object;
    size_t bytes;     /* TSRI_PART_BYTES: of the object */
    const char *text; /* TSRI_PART_EXPERIMENT, as the next two */
    tsri_ckpt_resume_fn *resume;
    void *arg;
} tsri_part;

struct tsri_ckpt_job;

struct tsr_checkpoint {
    tsri_owned owned;
    tsr_world *world;
    const char *folder;
    tsr_checkpoint_opts opts;
    tsri_pool pool;
    tsri_part *parts;
    int nparts, capacity;
    int lock_fd;               /* rank 0's, from its first save; -1: none */
    struct tsri_ckpt_job *job; /* the save under way; NULL: none */
    /* The checkpoint that is loaded holds its experiment, so that numbers are the program's: see
     * tsri_checkpoint_add_experiment. */
    bool program_wins;
    char *copies; /* what it copied; kept for the next one */
    size_t copies_bytes;
};

/* Something that is saved under a name: a variable, or the bytes of a value. */
typedef struct tsri_item {
    const char *name; /* "model/fc.weight" */
    const tsri_part *part;
    tsr_variable *variable; /* NULL: a value */
    bool own;               /* each rank has one of its own */
    bool may_lack;          /* a checkpoint without it is none too few */
    char *bytes;            /* a value's */
    size_t nbytes;
} tsri_item;

typedef struct tsri_items {
    tsri_pool *pool;
    int n, capacity;
    tsri_item *item;
} tsri_items;

/* Lists all tensors and values of the parts; values with their bytes. In pool memory. */
tsr_status tsri_ckpt_items(tsr_checkpoint *c, bool to_save, tsri_pool *pool, tsri_items *out_items);

/* The bytes of a part's value, in pool memory; NULL bytes: it has none. */
tsr_status tsri_part_get(const tsri_part *part, tsri_pool *pool, char **out_bytes, size_t *out_n);
/* Puts such bytes back. `moved`: they are of rank 0 of a run with another number of ranks.
 * program_wins: see tsr_checkpoint. On an error nothing is changed. */
tsr_status tsri_part_set(const tsri_part *part, tsri_pool *pool, const char *bytes, size_t n,
                         bool moved, bool program_wins);

/* Ends the save under way on this rank, if there is one; returns how it ended. */
tsr_status tsri_ckpt_join(tsr_checkpoint *c);

#endif
