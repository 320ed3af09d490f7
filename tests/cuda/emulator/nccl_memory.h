/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_TESTS_CUDA_NCCL_MEMORY_H
#define TESSERA_TESTS_CUDA_NCCL_MEMORY_H

#include <nccl.h>

/* Whether a communicator has registered these bytes; nothing always is. */
bool tsri_emulated_is_registered(ncclComm_t comm, const void *p, size_t bytes);
/* A communicator ends; aborted: NCCL deregisters what is left. */
void tsri_emulated_deregister_all(ncclComm_t comm, bool aborted);

#endif
