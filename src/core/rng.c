/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/rng.h"

#include <math.h>
#include <string.h>

void tsri_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t tsri_hash(uint64_t h, const void *data, uint64_t bytes)
{
    const unsigned char *p = data;
    for (uint64_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

uint64_t tsri_rng_key(uint64_t seed, const char *name)
{
    /* splitmix64's finaliser (Steele, Lea, Flood 2014). */
    uint64_t z = tsri_hash(TSRI_HASH_INIT, name, strlen(name)) + seed * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void tsri_rng_block(uint64_t key, uint64_t step, uint64_t block, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step,
                                 (uint32_t)(step >> 32)};
    const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    tsri_philox(counter, k, out);
}

uint32_t tsri_rng_word(uint64_t key, uint64_t step, uint64_t index)
{
    uint32_t w[4];
    tsri_rng_block(key, step, index / 4, w);
    return w[index % 4];
}

double tsri_rng_uniform(uint64_t key, uint64_t step, uint64_t index)
{
    return (double)(tsri_rng_word(key, step, index) >> 8) * 0x1p-24;
}

static inline double as_real(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t as_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

#define NORMAL(name) normal_##name
#define NORMAL_FN static inline
#define REAL double
#define BITS uint64_t
#define root sqrt
#include "src/core/normal_t.h"

/* Elements 2j and 2j+1 share block j. */
static void normals_of_block(uint64_t key, uint64_t step, uint64_t j, double out[2])
{
    uint32_t w[4];
    tsri_rng_block(key, step, j, w);
    normal_pair((const uint64_t[]){w[0], w[1], w[2], w[3]}, out);
}

double tsri_rng_normal(uint64_t key, uint64_t step, uint64_t index)
{
    double pair[2];
    normals_of_block(key, step, index / 2, pair);
    return pair[index % 2];
}

void tsri_rng_normals(uint64_t key, uint64_t step, uint64_t first, int64_t n, double *out)
{
    double pair[2];
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 2 == 0)
            normals_of_block(key, step, index / 2, pair);
        out[i] = pair[index % 2];
    }
}

void tsri_rng_uniforms(uint64_t key, uint64_t step, uint64_t first, int64_t n, double *out)
{
    uint32_t w[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 4 == 0)
            tsri_rng_block(key, step, index / 4, w);
        out[i] = (double)(w[index % 4] >> 8) * 0x1p-24;
    }
}
