/* SPDX-License-Identifier: Apache-2.0 */
/* Starts ranks: this process is one where a launcher started it, else it spawns threads. */
#include "src/comm/world/ident.h"
#include "src/comm/world/make.h"

#include <stdio.h>

/* Runs fn as the one rank that this process is; a failure of it is told to the other ranks. */
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
    tsr_world_opts o;
    tsri_ident id;
    if (!fn)
        return tsri_fail(TSR_ERR_INVALID, "tsr_start_ranks without a function");
    TSRI_TRY(tsri_world_opts_resolve(opts, 1, &o));
    TSRI_TRY(tsri_ident_read(o.init_method, &id));
    return id.by ? run_as_rank(fn, arg, opts) : tsr_spawn_with(nranks, fn, arg, opts);
}

tsr_status tsr_start_ranks(int nranks, tsr_rank_fn *fn, void *arg)
{
    return tsr_start_ranks_with(nranks, fn, arg, NULL);
}
