/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ResNet-18 (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016) with the layers,
 * parameter names and initial distributions of torchvision's resnet18.
 */
#include <tessera/models.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Once a part could not be made, nothing more is tried, so that the first error stays. */
typedef struct builder {
    tsr_world *world;
    tsr_nn_opts nn;
    tsr_batch_norm_opts bn;
    bool failed;
} builder;

static tsr_module *add(builder *b, tsr_module *parent, const char *name, tsr_module *child)
{
    if (b->failed) {
        tsr_module_destroy(child);
        return NULL;
    }
    tsr_module *m = tsr_module_add(parent, name, child);
    b->failed = !m;
    return m;
}

static tsr_module *add_sequential(builder *b, tsr_module *parent, const char *name)
{
    return add(b, parent, name, b->failed ? NULL : tsr_nn_sequential(b->world, &b->nn));
}

/* --- layers with torchvision's initial values ------------------------------------------------- */
static tsr_tensor *conv_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    return tsr_conv2d(x, tsr_use(m, "weight", x), NULL, arg);
}

static void add_conv(builder *b, tsr_module *parent, const char *name, int64_t in, int64_t out,
                     int kernel, int stride)
{
    if (b->failed)
        return;
    tsr_conv2d_opts *arg = malloc(sizeof *arg);
    if (!arg) {
        tsr_set_error(TSR_ERR_NO_MEMORY, "tsr_resnet18: no memory");
        b->failed = true;
        return;
    }
    /* Padding keeps the size at stride 1. */
    *arg = *TSR_CONV2D_OPTS(.stride = {stride, stride},
                            .padding = {(kernel - 1) / 2, (kernel - 1) / 2});
    tsr_module *conv = tsr_module_create(b->world, &b->nn, conv_forward, arg, free);
    tsr_init init = {.kind = TSR_INIT_KAIMING_NORMAL, .fan_out = true};
    b->failed =
        !tsr_module_param(conv, "weight", TSR_DIMS(out, in, kernel, kernel), TSR_AUTO, init);
    if (b->failed)
        tsr_module_destroy(conv);
    else
        add(b, parent, name, conv);
}

static void add_batch_norm(builder *b, tsr_module *parent, const char *name, int64_t c)
{
    add(b, parent, name, b->failed ? NULL : tsr_nn_batch_norm(b->world, &b->nn, c, &b->bn));
}

/* --- blocks ----------------------------------------------------------------------------------- */
static tsr_tensor *block_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_module *downsample = tsr_module_child(m, "downsample");
    tsr_tensor *y = tsr_apply(tsr_module_child(m, "conv1"), x);
    y = tsr_relu(tsr_apply(tsr_module_child(m, "bn1"), y));
    y = tsr_apply(tsr_module_child(m, "conv2"), y);
    y = tsr_apply(tsr_module_child(m, "bn2"), y);
    return tsr_relu(tsr_add(y, downsample ? tsr_apply(downsample, x) : x));
}

/* Two 3x3 convolutions; the input is added, through a 1x1 convolution where its shape differs. */
static void add_block(builder *b, tsr_module *parent, const char *name, int64_t in, int64_t out,
                      int stride)
{
    tsr_module *block =
        add(b, parent, name,
            b->failed ? NULL : tsr_module_create(b->world, &b->nn, block_forward, NULL, NULL));
    add_conv(b, block, "conv1", in, out, 3, stride);
    add_batch_norm(b, block, "bn1", out);
    add_conv(b, block, "conv2", out, out, 3, 1);
    add_batch_norm(b, block, "bn2", out);
    if (stride == 1 && in == out)
        return;
    tsr_module *downsample = add_sequential(b, block, "downsample");
    add_conv(b, downsample, "0", in, out, 1, stride);
    add_batch_norm(b, downsample, "1", out);
}

/* --- the model -------------------------------------------------------------------------------- */
static tsr_tensor *net_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    static const char *const stages[] = {"layer1", "layer2", "layer3", "layer4"};
    (void)arg;
    tsr_module *pool = tsr_module_child(m, "maxpool");
    x = tsr_relu(tsr_apply(tsr_module_child(m, "bn1"), tsr_apply(tsr_module_child(m, "conv1"), x)));
    if (pool)
        x = tsr_apply(pool, x);
    for (int i = 0; i < 4; i++)
        x = tsr_apply(tsr_module_child(m, stages[i]), x);
    x = tsr_flatten(tsr_adaptive_avg_pool2d(x, 1, 1), 1);
    return tsr_apply(tsr_module_child(m, "fc"), x);
}

static void add_stages(builder *b, tsr_module *net, int64_t width)
{
    int64_t in = width;
    char name[16];
    for (int i = 0; i < 4; i++) {
        int64_t out = width << i;
        snprintf(name, sizeof name, "layer%d", i + 1);
        tsr_module *stage = add_sequential(b, net, name);
        add_block(b, stage, "0", in, out, i ? 2 : 1);
        add_block(b, stage, "1", out, out, 1);
        in = out;
    }
}

tsr_module *tsr_resnet18(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                         const tsr_resnet18_opts *opts)
{
    tsr_resnet18_opts o = *TSR_RESNET18_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    const bool cifar = o.variant == TSR_RESNET_CIFAR;
    if (o.num_classes < 1 || o.width < 1 || o.width > 1 << 16 ||
        (!cifar && o.variant != TSR_RESNET_TORCHVISION)) {
        tsr_set_error(TSR_ERR_INVALID,
                      "tsr_resnet18: num_classes %lld, width %lld, variant %d: at least one class, "
                      "a width from 1 to 2^16, and a variant of tsr_resnet_variant are needed",
                      (long long)o.num_classes, (long long)o.width, (int)o.variant);
        return NULL;
    }
    builder b = {.world = w,
                 .nn = {.placement = p, .sbp = sbp, .dtype = o.dtype, .seed = o.seed},
                 .bn = *TSR_BATCH_NORM_OPTS(.stats = o.bn, .parts = o.bn_parts)};
    tsr_module *net = tsr_module_create(w, &b.nn, net_forward, NULL, NULL);
    b.failed = !net;
    add_conv(&b, net, "conv1", 3, o.width, cifar ? 3 : 7, cifar ? 1 : 2);
    add_batch_norm(&b, net, "bn1", o.width);
    const tsr_pool2d_opts *pool =
        TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1});
    if (!cifar)
        add(&b, net, "maxpool", b.failed ? NULL : tsr_nn_max_pool2d(w, &b.nn, pool));
    add_stages(&b, net, o.width);
    add(&b, net, "fc", b.failed ? NULL : tsr_nn_linear(w, &b.nn, 8 * o.width, o.num_classes, true));
    if (b.failed) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
