/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/sha256.h"

#include <string.h>

/* FIPS 180-4, 4.2.2. */
static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int by)
{
    return x >> by | x << (32 - by);
}

/* FIPS 180-4, 6.2.2: one block of the message. */
static void add_block(uint32_t state[8], const unsigned char *p)
{
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++, p += 4)
        w[t] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int t = 16; t < 64; t++) {
        const uint32_t a = w[t - 15], b = w[t - 2];
        w[t] = w[t - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[t - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    for (int t = 0; t < 64; t++) {
        const uint32_t a = v[0], e = v[4];
        const uint32_t t1 = v[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                            ((e & v[5]) ^ (~e & v[6])) + round_constant[t] + w[t];
        const uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                            ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void tsri_sha256_init(tsri_sha256 *h)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(h->state, first, sizeof first);
    h->bytes = 0;
}

void tsri_sha256_add(tsri_sha256 *h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    while (bytes > 0) {
        const size_t used = h->bytes % TSRI_SHA256_BLOCK, room = TSRI_SHA256_BLOCK - used;
        const size_t n = bytes < room ? bytes : room;
        memcpy(h->block + used, p, n);
        h->bytes += n;
        p += n;
        bytes -= n;
        if (n == room)
            add_block(h->state, h->block);
    }
}

void tsri_sha256_finish(tsri_sha256 *h, unsigned char out[static TSRI_SHA256_BYTES])
{
    static const unsigned char padding[TSRI_SHA256_BLOCK] = {0x80};
    const uint64_t bits = 8 * h->bytes;
    const size_t used = h->bytes % TSRI_SHA256_BLOCK;
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    tsri_sha256_add(h, padding, (used < 56 ? 56 : 120) - used);
    tsri_sha256_add(h, length, sizeof length);
    for (int i = 0; i < TSRI_SHA256_BYTES; i++)
        out[i] = (unsigned char)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

void tsri_hmac_init(tsri_hmac *h, const void *key, size_t bytes)
{
    unsigned char block[TSRI_SHA256_BLOCK] = {0};
    tsri_sha256_init(&h->inner);
    tsri_sha256_init(&h->outer);
    if (bytes > sizeof block) {
        tsri_sha256_add(&h->inner, key, bytes);
        tsri_sha256_finish(&h->inner, block);
        tsri_sha256_init(&h->inner);
    } else if (bytes) {
        memcpy(block, key, bytes);
    }
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36;
    tsri_sha256_add(&h->inner, block, sizeof block);
    for (size_t i = 0; i < sizeof block; i++)
        block[i] ^= 0x36 ^ 0x5c;
    tsri_sha256_add(&h->outer, block, sizeof block);
}

void tsri_hmac_add(tsri_hmac *h, const void *data, size_t bytes)
{
    tsri_sha256_add(&h->inner, data, bytes);
}

void tsri_hmac_finish(tsri_hmac *h, unsigned char out[static TSRI_SHA256_BYTES])
{
    unsigned char digest[TSRI_SHA256_BYTES];
    tsri_sha256_finish(&h->inner, digest);
    tsri_sha256_add(&h->outer, digest, sizeof digest);
    tsri_sha256_finish(&h->outer, out);
}

bool tsri_hmac_is_same(const unsigned char a[static TSRI_SHA256_BYTES],
                       const unsigned char b[static TSRI_SHA256_BYTES])
{
    volatile unsigned char differ = 0; /* volatile: no early end */
    for (int i = 0; i < TSRI_SHA256_BYTES; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}
