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
#include <tessera/optim.h>
#include <tessera/plan.h>

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
/* Returns TSR_DEVICE_CUDA if some placement is of that kind, else TSR_DEVICE_CPU. */
tsr_device tsri_experiment_device(const tsri_experiment *e);
/* Returns whether the experiment trains a model; otherwise it is a graph to be run. */
bool tsri_experiment_trains(const tsri_experiment *e);
/* Returns the rows of the global batch; 0: the experiment trains no model. */
int64_t tsri_experiment_batch_size(const tsri_experiment *e);
/* Returns the number of entries of `parameters`, which the next would have. */
int tsri_experiment_nparameters(const tsri_experiment *e);
/* Sets the compile options that the file speaks of: memory_limit, bucket_mb, infer_updates, on_nan.
 * e may be NULL: there is no file, and the options stay. */
void tsri_experiment_fill(const tsri_experiment *e, tsr_compile_opts *opts);

/* The `cluster` section: the speed of the links and ranks that the planner assumes. */
typedef struct tsri_cluster {
    int64_t ranks_per_node;                      /* 0: all ranks on one node */
    double latency_us, bandwidth_gb_s;           /* within a node; 0: the model's own figure */
    double node_latency_us, node_bandwidth_gb_s; /* between nodes; 0: as within one */
    double memory_gb_s, tflops, kernel_us;       /* of a rank; 0: the model's own figure */
} tsri_cluster;
/* Returns the section; NULL if the file has none. */
const tsri_cluster *tsri_experiment_cluster(const tsri_experiment *e);

/* Writes the whole experiment as YAML, overrides applied and defaults filled in. Reading it back
 * gives the same experiment, and the same text. */
tsr_status tsri_experiment_dump(const tsri_experiment *e, FILE *out);
/* Writes the manual page tessera-yaml(5), from the tables that the parser reads by. */
tsr_status tsri_config_man(FILE *out);

/* --- programs --------------------------------------------------------------------------------- */
typedef struct tsri_program_opts {
    int64_t steps; /* 0: as the file says */
    /* Reads no data; a virtual world never does. Built-in data sets have their published sizes.
     * .npy files that exist give their shapes; for others the experiment must say `shape`. */
    bool no_data;
    bool shards; /* each rank can fetch its own part of a graph's outputs too */
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
    tsr_dataset *dataset;
    tsr_loader *loader;
    int nfetches;
    const tsri_fetch *fetches;
    /* Runs of the plan: what the opts say; else, where a model is trained, those of `train.epochs`,
     * but at most `train.steps`; else `train.steps`, or 1 where the file has none. */
    int64_t steps;
    int64_t steps_per_epoch; /* 0 where no model is trained */
    int64_t rows;            /* of the global batch; 0 where no model is trained */
    struct tsri_program_inside *inside;
} tsri_program;

/*
 * Declares the experiment's graph in a world that has at least tsri_experiment_nranks(e) ranks.
 * opts may be NULL. Not collective, but every rank must build the same. The experiment must outlive
 * the program. An error in what the file declares names the file's line.
 */
tsr_status tsri_program_build(const tsri_experiment *e, tsr_world *world,
                              const tsri_program_opts *opts, tsri_program **out_program);
/*
 * Gives the plan, which was compiled from p->graph, the data of the next step, and begins the next
 * epoch where one ends. The first call also gives variables the values that the file says for them
 * (`train.init`, `parameters`), and is collective over all ranks. Not for virtual worlds, nor with
 * no_data.
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

/* Frees the program and what belongs to it (not its plans); p may be NULL. */
void tsri_program_destroy(tsri_program *p);

#endif
