/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of recomputation: see src/rewrite/recompute.c. */
#include "src/core/live.h"
#include "src/graph/graph.h"

void tsri_recompute_begin(tsr_graph *g)
{
    if (g->now.region_depth++ == 0)
        g->now.nregions++;
}

void tsri_recompute_end(tsr_graph *g)
{
    g->now.region_depth--;
}

void tsr_recompute(tsr_graph *g)
{
    if (tsri_is_live(g, TSRI_LIVE_GRAPH, "recompute"))
        tsri_recompute_begin(g);
}

void tsr_recompute_end_at(tsr_graph *g, const char *file, int line)
{
    if (!tsri_is_live(g, TSRI_LIVE_GRAPH, "recompute_end"))
        return;
    if (g->now.region_depth > 0)
        tsri_recompute_end(g);
    else if (g->failure.status == TSR_OK)
        tsri_graph_fail(g, (tsri_loc){file, line}, TSR_ERR_STATE,
                        "recompute_end: no region is open; tsr_recompute opens one");
}
