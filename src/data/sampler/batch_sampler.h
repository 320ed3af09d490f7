/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a batch sampler. */
#ifndef TESSERA_DATA_SAMPLER_BATCH_SAMPLER_H
#define TESSERA_DATA_SAMPLER_BATCH_SAMPLER_H

#include "src/data/sampler/index_sampler.h"

struct tsr_batch_sampler {
    tsri_owned owned;
    tsr_sampler *sampler; /* NULL: the user's own functions */
    tsr_batch_sampler_calls calls;
    int64_t batch_size; /* the most rows */
    bool drop_last;
    int64_t *indices; /* (capacity), at most batch_size */
    int64_t capacity;
    tsri_mem *mem;

    bool begun, ended; /* this pass; `ended`: but nobody was told yet */
    int64_t epoch;     /* of the user's own */
    int64_t position;  /* batches given */
    int64_t given;     /* indices given */
    tsr_sampler_state start;
};

/* Stands before a pass that counts as `epoch`, whatever the sampler draws from. */
void tsri_batch_sampler_rewind(tsr_batch_sampler *b, int64_t epoch);

#endif
