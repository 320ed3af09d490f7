/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that each rank reads from each other in a conversion's step. */
#ifndef TESSERA_CLI_PAGE_MOVES_H
#define TESSERA_CLI_PAGE_MOVES_H

#include "sbp/route/route.h"
#include "src/core/mem.h"

enum { PAGE_MOVE_RANKS = 64 };

/* One group of a step; of groups that do it side by side the first. */
typedef struct page_move {
    int n;          /* ranks of the group; 0: more than PAGE_MOVE_RANKS */
    int *rank;      /* [n] */
    int64_t *bytes; /* [n * n]: rank[i] reads [i * n + j] from rank[j] */
} page_move;

/* The group of the first rank that takes part; nothing read so far. In the pool. */
tsr_status page_move_init(tsri_pool *pool, const tsri_route_query *q, const tsri_route_step *step,
                          page_move *out_move);
/* Adds what the ranks read in a step; of a bucket, in that of one member. Adds nothing to a move of
 * no ranks. */
tsr_status page_move_add(tsri_pool *pool, const tsri_route_query *q, const tsri_route_step *step,
                         page_move *move);
/* {"ranks": [...], "bytes": [[...], ...]}; NULL of a move of no ranks, or without memory. */
struct cJSON *page_move_json(const page_move *move);

#endif
