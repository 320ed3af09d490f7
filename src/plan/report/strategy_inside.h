/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of recognising strategies. */
#ifndef TESSERA_PLAN_STRATEGY_INSIDE_H
#define TESSERA_PLAN_STRATEGY_INSIDE_H

#include "src/ir/flow.h"
#include "src/plan/report/strategy.h"

typedef struct tsri_layer {
    int item, x, w; /* operands: the data, the weight */
    int variable;   /* the value of the variable behind the weight */
    bool paired;    /* part of a Megatron pair, over the dimension that is looked at */
} tsri_layer;

typedef struct tsri_strategist {
    const tsr_plan *plan;
    tsri_pool *pool, scratch; /* what stays; what goes */
    tsri_strategy *made;
    tsri_flow flow;
    bool *fed;     /* per value: it depends on an input */
    int *layer_of; /* per item: 1 + its number as a layer; 0 */
    tsri_layer *layers;
    int nlayers;
    int *stack, *seen; /* of the walk along a pair */
} tsri_strategist;

tsri_layer_kind tsri_layer_over(const tsri_strategist *s, const tsri_layer *l, int dim);

/* strategy_words.c: sets an axis's words; those of stages and of the whole. */
tsr_status tsri_strategy_say_axis(tsri_strategist *s, const tsri_stage_strategy *stage,
                                  tsri_axis_strategy *axis);
tsr_status tsri_strategy_say(tsri_strategist *s);

#endif
