/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of collective.h on the local communicator. A task is a row of *steps*, as many on all
 * ranks, each a call of the group with a number and a record of its own; the first record says what
 * the task is, and is compared before any data moves. At each step a rank shows its peers a window
 * of its source: where it lies, if they can read it there, else a copy in one of the group's few
 * slots of the arena. A slot is used again when all have said that they are done with it. Ranks
 * work some steps ahead, so that one's copying overlaps with another's reading.
 */
#ifndef TESSERA_COMM_LOCAL_TASK_H
#define TESSERA_COMM_LOCAL_TASK_H

#include "src/comm/task.h"
#include "src/comm/local/local.h"

enum {
    TSRI_STAGE_SLOTS = 4,
    TSRI_STAGE_BYTES = 256 * 1024, /* of a slot, at most */
};

typedef struct tsri_flow {
    tsri_local_group *g;
    const tsri_task *task;
    size_t size;          /* of an element */
    size_t slot;          /* bytes of one */
    tsri_call_entry call; /* what is said at each step */
    uint64_t first;       /* the number of the first step */
    uint64_t flight;      /* the task's, in the flight recorder */
    const char *src;      /* the task's, or a copy of it */
    bool direct;          /* peers read src where it is */
} tsri_flow;

/* flow.c. The bytes of a slot: equal on all ranks, whose regions are of one size. */
size_t tsri_flow_slot_bytes(const tsri_local_group *g);
/* The group's slot of step `seq`, when it is free. */
tsr_status tsri_flow_slot(tsri_flow *f, uint64_t seq, char **out_slot);
/* Makes the record of the next step, whose number is *out_seq, with room for `places` places; then
 * shows it. The others' records of the first step are compared. */
tsr_status tsri_flow_enter(tsri_flow *f, int places, uint64_t *out_seq, tsri_seg_place **out_place);
tsr_status tsri_flow_show(tsri_flow *f, uint64_t seq);
/* Where member m lets this rank read at step `seq`. */
const char *tsri_flow_peer(const tsri_flow *f, int m, uint64_t seq, int places, int place);
/* Waits until nobody reads this rank's buffers any more, if anybody does. */
tsr_status tsri_flow_end(tsri_flow *f);

static inline uint64_t tsri_flow_offset(const tsri_flow *f, const void *p)
{
    return (uint64_t)((const char *)p - (const char *)f->g->local->region->base);
}

/* small.c: all_reduces of a few KiB, and barriers. Whether a task is one; does it. */
bool tsri_task_is_small(const tsri_task *task);
tsr_status tsri_small_task(tsri_local_group *g, const tsri_task *task);
/* A task as a call of one segment or none. */
tsri_segment tsri_task_segment(int nranks, const tsri_task *task);
tsri_coll tsri_task_coll(const tsri_task *task, const tsri_segment *seg);

/* task_move.c: all but all_reduce. */
tsr_status tsri_flow_move(tsri_flow *f);
tsr_status tsri_flow_all_to_all(tsri_flow *f);

#endif
