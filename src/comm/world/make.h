/* SPDX-License-Identifier: Apache-2.0 */
/* How worlds come to be: what tsr_world_create and tsr_spawn share. */
#ifndef TESSERA_COMM_WORLD_MAKE_H
#define TESSERA_COMM_WORLD_MAKE_H

#include "src/comm/local/local.h"

/* Checks opts (NULL: all defaults) and fills what they and the environment leave open, for one of
 * nranks ranks of this machine. Errors: TSR_ERR_INVALID. */
tsr_status tsri_world_opts_resolve(const tsr_world_opts *opts, int nranks, tsr_world_opts *out);

/* Makes a world over the arena, which it takes if owns_arena, also on failure. ranks: those of this
 * machine, ascending, in the order of their places in the arena; NULL: all. */
tsr_status tsri_world_make(const tsr_world_opts *resolved, int nranks, int rank, int local_rank,
                           tsri_arena arena, bool owns_arena, const int *ranks,
                           tsr_world **out_world);

/* Runs a rank's function; a failure has a text. */
tsr_status tsri_world_run(tsr_world *world, tsr_rank_fn *fn, void *arg);

#endif
