/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints: all that a training run needs to go on where it was, bit for bit, on the same ranks
 * or on others.
 *
 *   tsr_checkpoint *c;
 *   int64_t step;
 *   TSR_TRY(tsr_checkpoint_create(w, "runs/a", TSR_CHECKPOINT_OPTS(.async = true), &c));
 *   TSR_TRY(tsr_checkpoint_add_module(c, "model", model));
 *   TSR_TRY(tsr_checkpoint_add_optimizer(c, "optimizer", optimizer));
 *   TSR_TRY(tsr_checkpoint_add_loader(c, "loader", loader));
 *   TSR_TRY(tsr_checkpoint_load(c, NULL, &step));     // the newest one; -1: there is none
 *   while (++step < steps) {
 *       ...
 *       if (step % 100 == 0)
 *           TSR_TRY(tsr_checkpoint_save(c, step, NAN));
 *   }
 *   TSR_TRY(tsr_checkpoint_wait(c));
 *
 * A checkpoint is a folder, "runs/a/step-00000100", of safetensors files that ranks write side by
 * side, each a part of what there is, and an index. The folder must be one that all ranks see. It
 * has its name when it is whole, so that whatever ends a run leaves those before it as they were.
 * All bytes are checked by sums when they are read. `tessera ckpt` lists, verifies, merges and
 * compares them; docs/checkpoints.md has the format.
 */
#ifndef TESSERA_CHECKPOINT_H
#define TESSERA_CHECKPOINT_H

#include <tessera/loader.h>
#include <tessera/grad_scaler.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The list of what a run's checkpoints have in them, and how they are kept. Belongs to its world.
 * Parts must be there while they are saved or loaded. */
typedef struct tsr_checkpoint tsr_checkpoint;

typedef struct tsr_checkpoint_opts {
    size_t size;
    tsr_by_name by_name;
    int keep TSR_IS(3);    /* so many of the newest stay; 0: all; default 3 */
    bool keep_best;        /* also the one with the best metric */
    bool larger_is_better; /* of metrics; default: smaller */
    /* tsr_checkpoint_save copies what is saved and returns; a thread of each rank writes it. Takes
     * as much host memory as a rank writes. */
    bool async;
    bool one_file; /* rank 0 gathers and writes all, in one file */
    /* A save that fails (a full disk, a folder that can't be written) is a warning in the world's
     * log, and the run goes on. Default: it is an error. */
    bool warn;
} tsr_checkpoint_opts;
#define TSR_CHECKPOINT_OPTS(...) TSR_OPTIONS(tsr_checkpoint_opts, (.keep = 3, ), __VA_ARGS__)

/* Makes an empty list of parts. Nothing is read or written yet. opts may be NULL. Not collective.
 * Errors: TSR_ERR_INVALID, TSR_ERR_STATE (a virtual world), TSR_ERR_NO_MEMORY. */
TSR_API tsr_status tsr_checkpoint_create(tsr_world *world, const char *folder,
                                         const tsr_checkpoint_opts *opts,
                                         tsr_checkpoint **out_checkpoint);
/* Waits for this rank's part of a save under way. NULL is fine. Not collective. */
TSR_API void tsr_checkpoint_destroy(tsr_checkpoint *checkpoint);

/*
 * Adds a part under a name of its own, of 1 to 200 bytes of UTF-8 without '/', '@' and ends of
 * lines. All ranks add the same. Not collective. TSR_ERR_INVALID: NULL, a name twice.
 *
 *   module         parameters and buffers. A rank's own module (tsr_module_set_local, as under DDP)
 *                  is saved once where all ranks have the same bytes, else by each rank.
 *   optimizer      its states, steps, rates and groups' numbers, what is frozen; gradients too,
 *                  where it is saved between two updates of an accumulation
 *   scaler         its numbers, by PyTorch's keys
 *   loaders        epoch and position; on another number of ranks, too
 *   samplers       where they stand; they can't be loaded on another number of ranks where that
 *                  makes them of another count
 *   generator      its state
 *   bytes          memory of the program's, as a struct of best results; written when it is loaded
 */
TSR_API tsr_status tsr_checkpoint_add_module(tsr_checkpoint *checkpoint, const char *name,
                                             tsr_module *module);
/* Adds an optimizer; see tsr_checkpoint_add_module. */
TSR_API tsr_status tsr_checkpoint_add_optimizer(tsr_checkpoint *checkpoint, const char *name,
                                                tsr_optimizer *optimizer);
/* Adds a gradient scaler; see tsr_checkpoint_add_module. */
TSR_API tsr_status tsr_checkpoint_add_grad_scaler(tsr_checkpoint *checkpoint, const char *name,
                                                  tsr_grad_scaler *scaler);
/* Adds a loader; see tsr_checkpoint_add_module. */
TSR_API tsr_status tsr_checkpoint_add_loader(tsr_checkpoint *checkpoint, const char *name,
                                             tsr_loader *loader);
/* Adds a sampler; see tsr_checkpoint_add_module. */
TSR_API tsr_status tsr_checkpoint_add_sampler(tsr_checkpoint *checkpoint, const char *name,
                                              tsr_sampler *sampler);
/* Adds a batch sampler; see tsr_checkpoint_add_module. */
TSR_API tsr_status tsr_checkpoint_add_batch_sampler(tsr_checkpoint *checkpoint, const char *name,
                                                    tsr_batch_sampler *batch_sampler);
/* Adds a generator; see tsr_checkpoint_add_module. */
TSR_API tsr_status tsr_checkpoint_add_generator(tsr_checkpoint *checkpoint, const char *name,
                                                tsr_generator *generator);
/* Adds memory of the program's; see tsr_checkpoint_add_module. */
TSR_API tsr_status tsr_checkpoint_add_bytes(tsr_checkpoint *checkpoint, const char *name,
                                            void *data, size_t bytes);

/* Takes a part out again, as before its object goes. TSR_ERR_INVALID if there is none of that name.
 * Not collective, but all ranks must do the same. */
TSR_API tsr_status tsr_checkpoint_remove(tsr_checkpoint *checkpoint, const char *name);

/*
 * Saves all parts as the checkpoint of `step` (at least 0), in the place of one of that step.
 * metric: for keep_best; NAN: none. With .async it first waits for the save before, whose error is
 * this call's. Collective over all ranks; all of them get an error, and what was saved before
 * stays. Errors: TSR_ERR_IO, TSR_ERR_NO_MEMORY; TSR_ERR_MISMATCH if ranks save other things;
 * TSR_ERR_STATE if another run saves in this folder.
 */
TSR_API tsr_status tsr_checkpoint_save(tsr_checkpoint *checkpoint, int64_t step, double metric);
/* Returns when all ranks have written what they saved; its errors are tsr_checkpoint_save's.
 * Collective over all ranks. */
TSR_API tsr_status tsr_checkpoint_wait(tsr_checkpoint *checkpoint);

typedef struct tsr_checkpoint_load_opts {
    size_t size;
    tsr_by_name by_name;
    const char *path; /* of one checkpoint, "runs/a/step-00000100"; NULL: of the folder */
    bool best;        /* the one with the best metric; default: that of the largest step */
    /* Loads what there is, and leaves the rest as it is. Default: all tensors of each part must be
     * there, and no others of it. Parts of the file that were not added are left out always. */
    bool partial;
} tsr_checkpoint_load_opts;
#define TSR_CHECKPOINT_LOAD_OPTS(...) TSR_OPTIONS(tsr_checkpoint_load_opts, (), __VA_ARGS__)
/*
 * Loads a checkpoint into the parts: each rank reads what it needs of any layout that was saved
 * into any that it has; floating-point dtypes convert. The newest checkpoint of the folder that is
 * not damaged is taken, with a warning for each that is. Another run may save and remove
 * checkpoints there meanwhile. *out_step (may be NULL): its step; -1 if the folder has none, which
 * is no error. All is read and checked first: on an error nothing is changed, but for an error in
 * reading what could be read just before. Host memory: the index, and 256 KiB for each file that
 * this rank reads. opts may be NULL. Collective over all ranks; all get the same step. The parts
 * must have all that they save: an optimizer with .accumulate has its accumulators once a graph
 * with its update is compiled. Errors: TSR_ERR_IO; TSR_ERR_FORMAT (damaged); TSR_ERR_INVALID,
 * TSR_ERR_SHAPE, TSR_ERR_DTYPE, TSR_ERR_STATE naming what does not fit.
 */
TSR_API tsr_status tsr_checkpoint_load(tsr_checkpoint *checkpoint,
                                       const tsr_checkpoint_load_opts *opts, int64_t *out_step);

#ifdef __cplusplus
}
#endif
#endif
