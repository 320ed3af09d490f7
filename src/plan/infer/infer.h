/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of inference: how the problem is put together.
 *
 *   infer.c         nodes of ops, readers, the answer
 *   infer_edges.c   nodes and edges of the search's problem
 *   infer_again.c   recomputed ops
 *   infer_lists.c   lists of signatures, each kept once
 *   infer_cost.c    costs between lists, each made once
 *   infer_known.c   costs between signatures on many dimensions, each searched for once
 *   infer_shared.c  tensors with several readers
 *   infer_mix.c     answers that are mixed of two others
 *   infer_pin.c     the signatures that a tensor could have, and holding it to one
 *   infer_refine.c  what lists that are too long are made anew around
 *   infer_bucket.c  which reductions of gradients are one call, and what each pays of it
 */
#ifndef TESSERA_PLAN_INFER_H
#define TESSERA_PLAN_INFER_H

#include "sbp/route/joint.h"
#include "sbp/search/search.h"
#include "src/plan/infer/answer.h"
#include "src/plan/infer/strategies.h"

/* Distinct signatures, interned: equal lists are one object. */
typedef struct tsri_siglist {
    struct tsri_siglist *next;
    int n;
    tsr_sbp *sig;
} tsri_siglist;

/* One operand or result over a list of strategies: which of its signatures each one has. */
typedef struct tsri_side {
    const tsr_placement *placement;
    tsri_siglist *list;
    bool added; /* an operand that may be filled up with zeros: by others of a sum, or as is said */
    bool collects; /* the operand of a total over micro-batches, or over runs */
    int n;         /* strategies */
    int *of;       /* [n], into list */
} tsri_side;

/* The sides of one class of ops. */
typedef struct tsri_sides {
    tsri_side *in, *out;
} tsri_sides;

/* Costs between the signatures of two lists. */
typedef struct tsri_conversion {
    struct tsri_conversion *next;
    tsr_dims shape;
    size_t element;
    const tsr_placement *from_placement, *to_placement;
    const tsri_siglist *from, *to;
    bool of_variable;
    int times;          /* in a step */
    int64_t every;      /* one of so many runs converts */
    float *cost;        /* [from->n][to->n] */
    tsri_joint *joints; /* likewise; NULL until one of them is asked for in a bucket */
} tsri_conversion;

/* A matrix between two sides, or between a shared tensor and a side. */
typedef struct tsri_matrix {
    struct tsri_matrix *next;
    const void *from, *to;
    double share; /* of a bucket's hand-shakes that is paid; 0: in no bucket */
    float *cost;
} tsri_matrix;

typedef struct tsri_reader {
    struct tsri_reader *next;
    int node;
    double share; /* of a gradient: of its bucket; else 0 */
    const tsri_side *want;
    bool in_parts; /* it is in the micro-batches */
} tsri_reader;

/* A tensor with several readers. A variable or an input is kept in a[i], and converted once to
 * e[i]; a computed one is a relay, which is handed on in one signature of `side`. */
typedef struct tsri_shared {
    struct tsri_shared *next;
    const tsri_side *made;
    int nwant;
    const tsri_side **want; /* per reader */
    int n;
    float *own;     /* [n]; of a relay zeros */
    int64_t *usage; /* [n] */
    /* A kept tensor: */
    int *a;     /* into made->list */
    tsr_sbp *e; /* equal to a's signature: nothing is shared */
    float *up;  /* [made->n][n] */
    /* A relay: */
    tsri_side side;
} tsri_shared;

/* The costs of one shape's conversions on one mesh; see infer_known.c. */
typedef struct tsri_known tsri_known;

enum { TSRI_INFER_BUCKETS = 1024 };

/* The dimensions of a placement that are data parallel. */
typedef struct tsri_parallel {
    const tsr_placement *placement;
    unsigned dims;
} tsri_parallel;

/* The consumers of each tensor, and the lifetimes that follow from them. */
typedef struct tsri_tensor_reads {
    tsri_reader **first, **last; /* first and last node of each tensor's list */
    /* Where `holds`, per tensor with several consumers (else NULL), and its node: */
    struct tsri_shared **shared;
    int *node;
    int *last_use;               /* the last consumer, also through views */
    int parts_begin;             /* the first op of a step's micro-batches */
    bool holds;                  /* conversions that stay for all of these have nodes */
    int nties;                   /* number of edges from the end on that tie those nodes */
    int *copies;                 /* per op of the micro-batches; NULL: one of each value */
    const tsr_placement **stage; /* [nstages] placements that share no rank; see tsri_window */
    int nstages;
} tsri_tensor_reads;

/* Hash tables of lists, conversions and tables of costs, each of which exists once. */
typedef struct tsri_kept_costs {
    tsri_siglist *lists[TSRI_INFER_BUCKETS];
    tsri_conversion *conversions[TSRI_INFER_BUCKETS];
    tsri_matrix *matrices[TSRI_INFER_BUCKETS];
    tsri_shared *shareds[TSRI_INFER_BUCKETS];
} tsri_kept_costs;

typedef struct tsri_problem {
    tsr_graph *g;
    const tsri_cost_model *m;
    tsri_pool *pool;
    double *work;       /* the inference's */
    tsri_inferred *out; /* of an answer; until there is one, what all answers have alike */
    tsri_inferred alike;
    bool parallel_somewhere;   /* some dimension is held to data parallelism */
    int64_t least;             /* bytes that no choice needs less than */
    tsri_search_shared shared; /* choice: NULL until a search without a limit was done */
    tsri_strategy_table table;
    tsri_strategies **strat; /* per op */
    tsri_known **known;      /* the inference's */
    bool fill_zeros;         /* also where they may meet an infinity */
    tsri_parallel *parallel;
    int nparallel, cparallel;
    tsri_sides **sides_of; /* per class id */
    int csides, nsides;
    int *node_of;   /* per op; a recomputed op has its original's */
    int *first;     /* per declared op: its index in the graph */
    int *memory_of; /* per recomputed op: the node of its results' memory; else 0 */
    tsri_tensor_reads reads;
    tsri_kept_costs kept;
    tsri_search_node *nodes;
    int nnodes, cnodes;
    tsri_search_edge *edges;
    int nedges, cedges;
} tsri_problem;

/* --- infer_pin.c ------------------------------------------------------------------------------ */
/* The costs of strategies of the op that makes the pinned tensor: INFINITY in other signatures. */
tsr_status tsri_pinned_costs(tsri_pool *pool, const tsri_pin *pin, const tsri_strategies *s,
                             const float **out_cost);

/* --- infer_held.c ----------------------------------------------------------------------------- */
/* The signatures in which strategies of a node have a tensor. */
typedef struct tsri_having {
    const void *key; /* of the tables that are made of it */
    const tsr_placement *placement;
    int n;
    const tsr_sbp *sig, *also; /* [n]; also: a second one of each; NULL: there is none */
} tsri_having;
/* Writes those of the producer's node, or of the node that shares the tensor (NULL: none does). */
tsr_status tsri_having_of(tsri_problem *p, const tsri_side *made, const tsri_shared *s,
                          tsri_having *out);
/* Finds how many micro-batches' values the stages of a pipeline keep: the placements of the forward
 * pass, if no two share a rank. */
tsr_status tsri_find_copies(tsri_problem *p, tsr_pipeline pipeline, int parts);
/* The search adds up all bytes that are live at one time. The times of a stage therefore follow
 * those of the stages before it, so that the limit holds for each stage alone. Returns the first
 * time of a stage; 0 for other placements. */
int tsri_window(const tsri_problem *p, const tsr_placement *placement);
/* Replaces *of, the n bytes of a tensor by strategy, by those of all copies that a rank has of it.
 */
tsr_status tsri_copied_usage(tsri_problem *p, const tsr_tensor *t, int n, const int64_t **of);
/* Whether a conversion of t for a consumer stays for all micro-batches. */
bool tsri_is_held(const tsri_problem *p, const tsr_tensor *t, const tsri_reader *r);
/* Adds the node that holds the memory of a conversion of t between a node and a consumer. */
tsr_status tsri_hold(tsri_problem *p, const tsr_tensor *t, int node, const tsri_having *h,
                     const tsri_reader *r);

/* --- infer_again.c ---------------------------------------------------------------------------- */
/* Gives a recomputed op the node of its original, so that both get the same signature; the node's
 * cost becomes the sum of both. A separate node holds the memory of the recomputed results, tied to
 * the first by an edge that allows only equal strategies. */
tsr_status tsri_share_node(tsri_problem *p, int again);
/* Whether a recomputed op shares an operand with its original: the conversion serves both. */
bool tsri_reads_with_first(const tsri_problem *p, const tsri_op *op, int operand);

/* --- infer_known.c ---------------------------------------------------------------------------- */
/* Notes all lists of ops on more than two dimensions, before their first costs are asked for. */
tsr_status tsri_know_lists(tsri_problem *p);
/* Fills c->cost, of a conversion on one such mesh. */
tsr_status tsri_known_costs(tsri_problem *p, tsri_conversion *c);

/* --- infer_refine.c --------------------------------------------------------------------------- */
/* The cheapest answer of a problem, for lists around it. */
tsr_status tsri_find_nearby(const tsri_problem *p, tsri_nearby **out);

/* --- infer_lists.c ---------------------------------------------------------------------------- */
tsri_siglist *tsri_intern_list(tsri_problem *p, const tsr_sbp *sig, int n);
/* Where a signature stands in a list; -1. */
int tsri_sig_index(const tsr_sbp *list, int n, tsr_sbp sig);
tsr_status tsri_sides_of(tsri_problem *p, const tsri_strategies *s, tsri_sides **out);

/* --- infer_cost.c ----------------------------------------------------------------------------- */
/* The side that makes a tensor. */
tsr_status tsri_made_side(tsri_problem *p, const tsr_tensor *t, const tsri_side **out);
/* Finds the dimensions of placements on which all parameters stay in B, as they are said to, and
 * data are said to be split; or on which the program says how parameters are used. There a program
 * is data parallel: what is split along the data stays so, but for ops that have no other way;
 * gradients are summed. */
tsr_status tsri_infer_parallel(tsri_problem *p);
/* Returns the dimensions of a placement that are data parallel, as bits. */
unsigned tsri_parallel_dims(const tsri_problem *p, const tsr_placement *placement);
/* Costs of converting t between the signatures of two lists, in one of `every` runs. */
tsr_status tsri_find_conversion(tsri_problem *p, const tsr_tensor *t, int64_t every,
                                const tsr_placement *from_place, const tsri_siglist *from,
                                const tsr_placement *to_place, const tsri_siglist *to,
                                tsri_conversion **out);
/* Matrices that are known already; NULL. */
float *tsri_find_matrix(tsri_problem *p, const void *from, const void *to, double share);
tsr_status tsri_add_matrix(tsri_problem *p, const void *from, const void *to, double share,
                           float *cost);
/* Counts so many prices of conversions as work. */
static inline void tsri_spend_prices(const tsri_problem *p, double count)
{
    if (p->work)
        *p->work -= count * TSRI_WORK_OF_PRICE;
}
uint64_t tsri_hash_pointers(const void *a, const void *b);

/* --- infer_shared.c --------------------------------------------------------------------------- */
/* Whether a tensor has its place all the time: a variable, an input. */
bool tsri_is_kept(const tsr_tensor *t);
/* Adds the node of a tensor with several readers, and its edges. */
tsr_status tsri_add_shared(tsri_problem *p, const tsr_tensor *t, const tsri_side *made);

/* --- infer_bucket.c --------------------------------------------------------------------------- */
/* Deals the gradients of updates to buckets of at most `limit` bytes. */
tsr_status tsri_infer_buckets(tsri_problem *p, double limit);
/* Prices a list's conversions that pay `share` of a bucket's hand-shakes, where that
 * is less than by itself: price[from->n * to->n]. */
tsr_status tsri_bucket_prices(tsri_problem *p, tsri_conversion *c, double share, float *price);

/* --- infer.c ---------------------------------------------------------------------------------- */
/* An answer like `from`, with other choices for the nodes: its cost is summed, nothing is proven.
 */
tsr_status tsri_infer_take(const tsri_inferred *from, int *choice, bool alternatives,
                           tsri_inferred *out_inferred);
/* States the problem of a graph, for whatever limits. nearby: an answer that lists which are too
 * long are made around; NULL: none. */
tsr_status tsri_make_problem(tsri_inference *inference, const tsri_infer_opts *opts,
                             bool infer_updates, bool fill_zeros, const tsri_nearby *nearby,
                             tsri_problem **out);
tsr_status tsri_add_node(tsri_problem *p, tsri_search_node node, int *out_node);
tsr_status tsri_add_edge(tsri_problem *p, int u, int v, const float *cost);
/* Whether a tensor in `sig` of a side may be converted for strategy j of another. */
bool tsri_may_convert(const tsri_problem *p, const tsri_side *from, tsr_sbp sig,
                      const tsri_side *to, int j);
/* An edge whose costs are those of converting tensor t from one side to another. share: of the
 * hand-shakes of a bucket that the conversion may wait for; 0: it doesn't wait. every: see
 * tsri_find_conversion. */
tsr_status tsri_conversion_edge(tsri_problem *p, const tsr_tensor *t, int64_t every, int u,
                                const tsri_side *from, int v, const tsri_side *to, double share);

#endif
