/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loader of batches from any data set that gives a sample for an index: torch.utils.data's
 * DataLoader for map-style data sets, with threads for workers. (For labelled images that feed a
 * plan there is tsr_loader, data.h.)
 *
 *   const tsr_batch *b;
 *   while ((status = tsr_data_loader_next(loader, &b)) == TSR_OK)
 *       TRY(tsr_feed_shard(plan, "x", b->data[0], b->bytes[0]));   // TSR_END after an epoch
 *
 * Batches come in the sampler's order, whatever the number of workers, and batch k of an epoch is
 * made by worker k modulo their number: what a worker draws by its seed comes again too. Orders are
 * PyTorch's, shuffle included: with `seed`, those of a program that called torch.manual_seed(seed);
 * with `generator`, those of the DataLoader that was given it.
 */
#ifndef TESSERA_DATA_LOADER_H
#define TESSERA_DATA_LOADER_H

#include <tessera/sampler.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Arrays that a batch can have. */
#define TSR_BATCH_MAX_FIELDS 8

/* How samples are made. Passed to the user's functions by the library. */
typedef struct tsr_worker {
    int id;        /* 0 .. count-1 */
    int count;     /* num_workers; 0: the caller of tsr_data_loader_next itself */
    int64_t epoch; /* that the sample is of */
    uint64_t seed; /* base_seed + id: base_seed is drawn as PyTorch draws it (the caller: + 0) */
    void *user;    /* for worker_init to set, and worker_exit to free */
} tsr_worker;
/* Whether this sample is no longer wanted: the loader is being reset or destroyed, and waits for
 * the function to return. For one that takes long to ask now and then. */
TSR_API bool tsr_worker_is_stopping(const tsr_worker *worker);

/*
 * The data set: functions that workers call, several at a time. `get` writes sample `index` into
 * out_fields[f], field_bytes[f] each. A status other than TSR_OK fails the batch; with
 * tsr_set_error it says why. It must not use a world, and returns some time.
 */
typedef struct tsr_map_dataset {
    size_t size;
    int64_t (*len)(void *arg); /* called once, when a loader is made */
    tsr_status (*get)(void *arg, int64_t index, void *const *out_fields, const tsr_worker *worker);
    void *arg;
} tsr_map_dataset;
#define TSR_MAP_DATASET(...) \
    (&(const tsr_map_dataset){.size = sizeof(tsr_map_dataset), __VA_ARGS__})

/* Samples that a collate function makes a batch of. */
typedef struct tsr_samples {
    int64_t rows;
    const int64_t *indices; /* (rows) */
    int nfields;
    const void *const *fields; /* of field f the rows' bytes, one after the other */
} tsr_samples;
typedef struct tsr_batch_out tsr_batch_out;
/* Memory for array `field` (0 .. TSR_BATCH_MAX_FIELDS-1) of the batch that is being made: `bytes`
 * of it, aligned to 64; what is in it is anything. Again for the same field: another size, the
 * bytes before are lost. NULL, with the error set, if there is none. */
TSR_API void *tsr_batch_array(tsr_batch_out *out, int field, size_t bytes);
/* Makes the batch's arrays, in a worker. */
typedef tsr_status tsr_collate_fn(void *arg, const tsr_samples *samples, tsr_batch_out *out,
                                  const tsr_worker *worker);

typedef struct tsr_data_loader_opts {
    size_t size;
    /* A sample is one array of sample_bytes, or nfields of field_bytes each. 0 bytes are
     * legal with a collate function, which may also read the samples by itself. */
    size_t sample_bytes;
    int nfields;
    size_t field_bytes[TSR_BATCH_MAX_FIELDS];

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
} tsr_data_loader_opts;
#define TSR_DATA_LOADER_OPTS(...)                                        \
    (&(const tsr_data_loader_opts){.size = sizeof(tsr_data_loader_opts), \
                                   .batch_size = 1,                      \
                                   .prefetch_factor = -1,                \
                                   __VA_ARGS__})

typedef struct tsr_batch {
    int64_t number; /* of the epoch, from 0 */
    int64_t epoch;
    int64_t rows;
    const int64_t *indices; /* (rows) */
    int nfields;
    void *data[TSR_BATCH_MAX_FIELDS]; /* row-major; yours to change until the next call */
    size_t bytes[TSR_BATCH_MAX_FIELDS];
} tsr_batch;

typedef struct tsr_data_loader tsr_data_loader;

/*
 * A loader at the start of epoch 0; threads start with the first batch of an epoch. world may be
 * NULL: the loader is then the caller's alone to destroy; else it goes with its world. A loader
 * belongs to one thread. Not collective. Errors: TSR_ERR_INVALID (options that exclude each other,
 * as in PyTorch: shuffle with a sampler; batch_size, shuffle, sampler or drop_last with a batch
 * sampler; prefetch_factor, timeout_s or persistent_workers without workers), TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_data_loader_create(tsr_world *world, const tsr_map_dataset *dataset,
                                          const tsr_data_loader_opts *opts,
                                          tsr_data_loader **out_loader);
/* At any moment. Waits for the samples in work, and no longer. NULL is fine. */
TSR_API void tsr_data_loader_destroy(tsr_data_loader *loader);

/*
 * The next batch, which is the loader's and stays until its next call. TSR_END at the end of an
 * epoch, once; the loader then stands at the start of the next one.
 *
 * Errors: what get or collate returned for a sample of this batch, "sample 17: " before its text;
 * the sampler's own. The batch is then lost: the next call gives the one after it. TSR_ERR_TIMEOUT
 * says who is busy with what; the next call waits for the same batch again. TSR_ERR_BACKEND if a
 * thread can't be started, TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_data_loader_next(tsr_data_loader *loader, const tsr_batch **out_batch);

/* Leaves the epoch, if one has begun, for the next one: as iter(loader) does. Waits for the samples
 * in work. */
TSR_API tsr_status tsr_data_loader_reset(tsr_data_loader *loader);
/*
 * Goes to the start of an epoch, and sets the sampler's (a distributed sampler needs it for another
 * order). By a seed it is the epoch that a run from epoch 0 would meet. TSR_ERR_INVALID if it is
 * negative; TSR_ERR_STATE if a sampler draws from a generator of the user's, or, with shuffle, the
 * loader does.
 */
TSR_API tsr_status tsr_data_loader_set_epoch(tsr_data_loader *loader, int64_t epoch);
/* The epoch that the next batch is of. */
TSR_API int64_t tsr_data_loader_epoch(const tsr_data_loader *loader);
/* Batches of an epoch; -1 if a custom sampler doesn't tell. */
TSR_API int64_t tsr_data_loader_count(const tsr_data_loader *loader);
/* Batches of this epoch that have been given, or lost by an error. */
TSR_API int64_t tsr_data_loader_position(const tsr_data_loader *loader);

/* Where a loader stands, without what was made ahead. Plain bytes, good for a loader made in the
 * same way. */
typedef struct tsr_data_loader_state {
    size_t size;
    int64_t epoch, position;
    uint64_t base_seed;
    int32_t begun;
    int32_t has_base_seed;
    tsr_sampler_state sampler;                          /* at the start of the epoch */
    unsigned char generator[TSR_GENERATOR_STATE_BYTES]; /* then, too */
} tsr_data_loader_state;
TSR_API tsr_status tsr_data_loader_get_state(const tsr_data_loader *loader,
                                             tsr_data_loader_state *out_state);
/* Goes there: the next batch is the one that would have come. Sets a generator of the user's too.
 * TSR_ERR_INVALID if the state doesn't fit the loader. */
TSR_API tsr_status tsr_data_loader_set_state(tsr_data_loader *loader,
                                             const tsr_data_loader_state *state);

#ifdef __cplusplus
}
#endif
#endif
