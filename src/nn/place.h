/* SPDX-License-Identifier: Apache-2.0 */
/* Where variables live: placing them, and telling where a module is. */
#ifndef TESSERA_NN_PLACE_H
#define TESSERA_NN_PLACE_H

#include "src/nn/module.h"

/* Whether a text fits a pattern: * any text, ? one character, [a-c] one of these, [!a-c] none of
 * them; a whole component such as 0-5 matches one of these numbers. */
bool tsri_glob(const char *pattern, const char *text);
/* Whether the variable may still be given this placement and signature; names it if not. */
tsr_status tsri_variable_check_place(const tsr_variable *v, const tsr_placement *p, tsr_sbp sbp);
/* Converts a signature on one placement into one on a stage's placement: on a slice the entry of
 * the sliced dimension is dropped, else the signature stays if it fits. Errors: TSR_ERR_SBP. */
tsr_status tsri_stage_sbp(const tsr_placement *from, const tsr_placement *to, tsr_sbp *sbp);

#endif
