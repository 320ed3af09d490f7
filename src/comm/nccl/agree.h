/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a group tell each other about a call before NCCL is asked for anything, which
 * would hang, or mix up data, where they differ. */
#ifndef TESSERA_COMM_NCCL_AGREE_H
#define TESSERA_COMM_NCCL_AGREE_H

#include "src/comm/schedule/plan.h"

/*
 * Compares the call with the other members', and for SEND_RECV passes around what each reads:
 * *out_words, of which the caller frees `words`, NULL for other kinds. By world->comm, the host's
 * communicator, in a lane of its own. Collective over the group, in the same order on all its
 * members. Errors: TSR_ERR_MISMATCH with the same text on all; what the host's communicator meets;
 * a lack of memory, which has then been told to all.
 */
tsr_status tsri_nccl_agree(const tsri_group *g, const tsri_coll *coll, tsri_nccl_words *out_words);

#endif
