/* SPDX-License-Identifier: Apache-2.0 */
/* What steps cost: inside of sbp/route*.c. */
#ifndef TESSERA_SBP_ROUTE_PRICE_H
#define TESSERA_SBP_ROUTE_PRICE_H

#include "sbp/route_space.h"

/* Fills in what talking within each set of dimensions costs. */
void tsri_space_links(tsri_space *s);
/* Seconds of a step between parts of so many elements at most; own: elements of the new part that
 * the busiest rank has, of ALL_GATHER and ALL_TO_ALL. */
double tsri_space_price(const tsri_space *s, const tsri_hop *hop, double from_part, double to_part,
                        double own, bool *out_two_phase);

/* Seconds that the bytes of an ALL_REDUCE take over links, in one phase and in two: talk[2]. */
void tsri_space_phases(const tsri_space *s, const tsri_hop *hop, double from_part, double *talk);

#endif
