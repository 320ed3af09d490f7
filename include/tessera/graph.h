/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declaring a program: graphs, tensors, inputs and outputs.
 *
 * A graph is declared once; nothing runs meanwhile, but shapes and dtypes are checked at once.
 * Errors are sticky: a call that fails returns a failed tensor (possibly NULL), calls on failed or
 * NULL tensors return failed tensors, and tsr_compile reports the first error with the line of the
 * user's call. So a model reads as straight lines without a check on each.
 *
 * A graph is a function of its inputs and of the values that its variables have when a run begins.
 * Every read of a variable gives that value, declared before or after an update, in forward or
 * backward. Updates (optimizers, running averages) show when the run has ended. Several updates of
 * one variable in one graph follow each other in the order of declaration, each from the result of
 * the one before. So the order of two tsr_minimize over different variables changes nothing.
 */
#ifndef TESSERA_GRAPH_H
#define TESSERA_GRAPH_H

#include <tessera/placement.h>
#include <tessera/sbp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The caller's place, which every graph-building function takes last (through its macro). */
#define TSR_HERE __FILE__, __LINE__

/* Belongs to its world. */
typedef struct tsr_graph tsr_graph;
/* A value of a graph: the whole tensor, wherever its parts are. Belongs to the graph. */
typedef struct tsr_tensor tsr_tensor;

typedef struct tsr_graph_opts {
    size_t size;
    tsr_by_name by_name;
    bool training; /* batch norm uses and updates statistics, dropout drops; see tsr_minimize */
    uint64_t seed; /* of dropout and the random ops */
    bool local;    /* this rank's own program: see below */
    tsr_dtype autocast; /* TSR_BF16 or TSR_F16: the whole graph is a region of tsr_autocast */
} tsr_graph_opts;

#define TSR_GRAPH_OPTS(...) TSR_OPTIONS(tsr_graph_opts, (), __VA_ARGS__)

/*
 * Makes an empty graph; NULL when there is no memory. opts may be NULL. Not collective, but all
 * ranks must declare the same graphs, in the same order, except for local ones.
 *
 * A *local graph* (.local) is this rank's own: other ranks may declare others, in another order, or
 * none. Every tensor and variable of it lives on this rank alone ("cpu:[2]" on rank 2; anything
 * else is TSR_ERR_PLACEMENT, at its declaration). tsr_compile and tsr_eval of it then talk to
 * nobody, and their errors are this rank's only; a run that fails still tells the others, who may
 * be waiting for this rank. Ranks' random numbers are equal for equal seeds, names and shapes: give
 * them seeds of their own where masks should differ. See also tsr_module_set_local.
 */
TSR_API tsr_graph *tsr_graph_create(tsr_world *world, const tsr_graph_opts *opts);
/* Frees the graph and its tensors. Plans compiled from it live on. NULL is fine. */
TSR_API void tsr_graph_destroy(tsr_graph *graph);
/* Returns TSR_OK, or the first error met while declaring; its text becomes the thread's last error.
 * */
TSR_API tsr_status tsr_graph_status(const tsr_graph *graph);

/*
 * Declares a value that is fed before each run: tsr_feed gives its global value, tsr_feed_shard
 * this rank's part. `dims` is the global shape. sbp TSR_AUTO takes S(0) where the shape allows,
 * else B.
 */
TSR_API tsr_tensor *tsr_input_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                                 const tsr_placement *p, tsr_sbp sbp, const char *file, int line);
#define tsr_input(...) tsr_input_at(__VA_ARGS__, TSR_HERE)
typedef struct tsr_input_opts {
    size_t size;
    tsr_by_name by_name;
    int batch_axis
        TSR_IS(-1); /* the axis of the batch, along which micro-batches cut the input
                     * (tsr_compile_opts.microbatches); -1: each of them reads it whole */
} tsr_input_opts;
#define TSR_INPUT_OPTS(...) TSR_OPTIONS(tsr_input_opts, (.batch_axis = -1, ), __VA_ARGS__)
/* As tsr_input. opts may be NULL. */
TSR_API tsr_tensor *tsr_input_with_at(tsr_graph *g, const char *name, tsr_dtype dtype,
                                      tsr_dims dims, const tsr_placement *p, tsr_sbp sbp,
                                      const tsr_input_opts *opts, const char *file, int line);
#define tsr_input_with(...) tsr_input_with_at(__VA_ARGS__, TSR_HERE)

/*
 * Declares a value from ranks' own parts, local to global: a value of which every rank feeds its
 * own part (tsr_feed_shard): the shard of S(i), the addend of P; with B the first rank's value
 * becomes everyone's (by a broadcast).
 */
TSR_API tsr_tensor *tsr_from_local_at(tsr_graph *g, const char *name, tsr_dtype dtype,
                                      tsr_dims dims, const tsr_placement *p, tsr_sbp sbp,
                                      const char *file, int line);
#define tsr_from_local(...) tsr_from_local_at(__VA_ARGS__, TSR_HERE)
/* As tsr_from_local. opts may be NULL. */
TSR_API tsr_tensor *tsr_from_local_with_at(tsr_graph *g, const char *name, tsr_dtype dtype,
                                           tsr_dims dims, const tsr_placement *p, tsr_sbp sbp,
                                           const tsr_input_opts *opts, const char *file, int line);
#define tsr_from_local_with(...) tsr_from_local_with_at(__VA_ARGS__, TSR_HERE)

/* Returns the value in a signature of the user's choice. */
TSR_API tsr_tensor *tsr_to_global_at(tsr_tensor *x, const tsr_placement *p, tsr_sbp sbp,
                                     const char *file, int line);
#define tsr_to_global(...) tsr_to_global_at(__VA_ARGS__, TSR_HERE)

/*
 * Names a value that stays readable after a run, in a signature: its boxing is part of the plan, so
 * tsr_fetch is local. p NULL: where x is. sbp TSR_AUTO: B.
 */
TSR_API void tsr_output_at(tsr_graph *g, const char *name, tsr_tensor *x, const tsr_placement *p,
                           tsr_sbp sbp, const char *file, int line);
#define tsr_output(...) tsr_output_at(__VA_ARGS__, TSR_HERE)

/* Names, global to local, a value of which each rank reads its own shard (tsr_fetch_shard) in
 * whatever signature inference gives it. */
TSR_API void tsr_to_local_at(tsr_graph *g, const char *name, tsr_tensor *x, const char *file,
                             int line);
#define tsr_to_local(...) tsr_to_local_at(__VA_ARGS__, TSR_HERE)

/*
 * Opens a region of mixed precision, as torch.autocast does: forward ops that are declared in it,
 * up to tsr_autocast_end, are made in the types of PyTorch's lists for f16 on GPUs, on every
 * device.
 *
 *   dtype    products: matmul and its kind, linear, convolutions, attention, prelu, cells of
 *            recurrent nets
 *   f32      powers, exp and logarithms, reciprocal, rsqrt, softmax and its kind, softplus, sums,
 *            products of elements, cumsum, norms, layer and group norm, losses
 *   widest   all others, of their operands of f32, f16 and bf16; batch norm that of its data
 *
 * Operands are cast, a tensor once for each type; variables stay f32, and so do their gradients,
 * which flow through the casts. Gradients are made in the types of the forward ops. Regions nest:
 * dtype TSR_F32 is a region without autocast, where ops take what they are given. Sticky errors:
 * TSR_ERR_DTYPE; TSR_ERR_STATE where there is no region to end.
 */
TSR_API void tsr_autocast_at(tsr_graph *g, tsr_dtype dtype, const char *file, int line);
#define tsr_autocast(...) tsr_autocast_at(__VA_ARGS__, TSR_HERE)
/* Ends the region that tsr_autocast opened last. */
TSR_API void tsr_autocast_end_at(tsr_graph *g, const char *file, int line);
#define tsr_autocast_end(g) tsr_autocast_end_at((g), TSR_HERE)

/*
 * Opens a region, up to tsr_recompute_end, whose values the backward pass recomputes instead of
 * keeping them (PyTorch: torch.utils.checkpoint; Chen et al., "Training Deep Nets with Sublinear
 * Memory Cost", 2016). These values stay in memory: the region's operands, values with consumers
 * outside of the region, outputs of the graph, and values that backward uses directly and that have
 * at most 1/16 of the bytes of their op's largest operand, such as statistics. All other values
 * that backward needs are recomputed immediately before their first consumer in the backward pass,
 * with the signatures and random masks of the forward pass. The choice of signatures counts this
 * work twice. With the same signatures values and gradients have the same bits as without a region,
 * except for sums in chains (TSR_FUSE_CHAINS, TSR_FUSE_ROWS). Effects (running averages,
 * assignments) happen once. The outermost of nested regions counts. A graph without a backward pass
 * is unchanged. All ranks must declare the same regions.
 */
TSR_API void tsr_recompute(tsr_graph *g);
/* Ends the region that tsr_recompute opened last. Sticky error: TSR_ERR_STATE if none is open. */
TSR_API void tsr_recompute_end_at(tsr_graph *g, const char *file, int line);
#define tsr_recompute_end(g) tsr_recompute_end_at((g), TSR_HERE)

/* Declares gradients: d(sum of y)/dx, declared like any other value: TSR_ERR_STATE if y doesn't
 * depend on x. Several at once share one backward pass: out_dx[i] for x[i]. */
TSR_API void tsr_gradients_at(tsr_tensor *y, int n, tsr_tensor *const *x, tsr_tensor **out_dx,
                              const char *file, int line);
#define tsr_gradients(...) tsr_gradients_at(__VA_ARGS__, TSR_HERE)

/* Returns whether a tensor is declared without an error. A failed tensor has no axes and
 * TSR_DTYPE_NONE. */
TSR_API bool tsr_tensor_ok(const tsr_tensor *x);
/* Returns a tensor's global shape. */
TSR_API tsr_dims tsr_tensor_dims(const tsr_tensor *x);
/* Returns the type of a tensor's elements. */
TSR_API tsr_dtype tsr_tensor_dtype(const tsr_tensor *x);
/* Returns the placement of a tensor; NULL for a failed one. */
TSR_API const tsr_placement *tsr_tensor_placement(const tsr_tensor *x);
/* Returns the graph that a tensor belongs to; NULL for NULL. */
TSR_API tsr_graph *tsr_tensor_graph(const tsr_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
