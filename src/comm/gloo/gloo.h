/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicator of ranks on several machines, on CPUs: Gloo, in a module of its own
 * (libtessera_gloo.so), which is loaded when a world first needs it.
 *
 * It does what comm.h says of any communicator, and:
 * - A group's first call connects its members: for that one all of them must come, in whatever
 *   order each first uses its groups. Groups never wait for each other.
 * - Calls proceed between start and finish, by a thread of the group.
 * - A prepared call is not compared with the others' any more. Its members must make the same
 *   prepared calls in the same order; where they do not, it ends in TSR_ERR_TIMEOUT.
 * - A rank that died, left, or made no progress for world->timeout_s while another waited for it,
 *   ends the work of the whole world, twins included: all get that one's TSR_ERR_DEAD or
 *   TSR_ERR_TIMEOUT (the late one itself: TSR_ERR_REMOTE). So does TSR_ERR_MISMATCH in a SEND_RECV.
 * - Groups of more than 256 ranks have barriers alone: TSR_ERR_UNSUPPORTED.
 * - stats: bytes_read is what this rank has received, and equals tsri_coll_bytes (records aside).
 */
#ifndef TESSERA_COMM_GLOO_GLOO_H
#define TESSERA_COMM_GLOO_GLOO_H

#include <tessera/store.h>
#include "src/comm/comm.h"

/*
 * All ranks of the world, which meet in `store` (borrowed; used by this communicator, from one
 * thread at a time, until it is destroyed; its timeout becomes 20 s) and listen at `address` alone.
 * Peers may lie anywhere in a rank's memory (in_region is false). Collective over the world.
 * Errors: TSR_ERR_UNSUPPORTED (no module), TSR_ERR_TIMEOUT naming who did not come,
 * TSR_ERR_BACKEND.
 */
tsr_status tsri_gloo_create(tsr_world *world, tsr_store *store, const char *address,
                            tsri_comm **out_comm);

#endif
