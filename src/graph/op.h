/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the op declarations (op_*.c): the checks that every op makes, writing rules, the
 * small graphs that gradients are composed of, and the definitions that op_defs.c gathers. */
#ifndef TESSERA_GRAPH_OP_H
#define TESSERA_GRAPH_OP_H

#include <tessera/ops.h>

#include "src/graph/graph.h"

/* --- checks: each fails the graph with a text that says what is legal, and returns false ------ */
/* A check needs these for its messages: the graph, the user's line, the name of the op. */
typedef struct tsri_ctx {
    tsr_graph *g;
    tsri_loc loc;
    const char *op;
} tsri_ctx;

/* Fails the graph with "op: ...". */
tsr_tensor *tsri_op_fail(const tsri_ctx *c, tsr_status status, const char *fmt, ...)
    TSR_PRINTF(3, 4);
/* A shape as text, in the graph's pool. */
const char *tsri_op_dims(const tsri_ctx *c, const tsr_tensor *x);
bool tsri_want_float(const tsri_ctx *c, const tsr_tensor *x);
/* One dtype among all of x (entries may be NULL). */
bool tsri_want_same_dtype(const tsri_ctx *c, int n, tsr_tensor *const *x);
/* x (called `what` in the message) is a vector of n elements. */
bool tsri_want_vector(const tsri_ctx *c, const char *what, const tsr_tensor *x, int64_t n);
/* Makes a negative axis count from the front; it must be below ndim. */
bool tsri_want_axis(const tsri_ctx *c, const tsr_tensor *x, int *axis);
/* Makes negative axes of a set count from the front; all axes when it is empty. */
bool tsri_want_axes(const tsri_ctx *c, const tsr_tensor *x, tsr_axes axes, uint32_t *out_mask);
/* No NaN. */
bool tsri_want_number(const tsri_ctx *c, const char *what, double value);
/* A new tensor's dims, dtype and signature, for the ops without operands. */
bool tsri_want_new(const tsri_ctx *c, tsr_dtype dtype, tsr_dims dims, const tsr_placement *p,
                   tsr_sbp sbp);
/* Returns what such an op returns then: the graph's failed tensor; NULL where there is no graph. */
tsr_tensor *tsri_refused_new(const tsri_ctx *c);
/* Reads options over the defaults at dst: see tsri_opts_read. */
bool tsri_want_options(const tsri_ctx *c, void *dst, size_t bytes, const void *opts);
/* Whether a variance plus eps has a root. */
bool tsri_want_eps(const tsri_ctx *c, double eps);
/* Copies a pair of options, both of at least `least`. */
bool tsri_want_pair(const tsri_ctx *c, const char *what, tsr_hw in, int least, int32_t out[2]);

/* --- rules ------------------------------------------------------------------------------------ */
enum { TSRI_AXES_TEXT = 48 };
/* One letter for each axis. */
extern const char tsri_letters[];
tsr_status tsri_write_rule(tsri_rule_text *out, const char *fmt, ...) TSR_PRINTF(2, 3);
void tsri_add_size(tsri_rule_text *out, const char *name, int64_t size);
/* "a . c": the letters of ndim axes, with `mark` for those in mask (0: left out); "()" if none is
 * left. */
const char *tsri_axes_text(char buf[TSRI_AXES_TEXT], int ndim, uint32_t mask, char mark);

/* "a@ b@": every axis, by its offset; "()" for none. */
const char *tsri_offset_axes(char buf[TSRI_AXES_TEXT], int ndim);

/* NumPy's broadcasting: aligned from the right, sizes equal or one of them 1. False: they do not
 * fit. */
bool tsri_broadcast_shapes(tsr_dims a, tsr_dims b, tsr_dims *out);

/* --- pieces of gradients ---------------------------------------------------------------------- */
tsr_tensor *tsri_make_unary(tsr_tensor *x, tsri_unary_fn fn, double a, tsri_loc loc);
tsr_tensor *tsri_make_binary(const char *name, tsri_binary_fn fn, tsr_tensor *x, tsr_tensor *y,
                             tsr_dtype out_dtype, tsri_loc loc);
tsr_tensor *tsri_make_scale(tsr_tensor *x, double a, tsri_loc loc);
/* A reduction over the axes in mask; a sum's result times `scale`. */
tsr_tensor *tsri_make_reduce(tsr_tensor *x, tsr_reduce_op op, uint32_t mask, bool keepdim,
                             double scale, tsri_loc loc);
/* Sum over the axes in mask times `scale`. */
tsr_tensor *tsri_make_sum(tsr_tensor *x, uint32_t mask, bool keepdim, double scale, tsri_loc loc);
/* The maximum over the axes in mask; -inf of nothing. */
tsr_tensor *tsri_make_max(tsr_tensor *x, tsri_op_kind kind, uint32_t mask, bool keepdim,
                          tsri_loc loc);
tsr_tensor *tsri_make_reshape(tsr_tensor *x, tsr_dims dims, tsri_loc loc);
/* The result of an op that has nothing to do, y being its operand x: a tensor of its
 * own that shows x, so that its gradient is not that of all readers of x. Returns y otherwise. */
tsr_tensor *tsri_as_result(tsr_tensor *y, tsr_tensor *x, tsri_loc loc);
/* The gradient of broadcasting from `dims`: sums dy over the axes that grew. */
tsr_tensor *tsri_make_sum_to(tsr_tensor *dy, tsr_dims dims, tsri_loc loc);
/* An op without operands, in the user's signature. */
tsr_tensor *tsri_add_source(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, tsr_dims dims,
                            tsr_dtype dtype, const tsr_placement *p, tsr_sbp sbp, tsri_loc loc);
/* A constant tensor. */
tsr_tensor *tsri_make_fill(tsr_graph *g, tsr_dims dims, tsr_dtype dtype, const tsr_placement *p,
                           double value, tsri_loc loc);
/* Sums each of n tensors (one placement, any dtypes) over the ranks of attrs.rank_sum; they share
 * one hand-shake. False: the graph has failed. */
bool tsri_make_rank_sum(const tsri_attrs *attrs, int n, tsr_tensor *const *x, tsr_tensor **out,
                        tsri_loc loc);
/* Fills attrs.rank_sum from a group. False: the graph has failed. */
bool tsri_read_group(const tsri_ctx *c, const tsr_group *group, tsri_attrs *attrs);
tsr_dims tsri_keepdim(tsr_dims dims, uint32_t mask);
/* The axes that are not in mask. */
tsr_dims tsri_drop_axes(tsr_dims dims, uint32_t mask);
/* matmul of operands of which one has more than 2 axes, once their matrices are known to fit. Fails
 * where the batch axes do not broadcast. */
tsr_tensor *tsri_declare_batch_matmul(const tsri_ctx *c, tsr_tensor *a, tsr_tensor *b, bool ta,
                                      bool tb);

/* --- definitions ------------------------------------------------------------------------------ */
/* Each kind's: tsri_def_matmul, beside what declares it. */
#define TSRI_OP_DEF(upper, lower) extern const tsri_op_def tsri_def_##lower;
TSRI_OP_LIST(TSRI_OP_DEF)
#undef TSRI_OP_DEF

extern const tsri_attr_field tsri_matmul_attrs[];

#endif
