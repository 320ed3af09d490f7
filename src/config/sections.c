/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of all sections but the ops'. */
#include <math.h>

#include "src/config/ops.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define FIELDS(a) .nfields = COUNT(a), .fields = a

/* A field: KIND, struct's type, key, member, default, bounds, doc. */
#define FIELD(kind_, type, key, member, fallback_, low, high, doc_)                \
    {                                                                              \
        .name = key, .kind = TSRI_FIELD_##kind_, .offset = offsetof(type, member), \
        .fallback = fallback_, .min = low, .max = high, .doc = doc_                \
    }
#define WORD(type, key, member, fallback_, words_, doc_)                        \
    {                                                                           \
        .name = key, .kind = TSRI_FIELD_WORD, .offset = offsetof(type, member), \
        .fallback = fallback_, .words = words_, .doc = doc_                     \
    }
#define PLACEMENT(type, doc_)                                                              \
    {                                                                                      \
        .name = "placement", .kind = TSRI_FIELD_NAME, .offset = offsetof(type, placement), \
        .fallback = TSRI_NONE, .legal = "the name of a placement", .doc = doc_             \
    }
#define MOST 0x1p53

static const char *const device_words[] = {"cpu", "cuda", NULL};
/* In the order in which tsri_experiment_fill reads them. */
static const char *const on_nan_words[] = {"stop", "warn", "ignore", NULL};
static const char *const dtype_words[] = {"f32", "f64", "f16", "bf16", NULL};
static const char *const variant_words[] = {"torchvision", "cifar", NULL};
static const char *const activation_words[] = {"relu6", "relu", "identity", NULL};
static const char *const bn_words[] = {"global", "local", NULL};

/* --- placements ------------------------------------------------------------------------------- */
static const tsri_field placement_fields[] = {
    WORD(tsri_config_placement, "device", device, TSRI_NONE, device_words,
         "What a rank computes on. Default: cuda where cluster has a gpu, else cpu."),
    FIELD(MESH, tsri_config_placement, "mesh", mesh, TSRI_NONE, 0, 0,
          "The dimensions of the hierarchy, outermost first, with names that signatures can use. A "
          "number of ranks that is asked for (-n N) scales a mesh whose ranks are not listed: the "
          "axis whose size is ~ takes what the others leave, or else the first axis."),
    FIELD(RANKS, tsri_config_placement, "ranks", ranks, TSRI_NONE, 0, 0,
          "The ranks, in lists of lists: the levels are the dimensions of the hierarchy. A range "
          "stands for its ranks, also within a list. Beside mesh one list is enough, whose ranks "
          "go row by row. Default: beside mesh as many as it has, from 0."),
};
const tsri_section tsri_placement_section = {
    .name = "placement", .size = sizeof(tsri_config_placement), FIELDS(placement_fields)};

/* --- models ----------------------------------------------------------------------------------- */
#define ARG(kind_, key, member, fallback_, low, high, doc_) \
    FIELD(kind_, tsri_config_args, key, member, fallback_, low, high, doc_)

static const tsri_field mobilenet_v2_args[] = {
    ARG(INT, "num_classes", num_classes, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(FLOAT, "width", width, "1", 0.01, 16, "Multiplies the channels."),
    ARG(FLOAT, "dropout", dropout, "0.2", 0, 0.999999, "Before the classifier."),
    WORD(tsri_config_args, "variant", variant, "torchvision", variant_words,
         "cifar: stride 1 in the stem and the second stage, for small images."),
    WORD(tsri_config_args, "activation", activation, "relu6", activation_words, ""),
    WORD(tsri_config_args, "bn", bn, "global", bn_words,
         "Batch norm's statistics: over the global batch, or over each rank's part of it."),
};
static const tsri_field convnet_args[] = {
    ARG(INT, "num_classes", num_classes, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "channels", channels, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "height", height, TSRI_NONE, 4, MOST, "Default: that of the data."),
    ARG(INT, "width", columns, TSRI_NONE, 4, MOST, "Default: that of the data."),
    WORD(tsri_config_args, "bn", bn, "global", bn_words, "As mobilenet_v2's."),
};
static const tsri_field mlp_args[] = {
    ARG(INT, "inputs", inputs, TSRI_NONE, 1, MOST, "Default: the elements of an image."),
    ARG(INT, "hidden", hidden, "128", 1, MOST, "Width of the layers between."),
    ARG(INT, "outputs", outputs, TSRI_NONE, 1, MOST, "Default: the classes of the data."),
    ARG(INT, "layers", layers, "2", 1, 1024, "Linear layers."),
};
static const tsri_field transformer_args[] = {
    ARG(INT, "num_classes", num_classes, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "layers", layers, "2", 1, 1024, "Blocks."),
    ARG(INT, "heads", heads, "4", 1, MOST, "Of attention; a divisor of the images' width."),
    ARG(FLOAT, "mlp_ratio", mlp_ratio, "4", 0.001, 1024, "Hidden features by width."),
    ARG(FLOAT, "dropout", dropout, "0", 0, 0.999999, "Of attention's weights and each branch."),
    ARG(BOOL, "causal", causal, "false", 0, 0, "A position sees itself and those before."),
};
static const tsri_field resnet18_args[] = {
    ARG(INT, "num_classes", num_classes, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "width", features, "64", 1, 65536, "Channels of the first stage."),
    WORD(tsri_config_args, "variant", variant, "torchvision", variant_words,
         "cifar: a stem of stride 1 without pooling, for small images."),
    WORD(tsri_config_args, "bn", bn, "global", bn_words, "As mobilenet_v2's."),
};
static const tsri_field lenet_args[] = {
    ARG(INT, "num_classes", num_classes, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "channels", channels, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "height", height, TSRI_NONE, 1, MOST, "28 or 32. Default: that of the data."),
    ARG(INT, "width", columns, TSRI_NONE, 1, MOST, "The height. Default: that of the data."),
};
static const tsri_field gpt_args[] = {
    ARG(INT, "vocab", vocab, "256", 256, 1 << 30, "Rows of the table of tokens; bytes use 256."),
    ARG(INT, "width", features, "768", 1, 1 << 30, "Features of a position."),
    ARG(INT, "layers", layers, "12", 0, 1024, "Blocks."),
    ARG(INT, "heads", heads, "12", 1, MOST, "Of attention; a divisor of width."),
    ARG(FLOAT, "dropout", dropout, "0.1", 0, 0.999999,
        "Of attention's weights, each branch and the embeddings."),
};
static const tsri_field lstm_lm_args[] = {
    ARG(INT, "width", features, "256", 1, 1 << 30, "Features of an embedding."),
    ARG(INT, "hidden", hidden, "256", 1, 1 << 30, "Features of the state."),
    ARG(INT, "layers", layers, "2", 1, 1000, "LSTMs, one above the other."),
    ARG(FLOAT, "dropout", dropout, "0.2", 0, 0.999999,
        "Of the embeddings and of each layer's outputs."),
};
#define ARGS_SECTION(model)                                                                   \
    static const tsri_section model##_args_section = {                                        \
        .name = "args", .size = sizeof(tsri_config_args), FIELDS(model##_args)};              \
    static const tsri_field model##_fields[] = {{.name = "args",                              \
                                                 .kind = TSRI_FIELD_SECTION,                  \
                                                 .offset = offsetof(tsri_config_model, args), \
                                                 .fallback = "{}",                            \
                                                 .section = &model##_args_section,            \
                                                 .doc = "What it is made with."}}
ARGS_SECTION(mobilenet_v2);
ARGS_SECTION(convnet);
ARGS_SECTION(mlp);
ARGS_SECTION(transformer);
ARGS_SECTION(resnet18);
ARGS_SECTION(lenet);
ARGS_SECTION(gpt);
ARGS_SECTION(lstm_lm);
/* In the order of the builders in src/config/build_model.c. */
static const tsri_section models[] = {
    {.name = "mobilenet_v2", .doc = "torchvision's MobileNetV2.", FIELDS(mobilenet_v2_fields)},
    {.name = "convnet",
     .doc = "Two 5x5 convolutions (16, 32 channels) with batch norm, ReLU and pooling; a linear "
            "layer.",
     FIELDS(convnet_fields)},
    {.name = "mlp", .doc = "Linear layers with ReLU between.", FIELDS(mlp_fields)},
    {.name = "transformer",
     .doc = "Pre-norm blocks over an image's rows, of all channels: each is a position, its pixels "
            "are the features. Logits are the mean over positions.",
     FIELDS(transformer_fields)},
    {.name = "resnet18", .doc = "torchvision's ResNet-18.", FIELDS(resnet18_fields)},
    {.name = "lenet",
     .doc = "LeNet-5 as PyTorch's tutorials have it, with ReLU and max pooling.",
     FIELDS(lenet_fields)},
    {.name = "gpt",
     .doc =
         "GPT-2 over an image's bytes, channel by channel and row by row: each is predicted from "
         "those before it. Labels are not used, and pixels are not normalized.",
     FIELDS(gpt_fields)},
    {.name = "lstm_lm",
     .doc = "The same as gpt, with embeddings, an LSTM over them and a linear layer.",
     FIELDS(lstm_lm_fields)},
};
const tsri_section tsri_model_section = {.name = "model",
                                         .size = sizeof(tsri_config_model),
                                         .selector = "name",
                                         .nvariants = COUNT(models),
                                         .variants = models};

/* --- data ------------------------------------------------------------------------------------- */
#define DATA(kind_, key, fallback_, low, high, doc_) \
    FIELD(kind_, tsri_config_data, #key, key, fallback_, low, high, doc_)

static const tsri_field data_fields[] = {
    DATA(INT, batch_size, "64", 1, 0x1p31, "Rows of the global batch."),
    DATA(BOOL, shuffle, "true", 0, 0, "A new order in each epoch."),
    DATA(BOOL, augment, "false", 0, 0, "Random crops and flips."),
    DATA(BOOL, normalize, "true", 0, 0, "By the set's usual mean and deviation."),
    DATA(INT, seed, "0", 0, MOST, "Of the order, the crops and the flips."),
    DATA(INT, workers, "1", 0, 1024, "Threads that decode; 0: the rank itself does."),
    DATA(INT, prefetch, "2", 0, 1024, "Batches decoded ahead."),
};
static const tsri_field folder_fields[] = {
    DATA(PATH, dir, TSRI_NONE, 0, 0, "The set's folder. Default: the variable TESSERA_DATA."),
};
static const tsri_field synthetic_fields[] = {
    DATA(SHAPE, shape, TSRI_NEEDED, 1, 3, "Of an image: (channels, height, width)."),
    DATA(INT, classes, TSRI_NEEDED, 1, 256, "Labels are 0 to classes - 1."),
    DATA(INT, samples, "1024", 1, 0x7fffffff, "Images of the set."),
};
static const tsri_section datasets[] = {
    {.name = "cifar10", .doc = "CIFAR-10's binary files.", FIELDS(folder_fields)},
    {.name = "mnist", .doc = "MNIST's files, or a set of its form.", FIELDS(folder_fields)},
    {.name = "synthetic",
     .doc = "Drawn by the seed: a pattern for each class, under noise. Needs no files.",
     FIELDS(synthetic_fields)},
};
const tsri_section tsri_data_section = {.name = "data",
                                        .size = sizeof(tsri_config_data),
                                        FIELDS(data_fields),
                                        .selector = "dataset",
                                        .nvariants = COUNT(datasets),
                                        .variants = datasets};

/* --- tensors and parameters ------------------------------------------------------------------- */
#define SBP(type, doc_) FIELD(SBP, type, "sbp", sbp, TSRI_NONE, 0, 0, doc_)

static const tsri_field layout_fields[] = {
    PLACEMENT(tsri_config_layout, "Where it lives."),
    SBP(tsri_config_layout,
        "Its signature. B alone is B in each dimension; by axes' names, those not named are B."),
};
const tsri_section tsri_layout_section = {
    .name = "tensor", .size = sizeof(tsri_config_layout), FIELDS(layout_fields)};
#define LAYOUT(key, doc_)                                                                       \
    {                                                                                           \
        .name = #key, .kind = TSRI_FIELD_SECTION, .offset = offsetof(tsri_config_tensors, key), \
        .fallback = "{}", .section = &tsri_layout_section, .doc = doc_                          \
    }
static const tsri_field tensor_fields[] = {
    LAYOUT(input, "The images. Default: the first placement, S(0) in each dimension."),
    LAYOUT(label, "The labels. Default: as the input."),
    LAYOUT(logits, "What the model gives. Default: where that is, what is cheapest."),
    LAYOUT(loss, "The loss. Default: where the logits are, B."),
};
const tsri_section tsri_tensors_section = {
    .name = "tensors", .size = sizeof(tsri_config_tensors), FIELDS(tensor_fields)};

static const tsri_field pattern_fields[] = {
    FIELD(TEXT, tsri_config_pattern, "match", match, TSRI_NEEDED, 0, 0,
          "A pattern of qualified names, as in features.0.*: * is any text, ? one character, "
          "[a-c] one of these."),
    PLACEMENT(tsri_config_pattern, "Where they live. Default: where the input does."),
    SBP(tsri_config_pattern,
        "Their signature; auto lets the compiler choose. Default: B. B alone is B in each "
        "dimension."),
};
const tsri_section tsri_pattern_section = {
    .name = "parameters", .size = sizeof(tsri_config_pattern), FIELDS(pattern_fields)};

/* --- optimizers ------------------------------------------------------------------------------- */
#define SCHEDULE(kind_, key, fallback_, low, high, doc_) \
    FIELD(kind_, tsri_config_schedule, #key, key, fallback_, low, high, doc_)
static const tsri_field schedule_fields[] = {
    SCHEDULE(INT, warmup, "0", 0, MOST, "Steps of linear rise to lr, before the schedule."),
};
static const tsri_field schedule_step_fields[] = {
    SCHEDULE(INT, step_size, TSRI_NEEDED, 1, MOST, "Steps between two falls."),
    SCHEDULE(FLOAT, gamma, "0.1", 1e-9, 1, "Multiplies lr at each."),
};
static const tsri_field schedule_cosine_fields[] = {
    SCHEDULE(INT, steps, TSRI_NONE, 1, MOST, "Default: all steps behind the warm-up."),
    SCHEDULE(FLOAT, min_lr, "0", 0, INFINITY, "At the end."),
};
static const tsri_field schedule_multi_step_fields[] = {
    SCHEDULE(INTS, milestones, TSRI_NEEDED, 0, MOST, "The steps at which lr falls; rising."),
    SCHEDULE(FLOAT, gamma, "0.1", 1e-9, 1, "Multiplies lr at each."),
};
static const tsri_field schedule_exponential_fields[] = {
    SCHEDULE(FLOAT, gamma, TSRI_NEEDED, 1e-9, INFINITY, "Multiplies lr at each step."),
};
static const tsri_field schedule_linear_fields[] = {
    SCHEDULE(INT, steps, "5", 1, MOST, "From one factor to the other."),
    SCHEDULE(FLOAT, start_factor, "0.333333333333333333", 1e-9, INFINITY, "Multiplies lr first."),
    SCHEDULE(FLOAT, end_factor, "1", 0, INFINITY, "Multiplies lr at last."),
};
static const tsri_field schedule_restarts_fields[] = {
    SCHEDULE(INT, steps, TSRI_NEEDED, 1, MOST, "Of the first period."),
    SCHEDULE(INT, restart_factor, "1", 1, MOST, "Each period is so many times as long."),
    SCHEDULE(FLOAT, min_lr, "0", 0, INFINITY, "At the end of a period."),
};
static const tsri_field schedule_one_cycle_fields[] = {
    SCHEDULE(INT, steps, TSRI_NONE, 1, MOST, "Default: all steps behind the warm-up."),
    SCHEDULE(FLOAT, max_lr, "0", 0, INFINITY, "At the top; 0 is lr."),
    SCHEDULE(FLOAT, pct_start, "0.3", 0, 1, "The part of the steps that rises."),
    SCHEDULE(FLOAT, div_factor, "25", 1e-9, INFINITY, "It starts at max_lr by this."),
    SCHEDULE(FLOAT, final_div_factor, "1e4", 1e-9, INFINITY, "It ends at its start by this."),
    SCHEDULE(BOOL, linear, "false", 0, 0, "By lines instead of cosines."),
    SCHEDULE(BOOL, three_phase, "false", 0, 0, "Falls as it rose, then to its end."),
    SCHEDULE(BOOL, keep_momentum, "false", 0, 0, "Else momentum goes the other way."),
    SCHEDULE(FLOAT, base_momentum, "0.85", 0, 0.999999999, "At the top."),
    SCHEDULE(FLOAT, max_momentum, "0.95", 0, 0.999999999, "At both ends."),
};
/* In the order of tsr_schedule_kind. */
static const tsri_section schedules[] = {
    {.name = "constant", .doc = "lr stays."},
    {.name = "step", .doc = "lr * gamma^(step / step_size).", FIELDS(schedule_step_fields)},
    {.name = "cosine", .doc = "From lr down to min_lr.", FIELDS(schedule_cosine_fields)},
    {.name = "multi_step",
     .doc = "lr * gamma^(milestones reached).",
     FIELDS(schedule_multi_step_fields)},
    {.name = "exponential", .doc = "lr * gamma^step.", FIELDS(schedule_exponential_fields)},
    {.name = "linear",
     .doc = "lr times a factor that goes from one number to another.",
     FIELDS(schedule_linear_fields)},
    {.name = "cosine_restarts",
     .doc = "The cosine again and again.",
     FIELDS(schedule_restarts_fields)},
    {.name = "one_cycle",
     .doc = "Up to max_lr and down again, momentum the other way.",
     FIELDS(schedule_one_cycle_fields)},
};
const tsri_section tsri_schedule_section = {.name = "schedule",
                                            .size = sizeof(tsri_config_schedule),
                                            FIELDS(schedule_fields),
                                            .selector = "name",
                                            .nvariants = COUNT(schedules),
                                            .variants = schedules};
static const tsri_field state_fields[] = {
    SBP(tsri_config_state,
        "Its signature. Default: the parameter's. S(0) is ZeRO's. By axes' names, those not named "
        "are as the parameter's."),
};
static const tsri_section state_section = {
    .name = "state", .size = sizeof(tsri_config_state), FIELDS(state_fields)};

#define OPTIMIZER(kind_, key, fallback_, low, high, doc_) \
    FIELD(kind_, tsri_config_optimizer, #key, key, fallback_, low, high, doc_)
#define LR(usual) OPTIMIZER(FLOAT, lr, usual, 0, INFINITY, "Learning rate.")
#define GROUP(key, doc_) FIELD(FLOAT, tsri_config_group, #key, key, TSRI_NONE, 0, INFINITY, doc_)
static const tsri_field group_fields[] = {
    FIELD(TEXT, tsri_config_group, "match", match, TSRI_NEEDED, 0, 0,
          "A pattern of qualified names, as in parameters."),
    GROUP(lr, "Their own rate."),
    GROUP(weight_decay, "Their own decay."),
    FIELD(BOOL, tsri_config_group, "frozen", frozen, "false", 0, 0, "They are not trained."),
};
const tsri_section tsri_group_section = {
    .name = "groups", .size = sizeof(tsri_config_group), FIELDS(group_fields)};

static const tsri_field optimizer_fields[] = {
    {.name = "schedule",
     .kind = TSRI_FIELD_SECTION,
     .offset = offsetof(tsri_config_optimizer, schedule),
     .fallback = "{}",
     .section = &tsri_schedule_section,
     .doc = "How lr goes from step to step."},
    {.name = "state",
     .kind = TSRI_FIELD_SECTION,
     .offset = offsetof(tsri_config_optimizer, state),
     .fallback = TSRI_NONE,
     .section = &state_section,
     .doc = "What is kept for each parameter."},
    {.name = "groups",
     .kind = TSRI_FIELD_SECTIONS,
     .offset = offsetof(tsri_config_optimizer, groups),
     .fallback = TSRI_NONE,
     .section = &tsri_group_section,
     .max = TSRI_CONFIG_MAX_PATTERNS,
     .doc = "Parameters with numbers of their own: those of the last entry with any that fits a "
            "name; frozen is that of the last entry that says it."},
    OPTIMIZER(FLOAT, clip_norm, TSRI_NONE, 0, INFINITY,
              "All gradients are scaled down to a norm of at most this. Default: they are not."),
    OPTIMIZER(FLOAT, clip_value, TSRI_NONE, 0, INFINITY,
              "Gradients' elements are brought to at most this size. Default: they are not."),
    OPTIMIZER(INT, accumulate, "1", 1, MOST, "Steps of whose gradients an update takes the mean."),
    OPTIMIZER(FLOAT, loss_scale, "1", 1e-30, 1e30, "Multiplies the loss, and divides gradients."),
};
static const tsri_field sgd_fields[] = {
    LR("0.001"),
    OPTIMIZER(FLOAT, momentum, "0", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, dampening, "0", 0, 0, ""),
    OPTIMIZER(FLOAT, weight_decay, "0", 0, INFINITY, ""),
    OPTIMIZER(BOOL, nesterov, "false", 0, 0, "Needs momentum, and no dampening."),
};
#define ADAM_FIELDS(name, decay)                                \
    static const tsri_field name[] = {                          \
        LR("0.001"),                                            \
        OPTIMIZER(FLOAT, beta1, "0.9", 0, 0.999999999, ""),     \
        OPTIMIZER(FLOAT, beta2, "0.999", 0, 0.999999999, ""),   \
        OPTIMIZER(FLOAT, eps, "1e-8", 0, INFINITY, ""),         \
        OPTIMIZER(FLOAT, weight_decay, decay, 0, INFINITY, ""), \
    }
ADAM_FIELDS(adam_fields, "0");
ADAM_FIELDS(adamw_fields, "0.01");
static const tsri_field rmsprop_fields[] = {
    LR("0.01"),
    OPTIMIZER(FLOAT, alpha, "0.99", 0, INFINITY, "Of the mean square: what is kept."),
    OPTIMIZER(FLOAT, eps, "1e-8", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, momentum, "0", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, weight_decay, "0", 0, INFINITY, ""),
    OPTIMIZER(BOOL, centered, "false", 0, 0, "The variance stands for the mean square."),
};
static const tsri_field adagrad_fields[] = {
    LR("0.01"),
    OPTIMIZER(FLOAT, lr_decay, "0", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, initial_accumulator_value, "0", 0, INFINITY, "Of the sums of squares."),
    OPTIMIZER(FLOAT, eps, "1e-10", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, weight_decay, "0", 0, INFINITY, ""),
};
static const tsri_field lion_fields[] = {
    LR("0.0001"),
    OPTIMIZER(FLOAT, beta1, "0.9", 0, 0.999999999, ""),
    OPTIMIZER(FLOAT, beta2, "0.99", 0, 0.999999999, ""),
    OPTIMIZER(FLOAT, weight_decay, "0", 0, INFINITY, ""),
};
static const tsri_field own_fields[] = {
    LR("0.001"),
    OPTIMIZER(PATH, plugin, TSRI_NONE, 0, 0, "The library, which reading the file runs."),
    OPTIMIZER(TEXT, function, TSRI_NEEDED, 0, 0, "The optimizer's name there."),
    {.name = "numbers",
     .kind = TSRI_FIELD_ANY,
     .offset = offsetof(tsri_config_optimizer, numbers),
     .fallback = TSRI_NONE,
     .legal = "a mapping of the optimizer's numbers",
     .doc = "By name, as in {beta1: 0.9}."},
};
/* In the order of TSRI_OPTIMIZER_... */
static const tsri_section optimizers[] = {
    {.name = "sgd", .doc = "Stochastic gradient descent.", FIELDS(sgd_fields)},
    {.name = "adam", .doc = "Adam; weight decay is added to the gradient.", FIELDS(adam_fields)},
    {.name = "adamw", .doc = "Adam; weight decay is apart.", FIELDS(adamw_fields)},
    {.name = "rmsprop", .doc = "RMSprop.", FIELDS(rmsprop_fields)},
    {.name = "adagrad", .doc = "Adagrad.", FIELDS(adagrad_fields)},
    {.name = "lion", .doc = "The sign of an average of gradients.", FIELDS(lion_fields)},
    {.name = "lamb", .doc = "AdamW's step, scaled by norms.", FIELDS(adam_fields)},
    {.name = "own",
     .doc = "One that a plug-in library defines (docs/extending/optimizer.md).",
     FIELDS(own_fields)},
};
const tsri_section tsri_optimizer_section = {.name = "optimizer",
                                             .size = sizeof(tsri_config_optimizer),
                                             FIELDS(optimizer_fields),
                                             .selector = "name",
                                             .nvariants = COUNT(optimizers),
                                             .variants = optimizers};

/* --- training --------------------------------------------------------------------------------- */
#define TRAIN(kind_, key, fallback_, low, high, doc_) \
    FIELD(kind_, tsri_config_train, #key, key, fallback_, low, high, doc_)
static const tsri_field train_fields[] = {
    TRAIN(INT, epochs, "1", 0, MOST,
          "Times through the data. Batches are full: rows that fill none are left out."),
    TRAIN(INT, steps, TSRI_NONE, 0, MOST, "At most as many steps; of a graph, runs (default 1)."),
    TRAIN(INT, seed, "0", 0, MOST, "Of initial values, dropout and random tensors."),
    TRAIN(PATH, init, TSRI_NONE, 0, 0, "Weights to start from: a safetensors file."),
    TRAIN(FLOAT, label_smoothing, "0", 0, 0.999999, "Of the loss, cross entropy."),
    WORD(tsri_config_train, "on_nan", on_nan, "stop", on_nan_words,
         "What a loss that is infinite or not a number does: ends the run before parameters are "
         "updated with it, naming the step and the tensor in which it begins; warns, once, in "
         "the same words; nothing. Of a graph, which updates nothing, stop is warn."),
};
const tsri_section tsri_train_section = {
    .name = "train", .size = sizeof(tsri_config_train), FIELDS(train_fields)};

/* --- the whole -------------------------------------------------------------------------------- */
#define PART(kind_, key, fallback_, section_, low, high, doc_)                              \
    {                                                                                       \
        .name = #key, .kind = TSRI_FIELD_##kind_, .offset = offsetof(tsri_experiment, key), \
        .fallback = fallback_, .section = section_, .min = low, .max = high, .doc = doc_    \
    }
static const tsri_field experiment_fields[] = {
    {.name = "tessera",
     .kind = TSRI_FIELD_INT,
     .offset = offsetof(tsri_experiment, version),
     .fallback = TSRI_NEEDED,
     .min = 1,
     .max = 1.5,
     .legal = "1",
     .doc = "The version of the format."},
    WORD(
        tsri_experiment, "dtype", dtype_word, "f32", dtype_words,
        "What is computed in. Data sets are read in f32 and f64 alone, so that training in f16 and "
        "bf16 can be planned, not run."),
    PART(NAMED, placements, TSRI_NONE, &tsri_placement_section, 1, TSRI_CONFIG_MAX_PLACEMENTS,
         "Names for devices and ranks."),
    FIELD(MESH, tsri_experiment, "mesh", mesh, TSRI_NONE, 0, 0,
          "Instead of placements: the axes of the only one, which is called mesh."),
    WORD(tsri_experiment, "device", device, TSRI_NONE, device_words,
         "Beside mesh: what a rank computes on. Default: cuda where cluster has a gpu, else cpu."),
    PART(SECTION, model, TSRI_NONE, &tsri_model_section, 0, 0, "What is trained."),
    PART(SECTION, data, TSRI_NONE, &tsri_data_section, 0, 0, "What it is trained on."),
    PART(SECTION, tensors, TSRI_NONE, &tsri_tensors_section, 0, 0,
         "Where the tensors of a training step live."),
    PART(SECTIONS, parameters, TSRI_NONE, &tsri_pattern_section, 0, TSRI_CONFIG_MAX_PATTERNS,
         "Where parameters and buffers live. Of the entries that fit a name and say a key the "
         "last one counts."),
    PART(SECTION, optimizer, TSRI_NONE, &tsri_optimizer_section, 0, 0,
         "How parameters are updated. Default: sgd."),
    PART(NAMED, graph, TSRI_NONE, &tsri_op_section, 1, TSRI_CONFIG_MAX_OPS,
         "Instead of model, data, tensors, parameters and optimizer: ops, in order."),
    FIELD(NAME, tsri_experiment, "loss", loss, TSRI_NONE, 0, 0,
          "The entry of graph whose gradients can be fetched. With it the graph is one of "
          "training: dropout drops, batch norm uses the batch's statistics."),
    FIELD(NAMES, tsri_experiment, "fetch", fetch, TSRI_NONE, 0, 0,
          "What a graph's run gives: names of its entries, and grad(NAME). Default: the last "
          "entry."),
    PART(SECTION, train, TSRI_NONE, &tsri_train_section, 0, 0, "For how long."),
    PART(SECTION, cluster, TSRI_NONE, &tsri_cluster_section, 0, 0,
         "What planning assumes of machines and the links between them; h100-sxm:16x8 is {gpu: "
         "h100-sxm, nodes: 16, gpus_per_node: 8}. Default: this machine's own figures."),
    FIELD(BYTES, tsri_experiment, "memory_limit", memory_limit, TSRI_NONE, 0, 0,
          "Bytes that a rank may use, kernels' scratch included. Default: the memory of the "
          "cluster's gpu."),
    FIELD(FLOAT, tsri_experiment, "bucket_mb", bucket_mb, "4", 0, 1e6,
          "Gradients are reduced together, in calls of up to this many MiB; 0: each by itself."),
    FIELD(
        BOOL, tsri_experiment, "infer_updates", infer_updates, "false", 0, 0,
        "Whether parameters that are said to be B, and their optimizer states, are updated in the "
        "signature that is cheapest, and gathered. Default is data parallelism: gradients are "
        "summed, and nothing that is split along the data is gathered."),
};
const tsri_section tsri_experiment_section = {
    .name = "experiment", .size = sizeof(tsri_experiment), FIELDS(experiment_fields)};
