/* SPDX-License-Identifier: Apache-2.0 */
/* A data set for tests of data loaders: samples of two fields that follow from the index, which
 * fail, block or are counted as a test wants. */
#ifndef TESSERA_TESTS_UNIT_LOADER_SET_H
#define TESSERA_TESTS_UNIT_LOADER_SET_H

#include <stdatomic.h>
#include <time.h>

#include <tessera/loader.h>

typedef struct loader_set {
    int64_t n;
    int64_t fail_every;    /* samples whose index is fail_every-1 modulo it fail; 0: none */
    bool fail_silently;    /* without a text */
    atomic_llong block_at; /* the sample whose get waits while this is its index; -1: none */
    atomic_llong got, released, inits, exits;
    atomic_bool was_stopped; /* a blocked get was told to stop */
} loader_set;

/* A sample: its value, and who made it. */
typedef struct loader_sample {
    int64_t value;
    int32_t id, count;
    int64_t epoch;
    uint64_t seed;
} loader_sample;

static inline int64_t loader_value(int64_t index)
{
    return index * 1000003 + 17;
}

static inline int64_t loader_set_len(void *arg)
{
    return ((loader_set *)arg)->n;
}

static inline void loader_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Fields: a loader_sample, and 3 bytes of the index. */
static inline tsr_status loader_set_get(void *arg, int64_t index, void *const *out_fields,
                                        const tsr_worker *worker)
{
    loader_set *set = arg;
    while (atomic_load(&set->block_at) == index) {
        if (tsr_worker_is_stopping(worker)) {
            atomic_store(&set->was_stopped, true);
            break;
        }
        loader_nap();
    }
    if (set->fail_every && index % set->fail_every == set->fail_every - 1)
        return set->fail_silently ? TSR_ERR_IO
                                  : tsr_set_error(TSR_ERR_FORMAT, "bad pixel at %d", (int)index);
    atomic_fetch_add(&set->got, 1);
    *(loader_sample *)out_fields[0] = (loader_sample){.value = loader_value(index),
                                                      .id = worker->id,
                                                      .count = worker->count,
                                                      .epoch = worker->epoch,
                                                      .seed = worker->seed};
    for (int i = 0; i < 3; i++)
        ((unsigned char *)out_fields[1])[i] = (unsigned char)(index >> 8 * i);
    return TSR_OK;
}

#define LOADER_SET(set) TSR_MAP_DATASET(.len = loader_set_len, .get = loader_set_get, .arg = (set))
#define LOADER_FIELDS .nfields = 2, .field_bytes = {sizeof(loader_sample), 3}

/* Whether a batch holds what its indices say. */
static inline bool loader_batch_is_right(const tsr_batch *b)
{
    bool right = b->nfields == 2 && b->bytes[0] == (size_t)b->rows * sizeof(loader_sample) &&
                 b->bytes[1] == (size_t)b->rows * 3 && (uintptr_t)b->data[0] % 64 == 0 &&
                 (uintptr_t)b->data[1] % 64 == 0;
    for (int64_t i = 0; right && i < b->rows; i++) {
        const loader_sample *s = (const loader_sample *)b->data[0] + i;
        const unsigned char *byte = (const unsigned char *)b->data[1] + 3 * i;
        int64_t index = byte[0] | byte[1] << 8 | byte[2] << 16;
        right = s->value == loader_value(b->indices[i]) && index == b->indices[i] &&
                s->epoch == b->epoch;
    }
    return right;
}

#endif
