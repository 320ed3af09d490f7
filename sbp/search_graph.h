/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the inference search: the reduced graph, the order of elimination, and elimination itself.
 *
 * A forbidden entry is not INFINITY here but `forbid`, larger than any feasible total can differ
 * by: so sums stay finite, "least forbidden" is meaningful to the local search, and an answer is
 * feasible just when its cost is below forbid - range.
 */
#ifndef TESSERA_SBP_SEARCH_GRAPH_H
#define TESSERA_SBP_SEARCH_GRAPH_H

#include "sbp/search.h"

typedef struct tsri_sg_edge {
    int u, v;     /* nodes, u < v; at most one edge joins a pair */
    double *cost; /* [k(u)][k(v)] */
} tsri_sg_edge;

/* Same nodes as the problem; a node with one strategy left has no edges. */
typedef struct tsri_sgraph {
    int n, nedges;
    int *k;        /* [n] strategies left, >= 1 */
    double **cost; /* [n][k] */
    int **orig;    /* [n][k] the problem's numbers of those left, ascending */
    tsri_sg_edge *edges;
    int *adj_start; /* [n + 1] */
    int *adj;       /* edge numbers of node v: adj[adj_start[v] .. adj_start[v + 1]) */
    double forbid;
    double range; /* no feasible total is larger */
    bool empty;   /* reductions proved that nothing is feasible */
} tsri_sgraph;

/* Merges parallel edges; drops strategies that are forbidden with all of a neighbour's, or
 * dominated; folds fixed nodes and edges that don't couple into node costs. TSR_ERR_INVALID: see
 * tsri_search. */
tsr_status tsri_sg_build(tsri_pool *pool, const tsri_search_problem *problem, tsri_sgraph *out);

/* An order of elimination with no table above `limit` entries, once the nodes of `cut` are fixed.
 */
typedef struct tsri_sg_plan {
    int norder, ncut;
    int *order;     /* [n]: first the norder nodes to eliminate, then the ncut fixed ones */
    bool *is_cut;   /* [n] */
    double entries; /* of all tables together */
    double largest; /* entries of the largest */
    double work;    /* additions, about */
} tsri_sg_plan;

/* uses[n]: how often a node was cut before; rarely cut ones are preferred. NULL: none. */
tsr_status tsri_sg_order(tsri_pool *pool, const tsri_sgraph *g, double limit, const int *uses,
                         tsri_sg_plan *out);

/* What is taken off the tables: nothing but the order's own nodes, or everything. */
typedef enum tsri_sg_mode {
    TSRI_SG_CONDITION, /* nodes of the cut keep their choice[]: the best completion */
    TSRI_SG_RELAX,     /* all nodes are free; tables above the limit are split (mini-buckets): a
                          lower bound, and a choice guided by it */
} tsri_sg_mode;

/* choice[n] holds strategies of the reduced graph. out_bound: the least cost of a completion, or a
 * lower bound when relaxed. */
tsr_status tsri_sg_eliminate(tsri_mem *mem, const tsri_sgraph *g, const tsri_sg_plan *plan,
                             tsri_sg_mode mode, double limit, int *choice, double *out_bound);

double tsri_sg_cost(const tsri_sgraph *g, const int *choice);

/* Exactly, or the best that was found: result->exact and ->tables. */
tsr_status tsri_sg_solve(tsri_mem *mem, const tsri_sgraph *g, double limit, int *choice,
                         tsri_search_result *result);

#endif
