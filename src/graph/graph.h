/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The declared program: ops on tensors, in the order of declaration (which is a topological order:
 * an op's operands come before it). Everything lives in the graph's pool.
 */
#ifndef TESSERA_GRAPH_GRAPH_H
#define TESSERA_GRAPH_GRAPH_H

#include <stdio.h>

#include <tessera/nn.h>
#include "sbp/rule/layout.h"
#include "sbp/rule/rule.h"
#include "sbp/rule/sbp.h"
#include "src/core/dims.h"
#include "src/core/attrs_text.h"
#include "src/core/op_list.h"
#include "src/core/world.h"

typedef struct tsri_op tsri_op;

/* The types that autocast casts from and to: f32, f16, bf16. */
enum { TSRI_AUTOCAST_DTYPES = 3 };

/* The names of the inputs that carry the training step, and the number of the part that runs. */
#define TSRI_STEP_INPUT "(step)"
#define TSRI_PART_INPUT "(part)"

/* When a step with micro-batches computes an op: once before the parts, once in each part, or once
 * after the last one. Without micro-batches all is HEAD. */
typedef enum tsri_turn { TSRI_TURN_HEAD = 0, TSRI_TURN_PARTS, TSRI_TURN_TAIL } tsri_turn;

/* Holds in one of `every` runs, on all ranks in the same ones. A hook sets `holds` before each run.
 */
typedef struct tsri_condition {
    int64_t every;
    bool holds;
} tsri_condition;

struct tsr_tensor {
    tsr_graph *graph;
    int id;     /* index into graph->tensors */
    int origin; /* its id when it was declared; of a recomputed one: the first one's */
    tsr_dtype dtype;
    tsr_dims shape;
    const tsr_placement *placement;
    tsri_op *op;          /* that makes it; NULL in a failed tensor */
    int out;              /* which of its results */
    tsr_variable *writes; /* the variable that this is the new value of; NULL: of none */
    bool superseded;      /* a later update starts from this and writes its variable */
    bool is_loss;         /* a scalar whose gradients were asked for */
    bool failed;
    tsr_tensor *as[TSRI_AUTOCAST_DTYPES]; /* autocast's casts of it; NULL: none yet */
    /* The call of a public function, or of an op's gradient, that made it; 0: the value that it has
     * is final. Within that call the f32 value that it is the rounding of takes its place. */
    int call;
    bool moved;       /* in the call, from a final value, and not computed */
    tsr_tensor *full; /* that f32 value; NULL: not declared yet, or the tensor is no half */
    /* Its copies at other stages, one for each placement; NULL if it has none. */
    tsr_tensor *copies, *next_copy;
};

struct tsri_op {
    int id;     /* index into graph->ops */
    int origin; /* its id when it was declared; of a recomputed one: the first one's */
    tsri_op_kind kind;
    tsri_attrs attrs;
    int nin, nout;
    tsr_tensor **in;
    tsr_tensor **out;
    const tsr_placement *placement;
    tsr_sbp sbp;  /* INPUT, TO_GLOBAL, RANDOM, FILL, VARIABLE: the user's word; else AUTO */
    tsr_sbp back; /* TO_GLOBAL: that which its result's gradient is brought into; AUTO: any */
    tsr_variable *variable; /* VARIABLE: what it reads. Others: NULL */
    tsr_tensor *latest;     /* VARIABLE: the result of the last update declared so far, or NULL */
    const char *said_by;    /* as of tsr_variable */
    bool differentiated;    /* the graph has gradients with respect to one of its results */
    bool from_local;        /* INPUT: fed per rank */
    int8_t batch_axis;      /* INPUT: 1 + the axis along which micro-batches cut it; 0: none */
    tsri_turn turn;         /* in a compile's copy */
    const char *name;       /* scope, or the user's name; "" if neither */
    const char *label;      /* for readers, where `name` is "": what it is declared for, or "" */
    tsri_loc loc;
    bool backward;  /* declared by differentiation or an optimizer */
    bool optimizes; /* declared by a minimization, behind the gradients */
    int stage;      /* 1 + the stage's number; 0: it is in no stage */
    /* Its results matter only in runs in which this holds, and runs in which it does not hold may
     * leave the op out: variables that it writes keep their values. NULL: it matters in all. */
    const tsri_condition *only_if;
    bool detached; /* RESHAPE: tsr_detach; gradients of its result end here */
    bool is_copy;  /* of an op on halves, in f32 */
    int region;    /* of tsr_recompute, from 1; 0: none */
    bool again;    /* in a compile's copy: a recomputation of op `origin` */
    /* Its effect in a graph without training, as in "dropout drops nothing"; NULL: what
     * it does in training too. */
    const char *evaluates;
};

/* A port: a named input or output. */
typedef struct tsri_graph_port {
    const char *name;
    tsr_tensor *tensor;
    tsr_sbp sbp;                    /* AUTO: as inferred (inputs, and outputs of to_local) */
    const tsr_placement *placement; /* an output's may differ from its tensor's */
    bool is_input, is_local;
    tsri_loc loc;
} tsri_graph_port;

/* Called before each run of a plan of this graph, on the host (learning rate, step counters). */
typedef struct tsri_hook {
    tsr_status (*fn)(void *arg);
    /* A line that says what it is, then one "name: value" for each setting that ranks must share.
     */
    void (*describe)(const void *arg, FILE *f);
    void *arg;
} tsri_hook;

typedef struct tsr_plan tsr_plan;
/* A function that tsr_run of a plan of this graph calls in its own place; run NULL: none. */
typedef struct tsri_runner {
    tsr_status (*run)(void *owner, void *arg, tsr_plan *plan);
    void *owner, *arg;
} tsri_runner;

/* A plan of tsr_eval's, for when the tensor is asked for again. */
enum { TSRI_EVALS = 4 };
typedef struct tsri_kept_eval {
    const tsr_tensor *tensor; /* NULL: none */
    tsr_plan *plan;
    uint64_t variables; /* how those that the graph reads were laid out then */
} tsri_kept_eval;

/* A line that runs write: see ops/print.c. */
enum { TSRI_PRINT_ELEMENTS = 8 };
typedef struct tsri_print {
    const char *label, *port; /* the output that has its numbers */
    int64_t every;
    tsr_dims dims; /* of what is printed */
    tsr_dtype dtype;
} tsri_print;

/* A variable's gradient, as a minimization has computed it: times `scale`, and over `inverse`. */
typedef struct tsri_graph_gradient {
    const tsr_variable *variable;
    tsr_tensor *gradient;
    double scale;
    tsr_tensor *inverse; /* f64 scalar; NULL: 1 */
} tsri_graph_gradient;

/* An optimizer whose updates in this graph are left out in runs where `found`, a scalar, is not 0.
 */
typedef struct tsri_graph_scaled {
    const struct tsr_optimizer *optimizer;
    tsr_tensor *found;
    tsr_tensor *seen;              /* for users: without an update it covers the gradients so far */
    struct tsri_scaler_flag *flag; /* through which the host learns of it */
} tsri_graph_scaled;

/* The types in which autocast makes an op whose operands are floats of at most 32 bits. */
typedef enum tsri_autocast {
    TSRI_AUTOCAST_WIDEST = 0, /* that of its operands; f32 where f16 meets bf16 */
    TSRI_AUTOCAST_LOW,        /* the region's: products */
    TSRI_AUTOCAST_F32,        /* f32: sums of many, and what loses its digits */
    TSRI_AUTOCAST_NONE,       /* each operand's own */
} tsri_autocast;
/* Returns the definition of a kind of op, as tsri_op_def_of. */
typedef const struct tsri_op_def *tsri_def_fn(tsri_op_kind kind);

/* A signature that compiles of the graph must give a tensor, for asking what it would cost. */
typedef struct tsri_pin {
    const tsr_tensor *tensor; /* NULL: none */
    tsr_sbp sbp;
} tsri_pin;

/* A graph's first error. */
typedef struct tsri_graph_failure {
    tsr_status status;
    char *text;
    tsr_tensor tensor; /* the result of failing calls */
} tsri_graph_failure;

/* A stage of a pipeline: its number and its placement. */
typedef struct tsri_stage {
    int number; /* from 1; 0: no stage */
    const tsr_placement *placement;
} tsri_stage;

/* The state of the declaration: it sets the fields of the ops that are appended. */
typedef struct tsri_declaring {
    const char *scope; /* qualified name of the module being applied, "" outside */
    tsri_stage stage;  /* of that module, or of the op whose gradients are declared */
    /* Receives the outputs of each applied module, with its qualified name; may be NULL. */
    void (*applied)(void *arg, const char *module, int nout, tsr_tensor *const *out);
    void *applied_arg;
    const char *label; /* label of ops outside of modules; "" if none */
    bool in_backward, optimizes;
    const tsri_condition *only_if; /* of ops that are declared now */
    int nregions, region_depth;    /* regions so far; open calls of tsr_recompute */
    tsr_dtype autocast;            /* f16 or bf16 in a region of autocast */
    tsr_dtype *outer_autocast;     /* the dtypes of the enclosing regions */
    int nouter, couter;
    int call, ncalls, depth; /* number of the open call, or 0; calls so far; see dtypes.c */
    bool warned; /* the warning was given that an op of a trained graph only evaluates */
    tsri_def_fn *def_of;
    tsri_stage *stages; /* those that the graph has met */
    int nstages, cstages;
} tsri_declaring;

/* Gradients and scalers of the graph's minimizations. */
typedef struct tsri_minimized {
    tsri_graph_gradient *gradients;
    int ngradients, cgradients;
    tsri_graph_scaled *scaled;
    int nscaled, cscaled;
} tsri_minimized;

/* The plans of tsr_eval that a graph keeps. */
typedef struct tsri_evals {
    tsri_kept_eval kept[TSRI_EVALS];
    int next;                   /* index of the plan that the next one replaces */
    void (*drop)(tsr_graph *g); /* destroys the plans; NULL if there are none */
} tsri_evals;

/* A hash table of the VARIABLE ops. */
typedef struct tsri_reads {
    tsri_op **op;
    size_t n, size; /* size is a power of two */
} tsri_reads;

/* How a compile forms a step: its micro-batches, and its updates. */
typedef struct tsri_step_form {
    int parts;      /* micro-batches; 0 and 1: it has none */
    bool regathers; /* each of them converts weights anew, so that these take memory for a while */
    bool stops;     /* TSR_NAN_STOP */
} tsri_step_form;

struct tsr_graph {
    tsri_owned owned;
    tsr_world *world;
    tsri_pool pool;
    bool training;
    bool local; /* this rank's own: all its placements are of this rank alone */
    uint64_t seed;
    tsri_op **ops;
    int nops, cops;
    tsri_reads reads;
    tsr_tensor **tensors;
    int ntensors, ctensors;
    tsri_graph_port *ports;
    int nports, cports;
    tsri_hook *hooks;
    int nhooks, chooks;
    tsri_runner runner;
    tsri_print *prints;
    int nprints, cprints;
    int64_t *step_value; /* an optimizer's count of steps; NULL: a plan's own */
    tsri_step_form step; /* in a compile's copy */
    tsri_graph_failure failure;
    tsri_declaring now;
    tsri_minimized minimized;
    tsri_evals evals;
    tsri_pin pin;
};

/* tsr_graph_create, which gives the graph the definitions of ops. */
tsr_graph *tsri_graph_create(tsr_world *world, const tsr_graph_opts *opts, tsri_def_fn *def_of);

/* --- errors ----------------------------------------------------------------------------------- */
/* Keeps the error if it is the graph's first, and returns the graph's failed tensor. g may be NULL
 * (then NULL is returned and only the thread's text is set). */
tsr_tensor *tsri_graph_fail(tsr_graph *g, tsri_loc loc, tsr_status status, const char *fmt, ...)
    TSR_PRINTF(4, 5);
/* tsr_graph_status of a graph that is there, or of a compile's copy of one. */
tsr_status tsri_graph_status(const tsr_graph *g);
/* Keeps the thread's last error as it stands. */
tsr_tensor *tsri_graph_fail_last(tsr_graph *g, tsr_status status);
/*
 * The first thing of every op: finds the graph of its operands (a NULL or failed one makes the op
 * fail silently: NULL is returned and *out_failed set to what to return), checks that they share
 * graph and placement. Optional operands may be NULL when bit i of `optional` is set.
 */
tsr_graph *tsri_check_operands(const char *op, int n, tsr_tensor *const *x, uint32_t optional,
                               tsri_loc loc, tsr_tensor **out_failed);
/* In a local graph: whether a placement is of this rank alone. Fails the graph otherwise, naming
 * what ("input", "variable") and name (may be ""). */
bool tsri_graph_check_local(tsr_graph *g, tsri_loc loc, const char *what, const char *name,
                            const tsr_placement *p);
/* "(64,3,32,32)" in the graph's pool (or a static text when there is no memory). */
const char *tsri_dims_text(tsr_graph *g, tsr_dims dims);

/* --- adding ops ------------------------------------------------------------------------------- */
/* Appends an op; results' shapes and dtypes are the caller's word. Its placement is `p`, or that of
 * its first operand if p is NULL. Absent optional operands are left out by the caller. Returns
 * NULL, with the graph failed, when there is no memory. attrs may be NULL (zeros). */
tsri_op *tsri_graph_add(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                        tsr_tensor *const *in, int nout, const tsr_dims *shapes,
                        const tsr_dtype *dtypes, const tsr_placement *p, tsri_loc loc);
/* Appends an op as tsri_graph_add does, but in the dtypes given. */
tsri_op *tsri_graph_append(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                           tsr_tensor *const *in, int nout, const tsr_dims *shapes,
                           const tsr_dtype *dtypes, const tsr_placement *p, tsri_loc loc);
/* Appends an op of one result; returns it (or the failed tensor). */
tsr_tensor *tsri_graph_add1(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                            tsr_tensor *const *in, tsr_dims shape, tsr_dtype dtype, tsri_loc loc);
/* Appends an op whose nout results each have the shape and the dtype of `like`, a tensor of the
 * graph; otherwise as tsri_graph_add. */
tsri_op *tsri_graph_add_all_like(tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                                 tsr_tensor *const *in, int nout, const tsr_tensor *like,
                                 tsri_loc loc);
/* Appends an op of one result, which is as `like`; returns it (or the failed tensor). */
tsr_tensor *tsri_graph_add_like(tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                                tsr_tensor *const *in, const tsr_tensor *like, tsri_loc loc);
/* The name that readers know an op by: its own, else its label; "" if it has neither. */
static inline const char *tsri_op_called(const tsri_op *op)
{
    return op->name[0] ? op->name : op->label;
}
/* Makes op, the latest, number `id`: behind its operands, before all that was added since. */
void tsri_graph_move(tsr_graph *g, tsri_op *op, int id);
/* The tensor that reads a variable: its value when a run begins. One per variable and graph. */
tsr_tensor *tsri_graph_read(tsr_graph *g, tsr_variable *v, tsri_loc loc);
/* Lets tsri_graph_find_read find an op that reads a variable; false when there is no memory. */
bool tsri_graph_note_read(tsr_graph *g, tsri_op *op);
/* Registers a stage of the graph for tsri_stage_at; returns false if memory runs out. */
bool tsri_graph_note_stage(tsr_graph *g, tsri_stage stage);
/* Returns the tensor that reads a variable; NULL if nothing reads it yet. */
tsr_tensor *tsri_graph_find_read(const tsr_graph *g, const tsr_variable *v);
/* Marks the live ops: those that ports and updates depend on, and the reads of updated variables,
 * at which inference chooses the variables' signatures. live[g->nops] is false at the call. */
void tsri_graph_mark_live(const tsr_graph *g, bool *live);
/* The value that the next update of a variable starts from: the result of the update declared last,
 * or what a run begins with. */
tsr_tensor *tsri_graph_current(tsr_graph *g, tsr_variable *v, tsri_loc loc);
/* Makes result i of an op what its variable has when a run has ended. */
void tsri_graph_write(tsr_graph *g, tsri_op *op, int i, tsr_variable *v);
/* The i64 scalar operand of dropout: the training step. p: on which placement. */
tsr_tensor *tsri_graph_step(tsr_graph *g, const tsr_placement *p, tsri_loc loc);
/* A key for random numbers of the op about to be added: seed, scope, kind and how many such ops the
 * scope already has. */
uint64_t tsri_graph_rng_key(tsr_graph *g, tsri_op_kind kind);
void tsri_graph_add_hook(tsr_graph *g, tsri_hook hook);

/* --- what is known of each op kind: src/graph/ops --------------------------------------------- */
/* The text of a rule and the sizes of indices inside ( ). */
typedef struct tsri_rule_text {
    char text[512];
    int nsizes;
    tsri_index_size sizes[TSRI_RULE_MAX_INDICES];
    /* A legal signature that no rule expresses: all operands and results S(0), for exactly
     * extra_parts parts (batch norm over R uneven virtual batches); 0: none. Others of its operands
     * are per extra_in / extra_out. */
    int extra_parts;
    tsr_sbp1 extra_in[TSRI_RULE_MAX_ARGS], extra_out[TSRI_RULE_MAX_ARGS];
} tsri_rule_text;

/* The memory layout that an op's kernels prefer. */
typedef enum tsri_layout_taste {
    TSRI_LAYOUT_ROW = 0, /* wants row-major everywhere */
    TSRI_LAYOUT_NHWC,    /* wants its 4-D operands channels last */
    TSRI_LAYOUT_ANY,     /* element-wise: whatever its first operand has, all alike */
    TSRI_LAYOUT_PLANES,  /* as _ANY where each plane of result 0 is one number, else _NHWC */
    TSRI_LAYOUT_REDUCE,  /* as _ANY where attrs.reduce keeps no axis but channels, else row-major */
} tsri_layout_taste;

/* An op's part in a chain: kernels of a CPU that share rows and run as one. */
typedef enum tsri_chain_role {
    TSRI_CHAIN_NONE = 0,
    TSRI_CHAIN_MAP,     /* each row of its result is of the same rows of its operands */
    TSRI_CHAIN_PRODUCT, /* the same, by a product worth a chain around it */
    TSRI_CHAIN_SUMS,    /* its result is of all rows, and small */
    TSRI_CHAIN_OUTER,   /* the same, by a product worth a chain around it */
} tsri_chain_role;

/* An op's part in a chain without a product: kernels of a CPU that share rows; of f32 alone. */
typedef enum tsri_rows_role {
    TSRI_ROWS_NONE = 0,
    TSRI_ROWS_MAP,  /* element-wise; its operands broadcast to its result */
    TSRI_ROWS_FOLD, /* reduces its operand by attrs.reduce */
    TSRI_ROWS_NORM, /* of layer norm: rows of attrs.ln.axes, whose sums are f64 */
} tsri_rows_role;

/* The names that stand in the text of a rule as the capital letters A, B and C. */
enum { TSRI_AXES_TEXT = 48 };
typedef struct tsri_rule_names {
    char a[TSRI_AXES_TEXT], b[TSRI_AXES_TEXT], c[TSRI_AXES_TEXT];
} tsri_rule_names;

#define TSRI_ALL_OPERANDS UINT32_MAX

/* How an op's operations lie over its rule's indices, which are named as the rule names them. */
typedef struct tsri_uneven {
    const char *some; /* only some of the operations have this index; NULL: there is none such */
    double whole;     /* the part that lacks it: a rank does it whole, however `some` is split */
    const char *rows,
        *columns; /* of a causal mask, which hides columns after the row; NULL: none */
} tsri_uneven;

/* Along which indices micro-batches cut an op. Its kernels see the sizes of a part. */
typedef enum tsri_cut {
    TSRI_CUT_ANY = 0, /* every one */
    TSRI_CUT_ROWS,    /* indices of all operands and results: kernels count elements along others */
    TSRI_CUT_NEVER,   /* none: a program's own functions may count elements along any */
} tsri_cut;

/* All that the passes ask of an op kind. Zeros are what most ops are. */
typedef struct tsri_op_def {
    /* The rule, in the notation of sbp/rule/rule.h, where A, B and C are names; or what chooses
     * that text, or writes all of it, for a declared op from its shapes and attributes. All are
     * NULL for INPUT, VARIABLE, TO_GLOBAL, whose signatures are the user's, and for what lowering
     * makes of others. */
    const char *rule_text;
    const char *(*rule_of)(const tsri_op *op);
    tsr_status (*rule)(const tsri_op *op, tsri_rule_text *out);
    /* Sets the names A, B and C of the rule's text for a declared op, and adds to *out the sizes of
     * the indices inside ( ). NULL: A is the list of all axes of operand 0, or of result 0 where
     * there is no operand; B is the same list, with the shards' offsets. */
    void (*names)(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out);
    /*
     * Declares the gradients: dout[i] is that of result i, NULL if none flows; sets din[i] for
     * operands with want[i] (others and those without a gradient stay NULL). NULL for ops without
     * gradients. A failed tensor may be set; failures are sticky.
     */
    void (*gradient)(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din);
    /* Floating-point operations of the whole (unsplit) op: for each element of operand 0, or in
     * all; with neither, one for each element of the results. */
    double flops_per_element;
    double (*flops)(const tsri_op *op);
    /* Tells how its operations lie over the rule's indices, where a split of one leaves a rank
     * another part of them than of the index. NULL: each index divides all of them. */
    void (*uneven)(const tsri_op *op, tsri_uneven *out);
    /* Returns the part that attention reaches, by its length, of what long attention reaches. */
    double (*reach)(const tsri_op *op);
    /* Its attributes as text, for messages; NULL: none. */
    const tsri_attr_field *attrs;
    /* Its kernels update in place: result i is written over operand over - 1 + i. 0: results have
     * bytes of their own. */
    int over;
    /* Its kernels may write result 0 over operand 0 where the operands of these bits have the
     * result's shape, dtype and layout; 0: never. */
    uint32_t alike;
    tsri_layout_taste layout;
    tsri_autocast autocast; /* as PyTorch has it; of a kind that has several functions: */
    tsri_autocast (*autocast_of)(const tsri_attrs *attrs);
    /* Operands and results (bits) that are row-major whatever `layout` says: weights. */
    uint32_t rows_in, rows_out;
    /* Returns the operands, or results (bits), that may lie by head on devices with kernels of
     * libraries: (b,h,s,d) in memory as (b,s,h,d), as products make and take them. NULL: none. */
    uint32_t (*by_head)(const tsri_attrs *attrs, tsr_dtype dtype, bool results);
    bool is_view;  /* its result shows its operand's bytes: no kernel runs */
    bool is_exact; /* it moves elements, so that it does not matter whether they are rounded before
                    * or after it; of a kind that has several functions: */
    bool (*exact_of)(const tsri_attrs *attrs);
    bool keeps_dtype; /* it takes its operands in the dtype that they are given in */
    /* Its result is a sum, of which ranks may have parts. Kernels read halves and write f32. */
    bool (*sums)(const tsri_attrs *attrs);
    bool is_update;  /* an optimizer's: the operand before the last is the gradient */
    bool is_linear;  /* in all operands at once: it takes partial ones as it takes others */
    bool is_product; /* `flops` are multiplications and additions, as a machine's peak is told in */
    bool is_attention; /* a product whose kernels reach less of a peak than others do */
    bool has_groups;   /* attrs.conv.groups, which an index of the rule may split */
    /* Declares result j again from inputs alone (labels), if it depends on nothing else, so that it
     * can be computed before the micro-batches; returns NULL for other results. */
    tsr_tensor *(*early)(const tsri_op *op, int j);
    /* Changes an op's attributes from the whole batch to one of k micro-batches; sig is the op's
     * signature over them. NULL: the attributes do not depend on the batch. */
    void (*cut)(tsri_op *op, const tsri_signature *sig, int k);
    tsri_cut cuts;
    /* In a micro-batch its kernels count elements in the whole tensor: they have the micro-batch's
     * number as a further operand, and its rows in attrs.dropout. */
    bool counts_whole;
    bool spreads;  /* a micro-batch computes its rows of the result as cheaply as it copies them */
    bool collects; /* its result is kept from part to part in time */
    bool has_key;  /* attrs begin with a key of random numbers, which no rule depends on */
    tsri_chain_role chain;
    uint32_t walks; /* operands (bits) whose rows it takes, in a chain */
    bool is_cheap;  /* a MAP that is better computed again than stored */
    bool hands_on;  /* its kernels may hand their result to an update as they make it */
    tsri_rows_role rows;
    /* Whether an op in a chain may be in one, by its attributes; NULL: always. */
    bool (*may_chain)(const tsri_attrs *attrs);
    /* No op of the pass reads its results: it may be put off until the updates, to be joined with
     * others of its kind. */
    bool may_wait;
} tsri_op_def;

/* Whether ops that are declared now are autocast: forward ones, in a region of f16 or bf16. */
static inline bool tsri_autocasts(const tsr_graph *g)
{
    return tsri_is_half(g->now.autocast) && !g->now.in_backward;
}
/* Returns x as autocast passes it to an op of `dtype`: cast once, however many read it. A tensor
 * that has no floats of at most 32 bits stays. */
tsr_tensor *tsri_autocast_to(tsr_tensor *x, tsr_dtype dtype, tsri_loc loc);
/* Opens a region of autocast, as tsr_autocast does, of a legal dtype; and ends it. */
void tsri_autocast_begin(tsr_graph *g, tsr_dtype dtype);
void tsri_autocast_end(tsr_graph *g);

/* Open and close a region, as tsr_recompute does. The outermost of nested regions counts. */
void tsri_recompute_begin(tsr_graph *g);
void tsri_recompute_end(tsr_graph *g);

/* --- halves: dtypes.c ------------------------------------------------------------------------- */
/* Opens and closes a call of a public function, or of an op's gradient, in which halves are rounded
 * once, at its end. Calls nest; the outermost one counts. */
void tsri_declare_begin(tsr_graph *g);
void tsri_declare_end(tsr_graph *g);
/* Returns x in f32: what it is the rounding of, where the call that is open has made it. */
tsr_tensor *tsri_unrounded(tsr_tensor *x, tsri_loc loc);
/* Returns the op that has computed x, whatever has rounded its result. */
static inline tsri_op *tsri_full_op(const tsr_tensor *x)
{
    return x->full ? x->full->op : x->op;
}

/* How often a step computes an op of a compile's copy. */
static inline int tsri_op_times(const tsri_op *op)
{
    return op->turn == TSRI_TURN_PARTS ? op->out[0]->graph->step.parts : 1;
}

/* The number of runs of which one computes an op of a compile's copy. */
static inline int64_t tsri_op_every(const tsri_op *op)
{
    return op->only_if ? op->only_if->every : 1;
}

/* The number of runs of which one converts a tensor of a compile's copy for its consumers: the mean
 * of gradients over runs accumulates in its producer, and only updates consume it. */
static inline int64_t tsri_tensor_every(const tsr_tensor *t)
{
    const bool adds = t->op->kind == TSRI_OP_SGD && t->op->attrs.update.adds > 1;
    return adds ? t->op->attrs.update.adds : tsri_op_every(t->op);
}

/* Never NULL for a kind. */
const tsri_op_def *tsri_op_def_of(tsri_op_kind kind);
/* Whether the op's signatures follow from a rule. Otherwise they are the user's word. */
bool tsri_op_has_rule(tsri_op_kind kind);
/* Writes the rule of a declared op. Errors: TSR_ERR_INTERNAL where its kind has none. */
tsr_status tsri_op_write_rule(const tsri_op *op, tsri_rule_text *out);
/* Writes that rule and binds it to the shapes of the op's operands and results; it lives in pool.
 */
tsr_status tsri_op_bind_rule(tsri_pool *pool, const tsri_op *op, tsri_rule_text *out_text,
                             tsri_rule **out_rule);
/* Floating-point operations of the whole (unsplit) op. */
double tsri_op_flops(const tsri_op *op);
/* The dtype that an op computes in: that of its first operand or result with a fraction. */
tsr_dtype tsri_op_computes_in(const tsri_op *op);
/* The operands that an op's kernels may write result 0 over, as tsri_op_def's `alike`. */
uint32_t tsri_op_alike(tsri_op_kind kind, const tsri_attrs *attrs);
/* The operand that result i of an op is written over; -1: it has bytes of its own. */
int tsri_op_over(tsri_op_kind kind, int i);
/* The operand of an optimizer's update that is the gradient; -1: it is no update. */
int tsri_op_gradient_operand(tsri_op_kind kind, int nin);

/* --- variables -------------------------------------------------------------------------------- */
/* Where a variable stands in a tree of modules, each of which begins with one. */
typedef struct tsri_scope {
    struct tsri_scope *parent; /* NULL: a root */
    char *name;                /* within the parent, "" of a root */
    bool local;                /* this rank's own, with all below it */
    tsri_stage stage;          /* with all below it that has none of its own */
} tsri_scope;

/* Longest qualified name of a variable or module, with its end. */
enum { TSRI_NAME_MAX = 512 };

/* Whether ranks may hold addends of a variable: a compile then chooses between P(sum) and B on the
 * dimensions where `base` is B, and uses `base` on the others. base AUTO: any signature. */
typedef struct tsri_may_add_up {
    bool may;
    tsr_sbp base;
} tsri_may_add_up;

struct tsr_variable {
    tsr_world *world;
    const tsri_scope *scope; /* of its module; NULL: an optimizer's or the graph's own */
    tsr_variable *next;      /* in its owner */
    const char *name;        /* within its owner; with scope NULL the qualified name */
    tsr_dtype dtype;
    tsr_dims shape; /* global */
    tsr_dims saved; /* its shape in files; no axes: `shape` */
    const tsr_placement *placement;
    tsr_sbp sbp;   /* AUTO until a compile has fixed it; tsr_eval fixes nothing */
    tsr_sbp held;  /* what `data` is in; AUTO until materialised. May differ while sbp is AUTO */
    bool inferred; /* `sbp` is what a compile chose */
    /* The pattern or key of a file that says `sbp`, for readers; "": the file says nothing; NULL:
     * not known; and the place where it stands. The texts outlive the variable. */
    const char *said_by;
    tsri_loc said_at;
    bool trainable;
    struct {
        tsr_role kind;
        int axis;
    } role; /* in tensor parallelism */
    tsr_init init;
    int64_t zero_row; /* 1 + the row of axis 0 whose initial values are zeros; 0: none */
    uint64_t seed;
    struct tsri_device *device; /* that holds it; NULL until materialised */
    /* This rank's shard, row-major, in a persistent buffer; NULL until materialised
     * or where the shard is empty. */
    void *data;
    size_t bytes;
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM];
    uint64_t version; /* the world's number of the last write to this rank's shard */
    bool ready;
    bool given; /* its value was set or loaded, so that it can't be made again from `init` */
    bool used;  /* by a graph or an optimizer: it stays where it is */
    tsri_may_add_up adds_up;
    int leaves_out; /* 1 + the element that leaves updates out where it is not 0; 0: it has none */
    bool awaited;   /* other work waits for the value that a run writes, before the run has ended */
};

/* Gives the variable its shard, in its signature (AUTO: what it is held in, B if in nothing yet),
 * and its initial value, if it has none yet. A shard in another signature moves, without
 * communication: initial values are made again, and those that were given are cut out of the whole,
 * which ranks hold until a compile has fixed the signature. Not collective. */
tsr_status tsri_variable_prepare(tsr_variable *v);
/* Whether ranks hold addends, whose sum is the value. */
bool tsri_variable_adds_up(const tsr_variable *v);
/* Turns this rank's copy of the whole value into its addend if the variable adds up: the first rank
 * of each group keeps the value, the others get zeros. Not collective. */
tsr_status tsri_variable_keep_addend(tsr_variable *v);
/* Its shape in files. */
tsr_dims tsri_variable_saved_dims(const tsr_variable *v);
/* Whether every rank can bring the value into any signature by itself. */
bool tsri_variable_can_move(const tsr_variable *v);
/* Bytes [at, at + bytes) of this rank's shard from and to the host; nothing where it has none. A
 * read sees all work that was queued. */
tsr_status tsri_variable_write(tsr_variable *v, size_t at, const void *from, size_t bytes);
tsr_status tsri_variable_read(const tsr_variable *v, size_t at, void *to, size_t bytes);
/* Gives this rank's shard a new version. Every function that writes to a shard calls it, before or
 * after the write, so that all plans pack the weight again before their next runs. */
void tsri_variable_wrote(tsr_variable *v);
/* Gives its memory back. The struct is its owner's. */
void tsri_variable_finish(tsr_variable *v);
/* "features.0.0" into buf; "" for a root and NULL. */
void tsri_scope_qualified_name(const tsri_scope *s, char *buf, size_t size);
/* Returns the stage of the scope or of its nearest ancestor that has one; number 0 if none has. */
tsri_stage tsri_scope_stage(const tsri_scope *s);
/* Whether it, or one that it is in, is this rank's own. */
bool tsri_scope_is_local(const tsri_scope *s);
/* "features.0.0.weight" into buf. */
void tsri_variable_qualified_name(const tsr_variable *v, char *buf, size_t size);

/* This rank's shard of a global shape in a 1-D (or n-D) signature: its shape and offset. Ranks
 * outside the placement get all-zero shapes. */
void tsri_shard(tsr_dims shape, const tsr_placement *p, tsr_sbp sbp, int rank, tsr_dims *out_shape,
                int64_t *out_offset);

/* --- differentiation: src/autograd ------------------------------------------------------------ */
/* Declares d(sum y)/d(x[i]); out[i] NULL where y doesn't depend on x[i]. False if it failed. */
bool tsri_differentiate(tsr_tensor *y, int n, tsr_tensor *const *x, tsr_tensor **out, tsri_loc loc);

#endif
