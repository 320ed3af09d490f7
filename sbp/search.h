/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inference problem as plain data, apart from tensors: choose one strategy per node so that the
 * sum of node costs and edge costs is least, and, at every time, the sum of the usages of the nodes
 * alive then is within a limit. Costs are seconds, of either sign; INFINITY forbids.
 * Deterministic: equal problems give equal answers on every machine, and of strategies that tie
 * where a node is decided, the lower is taken.
 *
 * Exact by dropping dominated strategies and eliminating nodes by least table, while tables stay
 * below `max_table` entries; beyond it a bounded search, which says so in the result, and how far
 * from the optimum it is at most.
 */
#ifndef TESSERA_SBP_SEARCH_H
#define TESSERA_SBP_SEARCH_H

#include "src/core/mem.h"

typedef struct tsri_search_node {
    int nstrat;           /* >= 1 */
    const float *cost;    /* [nstrat] */
    const int64_t *usage; /* [nstrat], bytes, >= 0; NULL: none */
    int first, last;      /* the times at which the usage counts, both included */
} tsri_search_node;

typedef struct tsri_search_edge {
    int u, v;          /* nodes, u != v; several edges may join the same pair */
    const float *cost; /* [nstrat(u)][nstrat(v)], row-major; edges may share one matrix */
} tsri_search_edge;

typedef struct tsri_search_problem {
    int nnodes, nedges;
    const tsri_search_node *nodes;
    const tsri_search_edge *edges;
    int64_t max_table;   /* 0 = 1 << 20 */
    tsri_mem *mem;       /* counts the allocations; may be NULL */
    int64_t usage_limit; /* 0: none */
} tsri_search_problem;

typedef struct tsri_search_result {
    double cost;    /* INFINITY: no assignment without a forbidden choice was found; if exact,
                       there is none, and choice[] is any */
    bool exact;     /* the optimum, proven (up to rounding in double) */
    double bound;   /* no assignment costs less; cost if exact */
    int64_t peak;   /* most usage at a time; over the limit if nothing within it was found */
    int64_t tables; /* entries of the largest table: how hard it was */
} tsri_search_result;

/* choice[nnodes] is the caller's; untouched on errors: TSR_ERR_NO_MEMORY, TSR_ERR_INVALID (nstrat
 * < 1, an edge out of range, a cost that is NaN or -INFINITY). */
tsr_status tsri_search(const tsri_search_problem *problem, int *choice,
                       tsri_search_result *out_result);

/* The cost of a given assignment, by the same sums. */
double tsri_search_cost(const tsri_search_problem *problem, const int *choice);

#endif
