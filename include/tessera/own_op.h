/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops of a program's own: a rule, and C functions on local buffers. An op that is defined takes
 * part in inference, boxing, plans, traces, YAML files and tsr_ddp as those of ops.h do.
 *
 *   static tsr_status forward(tsr_op_args *a)
 *   {
 *       const float *x = a->in[0].data;
 *       float *y = a->out[0].data;
 *       for (int64_t i = 0, n = tsr_dims_count(a->out[0].shape); i < n; i++)
 *           y[i] = x[i] * x[i];
 *       return TSR_OK;
 *   }
 *   ...
 *   tsr_op *square;
 *   tsr_op_define(world, TSR_OP_DEF(.name = "own_square", .inputs = 1, .rule = "!... -> ...",
 *                                   .dtypes = TSR_OP_DTYPE(TSR_F32), .forward = forward), &square);
 *   tsr_tensor *y = tsr_op_apply(square, 1, &x, NULL);
 */
#ifndef TESSERA_OWN_OP_H
#define TESSERA_OWN_OP_H

#include <stdio.h>

#include <tessera/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An op that was defined. Belongs to its world, and goes with it. */
typedef struct tsr_op tsr_op;

enum { TSR_OP_MAX_INPUTS = 6, TSR_OP_MAX_OUTPUTS = 3, TSR_OP_MAX_OPTIONS = 6 };

/* A rank's part of a tensor, row-major. */
typedef struct tsr_op_buffer {
    void *data; /* NULL: the part has no element, or nobody asks for it */
    tsr_dtype dtype;
    tsr_dims shape;               /* of the part; any size may be 0 */
    tsr_dims global;              /* of the tensor */
    int64_t offset[TSR_MAX_NDIM]; /* where the part begins in it */
} tsr_op_buffer;

/* The arguments of an op's functions. */
typedef struct tsr_op_args {
    size_t size; /* of this struct */
    int inputs, outputs;
    const tsr_op_buffer *in; /* [inputs] operands; never to be written */
    /* [outputs] Forward: the results, to be written whole. Backward: what forward gave, with
     * TSR_OP_KEEPS_RESULTS; else data is NULL. */
    const tsr_op_buffer *out;
    const tsr_op_buffer *dout; /* backward: [outputs] gradients of the results */
    /* Backward: [inputs] gradients of the operands, to be written whole, where data is not NULL. */
    const tsr_op_buffer *din;
    const double *option; /* in the order of the definition */
    void *stream;         /* of a CUDA function: the cudaStream_t on which to launch; else NULL */
} tsr_op_args;

/*
 * A function of an op. It runs on each rank, on the rank's part, in every step: it communicates
 * with nobody, keeps nothing between calls, and gives the same for the same. It may use the calling
 * thread's OpenMP team. `return tsr_set_error(status, "why")` ends the run.
 */
typedef tsr_status tsr_op_fn(tsr_op_args *args);

/* Results' shapes and dtypes from those of the operands, when an op is declared. out_dtype holds
 * the dtype of operand 0. `return tsr_set_error(status, "why")` refuses the call. */
typedef struct tsr_op_shapes {
    size_t size; /* of this struct */
    int inputs, outputs;
    const tsr_dims *in;
    const tsr_dtype *in_dtype;
    tsr_dims *out;
    tsr_dtype *out_dtype;
    const double *option;
} tsr_op_shapes;
typedef tsr_status tsr_op_shape_fn(tsr_op_shapes *shapes);

/* A number that a call may give: least <= value <= most. */
typedef struct tsr_op_option {
    const char *name; /* letters, digits and _; NULL: the end of the list */
    double value;     /* the default */
    double least, most;
} tsr_op_option;

/* Backward is given the results of forward. */
#define TSR_OP_KEEPS_RESULTS 1u
/* Forward may write result 0 over operand 0, where nobody else reads that and shape and dtype are
 * equal: it reads each element before it writes it. */
#define TSR_OP_IN_PLACE 2u
/* The functions broadcast: operands may lack axes of '...', and have size 1 where an index is
 * larger elsewhere. Without it such calls are refused. */
#define TSR_OP_BROADCASTS 4u

/* A set of dtypes: TSR_OP_DTYPE(TSR_F32) | TSR_OP_DTYPE(TSR_F64). */
#define TSR_OP_DTYPE(dtype) (1u << (dtype))
#define TSR_OP_FLOATS (TSR_OP_DTYPE(TSR_F32) | TSR_OP_DTYPE(TSR_F64))

typedef struct tsr_op_def {
    size_t size;
    tsr_by_name by_name;
    const char *name;      /* letters, digits and _; no op of the library has it */
    int inputs;            /* 1 to TSR_OP_MAX_INPUTS */
    int outputs TSR_IS(1); /* 1 to TSR_OP_MAX_OUTPUTS; default 1 */
    /*
     * Which signatures are legal: docs/extending/own-op.md has the notation. "!... , !... -> ..."
     * is an element-wise op that is linear in nothing; "b m k, k n -> b m n" a product.
     */
    const char *rule;
    /* The gradient's rule: operands, results (with TSR_OP_KEEPS_RESULTS), gradients of the results
     * -> gradients of all operands that are floating point. NULL: derived from `rule`. */
    const char *backward_rule;
    /* NULL: shapes follow from the rule, dtypes are those of operand 0. */
    tsr_op_shape_fn *shapes;
    unsigned dtypes;               /* of operand 0; 0: any, which the functions must tell */
    tsr_op_fn *forward, *backward; /* on a CPU; backward NULL: no gradient */
    tsr_op_fn *forward_cuda, *backward_cuda; /* NULL: not on a GPU */
    double flops TSR_IS(1); /* for each element of the results, forward; default 1 */
    unsigned flags;
    tsr_op_option options[TSR_OP_MAX_OPTIONS];
    /* Dtypes of the operands behind operand 0; 0: each has operand 0's. Labels of an op of floats:
     * .in_dtypes = {[1] = TSR_OP_DTYPE(TSR_I64)}. Other operands are refused. */
    unsigned in_dtypes[TSR_OP_MAX_INPUTS];
} tsr_op_def;

#define TSR_OP_DEF(...) TSR_OPTIONS(tsr_op_def, (.outputs = 1, .flops = 1, ), __VA_ARGS__)

/* Defines an op. Texts are copied. Not collective; every rank of a program defines the same ops.
 * Errors: TSR_ERR_INVALID naming the op and what is wrong with its definition. */
TSR_API tsr_status tsr_op_define(tsr_world *world, const tsr_op_def *def, tsr_op **out_op);
/* Returns the op of this name; NULL, without an error, where the world has none. */
TSR_API tsr_op *tsr_op_find(tsr_world *world, const char *name);

/* Declares an op on n operands. options: as many numbers as the op has, in their order; NULL: the
 * defaults. Returns result 0. */
TSR_API tsr_tensor *tsr_op_apply_at(tsr_op *op, int n, tsr_tensor *const *x, const double *options,
                                    const char *file, int line);
#define tsr_op_apply(...) tsr_op_apply_at(__VA_ARGS__, TSR_HERE)
/* As tsr_op_apply, and sets out[i] to result i, of all that the op has. */
TSR_API void tsr_op_apply_all_at(tsr_op *op, int n, tsr_tensor *const *x, const double *options,
                                 tsr_tensor **out, const char *file, int line);
#define tsr_op_apply_all(...) tsr_op_apply_all_at(__VA_ARGS__, TSR_HERE)

typedef struct tsr_op_verify_opts {
    size_t size;
    tsr_by_name by_name;
    int most_parts;        /* over how many ranks; 0: 4. At most 8 */
    const double *options; /* as of tsr_op_apply */
    /* One for each operand; NULL: f64 and then f32, as far as the definition takes them, or else
     * the first that it takes. */
    const tsr_dtype *dtypes;
    double low, high; /* of operands' elements: low <= x < high; both 0: -2 and 2 */
    uint64_t seed;
    FILE *report; /* a line for each signature; NULL: none */
} tsr_op_verify_opts;

#define TSR_OP_VERIFY_OPTS(...) TSR_OPTIONS(tsr_op_verify_opts, (), __VA_ARGS__)

/*
 * Tells whether an op is what its definition says, for operands of these shapes, by itself on a
 * CPU. Every signature that the rules allow over 2 to most_parts ranks is run part by part and held
 * against the whole, forward and backward; the gradient is held against differences (f64); results
 * must be written whole, nothing outside them nor any operand, and the same twice. Not collective.
 * Errors: TSR_ERR_INVALID with the first thing that is wrong: the function, signature, part,
 * element.
 */
TSR_API tsr_status tsr_op_verify(tsr_op *op, const tsr_dims *dims, const tsr_op_verify_opts *opts);

/*
 * Loads a shared library and calls its function `tsr_plugin_begin` with the world, which defines
 * ops and optimizers (tsr_op_define, tsr_optimizer_define). A path without '/' is looked for as the
 * loader does. The library's code runs in this process: load what you trust. Errors: TSR_ERR_IO
 * with the loader's words; TSR_ERR_STATE where the variable TESSERA_NO_PLUGINS is set, and not "0";
 * what the function returned.
 */
TSR_API tsr_status tsr_plugin_load(tsr_world *world, const char *path);
/* The function that such a library defines, with C linkage; it returns TSR_OK, or why it can't
 * serve. */
typedef tsr_status tsr_plugin_begin_fn(tsr_world *world);

#ifdef __cplusplus
}
#endif
#endif
