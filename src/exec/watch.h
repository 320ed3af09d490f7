/* SPDX-License-Identifier: Apache-2.0 */
/* Telling when a run has written variables, while it goes on. */
#ifndef TESSERA_EXEC_WATCH_H
#define TESSERA_EXEC_WATCH_H

#include "src/exec/exec.h"

/* The work that writes variable i is done or, on a device with streams, in its stream of compute;
 * called on the rank's thread, inside of tsr_run. */
typedef tsr_status tsri_watch_fn(void *arg, int i);

typedef struct tsri_watch {
    tsri_watch_fn *fn;
    void *arg;
    int nvariables;
    bool *writes; /* by variable: the plan writes it */
    int *first;   /* by step: the variables that it completes begin here in `variable` */
    int *variable;
    bool *cuts; /* by step: it completes a set of variables, so a captured run is cut behind it */
} tsri_watch;

/*
 * From now on runs of the plan call fn(arg, i) as soon as vars[i] is written, for those that the
 * plan writes (*out_found of them). Takes the place of an earlier watch, unless it writes none.
 * set: by variable, the number of its set, from 0 on; a captured run tells of variables when their
 * set is complete. Errors: TSR_ERR_NO_MEMORY.
 */
tsr_status tsri_plan_watch(tsr_plan *plan, int n, tsr_variable *const *vars, const int *set,
                           tsri_watch_fn *fn, void *arg, int *out_found);
/* The arg of the plan's watch; NULL without one. */
void *tsri_plan_watcher(const tsr_plan *plan);
/* Whether runs write watched variable i. */
bool tsri_plan_watches(const tsr_plan *plan, int i);
/* Step `step` is done, or in the stream. */
tsr_status tsri_plan_watched(const tsr_plan *plan, int step);
/* Where a captured run that begins with step `first` ends: behind the step that completes a set, or
 * with the last one. */
int tsri_plan_watch_cut(const tsr_plan *plan, int first);

/* The last step that starts at or before an entry. */
int tsri_step_at(const tsr_plan *plan, int entry);

#endif
