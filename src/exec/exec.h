/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles and runs of plans. */
#ifndef TESSERA_EXEC_EXEC_H
#define TESSERA_EXEC_EXEC_H

#include "src/plan/plan.h"

/* Every one of n ranks' words, in the order of peers, beside the plan's own communication and not
 * counted with it. Collective over peers. */
tsr_status tsri_plan_gather(const tsr_plan *plan, int n, const int *peers, const char *what,
                            int64_t words, const int64_t *mine, int64_t *all);
/* The figures that a compile with these options works with, for a program of this kind of device.
 */
tsri_cost_model tsri_plan_cost_model(const tsr_compile_opts *opts, tsr_device kind);
/* tsr_compile_with; with `fixes` false, variables keep the signatures that they have, or have none.
 */
tsr_status tsri_plan_compile(tsr_graph *graph, const tsr_compile_opts *opts, bool fixes,
                             tsr_plan **out_plan);
/* Whether a plan of a graph in a virtual world is found within opts->memory_limit, by the search of
 * a compile, but without a word on what the leanest needs where there is none. */
tsr_status tsri_plan_fits(tsr_graph *graph, const tsr_compile_opts *opts, bool *out_fits);
/* "conv2d", "all_reduce": static storage. */
const char *tsri_step_name(const tsri_step *step);
void tsri_local_box_run(const tsri_local_box *box, const void *src, void *dst);
/* Copies a box on a device with streams. */
tsr_status tsri_local_box_queue(tsri_device *device, const tsri_local_box *box, const void *src,
                                void *dst);
/* Whether runs are captured at all, by what the ranks can whose devices talk. Collective over the
 * world. */
tsr_status tsri_replay_connect(tsr_plan *plan);
/* Whether they will be, once each has tried: `status` is this rank's own, with its text as the
 * thread's last error. *out_captured: TSR_OK, or what the first of those met that could not.
 * Collective over plan->replay.peers. Errors: the ranks could not tell. */
tsr_status tsri_replay_agree(tsr_plan *plan, tsr_status status, tsr_status *out_captured);
/* Forgets the captured parts, of which none is running. */
void tsri_replay_drop(tsri_replay *replay);
/* The plan can't be run any more, for the thread's last error; peers hear of it. Returns `status`.
 */
tsr_status tsri_plan_fail(tsr_plan *plan, tsr_status status);
/* Notes a failure of which peers have heard already. */
void tsri_plan_note_failure(tsr_plan *plan);
/* Marks the inputs that this rank must feed before the first run: those that the plan reads and of
 * which the rank holds elements (of from_local in B, the ranks whose value is everyone's). */
void tsri_plan_note_inputs(tsr_plan *plan);
/* The input has its value. */
void tsri_plan_note_fed(tsr_plan *plan, tsri_ir_port *port);
/* Returns what the plan's runs on devices have met by now; does not wait. */
tsr_status tsri_plan_poll(tsr_plan *plan);
/* Walks a plan's steps, or replays them. */
tsr_status tsri_plan_walk(tsr_plan *plan);
/* Runs a plan as tsr_run does, but for its runner, which calls this. */
tsr_status tsri_plan_run(tsr_plan *plan);

#endif
