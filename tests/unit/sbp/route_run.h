/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a route on data, in one process and one thread: the buffers of all ranks side by side, each
 * step done by its pieces alone, and holds the end against the definition of the destination. Parts
 * are cut here by the definition of the balanced split, not by the code under test.
 */
#ifndef TESSERA_TESTS_UNIT_ROUTE_RUN_H
#define TESSERA_TESTS_UNIT_ROUTE_RUN_H

#include "sbp/route/route.h"

/* The part of a rank: begin[] and length[] per axis, from the definition. */
void rr_part(tsr_dims shape, const tsri_mesh *m, const tsri_layout *l, int index, int64_t *begin,
             int64_t *length);

/* Runs a route of q on values drawn from `seed`. False if anything is wrong: then why[] tells. */
enum { RR_WHY = 512 };
bool rr_run(const tsri_route_query *q, const tsri_route *route, uint64_t seed, char why[RR_WHY]);

/* Numbers from a state; below n. */
uint64_t rr_random(uint64_t *state);
int rr_below(uint64_t *state, int n);

/* The signature whose entry in dimension d is code[d]: an axis, or RR_B, RR_P, RR_P_MAX, RR_P_MIN.
 */
enum { RR_B = -1, RR_P = -2, RR_P_MAX = -3, RR_P_MIN = -4 };
tsr_sbp rr_sbp(int ndim, const int *code);
/* The index-th of the (axes + kinds)^ndim signatures over the first `axes` axes, B, P (kinds >= 2)
 * and P(max) (kinds >= 3); false if it mixes kinds of P. */
bool rr_signature(int ndim, int axes, int kinds, int index, tsr_sbp *out);
int rr_signatures(int ndim, int axes, int kinds);

tsri_mesh rr_mesh(int ndim, const int *dim, const int *rank);

#endif
