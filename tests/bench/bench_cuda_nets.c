/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MobileNetV2's CIFAR variant, GPT-2 small, and ResNet-50 (He et al., "Deep Residual Learning for
 * Image Recognition", CVPR 2016) with the layers and parameter names of torchvision's resnet50,
 * whose blocks have their stride in the 3x3 convolution.
 */
#include "bench_cuda_nets.h"

#include <stdio.h>
#include <string.h>

static const bench_net nets[] = {
    {"mobilenet_v2", {128, 512}, 2, 50, false, 32, 10, 1, 0},
    {"gpt2", {8}, 1, 10, true, 1024, 50257, 768, 12},
    {"resnet50", {64}, 1, 10, false, 224, 1000, 64, 0},
};
static const bench_net tiny_nets[] = {
    {"mobilenet_v2", {2}, 1, 2, false, 8, 10, 0.25, 0},
    {"gpt2", {2}, 1, 2, true, 16, 64, 48, 1},
    {"resnet50", {2}, 1, 2, false, 32, 10, 4, 0},
};

bool bench_net_find(const char *name, bool tiny, bench_net *out)
{
    const bench_net *table = tiny ? tiny_nets : nets;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        if (!strcmp(name, table[i].name)) {
            *out = table[i];
            return true;
        }
    return false;
}

/* --- ResNet-50 -------------------------------------------------------------------------------- */
/* Once a part could not be made, nothing more is tried, so that the first error stays. */
typedef struct builder {
    tsr_world *world;
    tsr_nn_opts nn;
    bool failed;
} builder;

static tsr_module *add(builder *b, tsr_module *parent, const char *name, tsr_module *child)
{
    tsr_module *m = b->failed ? NULL : tsr_module_add(parent, name, child);
    b->failed |= !m;
    return m;
}

static tsr_module *add_sequential(builder *b, tsr_module *parent, const char *name)
{
    return add(b, parent, name, b->failed ? NULL : tsr_nn_sequential(b->world, &b->nn));
}

/* A convolution that keeps the size at stride 1, and its batch norm. */
static void add_conv(builder *b, tsr_module *parent, const char *conv, const char *norm, int64_t in,
                     int64_t out, int kernel, int stride)
{
    const tsr_conv2d_opts *how = TSR_CONV2D_OPTS(.stride = {stride, stride},
                                                 .padding = {(kernel - 1) / 2, (kernel - 1) / 2});
    if (!b->failed)
        add(b, parent, conv, tsr_nn_conv2d(b->world, &b->nn, in, out, kernel, false, how));
    if (!b->failed)
        add(b, parent, norm, tsr_nn_batch_norm(b->world, &b->nn, out, NULL));
}

static tsr_tensor *block_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    static const char *const parts[3][2] = {{"conv1", "bn1"}, {"conv2", "bn2"}, {"conv3", "bn3"}};
    tsr_module *downsample = tsr_module_child(m, "downsample");
    tsr_tensor *y = x;
    (void)arg;
    for (int i = 0; i < 3; i++) {
        y = tsr_apply(tsr_module_child(m, parts[i][0]), y);
        y = tsr_apply(tsr_module_child(m, parts[i][1]), y);
        y = i < 2 ? tsr_relu(y) : y;
    }
    return tsr_relu(tsr_add(y, downsample ? tsr_apply(downsample, x) : x));
}

static void add_block(builder *b, tsr_module *stage, int number, int64_t in, int64_t inner,
                      int stride)
{
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    tsr_module *block =
        add(b, stage, name,
            b->failed ? NULL : tsr_module_create(b->world, &b->nn, block_forward, NULL, NULL));
    add_conv(b, block, "conv1", "bn1", in, inner, 1, 1);
    add_conv(b, block, "conv2", "bn2", inner, inner, 3, stride);
    add_conv(b, block, "conv3", "bn3", inner, 4 * inner, 1, 1);
    if (number == 0)
        add_conv(b, add_sequential(b, block, "downsample"), "0", "1", in, 4 * inner, 1, stride);
}

static tsr_tensor *resnet_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    static const char *const children[] = {"maxpool", "layer1", "layer2", "layer3", "layer4"};
    (void)arg;
    x = tsr_relu(tsr_apply(tsr_module_child(m, "bn1"), tsr_apply(tsr_module_child(m, "conv1"), x)));
    for (int i = 0; i < 5; i++)
        x = tsr_apply(tsr_module_child(m, children[i]), x);
    return tsr_apply(tsr_module_child(m, "fc"), tsr_flatten(tsr_adaptive_avg_pool2d(x, 1, 1), 1));
}

static tsr_module *make_resnet50(builder *b, int64_t width, int64_t classes)
{
    static const int depth[4] = {3, 4, 6, 3};
    tsr_module *net = tsr_module_create(b->world, &b->nn, resnet_forward, NULL, NULL);
    int64_t in = width;
    b->failed = !net;
    add_conv(b, net, "conv1", "bn1", 3, width, 7, 2);
    const tsr_pool2d_opts *pool =
        TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1});
    if (!b->failed)
        add(b, net, "maxpool", tsr_nn_max_pool2d(b->world, &b->nn, pool));
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i + 1);
        tsr_module *stage = add_sequential(b, net, name);
        for (int k = 0; k < depth[i]; k++, in = 4 * (width << i))
            add_block(b, stage, k, in, width << i, k == 0 && i ? 2 : 1);
    }
    if (!b->failed)
        add(b, net, "fc", tsr_nn_linear(b->world, &b->nn, in, classes, true));
    return b->failed ? NULL : net; /* the world frees modules that stay behind */
}

/* --- all of them ------------------------------------------------------------------------------ */
tsr_module *bench_net_make(const bench_net *n, tsr_world *w, const tsr_placement *p,
                           tsr_dtype dtype)
{
    if (n->words)
        return tsr_gpt(w, p, TSR_B,
                       TSR_GPT_OPTS(.vocab = n->classes, .positions = n->size,
                                    .width = (int64_t)n->width, .layers = n->layers, .dropout = 0,
                                    .dtype = dtype, .seed = 1));
    if (!strcmp(n->name, "resnet50")) {
        builder b = {.world = w, .nn = {.placement = p, .sbp = TSR_B, .dtype = dtype, .seed = 1}};
        return make_resnet50(&b, (int64_t)n->width, n->classes);
    }
    return tsr_mobilenet_v2(w, p, TSR_B,
                            TSR_MOBILENET_V2_OPTS(.num_classes = n->classes,
                                                  .variant = TSR_MOBILENET_CIFAR, .width = n->width,
                                                  .dropout = 0.2, .dtype = dtype, .seed = 1));
}

tsr_optimizer *bench_net_optimizer(const bench_net *n, tsr_module *net)
{
    if (n->words)
        return tsr_adamw(net, TSR_ADAM_OPTS(.lr = 1e-4));
    return tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4));
}
