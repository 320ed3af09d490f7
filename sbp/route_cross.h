/* SPDX-License-Identifier: Apache-2.0 */
/* Steps between meshes: inside of sbp/route*.c. */
#ifndef TESSERA_SBP_ROUTE_CROSS_H
#define TESSERA_SBP_ROUTE_CROSS_H

#include "sbp/route_space.h"

/* The cheapest route between different meshes, under most_bytes (0: any): fills in out_route's
 * steps and n, or leaves n 0 and tells in *least_over the least peak that was too much. */
void tsri_cross_find(const tsri_cost_model *m, const tsri_route_query *q, tsri_space *a,
                     tsri_space *b, int64_t most_bytes, tsri_route *out_route, int64_t *least_over);
/* Seconds that any way between the meshes takes at least. */
double tsri_cross_bound(const tsri_cost_model *m, const tsri_route_query *q);

/* Appends a step on one mesh from x to y. */
void tsri_route_append(tsri_route *r, const tsri_space *s, tsri_state x, tsri_state y,
                       const tsri_hop *hop, bool on_dst);

#endif
