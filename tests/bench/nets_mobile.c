/* SPDX-License-Identifier: Apache-2.0 */
/* EfficientNet-B0 (Tan and Le 2019) and ConvNeXt-T (Liu et al. 2022) for images of 224 x 224. */
#include "nets.h"

static tsr_tensor *pool_all(tsr_tensor *x, const char *file, int line)
{
    return tsr_flatten_at(tsr_adaptive_avg_pool2d_at(x, 1, 1, file, line), 1, file, line);
}

static tsr_tensor *residual_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_add(x, tsr_apply(tsr_module_child_at(m, 0), x));
}

/* --- EfficientNet-B0 -------------------------------------------------------------------------- */
/* Scales each channel of x by a number in (0, 1) that two convolutions make of the means of all
 * channels. */
static tsr_tensor *squeeze_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *y = tsr_adaptive_avg_pool2d(x, 1, 1);
    y = tsr_silu(tsr_apply(tsr_module_child_at(m, 0), y));
    return tsr_mul(x, tsr_sigmoid(tsr_apply(tsr_module_child_at(m, 1), y)));
}

static void add_inverted_block(bench_builder *b, tsr_module *net, int64_t in, int64_t out,
                               int expand, int kernel, int stride)
{
    const bool is_residual = stride == 1 && in == out;
    const int64_t inner = in * expand;
    tsr_module *const block = bench_module(b, net, is_residual ? residual_forward : NULL);
    tsr_module *const branch = bench_module(b, block, NULL);
    if (expand > 1)
        bench_conv_norm(b, branch, in, inner, 1, 1, 1, tsr_silu_at);
    bench_conv_norm(b, branch, inner, inner, kernel, stride, inner, tsr_silu_at);
    tsr_module *const squeeze = bench_module(b, branch, squeeze_forward);
    bench_conv(b, squeeze, inner, in / 4, 1, 1, 1, true);
    bench_conv(b, squeeze, in / 4, inner, 1, 1, 1, true);
    bench_conv_norm(b, branch, inner, out, 1, 1, 1, NULL);
}

tsr_module *bench_make_efficientnet_b0(bench_builder *b, const bench_net *net)
{
    static const struct {
        int expand, kernel, stride, channels, blocks;
    } stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                  {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
    (void)net;
    tsr_module *const root = bench_module(b, NULL, NULL);
    bench_conv_norm(b, root, 3, 32, 3, 2, 1, tsr_silu_at);
    int64_t in = 32;
    for (int s = 0; s < 7; s++)
        for (int i = 0; i < stages[s].blocks; i++) {
            add_inverted_block(b, root, in, stages[s].channels, stages[s].expand, stages[s].kernel,
                               i ? 1 : stages[s].stride);
            in = stages[s].channels;
        }
    bench_conv_norm(b, root, in, 1280, 1, 1, 1, tsr_silu_at);
    bench_op(b, root, pool_all);
    bench_linear(b, root, 1280, 1000);
    return root;
}

/* --- ConvNeXt-T ------------------------------------------------------------------------------- */
static tsr_tensor *channels_last(tsr_tensor *x)
{
    return tsr_permute(x, TSR_AXES(0, 2, 3, 1));
}

static tsr_tensor *channels_first(tsr_tensor *x)
{
    return tsr_permute(x, TSR_AXES(0, 3, 1, 2));
}

/* Normalises the channels of each pixel of x (n,c,h,w). */
static tsr_tensor *pixel_norm_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return channels_first(tsr_apply(tsr_module_child_at(m, 0), channels_last(x)));
}

static void add_pixel_norm(bench_builder *b, tsr_module *parent, int64_t channels)
{
    bench_layer_norm(b, bench_module(b, parent, pixel_norm_forward), channels, 1e-6);
}

static tsr_tensor *gelu(tsr_tensor *x, const char *file, int line)
{
    return tsr_gelu_at(x, TSR_GELU_ERF, file, line);
}

/* The parts are a depthwise convolution and, on pixels, a norm and two linear layers. */
static tsr_tensor *convnext_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *y = channels_last(tsr_apply(tsr_module_child_at(m, 0), x));
    y = tsr_apply(tsr_module_child_at(m, 1), y);
    return tsr_add(x, channels_first(tsr_mul(y, tsr_use(m, "layer_scale", y))));
}

static void add_convnext_block(bench_builder *b, tsr_module *net, int64_t channels)
{
    tsr_module *const block = bench_module(b, net, convnext_forward);
    bench_param(b, block, "layer_scale", TSR_DIMS(channels));
    bench_conv(b, block, channels, channels, 7, 1, channels, true);
    tsr_module *const pixels = bench_module(b, block, NULL);
    bench_layer_norm(b, pixels, channels, 1e-6);
    bench_linear(b, pixels, channels, 4 * channels);
    bench_op(b, pixels, gelu);
    bench_linear(b, pixels, 4 * channels, channels);
}

tsr_module *bench_make_convnext_t(bench_builder *b, const bench_net *net)
{
    static const int depths[] = {3, 3, 9, 3};
    (void)net;
    tsr_module *const root = bench_module(b, NULL, NULL);
    int64_t in = 3;
    for (int s = 0; s < 4; s++) {
        const int64_t channels = (int64_t)96 << s;
        if (s)
            add_pixel_norm(b, root, in);
        bench_conv(b, root, in, channels, s ? 2 : 4, s ? 2 : 4, 1, true);
        if (!s)
            add_pixel_norm(b, root, channels);
        for (int i = 0; i < depths[s]; i++)
            add_convnext_block(b, root, channels);
        in = channels;
    }
    bench_op(b, root, pool_all);
    bench_layer_norm(b, root, in, 1e-6);
    bench_linear(b, root, in, 1000);
    return root;
}
