/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_EXEC_PRINT_H
#define TESSERA_EXEC_PRINT_H

#include "src/exec/exec.h"

/* Writes the lines that tsr_print has declared, behind a run that went well. */
tsr_status tsri_plan_print(tsr_plan *plan);

#endif
