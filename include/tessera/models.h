/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that the library makes of its own layers.
 */
#ifndef TESSERA_MODELS_H
#define TESSERA_MODELS_H

#include <tessera/layers.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- models ----------------------------------------------------------------------------------- */
typedef enum tsr_mobilenet_variant {
    TSR_MOBILENET_TORCHVISION = 0,
    TSR_MOBILENET_CIFAR, /* stride 1 in the stem and the second stage, for small images */
    TSR_MOBILENET_STEM1, /* stride 1 in the stem alone, which takes a third of CIFAR's time */
} tsr_mobilenet_variant;
typedef enum tsr_activation {
    TSR_ACT_RELU6 = 0,
    TSR_ACT_RELU,
    TSR_ACT_IDENTITY,
} tsr_activation;
typedef struct tsr_mobilenet_v2_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t num_classes TSR_IS(1000); /* default 1000 */
    double width TSR_IS(1);           /* multiplier; default 1 */
    double dropout TSR_IS(0.2);       /* default 0.2 */
    tsr_mobilenet_variant variant;
    tsr_activation activation;
    tsr_bn_stats bn;
    tsr_dtype dtype; /* default TSR_F32 */
    uint64_t seed;
    int bn_parts; /* R of TSR_BN_LOCAL; default: the ranks of the placement */
} tsr_mobilenet_v2_opts;
#define TSR_MOBILENET_V2_OPTS(...)                                                          \
    TSR_OPTIONS(tsr_mobilenet_v2_opts, (.num_classes = 1000, .width = 1, .dropout = 0.2, ), \
                __VA_ARGS__)
/* torchvision's mobilenet_v2, with its parameter names: x (n,3,h,w) -> logits (n,num_classes).
 * sbp: of the parameters. */
TSR_API tsr_module *tsr_mobilenet_v2(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                                     const tsr_mobilenet_v2_opts *opts);

typedef struct tsr_convnet_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t num_classes TSR_IS(10); /* default 10 */
    int64_t channels TSR_IS(1), height TSR_IS(28),
        width TSR_IS(28); /* of the images; default 1 x 28 x 28 */
    tsr_bn_stats bn;
    tsr_dtype dtype;
    uint64_t seed;
    int bn_parts; /* R of TSR_BN_LOCAL; default: the ranks of the placement */
} tsr_convnet_opts;
#define TSR_CONVNET_OPTS(...)                                                                      \
    TSR_OPTIONS(tsr_convnet_opts, (.num_classes = 10, .channels = 1, .height = 28, .width = 28, ), \
                __VA_ARGS__)
/* layer1, layer2: 5x5 convolution (16, 32 channels), batch norm, ReLU, 2x2 max pool; then fc. */
TSR_API tsr_module *tsr_convnet(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                                const tsr_convnet_opts *opts);

typedef struct tsr_mlp_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t inputs;             /* features; needed */
    int64_t hidden TSR_IS(128); /* default 128 */
    int64_t outputs TSR_IS(10); /* default 10 */
    int layers TSR_IS(2);       /* linear layers; default 2; ReLU between */
    tsr_dtype dtype;
    uint64_t seed;
} tsr_mlp_opts;
#define TSR_MLP_OPTS(...) \
    TSR_OPTIONS(tsr_mlp_opts, (.hidden = 128, .outputs = 10, .layers = 2, ), __VA_ARGS__)
/* Flattens x from axis 1, then linear layers "0", "2", "4", ... with ReLU between (as
 * nn.Sequential). */
TSR_API tsr_module *tsr_mlp(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                            const tsr_mlp_opts *opts);

typedef struct tsr_transformer_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t vocab;              /* ids i64 (b,s) below it are fed; 0: features (b,s,width) */
    int64_t positions;          /* learnt ones, for sequences up to this length; default: none */
    int64_t width TSR_IS(256);  /* default 256 */
    int64_t heads TSR_IS(4);    /* default 4; a divisor of width */
    int layers TSR_IS(4);       /* default 4 */
    double mlp_ratio TSR_IS(4); /* hidden features by width; default 4 */
    int64_t classes;            /* of the head; default: vocab; without either there is none */
    bool tied;                  /* the head's weight is the embedding's */
    bool causal;                /* a position sees itself and those before */
    double dropout; /* of attention's weights, each branch and the embeddings; default 0 */
    tsr_gelu_form gelu;
    tsr_dtype dtype; /* default TSR_F32 */
    uint64_t seed;
} tsr_transformer_opts;
#define TSR_TRANSFORMER_OPTS(...)                                                                \
    TSR_OPTIONS(tsr_transformer_opts, (.width = 256, .heads = 4, .layers = 4, .mlp_ratio = 4, ), \
                __VA_ARGS__)
/*
 * Pre-norm blocks "blocks.<i>": x + attn(norm1(x)), then x + mlp(norm2(x)), with linear layers
 * "attn.q", "attn.k", "attn.v", "attn.proj", "mlp.fc1" and "mlp.fc2" and gelu between the last two;
 * before them "tok_emb.weight" (vocab,width) and "pos_emb.weight" (positions,width), after them
 * "norm" and "head.weight" (classes,width). Gives logits (b,s,classes), or without a head
 * (b,s,width). Tensor parallel: place "*.attn.[qkv].*" and "*.mlp.fc1.*" S(0), and
 * "*.attn.proj.weight" and "*.mlp.fc2.weight" S(1) (tsr_module_place).
 */
TSR_API tsr_module *tsr_transformer(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                                    const tsr_transformer_opts *opts);

typedef enum tsr_resnet_variant {
    TSR_RESNET_TORCHVISION = 0,
    TSR_RESNET_CIFAR, /* the stem is a 3x3 convolution of stride 1 without a max pool */
} tsr_resnet_variant;
typedef struct tsr_resnet18_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t num_classes TSR_IS(1000); /* default 1000 */
    int64_t width TSR_IS(64);         /* channels of the first stage; default 64 */
    tsr_resnet_variant variant;
    tsr_bn_stats bn;
    tsr_dtype dtype; /* default TSR_F32 */
    uint64_t seed;
    int bn_parts; /* R of TSR_BN_LOCAL; default: the ranks of the placement */
} tsr_resnet18_opts;
#define TSR_RESNET18_OPTS(...) \
    TSR_OPTIONS(tsr_resnet18_opts, (.num_classes = 1000, .width = 64, ), __VA_ARGS__)
/*
 * torchvision's resnet18, with its parameter names: x (n,3,h,w) -> logits (n,num_classes). sbp: of
 * the parameters. Tensor parallel: place "*.conv1.weight" and "*.bn1.*" S(0), "*.conv2.weight"
 * S(1), so that a block's inner channels are divided (tsr_module_place).
 */
TSR_API tsr_module *tsr_resnet18(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                                 const tsr_resnet18_opts *opts);

typedef struct tsr_lenet_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t num_classes TSR_IS(10); /* default 10 */
    int64_t channels TSR_IS(1), height TSR_IS(28),
        width TSR_IS(28); /* of the images: 28 x 28 or 32 x 32; default 1 x 28 x 28 */
    tsr_dtype dtype;      /* default TSR_F32 */
    uint64_t seed;
} tsr_lenet_opts;
#define TSR_LENET_OPTS(...)                                                                      \
    TSR_OPTIONS(tsr_lenet_opts, (.num_classes = 10, .channels = 1, .height = 28, .width = 28, ), \
                __VA_ARGS__)
/*
 * LeNet-5 as PyTorch's tutorials have it: "conv1" (6 channels, 5x5, with a padding of 2 for images
 * of 28 x 28) and "conv2" (16 channels, 5x5), each with ReLU and 2x2 max pool, then the linear
 * layers "fc1" (120), "fc2" (84) and "fc3" with ReLU between: x (n,channels,height,width) -> logits
 * (n,num_classes).
 */
TSR_API tsr_module *tsr_lenet(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                              const tsr_lenet_opts *opts);

typedef struct tsr_gpt_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t vocab TSR_IS(256);      /* default 256: bytes */
    int64_t positions TSR_IS(1024); /* sequences are at most as long; default 1024 */
    int64_t width TSR_IS(768);      /* default 768 */
    int64_t heads TSR_IS(12);       /* default 12; a divisor of width */
    int layers TSR_IS(12);          /* default 12 */
    double dropout TSR_IS(0.1);     /* of attention's weights, each branch and the embeddings */
    tsr_dtype dtype;                /* default TSR_F32 */
    uint64_t seed;
} tsr_gpt_opts;
#define TSR_GPT_OPTS(...)                                                                  \
    TSR_OPTIONS(tsr_gpt_opts,                                                              \
                (.vocab = 256, .positions = 1024, .width = 768, .heads = 12, .layers = 12, \
                 .dropout = 0.1, ),                                                        \
                __VA_ARGS__)
/*
 * GPT-2, with the parameter names of Hugging Face's GPT2Model: ids i64 (b,s) -> logits (b,s,vocab),
 * whose weight is the embedding's, "wte.weight". Blocks are "h.<i>", with weights (in,out).
 *
 * Tensor parallel (tsr_module_place): "*.mlp.c_fc.weight" S(1), "*.mlp.c_fc.bias" S(0),
 * "*.c_proj.weight" S(0), "*.attn.c_attn.weight" S(2) and "*.attn.c_attn.bias" S(1); "wte.weight"
 * may be S(0) or S(1). c_attn packs the weights of queries, keys and values: (width,3,width), with
 * the bias (3,width), so that S of the last axis gives each rank its heads' columns of all three.
 * In files they are (width, 3 width) and (3 width), as GPT2Model has them.
 */
TSR_API tsr_module *tsr_gpt(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                            const tsr_gpt_opts *opts);

typedef struct tsr_lstm_lm_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t vocab TSR_IS(256);  /* default 256: bytes */
    int64_t width TSR_IS(256);  /* features of an embedding; default 256 */
    int64_t hidden TSR_IS(256); /* features of the LSTM's state; default 256 */
    int layers TSR_IS(2);       /* of the LSTM; default 2 */
    double dropout TSR_IS(0.2); /* of the embeddings and of each layer's outputs; default 0.2 */
    tsr_dtype dtype;            /* default TSR_F32 */
    uint64_t seed;
} tsr_lstm_lm_opts;
#define TSR_LSTM_LM_OPTS(...)                                                               \
    TSR_OPTIONS(tsr_lstm_lm_opts,                                                           \
                (.vocab = 256, .width = 256, .hidden = 256, .layers = 2, .dropout = 0.2, ), \
                __VA_ARGS__)
/*
 * A language model: "embedding" (vocab,width), "lstm" (tsr_nn_lstm) and the linear layer "head",
 * with PyTorch's initial values of each: ids i64 (b,s) -> logits (b,s,vocab). The state begins with
 * zeros. Tensor parallel (tsr_module_place): "embedding.weight" S(1), "lstm.*" S(0) and "head.*"
 * S(0). The LSTM's steps need whole states: what its products with the input give, and "weight_hh",
 * are exchanged once for all steps of a layer.
 */
TSR_API tsr_module *tsr_lstm_lm(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                                const tsr_lstm_lm_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
