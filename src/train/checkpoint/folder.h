/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a run's checkpoints. One is written in ".step-00000100.ID" and gets its name when
 * all its files are there, by the rank that finds so: nothing that has the name is in parts. The
 * next run that saves removes what a killed run left; a lock on ".lock" tells whether a run saves.
 * Entries that no save has made stay (entries.h has what is one), and callers warn of them.
 */
#ifndef TESSERA_TRAIN_CHECKPOINT_FOLDER_H
#define TESSERA_TRAIN_CHECKPOINT_FOLDER_H

#include <limits.h>

#include "src/core/mem.h"

/* How often a reader lists a folder again whose checkpoints go before they are read. */
enum { TSRI_CKPT_LISTS = 100 };

/* A rule of which checkpoints stay: the newest ones, and the best. */
typedef struct tsri_ckpt_keep {
    int newest; /* 0: all */
    bool best, larger_is_better;
} tsri_ckpt_keep;

/* The entries that a removal has left: they belong to no checkpoint, or can't be removed. */
typedef struct tsri_ckpt_stays {
    int n;
    char names[600]; /* "'step-00000003/notes.txt', 'b'", as many as fit; printable */
} tsri_ckpt_stays;

/* FOLDER/step-00000100, and where it is written. TSR_ERR_INVALID if the path is too long. */
tsr_status tsri_ckpt_path(const char *folder, int64_t step, char out[PATH_MAX]);
tsr_status tsri_ckpt_making_path(const char *folder, int64_t step, const char *id,
                                 char out[PATH_MAX]);

/* The steps of the checkpoints, rising; the caller frees *out_steps. A folder that is not there has
 * none. A checkpoint that has shards, but has lost its index, is one of them. */
tsr_status tsri_ckpt_list(tsri_mem *mem, const char *folder, int64_t **out_steps, int *out_n);
/* The step of the one with the best metric; false: none has one. Checkpoints whose index can't be
 * read are passed over: *out_error is why the last one was, TSR_OK if none was. */
bool tsri_ckpt_best(tsri_mem *mem, const char *folder, const int64_t *steps, int n,
                    bool larger_is_better, int64_t *out_step, tsr_status *out_error);

/* Whether the checkpoint of a step that was listed, and can't be read, is no longer there: a run
 * that saves has removed it, or put another in its place. id: of the index that was read; "": none
 * was. */
bool tsri_ckpt_has_gone(tsri_mem *mem, const char *folder, int64_t step, const char *id);

/* Makes the folder, takes its lock, and removes what killed runs left. *out_fd is the lock's, to be
 * closed. Adds to *stays, as the others do. TSR_ERR_STATE if another run saves there. */
tsr_status tsri_ckpt_lock(const char *folder, int *out_fd, tsri_ckpt_stays *stays);
/* Gives the checkpoint its name if all of its files are there, and then removes those that are not
 * kept. May be called by any rank, at any time, again and again. `last`: all ranks have written, so
 * that a file that is not there is an error. */
tsr_status tsri_ckpt_commit(const char *folder, int64_t step, const char *id, int nfiles, bool last,
                            const tsri_ckpt_keep *keep, tsri_ckpt_stays *stays);
/* Removes the files of a save that has failed; none is fine. */
void tsri_ckpt_discard(const char *folder, int64_t step, const char *id, tsri_ckpt_stays *stays);

#endif
