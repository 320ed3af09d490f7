/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a generator, for samplers that hold one of their own or draw from a user's. */
#ifndef TESSERA_DATA_SAMPLER_TORCH_RNG_H
#define TESSERA_DATA_SAMPLER_TORCH_RNG_H

#include <tessera/sampler.h>
#include "src/core/world.h"

enum { TSRI_MT_WORDS = 624 };

/* The state that draws are made from: copied freely, by value. */
typedef struct tsri_rng_state {
    uint64_t seed; /* as given */
    int left;      /* words until the next twist, counting the one that triggers it: 1 .. 624 */
    int next;      /* of words[], 0 .. 624 */
    uint32_t words[TSRI_MT_WORDS];
    bool has_normal;
    double normal; /* the second of a pair of normals */
} tsri_rng_state;

struct tsr_generator {
    tsri_owned owned;
    tsri_rng_state s;
};

void tsri_generator_seed(tsri_rng_state *s, uint64_t seed);
uint32_t tsri_generator_word(tsri_rng_state *s);
uint64_t tsri_generator_word64(tsri_rng_state *s);
/* In [0, 1). Two words. */
double tsri_generator_f64(tsri_rng_state *s);
/* Goes past `words` words. */
void tsri_generator_skip(tsri_rng_state *s, uint64_t words);

/* From this n on, randperm takes 64 bits a draw, from another algorithm. */
#define TSRI_RANDPERM_WIDE (INT64_C(4294967295) / 20)
/* out: n. The caller decides on `wide`: n >= TSRI_RANDPERM_WIDE. */
void tsri_generator_randperm(tsri_rng_state *s, int64_t n, bool wide, int64_t *out);
/* Words that a randperm takes. */
uint64_t tsri_randperm_words(int64_t n);
/* One number of low .. low+range-1. */
int64_t tsri_generator_below(tsri_rng_state *s, uint64_t range, int64_t low);

/* The form of PyTorch's get_state(). */
void tsri_generator_store(const tsri_rng_state *s, unsigned char out[TSR_GENERATOR_STATE_BYTES]);
/* TSR_ERR_FORMAT: s stays. */
tsr_status tsri_generator_load(tsri_rng_state *s,
                               const unsigned char state[TSR_GENERATOR_STATE_BYTES]);

#endif
