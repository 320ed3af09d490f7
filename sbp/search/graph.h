/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the inference search: reductions, the core that they leave, the order of elimination,
 * elimination itself, and the dual bound.
 *
 * A forbidden entry of the core is not INFINITY but `forbid`, larger than any feasible total can
 * differ by: so sums stay finite, "least forbidden" is meaningful to the local search, and an
 * answer is feasible just when its cost is below forbid - range.
 */
#ifndef TESSERA_SBP_SEARCH_GRAPH_H
#define TESSERA_SBP_SEARCH_GRAPH_H

#include "sbp/search/search.h"
#include "sbp/search/memo.h"
#include "src/core/heap.h"

/* --- reductions ------------------------------------------------------------------------------- */

typedef struct tsri_sr_edge {
    int u, v, m; /* m: the memo's number of [k(u)][k(v)]; m < 0: gone */
} tsri_sr_edge;

typedef struct tsri_sr_node {
    int k;           /* strategies left */
    int cost, use;   /* vectors; use < 0: none */
    const int *orig; /* [k] the problem's numbers of those left, ascending */
    int *edges;      /* those that are gone too */
    int nedges, cap;
    bool gone, queued;
} tsri_sr_node;

typedef struct tsri_sr_record tsri_sr_record; /* a node that was eliminated */

/* The problem while it shrinks. Nodes keep their numbers. */
typedef struct tsri_sreducer {
    const tsri_search_problem *p;
    tsri_pool *pool;
    tsri_smemo memo;
    tsri_sr_node *nodes;
    tsri_sr_edge *edges;
    int nedges, cedges;
    tsri_sr_record *records;
    int *queue; /* ring of n nodes */
    int head, waiting;
    tsri_heap pending; /* nodes of degree 0..2, by weight */
    double *weight;    /* [n] work of eliminating those, when they were put in */
    double constant;   /* cost of what is gone */
    double forbid;
    double range; /* no feasible total is larger */
    bool empty;   /* nothing feasible is left */
} tsri_sreducer;

/* price: seconds per byte of usage of each node, on top of its costs; NULL: none. TSR_ERR_INVALID:
 * see tsri_search. keep_usage: strategies' usages matter by themselves, so only nodes without are
 * eliminated. */
tsr_status tsri_sr_start(tsri_sreducer *r, tsri_pool *pool, const tsri_search_problem *problem,
                         const double *price, bool keep_usage);

/* Drops what is forbidden or dominated, fixes and folds what does not couple, eliminates nodes of
 * degree 0 to 2; until none is left. */
tsr_status tsri_sr_run(tsri_sreducer *r);

/* Keeps only the strategies index[count] of a node, at other costs; its edges are then for
 * tsri_sr_rewrite_edge. Arrays lie in the reducer's pool. */
tsr_status tsri_sr_rewrite(tsri_sreducer *r, int v, const int *index, int count,
                           const double *cost);
tsr_status tsri_sr_rewrite_edge(tsri_sreducer *r, int e, int u, int v, const double *cost);

/* The place among what is left of node v's strategies of the problem's `strategy`, or one near. */
int tsri_sr_place(const tsri_sreducer *r, int v, int strategy);

/* choice[n]: the problem's strategies of the nodes not gone; adds the best of the others. */
tsr_status tsri_sr_complete(tsri_sreducer *r, int *choice);

/* --- the core --------------------------------------------------------------------------------- */

typedef struct tsri_sg_edge {
    int u, v;           /* nodes, u < v; at most one edge joins a pair */
    const double *cost; /* [k(u)][k(v)] */
    const double *flip; /* [k(v)][k(u)] */
    int number;         /* the reducer's */
} tsri_sg_edge;

typedef struct tsri_sgraph {
    int n, nedges;
    int *k;              /* [n] >= 1 */
    const double **cost; /* [n][k] */
    tsri_sg_edge *edges;
    int *adj_start; /* [n + 1] */
    int *adj;       /* edge numbers of node v: adj[adj_start[v] .. adj_start[v + 1]) */
    int *node;      /* [n] the reducer's number */
    double forbid;
    double range; /* no feasible total is larger */
} tsri_sgraph;

/* The graph that the reducer has left. */
tsr_status tsri_sg_build(tsri_pool *pool, tsri_sreducer *r, tsri_sgraph *out);

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

/* The nodes that are taken off the tables: nothing but the order's own nodes, or everything. */
typedef enum tsri_sg_mode {
    TSRI_SG_CONDITION, /* nodes of the cut keep their choice[]: the best completion */
    TSRI_SG_RELAX,     /* all nodes are free; tables above the limit are split (mini-buckets): a
                          lower bound, and a choice guided by it */
} tsri_sg_mode;

/* choice[n] holds strategies of the reduced graph. out_bound: the least cost of a completion, or a
 * lower bound when relaxed. */
tsr_status tsri_sg_eliminate(tsri_mem *mem, const tsri_sgraph *g, const tsri_sg_plan *plan,
                             tsri_sg_mode mode, double limit, int *choice, double *out_bound);

/* The least of k costs. */
static inline double tsri_least_of(const double *cost, int k)
{
    double least = cost[0];
    for (int s = 1; s < k; s++)
        least = cost[s] < least ? cost[s] : least;
    return least;
}
double tsri_sg_cost(const tsri_sgraph *g, const int *choice);

/*
 * The dual: sequential tree-reweighted message passing (Kolmogorov 2006) along the order of nodes.
 * Messages move costs between nodes and edges without changing any total, so that the sum of all
 * minima, a lower bound, rises. A strategy whose least excess over the bound exceeds what is
 * between the bound and `upper` is dropped: it is in no better assignment.
 */
typedef struct tsri_sg_dual {
    const tsri_sgraph *g;
    double **cost;         /* [n][k] node costs; INFINITY where dropped */
    double **to_u, **to_v; /* [nedges] messages to its ends */
    double *share;         /* [n] of a node's excess that each chain through it gets */
    double *sum, *part;    /* scratch of the widest node */
    double lower, upper;
    double slack; /* what rounding may make of equal sums */
    double pass;  /* additions of one iteration */
    int64_t left; /* strategies not dropped, all nodes together */
} tsri_sg_dual;

tsr_status tsri_sg_dual_start(tsri_pool *pool, const tsri_sgraph *g, tsri_sg_dual *out);
/* One pass forth, which guesses choice[n], and one back, which raises `lower`. */
void tsri_sg_dual_step(tsri_sg_dual *d, int *choice);

/* Gives the reducer what is left, with all messages moved: so the next dual starts where this one
 * ended. */
tsr_status tsri_sg_dual_keep(tsri_sg_dual *d, tsri_sreducer *r);

/* --- solving ---------------------------------------------------------------------------------- */

/* Improves choice[], of tsri_sg_cost `*cost`, by about *work additions, which it counts down. */
tsr_status tsri_sg_improve(tsri_mem *mem, const tsri_sgraph *g, double limit, double *work,
                           int *choice, double *cost);

/* Improves by moves of whole forests alone, until several in a row gain nothing; takes off *work.
 * random: the state of a generator, which picks the forests. */
tsr_status tsri_sg_improve_trees(tsri_mem *mem, const tsri_sgraph *g, uint64_t *random,
                                 double *work, int *choice, double *cost);

/* A plan whose tables fit together, not just each. */
tsr_status tsri_sg_plan_within(tsri_pool *pool, const tsri_sgraph *g, double limit, double entries,
                               const int *uses, tsri_sg_plan *out);

/* Assignments of the plan's cut; at most 1e18. */
double tsri_sg_combinations(const tsri_sgraph *g, const tsri_sg_plan *plan);
/* The best over all of them. trial[n] is scratch. */
tsr_status tsri_sg_enumerate(tsri_mem *mem, const tsri_sgraph *g, const tsri_sg_plan *plan,
                             double limit, int *trial, int *choice);

/* The search without a limit, at prices, which cost and bound include. effort: the share of the
 * usual work that may go beyond one elimination. */
tsr_status tsri_search_priced(const tsri_search_problem *problem, const double *price,
                              double effort, int *choice, tsri_search_result *result);

#endif
