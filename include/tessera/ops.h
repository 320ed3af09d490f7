/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on tensors. Each is declared, not run; each checks shapes and dtypes at once. Shapes
 * in comments are global. Operands share a placement. None is collective, but all ranks must
 * declare the same. Errors are sticky (see graph.h). Axes may be negative: from the end.
 *
 * Whole numbers wrap modulo 2^bits in every op and reduction, on any number of ranks; addends of P
 * wrap in their own dtype. A quotient by 0 is 0, and so is its rest.
 *
 * Halves: a function of f16 or bf16 operands returns the f32 result of the same numbers, rounded
 * once, and so does its gradient, also where the function is made of several ops. Sums, means,
 * norms and losses of halves are reduced over ranks in f32; products, and gradients that are sums
 * because an operand was broadcast, in their own dtype.
 *
 * Programs call tsr_relu(x), which passes the place of the call: every tsr_NAME_at below has such a
 * macro tsr_NAME without the last two arguments (ops_calls.h).
 */
#ifndef TESSERA_OPS_H
#define TESSERA_OPS_H

#include <tessera/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- element-wise, x of any shape, floating point --------------------------------------------- */
/* Returns -x. */
TSR_API tsr_tensor *tsr_neg_at(tsr_tensor *x, const char *file, int line);
/* Returns |x|; the gradient is 0 at 0. */
TSR_API tsr_tensor *tsr_abs_at(tsr_tensor *x, const char *file, int line);
/* Returns 1 where x > 0, -1 where x < 0, 0 at 0, NaN of NaN; the gradient is 0. */
TSR_API tsr_tensor *tsr_sign_at(tsr_tensor *x, const char *file, int line);
/* Returns x^2. */
TSR_API tsr_tensor *tsr_square_at(tsr_tensor *x, const char *file, int line);
/* Returns the square root of x. */
TSR_API tsr_tensor *tsr_sqrt_at(tsr_tensor *x, const char *file, int line);
/* Returns 1 / sqrt(x). */
TSR_API tsr_tensor *tsr_rsqrt_at(tsr_tensor *x, const char *file, int line);
/* Returns 1 / x. */
TSR_API tsr_tensor *tsr_reciprocal_at(tsr_tensor *x, const char *file, int line);
/* Returns e^x. */
TSR_API tsr_tensor *tsr_exp_at(tsr_tensor *x, const char *file, int line);
/* Returns 2^x. */
TSR_API tsr_tensor *tsr_exp2_at(tsr_tensor *x, const char *file, int line);
/* Returns e^x - 1, exact for small x. */
TSR_API tsr_tensor *tsr_expm1_at(tsr_tensor *x, const char *file, int line);
/* Returns the natural logarithm of x. */
TSR_API tsr_tensor *tsr_log_at(tsr_tensor *x, const char *file, int line);
/* Returns the logarithm of x to the base 2. */
TSR_API tsr_tensor *tsr_log2_at(tsr_tensor *x, const char *file, int line);
/* Returns the logarithm of x to the base 10. */
TSR_API tsr_tensor *tsr_log10_at(tsr_tensor *x, const char *file, int line);
/* Returns log(1 + x), exact for small x. */
TSR_API tsr_tensor *tsr_log1p_at(tsr_tensor *x, const char *file, int line);
/* Returns the sine of x. */
TSR_API tsr_tensor *tsr_sin_at(tsr_tensor *x, const char *file, int line);
/* Returns the cosine of x. */
TSR_API tsr_tensor *tsr_cos_at(tsr_tensor *x, const char *file, int line);
/* Returns the tangent of x. */
TSR_API tsr_tensor *tsr_tan_at(tsr_tensor *x, const char *file, int line);
/* Returns the arc sine of x. */
TSR_API tsr_tensor *tsr_asin_at(tsr_tensor *x, const char *file, int line);
/* Returns the arc cosine of x. */
TSR_API tsr_tensor *tsr_acos_at(tsr_tensor *x, const char *file, int line);
/* Returns the arc tangent of x. */
TSR_API tsr_tensor *tsr_atan_at(tsr_tensor *x, const char *file, int line);
/* Returns the hyperbolic sine of x. */
TSR_API tsr_tensor *tsr_sinh_at(tsr_tensor *x, const char *file, int line);
/* Returns the hyperbolic cosine of x. */
TSR_API tsr_tensor *tsr_cosh_at(tsr_tensor *x, const char *file, int line);
/* Returns the hyperbolic tangent of x. */
TSR_API tsr_tensor *tsr_tanh_at(tsr_tensor *x, const char *file, int line);
/* Returns the inverse of the hyperbolic sine. */
TSR_API tsr_tensor *tsr_asinh_at(tsr_tensor *x, const char *file, int line);
/* Returns the inverse of the hyperbolic cosine, of x >= 1. */
TSR_API tsr_tensor *tsr_acosh_at(tsr_tensor *x, const char *file, int line);
/* Returns the inverse of the hyperbolic tangent, of -1 < x < 1. */
TSR_API tsr_tensor *tsr_atanh_at(tsr_tensor *x, const char *file, int line);
/* Returns the error function of x. */
TSR_API tsr_tensor *tsr_erf_at(tsr_tensor *x, const char *file, int line);
/* Returns 1 - erf(x), exact for large x. */
TSR_API tsr_tensor *tsr_erfc_at(tsr_tensor *x, const char *file, int line);
/* Returns the largest whole number that is not above x; the gradient is 0. */
TSR_API tsr_tensor *tsr_floor_at(tsr_tensor *x, const char *file, int line);
/* Returns the smallest whole number that is not below x; the gradient is 0. */
TSR_API tsr_tensor *tsr_ceil_at(tsr_tensor *x, const char *file, int line);
/* Returns the whole number nearest to x, the even one of two; the gradient is 0. */
TSR_API tsr_tensor *tsr_round_at(tsr_tensor *x, const char *file, int line);
/* Returns x without its fraction; the gradient is 0. */
TSR_API tsr_tensor *tsr_trunc_at(tsr_tensor *x, const char *file, int line);
/* Returns max(x, 0). */
TSR_API tsr_tensor *tsr_relu_at(tsr_tensor *x, const char *file, int line);
/* Returns min(max(x, 0), 6). */
TSR_API tsr_tensor *tsr_relu6_at(tsr_tensor *x, const char *file, int line);
/* Returns 1 / (1 + e^-x). */
TSR_API tsr_tensor *tsr_sigmoid_at(tsr_tensor *x, const char *file, int line);
/* Returns log(1 / (1 + e^-x)), exact for x of any size. */
TSR_API tsr_tensor *tsr_logsigmoid_at(tsr_tensor *x, const char *file, int line);
/* Returns relu6(x + 3) / 6. */
TSR_API tsr_tensor *tsr_hardsigmoid_at(tsr_tensor *x, const char *file, int line);
/* Returns x sigmoid(x). */
TSR_API tsr_tensor *tsr_silu_at(tsr_tensor *x, const char *file, int line);
/* Returns x relu6(x + 3) / 6. */
TSR_API tsr_tensor *tsr_hardswish_at(tsr_tensor *x, const char *file, int line);
/* Returns x tanh(softplus(x)). */
TSR_API tsr_tensor *tsr_mish_at(tsr_tensor *x, const char *file, int line);
/* Returns log(1 + e^x), exact for x of any size. */
TSR_API tsr_tensor *tsr_softplus_at(tsr_tensor *x, const char *file, int line);
/* Returns x / (1 + |x|). */
TSR_API tsr_tensor *tsr_softsign_at(tsr_tensor *x, const char *file, int line);
/* Returns 1.0507 x where x > 0, else 1.0507 * 1.67326 (e^x - 1): Klambauer et al. 2017. */
TSR_API tsr_tensor *tsr_selu_at(tsr_tensor *x, const char *file, int line);
/* Returns x where x > 0, else slope x (PyTorch's default slope: 0.01). */
TSR_API tsr_tensor *tsr_leaky_relu_at(tsr_tensor *x, double slope, const char *file, int line);
/* Returns x where x > 0, else alpha (e^x - 1) (PyTorch's default alpha: 1). */
TSR_API tsr_tensor *tsr_elu_at(tsr_tensor *x, double alpha, const char *file, int line);
/* Returns x where x > 0, else alpha (e^(x/alpha) - 1) (PyTorch's default alpha: 1). */
TSR_API tsr_tensor *tsr_celu_at(tsr_tensor *x, double alpha, const char *file, int line);
/* Returns 0 where |x| <= edge, else x brought nearer to 0 by edge (PyTorch's default edge: 0.5). */
TSR_API tsr_tensor *tsr_softshrink_at(tsr_tensor *x, double edge, const char *file, int line);
/* Returns 0 where |x| <= edge, else x (PyTorch's default edge: 0.5). */
TSR_API tsr_tensor *tsr_hardshrink_at(tsr_tensor *x, double edge, const char *file, int line);
/* Returns min(max(x, low), high); an edge may be infinite. The gradient is 1 at both edges. */
TSR_API tsr_tensor *tsr_clamp_at(tsr_tensor *x, double low, double high, const char *file,
                                 int line);
/* Returns min(max(x, low), high) (PyTorch's defaults: -1, 1). The gradient is 0 at both edges. */
TSR_API tsr_tensor *tsr_hardtanh_at(tsr_tensor *x, double low, double high, const char *file,
                                    int line);
/* Returns x where x > edge, else value. */
TSR_API tsr_tensor *tsr_threshold_at(tsr_tensor *x, double edge, double value, const char *file,
                                     int line);
/* Returns x^p; x^0 has the gradient 0 everywhere. */
TSR_API tsr_tensor *tsr_pow_scalar_at(tsr_tensor *x, double p, const char *file, int line);
/* Returns x + a. */
TSR_API tsr_tensor *tsr_add_scalar_at(tsr_tensor *x, double a, const char *file, int line);
/* Returns x - a. */
TSR_API tsr_tensor *tsr_sub_scalar_at(tsr_tensor *x, double a, const char *file, int line);
/* Returns x a. */
TSR_API tsr_tensor *tsr_mul_scalar_at(tsr_tensor *x, double a, const char *file, int line);
/* Returns x / a. */
TSR_API tsr_tensor *tsr_div_scalar_at(tsr_tensor *x, double a, const char *file, int line);
/* Returns a / x. */
TSR_API tsr_tensor *tsr_rdiv_scalar_at(tsr_tensor *x, double a, const char *file, int line);
/*
 * Returns x in another dtype; x of any dtype. Floats are rounded to the nearest. A float becomes a
 * whole number toward 0: the nearest that fits, and 0 of a NaN. A whole number wraps in a narrower
 * whole dtype, modulo 2^bits, as do the results of all ops on whole numbers. As bool, 0 is false
 * and all else, NaN too, is true. Gradients are cast back.
 */
TSR_API tsr_tensor *tsr_cast_at(tsr_tensor *x, tsr_dtype dtype, const char *file, int line);

/* PyTorch's gelu: x times the normal distribution's function, or an approximation of it. */
typedef enum tsr_gelu_form {
    TSR_GELU_ERF = 0,
    TSR_GELU_TANH, /* x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 */
} tsr_gelu_form;
/* Returns x times the normal distribution's function, or an approximation of it. */
TSR_API tsr_tensor *tsr_gelu_at(tsr_tensor *x, tsr_gelu_form form, const char *file, int line);

/* --- two operands, broadcast from the right as in NumPy; one dtype ---------------------------- */
/* Returns x + y. */
TSR_API tsr_tensor *tsr_add_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns x - y. */
TSR_API tsr_tensor *tsr_sub_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns x y. */
TSR_API tsr_tensor *tsr_mul_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns x / y. */
TSR_API tsr_tensor *tsr_div_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns x^y. The gradient of y is NaN where x < 0. */
TSR_API tsr_tensor *tsr_pow_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns where x = y, as bool without a gradient; any dtype. */
TSR_API tsr_tensor *tsr_equal_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns where x and y differ, as bool without a gradient; any dtype. */
TSR_API tsr_tensor *tsr_not_equal_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns where x < y, as bool without a gradient; any dtype. False beside a NaN. */
TSR_API tsr_tensor *tsr_less_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns where x <= y, as bool without a gradient; any dtype. False beside a NaN. */
TSR_API tsr_tensor *tsr_less_equal_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns where x > y, as bool without a gradient; any dtype. False beside a NaN. */
TSR_API tsr_tensor *tsr_greater_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns where x >= y, as bool without a gradient; any dtype. False beside a NaN. */
TSR_API tsr_tensor *tsr_greater_equal_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns the larger of x and y; NaN beside a NaN. Equal ones halve the gradient. */
TSR_API tsr_tensor *tsr_maximum_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns the smaller of x and y; NaN beside a NaN. Equal ones halve the gradient. */
TSR_API tsr_tensor *tsr_minimum_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns the angle of the point (y, x), from -pi to pi: atan(x / y) in the quadrant of the signs.
 */
TSR_API tsr_tensor *tsr_atan2_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns the rest of x / y: C's fmod, with the sign of x. Whole numbers too; their rest by 0 is 0.
 */
TSR_API tsr_tensor *tsr_fmod_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns x - y floor(x / y): Python's %, with the sign of y. Whole numbers too; their rest by 0 is
 * 0. */
TSR_API tsr_tensor *tsr_remainder_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns floor(x / y), without a gradient. Whole numbers too; of those x / 0 is 0. */
TSR_API tsr_tensor *tsr_floor_divide_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns the bits that are set in both of x and y, i64, i32 or u8 (of bools: tsr_logical_and). */
TSR_API tsr_tensor *tsr_bitwise_and_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns the bits that are set in x or y. */
TSR_API tsr_tensor *tsr_bitwise_or_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns the bits that are set in one of x and y. */
TSR_API tsr_tensor *tsr_bitwise_xor_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns x 2^y of whole numbers, less the bits that do not fit; 0 where y < 0 or y > 63. */
TSR_API tsr_tensor *tsr_bitwise_left_shift_at(tsr_tensor *x, tsr_tensor *y, const char *file,
                                              int line);
/* Returns floor(x / 2^y) of whole numbers; where y < 0 or y > 63, 0, and -1 of a negative x. */
TSR_API tsr_tensor *tsr_bitwise_right_shift_at(tsr_tensor *x, tsr_tensor *y, const char *file,
                                               int line);
/* Returns x where cond (bool) is true, else y. */
TSR_API tsr_tensor *tsr_where_at(tsr_tensor *cond, tsr_tensor *x, tsr_tensor *y, const char *file,
                                 int line);

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
typedef struct tsr_sum_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_dtype dtype; /* of the result; default (TSR_DTYPE_NONE): i64 of whole numbers and bools,
                      * else that of x */
} tsr_sum_opts;
#define TSR_SUM_OPTS(...) TSR_OPTIONS(tsr_sum_opts, (), __VA_ARGS__)
/*
 * Returns the sums over axes, 0 of nothing; x of any dtype. With .dtype, x is cast first, as
 * PyTorch does; whole numbers and bools are summed in i64, whatever the dtype, and the result wraps
 * in a narrower one (as bool it is whether any element is true). opts may be NULL.
 */
TSR_API tsr_tensor *tsr_sum_with_at(tsr_tensor *x, tsr_axes axes, bool keepdim,
                                    const tsr_sum_opts *opts, const char *file, int line);
/* Returns tsr_sum_with of default options. */
TSR_API tsr_tensor *tsr_sum_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file,
                               int line);
/* Returns the means over axes, by the global count; floating point. */
TSR_API tsr_tensor *tsr_mean_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file,
                                int line);
/* Returns the largest over axes. Equal maxima share the gradient. */
TSR_API tsr_tensor *tsr_max_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file,
                               int line);
/* Returns the smallest over axes. Equal minima share the gradient. */
TSR_API tsr_tensor *tsr_min_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file,
                               int line);
/* Returns the products over axes, 1 of nothing; dtypes are those of tsr_sum_with (as bool it is
 * whether all are true). The gradient is right where factors are 0. The axes are gathered where
 * they are split. opts may be NULL. */
TSR_API tsr_tensor *tsr_prod_with_at(tsr_tensor *x, tsr_axes axes, bool keepdim,
                                     const tsr_sum_opts *opts, const char *file, int line);
/* Returns tsr_prod_with of default options. */
TSR_API tsr_tensor *tsr_prod_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file,
                                int line);
/* Returns (sum |x|^p)^(1/p) over axes, p > 0. */
TSR_API tsr_tensor *tsr_norm_at(tsr_tensor *x, double p, tsr_axes axes, bool keepdim,
                                const char *file, int line);
/* Returns the index of the largest along an axis, as i64 with the axis dropped: the lowest of
 * equals. */
TSR_API tsr_tensor *tsr_argmax_at(tsr_tensor *x, int axis, const char *file, int line);
/* Returns y[i] = x[0] + ... + x[i] along an axis; dtypes are those of tsr_sum_with. opts may be
 * NULL. */
TSR_API tsr_tensor *tsr_cumsum_with_at(tsr_tensor *x, int axis, const tsr_sum_opts *opts,
                                       const char *file, int line);
/* Returns tsr_cumsum_with of default options. */
TSR_API tsr_tensor *tsr_cumsum_at(tsr_tensor *x, int axis, const char *file, int line);
/* Returns y[i] = x[0] * ... * x[i] along an axis; floating point. */
TSR_API tsr_tensor *tsr_cumprod_at(tsr_tensor *x, int axis, const char *file, int line);
/* Returns y[i] = log(exp(x[0]) + ... + exp(x[i])) along an axis; floating point. */
TSR_API tsr_tensor *tsr_logcumsumexp_at(tsr_tensor *x, int axis, const char *file, int line);
/* Returns the largest (smallest) of x[0] to x[i] along an axis; sets *out_ids, unless NULL, to
 * their indices, i64: the last of equals. Once there is a NaN, NaN. */
TSR_API tsr_tensor *tsr_cummax_at(tsr_tensor *x, int axis, tsr_tensor **out_ids, const char *file,
                                  int line);
/* Returns the smallest of x[0] to x[i] along an axis; the rest is as in tsr_cummax. */
TSR_API tsr_tensor *tsr_cummin_at(tsr_tensor *x, int axis, tsr_tensor **out_ids, const char *file,
                                  int line);
/* Returns the indices, i64, that sort x along an axis: torch.argsort with stable=True. NaN counts
 * as the largest. The axis is not split. */
TSR_API tsr_tensor *tsr_argsort_at(tsr_tensor *x, int axis, bool descending, const char *file,
                                   int line);
/* Returns x sorted along an axis; sets *out_ids, unless NULL, to tsr_argsort's. */
TSR_API tsr_tensor *tsr_sort_at(tsr_tensor *x, int axis, bool descending, tsr_tensor **out_ids,
                                const char *file, int line);
/* Returns the k largest (smallest) along an axis, in order: the first k that tsr_sort would give;
 * sets *out_ids, unless NULL, to their indices. 0 <= k <= the axis. */
TSR_API tsr_tensor *tsr_topk_at(tsr_tensor *x, int64_t k, int axis, bool largest,
                                tsr_tensor **out_ids, const char *file, int line);
/* Returns the mean square about the mean, in two passes, divided by the global count - correction
 * (1: of a sample, 0: of all there is), which must be above 0. */
TSR_API tsr_tensor *tsr_variance_at(tsr_tensor *x, tsr_axes axes, bool keepdim, double correction,
                                    const char *file, int line);
/* Returns the root of the variance. The gradient is 0 at 0. */
TSR_API tsr_tensor *tsr_std_at(tsr_tensor *x, tsr_axes axes, bool keepdim, double correction,
                               const char *file, int line);

/* --- matrix products -------------------------------------------------------------------------- */
/* Returns (...,m,k) x (...,k,n) -> (...,m,n): axes in front of the matrices are a batch, and
 * broadcast. */
TSR_API tsr_tensor *tsr_matmul_at(tsr_tensor *a, tsr_tensor *b, const char *file, int line);
/* Returns the product of matrices that are transposed (their last two axes are swapped) where ta,
 * tb say. */
TSR_API tsr_tensor *tsr_matmul_t_at(tsr_tensor *a, tsr_tensor *b, bool ta, bool tb,
                                    const char *file, int line);
/* Returns x w^T + b: x (...,k), w (n,k), b (n) or NULL -> (...,n). */
TSR_API tsr_tensor *tsr_linear_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b, const char *file,
                                  int line);

/* --- convolution and pooling, NCHW ------------------------------------------------------------ */
/* A pair along the height and the width of a plane: {1, 1}, never {1}. */
typedef struct tsr_hw {
    int h, w;
} tsr_hw;

typedef struct tsr_conv2d_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_hw stride TSR_IS({1, 1});   /* default 1, 1 */
    tsr_hw padding;                 /* default 0, 0 */
    tsr_hw dilation TSR_IS({1, 1}); /* default 1, 1 */
    int64_t groups TSR_IS(1);       /* default 1; C = depthwise */
} tsr_conv2d_opts;
#define TSR_CONV2D_OPTS(...) \
    TSR_OPTIONS(tsr_conv2d_opts, (.stride = {1, 1}, .dilation = {1, 1}, .groups = 1, ), __VA_ARGS__)
/* Returns the convolution of x (n,c,h,w) with w (o,c/groups,kh,kw), plus b (o) or NULL ->
 * (n,o,h',w'). The padding adds nothing, also beside infinite weights. On CPUs a dense 3x3
 * convolution of stride 1 may spread an infinity or a NaN over 4x4 tiles: see TESSERA_CPU_WINOGRAD
 * in tessera(1). opts may be NULL. */
TSR_API tsr_tensor *tsr_conv2d_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                                  const tsr_conv2d_opts *opts, const char *file, int line);

typedef struct tsr_pool2d_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_hw kernel;  /* needed */
    tsr_hw stride;  /* default (0, 0): the kernel */
    tsr_hw padding; /* default 0, 0; at most half the kernel */
    bool count_include_pad
        TSR_IS(true); /* avg: default true, as PyTorch; false: divide by what is inside */
} tsr_pool2d_opts;
#define TSR_POOL2D_OPTS(...) \
    TSR_OPTIONS(tsr_pool2d_opts, (.count_include_pad = true, ), __VA_ARGS__)
/* Returns the largest of each window. */
TSR_API tsr_tensor *tsr_max_pool2d_at(tsr_tensor *x, const tsr_pool2d_opts *opts, const char *file,
                                      int line);
/* Returns the mean of each window. */
TSR_API tsr_tensor *tsr_avg_pool2d_at(tsr_tensor *x, const tsr_pool2d_opts *opts, const char *file,
                                      int line);
/* Returns the means of out_h x out_w windows that cover each plane. */
TSR_API tsr_tensor *tsr_adaptive_avg_pool2d_at(tsr_tensor *x, int64_t out_h, int64_t out_w,
                                               const char *file, int line);

/* --- between the ranks of local graphs -------------------------------------------------------- */
/* A list of ranks: see collective.h. */
typedef struct tsr_group tsr_group;
/*
 * Returns, in a local graph (tsr_graph_create), the sum over a group's ranks of x, which each of
 * them has in a local graph of its own, of one shape and dtype. Its gradient is the same sum of the
 * gradients: x counts for the losses of all ranks. Their plans' runs meet here, so each rank must
 * run as many of these sums of the group, in the same order; what differs between the ranks is an
 * error of the run that names both places (TSR_ERR_MISMATCH), a rank that does not come is
 * TSR_ERR_TIMEOUT. On GPUs it goes by the group's own stream, and the host does not wait. The group
 * must be alive whenever the plan runs.
 */
TSR_API tsr_tensor *tsr_rank_sum_at(tsr_tensor *x, const tsr_group *group, const char *file,
                                    int line);

/* --- normalisation ---------------------------------------------------------------------------- */
typedef enum tsr_bn_stats {
    TSR_BN_GLOBAL = 0, /* over the global batch, as one device would */
    TSR_BN_LOCAL,      /* over `parts` virtual batches, the balanced parts of the global batch */
} tsr_bn_stats;
typedef struct tsr_batch_norm_opts {
    size_t size;
    tsr_by_name by_name;
    double eps TSR_IS(1e-5);     /* default 1e-5 */
    double momentum TSR_IS(0.1); /* of the running averages; default 0.1 */
    tsr_bn_stats stats;
    int parts; /* R of TSR_BN_LOCAL; default: the ranks of x's placement at declaration */
    /* In a local training graph: statistics are over the batches of all ranks of the group, as one
     * batch; each of them must run the same batch norms in the same order (see tsr_rank_sum), if
     * only with no row. Elsewhere it changes nothing. Not with parts > 1. */
    const tsr_group *sync;
} tsr_batch_norm_opts;
#define TSR_BATCH_NORM_OPTS(...) \
    TSR_OPTIONS(tsr_batch_norm_opts, (.eps = 1e-5, .momentum = 0.1, ), __VA_ARGS__)
/*
 * Normalises each channel of x. x (n,c,h,w) or (n,c); gamma, beta (c). running_mean, running_var:
 * variables (c), or (R,c) with TSR_BN_LOCAL, or both NULL. In a training graph statistics are x's
 * own and the running averages are updated; otherwise the running averages (their first row) are
 * the statistics.
 *
 * f64 data is centred before its variance is taken, which costs a second pass and, where the batch
 * is split, a second all_reduce of a few bytes a channel: so results are exact to the last digits,
 * however far from zero x is. Statistics of f32 data err by less than rounding x to f32 did.
 */
TSR_API tsr_tensor *tsr_batch_norm_at(tsr_tensor *x, tsr_tensor *gamma, tsr_tensor *beta,
                                      tsr_tensor *running_mean, tsr_tensor *running_var,
                                      const tsr_batch_norm_opts *opts, const char *file, int line);
typedef struct tsr_layer_norm_opts {
    size_t size;
    tsr_by_name by_name;
    double eps TSR_IS(1e-5); /* default 1e-5 */
    int axes;                /* the trailing ones that are normalised together; default 1 */
} tsr_layer_norm_opts;
#define TSR_LAYER_NORM_OPTS(...) TSR_OPTIONS(tsr_layer_norm_opts, (.eps = 1e-5, ), __VA_ARGS__)
/* Each row of x (...,f...) has its features' mean and variance taken out; times gamma (f...), plus
 * beta (f...), each of which may be NULL. Statistics are those of the whole row, wherever its
 * features are, and as exact as batch_norm's. opts may be NULL. */
TSR_API tsr_tensor *tsr_layer_norm_at(tsr_tensor *x, tsr_tensor *gamma, tsr_tensor *beta,
                                      const tsr_layer_norm_opts *opts, const char *file, int line);
/* Returns softmax along an axis. */
TSR_API tsr_tensor *tsr_softmax_at(tsr_tensor *x, int axis, const char *file, int line);
/* Returns the logarithm of softmax along an axis. */
TSR_API tsr_tensor *tsr_log_softmax_at(tsr_tensor *x, int axis, const char *file, int line);

/* --- attention -------------------------------------------------------------------------------- */
/* Returns x (...,s,t) where column t <= row s + diagonal, else `value` (which may be infinite). */
TSR_API tsr_tensor *tsr_causal_mask_at(tsr_tensor *x, int64_t diagonal, double value,
                                       const char *file, int line);
typedef struct tsr_attention_opts {
    size_t size;
    tsr_by_name by_name;
    bool causal;                        /* query s sees keys 0 to s */
    double scale TSR_IS(TSR_NOT_GIVEN); /* of the products; default (TSR_NOT_GIVEN) 1/sqrt(d) */
    double dropout;                     /* of the weights, in training graphs; default 0 */
} tsr_attention_opts;
#define TSR_ATTENTION_OPTS(...) \
    TSR_OPTIONS(tsr_attention_opts, (.scale = TSR_NOT_GIVEN, ), __VA_ARGS__)
/* Returns softmax(scale q k^T) v of each head: q (b,h,s,d), k (b,h,t,d), v (b,h,t,e) -> (b,h,s,e).
 * Composed of ops, so that every axis may be split. A NaN in a key that `causal` hides from a query
 * has no effect on it, forward or backward; one in v may reach all queries. opts may be NULL. */
TSR_API tsr_tensor *tsr_attention_at(tsr_tensor *q, tsr_tensor *k, tsr_tensor *v,
                                     const tsr_attention_opts *opts, const char *file, int line);
/*
 * Returns softmax(scale q k^T + mask) v of each head, with the shapes of tsr_attention, without
 * ever holding the scores: PyTorch's scaled_dot_product_attention. The mask is of bools, true where
 * a query sees a key, or of q's dtype, added to the scores; it broadcasts to (b,h,s,t); NULL is
 * none. A query that sees no key gets zeros. A bool mask and `causal` select: a NaN in a key that
 * they hide from a query has no effect on it, forward or backward. A NaN in v may reach all
 * queries, and one in a key those that a mask of floats hides it from, as in PyTorch; on a GPU one
 * in q or in the gradient of the result may reach the gradients of all keys and values. In f16 and
 * bf16 without a mask a GPU may use cuDNN's fused engines (docs/guides/gpus.md says when): there a
 * NaN or an infinity in v may also reach the gradients of all queries and keys, and an infinity in
 * a key those of all queries. TESSERA_CUDA_FUSED_ATTENTION=0 does without them. Memory is
 * that of the operands and results, also for gradients, but for the mask's own gradient and for
 * dropout, which hold the scores, and on a GPU for scratch, in which there are some scores at a
 * time (32 MiB, in the gradient 64; TESSERA_CUDA_SCORES). Batch, heads, queries and e may be split;
 * keys only in the gradient: tsr_attention splits them too. opts may be NULL.
 */
TSR_API tsr_tensor *tsr_scaled_dot_product_attention_at(tsr_tensor *q, tsr_tensor *k, tsr_tensor *v,
                                                        tsr_tensor *mask,
                                                        const tsr_attention_opts *opts,
                                                        const char *file, int line);

/* --- losses ----------------------------------------------------------------------------------- */
typedef enum tsr_reduction {
    TSR_MEAN = 0, /* by the global count, uneven shards or not; of no rows at all: 0 */
    TSR_SUM,
    TSR_NONE,
} tsr_reduction;
typedef struct tsr_cross_entropy_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_reduction reduction;
    double label_smoothing; /* in [0, 1) */
    bool has_ignore_index;
    int64_t ignore_index; /* labels that count nothing; a mean divides by the others' number */
} tsr_cross_entropy_opts;
#define TSR_CROSS_ENTROPY_OPTS(...) TSR_OPTIONS(tsr_cross_entropy_opts, (), __VA_ARGS__)
/* Returns the cross entropy of logits (n,c) and labels i64 (n): a scalar, or (n). A label outside
 * [0, c) is an error of the run. opts may be NULL. */
TSR_API tsr_tensor *tsr_cross_entropy_with_at(tsr_tensor *logits, tsr_tensor *labels,
                                              const tsr_cross_entropy_opts *opts, const char *file,
                                              int line);
/* Returns tsr_cross_entropy_with of default options but the reduction. */
TSR_API tsr_tensor *tsr_cross_entropy_at(tsr_tensor *logits, tsr_tensor *labels,
                                         tsr_reduction reduction, const char *file, int line);
/* Returns the squared difference of x and y, reduced. */
TSR_API tsr_tensor *tsr_mse_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction,
                                    const char *file, int line);

/* --- random ----------------------------------------------------------------------------------- */
/* Zeroes each element with probability p and scales the others by 1/(1-p), in training graphs; the
 * mask depends on the graph's seed, the layer, the training step and the element's global index. */
TSR_API tsr_tensor *tsr_dropout_at(tsr_tensor *x, double p, const char *file, int line);
/* Returns numbers from low to below high, drawn anew for each graph by its seed and `name`: the
 * same for every placement, and in every run of the graph. */
TSR_API tsr_tensor *tsr_uniform_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                                   const tsr_placement *p, tsr_sbp sbp, double low, double high,
                                   const char *file, int line);
/* Returns normal random numbers, drawn as tsr_uniform's are. */
TSR_API tsr_tensor *tsr_normal_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                                  const tsr_placement *p, tsr_sbp sbp, double mean, double std,
                                  const char *file, int line);
/* Returns uniform numbers in [0, 1) of x's shape, dtype and placement, drawn anew in each step, as
 * tsr_dropout's masks are, in every graph: torch.rand_like. */
TSR_API tsr_tensor *tsr_rand_like_at(tsr_tensor *x, const char *file, int line);
/* Returns normal numbers of mean 0 and standard deviation 1, drawn as tsr_rand_like's are. */
TSR_API tsr_tensor *tsr_randn_like_at(tsr_tensor *x, const char *file, int line);
/* Returns `value` everywhere. */
TSR_API tsr_tensor *tsr_full_at(tsr_graph *g, tsr_dtype dtype, tsr_dims dims,
                                const tsr_placement *p, tsr_sbp sbp, double value, const char *file,
                                int line);

/* Returns start, start + step, ...: (n). Whole numbers for whole dtypes. */
TSR_API tsr_tensor *tsr_arange_at(tsr_graph *g, tsr_dtype dtype, int64_t n, double start,
                                  double step, const tsr_placement *p, tsr_sbp sbp,
                                  const char *file, int line);
/* Returns the numbers at `data` (row-major, of `dtype`, all of dims on every rank), which are
 * copied: ranks that give others are told, and each keeps its part. data may be NULL if there are
 * none. */
TSR_API tsr_tensor *tsr_constant_at(tsr_graph *g, tsr_dtype dtype, tsr_dims dims, const void *data,
                                    const tsr_placement *p, tsr_sbp sbp, const char *file,
                                    int line);

/* --- shape ------------------------------------------------------------------------------------ */
/* Returns x in another shape, in row-major order; one axis may be -1: the rest. */
TSR_API tsr_tensor *tsr_reshape_at(tsr_tensor *x, tsr_dims dims, const char *file, int line);
/* Joins the axes from from_axis on; a scalar becomes (1). */
TSR_API tsr_tensor *tsr_flatten_at(tsr_tensor *x, int from_axis, const char *file, int line);
/* Returns x, of any dtype, as a value through which no gradient flows: x counts as a constant. */
TSR_API tsr_tensor *tsr_detach_at(tsr_tensor *x, const char *file, int line);
/* Swaps the axes a and b. */
TSR_API tsr_tensor *tsr_transpose_at(tsr_tensor *x, int a, int b, const char *file, int line);
/* Returns x with axis i of the result being axis order[i] of x. */
TSR_API tsr_tensor *tsr_permute_at(tsr_tensor *x, tsr_axes order, const char *file, int line);
/* Repeats x, as NumPy's broadcasting and Tensor.expand do. */
TSR_API tsr_tensor *tsr_expand_at(tsr_tensor *x, tsr_dims dims, const char *file, int line);

/* --- joining and cutting ---------------------------------------------------------------------- */
/* Joins n >= 1 tensors of one dtype along an axis; they are alike in all other axes. */
TSR_API tsr_tensor *tsr_concat_at(int n, tsr_tensor *const *x, int axis, const char *file,
                                  int line);
/* Joins n >= 1 tensors of one dtype and shape along a new axis. */
TSR_API tsr_tensor *tsr_stack_at(int n, tsr_tensor *const *x, int axis, const char *file, int line);
/* Cuts x into pieces along an axis: the opposite of concat, torch.split by sizes: out_y[i] is
 * sizes[i] long; the sizes must add up to the axis. */
TSR_API void tsr_split_at(tsr_tensor *x, int n, const int64_t *sizes, int axis, tsr_tensor **out_y,
                          const char *file, int line);
/* Returns NumPy's x[start:end:step] on every axis: negative counts from the end, what is beyond is
 * cut off (INT64_MAX: to the end). Steps are >= 1; TSR_SCALAR for steps means all 1. */
TSR_API tsr_tensor *tsr_slice_at(tsr_tensor *x, tsr_dims starts, tsr_dims ends, tsr_dims steps,
                                 const char *file, int line);
/* Returns x[start : start + length] along one axis, which must lie inside; start may be negative.
 */
TSR_API tsr_tensor *tsr_narrow_at(tsr_tensor *x, int axis, int64_t start, int64_t length,
                                  const char *file, int line);
/* Puts `value` around x: before[i] and after[i] elements along axis i. */
TSR_API tsr_tensor *tsr_pad_at(tsr_tensor *x, tsr_dims before, tsr_dims after, double value,
                               const char *file, int line);

/* Returns x (...,m,n) where column - row >= diagonal, 0 elsewhere. */
TSR_API tsr_tensor *tsr_triu_at(tsr_tensor *x, int64_t diagonal, const char *file, int line);
/* Returns x (...,m,n) where column - row <= diagonal, 0 elsewhere. */
TSR_API tsr_tensor *tsr_tril_at(tsr_tensor *x, int64_t diagonal, const char *file, int line);

/* --- indexing --------------------------------------------------------------------------------- */
/* Ids are i64, of any shape; one outside 0 <= id < n is an error of the run, whatever is split. */
typedef struct tsr_embedding_opts {
    size_t size;
    tsr_by_name by_name;
    bool has_padding_idx;
    int64_t padding_idx; /* a row that gets no gradient; negative: from the end */
} tsr_embedding_opts;
#define TSR_EMBEDDING_OPTS(...) TSR_OPTIONS(tsr_embedding_opts, (), __VA_ARGS__)
/* Looks up rows of a table. table (v,d), ids (...) -> (...,d): rows of the table. Its gradient is
 * dense, (v,d), and summed in one order. Either axis of the table may be split. opts may be NULL.
 * */
TSR_API tsr_tensor *tsr_embedding_at(tsr_tensor *table, tsr_tensor *ids,
                                     const tsr_embedding_opts *opts, const char *file, int line);
/* Returns slices of x by their ids, as torch.index_select, of ids with any axes (NumPy's take):
 * they replace x's axis. (a,n,b), axis 1, (i,j) -> (a,i,j,b). */
TSR_API tsr_tensor *tsr_index_select_at(tsr_tensor *x, int axis, tsr_tensor *ids, const char *file,
                                        int line);
/* Returns y of the shape of ids (i64): torch.gather. y at some coordinates is x there, but with the
 * id as the coordinate on the axis. ids has as many axes as x, and is nowhere longer but along the
 * axis. An id outside the axis is an error of the run. */
TSR_API tsr_tensor *tsr_gather_at(tsr_tensor *x, int axis, tsr_tensor *ids, const char *file,
                                  int line);
/* Returns x with the elements of y, which has the shape of ids, added to the places that tsr_gather
 * would read: torch.scatter_add. Floating point. */
TSR_API tsr_tensor *tsr_scatter_add_at(tsr_tensor *x, int axis, tsr_tensor *ids, tsr_tensor *y,
                                       const char *file, int line);
/* Returns, for ids (...), (...,classes) of `dtype`: 1 at the id, 0 elsewhere. No gradient. */
TSR_API tsr_tensor *tsr_one_hot_at(tsr_tensor *ids, int64_t classes, tsr_dtype dtype,
                                   const char *file, int line);

#ifdef __cplusplus
}
#endif

#include <tessera/ops_calls.h>

#endif
