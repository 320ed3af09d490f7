/* SPDX-License-Identifier: Apache-2.0 */
/* The steps between states: inside of sbp/route/. */
#ifndef TESSERA_SBP_ROUTE_HOPS_H
#define TESSERA_SBP_ROUTE_HOPS_H

#include "sbp/route/space.h"

/* The steps that leave a state, or, `back`, those that lead to it: then hops go to where they come
 * from. hops[] has room for TSRI_MAX_HOPS. */
int tsri_space_hops(tsri_space *s, tsri_state from, bool back, tsri_hop *hops);
/* Appends a step on one mesh from x to y. */
void tsri_route_append(tsri_route *r, const tsri_space *s, tsri_state x, tsri_state y,
                       const tsri_hop *hop, bool on_dst);

#endif
