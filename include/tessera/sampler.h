/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which samples of a data set come when, in PyTorch's own order: its CPU generator, what is drawn
 * from it, and the samplers of torch.utils.data. Equal seeds give equal indices.
 *
 * None of it is collective, and every object is used by one thread at a time. `world` may be NULL
 * everywhere but where said: the object is then the caller's alone to destroy; else it goes with
 * its world, and can be destroyed early. A sampler's source must outlive it.
 */
#ifndef TESSERA_SAMPLER_H
#define TESSERA_SAMPLER_H

#include <tessera/world.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- generators ------------------------------------------------------------------------------- */
/* A torch.Generator of the CPU: mt19937. Draws one after the other, whoever asks. */
typedef struct tsr_generator tsr_generator;

/* Makes a generator, as manual_seed(seed): the stream depends on the low 32 bits; a negative seed
 * is its two's complement. Errors: TSR_ERR_INVALID, TSR_ERR_NO_MEMORY. */
TSR_API tsr_status tsr_generator_create(tsr_world *world, uint64_t seed,
                                        tsr_generator **out_generator);
/* Frees a generator. NULL is fine. */
TSR_API void tsr_generator_destroy(tsr_generator *generator);
/* Starts again from a seed. NULL: nothing happens. */
TSR_API void tsr_generator_seed(tsr_generator *generator, uint64_t seed);
/* Returns the seed that it was given last, all 64 bits. */
TSR_API uint64_t tsr_generator_initial_seed(const tsr_generator *generator);

/* Returns the next 32 bits. For NULL: 0. */
TSR_API uint32_t tsr_generator_word(tsr_generator *generator);
/* Returns the next 64 bits, of two words; the first one is the high one. For NULL: 0. */
TSR_API uint64_t tsr_generator_word64(tsr_generator *generator);
/* Returns the next int64 of random_(), which is 0 .. 2^63-1. For NULL: 0. */
TSR_API int64_t tsr_generator_random(tsr_generator *generator);

/*
 * Draws a permutation of 0 .. n-1. This call and those that follow draw `n` values each, row by
 * row, as torch.randperm, rand, randn, randint(low, high) and bernoulli_(p) do. rand and randn:
 * TSR_F32 or TSR_F64. All are PyTorch's values to the bit, but for randn's last bit in f64 (1.13
 * takes log(1 - u) where later ones take log1p(-u)), and up to 1e-6 in f32 from n = 16 on, where
 * PyTorch's own differ from one CPU to another. bernoulli, and randn from n = 16 on, come from
 * other streams in PyTorch builds with MKL. Errors: TSR_ERR_INVALID (a NULL, n < 0, low >= high, p
 * outside [0, 1]), TSR_ERR_DTYPE.
 */
TSR_API tsr_status tsr_generator_randperm(tsr_generator *generator, int64_t n, int64_t *out);
/* Draws n values as torch.rand does; see tsr_generator_randperm. */
TSR_API tsr_status tsr_generator_rand(tsr_generator *generator, tsr_dtype dtype, int64_t n,
                                      void *out);
/* Draws n values as torch.randn does; see tsr_generator_randperm. */
TSR_API tsr_status tsr_generator_randn(tsr_generator *generator, tsr_dtype dtype, int64_t n,
                                       void *out);
/* Draws n values as torch.randint(low, high) does; see tsr_generator_randperm. */
TSR_API tsr_status tsr_generator_randint(tsr_generator *generator, int64_t low, int64_t high,
                                         int64_t n, int64_t *out);
/* Draws n values as bernoulli_(p) does; see tsr_generator_randperm. */
TSR_API tsr_status tsr_generator_bernoulli(tsr_generator *generator, double p, int64_t n,
                                           bool *out);

/* Bytes of a generator's state, which are those of PyTorch's get_state() and set_state(). */
#define TSR_GENERATOR_STATE_BYTES 5056
/* Copies a generator's state. Errors: TSR_ERR_INVALID. */
TSR_API tsr_status tsr_generator_get_state(const tsr_generator *generator,
                                           unsigned char out_state[TSR_GENERATOR_STATE_BYTES]);
/* Sets a generator's state. Errors: TSR_ERR_INVALID, TSR_ERR_FORMAT if it is no generator's state.
 * */
TSR_API tsr_status tsr_generator_set_state(tsr_generator *generator,
                                           const unsigned char state[TSR_GENERATOR_STATE_BYTES]);

/* --- samplers --------------------------------------------------------------------------------- */
/*
 * Gives the indices of one pass over a data set, then TSR_END, once; the next call is the first of
 * another pass. A pass is what iter(sampler) is in PyTorch, and draws when PyTorch does.
 *
 * Randomness comes from the generator in the options, as it stands when a pass begins, or, without
 * one, from `seed`: the passes are then those of a PyTorch program that called
 * torch.manual_seed(seed) and draws nothing else.
 */
typedef struct tsr_sampler tsr_sampler;

/* Makes a sampler of 0 .. n-1. Errors, here and below: TSR_ERR_INVALID (what was found, what is
 * legal), TSR_ERR_NO_MEMORY. n is at most 2^56. */
TSR_API tsr_status tsr_sequential_sampler(tsr_world *world, int64_t n, tsr_sampler **out_sampler);

typedef struct tsr_random_sampler_opts {
    size_t size;
    tsr_by_name by_name;
    bool replacement;
    int64_t
        num_samples TSR_IS(-1); /* of a pass; default (-1) n; more than n repeat, in whole orders */
    tsr_generator *generator;   /* borrowed; NULL: by the seed */
    uint64_t seed;
} tsr_random_sampler_opts;
#define TSR_RANDOM_SAMPLER_OPTS(...) \
    TSR_OPTIONS(tsr_random_sampler_opts, (.num_samples = -1, ), __VA_ARGS__)
/* Makes a RandomSampler. opts may be NULL. n = 0 gives nothing. */
TSR_API tsr_status tsr_random_sampler(tsr_world *world, int64_t n,
                                      const tsr_random_sampler_opts *opts,
                                      tsr_sampler **out_sampler);

typedef struct tsr_subset_random_sampler_opts {
    size_t size;
    tsr_by_name by_name;
    tsr_generator *generator; /* borrowed; NULL: by the seed */
    uint64_t seed;
} tsr_subset_random_sampler_opts;
#define TSR_SUBSET_RANDOM_SAMPLER_OPTS(...) \
    TSR_OPTIONS(tsr_subset_random_sampler_opts, (), __VA_ARGS__)
/* Makes a SubsetRandomSampler: the `count` given indices (copied) in a random order. opts may be
 * NULL. */
TSR_API tsr_status tsr_subset_random_sampler(tsr_world *world, const int64_t *indices,
                                             int64_t count,
                                             const tsr_subset_random_sampler_opts *opts,
                                             tsr_sampler **out_sampler);

typedef struct tsr_weighted_random_sampler_opts {
    size_t size;
    tsr_by_name by_name;
    bool replacement TSR_IS(true);  /* default true. false is TSR_ERR_UNSUPPORTED: what PyTorch then
                                     * draws  depends on how it was built */
    int64_t num_samples TSR_IS(-1); /* of a pass; default (-1) n */
    tsr_generator *generator;       /* borrowed; NULL: by the seed */
    uint64_t seed;
} tsr_weighted_random_sampler_opts;
#define TSR_WEIGHTED_RANDOM_SAMPLER_OPTS(...)                                                 \
    TSR_OPTIONS(tsr_weighted_random_sampler_opts, (.replacement = true, .num_samples = -1, ), \
                __VA_ARGS__)
/*
 * Makes a WeightedRandomSampler with replacement: index i with a probability of weights[i] over
 * their sum. The weights (copied) are finite, not negative, not all zero, and at most 2^24. From
 * num_samples = 2 on the indices are PyTorch's; a single one it draws in another way. opts may be
 * NULL.
 */
TSR_API tsr_status tsr_weighted_random_sampler(tsr_world *world, const double *weights, int64_t n,
                                               const tsr_weighted_random_sampler_opts *opts,
                                               tsr_sampler **out_sampler);

typedef struct tsr_distributed_sampler_opts {
    size_t size;
    tsr_by_name by_name;
    int replicas; /* that share the data set; 0: the world's ranks, and rank the world's */
    int rank;     /* 0 .. replicas-1 */
    bool shuffle TSR_IS(true); /* default true: an order by seed + epoch; false: as they are */
    int64_t seed;              /* the same on all replicas */
    bool drop_last;            /* leave out what doesn't divide */
    /* Default true: repeats from the head make all replicas' counts equal; false, for evaluation:
     * every sample exactly once, and counts may differ by one: mind collectives in the loop. No
     * matter with drop_last. */
    bool pad TSR_IS(true);
    tsr_sampler *over; /* share out this one's passes in place of 0 .. n-1 (n is then its count);
                        * it must give the same on all replicas, and shuffle is not used */
} tsr_distributed_sampler_opts;
#define TSR_DISTRIBUTED_SAMPLER_OPTS(...) \
    TSR_OPTIONS(tsr_distributed_sampler_opts, (.shuffle = true, .pad = true, ), __VA_ARGS__)
/*
 * Makes a DistributedSampler: every replicas-th sample from `rank` on. Its epoch changes by
 * tsr_sampler_set_epoch alone; without that every pass has the same order, as in PyTorch. n = 0 and
 * n < replicas are fine. world must be given where replicas is 0; opts may be NULL then.
 */
TSR_API tsr_status tsr_distributed_sampler(tsr_world *world, int64_t n,
                                           const tsr_distributed_sampler_opts *opts,
                                           tsr_sampler **out_sampler);

/* A sampler of the user's own. Any status but TSR_OK and TSR_END is passed on. */
typedef struct tsr_sampler_calls {
    size_t size;
    tsr_by_name by_name;
    int64_t (*count)(void *arg);                       /* of a pass; NULL: not known */
    tsr_status (*begin)(void *arg, int64_t epoch);     /* a pass; NULL: nothing to do */
    tsr_status (*next)(void *arg, int64_t *out_index); /* TSR_END at the end of the pass */
    void *arg;
} tsr_sampler_calls;
#define TSR_SAMPLER_CALLS(...) TSR_OPTIONS(tsr_sampler_calls, (), __VA_ARGS__)
/* Makes a sampler of the user's functions, which are copied. Errors: TSR_ERR_INVALID,
 * TSR_ERR_NO_MEMORY. */
TSR_API tsr_status tsr_custom_sampler(tsr_world *world, const tsr_sampler_calls *calls,
                                      tsr_sampler **out_sampler);

/* Frees a sampler. NULL is fine. */
TSR_API void tsr_sampler_destroy(tsr_sampler *sampler);

/* Gives the next index; TSR_END at the end of the pass. */
TSR_API tsr_status tsr_sampler_next(tsr_sampler *sampler, int64_t *out_index);
/* Returns the number of indices of a pass; -1 if the sampler is a custom one that doesn't tell. */
TSR_API int64_t tsr_sampler_count(const tsr_sampler *sampler);
/*
 * Leaves the pass, if one has begun, and stands before another, as iter(sampler) does: the same
 * order again where nothing is drawn, or from a distributed sampler; else new draws.
 */
TSR_API tsr_status tsr_sampler_reset(tsr_sampler *sampler);
/*
 * Goes to the start of an epoch (from 0). Distributed: the order of seed + epoch. By a seed: its
 * pass number `epoch`. TSR_ERR_INVALID if it is negative, or more than 2^32 draws away;
 * TSR_ERR_STATE if the order comes from a generator of the user's, whose state says it.
 */
TSR_API tsr_status tsr_sampler_set_epoch(tsr_sampler *sampler, int64_t epoch);
/* Returns the epoch that the next index is of. */
TSR_API int64_t tsr_sampler_epoch(const tsr_sampler *sampler);

/* Returns how many indices of this pass have been given. */
TSR_API int64_t tsr_sampler_position(const tsr_sampler *sampler);
/* Goes there within this pass, whose order stays; back, in a pass that draws from a generator of
 * the user's, sets that generator back. TSR_ERR_INVALID outside 0 .. count. */
TSR_API tsr_status tsr_sampler_set_position(tsr_sampler *sampler, int64_t position);

/*
 * Where a sampler stands: what a checkpoint keeps. Plain bytes, good for a sampler made in the same
 * way, in this process or another.
 */
typedef struct tsr_sampler_state {
    size_t size;
    int32_t kind;
    int32_t has_generator;
    int64_t count, epoch, position;
    unsigned char generator[TSR_GENERATOR_STATE_BYTES]; /* at the start of the pass */
} tsr_sampler_state;
/* Says where a sampler stands. Errors: TSR_ERR_INVALID. */
TSR_API tsr_status tsr_sampler_get_state(const tsr_sampler *sampler, tsr_sampler_state *out_state);
/* Goes there: what comes next is what would have come. A generator of the user's is set too.
 * TSR_ERR_INVALID if the state is of another kind of sampler, or of another count. */
TSR_API tsr_status tsr_sampler_set_state(tsr_sampler *sampler, const tsr_sampler_state *state);

/* --- batches of indices ----------------------------------------------------------------------- */
/* Cuts a sampler's passes into batches. Uses the sampler: nobody else may meanwhile. */
typedef struct tsr_batch_sampler tsr_batch_sampler;

/* Makes batches of a sampler's indices: BatchSampler. drop_last leaves out a last batch that isn't
 * full. TSR_ERR_INVALID if batch_size is below 1. */
TSR_API tsr_status tsr_batch_sampler_create(tsr_world *world, tsr_sampler *sampler,
                                            int64_t batch_size, bool drop_last,
                                            tsr_batch_sampler **out_batch_sampler);

/* One of the user's own, whose batches may be of any size up to max_rows. */
typedef struct tsr_batch_sampler_calls {
    size_t size;
    tsr_by_name by_name;
    int64_t max_rows;
    int64_t (*count)(void *arg);                   /* batches of a pass; NULL: not known */
    tsr_status (*begin)(void *arg, int64_t epoch); /* a pass; NULL: nothing to do */
    /* Writes up to max_rows indices; TSR_END at the end of the pass. */
    tsr_status (*next)(void *arg, int64_t *out_indices, int64_t *out_rows);
    void *arg;
} tsr_batch_sampler_calls;
#define TSR_BATCH_SAMPLER_CALLS(...) TSR_OPTIONS(tsr_batch_sampler_calls, (), __VA_ARGS__)
/* Makes a batch sampler of the user's functions, which are copied. Errors: TSR_ERR_INVALID,
 * TSR_ERR_NO_MEMORY. */
TSR_API tsr_status tsr_custom_batch_sampler(tsr_world *world, const tsr_batch_sampler_calls *calls,
                                            tsr_batch_sampler **out_batch_sampler);

/* Frees a batch sampler. NULL is fine. The sampler below stays. */
TSR_API void tsr_batch_sampler_destroy(tsr_batch_sampler *batch_sampler);
/* Gives the next batch: *out_rows indices, the batch sampler's until its next call. TSR_END at the
 * end of the pass. */
TSR_API tsr_status tsr_batch_sampler_next(tsr_batch_sampler *batch_sampler,
                                          const int64_t **out_indices, int64_t *out_rows);
/* Returns the number of batches of a pass; -1 if not known. */
TSR_API int64_t tsr_batch_sampler_count(const tsr_batch_sampler *batch_sampler);
/* As tsr_sampler_reset. Positions are batches. */
TSR_API tsr_status tsr_batch_sampler_reset(tsr_batch_sampler *batch_sampler);
/* As tsr_sampler_set_epoch, of the sampler below. */
TSR_API tsr_status tsr_batch_sampler_set_epoch(tsr_batch_sampler *batch_sampler, int64_t epoch);
/* Returns how many batches of this pass have been given. */
TSR_API int64_t tsr_batch_sampler_position(const tsr_batch_sampler *batch_sampler);
/* As tsr_sampler_set_position, by batches. */
TSR_API tsr_status tsr_batch_sampler_set_position(tsr_batch_sampler *batch_sampler,
                                                  int64_t position);
/* Says where a batch sampler stands. Errors: TSR_ERR_INVALID. */
TSR_API tsr_status tsr_batch_sampler_get_state(const tsr_batch_sampler *batch_sampler,
                                               tsr_sampler_state *out_state);
/* As tsr_sampler_set_state, of a batch sampler. */
TSR_API tsr_status tsr_batch_sampler_set_state(tsr_batch_sampler *batch_sampler,
                                               const tsr_sampler_state *state);

#ifdef __cplusplus
}
#endif
#endif
