/* SPDX-License-Identifier: Apache-2.0 */
/* A drawn set in memory, of any size: a pattern of random pixels for each class, under noise. */
#include <inttypes.h>

#include "src/core/live.h"
#include "src/core/rng.h"
#include "src/data/dataset.h"
#include "src/data/loader/decoder.h"
#include "src/data/sets/synthetic.h"

tsri_synthetic_keys tsri_synthetic_keys_of(uint64_t seed)
{
    return (tsri_synthetic_keys){.labels = tsri_rng_key(seed, "synthetic set: labels"),
                                 .patterns = tsri_rng_key(seed, "synthetic set: patterns"),
                                 .noise = tsri_rng_key(seed, "synthetic set: noise")};
}

int64_t tsri_synthetic_label(const tsri_synthetic_keys *keys, int64_t row, int64_t classes)
{
    return (int64_t)(tsri_rng_word(keys->labels, 0, (uint64_t)row) % (uint64_t)classes);
}

void tsri_synthetic_bytes(uint64_t key, uint64_t row, int64_t first, int64_t n, uint8_t *out)
{
    for (int64_t i = 0; i < n; i += 16) { /* 16 for each index */
        uint32_t word[4];
        tsri_rng_block(key, row, (uint64_t)(first + i) / 16, word);
        for (int64_t j = 0; j < 16 && i + j < n; j++)
            out[i + j] = (uint8_t)(word[j / 4] >> (j % 4 * 8));
    }
}

static void draw(tsr_dataset *ds, const tsri_synthetic_keys *keys, int64_t first,
                 const uint8_t *patterns)
{
    int64_t pixels = ds->channels * ds->height * ds->width;
    for (int64_t i = 0; i < ds->count; i++) {
        ds->labels[i] = (uint8_t)tsri_synthetic_label(keys, first + i, ds->classes);
        const uint8_t *pattern = patterns + ds->labels[i] * pixels;
        uint8_t *image = ds->images + i * pixels;
        tsri_synthetic_bytes(keys->noise, (uint64_t)(first + i), 0, pixels, image);
        for (int64_t j = 0; j < pixels; j++)
            image[j] = (uint8_t)((image[j] + pattern[j]) / 2);
    }
}

static tsr_status check(const int64_t sizes[3], int64_t classes, int64_t count)
{
    double pixels = (double)sizes[0] * (double)sizes[1] * (double)sizes[2];
    bool ok = sizes[0] >= 1 && sizes[0] <= TSRI_MAX_CHANNELS && sizes[1] >= 1 && sizes[2] >= 1;
    if (ok && classes >= 1 && classes <= 256 && count >= 1 && count <= TSRI_DATASET_MAX_COUNT &&
        pixels * (double)(count + classes) < 0x1p46)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID,
                     "tsr_synthetic_open: %" PRId64 " images of %" PRId64 " x %" PRId64
                     " x %" PRId64 ", %" PRId64 " classes; legal are 1 to %d channels, 1 to 256 "
                     "classes and less than 2^46 pixels in all",
                     count, sizes[0], sizes[1], sizes[2], classes, TSRI_MAX_CHANNELS);
}

tsr_status tsri_synthetic_open(tsr_world *world, const int64_t sizes[3], int64_t classes,
                               int64_t first, int64_t count, uint64_t seed,
                               tsr_dataset **out_dataset)
{
    tsr_dataset *ds;
    TSRI_TRY(check(sizes, classes, count));
    TSRI_TRY(tsri_dataset_create(world, &ds));
    ds->count = count;
    ds->channels = sizes[0];
    ds->height = sizes[1];
    ds->width = sizes[2];
    ds->classes = classes;
    int64_t pixels = sizes[0] * sizes[1] * sizes[2];
    uint8_t *patterns = tsri_mem_alloc(&world->mem, (size_t)(classes * pixels));
    ds->images = patterns ? tsri_mem_alloc(&world->mem, (size_t)(count * pixels)) : NULL;
    ds->labels = ds->images ? tsri_mem_alloc(&world->mem, (size_t)count) : NULL;
    if (!ds->labels) {
        tsri_mem_free(patterns);
        tsri_dataset_unref(ds);
        return TSR_ERR_NO_MEMORY;
    }
    const tsri_synthetic_keys keys = tsri_synthetic_keys_of(seed);
    for (int64_t c = 0; c < classes; c++)
        tsri_synthetic_bytes(keys.patterns, (uint64_t)c, 0, pixels, patterns + c * pixels);
    draw(ds, &keys, first, patterns);
    tsri_mem_free(patterns);
    tsri_dataset_own(world, ds);
    *out_dataset = ds;
    return TSR_OK;
}

tsr_status tsr_synthetic_open(tsr_world *world, int64_t channels, int64_t height, int64_t width,
                              int64_t classes, int64_t count, uint64_t seed,
                              tsr_dataset **out_dataset)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    const int64_t sizes[3] = {channels, height, width};
    if (!world || !out_dataset)
        return tsri_fail(TSR_ERR_INVALID, "tsr_synthetic_open: the %s is NULL",
                         world ? "result's place" : "world");
    return tsri_synthetic_open(world, sizes, classes, 0, count, seed, out_dataset);
}
