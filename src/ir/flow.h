/* SPDX-License-Identifier: Apache-2.0 */
/* The producer and the consumers of each value of a program. */
#ifndef TESSERA_IR_FLOW_H
#define TESSERA_IR_FLOW_H

#include "src/ir/ir.h"

typedef struct tsri_flow {
    const tsri_ir *ir;
    int *maker;  /* [nvalues] the item that produces each value, or -1 */
    int *first;  /* [nvalues + 1] the position in reader[] of each value's first consumer */
    int *reader; /* the consumers: items */
} tsri_flow;

/* Finds producers and consumers; the pool owns the arrays. Valid until items change. */
tsr_status tsri_flow_find(const tsri_ir *ir, tsri_pool *pool, tsri_flow *out_flow);
/* Returns the operand of which result `value` is another form; in a bucket, that of the same
 * member. */
int tsri_operand_behind(const tsri_item *it, int value);
/* Returns the variable's value of which `value` is a converted, sliced, cast or transposed form; or
 * -1. */
int tsri_variable_behind(const tsri_flow *f, int value);

#endif
