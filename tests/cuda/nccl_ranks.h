/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the communicator over NCCL share: ranks with devices, and calls that are made
 * of both the host's communicator and the device's, with the same data. */
#ifndef TESSERA_TESTS_CUDA_NCCL_RANKS_H
#define TESSERA_TESTS_CUDA_NCCL_RANKS_H

#include "src/comm/comm.h"

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond))                                                                            \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %s", __FILE__, __LINE__, \
                             #cond, tsr_last_error());                                          \
    } while (0)
#define CHECK_TEXT(part) CHECK(strstr(tsr_last_error(), part))

/* A rank's device, its communicator, and the group of all ranks in both communicators. */
typedef struct nr_rank {
    tsr_world *world;
    tsri_device *device;
    tsri_comm *comm;
    tsri_group *group, *host_group;
} nr_rank;

/* lane: of the device's group. Collective over the world. */
tsr_status nr_open(tsr_world *w, int lane, nr_rank *out);
void nr_close(nr_rank *r);
/* Groups of the same ranks. */
tsr_status nr_groups(nr_rank *r, int n, const int *ranks, int lane, tsri_group **out_device,
                     tsri_group **out_host);

/* Whether this file's tests can run here: 0, or main's exit status. */
int nr_skip(void);
/* Runs fn on n ranks; fails the test if one of them fails. timeout_s 0: long. */
void nr_spawn(int n, tsr_rank_fn *fn, void *arg, double timeout_s);

/* A buffer of the device with what is in host memory; bytes may be 0. */
tsr_status nr_put(nr_rank *r, const void *data, size_t bytes, void **out);
tsr_status nr_get(nr_rank *r, const void *device, size_t bytes, void *out);

/* start, finish and release: the work is in the device's stream. */
tsr_status nr_call(tsri_group *g, const tsri_coll *c);
/* The status of a call; of its work, if the call itself succeeded. */
tsr_status nr_settle(nr_rank *r, tsr_status status);

#endif
