/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the op declarations (ops/): the checks that every op makes, writing rules, the
 * small graphs that gradients are composed of, and the definitions that defs/defs.c gathers. */
#ifndef TESSERA_GRAPH_OP_H
#define TESSERA_GRAPH_OP_H

#include <tessera/ops.h>

#include "src/graph/graph.h"

/* --- checks ----------------------------------------------------------------------------------- */
/* Each tsri_want_ function returns true where its operand or option is legal. Otherwise it fails
 * the graph with a text that says what is legal, and returns false. */

/* The op that is being declared, as checks need it: the graph, the user's line, the op's name. */
typedef struct tsri_ctx {
    tsr_graph *g;
    tsri_loc loc;
    const char *op;
    tsr_tensor *failed; /* what the op gives the user where it can't be declared */
    tsr_graph *open;    /* in which the function's call is open; NULL: in none */
} tsri_ctx;

/* Declares the ctx of a public function that is made of several ops. tsri_function_begin, in place
 * of tsri_op_begin, opens a call that lasts until the function returns: see graph.h. */
#define TSRI_FUNCTION(c) __attribute__((cleanup(tsri_function_end))) tsri_ctx c = {0}

/* Begins to declare an op: sets *c, and checks n operands as tsri_check_operands does. Returns
 * whether the op can be declared; otherwise it gives the user c->failed. */
bool tsri_op_begin(tsri_ctx *c, const char *op, int n, tsr_tensor *const *x, uint32_t optional,
                   tsri_loc loc);
bool tsri_function_begin(tsri_ctx *c, const char *op, int n, tsr_tensor *const *x,
                         uint32_t optional, tsri_loc loc);
void tsri_function_end(tsri_ctx *c);

/* Checks, before tsri_op_begin, that a list has n >= 1 tensors; a refusal has no graph to fail. */
bool tsri_want_some(const char *name, int n, tsr_tensor *const *x, tsri_loc loc);
/* Fails the graph with the text "op: ...", and returns the graph's failed tensor. */
tsr_tensor *tsri_op_fail(const tsri_ctx *c, tsr_status status, const char *fmt, ...)
    TSR_PRINTF(3, 4);
/* As tsri_op_fail, and returns false, for the tsri_want_ functions. */
bool tsri_op_refuse(const tsri_ctx *c, tsr_status status, const char *fmt, ...) TSR_PRINTF(3, 4);
/* Returns the shape of x as text, which lies in the graph's pool. */
const char *tsri_op_dims(const tsri_ctx *c, const tsr_tensor *x);
/* Checks that x is floating point. */
bool tsri_want_float(const tsri_ctx *c, const tsr_tensor *x);
/* Checks that `loss` can be minimized: it is a floating-point scalar. */
bool tsri_want_loss(const tsri_ctx *c, const tsr_tensor *loss);
/* Fails the graph with the thread's last error, and returns false. */
bool tsri_op_refuse_last(const tsri_ctx *c, tsr_status status);
/* Checks that x[0] and all others of n tensors (those may be NULL) have one dtype. Where ops are
 * autocast, floats of at most 32 bits may differ. */
bool tsri_want_same_dtype(const tsri_ctx *c, int n, tsr_tensor *const *x);
/* Checks that x, which the message calls `what`, is a vector of n elements. */
bool tsri_want_vector(const tsri_ctx *c, const char *what, const tsr_tensor *x, int64_t n);
/* Checks that *axis is in [-ndim, ndim), and makes it count from the front. */
bool tsri_want_axis(const tsri_ctx *c, const tsr_tensor *x, int *axis);
/* Checks a set of axes, each once and each in [-ndim, ndim), and sets *out_mask (bit i: axis i). An
 * empty set means all axes. */
bool tsri_want_axes(const tsri_ctx *c, const tsr_tensor *x, tsr_axes axes, uint32_t *out_mask);
/* Checks that an option, which the message calls `what`, is not NaN. */
bool tsri_want_number(const tsri_ctx *c, const char *what, double value);
/* Returns whether `value` is one of a dtype: of whole ones, a whole number that they hold. One of
 * i64 is at most 2^53 in size, as a larger double may not be the number that the user wrote. */
bool tsri_holds(tsr_dtype dtype, double value);
/* Checks that a dtype holds `value`. */
bool tsri_want_value(const tsri_ctx *c, tsr_dtype dtype, double value);
/* Checks the dtype, dims, placement and signature that the user gives an op without operands for
 * its result. */
bool tsri_want_new(const tsri_ctx *c, tsr_dtype dtype, tsr_dims dims, const tsr_placement *p,
                   tsr_sbp sbp);
/* Returns the result of an op that tsri_want_new has refused: the graph's failed tensor, or NULL
 * where there is no graph. */
tsr_tensor *tsri_refused_new(const tsri_ctx *c);
/* Copies the user's options over the defaults at dst, of `bytes` bytes; see tsri_opts_read. */
bool tsri_want_options(const tsri_ctx *c, void *dst, size_t bytes, const void *opts);
/* Checks that eps, which is added to a variance under a root, is finite and not negative. */
bool tsri_want_eps(const tsri_ctx *c, double eps);
/* Copies a pair of options to out (h, then w), and checks that both are at least `least`. */
bool tsri_want_pair(const tsri_ctx *c, const char *what, tsr_hw in, int least, int32_t out[2]);

/* --- autocast of functions made of several ops ------------------------------------------------ */
/* Returns whether autocast gives two operands of different types one. */
bool tsri_autocast_joins(const tsr_graph *g, const tsr_tensor *x, const tsr_tensor *y);
/* Return x, a checked operand or NULL, as autocast passes it to a function that is made in f32, or
 * in the region's type. */
tsr_tensor *tsri_full(const tsri_ctx *c, tsr_tensor *x);
tsr_tensor *tsri_low(const tsri_ctx *c, tsr_tensor *x);
/* Returns y, what a function has made, in the type of its operand x. */
tsr_tensor *tsri_as(const tsri_ctx *c, tsr_tensor *y, const tsr_tensor *x);

/* Returns result i of an op for its gradient to read; of halves what was rounded, computed again.
 */
tsr_tensor *tsri_saved(const tsri_op *op, int i);

/* --- rules ------------------------------------------------------------------------------------ */
/* The names of axes in rules: axis i is tsri_letters[i]. */
extern const char tsri_letters[];
/* Writes the text of a rule, in the notation of sbp/rule/rule.h, and clears its sizes. */
tsr_status tsri_write_rule(tsri_rule_text *out, const char *fmt, ...) TSR_PRINTF(2, 3);
/* Adds the size of an index that stands inside ( ) in the rule. */
void tsri_add_size(tsri_rule_text *out, const char *name, int64_t size);
/* Returns the letters of ndim axes, as in "a . c". An axis in mask is written as `mark`, or left
 * out where `mark` is 0. Without any axis the text is "()". */
const char *tsri_axes_text(char buf[TSRI_AXES_TEXT], int ndim, uint32_t mask, char mark);
/* Writes the letters of ndim axes as tsri_axes_text; of the last `offsets` axes "c@", as the op's
 * kernel needs the shard's offset along them. */
void tsri_offset_axes(char buf[TSRI_AXES_TEXT], int ndim, int offsets);
/* The names of an op whose kernel needs the shards' offsets along the last two axes of operand 0:
 * A is "a b c@ d@". */
void tsri_name_matrices(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out);

/* Sets *out to the shape that a and b broadcast to, by NumPy's rule: axes are aligned from the
 * right, and sizes are equal or one of them is 1. Returns false where they do not fit. */
bool tsri_broadcast_shapes(tsr_dims a, tsr_dims b, tsr_dims *out);

/* --- ops that other ops and gradients are composed of ----------------------------------------- */
/* All are declared at the user's line `loc`. */

/* Returns fn(x, a), element by element; a is for the functions that take a number. */
tsr_tensor *tsri_make_unary(tsr_tensor *x, tsri_unary_fn fn, double a, tsri_loc loc);
/* Returns fn(x, y), element by element. Messages call the op `name`. */
tsr_tensor *tsri_make_binary(const char *name, tsri_binary_fn fn, tsr_tensor *x, tsr_tensor *y,
                             tsr_dtype out_dtype, tsri_loc loc);
/* Returns x in another dtype; x itself where it has that dtype. */
tsr_tensor *tsri_make_cast(tsr_tensor *x, tsr_dtype dtype, tsri_loc loc);
/* Returns a b^T of matrices, or of batches of them. hides: elements of it are masked afterwards,
 * and their gradient, which is 0, must not meet a NaN of b on its way to a. */
tsr_tensor *tsri_make_scores(tsr_tensor *a, tsr_tensor *b, bool hides, tsri_loc loc);
/* Returns a times x. */
tsr_tensor *tsri_make_scale(tsr_tensor *x, double a, tsri_loc loc);
/* Returns the dtype in which sums and products of x's elements are accumulated and given: i64 of
 * whole numbers and bools, else that of x. */
tsr_dtype tsri_sum_dtype(const tsr_tensor *x);
/* Returns whether a partial sum of x's values is not the sum of what its addends give, where these
 * are taken in i64 or as floats: a whole number wraps in its own dtype first. */
bool tsri_wraps_before(tsr_dtype from, tsr_dtype to);
/* Returns x as the operand of a sum, product or running sum with the user's options, and sets
 * *out_dtype to the dtype that its result is cast to. Returns NULL where it has refused them. */
tsr_tensor *tsri_sum_operand(const tsri_ctx *c, tsr_tensor *x, const tsr_sum_opts *opts,
                             tsr_dtype *out_dtype);
/* Returns x, reduced over the axes in mask; a sum is multiplied by `scale`. Sums of whole numbers
 * and bools are i64. */
tsr_tensor *tsri_make_reduce(tsr_tensor *x, tsr_reduce_op op, uint32_t mask, bool keepdim,
                             double scale, tsri_loc loc);
/* Returns the sum of x over the axes in mask, times `scale`. */
tsr_tensor *tsri_make_sum(tsr_tensor *x, uint32_t mask, bool keepdim, double scale, tsri_loc loc);
/* Returns the maximum of x over the axes in mask, from an op of `kind`; the maximum of no elements
 * is -inf. */
tsr_tensor *tsri_make_max(tsr_tensor *x, tsri_op_kind kind, uint32_t mask, bool keepdim,
                          tsri_loc loc);
/* Returns x, plus 1 where n, of x's dtype, is 0: a divisor that keeps 0 / 0 from being NaN. */
tsr_tensor *tsri_make_divisor(tsr_tensor *x, tsr_tensor *n, tsri_loc loc);
/* Returns 0 where all elements of x, which has floats, are finite, else infinity; of shape (1).
 * Where x is split, that is P(max). of_addends: it looks at the addends of a partial sum. */
tsr_tensor *tsri_make_fault(tsr_tensor *x, bool of_addends, tsri_loc loc);
/* Returns x in another shape; x itself where it has that shape. */
tsr_tensor *tsri_make_reshape(tsr_tensor *x, tsr_dims dims, tsri_loc loc);
/* Returns the tensor that an op with result y gives the user. Where the op had nothing to do, so
 * that y is its operand x, that is a new view of x: the gradient of the view does not include what
 * x's other readers add to that of x. */
tsr_tensor *tsri_as_result(tsr_tensor *y, tsr_tensor *x, tsri_loc loc);
/* Returns the gradient of a broadcast from `dims` to the shape of dy: dy, summed over the axes that
 * grew. */
tsr_tensor *tsri_make_sum_to(tsr_tensor *dy, tsr_dims dims, tsri_loc loc);
/* Returns x with the order of elements along `axes` (bits) turned round. */
tsr_tensor *tsri_make_flip(tsr_tensor *x, uint32_t axes, tsri_loc loc);
/* Returns x from element `start` of an axis on, 0 <= start < its size, and then what is before. */
tsr_tensor *tsri_make_roll(tsr_tensor *x, int axis, int64_t start, tsri_loc loc);
/* Returns x with an axis of another size. */
tsr_tensor *tsri_make_resize(tsr_tensor *x, int axis, int64_t size, tsri_resize_how how,
                             tsri_loc loc);
/* Adds an op without operands, and returns its result, which has the user's signature sbp on p. */
tsr_tensor *tsri_add_source(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, tsr_dims dims,
                            tsr_dtype dtype, const tsr_placement *p, tsr_sbp sbp, tsri_loc loc);
/* Returns a tensor whose elements all are `value`. */
tsr_tensor *tsri_make_fill(tsr_graph *g, tsr_dims dims, tsr_dtype dtype, const tsr_placement *p,
                           double value, tsri_loc loc);
/* One direction of a recurrent layer: the operands of RECURRENT, whose shapes the caller has
 * checked. b, of a GRU, may be NULL; c0 is NULL but for an LSTM. */
typedef struct tsri_recurrent {
    tsri_cell cell;
    bool reverse;
    tsr_tensor *x, *w, *b, *h0, *c0;
} tsri_recurrent;
/* Returns the states of all steps (t,n,h), and sets *out_cells to the cells (t,n,h) of an LSTM. */
tsr_tensor *tsri_make_recurrent(const tsri_recurrent *r, tsr_tensor **out_cells, tsri_loc loc);
/* Sets out[i] to the sum of x[i] over the ranks of attrs->rank_sum. The n tensors have one
 * placement and any dtypes, and share one hand-shake. Returns false where the graph has failed. */
bool tsri_make_rank_sum(const tsri_attrs *attrs, int n, tsr_tensor *const *x, tsr_tensor **out,
                        tsri_loc loc);
/* Checks a group, and sets attrs->rank_sum to its ranks and all else of *attrs to zero. Returns
 * false where it has failed the graph. */
bool tsri_read_group(const tsri_ctx *c, const tsr_group *group, tsri_attrs *attrs);
/* Returns dims with size 1 for the axes in mask. */
tsr_dims tsri_keepdim(tsr_dims dims, uint32_t mask);
/* Returns dims without the axes in mask. */
tsr_dims tsri_drop_axes(tsr_dims dims, uint32_t mask);

/* --- definitions ------------------------------------------------------------------------------ */
/* The definition of each kind of op, as tsri_def_matmul. It stands in the file that declares the
 * op. */
#define TSRI_OP_DEF(upper, lower) extern const tsri_op_def tsri_def_##lower;
TSRI_OP_LIST(TSRI_OP_DEF)
#undef TSRI_OP_DEF

#endif
