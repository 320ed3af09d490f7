/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers of a program's own, as the others of this folder need them. */
#ifndef TESSERA_OPTIM_OWN_H
#define TESSERA_OPTIM_OWN_H

#include <tessera/own_optimizer.h>

#include "src/graph/op.h"
#include "src/optim/optim.h"

typedef struct tsri_own_optimizer tsri_own_optimizer;
struct tsri_own_optimizer {
    tsri_owned owned;
    tsr_world *world;
    tsri_pool pool;           /* of the texts */
    tsri_own_optimizer *next; /* that the world defined before */
    tsr_optimizer_def def;
    int nstates, nnumbers;
};

/* Where the numbers of such an update stand among those of TSRI_HYPER_...: its own, and the step.
 */
enum { TSRI_HYPER_OWN = TSRI_HYPER_DECAY, TSRI_HYPER_STEP = TSRI_HYPER_ROOT };

/* Returns the world's definition of this name; NULL: there is none. */
tsri_own_optimizer *tsri_own_optimizer_find(const tsr_world *world, const char *name);
/* Returns the number of the library's optimizers that has the name of number i, which groups set;
 * -1: there is none. */
int tsri_own_shared(const tsri_own_optimizer *own, int i);
/* Checks a value of number i. */
tsr_status tsri_own_check(const tsri_own_optimizer *own, const char *who, int i, double value);
/* Sets h to the numbers of the next run, but for those that all optimizers have. */
void tsri_own_hyper(const tsr_optimizer *o, const tsri_optim_group *group, double step, double *h);

/* Returns number `which` as a scalar of the parameter's dtype. */
typedef tsr_tensor *tsri_own_number_fn(void *arg, int which);
/* Declares the update of a parameter and its states, *u, of which param, grad and state are set;
 * returns the op that makes the parameter's new value, or NULL where the graph has failed. scaled:
 * gradients have a scale. */
tsri_op *tsri_own_update(const tsri_ctx *c, tsr_optimizer *o, const tsri_optim_slot *slot,
                         tsr_update *u, bool scaled, tsri_own_number_fn *number, void *arg);

#endif
