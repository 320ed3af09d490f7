/* SPDX-License-Identifier: Apache-2.0 */
/* What the searches for many costs share: inside of sbp/route*.c. */
#ifndef TESSERA_SBP_ROUTE_COSTS_H
#define TESSERA_SBP_ROUTE_COSTS_H

#include "sbp/route_space.h"

/* Numbers states in the order that they are added in. */
typedef struct tsri_table {
    tsri_mem *mem;
    int n, room;
    tsri_state *state; /* [room] */
    int *slot;         /* [2 * room] hash: number + 1 */
} tsri_table;

tsr_status tsri_table_add(tsri_table *t, tsri_state state, int *out_index);
void tsri_table_finish(tsri_table *t);

/* Checks a layout: the kinds of P that it has, as bits, and the axes that it splits, added to
 * *axes. Errors: kinds of P mixed, an axis that the shape has not. */
tsr_status tsri_route_look(const tsri_layout *l, tsr_dims shape, unsigned *out_ops, unsigned *axes);

/* tsri_route_costs between different meshes. */
tsr_status tsri_cross_costs(const tsri_cost_model *m, tsr_dims shape, size_t element, tsri_space *a,
                            tsri_space *b, tsri_mem *mem, int nfrom, const tsr_sbp *from, int nto,
                            const tsr_sbp *to, float *cost);

#endif
