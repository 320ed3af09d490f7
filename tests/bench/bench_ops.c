/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times single ops, one plan each, on one rank, for scripts/bench, which runs it beside PyTorch.
 * usage: bench_ops
 *
 * Prints {"ops": [...]}. Then for each line "OP SIZE RUNS" of its input: runs the op once and then
 * RUNS times, and prints {"ms": [X], "sum": Y}: the mean time of a run, and the sum of the result's
 * sizes. An op NAME_dx is the gradient of NAME, with the gradient of its result given: what
 * training computes, less what the forward op alone needs. TESSERA_BENCH_EXPLAIN prints each plan.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tessera/tessera.h>

enum { COLUMNS = 1000 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

enum { MOST_INPUTS = 8, CHANNELS = 40, PLANES = 64 };

/* The operands of one op. Each is declared when the op first asks for it, so that a plan holds no
 * others. These have SIZE elements: x and y are (SIZE / 1000, 1000), in f32 between 0.1 and 0.9, as
 * all f32 operands are; k and n are whole numbers, ids lie in 0 to 999, and mask is of bool, all of
 * the shape of x. s is (SIZE / 10, 10), image (n, 40, h, w), planes (n, h, w, 64), heads (SIZE /
 * 1000, 20, 50). The others are smaller: w (1000, 1000), line (1000), column (SIZE / 1000, 1),
 * channels (40, 1, 1), channel (40), labels (SIZE / 1000), and the weights of convolutions of
 * planes: k_1x1 and so on (64, 64, 1, 1), of 8 groups (64, 8, 3, 3), of 64 (64, 1, 3, 3). */
typedef struct operands {
    tsr_graph *g;
    const tsr_placement *p;
    int64_t rows, side;
    int n;
    const char *name[MOST_INPUTS];
    tsr_tensor *input[MOST_INPUTS];
} operands;

typedef struct op {
    const char *name;
    tsr_tensor *(*make)(operands *o);
} op;

static tsr_tensor *input_of(operands *o, const char *name, tsr_dtype dtype, tsr_dims dims)
{
    for (int i = 0; i < o->n; i++)
        if (!strcmp(o->name[i], name))
            return o->input[i];
    assert(o->n < MOST_INPUTS);
    o->name[o->n] = name;
    o->input[o->n] = tsr_input(o->g, name, dtype, dims, o->p, TSR_B);
    return o->input[o->n++];
}

// clang-format off
#define IN(name) input_of(o, #name, IN_##name)
#define IN_x TSR_F32, TSR_DIMS(o->rows, COLUMNS)
#define IN_y IN_x
#define IN_w TSR_F32, TSR_DIMS(COLUMNS, COLUMNS)
#define IN_line TSR_F32, TSR_DIMS(COLUMNS)
#define IN_column TSR_F32, TSR_DIMS(o->rows, 1)
#define IN_s TSR_F32, TSR_DIMS(o->rows * COLUMNS / 10, 10)
#define IN_image \
    TSR_F32, TSR_DIMS(o->rows * COLUMNS / (CHANNELS * o->side * o->side), CHANNELS, \
        o->side, o->side)
#define IN_planes \
    TSR_F32, o->rows < 100 ? TSR_DIMS(1, 4, 4, PLANES) : TSR_DIMS(o->rows / 40, 25, 25, PLANES)
#define IN_k_1x1 TSR_F32, TSR_DIMS(PLANES, PLANES, 1, 1)
#define IN_k_3x3 TSR_F32, TSR_DIMS(PLANES, PLANES, 3, 3)
#define IN_k_5x5 TSR_F32, TSR_DIMS(PLANES, PLANES, 5, 5)
#define IN_k_7x7 TSR_F32, TSR_DIMS(PLANES, PLANES, 7, 7)
#define IN_k_groups TSR_F32, TSR_DIMS(PLANES, PLANES / 8, 3, 3)
#define IN_k_each TSR_F32, TSR_DIMS(PLANES, 1, 3, 3)
#define CONV(k, ...) \
    tsr_permute(tsr_conv2d(tsr_permute(IN(planes), TSR_AXES(0, 3, 1, 2)), IN(k), NULL, \
        TSR_CONV2D_OPTS(__VA_ARGS__)), TSR_AXES(0, 2, 3, 1))
#define CONV_1X1 CONV(k_1x1, .groups = 1)
#define CONV_3X3 CONV(k_3x3, .padding = {1, 1})
#define CONV_STRIDE CONV(k_3x3, .padding = {1, 1}, .stride = {2, 2})
#define CONV_DILATED CONV(k_3x3, .padding = {2, 2}, .dilation = {2, 2})
#define CONV_5X5 CONV(k_5x5, .padding = {2, 2})
#define CONV_7X7 CONV(k_7x7, .padding = {3, 3}, .stride = {2, 2})
#define CONV_GROUPS CONV(k_groups, .padding = {1, 1}, .groups = 8)
#define CONV_EACH CONV(k_each, .padding = {1, 1}, .groups = PLANES)
#define IN_channels TSR_F32, TSR_DIMS(CHANNELS, 1, 1)
#define IN_channel TSR_F32, TSR_DIMS(CHANNELS)
#define IN_heads TSR_F32, TSR_DIMS(o->rows, 20, 50)
#define IN_mask TSR_BOOL, TSR_DIMS(o->rows, COLUMNS)
#define IN_k TSR_I64, TSR_DIMS(o->rows, COLUMNS)
#define IN_n IN_k
#define IN_ids IN_k
#define IN_labels TSR_I64, TSR_DIMS(o->rows)
/* OP(name, result), and DX(name, operand, result): the result's gradient. */
#define OPS(OP, DX) \
    OP(neg, tsr_neg(IN(x))) \
    OP(abs, tsr_abs(IN(x))) \
    OP(square, tsr_square(IN(x))) \
    OP(pow_2, tsr_pow_scalar(IN(x), 2)) \
    OP(pow_3, tsr_pow_scalar(IN(x), 3)) \
    OP(pow_half, tsr_pow_scalar(IN(x), 0.5)) \
    OP(pow_scalar, tsr_pow_scalar(IN(x), 2.7)) \
    OP(sqrt, tsr_sqrt(IN(x))) \
    OP(rsqrt, tsr_rsqrt(IN(x))) \
    OP(reciprocal, tsr_reciprocal(IN(x))) \
    OP(exp, tsr_exp(IN(x))) \
    OP(exp2, tsr_exp2(IN(x))) \
    OP(expm1, tsr_expm1(IN(x))) \
    OP(log, tsr_log(IN(x))) \
    OP(log2, tsr_log2(IN(x))) \
    OP(log1p, tsr_log1p(IN(x))) \
    OP(sin, tsr_sin(IN(x))) \
    OP(cos, tsr_cos(IN(x))) \
    OP(atan, tsr_atan(IN(x))) \
    OP(tanh, tsr_tanh(IN(x))) \
    OP(erf, tsr_erf(IN(x))) \
    OP(floor, tsr_floor(IN(x))) \
    OP(round, tsr_round(IN(x))) \
    OP(sign, tsr_sign(IN(x))) \
    OP(relu, tsr_relu(IN(x))) \
    OP(relu6, tsr_relu6(IN(x))) \
    OP(leaky_relu, tsr_leaky_relu(IN(x), 0.01)) \
    OP(elu, tsr_elu(IN(x), 1)) \
    OP(sigmoid, tsr_sigmoid(IN(x))) \
    OP(logsigmoid, tsr_logsigmoid(IN(x))) \
    OP(silu, tsr_silu(IN(x))) \
    OP(hardswish, tsr_hardswish(IN(x))) \
    OP(hardsigmoid, tsr_hardsigmoid(IN(x))) \
    OP(mish, tsr_mish(IN(x))) \
    OP(softplus, tsr_softplus(IN(x))) \
    OP(gelu, tsr_gelu(IN(x), TSR_GELU_ERF)) \
    OP(gelu_tanh, tsr_gelu(IN(x), TSR_GELU_TANH)) \
    OP(clamp, tsr_clamp(IN(x), 0.25, 0.75)) \
    OP(add_scalar, tsr_add_scalar(IN(x), 1.5)) \
    OP(mul_scalar, tsr_mul_scalar(IN(x), 1.5)) \
    OP(add, tsr_add(IN(x), IN(y))) \
    OP(sub, tsr_sub(IN(x), IN(y))) \
    OP(mul, tsr_mul(IN(x), IN(y))) \
    OP(div, tsr_div(IN(x), IN(y))) \
    OP(pow, tsr_pow(IN(x), IN(y))) \
    OP(maximum, tsr_maximum(IN(x), IN(y))) \
    OP(remainder, tsr_remainder(IN(x), IN(y))) \
    OP(atan2, tsr_atan2(IN(x), IN(y))) \
    OP(add_row, tsr_add(IN(x), IN(line))) \
    OP(mul_column, tsr_mul(IN(x), IN(column))) \
    OP(add_channel, tsr_add(IN(image), IN(channels))) \
    OP(less, tsr_less(IN(x), IN(y))) \
    OP(equal, tsr_equal(IN(x), IN(y))) \
    OP(isnan, tsr_isnan(IN(x))) \
    OP(logical_and, tsr_logical_and(IN(mask), tsr_less(IN(x), IN(y)))) \
    OP(where, tsr_where(IN(mask), IN(x), IN(y))) \
    OP(masked_fill, tsr_masked_fill(IN(x), IN(mask), -1)) \
    OP(dropout, tsr_dropout(IN(x), 0.5)) \
    OP(rand, tsr_rand_like(IN(x))) \
    OP(randn, tsr_randn_like(IN(x))) \
    OP(prelu, tsr_prelu(IN(image), IN(channel))) \
    OP(cast_i64, tsr_cast(IN(x), TSR_I64)) \
    OP(cast_f32, tsr_cast(IN(k), TSR_F32)) \
    OP(cast_bool, tsr_cast(IN(mask), TSR_F32)) \
    OP(cast_bf16, tsr_cast(tsr_cast(IN(x), TSR_BF16), TSR_F32)) \
    OP(add_i64, tsr_add(IN(k), IN(n))) \
    OP(mul_i64, tsr_mul(IN(k), IN(n))) \
    OP(floor_divide_i64, tsr_floor_divide(IN(k), tsr_add(IN(n), tsr_full(o->g, TSR_I64, \
        TSR_DIMS(1), o->p, TSR_B, 1)))) \
    OP(less_i64, tsr_less(IN(k), IN(n))) \
    OP(sum_i64, tsr_sum(IN(k), TSR_AXES(1), false)) \
    OP(max_i64, tsr_max(IN(k), TSR_AXES(1), false)) \
    OP(sum, tsr_sum(IN(x), TSR_ALL_AXES, false)) \
    OP(sum_rows, tsr_sum(IN(x), TSR_AXES(0), false)) \
    OP(sum_columns, tsr_sum(IN(x), TSR_AXES(1), false)) \
    OP(sum_short, tsr_sum(IN(s), TSR_AXES(1), false)) \
    OP(sum_short_rows, tsr_sum(IN(s), TSR_AXES(0), false)) \
    OP(sum_middle, tsr_sum(IN(heads), TSR_AXES(1), false)) \
    OP(sum_channel, tsr_sum(IN(image), TSR_AXES(0, 2, 3), false)) \
    OP(mean_spatial, tsr_mean(IN(image), TSR_AXES(2, 3), false)) \
    OP(mean, tsr_mean(IN(x), TSR_ALL_AXES, false)) \
    OP(max, tsr_max(IN(x), TSR_AXES(1), false)) \
    OP(max_rows, tsr_max(IN(x), TSR_AXES(0), false)) \
    OP(max_short, tsr_max(IN(s), TSR_AXES(1), false)) \
    OP(max_all, tsr_max(IN(x), TSR_ALL_AXES, false)) \
    OP(min, tsr_min(IN(x), TSR_AXES(1), false)) \
    OP(argmax, tsr_argmax(IN(x), 1)) \
    OP(argmax_rows, tsr_argmax(IN(x), 0)) \
    OP(argmax_short, tsr_argmax(IN(s), 1)) \
    OP(variance, tsr_variance(IN(x), TSR_AXES(1), false, 1)) \
    OP(norm, tsr_norm(IN(x), 2, TSR_ALL_AXES, false)) \
    OP(norm_columns, tsr_norm(IN(x), 2, TSR_AXES(1), false)) \
    OP(prod, tsr_prod(tsr_add_scalar(IN(s), 0.5), TSR_AXES(1), false)) \
    OP(logsumexp, tsr_logsumexp(IN(x), TSR_AXES(1), false)) \
    OP(any, tsr_any(IN(mask), TSR_AXES(1), false)) \
    OP(cumsum, tsr_cumsum(IN(x), 1)) \
    OP(cumsum_rows, tsr_cumsum(IN(x), 0)) \
    OP(cumprod, tsr_cumprod(tsr_add_scalar(IN(s), 0.5), 1)) \
    OP(softmax, tsr_softmax(IN(x), 1)) \
    OP(softmax_short, tsr_softmax(IN(s), 1)) \
    OP(softmax_rows, tsr_softmax(IN(x), 0)) \
    OP(log_softmax, tsr_log_softmax(IN(x), 1)) \
    OP(cross_entropy, tsr_cross_entropy(IN(x), IN(labels), TSR_MEAN)) \
    OP(mse_loss, tsr_mse_loss(IN(x), IN(y), TSR_MEAN)) \
    OP(bce_logits, tsr_binary_cross_entropy_with_logits(IN(x), IN(y), NULL, TSR_MEAN)) \
    OP(layer_norm, tsr_layer_norm(IN(x), IN(line), IN(line), NULL)) \
    OP(rms_norm, tsr_rms_norm(IN(x), IN(line), 1e-5)) \
    OP(group_norm, tsr_group_norm(IN(image), 8, IN(channel), IN(channel), 1e-5)) \
    OP(batch_norm, tsr_batch_norm(IN(image), IN(channel), IN(channel), NULL, NULL, NULL)) \
    OP(normalize, tsr_normalize(IN(x), 1, 1e-12)) \
    OP(max_pool, tsr_max_pool2d(IN(image), TSR_POOL2D_OPTS(.kernel = {3, 3}, \
        .stride = {2, 2}, .padding = {1, 1}))) \
    OP(max_pool_2, tsr_max_pool2d(IN(image), TSR_POOL2D_OPTS(.kernel = {2, 2}))) \
    OP(avg_pool, tsr_avg_pool2d(IN(image), TSR_POOL2D_OPTS(.kernel = {2, 2}))) \
    OP(global_pool, tsr_adaptive_avg_pool2d(IN(image), 1, 1)) \
    OP(nearest, tsr_interpolate(IN(image), 2 * o->side, 2 * o->side, TSR_NEAREST)) \
    OP(bilinear, tsr_interpolate(IN(image), 2 * o->side, 2 * o->side, TSR_BILINEAR)) \
    OP(pixel_shuffle, tsr_pixel_shuffle(IN(image), 2)) \
    OP(transpose, tsr_transpose(IN(x), 0, 1)) \
    OP(channels_last, tsr_permute(IN(image), TSR_AXES(0, 2, 3, 1))) \
    OP(transpose_heads, tsr_transpose(IN(heads), 1, 2)) \
    OP(transpose_rows, tsr_transpose(IN(heads), 0, 1)) \
    OP(concat, tsr_concat(2, (tsr_tensor *[]){IN(x), IN(y)}, 1)) \
    OP(concat_rows, tsr_concat(2, (tsr_tensor *[]){IN(x), IN(y)}, 0)) \
    OP(concat_short, tsr_concat(2, (tsr_tensor *[]){IN(s), IN(s)}, 1)) \
    OP(stack, tsr_stack(2, (tsr_tensor *[]){IN(x), IN(y)}, 2)) \
    OP(slice, tsr_narrow(IN(x), 1, 100, 800)) \
    OP(slice_step, tsr_slice(IN(x), TSR_DIMS(0, 0), TSR_DIMS(INT64_MAX, INT64_MAX), \
        TSR_DIMS(1, 2))) \
    OP(slice_short, tsr_narrow(IN(s), 1, 2, 5)) \
    OP(pad, tsr_pad(IN(image), TSR_DIMS(0, 0, 1, 1), TSR_DIMS(0, 0, 1, 1), 0)) \
    OP(flip, tsr_flip(IN(x), TSR_AXES(1))) \
    OP(roll, tsr_roll(IN(x), 1, 10)) \
    OP(repeat, tsr_repeat(IN(x), TSR_DIMS(1, 2))) \
    OP(repeat_interleave, tsr_repeat_interleave(IN(x), 1, 2)) \
    OP(expand, tsr_expand(IN(column), TSR_DIMS(o->rows, COLUMNS))) \
    OP(triu, tsr_triu(IN(x), 0)) \
    OP(embedding, tsr_embedding(IN(w), IN(labels), NULL)) \
    OP(index_select, tsr_index_select(IN(x), 1, tsr_reshape(tsr_narrow(IN(ids), 0, 0, \
        1), TSR_DIMS(COLUMNS)))) \
    OP(gather, tsr_gather(IN(x), 1, IN(ids))) \
    OP(scatter_add, tsr_scatter_add(IN(x), 1, IN(ids), IN(y))) \
    OP(one_hot, tsr_one_hot(IN(labels), COLUMNS, TSR_I64)) \
    OP(sort, tsr_sort(IN(x), 1, false, NULL)) \
    OP(topk, tsr_topk(IN(x), 10, 1, true, NULL)) \
    OP(matmul, tsr_matmul(IN(x), IN(w))) \
    OP(linear, tsr_linear(IN(x), IN(w), IN(line))) \
    OP(bmm, tsr_matmul(IN(heads), tsr_transpose(IN(heads), 1, 2))) \
    OP(conv_1x1, CONV_1X1) \
    OP(conv_3x3, CONV_3X3) \
    OP(conv_stride, CONV_STRIDE) \
    OP(conv_dilated, CONV_DILATED) \
    OP(conv_5x5, CONV_5X5) \
    OP(conv_7x7, CONV_7X7) \
    OP(conv_groups, CONV_GROUPS) \
    OP(conv_each, CONV_EACH) \
    DX(pow_2, x, tsr_pow_scalar(IN(x), 2)) \
    DX(exp, x, tsr_exp(IN(x))) \
    DX(log, x, tsr_log(IN(x))) \
    DX(sqrt, x, tsr_sqrt(IN(x))) \
    DX(tanh, x, tsr_tanh(IN(x))) \
    DX(sigmoid, x, tsr_sigmoid(IN(x))) \
    DX(relu, x, tsr_relu(IN(x))) \
    DX(gelu, x, tsr_gelu(IN(x), TSR_GELU_ERF)) \
    DX(gelu_tanh, x, tsr_gelu(IN(x), TSR_GELU_TANH)) \
    DX(silu, x, tsr_silu(IN(x))) \
    DX(erf, x, tsr_erf(IN(x))) \
    DX(softplus, x, tsr_softplus(IN(x))) \
    DX(leaky_relu, x, tsr_leaky_relu(IN(x), 0.01)) \
    DX(elu, x, tsr_elu(IN(x), 1)) \
    DX(clamp, x, tsr_clamp(IN(x), 0.25, 0.75)) \
    DX(mul, x, tsr_mul(IN(x), IN(y))) \
    DX(div, y, tsr_div(IN(x), IN(y))) \
    DX(add_row, line, tsr_add(IN(x), IN(line))) \
    DX(mul_column, column, tsr_mul(IN(x), IN(column))) \
    DX(add_channel, channels, tsr_add(IN(image), IN(channels))) \
    DX(maximum, x, tsr_maximum(IN(x), IN(y))) \
    DX(where, x, tsr_where(IN(mask), IN(x), IN(y))) \
    DX(sum_columns, x, tsr_sum(IN(x), TSR_AXES(1), false)) \
    DX(max, x, tsr_max(IN(x), TSR_AXES(1), false)) \
    DX(mean_spatial, image, tsr_mean(IN(image), TSR_AXES(2, 3), false)) \
    DX(variance, x, tsr_variance(IN(x), TSR_AXES(1), false, 1)) \
    DX(norm, x, tsr_norm(IN(x), 2, TSR_ALL_AXES, false)) \
    DX(cumsum, x, tsr_cumsum(IN(x), 1)) \
    DX(softmax, x, tsr_softmax(IN(x), 1)) \
    DX(softmax_short, s, tsr_softmax(IN(s), 1)) \
    DX(log_softmax, x, tsr_log_softmax(IN(x), 1)) \
    DX(cross_entropy, x, tsr_cross_entropy(IN(x), IN(labels), TSR_MEAN)) \
    DX(mse_loss, x, tsr_mse_loss(IN(x), IN(y), TSR_MEAN)) \
    DX(bce_logits, x, tsr_binary_cross_entropy_with_logits(IN(x), IN(y), NULL, TSR_MEAN)) \
    DX(layer_norm, x, tsr_layer_norm(IN(x), IN(line), IN(line), NULL)) \
    DX(rms_norm, x, tsr_rms_norm(IN(x), IN(line), 1e-5)) \
    DX(group_norm, image, tsr_group_norm(IN(image), 8, IN(channel), IN(channel), 1e-5)) \
    DX(batch_norm, image, tsr_batch_norm(IN(image), IN(channel), IN(channel), NULL, NULL, NULL)) \
    DX(max_pool, image, tsr_max_pool2d(IN(image), TSR_POOL2D_OPTS(.kernel = {3, 3}, \
        .stride = {2, 2}, .padding = {1, 1}))) \
    DX(avg_pool, image, tsr_avg_pool2d(IN(image), TSR_POOL2D_OPTS(.kernel = {2, 2}))) \
    DX(global_pool, image, tsr_adaptive_avg_pool2d(IN(image), 1, 1)) \
    DX(nearest, image, tsr_interpolate(IN(image), 2 * o->side, 2 * o->side, TSR_NEAREST)) \
    DX(bilinear, image, tsr_interpolate(IN(image), 2 * o->side, 2 * o->side, TSR_BILINEAR)) \
    DX(transpose, x, tsr_transpose(IN(x), 0, 1)) \
    DX(concat, x, tsr_concat(2, (tsr_tensor *[]){IN(x), IN(y)}, 1)) \
    DX(slice, x, tsr_narrow(IN(x), 1, 100, 800)) \
    DX(pad, image, tsr_pad(IN(image), TSR_DIMS(0, 0, 1, 1), TSR_DIMS(0, 0, 1, 1), 0)) \
    DX(embedding, w, tsr_embedding(IN(w), IN(labels), NULL)) \
    DX(gather, x, tsr_gather(IN(x), 1, IN(ids))) \
    DX(index_select, x, tsr_index_select(IN(x), 1, tsr_reshape(tsr_narrow(IN(ids), 0, 0, \
        1), TSR_DIMS(COLUMNS)))) \
    DX(conv_1x1, planes, CONV_1X1) \
    DX(conv_1x1_w, k_1x1, CONV_1X1) \
    DX(conv_3x3, planes, CONV_3X3) \
    DX(conv_3x3_w, k_3x3, CONV_3X3) \
    DX(conv_stride, planes, CONV_STRIDE) \
    DX(conv_stride_w, k_3x3, CONV_STRIDE) \
    DX(conv_dilated, planes, CONV_DILATED) \
    DX(conv_dilated_w, k_3x3, CONV_DILATED) \
    DX(conv_5x5, planes, CONV_5X5) \
    DX(conv_5x5_w, k_5x5, CONV_5X5) \
    DX(conv_7x7, planes, CONV_7X7) \
    DX(conv_7x7_w, k_7x7, CONV_7X7) \
    DX(conv_groups, planes, CONV_GROUPS) \
    DX(conv_groups_w, k_groups, CONV_GROUPS) \
    DX(conv_each, planes, CONV_EACH) \
    DX(conv_each_w, k_each, CONV_EACH) \
    DX(linear, w, tsr_linear(IN(x), IN(w), IN(line))) \
    DX(matmul, x, tsr_matmul(IN(x), IN(w)))
// clang-format on

/* Returns the gradient of the sum of y times an input of its shape; of y alone, if it is one
 * number. */
static tsr_tensor *gradient(operands *o, tsr_tensor *y, tsr_tensor *of)
{
    tsr_tensor *dx = NULL;
    const tsr_dims dims = tsr_tensor_dims(y);
    if (dims.ndim)
        y = tsr_mul(y, input_of(o, "dy", TSR_F32, dims));
    tsr_gradients(y, 1, &of, &dx);
    return dx;
}

#define DEFINE(name, result)                    \
    static tsr_tensor *make_##name(operands *o) \
    {                                           \
        return result;                          \
    }
#define DEFINE_DX(name, operand, result)             \
    static tsr_tensor *make_##name##_dx(operands *o) \
    {                                                \
        return gradient(o, result, IN(operand));     \
    }
OPS(DEFINE, DEFINE_DX)
#define ROW(name, result) {#name, make_##name},
#define ROW_DX(name, operand, result) {#name "_dx", make_##name##_dx},
static const op ops[] = {OPS(ROW, ROW_DX)};
enum { NOPS = sizeof ops / sizeof *ops };

/* Feeds an input: its values depend on its name's first letter and its size alone. */
static tsr_status feed(tsr_plan *plan, const tsr_port *port)
{
    const size_t n = (size_t)tsr_dims_count(port->dims), size = tsr_dtype_size(port->dtype);
    void *data = malloc(n * size);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const size_t at = i * 7919 + (size_t)port->name[0] * 101;
        if (port->dtype == TSR_F32)
            ((float *)data)[i] = (float)(0.1 + 0.8 * (double)(at % 10007) / 10007);
        else if (port->dtype == TSR_I64)
            ((int64_t *)data)[i] = (int64_t)(at % 10007 % COLUMNS);
        else
            ((bool *)data)[i] = at % 10007 % 3 == 0;
    }
    const tsr_status status = tsr_feed(plan, port->name, data, n * size);
    free(data);
    return status;
}

static tsr_status compile(tsr_world *w, const op *made, int64_t rows, tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    /* 1,000 elements are an image of 40 channels, 5 x 5; more are images of 50 x 50. */
    operands o = {.g = g, .p = p, .rows = rows, .side = rows < 100 ? 5 : 50};
    tsr_output(g, "result", made->make(&o), p, TSR_B);
    const tsr_status status = tsr_compile(g, out_plan);
    tsr_graph_destroy(g);
    TSR_TRY(status);
    if (getenv("TESSERA_BENCH_EXPLAIN"))
        fprintf(stderr, "%s: %s\n", made->name, tsr_plan_explain(*out_plan));
    for (int i = 0; i < tsr_plan_nports(*out_plan); i++) {
        const tsr_port port = tsr_plan_port(*out_plan, i);
        if (port.is_input)
            TSR_TRY(feed(*out_plan, &port));
    }
    return TSR_OK;
}

static tsr_status sum_result(tsr_plan *plan, double *out_sum)
{
    tsr_port port = {0};
    for (int i = 0; i < tsr_plan_nports(plan); i++)
        if (!tsr_plan_port(plan, i).is_input)
            port = tsr_plan_port(plan, i);
    const size_t n = (size_t)tsr_dims_count(port.dims), size = tsr_dtype_size(port.dtype);
    void *data = malloc(n * size);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr_fetch(plan, "result", data, n * size);
    *out_sum = 0;
    for (size_t i = 0; i < n && status == TSR_OK; i++)
        *out_sum += port.dtype == TSR_F32   ? fabs((double)((const float *)data)[i])
                    : port.dtype == TSR_I64 ? (double)((const int64_t *)data)[i]
                                            : (double)((const bool *)data)[i];
    free(data);
    return status;
}

static tsr_status measure(tsr_world *w, const char *name, long size, long runs)
{
    for (int i = 0; i < NOPS; i++) {
        if (strcmp(ops[i].name, name) != 0)
            continue;
        tsr_plan *plan;
        double sum;
        TSR_TRY(compile(w, &ops[i], size / COLUMNS, &plan));
        TSR_TRY(tsr_run(plan));
        const double start = now_ms();
        for (long k = 0; k < runs; k++)
            TSR_TRY(tsr_run(plan));
        const double ms = (now_ms() - start) / (double)runs;
        TSR_TRY(sum_result(plan, &sum));
        tsr_plan_destroy(plan);
        printf("{\"ms\": [%.6f], \"sum\": %.9g}\n", ms, sum);
        fflush(stdout);
        return TSR_OK;
    }
    return tsr_set_error(TSR_ERR_INVALID, "there is no op %s", name);
}

static tsr_status serve(tsr_world *w, void *arg)
{
    (void)arg;
    char line[128], name[64];
    long size, runs;
    for (int i = 0; i < NOPS; i++)
        printf("%s\"%s\"", i ? ", " : "{\"ops\": [", ops[i].name);
    printf("]}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%63s %ld %ld", name, &size, &runs) != 3 || size < COLUMNS || runs < 1)
            return tsr_set_error(TSR_ERR_INVALID, "not \"OP SIZE RUNS\": %s", line);
        TSR_TRY(measure(w, name, size, runs));
    }
    return TSR_OK;
}

int main(void)
{
    if (tsr_spawn(1, serve, NULL) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
