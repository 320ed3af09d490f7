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

/* y[i] = x[i] * scale where element 4*block + skip + i draws at least `least` of 2^24, else 0. */
static void dropout(const tsri_fast_dropout_args *p, int64_t begin, int64_t end)
{
    uint32_t word[4 * W];
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t at = p->skip + i, first = at % 4;
        philox(p->key, p->step, p->block + (uint64_t)(at / 4), word);
        n = 4 * W - first;
        if (first == 0 && end - i >= 4 * W) {
            drop_words(p, i, 4 * W, word);
        } else {
            n = end - i < n ? end - i : n;
            drop_words(p, i, n, word + first);
        }
    }
}

VEC_FN void uniform_words(const tsri_fast_uniform_args *p, const uint32_t *word, float *y,
                          int64_t n)
{
    const double low = p->low, width = p->width;
    const float most = p->most;
    for (int64_t j = 0; j < n; j++) {
        const float v = (float)(low + width * ((double)(int32_t)(word[j] >> 8) * 0x1p-24));
        y[j] = v > most ? most : v;
    }
}

static void uniform(const tsri_fast_uniform_args *p, uint64_t index, float *y, int64_t n)
{
    uint32_t word[4 * W];
    for (int64_t i = 0, k; i < n; i += k) {
        const uint64_t at = index + (uint64_t)i;
        const int64_t first = (int64_t)(at % 4);
        philox(p->key, p->step, at / 4, word);
        k = 4 * W - first;
        if (first == 0 && n - i >= 4 * W) {
            uniform_words(p, word, y + i, 4 * W);
        } else {
            k = n - i < k ? n - i : k;
            uniform_words(p, word + first, y + i, k);
        }
    }
}

static void keep(const float *by, const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = by[i] != 0 ? x[i] * by[i] : 0.0f;
}
