/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicator of ranks on several machines. Groups whose ranks are all on this machine are the
 * local communicator's (shared memory), those that span machines the remote one's, which has all
 * ranks of the world. An abort, or a death that either finds, ends both, so that it reaches every
 * rank of every machine.
 */
#ifndef TESSERA_COMM_WORLD_HOSTS_H
#define TESSERA_COMM_WORLD_HOSTS_H

#include <tessera/store.h>
#include "src/comm/comm.h"

/*
 * local: this machine's (tsri_local_create with its ranks); remote: of all the world's ranks, whose
 * memory it reads wherever it is; store: closed when the communicator is destroyed, may be NULL;
 * folder: removed after that, if it is empty; NULL: none. Takes the first three, also on failure.
 * Not collective.
 */
tsr_status tsri_hosts_create(tsr_world *world, tsri_comm *local, tsri_comm *remote,
                             tsr_store *store, const char *folder, tsri_comm **out_comm);

#endif
