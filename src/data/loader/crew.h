/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers of a data loader, and the ring of slots that they make batches in. Batch k is worker
 * k mod nworkers' work. Without workers the consumer makes a batch when it waits for it. All calls
 * are the consumer's.
 */
#ifndef TESSERA_DATA_LOADER_CREW_H
#define TESSERA_DATA_LOADER_CREW_H

#include "src/data/loader/batch_make.h"

typedef struct tsri_crew tsri_crew;

/* spec stays the caller's. nworkers 0: one slot. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsri_crew_create(tsri_mem *mem, const tsri_batch_spec *spec, int nworkers, int nslots,
                            tsri_crew **out_crew);
/* At any moment; waits for the samples in work. NULL is fine. */
void tsri_crew_destroy(tsri_crew *crew);

/* Begins an epoch at batch `first`; starts threads, if they aren't running. Nothing is in work.
 * TSR_ERR_BACKEND: none run then. */
tsr_status tsri_crew_start(tsri_crew *crew, int64_t epoch, uint64_t base_seed, int64_t first);
/* Drops what was made and is in work, and waits for the latter. Threads stay. */
void tsri_crew_halt(tsri_crew *crew);
/* Halts, and ends the threads. */
void tsri_crew_dismiss(tsri_crew *crew);

/* The slot of the next batch to hand out, for the caller to fill; tsri_crew_hand does it. */
tsri_batch_slot *tsri_crew_slot(tsri_crew *crew);
void tsri_crew_hand(tsri_crew *crew);
/* Batches handed out, and taken, of this epoch: from `first` on. */
int64_t tsri_crew_handed(const tsri_crew *crew);
int64_t tsri_crew_taken(const tsri_crew *crew);
/* Rows of the batch `taken`, which was handed out. */
int64_t tsri_crew_next_rows(tsri_crew *crew);
/* Waits for the batch `taken`, which was handed out, and takes it; its slot is the caller's until
 * the next wait. timeout_s 0: for ever. TSR_ERR_TIMEOUT: it can be waited for again. */
tsr_status tsri_crew_take(tsri_crew *crew, double timeout_s, tsri_batch_slot **out_slot);

#endif
