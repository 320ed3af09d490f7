/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks that no launcher gave shared memory find those of their own machine. */
#ifndef TESSERA_COMM_WORLD_MEET_H
#define TESSERA_COMM_WORLD_MEET_H

#include <tessera/store.h>
#include "src/comm/local/local.h"

/* The ranks of one machine, and their arena. */
typedef struct tsri_machine {
    int nranks, index;              /* index: this rank's among them */
    int rank[TSRI_ARENA_MAX_RANKS]; /* ascending */
    tsri_arena arena;
} tsri_machine;

/*
 * All ranks of the store meet in it. Ranks of a machine that can see each other's processes get an
 * arena, which the lowest of them makes and the others open; a rank that nobody can see, or that
 * sees nobody, is a machine of its own. arena_bytes: per rank, 0 for the default. Collective over
 * all ranks; nothing stays open but the mapping. The caller unmaps. Errors: TSR_ERR_INVALID,
 * TSR_ERR_NO_MEMORY, TSR_ERR_TIMEOUT naming who did not come, and the store's.
 */
tsr_status tsri_machine_meet(tsr_store *store, int rank, int nranks, size_t arena_bytes,
                             tsri_machine *out);
/* Names the machine as long as it runs, which containers share: the system's number of this start,
 * or else the host's name. */
void tsri_machine_boot(char *buf, size_t size);
/* An address of this machine that others may know, for a store that knows none. */
void tsri_machine_address(char *buf, size_t size);

#endif
