/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row per op: OP(name, operands, role, call, doc, attributes). `x?` is an operand that may be
 * left out, `x...` any number. In the call, I(n) is an operand, A the entry's attributes, AT the
 * entry's place in the file. An attribute is KIND(key, member, ...) as the macros below say.
 */
#ifndef TESSERA_CONFIG_OP_TABLE_H
#define TESSERA_CONFIG_OP_TABLE_H

#include "src/core/binary_list.h"
#include "src/core/unary_list.h"

#include "src/config/functional_table.h"

/* clang-format off */
#define AT (c->file), (c->line)
#define I(n) (c->in[n])
#define A (*c->op)
#define SUM_OPTS TSR_SUM_OPTS(.dtype = A.sum_dtype)

#define AXES TSRI_ATTR(axes, AXES, axes, TSRI_NONE, 0, 0, NULL, "which axes; all by default") \
    TSRI_ATTR(keepdim, BOOL, keepdim, "false", 0, 0, NULL, "keep them, with size 1")
#define SUM_DTYPE TSRI_ATTR(dtype, DTYPE, sum_dtype, TSRI_NONE, 0, 0, NULL, \
       "of the result; default: x's, i64 of whole numbers and bools")
#define KEEPDIM TSRI_ATTR(keepdim, BOOL, keepdim, "false", 0, 0, NULL, "keep it, with size 1")
#define AXIS(d) TSRI_ATTR(axis, INT, axis, d, -8, 7, NULL, "the axis; negative: from the end")
#define NUMBER(key, member, d, what) TSRI_ATTR(key, FLOAT, member, d, 0, 0, NULL, what)
#define WHOLE(key, member, d, low, high, what) TSRI_ATTR(key, INT, member, d, low, high, NULL, what)
#define FLAG(key, member, d, what) TSRI_ATTR(key, BOOL, member, d, 0, 0, NULL, what)
#define PAIR(key, member, d, low, what) TSRI_ATTR(key, PAIR, member, d, low, 0, NULL, what)
#define TRIPLE(key, member, d, low, what) TSRI_ATTR(key, TRIPLE, member, d, low, 0, NULL, what)
#define ONE_OF(key, member, d, words, what) TSRI_ATTR(key, WORD, member, d, 0, 0, words, what)
#define SHAPE(need) TSRI_ATTR(shape, SHAPE, shape, need, 0, 0, NULL, "the global shape")
#define DTYPE TSRI_ATTR(dtype, DTYPE, dtype, TSRI_NONE, 0, 0, NULL, "default: the file's `dtype`")
#define REDUCTION ONE_OF(reduction, reduction, "mean", reduction_words, "over the rows")
#define CORRECTION NUMBER(correction, correction, "1", \
       "taken from the count: 1 of a sample, 0 of all")
#define IDS FLAG(ids, ids, "false", "give their indices, i64, instead")
#define DESCENDING FLAG(descending, descending, "false", "the largest first")
#define PER_AXIS(key, what) TSRI_ATTR(key, DIMS, key, TSRI_NONE, 0, 0, NULL, what)
#define DIAGONAL WHOLE(diagonal, diagonal, "0", -0x1p48, 0x1p48, \
       "that of the matrix is 0; above, 1")
#define VALUES \
    TSRI_ATTR(value, ANY, value, TSRI_NONE, 0, 0, NULL, "numbers in nested lists, or one number") \
    TSRI_ATTR(file, PATH, file, TSRI_NONE, 0, 0, NULL, "a .npy file") \
    TSRI_ATTR(fill, FLOAT, fill, TSRI_NONE, 0, 0, NULL, "this number everywhere; needs `shape`") \
    TSRI_ATTR(arange, FLOATS, arange, TSRI_NONE, 0, 1, NULL, \
              "[start, step]: start + step * index, row by row; true is [0, 1]; needs `shape`") \
    TSRI_ATTR(normal, FLOATS, normal, TSRI_NONE, 0, 1, NULL, \
              "[mean, std] of random numbers; true is [0, 1]; needs `shape`") \
    TSRI_ATTR(uniform, FLOATS, uniform, TSRI_NONE, 0, 1, NULL, \
              "[low, high) of random numbers; true is [0, 1]; needs `shape`") \
    TSRI_ATTR(shape, SHAPE, shape, TSRI_NONE, 0, 0, NULL, \
              "the global shape; with `file` what it must be, and what planning without it takes")

/* The rows of functions in src/core/unary_list.h and binary_list.h. */
#define UNARY_ROW(OP, FN, name, gets, cost, by, forward, gradient, doc) \
    OP(name, "x", COMPUTE, tsr_##name##_at(I(0), AT), doc, )

#define ARITHMETIC_ROW(OP, FN, name, takes, rule, cost, by, real, whole, doc) \
    OP(name, "x y", COMPUTE, tsr_##name##_at(I(0), I(1), AT), doc, )
#define COMPARISON_ROW(OP, FN, name, less, equal, greater, none, doc) \
    OP(name, "x y", COMPUTE, tsr_##name##_at(I(0), I(1), AT), doc, )

#define TSRI_OP_TABLE(OP) \
    /* sources */ \
    OP(constant, NULL, CONSTANT, NULL, \
       "A value. One of value, file, fill, arange, normal and uniform says which.", VALUES DTYPE) \
    OP(from_local, NULL, FROM_LOCAL, NULL, \
       "A value of which each rank of the placement gives its part: the shard of S(i), the " \
       "addend of P; of B the first one's counts.", \
       TSRI_ATTR(locals, ANY, locals, TSRI_NEEDED, 0, 0, NULL, \
                 "a list with one value, or .npy file, for each rank of the placement, in its " \
       "order") \
       TSRI_ATTR(shape, SHAPE, shape, TSRI_NONE, 0, 0, NULL, \
                 "the global shape; needed to plan without the files") DTYPE) \
    OP(parameter, NULL, PARAMETER, NULL, \
       "A variable, which gradients can be taken of, and which `optimizer` trains. Its first " \
       "value is given as a constant's is.", \
       VALUES DTYPE FLAG(trained, trained, "true", "false: the optimizer leaves it")) \
    OP(input, NULL, INPUT, NULL, \
       "A field of the batch that `data` gives in each step, S(0) in each dimension by default.", \
       ONE_OF(field, field, TSRI_NEEDED, input_words, \
       "x: the samples, (rows, channels, height, width); y: their labels, i64 (rows)")) \
    OP(normal, NULL, SOURCE, tsr_normal_at(c->graph, c->name, A.dtype, A.shape, c->placement, \
       c->sbp, A.mean, A.std, AT), \
       "Normal random numbers, by the seed of `train` and the entry's name.", \
       SHAPE(TSRI_NEEDED) NUMBER(mean, mean, "0", "") \
       TSRI_ATTR(std, FLOAT, std, "1", 0, INFINITY, NULL, "standard deviation") DTYPE) \
    OP(uniform, NULL, SOURCE, tsr_uniform_at(c->graph, c->name, A.dtype, A.shape, c->placement, \
       c->sbp, A.low, A.high, AT), \
       "Random numbers from low to below high, by the seed of `train` and the entry's name.", \
       SHAPE(TSRI_NEEDED) NUMBER(low, low, "0", "") NUMBER(high, high, "1", "") DTYPE) \
    OP(full, NULL, SOURCE, tsr_full_at(c->graph, A.dtype, A.shape, c->placement, c->sbp, A.fill, \
       AT), \
       "One number everywhere.", SHAPE(TSRI_NEEDED) NUMBER(value, fill, TSRI_NEEDED, \
       "the number") DTYPE) \
    OP(arange, NULL, SOURCE, \
       tsr_arange_at(c->graph, A.dtype, A.n, A.arange_start, A.arange_step, c->placement, \
       c->sbp, AT), \
       "n numbers: start, start + step, ...", WHOLE(n, n, TSRI_NEEDED, 0, 0x1p48, "how many") \
       NUMBER(start, arange_start, "0", "") NUMBER(step, arange_step, "1", "") DTYPE) \
    /* placement */ \
    OP(to_global, "x", TO_GLOBAL, tsr_to_global_at(I(0), c->placement, c->sbp, AT), \
       "The same value where `placement` and `sbp` say.", \
       TSRI_ATTR(gradient, SBP, gradient, TSRI_NONE, 0, 0, NULL, \
                 "the signature that its gradient is brought into")) \
    /* element-wise */ \
    OP(neg, "x", COMPUTE, tsr_neg_at(I(0), AT), "-x", ) \
    TSRI_UNARY_PLAIN_LIST(UNARY_ROW, OP) \
    OP(gelu, "x", COMPUTE, tsr_gelu_at(I(0), (tsr_gelu_form)A.form, AT), \
       "x times the normal distribution function.", \
       ONE_OF(form, form, "erf", gelu_words, "exact, or approximated")) \
    OP(leaky_relu, "x", COMPUTE, tsr_leaky_relu_at(I(0), A.slope, AT), \
       "x where x > 0, else slope x.", NUMBER(slope, slope, "0.01", "")) \
    OP(elu, "x", COMPUTE, tsr_elu_at(I(0), A.alpha, AT), \
       "x where x > 0, else alpha (e^x - 1).", NUMBER(alpha, alpha, "1", "")) \
    OP(celu, "x", COMPUTE, tsr_celu_at(I(0), A.alpha, AT), \
       "x where x > 0, else alpha (e^(x/alpha) - 1).", NUMBER(alpha, alpha, "1", "")) \
    OP(softshrink, "x", COMPUTE, tsr_softshrink_at(I(0), A.edge, AT), \
       "x brought nearer to 0 by edge.", NUMBER(edge, edge, "0.5", "")) \
    OP(hardshrink, "x", COMPUTE, tsr_hardshrink_at(I(0), A.edge, AT), \
       "x, but 0 from -edge to edge.", NUMBER(edge, edge, "0.5", "")) \
    OP(clamp, "x", COMPUTE, declare_clamp(c), \
       "min(max(x, low), high).", \
       NUMBER(low, low, TSRI_NONE, "default: none") \
       NUMBER(high, high, TSRI_NONE, "default: none")) \
    OP(hardtanh, "x", COMPUTE, tsr_hardtanh_at(I(0), A.low, A.high, AT), \
       "The same, with no gradient at both edges.", \
       NUMBER(low, low, "-1", "") NUMBER(high, high, "1", "")) \
    OP(threshold, "x", COMPUTE, tsr_threshold_at(I(0), A.edge, A.value_around, AT), \
       "x where x > edge, else value.", \
       NUMBER(edge, edge, TSRI_NEEDED, "") NUMBER(value, value_around, TSRI_NEEDED, "")) \
    OP(pow_scalar, "x", COMPUTE, tsr_pow_scalar_at(I(0), A.p, AT), "x^p", NUMBER(p, p, \
       TSRI_NEEDED, "the exponent")) \
    OP(add_scalar, "x", COMPUTE, tsr_add_scalar_at(I(0), A.a, AT), "x + a", NUMBER(a, a, \
       TSRI_NEEDED, "the number")) \
    OP(sub_scalar, "x", COMPUTE, tsr_sub_scalar_at(I(0), A.a, AT), "x - a", NUMBER(a, a, \
       TSRI_NEEDED, "the number")) \
    OP(mul_scalar, "x", COMPUTE, tsr_mul_scalar_at(I(0), A.a, AT), "x a", NUMBER(a, a, \
       TSRI_NEEDED, "the number")) \
    OP(div_scalar, "x", COMPUTE, tsr_div_scalar_at(I(0), A.a, AT), "x / a", NUMBER(a, a, \
       TSRI_NEEDED, "the number")) \
    OP(rdiv_scalar, "x", COMPUTE, tsr_rdiv_scalar_at(I(0), A.a, AT), "a / x", NUMBER(a, a, \
       TSRI_NEEDED, "the number")) \
    OP(cast, "x", COMPUTE, tsr_cast_at(I(0), A.dtype, AT), "Another dtype.", \
       TSRI_ATTR(dtype, DTYPE, dtype, TSRI_NEEDED, 0, 0, NULL, "the new one")) \
    /* two operands */ \
    TSRI_ARITHMETIC_CALLS(ARITHMETIC_ROW, OP) \
    TSRI_COMPARISON_LIST(COMPARISON_ROW, OP) \
    OP(where, "cond x y", COMPUTE, tsr_where_at(I(0), I(1), I(2), AT), \
       "x where cond (bool) is true, else y.", ) \
    /* reductions */ \
    OP(sum, "x", COMPUTE, tsr_sum_with_at(I(0), A.axes, A.keepdim, SUM_OPTS, AT), \
       "Sum over axes.", AXES SUM_DTYPE) \
    OP(mean, "x", COMPUTE, tsr_mean_at(I(0), A.axes, A.keepdim, AT), \
       "Mean over axes, by the global count.", AXES) \
    OP(max, "x", COMPUTE, tsr_max_at(I(0), A.axes, A.keepdim, AT), "Largest over axes.", AXES) \
    OP(min, "x", COMPUTE, tsr_min_at(I(0), A.axes, A.keepdim, AT), "Smallest over axes.", AXES) \
    OP(prod, "x", COMPUTE, tsr_prod_with_at(I(0), A.axes, A.keepdim, SUM_OPTS, AT), \
       "Product over axes.", AXES SUM_DTYPE) \
    OP(norm, "x", COMPUTE, tsr_norm_at(I(0), A.p, A.axes, A.keepdim, AT), "(sum |x|^p)^(1/p)", \
       NUMBER(p, p, "2", "above 0") AXES) \
    OP(argmax, "x", COMPUTE, tsr_argmax_at(I(0), (int)A.axis, AT), \
       "Where the largest is, as i64.", AXIS(TSRI_NEEDED)) \
    OP(cumsum, "x", COMPUTE, tsr_cumsum_with_at(I(0), (int)A.axis, SUM_OPTS, AT), \
       "Running sum.", AXIS(TSRI_NEEDED) SUM_DTYPE) \
    OP(cumprod, "x", COMPUTE, tsr_cumprod_at(I(0), (int)A.axis, AT), "Running product.", \
       AXIS(TSRI_NEEDED)) \
    OP(logcumsumexp, "x", COMPUTE, tsr_logcumsumexp_at(I(0), (int)A.axis, AT), \
       "log of the running sum of e^x.", AXIS(TSRI_NEEDED)) \
    OP(cummax, "x", COMPUTE, declare_cummax(c), "Largest so far.", AXIS(TSRI_NEEDED) IDS) \
    OP(cummin, "x", COMPUTE, declare_cummin(c), "Smallest so far.", AXIS(TSRI_NEEDED) IDS) \
    OP(argsort, "x", COMPUTE, tsr_argsort_at(I(0), (int)A.axis, A.descending, AT), \
       "The indices that sort x, as i64.", AXIS("-1") DESCENDING) \
    OP(sort, "x", COMPUTE, declare_sort(c), "x in order.", AXIS("-1") DESCENDING IDS) \
    OP(topk, "x", COMPUTE, declare_topk(c), "The k largest, in order.", \
       WHOLE(k, n, TSRI_NEEDED, 0, 0x1p48, "") AXIS("-1") \
       FLAG(largest, largest, "true", "false: the smallest") IDS) \
    OP(variance, "x", COMPUTE, tsr_variance_at(I(0), A.axes, A.keepdim, A.correction, AT), \
       "Mean square about the mean.", AXES CORRECTION) \
    OP(std, "x", COMPUTE, tsr_std_at(I(0), A.axes, A.keepdim, A.correction, AT), "Its root.", \
       AXES CORRECTION) \
    /* products */ \
    OP(matmul, "a b", COMPUTE, tsr_matmul_at(I(0), I(1), AT), \
       "(...,m,k) x (...,k,n) -> (...,m,n); axes in front are a batch, and broadcast.", ) \
    OP(matmul_t, "a b", COMPUTE, tsr_matmul_t_at(I(0), I(1), A.ta, A.tb, AT), \
       "The product of transposes.", \
       FLAG(ta, ta, "false", "a is (k,m)") FLAG(tb, tb, "false", "b is (n,k)")) \
    OP(linear, "x w b?", COMPUTE, tsr_linear_at(I(0), I(1), I(2), AT), \
       "(...,k), (n,k), (n) -> (...,n)", ) \
    /* convolution and pooling */ \
    OP(conv2d, "x w b?", COMPUTE, declare_conv2d(c), \
       "(n,c,h,w), (o,c/groups,kh,kw), (o) -> (n,o,h',w')", \
       PAIR(stride, stride, "1", 1, "") PAIR(padding, padding, "0", 0, "zeros around") \
       PAIR(dilation, dilation, "1", 1, "") WHOLE(groups, groups, "1", 1, 0x1p31, \
       "as many as c: depthwise")) \
    OP(max_pool2d, "x", COMPUTE, declare_pool2d(c, tsr_max_pool2d_at), "Largest in a window.", \
       PAIR(kernel, kernel, TSRI_NEEDED, 1, "the window") PAIR(stride, stride, TSRI_NONE, 1, \
       "the kernel by default") \
       PAIR(padding, padding, "0", 0, "at most half the kernel")) \
    OP(avg_pool2d, "x", COMPUTE, declare_pool2d(c, tsr_avg_pool2d_at), "Mean of a window.", \
       PAIR(kernel, kernel, TSRI_NEEDED, 1, "the window") PAIR(stride, stride, TSRI_NONE, 1, \
       "the kernel by default") \
       PAIR(padding, padding, "0", 0, "at most half the kernel") \
       FLAG(count_include_pad, count_include_pad, "true", "padding counts")) \
    OP(adaptive_avg_pool2d, "x", COMPUTE, tsr_adaptive_avg_pool2d_at(I(0), A.out_h, A.out_w, AT), \
       "Means of windows of which there are out_h x out_w.", \
       WHOLE(out_h, out_h, TSRI_NEEDED, 1, 0x1p31, "") WHOLE(out_w, out_w, TSRI_NEEDED, 1, \
       0x1p31, "")) \
    /* normalisation */ \
    OP(batch_norm, "x gamma beta running_mean? running_var?", COMPUTE, declare_batch_norm(c), \
       "Batch norm of (n,c,h,w) or (n,c). With `loss` the statistics are x's own.", \
       NUMBER(eps, eps, "1e-5", "") NUMBER(momentum, momentum, "0.1", "of the running averages") \
       ONE_OF(stats, stats, "global", bn_words, "over the global batch, or `parts` of it") \
       WHOLE(parts, parts, TSRI_NONE, 1, 65536, \
       "virtual batches of local statistics; the ranks by default")) \
    OP(layer_norm, "x gamma? beta?", COMPUTE, declare_layer_norm(c), \
       "x (...,f...) by rows, times gamma (f...) plus beta (f...).", \
       NUMBER(eps, eps, "1e-5", "") WHOLE(axes, axis, "1", 1, 8, \
       "the trailing ones that are a row")) \
    OP(softmax, "x", COMPUTE, tsr_softmax_at(I(0), (int)A.axis, AT), "Softmax along an axis.", \
       AXIS("-1")) \
    OP(log_softmax, "x", COMPUTE, tsr_log_softmax_at(I(0), (int)A.axis, AT), "Its logarithm.", \
       AXIS("-1")) \
    /* attention */ \
    OP(causal_mask, "x", COMPUTE, declare_causal_mask(c), \
       "x (...,s,t) where column <= row + diagonal, else value.", \
       DIAGONAL NUMBER(value, value_around, TSRI_NONE, "default: minus infinity")) \
    OP(attention, "q k v", COMPUTE, declare_attention(c), \
       "softmax(scale q k^T) v of q (b,h,s,d), k (b,h,t,d), v (b,h,t,e).", \
       FLAG(causal, causal, "false", "query s sees keys 0 to s") NUMBER(scale, scale, TSRI_NONE, \
       "default: 1/sqrt(d)") \
       TSRI_ATTR(dropout, FLOAT, p, "0", 0, 0.999999999, NULL, "of the weights, with `loss`")) \
    OP(scaled_dot_product_attention, "q k v mask?", COMPUTE, declare_flash_attention(c), \
       "Attention that holds no scores; mask: of bool, or added to them.", \
       FLAG(causal, causal, "false", "query s sees keys 0 to s") NUMBER(scale, scale, TSRI_NONE, \
       "default: 1/sqrt(d)") \
       TSRI_ATTR(dropout, FLOAT, p, "0", 0, 0.999999999, NULL, "of the weights, with `loss`")) \
    /* losses */ \
    OP(cross_entropy, "logits labels", COMPUTE, declare_cross_entropy(c), \
       "Of logits (n,c) and labels i64 (n).", REDUCTION \
       TSRI_ATTR(label_smoothing, FLOAT, label_smoothing, "0", 0, 0.999999, NULL, "") \
       WHOLE(ignore_index, ignore_index, TSRI_NONE, -0x1p62, 0x1p62, \
       "a label that counts nothing")) \
    OP(mse_loss, "x y", COMPUTE, tsr_mse_loss_at(I(0), I(1), (tsr_reduction)A.reduction, AT), \
       "Squared difference.", REDUCTION) \
    OP(rand_like, "x", COMPUTE, tsr_rand_like_at(I(0), AT), \
       "Uniform numbers in [0, 1) of x's shape, anew in each step.", ) \
    OP(randn_like, "x", COMPUTE, tsr_randn_like_at(I(0), AT), \
       "Normal numbers of x's shape, anew in each step.", ) \
    OP(dropout, "x", COMPUTE, tsr_dropout_at(I(0), A.p, AT), \
       "Zeroes elements, with `loss`; else x.", \
       TSRI_ATTR(p, FLOAT, p, "0.5", 0, 0.999999999, NULL, \
       "the probability")) \
    /* shape */ \
    OP(reshape, "x", COMPUTE, tsr_reshape_at(I(0), A.shape, AT), "Another shape.", \
       TSRI_ATTR(shape, SHAPE, shape, TSRI_NEEDED, -1, 0, NULL, "one size may be -1: the rest")) \
    OP(flatten, "x", COMPUTE, tsr_flatten_at(I(0), (int)A.from_axis, AT), \
       "Joins the axes from one on.", \
       WHOLE(from_axis, from_axis, "0", -8, 7, "the first of them")) \
    OP(detach, "x", COMPUTE, tsr_detach_at(I(0), AT), "x, through which no gradient flows.", ) \
    OP(transpose, "x", COMPUTE, tsr_transpose_at(I(0), (int)A.axis_a, (int)A.axis_b, AT), \
       "Swaps two axes.", \
       WHOLE(a, axis_a, "-2", -8, 7, "") WHOLE(b, axis_b, "-1", -8, 7, "")) \
    OP(permute, "x", COMPUTE, tsr_permute_at(I(0), A.axes, AT), \
       "Axis i of the result is x's axis order[i].", \
       TSRI_ATTR(order, AXES, axes, TSRI_NEEDED, 0, 0, NULL, "a list of all axes")) \
    OP(expand, "x", COMPUTE, tsr_expand_at(I(0), A.shape, AT), "Repeats x.", \
       SHAPE(TSRI_NEEDED)) \
    /* joining, cutting, indexing */ \
    OP(concat, "x...", COMPUTE, tsr_concat_at(c->nin, c->in, (int)A.axis, AT), \
       "Joined along an axis.", \
       AXIS("0")) \
    OP(stack, "x...", COMPUTE, tsr_stack_at(c->nin, c->in, (int)A.axis, AT), \
       "Along a new axis.", AXIS("0")) \
    OP(split, "x", SPLIT, NULL, \
       "The opposite of concat. The results of an entry y are y.0, y.1, ...", \
       TSRI_ATTR(sizes, INTS, sizes, TSRI_NEEDED, 0, 0, NULL, "of each along the axis") AXIS("0")) \
    OP(slice, "x", COMPUTE, declare_slice(c), "x[start:end:step] on each axis, as in NumPy.", \
       PER_AXIS(starts, "0 by default; negative: from the end") \
       PER_AXIS(ends, "to the end by default") PER_AXIS(steps, "1 by default")) \
    OP(narrow, "x", COMPUTE, tsr_narrow_at(I(0), (int)A.axis, A.start, A.length, AT), \
       "x[start : start + length] along an axis.", AXIS("0") \
       WHOLE(start, start, "0", -0x1p48, 0x1p48, "negative: from the end") \
       WHOLE(length, length, TSRI_NEEDED, 0, 0x1p48, "")) \
    OP(pad, "x", COMPUTE, declare_pad(c), "A value around x.", PER_AXIS(before, "0 by default") \
       PER_AXIS(after, "0 by default") NUMBER(value, value_around, "0", "")) \
    OP(triu, "x", COMPUTE, tsr_triu_at(I(0), A.diagonal, AT), "0 below a diagonal.", DIAGONAL) \
    OP(tril, "x", COMPUTE, tsr_tril_at(I(0), A.diagonal, AT), "0 above a diagonal.", DIAGONAL) \
    OP(embedding, "table ids", COMPUTE, declare_embedding(c), "Rows of a table (v,d) by ids i64.", \
       WHOLE(padding_idx, padding_idx, TSRI_NONE, -0x1p48, 0x1p48, "a row without gradient")) \
    OP(index_select, "x ids", COMPUTE, tsr_index_select_at(I(0), (int)A.axis, I(1), AT), \
       "NumPy's take: an axis of x by ids i64.", AXIS("0")) \
    OP(gather, "x ids", COMPUTE, tsr_gather_at(I(0), (int)A.axis, I(1), AT), \
       "torch.gather: x at ids i64 along an axis.", AXIS("0")) \
    OP(scatter_add, "x ids y", COMPUTE, tsr_scatter_add_at(I(0), (int)A.axis, I(1), I(2), AT), \
       "x with y added at ids i64 along an axis.", AXIS("0")) \
    OP(one_hot, "ids", COMPUTE, tsr_one_hot_at(I(0), A.classes, A.dtype, AT), \
       "1 at the id, 0 elsewhere.", \
       WHOLE(classes, classes, TSRI_NEEDED, 1, 0x1p48, "size of the new axis") DTYPE) \
    OP(own, "x...", COMPUTE, declare_own(c), \
       "An op that a plug-in library defines (docs/extending/own-op.md).", \
       TSRI_ATTR(plugin, PATH, plugin, TSRI_NONE, 0, 0, NULL, \
                 "the library, whose code building the experiment runs; the first entry of an op " \
                 "needs it") \
       TSRI_ATTR(function, TEXT, function, TSRI_NEEDED, 0, 0, NULL, "the name of the op") \
       {.name = "options", .kind = TSRI_FIELD_ANY, .offset = offsetof(tsri_config_op, options), \
        .fallback = TSRI_NONE, .legal = "a mapping of the op's options to numbers", \
        .json = "{\"type\": \"object\"}", \
        .doc = "its numbers by name, as in {beta: 2}"},) \
    TSRI_FUNCTIONAL_TABLE(OP)
/* clang-format on */

#endif
