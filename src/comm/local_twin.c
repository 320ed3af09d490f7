/* SPDX-License-Identifier: Apache-2.0 */
/* Another local communicator over the same arena and region, with channels of its own. */
#include "src/comm/local.h"

#include <unistd.h>

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
    for (int i = 0; local->pidfds && i < local->arena.nranks; i++)
        if (local->pidfds[i] > 0)
            close(local->pidfds[i] - 1);
    tsri_mem_free(local->pidfds);
    pthread_mutex_destroy(&local->lock);
    tsri_mem_free(local);
}

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "local",
    .group = tsri_local_group_find,
    .start = tsri_local_start,
    .finish = tsri_local_finish,
    .release = tsri_local_release,
    .exchange = tsri_local_exchange,
    .abort = tsri_local_abort,
    .stats = tsri_local_stats,
    .destroy = twin_destroy,
    .check = tsri_local_check,
    .task = tsri_local_task,
    .released = tsri_local_released,
    .poison = tsri_local_poison,
};

tsr_status tsri_local_twin(tsri_comm *c, tsri_comm **out_comm)
{
    tsri_local *host = c->priv, *local = tsri_mem_alloc(&c->world->mem, sizeof *local);
    if (!local)
        return TSR_ERR_NO_MEMORY;
    int nranks = host->arena.nranks;
    *local = (tsri_local){.pub = {.ops = &ops, .world = c->world, .priv = local, .in_region = true},
                          .host = host,
                          .mover = host->mover,
                          .region = host->region,
                          .first_lane = first_lane_of(++host->twins),
                          .arena = host->arena,
                          .worlds = host->worlds,
                          .spins = host->spins};
    pthread_mutex_init(&local->lock, NULL);
    local->pidfds = tsri_mem_alloc(&c->world->mem, (size_t)nranks * sizeof *local->pidfds);
    tsr_status status = local->pidfds ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsri_local_group_own(local, nranks, host->agree->pub.ranks,
                                      local->first_lane + TSRI_LANES - 1, &local->agree);
    if (status != TSR_OK) {
        twin_destroy(&local->pub);
        return status;
    }
    *out_comm = &local->pub;
    return TSR_OK;
}
