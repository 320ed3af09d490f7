/* SPDX-License-Identifier: Apache-2.0 */
#include "src/rewrite/rewrite.h"

tsr_status tsri_rewrite_only(tsr_graph *copy, int tensor, const char *name)
{
    tsr_tensor *x = copy->tensors[tensor];
    for (int i = 0; i < copy->ntensors; i++) {
        copy->tensors[i]->writes = NULL;
        copy->tensors[i]->superseded = false;
    }
    copy->nhooks = copy->nprints = 0;
    copy->runner = (tsri_runner){0};
    copy->ports = tsri_pool_alloc(&copy->pool, sizeof *copy->ports);
    TSRI_NEED(copy->ports);
    copy->nports = copy->cports = 1;
    copy->ports[0] = (tsri_graph_port){.name = name,
                                       .tensor = x,
                                       .sbp = tsri_sbp_b(tsr_placement_ndim(x->placement)),
                                       .placement = x->placement};
    return TSR_OK;
}
