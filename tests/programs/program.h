/* SPDX-License-Identifier: Apache-2.0 */
/* A random program as data: what tests/programs draws, runs, walks, shrinks and prints. */
#ifndef TESTS_PROGRAMS_PROGRAM_H
#define TESTS_PROGRAMS_PROGRAM_H

#include <tessera/tessera.h>

#include "tape.h"

enum {
    MAX_NODES = 160, /* of a graph */
    MAX_OPERANDS = 12,
    MOST_ADDENDS = 4, /* the other addends that from_local is fed with are smaller together */
    MAX_ATTRS = 12,
    MAX_VARS = 48,
    MAX_SINKS = 40,
    MAX_OPTIMIZERS = 3,
    MAX_PLACES = 3,
    MAX_GRAPHS = 2,
    MAX_ACTS = 24,
    MAX_MODULES = 4,
    MAX_RANKS = 8,
};

/* One call of the public API that makes a tensor. What i, f, dims mean is the op's. */
typedef struct pnode {
    int op, tag; /* tag: names and numbers of inputs go by it, whatever is cut from the program */
    int nin, in[MAX_OPERANDS]; /* nodes before it; -1: an optional operand left out */
    int64_t i[MAX_ATTRS];
    double f[2];
    tsr_dims dims[3];
    tsr_axes axes;
    int place; /* of the result */
    tsr_sbp sbp;
    int var;   /* tsr_use, layers: the (first) variable */
    int batch; /* inputs: 1 + the axis along which micro-batches cut it; 0: none */
    /* What follows from the above. */
    tsr_dims shape;
    tsr_dtype dtype;
    bool opaque; /* depends on a gradient: not to be differentiated */
    bool has_random;
    int64_t below; /* i64: all values are in [0, below), 0: unknown */
} pnode;

/* The first two are read after a run. */
typedef enum sink_kind { SINK_OUTPUT, SINK_LOCAL, SINK_MINIMIZE, SINK_ASSIGN } sink_kind;
/* A call without a tensor, made after node `after`. */
typedef struct sink {
    sink_kind kind;
    int node, after;
    int place; /* -1: where the node is */
    tsr_sbp sbp;
    int optimizer;
    int var; /* of SINK_ASSIGN */
} sink;

typedef struct pgraph {
    bool training;
    uint64_t seed;
    int nnodes, nsinks;
    pnode node[MAX_NODES];
    sink sink[MAX_SINKS];
    /* compile options */
    double bucket_mb;
    unsigned no_fusion; /* tsr_fusion */
    bool free_links;    /* plans as if talking cost nothing and computing much: all is split */
    size_t memory_limit;
    int microbatches; /* 0 or 1: none */
} pgraph;

typedef struct pvar {
    int module;    /* whose it is */
    int layer;     /* 1 + number within the module's layers; 0: a parameter of the module */
    char name[24]; /* within the root: "m1.p3", "m0.l2.weight" */
    char last[16]; /* "p3", "weight" */
    tsr_dims dims;
    tsr_dtype dtype;
    bool trainable;
    int place;
    tsr_sbp sbp;
    tsr_init init;
    bool drawn;   /* has its initial value by init; else it is set before the first compile */
    double *data; /* that value */
} pvar;

typedef enum opt_kind {
    OPT_SGD,
    OPT_ADAM,
    OPT_ADAMW,
    OPT_RMSPROP,
    OPT_ADAGRAD,
    OPT_LION,
    OPT_KINDS
} opt_kind;
typedef struct poptimizer {
    opt_kind kind;
    int module; /* -1: the root */
    double lr, momentum, dampening, weight_decay, beta1, beta2, alpha, eps, lr_decay, start;
    bool nesterov, centered;
    double clip_norm, norm_type, clip_value, loss_scale; /* of tsr_minimize_with */
    int64_t accumulate;
    bool scaled; /* by the program's grad scaler; a factor of its losses, an input, may be infinite
                  */
    int group;   /* a module with numbers of its own; -1 */
    double group_lr, group_decay;
    int frozen; /* a module; -1 */
    tsr_schedule schedule;
    tsr_sbp state;
} poptimizer;

typedef enum act_kind { ACT_RUN, ACT_SET, ACT_SET_LR, ACT_SAVE_LOAD } act_kind;
typedef struct act {
    act_kind kind;
    int graph, var, optimizer;
    double lr;
    uint64_t seed;     /* of what is fed or set */
    unsigned overflow; /* a bit for each optimizer whose losses are infinite in this run */
} act;

typedef struct program {
    uint64_t seed;
    int nranks;
    int nplaces;
    char place[MAX_PLACES][64];
    int place_ndim[MAX_PLACES], place_dim[MAX_PLACES][4], place_rank[MAX_PLACES][MAX_RANKS];
    int nmodules;
    tsr_dtype module_dtype[MAX_MODULES];
    uint64_t module_seed;
    int nvars;
    pvar var[MAX_VARS];
    int noptimizers;
    poptimizer optimizer[MAX_OPTIMIZERS];
    bool gpipe;        /* stages work by GPipe, not by 1F1B */
    bool autocast;     /* graphs are by autocast to bf16 */
    int recompute;     /* so many nodes each are a region that is computed again; 0: none */
    bool special;      /* NaN, infinities, -0, denormals and ties are fed; judged by bit class */
    double init_scale; /* of the grad scaler */
    int64_t growth_interval;
    int ngraphs;
    pgraph graph[MAX_GRAPHS];
    int nacts;
    act act[MAX_ACTS];
} program;

/* --- random choices --------------------------------------------------------------------------- */
typedef struct rnd {
    uint64_t s;
} rnd;
uint64_t rnd_next(rnd *r);
int rnd_below(rnd *r, int n);
bool rnd_chance(rnd *r, double p);
double rnd_in(rnd *r, double low, double high);
/* Whether an input's number `i` of a run, a function of a seed. */
double rnd_number(uint64_t seed, int64_t i);
/* One number in four or so of a tensor of that dtype is NaN, infinite, a zero of either sign or a
 * denormal; the others are v. */
double special_number(tsr_dtype dtype, uint64_t seed, int64_t i, double v);

/* --- ops -------------------------------------------------------------------------------------- */
typedef struct gen gen;
/* What a walk over one graph on the tape knows. */
typedef struct walk {
    const program *p;
    const pgraph *g;
    tape *t;
    int value[MAX_NODES];
    int reads[MAX_VARS]; /* the tape's value of each variable; -1 */
    const double *var_v[MAX_VARS], *var_e[MAX_VARS];
    uint64_t keys[MAX_NODES]; /* of dropout and such, in order of use */
    uint64_t step;            /* of masks */
    uint64_t run_seed;        /* of inputs */
    /* Running averages: what this walk made of a variable; -1. */
    int updated[MAX_VARS];
    /* For finite differences: what is added to a node's value; NULL: nothing. */
    int nudged;
    const double *nudge;
} walk;

/* Number i that an input is fed in a run of that seed, or a constant has. */
double input_number(const pnode *n, uint64_t seed, int64_t i);
/* Stores v as element i of a buffer: a whole number modulo 2^bits. */
void store_number(void *to, tsr_dtype dtype, int64_t i, double v);

/* A rank's declaration. */
typedef struct declared {
    const program *p;
    const pgraph *g;
    tsr_world *world;
    tsr_graph *graph;
    const tsr_placement *place[MAX_PLACES];
    tsr_module *root, *module[MAX_MODULES];
    tsr_tensor *tensor[MAX_NODES];
    tsr_tensor *parts[MAX_NODES][MAX_OPERANDS];
} declared;

typedef struct op_def {
    const char *name;
    /* C text of the call: $k operand, #k i[k], %k f[k], @k dims[k], A axes, ... see print.c. */
    const char *text;
    /* Chooses operands, attributes and the result's shape and dtype; false: not possible now. */
    bool (*draw)(gen *g, pnode *n);
    tsr_tensor *(*declare)(declared *d, const pnode *n, tsr_tensor *const *in);
    int (*eval)(walk *w, const pnode *n, const int *in);
    int weight;
} op_def;

const op_def *op_at(int op);
int op_count(void);
int op_find(const char *name);

/* --- building while drawing: generate.c ------------------------------------------------------- */
struct gen {
    rnd r;
    program *p;
    pgraph *g;
    int graph;
    walk w;             /* of what was drawn so far */
    tsr_dtype dtype;    /* of most floating point */
    double wild;        /* how often values may be anything */
    bool exact;         /* inputs are small whole numbers: ties */
    bool data_parallel; /* inputs are S(0), variables B, most of the time */
    bool has_stages;    /* the placements share no rank, and ops change between them */
    bool for_variable;
    int layers; /* the last of append_layers; -1 */
    /* Micro-batches: their number, 0: none; the sizes of most first axes, multiples of it. */
    int parts;
    int64_t rows, pieces; /* pieces: that so many ranks hold of a part, if all goes well */
};
/* A node of a float dtype with ndim in [low, high]; -1. */
int gen_float(gen *g, int low, int high);
/* Any node of a dtype; NONE: of any. */
int gen_any(gen *g, tsr_dtype dtype);
/* A node of that shape, dtype and placement: one that there is or a new input, parameter, ... */
int gen_like(gen *g, tsr_dims dims, tsr_dtype dtype, int place);
/* A new leaf. */
int gen_leaf(gen *g, tsr_dims dims, tsr_dtype dtype, int place);
/* i64 values in [0, below). */
int gen_ids(gen *g, tsr_dims dims, int64_t below, int place);
/* The node on another placement. */
int gen_on(gen *g, int node, int place);
tsr_dims gen_dims(gen *g, int low, int high);
tsr_sbp gen_sbp(gen *g, tsr_dims dims, int place, bool partial);
int gen_var(gen *g, tsr_dims dims, tsr_dtype dtype, int place, bool trainable);
/* Appends a drawn node; its number. */
int gen_append(gen *g, pnode n);
const pnode *gen_at(const gen *g, int node);
const tape_value *gen_value(const gen *g, int node);
int64_t count_of(tsr_dims d);
int64_t gen_size(gen *g);
/* A size of a first axis. */
int64_t gen_rows(gen *g, int64_t other);
/* Makes n an op of the one operand x, with its shape, dtype and placement; false if x is -1. */
bool gen_begin(gen *g, pnode *n, int x);
/* A scalar made of a few ends of chains; -1. */
int gen_loss(gen *g);

/* Draws graph `which` of about nops ops. */
void gen_graph(gen *g, int which, int nops);
/* microbatches: the share of the programs that have some. */
program *program_generate(uint64_t seed, int nranks, bool special, double microbatches);
/* The program with rank 0 alone in each placement, without micro-batches. */
program *program_alone(const program *p);
program *program_copy(const program *p);
void program_free(program *p);

/* --- eval helpers: eval.c --------------------------------------------------------------------- */
/* The unit roundoff of a float dtype, else 0. From unit_by_autocast(true) on that of f32 is what
 * autocast to bf16 makes of it. */
double unit_of(tsr_dtype dtype);
void unit_by_autocast(bool autocast);
/* Element numbers for broadcasting `from` to `to`; NULL where they are the same. */
const int32_t *eval_spread(tape *t, tsr_dims from, tsr_dims to);
int eval_sum(tape *t, int x, tsr_dims dims, uint32_t mask, double u);
int eval_extreme(tape *t, int x, tsr_dims dims, uint32_t mask, bool max);
uint32_t axes_mask(tsr_axes axes, int ndim);
tsr_dims reduced_dims(tsr_dims dims, uint32_t mask, bool keep);
/* For each element of dims its group after reducing mask. */
int32_t *eval_groups(tape *t, tsr_dims dims, uint32_t mask);
int eval_binary(tape *t, tape_fn fn, int a, tsr_dims ad, int b, tsr_dims bd, tsr_dims to, double u);
int eval_matmul(walk *w, int a, tsr_dims ad, int b, tsr_dims bd, bool ta, bool tb, tsr_dims *od,
                double u);
int eval_softmax(walk *w, int x, tsr_dims dims, int axis, bool log, double u);
int eval_permute(tape *t, int x, tsr_dims from, const int *perm);
uint64_t eval_key(walk *w, const char *scope, const char *kind);
int eval_dropout(walk *w, int x, double p, const char *scope);
/* Dims of a matmul; false: they don't fit. */
bool matmul_dims(tsr_dims a, tsr_dims b, bool ta, bool tb, tsr_dims *out);
bool broadcast_dims(tsr_dims a, tsr_dims b, tsr_dims *out);
/* Walks all nodes up to `n`. */
void walk_start(walk *w, const program *p, const pgraph *g, tape *t);
int walk_node(walk *w, int node);

#endif
