/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a loader: which rows of the next global batch are a rank's, and getting them. */
#ifndef TESSERA_DATA_LOADER_LOADER_H
#define TESSERA_DATA_LOADER_LOADER_H

#include "src/data/loader/ring.h"
#include "src/data/loader/decoder.h"

/* A rank's rows of a batch: its part of a balanced split, dimension by dimension, each one
 * splitting the piece that the one before it gave. ndim 0: all rows. */
typedef struct tsri_rank_rows {
    int ndim;
    int parts[TSR_MAX_HIERARCHY], part[TSR_MAX_HIERARCHY];
} tsri_rank_rows;

struct tsr_loader {
    tsri_owned owned;
    tsr_world *world;
    tsr_dataset *ds;
    tsr_loader_opts opts; /* defaults filled in; workers and prefetch 0: no threads */
    tsri_decoder decoder;
    int64_t batches;     /* of an epoch */
    int64_t batch;       /* the next one */
    tsri_rank_rows rows; /* what the ring decodes */
    tsri_ring *ring;     /* NULL before the first fill, and without threads */
    bool is_taken;       /* the ring's next slot is lent out by tsri_loader_take */
    /* Host memory, grown when more is due, laid out as a slot of the ring's is. */
    char *held; /* what tsri_loader_take decoded without threads; NULL so far */
    size_t held_bytes;
    int64_t *labels; /* of a whole batch; NULL so far */
};

/*
 * Writes this rank's rows of the next global batch and moves on: x (local_rows, channels, height,
 * width) of the loader's dtype, y (local_rows). x and y have room for capacity_rows. *out_global is
 * the whole batch's rows, *out_local (which may be 0) this rank's. TSR_END at the end of an epoch,
 * after which the loader stands at the start of the next one. Errors leave it where it is:
 * TSR_ERR_INVALID, TSR_ERR_SHAPE if there is no room, TSR_ERR_NO_MEMORY and TSR_ERR_BACKEND from
 * starting threads. Changing `rows` from call to call is legal, and costs what was decoded ahead.
 */
tsr_status tsri_loader_fill_rows(tsr_loader *l, const tsri_rank_rows *rows, int64_t capacity_rows,
                                 void *x, int64_t *y, int64_t *out_global, int64_t *out_local);

/*
 * Gives the rows of the next global batch in host memory of the loader's own, without moving on:
 * until tsri_loader_advance, another call gives them again. There is a next batch
 * (tsr_loader_peek_rows). Errors: as above, but for room.
 */
tsr_status tsri_loader_take(tsr_loader *l, const tsri_rank_rows *rows, const void **out_x,
                            const int64_t **out_y);
/* The labels of all rows of the next batch, likewise; no image is decoded. TSR_ERR_NO_MEMORY. */
tsr_status tsri_loader_labels(tsr_loader *l, const int64_t **out_y);
/* Past the next batch, of which there is one. Where nobody has taken or filled it, images that were
 * decoded ahead are dropped. */
void tsri_loader_advance(tsr_loader *l);

/* Does as tsri_loader_fill_rows does, for part `part` of `parts` of a flat split. */
tsr_status tsri_loader_fill(tsr_loader *l, int parts, int part, int64_t capacity_rows, void *x,
                            int64_t *y, int64_t *out_global, int64_t *out_local);

#endif
