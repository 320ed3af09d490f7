/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lowering. */
#ifndef TESSERA_PLAN_LOWER_H
#define TESSERA_PLAN_LOWER_H

#include "src/plan/plan.h"

/* order[i]: the axis that is i-th in memory. */
void tsri_physical_order(const tsri_value *v, int *order);

/* The call of a collective item on this rank, which takes part in it, and its group. */
tsr_status tsri_lower_call(tsr_plan *plan, const tsri_item *item, tsri_call **out_call);

/* Joins neighbouring steps into one, where kernels can. */
tsr_status tsri_lower_join(tsr_plan *plan);

#endif
