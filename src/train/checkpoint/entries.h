/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of a run's folder: which of them are checkpoints, and how one is removed. The folder
 * may come from a stranger, and a user may keep other files in it. So a name counts only where it
 * is whole, a link is removed as a link, and no file goes that a save does not write.
 *
 *   step-00000100                 a checkpoint: index.json and shard-00000-of-00004.safetensors
 *   .step-00000100.ID             one that is being written
 *   .commit-ID                    the mark of the rank that gives it its name
 *   .gone-00000100                one that is being removed, or (.gone-step-00000100) replaced
 */
#ifndef TESSERA_TRAIN_CHECKPOINT_ENTRIES_H
#define TESSERA_TRAIN_CHECKPOINT_ENTRIES_H

#include <dirent.h>

#include "src/train/checkpoint/folder.h"

enum { TSRI_CKPT_ENTRY = 96 }; /* bytes of an entry's name, its NUL included */

/* "step-00000100" */
void tsri_ckpt_step_name(char buf[TSRI_CKPT_ENTRY], int64_t step);
bool tsri_ckpt_is_step(const char *name, int64_t *out_step);
/* Whether a folder of this name was left by a save, or by a removal, that was killed. */
bool tsri_ckpt_is_left(const char *name);
/* ".commit-ID" */
bool tsri_ckpt_is_mark(const char *name);

/* The names in the folder of a descriptor, which it takes; NULL with errno. */
DIR *tsri_ckpt_names(int fd);
/* The next one, without "." and ".."; NULL at the end, with errno 0, and on an error. */
const char *tsri_ckpt_next_name(DIR *names);
/* Opens an entry that is a folder and no link; -1 with errno. */
int tsri_ckpt_open_entry(int folder, const char *name);
bool tsri_ckpt_is_link(int folder, const char *name);
/* Whether an entry, or what it links to, has an index, `or_shards`: or a shard, which has lost it.
 * If that can't be found out it has: an error must not hide a checkpoint. */
bool tsri_ckpt_is_checkpoint(int folder, const char *name, bool or_shards);

/* Notes an entry that stays; `within` is the folder that it lies in, "" for the run's own. */
void tsri_ckpt_note(tsri_ckpt_stays *stays, const char *within, const char *name);
/* Removes a checkpoint's files from the entry, its index first, and then the entry, which is
 * `shown` where something stays. A link goes as a link; what is no folder stays. Returns whether
 * all of the checkpoint's own has gone. */
bool tsri_ckpt_remove_entry(int folder, const char *name, const char *shown,
                            tsri_ckpt_stays *stays);
/* Moves foreign entries that stayed in the folder `from` into `to`. */
void tsri_ckpt_give_back(int folder, const char *from, const char *to);

#endif
