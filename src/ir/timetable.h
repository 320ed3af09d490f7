/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timetable of a step with micro-batches. A *stage* is a set of ranks that the ops of the parts
 * join; different stages share no rank. The items of the parts that a stage does between two
 * exchanges with other stages are a *segment*. A *task* is a segment's items for one micro-batch.
 * Ranks of a stage execute its tasks in the timetable's order, which is one order over all stages:
 * each task comes after the tasks that it waits for, so the stages cannot deadlock. Devices that
 * queue their work make the calls between stages in that order too, one call after the other:
 * sender and receiver both queue the call for a value directly after the task that produces it.
 */
#ifndef TESSERA_IR_TIMETABLE_H
#define TESSERA_IR_TIMETABLE_H

typedef struct tsri_part_segment {
    int stage;
    int depth;     /* the most changes of stage on a path to it: the stage's number going forward */
    double task_s; /* estimated seconds of a task */
} tsri_part_segment;

typedef struct tsri_task_of {
    int segment, part;
    double start_s, end_s; /* estimated, since the first task's start */
} tsri_task_of;

typedef struct tsri_timetable {
    int nstages, nsegments, ntasks; /* ntasks: nsegments times parts; 0 without micro-batches */
    int turn_depth;                 /* where micro-batches turn back; -1: they only go forward */
    tsri_part_segment *segment;
    int *stage_of; /* [ranks of the world] -1: it has no task; NULL: see tsri_ir_stage_of */
    /* Per stage: how many micro-batches' copies a rank holds of a value that outlives its task. */
    int *slots;
    tsri_task_of *task; /* in their order */
} tsri_timetable;

#endif
