/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a data loader: epochs over a batch sampler, handed to a crew. */
#ifndef TESSERA_DATA_LOADER_DATA_LOADER_H
#define TESSERA_DATA_LOADER_DATA_LOADER_H

#include "src/data/sampler/batch_sampler.h"
#include "src/data/loader/crew.h"

struct tsr_data_loader {
    tsri_owned owned;
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
    tsr_data_loader_state start; /* of this epoch */
    tsr_batch batch;             /* the caller's */
};

/* Checks the options and fills in their defaults. */
tsr_status tsri_data_loader_opts(const tsr_map_dataset *dataset, const tsr_data_loader_opts *opts,
                                 tsri_batch_spec *out_spec);
/* Drops what is in work, and leaves the epoch. */
void tsri_data_loader_leave(tsr_data_loader *l);

#endif
