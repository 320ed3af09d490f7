/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a data set: labelled images of one size, in memory. */
#ifndef TESSERA_DATA_DATASET_H
#define TESSERA_DATA_DATASET_H

#include <tessera/data.h>

#include "src/core/world.h"

/* Sample numbers are kept in 32 bits. */
#define TSRI_DATASET_MAX_COUNT INT32_MAX

struct tsr_dataset {
    tsri_owned owned;
    int refs; /* the user's (or the world's), and one of each loader */
    int64_t count, channels, height, width, classes;
    uint8_t *images; /* (count, channels, height, width) */
    uint8_t *labels; /* (count), < classes */
};

/* An empty data set, not yet owned by the world. Free with tsr_dataset_destroy. */
tsr_status tsri_dataset_create(tsr_world *world, tsr_dataset **out_dataset);
/* Gives a finished data set to its world. */
void tsri_dataset_own(tsr_world *world, tsr_dataset *dataset);
void tsri_dataset_ref(tsr_dataset *dataset);
void tsri_dataset_unref(tsr_dataset *dataset);

/* tsr_synthetic_open of images number `first` and on, of the same patterns. */
tsr_status tsri_synthetic_open(tsr_world *world, const int64_t sizes[3], int64_t classes,
                               int64_t first, int64_t count, uint64_t seed,
                               tsr_dataset **out_dataset);

/* The version of the library that unpacks files. */
const char *tsri_zlib_version(void);

#endif
