/* SPDX-License-Identifier: Apache-2.0 */
/* Inference: chooses a signature for each op of a graph. Answers of one graph share its problems.
 */
#ifndef TESSERA_PLAN_INFER_ANSWER_H
#define TESSERA_PLAN_INFER_ANSWER_H

#include "src/ir/ir.h"

/* State that inference keeps between answers for one graph: the search's problems with their
 * cheapest signatures, so that a further limit costs one search. */
typedef struct tsri_inference {
    tsr_graph *g;
    tsri_pool *pool; /* owns this state and the answers */
    tsri_cost_model model;
    struct tsri_problem *problem[3]; /* NULL until it is needed; see tsri_infer */
    struct tsri_known *known;        /* costs that all problems share */
    double *work;                    /* remaining units of work; NULL: unlimited */
    /* Answers within memory limits will follow, of a step with micro-batches. holds: values that
     * are converted before the micro-batches stay for all of them (weights are not gathered again).
     */
    bool holds, is_limited;
    tsr_pipeline pipeline;
    int parts;
} tsri_inference;

/* The signature chosen for each op of a graph. */
typedef struct tsri_inferred {
    bool *live;                       /* per op: see tsri_graph_mark_live */
    const tsri_nd_signature **chosen; /* per op; NULL if not live */
    int *groups_index;                /* per op: the rule's index g of a convolution, or -1 */
    float *op_cost;                   /* per op: seconds of its kernel, as chosen */
    tsri_bucket_part *bucket;         /* per op: of an update, for its results */
    tsri_bucket_part *gradient;       /* per tensor: of a gradient */
    tsri_alternatives *alternatives;  /* per op; NULL unless asked for */
    double cost;                      /* seconds, by the model */
    bool exact;
    int64_t peak;  /* estimated bytes of a rank */
    int64_t least; /* lower bound of `peak` over all signatures */
    bool fits;     /* the limit is kept; otherwise no signatures are chosen */
    bool relaxed;  /* no signatures were legal without inferred updates or addends of zeros */
    struct tsri_problem *problem; /* the problem that was searched */
    const int *choice;            /* strategies of its nodes; NULL if none are chosen */
} tsri_inferred;

/* The independent differences of two answers: no conversion connects the ops of two parts, so each
 * part can be taken over alone, and the savings of several add up. */
typedef struct tsri_part_change {
    int part;
    double less_s, more_bytes; /* seconds saved; bytes as inference estimates them, at least 1 */
} tsri_part_change;

typedef struct tsri_parts {
    int n;                    /* number of parts that save time */
    tsri_part_change *change; /* [n], by falling seconds a byte */
    int count;                /* number of all parts */
    int *of;                  /* part of each node of the problem, or -1 if the answers agree */
} tsri_parts;

/* Units of work that stand for a second of tsr_compile_opts.search_s: one addition of the search is
 * one unit. Work is counted, not timed, so that all ranks, whatever their speed, end at the same
 * point. */
#define TSRI_WORK_PER_S 1e9
enum {
    TSRI_WORK_OF_PRICE = 1000, /* units to price one entry of a conversion's table */
    TSRI_WORK_OF_BUILT = 10000 /* units, for each op, to build and measure a plan */
};

typedef struct tsri_infer_opts {
    int64_t memory_limit; /* bytes of a rank's values, variables and ports at any time; 0: none */
    bool quick_within;    /* searches quickly: see tsri_search_problem */
    bool alternatives;    /* lists each op's other signatures */
    double bucket_bytes;  /* largest bucket of gradients */
    bool infer_updates;   /* see tsr_compile_opts */
    /* The required signature of each op's first result; ndim 0: any. NULL: no op is pinned. If no
     * legal choice has all of them, `fits` is false. */
    const tsr_sbp *pinned;
    int most_signatures; /* limit for an op on more than two mesh dimensions; 0: the default */
} tsri_infer_opts;

/* Whether a conversion adds addends of zeros. */
bool tsri_fills_zeros(const tsr_placement *from_placement, tsr_sbp from,
                      const tsr_placement *to_placement, tsr_sbp to);
/* Infers signatures. Variables without a signature are AUTO at the call. Between calls with the
 * same inference, the graph and opts->bucket_bytes must not change. */
tsr_status tsri_infer(tsri_inference *inference, const tsri_infer_opts *opts,
                      tsri_inferred *out_inferred);
/* Returns a lower bound, in seconds by the model, of the cost of any signatures in any memory; 0 if
 * the search left out legal signatures. */
double tsri_infer_bound(const tsri_inferred *inferred);
/* Lists the candidate signatures of a live op; ops of one class share one list. */
const tsri_nd_signature *tsri_infer_signatures(const tsri_inferred *inferred, int op, int *out_n);
/* Finds the parts of `to` that `from` could take over. There are none if the two answers are of
 * different problems. */
tsr_status tsri_infer_parts(const tsri_inferred *from, const tsri_inferred *to,
                            tsri_parts *out_parts);
/* Combines two answers: `from` with the parts of `to` for which taken[parts->n] is true. */
tsr_status tsri_infer_mix(const tsri_inferred *from, const tsri_inferred *to,
                          const tsri_parts *parts, const bool *taken, bool alternatives,
                          tsri_inferred *out_inferred);

#endif
