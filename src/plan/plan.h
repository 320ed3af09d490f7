/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a plan: a program (src/ir), the steps that it was lowered to, and their runs. */
#ifndef TESSERA_PLAN_PLAN_H
#define TESSERA_PLAN_PLAN_H

#include "src/plan/lower/steps.h"

struct tsr_plan {
    tsri_owned owned;
    tsri_ir ir;
    tsri_part part[TSRI_DEVICES]; /* by tsr_device: what it has there */
    tsri_pool pool;
    int *group; /* in the program's scratch: the ranks of the collective that is lowered */
    int cgroup;
    void **step_ptrs; /* buffers it is written to before a run */
    tsri_device **step_devices;
    int nstep_ptrs;
    tsri_step *steps;
    int nsteps;
    int nunfed;                   /* inputs that this rank must still feed before it can run */
    bool has_results;             /* the last run went well: outputs can be fetched */
    double *trace;                /* see src/exec/trace.h; NULL: not asked for */
    struct tsri_watch *watch;     /* see src/exec/watch.h; NULL: not asked for */
    struct tsri_finite *finite;   /* see src/exec/finite.h; NULL: no losses, or not looked at */
    struct tsri_compare *compare; /* see src/exec/compare.h; NULL: not asked for */
    tsri_replay replay;
    tsr_plan_info info;
    bool is_cut;        /* search_s ended the search for signatures */
    double search_work; /* with search_s: the units of work that were done */
    char failure[512];  /* why it can't run any more (a run failed, a variable is gone), or "" */
    char *explain;
};

#endif
