/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inference problem as plain data, apart from tensors: choose one strategy per node so that the
 * sum of node costs and edge costs is least, and, at every time, the sum of the usages of the nodes
 * alive then is within a limit. Costs are seconds, of either sign; INFINITY forbids.
 * Deterministic: equal problems give equal answers on every machine, and of strategies that tie
 * where a node is decided, the lower is taken. Work is bounded by counts, never by a clock.
 *
 * Equal tables, also at different addresses, are kept and combined once: a network's layers repeat.
 * Dominated strategies are dropped and nodes of degree two and less eliminated; what remains is
 * eliminated by least table while tables stay below `max_table` entries and their work is small.
 * Else a dual bound (tree-reweighted message passing) and the best assignment exclude strategies,
 * until elimination can finish, or the result says how far from the optimum it is at most.
 * A limit that the optimum without one exceeds is relaxed by prices per byte and time; problems
 * that are small after reduction are then solved exactly by branch and bound.
 */
#ifndef TESSERA_SBP_SEARCH_SEARCH_H
#define TESSERA_SBP_SEARCH_SEARCH_H

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
    int64_t max_table;   /* 0 = 1 << 20 entries of 8 bytes */
    tsri_mem *mem;       /* counts the allocations; may be NULL */
    double *work;        /* additions that are left, counted down: below 0 the search ends early,
                            once it has an answer. NULL: it has its own bounds alone */
    int64_t usage_limit; /* 0: none */
    bool quick_within;   /* within the limit a good assignment will do: one price is searched, not
                            one of each time, and nothing is proven */
} tsri_search_problem;

typedef struct tsri_search_result {
    double cost;    /* of choice[], summed in double; INFINITY: no assignment that is free of
                       forbidden choices and within the limit was found. If exact, there is none.
                       choice[] is any then */
    bool exact;     /* the optimum, proven (up to rounding in double) */
    double bound;   /* no assignment within the limit costs less; cost if exact */
    int64_t peak;   /* most usage of choice[] at a time; over the limit only if cost is INFINITY */
    int64_t least;  /* where the limit was not kept at once: no assignment's peak is less; else 0 */
    int64_t tables; /* entries of the largest table of the search without a limit */
} tsri_search_result;

/* choice[nnodes] is the caller's; untouched on errors: TSR_ERR_NO_MEMORY, TSR_ERR_INVALID (a count
 * or limit that is negative, nstrat < 1, an edge out of range, a cost that is NaN or -INFINITY, a
 * usage below 0, first > last). A limit that the answer without one keeps changes nothing. */
tsr_status tsri_search(const tsri_search_problem *problem, int *choice,
                       tsri_search_result *out_result);

/* Results that searches of one problem within several limits share. */
typedef struct tsri_search_shared {
    tsri_pool *pool;            /* owns the answers at prices and the ties */
    int *choice;                /* [nnodes] the answer of tsri_search without a limit */
    tsri_search_result result;  /* its result */
    struct tsri_priced *priced; /* answers at prices of memory (memory.c); NULL at first */
    struct tsri_ties *ties;     /* the problem with equal blocks tied (tie.h); NULL at first */
} tsri_search_shared;

/* Answers as tsri_search does. The caller has set pool, choice and result; the nodes and edges of
 * the problem must be those of all earlier calls with the same `shared`. */
tsr_status tsri_search_within(const tsri_search_problem *problem, tsri_search_shared *shared,
                              int *choice, tsri_search_result *out_result);

/* A lower bound of all assignments' peaks, without a search: all nodes at their least usage. */
tsr_status tsri_search_least(const tsri_search_problem *problem, int64_t *out_least);

/* The most usage of a given assignment at any time. The pool takes scratch. */
tsr_status tsri_search_peak(tsri_pool *pool, const tsri_search_problem *problem, const int *choice,
                            int64_t *out_peak);

/* The cost of a given assignment, by the same sums. */
double tsri_search_cost(const tsri_search_problem *problem, const int *choice);

#endif
