/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks for tests that hold for any communicator. Linked with ranks_local.c, thread ranks talk
 * through the arena; with ranks_gloo.c, the same ranks talk through Gloo, on loopback. */
#ifndef TESTS_DIST_RANKS_H
#define TESTS_DIST_RANKS_H

#include <tessera/world.h>

/* As tsr_spawn_with. */
tsr_status test_ranks(int nranks, tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts);
/* "local" or "gloo". */
const char *test_ranks_comm(void);

#endif
