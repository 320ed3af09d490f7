/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experiments: a YAML file that says what to compute, on which ranks, and how each tensor is laid
 * out; and the program that one rank builds from it. tessera-yaml(5) describes the file.
 *
 *     tsri_experiment_load(path, nsets, sets, &e)      once per process; no world is needed
 *     tsri_experiment_nranks(e)                        how many ranks to start (or to imagine)
 *
 * and on each rank:
 *
 *     tsri_program_build(e, world, &opts, &p), tsr_compile(p->graph, &plan)
 *     p->steps times: tsri_program_feed(p, plan), tsr_run(plan), fetch each of p->fetches
 */
#ifndef TESSERA_CONFIG_EXPERIMENT_H
#define TESSERA_CONFIG_EXPERIMENT_H

#include <stdio.h>

#include <tessera/loader.h>
#include <tessera/grad_scaler.h>
#include <tessera/plan.h>
#include "placement/cluster.h"
#include "src/core/mem.h"

struct tsri_pool;

/* A file that was read and checked. It does not change once it is loaded, so that the ranks of a
 * process (threads) share one. */
typedef struct tsri_experiment tsri_experiment;

/*
 * Reads, overrides and checks a file. `sets` are nsets texts "path=value", as `--set` takes them:
 * "train.steps=5", "graph.y.in[1]=w", "parameters[0].sbp=S(0)"; the value is YAML. Keys that are
 * missing on the way are added. Relative file names in the file are relative to its folder, those
 * of overrides to the working folder. "-" reads standard input.
 * Errors: TSR_ERR_IO, a file that can't be read; TSR_ERR_FORMAT, all else that can be wrong with a
 * file, naming FILE:LINE:COLUMN, the path of the key, what was found and what is legal;
 * TSR_ERR_NO_MEMORY.
 */
tsr_status tsri_experiment_load(const char *path, int nsets, const char *const *sets,
                                tsri_experiment **out_experiment);
/* As tsri_experiment_load, for a world of so many ranks (0: as the file says), which meshes whose
 * ranks the file does not list are scaled to. */
tsr_status tsri_experiment_load_for(const char *path, int nranks, int nsets,
                                    const char *const *sets, tsri_experiment **out_experiment);
/* Reads an experiment from memory. `name` is what errors call the file; relative file names are
 * relative to its folder. */
tsr_status tsri_experiment_parse(const char *name, const void *data, size_t size, int nsets,
                                 const char *const *sets, tsri_experiment **out_experiment);
/* Frees an experiment; e may be NULL. Graphs that were built from it point into it (names of
 * files), so free it after them. */
void tsri_experiment_destroy(tsri_experiment *e);

/* Returns how many ranks the file needs: the largest number that it names, plus one. A world may
 * have more. */
int tsri_experiment_nranks(const tsri_experiment *e);
/* Returns the number of ranks that tsri_experiment_load_for was given. */
int tsri_experiment_asked(const tsri_experiment *e);
/* Returns the kind of the first placement that is not on the host, else the host. */
tsr_device tsri_experiment_device(const tsri_experiment *e);
/* Returns whether the experiment trains a model, or a graph; otherwise it is a graph to be run. */
bool tsri_experiment_trains(const tsri_experiment *e);
/* Returns what is computed, in a word: "mobilenet_v2", "graph". */
const char *tsri_experiment_subject(const tsri_experiment *e);
/* Returns what is computed in. */
tsr_dtype tsri_experiment_dtype(const tsri_experiment *e);
/* Returns the rows of the global batch; 0: the experiment trains nothing, or without data. */
int64_t tsri_experiment_batch_size(const tsri_experiment *e);
/* Returns the equal parts that a step computes its batch in, one after another; 1: it is not cut.
 */
int64_t tsri_experiment_microbatches(const tsri_experiment *e);
/* Writes what a run will refuse, although it can be planned: a batch that is larger than the data
 * of its files. false: nothing. */
bool tsri_experiment_warning(const tsri_experiment *e, char buf[160]);
/* Returns the number of entries of `parameters`, which the next would have. */
int tsri_experiment_nparameters(const tsri_experiment *e);
/* Writes the overrides, as `--set` takes them, that lay the experiment out anew by a strategy, in
 * place of the file's rules, on a mesh of axes with such names and sizes; where the file's mesh has
 * these sizes it stays. Returns how many; 0: the file has several placements, or stages. */
enum { TSRI_RELAY_MOST = 4, TSRI_RELAY_TEXT = 120 };
int tsri_experiment_relay(const tsri_experiment *e, int naxes, const char *const *names,
                          const int *sizes, const char *strategy,
                          char out[TSRI_RELAY_MOST][TSRI_RELAY_TEXT]);
/* Writes the override that turns on recomputation of the model's blocks. Returns false if the model
 * has no known blocks or the file has the key `recompute`. */
bool tsri_experiment_recompute(const tsri_experiment *e, char out[TSRI_RELAY_TEXT]);
/* Writes the overrides, as `--set` takes them, that divide the ranks of the mesh's axis dp, or else
 * of its first axis, into the stages of a new axis pp, where planning finds the stages. Rules and
 * strategies stay those of the other axes. Returns how many; 0: the file has no model, several
 * placements, stages already, or ranks that nstages does not divide. */
int tsri_experiment_stage(const tsri_experiment *e, int nstages,
                          char out[TSRI_RELAY_MOST][TSRI_RELAY_TEXT]);
/* Returns the rows of the batch on each rank, whose divisors are the legal numbers of micro-batches
 * unless batch norm needs more; 0: the experiment trains nothing, or ranks have different numbers
 * of rows. */
int64_t tsri_experiment_rank_rows(const tsri_experiment *e);
/* Whether the file, or an override, has a section or key of this name. */
bool tsri_experiment_says(const tsri_experiment *e, const char *key);
/* The ranks of a mesh's axis by its name; 0: the file has no such axis. */
int tsri_experiment_axis(const tsri_experiment *e, const char *name);
/* Sets the compile options that the file speaks of: memory_limit (that of the cluster's GPUs by
 * default), bucket_mb, infer_updates, reshard_after_forward, no_fusion, on_nan, microbatches. e may
 * be NULL: there is no file, and the options stay. */
void tsri_experiment_fill(const tsri_experiment *e, tsr_compile_opts *opts);

/* Returns the `cluster` section: what the planner assumes; NULL if the file has none. */
const tsri_cluster *tsri_experiment_cluster(const tsri_experiment *e);
/* Returns whether the memory limit that tsri_experiment_fill sets is a GPU's memory, since the file
 * says none. */
bool tsri_experiment_limit_is_gpu(const tsri_experiment *e);
/* Reads a cluster from a text as `cluster` takes it: "h100-sxm:16x8", or "{gpu: h100-sxm, nodes:
 * 16}", that must have nranks ranks; its names live in the pool. `what` is what errors call the
 * text. Errors as tsri_experiment_parse's. */
tsr_status tsri_cluster_parse(tsri_pool *pool, const char *what, const char *text, int nranks,
                              tsri_cluster *out_cluster);

/* The part of `train` that a run does beside its steps. */
typedef struct tsri_every {
    int64_t n; /* 0: never */
    bool epochs;
} tsri_every;
typedef struct tsri_upkeep {
    bool evaluates;
    tsri_every eval, save;
    const char *checkpoint, *metrics, *tensorboard; /* folder, file, folder; NULL: none */
    int keep;                                       /* so many checkpoints stay; 0: all */
    bool resumes;                                   /* from the newest one */
} tsri_upkeep;
/* Returns that; of an experiment that trains nothing, zeros. */
tsri_upkeep tsri_experiment_upkeep(const tsri_experiment *e);
/* Puts "FILE:LINE:COLUMN: path: " of a key of `train` before the last error; returns `status`,
 * which may be TSR_OK: then it does nothing. */
tsr_status tsri_experiment_fail(const tsri_experiment *e, const char *train_key, tsr_status status);

/* Writes the whole experiment as YAML, overrides applied and defaults filled in. Reading it back
 * gives the same experiment, and the same text. */
tsr_status tsri_experiment_dump(const tsri_experiment *e, FILE *out);
/* A key whose value differs from that in the run that a run goes on from. */
typedef struct tsri_resume_change {
    const char *key, *was, *now; /* texts: a path, and values as errors show them */
    bool is_kept;                /* the new value has no effect: it speaks of the beginning */
} tsri_resume_change;
/*
 * Compares an experiment, dumped, with the dump that a checkpoint holds of the run that it was
 * saved by. Lists the keys that differ, in the pool, in the order of tessera-yaml(5). `path` is
 * what errors call the checkpoint. Errors: TSR_ERR_STATE, a key that a resumed run refuses to
 * change, naming it, its place in the file of e, and both values; TSR_ERR_FORMAT, a dump that is
 * none.
 */
tsr_status tsri_experiment_resume(const tsri_experiment *e, const char *path, const char *now,
                                  const char *then, struct tsri_pool *pool, int *out_n,
                                  tsri_resume_change **out_changes);
/* Writes the manual page tessera-yaml(5), from the tables that the parser reads by. */
tsr_status tsri_config_man(FILE *out);
/* Writes a JSON Schema (2020-12) of the files, from the same tables. Each value may be a text with
 * a variable; a file that includes others needs no key. */
tsr_status tsri_config_json_schema(FILE *out);

/* --- programs --------------------------------------------------------------------------------- */
typedef struct tsri_program_opts {
    int64_t steps; /* 0: as the file says */
    /* Reads no data; a virtual world never does. Built-in data sets have their published sizes.
     * .npy files that exist give their shapes; for others the experiment must say `shape`. */
    bool no_data;
    bool shards; /* each rank can fetch its own part of a graph's outputs too */
    /* Options of the program's compile; `stages.split: auto` plans with their figures. NULL: the
     * options of the file. They are read while the program is built, and not later. */
    const tsr_compile_opts *compile;
} tsri_program_opts;

/* An output that the file asks for: "loss" where it trains a model, "z" or "grad(w)" of a graph. */
typedef struct tsri_fetch {
    const char *name;               /* of the graph's output, whose signature is B */
    const tsr_placement *placement; /* only its ranks can fetch it */
    /* The name of a second output, each rank's own part of the tensor in the signature that it has
     * in the graph; NULL unless the opts ask for shards. */
    const char *shard;
    tsr_dtype dtype;
    tsr_dims dims; /* global */
    bool is_loss;
} tsri_fetch;

/* An experiment as one rank has built it. `graph`, `module`, `optimizer`, `dataset` and `loader`
 * belong to the program, and are NULL where there is none. */
typedef struct tsri_program {
    tsr_world *world;
    const tsri_experiment *experiment;
    tsr_graph *graph; /* declared with its outputs, not compiled */
    tsr_module *module;
    tsr_optimizer *optimizer;
    tsr_grad_scaler *scaler; /* of amp in f16; NULL: losses are not scaled */
    tsr_dataset *dataset;
    tsr_loader *loader;
    int nfetches;
    const tsri_fetch *fetches;
    /* Runs of the plan: what the opts say; else, where a model is trained, `train.steps`, but at
     * most those of `train.epochs`, or one epoch where the file has neither; else `train.steps`, or
     * 1 where the file has none. */
    int64_t steps;
    int64_t steps_per_epoch; /* 0 where there is no data */
    int64_t rows;            /* of the global batch; 0 where there is no data */
    struct tsri_program_inside *inside;
} tsri_program;

/*
 * Declares the experiment's graph in a world that has at least tsri_experiment_nranks(e) ranks.
 * opts may be NULL. Not collective, but every rank must build the same. The experiment must outlive
 * the program. An error in what the file declares names the file's line.
 */
tsr_status tsri_program_build(const tsri_experiment *e, tsr_world *world,
                              const tsri_program_opts *opts, tsri_program **out_program);
/* Puts what is known of it in place of the last error, with which the program's compile failed,
 * where this rank's placements want a GPU that is not to be had: the file's entry, the reason, and
 * what to do. Returns `status`. */
tsr_status tsri_program_say_device(const tsri_program *p, tsr_status status);
/* Gives variables the values that the file says for them (`train.init`, `parameters`), once: a
 * later call does nothing. Collective over all ranks. */
tsr_status tsri_program_start(tsri_program *p, tsr_plan *plan);
/*
 * Gives the plan, which was compiled from p->graph, the data of the next step, and begins the next
 * epoch where one ends. The first call starts the program where that was not done, and is
 * collective over all ranks. Not for virtual worlds, nor with no_data.
 */
tsr_status tsri_program_feed(tsri_program *p, tsr_plan *plan);
/* A tensor that the file names: an entry of `graph`, or its result i as "NAME.i". */
typedef struct tsri_program_entry {
    const char *name;
    const tsr_tensor *tensor;
} tsri_program_entry;
/* Lists the tensors that the file names, in the pool. */
tsr_status tsri_program_entries(const tsri_program *p, struct tsri_pool *pool, int *out_n,
                                tsri_program_entry **out_entries);

/* Where a file says a signature. */
typedef struct tsri_said {
    char place[448], key[256]; /* "FILE:LINE:COLUMN", "parameters[0].sbp" */
    const char *match;         /* the pattern of `parameters` that fits; NULL: it is no pattern */
} tsri_said;
/* Tells where the file says the signature of a tensor of the program; false: nowhere. */
bool tsri_program_said(const tsri_program *p, const tsr_tensor *t, tsri_said *out_said);
/* Makes the override, as `--set` takes it, that gives the tensor alone another signature, in the
 * pool. *out_set NULL: the file has no way to say it. */
tsr_status tsri_program_set(const tsri_program *p, const tsr_tensor *t, tsr_sbp sbp,
                            struct tsri_pool *pool, char **out_set);

/* How the model does on the rows of an evaluation so far: means over them, of which accuracy and
 * top5 are parts of 1. NAN on ranks that don't have the loss. */
typedef struct tsri_evaluation {
    int64_t rows;
    bool has_classes; /* else there are no accuracy and top5 */
    double loss, accuracy, top5;
} tsri_evaluation;
/* Opens the data of the evaluation and compiles its graph, after that of training. Collective over
 * all ranks. */
tsr_status tsri_program_open_eval(tsri_program *p, const tsr_compile_opts *opts);
/* Begins an evaluation. Not collective. */
tsr_status tsri_program_eval_begin(tsri_program *p, tsri_evaluation *out_evaluation);
/* Adds the next batch; TSR_END when there was none left. Collective over all ranks. */
tsr_status tsri_program_eval_next(tsri_program *p, tsri_evaluation *io_evaluation);
/* Frees the program and what belongs to it (not its plans); p may be NULL. */
void tsri_program_destroy(tsri_program *p);

#endif
