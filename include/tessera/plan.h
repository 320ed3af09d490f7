/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: a compiled graph, ready to run again and again. */
#ifndef TESSERA_PLAN_H
#define TESSERA_PLAN_H

#include <tessera/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Belongs to its world. */
typedef struct tsr_plan tsr_plan;

/* Ranks r with equal r / ranks are joined by this link: those of a machine, of a cluster. On GPUs
 * gathering and reducing count as in rings: what is read over a link comes once to all ranks that a
 * nearer link joins, and each takes in its share. */
typedef struct tsr_link {
    int ranks;          /* 0: all */
    double latency_s;   /* of one collective's hand-shake over it */
    double bytes_per_s; /* that one rank takes in over it */
} tsr_link;

/* A run's answer to a loss (a scalar whose gradients were asked for, by tsr_minimize,
 * tsr_gradients or a tsr_ddp) that comes out infinite or not a number. */
typedef enum tsr_on_nan {
    TSR_NAN_IGNORE = 0,
    TSR_NAN_WARN, /* one warning of a plan, through the world's log */
    TSR_NAN_STOP, /* the run fails with TSR_ERR_NAN */
} tsr_on_nan;

/* Kinds of fusion, as bits: several ops become one pass over memory. */
typedef enum tsr_fusion {
    TSR_FUSE_ANYTHING = 1, /* all of them */
    /* Batch norm with a ReLU or ReLU6 behind it, forward and backward; on CPUs group norm with its
     * weight and bias; on GPUs the parts of layer norm. */
    TSR_FUSE_ACTIVATIONS = 2,
    TSR_FUSE_SOFTMAX = 4, /* the parts of softmax, and those of cross entropy */
    /* On CPUs: 1x1 and depthwise convolutions and linear layers with what makes their rows and what
     * reads them, by pieces of rows that stay in the cache. */
    TSR_FUSE_CHAINS = 8,
    /* On CPUs: an optimizer's update with its gradient's producer, where the update is the only
     * consumer; on GPUs: the parts of the gradients' norm. */
    TSR_FUSE_UPDATES = 16,
    /* On CPUs: element-wise ops and reductions of f32 that share rows, by pieces likewise. */
    TSR_FUSE_ROWS = 32,
    TSR_FUSE_POOLS = 64, /* on CPUs: a ReLU before max pooling goes behind it, to fewer elements */
    /* On CPUs: convolutions, and linear layers of 5 to 1,024 rows, keep their packed weights from
     * run to run, where the graph neither writes nor differentiates these. A weight that changes is
     * packed again before the next run. Nothing is kept under a memory_limit. */
    TSR_FUSE_KEPT = 128,
} tsr_fusion;

/* The order in which stages work on micro-batches. It changes no value, and no bit of one. */
typedef enum tsr_pipeline {
    /* A stage goes back with a micro-batch as soon as it can, and has as many of them in memory as
     * there are stages from it to the last one. */
    TSR_PIPELINE_1F1B = 0,
    /* All micro-batches go forward first; a stage has all of them in memory. */
    TSR_PIPELINE_GPIPE,
} tsr_pipeline;

typedef struct tsr_compile_opts {
    size_t size;
    tsr_by_name by_name;
    double bucket_mb TSR_IS(4); /* gradients' reductions are joined up to this size; default 4; 0:
                                 * none. Where gradients are so large that this takes more calls, a
                                 * call is closed by the gradient with which it reaches the size. */
    unsigned no_fusion;         /* which of tsr_fusion are left out, for comparing and for finding
                                 * errors; 1 (true): all, so that plans are lowered op by op */
    /* Most bytes that any rank may use at a time for variables, values, inputs, outputs and
     * kernels' scratch: signatures are chosen to stay within it, on every rank. A virtual world has
     * no kernels: of GPUs the scratch that libraries may take counts, of CPUs none. 0: no limit. A
     * limit that no plan was found for is TSR_ERR_NO_MEMORY; its text, of several lines, says of
     * the leanest plan found what ranks need and what the neediest rank's bytes are for, and names
     * a limit that is not refused. */
    size_t memory_limit;
    /* The links that the planner assumes between ranks, nearest first, the last one joining all;
     * nlinks 0: ranks of one machine over shared memory. */
    int nlinks;
    tsr_link link[3];
    bool alternatives; /* tsr_plan_explain also says what else each op could have done, at what cost
                        */
    double
        local_bytes_per_s; /* what a rank reads plus writes of its own memory; 0: a usual figure */
    double flops_per_s;    /* of a rank; 0: a usual figure */
    double kernel_s TSR_IS(
        TSR_NOT_GIVEN); /* that starting a kernel takes; default (TSR_NOT_GIVEN) a usual figure */
    /* For finding errors: before each run, ranks compare hashes of what each of them gave by
     * itself: inputs that were fed in B (or in the same part), the variables' values, the
     * optimizers' settings. A run in which they differ is TSR_ERR_MISMATCH on all of them and names
     * what differs and two ranks; nothing is changed by it. It reads all of it in each run, and
     * exchanges 16 bytes for each. Enough that one rank asks. The environment asks by
     * TESSERA_COMPARE=1. Inputs of local graphs are each rank's own, so that this has a compile
     * warn there; by the variable a tsr_ddp compares parameters (tsr_ddp_create). */
    bool compare_values;
    /* An optimizer updates a parameter in the signature that it and its states have, if these
     * agree: so parameters in B are data parallelism, and no update is gathered. true: updates'
     * signatures are inferred, and the results converted. States in S(0) beside parameters in B, or
     * left to the compiler, are inferred always. */
    bool infer_updates;
    /* Default TSR_NAN_WARN. Looking costs one comparison per run. The warning or error says in
     * which step (the plan's runs count from 1), and names the first of the tensors held at that
     * moment that is not finite on this rank, with its place in the program. On CPUs a rank looks
     * at its own part of the loss as soon as it is computed: with TSR_NAN_STOP no gradient is
     * computed from it, and parameters are still those from before. On GPUs it looks when the loss
     * is fetched, and names the loss alone; with TSR_NAN_STOP updates are left out of a step with a
     * loss that is not finite, as after a loss scaler has found such gradients; not in local graphs
     * of several ranks. */
    tsr_on_nan on_nan TSR_IS(TSR_NAN_WARN);
    /* Operations a second of a rank by the dtype that it computes in, as [TSR_BF16] = 800e12; 0:
     * flops_per_s. */
    double dtype_flops_per_s[16];
    /* The part of these that attention's kernels reach; 0: all. */
    double attention_share;
    /* Parameters that forward gathers are given back behind their last reader there, and gathered
     * again for backward, but those that are gathered last: so a step holds about one layer's
     * weights in place of all, and gathers half as much again. FSDP's option of this name, and
     * ZeRO-3. Within memory_limit signatures are searched as if the weights stayed. */
    bool reshard_after_forward;
    /* The links' names, "NVLink" or "network", which texts alone use; NULL: a link's number. The
     * plan keeps copies. */
    const char *link_name[3];
    /* The part of dtype_flops_per_s (or flops_per_s) that a product or convolution reaches, by the
     * time that it would take at these: [i] for 4^i / 8 us, its start included. [7] 0: all of it,
     * after a start of kernel_s. */
    double product_share[8];
    /* Budget of the search for cheaper signatures, in seconds of counted work: the same operations
     * count as one second on every machine, so all ranks make the same plan, and so does a virtual
     * world; a slow machine takes longer. The first plan, and the first plan within memory_limit,
     * are always completed, so the budget never causes a refusal. 0: no budget. */
    double search_s;
    /*
     * Number of micro-batches: equal parts of the batch that a step runs one after another, so that
     * only one part's activations are in memory. The step's values equal the whole batch's up to
     * the order of sums, and have the same bits in each run. Inputs are split along their batch
     * axis (tsr_input_with), each rank's rows into consecutive parts. Gradients are summed in place
     * over the parts, then reduced over ranks once. Means divide by the whole batch's count, and
     * dropout draws the whole batch's masks. An op that needs the whole batch runs before the parts
     * if it depends on inputs alone, else after them. Errors: TSR_ERR_UNSUPPORTED if a result of
     * such an op would be needed in the parts (batch norm over the global batch; a program's own
     * ops, which are never split, since they may depend on the size of the whole batch);
     * TSR_ERR_SHAPE if the rows are no multiple of the parts; TSR_ERR_STATE if no input has a batch
     * axis. Default 1; 0 means 1.
     */
    int microbatches TSR_IS(1);
    /* With micro-batches, ops on placements that share no rank are *stages*, which work on
     * different micro-batches at the same time. On GPUs one stage still runs after another. */
    tsr_pipeline pipeline;
} tsr_compile_opts;
#define TSR_COMPILE_OPTS(...)                                                                     \
    TSR_OPTIONS(                                                                                  \
        tsr_compile_opts,                                                                         \
        (.bucket_mb = 4, .kernel_s = TSR_NOT_GIVEN, .on_nan = TSR_NAN_WARN, .microbatches = 1, ), \
        __VA_ARGS__)

/*
 * Compiles a graph: infers every signature, inserts the communication, lowers to kernels, lays out
 * memory. Variables that have no value yet are initialised. opts may be NULL.
 * Variables whose signature was left open (TSR_AUTO) get one, which stays.
 * Collective over all ranks, unless the graph is local (tsr_graph_create): ranks exchange statuses
 * and a hash of all that decides: ops with their attributes, inputs and outputs, the graph's
 * options, these options, how variables get their first values, and the optimizers' settings as
 * they are now. Errors: the first one of the declaration; what a rank failed with (all ranks say
 * it); TSR_ERR_MISMATCH naming the first thing that differs, and what it is on two ranks;
 * TSR_ERR_SBP; TSR_ERR_NO_MEMORY, saying what ranks need where a memory limit was given.
 * With TESSERA_CHECK=1 in the environment the plan is checked after each pass of the planner; what
 * is found is an error of the library's own, TSR_ERR_INTERNAL. The library's small objects then are
 * blocks of the heap each, for tools that look for overruns, and so its books take more memory.
 */
TSR_API tsr_status tsr_compile_with(tsr_graph *graph, const tsr_compile_opts *opts,
                                    tsr_plan **out_plan);
/* As tsr_compile_with, with the default options. */
TSR_API tsr_status tsr_compile(tsr_graph *graph, tsr_plan **out_plan);
/* Frees a plan. NULL is fine. Not collective. */
TSR_API void tsr_plan_destroy(tsr_plan *plan);

/*
 * Runs all of it once, and allocates nothing. Collective over the ranks of the graph's placements.
 * Errors: TSR_ERR_STATE naming an input that the plan reads and that this rank never fed (a value
 * that was fed once serves all later runs); what a kernel met (a label out of range), a lost or
 * late rank; TSR_ERR_NAN (see on_nan). The other ranks get TSR_ERR_REMOTE, and the world is then
 * unusable but for destroying.
 */
TSR_API tsr_status tsr_run(tsr_plan *plan);
/*
 * Returns when all runs so far are done. On GPUs tsr_run only starts them, and what they meet
 * surfaces here, at the next run or at a fetch. On CPUs they are done already. Not collective.
 */
TSR_API tsr_status tsr_wait(tsr_plan *plan);

/* Copies the global value of an input (row-major, of its dtype and shape) and keeps this rank's
 * part. `bytes` must be exact. Not collective. */
TSR_API tsr_status tsr_feed(tsr_plan *plan, const char *name, const void *data, size_t bytes);
/* Gives an input this rank's part alone. */
TSR_API tsr_status tsr_feed_shard(tsr_plan *plan, const char *name, const void *data, size_t bytes);

/* Copies an output's global value, row-major: for outputs in B. Not collective: the plan did the
 * boxing. TSR_ERR_STATE before the first run and after one that failed, TSR_ERR_PLACEMENT on a rank
 * outside the output's placement, TSR_ERR_SBP for S and P. */
TSR_API tsr_status tsr_fetch(tsr_plan *plan, const char *name, void *data, size_t bytes);
/* Copies this rank's shard, and tells its shape (out_dims may be NULL; data may be NULL to ask,
 * also before a run: a rank outside the output's placement has no axis with elements).
 * TSR_ERR_STATE and, with data, TSR_ERR_PLACEMENT as for tsr_fetch. */
TSR_API tsr_status tsr_fetch_shard(tsr_plan *plan, const char *name, void *data, size_t bytes,
                                   tsr_dims *out_dims);
/* Gives a scalar output as a double. */
TSR_API tsr_status tsr_fetch_scalar(tsr_plan *plan, const char *name, double *out_value);

/* Where an input or output stands after compilation. */
typedef struct tsr_port {
    const char *name;
    bool is_input;
    tsr_dtype dtype;
    tsr_dims dims;  /* global */
    tsr_dims shard; /* this rank's */
    tsr_sbp sbp;
    const tsr_placement *placement;
} tsr_port;
/* Returns the number of a plan's inputs and outputs. */
TSR_API int tsr_plan_nports(const tsr_plan *plan);
/* Returns input or output i, 0 to tsr_plan_nports - 1, of a plan. */
TSR_API tsr_port tsr_plan_port(const tsr_plan *plan, int i);

/*
 * Returns the plan as text: every op's signature, every boxing with its collective, group, bytes
 * and reason, what is fused, and why the rest is not, totals, and each rank's memory. The text
 * belongs to the plan; NULL when there is no memory.
 */
TSR_API const char *tsr_plan_explain(tsr_plan *plan);

typedef struct tsr_plan_info {
    size_t size;
    double compile_s; /* all of tsr_compile on this rank */
    double infer_s;   /* of it: choosing signatures */
    double init_s;    /* of it: giving new variables their first values */
    double library_s; /* of it: making kernels (the libraries' own set-up) */
    double cost_s;    /* the model's estimate of a step, when signatures are chosen */
    bool exact;       /* inference proved its choice to be the cheapest */
    int ops, steps, collectives;
    uint64_t comm_bytes;     /* that this rank reads from its peers in a run that updates */
    size_t activation_bytes; /* the plan's block of the arena on this rank */
    size_t variable_bytes;   /* variables that this graph uses, this rank's shards */
    size_t port_bytes;       /* inputs and outputs, this rank's shards */
    size_t host_bytes;       /* the plan's own books: steps, names, signatures */
    int64_t runs;
    /* Sums over all runs, as the host sees them: on GPUs the time that it took to start them.
     * compute_s, comm_s: of it in kernels, in collectives (with waiting); captured runs are not
     * told apart. */
    double run_s, compute_s, comm_s;
    /* No choice of signatures costs less than this, by the model. 0: no bound is known, as an op
     * has so many legal signatures (on three and four dimensions) that not all were searched. */
    double bound_s;
    size_t scratch_bytes; /* of activation_bytes: for kernels while they run */
    /* The model's estimate of the plan's steps: cost_s, but for what became of it (fused ops,
     * shared conversions), which tsr_plan_explain lists. */
    double step_s;
    size_t kept_bytes; /* of packed weights that kernels keep from run to run (TSR_FUSE_KEPT) */
} tsr_plan_info;
/* Fills *info up to info->size, which the caller sets. */
TSR_API tsr_status tsr_plan_get_info(const tsr_plan *plan, tsr_plan_info *info);

/* Where the time of all runs so far went on this rank: kernels by op, collectives (with the waiting
 * for peers) by kind. */
typedef struct tsr_plan_time {
    const char *what; /* "conv2d_dw", "all_reduce": static storage */
    bool is_comm;
    int64_t steps;  /* of a run */
    double seconds; /* of all runs */
    uint64_t bytes; /* collectives: read from peers in a run */
} tsr_plan_time;
/* Writes up to n rows, the largest first; returns how many there are, which may exceed n. On GPUs
 * seconds are what starting took, of runs not captured; `tessera run --trace` waits for steps. */
TSR_API int tsr_plan_times(const tsr_plan *plan, int n, tsr_plan_time *out_times);

/*
 * Compiles and runs what one tensor needs (no inputs below it) and copies its global value, for
 * exploring and tests. Plans of the graph's last 4 tensors are kept, so that asking again runs
 * alone, once the variables' signatures are known. It decides nothing: variables whose signature is
 * left to the compiler are still open afterwards. Collective over all ranks, unless the graph is
 * local.
 */
TSR_API tsr_status tsr_eval(tsr_tensor *x, void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
