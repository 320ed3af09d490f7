/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributed data parallel, as PyTorch's DistributedDataParallel: per-rank batches in, per-rank
 * losses out, gradients averaged. A layer over local graphs and collectives, for programs that come
 * from there; a program over global tensors (S(0) inputs, B parameters) says the same in one graph.
 *
 * Each rank makes its own copy of the model on tsr_local_placement (on a GPU:
 * tsr_local_placement_on), declares graphs of its own
 * (TSR_GRAPH_OPTS(.local = true)), which may differ from rank to rank, and trains:
 *
 *     tsr_ddp_create(net, TSR_DDP_OPTS(.bucket_cap_mb = 25), &ddp);
 *     tsr_ddp_minimize(ddp, optimizer, 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = 1));
 *     tsr_compile(graph, &plan);
 *     each step:  tsr_feed(plan, ...); tsr_run(plan);
 *     tsr_ddp_close(&ddp);
 *
 * Such plans are what tsr_minimize's are, for tsr_program, tsr_train and checkpoints too. The parts
 * of a step, for loops that do more between them, as PyTorch's do:
 *
 *     tsr_ddp_backward(ddp, loss);               instead of loss.backward(), once, in the graph
 *     each step:  tsr_feed(plan, ...); tsr_ddp_run(ddp, plan); tsr_ddp_step(ddp, optimizer);
 *
 * Gradients live in buckets, in the reverse order of the parameters. A bucket's average starts when
 * its last gradient is written, while the rest of the backward pass runs. It is the sum over the
 * ranks of each one's gradient times 1/n, in the gradient's dtype. On CPUs and on GPUs.
 *
 * Batch norm is each rank's own; with tsr_convert_sync_batchnorm its sums are collectives of the
 * forward and backward passes, which no_sync does not stop and tsr_ddp_join does not shadow.
 */
#ifndef TESSERA_DDP_H
#define TESSERA_DDP_H

#include <tessera/collective.h>
#include <tessera/optim.h>
#include <tessera/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Belongs to its world; its module must live as long. */
typedef struct tsr_ddp tsr_ddp;

/* Returns the placement of this rank alone, on its CPU: "cpu:[rank]". NULL on error. Not
 * collective. */
TSR_API const tsr_placement *tsr_local_placement(tsr_world *world);
/* Returns the placement of this rank alone, on its device of a kind: "cuda:[rank]". NULL on error.
 * Not collective. */
TSR_API const tsr_placement *tsr_local_placement_on(tsr_world *world, tsr_device device);

/* A bucket whose gradients are all there, accumulated but not averaged. */
typedef struct tsr_ddp_bucket {
    size_t size;
    int index; /* 0 is ready first */
    bool is_last;
    void *data; /* count elements, in this rank's arena, or in its device's memory */
    int64_t count;
    tsr_dtype dtype;
    double divisor; /* what an average divides by */
    int nparams;
    tsr_variable *const *params; /* whose gradients lie there, one after the other */
    tsr_group *group;
    tsr_device device; /* where data is */
    void *stream;      /* of a GPU: the cudaStream_t in which data is complete; else NULL */
} tsr_ddp_bucket;
/* Reduces a bucket in place, averaging included. Called on the rank's thread, in the order of the
 * buckets, on all ranks; on a GPU the work is put into the bucket's stream, which what follows
 * waits for. */
typedef tsr_status tsr_ddp_hook_fn(void *state, const tsr_ddp_bucket *bucket);

typedef enum tsr_ddp_hook {
    TSR_DDP_ALL_REDUCE = 0,
    TSR_DDP_FP16_COMPRESS, /* cast to f16, divided there, summed, cast back */
    TSR_DDP_BF16_COMPRESS,
} tsr_ddp_hook;

/* PyTorch's options, with its meanings and defaults. */
typedef struct tsr_ddp_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_group *group; /* NULL: all ranks */
    double bucket_cap_mb
        TSR_IS(25); /* default 25 (MiB); the first bucket 1; 0: a bucket a parameter */
    bool broadcast_buffers TSR_IS(true); /* rank 0's at the start of each run behind a synchronised
                                          * one; default true */
    bool init_sync
        TSR_IS(true); /* the group's first rank's values become everyone's; default true */
    bool find_unused_parameters;  /* graphs may leave parameters out; else that is an error */
    bool gradient_as_bucket_view; /* accepted: gradients always are */
    bool static_graph;            /* which parameters a rank leaves out never changes */
    tsr_ddp_hook hook;
    tsr_ddp_hook_fn *hook_fn; /* instead of `hook` */
    void *hook_state;
    int nignored; /* parameters and buffers that are each rank's own: patterns, as of
                   * tsr_module_place */
    const char *const *ignored;
    int nfrozen; /* parameters that get no gradients here, as those with requires_grad off:
                  * patterns. Init_sync sends them; buckets have no place for them */
    const char *const *frozen;
} tsr_ddp_opts;
#define TSR_DDP_OPTS(...)                                                              \
    TSR_OPTIONS(tsr_ddp_opts,                                                          \
                (.bucket_cap_mb = 25, .broadcast_buffers = true, .init_sync = true, ), \
                __VA_ARGS__)

/*
 * Wraps a module, all of whose variables are on tsr_local_placement or tsr_local_placement_on. opts
 * may be NULL. Makes the module this rank's own (tsr_module_set_local): tsr_save, tsr_load and
 * tsr_variable_get of it are no collectives then. Collective over the group: ranks compare
 * parameters (TSR_ERR_MISMATCH names the first that differs, and both), then take over the first
 * rank's values. Errors: TSR_ERR_PLACEMENT, TSR_ERR_INVALID,
 * TSR_ERR_NO_MEMORY.
 *
 * TESSERA_COMPARE=1 on any of the ranks, for finding errors: before each synchronised run, except
 * while join is on, ranks compare the values of all parameters and the settings of the last update.
 * Where they differ the run is TSR_ERR_MISMATCH on all ranks and names the parameter and two ranks.
 */
TSR_API tsr_status tsr_ddp_create(tsr_module *module, const tsr_ddp_opts *opts, tsr_ddp **out_ddp);
/*
 * Ends a tsr_ddp, and sets *ddp to NULL. Collective over the group: a rank that has made fewer
 * steps than another is an error on all of them, which names ranks and steps, instead of the hang.
 */
TSR_API tsr_status tsr_ddp_close_at(tsr_ddp **ddp, const char *file, int line);
#define tsr_ddp_close(ddp) tsr_ddp_close_at((ddp), TSR_HERE)
/* Frees a tsr_ddp without a word to the others. NULL is fine. */
TSR_API void tsr_ddp_destroy(tsr_ddp *ddp);

/*
 * Declares, in loss's graph (which is local), the gradients of loss, a scalar, for the parameters,
 * into the buckets. Sticky errors: among them parameters that loss does not depend on, by name,
 * unless find_unused_parameters or static_graph.
 */
TSR_API void tsr_ddp_backward_at(tsr_ddp *ddp, tsr_tensor *loss, const char *file, int line);
#define tsr_ddp_backward(ddp, loss) tsr_ddp_backward_at((ddp), (loss), TSR_HERE)

/*
 * Runs a plan with tsr_ddp_backward in it: forward, backward, and unless no_sync the averages. New
 * gradients are added to those that no step or tsr_ddp_zero_grad has consumed; what is averaged is
 * the sum. Collective over the group, unless no_sync. Errors: tsr_run's, tessera/collective.h's.
 */
TSR_API tsr_status tsr_ddp_run_at(tsr_ddp *ddp, tsr_plan *plan, const char *file, int line);
#define tsr_ddp_run(ddp, plan) tsr_ddp_run_at((ddp), (plan), TSR_HERE)

/* Updates those of the optimizer's parameters that have a gradient and are not frozen, and consumes
 * all gradients. The optimizer is on each rank the same. Not collective. TSR_ERR_STATE if no
 * parameter is updated. */
TSR_API tsr_status tsr_ddp_step(tsr_ddp *ddp, tsr_optimizer *optimizer);
/* As tsr_ddp_step, of gradients that opts (NULL: none) has divided by loss_scale and by accumulate,
 * the number of runs that were added up, then clipped by value, then by norm, each as
 * tsr_minimize_with does. The norm is that of what is updated: tsr_ddp_info.grad_norm. .out_norm
 * must be NULL. */
TSR_API tsr_status tsr_ddp_step_with(tsr_ddp *ddp, tsr_optimizer *optimizer,
                                     const tsr_minimize_opts *opts);
/* Forgets the gradients that are there: the next run's are added to nothing. */
TSR_API void tsr_ddp_zero_grad(tsr_ddp *ddp);
/*
 * Declares a whole step, in the losses' graph (which is local): the gradients of the sum of n
 * losses for the optimizer's parameters that are not frozen, their averages over the ranks, and the
 * update, with tsr_minimize_with's options (NULL: none). tsr_run of such plans is collective over
 * the group in the runs that update; the others of an accumulation are this rank's alone. .out_norm
 * must be NULL: tsr_ddp_info.grad_norm is the norm before clipping. Sticky errors, as
 * tsr_ddp_backward's.
 */
TSR_API void tsr_ddp_minimize_at(tsr_ddp *ddp, tsr_optimizer *optimizer, int n,
                                 tsr_tensor *const *losses, const tsr_minimize_opts *opts,
                                 const char *file, int line);
#define tsr_ddp_minimize(...) tsr_ddp_minimize_at(__VA_ARGS__, TSR_HERE)

/* Turns averaging off, or on again. While on, runs are this rank's alone: gradients add up. */
TSR_API void tsr_ddp_no_sync(tsr_ddp *ddp, bool on);

/*
 * Returns a parameter's gradient: its pointer, in the memory of the device that has the parameter,
 * valid until the next call on ddp, elements row-major; sets *out_there, unless NULL, to whether
 * there is one. NULL and false if the variable is none of ddp's parameters, as one that is not
 * trained.
 */
TSR_API void *tsr_ddp_gradient(tsr_ddp *ddp, const tsr_variable *v, bool *out_there);
/* Copies a parameter's gradient into host memory, row-major, as large as the parameter; on a GPU it
 * waits for the gradient. *out_there as above. Not collective. Errors: TSR_ERR_INVALID, and what
 * the device has met. */
TSR_API tsr_status tsr_ddp_gradient_get(tsr_ddp *ddp, const tsr_variable *v, void *data,
                                        bool *out_there);
/*
 * Returns a parameter's gradient as it is when a run of another local graph begins, for optimizers
 * and statistics of the user's own: tsr_ddp_run averages, a plan with these reads and tsr_assign
 * updates, tsr_ddp_zero_grad consumes. Sticky errors. Not collective.
 */
TSR_API tsr_tensor *tsr_ddp_read_gradient_at(tsr_graph *g, tsr_ddp *ddp, const tsr_variable *v,
                                             const char *file, int line);
#define tsr_ddp_read_gradient(...) tsr_ddp_read_gradient_at(__VA_ARGS__, TSR_HERE)

/* --- uneven inputs ---------------------------------------------------------------------------- */
typedef struct tsr_ddp_join_opts {
    size_t size;
    tsr_by_name by_name;
    bool divide_by_active;           /* averages are over the ranks that still have inputs */
    bool throw_on_early_termination; /* the first rank without inputs is an error on all */
} tsr_ddp_join_opts;
#define TSR_DDP_JOIN_OPTS(...) TSR_OPTIONS(tsr_ddp_join_opts, (), __VA_ARGS__)
/* Allows that ranks from now on run out of inputs at different times. opts may be NULL; all ranks
 * must give the same. Not collective. */
TSR_API tsr_status tsr_ddp_join_begin(tsr_ddp *ddp, const tsr_ddp_join_opts *opts);
/*
 * Says that this rank has no more inputs: takes part in what the others reduce until all have come
 * here, then all have the parameters and buffers of the rank that went on longest. Collective over
 * the group.
 */
TSR_API tsr_status tsr_ddp_join_at(tsr_ddp *ddp, const char *file, int line);
#define tsr_ddp_join(ddp) tsr_ddp_join_at((ddp), TSR_HERE)

/* --- what happens ----------------------------------------------------------------------------- */
typedef struct tsr_ddp_info {
    size_t size;
    int nranks, rank; /* of the group */
    int nparams, nbuckets;
    int64_t runs, syncs, steps; /* runs, of them synchronised; updates */
    size_t gradient_bytes;
    size_t bucket_cap_bytes, first_bucket_bytes;
    double run_s;     /* of all runs: forward and backward */
    double comm_s;    /* from the first bucket's start to the last one's end */
    double overlap_s; /* of it, while the backward pass still ran */
    int64_t unused;   /* parameters without a gradient on any rank in the last synchronised run */
    double grad_norm; /* of the last update that clipped it, before that; NAN: none did */
} tsr_ddp_info;
/* Fills *info up to info->size, which the caller sets. */
TSR_API tsr_status tsr_ddp_get_info(const tsr_ddp *ddp, tsr_ddp_info *info);
/* Returns the bytes of a bucket; 0 past the last. */
TSR_API size_t tsr_ddp_bucket_bytes(const tsr_ddp *ddp, int index);

#ifdef __cplusplus
}
#endif
#endif
