/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sharded program: values (a tensor in one signature), items (an op in a signature, or a
 * conversion) and entries (items in the order in which this rank does them). src/plan makes it from
 * a graph and improves it pass by pass; lowering makes the steps of a plan from it.
 */
#ifndef TESSERA_IR_IR_H
#define TESSERA_IR_IR_H

#include <tessera/plan.h>
#include "kernels/device.h"
#include "placement/placement.h"
#include "sbp/route/joint.h"
#include "src/graph/graph.h"

/* Where a value's bytes are. */
typedef enum tsri_storage {
    TSRI_STORAGE_ARENA = 0, /* the plan's block, at `arena_offset` */
    TSRI_STORAGE_VARIABLE,  /* the variable's shard */
    TSRI_STORAGE_PORT,      /* persistent: an input's or output's buffer */
    TSRI_STORAGE_ALIAS,     /* the bytes of value `alias` */
    TSRI_STORAGE_INNER,     /* a chain's own, in its scratch */
} tsri_storage;

/* Other choices for an op, cheapest first, all other ops as they are. */
enum { TSRI_MAX_ALTERNATIVES = 3 };
typedef struct tsri_alternatives {
    int legal;     /* signatures that rule and hints leave */
    int nin, nout; /* of the op as it was declared: what it is joined to may take more */
    int n;
    const tsri_nd_signature *sig[TSRI_MAX_ALTERNATIVES];
    double more_s[TSRI_MAX_ALTERNATIVES]; /* seconds that a step would take longer */
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
    bool source; /* of STORAGE_VARIABLE: what is read, not what an update shows again */
    int port;    /* of STORAGE_PORT */
    int tensor;  /* of the graph, for look-ups while building; -1 */
    bool said;   /* its signature is the user's word: by this rule, or NULL, at this place */
    const char *said_by;
    tsri_loc said_at;
    bool is_loss; /* a scalar whose gradients were asked for, as its op makes it */
    const tsri_alternatives *alternatives; /* of the op that makes it; NULL unless asked for */
    /* This rank's part. */
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM];
    size_t bytes;
    int first, last; /* entries: alive from, to (inclusive); first -1: never made */
    size_t arena_offset;
    void *ptr; /* NULL where empty */
} tsri_value;

/* Where an update's gradient is reduced together with others; see infer_bucket.c. */
typedef struct tsri_bucket_part {
    int number;   /* of the bucket, from 1; 0: none */
    double share; /* of the bucket's hand-shakes that inference lets it pay */
} tsri_bucket_part;

typedef enum tsri_item_kind {
    TSRI_ITEM_KERNEL = 0, /* an op by a kernel */
    TSRI_ITEM_VIEW,       /* an op that moves nothing: out[0] aliases in[0] */
    TSRI_ITEM_RELABEL,    /* a conversion that moves nothing: out[0] aliases in[0] */
    TSRI_ITEM_LOCAL_BOX,  /* a conversion without communication */
    TSRI_ITEM_COLLECTIVE, /* a conversion by a collective; several in -> out pairs: a bucket */
    TSRI_ITEM_OUTPUT,     /* in[0] stays readable as a port */
    TSRI_ITEM_DEAD,       /* fused away */
} tsri_item_kind;

/* The part of an item that does an op. */
typedef struct tsri_item_kernel {
    tsri_op_kind op;
    tsri_attrs attrs;
    bool updates;    /* out[0] is the new value of a variable */
    bool recomputes; /* repeats a forward op for the backward pass: see src/rewrite/recompute.c */
    bool is_moved;   /* it was declared before what makes its operand */
    int chain;       /* of items one behind another that are one step, from 1; 0: none */
    int again;       /* the value that it computes again for a reader of its own, from 1; 0: none */
    int id;          /* of the op, in its graph */
    int64_t groups;  /* of a convolution, on this rank */
    double flops;    /* of the whole op, if it is a product or a convolution */
    tsr_dtype dtype; /* that these are computed in */
    size_t scratch;  /* bytes of the lowered kernel */
    const char *impl; /* the kernel that lowering took */
} tsri_item_kernel;

/* The part of an item that converts: a route's step from values on `from` to values on the item's
 * placement. */
typedef struct tsri_item_box {
    tsri_route_step step;
    const tsr_placement *from;
    const char *reason; /* what needs the conversion; NULL until tsri_plan_give_reasons */
    bool broadcast;     /* from_local of B: the first rank's value, over step.dims */
    bool is_bucket;     /* joins conversions that could wait: runs in the bulk lane */
    const int *ranks;   /* a sum over local graphs: these nranks ranks of the world; else NULL */
    int nranks;
    const struct tsr_group *group; /* of these ranks */
    /* Until scheduling joins it: a conversion that may wait for others, as only an optimizer waits
     * for it, or nothing does. */
    tsri_bucket_part part; /* its bucket when signatures were chosen */
    int part_of;           /* 0: an update's operand; 1 + i: its result i. A bucket has one alone */
    tsri_joint joint;      /* what the conversion takes as a member of a bucket */
} tsri_item_box;

typedef struct tsri_item {
    tsri_item_kind kind;
    int nin, nout;
    int *in, *out; /* values */
    const tsr_placement *placement;
    const char *name; /* module or variable */
    tsri_loc loc;
    bool backward;
    int place;     /* in the program before chains moved items, from 1; 0: it came later */
    double cost_s; /* by the model */
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

typedef struct tsri_entry {
    int item;
    tsri_phase phase;
} tsri_entry;

typedef struct tsri_ir_port {
    tsr_port info;
    bool from_local, is_local, is_output;
    bool is_loss;        /* an output: of a scalar whose gradients were asked for */
    bool must_feed, fed; /* inputs: see src/exec/feed.c */
    void *ptr;           /* this rank's shard */
    size_t bytes;
    void *staging; /* `bytes` of the host, where parts are gathered for a device; NULL so far */
} tsri_ir_port;

/* A pass's change to the time that inference took a step for. */
typedef struct tsri_change {
    const char *reason;
    double more_s;
} tsri_change;

enum { TSRI_CHANGES = 5 };
/* Inference's prices are floats: up to this part of the whole they are the program's. */
#define TSRI_NO_CHANGE 1e-6

/* A program and what it was made for. Passes take it alone. */
typedef struct tsri_ir {
    tsr_world *world;
    tsr_compile_opts opts;
    tsri_cost_model model;
    tsri_pool program; /* what outlives the passes: names, ports, hooks */
    tsri_pool scratch; /* values, items, entries and what only passes need */
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
    int nops;                      /* of the graph that are live */
    bool relaxed;                  /* see tsri_inferred */
    double step_s;                 /* seconds of a step after the last pass, by the model */
    tsri_change change[TSRI_CHANGES];
    /* Per op of the graph, NULL if not live: its signature; all NULL without .alternatives. */
    const tsri_nd_signature **chosen;
} tsri_ir;

/* Prepares an empty program of a world; its options and model are the caller's to set. */
void tsri_ir_init(tsri_ir *ir, tsr_world *world);
/* Frees the program and leaves an empty one, for the same options. */
void tsri_ir_reset(tsri_ir *ir);
/* Moves values, items and entries, which the passes let grow in scratch, to their final place. */
tsr_status tsri_ir_settle(tsri_ir *ir);
void tsri_ir_finish(tsri_ir *ir);

/* Appends a value; returns its number, -1 when there is no memory. Fills this rank's part. */
int tsri_ir_add_value(tsri_ir *ir, const tsri_value *value);
/* Begins a new list of items, with room for n, of which passes rebuild the old one's. */
tsr_status tsri_ir_new_items(tsri_ir *ir, int n);
/* Appends an item with room for its operands (copied). NULL when there is no memory. */
tsri_item *tsri_ir_add_item(tsri_ir *ir, const tsri_item *item, const int *in, const int *out);
/* The value whose bytes v's are: follows aliases. */
int tsri_ir_root(const tsri_ir *ir, int v);
/* Bytes of a value on `rank`. */
size_t tsri_value_bytes(const tsri_value *v, int rank);
/* The kind of device that a value lies on. */
tsr_device tsri_value_device(const tsri_value *v);
/* Whether the rank has a part in an item: runs it, gives to it or takes from it. */
bool tsri_item_has(const tsri_item *item, int rank);
/* Whether an item moves nothing: its result shows its operand's bytes. */
bool tsri_item_shows(const tsri_item *item);
/* Whether an item converts. */
bool tsri_item_converts(const tsri_item *item);
/* Whether an item copies between kinds of device. */
bool tsri_item_crosses(const tsri_item *item);
/* Whether an item is an optimizer's update of one variable. */
bool tsri_item_is_update(const tsri_item *item);
/* Seconds of crossing to another kind of device, of the rank that has the largest part. */
double tsri_crossing_seconds(tsr_dims shape, size_t element, const tsr_placement *p, tsr_sbp sbp);

#endif
