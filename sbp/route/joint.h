/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prices conversions that wait for others and are done with them in one call, as gradients'
 * reductions are in a bucket: the call shakes hands once for all of its members.
 */
#ifndef TESSERA_SBP_ROUTE_JOINT_H
#define TESSERA_SBP_ROUTE_JOINT_H

#include "sbp/route/route.h"

/* One conversion as a member of a call. */
typedef struct tsri_joint {
    bool joins;       /* one ALL_REDUCE, REDUCE_SCATTER or ALL_GATHER does the conversion */
    double alone_s;   /* of that step by itself */
    double shake_s;   /* of one hand-shake */
    double rest_s[2]; /* without hand-shakes: in one phase, which shakes hands once, and in two,
                         which do so twice (INFINITY but of ALL_REDUCE) */
    double bytes[2];  /* that the busiest rank reads then */
} tsri_joint;

/* out[i * nto + j] is from[i] -> to[j] of a tensor on one mesh, signatures laid out left to right.
 */
void tsri_route_joints(const tsri_cost_model *m, tsr_dims shape, size_t element,
                       const tsri_mesh *mesh, int nfrom, const tsr_sbp *from, int nto,
                       const tsr_sbp *to, tsri_joint *out);

/* The step that does a conversion on one mesh as a member, as a route of its own; joins is false,
 * and *out_route unchanged, where no step does it alone. */
tsri_joint tsri_route_join(const tsri_cost_model *m, const tsri_route_query *q,
                           tsri_route *out_route);

/* Seconds of a call of n members (all of one kind, over the same groups) that pays `share` of its
 * hand-shakes; 1 is the whole call. *out_two_phase may be NULL. */
double tsri_joint_price(const tsri_joint *member, int n, double share, bool *out_two_phase);

#endif
