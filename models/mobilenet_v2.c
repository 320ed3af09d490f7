/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018)
 * with the layers, parameter names and initial distributions of torchvision's mobilenet_v2.
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
    tsr_activation activation;
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
                     int kernel, int stride, int64_t groups)
{
    tsr_conv2d_opts *arg = b->failed ? NULL : malloc(sizeof *arg);
    if (!arg) {
        b->failed = true;
        return;
    }
    /* Padding keeps the size at stride 1. */
    *arg = *TSR_CONV2D_OPTS(.stride = {stride, stride},
                            .padding = {(kernel - 1) / 2, (kernel - 1) / 2}, .groups = groups);
    tsr_module *conv = tsr_module_create(b->world, &b->nn, conv_forward, arg, free);
    tsr_init init = {.kind = TSR_INIT_KAIMING_NORMAL, .fan_out = true};
    tsr_dims dims = TSR_DIMS(out, in / groups, kernel, kernel);
    b->failed = !tsr_module_param(conv, "weight", dims, TSR_AUTO, init);
    if (b->failed)
        tsr_module_destroy(conv);
    else
        add(b, parent, name, conv);
}

static void add_batch_norm(builder *b, tsr_module *parent, const char *name, int64_t c)
{
    add(b, parent, name, b->failed ? NULL : tsr_nn_batch_norm(b->world, &b->nn, c, &b->bn));
}

static void add_activation(builder *b, tsr_module *parent, const char *name)
{
    tsr_module *m = NULL;
    if (b->failed)
        return;
    switch (b->activation) {
    case TSR_ACT_RELU6:
        m = tsr_nn_relu6(b->world, &b->nn);
        break;
    case TSR_ACT_RELU:
        m = tsr_nn_relu(b->world, &b->nn);
        break;
    case TSR_ACT_IDENTITY:
        m = tsr_nn_identity(b->world, &b->nn);
        break;
    }
    add(b, parent, name, m);
}

static tsr_tensor *linear_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_linear(x, tsr_use(m, "weight", x), tsr_use(m, "bias", x));
}

static void add_linear(builder *b, tsr_module *parent, const char *name, int64_t in, int64_t out)
{
    if (b->failed)
        return;
    tsr_module *m = tsr_module_create(b->world, &b->nn, linear_forward, NULL, NULL);
    tsr_init normal = {.kind = TSR_INIT_NORMAL, .a = 0, .b = 0.01},
             zeros = {.kind = TSR_INIT_ZEROS};
    b->failed = !tsr_module_param(m, "weight", TSR_DIMS(out, in), TSR_AUTO, normal) ||
                !tsr_module_param(m, "bias", TSR_DIMS(out), TSR_AUTO, zeros);
    if (b->failed)
        tsr_module_destroy(m);
    else
        add(b, parent, name, m);
}

/* --- blocks ----------------------------------------------------------------------------------- */
/* "0": convolution, "1": batch norm, "2": activation. */
static void add_conv_bn_act(builder *b, tsr_module *parent, const char *name, int64_t in,
                            int64_t out, int kernel, int stride, int64_t groups)
{
    tsr_module *m = add_sequential(b, parent, name);
    add_conv(b, m, "0", in, out, kernel, stride, groups);
    add_batch_norm(b, m, "1", out);
    add_activation(b, m, "2");
}

/* With the block's input added: where it has the output's shape. */
static tsr_tensor *residual_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_add(x, tsr_apply(tsr_module_child(m, "conv"), x));
}

static void add_inverted_residual(builder *b, tsr_module *parent, const char *name, int64_t in,
                                  int64_t out, int stride, int64_t expand)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    bool is_residual = stride == 1 && in == out;
    tsr_module *block =
        add(b, parent, name,
            b->failed ? NULL
                      : tsr_module_create(b->world, &b->nn, is_residual ? residual_forward : NULL,
                                          NULL, NULL));
    tsr_module *conv = add_sequential(b, block, "conv");
    int64_t hidden = in * expand;
    int i = 0;
    if (expand != 1)
        add_conv_bn_act(b, conv, names[i++], in, hidden, 1, 1, 1);
    add_conv_bn_act(b, conv, names[i++], hidden, hidden, 3, stride, hidden);
    add_conv(b, conv, names[i++], hidden, out, 1, 1, 1);
    add_batch_norm(b, conv, names[i], out);
}

/* The nearest multiple of 8 that is not more than 10 percent below. */
static int64_t make_divisible(double v)
{
    int64_t n = (int64_t)(v + 4) / 8 * 8;
    n = n < 8 ? 8 : n;
    return (double)n < 0.9 * v ? n + 8 : n;
}

/* --- the model -------------------------------------------------------------------------------- */
static void add_features(builder *b, tsr_module *net, double width, tsr_mobilenet_variant variant,
                         int64_t last)
{
    /* Expansion, channels, blocks, stride of the first one: the paper's table 2. */
    static const struct {
        int expand, channels, blocks, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    const int nstages = (int)(sizeof stages / sizeof *stages);
    tsr_module *features = add_sequential(b, net, "features");
    int64_t in = make_divisible(32 * width);
    char name[16];
    int at = 0;
    add_conv_bn_act(b, features, "0", 3, in, 3, variant == TSR_MOBILENET_TORCHVISION ? 2 : 1, 1);
    for (int s = 0; s < nstages; s++) {
        int64_t out = make_divisible(stages[s].channels * width);
        for (int i = 0; i < stages[s].blocks; i++) {
            bool flat = i > 0 || (s == 1 && variant == TSR_MOBILENET_CIFAR);
            int stride = flat ? 1 : stages[s].stride;
            snprintf(name, sizeof name, "%d", ++at);
            add_inverted_residual(b, features, name, in, out, stride, stages[s].expand);
            in = out;
        }
    }
    snprintf(name, sizeof name, "%d", ++at);
    add_conv_bn_act(b, features, name, in, last, 1, 1, 1);
}

static tsr_tensor *net_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    x = tsr_apply(tsr_module_child(m, "features"), x);
    x = tsr_flatten(tsr_adaptive_avg_pool2d(x, 1, 1), 1);
    return tsr_apply(tsr_module_child(m, "classifier"), x);
}

tsr_module *tsr_mobilenet_v2(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                             const tsr_mobilenet_v2_opts *opts)
{
    tsr_mobilenet_v2_opts o = *TSR_MOBILENET_V2_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if (!(o.width > 0 && o.width <= 16) || o.num_classes < 1 ||
        !(o.dropout >= 0 && o.dropout < 1) || (unsigned)o.variant > TSR_MOBILENET_STEM1) {
        tsr_set_error(
            TSR_ERR_INVALID,
            "tsr_mobilenet_v2: width %g, num_classes %lld, dropout %g, variant %d: a width in "
            "(0, 16], at least one class, a dropout in [0, 1) and a tsr_mobilenet_variant are "
            "needed",
            o.width, (long long)o.num_classes, o.dropout, (int)o.variant);
        return NULL;
    }
    builder b = {.world = w,
                 .nn = {.placement = p, .sbp = sbp, .dtype = o.dtype, .seed = o.seed},
                 .bn = *TSR_BATCH_NORM_OPTS(.stats = o.bn, .parts = o.bn_parts),
                 .activation = o.activation};
    tsr_module *net = tsr_module_create(w, &b.nn, net_forward, NULL, NULL);
    b.failed = !net;
    int64_t last = make_divisible(1280 * (o.width > 1 ? o.width : 1));
    add_features(&b, net, o.width, o.variant, last);
    tsr_module *classifier = add_sequential(&b, net, "classifier");
    add(&b, classifier, "0", b.failed ? NULL : tsr_nn_dropout(w, &b.nn, o.dropout));
    add_linear(&b, classifier, "1", last, o.num_classes);
    if (b.failed) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
