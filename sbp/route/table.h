/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for states: inside of sbp/route/. */
#ifndef TESSERA_SBP_ROUTE_TABLE_H
#define TESSERA_SBP_ROUTE_TABLE_H

#include "sbp/route/space.h"
#include "src/core/mem.h"

/* Numbers states in the order that they are added in. */
typedef struct tsri_table {
    tsri_pool *pool;
    int n, room;
    tsri_state *state; /* [room] */
    int *slot;         /* [2 * room] hash: number + 1 */
} tsri_table;

tsr_status tsri_table_add(tsri_table *t, tsri_state state, int *out_index);

#endif
