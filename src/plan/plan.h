/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a plan, and the passes that make it. Plain data until it is lowered: values (a
 * tensor in one signature), items (an op in a signature, or a conversion), entries (items in the
 * order in which this rank does them), and last the steps that the executor walks.
 *
 *   strategies.c an op -> its legal signatures and their costs
 *   infer.c      graph -> a signature per op
 *   choose.c     the signatures, within a limit of memory
 *   build.c      -> items and values, conversions between them (items.c: making one)
 *   rank_sum.c   sums over the ranks of local graphs
 *   fuse.c       joins items (batch norm + activation)
 *   reshard.c    gathers weights again for backward
 *   layout.c     row-major, channels last or by head, per value; adds copies between them
 *   chain.c      finds kernels that run as one, row by row
 *   defer.c      puts small things off to where they can be joined
 *   order.c      puts updates behind the readers of what they overwrite
 *   update.c     puts updates behind what makes their gradients, where they alone read these
 *   schedule.c   buckets, entries, lifetimes
 *   reasons.c    which readers each conversion is for
 *   memory.c     offsets in the arena
 *   need.c       what a rank's memory is for, where no plan fits a limit
 *   lower.c      kernels, groups, steps
 *   agree.c      all ranks made the same program, and none failed (agree_text.c: its words)
 *   check.c      what must hold after each of these passes
 *   flow.c       which items make and read each value
 *   text.h       writes the program as text and parses it
 */
#ifndef TESSERA_PLAN_PLAN_H
#define TESSERA_PLAN_PLAN_H

#include <tessera/plan.h>
#include "kernels/device.h"
#include "placement/placement.h"
#include "sbp/route/joint.h"
#include "src/comm/comm.h"
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
    int place;     /* in the plan before chains moved items, from 1; 0: it came later */
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

typedef struct tsri_plan_port {
    tsr_port info;
    bool from_local, is_local, is_output;
    bool is_loss;        /* an output: of a scalar whose gradients were asked for */
    bool must_feed, fed; /* inputs: see tsri_plan_note_inputs */
    void *ptr;           /* this rank's shard */
    size_t bytes;
    void *staging; /* `bytes` of the host, where parts are gathered for a device; NULL so far */
} tsri_plan_port;

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

/* A pass's change to the time that inference took a step for. */
typedef struct tsri_change {
    const char *reason;
    double more_s;
} tsri_change;
enum { TSRI_CHANGES = 5 };
/* Inference's prices are floats: up to this part of the whole they are the plan's. */
#define TSRI_NO_CHANGE 1e-6

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

struct tsr_plan {
    tsri_owned owned;
    tsr_world *world;
    tsri_part part[TSRI_DEVICES]; /* by tsr_device: what it has there */
    tsri_pool pool;
    tsri_pool program; /* allocations of tsri_plan_build and the passes that the plan keeps */
    tsri_pool scratch; /* what only the passes need: gone when they are done */
    int *group;        /* in scratch: the ranks of the collective that is lowered */
    int cgroup;
    tsr_compile_opts opts;
    tsri_cost_model model;
    tsri_value *values;
    int nvalues, cvalues;
    tsri_item *items;
    int nitems, citems;
    tsri_entry *entries;
    int nentries, centries;
    tsri_plan_port *ports;
    int nports;
    tsri_hook *hooks;
    int nhooks;
    tsri_runner runner;
    tsri_print *prints;
    int nprints;
    int64_t *step_value, own_step; /* the training step for random masks */
    void **step_ptrs;              /* buffers it is written to before a run */
    tsri_device **step_devices;
    int nstep_ptrs;
    tsri_step *steps;
    int nsteps;
    int nunfed;                   /* inputs that this rank must still feed before it can run */
    bool has_results;             /* the last run went well: outputs can be fetched */
    double *trace;                /* see src/exec/trace.h; NULL: not asked for */
    struct tsri_watch *watch;     /* see src/exec/watch.h; NULL: not asked for */
    struct tsri_finite *finite;   /* see src/exec/finite.h; NULL: no losses, or not looked at */
    struct tsri_compare *compare; /* see src/exec/compare.h; NULL: not asked for */
    tsri_replay replay;
    tsr_plan_info info;
    bool relaxed;                     /* see tsri_inferred */
    bool is_cut;                      /* search_s ended the search for signatures */
    double search_work;               /* with search_s: the units of work that were done */
    tsri_change change[TSRI_CHANGES]; /* together info.step_s - info.cost_s */
    char failure[512]; /* why it can't run any more (a run failed, a variable is gone), or "" */
    char *explain;
    /* Per op of the graph, NULL if not live: its signature; all NULL without .alternatives. */
    const tsri_nd_signature **chosen;
};

/* --- infer.c ---------------------------------------------------------------------------------- */
/* All that inference keeps from one answer to the next: the search's problems of a graph, and their
 * cheapest signatures. So further limits cost no more than a search each. */
typedef struct tsri_inference {
    tsr_graph *g;
    tsri_pool *pool; /* takes all that is kept, and answers */
    tsri_cost_model model;
    struct tsri_problem *problem[3]; /* NULL until it is needed; see tsri_infer */
    struct tsri_known *known;        /* costs that all problems have alike */
    double *work;                    /* units that are left, counted down; NULL: any number */
} tsri_inference;
/* The signature chosen for each op of a graph. */
typedef struct tsri_inferred {
    bool *live;                       /* per op: something that is kept depends on it */
    const tsri_nd_signature **chosen; /* per op; NULL if not live */
    int *groups_index;                /* per op: the rule's index g of a convolution, or -1 */
    float *op_cost;                   /* per op: seconds of its kernel, as chosen */
    tsri_bucket_part *bucket;         /* per op: of an update, for its results */
    tsri_bucket_part *gradient;       /* per tensor: of a gradient */
    tsri_alternatives *alternatives;  /* per op; NULL unless asked for */
    double cost;                      /* seconds, by the model */
    bool exact;
    int64_t peak;  /* bytes of a rank, as inference estimates them */
    int64_t least; /* no signatures need less, by the same estimate */
    bool fits;     /* within the limit; otherwise nothing is chosen */
    bool relaxed;  /* updates were inferred, or zeros filled up, as nothing else was legal */
    struct tsri_problem *problem; /* that was searched */
    const int *choice;            /* its nodes' strategies; NULL: nothing is chosen */
} tsri_inferred;
/* The parts in which two answers differ: signatures that no conversion joins to those of another
 * part. So any of them can be taken over without the others, and what that saves adds up. */
typedef struct tsri_part_change {
    int part;
    double less_s, more_bytes; /* seconds saved; bytes as inference estimates them, at least 1 */
} tsri_part_change;
typedef struct tsri_parts {
    int n;                    /* those that save time */
    tsri_part_change *change; /* [n], the most seconds a byte first */
    int count;                /* all parts */
    int *of;                  /* the part of each node of the problem; -1: it does not differ */
} tsri_parts;
/* The work of a second of tsr_compile_opts.search_s, in additions of the search: all ranks, and
 * plans made without them, count the same, however fast each of them is. Other work counts as so
 * many additions. */
#define TSRI_WORK_PER_S 1e9
enum {
    TSRI_WORK_OF_PRICE = 1000, /* of an entry of a conversion's table */
    TSRI_WORK_OF_BUILT = 10000 /* of an op of a plan that is built and measured */
};
typedef struct tsri_infer_opts {
    int64_t memory_limit; /* bytes of a rank's values, variables and ports at any time; 0: none */
    bool quick_within;    /* within the limit good signatures will do */
    bool alternatives;    /* say what else each op could do */
    double bucket_bytes;  /* gradients' reductions are joined up to this size */
    bool infer_updates;   /* see tsr_compile_opts */
    /* Per op: the signature of its first result; ndim 0: any. NULL: nothing is pinned. Nothing
     * fits where no legal choice has all of them. */
    const tsr_sbp *pinned;
    int most_signatures; /* of an op on more than two dimensions; 0: the usual number */
} tsri_infer_opts;
/* Whether a conversion makes addends of zeros where there were none. */
bool tsri_fills_zeros(const tsr_placement *from_placement, tsr_sbp from,
                      const tsr_placement *to_placement, tsr_sbp to);
/* Variables that the user left to the compiler are AUTO at the call. Between calls with the same
 * inference nothing of the graph may change, nor opts->bucket_bytes. */
tsr_status tsri_infer(tsri_inference *inference, const tsri_infer_opts *opts,
                      tsri_inferred *out_inferred);
/* Returns seconds below which no choice costs, by the model, of those that an answer was chosen
 * from: with whatever memory, as inference's estimate of it proves nothing of a plan's. 0 where
 * some legal signatures were not searched. */
double tsri_infer_bound(const tsri_inferred *inferred);
/* The signatures that a live op could have by an answer; ops of one class have the same list. */
const tsri_nd_signature *tsri_infer_signatures(const tsri_inferred *inferred, int op, int *out_n);
/* Finds what could be taken over from one answer of an inference into another: nothing, where one
 * was relaxed otherwise. */
tsr_status tsri_infer_parts(const tsri_inferred *from, const tsri_inferred *to,
                            tsri_parts *out_parts);
/* Makes the answer `from` with the parts taken[parts->n] as `to` has them. */
tsr_status tsri_infer_mix(const tsri_inferred *from, const tsri_inferred *to,
                          const tsri_parts *parts, const bool *taken, bool alternatives,
                          tsri_inferred *out_inferred);

/* --- from signatures to steps ----------------------------------------------------------------- */
tsr_status tsri_plan_build(tsr_plan *plan, tsr_graph *g, const tsri_inferred *inferred);
/* The item of a RANK_SUM whose operands and results are values. */
tsr_status tsri_plan_build_rank_sum(tsr_plan *plan, const tsri_op *op, const int *in,
                                    const int *out);
/* The farthest link between the first and the others of n ranks, by the plan's model. */
int tsri_plan_farthest(const tsr_plan *plan, const int *ranks, int n);
tsr_status tsri_plan_fuse(tsr_plan *plan);
/* Whether the options leave this fusion on. */
static inline bool tsri_plan_fuses(const tsr_plan *plan, tsr_fusion which)
{
    return !(plan->opts.no_fusion & (TSR_FUSE_ANYTHING | (unsigned)which));
}
/* Where the options say so, no item of backward reads a weight that was gathered for forward, but
 * those that are gathered last there. */
tsr_status tsri_plan_reshard(tsr_plan *plan);
tsr_status tsri_plan_layout(tsr_plan *plan);
tsr_status tsri_plan_chain(tsr_plan *plan);
/* Returns what an item can be in a chain. */
tsri_chain_role tsri_chain_role_of(const tsr_plan *plan, const tsri_item *it);
/* Once items are in their final order: dissolves chains that are no longer in one piece, and finds
 * what is inside the others. */
tsr_status tsri_plan_settle_chains(tsr_plan *plan);
/* The first item, and the end, of the chain that an item is in, or of the item itself. */
int tsri_chain_begin(const tsr_plan *plan, int item);
int tsri_chain_end(const tsr_plan *plan, int item);
tsr_status tsri_plan_defer(tsr_plan *plan);
/* Afterwards every item reads the version that the program means: of a variable, what a run begins
 * with; and an optimizer's updates follow the buckets of their gradients. */
tsr_status tsri_plan_order(tsr_plan *plan);
/* Joins updates to the chains that make their gradients, where no other item reads these. */
tsr_status tsri_plan_update(tsr_plan *plan);
tsr_status tsri_plan_schedule(tsr_plan *plan);
/* For any rank: returns the bytes of the plan's block on a kind of device; offsets are kept for the
 * world's own rank. */
tsr_status tsri_plan_memory(tsr_plan *plan, int rank, tsr_device kind, size_t *out_bytes);
/* Bytes that kernels of this rank need at a time, over all kinds of device. */
size_t tsri_plan_scratch(const tsr_plan *plan);
/* Bytes that a rank needs: variables, values and ports; kernels' scratch apart. On all kinds of
 * device together. */
tsr_status tsri_plan_rank_bytes(tsr_plan *plan, int rank, size_t *out_variables, size_t *out_ports,
                                size_t *out_values);
/* Writes the reasons of conversions that have none yet: their readers. */
tsr_status tsri_plan_give_reasons(tsr_plan *plan);
/* Brings values, items and entries, which the passes let grow in scratch, to their final place. */
tsr_status tsri_plan_settle(tsr_plan *plan);
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

/* Appends a value; returns its number, -1 when there is no memory. Fills this rank's part. */
int tsri_plan_add_value(tsr_plan *plan, const tsri_value *value);
/* Begins a new list of items, with room for n, of which passes rebuild the old one's. */
tsr_status tsri_plan_new_items(tsr_plan *plan, int n);
/* Appends an item with room for its operands (copied). NULL when there is no memory. */
tsri_item *tsri_plan_add_item(tsr_plan *plan, const tsri_item *item, const int *in, const int *out);
/* Appends a copy of a value, in row-major order or channels last, and the item that makes it, for
 * another item; returns the copy, or -1 when there is no memory. */
int tsri_plan_add_copy(tsr_plan *plan, const tsri_item *for_item, int value, bool nhwc);
/* The value whose bytes v's are: follows aliases. */
int tsri_plan_root(const tsr_plan *plan, int v);
/* The kernel desc's view of a value on this rank. */
tsri_arg tsri_plan_arg(const tsri_value *v);
/* Bytes of a value on `rank`. */
size_t tsri_value_bytes(const tsri_value *v, int rank);
/* Seconds of crossing to another kind of device, of the rank that has the largest part. */
double tsri_crossing_seconds(tsr_dims shape, size_t element, const tsr_placement *p, tsr_sbp sbp);
/* The query that a conversion's step was planned for. */
tsri_route_query tsri_item_query(const tsr_plan *plan, const tsri_item *item, int pair);
/* Whether the rank has a part in an item: runs it, gives to it or takes from it. */
bool tsri_item_has(const tsri_item *item, int rank);
/* Whether a step is one of a sum over the ranks of local graphs, which captured runs make by
 * themselves: other ranks may capture other steps, or none. */
bool tsri_step_is_apart(const tsri_step *s);
/* Puts place, op and name of an item before the error that its kernel met, which may begin with the
 * op's name by itself. */
tsr_status tsri_item_fail(tsr_status status, const tsri_item *it);
/* The kind of device that a value lies on. */
tsr_device tsri_value_device(const tsri_value *v);
/* Whether an item moves nothing: its result shows its operand's bytes. */
bool tsri_item_shows(const tsri_item *item);
/* Whether an item converts. */
bool tsri_item_converts(const tsri_item *item);
/* Whether an item copies between kinds of device. */
bool tsri_item_crosses(const tsri_item *item);
/* Whether an item is an optimizer's update of one variable. */
bool tsri_item_is_update(const tsri_item *item);
/* Whether lowering may join an item with neighbours of its op; see defer.c. */
bool tsri_item_may_join(const tsri_item *item);
/* Whether an item is a call that may write its results before it is finished (tsri_comm.early). */
bool tsri_item_writes_early(const tsr_plan *plan, const tsri_item *item);
/* Whether a value's kernel may write over its first operand (equal shape, dtype and layout). */
bool tsri_item_in_place(const tsr_plan *plan, const tsri_item *item);

/* --- check.c ---------------------------------------------------------------------------------- */
typedef enum tsri_pass {
    TSRI_PASS_BUILD = 0,
    TSRI_PASS_FUSE,
    TSRI_PASS_RESHARD,
    TSRI_PASS_LAYOUT,
    TSRI_PASS_CHAIN,
    TSRI_PASS_DEFER,
    TSRI_PASS_ORDER,
    TSRI_PASS_UPDATE,
    TSRI_PASS_SCHEDULE,
    TSRI_PASS_MEMORY, /* offsets are known: after lowering */
} tsri_pass;
/* "build", "fuse", ... */
const char *tsri_pass_name(tsri_pass pass);
/* With TESSERA_CHECK (tsri_checks): TSR_ERR_INTERNAL, naming pass, item and value, if the plan is
 * not what the pass promises. BUILD to ORDER: items read what items before them make, both ends of
 * a conversion are as it says, results lie on operands of the same size. ORDER: and nobody reads
 * what has been written over. SCHEDULE: every reader stands behind its writer's FINISH, updates
 * behind the last reader and behind the RELEASE of calls by which peers read, everything is done
 * once and used within its lifetime. MEMORY: no two values that live at the same time share bytes.
 */
tsr_status tsri_plan_check(tsr_plan *plan, tsri_pass after);
/* Hashes the order in which the plan starts and finishes its collectives, and what each of them is:
 * equal on all ranks. */
uint64_t tsri_plan_order_hash(const tsr_plan *plan);

/* --- agree.c ---------------------------------------------------------------------------------- */
/* A rank's need for a plan, in bytes. */
typedef struct tsri_need {
    size_t bytes, scratch; /* all; of it for kernels while they run */
    size_t *scratch_of;    /* [ranks]: becomes every rank's scratch; NULL: is not wanted */
    int rank;
    bool compares;  /* it asks for runs that compare values; of all: whether any does */
    uint64_t order; /* tsri_plan_order_hash of its plan */
} tsri_need;
/* Joins the statuses of all ranks and compares their programs. `status` is this rank's own, with
 * its text as the thread's last error. *need (may be NULL) is this rank's, and becomes that of the
 * neediest rank; plans with other orders of communication are an error of ours. With opts NULL,
 * statuses alone are exchanged. Collective over the world. */
tsr_status tsri_plan_agree(tsr_graph *g, const tsr_compile_opts *opts, tsr_status status,
                           tsri_need *need);
/* Every one of n ranks' words, in the order of peers, beside the plan's own communication and not
 * counted with it. Collective over peers. */
tsr_status tsri_plan_gather(const tsr_plan *plan, int n, const int *peers, const char *what,
                            int64_t words, const int64_t *mine, int64_t *all);

/* --- compile.c -------------------------------------------------------------------------------- */
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

/* --- lower_groups.c --------------------------------------------------------------------------- */
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

/* --- src/exec --------------------------------------------------------------------------------- */
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
void tsri_plan_note_fed(tsr_plan *plan, tsri_plan_port *port);
/* Returns what the plan's runs on devices have met by now; does not wait. */
tsr_status tsri_plan_poll(tsr_plan *plan);
/* Walks a plan's steps, or replays them. */
tsr_status tsri_plan_walk(tsr_plan *plan);
/* Runs a plan as tsr_run does, but for its runner, which calls this. */
tsr_status tsri_plan_run(tsr_plan *plan);

#endif
