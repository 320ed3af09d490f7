/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory of the library's own objects (never tensors): an allocator per world that tests can
 * make fail, and pools whose contents go all at once. */
#ifndef TESSERA_CORE_MEM_H
#define TESSERA_CORE_MEM_H

#include "src/core/status.h"

/* fail_countdown: 0 = never fail; n > 0 = the n-th allocation from now fails, once. Not
 * thread-safe: one per rank. */
typedef struct tsri_mem {
    int64_t fail_countdown;
} tsri_mem;

/* Returns whether TESSERA_CHECK is set and not "0", as in all tests: the library then checks its
 * own work. Plans are checked after each pass (tsri_plan_check), and each allocation from a pool is
 * a block of its own that ends where the allocation does, so that whatever watches the heap sees
 * what is written behind it. */
bool tsri_checks(void);

/* Zeroed; NULL with the error text set when there is no memory. mem may be NULL (no countdown). */
void *tsri_mem_alloc(tsri_mem *mem, size_t bytes);
/* p may be NULL. New bytes are not zeroed. On failure p stays valid. */
void *tsri_mem_realloc(tsri_mem *mem, void *p, size_t bytes);
/* Makes room for one item more than `count` in an array of *capacity items. */
static inline bool tsri_mem_grow(tsri_mem *mem, void **items, int count, int *capacity,
                                 size_t item_bytes)
{
    if (count < *capacity)
        return true;
    int more = *capacity ? 2 * *capacity : 16;
    void *p = tsri_mem_realloc(mem, *items, (size_t)more * item_bytes);
    if (!p)
        return false;
    *items = p;
    *capacity = more;
    return true;
}
char *tsri_mem_strdup(tsri_mem *mem, const char *text);
void tsri_mem_free(void *p);

typedef struct tsri_pool_block tsri_pool_block;

/* A pool: many small allocations, freed together. Zero-initialise `mem`-less pools with {0}. */
typedef struct tsri_pool {
    tsri_mem *mem;
    tsri_pool_block *blocks;
} tsri_pool;

void tsri_pool_init(tsri_pool *pool, tsri_mem *mem);
void tsri_pool_finish(tsri_pool *pool);
/* Bytes of the process's memory that the pool holds. */
size_t tsri_pool_bytes(const tsri_pool *pool);
/* Zeroed, aligned to 16; NULL with the error text set when there is no memory. */
void *tsri_pool_alloc(tsri_pool *pool, size_t bytes);
void *tsri_pool_dup(tsri_pool *pool, const void *data, size_t bytes);
char *tsri_pool_strdup(tsri_pool *pool, const char *text);
char *tsri_pool_printf(tsri_pool *pool, const char *fmt, ...) TSR_PRINTF(2, 3);

/* A growing array of `type`: TSRI_PUSH(pool, ptr, count, capacity) makes room for one more in
 * pool memory (old storage stays in the pool) and evaluates to whether it could. */
bool tsri_pool_grow(tsri_pool *pool, void **items, int count, int *capacity, size_t item_bytes);
#define TSRI_PUSH(pool, items, count, capacity) \
    tsri_pool_grow((pool), (void **)&(items), (count), &(capacity), sizeof *(items))

#endif
