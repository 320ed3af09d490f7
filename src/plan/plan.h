/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a plan: its program (src/ir), the steps that lowering made of it, and their state.
 */
#ifndef TESSERA_PLAN_PLAN_H
#define TESSERA_PLAN_PLAN_H

#include "src/plan/lower/steps.h"

struct tsr_plan {
    tsri_owned owned;
    tsri_ir ir;
    tsri_part part[TSRI_DEVICES]; /* the plan's memory on each kind of device, by tsr_device */
    tsri_pool pool;
    int *group; /* [cgroup] lowering's list of ranks, in the program's scratch */
    int cgroup;
    tsri_word *words;
    int nwords;
    tsri_step *steps;
    int nsteps;
    tsri_walk walk;
    const tsri_condition **conditions; /* of items of any rank */
    int nconditions;
    int nunfed;                   /* number of inputs that this rank must feed before a run */
    bool has_results;             /* the last run succeeded, so outputs can be fetched */
    double *trace;                /* see src/exec/trace.h; NULL if off */
    struct tsri_watch *watch;     /* see src/exec/watch.h; NULL if off */
    struct tsri_finite *finite;   /* see src/exec/finite.h; NULL if off or without losses */
    struct tsri_compare *compare; /* see src/exec/compare.h; NULL if off */
    tsri_replay replay;
    tsri_kept kept;
    tsr_plan_info info;
    bool is_cut;        /* search_s ended the search for signatures */
    double search_work; /* units of work of the search, if search_s is set */
    char
        failure[512]; /* the reason why no run is possible (a failed run, a lost variable), or "" */
    char *explain;
};

#endif
