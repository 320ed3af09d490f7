/* SPDX-License-Identifier: Apache-2.0 */
/* The experiment of a checkpoint: a text that says what the run computes. */
#ifndef TESSERA_TRAIN_RESUME_H
#define TESSERA_TRAIN_RESUME_H

#include <tessera/checkpoint.h>

/*
 * Compares the experiment of a checkpoint, before anything is loaded, with the one that goes on
 * from it. `path` is the checkpoint's. text: NULL if the checkpoint holds none. The load fails with
 * the status unless it is TSR_OK.
 */
typedef tsr_status tsri_ckpt_resume_fn(void *arg, const char *path, const char *text);

/*
 * Adds an experiment: a text, which must stay while the checkpoint is used. A load calls `resume`,
 * which says what may differ from the text of the checkpoint that is loaded. Where that checkpoint
 * has such a text, numbers of optimizers and scalers are those of the program that loads, as are
 * the seeds and orders of loaders, and what plateaus remember is loaded where a group's rate is
 * unchanged; states that one side alone has are left as they are. Otherwise loading wins. Errors:
 * tsr_checkpoint_add_bytes's.
 */
tsr_status tsri_checkpoint_add_experiment(tsr_checkpoint *c, const char *name, const char *text,
                                          tsri_ckpt_resume_fn *resume, void *arg);

#endif
