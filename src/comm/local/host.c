/* SPDX-License-Identifier: Apache-2.0 */
/* Moving in host memory: by the calling thread and its team, all done when a call returns. */
#include "src/comm/local/local.h"
#include "src/core/identity.h"

static tsr_status host_open(tsri_local_group *g)
{
    const tsri_arena *arena = &g->local->arena;
    for (int m = 0; m < g->pub.nranks; m++)
        g->peer[m] =
            (tsri_peer){tsri_arena_region(arena, tsri_local_place_of(g->local, g->pub.ranks[m])),
                        arena->layout.bytes_per_rank};
    return TSR_OK;
}

static tsr_status host_walk(tsri_local_group *g, const tsri_coll *c, const tsri_walk *w,
                            tsr_dtype dtype, int nsrc, const char *const *src, char *dst)
{
    tsri_walk_run(w, dtype, c->op, nsrc, src, dst, g->local->pub.world->threads);
    return TSR_OK;
}

static tsr_status host_fill(tsri_local_group *g, const tsri_coll *c, const tsri_segment *s)
{
    (void)g;
    tsri_fill_identity(s->dtype, c->op, s->dst_count, s->dst);
    return TSR_OK;
}

const tsri_mover tsri_mover_host = {.open = host_open, .walk = host_walk, .fill = host_fill};
