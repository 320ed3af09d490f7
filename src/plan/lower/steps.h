/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that the executor walks, and the functions that lower a program to steps. */
#ifndef TESSERA_PLAN_LOWER_STEPS_H
#define TESSERA_PLAN_LOWER_STEPS_H

#include "src/comm/comm.h"
#include "src/ir/ir.h"

/* A copy of a box between dense local buffers; see src/exec/local_box.c. */
typedef struct tsri_local_box {
    tsr_reduce_op reduce;
    tsr_dtype dtype;
    int ndim;
    int64_t box[TSR_MAX_NDIM]; /* shape of the box; strides and offsets in elements */
    int64_t src_stride[TSR_MAX_NDIM];
    int64_t dst_stride[TSR_MAX_NDIM];
    int64_t src_offset, dst_offset;
    int64_t dst_count;
    bool copy, fill; /* this rank copies; it first fills the destination with the identity */
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
    uint64_t bytes; /* bytes that this rank receives */
    int slots; /* in the first call of an array: its length, one call for each copy of the values; 0
                  means 1 */
    bool is_sent; /* the receiving stage may still read the operand */
} tsri_call;

typedef struct tsri_step {
    tsri_step_kind kind;
    tsri_kernel *kernel;
    tsri_kernel **parts; /* the kernels that `kernel` joins; NULL if it joins none */
    int nparts;
    void **in, **out;
    const int *values; /* chain: operands, then results; NULL: those of `item` */
    int nin, nout;     /* numbers of operands and results */
    tsri_local_box *box;
    tsri_device *device; /* the executing device; CROSS: the one that is not the host's */
    char *scratch;       /* KERNEL */
    char *kept;          /* KERNEL: packed weights, 64-byte aligned; NULL: the kernel has none */
    size_t bytes;        /* CROSS */
    tsri_call *call;     /* [call->slots] */
    tsri_entry_side side;
    bool has_copies;               /* an operand or a result has copies for several micro-batches */
    const tsri_item *item;         /* for messages */
    const tsri_condition *only_if; /* runs in which it does not hold skip the step; NULL: none */
    int entry;                     /* its entry in the program; of joined entries the first */
    double time_s;                 /* seconds of all runs together */
} tsri_step;

/* Whether the run that is under way executes a step. */
static inline bool tsri_step_is_due(const tsri_step *s)
{
    return !s->only_if || s->only_if->holds;
}

/* A plan's part on one kind of device. */
typedef struct tsri_part {
    tsri_device *device; /* NULL in a virtual world, and if this rank has no value there */
    char *block;         /* the device's block for plans, at arena offset 0 */
    size_t arena_bytes, scratch_bytes, scratch_offset; /* arena_bytes includes the scratch */
} tsri_part;

/* A device's copy of a number of the host: the training step, before a run; or the number of the
 * part, before each part. */
typedef struct tsri_word {
    void *ptr;
    tsri_device *device;
    bool tells_part;
} tsri_word;

/* A pointer of a step into a value with copies: set before each task. */
typedef struct tsri_patch {
    void **at;
    char *base; /* the first copy */
    size_t stride;
    int slots;
} tsri_patch;

/* The packed weights of a plan's kernels, and the variables that decide whether these are packed
 * again. A variable may be listed several times. */
typedef struct tsri_kept {
    tsr_variable **of; /* [nof] variables of which the weights are packed */
    int nof, cof;
    tsr_variable **written; /* [nwritten] variables of modules that a run writes */
    int nwritten, cwritten;
    uint64_t version; /* the newest version of the packed variables; 0: nothing is packed yet */
    uint64_t writes;  /* the world's number of writes at the last comparison */
    void *block;      /* the memory of all steps; NULL if no kernel keeps anything */
    size_t bytes;
} tsri_kept;

/* The order in which a run executes the steps of the parts. */
typedef struct tsri_walk {
    int begin, end;    /* the steps of the parts; none without micro-batches */
    int64_t *number;   /* [ir.parts] 0, 1, ...: the values of words that tell the part */
    int *first, *last; /* [nsegments + 1] the steps [first, last) of each segment */
    tsri_patch *patch;
    int npatches, cpatches;
    int *first_patch; /* [nsegments + 1] each segment's first patch */
    int *send;        /* steps that start a call to another stage */
    int nsends, csends;
    int *first_send; /* [nsegments + 1] each segment's first one */
    /* Steps that start to receive on a device that queues: in their order, and by the segment that
     * sends. They are no steps of [first, last). */
    int *receive;
    int nreceives, creceives;
    int *first_receive; /* [nsegments + 1] */
    int *task; /* this rank's tasks, and those that it receives from: numbers in the timetable */
    int ntasks;
    int part; /* the micro-batch of the task that runs or ran last */
} tsri_walk;

/* Consecutive steps that were captured together; or sums over local graphs and calls between
 * stages, whose steps every run executes one by one. */
typedef struct tsri_replay_part {
    tsri_captured *captured; /* NULL: not captured */
    int end;                 /* number of the first step after the part */
} tsri_replay_part;

/* Steps that a run repeats as a whole. A segment has a range for each copy of its values, and the
 * captures of that range have the pointers of that copy. */
typedef struct tsri_replay_range {
    int first, end; /* the steps [first, end) */
    int copy;
    int first_part, nparts; /* its parts in the capture */
} tsri_replay_range;

/* Runs in which all conditions hold, and those in which none does, have captures of their own. */
enum { TSRI_CAPTURES = 2 };
typedef struct tsri_capture {
    tsri_replay_part *part;
    int nparts, cparts;       /* 0 before the capture */
    tsri_replay_range *range; /* first before the micro-batches, then their segments, then after */
    int nranges;
    int *first_range;        /* [nsegments + 1] each segment's first range */
    tsri_comm_stats per_run; /* the communicators' counts of captured calls */
    int64_t nruns;           /* runs of this kind so far */
} tsri_capture;

/* The captures of a plan's steps on a device with streams. The first run executes them one by one,
 * so that libraries initialise; later runs replay a capture. It is one part for each range, unless
 * a watch (src/exec/watch.h), a sum over local graphs or a call between stages divides it. */
typedef struct tsri_replay {
    tsri_device *device; /* the device whose stream is captured; NULL: no capture */
    tsri_capture capture[TSRI_CAPTURES];
    int npeers, *peers; /* communicating ranks, with this one: all of them replay, or none */
} tsri_replay;

/* --- lowering --------------------------------------------------------------------------------- */
/* Creates kernels and calls and lays out memory, but allocates no arena. Not collective. */
tsr_status tsri_plan_lower(tsr_plan *plan);
/* Returns the desc of an item's kernel on this rank. */
tsri_kernel_desc tsri_lower_desc(const tsr_plan *plan, const tsri_item *it);
/* Returns the operands (bits) that the item's kernel may keep packed. A memory limit excludes all,
 * since packed bytes are known only when kernels are made. */
uint32_t tsri_lower_fixed(const tsr_plan *plan, const tsri_item *it);
/* Allocates the arena and sets the steps' pointers; variables must have their memory. Not
 * collective. */
tsr_status tsri_plan_bind(tsr_plan *plan);
/* Prepares the calls of a lowered plan on communicators that support it. Collective over the ranks
 * with calls; all of them must have lowered their plans. */
tsr_status tsri_plan_prepare(tsr_plan *plan);
/* Bytes of kernels' scratch on this rank, summed over the kinds of device. */
size_t tsri_plan_scratch(const tsr_plan *plan);
/* Describes this rank's part of a value for a kernel's desc. */
tsri_arg tsri_plan_arg(const tsri_value *v);
/* Returns this rank's bytes of a value for the micro-batch of the current task. */
void *tsri_plan_value_now(const tsr_plan *plan, int value);
/* Whether a step belongs to a sum over local graphs, or to a call between stages. Captures exclude
 * it, since other ranks may capture different steps or none. */
bool tsri_step_is_apart(const tsri_step *s);
/* Prefixes a kernel's error with the item's source location, op and name, unless it already begins
 * with the op's name. Returns `status`. */
tsr_status tsri_item_fail(tsr_status status, const tsri_item *it);
/* Creates the communicators between devices that the program needs, and their groups. Collective
 * over the world if any item needs one. */
tsr_status tsri_plan_connect(tsr_plan *plan);
/* Sums the counts of all communicators of this rank, with those of replayed runs. */
void tsri_plan_stats(const tsr_world *world, tsri_comm_stats *out_stats);
/* Adds the counts of one run that replayed a capture. */
void tsri_plan_count_replay(tsr_plan *plan, const tsri_capture *capture);
/* Subtracts the counts since `before`, which came from calls outside of the plan. */
void tsri_plan_uncount(const tsr_plan *plan, const tsri_comm_stats *before);
/* The communicator between the world's devices of a kind; NULL until a plan needs it. */
struct tsri_comm **tsri_plan_connection(tsr_world *world, tsr_device kind);
/* The communicator of an item's ranks; NULL in a virtual world. */
struct tsri_comm *tsri_plan_comm(const tsr_plan *plan, const tsri_item *item);

#endif
