/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of include/tessera/functional.h, in the form of op_table.h, which includes them. */
#ifndef TESSERA_CONFIG_FUNCTIONAL_TABLE_H
#define TESSERA_CONFIG_FUNCTIONAL_TABLE_H

/* clang-format off */
#define ONE_ROW(OP, name, doc) OP(name, "x", COMPUTE, tsr_##name##_at(I(0), AT), doc, )
#define TWO_ROW(OP, name, doc) OP(name, "x y", COMPUTE, tsr_##name##_at(I(0), I(1), AT), doc, )
#define REDUCE_BY ((tsr_reduction)A.reduction)
#define LOSS_ROW(OP, name, doc) \
    OP(name, "x y", COMPUTE, tsr_##name##_at(I(0), I(1), REDUCE_BY, AT), doc, REDUCTION)

/* Options along one, two and three axes. */
#define ONE(key, member, d, low, what) WHOLE(key, member[0], d, low, 0x1p31 - 1, what)
#define GROUPS WHOLE(groups, groups, "1", 1, 0x1p31, "as many as c: depthwise")
#define CONV(KIND, n) KIND(stride, stride##n, "1", 1, "") \
    KIND(padding, padding##n, "0", 0, "zeros around") KIND(dilation, dilation##n, "1", 1, "") GROUPS
#define CONV_TRANSPOSE(KIND, n) KIND(stride, stride##n, "1", 1, "") \
    KIND(padding, padding##n, "0", 0, "taken off") \
    KIND(output_padding, output_padding##n, "0", 0, "behind the last") \
    KIND(dilation, dilation##n, "1", 1, "") GROUPS
#define POOL(KIND, n) KIND(kernel, kernel##n, TSRI_NEEDED, 1, "the window") \
    KIND(stride, stride##n, TSRI_NONE, 1, "the kernel by default") \
    KIND(padding, padding##n, "0", 0, "at most half the kernel")
#define INCLUDE_PAD FLAG(count_include_pad, count_include_pad, "true", "padding counts")
#define WINDOWS(key) WHOLE(key, key, TSRI_NEEDED, 1, 0x1p24, "")

#define TSRI_FUNCTIONAL_TABLE(OP) \
    /* truth */ \
    ONE_ROW(OP, isnan, "Where x is not a number.") \
    ONE_ROW(OP, isinf, "Where x is infinite.") \
    ONE_ROW(OP, isfinite, "Where x is neither infinite nor NaN.") \
    ONE_ROW(OP, logical_not, "Where x is 0.") \
    TWO_ROW(OP, logical_and, "Where both are true.") \
    TWO_ROW(OP, logical_or, "Where one or both are true.") \
    TWO_ROW(OP, logical_xor, "Where one of both is true.") \
    OP(any, "x", COMPUTE, tsr_any_at(I(0), A.axes, A.keepdim, AT), "Whether any is true.", AXES) \
    OP(all, "x", COMPUTE, tsr_all_at(I(0), A.axes, A.keepdim, AT), "Whether all are true.", AXES) \
    OP(count_nonzero, "x", COMPUTE, tsr_count_nonzero_at(I(0), A.axes, AT), \
       "How many are not 0, as i64.", \
       TSRI_ATTR(axes, AXES, axes, TSRI_NONE, 0, 0, NULL, "which axes; all by default")) \
    OP(masked_fill, "x mask", COMPUTE, tsr_masked_fill_at(I(0), I(1), A.value_around, AT), \
       "A value where mask (bool) is true, else x.", NUMBER(value, value_around, TSRI_NEEDED, "")) \
    /* order */ \
    OP(kthvalue, "x", COMPUTE, declare_kthvalue(c), "The k-th smallest along an axis.", \
       WHOLE(k, n, TSRI_NEEDED, 1, 0x1p48, "") AXIS("-1") KEEPDIM IDS) \
    OP(median, "x", COMPUTE, declare_median(c), "The median along an axis.", \
       AXIS("-1") KEEPDIM IDS) \
    /* ids */ \
    OP(scatter, "x ids y", COMPUTE, tsr_scatter_at(I(0), (int)A.axis, I(1), I(2), AT), \
       "x with y put at ids i64 along an axis.", AXIS("0")) \
    OP(index_add, "x ids y", COMPUTE, tsr_index_add_at(I(0), (int)A.axis, I(1), I(2), AT), \
       "x with slices y added to those that ids number.", AXIS("0")) \
    OP(bincount, "ids", COMPUTE, tsr_bincount_at(I(0), A.n, AT), \
       "How often each number is there, as i64.", WHOLE(size, n, TSRI_NEEDED, 1, 0x1p48, "")) \
    /* activations and reductions */ \
    OP(prelu, "x w", COMPUTE, tsr_prelu_at(I(0), I(1), AT), \
       "x where x > 0, else w x, w (1) or (c).", ) \
    OP(glu, "x", COMPUTE, tsr_glu_at(I(0), (int)A.axis, AT), \
       "a sigmoid(b) of x's halves a and b.", AXIS("-1")) \
    ONE_ROW(OP, tanhshrink, "x - tanh(x).") \
    ONE_ROW(OP, logit, "log(x / (1 - x)).") \
    OP(softmin, "x", COMPUTE, tsr_softmin_at(I(0), (int)A.axis, AT), "softmax(-x).", AXIS("-1")) \
    OP(alpha_dropout, "x", COMPUTE, tsr_alpha_dropout_at(I(0), A.p, AT), \
       "Dropout that keeps selu's mean and variance.", NUMBER(p, p, "0.5", "")) \
    OP(feature_alpha_dropout, "x", COMPUTE, tsr_feature_alpha_dropout_at(I(0), A.p, AT), \
       "Dropout of whole channels that keeps selu's mean and variance.", NUMBER(p, p, "0.5", "")) \
    OP(rrelu, "x", COMPUTE, tsr_rrelu_at(I(0), A.a, A.scale, AT), \
       "x where x > 0, else x times a slope that is drawn.", NUMBER(low, a, "0.125", "") \
       NUMBER(high, scale, "0.3333333333333333", "")) \
    OP(gumbel_softmax, "x", COMPUTE, tsr_gumbel_softmax_at(I(0), A.a, A.causal, (int)A.axis, AT), \
       "softmax((x + noise) / tau).", NUMBER(tau, a, "1", "") \
       FLAG(hard, causal, "false", "1 at the largest") AXIS("-1")) \
    OP(logsumexp, "x", COMPUTE, tsr_logsumexp_at(I(0), A.axes, A.keepdim, AT), "log(sum e^x).", \
       AXES) \
    OP(argmin, "x", COMPUTE, tsr_argmin_at(I(0), (int)A.axis, AT), \
       "The index of the smallest, as i64.", AXIS("-1")) \
    /* products */ \
    TWO_ROW(OP, dot, "The sum of x y.") \
    TWO_ROW(OP, outer, "Each of x with each of y.") \
    OP(baddbmm, "c a b", COMPUTE, tsr_baddbmm_at(I(0), I(1), I(2), A.a, A.alpha, AT), \
       "beta c + alpha a b.", NUMBER(beta, a, "1", "") NUMBER(alpha, alpha, "1", "")) \
    OP(tensordot, "x y", COMPUTE, tsr_tensordot_at(I(0), I(1), A.axes, A.y_axes, AT), \
       "The sum of x y over pairs of axes.", \
       TSRI_ATTR(axes, AXES, axes, TSRI_NEEDED, 0, 0, NULL, "those of x") \
       TSRI_ATTR(y_axes, AXES, y_axes, TSRI_NEEDED, 0, 0, NULL, "those of y, in the same order")) \
    OP(einsum, "x...", COMPUTE, tsr_einsum_at(A.equation, c->nin, c->in, AT), \
       "The sum of products that an equation says.", \
       TSRI_ATTR(equation, TEXT, equation, TSRI_NEEDED, 0, 0, NULL, "like bij,bjk->bik")) \
    /* shape */ \
    OP(squeeze, "x", COMPUTE, tsr_squeeze_at(I(0), (int)A.axis, AT), "Drops an axis of size 1.", \
       AXIS(TSRI_NEEDED)) \
    OP(unsqueeze, "x", COMPUTE, tsr_unsqueeze_at(I(0), (int)A.axis, AT), \
       "Inserts an axis of size 1.", AXIS(TSRI_NEEDED)) \
    OP(roll, "x", COMPUTE, tsr_roll_at(I(0), (int)A.axis, A.start, AT), \
       "Moves elements along an axis.", AXIS("0") \
       WHOLE(shift, start, TSRI_NEEDED, -0x1p48, 0x1p48, "")) \
    OP(flip, "x", COMPUTE, tsr_flip_at(I(0), A.axes, AT), "Turns the order of elements round.", \
       TSRI_ATTR(axes, AXES, axes, TSRI_NONE, 0, 0, NULL, "which axes; all by default")) \
    OP(repeat, "x", COMPUTE, tsr_repeat_at(I(0), A.starts, AT), "Repeated, as NumPy's tile.", \
       TSRI_ATTR(counts, DIMS, starts, TSRI_NEEDED, 0, 0, NULL, "for each axis")) \
    OP(repeat_interleave, "x", COMPUTE, \
       tsr_repeat_interleave_at(I(0), (int)A.axis, A.n, AT), "Each slice n times.", AXIS("0") \
       WHOLE(n, n, TSRI_NEEDED, 1, 0x1p48, "")) \
    OP(pixel_shuffle, "x", COMPUTE, tsr_pixel_shuffle_at(I(0), A.n, AT), \
       "(n,c r^2,h,w) -> (n,c,h r,w r).", WHOLE(r, n, TSRI_NEEDED, 1, 4096, "")) \
    OP(pixel_unshuffle, "x", COMPUTE, tsr_pixel_unshuffle_at(I(0), A.n, AT), \
       "(n,c,h r,w r) -> (n,c r^2,h,w).", WHOLE(r, n, TSRI_NEEDED, 1, 4096, "")) \
    OP(channel_shuffle, "x", COMPUTE, tsr_channel_shuffle_at(I(0), A.groups, AT), \
       "Channels of groups dealt out in turn.", WHOLE(groups, groups, TSRI_NEEDED, 1, 0x1p48, "")) \
    /* normalisation */ \
    OP(group_norm, "x gamma? beta?", COMPUTE, \
       tsr_group_norm_at(I(0), A.groups, I(1), I(2), A.eps, AT), \
       "Groups of channels of x (n,c,...).", \
       WHOLE(groups, groups, TSRI_NEEDED, 1, 0x1p48, "") NUMBER(eps, eps, "1e-5", "")) \
    OP(rms_norm, "x gamma?", COMPUTE, tsr_rms_norm_at(I(0), I(1), A.eps, AT), \
       "x / sqrt(mean x^2 + eps) gamma.", NUMBER(eps, eps, "1e-5", "")) \
    OP(normalize, "x", COMPUTE, tsr_normalize_at(I(0), (int)A.axis, A.eps, AT), \
       "x / max(its norm, eps).", AXIS("1") NUMBER(eps, eps, "1e-12", "")) \
    OP(local_response_norm, "x", COMPUTE, \
       tsr_local_response_norm_at(I(0), A.n, A.alpha, A.a, A.p, AT), \
       "x / (k + alpha mean x^2 of near channels)^beta.", WHOLE(size, n, TSRI_NEEDED, 1, 64, "") \
       NUMBER(alpha, alpha, "1e-4", "") NUMBER(beta, a, "0.75", "") NUMBER(k, p, "1", "")) \
    /* positions */ \
    OP(rotary_embedding, "x", COMPUTE, \
       tsr_rotary_embedding_at(I(0), A.a, A.start, A.causal, AT), \
       "x (...,s,d) with pairs of features turned by their position.", \
       NUMBER(base, a, "10000", "") \
       WHOLE(first, start, "0", -0x1p48, 0x1p48, "the first position") \
       FLAG(interleaved, causal, "false", "pairs are 2i and 2i + 1; false: i and i + d/2")) \
    /* images */ \
    OP(interpolate, "x", COMPUTE, \
       tsr_interpolate_at(I(0), A.out_h, A.out_w, (tsr_interpolation)A.form, AT), \
       "Images (n,c,h,w) in another size.", WHOLE(out_h, out_h, TSRI_NEEDED, 1, 0x1p24, "") \
       WHOLE(out_w, out_w, TSRI_NEEDED, 1, 0x1p24, "") \
       ONE_OF(how, form, "nearest", interpolation_words, "")) \
    OP(affine_grid, "theta", COMPUTE, \
       tsr_affine_grid_at(I(0), A.out_h, A.out_w, A.causal, AT), \
       "Where maps (n,2,3) take pixels, (n,h,w,2).", \
       WHOLE(out_h, out_h, TSRI_NEEDED, 1, 0x1p24, "") \
       WHOLE(out_w, out_w, TSRI_NEEDED, 1, 0x1p24, "") \
       FLAG(corners, causal, "false", "1 is the centre of a pixel")) \
    OP(grid_sample, "x grid", COMPUTE, \
       tsr_grid_sample_at(I(0), I(1), (tsr_interpolation)A.form, A.causal, AT), \
       "Images at places (n,h,w,2).", ONE_OF(how, form, "bilinear", interpolation_words, "") \
       FLAG(border, causal, "false", "outside is the nearest pixel, not 0")) \
    OP(unfold, "x", COMPUTE, tsr_unfold_at(I(0), hw_of(A.kernel), hw_of(A.stride), \
       hw_of(A.padding), AT), \
       "Windows as columns, (n,c kh kw,windows).", PAIR(kernel, kernel, TSRI_NEEDED, 1, "") \
       PAIR(stride, stride, "1", 1, "") PAIR(padding, padding, "0", 0, "")) \
    OP(fold, "x", COMPUTE, tsr_fold_at(I(0), A.out_h, A.out_w, hw_of(A.kernel), hw_of(A.stride), \
       hw_of(A.padding), AT), \
       "Images (n,c,out_h,out_w) from windows as columns.", WINDOWS(out_h) WINDOWS(out_w) \
       PAIR(kernel, kernel, TSRI_NEEDED, 1, "") PAIR(stride, stride, "1", 1, "") \
       PAIR(padding, padding, "0", 0, "")) \
    OP(dropout2d, "x", COMPUTE, tsr_dropout2d_at(I(0), A.p, AT), \
       "Zeroes channels of x (n,c,...), with `loss`; else x.", \
       TSRI_ATTR(p, FLOAT, p, "0.5", 0, 0.999999999, NULL, "the probability")) \
    /* convolution */ \
    OP(conv1d, "x w b?", COMPUTE, declare_conv1d(c), \
       "(n,c,l), (o,c/groups,k), (o) -> (n,o,l')", CONV(ONE, )) \
    OP(conv3d, "x w b?", COMPUTE, declare_conv3d(c), \
       "(n,c,d,h,w), (o,c/groups,kd,kh,kw), (o) -> (n,o,d',h',w')", CONV(TRIPLE, 3)) \
    OP(conv_transpose1d, "x w b?", COMPUTE, declare_conv_transpose1d(c), \
       "(n,c,l), (c,o/groups,k), (o) -> (n,o,l')", CONV_TRANSPOSE(ONE, )) \
    OP(conv_transpose2d, "x w b?", COMPUTE, declare_conv_transpose2d(c), \
       "(n,c,h,w), (c,o/groups,kh,kw), (o) -> (n,o,h',w')", CONV_TRANSPOSE(PAIR, )) \
    OP(conv_transpose3d, "x w b?", COMPUTE, declare_conv_transpose3d(c), \
       "(n,c,d,h,w), (c,o/groups,kd,kh,kw), (o) -> (n,o,d',h',w')", CONV_TRANSPOSE(TRIPLE, 3)) \
    /* pooling */ \
    OP(max_pool1d, "x", COMPUTE, declare_pool1d(c, tsr_max_pool1d_at), "Largest in a window.", \
       POOL(ONE, )) \
    OP(avg_pool1d, "x", COMPUTE, declare_pool1d(c, tsr_avg_pool1d_at), "Mean of a window.", \
       POOL(ONE, ) INCLUDE_PAD) \
    OP(max_pool3d, "x", COMPUTE, declare_pool3d(c, tsr_max_pool3d_at), "Largest in a window.", \
       POOL(TRIPLE, 3)) \
    OP(avg_pool3d, "x", COMPUTE, declare_pool3d(c, tsr_avg_pool3d_at), "Mean of a window.", \
       POOL(TRIPLE, 3) INCLUDE_PAD) \
    OP(lp_pool2d, "x", COMPUTE, tsr_lp_pool2d_at(I(0), A.p, hw_of(A.kernel), hw_of(A.stride), AT), \
       "(sum x^p)^(1/p) of a window.", NUMBER(p, p, TSRI_NEEDED, "the norm") \
       PAIR(kernel, kernel, TSRI_NEEDED, 1, "the window") \
       PAIR(stride, stride, TSRI_NONE, 1, "the kernel by default")) \
    OP(adaptive_avg_pool1d, "x", COMPUTE, tsr_adaptive_avg_pool1d_at(I(0), A.n, AT), \
       "Means of `out` windows.", WHOLE(out, n, TSRI_NEEDED, 1, 0x1p24, "")) \
    OP(adaptive_avg_pool3d, "x", COMPUTE, \
       tsr_adaptive_avg_pool3d_at(I(0), A.out_d, A.out_h, A.out_w, AT), \
       "Means of out_d x out_h x out_w windows.", WINDOWS(out_d) WINDOWS(out_h) WINDOWS(out_w)) \
    OP(adaptive_max_pool1d, "x", COMPUTE, tsr_adaptive_max_pool1d_at(I(0), A.n, AT), \
       "Largest of `out` windows.", WHOLE(out, n, TSRI_NEEDED, 1, 0x1p24, "")) \
    OP(adaptive_max_pool2d, "x", COMPUTE, tsr_adaptive_max_pool2d_at(I(0), A.out_h, A.out_w, AT), \
       "Largest of out_h x out_w windows.", WINDOWS(out_h) WINDOWS(out_w)) \
    OP(adaptive_max_pool3d, "x", COMPUTE, \
       tsr_adaptive_max_pool3d_at(I(0), A.out_d, A.out_h, A.out_w, AT), \
       "Largest of out_d x out_h x out_w windows.", WINDOWS(out_d) WINDOWS(out_h) WINDOWS(out_w)) \
    /* losses */ \
    LOSS_ROW(OP, l1_loss, "|x - y|.") \
    OP(smooth_l1_loss, "x y", COMPUTE, tsr_smooth_l1_loss_at(I(0), I(1), A.a, REDUCE_BY, AT), \
       "Squares below beta, sizes above.", NUMBER(beta, a, "1", "") REDUCTION) \
    OP(huber_loss, "x y", COMPUTE, tsr_huber_loss_at(I(0), I(1), A.a, REDUCE_BY, AT), \
       "Squares below delta, sizes above.", NUMBER(delta, a, "1", "") REDUCTION) \
    OP(kl_div, "x y", COMPUTE, tsr_kl_div_at(I(0), I(1), A.causal, REDUCE_BY, AT), \
       "y (log y - x).", FLAG(log_target, causal, "false", "y is a logarithm too") REDUCTION) \
    LOSS_ROW(OP, binary_cross_entropy, "-y log x - (1 - y) log(1 - x).") \
    OP(binary_cross_entropy_with_logits, "x y pos_weight?", COMPUTE, \
       tsr_binary_cross_entropy_with_logits_at(I(0), I(1), I(2), REDUCE_BY, AT), \
       "-w y log s - (1 - y) log(1 - s), s = sigmoid(x).", REDUCTION) \
    OP(hinge_embedding_loss, "x y", COMPUTE, \
       tsr_hinge_embedding_loss_at(I(0), I(1), A.a, REDUCE_BY, AT), \
       "x where y is 1, max(0, margin - x) where it is -1.", NUMBER(margin, a, "1", "") REDUCTION) \
    OP(margin_ranking_loss, "a b y", COMPUTE, \
       tsr_margin_ranking_loss_at(I(0), I(1), I(2), A.a, REDUCE_BY, AT), \
       "max(0, -y (a - b) + margin).", NUMBER(margin, a, "0", "") REDUCTION) \
    LOSS_ROW(OP, soft_margin_loss, "log(1 + e^(-y x)).") \
    LOSS_ROW(OP, poisson_nll_loss, "e^x - y x.") \
    OP(gaussian_nll_loss, "x y variance", COMPUTE, \
       tsr_gaussian_nll_loss_at(I(0), I(1), I(2), A.eps, REDUCE_BY, AT), \
       "(log v + (x - y)^2 / v) / 2.", NUMBER(eps, eps, "1e-6", "") REDUCTION) \
    OP(cosine_similarity, "a b", COMPUTE, \
       tsr_cosine_similarity_at(I(0), I(1), (int)A.axis, A.eps, AT), \
       "The cosine of the angle along an axis.", AXIS("1") NUMBER(eps, eps, "1e-8", "")) \
    OP(cosine_embedding_loss, "a b y", COMPUTE, \
       tsr_cosine_embedding_loss_at(I(0), I(1), I(2), A.a, REDUCE_BY, AT), \
       "1 - cos where y is 1, max(0, cos - margin) where it is -1.", \
       NUMBER(margin, a, "0", "") REDUCTION) \
    OP(triplet_margin_loss, "anchor positive negative", COMPUTE, \
       tsr_triplet_margin_loss_at(I(0), I(1), I(2), A.a, A.p, REDUCE_BY, AT), \
       "max(0, |a - p| - |a - n| + margin).", NUMBER(margin, a, "1", "") \
       NUMBER(power, p, "2", "of the norm") REDUCTION) \
    OP(multi_margin_loss, "x labels", COMPUTE, \
       tsr_multi_margin_loss_at(I(0), I(1), (int)A.n, A.a, REDUCE_BY, AT), \
       "The mean of max(0, margin - x_y + x_j)^power.", WHOLE(power, n, "1", 1, 2, "") \
       NUMBER(margin, a, "1", "") REDUCTION) \
    OP(pdist, "x", COMPUTE, tsr_pdist_at(I(0), A.p, AT), \
       "The norms of the differences of rows i < j.", NUMBER(p, p, "2", "of the norm")) \
    OP(nll_loss, "x labels weight?", COMPUTE, declare_nll_loss(c), "-x at the label.", REDUCTION \
       WHOLE(ignore_index, ignore_index, TSRI_NONE, -0x1p48, 0x1p48, "a label that counts nothing"))
/* clang-format on */

#endif
