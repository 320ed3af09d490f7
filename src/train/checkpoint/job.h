/* SPDX-License-Identifier: Apache-2.0 */
/* The writing of this rank's part of a checkpoint: on a thread of its own, or on the caller's. */
#ifndef TESSERA_TRAIN_CHECKPOINT_JOB_H
#define TESSERA_TRAIN_CHECKPOINT_JOB_H

#include <limits.h>
#include <pthread.h>

#include "src/train/checkpoint/checkpoint.h"
#include "src/train/checkpoint/folder.h"
#include "src/train/checkpoint/shard.h"

typedef struct tsri_ckpt_job {
    tsri_mem mem; /* the thread's own */
    tsri_pool pool;
    const char *folder;
    char making[PATH_MAX];
    int rank, nfiles;      /* it writes the file of its number, and rank 0 the index */
    tsri_ckpt_index index; /* the same on all ranks */
    int nsources, capacity;
    tsri_ckpt_source *sources;
    tsri_ckpt_keep keep;
    pthread_t thread;
    bool is_thread;
    tsr_status status;
    char text[1024]; /* of the error */
    tsri_ckpt_stays stays;
} tsri_ckpt_job;

/* Starts the job of c->job: tsri_ckpt_join ends it. */
void tsri_ckpt_job_start(tsr_checkpoint *c);
/* Logs what removing checkpoints has left, if there is any. */
void tsri_ckpt_warn(const tsr_checkpoint *c, const tsri_ckpt_stays *stays);
/* Frees a job that does not run. */
void tsri_ckpt_job_free(tsri_ckpt_job *job);

#endif
