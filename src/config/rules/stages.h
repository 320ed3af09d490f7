/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline: an axis of the mesh, and rules that say which modules are at which index.
 */
#ifndef TESSERA_CONFIG_RULES_STAGES_H
#define TESSERA_CONFIG_RULES_STAGES_H

#include "src/config/program.h"
#include "src/nn/module.h"

/* Checks all of `stages` but the names, and finds its axis. */
tsr_status tsri_check_stages(tsri_experiment *e, const tsri_reader *r);
/* Returns the dimension of the input's mesh that has the stages; -1: the file says none. */
int tsri_stages_dim(const tsri_experiment *e);

/* Makes the stages' placements of the mesh *placement, which becomes that of the first: there the
 * model is made. Does nothing without stages. */
tsr_status tsri_stages_make(const tsri_program *p, const tsr_placement **placement);
/* Puts the model's variables and modules into their stages. Errors name the rule that fits nothing,
 * and the variable that no rule fits. */
tsr_status tsri_stages_apply(const tsri_program *p);
/* Returns whether a placement is one of a stage. */
bool tsri_stages_have(const tsri_program *p, const tsr_placement *placement);
/* Makes a signature on the mesh one of a stage. Fails for one that is split over the stages. */
tsr_status tsri_stages_sbp(const tsri_program *p, const tsri_yaml *node, tsr_sbp *sbp);

#endif
