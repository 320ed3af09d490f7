/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lowering. */
#ifndef TESSERA_PLAN_LOWER_H
#define TESSERA_PLAN_LOWER_H

#include "src/plan/pass/pass.h"
#include "src/plan/plan.h"

/* order[i]: the axis that is i-th in memory. */
void tsri_physical_order(const tsri_value *v, int *order);

/* The call of a collective item on this rank, which takes part in it, and its group. */
tsr_status tsri_lower_call(tsr_plan *plan, const tsri_item *item, tsri_call **out_call);

/* Joins neighbouring steps into one, where kernels can. */
tsr_status tsri_lower_join(tsr_plan *plan);

/* Gives a step room for so many operands and results. */
tsr_status tsri_lower_ports(tsr_plan *plan, tsri_step *step, int nin, int nout);
/* Notes what scratch is expected of an item in a virtual world, where no kernel is made. */
void tsri_lower_expect(tsr_plan *plan, tsri_item *it);
/* Notes what does an item's work, and what scratch that takes. */
void tsri_lower_took(tsr_plan *plan, tsri_item *it, const char *impl, size_t scratch);
/* Makes the step of the chain that begins with an item. */
tsr_status tsri_lower_chain(tsr_plan *plan, int item, tsri_step *step);

#endif
