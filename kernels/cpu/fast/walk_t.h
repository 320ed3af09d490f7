/* SPDX-License-Identifier: Apache-2.0 */
/* Random bits, and loops that the compiler vectorises by itself. Included once per instruction set;
 * see vec.h. */

/* Philox 4x32-10 as src/core/rng.h has it, W blocks at once from `block` on; out[W][4]. Each word
 * is the lower half of a lane; the upper halves hold anything. */
static void philox(uint64_t key, uint64_t step, uint64_t block, uint32_t *out)
{
    const vu m0 = (vu){0} + UINT64_C(0xD2511F53), m1 = (vu){0} + UINT64_C(0xCD9E8D57);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint64_t at[W], word[4][W];
    vu c[4][2];
    for (int i = 0; i < W; i++)
        at[i] = block + (uint64_t)i;
    memcpy(c[0], at, sizeof c[0]);
    for (int v = 0; v < 2; v++) {
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

VEC_FN void uniform_words(const tsri_fast_uniform_args *p, int64_t at, int64_t n,
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
            philox(d->key, d->step, at / 4, word);                   \
            n = 4 * W - skip < left ? 4 * W - skip : left;           \
            if (n == 4 * W)                                          \
                of_words(p, i, 4 * W, word);                         \
            else                                                     \
                of_words(p, i, n, word + skip);                      \
        }                                                            \
    }
DRAWS(dropout, tsri_fast_dropout_args, drop_words)
DRAWS(uniform, tsri_fast_uniform_args, uniform_words)
#undef DRAWS

static void keep(const float *by, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = by[i] != 0 ? x[i] * by[i] : 0.0f;
}
