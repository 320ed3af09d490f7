/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-in for NCCL was asked, for tests: found in the emulated module by dlsym. */
#ifndef TESSERA_TESTS_CUDA_NCCL_LOG_H
#define TESSERA_TESTS_CUDA_NCCL_LOG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsri_emulated_nccl_call {
    int clique, rank, nranks; /* clique: the number of the communicator, the same on its ranks */
    int group;                /* the rank's how-manieth launch on the clique */
    const char *name;         /* "AllReduce": static */
    size_t count;
    int type, op, peer; /* of NCCL; op and peer -1 where there is none */
    int captured;       /* it was put into a graph */
    int registered;     /* all its memory is registered with the communicator */
} tsri_emulated_nccl_call;

/* Copies up to `most` calls since the last clear; returns how many there are. */
int tsri_emulated_nccl_log(int most, tsri_emulated_nccl_call *out_calls);
void tsri_emulated_nccl_clear(void);

typedef int tsri_emulated_nccl_log_fn(int most, tsri_emulated_nccl_call *out_calls);
typedef void tsri_emulated_nccl_clear_fn(void);

#ifdef __cplusplus
}
#endif
#endif
