/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: what the executor walks, and lowering, which makes them from a program. */
#ifndef TESSERA_PLAN_LOWER_STEPS_H
#define TESSERA_PLAN_LOWER_STEPS_H

#include "src/comm/comm.h"
#include "src/ir/ir.h"

/* Copying a box between dense local buffers; see src/exec/local_box.c. */
typedef struct tsri_local_box {
    tsr_reduce_op reduce;
    tsr_dtype dtype;
    int ndim;
    int64_t box[TSR_MAX_NDIM];        /* what is copied */
    int64_t src_stride[TSR_MAX_NDIM]; /* elements */
    int64_t dst_stride[TSR_MAX_NDIM];
    int64_t src_offset, dst_offset; /* elements */
    int64_t dst_count;
    bool copy, fill; /* whether this rank copies; fills the rest with the identity first */
} tsri_local_box;

typedef enum tsri_step_kind {
    TSRI_STEP_KERNEL = 0,
    TSRI_STEP_LOCAL_BOX,
    TSRI_STEP_CROSS, /* the same bytes from one kind of device to another */
    TSRI_STEP_START,
    TSRI_STEP_FINISH,
    TSRI_STEP_RELEASE,
} tsri_step_kind;

/* One collective under way; shared by its three steps. */
typedef struct tsri_call {
    tsri_coll coll;
    tsri_group *group;
    tsri_ticket ticket;
    uint64_t bytes; /* that this rank reads from peers */
} tsri_call;

typedef struct tsri_step {
    tsri_step_kind kind;
    tsri_kernel *kernel;
    tsri_kernel **parts; /* those that `kernel` joins; NULL: it is one by itself */
    int nparts;
    void **in, **out;
    const int *values; /* of a chain: its operands, then its results; NULL: those of `item` */
    int nin, nout;     /* of these */
    tsri_local_box *box;
    tsri_device *device; /* that does it; CROSS: the one that is not the CPU */
    char *scratch;       /* KERNEL */
    size_t bytes;        /* CROSS */
    tsri_call *call;
    const tsri_item *item; /* for messages */
    int entry;             /* its place in the plan's order; of several that are joined the first */
    double time_s;         /* of all runs */
} tsri_step;

/* A plan's part on one kind of device. */
typedef struct tsri_part {
    tsri_device *device; /* NULL in a virtual world, and where nothing of this rank is there */
    char *block;         /* the device's block for plans, where arena offsets count from */
    size_t arena_bytes, scratch_bytes, scratch_offset; /* scratch is part of arena_bytes */
} tsri_part;

/* Steps that were captured as one; or steps of sums over the ranks of local graphs, which are done
 * one by one in every run. */
typedef struct tsri_replay_part {
    tsri_captured *captured; /* NULL: not captured */
    int end;                 /* the part's last step is the one before */
} tsri_replay_part;

/* How runs go on a device with streams: as steps that were captured, once the first run has shown
 * that they work (and made what libraries make late); else step by step. One part has them all,
 * unless a watch (src/exec/watch.h) or a sum over ranks cuts them. */
typedef struct tsri_replay {
    tsri_device *device; /* whose stream is captured; NULL: never */
    tsri_replay_part *part;
    int nparts, cparts;      /* 0 parts: not captured so far */
    tsri_comm_stats per_run; /* what communicators counted while it was captured */
    int npeers, *peers;      /* ranks whose devices talk, this one too: all replay or none */
} tsri_replay;

/* --- lowering --------------------------------------------------------------------------------- */
/* Makes kernels and calls, and lays out memory without taking any. Not collective. */
tsr_status tsri_plan_lower(tsr_plan *plan);
/* Returns the desc of an item's kernel on this rank. */
tsri_kernel_desc tsri_lower_desc(const tsr_plan *plan, const tsri_item *it);
/* Takes the memory, where variables have theirs already, and writes the steps' pointers. Not
 * collective. */
tsr_status tsri_plan_bind(tsr_plan *plan);
/* Prepares the calls of a plan that was lowered, where communicators do so. Collective over the
 * ranks that have calls, so once it is known that all have lowered theirs. */
tsr_status tsri_plan_prepare(tsr_plan *plan);
/* Bytes that kernels of this rank need at a time, over all kinds of device. */
size_t tsri_plan_scratch(const tsr_plan *plan);
/* The kernel desc's view of a value on this rank. */
tsri_arg tsri_plan_arg(const tsri_value *v);
/* Whether a step is one of a sum over the ranks of local graphs, which captured runs make by
 * themselves: other ranks may capture other steps, or none. */
bool tsri_step_is_apart(const tsri_step *s);
/* Puts place, op and name of an item before the error that its kernel met, which may begin with the
 * op's name by itself. */
tsr_status tsri_item_fail(tsr_status status, const tsri_item *it);
/* Makes the communicators between devices that the plan's items need, and their groups. Collective
 * over the world, where some item of it needs one. */
tsr_status tsri_plan_connect(tsr_plan *plan);
/* Adds up the work of all communicators of the world's rank so far, replayed runs included. */
void tsri_plan_stats(const tsr_world *world, tsri_comm_stats *out_stats);
/* Counts one more run of what was captured. */
void tsri_plan_count_replay(tsr_plan *plan);
/* Leaves out what was counted since: calls that are not the plan's. */
void tsri_plan_uncount(const tsr_plan *plan, const tsri_comm_stats *before);
/* The one between the world's devices of a kind, as plans find it; NULL: no plan needed one yet. */
struct tsri_comm **tsri_plan_connection(tsr_world *world, tsr_device kind);
/* The communicator that an item's ranks talk by; NULL in a virtual world. */
struct tsri_comm *tsri_plan_comm(const tsr_plan *plan, const tsri_item *item);

#endif
