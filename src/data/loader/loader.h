/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loader of either kind, as the calls of loader.h see it.
 *
 *   loader.c        the calls
 *   image_loader.c  of images, in image_rows.c rows of the global batch, decoded by a ring's
 * threads, in image_feed.c from there to a plan's inputs map_loader.c    of functions of the
 * user's, in map_draw.c indices from samplers, handed to a crew, in map_feed.c from there to a
 * plan's inputs
 */
#ifndef TESSERA_DATA_LOADER_LOADER_H
#define TESSERA_DATA_LOADER_LOADER_H

#include <tessera/loader.h>
#include "src/core/world.h"

/* One kind of loaders; each function does what the call of its name says. Arguments are checked. */
typedef struct tsri_loader_ops {
    void (*destroy)(tsr_loader *l);
    tsr_status (*next)(tsr_loader *l, tsr_batch *out_batch);
    tsr_status (*feed)(tsr_loader *l, tsr_plan *plan);
    /* Rows that this rank gets next. TSR_END at the end of the epoch, where the loader stays. */
    tsr_status (*peek)(tsr_loader *l, int64_t *out_rows);
    tsr_status (*reset)(tsr_loader *l);
    tsr_status (*set_epoch)(tsr_loader *l, int64_t epoch);
    tsr_status (*set_position)(tsr_loader *l, int64_t position);
    int64_t (*epoch)(const tsr_loader *l);
    int64_t (*batches)(const tsr_loader *l);
    int64_t (*position)(const tsr_loader *l);
    tsr_status (*get_state)(const tsr_loader *l, tsr_loader_state *out_state); /* it is zeros */
    tsr_status (*set_state)(tsr_loader *l, const tsr_loader_state *state);
} tsri_loader_ops;

/* The beginning of both kinds. */
struct tsr_loader {
    tsri_owned owned;
    const tsri_loader_ops *ops;
    int ranks;       /* whose batches make up a global batch; 1: each rank has all of it */
    tsr_batch batch; /* the caller's */
};

/* Enters a loader that has been made; world may be NULL. */
void tsri_loader_enter(tsr_loader *l, tsr_world *world);
/* Rows that this rank gets next; TSR_END at the end of the epoch, where the loader stays. */
tsr_status tsri_loader_peek(tsr_loader *l, int64_t *out_rows);

#endif
