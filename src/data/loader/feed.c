/* SPDX-License-Identifier: Apache-2.0 */
/* Which inputs of a plan there are, and which rows of them a rank holds. */
#include "src/data/loader/feed.h"

#include <string.h>

tsr_status tsri_feed_find(tsr_plan *plan, const char *name, tsri_ir_port **out_port)
{
    for (int i = 0; i < plan->ir.nports; i++)
        if (plan->ir.ports[i].info.is_input && !strcmp(plan->ir.ports[i].info.name, name)) {
            *out_port = &plan->ir.ports[i];
            return TSR_OK;
        }
    return tsri_fail(TSR_ERR_INVALID, "tsr_loader_feed: the plan has no input named '%s'", name);
}

bool tsri_feed_rows(const tsri_ir_port *p, int rank, tsri_rank_rows *out_rows)
{
    const tsr_placement *place = p->info.placement;
    int at = tsr_placement_find(place, rank), inner = tsr_placement_nranks(place);
    *out_rows = (tsri_rank_rows){0};
    for (int d = 0; d < p->info.sbp.ndim && at >= 0; d++) {
        tsr_sbp1 s = p->info.sbp.d[d];
        int k = tsr_placement_dim(place, d);
        inner /= k;
        if (k == 1 || s.kind == TSR_SBP_BROADCAST)
            continue;
        if (s.kind != TSR_SBP_SPLIT || s.arg != 0)
            return false;
        out_rows->parts[out_rows->ndim] = k;
        out_rows->part[out_rows->ndim++] = at / inner % k;
    }
    return at >= 0;
}
