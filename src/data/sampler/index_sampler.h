/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a sampler: a pass of `count` indices, made block by block by the kind's functions,
 * from draws whose source is set back when a pass is begun again.
 */
#ifndef TESSERA_DATA_SAMPLER_INDEX_SAMPLER_H
#define TESSERA_DATA_SAMPLER_INDEX_SAMPLER_H

#include "src/data/sampler/torch_rng.h"

/* Samples that a data set can have. */
#define TSRI_MAX_SAMPLES (INT64_C(1) << 56)

typedef struct tsri_sampler_ops {
    int kind; /* in states */
    const char *name;
    bool keeps_epoch; /* a new pass is of the same epoch */
    /* Before the first index of a pass. NULL: nothing to do. */
    tsr_status (*begin)(tsr_sampler *s);
    /* Makes the block that follows the last one: block[], block_first, block_count. NULL: `at` does
     * without. */
    tsr_status (*fill)(tsr_sampler *s);
    /* The index at s->position, which is in the block. NULL: block[position - block_first]. */
    int64_t (*at)(const tsr_sampler *s);
    /* Instead of all that, for passes of unknown length. */
    tsr_status (*next)(tsr_sampler *s, int64_t *out_index);
    /* At the end of a pass. NULL: nothing to do. */
    void (*end)(tsr_sampler *s);
    /* Words that one pass draws from the root. */
    uint64_t (*words)(const tsr_sampler *s);
} tsri_sampler_ops;

struct tsr_sampler {
    tsri_owned owned;
    tsri_mem *mem; /* may be NULL */
    const tsri_sampler_ops *ops;
    int64_t n;     /* samples, weights or indices that it is over */
    int64_t count; /* of a pass; -1: not known */
    int64_t epoch, position;
    bool begun; /* this pass has drawn */
    int64_t *block;
    int64_t block_first, block_count;

    /* Draws: `root` is a user's generator, or one of ours that stands for PyTorch's default one. */
    tsri_rng_state *root;  /* NULL: nothing is drawn */
    tsri_rng_state *own;   /* root, if it is the sampler's and follows from the seed */
    bool seeds_passes;     /* each pass has a generator of its own, seeded from the root */
    tsri_rng_state start;  /* the root's at the start of the pass */
    tsri_rng_state *pass;  /* what blocks are drawn from */
    tsri_rng_state seeded; /* where that is the pass's own */
    uint64_t seed;

    /* kinds */
    bool replacement;
    int64_t *indices;   /* subset: (n) */
    double *cumulative; /* weighted: (n), up to 1 */
    int replicas, rank; /* distributed */
    tsr_sampler *over;
    tsr_sampler_state over_start; /* where `over` stood when the pass began */
    tsr_sampler_calls calls;
};

/* A sampler without block, draws or owner yet. */
tsr_status tsri_sampler_create(tsr_world *world, const tsri_sampler_ops *ops, int64_t n,
                               int64_t count, tsr_sampler **out_sampler);
/* Has it draw from the user's generator, or, if that is NULL, from one of its own. */
tsr_status tsri_sampler_draw_from(tsr_sampler *s, tsr_generator *generator, uint64_t seed);
/* Room for a block. */
tsr_status tsri_sampler_room(tsr_sampler *s, int64_t block);
/* Done: the sampler becomes the world's, if there is one, or is destroyed if status isn't OK. */
tsr_status tsri_sampler_finish(tsr_world *world, tsr_sampler *s, tsr_status status,
                               tsr_sampler **out_sampler);

/* A random sampler as a data loader makes it: with the user's generator, or, with_seeds, with a
 * seed for each pass drawn from `root`. root is the caller's. */
tsr_status tsri_sampler_shuffled(tsr_world *world, int64_t n, tsri_rng_state *root, bool with_seeds,
                                 tsr_sampler **out_sampler);
/* Stands before a pass that counts as `epoch`; the root is left as it is. */
void tsri_sampler_rewind(tsr_sampler *s, int64_t epoch);
/* Whether what comes depends on a generator that isn't the sampler's own. */
bool tsri_sampler_is_driven(const tsr_sampler *s);

/* "who: n is -1; ..." unless 0 <= n <= TSRI_MAX_SAMPLES and out is given. */
tsr_status tsri_sampler_check(const char *who, int64_t n, const void *out);

#endif
