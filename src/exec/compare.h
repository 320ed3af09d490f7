/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing, before each run, what each rank gave by itself. */
#ifndef TESSERA_EXEC_COMPARE_H
#define TESSERA_EXEC_COMPARE_H

#include "src/plan/plan.h"

typedef struct tsri_compare tsri_compare;

/* Whether this rank asks for it, by its options or TESSERA_COMPARE. */
bool tsri_compare_asked(const tsr_compile_opts *opts);
/* From now on runs compare. For a plan that is bound; all ranks or none. Not collective. */
tsr_status tsri_compare_create(tsr_plan *plan);
/* TSR_ERR_MISMATCH, the same on all of the plan's ranks, names what differs. Collective over them.
 */
tsr_status tsri_compare_run(tsr_plan *plan);

#endif
