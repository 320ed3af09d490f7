/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules: named parameters and buffers, and how a tensor passes through them. Variables outlive
 * graphs, so a training graph, an evaluation graph and another batch size share them.
 */
#ifndef TESSERA_NN_H
#define TESSERA_NN_H

#include <tessera/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Belongs to its parent, a root to its world. */
typedef struct tsr_module tsr_module;
/* A parameter or buffer: lives in the arena, each rank its shard. Belongs to its module. */
typedef struct tsr_variable tsr_variable;

/* How a module passes x on. `arg` is what it was created with. */
typedef tsr_tensor *tsr_forward_fn(tsr_module *m, tsr_tensor *x, void *arg);
/* At most this many tensors go into a module, and as many come out. */
#define TSR_APPLY_MAX 16
/*
 * How a module of several inputs and outputs passes them on. `in` and `out` have TSR_APPLY_MAX
 * elements: of `in` those from nin on are NULL, as are inputs that the caller leaves out; `out` is
 * all NULL, and the caller gets the first nout of what the function puts there. One that is left
 * NULL is an error.
 */
typedef void tsr_forward_n_fn(tsr_module *m, int nin, tsr_tensor *const *in, int nout,
                              tsr_tensor **out, void *arg);

/* --- where parameters live, what they are made of --------------------------------------------- */
typedef struct tsr_nn_opts {
    const tsr_placement *placement;
    tsr_sbp sbp;     /* of parameters: TSR_B (data parallel), TSR_S(0) (sharded), ...; default
                        TSR_AUTO: the compiler chooses */
    tsr_dtype dtype; /* default TSR_F32 */
    uint64_t seed;   /* of their initial values, which follow from it and the qualified name */
} tsr_nn_opts;

typedef enum tsr_init_kind {
    TSR_INIT_ZEROS = 0,
    TSR_INIT_ONES,
    TSR_INIT_CONSTANT,        /* a */
    TSR_INIT_UNIFORM,         /* a <= x < b */
    TSR_INIT_NORMAL,          /* mean a, standard deviation b */
    TSR_INIT_KAIMING_UNIFORM, /* a: negative slope; bound gain*sqrt(3/fan) */
    TSR_INIT_KAIMING_NORMAL,  /* a: negative slope; std gain/sqrt(fan) */
    TSR_INIT_XAVIER_UNIFORM,  /* a: gain (0 = 1) */
    TSR_INIT_XAVIER_NORMAL,
} tsr_init_kind;
/* As torch.nn.init: fans from the global shape (o, i, ...): fan_in = i*rest, fan_out = o*rest. */
typedef struct tsr_init {
    tsr_init_kind kind;
    double a, b;
    bool fan_out; /* kaiming: by fan_out */
} tsr_init;

/* --- building modules ------------------------------------------------------------------------- */
/* Makes a module of the user's own. forward may be NULL for a mere container (applies its children
 * in order). `arg` is passed to forward; free_arg (may be NULL) frees it with the module. NULL on
 * error (tsr_last_error); NULL children and modules pass through all calls as errors. */
TSR_API tsr_module *tsr_module_create(tsr_world *world, const tsr_nn_opts *opts,
                                      tsr_forward_fn *forward, void *arg, void (*free_arg)(void *));
/* Creates a module of several inputs and outputs (tsr_apply_n); forward must be given. Applied
 * as others are, it gets one input and gives its first output: so it may stand in a sequence. */
TSR_API tsr_module *tsr_module_create_n(tsr_world *world, const tsr_nn_opts *opts,
                                        tsr_forward_n_fn *forward, void *arg,
                                        void (*free_arg)(void *));
/* Adds a child under a name ("0", "conv"); takes it. Returns the child, NULL on error (it is then
 * destroyed). */
TSR_API tsr_module *tsr_module_add(tsr_module *parent, const char *name, tsr_module *child);
/* Returns the child of a name; NULL if there is none: then the last error names the nearest, and
 * tsr_apply of that NULL tells it. */
TSR_API tsr_module *tsr_module_child(const tsr_module *m, const char *name);
/* Returns child i; NULL past the end. */
TSR_API tsr_module *tsr_module_child_at(const tsr_module *m, int i);
/* Makes a parameter (trained) or a buffer (not) of global shape dims; sbp TSR_AUTO: the module's.
 * */
TSR_API tsr_variable *tsr_module_param(tsr_module *m, const char *name, tsr_dims dims, tsr_sbp sbp,
                                       tsr_init init);
/* As tsr_module_param, of a buffer, which no optimizer trains. */
TSR_API tsr_variable *tsr_module_buffer(tsr_module *m, const char *name, tsr_dims dims, tsr_sbp sbp,
                                        tsr_init init);
/* Frees a root module (NULL is fine). Its graphs can't be compiled any more. */
TSR_API void tsr_module_destroy(tsr_module *m);

/* Returns the value of a module's own variable in the graph of `x`, by its name ("weight");
 * NULL-safe. */
TSR_API tsr_tensor *tsr_use_at(tsr_module *m, const char *name, tsr_tensor *x, const char *file,
                               int line);
#define tsr_use(...) tsr_use_at(__VA_ARGS__, TSR_HERE)

/*
 * Passes x through a module. Where all variables in and below the module live on one placement and
 * x on another, x is moved to theirs (tsr_to_global with TSR_AUTO): so a pipeline is declared by
 * the placements of its stages (tsr_module_place). A module that has a stage gets x there, and its
 * ops are there (tsr_module_stage). Sticky errors, as all graph building.
 */
TSR_API tsr_tensor *tsr_apply_at(tsr_module *m, tsr_tensor *x, const char *file, int line);
#define tsr_apply(...) tsr_apply_at(__VA_ARGS__, TSR_HERE)
/*
 * Passes nin tensors of one graph through a module, and sets out[0] to out[nout - 1], each count
 * from 1 to TSR_APPLY_MAX. All inputs are moved as tsr_apply moves x. An input behind the first may
 * be NULL: the module then does without it, if it can. A module of one input and one output takes 1
 * and 1. On an error all outputs are failed tensors, NULL where there is no graph.
 */
TSR_API void tsr_apply_n_at(tsr_module *m, int nin, tsr_tensor *const *in, int nout,
                            tsr_tensor **out, const char *file, int line);
#define tsr_apply_n(...) tsr_apply_n_at(__VA_ARGS__, TSR_HERE)

/*
 * Makes a module's forward pass a region of tsr_autocast, wherever it is applied from now on: of
 * f16 or bf16; TSR_F32: without autocast, whatever is around it; TSR_DTYPE_NONE: as what is around
 * it. Not collective, but all ranks must do the same. TSR_ERR_DTYPE for another dtype.
 */
TSR_API tsr_status tsr_module_autocast(tsr_module *m, tsr_dtype dtype);
/* Makes each later application of a module a region of tsr_recompute. The outermost of nested
 * modules counts. Not collective, but all ranks must make the same calls. */
TSR_API tsr_status tsr_module_recompute(tsr_module *m);

/* --- variables -------------------------------------------------------------------------------- */
/* Visits all variables below m, depth first in order of creation; stops at the first error. */
typedef tsr_status tsr_variable_fn(tsr_variable *v, const char *qualified_name, void *arg);
/* Calls fn for each variable in and below m; returns the first status of it that is not TSR_OK. */
TSR_API tsr_status tsr_module_visit(tsr_module *m, tsr_variable_fn *fn, void *arg);
/* Returns a variable by its qualified name: "features.0.0.weight"; NULL if there is none, with the
 * nearest name in tsr_last_error. */
TSR_API tsr_variable *tsr_module_find(tsr_module *m, const char *qualified_name);
/* Returns the number of elements of all parameters (buffers not counted). */
TSR_API int64_t tsr_module_count(tsr_module *m);
/* Returns a variable's global shape. */
TSR_API tsr_dims tsr_variable_dims(const tsr_variable *v);
/*
 * Gives a variable another shape in files: the same elements in the same order, as a model has that
 * packs several weights side by side, and lays out each of them by an axis of its own. tsr_load
 * takes both shapes, tsr_save writes dims; so it is for checkpoints where the value stands as a
 * whole. An optimizer that is made later keeps its states alike. TSR_ERR_SHAPE where the numbers of
 * elements differ. Not collective.
 */
TSR_API tsr_status tsr_variable_save_as(tsr_variable *v, tsr_dims dims);
/* The part that a parameter takes in tensor parallelism. `axis` is an axis of the parameter. */
typedef enum tsr_role {
    TSR_ROLE_NONE = 0,
    TSR_ROLE_EMBEDDING, /* a table that ids look up; `axis` counts its rows */
    TSR_ROLE_COLUMN,    /* weight or bias of a pair's first layer; `axis`: its output features */
    TSR_ROLE_ROW,       /* weight of a pair's second layer; `axis`: its input features */
    /* As COLUMN, for packed queries, keys and values. The parent module permutes each of the three
     * to (rows, heads, positions, features of a head) by tsr_permute. `axis`: the features of each,
     * ordered by head. */
    TSR_ROLE_HEADS,
    TSR_ROLE_NORM, /* weight of a norm between pairs; every rank keeps the whole weight */
} tsr_role;
/*
 * Sets the role of a parameter. An experiment's `strategy: megatron` and `strategy: sequence`
 * divide a plug-in's model by the roles that it has set, as they divide the built-in models. If a
 * model has set EMBEDDING, HEADS or NORM, its tensors must be (rows, positions, features), and the
 * parent of a ROW layer's module must be the branch whose result is summed; otherwise its tensors
 * must be (rows, features), and `sequence` has no positions to divide. TSR_ROLE_NONE removes a
 * role. TSR_ERR_INVALID if the parameter has no such axis or there is no such role. Not collective,
 * but all ranks must make the same calls.
 */
TSR_API tsr_status tsr_variable_set_role(tsr_variable *v, tsr_role role, int axis);
/* Returns the type of a variable's elements. */
TSR_API tsr_dtype tsr_variable_dtype(const tsr_variable *v);
/* Returns a variable's signature: TSR_AUTO until a compile has fixed it. */
TSR_API tsr_sbp tsr_variable_sbp(const tsr_variable *v);
/* Returns whether a variable is a parameter (true) or a buffer. */
TSR_API bool tsr_variable_trainable(const tsr_variable *v);
/*
 * Places variables: those in and below m whose qualified name fits the pattern (* is any text, ?
 * one character, [a-c] one of these, [!a-c] none of them; a whole part between dots that is 0-5,
 * as in h.0-5.*, one of these numbers) get a placement (NULL: they keep theirs)
 * and a signature (TSR_AUTO: the compiler chooses). To be done before they have a value, and before
 * a graph or an optimizer uses them. On an error nothing is changed: TSR_ERR_STATE (it is too
 * late) and TSR_ERR_SBP name the variable; TSR_ERR_INVALID if no name fits. Not collective, but all
 * ranks must do the same.
 */
TSR_API tsr_status tsr_module_place(tsr_module *m, const char *pattern, const tsr_placement *p,
                                    tsr_sbp sbp);
/*
 * Puts m, with all that is below it, into stage `stage` (from 0) of a pipeline, which is on the
 * placement p. Stages follow each other by number; p is one index of an axis of a mesh
 * (tsr_placement_slice), or any placement. Two stages may have one placement.
 *
 * The variables in and below m then live on p. On a slice of their placement they keep their
 * signatures without the entry of the dimension that was cut; on other placements of as many
 * dimensions they keep them whole. tsr_module_place may say others afterwards. A later call for a
 * module below m, or for m, takes the place of this one.
 *
 * Where a graph has stages, operands need not be brought together: an op is in the stage of the
 * module that is applied, or, outside of such modules, in the latest stage of its operands, and
 * operands that live elsewhere are moved there (as tsr_to_global with TSR_AUTO does), once for all
 * that read them there. Inputs and constants are in no stage, and follow the ops that read them. A
 * variable that several stages read lives in its own module's, and its gradient is the sum over
 * all of them.
 *
 * To be done before the variables have a value, and before a graph or an optimizer uses them. On an
 * error nothing is changed: TSR_ERR_INVALID (no module, no such number), TSR_ERR_PLACEMENT (no
 * placement, or one of another world), TSR_ERR_STATE (it is too late) and TSR_ERR_SBP (a signature
 * that does not fit p) name the variable. Not collective, but all ranks must do the same.
 */
TSR_API tsr_status tsr_module_stage(tsr_module *m, int stage, const tsr_placement *p);
/*
 * Says that a module is this rank's own: other ranks have others, or none. tsr_variable_get,
 * tsr_load and tsr_save of it and of what is below it then talk to nobody, their errors are this
 * rank's only, and the rank that saves writes. For local graphs (tsr_graph_create), which don't
 * need it to be said. TSR_ERR_PLACEMENT if a variable of it lives elsewhere than on this rank
 * alone. Not collective.
 */
TSR_API tsr_status tsr_module_set_local(tsr_module *m);
/* Sets the global value (each rank keeps its part); every rank passes the same data. Not
 * collective. */
TSR_API tsr_status tsr_variable_set(tsr_variable *v, const void *data, size_t bytes);
/* Reads the global value. Collective over all ranks (it may have to be gathered), unless the
 * variable's module is this rank's own (tsr_module_set_local). */
TSR_API tsr_status tsr_variable_get(tsr_variable *v, void *data, size_t bytes);

/*
 * Returns the value that a variable has when a run begins, in a graph: whatever updates the graph
 * declares. So gradients may be asked for by it, and ops of the user's own may update it
 * (tsr_assign).
 */
TSR_API tsr_tensor *tsr_read_at(tsr_graph *g, tsr_variable *v, const char *file, int line);
#define tsr_read(...) tsr_read_at(__VA_ARGS__, TSR_HERE)
/*
 * Returns the value that a variable has behind the updates that the graph has declared so far, by
 * optimizers, batch norm and tsr_assign; without any, that of tsr_read. So an average of weights
 * can follow them within the step that trains them.
 */
TSR_API tsr_tensor *tsr_read_updated_at(tsr_graph *g, tsr_variable *v, const char *file, int line);
#define tsr_read_updated(...) tsr_read_updated_at(__VA_ARGS__, TSR_HERE)
/*
 * Gives a variable, when a run ends, the value x of the same shape and dtype, from x's graph; x may
 * be on another placement. It takes the place of the updates that were declared before it, unless x
 * depends on them (tsr_read_updated). With ops and buffers (tsr_module_buffer) this makes
 * optimizers, averages, target networks and statistics of the user's own. Sticky errors.
 */
TSR_API void tsr_assign_at(tsr_variable *v, tsr_tensor *x, const char *file, int line);
#define tsr_assign(...) tsr_assign_at(__VA_ARGS__, TSR_HERE)

/* --- weights ---------------------------------------------------------------------------------- */
/* Counts of tsr_load: names that the file and the module share, names of the module that the file
 * lacks, names of the file that the module lacks. */
typedef struct tsr_load_counts {
    int64_t loaded, missing, extra;
} tsr_load_counts;
typedef struct tsr_load_opts {
    size_t size;
    tsr_by_name by_name;
    /* Loads what file and module share, and leaves the module's other variables as they are (as
     * load_state_dict with strict=False). Default: missing and extra names are an error. */
    bool partial;
    tsr_load_counts *out_counts; /* written on success; may be NULL */
} tsr_load_opts;
#define TSR_LOAD_OPTS(...) TSR_OPTIONS(tsr_load_opts, (), __VA_ARGS__)
/*
 * Loads a safetensors file into a module's variables by qualified name; float dtypes convert;
 * `num_batches_tracked` is ignored. The names of file and module must be the same, unless the load
 * is said to be partial. Every rank reads its own part. All ranks validate everything
 * first and agree; on any error nothing is changed and every rank gets it. Collective over all
 * ranks, unless the module is this rank's own (tsr_module_set_local). opts may be NULL. Errors:
 * TSR_ERR_INVALID with the names that are missing and those that are extra; TSR_ERR_IO,
 * TSR_ERR_FORMAT, TSR_ERR_SHAPE, TSR_ERR_DTYPE naming the tensor.
 */
TSR_API tsr_status tsr_load(tsr_module *m, const char *path, const tsr_load_opts *opts);
/* Writes all variables (of [R, c] statistics the first row) as a safetensors file that PyTorch
 * reads. Collective over all ranks, of which rank 0 writes, unless the module is this rank's own.
 */
TSR_API tsr_status tsr_save(tsr_module *m, const char *path);

#ifdef __cplusplus
}
#endif
#endif
