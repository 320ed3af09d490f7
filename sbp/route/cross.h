/* SPDX-License-Identifier: Apache-2.0 */
/* Steps between meshes: inside of sbp/route/. Crossings are looked for between the 256 cheapest
 * layouts of either side, which are all of up to two dimensions. One that moves nothing costs a
 * kernel's start. */
#ifndef TESSERA_SBP_ROUTE_CROSS_H
#define TESSERA_SBP_ROUTE_CROSS_H

#include "sbp/route/space.h"
#include "src/core/mem.h"

/* The cheapest route between different meshes, under most_bytes (0: any): fills in out_route's
 * steps and n, or leaves n 0 and tells in *least_over the least peak that was too much. */
void tsri_cross_find(const tsri_cost_model *m, const tsri_route_query *q, tsri_space *a,
                     tsri_space *b, int64_t most_bytes, tsri_route *out_route, int64_t *least_over);
/* Seconds that any way between the meshes takes at least. */
double tsri_cross_bound(const tsri_cost_model *m, const tsri_route_query *q);

/* tsri_route_costs between different meshes. pool: for scratch. */
tsr_status tsri_cross_costs(const tsri_cost_model *m, tsr_dims shape, size_t element, tsri_space *a,
                            tsri_space *b, tsri_pool *pool, int nfrom, const tsr_sbp *from, int nto,
                            const tsr_sbp *to, float *cost);

#endif
