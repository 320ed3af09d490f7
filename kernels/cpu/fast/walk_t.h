/* SPDX-License-Identifier: Apache-2.0 */
/* Random bits, and loops that the compiler vectorises by itself. Included once per instruction set;
 * see vec.h. */

/* Philox 4x32-10 as src/core/rng.h has it, W blocks at once from `block` on: word k of block i is
 * the lower half of lane i of words[k]; the upper halves hold anything. */
VEC_FN void philox(uint64_t key, uint64_t step, uint64_t block, vu words[4][2])
{
    static const uint64_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vu m0 = (vu){0} + UINT64_C(0xD2511F53), m1 = (vu){0} + UINT64_C(0xCD9E8D57);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    vu(*c)[2] = words;
    memcpy(c[0], lane, sizeof c[0]);
    for (int v = 0; v < 2; v++) {
        c[0][v] += block;
        c[1][v] = c[0][v] >> 32;
        c[2][v] = (vu){0} + step;
        c[3][v] = (vu){0} + (step >> 32);
    }
    VEC_LOOP
    for (int round = 0; round < 10; round++) {
        VEC_LOOP
        for (int v = 0; v < 2; v++) {
            vu p0 = vumul_low(m0, c[0][v]), p1 = vumul_low(m1, c[2][v]);
            c[0][v] = (p1 >> 32) ^ c[1][v] ^ (uint64_t)k0;
            c[1][v] = p1;
            c[2][v] = (p0 >> 32) ^ c[3][v] ^ (uint64_t)k1;
            c[3][v] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The words of W blocks in the order of elements. */
static void philox_words(uint64_t key, uint64_t step, uint64_t block, uint32_t *out)
{
    vu c[4][2];
    uint64_t word[4][W];
    philox(key, step, block, c);
    memcpy(word, c, sizeof word);
    for (int i = 0; i < W; i++)
        for (int k = 0; k < 4; k++)
            out[4 * i + k] = (uint32_t)word[k][i];
}

/* The elements [at, at + n), whose words are at hand, of either function. */
VEC_FN void drop_words(const tsri_fast_dropout_args *p, int64_t at, int64_t n, const uint32_t *word)
{
    const float *x = p->x + at, scale = p->scale;
    float *y = p->draws.y + at;
    const uint32_t least = p->least;
    for (int64_t j = 0; j < n; j++)
        y[j] = (word[j] >> 8) >= least ? x[j] * scale : 0.0f;
}

VEC_FN void uniform_words(const tsri_fast_numbers_args *p, int64_t at, int64_t n,
                          const uint32_t *word)
{
    const double low = p->low, width = p->width;
    const float most = p->most;
    float *y = p->draws.y + at;
    for (int64_t j = 0; j < n; j++) {
        const float v = (float)(low + width * ((double)(int32_t)(word[j] >> 8) * 0x1p-24));
        y[j] = v > most ? most : v;
    }
}

/* Does all elements; a whole vector of blocks, of a number that the compiler knows, by itself. */
#define DRAWS(name, args, of_words)                                  \
    static void name(const args *p)                                  \
    {                                                                \
        const tsri_fast_draws *d = &p->draws;                        \
        uint32_t word[4 * W];                                        \
        for (int64_t i = 0, n; i < d->n; i += n) {                   \
            const uint64_t at = d->index + (uint64_t)i;              \
            const int64_t skip = (int64_t)(at % 4), left = d->n - i; \
            philox_words(d->key, d->step, at / 4, word);             \
            n = 4 * W - skip < left ? 4 * W - skip : left;           \
            if (n == 4 * W)                                          \
                of_words(p, i, 4 * W, word);                         \
            else                                                     \
                of_words(p, i, n, word + skip);                      \
        }                                                            \
    }
DRAWS(dropout, tsri_fast_dropout_args, drop_words)
DRAWS(uniform, tsri_fast_numbers_args, uniform_words)
#undef DRAWS

#define NORMAL(name) vnormal_##name
#define NORMAL_FN VEC_FN
#define REAL vd
#define BITS vu
#define as_real(bits) ((vd)(bits))
#define as_bits(real) ((vu)(real))
#define root vdsqrt
#include "src/core/normal_t.h"
#undef NORMAL
#undef NORMAL_FN
#undef REAL
#undef BITS
#undef as_real
#undef as_bits
#undef root

/* The elements of W blocks: two of each. */
static void normal_blocks(const tsri_fast_numbers_args *p, uint64_t block, float *y)
{
    vu words[4][2];
    vd z[2][2];
    philox(p->draws.key, p->draws.step, block, words);
    VEC_LOOP
    for (int v = 0; v < 2; v++) {
        const vu word[4] = {words[0][v], words[1][v], words[2][v], words[3][v]};
        vd pair[2];
        vnormal_pair(word, pair);
        VEC_LOOP
        for (int k = 0; k < 2; k++)
            z[k][v] = p->low + p->width * pair[k];
    }
    float even[W], odd[W];
    vstore(even, vjoin(z[0][0], z[0][1]));
    vstore(odd, vjoin(z[1][0], z[1][1]));
    for (int i = 0; i < W; i++) {
        y[2 * i] = even[i];
        y[2 * i + 1] = odd[i];
    }
}

static void normal(const tsri_fast_numbers_args *p)
{
    const tsri_fast_draws *d = &p->draws;
    float own[2 * W];
    for (int64_t i = 0, n; i < d->n; i += n) {
        const uint64_t at = d->index + (uint64_t)i;
        const int64_t skip = (int64_t)(at % 2), left = d->n - i;
        n = 2 * W - skip < left ? 2 * W - skip : left;
        normal_blocks(p, at / 2, n == 2 * W ? d->y + i : own);
        if (n < 2 * W)
            memcpy(d->y + i, own + skip, (size_t)n * sizeof *own);
    }
}

static void keep(const float *by, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = by[i] != 0 ? x[i] * by[i] : 0.0f;
}
