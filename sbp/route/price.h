/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of steps: inside of sbp/route/. */
#ifndef TESSERA_SBP_ROUTE_PRICE_H
#define TESSERA_SBP_ROUTE_PRICE_H

#include "sbp/route/space.h"

/* Seconds of a step between parts of so many elements at most; own: elements of the new part that
 * the busiest rank has, of ALL_GATHER and ALL_TO_ALL. */
double tsri_space_price(const tsri_space *s, const tsri_hop *hop, double from_part, double to_part,
                        double own, bool *out_two_phase);

/* Seconds that the bytes of an ALL_REDUCE take over links, in one phase and in two: talk[2]. */
void tsri_space_phases(const tsri_space *s, const tsri_hop *hop, double from_part, double *talk);

/* The step that goes straight from x to y; false if there is none. */
bool tsri_space_direct(tsri_space *s, tsri_state x, tsri_state y, tsri_hop *out);
/* Elements that the busiest rank reads in a hop x -> y. */
double tsri_space_moved(const tsri_space *s, const tsri_hop *hop, tsri_state x, tsri_state y);

#endif
