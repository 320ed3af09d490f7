/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategies of each op: its legal signatures and their compute times. Equal ops (same kind,
 * attributes, shapes, placement, hints: the blocks of a network) share one list, and lists are
 * compared by address, so that the problem's matrices can be shared as well.
 */
#ifndef TESSERA_PLAN_STRATEGIES_H
#define TESSERA_PLAN_STRATEGIES_H

#include "sbp/route/cost_model.h"
#include "src/graph/graph.h"

typedef struct tsri_strategies {
    struct tsri_strategies *next; /* of its hash */
    const tsri_op *op;            /* the first op that has it */
    int id;
    int n;
    tsri_nd_signature *sig;
    float *cost;      /* seconds on the rank with the largest part */
    int64_t *usage;   /* bytes of the results, likewise */
    int groups_index; /* the rule's index g, or -1 */
    uint32_t added;   /* operands, as bits, that may be filled up with zeros to be P(sum) */
} tsri_strategies;

/* Signatures of an op on more than two dimensions that are searched at a time, in large graphs. */
enum { TSRI_MOST_SIGNATURES = 48 };

/* An answer, around which lists are kept that are too long to be searched whole. */
typedef struct tsri_nearby {
    const bool *live;                       /* per op */
    const tsri_nd_signature *const *chosen; /* per op; NULL if not live */
    const tsri_op *const *reader;           /* per tensor: the first live op that reads it; NULL */
} tsri_nearby;

/* All lists of a graph, by hash of the op's class. */
typedef struct tsri_strategy_table {
    tsri_pool *pool;
    const tsr_graph *g; /* NULL: a single op is asked about */
    const tsri_cost_model *model;
    bool infer_updates;        /* see tsr_compile_opts */
    int most;                  /* signatures of an op on more than two dimensions */
    const tsri_nearby *nearby; /* NULL: there is no answer yet */
    bool pruned;               /* some list lacks legal signatures: nothing is proven of answers */
    bool refines;              /* one of more than two dimensions does */
    int count;
    tsri_strategies *bucket[1024];
} tsri_strategy_table;

/* The op's list. Errors: TSR_ERR_SBP when hints leave nothing. */
tsr_status tsri_strategies_of(tsri_strategy_table *t, const tsri_op *op,
                              tsri_strategies **out_strategies);

/* The attributes that a rule or a cost may depend on: all but the keys of random numbers. */
tsri_attrs tsri_strategies_attrs(const tsri_op *op);
/* The signature that the program says an op's results have; ndim 0: none. */
tsr_sbp tsri_strategies_hint(const tsri_strategy_table *t, const tsri_op *op);
/* Whether two ops have one list: equal but for their names and random keys. */
bool tsri_strategies_same(const tsri_strategy_table *t, const tsri_op *a, const tsri_op *b);

/* Lists the signatures, in the pool, that the op of a tensor could make it in if nobody said which;
 * of a variable or an input those that it could be kept in. */
tsr_status tsri_legal_signatures(const tsri_cost_model *m, const tsr_tensor *t, tsri_pool *pool,
                                 int *out_n, tsr_sbp **out_sig);

/* How work lies over the indices of a rule, as a tsri_uneven tells it. An index is counted from 1;
 * 0: there is none. */
typedef struct tsri_work_shape {
    int some, rows, columns;
    double whole;
} tsri_work_shape;

/* The whole of an op's work, which a signature leaves a rank a share of. */
typedef struct tsri_op_work {
    tsr_dtype dtype; /* that it computes in */
    bool attends;    /* it is attention: tsri_cost_model.attention_share */
    bool multiplies; /* it is another product, or a convolution: product_share */
    double reach;    /* of that attention_share, by the op's length; 0: all */
    double flops;
    int nindices; /* of its rule */
    int64_t size[TSRI_RULE_MAX_INDICES];
    tsri_work_shape shape;
} tsri_op_work;
/* The work of an op that has a rule. The pool takes what the rule needs. */
tsr_status tsri_op_work_of(tsri_pool *pool, const tsri_op *op, tsri_op_work *out_work);
/* The share of it that the busiest rank does: what splits, as a tsri_nd_signature has them, leave
 * of it. */
double tsri_op_share(const tsr_placement *p, const tsri_op_work *work, const uint32_t *split);
/* Seconds of a kernel that does `flops` of the work: its start, and the longer of computing and
 * touching memory. */
float tsri_op_seconds(const tsri_cost_model *m, const tsri_op_work *work, double flops,
                      double bytes);

/* Seconds of an op in a signature, on the rank with the largest part. */
float tsri_strategy_seconds(const tsri_strategy_table *t, const tsri_op *op,
                            const tsri_op_work *work, const tsri_nd_signature *sig);

/* Shortens a list that is too long to be searched, and notes in the table that it did. */
tsr_status tsri_strategies_prune(tsri_strategy_table *t, const tsri_op *op,
                                 const tsri_op_work *work, const tsri_rule *rule,
                                 tsri_strategies *s);

/* Bytes of a tensor's largest part on a placement. */
int64_t tsri_part_bytes(const tsr_tensor *t, const tsr_placement *placement, tsr_sbp sbp);

/* The signature that the variables have which an optimizer's op writes, if it is said and all have
 * it; else AUTO. */
tsr_sbp tsri_kept_signature(const tsri_op *op);

#endif
