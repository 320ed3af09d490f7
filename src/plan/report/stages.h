/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a plan with micro-batches, for people. */
#ifndef TESSERA_PLAN_STAGES_H
#define TESSERA_PLAN_STAGES_H

#include "src/plan/plan.h"

typedef void tsri_put_line(const char *line, void *arg);

typedef struct tsri_stages_shown {
    int most;               /* stages that are shown */
    bool times, parameters; /* a table of their times, and the parameters in it */
} tsri_stages_shown;

/* Gives `put` a heading, a table of stages and a picture of the timetable; nothing of a plan
 * without stages. In the table the last column is the number of micro-batches for which a stage
 * holds activations. */
void tsri_report_stages(const tsr_plan *plan, tsri_stages_shown shown, tsri_put_line *put,
                        void *arg);
/* The part of the stages' time, from the first task to the last, in which they are idle; 0 without
 * stages. */
double tsri_stages_bubble(const tsri_ir *ir);
/* Whether runs follow the timetable of a plan with stages: on several kinds of device they do not.
 */
bool tsri_stages_run(const tsri_ir *ir);
/* "1f1b", "gpipe". */
const char *tsri_pipeline_name(tsr_pipeline pipeline);

/* Consecutive parameters of the program that are in one stage, by the first and the last name. */
typedef struct tsri_stage_run {
    const char *first, *last;
} tsri_stage_run;
/* Writes the first `max` runs of a stage's parameters. Returns how many runs it has. */
int tsri_stages_parameters(const tsri_ir *ir, int stage, int max, tsri_stage_run *out_runs);

#endif
