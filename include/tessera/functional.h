/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions made of the ops of ops.h, by PyTorch's names and numbers: what follows for operands,
 * errors, gradients, placements and signatures is what their ops say. Halves are not rounded
 * between those ops: the f32 result is, once. Each is tsr_NAME(...), a macro without the last two
 * arguments (functional_calls.h).
 */
#ifndef TESSERA_FUNCTIONAL_H
#define TESSERA_FUNCTIONAL_H

#include <tessera/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- truth, bool without a gradient ----------------------------------------------------------- */
/* Returns where x is not a number. */
TSR_API tsr_tensor *tsr_isnan_at(tsr_tensor *x, const char *file, int line);
/* Returns where x is infinite. */
TSR_API tsr_tensor *tsr_isinf_at(tsr_tensor *x, const char *file, int line);
/* Returns where x is neither infinite nor NaN. */
TSR_API tsr_tensor *tsr_isfinite_at(tsr_tensor *x, const char *file, int line);
/* Returns where x is 0 (false). Any dtype, as in the three that follow: what is not 0 is true. */
TSR_API tsr_tensor *tsr_logical_not_at(tsr_tensor *x, const char *file, int line);
/* Returns where both x and y are true; they broadcast. */
TSR_API tsr_tensor *tsr_logical_and_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns where x or y is true; they broadcast. */
TSR_API tsr_tensor *tsr_logical_or_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns where one of x and y is true; they broadcast. */
TSR_API tsr_tensor *tsr_logical_xor_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns whether any element over axes is true; of none: false. */
TSR_API tsr_tensor *tsr_any_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file,
                               int line);
/* Returns whether all elements over axes are true; of none: true. */
TSR_API tsr_tensor *tsr_all_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file,
                               int line);
/* Returns how many elements over axes are not 0, as i64. */
TSR_API tsr_tensor *tsr_count_nonzero_at(tsr_tensor *x, tsr_axes axes, const char *file, int line);

/* --- order ------------------------------------------------------------------------------------ */
/* Returns the k-th smallest along an axis, 1 <= k <= its size; sets *out_ids, unless NULL, to its
 * index, i64. NaN counts as the largest. */
TSR_API tsr_tensor *tsr_kthvalue_at(tsr_tensor *x, int64_t k, int axis, bool keepdim,
                                    tsr_tensor **out_ids, const char *file, int line);
/* Returns the median along an axis, of an even number the lower of the two; sets *out_ids, unless
 * NULL, to its index, i64. Where there is a NaN, NaN. */
TSR_API tsr_tensor *tsr_median_at(tsr_tensor *x, int axis, bool keepdim, tsr_tensor **out_ids,
                                  const char *file, int line);

/* --- ids -------------------------------------------------------------------------------------- */
/* Returns x with y's elements in the places that ids (i64, of y's shape) say along an axis: where
 * ids has i, y goes to coordinate i. Ids of one line must differ; places that several have get
 * their sum. torch.scatter; floating point. */
TSR_API tsr_tensor *tsr_scatter_at(tsr_tensor *x, int axis, tsr_tensor *ids, tsr_tensor *y,
                                   const char *file, int line);
/* Returns x with y's slices along an axis added to the slices of x that ids (n) number:
 * torch.index_add. Floating point. */
TSR_API tsr_tensor *tsr_index_add_at(tsr_tensor *x, int axis, tsr_tensor *ids, tsr_tensor *y,
                                     const char *file, int line);
/* Returns how often each of 0 to size - 1 is among ids (n), i64: torch.bincount, whose minlength is
 * the size here. Other ids are an error of the run. */
TSR_API tsr_tensor *tsr_bincount_at(tsr_tensor *ids, int64_t size, const char *file, int line);

/* --- activations and reductions --------------------------------------------------------------- */
/* Returns x where x > 0, else w x: w (1) or (c), of x (n,c,...). */
TSR_API tsr_tensor *tsr_prelu_at(tsr_tensor *x, tsr_tensor *w, const char *file, int line);
/* Returns a sigmoid(b) of the halves a and b of x along an axis of even size. */
TSR_API tsr_tensor *tsr_glu_at(tsr_tensor *x, int axis, const char *file, int line);
/* Returns x - tanh(x). */
TSR_API tsr_tensor *tsr_tanhshrink_at(tsr_tensor *x, const char *file, int line);
/* Returns softmax(-x) along an axis. */
TSR_API tsr_tensor *tsr_softmin_at(tsr_tensor *x, int axis, const char *file, int line);
/* Returns log(x / (1 - x)). */
TSR_API tsr_tensor *tsr_logit_at(tsr_tensor *x, const char *file, int line);
/* Returns value where mask (bool) is true, else x; mask broadcasts. */
TSR_API tsr_tensor *tsr_masked_fill_at(tsr_tensor *x, tsr_tensor *mask, double value,
                                       const char *file, int line);
/* Returns log(sum e^x) over axes, of x of any size. */
TSR_API tsr_tensor *tsr_logsumexp_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file,
                                     int line);
/* Returns the index of the smallest along an axis, as i64 with the axis dropped: the lowest of
 * equals. */
TSR_API tsr_tensor *tsr_argmin_at(tsr_tensor *x, int axis, const char *file, int line);

/* Sets each element with probability p to -1.7581, what selu tends to, and scales and shifts all so
 * that mean 0 and variance 1 stay, in training graphs: torch.nn.functional.alpha_dropout. */
TSR_API tsr_tensor *tsr_alpha_dropout_at(tsr_tensor *x, double p, const char *file, int line);
/* Drops whole channels of x (n,c,...) as tsr_alpha_dropout drops elements. */
TSR_API tsr_tensor *tsr_feature_alpha_dropout_at(tsr_tensor *x, double p, const char *file,
                                                 int line);

/* Returns x where x > 0, else x times a slope, in training graphs drawn for each element and step
 * from low to high (PyTorch's defaults: 1/8, 1/3), in others their mean. */
TSR_API tsr_tensor *tsr_rrelu_at(tsr_tensor *x, double low, double high, const char *file,
                                 int line);
/* Returns softmax((x + g) / tau) along an axis, with Gumbel noise g drawn in each step; hard: 1 at
 * the largest and 0 elsewhere, with the gradient of the soft one. PyTorch's defaults: tau 1, the
 * last axis. */
TSR_API tsr_tensor *tsr_gumbel_softmax_at(tsr_tensor *x, double tau, bool hard, int axis,
                                          const char *file, int line);

/* --- products --------------------------------------------------------------------------------- */
/* Returns the sum of x y, of vectors (n). */
TSR_API tsr_tensor *tsr_dot_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns x (n) and y (m) multiplied, each with each: (n,m). */
TSR_API tsr_tensor *tsr_outer_at(tsr_tensor *x, tsr_tensor *y, const char *file, int line);
/* Returns beta c + alpha a b of matrices or batches of them; PyTorch's addmm and baddbmm. */
TSR_API tsr_tensor *tsr_baddbmm_at(tsr_tensor *c, tsr_tensor *a, tsr_tensor *b, double beta,
                                   double alpha, const char *file, int line);
/* Returns the sum of a b over pairs of their axes: axis i of a_axes goes with axis i of b_axes; the
 * other axes follow, first those of a. */
TSR_API tsr_tensor *tsr_tensordot_at(tsr_tensor *a, tsr_tensor *b, tsr_axes a_axes, tsr_axes b_axes,
                                     const char *file, int line);
/* Returns the sum of products of n tensors that `equation` says, as "bij,bjk->bik": letters name
 * axes; those that the result has not are summed over. Without "->" the result has the letters that
 * stand once, in their order. No letter twice in an operand, no "...". */
TSR_API tsr_tensor *tsr_einsum_at(const char *equation, int n, tsr_tensor *const *x,
                                  const char *file, int line);

/* --- shape ------------------------------------------------------------------------------------ */
/* Drops an axis of size 1. */
TSR_API tsr_tensor *tsr_squeeze_at(tsr_tensor *x, int axis, const char *file, int line);
/* Inserts an axis of size 1 in front of axis `axis`; -1: behind all. */
TSR_API tsr_tensor *tsr_unsqueeze_at(tsr_tensor *x, int axis, const char *file, int line);
/* Returns x with its elements moved by `shift` along an axis; the last come round to the front. */
TSR_API tsr_tensor *tsr_roll_at(tsr_tensor *x, int axis, int64_t shift, const char *file, int line);
/* Returns x with the order of its elements turned round along axes. */
TSR_API tsr_tensor *tsr_flip_at(tsr_tensor *x, tsr_axes axes, const char *file, int line);
/* Returns x repeated counts[i] >= 1 times along axis i, as Tensor.repeat and NumPy's tile do. */
TSR_API tsr_tensor *tsr_repeat_at(tsr_tensor *x, tsr_dims counts, const char *file, int line);
/* Returns x with each slice along an axis n >= 1 times, one copy after the other. */
TSR_API tsr_tensor *tsr_repeat_interleave_at(tsr_tensor *x, int axis, int64_t n, const char *file,
                                             int line);
/* Returns (n,c r^2,h,w) as (n,c,h r,w r): channels become pixels. */
TSR_API tsr_tensor *tsr_pixel_shuffle_at(tsr_tensor *x, int64_t r, const char *file, int line);
/* Returns (n,c,h r,w r) as (n,c r^2,h,w): the opposite of tsr_pixel_shuffle. */
TSR_API tsr_tensor *tsr_pixel_unshuffle_at(tsr_tensor *x, int64_t r, const char *file, int line);
/* Returns x (n,c,...) with its channels dealt out: the first of each of `groups` groups of
 * neighbours, then the second of each, and so on. */
TSR_API tsr_tensor *tsr_channel_shuffle_at(tsr_tensor *x, int64_t groups, const char *file,
                                           int line);

/* --- normalisation ---------------------------------------------------------------------------- */
/* Each of `groups` groups of channels of each sample of x (n,c,...) has its mean and variance taken
 * out; times gamma (c), plus beta (c), each of which may be NULL. Every channel a group of its own:
 * instance norm. */
TSR_API tsr_tensor *tsr_group_norm_at(tsr_tensor *x, int64_t groups, tsr_tensor *gamma,
                                      tsr_tensor *beta, double eps, const char *file, int line);
/* Returns x / sqrt(mean x^2 + eps) gamma, the mean over as many trailing axes as gamma has (NULL:
 * over the last): Zhang and Sennrich 2019. */
TSR_API tsr_tensor *tsr_rms_norm_at(tsr_tensor *x, tsr_tensor *gamma, double eps, const char *file,
                                    int line);
/* Returns x / max(norm, eps) with the norm sqrt(sum x^2) along an axis (PyTorch's default eps:
 * 1e-12). */
TSR_API tsr_tensor *tsr_normalize_at(tsr_tensor *x, int axis, double eps, const char *file,
                                     int line);
/* Returns x / (k + alpha mean)^beta, with the mean of x^2 over `size` neighbouring channels of x
 * (n,c,...), as AlexNet has it (PyTorch's defaults: alpha 1e-4, beta 0.75, k 1). */
TSR_API tsr_tensor *tsr_local_response_norm_at(tsr_tensor *x, int64_t size, double alpha,
                                               double beta, double k, const char *file, int line);

/* --- positions -------------------------------------------------------------------------------- */
/* Returns x (...,s,d), d even, with pairs of features turned: pair i of position p by the angle p
 * base^(-2i/d), Su et al. 2021 (their base: 10000). Positions count from `first`. Pair i is the
 * features i and i + d/2; interleaved: 2i and 2i + 1. */
TSR_API tsr_tensor *tsr_rotary_embedding_at(tsr_tensor *x, double base, int64_t first,
                                            bool interleaved, const char *file, int line);

/* --- images ----------------------------------------------------------------------------------- */
typedef enum tsr_interpolation {
    TSR_NEAREST = 0,
    TSR_BILINEAR,         /* between the centres of pixels: PyTorch's default */
    TSR_BILINEAR_CORNERS, /* corners stay where they are: align_corners */
} tsr_interpolation;
/* Returns the images x (n,c,h,w) in another size, (n,c,out_h,out_w). */
TSR_API tsr_tensor *tsr_interpolate_at(tsr_tensor *x, int64_t out_h, int64_t out_w,
                                       tsr_interpolation how, const char *file, int line);
/* Returns where an affine map theta (n,2,3) takes each pixel of an image, (n,out_h,out_w,2), x
 * before y, in [-1, 1]: those are the edges of the image, or with corners the centres of its outer
 * pixels (align_corners). torch.nn.functional.affine_grid. */
TSR_API tsr_tensor *tsr_affine_grid_at(tsr_tensor *theta, int64_t out_h, int64_t out_w,
                                       bool corners, const char *file, int line);
/* Returns the images x (n,c,h,w) at the places of a grid (n,out_h,out_w,2) as tsr_affine_grid makes
 * it, (n,c,out_h,out_w), with gradients of both. Places outside of the image are 0, with border the
 * nearest pixel's. torch.nn.functional.grid_sample. */
TSR_API tsr_tensor *tsr_grid_sample_at(tsr_tensor *x, tsr_tensor *grid, tsr_interpolation how,
                                       bool border, const char *file, int line);
/* Returns the windows of x (n,c,h,w) as columns, (n,c kh kw,windows): im2col, without dilation. */
TSR_API tsr_tensor *tsr_unfold_at(tsr_tensor *x, tsr_hw kernel, tsr_hw stride, tsr_hw padding,
                                  const char *file, int line);
/* Returns images (n,c,out_h,out_w) from their windows as columns, (n,c kh kw,windows), as
 * tsr_unfold gives them: what several windows have of a pixel is added. col2im, without dilation.
 */
TSR_API tsr_tensor *tsr_fold_at(tsr_tensor *x, int64_t out_h, int64_t out_w, tsr_hw kernel,
                                tsr_hw stride, tsr_hw padding, const char *file, int line);
/* Returns x (n,c,...) with each of its channels kept and divided by 1 - p, or all of it 0, with
 * probability p, 0 <= p < 1, in training graphs; x itself in others. PyTorch's dropout1d to 3d. */
TSR_API tsr_tensor *tsr_dropout2d_at(tsr_tensor *x, double p, const char *file, int line);

/* --- convolution ------------------------------------------------------------------------------ */
/* Three numbers along the depth, the height and the width of a volume: {1, 1, 1}, never {1}. */
typedef struct tsr_dhw {
    int d, h, w;
} tsr_dhw;

typedef struct tsr_conv1d_opts {
    size_t size;
    tsr_by_name by_name;
    int stride TSR_IS(1);     /* default 1 */
    int padding;              /* default 0 */
    int dilation TSR_IS(1);   /* default 1 */
    int64_t groups TSR_IS(1); /* default 1; C = depthwise */
} tsr_conv1d_opts;
#define TSR_CONV1D_OPTS(...) \
    TSR_OPTIONS(tsr_conv1d_opts, (.stride = 1, .dilation = 1, .groups = 1, ), __VA_ARGS__)
/* Returns the convolution of x (n,c,l) with w (o,c/groups,k), plus b (o) or NULL -> (n,o,l'). opts
 * may be NULL. */
TSR_API tsr_tensor *tsr_conv1d_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                                  const tsr_conv1d_opts *opts, const char *file, int line);

typedef struct tsr_conv3d_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_dhw stride TSR_IS({1, 1, 1});   /* default 1, 1, 1 */
    tsr_dhw padding;                    /* default 0, 0, 0 */
    tsr_dhw dilation TSR_IS({1, 1, 1}); /* default 1, 1, 1 */
    int64_t groups TSR_IS(1);           /* default 1; C = depthwise */
} tsr_conv3d_opts;
#define TSR_CONV3D_OPTS(...)                                                                  \
    TSR_OPTIONS(tsr_conv3d_opts, (.stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, ), \
                __VA_ARGS__)
/* Returns the convolution of x (n,c,d,h,w) with w (o,c/groups,kd,kh,kw), plus b (o) or NULL ->
 * (n,o,d',h',w'): tsr_conv2d of x's planes, each beside those kd - 1 that its windows reach, which
 * are copied. opts may be NULL. */
TSR_API tsr_tensor *tsr_conv3d_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                                  const tsr_conv3d_opts *opts, const char *file, int line);

/*
 * Transposed convolutions: the gradient of a convolution by its x, as a function of its own. A size
 * n becomes (n - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1. Along one and two
 * axes it is one op, conv2d_dx, after which a bias is added. Along three axes it is one convolution
 * of x, whose channels become every stride-th element of the result.
 */
typedef struct tsr_conv_transpose1d_opts {
    size_t size;
    tsr_by_name by_name;
    int stride TSR_IS(1);     /* default 1 */
    int padding;              /* default 0 */
    int output_padding;       /* default 0; below the stride or the dilation */
    int dilation TSR_IS(1);   /* default 1 */
    int64_t groups TSR_IS(1); /* default 1 */
} tsr_conv_transpose1d_opts;
#define TSR_CONV_TRANSPOSE1D_OPTS(...) \
    TSR_OPTIONS(tsr_conv_transpose1d_opts, (.stride = 1, .dilation = 1, .groups = 1, ), __VA_ARGS__)
/* Returns the transposed convolution of x (n,c,l) with w (c,o/groups,k), plus b (o) or NULL ->
 * (n,o,l'). opts may be NULL. */
TSR_API tsr_tensor *tsr_conv_transpose1d_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                                            const tsr_conv_transpose1d_opts *opts, const char *file,
                                            int line);

typedef struct tsr_conv_transpose2d_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_hw stride TSR_IS({1, 1});   /* default 1, 1 */
    tsr_hw padding;                 /* default 0, 0 */
    tsr_hw output_padding;          /* default 0, 0; below the stride or the dilation */
    tsr_hw dilation TSR_IS({1, 1}); /* default 1, 1 */
    int64_t groups TSR_IS(1);       /* default 1 */
} tsr_conv_transpose2d_opts;
#define TSR_CONV_TRANSPOSE2D_OPTS(...)                                                            \
    TSR_OPTIONS(tsr_conv_transpose2d_opts, (.stride = {1, 1}, .dilation = {1, 1}, .groups = 1, ), \
                __VA_ARGS__)
/* Returns the transposed convolution of x (n,c,h,w) with w (c,o/groups,kh,kw), plus b (o) or NULL
 * -> (n,o,h',w'). opts may be NULL. */
TSR_API tsr_tensor *tsr_conv_transpose2d_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                                            const tsr_conv_transpose2d_opts *opts, const char *file,
                                            int line);

typedef struct tsr_conv_transpose3d_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_dhw stride TSR_IS({1, 1, 1});   /* default 1, 1, 1 */
    tsr_dhw padding;                    /* default 0, 0, 0 */
    tsr_dhw output_padding;             /* default 0, 0, 0; below the stride or the dilation */
    tsr_dhw dilation TSR_IS({1, 1, 1}); /* default 1, 1, 1 */
    int64_t groups TSR_IS(1);           /* default 1 */
} tsr_conv_transpose3d_opts;
#define TSR_CONV_TRANSPOSE3D_OPTS(...)     \
    TSR_OPTIONS(tsr_conv_transpose3d_opts, \
                (.stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, ), __VA_ARGS__)
/* Returns the transposed convolution of x (n,c,d,h,w) with w (c,o/groups,kd,kh,kw), plus b (o) or
 * NULL -> (n,o,d',h',w'). opts may be NULL. */
TSR_API tsr_tensor *tsr_conv_transpose3d_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b,
                                            const tsr_conv_transpose3d_opts *opts, const char *file,
                                            int line);

/* --- pooling ---------------------------------------------------------------------------------- */
typedef struct tsr_pool1d_opts {
    size_t size;
    tsr_by_name by_name;
    int kernel;  /* needed */
    int stride;  /* default 0: the kernel */
    int padding; /* default 0; at most half the kernel */
    bool count_include_pad
        TSR_IS(true); /* avg: default true, as PyTorch; false: divide by what is inside */
} tsr_pool1d_opts;
#define TSR_POOL1D_OPTS(...) \
    TSR_OPTIONS(tsr_pool1d_opts, (.count_include_pad = true, ), __VA_ARGS__)
/* Returns the largest of each window of x (n,c,l); of equals the first has the gradient. */
TSR_API tsr_tensor *tsr_max_pool1d_at(tsr_tensor *x, const tsr_pool1d_opts *opts, const char *file,
                                      int line);
/* Returns the mean of each window of x (n,c,l). */
TSR_API tsr_tensor *tsr_avg_pool1d_at(tsr_tensor *x, const tsr_pool1d_opts *opts, const char *file,
                                      int line);

typedef struct tsr_pool3d_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_dhw kernel;  /* needed */
    tsr_dhw stride;  /* default (0, 0, 0): the kernel */
    tsr_dhw padding; /* default 0, 0, 0; at most half the kernel */
    bool count_include_pad
        TSR_IS(true); /* avg: default true, as PyTorch; false: divide by what is inside */
} tsr_pool3d_opts;
#define TSR_POOL3D_OPTS(...) \
    TSR_OPTIONS(tsr_pool3d_opts, (.count_include_pad = true, ), __VA_ARGS__)
/* Returns the largest of each window of x (n,c,d,h,w); of equals the first has the gradient. */
TSR_API tsr_tensor *tsr_max_pool3d_at(tsr_tensor *x, const tsr_pool3d_opts *opts, const char *file,
                                      int line);
/* Returns the mean of each window of x (n,c,d,h,w). */
TSR_API tsr_tensor *tsr_avg_pool3d_at(tsr_tensor *x, const tsr_pool3d_opts *opts, const char *file,
                                      int line);
/* Returns (sum of x^p)^(1/p) over each window of x (n,c,h,w); stride {0, 0}: the kernel. A sum
 * below 0 gives NaN unless 1/p is whole, as PyTorch's does. */
TSR_API tsr_tensor *tsr_lp_pool2d_at(tsr_tensor *x, double p, tsr_hw kernel, tsr_hw stride,
                                     const char *file, int line);

/* Adaptive pooling: out windows of n elements along each axis, which cover it. Window i goes from
 * element floor(i n / out) to before ceil((i + 1) n / out). */
/* Returns the means of x (n,c,l) in windows -> (n,c,out). */
TSR_API tsr_tensor *tsr_adaptive_avg_pool1d_at(tsr_tensor *x, int64_t out, const char *file,
                                               int line);
/* Returns the means of x (n,c,d,h,w) in windows -> (n,c,out_d,out_h,out_w). */
TSR_API tsr_tensor *tsr_adaptive_avg_pool3d_at(tsr_tensor *x, int64_t out_d, int64_t out_h,
                                               int64_t out_w, const char *file, int line);
/* Returns the largest of x (n,c,l) in windows -> (n,c,out). */
TSR_API tsr_tensor *tsr_adaptive_max_pool1d_at(tsr_tensor *x, int64_t out, const char *file,
                                               int line);
/* Returns the largest of x (n,c,h,w) in windows -> (n,c,out_h,out_w). */
TSR_API tsr_tensor *tsr_adaptive_max_pool2d_at(tsr_tensor *x, int64_t out_h, int64_t out_w,
                                               const char *file, int line);
/* Returns the largest of x (n,c,d,h,w) in windows -> (n,c,out_d,out_h,out_w). */
TSR_API tsr_tensor *tsr_adaptive_max_pool3d_at(tsr_tensor *x, int64_t out_d, int64_t out_h,
                                               int64_t out_w, const char *file, int line);

/* --- losses ----------------------------------------------------------------------------------- */
/* x and y have one shape; the mean is over all elements. y may have a gradient too. */
/* Returns |x - y|, reduced. */
TSR_API tsr_tensor *tsr_l1_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction,
                                   const char *file, int line);
/* Returns (x - y)^2 / (2 beta) where |x - y| < beta, else |x - y| - beta/2, reduced (PyTorch's
 * default beta: 1). */
TSR_API tsr_tensor *tsr_smooth_l1_loss_at(tsr_tensor *x, tsr_tensor *y, double beta,
                                          tsr_reduction reduction, const char *file, int line);
/* Returns (x - y)^2 / 2 where |x - y| < delta, else delta (|x - y| - delta/2), reduced (PyTorch's
 * default delta: 1). */
TSR_API tsr_tensor *tsr_huber_loss_at(tsr_tensor *x, tsr_tensor *y, double delta,
                                      tsr_reduction reduction, const char *file, int line);
/* Returns y (log y - x), reduced: x is a logarithm, and y one too where log_target is true; a term
 * with y = 0 is 0, one with y below 0 NaN. PyTorch's batchmean is the sum divided by the number of
 * rows. */
TSR_API tsr_tensor *tsr_kl_div_at(tsr_tensor *x, tsr_tensor *y, bool log_target,
                                  tsr_reduction reduction, const char *file, int line);
/* Returns -y log x - (1 - y) log(1 - x), reduced; logarithms are not below -100. */
TSR_API tsr_tensor *tsr_binary_cross_entropy_at(tsr_tensor *x, tsr_tensor *y,
                                                tsr_reduction reduction, const char *file,
                                                int line);
/* Returns -w y log s - (1 - y) log(1 - s), reduced, with s = sigmoid(x) of x of any size and w =
 * pos_weight, which broadcasts; NULL: 1. */
TSR_API tsr_tensor *tsr_binary_cross_entropy_with_logits_at(tsr_tensor *x, tsr_tensor *y,
                                                            tsr_tensor *pos_weight,
                                                            tsr_reduction reduction,
                                                            const char *file, int line);
/* Returns x where y is 1, max(0, margin - x) where y is -1, reduced. */
TSR_API tsr_tensor *tsr_hinge_embedding_loss_at(tsr_tensor *x, tsr_tensor *y, double margin,
                                                tsr_reduction reduction, const char *file,
                                                int line);
/* Returns max(0, -y (a - b) + margin), reduced; y is 1 or -1. */
TSR_API tsr_tensor *tsr_margin_ranking_loss_at(tsr_tensor *a, tsr_tensor *b, tsr_tensor *y,
                                               double margin, tsr_reduction reduction,
                                               const char *file, int line);
/* Returns log(1 + e^(-y x)), reduced; y is 1 or -1. */
TSR_API tsr_tensor *tsr_soft_margin_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction,
                                            const char *file, int line);
/* Returns e^x - y x, reduced: x is the logarithm of a Poisson rate. */
TSR_API tsr_tensor *tsr_poisson_nll_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction,
                                            const char *file, int line);
/* Returns (log v + (x - y)^2 / v) / 2, reduced, with v = max(variance, eps) (PyTorch's default eps:
 * 1e-6), through whose edge the gradient flows. */
TSR_API tsr_tensor *tsr_gaussian_nll_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_tensor *variance,
                                             double eps, tsr_reduction reduction, const char *file,
                                             int line);
/* Returns the cosine of the angle between a and b along an axis, which is dropped; each norm is at
 * least eps (PyTorch's default: 1e-8). */
TSR_API tsr_tensor *tsr_cosine_similarity_at(tsr_tensor *a, tsr_tensor *b, int axis, double eps,
                                             const char *file, int line);
/* Returns 1 - cos where y is 1, max(0, cos - margin) where y is -1, reduced, with the cosine of a
 * (n,d) and b (n,d); y (n). */
TSR_API tsr_tensor *tsr_cosine_embedding_loss_at(tsr_tensor *a, tsr_tensor *b, tsr_tensor *y,
                                                 double margin, tsr_reduction reduction,
                                                 const char *file, int line);
/* Returns max(0, |a - p| - |a - n| + margin), reduced, with the p-norm (power 2: Euclid's) of rows
 * (n,d), whose elements have 1e-6 added as PyTorch's have. */
TSR_API tsr_tensor *tsr_triplet_margin_loss_at(tsr_tensor *anchor, tsr_tensor *positive,
                                               tsr_tensor *negative, double margin, double power,
                                               tsr_reduction reduction, const char *file, int line);
/* Returns the mean over classes j other than the label y of max(0, margin - x_y + x_j)^power,
 * reduced; x (n,c), labels i64 (n), power 1 or 2 (PyTorch's defaults: 1, 1). A sum over classes is
 * divided by all c of them, as PyTorch does. */
TSR_API tsr_tensor *tsr_multi_margin_loss_at(tsr_tensor *x, tsr_tensor *labels, int power,
                                             double margin, tsr_reduction reduction,
                                             const char *file, int line);
/* Returns the p-norm of the difference of each two rows i < j of x (n,d), as torch.pdist orders
 * them, (n (n-1)/2); n is at most 4096. */
TSR_API tsr_tensor *tsr_pdist_at(tsr_tensor *x, double p, const char *file, int line);
typedef struct tsr_nll_loss_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_reduction reduction;
    tsr_tensor *weight; /* (c), of classes; a mean divides by the sum of the labels' */
    bool has_ignore_index;
    int64_t ignore_index; /* labels that count nothing */
} tsr_nll_loss_opts;
#define TSR_NLL_LOSS_OPTS(...) TSR_OPTIONS(tsr_nll_loss_opts, (), __VA_ARGS__)
/* Returns -x[i, label i] of logarithms x (n,c) and labels i64 (n), reduced. opts may be NULL. */
TSR_API tsr_tensor *tsr_nll_loss_at(tsr_tensor *x, tsr_tensor *labels,
                                    const tsr_nll_loss_opts *opts, const char *file, int line);

#ifdef __cplusplus
}
#endif

#include <tessera/functional_calls.h>

#endif
