/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104), for proofs of a shared secret. */
#ifndef TSRI_CORE_SHA256_H
#define TSRI_CORE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TSRI_SHA256_BYTES = 32, TSRI_SHA256_BLOCK = 64 };

typedef struct tsri_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* so far */
    unsigned char block[TSRI_SHA256_BLOCK];
} tsri_sha256;

void tsri_sha256_init(tsri_sha256 *h);
void tsri_sha256_add(tsri_sha256 *h, const void *data, size_t bytes);
void tsri_sha256_finish(tsri_sha256 *h, unsigned char out[static TSRI_SHA256_BYTES]);

/* The code of several pieces, one behind the other. */
typedef struct tsri_hmac {
    tsri_sha256 inner, outer;
} tsri_hmac;

void tsri_hmac_init(tsri_hmac *h, const void *key, size_t bytes);
void tsri_hmac_add(tsri_hmac *h, const void *data, size_t bytes);
void tsri_hmac_finish(tsri_hmac *h, unsigned char out[static TSRI_SHA256_BYTES]);
/* Compares two codes in a time that does not depend on where they differ. */
bool tsri_hmac_is_same(const unsigned char a[static TSRI_SHA256_BYTES],
                       const unsigned char b[static TSRI_SHA256_BYTES]);

#endif
