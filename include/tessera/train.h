/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of any number of rows, and a loop that trains them.
 *
 *   static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg) { ... }
 *
 *   tsr_program *p;
 *   TSR_TRY(tsr_program_create(w, declare, arg, NULL, &p));
 *   TSR_TRY(tsr_train(p, TSR_TRAIN_OPTS(.epochs = 5, .train = loader, .eval = test), NULL));
 *
 * The loop is for programs that have no loop of their own in mind; one that has asks the program
 * for plans (tsr_program_plan).
 */
#ifndef TESSERA_TRAIN_H
#define TESSERA_TRAIN_H

#include <tessera/checkpoint.h>
#include <tessera/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- programs --------------------------------------------------------------------------------- */
/* A way to declare graphs for any number of rows, and the plans that were compiled of them so far.
 * Belongs to its world. */
typedef struct tsr_program tsr_program;

/*
 * Declares a graph: inputs of `rows` rows, outputs, and where it is to train the optimizer's update
 * (of an optimizer from outside, which all graphs share). Errors of declarations are the graph's;
 * returns TSR_OK or an error of the program's own. All ranks declare alike.
 */
typedef tsr_status tsr_declare_fn(tsr_graph *g, int64_t rows, bool training, void *arg);

typedef struct tsr_program_opts {
    size_t size;
    tsr_by_name by_name;
    uint64_t seed;       /* of the graphs: dropout and the random ops */
    bool local;          /* graphs are this rank's own (tsr_graph_create) */
    int plans TSR_IS(8); /* so many are kept: those that were asked for last; default 8 */
    const tsr_compile_opts *compile; /* copied; NULL: the defaults */
} tsr_program_opts;
#define TSR_PROGRAM_OPTS(...) TSR_OPTIONS(tsr_program_opts, (.plans = 8, ), __VA_ARGS__)

/* Makes a program. Nothing is declared yet. opts may be NULL. Not collective. Errors:
 * TSR_ERR_INVALID, TSR_ERR_NO_MEMORY. */
TSR_API tsr_status tsr_program_create(tsr_world *world, tsr_declare_fn *declare, void *arg,
                                      const tsr_program_opts *opts, tsr_program **out_program);
/* Frees a program and its plans. NULL is fine. Not collective. */
TSR_API void tsr_program_destroy(tsr_program *program);
/*
 * Returns the plan of batches of `rows` rows (at least 1), which is the program's until it is not
 * among the last ones that were asked for. Where there is none yet, it is declared and compiled:
 * then this is collective over all ranks, as tsr_compile is, with its errors and the declaration's.
 */
TSR_API tsr_status tsr_program_plan(tsr_program *program, int64_t rows, bool training,
                                    tsr_plan **out_plan);
/*
 * Feeds the loader's next batch to the plan of its rows; the caller runs it. The rows are those of
 * all ranks, or where the program is local this rank's. *out_rows (may be NULL): of all ranks.
 * TSR_END at the end of an epoch. Errors: tsr_program_plan's and tsr_loader_feed's.
 */
TSR_API tsr_status tsr_program_feed(tsr_program *program, tsr_loader *loader, bool training,
                                    tsr_plan **out_plan, int64_t *out_rows);

/* --- training --------------------------------------------------------------------------------- */
enum { TSR_TRAIN_METRICS = 8 };

/* How an epoch went. Values of outputs are means over its rows: of all ranks, also where the
 * program is local, as under tsr_ddp. */
typedef struct tsr_epoch {
    int64_t epoch, step; /* epochs from 0; steps so far */
    double seconds;
    double train[TSR_TRAIN_METRICS],
        eval[TSR_TRAIN_METRICS]; /* of opts.outputs; NAN: not computed */
    bool is_best;                /* of the monitored value so far */
} tsr_epoch;
/* Called by every rank at the end of an epoch; not TSR_OK ends the training with that. TSR_END ends
 * it well. */
typedef tsr_status tsr_epoch_fn(const tsr_epoch *epoch, void *arg);

typedef struct tsr_train_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t epochs TSR_IS(1); /* in all, those before a checkpoint among them; default 1 */
    int64_t steps;            /* ends there, also in an epoch; 0: no limit */
    tsr_loader *train, *eval; /* eval: NULL: none */
    /* Scalar outputs in B, each a mean over the batch's rows; default "loss". A program evaluated
     * for them needs them in both kinds of graphs. */
    const char *outputs[TSR_TRAIN_METRICS];
    int monitor;           /* the output by which epochs are compared: of eval, if there is one */
    bool larger_is_better; /* of it */
    int64_t patience;      /* ends after so many epochs without a better one; 0: never */
    /* With the module, the optimizer and the training loader in it. Saved at the end of each epoch,
     * and after each save_every steps (0: not). Training goes on from its newest one. SIGTERM and
     * SIGINT then save and end the training with TSR_END. */
    tsr_checkpoint *checkpoint;
    int64_t save_every;
    bool quiet;             /* else rank 0 prints a line for each epoch */
    tsr_epoch_fn *on_epoch; /* may be NULL */
    void *arg;
} tsr_train_opts;
#define TSR_TRAIN_OPTS(...) TSR_OPTIONS(tsr_train_opts, (.epochs = 1, ), __VA_ARGS__)

/*
 * Trains: per epoch, all batches of opts.train through the program's training graphs, then those of
 * opts.eval through the others. *out_last (may be NULL): the last epoch that was completed; its
 * epoch is -1 if none was. With a checkpoint that has no part "trainer", adds one. Collective over
 * all ranks. Errors: TSR_ERR_INVALID; TSR_END where a signal or on_epoch ended it; those of
 * loaders, plans and checkpoints.
 */
TSR_API tsr_status tsr_train(tsr_program *program, const tsr_train_opts *opts, tsr_epoch *out_last);

#ifdef __cplusplus
}
#endif
#endif
