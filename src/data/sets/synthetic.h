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

/* Draws sample `sample` of a class into image (3, 32, 32). A function of its arguments alone. */
void tsri_synthetic_draw(uint64_t seed, uint64_t sample, int label, uint8_t *image);

#endif
