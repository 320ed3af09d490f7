/* SPDX-License-Identifier: Apache-2.0 */
/* Drawn images for the synthetic data set. */
#ifndef TESSERA_DATA_SETS_SYNTHETIC_H
#define TESSERA_DATA_SETS_SYNTHETIC_H

#include <stdint.h>

enum {
    TSRI_SYNTHETIC_SIDE = 32,
    TSRI_SYNTHETIC_CLASSES = 10,
};

/* "disc", "square", ...: what a class shows. */
const char *tsri_synthetic_class_name(int label);

/* The set of tsr_synthetic_open: what its labels, its classes' patterns and the noise over them are
 * drawn by. */
typedef struct tsri_synthetic_keys {
    uint64_t labels, patterns, noise;
} tsri_synthetic_keys;
tsri_synthetic_keys tsri_synthetic_keys_of(uint64_t seed);
int64_t tsri_synthetic_label(const tsri_synthetic_keys *keys, int64_t row, int64_t classes);
/* Bytes first .. first + n - 1 of a row of random ones; first is a multiple of 16. */
void tsri_synthetic_bytes(uint64_t key, uint64_t row, int64_t first, int64_t n, uint8_t *out);

/* Draws sample `sample` of a class into image (3, 32, 32). A function of its arguments alone. */
void tsri_synthetic_draw(uint64_t seed, uint64_t sample, int label, uint8_t *image);

#endif
