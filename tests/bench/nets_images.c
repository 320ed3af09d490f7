/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nets of images: ResNet-50 (He et al. 2016), VGG-16 (Simonyan and Zisserman 2015), the generator
 * of DCGAN (Radford et al. 2016) for 64 x 64 images, and U-Net (Ronneberger et al. 2015) with
 * padding, batch norm and half of its channels.
 */
#include "nets.h"

/* Returns the mean of each channel: x (n,c,h,w) -> (n,c). */
static tsr_tensor *pool_all(tsr_tensor *x, const char *file, int line)
{
    return tsr_flatten_at(tsr_adaptive_avg_pool2d_at(x, 1, 1, file, line), 1, file, line);
}

static tsr_tensor *flatten_all(tsr_tensor *x, const char *file, int line)
{
    return tsr_flatten_at(x, 1, file, line);
}

static tsr_tensor *halve(tsr_tensor *x, const char *file, int line)
{
    return tsr_max_pool2d_at(x, TSR_POOL2D_OPTS(.kernel = {2, 2}), file, line);
}

/* --- ResNet-50 -------------------------------------------------------------------------------- */
static tsr_tensor *stem_pool(tsr_tensor *x, const char *file, int line)
{
    return tsr_max_pool2d_at(
        x, TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}), file, line);
}

/* Passes x through the branch and, where there is one, the convolution of the shortcut. */
static tsr_tensor *bottleneck_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_module *const shortcut = tsr_module_child_at(m, 1);
    tsr_tensor *const y = tsr_apply(tsr_module_child_at(m, 0), x);
    return tsr_relu(tsr_add(y, shortcut ? tsr_apply(shortcut, x) : x));
}

static void add_bottleneck(bench_builder *b, tsr_module *net, int64_t in, int64_t inner, int stride)
{
    tsr_module *const block = bench_module(b, net, bottleneck_forward);
    tsr_module *const branch = bench_module(b, block, NULL);
    bench_conv_norm(b, branch, in, inner, 1, 1, 1, tsr_relu_at);
    bench_conv_norm(b, branch, inner, inner, 3, stride, 1, tsr_relu_at);
    bench_conv_norm(b, branch, inner, 4 * inner, 1, 1, 1, NULL);
    if (in != 4 * inner) {
        tsr_module *const shortcut = bench_module(b, block, NULL);
        bench_conv(b, shortcut, in, 4 * inner, 1, stride, 1, false);
        bench_batch_norm(b, shortcut, 4 * inner);
    }
}

tsr_module *bench_make_resnet50(bench_builder *b, const bench_net *net)
{
    static const int depths[] = {3, 4, 6, 3};
    (void)net;
    tsr_module *const root = bench_module(b, NULL, NULL);
    bench_conv_norm(b, root, 3, 64, 7, 2, 1, tsr_relu_at);
    bench_op(b, root, stem_pool);
    int64_t in = 64;
    for (int i = 0; i < 4; i++) {
        const int64_t inner = (int64_t)64 << i;
        for (int k = 0; k < depths[i]; k++) {
            add_bottleneck(b, root, in, inner, k == 0 && i > 0 ? 2 : 1);
            in = 4 * inner;
        }
    }
    bench_op(b, root, pool_all);
    bench_linear(b, root, in, 1000);
    return root;
}

/* --- VGG-16 ----------------------------------------------------------------------------------- */
tsr_module *bench_make_vgg16(bench_builder *b, const bench_net *net)
{
    static const struct {
        int depth, channels;
    } stages[] = {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}};
    (void)net;
    tsr_module *const root = bench_module(b, NULL, NULL);
    int64_t in = 3;
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < stages[i].depth; k++) {
            bench_conv(b, root, in, stages[i].channels, 3, 1, 1, true);
            bench_op(b, root, tsr_relu_at);
            in = stages[i].channels;
        }
        bench_op(b, root, halve);
    }
    bench_op(b, root, flatten_all);
    bench_linear(b, root, in * 7 * 7, 4096);
    bench_op(b, root, tsr_relu_at);
    bench_linear(b, root, 4096, 4096);
    bench_op(b, root, tsr_relu_at);
    bench_linear(b, root, 4096, 1000);
    return root;
}

/* --- DCGAN ------------------------------------------------------------------------------------ */
static void add_up(bench_builder *b, tsr_module *parent, int64_t in, int64_t out, int kernel,
                   int stride, int padding, bool bias)
{
    if (b->failed)
        return;
    bench_add(b, parent,
              tsr_nn_conv_transpose2d(b->world, &b->nn, in, out, (tsr_hw){kernel, kernel}, bias,
                                      TSR_CONV_TRANSPOSE2D_OPTS(.stride = {stride, stride},
                                                                .padding = {padding, padding})));
}

tsr_module *bench_make_dcgan(bench_builder *b, const bench_net *net)
{
    (void)net;
    tsr_module *const root = bench_module(b, NULL, NULL);
    int64_t in = 100;
    for (int64_t out = 512; out >= 64; out /= 2) {
        const bool first = in == 100;
        add_up(b, root, in, out, 4, first ? 1 : 2, first ? 0 : 1, false);
        bench_batch_norm(b, root, out);
        bench_op(b, root, tsr_relu_at);
        in = out;
    }
    add_up(b, root, in, 3, 4, 2, 1, false);
    bench_op(b, root, tsr_tanh_at);
    return root;
}

/* --- U-Net ------------------------------------------------------------------------------------ */
enum { UNET_LEVELS = 4, UNET_WIDTH = 32 };

/* The parts are the blocks on the way down, the lowest block, for each level on the way up a
 * transposed convolution and a block, and the head. */
static tsr_tensor *unet_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *kept[UNET_LEVELS];
    int part = 0;
    for (int i = 0; i < UNET_LEVELS; i++) {
        kept[i] = tsr_apply(tsr_module_child_at(m, part++), x);
        x = tsr_max_pool2d(kept[i], TSR_POOL2D_OPTS(.kernel = {2, 2}));
    }
    x = tsr_apply(tsr_module_child_at(m, part++), x);
    for (int i = UNET_LEVELS - 1; i >= 0; i--) {
        tsr_tensor *const both[2] = {kept[i], tsr_apply(tsr_module_child_at(m, part++), x)};
        x = tsr_apply(tsr_module_child_at(m, part++), tsr_concat(2, both, 1));
    }
    return tsr_apply(tsr_module_child_at(m, part), x);
}

static void add_unet_block(bench_builder *b, tsr_module *net, int64_t in, int64_t out)
{
    tsr_module *const block = bench_module(b, net, NULL);
    bench_conv_norm(b, block, in, out, 3, 1, 1, tsr_relu_at);
    bench_conv_norm(b, block, out, out, 3, 1, 1, tsr_relu_at);
}

tsr_module *bench_make_unet(bench_builder *b, const bench_net *net)
{
    (void)net;
    tsr_module *const root = bench_module(b, NULL, unet_forward);
    int64_t in = 3;
    for (int i = 0; i <= UNET_LEVELS; i++) {
        const int64_t out = (int64_t)UNET_WIDTH << i;
        add_unet_block(b, root, in, out);
        in = out;
    }
    for (; in > UNET_WIDTH; in /= 2) {
        add_up(b, root, in, in / 2, 2, 2, 0, true);
        add_unet_block(b, root, in, in / 2);
    }
    bench_conv(b, root, in, 1, 1, 1, 1, true);
    return root;
}
