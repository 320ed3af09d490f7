/* SPDX-License-Identifier: Apache-2.0 */
/* A chain in the making: chain.c makes those around products, and rows.c those without. */
#ifndef TESSERA_PLAN_CHAINER_H
#define TESSERA_PLAN_CHAINER_H

#include "src/ir/flow.h"

typedef struct tsri_chainer {
    tsri_ir *ir;
    tsri_flow flow;
    int *chain;    /* per item: its chain, 0 */
    int *position; /* per item: where it goes: that of its chain, or its own */
    int nchains;
    int member[TSRI_CHAIN_MAX], nmembers; /* the chain that is made */
    int at;                               /* its position */
} tsri_chainer;

/* Returns the place of an item among the members; -1: it is none. */
int tsri_chainer_find(const tsri_chainer *c, int item);
static inline bool tsri_chainer_is_member(const tsri_chainer *c, int item)
{
    return tsri_chainer_find(c, item) >= 0;
}
/* Whether the operands and results of all members can be told apart by number. */
bool tsri_chainer_is_small(const tsri_chainer *c);
/* Makes the members a chain at its position. */
void tsri_chainer_finish(tsri_chainer *c);

/* Makes chains of items that are in none: element-wise ones and reductions. */
void tsri_chainer_rows(tsri_chainer *c);

#endif
