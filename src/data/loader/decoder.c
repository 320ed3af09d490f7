/* SPDX-License-Identifier: Apache-2.0 */
#include "src/data/loader/decoder.h"

#include "src/core/rng.h"

/* Mean and standard deviation of the training sets' pixels, as training recipes give them. */
static const struct {
    float mean[TSRI_MAX_CHANNELS], std[TSRI_MAX_CHANNELS];
} cifar10_stats = {{0.4914F, 0.4822F, 0.4465F}, {0.2023F, 0.1994F, 0.2010F}},
  mnist_stats = {{0.1307F}, {0.3081F}};

static void fill_values(tsri_decoder *d, bool normalize)
{
    bool is_grey = d->ds->channels == 1;
    for (int c = 0; c < d->ds->channels; c++) {
        float mean = is_grey ? mnist_stats.mean[c] : cifar10_stats.mean[c];
        float std = is_grey ? mnist_stats.std[c] : cifar10_stats.std[c];
        for (int pixel = 0; pixel < 256; pixel++) {
            float v = (float)pixel / 255.0F;
            d->values[c][pixel] = normalize ? (v - mean) / std : v;
        }
    }
}

tsr_status tsri_decoder_init(tsri_decoder *d, tsri_mem *mem, const tsr_dataset *ds,
                             const tsr_loader_opts *opts)
{
    *d = (tsri_decoder){
        .ds = ds,
        .augment = opts->augment,
        .dtype = opts->dtype,
        .key_shuffle = tsri_rng_key(opts->seed, "shuffle"),
        .key_crop = tsri_rng_key(opts->seed, "crop"),
        .key_flip = tsri_rng_key(opts->seed, "flip"),
    };
    fill_values(d, opts->normalize);
    if (opts->shuffle) {
        d->order = tsri_mem_alloc(mem, (size_t)ds->count * sizeof *d->order);
        TSRI_NEED(d->order);
    }
    tsri_decoder_set_epoch(d, 0);
    return TSR_OK;
}

void tsri_decoder_finish(tsri_decoder *d)
{
    tsri_mem_free(d->order);
    d->order = NULL;
}

/* A number in 0..n-1 from 64 random bits: the high part of bits * n, whose bias is n / 2^64. */
static uint32_t below(uint64_t bits, uint32_t n)
{
    return (uint32_t)(((bits >> 32) * n + (((bits & 0xFFFFFFFFu) * n) >> 32)) >> 32);
}

void tsri_decoder_set_epoch(tsri_decoder *d, int64_t epoch)
{
    d->epoch = epoch;
    if (!d->order)
        return;
    /* From the identity each time, so that an epoch's order does not depend on those before it. */
    for (int64_t i = 0; i < d->ds->count; i++)
        d->order[i] = (int32_t)i;
    for (int64_t i = d->ds->count - 1; i > 0; i--) { /* Fisher-Yates */
        uint32_t w[4];
        tsri_rng_block(d->key_shuffle, (uint64_t)epoch, (uint64_t)i, w);
        uint32_t j = below((uint64_t)w[1] << 32 | w[0], (uint32_t)i + 1);
        int32_t other = d->order[j];
        d->order[j] = d->order[i];
        d->order[i] = other;
    }
}

int64_t tsri_decoder_index(const tsri_decoder *d, int64_t position)
{
    return d->order ? d->order[position] : position;
}

/* Where output pixels come from: source row = row + dy, source column = column + dx, or, flipped,
 * (width - 1 - column) + dx. Outside the image it is black. */
typedef struct view {
    int64_t dy, dx;
    bool flip;
} view;

static view draw_view(const tsri_decoder *d, int64_t sample)
{
    if (!d->augment)
        return (view){0};
    uint32_t crop[4], flip[4];
    tsri_rng_block(d->key_crop, (uint64_t)d->epoch, (uint64_t)sample, crop);
    tsri_rng_block(d->key_flip, (uint64_t)d->epoch, (uint64_t)sample, flip);
    const uint32_t offsets = 2 * TSRI_CROP_PAD + 1;
    return (view){
        .dy = (int64_t)below((uint64_t)crop[1] << 32 | crop[0], offsets) - TSRI_CROP_PAD,
        .dx = (int64_t)below((uint64_t)crop[3] << 32 | crop[2], offsets) - TSRI_CROP_PAD,
        .flip = flip[0] >> 31,
    };
}

/* Specialised by the compiler for each dtype. */
static inline __attribute__((always_inline)) void
decode(const tsri_decoder *d, const uint8_t *image, view v, bool is_f64, void *x)
{
    const int64_t height = d->ds->height, width = d->ds->width;
    float *f32 = x;
    double *f64 = x;
    int64_t at = 0;
    for (int64_t c = 0; c < d->ds->channels; c++) {
        const float *values = d->values[c];
        for (int64_t row = 0; row < height; row++) {
            int64_t y = row + v.dy;
            const uint8_t *line = y >= 0 && y < height ? image + (c * height + y) * width : NULL;
            for (int64_t column = 0; column < width; column++, at++) {
                int64_t from = (v.flip ? width - 1 - column : column) + v.dx;
                float value = values[line && from >= 0 && from < width ? line[from] : 0];
                if (is_f64)
                    f64[at] = value;
                else
                    f32[at] = value;
            }
        }
    }
}

void tsri_decoder_decode(const tsri_decoder *d, int64_t position, void *x, int64_t *y)
{
    int64_t sample = tsri_decoder_index(d, position);
    const uint8_t *image = d->ds->images + sample * d->ds->channels * d->ds->height * d->ds->width;
    view v = draw_view(d, sample);
    if (d->dtype == TSR_F64)
        decode(d, image, v, true, x);
    else
        decode(d, image, v, false, x);
    *y = d->ds->labels[sample];
}
