/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of this process's handles of the public API that are alive, so that a call with a handle
 * that was destroyed, by itself or with its world, is an error and not a read of freed memory. A
 * handle whose address has become that of a newer object of its kind is not recognised.
 *
 * Any thread may call these functions. A check of a live object takes no lock; a child of fork may
 * call them too.
 */
#ifndef TESSERA_CORE_LIVE_H
#define TESSERA_CORE_LIVE_H

#include "src/core/mem.h"

typedef enum tsri_live_kind {
    TSRI_LIVE_WORLD = 1,
    TSRI_LIVE_PLACEMENT,
    TSRI_LIVE_GRAPH,
    TSRI_LIVE_TENSOR,
    TSRI_LIVE_PLAN,
    TSRI_LIVE_MODULE,
    TSRI_LIVE_VARIABLE,
    TSRI_LIVE_OPTIMIZER,
    TSRI_LIVE_GRAD_SCALER,
    TSRI_LIVE_DDP,
    TSRI_LIVE_GROUP,
    TSRI_LIVE_WORK,
    TSRI_LIVE_STORE,
    TSRI_LIVE_DATASET,
    TSRI_LIVE_LOADER,
    TSRI_LIVE_SAMPLER,
    TSRI_LIVE_BATCH_SAMPLER,
    TSRI_LIVE_GENERATOR,
    TSRI_LIVE_SAFETENSORS,
    TSRI_LIVE_CHECKPOINT,
    TSRI_LIVE_PROGRAM,
    TSRI_LIVE_OP,
} tsri_live_kind;

/* Enters an object that the program will hold. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsri_live_add(tsri_mem *mem, const void *object, tsri_live_kind kind);
/* Takes it out: it is about to be freed. Fine if it is not in, and for NULL. */
void tsri_live_remove(const void *object, tsri_live_kind kind);
/* Allocate as tsri_mem_alloc and tsri_pool_alloc do, and enter the object; NULL where either fails.
 * Before a pool is freed, its objects are taken out with tsri_live_remove. */
void *tsri_live_alloc(tsri_mem *mem, size_t bytes, tsri_live_kind kind);
void *tsri_live_pool_alloc(tsri_pool *pool, size_t bytes, tsri_live_kind kind);
/* Takes out and frees what tsri_live_alloc gave; p may be NULL. */
void tsri_live_free(void *p, tsri_live_kind kind);

/* Returns whether the object is alive, and of this kind; false for NULL. */
bool tsri_live_has(const void *object, tsri_live_kind kind);
/* Returns whether the object is alive, and of this kind. If it is not, sets the error text, but
 * not for NULL, which callers refuse in their own words. call: the public function's name. */
bool tsri_is_live(const void *object, tsri_live_kind kind, const char *call);
/* Returns TSR_OK for a live object and for NULL, else TSR_ERR_INVALID. */
tsr_status tsri_live_check(const void *object, tsri_live_kind kind, const char *call);

#endif
