/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inference problem as plain data, apart from tensors: choose one strategy per node so that the
 * sum of node costs and edge costs is least. Costs are seconds; INFINITY forbids. Deterministic:
 * equal problems give equal answers, ties go to the lexicographically smaller choice of the
 * earlier node.
 *
 * Exact by elimination of nodes (dominated strategies, fixed nodes and degree 0 to 2 first, then by
 * least table) while tables stay below `max_table` entries; beyond it a bounded local search on the
 * rest, which says so in the result.
 */
#ifndef TESSERA_SBP_SEARCH_H
#define TESSERA_SBP_SEARCH_H

#include "src/core/mem.h"

typedef struct tsri_search_node {
    int nstrat;        /* >= 1 */
    const float *cost; /* [nstrat] */
} tsri_search_node;

typedef struct tsri_search_edge {
    int u, v;          /* nodes, u != v; several edges may join the same pair */
    const float *cost; /* [nstrat(u)][nstrat(v)], row-major */
} tsri_search_edge;

typedef struct tsri_search_problem {
    int nnodes, nedges;
    const tsri_search_node *nodes;
    const tsri_search_edge *edges;
    int64_t max_table; /* 0 = 1 << 20 */
} tsri_search_problem;

typedef struct tsri_search_result {
    double cost;      /* INFINITY: there is no assignment without a forbidden choice */
    bool exact;       /* the optimum, proven */
    int64_t tables;   /* entries of the largest table: how hard it was */
} tsri_search_result;

/* choice[nnodes] is the caller's. Errors: TSR_ERR_NO_MEMORY, TSR_ERR_INVALID (nstrat < 1, an edge
 * out of range). */
tsr_status tsri_search(const tsri_search_problem *problem, int *choice,
                       tsri_search_result *out_result);

/* The cost of a given assignment, by the same sums. */
double tsri_search_cost(const tsri_search_problem *problem, const int *choice);

#endif
