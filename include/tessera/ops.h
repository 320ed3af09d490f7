/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on tensors. Each is declared, not run; each checks shapes and dtypes at once. Shapes
 * in comments are global. Operands share a placement. None is collective, but all ranks must
 * declare the same. Errors are sticky (see graph.h). Axes may be negative: from the end.
 */
#ifndef TESSERA_OPS_H
#define TESSERA_OPS_H

#include <tessera/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Declares tsr_NAME_at(ARGS, file, line). */
#define TSR_OP(name, ...) \
    TSR_API tsr_tensor *tsr_##name##_at(__VA_ARGS__, const char *file, int line)

/* --- element-wise, x of any shape, floating point --------------------------------------------- */
TSR_OP(neg, tsr_tensor *x);
TSR_OP(abs, tsr_tensor *x); /* gradient 0 at 0 */
TSR_OP(exp, tsr_tensor *x);
TSR_OP(log, tsr_tensor *x);
TSR_OP(sqrt, tsr_tensor *x);
TSR_OP(relu, tsr_tensor *x);
TSR_OP(relu6, tsr_tensor *x); /* min(max(x, 0), 6) */
TSR_OP(tanh, tsr_tensor *x);
TSR_OP(sigmoid, tsr_tensor *x);
TSR_OP(silu, tsr_tensor *x);                 /* x sigmoid(x) */
TSR_OP(pow_scalar, tsr_tensor *x, double p); /* x^p */
TSR_OP(add_scalar, tsr_tensor *x, double a);
TSR_OP(sub_scalar, tsr_tensor *x, double a);
TSR_OP(mul_scalar, tsr_tensor *x, double a);
TSR_OP(div_scalar, tsr_tensor *x, double a);
TSR_OP(rdiv_scalar, tsr_tensor *x, double a); /* a / x */
TSR_OP(cast, tsr_tensor *x, tsr_dtype dtype); /* gradients are cast back */
#define tsr_neg(x) tsr_neg_at((x), TSR_HERE)
#define tsr_abs(x) tsr_abs_at((x), TSR_HERE)
#define tsr_exp(x) tsr_exp_at((x), TSR_HERE)
#define tsr_log(x) tsr_log_at((x), TSR_HERE)
#define tsr_sqrt(x) tsr_sqrt_at((x), TSR_HERE)
#define tsr_relu(x) tsr_relu_at((x), TSR_HERE)
#define tsr_relu6(x) tsr_relu6_at((x), TSR_HERE)
#define tsr_tanh(x) tsr_tanh_at((x), TSR_HERE)
#define tsr_sigmoid(x) tsr_sigmoid_at((x), TSR_HERE)
#define tsr_silu(x) tsr_silu_at((x), TSR_HERE)
#define tsr_pow_scalar(x, p) tsr_pow_scalar_at((x), (p), TSR_HERE)
#define tsr_add_scalar(x, a) tsr_add_scalar_at((x), (a), TSR_HERE)
#define tsr_sub_scalar(x, a) tsr_sub_scalar_at((x), (a), TSR_HERE)
#define tsr_mul_scalar(x, a) tsr_mul_scalar_at((x), (a), TSR_HERE)
#define tsr_div_scalar(x, a) tsr_div_scalar_at((x), (a), TSR_HERE)
#define tsr_rdiv_scalar(x, a) tsr_rdiv_scalar_at((x), (a), TSR_HERE)
#define tsr_cast(x, dtype) tsr_cast_at((x), (dtype), TSR_HERE)

/* PyTorch's gelu: x times the normal distribution's function, or an approximation of it. */
typedef enum tsr_gelu_form {
    TSR_GELU_ERF = 0,
    TSR_GELU_TANH, /* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 */
} tsr_gelu_form;
TSR_OP(gelu, tsr_tensor *x, tsr_gelu_form form);
#define tsr_gelu(x, form) tsr_gelu_at((x), (form), TSR_HERE)

/* --- two operands, broadcast from the right as in NumPy; one dtype ---------------------------- */
TSR_OP(add, tsr_tensor *x, tsr_tensor *y);
TSR_OP(sub, tsr_tensor *x, tsr_tensor *y);
TSR_OP(mul, tsr_tensor *x, tsr_tensor *y);
TSR_OP(div, tsr_tensor *x, tsr_tensor *y);
TSR_OP(pow, tsr_tensor *x, tsr_tensor *y);   /* the gradient of y is NaN where x < 0 */
TSR_OP(equal, tsr_tensor *x, tsr_tensor *y); /* bool; no gradient; any dtype, like those below */
TSR_OP(not_equal, tsr_tensor *x, tsr_tensor *y);
TSR_OP(less, tsr_tensor *x, tsr_tensor *y); /* false beside a NaN, like the next three */
TSR_OP(less_equal, tsr_tensor *x, tsr_tensor *y);
TSR_OP(greater, tsr_tensor *x, tsr_tensor *y);
TSR_OP(greater_equal, tsr_tensor *x, tsr_tensor *y);
TSR_OP(maximum, tsr_tensor *x, tsr_tensor *y); /* NaN beside a NaN; equal ones halve the gradient */
TSR_OP(minimum, tsr_tensor *x, tsr_tensor *y);
TSR_OP(where, tsr_tensor *cond, tsr_tensor *x, tsr_tensor *y); /* cond (bool) ? x : y */
#define tsr_add(x, y) tsr_add_at((x), (y), TSR_HERE)
#define tsr_sub(x, y) tsr_sub_at((x), (y), TSR_HERE)
#define tsr_mul(x, y) tsr_mul_at((x), (y), TSR_HERE)
#define tsr_div(x, y) tsr_div_at((x), (y), TSR_HERE)
#define tsr_pow(x, y) tsr_pow_at((x), (y), TSR_HERE)
#define tsr_equal(x, y) tsr_equal_at((x), (y), TSR_HERE)
#define tsr_not_equal(x, y) tsr_not_equal_at((x), (y), TSR_HERE)
#define tsr_less(x, y) tsr_less_at((x), (y), TSR_HERE)
#define tsr_less_equal(x, y) tsr_less_equal_at((x), (y), TSR_HERE)
#define tsr_greater(x, y) tsr_greater_at((x), (y), TSR_HERE)
#define tsr_greater_equal(x, y) tsr_greater_equal_at((x), (y), TSR_HERE)
#define tsr_maximum(x, y) tsr_maximum_at((x), (y), TSR_HERE)
#define tsr_minimum(x, y) tsr_minimum_at((x), (y), TSR_HERE)
#define tsr_where(cond, x, y) tsr_where_at((cond), (x), (y), TSR_HERE)

/* --- reductions ------------------------------------------------------------------------------- */
/* A set of axes; n 0 means all. */
typedef struct tsr_axes {
    int n;
    int axis[TSR_MAX_NDIM];
} tsr_axes;
#ifndef __cplusplus
#define TSR_AXES(...) \
    ((tsr_axes){.n = (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), .axis = {__VA_ARGS__}})
#define TSR_ALL_AXES ((tsr_axes){.n = 0})
#endif
TSR_OP(sum, tsr_tensor *x, tsr_axes axes, bool keepdim);
TSR_OP(mean, tsr_tensor *x, tsr_axes axes, bool keepdim); /* by the global count */
TSR_OP(max, tsr_tensor *x, tsr_axes axes, bool keepdim);  /* equal maxima share the gradient */
TSR_OP(min, tsr_tensor *x, tsr_axes axes, bool keepdim);
TSR_OP(norm, tsr_tensor *x, double p, tsr_axes axes, bool keepdim); /* (sum |x|^p)^(1/p), p > 0 */
TSR_OP(argmax, tsr_tensor *x, int axis); /* i64, the axis dropped; the lowest index of equals */
TSR_OP(cumsum, tsr_tensor *x, int axis); /* y[i] = x[0] + ... + x[i] */
/* The mean square about the mean, in two passes; divided by the global count - correction (1: of a
 * sample, 0: of all there is), which must be above 0. std is its root, with gradient 0 at 0. */
TSR_OP(variance, tsr_tensor *x, tsr_axes axes, bool keepdim, double correction);
TSR_OP(std, tsr_tensor *x, tsr_axes axes, bool keepdim, double correction);
#define tsr_cumsum(x, axis) tsr_cumsum_at((x), (axis), TSR_HERE)
#define tsr_variance(x, axes, keepdim, correction) \
    tsr_variance_at((x), (axes), (keepdim), (correction), TSR_HERE)
#define tsr_std(x, axes, keepdim, correction) \
    tsr_std_at((x), (axes), (keepdim), (correction), TSR_HERE)
#define tsr_sum(x, axes, keepdim) tsr_sum_at((x), (axes), (keepdim), TSR_HERE)
#define tsr_mean(x, axes, keepdim) tsr_mean_at((x), (axes), (keepdim), TSR_HERE)
#define tsr_max(x, axes, keepdim) tsr_max_at((x), (axes), (keepdim), TSR_HERE)
#define tsr_min(x, axes, keepdim) tsr_min_at((x), (axes), (keepdim), TSR_HERE)
#define tsr_norm(x, p, axes, keepdim) tsr_norm_at((x), (p), (axes), (keepdim), TSR_HERE)
#define tsr_argmax(x, axis) tsr_argmax_at((x), (axis), TSR_HERE)

/* --- matrix products -------------------------------------------------------------------------- */
/* (...,m,k) x (...,k,n) -> (...,m,n): axes in front of the matrices are a batch, and broadcast. */
TSR_OP(matmul, tsr_tensor *a, tsr_tensor *b);
/* The product of matrices that are transposed (their last two axes are swapped) where ta, tb say.
 */
TSR_OP(matmul_t, tsr_tensor *a, tsr_tensor *b, bool ta, bool tb);
TSR_OP(linear, tsr_tensor *x, tsr_tensor *w,
       tsr_tensor *b); /* (...,k), (n,k), (n) or NULL -> (...,n) */
#define tsr_matmul(a, b) tsr_matmul_at((a), (b), TSR_HERE)
#define tsr_matmul_t(a, b, ta, tb) tsr_matmul_t_at((a), (b), (ta), (tb), TSR_HERE)
#define tsr_linear(x, w, b) tsr_linear_at((x), (w), (b), TSR_HERE)

/* --- convolution and pooling, NCHW ------------------------------------------------------------ */
/* A pair along the height and the width of a plane: {1, 1}, never {1}. */
typedef struct tsr_hw {
    int h, w;
} tsr_hw;

typedef struct tsr_conv2d_opts {
    size_t size;
    tsr_hw stride;   /* default 1, 1 */
    tsr_hw padding;  /* default 0, 0 */
    tsr_hw dilation; /* default 1, 1 */
    int64_t groups;  /* default 1; C = depthwise */
} tsr_conv2d_opts;
#define TSR_CONV2D_OPTS(...)                                   \
    (&(const tsr_conv2d_opts){.size = sizeof(tsr_conv2d_opts), \
                              .stride = {1, 1},                \
                              .dilation = {1, 1},              \
                              .groups = 1,                     \
                              __VA_ARGS__})
/* (n,c,h,w), (o,c/groups,kh,kw), (o) or NULL -> (n,o,h',w'). opts may be NULL. */
TSR_OP(conv2d, tsr_tensor *x, tsr_tensor *w, tsr_tensor *b, const tsr_conv2d_opts *opts);
#define tsr_conv2d(x, w, b, opts) tsr_conv2d_at((x), (w), (b), (opts), TSR_HERE)

typedef struct tsr_pool2d_opts {
    size_t size;
    tsr_hw kernel;          /* needed */
    tsr_hw stride;          /* default (0, 0): the kernel */
    tsr_hw padding;         /* default 0, 0; at most half the kernel */
    bool count_include_pad; /* avg: default true, as PyTorch; false: divide by what is inside */
} tsr_pool2d_opts;
#define TSR_POOL2D_OPTS(...)   \
    (&(const tsr_pool2d_opts){ \
        .size = sizeof(tsr_pool2d_opts), .count_include_pad = true, __VA_ARGS__})
TSR_OP(max_pool2d, tsr_tensor *x, const tsr_pool2d_opts *opts);
TSR_OP(avg_pool2d, tsr_tensor *x, const tsr_pool2d_opts *opts);
TSR_OP(adaptive_avg_pool2d, tsr_tensor *x, int64_t out_h, int64_t out_w);
#define tsr_max_pool2d(x, opts) tsr_max_pool2d_at((x), (opts), TSR_HERE)
#define tsr_avg_pool2d(x, opts) tsr_avg_pool2d_at((x), (opts), TSR_HERE)
#define tsr_adaptive_avg_pool2d(x, oh, ow) tsr_adaptive_avg_pool2d_at((x), (oh), (ow), TSR_HERE)

/* --- between the ranks of local graphs -------------------------------------------------------- */
/* A list of ranks: see collective.h. */
typedef struct tsr_group tsr_group;
/*
 * In a local graph (tsr_graph_create): the sum over a group's ranks of x, which each of them has in
 * a local graph of its own, of one shape and dtype. Its gradient is the same sum of the gradients:
 * x counts for the losses of all ranks. Their plans' runs meet here, so each rank must run as many
 * of these sums of the group, in the same order; what differs between the ranks is an error of the
 * run that names both places (TSR_ERR_MISMATCH), a rank that does not come is TSR_ERR_TIMEOUT. For
 * small tensors: on GPUs x goes through the host's memory.
 */
TSR_OP(rank_sum, tsr_tensor *x, const tsr_group *group);
#define tsr_rank_sum(x, group) tsr_rank_sum_at((x), (group), TSR_HERE)

/* --- normalisation ---------------------------------------------------------------------------- */
typedef enum tsr_bn_stats {
    TSR_BN_GLOBAL = 0, /* over the global batch, as one device would */
    TSR_BN_LOCAL,      /* over `parts` virtual batches, the balanced parts of the global batch */
} tsr_bn_stats;
typedef struct tsr_batch_norm_opts {
    size_t size;
    double eps;      /* default 1e-5 */
    double momentum; /* of the running averages; default 0.1 */
    tsr_bn_stats stats;
    int parts; /* R of TSR_BN_LOCAL; default: the ranks of x's placement at declaration */
    /* In a local training graph: statistics are over the batches of all ranks of the group, as one
     * batch; each of them must run the same batch norms in the same order (see tsr_rank_sum), if
     * only with no row. Elsewhere it changes nothing. Not with parts > 1. */
    const tsr_group *sync;
} tsr_batch_norm_opts;
#define TSR_BATCH_NORM_OPTS(...)   \
    (&(const tsr_batch_norm_opts){ \
        .size = sizeof(tsr_batch_norm_opts), .eps = 1e-5, .momentum = 0.1, __VA_ARGS__})
/*
 * x (n,c,h,w) or (n,c); gamma, beta (c). running_mean, running_var: variables (c), or (R,c) with
 * TSR_BN_LOCAL, or both NULL. In a training graph statistics are x's own and the running averages
 * are updated; otherwise the running averages (their first row) are the statistics.
 *
 * f64 data is centred before its variance is taken, which costs a second pass and, where the batch
 * is split, a second all_reduce of a few bytes a channel: so results are exact to the last digits,
 * however far from zero x is. Statistics of f32 data err by less than rounding x to f32 did.
 */
TSR_OP(batch_norm, tsr_tensor *x, tsr_tensor *gamma, tsr_tensor *beta, tsr_tensor *running_mean,
       tsr_tensor *running_var, const tsr_batch_norm_opts *opts);
#define tsr_batch_norm(x, gamma, beta, mean, var, opts) \
    tsr_batch_norm_at((x), (gamma), (beta), (mean), (var), (opts), TSR_HERE)
typedef struct tsr_layer_norm_opts {
    size_t size;
    double eps; /* default 1e-5 */
    int axes;   /* the trailing ones that are normalised together; default 1 */
} tsr_layer_norm_opts;
#define TSR_LAYER_NORM_OPTS(...) \
    (&(const tsr_layer_norm_opts){.size = sizeof(tsr_layer_norm_opts), .eps = 1e-5, __VA_ARGS__})
/* Each row of x (...,f...) has its features' mean and variance taken out; times gamma (f...), plus
 * beta (f...), each of which may be NULL. Statistics are those of the whole row, wherever its
 * features are, and as exact as batch_norm's. opts may be NULL. */
TSR_OP(layer_norm, tsr_tensor *x, tsr_tensor *gamma, tsr_tensor *beta,
       const tsr_layer_norm_opts *opts);
#define tsr_layer_norm(x, gamma, beta, opts) \
    tsr_layer_norm_at((x), (gamma), (beta), (opts), TSR_HERE)
TSR_OP(softmax, tsr_tensor *x, int axis);
TSR_OP(log_softmax, tsr_tensor *x, int axis);
#define tsr_softmax(x, axis) tsr_softmax_at((x), (axis), TSR_HERE)
#define tsr_log_softmax(x, axis) tsr_log_softmax_at((x), (axis), TSR_HERE)

/* --- attention -------------------------------------------------------------------------------- */
/* x (...,s,t) where column t <= row s + diagonal, else `value` (which may be infinite). */
TSR_OP(causal_mask, tsr_tensor *x, int64_t diagonal, double value);
#define tsr_causal_mask(x, diagonal, value) tsr_causal_mask_at((x), (diagonal), (value), TSR_HERE)
typedef struct tsr_attention_opts {
    size_t size;
    bool causal;    /* query s sees keys 0 to s */
    double scale;   /* of the products; default (TSR_NOT_GIVEN) 1/sqrt(d) */
    double dropout; /* of the weights, in training graphs; default 0 */
} tsr_attention_opts;
#define TSR_ATTENTION_OPTS(...)   \
    (&(const tsr_attention_opts){ \
        .size = sizeof(tsr_attention_opts), .scale = TSR_NOT_GIVEN, __VA_ARGS__})
/* softmax(scale q k^T) v of each head: q (b,h,s,d), k (b,h,t,d), v (b,h,t,e) -> (b,h,s,e), as
 * PyTorch's scaled_dot_product_attention. Every axis may be split. opts may be NULL. */
TSR_OP(attention, tsr_tensor *q, tsr_tensor *k, tsr_tensor *v, const tsr_attention_opts *opts);
#define tsr_attention(q, k, v, opts) tsr_attention_at((q), (k), (v), (opts), TSR_HERE)

/* --- losses ----------------------------------------------------------------------------------- */
typedef enum tsr_reduction {
    TSR_MEAN = 0, /* by the global count, uneven shards or not; of no rows at all: 0 */
    TSR_SUM,
    TSR_NONE,
} tsr_reduction;
typedef struct tsr_cross_entropy_opts {
    size_t size;
    tsr_reduction reduction;
    double label_smoothing; /* in [0, 1) */
    bool has_ignore_index;
    int64_t ignore_index; /* labels that count nothing; a mean divides by the others' number */
} tsr_cross_entropy_opts;
#define TSR_CROSS_ENTROPY_OPTS(...) \
    (&(const tsr_cross_entropy_opts){.size = sizeof(tsr_cross_entropy_opts), __VA_ARGS__})
/* logits (n,c), labels i64 (n) -> scalar, or (n). A label outside [0, c) is an error of the run. */
TSR_OP(cross_entropy_with, tsr_tensor *logits, tsr_tensor *labels,
       const tsr_cross_entropy_opts *opts);
#define tsr_cross_entropy_with(x, y, opts) tsr_cross_entropy_with_at((x), (y), (opts), TSR_HERE)
TSR_OP(cross_entropy, tsr_tensor *logits, tsr_tensor *labels, tsr_reduction reduction);
#define tsr_cross_entropy(x, y, reduction) tsr_cross_entropy_at((x), (y), (reduction), TSR_HERE)
TSR_OP(mse_loss, tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction);
#define tsr_mse_loss(x, y, reduction) tsr_mse_loss_at((x), (y), (reduction), TSR_HERE)

/* --- random ----------------------------------------------------------------------------------- */
/* Zeroes each element with probability p and scales the others by 1/(1-p), in training graphs; the
 * mask depends on the graph's seed, the layer, the training step and the element's global index. */
TSR_OP(dropout, tsr_tensor *x, double p);
#define tsr_dropout(x, p) tsr_dropout_at((x), (p), TSR_HERE)
/* Drawn anew for each graph, by its seed and `name`: the same for every placement. */
TSR_OP(uniform, tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
       const tsr_placement *p, tsr_sbp sbp, double low, double high);
TSR_OP(normal, tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
       const tsr_placement *p, tsr_sbp sbp, double mean, double std);
TSR_OP(full, tsr_graph *g, tsr_dtype dtype, tsr_dims dims, const tsr_placement *p, tsr_sbp sbp,
       double value);
#define tsr_uniform(g, name, dtype, dims, p, sbp, low, high) \
    tsr_uniform_at((g), (name), (dtype), (dims), (p), (sbp), (low), (high), TSR_HERE)
#define tsr_normal(g, name, dtype, dims, p, sbp, mean, std) \
    tsr_normal_at((g), (name), (dtype), (dims), (p), (sbp), (mean), (std), TSR_HERE)
#define tsr_full(g, dtype, dims, p, sbp, value) \
    tsr_full_at((g), (dtype), (dims), (p), (sbp), (value), TSR_HERE)

/* start, start + step, ...: (n). Whole numbers for whole dtypes. */
TSR_OP(arange, tsr_graph *g, tsr_dtype dtype, int64_t n, double start, double step,
       const tsr_placement *p, tsr_sbp sbp);
/* The numbers at `data` (row-major, of `dtype`, all of dims on every rank), which are copied: ranks
 * that give others are told, and each keeps its part. data may be NULL if there are none. */
TSR_OP(constant, tsr_graph *g, tsr_dtype dtype, tsr_dims dims, const void *data,
       const tsr_placement *p, tsr_sbp sbp);
#define tsr_arange(g, dtype, n, start, step, p, sbp) \
    tsr_arange_at((g), (dtype), (n), (start), (step), (p), (sbp), TSR_HERE)
/* Variadic, so that data may be a literal with commas. */
#define tsr_constant(...) tsr_constant_at(__VA_ARGS__, TSR_HERE)

/* --- shape ------------------------------------------------------------------------------------ */
TSR_OP(reshape, tsr_tensor *x, tsr_dims dims); /* one axis may be -1: the rest */
TSR_OP(flatten, tsr_tensor *x,
       int from_axis); /* joins the axes from from_axis on; of a scalar: (1) */
TSR_OP(transpose, tsr_tensor *x, int a, int b);
TSR_OP(permute, tsr_tensor *x, tsr_axes order); /* result axis i is x's axis order[i] */
TSR_OP(broadcast_to, tsr_tensor *x, tsr_dims dims);
#define tsr_reshape(x, dims) tsr_reshape_at((x), (dims), TSR_HERE)
#define tsr_flatten(x, from) tsr_flatten_at((x), (from), TSR_HERE)
#define tsr_transpose(x, a, b) tsr_transpose_at((x), (a), (b), TSR_HERE)
#define tsr_permute(x, order) tsr_permute_at((x), (order), TSR_HERE)
#define tsr_broadcast_to(x, dims) tsr_broadcast_to_at((x), (dims), TSR_HERE)

/* --- joining and cutting ---------------------------------------------------------------------- */
/* n >= 1 tensors of one dtype, alike in all axes but one; any n. stack: alike in all axes, along a
 * new one. */
TSR_OP(concat, int n, tsr_tensor *const *x, int axis);
TSR_OP(stack, int n, tsr_tensor *const *x, int axis);
/* The opposite of concat: out_y[i] is sizes[i] long; the sizes must add up to the axis. */
TSR_API void tsr_split_axis_at(tsr_tensor *x, int n, const int64_t *sizes, int axis,
                               tsr_tensor **out_y, const char *file, int line);
/* NumPy's x[start:end:step] on every axis: negative counts from the end, what is beyond is cut off
 * (INT64_MAX: to the end). Steps are >= 1; TSR_SCALAR for steps means all 1. */
TSR_OP(slice, tsr_tensor *x, tsr_dims starts, tsr_dims ends, tsr_dims steps);
/* x[start : start + length] along one axis, which must lie inside; start may be negative. */
TSR_OP(narrow, tsr_tensor *x, int axis, int64_t start, int64_t length);
/* `value` around x: before[i] and after[i] elements along axis i. */
TSR_OP(pad, tsr_tensor *x, tsr_dims before, tsr_dims after, double value);
/* Variadic, so that an argument may be a literal with commas: (tsr_tensor *[]){a, b}. */
#define tsr_concat(...) tsr_concat_at(__VA_ARGS__, TSR_HERE)
#define tsr_stack(...) tsr_stack_at(__VA_ARGS__, TSR_HERE)
#define tsr_split_axis(...) tsr_split_axis_at(__VA_ARGS__, TSR_HERE)
#define tsr_slice(x, starts, ends, steps) tsr_slice_at((x), (starts), (ends), (steps), TSR_HERE)
#define tsr_narrow(x, axis, start, length) tsr_narrow_at((x), (axis), (start), (length), TSR_HERE)
#define tsr_pad(x, before, after, value) tsr_pad_at((x), (before), (after), (value), TSR_HERE)

/* x (...,m,n) where column - row >= diagonal (triu) or <= diagonal (tril), 0 elsewhere. */
TSR_OP(triu, tsr_tensor *x, int64_t diagonal);
TSR_OP(tril, tsr_tensor *x, int64_t diagonal);
#define tsr_triu(x, diagonal) tsr_triu_at((x), (diagonal), TSR_HERE)
#define tsr_tril(x, diagonal) tsr_tril_at((x), (diagonal), TSR_HERE)

/* --- indexing --------------------------------------------------------------------------------- */
/* Ids are i64, of any shape; one outside 0 <= id < n is an error of the run, whatever is split. */
typedef struct tsr_embedding_opts {
    size_t size;
    bool has_padding_idx;
    int64_t padding_idx; /* a row that gets no gradient; negative: from the end */
} tsr_embedding_opts;
#define TSR_EMBEDDING_OPTS(...) \
    (&(const tsr_embedding_opts){.size = sizeof(tsr_embedding_opts), __VA_ARGS__})
/* table (v,d), ids (...) -> (...,d): rows of the table. Its gradient is dense, (v,d), and summed in
 * one order. Either axis of the table may be split. opts may be NULL. */
TSR_OP(embedding, tsr_tensor *table, tsr_tensor *ids, const tsr_embedding_opts *opts);
/* NumPy's take: x's axis is replaced by ids' axes. (a,n,b), axis 1, (i,j) -> (a,i,j,b). */
TSR_OP(gather, tsr_tensor *x, int axis, tsr_tensor *ids);
/* ids (...) -> (...,classes) of `dtype`: 1 at the id, 0 elsewhere. No gradient. */
TSR_OP(one_hot, tsr_tensor *ids, int64_t classes, tsr_dtype dtype);
#define tsr_one_hot(ids, classes, dtype) tsr_one_hot_at((ids), (classes), (dtype), TSR_HERE)
#define tsr_embedding(table, ids, opts) tsr_embedding_at((table), (ids), (opts), TSR_HERE)
#define tsr_gather(x, axis, ids) tsr_gather_at((x), (axis), (ids), TSR_HERE)

#ifdef __cplusplus
}
#endif
#endif
