/* SPDX-License-Identifier: Apache-2.0 */
/* `stages.split`: stages that planning finds. */
#ifndef TESSERA_CONFIG_RULES_SPLIT_H
#define TESSERA_CONFIG_RULES_SPLIT_H

#include "src/config/program.h"

/* Finds the stage of each variable of the program's model. Called after the stages' placements are
 * made and before the model is. It plans the experiment with all variables in the first stage, in a
 * virtual world, so all ranks find the same. Not collective. */
tsr_status tsri_split_find(const tsri_program *p);

#endif
