/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_TRAIN_PROGRAM_H
#define TESSERA_TRAIN_PROGRAM_H

#include <tessera/train.h>

/* The world that a program belongs to. */
tsr_world *tsri_program_world(const tsr_program *program);
/* Whether its graphs are each rank's own. */
bool tsri_program_is_local(const tsr_program *program);

#endif
