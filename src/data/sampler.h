/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sample stands at a position of an epoch, and what its pixels become. A function of (seed,
 * epoch, sample) alone: the order by the key "shuffle", the crop's offset by "crop", the flip by
 * "flip" (src/core/rng.h).
 */
#ifndef TESSERA_DATA_SAMPLER_H
#define TESSERA_DATA_SAMPLER_H

#include "src/data/dataset.h"

enum {
    TSRI_CROP_PAD = 4,
    TSRI_MAX_CHANNELS = 3,
};

typedef struct tsri_sampler {
    const tsr_dataset *ds;
    bool augment;
    tsr_dtype dtype;
    uint64_t key_shuffle, key_crop, key_flip;
    int64_t epoch;
    int32_t *order;                       /* (count); NULL: as stored */
    float values[TSRI_MAX_CHANNELS][256]; /* what each pixel value becomes, per channel */
} tsri_sampler;

/* `opts` has its defaults filled in. Stands at epoch 0. */
tsr_status tsri_sampler_init(tsri_sampler *s, tsri_mem *mem, const tsr_dataset *ds,
                             const tsr_loader_opts *opts);
void tsri_sampler_finish(tsri_sampler *s);

/* Not while another thread decodes. */
void tsri_sampler_set_epoch(tsri_sampler *s, int64_t epoch);
/* The sample at a position of the epoch. */
int64_t tsri_sampler_index(const tsri_sampler *s, int64_t position);
/* Writes its pixels as (channels, height, width) of the dtype, and its label. Thread-safe. */
void tsri_sampler_decode(const tsri_sampler *s, int64_t position, void *x, int64_t *y);

#endif
