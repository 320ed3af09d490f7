/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). A draw is a pure function of a key (seed and a qualified name) and a counter
 * (training step, element's index in the global tensor), so it does not depend on placement.
 */
#ifndef TESSERA_CORE_RNG_H
#define TESSERA_CORE_RNG_H

#include <stdint.h>

/* out[4] from counter[4] and key[2]. */
void tsri_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A 64-bit key from a seed and a name (FNV-1a 64 of the name, mixed by splitmix64 with the seed).
 */
uint64_t tsri_rng_key(uint64_t seed, const char *name);

/* The four words of block `index / 4` of `step`: element i of a tensor takes word i % 4. */
void tsri_rng_block(uint64_t key, uint64_t step, uint64_t block, uint32_t out[4]);
/* Word for element `index`. */
uint32_t tsri_rng_word(uint64_t key, uint64_t step, uint64_t index);
/* [0, 1) with 24 bits (24: the same values in f32 and f64). */
double tsri_rng_uniform(uint64_t key, uint64_t step, uint64_t index);
/* Standard normal, by Box and Muller; see normal_t.h. */
double tsri_rng_normal(uint64_t key, uint64_t step, uint64_t index);
/* The values of n elements from `first` on: as one by one, but each block is made once. */
void tsri_rng_normals(uint64_t key, uint64_t step, uint64_t first, int64_t n, double *out);
void tsri_rng_uniforms(uint64_t key, uint64_t step, uint64_t first, int64_t n, double *out);

/* FNV-1a, 64 bits, chained by `h` (start with TSRI_HASH_INIT). */
#define TSRI_HASH_INIT 0xcbf29ce484222325u
uint64_t tsri_hash(uint64_t h, const void *data, uint64_t bytes);

#endif
