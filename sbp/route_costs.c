/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route.h"

tsr_status tsri_route_costs(const tsri_cost_model *m, tsri_mem *mem, tsr_dims shape, size_t element,
                            const tsri_mesh *from_mesh, int nfrom, const tsr_sbp *from,
                            const tsri_mesh *to_mesh, int nto, const tsr_sbp *to, float *cost)
{
    tsri_route_query q = {.shape = shape, .element = element};
    (void)mem;
    q.from.mesh = *from_mesh;
    q.to.mesh = *to_mesh;
    for (int i = 0; i < nfrom; i++)
        for (int j = 0; j < nto; j++) {
            tsri_route route;
            q.from.layout = tsri_layout_of(from_mesh, from[i]);
            q.to.layout = tsri_layout_of(to_mesh, to[j]);
            TSRI_TRY(tsri_route_find(m, &q, &route));
            cost[(int64_t)i * nto + j] = (float)route.cost_s;
        }
    return TSR_OK;
}
