/* SPDX-License-Identifier: Apache-2.0 */
/* Makers and readers: which items of a program make and read each value. */
#ifndef TESSERA_IR_FLOW_H
#define TESSERA_IR_FLOW_H

#include "src/ir/ir.h"

typedef struct tsri_flow {
    const tsri_ir *ir;
    int *maker;  /* per value: the item, -1: none makes it */
    int *first;  /* [nvalues + 1]: where the readers of each value begin in reader[] */
    int *reader; /* items */
} tsri_flow;

/* Finds makers and readers; all of it lies in `pool`. It holds until items change. */
tsr_status tsri_flow_find(const tsri_ir *ir, tsri_pool *pool, tsri_flow *out_flow);
/* Returns the operand that result `value` of an item is a form of: of a bucket its own member's. */
int tsri_operand_behind(const tsri_item *it, int value);
/* Returns the value of a variable that a value is a form of: converted, cut, cast or turned; -1. */
int tsri_variable_behind(const tsri_flow *f, int value);

#endif
