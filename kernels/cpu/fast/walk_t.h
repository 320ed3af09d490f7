/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that the compiler vectorises by itself: random bits and max pooling. Included once per
 * instruction set; see vec.h. */

/* Philox 4x32-10 as src/core/rng.h has it, W blocks at once from `block` on; out[W][4]. */
static void philox(uint64_t key, uint64_t step, uint64_t block, uint32_t *out)
{
    uint32_t c0[W], c1[W], c2[W], c3[W];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < W; i++) {
        c0[i] = (uint32_t)(block + (uint64_t)i);
        c1[i] = (uint32_t)((block + (uint64_t)i) >> 32);
        c2[i] = (uint32_t)step;
        c3[i] = (uint32_t)(step >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < W; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < W; i++) {
        out[4 * i] = c0[i];
        out[4 * i + 1] = c1[i];
        out[4 * i + 2] = c2[i];
        out[4 * i + 3] = c3[i];
    }
}

/* y[i] = x[i] * scale where element 4*block + i draws at least `least` of 2^24, else 0. */
static void dropout(const tsri_fast_dropout_args *p, int64_t begin, int64_t end)
{
    uint32_t word[4 * W];
    for (int64_t i = begin; i < end; i += 4 * W) {
        philox(p->key, p->step, p->block + (uint64_t)(i / 4), word);
        int64_t n = end - i < 4 * W ? end - i : 4 * W;
        for (int64_t j = 0; j < n; j++)
            p->y[i + j] = (word[j] >> 8) >= p->least ? p->x[i + j] * p->scale : 0.0f;
    }
}

/* best[c] = max(best[c], x[c]), and whose it is; not-a-number is greater than all. */
static void max_join(const float *x, int32_t at, int64_t channels, float *best, int32_t *idx)
{
    for (int64_t c = 0; c < channels; c++) {
        bool more = x[c] > best[c] || (x[c] != x[c] && best[c] == best[c]);
        best[c] = more ? x[c] : best[c];
        idx[c] = more ? at : idx[c];
    }
}
