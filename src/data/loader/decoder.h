/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sample stands at a position of an epoch, and what its pixels become. A function of (seed,
 * epoch, sample) alone: the order by the key "shuffle", the crop's offset by "crop", the flip by
 * "flip" (src/core/rng.h).
 */
#ifndef TESSERA_DATA_LOADER_DECODER_H
#define TESSERA_DATA_LOADER_DECODER_H

#include <tessera/loader.h>
#include "src/data/dataset.h"

enum {
    TSRI_CROP_PAD = 4,
    TSRI_MAX_CHANNELS = 3,
};

typedef struct tsri_decoder {
    const tsr_dataset *ds;
    bool augment;
    tsr_dtype dtype;
    uint64_t key_shuffle, key_crop, key_flip;
    int64_t epoch;
    int32_t *order;                       /* (count); NULL: as stored */
    float values[TSRI_MAX_CHANNELS][256]; /* what each pixel value becomes, per channel */
} tsri_decoder;

/* `opts` has its defaults filled in. Stands at epoch 0. */
tsr_status tsri_decoder_init(tsri_decoder *d, tsri_mem *mem, const tsr_dataset *ds,
                             const tsr_loader_opts *opts);
void tsri_decoder_finish(tsri_decoder *d);

/* Not while another thread decodes. */
void tsri_decoder_set_epoch(tsri_decoder *d, int64_t epoch);
/* The sample at a position of the epoch. */
int64_t tsri_decoder_index(const tsri_decoder *d, int64_t position);
/* Writes its pixels as (channels, height, width) of the dtype, and its label. Thread-safe. */
void tsri_decoder_decode(const tsri_decoder *d, int64_t position, void *x, int64_t *y);

#endif
