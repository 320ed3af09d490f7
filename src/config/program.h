/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a program: what is fed, and when. */
#ifndef TESSERA_CONFIG_PROGRAM_H
#define TESSERA_CONFIG_PROGRAM_H

#include <tessera/train.h>

#include "src/config/ops.h"
#include "src/data/row_set.h"

/* An input that the program feeds before the first run, or a parameter that it sets. */
typedef struct tsri_config_feed {
    const tsri_config_op *op;
    const char *name; /* of the graph's input; NULL: a parameter */
    tsr_dtype dtype;
    tsr_dims dims; /* global; of from_local this rank's part */
    int local;     /* from_local: this rank's place in the list; -1: it has none */
    tsr_variable *variable;
} tsri_config_feed;

/* A part of the data, and what loads it: images, or a set of rows. */
typedef struct tsri_program_part {
    tsr_dataset *images;
    tsri_row_set *set;
    tsri_row_part rows; /* of images only their number */
    tsr_loader *loader;
} tsri_program_part;

/* Where the stages of the model are. */
typedef struct tsri_program_stages {
    const tsr_placement *mesh; /* that they are cut from */
    const tsr_placement **on;  /* [n] */
    int n;                     /* 0: there are none */
    bool is_one;               /* all variables are in the first: src/config/rules/split.c */
    int *split; /* stage of each variable, in tsr_module_visit's order; NULL: the rules decide */
} tsri_program_stages;

typedef struct tsri_program_inside {
    tsri_pool pool;
    tsri_program_stages stages;
    bool started, no_data, shards;
    const tsr_compile_opts *compile; /* see tsri_program_opts */
    int nfeeds, cfeeds;
    tsri_config_feed *feeds;
    tsri_fetch *fetches;
    tsr_tensor ***made;       /* by entry of `graph`, its results; NULL: there are none */
    tsr_variable **variables; /* by entry of `graph`: that of a parameter */
    tsri_program_part train, test;
    tsr_program *evaluator;  /* NULL: there is none */
    int64_t row_labels;      /* of a row of data; 0: no class is guessed */
    tsr_plan *eval_plans[2]; /* those that have their constants */
    /* Sums over the rows so far: losses, labels that are likeliest, one of five, labels that count.
     */
    double eval_sum[4];
    const tsri_yaml *refused; /* the layer at which making the model, or applying it, failed */
} tsri_program_inside;

/* The forward pass of a model or a graph. labels: one for each row of logits; both are NULL where
 * no class is guessed. */
typedef struct tsri_forward {
    tsr_tensor *loss, *logits, *labels;
} tsri_forward;

/* Builds an experiment with `stages`, without data, with all variables in the first stage. */
tsr_status tsri_program_build_in_one_stage(const tsri_experiment *e, tsr_world *world,
                                           tsri_program **out_program);
/* A placement of the file in the program's world. */
tsr_status tsri_program_placement(const tsri_program *p, const tsri_config_placement *from,
                                  const tsr_placement **out_placement);
/* Converts a signature of the file into one of a placement: by the names of its axes, or by
 * extending B. On a stage the file may also give a signature of the whole mesh. `node`: the
 * position in the file. */
tsr_status tsri_program_sbp(const tsri_program *p, const tsri_yaml *node,
                            const tsr_placement *where, tsr_sbp *sbp);
/* Makes the model of a plug-in library; NULL, with the error set. */
tsr_module *tsri_plugin_model(tsri_program *p, const tsr_nn_opts *opts);
/* Makes the experiment's model as p->module, on a placement. */
tsr_status tsri_model_make(tsri_program *p, const tsr_placement *placement);
/* Makes the last error one of the file's model, or of the layer at `node`. The lines of the
 * library's own models say nothing to a reader of the file. Returns `status`. */
tsr_status tsri_model_fail(const tsri_program *p, const tsri_yaml *node, tsr_status status);
/* Declares training, or the graph. */
tsr_status tsri_program_build_training(tsri_program *p, int64_t steps);
tsr_status tsri_program_build_graph(tsri_program *p, int64_t steps);
/* Declares a forward pass of `rows` rows, with inputs x and y, in a graph of training or not. */
tsr_status tsri_program_forward(const tsri_program *p, tsr_graph *g, int64_t rows,
                                tsri_forward *out_forward);
/* Declares what a graph's loss and scores are computed from, with the program's variables. */
tsr_status tsri_program_forward_graph(tsri_program *p, tsr_graph *g, int64_t rows,
                                      tsri_forward *out_forward);
/* Feeds one of p->inside->feeds, or sets the parameter. */
tsr_status tsri_program_feed_value(tsri_program *p, tsr_plan *plan, const tsri_config_feed *f);
/* Declares the evaluation and drops it: its errors are told before anything runs. */
tsr_status tsri_program_try_eval(tsri_program *p);
/* Whether the model predicts text, or an image's bytes, instead of a label. */
bool tsri_reads_text(const tsri_experiment *e);
/* build_data.c: opens the training data, unless there shall be none, and counts steps. */
tsr_status tsri_program_open_data(tsri_program *p, int64_t steps);
/* Opens the data of the evaluation. */
tsr_status tsri_program_open_test(tsri_program *p);
/* Closes a part; one that was not opened is fine. */
void tsri_program_part_close(tsri_program_part *part);
/* Makes the optimizer of the program's module, and declares that it makes the loss small. */
tsr_status tsri_program_minimize(tsri_program *p, tsr_tensor *loss);
/* "FILE:LINE:COLUMN: path: " before the last error, in place of less that it may say; returns
 * `status`, which may be TSR_OK: then nothing is done. */
tsr_status tsri_program_fail(const tsri_yaml *node, tsr_status status);

/* --- values of constants, locals and parameters: src/config/build_values.c -------------------- */
/* The dtype and shape of the value of an op: of the file's part `local`, or (-1) the whole. */
tsr_status tsri_value_sizes(const tsri_program *p, const tsri_config_op *op, int local,
                            tsr_dtype *out_dtype, tsr_dims *out_dims);
/* The value itself, in memory that the caller frees with tsri_mem_free. */
tsr_status tsri_value_make(const tsri_program *p, const tsri_config_feed *f, void **out_data,
                           size_t *out_bytes);

#endif
