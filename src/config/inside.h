/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of an experiment: a struct for each section. */
#ifndef TESSERA_CONFIG_INSIDE_H
#define TESSERA_CONFIG_INSIDE_H

#include "sbp/rule/sbp.h"
#include "src/config/experiment.h"
#include "src/config/schema.h"

enum {
    TSRI_CONFIG_MAX_PLACEMENTS = 4096,
    TSRI_CONFIG_MAX_PATTERNS = 65536,
    TSRI_CONFIG_MAX_OPS = 16384,
};

typedef struct tsri_config_placement {
    tsri_head head;
    int device;          /* tsr_device - 1 */
    tsri_mesh_axes mesh; /* ndim 0: dimensions have no names */
    tsri_ranks ranks;
} tsri_config_placement;

/* Where a tensor lives, and how. */
typedef struct tsri_config_layout {
    tsri_head head;
    tsri_ref placement;
    tsr_sbp sbp;
} tsri_config_layout;

typedef struct tsri_config_tensors {
    tsri_head head;
    tsri_config_layout input, label, logits, loss;
    tsri_items match; /* tsri_config_pin */
} tsri_config_tensors;

/* A rule for tensors that the model or the graph computes. */
typedef struct tsri_config_pin {
    tsri_head head;
    const char *match;
    tsri_ref placement;
    tsr_sbp sbp, use, gradient, gradient_use;
} tsri_config_pin;

typedef struct tsri_config_pattern {
    tsri_head head;
    const char *match;
    tsri_ref placement;
    tsr_sbp sbp, use, state, gradient;
} tsri_config_pattern;

/* Arguments of all models; each uses its own. */
typedef struct tsri_config_args {
    tsri_head head;
    int64_t num_classes, channels, height, columns, inputs, hidden, outputs, layers, heads;
    int64_t vocab;
    int64_t features; /* the width of a model where that is no image's */
    double width, dropout, mlp_ratio;
    int64_t bn_parts;
    int variant, activation, bn; /* bn: tsr_bn_stats */
    bool causal;
} tsri_config_args;

/* In the order of the table in src/config/sections.c. */
enum {
    TSRI_MODEL_MOBILENET_V2,
    TSRI_MODEL_CONVNET,
    TSRI_MODEL_MLP,
    TSRI_MODEL_TRANSFORMER,
    TSRI_MODEL_RESNET18,
    TSRI_MODEL_LENET,
    TSRI_MODEL_GPT,
    TSRI_MODEL_LSTM_LM,
    TSRI_MODEL_LAYERS,
    TSRI_MODEL_PLUGIN,
};

typedef struct tsri_config_model {
    tsri_head head; /* variant: which model */
    tsri_config_args args;
    tsri_items layers, parts; /* tsri_config_layer, tsri_config_part */
    const char *plugin, *function;
} tsri_config_model;

enum { TSRI_DATA_CIFAR10, TSRI_DATA_MNIST, TSRI_DATA_SYNTHETIC, TSRI_DATA_TEXT, TSRI_DATA_NPY };
typedef struct tsri_config_data {
    tsri_head head; /* variant: TSRI_DATA_... */
    const char *dir;
    uint64_t seed;
    int64_t batch_size, workers, prefetch, classes, samples, test_samples;
    bool shuffle, augment, normalize;
    tsr_dims shape;
    const char *file, *tokens, *x, *y, *test_x, *test_y;
    int64_t context, vocab;
    double test_part, mean, std;
    /* Worked out: of files that are there, the rows that are trained on; 0: that isn't known. */
    int64_t rows;
} tsri_config_data;

typedef struct tsri_config_schedule {
    tsri_head head; /* variant: tsr_schedule_kind */
    int64_t warmup, step_size, steps;
    double gamma, min_lr;
    tsri_ints milestones;
    int64_t restart_factor;
    double start_factor, end_factor, max_lr, pct_start, div_factor, final_div_factor;
    double base_momentum, max_momentum;
    bool linear, three_phase, keep_momentum;
    double factor, threshold;
    int64_t patience, cooldown;
    bool absolute;
} tsri_config_schedule;

typedef struct tsri_config_state {
    tsri_head head;
    tsr_sbp sbp;
} tsri_config_state;

typedef struct tsri_config_group {
    tsri_head head;
    const char *match;
    double lr, weight_decay;
    bool frozen;
} tsri_config_group;

enum {
    TSRI_OPTIMIZER_SGD,
    TSRI_OPTIMIZER_ADAM,
    TSRI_OPTIMIZER_ADAMW,
    TSRI_OPTIMIZER_RMSPROP,
    TSRI_OPTIMIZER_ADAGRAD,
    TSRI_OPTIMIZER_LION,
    TSRI_OPTIMIZER_LAMB,
    TSRI_OPTIMIZER_OWN,
};
typedef struct tsri_config_optimizer {
    tsri_head head; /* variant: TSRI_OPTIMIZER_... */
    double lr, momentum, dampening, weight_decay, beta1, beta2, eps, alpha, lr_decay;
    double initial_accumulator_value, clip_norm, clip_value, loss_scale;
    bool nesterov, centered;
    const char *plugin, *function;
    const tsri_yaml *numbers;
    int64_t accumulate;
    tsri_items groups; /* tsri_config_group */
    tsri_config_schedule schedule;
    tsri_config_state state;
} tsri_config_optimizer;

typedef struct tsri_config_eval {
    tsri_head head;
    const tsri_yaml *every;
    int test_part; /* whether it is on the test part: an index of the section's words */
    tsri_ref scores;
    /* Worked out. */
    tsri_every each;
    /* Entries of a graph, or results of entries: NULL if no class is guessed. */
    const char *score_name, *label_name;
    bool adds_losses; /* batches' losses are sums over rows, no means */
    bool has_ignored; /* rows of the label `ignored` do not count */
    int64_t ignored;
} tsri_config_eval;

typedef struct tsri_config_checkpoint {
    tsri_head head;
    const char *dir;
    const tsri_yaml *every;
    int64_t keep;
    bool resume;
    /* Worked out. */
    tsri_every each;
} tsri_config_checkpoint;

enum { TSRI_AMP_BF16, TSRI_AMP_F16 };
typedef struct tsri_config_amp {
    tsri_head head; /* variant: TSRI_AMP_... */
    double init_scale, growth_factor, backoff_factor;
    int64_t growth_interval;
} tsri_config_amp;
/* The type that a file's training is autocast to; NONE: it is not. */
tsr_dtype tsri_config_autocast(const tsri_experiment *e);

typedef struct tsri_config_train {
    tsri_head head;
    tsri_config_amp amp;
    tsri_config_eval eval;
    tsri_config_checkpoint checkpoint;
    const char *metrics, *tensorboard;
    int64_t epochs, steps;
    uint64_t seed;
    double label_smoothing;
    const char *init;
    int on_nan; /* an index of the section's words */
} tsri_config_train;

typedef struct tsri_config_cluster {
    tsri_head head;
    tsri_cluster said;
} tsri_config_cluster;

enum { TSRI_INPUT_X, TSRI_INPUT_Y };
/* An entry of `graph`: attributes of all ops; each uses its own. */
typedef struct tsri_config_op {
    tsri_head head; /* variant: which op */
    tsri_refs in;
    tsri_ref placement;
    tsr_sbp sbp, gradient;
    /* sources */
    tsr_dtype dtype, sum_dtype;
    tsr_dims shape;
    const tsri_yaml *value, *locals, *options;
    const char *file, *equation, *plugin, *function;
    double fill, arange[2], normal[2], uniform[2];
    /* attributes */
    double a, p, eps, momentum, label_smoothing, low, high, mean, std, slope, alpha, edge;
    int64_t axis, from_axis, axis_a, axis_b, out_h, out_w, groups, parts, ignore_index;
    int64_t n, start, length, diagonal, padding_idx, classes;
    double arange_start, arange_step, correction, value_around, scale;
    tsr_dims starts, ends, steps, before, after;
    tsri_ints sizes;
    int64_t stride[2], padding[2], dilation[2], kernel[2], output_padding[2], out_d;
    int64_t stride3[3], padding3[3], dilation3[3], kernel3[3], output_padding3[3];
    tsr_axes axes, y_axes;
    bool keepdim, ta, tb, count_include_pad, causal, ids, descending, largest;
    int reduction, stats, form;
    int field;    /* of `input`: TSRI_INPUT_... */
    bool trained; /* of `parameter` */
    /* Worked out. */
    const tsri_config_placement *where;
    bool moves;            /* `where` is said, by the entry or a rule */
    const tsri_yaml *said; /* where `sbp` is said, by the entry or a rule; NULL: nowhere */
    const char *said_by;   /* the rule's pattern; NULL: the entry says it itself */
    tsr_dims dims;         /* of `value`, or `locals` that stand in the file */
    const char **paths;    /* of `locals`: .npy files; NULL: all stand in the file */
} tsri_config_op;

/* In the order of the table in src/config/sections.c. */
enum {
    TSRI_CONFIG_STRATEGY_DATA,
    TSRI_CONFIG_STRATEGY_ZERO1,
    TSRI_CONFIG_STRATEGY_ZERO2,
    TSRI_CONFIG_STRATEGY_ZERO3,
    TSRI_CONFIG_STRATEGY_MEGATRON,
    TSRI_CONFIG_STRATEGY_SEQUENCE,
    TSRI_CONFIG_STRATEGY_AUTO,
};

typedef struct tsri_config_fusion {
    tsri_head head;
    bool activations, softmax, chains, updates, rows, pools, kept;
} tsri_config_fusion;

/* A pattern of modules that are recomputed in the backward pass. */
typedef struct tsri_config_recompute {
    tsri_head head;
    const char *match;
} tsri_config_recompute;

typedef struct tsri_config_search {
    tsri_head head;
    double seconds;
} tsri_config_search;

/* Keys of one value that the planner takes as they are. */
typedef struct tsri_config_planning {
    int64_t memory_limit;
    double bucket_mb;
    bool infer_updates, reshard_after_forward;
} tsri_config_planning;

/* The order of a step's work; the one of learning rates is tsri_config_schedule. */
typedef struct tsri_config_step_schedule {
    tsri_head head;
    int64_t microbatches; /* of a section that is not said: 0 */
    int kind;             /* a tsr_pipeline */
} tsri_config_step_schedule;

/* A pattern of variables of a stage. */
typedef struct tsri_config_stage_rule {
    tsri_head head;
    const char *match;
    int64_t stage;
} tsri_config_stage_rule;
typedef struct tsri_config_stages {
    tsri_head head;
    const char *axis;
    int split;        /* index of the section's words; stands in place of rules */
    tsri_items rules; /* tsri_config_stage_rule */
    int64_t chunks;   /* `virtual` */
    /* Worked out: the mesh's dimension, and its size. */
    int dim, n;
} tsri_config_stages;

struct tsri_experiment {
    tsri_head head;
    tsri_pool pool;
    int64_t version;
    const tsri_yaml
        *before;           /* include, vars: NULL, as their work is done before sections are read */
    int dtype_word;        /* an index of the section's words */
    tsri_items placements; /* tsri_config_placement */
    tsri_mesh_axes mesh; /* of a file with one placement, which is then made of it and called so */
    int device;          /* of that one: tsr_device - 1 */
    tsri_words strategy; /* TSRI_CONFIG_STRATEGY_... */
    tsri_config_model model;
    tsri_config_data data;
    tsri_config_tensors tensors;
    tsri_items parameters; /* tsri_config_pattern */
    tsri_config_optimizer optimizer;
    tsri_config_train train;
    tsri_config_cluster cluster;
    tsri_config_planning planning;
    tsri_items recompute; /* tsri_config_recompute */
    tsri_config_fusion fusion;
    tsri_config_search search;
    tsri_config_step_schedule schedule;
    tsri_config_stages stages;
    tsri_items graph; /* tsri_config_op */
    tsri_ref loss;
    tsri_refs fetch;
    /* Worked out. */
    int world; /* how many ranks are asked for; 0: as many as the file says */
    bool trains;
    tsr_dtype dtype;
    int nranks;
};

extern const tsri_section tsri_experiment_section, tsri_placement_section, tsri_model_section,
    tsri_data_section, tsri_tensors_section, tsri_layout_section, tsri_pin_section,
    tsri_pattern_section, tsri_group_section, tsri_optimizer_section, tsri_schedule_section,
    tsri_train_section, tsri_amp_section, tsri_eval_section, tsri_checkpoint_section,
    tsri_cluster_section, tsri_fusion_section, tsri_recompute_section, tsri_search_section,
    tsri_step_schedule_section, tsri_stages_section, tsri_stage_rule_section, tsri_part_section;
extern tsri_section tsri_layer_section; /* complete before main */
/* The section of the model's arguments; NULL: it has none. */
const tsri_section *tsri_args_section(const tsri_config_model *m);

/* tsri_experiment_parse with an allocator whose n-th allocation may fail. */
tsr_status tsri_experiment_parse_with(tsri_mem *mem, const char *name, const void *data,
                                      size_t size, int nranks, int nsets, const char *const *sets,
                                      tsri_experiment **out_experiment);
/* Checks what the tables can't express: names, signatures and their placements, what goes with
 * what. */
tsr_status tsri_experiment_check(tsri_experiment *e, const tsri_reader *r);
/* Puts the rules that `strategy` stands for before those of the file: src/config/rules/strategy.c.
 */
tsr_status tsri_strategy_expand(tsri_experiment *e, const tsri_reader *r);
/* Makes the experiment's model without values in a virtual world of one rank, and calls fn with it.
 * The model is destroyed when fn has returned. */
typedef tsr_status tsri_model_fn(tsr_module *model, void *arg);
tsr_status tsri_model_visit(const tsri_experiment *e, tsri_model_fn *fn, void *arg);
/* Parts of tsri_experiment_check. */
tsr_status tsri_check_placements(tsri_experiment *e, const tsri_reader *r);
tsr_status tsri_check_cluster(const tsri_config_cluster *c, int nranks);
/* Makes a mapping of a cluster in short, "h100-sxm:16x8"; other nodes stay. */
tsr_status tsri_cluster_expand(tsri_pool *pool, tsri_yaml *node);
tsr_status tsri_check_graph(tsri_experiment *e, const tsri_reader *r);
/* Fails for a reference that is no value of the graph. */
tsr_status tsri_check_entry(const tsri_experiment *e, const tsri_ref *ref);
/* Marks the entry that makes `name`, and those that it is computed from; bools by entry. */
void tsri_graph_mark(const tsri_experiment *e, const char *name, bool *marked);
/* Finds what a graph's evaluation reads: src/config/evaluation/scores.c. */
tsr_status tsri_check_eval(tsri_experiment *e, const tsri_reader *r);
/* check_data.c: the data, and whether the model can learn it. */
tsr_status tsri_check_data(tsri_experiment *e);
/* And whether a batch divides into the micro-batches. */
tsr_status tsri_check_schedule(const tsri_experiment *e);
/* How many of a set's rows are for tests, where these are no files of their own. */
int64_t tsri_data_test_rows(const tsri_config_data *d, int64_t count);
/* Whether the data has a part for tests. */
tsr_status tsri_check_test_part(const tsri_experiment *e);
tsr_status tsri_check_placement(const tsri_experiment *e, const tsri_ref *ref,
                                const tsri_config_placement **out_placement);
/* Makes a signature one of the placement: by its axes' names, or checking that there is an entry
 * for each dimension; B alone is extended. */
tsr_status tsri_check_sbp(const tsri_yaml *node, const tsri_config_placement *p, tsr_sbp *sbp);
/* Fails for a name that isn't among the first `upto` items. */
tsr_status tsri_unknown_name(const tsri_ref *ref, const char *what, const tsri_items *items,
                             size_t size, int upto);

/* By name; NULL if there is none. */
const tsri_config_placement *tsri_experiment_placement(const tsri_experiment *e, const char *name);
const tsri_config_op *tsri_experiment_op(const tsri_experiment *e, const char *name);
/* The op of "y", or of "y.1": of one with several results; *out_index is which of them, -1 if that
 * isn't said or there are not as many. */
const tsri_config_op *tsri_experiment_result(const tsri_experiment *e, const char *name,
                                             int *out_index);
/* How many results an op has. */
int tsri_op_results(const tsri_config_op *op);
/* The tensor inside "grad(NAME)"; NULL if `text` is no such thing. The name is in `buf`. */
const char *tsri_grad_of(const char *text, char buf[TSRI_YAML_TEXT_MAX]);

/*
 * The rows of a data set: as images (channels, height, width), of which those that lack an axis
 * have 1; `row` is their shape in a program. A text's are (context) ids. How many classes,
 * and how many rows there usually are; 0: that can't be known without the data.
 */
typedef struct tsri_data_sizes {
    int64_t channels, height, width, classes, count;
    tsr_dims row;
} tsri_data_sizes;
/* An input of batches of so many rows: the rows, or their labels. */
typedef struct tsri_data_input {
    tsr_dtype dtype;
    tsr_dims dims;
} tsri_data_input;
tsri_data_input tsri_config_data_input(const tsri_experiment *e, bool is_label, int64_t rows);
/* Whether rows are bytes of images, which are decoded, cropped and flipped; else they are those of
 * a set of rows (src/data/row_set.h). */
bool tsri_data_is_images(const tsri_config_data *d);
tsri_data_sizes tsri_config_data_sizes(const tsri_config_data *d);

#endif
