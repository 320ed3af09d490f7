/* SPDX-License-Identifier: Apache-2.0 */
/* A loader of functions of the user's: epochs over a batch sampler, handed to a crew. */
#ifndef TESSERA_DATA_LOADER_MAP_LOADER_H
#define TESSERA_DATA_LOADER_MAP_LOADER_H

#include "src/data/sampler/batch_sampler.h"
#include "src/data/loader/crew.h"
#include "src/data/loader/loader.h"

typedef struct tsri_map_loader {
    tsr_loader base;
    tsri_mem *mem; /* may be NULL */
    tsri_batch_spec spec;
    tsri_crew *crew;
    tsr_sampler *made_sampler;       /* ours, or NULL */
    tsr_batch_sampler *made_batches; /* ours, or NULL */
    tsr_batch_sampler *batches;
    tsri_rng_state own;   /* what PyTorch's default generator would be */
    tsri_rng_state *root; /* that, or the user's */

    int64_t epoch;
    bool begun, ended; /* this epoch; ended: all its batches are handed out */
    bool has_base_seed;
    uint64_t base_seed;
    tsr_status source; /* of the sampler: surfaces after what was handed out before */
    char source_text[512];
    tsr_loader_state start;             /* of this epoch */
    char *inputs[TSR_BATCH_MAX_FIELDS]; /* of a plan, by field; NULL: none */
    bool is_back;                       /* base.batch, which was taken, is the next one again */
} tsri_map_loader;

/* The loader, which begins with what all loaders have. */
static inline tsri_map_loader *tsri_map_of(tsr_loader *loader)
{
    return (tsri_map_loader *)loader;
}
static inline const tsri_map_loader *tsri_map_look(const tsr_loader *loader)
{
    return (const tsri_map_loader *)loader;
}

/* map_draw.c. The most batches that are on their way. */
int64_t tsri_map_ahead(const tsri_map_loader *l);
/* Starts the epoch that the loader stands at. */
tsr_status tsri_map_begin(tsri_map_loader *l);
tsr_status tsri_map_next(tsr_loader *loader, tsr_batch *out_batch);
tsr_status tsri_map_peek(tsr_loader *loader, int64_t *out_rows);
/* Drops what is in work, and leaves the epoch. */
void tsri_map_leave(tsri_map_loader *l);
/* Batches of this epoch that have been given. */
int64_t tsri_map_position(const tsr_loader *loader);
/* map_loader_state.c */
tsr_status tsri_map_set_epoch(tsr_loader *loader, int64_t epoch);
tsr_status tsri_map_set_position(tsr_loader *loader, int64_t position);
tsr_status tsri_map_get_state(const tsr_loader *loader, tsr_loader_state *out_state);
tsr_status tsri_map_set_state(tsr_loader *loader, const tsr_loader_state *state);
/* map_feed.c. Notes which inputs of plans take the fields. */
tsr_status tsri_map_name_inputs(tsri_map_loader *l);
tsr_status tsri_map_feed(tsr_loader *loader, tsr_plan *plan);

/* Checks the options and fills in their defaults. */
tsr_status tsri_map_opts(const tsr_map_dataset *dataset, const tsr_map_loader_opts *opts,
                         tsri_batch_spec *out_spec);

#endif
