/* SPDX-License-Identifier: Apache-2.0 */
/* When each step of a plan's last run began and ended. */
#ifndef TESSERA_EXEC_TRACE_H
#define TESSERA_EXEC_TRACE_H

#include "src/exec/exec.h"

/* From now on runs of the plan write down their times, into memory that is taken here. */
tsr_status tsri_trace_enable(tsr_plan *plan);

typedef struct tsri_trace_span {
    const tsri_step *step;
    const char *what;      /* "linear", "all_reduce": as tsr_plan_times calls it */
    int part;              /* the number of its micro-batch; -1: of none */
    double start_s, end_s; /* of the machine's monotonic clock, which its ranks share */
} tsri_trace_span;

/* How many spans there are: 0 before the first run, or where times were not asked for. */
int tsri_trace_count(const tsr_plan *plan);
tsri_trace_span tsri_trace_get(const tsr_plan *plan, int i);

#endif
