/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles plans and runs them. */
#ifndef TESSERA_EXEC_EXEC_H
#define TESSERA_EXEC_EXEC_H

#include "src/plan/plan.h"

/* Gathers `words` words of each of n ranks, in the order of `peers`, without counting it as the
 * plan's communication. Collective over peers. */
tsr_status tsri_plan_gather(const tsr_plan *plan, int n, const int *peers, const char *what,
                            int64_t words, const int64_t *mine, int64_t *all);
/* The cost model of a compile with these options, for a program on this kind of device. */
tsri_cost_model tsri_plan_cost_model(const tsr_compile_opts *opts, tsr_device kind);
/* As tsr_compile_with. If `fixes` is false, variables without a signature are left without one. */
tsr_status tsri_plan_compile(tsr_graph *graph, const tsr_compile_opts *opts, bool fixes,
                             tsr_plan **out_plan);
/* Makes the copy of a graph that a compile with these options works on: rewritten, and without
 * signatures. Free it with tsri_graph_copy_free. Not collective. */
tsr_status tsri_compile_copy(const tsr_graph *graph, const tsr_compile_opts *opts,
                             tsr_graph **out_copy);
/* Whether the search of a compile finds a plan within opts->memory_limit, in a virtual world.
 * Unlike a compile, it does not report what the leanest plan needs. */
tsr_status tsri_plan_fits(tsr_graph *graph, const tsr_compile_opts *opts, bool *out_fits);
/* Returns the name of a step's op or collective, such as "conv2d"; static storage. */
const char *tsri_step_name(const tsri_step *step);
void tsri_local_box_run(const tsri_local_box *box, const void *src, void *dst);
/* Queues the copy of a box on a device with streams. */
tsr_status tsri_local_box_queue(tsri_device *device, const tsri_local_box *box, const void *src,
                                void *dst);
/* Decides whether runs are captured, by the abilities of all ranks whose devices communicate.
 * Collective over the world. */
tsr_status tsri_replay_connect(tsr_plan *plan);
/* Exchanges the results of all peers' captures. `status` is this rank's, with its text as the
 * thread's last error; *out_captured is TSR_OK or the first peer's error. Collective over
 * plan->replay.peers. Returns an error if the exchange fails. */
tsr_status tsri_replay_agree(tsr_plan *plan, tsr_status status, tsr_status *out_captured);
/* Frees the captured parts; none may be running. */
void tsri_replay_drop(tsri_replay *replay);
/* Marks the plan as failed with the thread's last error, and informs the peers. Returns `status`.
 */
tsr_status tsri_plan_fail(tsr_plan *plan, tsr_status status);
/* Marks the plan as failed with the thread's last error; the peers know of it already. */
void tsri_plan_note_failure(tsr_plan *plan);
/* Marks the inputs that this rank must feed before the first run: inputs with consumers of which
 * the rank holds elements; for from_local in B, only on the rank whose value is broadcast. */
void tsri_plan_note_inputs(tsr_plan *plan);
/* Notes that an input was fed. */
void tsri_plan_note_fed(tsr_plan *plan, tsri_ir_port *port);
/* Returns the first error of the plan's runs on devices so far, without waiting. */
tsr_status tsri_plan_poll(tsr_plan *plan);
/* Takes memory for the kernels' packed weights, and lists the variables that are packed and those
 * that a run writes. Not collective. */
tsr_status tsri_kept_create(tsr_plan *plan);
/* Before a run: gives the variables that it writes new versions, and packs the weights again if one
 * of them has changed. With TESSERA_CHECK, TSR_ERR_INTERNAL if packed weights differ from the
 * variables. Not collective. */
tsr_status tsri_kept_update(tsr_plan *plan);
void tsri_kept_free(tsr_plan *plan);
/* Executes the plan's steps, or replays their capture. */
tsr_status tsri_plan_walk(tsr_plan *plan);
/* As tsr_run, without the plan's runner, which calls this function. */
tsr_status tsri_plan_run(tsr_plan *plan);

#endif
