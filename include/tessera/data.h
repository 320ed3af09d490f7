/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets of labelled images. Loaders (loader.h) cut them into batches. */
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
 * Opens CIFAR-10 in the official binary format: data_batch_1.bin .. data_batch_5.bin (train) or
 * test_batch.bin, each of any whole number of 3073-byte records, in `dir` or in its subfolder
 * cifar-10-batches-bin. Not collective. Errors, which name the file and the byte: TSR_ERR_IO (a
 * file is missing or can't be read, or changes while it is read), TSR_ERR_FORMAT (an incomplete
 * record, a label above 9, no records at all), TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_cifar10_open(tsr_world *world, const char *dir, bool train,
                                    tsr_dataset **out_dataset);
/*
 * Opens MNIST, or a set that has its form (Fashion-MNIST): {train,t10k}-images-idx3-ubyte and
 * -labels-idx1-ubyte in `dir`, as they are or, where those are missing, with .gz. Not collective.
 * Errors as above; bytes are counted in the uncompressed data. TSR_ERR_FORMAT also for a wrong
 * magic number, data that is too short or too long, different counts of images and labels, and a
 * compressed file that would unpack to more than 64 times its size, if that is more than 64 MiB.
 */
TSR_API tsr_status tsr_mnist_open(tsr_world *world, const char *dir, bool train,
                                  tsr_dataset **out_dataset);
/* Frees a data set; loaders that read it keep it until they go. NULL is fine. */
TSR_API void tsr_dataset_destroy(tsr_dataset *dataset);

/* Returns the number of images. */
TSR_API int64_t tsr_dataset_count(const tsr_dataset *dataset);
/* Returns the channels of each image. */
TSR_API int64_t tsr_dataset_channels(const tsr_dataset *dataset);
/* Returns the height of each image, in pixels. */
TSR_API int64_t tsr_dataset_height(const tsr_dataset *dataset);
/* Returns the width of each image, in pixels. */
TSR_API int64_t tsr_dataset_width(const tsr_dataset *dataset);
/* Returns the number of classes. Labels are 0 .. classes-1. */
TSR_API int64_t tsr_dataset_classes(const tsr_dataset *dataset);
/* Returns the pixels: (count, channels, height, width), row-major. */
TSR_API const uint8_t *tsr_dataset_images(const tsr_dataset *dataset);
/* Returns the labels: (count). */
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
 * Makes a drawn set in memory, for trying programs out: `count` images of 1 to 3 channels with
 * labels below `classes` (at most 256). A class is a pattern of random pixels, and each image that
 * of its class under noise. Equal arguments give equal sets. Not collective. Errors:
 * TSR_ERR_INVALID, TSR_ERR_NO_MEMORY.
 */
TSR_API tsr_status tsr_synthetic_open(tsr_world *world, int64_t channels, int64_t height,
                                      int64_t width, int64_t classes, int64_t count, uint64_t seed,
                                      tsr_dataset **out_dataset);

#ifdef __cplusplus
}
#endif
#endif
