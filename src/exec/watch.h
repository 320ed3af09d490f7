/* SPDX-License-Identifier: Apache-2.0 */
/* Telling when a run has written variables, while it goes on. */
#ifndef TESSERA_EXEC_WATCH_H
#define TESSERA_EXEC_WATCH_H

#include "src/plan/plan.h"

/* Variable i has its value; called on the rank's thread, inside of tsr_run. */
typedef tsr_status tsri_watch_fn(void *arg, int i);

typedef struct tsri_watch {
    tsri_watch_fn *fn;
    void *arg;
    int nvariables;
    bool *writes; /* by variable: the plan writes it */
    int *first;   /* by step: what it completes begins here in `variable` */
    int *variable;
} tsri_watch;

/*
 * From now on runs of the plan call fn(arg, i) as soon as vars[i] is written, for those that the
 * plan writes (*out_found of them). Takes the place of an earlier watch, unless it writes none. On
 * the host alone. Errors: TSR_ERR_UNSUPPORTED where a variable lies on a device with streams,
 * TSR_ERR_NO_MEMORY.
 */
tsr_status tsri_plan_watch(tsr_plan *plan, int n, tsr_variable *const *vars, tsri_watch_fn *fn,
                           void *arg, int *out_found);
/* The arg of the plan's watch; NULL without one. */
void *tsri_plan_watcher(const tsr_plan *plan);
/* Whether runs write watched variable i. */
bool tsri_plan_watches(const tsr_plan *plan, int i);
/* Step `step` is done. */
tsr_status tsri_plan_watched(const tsr_plan *plan, int step);

/* The last step that starts at or before an entry. */
int tsri_step_at(const tsr_plan *plan, int entry);

#endif
