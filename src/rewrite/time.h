/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the rewrite for parts in time: turns.c decides, time.c changes the graph. */
#ifndef TESSERA_REWRITE_TIME_H
#define TESSERA_REWRITE_TIME_H

#include "src/rewrite/rewrite.h"

/* A tensor over the parts of a step. */
typedef struct tsri_over_time {
    tsri_turn turn;    /* PARTS without is_cut: a weight that each part converts */
    bool is_cut;       /* split or summed over time; an input with a batch axis is it in HEAD */
    bool is_early;     /* it depends on inputs and constants alone, so HEAD may compute it whole */
    tsr_sbp1 sig;      /* is_cut: S of an axis, or P */
    tsr_tensor *early; /* the same value, declared for HEAD: see tsri_op_def; or NULL */
    int early_begin, early_end; /* the ops that compute it */
    tsr_tensor *part;           /* the operand of PARTS ops; NULL until one needs it */
    tsr_tensor *total;          /* of a sum over parts, in f32 if it is a half; likewise */
    tsr_tensor *whole;          /* the operand of TAIL ops; likewise */
} tsri_over_time;

typedef struct tsri_cutter {
    tsr_graph *g;
    int declared;        /* number of ops before the rewrite */
    int parts;           /* k */
    int64_t blocks;      /* d: see src/core/op_list.h */
    tsri_over_time *of;  /* per declared tensor */
    bool *live;          /* per declared op: others stay as they are */
    tsri_turn *turn;     /* per declared op */
    tsri_signature *sig; /* per declared op: of PARTS, its signature over time */
} tsri_cutter;

/* Decides the turn of each op and the signature over time of each tensor. Errors: TSR_ERR_SHAPE
 * if rows are no multiple of the parts; TSR_ERR_UNSUPPORTED, which names the op and its operands,
 * if the parts would need a value that only the last part completes. */
tsr_status tsri_time_turns(tsri_cutter *c);
/* Finds the signature of an op over time that agrees with its cut operands and gives result `j` the
 * signature `out` (NULL: any); of several, the first one that splits the fewest other operands.
 * *out_found is false if there is none. */
tsr_status tsri_time_signature(const tsri_cutter *c, const tsri_op *op, const tsr_sbp1 *out, int j,
                               tsri_signature *out_signature, bool *out_found);

#endif
