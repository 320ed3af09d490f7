/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an optimizer. */
#ifndef TESSERA_OPTIM_OPTIM_H
#define TESSERA_OPTIM_OPTIM_H

#include <tessera/optim.h>
#include "src/graph/graph.h"

typedef enum tsri_optim_kind {
    TSRI_OPTIM_SGD = 0,
    TSRI_OPTIM_ADAM,
    TSRI_OPTIM_ADAMW,
} tsri_optim_kind;

/* A parameter and what the optimizer keeps for it. */
typedef struct tsri_optim_slot {
    tsr_variable *param;
    tsr_variable *state[2]; /* SGD: momentum_buffer or none; Adam: exp_avg, exp_avg_sq */
} tsri_optim_slot;

struct tsr_optimizer {
    tsri_owned owned;
    tsr_world *world;
    tsri_optim_kind kind;
    const char *name; /* "sgd", "adam", "adamw" */
    tsri_attrs attrs; /* of the update ops */
    tsr_schedule schedule;
    tsr_sbp state_sbp;   /* AUTO: the parameter's */
    double lr;           /* base */
    int64_t step;        /* updates made */
    int nslots, nstates; /* nstates: per slot */
    tsri_optim_slot *slots;
    /* f64[TSRI_HYPER_COUNT], B: one for each placement of the parameters. */
    int nhypers;
    tsr_variable **hypers;
};

/* The signature that the states of parameter p are to have, as far as it is said yet. */
tsr_sbp tsri_optim_state_sbp(const tsr_optimizer *o, const tsr_variable *p);

/*
 * Declares the updates of n parameters from their gradients, tensors of g of the parameters'
 * shapes, dtypes and placements (NULL: no update of that one), and what is done before each run:
 * the rate, the step. It is the part of tsr_minimize behind differentiation. Parameters that are
 * none of the optimizer's, and gradients that don't fit, fail the graph, naming them.
 */
void tsri_optimizer_apply(tsr_optimizer *o, tsr_graph *g, int n, tsr_variable *const *params,
                          tsr_tensor *const *grads, tsri_loc loc);

/* Writes a hook's facts about an optimizer; see tsri_hook. The update ops have the rest. */
void tsri_optimizer_describe(const void *optimizer, FILE *f);

/* The rate of update `step` (from 0) for a base rate. */
double tsri_schedule_lr(const tsr_schedule *s, double base, int64_t step);
tsr_status tsri_schedule_check(const tsr_schedule *s);

#endif
