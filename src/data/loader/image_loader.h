/* SPDX-License-Identifier: Apache-2.0 */
/* A loader of images: which rows of the next global batch are a rank's, and getting them. */
#ifndef TESSERA_DATA_LOADER_IMAGE_LOADER_H
#define TESSERA_DATA_LOADER_IMAGE_LOADER_H

#include "src/data/loader/decoder.h"
#include "src/data/loader/feed.h"
#include "src/data/loader/loader.h"
#include "src/data/loader/ring.h"

typedef struct tsri_image_loader {
    tsr_loader base;
    tsr_world *world;
    tsr_dataset *ds;
    tsr_loader_opts opts; /* defaults filled in; workers and prefetch 0: no threads */
    tsri_decoder decoder;
    int64_t batches;     /* of an epoch */
    int64_t batch;       /* the next one */
    tsri_rank_rows rows; /* what the ring decodes */
    tsri_ring *ring;     /* NULL before the first fill, and without threads */
    bool is_taken;       /* the ring's next slot is lent out by tsri_image_take */
    /* Host memory, grown when more is due, laid out as a slot of the ring's is. */
    char *held; /* what tsri_image_take decoded without threads; NULL so far */
    size_t held_bytes;
    int64_t *labels; /* of a whole batch; NULL so far */
    char *given;     /* the caller's batch: images, labels, indices; NULL so far */
} tsri_image_loader;

/* Its rows of a batch where each rank has its own (.local), else all. */
tsri_rank_rows tsri_image_own_rows(const tsri_image_loader *l);
/* Rows of the next batch, of all ranks; 0 at the end of the epoch. */
int64_t tsri_image_rows(const tsri_image_loader *l);
/* Goes to the start of an epoch. */
void tsri_image_go_to_epoch(tsri_image_loader *l, int64_t epoch);
/* The next batch, in memory of the loader's that is for these alone. */
tsr_status tsri_image_next(tsr_loader *loader, tsr_batch *out_batch);
/* image_feed.c */
tsr_status tsri_image_feed(tsr_loader *loader, tsr_plan *plan);

/*
 * Writes this rank's rows of the next global batch and moves on: x (local_rows, channels, height,
 * width) of the loader's dtype, y (local_rows). x and y have room for capacity_rows. *out_global is
 * the whole batch's rows, *out_local (which may be 0) this rank's. TSR_END at the end of an epoch,
 * after which the loader stands at the start of the next one. Errors leave it where it is:
 * TSR_ERR_INVALID, TSR_ERR_SHAPE if there is no room, TSR_ERR_NO_MEMORY and TSR_ERR_BACKEND from
 * starting threads. Changing `rows` from call to call is legal, and costs what was decoded ahead.
 */
tsr_status tsri_image_fill_rows(tsri_image_loader *l, const tsri_rank_rows *rows,
                                int64_t capacity_rows, void *x, int64_t *y, int64_t *out_global,
                                int64_t *out_local);

/*
 * Gives the rows of the next global batch in host memory of the loader's own, without moving on:
 * until tsri_image_advance, another call gives them again. There is a next batch
 * (tsri_image_rows). Errors: as above, but for room.
 */
tsr_status tsri_image_take(tsri_image_loader *l, const tsri_rank_rows *rows, const void **out_x,
                           const int64_t **out_y);
/* The labels of all rows of the next batch, likewise; no image is decoded. TSR_ERR_NO_MEMORY. */
tsr_status tsri_image_labels(tsri_image_loader *l, const int64_t **out_y);
/* Past the next batch, of which there is one. Where nobody has taken or filled it, images that were
 * decoded ahead are dropped. */
void tsri_image_advance(tsri_image_loader *l);

#endif
