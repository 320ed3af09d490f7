/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the tasks of a program whose parts are divided: a part of the pass `stages`. */
#ifndef TESSERA_PLAN_TIMETABLE_H
#define TESSERA_PLAN_TIMETABLE_H

#include "src/plan/pass/pass.h"

/* Fills in the timetable's slots, tasks and seconds; stages and segments are known, and items stand
 * in the order of their segments. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsri_timetable_fill(tsri_ir *ir);
/* Calls between stages that may be under way from one segment to another: as many as a
 * communicator keeps, less some that are being made. */
enum { TSRI_CALLS_BETWEEN_STAGES = 48 };

#endif
