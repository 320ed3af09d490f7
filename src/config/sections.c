/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of all sections but those of ops, layers, optimizers and clusters. */
#include <math.h>

#include "src/config/layers/layers.h"
#include "src/config/section_fields.h"

/* In the order in which tsri_experiment_fill reads them. */
static const char *const on_nan_words[] = {"stop", "warn", "ignore", NULL};
static const char *const dtype_words[] = {"f32", "f64", "f16", "bf16", NULL};
static const char *const mobilenet_words[] = {"torchvision", "cifar", "stem1", NULL};
static const char *const resnet_words[] = {"torchvision", "cifar", NULL};
static const char *const activation_words[] = {"relu6", "relu", "identity", NULL};
static const char *const bn_words[] = {"global", "local", NULL};

/* --- placements ------------------------------------------------------------------------------- */
static const tsri_field placement_fields[] = {
    WORD(tsri_config_placement, "device", device, TSRI_NONE, tsri_target_names,
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

#define BN_PARTS(doc_) ARG(INT, "bn_parts", bn_parts, TSRI_NONE, 1, 65536, doc_)
static const tsri_field mobilenet_v2_args[] = {
    ARG(INT, "num_classes", num_classes, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(FLOAT, "width", width, "1", 0.01, 16, "Multiplies the channels."),
    ARG(FLOAT, "dropout", dropout, "0.2", 0, 0.999999, "Before the classifier."),
    WORD(tsri_config_args, "variant", variant, "torchvision", mobilenet_words,
         "For small images: cifar has stride 1 in the stem and the second stage, stem1 in the stem "
         "alone, which is three times as fast and less accurate."),
    WORD(tsri_config_args, "activation", activation, "relu6", activation_words, ""),
    WORD(tsri_config_args, "bn", bn, "global", bn_words,
         "Batch norm's statistics: over the global batch, or over each rank's part of it."),
    BN_PARTS("Of bn: local, the parts of the batch that have statistics of their own. Default: the "
             "ranks. With schedule.microbatches a multiple of these times the ranks."),
};
static const tsri_field convnet_args[] = {
    ARG(INT, "num_classes", num_classes, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "channels", channels, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "height", height, TSRI_NONE, 4, MOST, "Default: that of the data."),
    ARG(INT, "width", columns, TSRI_NONE, 4, MOST, "Default: that of the data."),
    WORD(tsri_config_args, "bn", bn, "global", bn_words, "As mobilenet_v2's."),
    BN_PARTS("As mobilenet_v2's."),
};
static const tsri_field mlp_args[] = {
    ARG(INT, "inputs", inputs, TSRI_NONE, 1, MOST, "Default: the elements of a row."),
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
    WORD(tsri_config_args, "variant", variant, "torchvision", resnet_words,
         "cifar: a stem of stride 1 without pooling, for small images."),
    WORD(tsri_config_args, "bn", bn, "global", bn_words, "As mobilenet_v2's."),
    BN_PARTS("As mobilenet_v2's."),
};
static const tsri_field lenet_args[] = {
    ARG(INT, "num_classes", num_classes, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "channels", channels, TSRI_NONE, 1, MOST, "Default: those of the data."),
    ARG(INT, "height", height, TSRI_NONE, 1, MOST, "28 or 32. Default: that of the data."),
    ARG(INT, "width", columns, TSRI_NONE, 1, MOST, "The height. Default: that of the data."),
};
#define VOCAB                                       \
    ARG(INT, "vocab", vocab, TSRI_NONE, 1, 1 << 30, \
        "Rows of the table of tokens. Default: the kinds of elements of the data; bytes are 256.")
static const tsri_field gpt_args[] = {
    VOCAB,
    ARG(INT, "width", features, "768", 1, 1 << 30, "Features of a position."),
    ARG(INT, "layers", layers, "12", 0, 1024, "Blocks."),
    ARG(INT, "heads", heads, "12", 1, MOST, "Of attention; a divisor of width."),
    ARG(FLOAT, "dropout", dropout, "0.1", 0, 0.999999,
        "Of attention's weights, each branch and the embeddings."),
};
static const tsri_field lstm_lm_args[] = {
    VOCAB,
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
static const tsri_field part_fields[] = {
    {.name = "layers",
     .kind = TSRI_FIELD_SECTIONS,
     .offset = offsetof(tsri_config_part, layers),
     .fallback = TSRI_NEEDED,
     .section = &tsri_layer_section,
     .min = 1,
     .max = TSRI_CONFIG_MAX_LAYERS,
     .doc = "Its layers."},
};
const tsri_section tsri_part_section = {
    .name = "part", .size = sizeof(tsri_config_part), .list_as = "layers", FIELDS(part_fields)};
static const tsri_field layers_fields[] = {
    {.name = "layers",
     .kind = TSRI_FIELD_SECTIONS,
     .offset = offsetof(tsri_config_model, layers),
     .fallback = TSRI_NEEDED,
     .section = &tsri_layer_section,
     .min = 1,
     .max = TSRI_CONFIG_MAX_LAYERS,
     .doc = "The layers, one behind the other; see LAYERS."},
    {.name = "parts",
     .kind = TSRI_FIELD_NAMED,
     .offset = offsetof(tsri_config_model, parts),
     .fallback = TSRI_NONE,
     .section = &tsri_part_section,
     .max = 1024,
     .doc =
         "Lists of layers by name, which {layer: part, of: NAME} stands for; each may be made of "
         "those above it."},
};
static const tsri_field plugin_fields[] = {
    FIELD(PATH, tsri_config_model, "plugin", plugin, TSRI_NEEDED, 0, 0,
          "The library, whose code building the experiment runs (plan and run do, unless "
          "--no-plugins)."),
    FIELD(TEXT, tsri_config_model, "function", function, TSRI_NEEDED, 0, 0,
          "The function of it that makes the model: a tsr_plugin_model_fn."),
};
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
     .doc = "GPT-2 over text: it predicts each byte or token from those before it. A data set of "
            "images is read as text: its bytes, channel by channel and row by row; then labels are "
            "not used, and pixels are not normalized.",
     FIELDS(gpt_fields)},
    {.name = "lstm_lm",
     .doc = "The same as gpt, with embeddings, an LSTM over them and a linear layer.",
     FIELDS(lstm_lm_fields)},
    {.name = "layers",
     .doc = "Layers that stand in the file. The key layers selects it, too.",
     .implied_by = "layers",
     FIELDS(layers_fields)},
    {.name = "plugin",
     .doc = "One that a plug-in library makes. The key plugin selects it, too.",
     .implied_by = "plugin",
     FIELDS(plugin_fields)},
};
const tsri_section tsri_model_section = {.name = "model",
                                         .size = sizeof(tsri_config_model),
                                         .selector = "name",
                                         .nvariants = COUNT(models),
                                         .variants = models};

/* --- data ------------------------------------------------------------------------------------- */
#define DATA(kind_, key, fallback_, low, high, ...) \
    FIELD(kind_, tsri_config_data, #key, key, fallback_, low, high, __VA_ARGS__)

static const tsri_field data_fields[] = {
    DATA(INT, batch_size, "64", 1, 0x1p31, "Rows of the global batch.", REFUSED),
    DATA(BOOL, shuffle, "true", 0, 0, "A new order in each epoch."),
    DATA(SEED, seed, "0", 0, 0, "Of the order, the crops and the flips."),
    DATA(INT, workers, "1", 0, 1024, "Threads that decode; 0: the rank itself does."),
    DATA(INT, prefetch, "2", 0, 1024, "Batches decoded ahead."),
};
#define IMAGE_FIELDS                                               \
    DATA(BOOL, augment, "false", 0, 0, "Random crops and flips."), \
        DATA(BOOL, normalize, "true", 0, 0, "By the set's usual mean and deviation.")
#define TEST_PART                                     \
    DATA(FLOAT, test_part, TSRI_NONE, 1e-9, 0.999999, \
         "The last rows, so great a part of all, are for evaluation and not trained on.", REFUSED)
static const tsri_field folder_fields[] = {
    DATA(PATH, dir, TSRI_NONE, 0, 0, "The set's folder. Default: the variable TESSERA_DATA."),
    IMAGE_FIELDS,
};
static const tsri_field synthetic_fields[] = {
    DATA(SHAPE, shape, TSRI_NEEDED, 1, TSR_MAX_NDIM - 1,
         "Of a row; of up to three sizes: an image of (channels, height, width).", REFUSED),
    DATA(INT, classes, TSRI_NEEDED, 1, 0x1p31, "Labels are 0 to classes - 1.", REFUSED),
    DATA(INT, samples, "1024", 1, 0x7fffffff, "Rows of the set.", REFUSED),
    DATA(INT, test_samples, "256", 1, 0x7fffffff, "Others of the same patterns, for evaluation."),
    IMAGE_FIELDS,
};
static const tsri_field text_fields[] = {
    DATA(PATH, file, TSRI_NONE, 0, 0, "The text: any file. It is learnt byte by byte."),
    DATA(PATH, tokens, TSRI_NONE, 0, 0,
         "In place of file: tokens, a .npy file of whole numbers along one axis."),
    DATA(INT, vocab, TSRI_NONE, 1, 0x1p31,
         "How many tokens there are. Default: 256 of bytes; of tokens the largest one, and 1.",
         REFUSED),
    DATA(INT, context, "128", 1, 0x1p31,
         "Elements of a row: windows of the text, one behind the other. The label of each is the "
         "one "
         "behind it.",
         REFUSED),
    TEST_PART,
};
static const tsri_field npy_fields[] = {
    DATA(PATH, x, TSRI_NEEDED, 0, 0, "A .npy file of rows of numbers, in C order."),
    DATA(PATH, y, TSRI_NEEDED, 0, 0, "A .npy file of their labels: whole numbers, one a row."),
    DATA(INT, classes, TSRI_NONE, 1, 0x1p31,
         "Labels are 0 to classes - 1. Default: the largest label, and 1.", REFUSED),
    DATA(SHAPE, shape, TSRI_NONE, 1, TSR_MAX_NDIM - 1,
         "Of a row; of up to three sizes: an image of (channels, height, width). Default: that of "
         "the file. To plan without the files, say it and classes.",
         REFUSED),
    DATA(FLOAT, mean, "0", 0, 0, "Is subtracted from all numbers."),
    DATA(FLOAT, std, "1", 1e-300, INFINITY, "Divides them."),
    TEST_PART,
    DATA(PATH, test_x, TSRI_NONE, 0, 0, "In place of test_part: a file of rows for evaluation."),
    DATA(PATH, test_y, TSRI_NONE, 0, 0, "Their labels."),
};
static const tsri_section datasets[] = {
    {.name = "cifar10", .doc = "CIFAR-10's binary files.", FIELDS(folder_fields)},
    {.name = "mnist", .doc = "MNIST's files, or a set of its form.", FIELDS(folder_fields)},
    {.name = "synthetic",
     .doc = "Drawn by the seed: a pattern for each class, under noise. Needs no files.",
     FIELDS(synthetic_fields)},
    {.name = "text",
     .doc = "Bytes of any file, or tokens, for gpt and lstm_lm.",
     FIELDS(text_fields)},
    {.name = "npy", .doc = "Rows and labels of the user's own.", FIELDS(npy_fields)},
};
const tsri_section tsri_data_section = {.name = "data",
                                        .size = sizeof(tsri_config_data),
                                        FIELDS(data_fields),
                                        .selector = "dataset",
                                        .on_resume = TSRI_RESUME_REFUSED,
                                        .nvariants = COUNT(datasets),
                                        .variants = datasets};

/* --- tensors and parameters ------------------------------------------------------------------- */

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
    {.name = "match",
     .kind = TSRI_FIELD_SECTIONS,
     .offset = offsetof(tsri_config_tensors, match),
     .section = &tsri_pin_section,
     .max = TSRI_CONFIG_MAX_PATTERNS,
     .doc = "Signatures of tensors that the model computes. Where several entries fit a name, the "
            "last "
            "one counts. tensors may also be a list, which then holds these entries."},
};
const tsri_section tsri_tensors_section = {.name = "tensors",
                                           .size = sizeof(tsri_config_tensors),
                                           .list_as = "match",
                                           FIELDS(tensor_fields)};

static const tsri_field pattern_fields[] = {
    FIELD(TEXT, tsri_config_pattern, "match", match, TSRI_NEEDED, 0, 0,
          "A pattern of qualified names, as in features.0.*: * is any text, ? one character, "
          "[a-c] one of these."),
    PLACEMENT(tsri_config_pattern, "Where they live. Default: where the input does."),
    SBP(tsri_config_pattern,
        "Their signature; auto lets the compiler choose. Default: B. B alone is B in each "
        "dimension."),
    FIELD(SBP, tsri_config_pattern, "use", use, TSRI_NONE, 0, 0,
          "The signature in which the model takes parameters, into which they are brought where "
          "they are used: B of parameters that are S(0) gathers them. Default: what is cheapest."),
    FIELD(SBP, tsri_config_pattern, "state", state, TSRI_NONE, 0, 0,
          "That of the optimizer's states of them. Default: as optimizer says."),
    FIELD(SBP, tsri_config_pattern, "gradient", gradient, TSRI_NONE, 0, 0,
          "That into which their gradients are brought before the update. Default: what is "
          "cheapest."),
};
const tsri_section tsri_pattern_section = {
    .name = "parameters", .size = sizeof(tsri_config_pattern), FIELDS(pattern_fields)};

/* --- training --------------------------------------------------------------------------------- */
#define EVERY(type, key, doc_)                                                            \
    {                                                                                     \
        .name = "every", .kind = TSRI_FIELD_ANY, .offset = offsetof(type, every),         \
        .fallback = TSRI_NONE,                                                            \
        .legal = "a number of steps, as in 100, or of epochs, as in 1 epoch, up to 2^53", \
        .doc = doc_                                                                       \
    }
/* In the order of tsri_config_eval.test_part. */
static const char *const eval_data_words[] = {"train", "test", NULL};
static const tsri_field eval_fields[] = {
    EVERY(tsri_config_eval, every, "How often, and at the end. Default: 1 epoch."),
    WORD(tsri_config_eval, "data", test_part, "test", eval_data_words,
         "The part of the data, whole and in its order."),
    {.name = "scores",
     .kind = TSRI_FIELD_NAME,
     .offset = offsetof(tsri_config_eval, scores),
     .fallback = TSRI_NONE,
     .legal = "the name of an entry of graph",
     .doc =
         "Of a graph: the entry of shape (rows, classes) that is compared with the labels, for "
         "accuracy and top5. Default: what the loss takes beside labels, where it is made by one "
         "cross_entropy, nll_loss or multi_margin_loss; else only the loss is told."},
};
const tsri_section tsri_eval_section = {
    .name = "eval", .size = sizeof(tsri_config_eval), FIELDS(eval_fields)};
static const tsri_field checkpoint_fields[] = {
    FIELD(
        PATH, tsri_config_checkpoint, "dir", dir, TSRI_NEEDED, 0, 0,
        "The folder, which is made if need be: anywhere that the user may write. Files in it that "
        "checkpoints do not have stay."),
    EVERY(tsri_config_checkpoint, every,
          "How often, beside at the end and after a signal. Default: no more."),
    FIELD(INT, tsri_config_checkpoint, "keep", keep, "3", 0, 0x7fffffff,
          "So many of the newest stay; 0: all."),
    FIELD(BOOL, tsri_config_checkpoint, "resume", resume, "true", 0, 0,
          "Goes on from the newest one in the folder, on any number of ranks. If false, a folder "
          "that has one is refused."),
};
const tsri_section tsri_checkpoint_section = {
    .name = "checkpoint", .size = sizeof(tsri_config_checkpoint), FIELDS(checkpoint_fields)};
#define AMP(kind_, key, fallback_, low, high, ...) \
    FIELD(kind_, tsri_config_amp, #key, key, fallback_, low, high, __VA_ARGS__)
static const tsri_field amp_f16_fields[] = {
    AMP(FLOAT, init_scale, "65536", 1e-30, 1e30, "By which the loss is multiplied at first.", KEPT),
    AMP(FLOAT, growth_factor, "2", 1.000000001, 1e30, "Multiplies it after growth_interval."),
    AMP(FLOAT, backoff_factor, "0.5", 1e-30, 0.999999999,
        "Multiplies it where gradients are not finite; that update is left out."),
    AMP(INT, growth_interval, "2000", 1, MOST, "Updates in a row that were not left out."),
};
/* In the order of TSRI_AMP_... */
static const tsri_section amp_dtypes[] = {
    {.name = "bf16", .doc = "With f32's range: losses are not scaled."},
    {.name = "f16", .doc = "With a gradient scaler.", FIELDS(amp_f16_fields)},
};
const tsri_section tsri_amp_section = {.name = "amp",
                                       .size = sizeof(tsri_config_amp),
                                       .selector = "dtype",
                                       .word_alone = true,
                                       .nvariants = COUNT(amp_dtypes),
                                       .variants = amp_dtypes};
#define TRAIN_SECTION(key, section_, doc_)                                                    \
    {                                                                                         \
        .name = #key, .kind = TSRI_FIELD_SECTION, .offset = offsetof(tsri_config_train, key), \
        .fallback = TSRI_NONE, .section = section_, .doc = doc_                               \
    }
#define TRAIN(kind_, key, fallback_, low, high, ...) \
    FIELD(kind_, tsri_config_train, #key, key, fallback_, low, high, __VA_ARGS__)
static const tsri_field train_fields[] = {
    TRAIN(INT, epochs, TSRI_NONE, 0, MOST,
          "Times through the data. Batches are full: rows that fill none are left out. Default: as "
          "many as steps takes, or 1."),
    TRAIN(INT, steps, TSRI_NONE, 0, MOST,
          "The number of steps, which go over as many epochs as they need. If epochs is given too, "
          "training ends at whichever comes first. For a graph: the number of runs (default 1)."),
    TRAIN(SEED, seed, "0", 0, 0, "Of initial values, dropout and random tensors."),
    TRAIN(PATH, init, TSRI_NONE, 0, 0, "Weights to start from: a safetensors file.", KEPT),
    TRAIN(FLOAT, label_smoothing, "0", 0, 0.999999, "Of the loss, cross entropy."),
    WORD(
        tsri_config_train, "on_nan", on_nan, "stop", on_nan_words,
        "What a loss that is infinite or not a number does: ends the run before parameters are "
        "updated with it, naming the step and the tensor in which it begins; warns, once, in "
        "the same words; nothing. A gradient scaler whose scale falls to 0 does the same, but that "
        "it always warns. Of a graph, which updates nothing, stop is warn."),
    TRAIN_SECTION(amp, &tsri_amp_section,
                  "Mixed precision, as torch.autocast has it: products and convolutions in this "
                  "type, parameters, their gradients and what loses its digits in f32. bf16 alone "
                  "is {dtype: bf16}. Default: all is in dtype."),
    TRAIN_SECTION(
        eval, &tsri_eval_section,
        "Evaluation: the loss, the part of the labels that are the likeliest class "
        "(accuracy), and that are one of the five likeliest (top5). A graph is evaluated by "
        "computing its loss without training: dropout drops nothing, and batch norm uses its "
        "running statistics. A loss without classes has no accuracy."),
    TRAIN_SECTION(checkpoint, &tsri_checkpoint_section,
                  "All that the run needs to go on, and beside it the weights, "
                  "weights.safetensors."),
    TRAIN(
        PATH, metrics, TSRI_NONE, 0, 0,
        "JSON lines, as they come; tessera-run(1) has the keys. The file may be anywhere that the "
        "user may write; a new run writes over one that is there, and one that goes on adds to "
        "it."),
    TRAIN(
        PATH, tensorboard, TSRI_NONE, 0, 0,
        "A folder for TensorBoard's files of events, anywhere that the user may write; no file in "
        "it is written over."),
};
const tsri_section tsri_train_section = {
    .name = "train", .size = sizeof(tsri_config_train), FIELDS(train_fields)};

#define FUSION(key, doc_) FIELD(BOOL, tsri_config_fusion, #key, key, "true", 0, 0, doc_)
static const tsri_field fusion_fields[] = {
    FUSION(activations,
           "Batch norm with a ReLU or ReLU6 behind it, forward and backward; on CPUs group norm "
           "with its weight and bias; on GPUs the parts of layer norm."),
    FUSION(softmax, "The parts of softmax, and those of cross entropy."),
    FUSION(chains,
           "On CPUs: 1x1 and depthwise convolutions and linear layers with what makes their "
           "rows and what reads them, by pieces of rows that stay in the cache."),
    FUSION(
        updates,
        "On CPUs: an optimizer's update with its gradient's producer, where the update is the only "
        "consumer; on GPUs: the parts of the gradients' norm."),
    FUSION(rows, "On CPUs: element-wise ops and reductions of f32 that share rows, likewise."),
    FUSION(pools, "On CPUs: a ReLU before max pooling goes behind it, to fewer elements."),
    FUSION(kept,
           "On CPUs: convolutions and linear layers keep their packed weights from run to run, if "
           "training does not change these."),
};
const tsri_section tsri_fusion_section = {
    .name = "fusion", .size = sizeof(tsri_config_fusion), FIELDS(fusion_fields)};

static const tsri_field recompute_fields[] = {
    FIELD(TEXT, tsri_config_recompute, "match", match, TSRI_NEEDED, 0, 0,
          "A pattern of modules' qualified names, as in h.*; of modules inside one another the "
          "outermost counts."),
};
const tsri_section tsri_recompute_section = {
    .name = "recompute", .size = sizeof(tsri_config_recompute), FIELDS(recompute_fields)};

static const tsri_field search_fields[] = {
    FIELD(
        FLOAT, tsri_config_search, "seconds", seconds, TSRI_NONE, 1e-3, 1e6,
        "The search's budget, in seconds of counted work, so that all ranks make the same plan; a "
        "slow machine takes longer. When it is used up the best plan so far is taken, and tessera "
        "plan states how far above the bound that can be. Default: no budget."),
};
const tsri_section tsri_search_section = {
    .name = "search", .size = sizeof(tsri_config_search), FIELDS(search_fields)};

/* In the order of tsr_pipeline. */
static const char *const pipeline_words[] = {"1f1b", "gpipe", NULL};
static const tsri_field step_schedule_fields[] = {
    FIELD(INT, tsri_config_step_schedule, "microbatches", microbatches, "1", 1, 0x7fffffff,
          "The step computes its batch in so many equal parts, one after another, and updates "
          "parameters once, after the last: a step's values are the same but for the order of "
          "sums, and only one part's activations are in memory. A divisor of the rows of each "
          "rank. Evaluation is not cut."),
    WORD(tsri_config_step_schedule, "kind", kind, "1f1b", pipeline_words,
         "The order in which stages work on micro-batches; it changes no value. 1f1b: a stage goes "
         "back with a micro-batch as soon as it can, and keeps as many in memory as there are "
         "stages from it to the last. gpipe: all go forward first, and a stage keeps all."),
};
const tsri_section tsri_step_schedule_section = {
    .name = "schedule", .size = sizeof(tsri_config_step_schedule), FIELDS(step_schedule_fields)};

/* In the order of TSRI_CONFIG_STRATEGY_.... */
static const char *const strategy_words[] = {"data",     "zero1",    "zero2", "zero3",
                                             "megatron", "sequence", "auto",  NULL};

/* --- the whole -------------------------------------------------------------------------------- */
#define PART(kind_, key, fallback_, section_, low, high, ...)                                   \
    {                                                                                           \
        .name = #key, .kind = TSRI_FIELD_##kind_, .offset = offsetof(tsri_experiment, key),     \
        .fallback = fallback_, .section = section_, .min = low, .max = high, .doc = __VA_ARGS__ \
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
    {.name = "include",
     .kind = TSRI_FIELD_ANY,
     .offset = offsetof(tsri_experiment, before),
     .legal = "a file name, or a list of them",
     .json = "{\"type\": [\"string\", \"array\"], \"items\": {\"type\": \"string\"}}",
     .doc =
         "Files whose keys are put under those of this one: mappings are merged; other values, "
         "and mappings that select another kind (name, dataset, op), replace the file's. A later "
         "file of a list is over those before it. Names start from the folder of the file that "
         "says them."},
    {.name = "vars",
     .kind = TSRI_FIELD_ANY,
     .offset = offsetof(tsri_experiment, before),
     .legal = "a mapping from names to numbers, texts, true or false",
     .json = "{\"type\": \"object\", \"additionalProperties\": "
             "{\"type\": [\"number\", \"string\", \"boolean\", \"null\"]}}",
     .doc =
         "Values by name. A value that is ${name} alone, in quotes or not, is that value, of its "
         "type; within longer texts ${name} stands for its text. Values may be made of others. "
         "In {} and [] quotes are needed, as in {batch_size: \"${batch}\"}. $${ is the text "
         "${."},
    WORD(
        tsri_experiment, "dtype", dtype_word, "f32", dtype_words,
        "What is computed in. Data sets are read in f32 and f64 alone, so that training in f16 and "
        "bf16 can be planned, not run.",
        REFUSED),
    PART(NAMED, placements, TSRI_NONE, &tsri_placement_section, 1, TSRI_CONFIG_MAX_PLACEMENTS,
         "Names for devices and ranks."),
    FIELD(MESH, tsri_experiment, "mesh", mesh, TSRI_NONE, 0, 0,
          "Instead of placements: the axes of the only one, which is called mesh."),
    WORD(tsri_experiment, "device", device, TSRI_NONE, tsri_target_names,
         "Beside mesh: what a rank computes on. Default: cuda where cluster has a gpu, else cpu."),
    {.name = "strategy",
     .kind = TSRI_FIELD_WORDS,
     .offset = offsetof(tsri_experiment, strategy),
     .words = strategy_words,
     .doc =
         "Rules for parameters and tensors, in a word for each dimension of the input's placement, "
         "as a list, or by axes' names, as in {dp: zero1, tp: megatron}, where axes that are not "
         "named are data: data, the batch is split, and parameters are everywhere; zero1, "
         "optimizer "
         "states are split too; zero2, gradients too; zero3, parameters too, which are gathered "
         "where they are used; megatron, pairs of linear layers are split by their features; "
         "sequence, what is between these pairs by positions too; auto, alone, all is inferred. "
         "One "
         "word is for all dimensions; megatron and sequence are for the last one, and data for "
         "those before it. A graph takes data, zero1, zero2, zero3 and auto. The rules stand "
         "before the file's own, which so count more; tessera "
         "schema FILE shows them."},
    PART(SECTION, model, TSRI_NONE, &tsri_model_section, 0, 0, "What is trained.", REFUSED),
    PART(SECTION, data, TSRI_NONE, &tsri_data_section, 0, 0, "What it is trained on."),
    {.name = "tensors",
     .kind = TSRI_FIELD_SECTION,
     .offset = offsetof(tsri_experiment, tensors),
     .section = &tsri_tensors_section,
     .doc = "Where the tensors of a training step live."},
    PART(SECTIONS, parameters, TSRI_NONE, &tsri_pattern_section, 0, TSRI_CONFIG_MAX_PATTERNS,
         "Where parameters and buffers live. Of the entries that fit a name and say a key the "
         "last one counts."),
    PART(SECTION, optimizer, TSRI_NONE, &tsri_optimizer_section, 0, 0,
         "How parameters are updated. Default: sgd."),
    PART(NAMED, graph, TSRI_NONE, &tsri_op_section, 1, TSRI_CONFIG_MAX_OPS,
         "Instead of model: ops, in order. With optimizer, which makes loss small, its parameters "
         "are trained; data feeds its entries of op input. strategy, tensors.match and parameters "
         "say more of its entries, by their names.",
         REFUSED),
    FIELD(NAME, tsri_experiment, "loss", loss, TSRI_NONE, 0, 0,
          "The entry of graph whose gradients can be fetched. With it the graph is one of "
          "training: dropout drops, batch norm uses the batch's statistics.",
          REFUSED),
    FIELD(NAMES, tsri_experiment, "fetch", fetch, TSRI_NONE, 0, 0,
          "What a graph's run gives: names of its entries, and grad(NAME). Default: the last "
          "entry."),
    PART(SECTION, train, TSRI_NONE, &tsri_train_section, 0, 0, "For how long."),
    PART(SECTION, cluster, TSRI_NONE, &tsri_cluster_section, 0, 0,
         "What planning assumes of machines and the links between them; h100-sxm:16x8 is {gpu: "
         "h100-sxm, nodes: 16, gpus_per_node: 8}. Default: this machine's own figures."),
    FIELD(BYTES, tsri_experiment, "memory_limit", planning.memory_limit, TSRI_NONE, 0, 0,
          "Bytes that a rank may use, kernels' scratch included. Default: the memory of the "
          "cluster's gpu."),
    FIELD(FLOAT, tsri_experiment, "bucket_mb", planning.bucket_mb, "4", 0, 1e6,
          "Gradients are reduced together, in calls of up to this many MiB; 0: each by itself."),
    FIELD(
        BOOL, tsri_experiment, "infer_updates", planning.infer_updates, "false", 0, 0,
        "Whether parameters that are said to be B, and their optimizer states, are updated in the "
        "signature that is cheapest, and gathered. Default is data parallelism: gradients are "
        "summed, and nothing that is split along the data is gathered."),
    FIELD(BOOL, tsri_experiment, "reshard_after_forward", planning.reshard_after_forward, TSRI_NONE,
          0, 0,
          "Whether parameters that are gathered where they are used are given back behind their "
          "last use forward, and gathered again for backward, but those that forward gathers last: "
          "half as much traffic again for the memory of one layer's parameters instead of all. "
          "Default: false, and true under strategy zero3."),
    PART(
        SECTIONS, recompute, TSRI_NONE, &tsri_recompute_section, 0, TSRI_CONFIG_MAX_PATTERNS,
        "Modules of the model whose activations the backward pass recomputes instead of keeping "
        "them: of "
        "each module only values that others read, and small statistics, stay in memory. Gradients "
        "are the same."),
    PART(SECTION, fusion, TSRI_NONE, &tsri_fusion_section, 0, 0,
         "Which ops may become one pass over memory: switches for comparing."),
    PART(SECTION, search, TSRI_NONE, &tsri_search_section, 0, 0,
         "How long signatures are searched for."),
    PART(SECTION, schedule, TSRI_NONE, &tsri_step_schedule_section, 0, 0,
         "The order of a step's work."),
    PART(SECTION, stages, TSRI_NONE, &tsri_stages_section, 0, 0,
         "Stages of a pipeline: each has a part of the model's modules, on its own ranks. What "
         "modules read is moved to their stage; ops outside of modules are in the latest stage of "
         "what they read. A parameter that several stages read is in the one that its name says. "
         "Signatures of parameters and tensors are B on the stages' axis."),
};
const tsri_section tsri_experiment_section = {
    .name = "experiment", .size = sizeof(tsri_experiment), FIELDS(experiment_fields)};
