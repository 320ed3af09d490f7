/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing, before each run, what each rank gave by itself. */
#ifndef TESSERA_EXEC_COMPARE_H
#define TESSERA_EXEC_COMPARE_H

#include <stdio.h>

#include "src/exec/exec.h"

typedef struct tsri_compare tsri_compare;

/* Whether TESSERA_COMPARE asks for it; whether this rank asks for it, by its options or that. */
bool tsri_compare_in_environment(void);
bool tsri_compare_asked(const tsr_compile_opts *opts);
/* From now on runs compare. For a plan that is bound; all ranks or none. Not collective. */
tsr_status tsri_compare_create(tsr_plan *plan);
/* Hashes what `describe` writes about an optimizer's settings (tsri_hook). */
tsr_status tsri_compare_hash_settings(void (*describe)(const void *arg, FILE *f), const void *arg,
                                      int64_t *out);
/* TSR_ERR_MISMATCH, the same on all of the plan's ranks, names what differs. Collective over them.
 */
tsr_status tsri_compare_run(tsr_plan *plan);

#endif
