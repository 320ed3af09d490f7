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

/* Elements [at, at + n), whose words are at hand. */
VEC_FN void drop_words(const tsri_fast_dropout_args *p, int64_t at, int64_t n, const uint32_t *word)
{
    const float *x = p->x + at, scale = p->scale;
    float *y = p->y + at;
    const uint32_t least = p->least;
    for (int64_t j = 0; j < n; j++)
        y[j] = (word[j] >> 8) >= least ? x[j] * scale : 0.0f;
}

/* y[i] = x[i] * scale where element 4*block + i draws at least `least` of 2^24, else 0. */
static void dropout(const tsri_fast_dropout_args *p, int64_t begin, int64_t end)
{
    uint32_t word[4 * W];
    for (int64_t i = begin; i < end; i += 4 * W) {
        philox(p->key, p->step, p->block + (uint64_t)(i / 4), word);
        if (end - i >= 4 * W)
            drop_words(p, i, 4 * W, word);
        else
            drop_words(p, i, end - i, word);
    }
}
