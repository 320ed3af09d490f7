/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of ops: every op that can stand in a program, forward and backward, with what its kernel
 * computes. Declarations (src/graph), rules, kernels (one slot per op) and tests all go by it.
 *
 * Shapes are (operands) -> (results). "same" is any shape. Statistics are f64 whatever the data.
 */
#ifndef TESSERA_CORE_OP_LIST_H
#define TESSERA_CORE_OP_LIST_H

#include <tessera/base.h>
#include <tessera/sbp.h>

#include "src/core/binary_list.h"
#include "src/core/unary_list.h"
#include "src/core/update_list.h"

/* X(ENUM, name): those without a kernel. */
#define TSRI_OP_NO_KERNEL_LIST(X)                                                                 \
    /* Sources: the executor provides their buffers. */                                           \
    X(INPUT, input)         /* () -> x: fed before a run */                                       \
    X(VARIABLE, variable)   /* () -> x: reads a variable in place */                              \
    X(TO_GLOBAL, to_global) /* (x) -> x: a signature, and nothing else */                         \
    /* Between ranks: the executor communicates. (x0, x1, ..) -> y0, y1, ..: of each the sum over \
     * attrs.rank_sum.ranks, from the local graph of each of them. */                             \
    X(RANK_SUM, rank_sum)

/* X(ENUM, name): those with a kernel in the reference. */
#define TSRI_OP_KERNEL_LIST(X)                                                                     \
    /* Element-wise. (x) -> y, by attrs.unary.fn; gradient (saved, dy) -> dx. */                   \
    X(UNARY, unary)                                                                                \
    X(UNARY_GRAD, unary_grad)                                                                      \
    X(SCALE, scale) /* (x) -> a*x: linear, unlike unary's scalar functions */                      \
    X(CAST, cast)                                                                                  \
    X(BINARY, binary) /* (x, y) -> z by attrs.binary.fn, broadcasting from the right */            \
    X(ADD_N, add_n)   /* (x0, x1, ...) -> sum: all one shape; gradients meeting */                 \
    X(EXPAND, expand) /* (x) -> y: NumPy broadcasting to attrs.shape */                            \
    /* Sums and products of whole numbers and bools are i64. */                                    \
    X(REDUCE, reduce)   /* (x) -> y: attrs.reduce: sum*scale, max, min over axes */                \
    X(PROD, prod)       /* (x) -> y: product over attrs.reduce.axes, not split */                  \
    X(PROD_DX, prod_dx) /* (x, dy, those axes of size 1) -> dx: dy times the others */             \
    X(CUMSUM, cumsum)   /* (x) -> y: sums along attrs.cumsum.axis, which is not split */           \
    X(SCAN, scan)       /* (x) -> y: along attrs.scan.axis, which is not split: running products,  \
                           or log of sums of exp, by attrs.scan.fn */                              \
    X(SCAN_DX, scan_dx) /* (x, y, dy) -> dx */                                                     \
    X(ARGSCAN, argscan) /* (x) -> i64: places on the axis of running extremes: the last of equals; \
                           the last NaN, once there is one */                                      \
    X(ARGSORT, argsort) /* (x) -> i64: the first places along attrs.sort.axis, which is not split, \
                           in order, equals by their places; NaN is the largest */                 \
    X(ARGMAX, argmax)   /* (x) -> i64 index along attrs.axis; lowest index wins; axis not split */ \
    /* Matrix products. */                                                                         \
    X(MATMUL, matmul)             /* (a, b) -> op(a) op(b), 2-D, attrs.matmul */                   \
    X(LINEAR, linear)             /* (x[..., k], w[n, k], b[n]?) -> y[..., n] = x w^T + b */       \
    X(LINEAR_DX, linear_dx)       /* (dy[..., n], w[n, k]) -> dx[..., k] */                        \
    X(LINEAR_DW, linear_dw)       /* (x[..., k], dy[..., n]) -> dw[n, k] */                        \
    X(BATCH_MATMUL, batch_matmul) /* (a[..., m, k], b[..., k, n]) -> c[..., m, n]: matmul of each  \
                                     pair, leading axes broadcast; attrs.matmul */                 \
    /* Convolution, NCHW logically; w[O, C/g, kh, kw]; attrs.conv. */                              \
    X(CONV2D, conv2d)       /* (x, w, b?) -> y */                                                  \
    X(CONV2D_DX, conv2d_dx) /* (dy, w) -> dx */                                                    \
    X(CONV2D_DW, conv2d_dw) /* (x, dy) -> dw */                                                    \
    /* Pooling; attrs.pool. */                                                                     \
    X(MAX_POOL, max_pool)                 /* (x) -> y, idx i32: offset inside the plane h*W + w */ \
    X(MAX_POOL_DX, max_pool_dx)           /* (idx, dy) -> dx */                                    \
    X(AVG_POOL, avg_pool)                 /* (x) -> y */                                           \
    X(AVG_POOL_DX, avg_pool_dx)           /* (dy) -> dx */                                         \
    X(ADAPTIVE_POOL, adaptive_pool)       /* (x) -> y[n, c, oh, ow]: mean of window i*H/oh .. */   \
    X(ADAPTIVE_POOL_DX, adaptive_pool_dx) /* (dy) -> dx */                                         \
    /* An axis in another size: attrs.resize; see kernels/resize.h. */                             \
    X(RESIZE, resize)       /* (x) -> y: along attrs.resize.axis, which is not split */            \
    X(RESIZE_DX, resize_dx) /* (dy) -> dx */                                                       \
    /* Batch norm over x[n, c, h, w] (or [n, c]); attrs.bn. stats f64 [R, 2, c]: per virtual       \
     * batch (R = 1: the global one) the sums of x and x^2. With N the global count per channel of \
     * the virtual batch: m = s0/N, var = s1/N - m^2 (not below 0), r = 1/sqrt(var + eps). f64     \
     * data is centred first: its x - m stands for x in all that follows. */                       \
    X(BN_STATS, bn_stats)           /* (x) -> stats */                                             \
    X(BN_CENTER, bn_center)         /* (x, stats, count?) -> x - m; count: as of bn_running */     \
    X(BN_APPLY, bn_apply)           /* (x, stats, gamma, beta) -> (x-m) r gamma + beta */          \
    X(BN_BWD_STATS, bn_bwd_stats)   /* (x, stats, dy) -> f64 [R, 2, c]: sums of dy, dy*xhat */     \
    X(BN_BWD_APPLY, bn_bwd_apply)   /* (x, stats, gamma, dy, bstats) -> dx */                      \
    X(BN_PARAM_GRAD, bn_param_grad) /* (bstats) -> dgamma[c], dbeta[c]: summed over R */           \
    X(BN_RUNNING, bn_running)   /* (stats, mean, var, count?, centre?) -> mean', var': ([c], or    \
                                   [R, c]), running averages with momentum; var' takes N/(N-1).    \
                                   count: N, f64 [], with R = 1; on CPUs 1 is an error of the run. \
                                   centre, like stats: of the data before it was centred */        \
    X(BN_FOLD, bn_fold)         /* (gamma, beta, mean, var) -> scale[c], shift[c] */               \
    X(SCALE_SHIFT, scale_shift) /* (x, scale[c], shift[c]) -> x*scale + shift */                   \
    /* Fused by lowering only (never declared): batch norm and what follows it. */                 \
    X(BN_ACT, bn_act)                     /* (x, stats, gamma, beta) -> act(bn_apply) */           \
    X(BN_ACT_BWD_STATS, bn_act_bwd_stats) /* (x, stats, gamma, beta, dy) -> bstats of              \
                                             act'(bn_apply(x)) dy */                               \
    X(BN_ACT_BWD_APPLY, bn_act_bwd_apply) /* (x, stats, gamma, beta, dy, bstats) -> dx */          \
    /* Softmax and losses, in parts between which boxing may stand. Along attrs.softmax.axis (its  \
     * size 1 in m and d): m = max x. */                                                           \
    X(SOFTMAX_MAX, softmax_max)       /* (x) -> m; attrs.reduce */                                 \
    X(SOFTMAX_SUM, softmax_sum)       /* (x, m) -> sum exp(x - m) */                               \
    X(SOFTMAX_FINISH, softmax_finish) /* (x, m, sum) -> exp(x - m)/sum, or attrs.softmax.log */    \
    X(SOFTMAX_DOT, softmax_dot)       /* (y, dy) -> d = sum y dy */                                \
    X(SOFTMAX_BWD, softmax_bwd)       /* (y, dy, d) -> y (dy - d); log: dy - exp(y) d with         \
                                         d = sum dy */                                             \
    /* The terms of each row, f64 [n, 3], with x[n, c], label i64 [n] and m[n] = max x:            \
     * sum exp(x - m); x[label] - m, or 0 where the label is ignored or in another shard;          \
     * sum(x - m). */                                                                              \
    X(CE_TERMS, ce_terms)   /* (x, label, m) -> terms */                                           \
    X(CE_FINISH, ce_finish) /* (terms, m, label?) -> loss[n], weight[n] (1, or 0 where ignored),   \
                               lse[n, 2]: m and log sum exp(x - m), apart, as their sum in f32     \
                               keeps nothing of the second beside a large m; label: where attrs.ce \
                               has an index to ignore */                                           \
    X(CE_DX, ce_dx)         /* (x, label, lse, dl[n]) -> dx */                                     \
    /* Joined by lowering only (never declared): the parts, where no boxing stands between. */     \
    X(SOFTMAX, softmax)       /* (x) -> y; attrs.softmax.log */                                    \
    X(SOFTMAX_DX, softmax_dx) /* (y, dy) -> dx; attrs.softmax.log */                               \
    X(CE, ce)                 /* (x[n, c], label i64 [n]) -> loss, weight, lse, in x's dtype */    \
    /* Layer norm over the last attrs.ln.axes axes of x[row.., f..]; gamma, beta [f..] where       \
     * attrs.ln says. stats f64 [row.., 2]: sums of x and x^2. With N = attrs.ln.count:            \
     * m = s0/N, var = s1/N - m^2 (not below 0), r = 1/sqrt(var + eps), xhat = (x - m) r. f64 data \
     * has its rows' means subtracted before. Lowering joins them on GPUs: see kernels/norm.h. */  \
    X(LN_STATS, ln_stats)           /* (x) -> stats */                                             \
    X(LN_APPLY, ln_apply)           /* (x, stats, gamma?, beta?) -> xhat gamma + beta */           \
    X(LN_BWD_STATS, ln_bwd_stats)   /* (x, stats, gamma?, dy) -> f64 [row.., 2]: sums of           \
                                       g = dy gamma and of g xhat */                               \
    X(LN_BWD_APPLY, ln_bwd_apply)   /* (x, stats, gamma?, dy, bstats) -> dx */                     \
    X(LN_PARAM_GRAD, ln_param_grad) /* (x, stats, dy) -> dgamma, dbeta */                          \
    X(CAUSAL_MASK, causal_mask) /* (x[.., s, t]) -> x where t <= s + attrs.mask_above.diagonal,    \
                                   else its value; global places */                                \
    /* Attention without its scores, attrs.attention, by global places where causal. mask: added   \
     * to them, (b,h,s,t) or 1. lse f64: log sum exp of a row of scores, -inf where it sees no     \
     * key, which gives y = 0. */                                                                  \
    X(FLASH_ATTENTION, flash_attention) /* (q[b, h, s, d], k[b, h, t, d], v[b, h, t, e], mask?) -> \
                                           y[b, h, s, e], lse[b, h, s] */                          \
    X(FLASH_ATTENTION_DX, flash_attention_dx) /* (q, k, v, mask?, y, lse, dy) -> dq, dk, dv */     \
    /* All steps of one direction of a recurrent layer, attrs.recurrent; see kernels/recurrent.h.  \
     * x[t, n, g h]: the input's part of the g gates; w[g h, h], and b[g h] of a GRU: the state's. \
     * Last first where attrs.recurrent.reverse is set. */                                         \
    X(RECURRENT, recurrent)       /* (x, w, b?, h0[n, h], c0[n, h]?) -> y[t, n, h], c[t, n, h]?,   \
                                     gates[t, n, 4 h]? */                                          \
    X(RECURRENT_DX, recurrent_dx) /* (w, h0 or c0?, y or c, gates?, dy, dc?) -> dx, dh0, dc0?,     \
                                     ds[t, n, g h]?: of the state's part, where it is not dx */    \
    /* Random: Philox4x32-10, counter = (element's global index, step). */                         \
    /* (x, step i64 [], part i64 []?) -> x*mask/(1-p); its own gradient. An element of a part is   \
     * drawn by its index in the whole tensor. */                                                  \
    X(DROPOUT, dropout)                                                                            \
    X(RANDOM, random)     /* () or (step i64 []) -> y: attrs.random */                             \
    X(FILL, fill)         /* () -> y: attrs.fill */                                                \
    X(ARANGE, arange)     /* () -> y[i] = attrs.arange.start + i*step */                           \
    X(CONSTANT, constant) /* () -> y: this shard of attrs.constant.data */                         \
    /* Movement. */                                                                                \
    X(RESHAPE, reshape) /* (x) -> y: row-major order kept */                                       \
    X(PERMUTE, permute) /* (x) -> y: y.shape[i] = x.shape[perm[i]] */                              \
    X(COPY, copy)       /* (x) -> x: lowering's layout change; any strides */                      \
    /* Cutting along axes, which are not split. */                                                 \
    X(CONCAT, concat) /* (x0, x1, ...) -> y along attrs.cut.axis */                                \
    X(SPLIT, split)   /* (x) -> y0, y1, ... along attrs.cut.axis */                                \
    /* (x) -> y[i] = x[start + i*step], attrs.slice, per axis. The step may be -1 along an axis    \
     * that keeps all elements; the place on one such axis is taken modulo its size. */            \
    X(SLICE, slice)                                                                                \
    X(PAD, pad) /* (x) -> y[start + i*step] = x[i], the others attrs.slice.value */                \
    /* Selection. */                                                                               \
    X(WHERE, where)       /* (cond bool, x, y) -> z, broadcasting from the right */                \
    X(TRIANGLE, triangle) /* (x) -> x, 0 off the side attrs.triangle of the last two axes */       \
    X(MASK, mask) /* (cond bool, x) -> x where cond is attrs.mask.keep, else 0; cond broadcasts    \
                     to x */                                                                       \
    /* Indexing. Ids are i64; one outside the global axis is an error of the run. */               \
    /* (x, ids) -> y: x with its axis attrs.gather.axis replaced by ids' axes; 0 for ids of other  \
     * shards */                                                                                   \
    X(INDEX_SELECT, index_select)                                                                  \
    X(ONE_HOT, one_hot) /* (ids) -> y[..., c]: 1 at c = id, else 0 */                              \
    /* (ids, dy) -> dx: dy's slices summed by id, in their order */                                \
    X(INDEX_SELECT_DX, index_select_dx)                                                            \
    /* (x, ids) -> y, of the shape of ids: x's elements whose coordinate on attrs.gather.axis is   \
     * the id; 0 for ids of other shards. And (ids, dy) -> dx: dy's elements, summed into these    \
     * places. */                                                                                  \
    X(GATHER, gather)                                                                              \
    X(GATHER_DX, gather_dx)                                                                        \
    /* The parts of a step in time, attrs.part (src/rewrite/time.c); part is the number of the     \
     * part that runs. An axis of d k n rows of the whole, of which part m has rows (i, m, j) of   \
     * (d, k, n), is one of d n rows in the part. A result is kept from part to part. */           \
    X(PART, part)   /* (x, part i64 []) -> y: the rows of the part */                              \
    X(WHOLE, whole) /* (x, part i64 []) -> y: writes the part's rows of y, the whole */            \
    /* (x, part i64 []) -> y: attrs.total.op of x of all parts so far; of halves f32 */            \
    X(TOTAL, total)                                                                                \
    /* Ops of a program's own (attrs.own): C functions on local buffers. */                        \
    X(OWN, own) /* (operands) -> results */                                                        \
    /* (operands, results?, gradients of results) -> gradients of the operands attrs.own.want */   \
    X(OWN_BACKWARD, own_backward)                                                                  \
    /* Optimizers, in place: (p, its states, g, hyper) -> p, its states, by update_list.h.         \
     * Multi-tensor forms are lowering's. */                                                       \
    X(SGD, sgd)                                                                                    \
    X(ADAM, adam)                                                                                  \
    X(RMSPROP, rmsprop)                                                                            \
    X(ADAGRAD, adagrad)                                                                            \
    X(LION, lion)                                                                                  \
    X(ASSIGN, assign) /* (x) -> variable */

#define TSRI_OP_LIST(X)       \
    TSRI_OP_NO_KERNEL_LIST(X) \
    TSRI_OP_KERNEL_LIST(X)

typedef enum tsri_op_kind {
#define TSRI_OP_ENUM(upper, lower) TSRI_OP_##upper,
    TSRI_OP_LIST(TSRI_OP_ENUM)
#undef TSRI_OP_ENUM
        TSRI_OP_COUNT_
} tsri_op_kind;

const char *tsri_op_name(tsri_op_kind kind);
/* Finds a kind of op, or a function, by the first `length` characters of a text: its whole name.
 * Return -1 if there is none. */
int tsri_op_named(const char *name, size_t length);
int tsri_unary_named(const char *name, size_t length);
int tsri_binary_named(const char *name, size_t length);

/* Functions of attrs.unary.fn; `a` is attrs.unary.a. */
typedef enum tsri_unary_fn {
#define TSRI_UNARY_ENUM(T, FN, ...) TSRI_UNARY_##FN,
    TSRI_UNARY_LIST(TSRI_UNARY_ENUM, )
#undef TSRI_UNARY_ENUM
        TSRI_UNARY_COUNT_
} tsri_unary_fn;
const char *tsri_unary_name(tsri_unary_fn fn);
/* Whether the gradient is given the result rather than the operand. */
bool tsri_unary_saves_output(tsri_unary_fn fn);

/* Functions of attrs.binary.fn. */
typedef enum tsri_binary_fn {
#define TSRI_BINARY_ENUM(T, FN, ...) TSRI_BINARY_##FN,
    TSRI_BINARY_LIST(TSRI_BINARY_ENUM, )
#undef TSRI_BINARY_ENUM
        TSRI_BINARY_COUNT_
} tsri_binary_fn;
const char *tsri_binary_name(tsri_binary_fn fn);
/* Whether the result has a dtype of its own. */
bool tsri_binary_compares(tsri_binary_fn fn);
/* The results of a comparison. */
typedef struct tsri_orders {
    float less, equal, greater, none; /* none: beside a NaN */
} tsri_orders;
tsri_orders tsri_binary_orders(tsri_binary_fn fn);

typedef enum tsri_act {
    TSRI_ACT_NONE = 0,
    TSRI_ACT_RELU,
    TSRI_ACT_RELU6,
} tsri_act;

/* attrs.recurrent.cell. */
typedef enum tsri_cell {
    TSRI_CELL_TANH = 0, /* h' = tanh(x + w h) */
    TSRI_CELL_RELU,
    TSRI_CELL_LSTM, /* gates i, f, g, o, as PyTorch orders them */
    TSRI_CELL_GRU,  /* r, z, n */
    TSRI_CELL_COUNT_
} tsri_cell;

/* An element of a resized axis is the one at its place; or a mean of two, with the centres of
 * the first and the last element half an element inside, or where they were. */
typedef enum tsri_resize_how {
    TSRI_RESIZE_NEAREST = 0,
    TSRI_RESIZE_CENTRES,
    TSRI_RESIZE_CORNERS,
} tsri_resize_how;

typedef enum tsri_scan_fn {
    TSRI_SCAN_PRODUCT = 0,
    TSRI_SCAN_LOG_SUM_EXP,
    TSRI_SCAN_MAX, /* ARGSCAN */
    TSRI_SCAN_MIN,
} tsri_scan_fn;

typedef enum tsri_random_dist {
    TSRI_RANDOM_UNIFORM = 0, /* a <= y < b */
    TSRI_RANDOM_NORMAL,      /* mean a, standard deviation b */
} tsri_random_dist;

/* attrs.reduce.op, besides sum, max and min. FAULT: 0 where all elements are finite, else infinity.
 * SQUARES, by lowering only, on GPUs: (x, sum?) -> f64 [], all squares of x, added to `sum`. */
enum { TSRI_REDUCE_FAULT = TSR_REDUCE_AVG + 1, TSRI_REDUCE_SQUARES };

enum { TSRI_OWN_OPTIONS = 6 }; /* that an op of a program's own may have */

/* Attributes, computed from global shapes at declaration. Plain data: hashed bytewise (but for
 * constant.data), so always start from {0}. */
typedef struct tsri_attrs {
    union {
        struct {
            int32_t fn, pad_;
            double a, b;
        } unary;
        struct {
            int32_t fn;
            uint32_t fixed; /* bit i: no gradient flows to operand i */
        } binary;
        struct {
            double a;
        } scale;
        struct {
            int32_t ta, tb; /* transpose a, b */
            int32_t hides;  /* a masked element of the result hides what b has for it from a */
        } matmul;
        struct {
            int32_t op;    /* tsr_reduce_op, or TSRI_REDUCE_FAULT or _SQUARES */
            uint32_t axes; /* bit i: axis i is reduced */
            int32_t keepdim;
            int32_t addends; /* FAULT: of addends, where the operand is P(sum) */
            double scale;    /* factor on a sum: 1/n for a mean, from global sizes */
        } reduce;
        struct {
            int32_t axis, log;
        } softmax; /* and argmax */
        struct {
            int32_t stride[2], pad[2], dilation[2], kernel[2]; /* h, w */
            int64_t groups; /* global; kernels take theirs from desc */
        } conv;
        struct {
            int32_t kernel[2], stride[2], pad[2];
            int32_t count_include_pad, pad_;
        } pool;
        struct {
            double eps, momentum;
            int64_t count;   /* global elements per channel of a virtual batch, if all are equal */
            int64_t batch;   /* global n, from which an uneven virtual batch's own count follows */
            int64_t spatial; /* h*w, global */
            int32_t parts;   /* R, 1 = global statistics */
            int32_t act;     /* tsri_act, of the fused forms */
        } bn;
        struct {
            double smoothing;
            int64_t ignore_index; /* labels equal to it count nothing */
            int32_t has_ignore, pad_;
            int64_t classes; /* global */
        } ce;
        struct {
            double eps;
            int64_t count; /* features, global */
            int32_t axes, has_gamma, has_beta, pad_;
        } ln;
        struct {
            int64_t diagonal;
            double value;
        } mask_above;
        struct {
            double scale; /* of the products */
            int32_t causal, has_mask;
        } attention;
        struct {
            int32_t cell; /* tsri_cell */
            int32_t reverse, has_bias;
            int32_t has_dc; /* RECURRENT_DX: of the cells, too, there is a gradient */
        } recurrent;
        uint64_t key; /* first of ops that draw: of the module or variable; see src/core/rng.h */
        struct {
            uint64_t key;
            double p;            /* share dropped */
            int32_t axis, parts; /* of a part in time: as of attrs.part; else 0 */
            int64_t blocks;
        } dropout;
        struct {
            uint64_t key;
            int32_t dist, pad_;
            double a, b;
        } random;
        struct {
            double value;
        } fill;
        struct {
            double start, step;
        } arange;
        struct {
            uint64_t hash;    /* of the data */
            const void *data; /* the whole tensor, row-major; read when a kernel is made */
        } constant;
        struct {
            int32_t axis, parts; /* k */
            int64_t blocks;      /* d */
        } part;                  /* and whole */
        struct {
            int32_t op, pad_; /* tsr_reduce_op: sum, max or min */
        } total;
        struct {
            int32_t perm[TSR_MAX_NDIM];
        } permute;
        struct {
            int32_t axis, pad_;
        } cut;
        struct {
            int64_t start[TSR_MAX_NDIM], step[TSR_MAX_NDIM]; /* whole axes: 0 and 1 */
            double value;
        } slice;
        struct {
            int32_t axis, reverse; /* from the end */
        } cumsum;
        struct {
            int32_t axis, how; /* tsri_resize_how */
        } resize;
        struct {
            int32_t axis, fn; /* tsri_scan_fn */
        } scan;
        struct {
            int32_t axis, descending;
        } sort;
        struct {
            int32_t keep, pad_;
        } mask;
        struct {
            int64_t diagonal; /* column - row */
            int32_t upper, pad_;
        } triangle;
        struct {
            int32_t axis, has_pad;
            int64_t pad; /* an id whose slice gets no gradient */
        } gather;
        struct {
            const int *ranks; /* of the world; the graph's */
            int32_t nranks, pad_;
            const struct tsr_group *group;
        } rank_sum;
        struct {
            int32_t has; /* bit i: the update keeps its state i */
            int32_t
                adds; /* SGD: it adds gradients of so many runs up, which ranks have addends of */
        } update;
        struct {
            int32_t adds_up, pad_; /* as of tsr_variable */
            tsr_sbp base;
        } variable;
        struct {
            uint64_t hash;           /* of the definition */
            const struct tsr_op *op; /* src/core/own_op.h */
            uint32_t want;           /* bit i: the gradient of operand i */
            int32_t pad_;
            double option[TSRI_OWN_OPTIONS];
        } own;
        int64_t raw[10];
    };
} tsri_attrs;

/* The name of an op's kind; of a program's own op, its own name. */
const char *tsri_op_title(tsri_op_kind kind, const tsri_attrs *attrs);
/* The name that programs have for an op: "log", where the kind is unary; "mean". For messages.
 * It lives as long as the op's definition. */
const char *tsri_op_word(tsri_op_kind kind, const tsri_attrs *attrs);

#endif
