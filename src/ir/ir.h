/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sharded program. A value is a tensor in one signature, an item is an op in one signature or a
 * conversion, and the entries list the items in this rank's order of execution. src/plan builds the
 * program from a graph and changes it pass by pass; lowering makes the steps of a plan from it.
 */
#ifndef TESSERA_IR_IR_H
#define TESSERA_IR_IR_H

#include <tessera/plan.h>
#include "kernels/device.h"
#include "placement/placement.h"
#include "sbp/route/joint.h"
#include "src/graph/graph.h"
#include "src/ir/timetable.h"

/* The location of a value's bytes. */
typedef enum tsri_storage {
    TSRI_STORAGE_ARENA = 0, /* the plan's block, at `arena_offset` */
    TSRI_STORAGE_VARIABLE,  /* the variable's shard */
    TSRI_STORAGE_PORT,      /* persistent: an input's or output's buffer */
    TSRI_STORAGE_ALIAS,     /* the bytes of value `alias` */
    TSRI_STORAGE_INNER,     /* the scratch of the chain that the value belongs to */
} tsri_storage;

/* The other signatures of an op, cheapest first, if no other op changes its signature. */
enum { TSRI_MAX_ALTERNATIVES = 3 };
typedef struct tsri_alternatives {
    int legal;     /* number of signatures that the rule and the hints allow */
    int nin, nout; /* operands and results of the declared op; a fused item may have more */
    int n;
    const tsri_nd_signature *sig[TSRI_MAX_ALTERNATIVES];
    double more_s[TSRI_MAX_ALTERNATIVES]; /* seconds that each adds to a step */
} tsri_alternatives;

/* A tensor in one layout, as one rank holds it. */
typedef struct tsri_value {
    const char *name;
    tsr_dtype dtype;
    tsr_dims shape; /* global */
    const tsr_placement *placement;
    tsri_layout layout;
    bool nhwc;    /* 4-D: channels last */
    bool by_head; /* 4-D: (b,h,s,d) lies as (b,s,h,d) */
    tsri_storage storage;
    int alias;
    tsr_variable *variable;
    bool source; /* STORAGE_VARIABLE: the variable's own value, not the result of an update */
    bool fixed;  /* source: of a module, and the program neither writes nor differentiates it */
    int port;    /* STORAGE_PORT: the port's number */
    int tensor;  /* number of the graph's tensor, for look-ups while building; or -1 */
    /* The user specified the signature: by the rule said_by (NULL: by none), at said_at. */
    bool said;
    const char *said_by;
    tsri_loc said_at;
    bool is_loss; /* a scalar that was differentiated, in its producer's signature */
    const tsri_alternatives *alternatives; /* the producer's; NULL without .alternatives */
    /* This rank's part of the value. */
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM];
    size_t bytes;
    int first, last; /* entries between which it is live, inclusive; first -1: it has no producer */
    int slots;       /* number of copies, one for each micro-batch under way; 0 means 1 */
    size_t arena_offset;
    void *ptr; /* of the first copy; NULL if the part is empty */
} tsri_value;

/* The bucket in which an update's gradient is reduced with others; see infer_bucket.c. */
typedef struct tsri_bucket_part {
    int number;   /* of the bucket, from 1; 0: none */
    double share; /* part of the bucket's hand-shakes that inference charges to it */
} tsri_bucket_part;

typedef enum tsri_item_kind {
    TSRI_ITEM_KERNEL = 0, /* an op that a kernel computes */
    TSRI_ITEM_VIEW,       /* an op whose result out[0] is an alias of in[0] */
    TSRI_ITEM_RELABEL,    /* a conversion whose result out[0] is an alias of in[0] */
    TSRI_ITEM_LOCAL_BOX,  /* a conversion without communication */
    TSRI_ITEM_COLLECTIVE, /* a conversion by a collective; a bucket has several in -> out pairs */
    TSRI_ITEM_OUTPUT,     /* keeps in[0] as the value of a port */
    TSRI_ITEM_DEAD,       /* fused away */
} tsri_item_kind;

/* The fields of an item that computes an op. */
typedef struct tsri_item_kernel {
    tsri_op_kind op;
    tsri_attrs attrs;
    bool updates;     /* out[0] is the new value of a variable */
    bool recomputes;  /* repeats a forward op for the backward pass: see src/rewrite/recompute.c */
    bool is_moved;    /* it was declared before the producer of its operand */
    int chain;        /* number, from 1, of the chain of items that become one step; or 0 */
    int again;        /* number, from 1, of the value that it recomputes for one consumer; or 0 */
    int id;           /* number of the op in its graph */
    int64_t groups;   /* groups of a convolution on this rank */
    double flops;     /* of the whole op, if it is a product or a convolution */
    tsr_dtype dtype;  /* dtype in which these are computed */
    size_t scratch;   /* bytes of the lowered kernel */
    const char *impl; /* name of the kernel that lowering chose */
} tsri_item_kernel;

/* The fields of an item that converts: one step of a route, from values on `from` to values on the
 * item's placement. */
typedef struct tsri_item_box {
    tsri_route_step step;
    const tsr_placement *from;
    const char *reason; /* the consumers; NULL until tsri_plan_give_reasons */
    bool broadcast;     /* from_local of B: copies the first rank's value, over step.dims */
    bool is_bucket;     /* joins deferred conversions and runs in the bulk lane */
    const int *ranks;   /* sum over local graphs: nranks ranks of the world; NULL otherwise */
    int nranks;
    const struct tsr_group *group; /* the group of these ranks */
    /* A conversion that scheduling may defer and join with others, since an optimizer is its only
     * consumer, or it has none. */
    tsri_bucket_part part; /* its bucket when signatures were chosen */
    int part_of;           /* 0: an operand of updates; 1 + i: their result i. Buckets never mix */
    int received_in;       /* 1 + the segment in which another stage receives the result; or 0 */
    tsri_joint joint;      /* the step's form and price as a member of a bucket */
} tsri_item_box;

typedef struct tsri_item {
    tsri_item_kind kind;
    int nin, nout;
    int *in, *out; /* values */
    const tsr_placement *placement;
    const char *name; /* module or variable */
    tsri_loc loc;
    bool backward;
    tsri_turn turn; /* the items stand in the order of their turns */
    int segment;    /* PARTS: its number in the timetable, in whose order the items stand */
    int place;      /* position, from 1, before chains moved items; 0: a later pass added it */
    double cost_s;  /* by the model, in a step: of PARTS in all parts, of `only_if` on average */
    /* Runs in which it does not hold skip the item; NULL: no run does. Before the pass `once` it is
     * the condition that the declaration permits. */
    const tsri_condition *only_if; /* goes with its optimizer: for runs alone */
    int64_t every;                 /* number of runs of which one executes the item; 0 means 1 */
    union {
        tsri_item_kernel kernel; /* KERNEL, VIEW */
        tsri_item_box box;       /* RELABEL, LOCAL_BOX, COLLECTIVE */
        int port;                /* OUTPUT */
    };
} tsri_item;

typedef enum tsri_phase {
    TSRI_PHASE_DO = 0,
    TSRI_PHASE_START,
    TSRI_PHASE_FINISH,
    TSRI_PHASE_RELEASE,
} tsri_phase;

/* The ranks that execute an entry. A conversion between stages has entries for the sending ranks,
 * in the segment of the item, and others for the receiving ranks. */
typedef enum tsri_entry_side {
    TSRI_SIDE_ALL = 0,
    TSRI_SIDE_SENDS,
    TSRI_SIDE_RECEIVES
} tsri_entry_side;

typedef struct tsri_entry {
    int item;
    tsri_phase phase;
    tsri_entry_side side;
} tsri_entry;

typedef struct tsri_ir_port {
    tsr_port info;
    bool from_local, is_local, is_output;
    bool is_loss;        /* output: of a scalar that was differentiated */
    bool must_feed, fed; /* input: see src/exec/feed.c */
    void *ptr;           /* this rank's shard */
    size_t bytes;
    void *staging; /* host buffer of `bytes` for parts on their way to a device; or NULL */
} tsri_ir_port;

/* The seconds that a pass adds to inference's estimate of a step. */
typedef struct tsri_change {
    const char *reason;
    double more_s;
} tsri_change;

enum { TSRI_CHANGES = 6 };
/* Inference's prices are floats: relative differences up to this are rounding. */
#define TSRI_NO_CHANGE 1e-6

/* A program with its world, options and cost model. It is all that a pass sees. */
typedef struct tsri_ir {
    tsr_world *world;
    tsr_compile_opts opts;
    tsri_cost_model model;
    tsri_pool program; /* names, ports and hooks, which outlive the passes */
    tsri_pool scratch; /* values, items and entries until tsri_ir_settle; the passes' own arrays */
    tsri_value *values;
    int nvalues, cvalues;
    tsri_item *items;
    int nitems, citems;
    tsri_entry *entries;
    int nentries, centries;
    tsri_ir_port *ports;
    int nports;
    tsri_hook *hooks;
    int nhooks;
    tsri_runner runner;
    tsri_print *prints;
    int nprints;
    int64_t *step_value, own_step; /* the training step for random masks */
    int parts;                     /* micro-batches of a step; 1: it has none */
    tsri_timetable timetable;
    int nops;      /* number of live ops of the graph */
    bool relaxed;  /* as of tsri_inferred */
    double step_s; /* estimated seconds of a step after the last pass */
    tsri_change change[TSRI_CHANGES];
    /* The signature of each op of the graph; NULL for ops that are not live, and for all without
     * .alternatives. */
    const tsri_nd_signature **chosen;
} tsri_ir;

/* Initialises an empty program; the caller sets its options and model. */
void tsri_ir_init(tsri_ir *ir, tsr_world *world);
/* Empties the program; its world, options and model stay. */
void tsri_ir_reset(tsri_ir *ir);
/* Copies values, items and entries from scratch to the program's pool. Errors: TSR_ERR_NO_MEMORY.
 */
tsr_status tsri_ir_settle(tsri_ir *ir);
/* Frees all memory of the program. */
void tsri_ir_finish(tsri_ir *ir);

/* Appends a value and computes this rank's part. Returns its number, or -1 if memory runs out. */
int tsri_ir_add_value(tsri_ir *ir, const tsri_value *value);
/* Replaces the list of items by an empty one with room for n; a pass then appends those that it
 * keeps. */
tsr_status tsri_ir_new_items(tsri_ir *ir, int n);
/* Appends an item, with copies of its lists of operands and results. NULL if memory runs out. */
tsri_item *tsri_ir_add_item(tsri_ir *ir, const tsri_item *item, const int *in, const int *out);
/* Follows aliases from v to the value that owns the bytes. */
int tsri_ir_root(const tsri_ir *ir, int v);
/* Bytes of a value on `rank`, of one copy. */
size_t tsri_value_bytes(const tsri_value *v, int rank);
/* The bytes between two copies of a value, and the bytes of all its copies. */
size_t tsri_value_stride(size_t bytes);
size_t tsri_value_room(const tsri_value *v, size_t bytes);
/* The kind of device that holds a value. */
tsr_device tsri_value_device(const tsri_value *v);
/* Whether the rank executes an item, or sends or receives its data. */
bool tsri_item_has(const tsri_item *item, int rank);
/* Whether the item's result is an alias of its operand (a view or a relabel), so that no step is
 * needed. */
bool tsri_item_shows(const tsri_item *item);
/* Whether an item converts. */
bool tsri_item_converts(const tsri_item *item);
/* Whether an item copies between kinds of device. */
bool tsri_item_crosses(const tsri_item *item);
/* How often a step does an item. */
int tsri_item_times(const tsri_ir *ir, const tsri_item *item);
/* The number of runs of which one executes the item. */
static inline int64_t tsri_item_every(const tsri_item *item)
{
    return item->every > 1 ? item->every : 1;
}
/* The number of runs of which one updates, by the first item with a condition; 0 if no item has
 * one. */
int64_t tsri_ir_every(const tsri_ir *ir);
/* The turn of updates and outputs: the last one. */
static inline tsri_turn tsri_ir_last_turn(const tsri_ir *ir)
{
    return ir->parts > 1 ? TSRI_TURN_TAIL : TSRI_TURN_HEAD;
}
/* Whether two items are of the same turn, and of the same segment. */
static inline bool tsri_item_same_time(const tsri_item *a, const tsri_item *b)
{
    return a->turn == b->turn && a->segment == b->segment;
}
/* The entries [*out_begin, *out_end) of the parts; none without micro-batches. */
void tsri_ir_parts(const tsri_ir *ir, int *out_begin, int *out_end);
/* The stage of a rank; -1: it has no task. */
int tsri_ir_stage_of(const tsri_ir *ir, int rank);
/* The segment in which the ranks of an item's placement have its results. */
static inline int tsri_item_arrival(const tsri_item *item)
{
    return tsri_item_converts(item) && item->box.received_in ? item->box.received_in - 1
                                                             : item->segment;
}
/* Estimated seconds from the first task's start to the last one's end. */
double tsri_timetable_seconds(const tsri_timetable *t);
/* The number of micro-batches (with several chunks: of tasks) that one index of a pipeline may have
 * under way with 1F1B. Each of the nindices indices has `chunks` chunks. Sources:
 * src/plan/pass/timetable.c. */
int tsri_tasks_ahead(int nindices, int index, int chunks);
/* The number of micro-batches for which a stage keeps the operands of its backward pass. Stage s of
 * nstages is on index s % nindices; the chunks of an index share its number equally. */
double tsri_stage_copies(tsr_pipeline pipeline, int nstages, int nindices, int stage, int parts);
/* The number of stages that have a rank on an item's placements; 1 without stages. */
int tsri_ir_stages_of(const tsri_ir *ir, const tsri_item *item);
/* Estimated seconds of a step: the sum over all items; with stages the length of the timetable plus
 * the seconds of the busiest stage before the parts and after them. */
double tsri_ir_seconds(const tsri_ir *ir);
/* The segment of an entry of the parts. */
int tsri_ir_entry_segment(const tsri_ir *ir, const tsri_entry *entry);
/* Whether devices that queue their work execute the parts. Then a stage starts to receive a value
 * as soon as the task that sends it is queued. */
bool tsri_parts_are_queued(const tsri_ir *ir);
/* The least number of micro-batches after which both of two values with copies are in the same ones
 * again. */
int tsri_copies_together(int a, int b);
/* Whether a rank has an entry of its item. */
bool tsri_entry_has(const tsri_ir *ir, const tsri_entry *entry, int rank);
/* Whether an item's result is kept from part to part of a step: a total, or rows of the whole. */
bool tsri_item_collects(const tsri_item *item);
/* Whether an item is an optimizer's update of one variable. */
bool tsri_item_is_update(const tsri_item *item);
/* Estimated seconds to copy a tensor to another kind of device, on the rank with the largest part.
 */
double tsri_crossing_seconds(tsr_dims shape, size_t element, const tsr_placement *p, tsr_sbp sbp);

#endif
