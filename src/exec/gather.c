/* SPDX-License-Identifier: Apache-2.0 */
/* Words that ranks of a plan show each other beside its own communication. */
#include <string.h>

#include "src/plan/plan.h"

/* A lane of the host's communicator, beside those of tensors. */
enum { BESIDE_LANE = 2 };

static tsr_status all_gather(tsri_comm *host, int n, const int *peers, const tsri_coll *coll)
{
    tsri_group *group;
    TSRI_TRY(host->ops->group(host, n, peers, BESIDE_LANE, &group));
    return tsri_comm_call(group, coll);
}

tsr_status tsri_plan_gather(const tsr_plan *plan, int n, const int *peers, const char *what,
                            int64_t words, const int64_t *mine, int64_t *all)
{
    tsr_world *w = plan->world;
    size_t bytes = (size_t)words * sizeof *mine;
    void *src; /* what peers read lies in the rank's region */
    TSRI_TRY(tsri_region_alloc(&w->region, bytes, &src));
    memcpy(src, mine, bytes);
    const tsri_segment seg = {.src = src,
                              .dst = all,
                              .dtype = TSR_I64,
                              .shape = TSR_DIMS(n, words),
                              .src_axis = 0,
                              .dst_axis = -1};
    const tsri_coll coll = {.kind = TSRI_COLL_ALL_GATHER, .nseg = 1, .seg = &seg, .what = what};
    tsri_comm_stats before;
    tsri_plan_stats(w, &before);
    tsr_status status = all_gather(w->comm, n, peers, &coll);
    tsri_plan_uncount(plan, &before);
    tsri_region_free(&w->region, src, bytes);
    return status;
}
