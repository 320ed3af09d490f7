/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_eval: compiles and runs what one tensor needs. */

#include "src/plan/plan.h"

#include "src/core/live.h"

tsr_status tsr_eval(tsr_tensor *x, void *data, size_t bytes)
{
    TSRI_TRY(tsri_live_check(x, TSRI_LIVE_TENSOR, "tsr_eval"));
    if (!x || x->failed) {
        if (x && x->graph)
            return tsr_graph_status(x->graph);
        return tsri_fail(TSR_ERR_INVALID, "eval: no tensor%s", tsri_error_cause());
    }
    tsr_graph *g = x->graph;
    TSRI_TRY(tsr_graph_status(g));
    /* The graph's own outputs are set aside for the while: dead code is not compiled. */
    tsri_graph_port *ports = g->ports;
    int nports = g->nports, cports = g->cports, nhooks = g->nhooks, nprints = g->nprints;
    const int ntensors = g->ntensors;
    tsr_variable **writes = tsri_mem_alloc(&g->world->mem, (size_t)ntensors * sizeof *writes);
    TSRI_NEED(writes);
    for (int i = 0; i < ntensors; i++) {
        writes[i] = g->tensors[i]->writes;
        g->tensors[i]->writes = NULL;
    }
    g->ports = NULL;
    g->nports = g->cports = g->nhooks = g->nprints = 0;
    tsr_output_at(g, "(eval)", x, NULL, TSR_B, NULL, 0);
    tsr_plan *plan = NULL;
    tsr_status status = tsri_plan_compile(g, NULL, false, &plan);
    for (int i = 0; i < ntensors; i++)
        g->tensors[i]->writes = writes[i];
    tsri_mem_free(writes);
    g->ports = ports;
    g->nports = nports;
    g->cports = cports;
    g->nhooks = nhooks;
    g->nprints = nprints;
    if (status == TSR_OK)
        status = tsr_run(plan);
    if (status == TSR_OK && tsr_placement_find(x->placement, g->world->rank) >= 0)
        status = tsr_fetch(plan, "(eval)", data, bytes);
    tsr_plan_destroy(plan);
    return status;
}
