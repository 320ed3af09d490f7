/* SPDX-License-Identifier: Apache-2.0 */
/* Declaring updates: shared by update.c, which has those of most optimizers, and lamb.c. */
#ifndef TESSERA_OPTIM_UPDATE_H
#define TESSERA_OPTIM_UPDATE_H

#include "src/graph/op.h"
#include "src/optim/optim.h"

/* An optimizer's updates in a graph, being declared. */
typedef struct tsri_applying {
    tsri_ctx c;
    tsr_optimizer *o;
    tsr_tensor *scale; /* f64 scalar by which gradients are multiplied; NULL: none */
    tsr_tensor *found; /* scalar that is not 0 where updates are left out; NULL: none */
} tsri_applying;

/* --- apply.c ---------------------------------------------------------------------------------- */
/* Returns the numbers of one part of a parameter's update; the gradients' scale is for the part
 * that reads the gradient last. */
tsr_tensor *tsri_update_numbers(tsri_applying *a, const tsri_optim_slot *slot,
                                tsri_hyper_part part);
/* Returns the norm, a scalar in f64, where the run updates, and NaN in other runs. */
tsr_tensor *tsri_update_norm(const tsri_ctx *c, tsr_optimizer *o, tsr_tensor *norm);
/* An update's numbers beside the gradients' scale. */
typedef struct tsri_update_rest {
    tsr_tensor *first, *skip, *last, *whole; /* skip: where the run leaves updates out, too */
} tsri_update_rest;
tsri_update_rest tsri_update_parts(const tsri_applying *a, tsr_tensor *numbers);
/* Returns the numbers with a scale that the run computes; NULL: with their own. */
tsr_tensor *tsri_update_join(const tsri_applying *a, const tsri_update_rest *rest,
                             tsr_tensor *scale);
/* Returns one of the numbers as a scalar of the parameter's dtype. */
tsr_tensor *tsri_update_number(const tsri_applying *a, tsr_tensor *numbers, int which,
                               tsr_dtype dtype);
/* Reads a state of a parameter; NULL: it has none. */
tsr_tensor *tsri_update_state(tsri_applying *a, const tsri_optim_slot *slot, int i);
/* Adds the op (value, states, grad, numbers) -> value, states; NULL where the graph failed. */
tsri_op *tsri_update_add(tsri_applying *a, tsri_op_kind kind, const tsri_optim_slot *slot,
                         tsr_tensor *value, tsr_tensor *grad, tsr_tensor *numbers);

/* --- lamb.c ----------------------------------------------------------------------------------- */
/* Among the numbers of TSRI_HYPER_LAMB: the weight decay. */
enum { TSRI_HYPER_LAMB_DECAY = TSRI_HYPER_ROOT };

/* One parameter's update by LAMB. Callers fill the first two. */
typedef struct tsri_lamb {
    tsri_optim_slot *slot;
    tsr_tensor *grad;
    tsr_tensor *value, *step, *numbers;
    const struct tsri_lamb *like; /* an earlier one that has the next row in common; or NULL */
    tsr_tensor *decay, *zero, *one;
    tsri_update_rest parts;
    tsr_tensor *size, *far; /* the squares of the parameter and of the step, added up: f64 */
} tsri_lamb;

/* Declares the updates of n parameters. False where the graph failed. */
bool tsri_lamb_add(tsri_applying *a, int n, tsri_lamb *updates);

#endif
