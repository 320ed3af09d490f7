/* SPDX-License-Identifier: Apache-2.0 */
/* An optimizer's part of a checkpoint: its tensors, and a text of its numbers. */
#ifndef TESSERA_OPTIM_STATE_H
#define TESSERA_OPTIM_STATE_H

#include <stdio.h>

#include <tessera/optim.h>

#include "src/graph/graph.h"

typedef tsr_status tsri_optim_state_fn(tsr_variable *v, const char *name, void *arg);
/* Visits the states of all parameters: "fc.weight.exp_avg". Stops at the first error. */
tsr_status tsri_optimizer_visit_states(tsr_optimizer *o, tsri_optim_state_fn *fn, void *arg);
/* Visits the means of gradients so far: "fc.weight.gradient". */
tsr_status tsri_optimizer_visit_means(tsr_optimizer *o, tsri_optim_state_fn *fn, void *arg);
/* Whether gradients of runs are waiting for an update. */
bool tsri_optimizer_is_between(const tsr_optimizer *o);
/* Whether its parameters are a rank's own (tsr_module_set_local). */
bool tsri_optimizer_is_local(const tsr_optimizer *o);
/* Writes steps, rates and numbers of groups, what is frozen, and what plateaus remember. */
void tsri_optimizer_put_numbers(const tsr_optimizer *o, FILE *f);
/*
 * Takes such a text, of an optimizer that was made in the same way. keeps_own: groups, their
 * numbers and what is frozen stay as the optimizer was made; it takes the counts of updates and
 * runs, and what the plateau of a group remembers where the group's rate is that of the text. On an
 * error nothing has changed. TSR_ERR_FORMAT; TSR_ERR_INVALID and TSR_ERR_STATE naming what does not
 * fit.
 */
tsr_status tsri_optimizer_take_numbers(tsr_optimizer *o, const char *text, bool keeps_own);

#endif
