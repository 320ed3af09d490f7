/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work done ahead by threads: numbered items, each made into a slot of a ring, and taken in order
 * by one consumer. Nobody spins. All calls but the work itself are the consumer's.
 */
#ifndef TESSERA_DATA_LOADER_RING_H
#define TESSERA_DATA_LOADER_RING_H

#include "src/core/mem.h"

typedef struct tsri_ring tsri_ring;

/* Makes item `item` into `slot`. On a worker thread: no allocation through tsri_mem there. */
typedef void tsri_ring_fn(void *arg, int64_t item, void *slot);

/* Paused: nothing is made before tsri_ring_start. Errors: TSR_ERR_NO_MEMORY, TSR_ERR_BACKEND when a
 * thread can't be started. */
tsr_status tsri_ring_create(tsri_mem *mem, int nslots, size_t slot_bytes, int nthreads,
                            tsri_ring_fn *fn, void *arg, tsri_ring **out_ring);
/* At any moment; waits for the items in work. NULL is fine. */
void tsri_ring_destroy(tsri_ring *ring);

/* Waits until no thread works, and drops what was made: what fn reads may then be changed. */
void tsri_ring_pause(tsri_ring *ring);
/* Lets the threads make the items first .. end-1. The ring is paused. */
void tsri_ring_start(tsri_ring *ring, int64_t first, int64_t end);
/* Waits for the next item, which must be below `end`. The slot is the caller's until
 * tsri_ring_release, which moves on. */
const void *tsri_ring_take(tsri_ring *ring);
void tsri_ring_release(tsri_ring *ring);

#endif
