/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data sets of labelled images, and loaders that cut them into batches.
 *
 * What a loader yields is a function of its options, the epoch and the samples alone: it does not
 * depend on the ranks, the signatures of a plan's inputs, or the number of worker threads.
 */
#ifndef TESSERA_DATA_H
#define TESSERA_DATA_H

#include <tessera/world.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- data sets -------------------------------------------------------------------------------- */
/* Images and labels in memory, read only. Belongs to its world. */
typedef struct tsr_dataset tsr_dataset;

/*
 * CIFAR-10 in the official binary format: data_batch_1.bin .. data_batch_5.bin (train) or
 * test_batch.bin, each of any whole number of 3073-byte records, in `dir` or in its subfolder
 * cifar-10-batches-bin. Not collective. Errors, which name the file and the byte: TSR_ERR_IO (a
 * file is missing or can't be read, or changes while it is read), TSR_ERR_FORMAT (an incomplete
 * record, a label above 9, no records at all), TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_cifar10_open(tsr_world *world, const char *dir, bool train,
                                    tsr_dataset **out_dataset);
/*
 * MNIST, or a set that has its form (Fashion-MNIST): {train,t10k}-images-idx3-ubyte and
 * -labels-idx1-ubyte in `dir`, as they are or, where those are missing, with .gz. Not collective.
 * Errors as above; bytes are counted in the uncompressed data. TSR_ERR_FORMAT also for a wrong
 * magic number, data that is too short or too long, different counts of images and labels, and a
 * compressed file that would unpack to more than 64 times its size, if that is more than 64 MiB.
 */
TSR_API tsr_status tsr_mnist_open(tsr_world *world, const char *dir, bool train,
                                  tsr_dataset **out_dataset);
/* Frees a data set; loaders that read it keep it until they go. NULL is fine. */
TSR_API void tsr_dataset_destroy(tsr_dataset *dataset);

/* Number of images. */
TSR_API int64_t tsr_dataset_count(const tsr_dataset *dataset);
TSR_API int64_t tsr_dataset_channels(const tsr_dataset *dataset);
TSR_API int64_t tsr_dataset_height(const tsr_dataset *dataset);
TSR_API int64_t tsr_dataset_width(const tsr_dataset *dataset);
/* Labels are 0 .. classes-1. */
TSR_API int64_t tsr_dataset_classes(const tsr_dataset *dataset);
/* (count, channels, height, width), row-major. */
TSR_API const uint8_t *tsr_dataset_images(const tsr_dataset *dataset);
/* (count). */
TSR_API const uint8_t *tsr_dataset_labels(const tsr_dataset *dataset);

/*
 * Writes a synthetic set in CIFAR-10's binary format into `dir` (made if it is missing): five
 * training files and a test file of `records_per_file` each, and batches.meta.txt with the names
 * of the classes: ten kinds of drawn shapes and textures of random colours, places, sizes, turns
 * and noise. Equal arguments give equal sets. Not collective: let one rank call it.
 * Errors: TSR_ERR_INVALID, TSR_ERR_IO, and TSR_ERR_STATE where `dir` holds another set already.
 */
TSR_API tsr_status tsr_synthetic_write_cifar10(const char *dir, int64_t records_per_file,
                                               uint64_t seed);

/*
 * A drawn set in memory, for trying programs out: `count` images of 1 to 3 channels with labels
 * below `classes` (at most 256). A class is a pattern of random pixels, and each image that of its
 * class under noise. Equal arguments give equal sets. Not collective. Errors: TSR_ERR_INVALID,
 * TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_synthetic_open(tsr_world *world, int64_t channels, int64_t height,
                                      int64_t width, int64_t classes, int64_t count, uint64_t seed,
                                      tsr_dataset **out_dataset);

/* --- loaders ---------------------------------------------------------------------------------- */
/* Yields the batches of an epoch, then says TSR_END. Belongs to its world. */
typedef struct tsr_loader tsr_loader;
typedef struct tsr_plan tsr_plan;

typedef struct tsr_loader_opts {
    size_t size;
    int64_t batch_size TSR_IS(64); /* rows of the global batch; default 64 */
    bool shuffle;                  /* a new order of the whole set every epoch */
    bool augment;                  /* random crop (4 black pixels around) and horizontal flip */
    bool normalize;  /* (v - mean) / std per channel, with CIFAR-10's or MNIST's usual figures */
    bool drop_last;  /* leave out a last batch that isn't full */
    uint64_t seed;   /* of the order, the crops and the flips */
    tsr_dtype dtype; /* of the images: TSR_F32 (default) or TSR_F64 */
    int workers TSR_IS(1);  /* threads that decode; default 1; 0: the calling thread does it */
    int prefetch TSR_IS(2); /* batches decoded ahead, which is also the most workers of use; default
                             * 2; 0: as workers 0 */
} tsr_loader_opts;
#define TSR_LOADER_OPTS(...)                                   \
    (&(const tsr_loader_opts){.size = sizeof(tsr_loader_opts), \
                              .batch_size = 64,                \
                              .workers = 1,                    \
                              .prefetch = 2,                   \
                              __VA_ARGS__})

/*
 * A loader at the start of epoch 0. Pixels become pixel / 255, in f32, then cast to the dtype. opts
 * may be NULL. Not collective, but all ranks must make the same. Errors: TSR_ERR_INVALID,
 * TSR_ERR_DTYPE, TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_loader_create(tsr_world *world, tsr_dataset *dataset,
                                     const tsr_loader_opts *opts, tsr_loader **out_loader);
/* NULL is fine. */
TSR_API void tsr_loader_destroy(tsr_loader *loader);

/*
 * Feeds the next batch to a plan's inputs "x" (rows, channels, height, width) of the loader's dtype
 * and "y" (rows) of i64: each rank decodes and feeds its own rows only, and no image where it holds
 * no part of x. At the end of an epoch TSR_END, once; the loader then stands at the start of the
 * next epoch. Not collective.
 * Errors: TSR_ERR_SHAPE or TSR_ERR_DTYPE where the inputs don't fit the batch (a smaller last
 * batch: see tsr_loader_peek_rows), and tsr_feed's. The loader then stays where it is.
 */
TSR_API tsr_status tsr_loader_next(tsr_loader *loader, tsr_plan *plan);

/* Goes to the start of an epoch (from 0). TSR_ERR_INVALID if it is negative. */
TSR_API tsr_status tsr_loader_set_epoch(tsr_loader *loader, int64_t epoch);
/* The epoch that the next batch is of (at the end of one: still that one, until TSR_END). */
TSR_API int64_t tsr_loader_epoch(const tsr_loader *loader);
/* Batches of this epoch that have been given. */
TSR_API int64_t tsr_loader_position(const tsr_loader *loader);
/* Goes there within this epoch: the next batch is the one that would have come.
 * TSR_ERR_INVALID outside 0 .. tsr_loader_batches. */
TSR_API tsr_status tsr_loader_set_position(tsr_loader *loader, int64_t position);
/* Batches of an epoch. */
TSR_API int64_t tsr_loader_batches(const tsr_loader *loader);
/* Global rows of the next batch; 0 at the end of the epoch. */
TSR_API int64_t tsr_loader_peek_rows(const tsr_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
