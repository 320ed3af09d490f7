/* SPDX-License-Identifier: Apache-2.0 */
/* Inference: from a graph to a signature of each op, and what its answers have in common. */
#ifndef TESSERA_PLAN_INFER_ANSWER_H
#define TESSERA_PLAN_INFER_ANSWER_H

#include "src/ir/ir.h"

/* All that inference keeps from one answer to the next: the search's problems of a graph, and their
 * cheapest signatures. So further limits cost no more than a search each. */
typedef struct tsri_inference {
    tsr_graph *g;
    tsri_pool *pool; /* takes all that is kept, and answers */
    tsri_cost_model model;
    struct tsri_problem *problem[3]; /* NULL until it is needed; see tsri_infer */
    struct tsri_known *known;        /* costs that all problems have alike */
    double *work;                    /* units that are left, counted down; NULL: any number */
} tsri_inference;

/* The signature chosen for each op of a graph. */
typedef struct tsri_inferred {
    bool *live;                       /* per op: something that is kept depends on it */
    const tsri_nd_signature **chosen; /* per op; NULL if not live */
    int *groups_index;                /* per op: the rule's index g of a convolution, or -1 */
    float *op_cost;                   /* per op: seconds of its kernel, as chosen */
    tsri_bucket_part *bucket;         /* per op: of an update, for its results */
    tsri_bucket_part *gradient;       /* per tensor: of a gradient */
    tsri_alternatives *alternatives;  /* per op; NULL unless asked for */
    double cost;                      /* seconds, by the model */
    bool exact;
    int64_t peak;  /* bytes of a rank, as inference estimates them */
    int64_t least; /* no signatures need less, by the same estimate */
    bool fits;     /* within the limit; otherwise nothing is chosen */
    bool relaxed;  /* updates were inferred, or zeros filled up, as nothing else was legal */
    struct tsri_problem *problem; /* that was searched */
    const int *choice;            /* its nodes' strategies; NULL: nothing is chosen */
} tsri_inferred;

/* The parts in which two answers differ: signatures that no conversion joins to those of another
 * part. So any of them can be taken over without the others, and what that saves adds up. */
typedef struct tsri_part_change {
    int part;
    double less_s, more_bytes; /* seconds saved; bytes as inference estimates them, at least 1 */
} tsri_part_change;

typedef struct tsri_parts {
    int n;                    /* those that save time */
    tsri_part_change *change; /* [n], the most seconds a byte first */
    int count;                /* all parts */
    int *of;                  /* the part of each node of the problem; -1: it does not differ */
} tsri_parts;

/* The work of a second of tsr_compile_opts.search_s, in additions of the search: all ranks, and
 * plans made without them, count the same, however fast each of them is. Other work counts as so
 * many additions. */
#define TSRI_WORK_PER_S 1e9
enum {
    TSRI_WORK_OF_PRICE = 1000, /* of an entry of a conversion's table */
    TSRI_WORK_OF_BUILT = 10000 /* of an op of a plan that is built and measured */
};

typedef struct tsri_infer_opts {
    int64_t memory_limit; /* bytes of a rank's values, variables and ports at any time; 0: none */
    bool quick_within;    /* within the limit good signatures will do */
    bool alternatives;    /* say what else each op could do */
    double bucket_bytes;  /* gradients' reductions are joined up to this size */
    bool infer_updates;   /* see tsr_compile_opts */
    /* Per op: the signature of its first result; ndim 0: any. NULL: nothing is pinned. Nothing
     * fits where no legal choice has all of them. */
    const tsr_sbp *pinned;
    int most_signatures; /* of an op on more than two dimensions; 0: the usual number */
} tsri_infer_opts;

/* Whether a conversion makes addends of zeros where there were none. */
bool tsri_fills_zeros(const tsr_placement *from_placement, tsr_sbp from,
                      const tsr_placement *to_placement, tsr_sbp to);
/* Variables that the user left to the compiler are AUTO at the call. Between calls with the same
 * inference nothing of the graph may change, nor opts->bucket_bytes. */
tsr_status tsri_infer(tsri_inference *inference, const tsri_infer_opts *opts,
                      tsri_inferred *out_inferred);
/* Returns seconds below which no choice costs, by the model, of those that an answer was chosen
 * from: with whatever memory, as inference's estimate of it proves nothing of a plan's. 0 where
 * some legal signatures were not searched. */
double tsri_infer_bound(const tsri_inferred *inferred);
/* The signatures that a live op could have by an answer; ops of one class have the same list. */
const tsri_nd_signature *tsri_infer_signatures(const tsri_inferred *inferred, int op, int *out_n);
/* Finds what could be taken over from one answer of an inference into another: nothing, where one
 * was relaxed otherwise. */
tsr_status tsri_infer_parts(const tsri_inferred *from, const tsri_inferred *to,
                            tsri_parts *out_parts);
/* Makes the answer `from` with the parts taken[parts->n] as `to` has them. */
tsr_status tsri_infer_mix(const tsri_inferred *from, const tsri_inferred *to,
                          const tsri_parts *parts, const bool *taken, bool alternatives,
                          tsri_inferred *out_inferred);

#endif
