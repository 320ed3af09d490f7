/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at losses: a run whose loss is infinite or not a number says where that began. */
#ifndef TESSERA_EXEC_FINITE_H
#define TESSERA_EXEC_FINITE_H

#include "src/exec/exec.h"

typedef struct tsri_finite tsri_finite;

/* From now on runs look at their losses, as the plan's options say. For a plan that is bound. Not
 * collective. */
tsr_status tsri_finite_create(tsr_plan *plan);
/* Step `step` is done. TSR_ERR_NAN where it has made a loss that is not finite and the options say
 * stop. */
tsr_status tsri_finite_look(tsr_plan *plan, int step);
/* Looks at a fetched loss of a device with streams, of which `data` is a copy. */
tsr_status tsri_finite_fetched(tsr_plan *plan, const tsri_ir_port *port, const void *data);

#endif
