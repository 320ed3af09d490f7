/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: how a tensor gets from one (mesh, layout) to another at least cost. See step.h for what
 * a route is made of.
 *
 * What a step costs: the hand-shake of the farthest link that it reads over, the bytes of the
 * busiest rank over each link at that link's pace, and writing the new part. A group gives its
 * bytes evenly over its peers; where SEND_RECV brings parts that do not nest, the busiest rank is
 * taken to read all of its part over the farthest link. On a mesh that machines do not cut into
 * blocks, links are counted on at most 64 ranks.
 *
 * Search states are (mesh, layout) with P of the kinds that the ends have, over all axes longer
 * than 1 of a tensor that has up to four, else those that either end splits and the largest other.
 * A route has at most TSRI_ROUTE_MAX steps; one that crosses, five on either side.
 * Pure: plain data in and out, no allocation in tsri_route_find (but up to 800 KiB of stack for
 * four dimensions).
 */
#ifndef TESSERA_SBP_ROUTE_ROUTE_H
#define TESSERA_SBP_ROUTE_ROUTE_H

#include "sbp/route/pieces.h"

/* The cheapest route. Among equals the one with fewer steps, then a fixed order: every rank finds
 * the same. Errors: TSR_ERR_SBP (no route within most_bytes; says how much the leanest needs),
 * TSR_ERR_UNSUPPORTED (kinds of P mixed in one signature). */
tsr_status tsri_route_find(const tsri_cost_model *m, const tsri_route_query *q,
                           tsri_route *out_route);

/*
 * Runners-up of a route that was found: of those whose first step is another than `best`'s and than
 * each other's, each the cheapest from there on. At most `most` of them, cheapest first, in
 * out_routes. Returns how many; 0 where the meshes differ, and where nothing is to be done.
 */
int tsri_route_others(const tsri_cost_model *m, const tsri_route_query *q, const tsri_route *best,
                      int most, tsri_route *out_routes);

/*
 * Costs of many conversions of one tensor on one mesh (or from one mesh to another), as
 * tsri_route_find would tell them: cost[i * nto + j] is that of from[i] -> to[j], in seconds.
 * Signatures are laid out left to right.
 */
tsr_status tsri_route_costs(const tsri_cost_model *m, tsri_mem *mem, tsr_dims shape, size_t element,
                            const tsri_mesh *from_mesh, int nfrom, const tsr_sbp *from,
                            const tsri_mesh *to_mesh, int nto, const tsr_sbp *to, float *cost);

/* Prices a step of a route anew, for another model or the same conversion of another shape: sets
 * cost_s, bytes and two_phase. q: the conversion that the step does by itself. Errors:
 * TSR_ERR_UNSUPPORTED, where there is no such step then. */
tsr_status tsri_route_price_again(const tsri_cost_model *m, const tsri_route_query *q,
                                  tsri_route_step *step);

#endif
