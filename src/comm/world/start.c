/* SPDX-License-Identifier: Apache-2.0 */
/* Starts ranks: a process that a launcher or an address declares to be a rank becomes that rank,
 * any other spawns thread ranks. */
#include "src/comm/world/ident.h"
#include "src/comm/world/make.h"

#include <stdio.h>

/* Runs fn as the one rank that this process is, and tells the other ranks if it fails. */
static tsr_status run_as_rank(tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts)
{
    tsr_world *world;
    char text[3800];
    TSRI_TRY(tsr_world_create(opts, &world));
    tsr_status status = tsri_world_run(world, fn, arg);
    if (status == TSR_OK) {
        tsr_world_destroy(world);
        return TSR_OK;
    }
    snprintf(text, sizeof text, "rank %d: %s", tsr_world_rank(world), tsr_last_error());
    tsr_world_abort(world, tsr_last_error());
    tsr_world_destroy(world);
    return tsri_fail(status, "%s", text);
}

tsr_status tsr_start_ranks_with(int nranks, tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts)
{
    tsr_world_opts resolved;
    tsri_ident id; /* id.by is NULL where nothing says that this process is a rank */
    if (!fn)
        return tsri_fail(TSR_ERR_INVALID, "tsr_start_ranks without a function");
    if (nranks < 1) /* also where a launcher's number counts: the program is wrong all the same */
        return tsri_fail(TSR_ERR_INVALID, "tsr_start_ranks of %d ranks: expected at least 1",
                         nranks);
    TSRI_TRY(tsri_world_opts_resolve(opts, 1, &resolved));
    TSRI_TRY(tsri_ident_read(resolved.init_method, &id));
    return id.by ? run_as_rank(fn, arg, opts) : tsr_spawn_with(nranks, fn, arg, opts);
}

tsr_status tsr_start_ranks(int nranks, tsr_rank_fn *fn, void *arg)
{
    return tsr_start_ranks_with(nranks, fn, arg, NULL);
}
