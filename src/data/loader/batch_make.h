/* SPDX-License-Identifier: Apache-2.0 */
/* Making one batch of a data loader: get for every row, then collate, into a slot's memory. */
#ifndef TESSERA_DATA_LOADER_BATCH_MAKE_H
#define TESSERA_DATA_LOADER_BATCH_MAKE_H

#include <stdatomic.h>

#include <tessera/loader.h>
#include "src/core/mem.h"

/* The user's settings. */
typedef struct tsri_batch_spec {
    tsr_map_dataset ds;
    int64_t len;
    tsr_map_loader_opts o; /* defaults filled in; nfields is 1 for sample_bytes */
} tsri_batch_spec;

/* Memory as the loader's options ask for. */
typedef struct tsri_host_buffer {
    void *block;
    size_t block_bytes;
    char *at; /* in the block, aligned */
    size_t bytes, capacity;
} tsri_host_buffer;

typedef struct tsri_batch_slot {
    int64_t number;
    int64_t rows, *indices, capacity;
    tsri_host_buffer arrays[TSR_BATCH_MAX_FIELDS];
    bool given[TSR_BATCH_MAX_FIELDS];
    tsr_status status; /* an error when handed over: there is nothing to make */
    char text[1024];   /* of the error */
    atomic_llong row;  /* in work; rows: in collate */
    atomic_llong since_ns;
    bool is_done; /* the crew's */
} tsri_batch_slot;

/* The maker of a batch: one thread. */
typedef struct tsri_maker {
    tsr_worker worker; /* first: functions of the user's get this */
    const tsri_batch_spec *spec;
    const atomic_bool *stop;
    tsri_mem *mem; /* NULL on a thread of ours */
    bool is_up;    /* worker_init was called */
    tsr_status init_status;
    char init_text[512];
    tsri_host_buffer samples[TSR_BATCH_MAX_FIELDS]; /* what collate reads */
} tsri_maker;

/* Calls worker_init. Its status surfaces with every batch. */
void tsri_maker_start(tsri_maker *m);
/* Calls worker_exit, if the other went well; frees what the maker holds. */
void tsri_maker_finish(tsri_maker *m);
/* Makes the batch that slot->rows and indices say; slot->status and text tell how it went. */
void tsri_batch_make(tsri_maker *m, tsri_batch_slot *slot);
/* Copies the thread's error text, or the status's where there is none, behind a prefix. */
void tsri_slot_fail(tsri_batch_slot *slot, tsr_status status, const char *prefix);
/* Room for the indices. */
tsr_status tsri_slot_reserve(tsri_batch_slot *slot, tsri_mem *mem, int64_t rows);
void tsri_slot_finish(const tsri_batch_spec *spec, tsri_batch_slot *slot);

#endif
