/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaders: epochs of batches of a data set, made ahead by threads, for a plan's inputs or for the
 * caller.
 *
 *   TRY(tsr_loader_create(world, images, TSR_LOADER_OPTS(.batch_size = 64, .shuffle = true), &l));
 *   while ((status = tsr_loader_feed(l, plan)) == TSR_OK)      // TSR_END after an epoch
 *       TRY(tsr_run(plan));
 *
 * One kind is of labelled images (tsr_loader_create), one of samples that functions of the user's
 * make (tsr_map_loader_create: torch.utils.data's DataLoader for map-style data sets, with threads
 * for workers). All calls are for both. A loader's batches are a function of its options, the
 * epoch and the samples alone: neither the signatures of a plan's inputs nor the number of threads
 * changes it. A loader belongs to one thread; calls are not collective.
 */
#ifndef TESSERA_LOADER_H
#define TESSERA_LOADER_H

#include <tessera/data.h>
#include <tessera/sampler.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_loader tsr_loader;
typedef struct tsr_plan tsr_plan;

/* Arrays that a batch can have. */
#define TSR_BATCH_MAX_FIELDS 8

/* --- of images -------------------------------------------------------------------------------- */
typedef struct tsr_loader_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t batch_size TSR_IS(64); /* rows of all ranks' batch; default 64 */
    bool shuffle;                  /* a new order of the whole set every epoch */
    bool augment;                  /* random crop (4 black pixels around) and horizontal flip */
    bool normalize; /* (v - mean) / std per channel, with CIFAR-10's or MNIST's usual figures */
    bool drop_last; /* leave out a last batch that isn't full */
    /* For local graphs, as under tsr_ddp: a rank's batches are its part of all ranks' batches,
     * which are cut to a multiple of the ranks. batch_size must be one. */
    bool local;
    uint64_t seed;          /* of the order, the crops and the flips */
    tsr_dtype dtype;        /* of the images: TSR_F32 (default) or TSR_F64 */
    int workers TSR_IS(1);  /* threads that decode; default 1; 0: the calling thread does it */
    int prefetch TSR_IS(2); /* batches decoded ahead, which is also the most workers of use; default
                             * 2; 0: as workers 0 */
} tsr_loader_opts;
#define TSR_LOADER_OPTS(...) \
    TSR_OPTIONS(tsr_loader_opts, (.batch_size = 64, .workers = 1, .prefetch = 2, ), __VA_ARGS__)

/*
 * Makes a loader at the start of epoch 0, of fields x (rows, channels, height, width) and y (rows),
 * i64. Pixels become pixel / 255, in f32, then cast to the dtype. opts may be NULL. Belongs to its
 * world; all ranks must make the same. Errors: TSR_ERR_INVALID, TSR_ERR_DTYPE, TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_loader_create(tsr_world *world, tsr_dataset *dataset,
                                     const tsr_loader_opts *opts, tsr_loader **out_loader);

/* --- of functions ----------------------------------------------------------------------------- */
/* How samples are made. Passed to the user's functions by the library. */
typedef struct tsr_worker {
    int id;        /* 0 .. count-1 */
    int count;     /* num_workers; 0: the caller of tsr_loader_next itself */
    int64_t epoch; /* that the sample is of */
    uint64_t seed; /* base_seed + id: base_seed is drawn as PyTorch draws it (the caller: + 0) */
    void *user;    /* for worker_init to set, and worker_exit to free */
} tsr_worker;
/* Returns whether this sample is no longer wanted: the loader is being reset or destroyed, and
 * waits for the function to return. For one that takes long to ask now and then. */
TSR_API bool tsr_worker_is_stopping(const tsr_worker *worker);

/*
 * The data set: functions that workers call, several at a time. `get` writes sample `index` into
 * out_fields[f], field_bytes[f] each. A status other than TSR_OK fails the batch; with
 * tsr_set_error it says why. It must not use a world, and returns some time.
 */
typedef struct tsr_map_dataset {
    size_t size;
    tsr_by_name by_name;
    int64_t (*len)(void *arg); /* called once, when a loader is made */
    tsr_status (*get)(void *arg, int64_t index, void *const *out_fields, const tsr_worker *worker);
    void *arg;
} tsr_map_dataset;
#define TSR_MAP_DATASET(...) TSR_OPTIONS(tsr_map_dataset, (), __VA_ARGS__)

/* Samples that a collate function makes a batch of. */
typedef struct tsr_samples {
    int64_t rows;
    const int64_t *indices; /* (rows) */
    int nfields;
    const void *const *fields; /* of field f the rows' bytes, one after the other */
} tsr_samples;
typedef struct tsr_batch_out tsr_batch_out;
/* Returns memory for array `field` (0 .. TSR_BATCH_MAX_FIELDS-1) of the batch that is being made:
 * `bytes` of it, aligned to 64; what is in it is anything. Again for the same field: another size,
 * the bytes before are lost. NULL, with the error set, if there is none. */
TSR_API void *tsr_batch_array(tsr_batch_out *out, int field, size_t bytes);
/* Makes the batch's arrays, in a worker. */
typedef tsr_status tsr_collate_fn(void *arg, const tsr_samples *samples, tsr_batch_out *out,
                                  const tsr_worker *worker);

typedef struct tsr_map_loader_opts {
    size_t size;
    tsr_by_name by_name;
    /* A sample is one array of sample_bytes, or nfields of field_bytes each. 0 bytes are
     * legal with a collate function, which may also read the samples by itself. */
    size_t sample_bytes;
    int nfields;
    size_t field_bytes[TSR_BATCH_MAX_FIELDS];

    /* The plan's inputs that tsr_loader_feed gives the fields to; default "x" and "y". */
    const char *inputs[TSR_BATCH_MAX_FIELDS];
    /* Batches of so many ranks make up a global batch, each rank's being its rows of it: the number
     * of replicas of a tsr_distributed_sampler. Default 1: each rank has the whole batch. */
    int ranks TSR_IS(1);

    int64_t batch_size TSR_IS(1);     /* default 1 */
    bool shuffle;                     /* a random sampler; else a sequential one */
    bool drop_last;                   /* leave out a last batch that isn't full */
    tsr_sampler *sampler;             /* in place of shuffle; borrowed */
    tsr_batch_sampler *batch_sampler; /* in place of all four above; borrowed */
    tsr_generator *generator;         /* of orders and base seeds; borrowed; NULL: by the seed */
    uint64_t seed;

    int num_workers; /* threads; default 0: the caller makes its batches when it asks */
    int prefetch_factor TSR_IS(-1); /* batches that each worker makes ahead; default (-1) 2 */
    double timeout_s;               /* how long next waits for the workers; default 0: for ever */
    bool persistent_workers;        /* keep the threads, and the base seed, from epoch to epoch */
    /* When a worker starts, before its first sample, and when it ends. For the caller too, with
     * num_workers 0 (where PyTorch calls none). An error of init surfaces at the worker's batches.
     */
    tsr_status (*worker_init)(void *arg, tsr_worker *worker);
    void (*worker_exit)(void *arg, tsr_worker *worker);
    void *worker_arg;

    tsr_collate_fn *collate; /* default: of each field the samples, one after the other */
    /* Called for each sample that get made, once its batch is collated or has failed: for samples
     * that own memory. */
    void (*release)(void *arg, int64_t index, void *const *fields);
    void *collate_arg;

    /* Batches in memory that a GPU copies from by itself: by host_alloc where it is given (say,
     * cudaHostAlloc), which must be safe to call from workers; else plain memory that begins and
     * ends at pages, which the program may register. host_alloc counts without pin_memory too. */
    bool pin_memory;
    void *(*host_alloc)(void *arg, size_t bytes); /* aligned to 64; NULL: none left */
    void (*host_free)(void *arg, void *memory, size_t bytes);
    void *host_arg;
} tsr_map_loader_opts;
#define TSR_MAP_LOADER_OPTS(...)                                                             \
    TSR_OPTIONS(tsr_map_loader_opts, (.ranks = 1, .batch_size = 1, .prefetch_factor = -1, ), \
                __VA_ARGS__)

/*
 * Makes a loader at the start of epoch 0; threads start with the first batch of an epoch. world may
 * be NULL: the loader is then the caller's alone to destroy; else it goes with its world. Batches
 * come in the sampler's order, whatever the number of workers, and batch k of an epoch is made by
 * worker k modulo their number: what a worker draws by its seed comes again too. Orders are
 * PyTorch's, shuffle included: with `seed`, those of a program that called torch.manual_seed(seed);
 * with `generator`, those of the DataLoader that was given it. Errors: TSR_ERR_INVALID (options
 * that exclude each other, as in PyTorch: shuffle with a sampler; batch_size, shuffle, sampler or
 * drop_last with a batch sampler; prefetch_factor, timeout_s or persistent_workers without
 * workers), TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_map_loader_create(tsr_world *world, const tsr_map_dataset *dataset,
                                         const tsr_map_loader_opts *opts, tsr_loader **out_loader);

/* --- batches ---------------------------------------------------------------------------------- */
typedef struct tsr_batch {
    int64_t number; /* of the epoch, from 0 */
    int64_t epoch;
    int64_t rows;
    const int64_t *indices; /* (rows) */
    int nfields;
    void *data[TSR_BATCH_MAX_FIELDS]; /* row-major; yours to change until the next call */
    size_t bytes[TSR_BATCH_MAX_FIELDS];
} tsr_batch;

/* Frees a loader, at any moment. Waits for the samples in work, and no longer. NULL is fine. */
TSR_API void tsr_loader_destroy(tsr_loader *loader);

/*
 * Gives the next batch, which is the loader's and stays until its next call: all rows, or with
 * .local or .ranks this rank's. TSR_END at the end of an epoch, once; the loader then stands at the
 * start of the next one.
 *
 * Errors: what get or collate returned for a sample of this batch, "sample 17: " before its text;
 * the sampler's own. The batch is then lost: the next call gives the one after it. TSR_ERR_TIMEOUT
 * says who is busy with what; the next call waits for the same batch again. TSR_ERR_BACKEND if a
 * thread can't be started, TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_loader_next(tsr_loader *loader, const tsr_batch **out_batch);
/*
 * As tsr_loader_next, into a plan's inputs: "x" and "y", or tsr_map_loader_opts.inputs. Each rank
 * decodes its own rows of images only, and none where it holds no part of x. Errors, which leave
 * the loader where it is: TSR_ERR_SHAPE or TSR_ERR_DTYPE where the inputs don't fit the batch (a
 * smaller last batch: see tsr_loader_peek_rows), TSR_ERR_INVALID where there is no such input, and
 * tsr_feed's.
 */
TSR_API tsr_status tsr_loader_feed(tsr_loader *loader, tsr_plan *plan);
/* Returns the rows of the next batch, of all ranks; 0 at the end of the epoch; -1 where the sampler
 * fails, as tsr_loader_next then says. */
TSR_API int64_t tsr_loader_peek_rows(tsr_loader *loader);

/* Leaves the epoch, if one has begun, for the next one: as iter(loader) does. Waits for the samples
 * in work. */
TSR_API tsr_status tsr_loader_reset(tsr_loader *loader);
/*
 * Goes to the start of an epoch, and sets the sampler's (a distributed sampler needs it for another
 * order). By a seed it is the epoch that a run from epoch 0 would meet. TSR_ERR_INVALID if it is
 * negative; TSR_ERR_STATE if a sampler draws from a generator of the user's, or, with shuffle, the
 * loader does.
 */
TSR_API tsr_status tsr_loader_set_epoch(tsr_loader *loader, int64_t epoch);
/* Returns the epoch that the next batch is of (at the end of one: still that one, until TSR_END).
 * */
TSR_API int64_t tsr_loader_epoch(const tsr_loader *loader);
/* Returns the number of batches of an epoch; -1 if a custom sampler doesn't tell. */
TSR_API int64_t tsr_loader_batches(const tsr_loader *loader);
/* Returns how many batches of this epoch that have been given, or lost by an error. */
TSR_API int64_t tsr_loader_position(const tsr_loader *loader);
/* Goes there within this epoch: the next batch is the one that would have come. TSR_ERR_INVALID
 * outside of the epoch. */
TSR_API tsr_status tsr_loader_set_position(tsr_loader *loader, int64_t position);

/* Where a loader stands, without what was made ahead. Plain bytes, good for a loader made in the
 * same way. */
typedef struct tsr_loader_state {
    size_t size;
    int64_t epoch, position;
    uint64_t base_seed; /* this and what follows: of tsr_map_loader_create, else 0 */
    int32_t begun;
    int32_t has_base_seed;
    tsr_sampler_state sampler;                          /* at the start of the epoch */
    unsigned char generator[TSR_GENERATOR_STATE_BYTES]; /* then, too */
} tsr_loader_state;
/* Says where a loader stands. Errors: TSR_ERR_INVALID. */
TSR_API tsr_status tsr_loader_get_state(const tsr_loader *loader, tsr_loader_state *out_state);
/* Goes there: the next batch is the one that would have come. Sets a generator of the user's too.
 * TSR_ERR_INVALID if the state doesn't fit the loader. */
TSR_API tsr_status tsr_loader_set_state(tsr_loader *loader, const tsr_loader_state *state);

#ifdef __cplusplus
}
#endif
#endif
