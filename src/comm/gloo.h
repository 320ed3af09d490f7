/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicator of ranks on several machines, on CPUs: Gloo, in a module of its own
 * (libtessera_gloo.so), which is loaded when a world first needs it.
 */
#ifndef TESSERA_COMM_GLOO_H
#define TESSERA_COMM_GLOO_H

#include <tessera/store.h>
#include "src/comm/comm.h"

/*
 * All ranks of the world, which meet in `store` (borrowed; used by this communicator, from one
 * thread at a time, until it is destroyed) and listen at `address` alone. Peers may lie anywhere in
 * a rank's memory (in_region is false). Collective over the world. Errors: TSR_ERR_UNSUPPORTED (no
 * module), TSR_ERR_TIMEOUT naming who did not come, TSR_ERR_BACKEND.
 */
tsr_status tsri_gloo_create(tsr_world *world, tsr_store *store, const char *address,
                            tsri_comm **out_comm);

#endif
