/* SPDX-License-Identifier: Apache-2.0 */
/* Another local communicator over the same arena and region, with channels of its own. */
#include "src/comm/local/local.h"

/* A twin's lanes lie below those of the communicators on the host and on devices. */
static int first_lane_of(int twin)
{
    return -(twin + 1) * TSRI_LANES;
}

static void twin_destroy(tsri_comm *c)
{
    if (!c)
        return;
    tsri_local *local = c->priv;
    tsri_local_groups_free(local);
    tsri_mem_free(local);
}

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "local",
    .group = tsri_local_group_find,
    .start = tsri_local_start,
    .finish = tsri_local_finish,
    .release = tsri_local_release,
    .abort = tsri_local_abort,
    .stats = tsri_local_stats,
    .destroy = twin_destroy,
    .check = tsri_local_check,
    .task = tsri_local_task,
    .released = tsri_local_released,
    .poison = tsri_local_poison,
    .ready = tsri_local_ready,
    .late = tsri_local_late,
    .lost = tsri_local_lost,
};

tsr_status tsri_local_twin(tsri_comm *c, tsri_comm **out_comm)
{
    tsri_local *host = c->priv, *local = tsri_mem_alloc(&c->world->mem, sizeof *local);
    TSRI_NEED(local);
    *local = (tsri_local){.pub = {.ops = &ops, .world = c->world, .priv = local, .in_region = true},
                          .host = host,
                          .mover = host->mover,
                          .region = host->region,
                          .first_lane = first_lane_of(++host->twins),
                          .arena = host->arena,
                          .worlds = host->worlds,
                          .spins = host->spins};
    *out_comm = &local->pub;
    return TSR_OK;
}
