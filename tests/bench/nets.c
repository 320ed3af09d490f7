/* SPDX-License-Identifier: Apache-2.0 */
/* The list of nets of nets.h, those of models.h, products, and single layers in f64. */
#include "nets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 256, CLASSES = 10 };

/* --- nets of models.h ------------------------------------------------------------------------- */
static tsr_module *make_mobilenet(bench_builder *b, const bench_net *net)
{
    const bool cifar = strstr(net->name, "cifar") != NULL;
    return tsr_mobilenet_v2(
        b->world, b->nn.placement, TSR_B,
        TSR_MOBILENET_V2_OPTS(.num_classes = net->row.d[1] > 32 ? 1000 : CLASSES, .dropout = 0,
                              .dtype = net->dtype, .bn = b->bn.stats,
                              .variant = cifar ? TSR_MOBILENET_CIFAR : TSR_MOBILENET_TORCHVISION));
}

static tsr_module *make_resnet18(bench_builder *b, const bench_net *net)
{
    const bool cifar = strstr(net->name, "cifar") != NULL;
    return tsr_resnet18(
        b->world, b->nn.placement, TSR_B,
        TSR_RESNET18_OPTS(.num_classes = cifar ? CLASSES : 1000, .dtype = net->dtype,
                          .bn = b->bn.stats,
                          .variant = cifar ? TSR_RESNET_CIFAR : TSR_RESNET_TORCHVISION));
}

static tsr_module *make_lenet(bench_builder *b, const bench_net *net)
{
    return tsr_lenet(b->world, b->nn.placement, TSR_B,
                     TSR_LENET_OPTS(.dtype = net->dtype, .channels = net->row.d[0],
                                    .height = net->row.d[1], .width = net->row.d[2]));
}

static tsr_module *make_convnet(bench_builder *b, const bench_net *net)
{
    return tsr_convnet(b->world, b->nn.placement, TSR_B,
                       TSR_CONVNET_OPTS(.dtype = net->dtype, .channels = net->row.d[0],
                                        .height = net->row.d[1], .width = net->row.d[2],
                                        .bn = b->bn.stats));
}

static tsr_module *make_mlp(bench_builder *b, const bench_net *net)
{
    return tsr_mlp(
        b->world, b->nn.placement, TSR_B,
        TSR_MLP_OPTS(.dtype = net->dtype, .inputs = tsr_dims_count(net->row), .hidden = 1024));
}

static tsr_module *make_gpt(bench_builder *b, const bench_net *net)
{
    return tsr_gpt(b->world, b->nn.placement, TSR_B,
                   TSR_GPT_OPTS(.dtype = net->dtype, .vocab = VOCAB, .positions = net->row.d[0],
                                .width = 384, .heads = 6, .layers = 6, .dropout = 0));
}

static tsr_module *make_lstm_lm(bench_builder *b, const bench_net *net)
{
    return tsr_lstm_lm(b->world, b->nn.placement, TSR_B,
                       TSR_LSTM_LM_OPTS(.dtype = net->dtype, .vocab = VOCAB, .dropout = 0));
}

static tsr_module *make_transformer(bench_builder *b, const bench_net *net)
{
    return tsr_transformer(b->world, b->nn.placement, TSR_B,
                           TSR_TRANSFORMER_OPTS(.dtype = net->dtype, .vocab = VOCAB,
                                                .positions = net->row.d[0], .causal = true));
}

/* --- products and single layers --------------------------------------------------------------- */
/* Returns the rows of x (samples,m,k), below each other. */
static tsr_tensor *all_rows(tsr_tensor *x)
{
    return tsr_reshape(x, TSR_DIMS(-1, tsr_tensor_dims(x).d[2]));
}

static void product_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout,
                            tsr_tensor **out, void *arg)
{
    (void)m, (void)nin, (void)nout, (void)arg;
    out[0] = tsr_matmul(all_rows(in[0]), in[1]);
}

/* Makes the product of two inputs, without parameters. */
static tsr_module *make_product(bench_builder *b, const bench_net *net)
{
    (void)net;
    return bench_add(b, NULL, tsr_module_create_n(b->world, &b->nn, product_forward, NULL, NULL));
}

static tsr_tensor *weight_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_matmul(all_rows(x), tsr_use(m, "weight", x));
}

/* Makes the product of an input with a parameter (k,n), whose n the name ends with. */
static tsr_module *make_weight_product(bench_builder *b, const bench_net *net)
{
    tsr_module *const root = bench_module(b, NULL, weight_forward);
    bench_param(b, root, "weight", TSR_DIMS(net->row.d[1], atoll(strrchr(net->name, 'x') + 1)));
    return root;
}

static tsr_module *make_linear(bench_builder *b, const bench_net *net)
{
    return bench_linear(b, NULL, net->row.d[0], net->row.d[0]);
}

static tsr_module *make_conv(bench_builder *b, const bench_net *net)
{
    return bench_conv(b, NULL, net->row.d[0], 2 * net->row.d[0], 3, 1, 1, true);
}

/* --- the list --------------------------------------------------------------------------------- */
static const bench_net nets[] = {
    {.name = "mobilenet_v2", .make = make_mobilenet, .row = {3, {3, 32, 32}}},
    {.name = "mobilenet_v2_cifar", .make = make_mobilenet, .row = {3, {3, 32, 32}}},
    {.name = "mobilenet_v2_224", .make = make_mobilenet, .row = {3, {3, 224, 224}}},
    {.name = "resnet18_cifar", .make = make_resnet18, .row = {3, {3, 32, 32}}},
    {.name = "resnet18_224", .make = make_resnet18, .row = {3, {3, 224, 224}}},
    {.name = "lenet", .make = make_lenet, .row = {3, {3, 32, 32}}},
    {.name = "convnet", .make = make_convnet, .row = {3, {3, 32, 32}}},
    {.name = "mlp", .make = make_mlp, .row = {3, {3, 32, 32}}},
    {.name = "gpt", .make = make_gpt, .row = {1, {256}}, .vocab = VOCAB},
    {.name = "gpt_2048", .make = make_gpt, .row = {1, {2048}}, .vocab = VOCAB},
    {.name = "lstm_lm", .make = make_lstm_lm, .row = {1, {256}}, .vocab = VOCAB},
    {.name = "transformer", .make = make_transformer, .row = {1, {256}}, .vocab = VOCAB},
    {.name = "resnet50", .make = bench_make_resnet50, .row = {3, {3, 224, 224}}},
    {.name = "vgg16", .make = bench_make_vgg16, .row = {3, {3, 224, 224}}},
    {.name = "efficientnet_b0", .make = bench_make_efficientnet_b0, .row = {3, {3, 224, 224}}},
    {.name = "convnext_t", .make = bench_make_convnext_t, .row = {3, {3, 224, 224}}},
    {.name = "dcgan", .make = bench_make_dcgan, .row = {3, {100, 1, 1}}, .loss = BENCH_SQUARES},
    {.name = "unet", .make = bench_make_unet, .row = {3, {3, 128, 128}}, .loss = BENCH_SQUARES},
    {.name = "vit", .make = bench_make_vit, .row = {3, {3, 224, 224}}},
    {.name = "bert", .make = bench_make_bert, .row = {1, {128}}, .vocab = 30522},
    {.name = "dlrm",
     .make = bench_make_dlrm,
     .row = {1, {13}},
     .second = {1, {26}},
     .second_vocab = 10000,
     .loss = BENCH_SQUARES},
    {.name = "linear_f64",
     .make = make_linear,
     .row = {1, {512}},
     .dtype = TSR_F64,
     .loss = BENCH_SQUARES},
    {.name = "conv_f64",
     .make = make_conv,
     .row = {3, {32, 56, 56}},
     .dtype = TSR_F64,
     .loss = BENCH_SQUARES},
    {.name = "lstm_f64",
     .make = bench_make_lstm_f64,
     .row = {2, {200, 1}},
     .dtype = TSR_F64,
     .loss = BENCH_SQUARES},
};

/* Sets *out_net to the product that a name "matmul_MxKxN" or "weight_MxKxN" declares. */
static bool find_product(const char *name, bench_net *out_net)
{
    const bool by_weight = !strncmp(name, "weight_", 7);
    long long m, k, n;
    char rest;
    if ((!by_weight && strncmp(name, "matmul_", 7) != 0) ||
        sscanf(name + 7, "%lldx%lldx%lld%c", &m, &k, &n, &rest) != 3 || m < 1 || k < 1 || n < 1)
        return false;
    *out_net = (bench_net){.make = by_weight ? make_weight_product : make_product,
                           .row = {2, {m, k}},
                           .dtype = TSR_F32,
                           .loss = BENCH_SQUARES};
    if (!by_weight)
        out_net->second = TSR_DIMS(k, n);
    snprintf(out_net->name, sizeof out_net->name, "%s", name);
    return true;
}

tsr_status bench_net_find(const char *name, bench_net *out_net)
{
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        if (!strcmp(nets[i].name, name)) {
            *out_net = nets[i];
            out_net->dtype = nets[i].dtype ? nets[i].dtype : TSR_F32;
            return TSR_OK;
        }
    if (find_product(name, out_net))
        return TSR_OK;
    return tsr_set_error(TSR_ERR_INVALID, "there is no net %s", name);
}

tsr_module *bench_net_make(tsr_world *w, const tsr_placement *p, const bench_net *net)
{
    bench_builder b = {.world = w,
                       .nn = {.placement = p, .sbp = TSR_B, .dtype = net->dtype},
                       .bn = *TSR_BATCH_NORM_OPTS(.stats = tsr_placement_nranks(p) > 1
                                                               ? TSR_BN_LOCAL
                                                               : TSR_BN_GLOBAL)};
    tsr_module *const root = net->make(&b, net);
    if (!b.failed)
        return root;
    tsr_module_destroy(root);
    return NULL;
}
