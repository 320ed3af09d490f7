/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/live.h"

#include <pthread.h>
#include <stdatomic.h>

/* Open addressing with linear probing, at most half full. A slot is 0 or an object's key. */
typedef struct table {
    struct table *smaller; /* that it replaced, which a reader may still be in */
    size_t mask;           /* slots - 1; their number is a power of two */
    _Atomic uint64_t slots[];
} table;

/*
 * Writers hold the lock. Readers look without it: an object that they find is alive. One that they
 * do not find may be on its way to another slot or table, so they look again under the lock.
 * Tables only grow, and replaced ones are kept: all together they are less than twice the last.
 */
static struct {
    pthread_mutex_t lock;
    _Atomic(table *) table;
    size_t n;
} live = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Different for every object and kind: no two objects are a multiple of 2^57 bytes apart. */
static uint64_t key_of(const void *object, tsri_live_kind kind)
{
    return (uint64_t)(uintptr_t)object + ((uint64_t)kind << 57);
}

static size_t home_of(const table *t, uint64_t key)
{
    return (size_t)(key * 0x9e3779b97f4a7c15u >> 32) & t->mask;
}

static uint64_t load_slot(const table *t, size_t at)
{
    return atomic_load_explicit(&t->slots[at], memory_order_relaxed);
}

static void store_slot(table *t, size_t at, uint64_t key)
{
    atomic_store_explicit(&t->slots[at], key, memory_order_relaxed);
}

/* Returns the slot that has the key, or the empty one where it would be. Ends also while a writer
 * moves keys. */
static size_t find_slot(const table *t, uint64_t key)
{
    size_t at = home_of(t, key);
    for (size_t i = 0; i <= t->mask; i++, at = (at + 1) & t->mask) {
        uint64_t found = load_slot(t, at);
        if (!found || found == key)
            break;
    }
    return at;
}

static bool find_key(uint64_t key)
{
    const table *t = atomic_load_explicit(&live.table, memory_order_acquire);
    return t && load_slot(t, find_slot(t, key)) == key;
}

/* --- fork ------------------------------------------------------------------------------------- */
static void lock_live(void)
{
    pthread_mutex_lock(&live.lock);
}

static void unlock_live(void)
{
    pthread_mutex_unlock(&live.lock);
}

static int fork_error;

/* A child must not find the lock held by a thread that it does not have. */
static void prepare_for_fork(void)
{
    fork_error = pthread_atfork(lock_live, unlock_live, unlock_live);
}

/* --- entering and taking out ------------------------------------------------------------------ */
static table *grow_table(tsri_mem *mem, table *old)
{
    size_t room = old ? 2 * (old->mask + 1) : 256;
    table *t = tsri_mem_alloc(mem, sizeof *t + room * sizeof *t->slots);
    if (!t)
        return NULL;
    t->smaller = old;
    t->mask = room - 1;
    for (size_t i = 0; old && i <= old->mask; i++) {
        uint64_t key = load_slot(old, i);
        if (key)
            store_slot(t, find_slot(t, key), key);
    }
    atomic_store_explicit(&live.table, t, memory_order_release);
    return t;
}

tsr_status tsri_live_add(tsri_mem *mem, const void *object, tsri_live_kind kind)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare_for_fork);
    if (fork_error)
        return tsri_fail(TSR_ERR_NO_MEMORY, "no memory for the handlers of fork");
    uint64_t key = key_of(object, kind);
    lock_live();
    table *t = atomic_load_explicit(&live.table, memory_order_relaxed);
    if (!t || 2 * (live.n + 1) > t->mask + 1)
        t = grow_table(mem, t);
    if (t) {
        size_t at = find_slot(t, key);
        live.n += !load_slot(t, at);
        store_slot(t, at, key);
    }
    unlock_live();
    return t ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Frees slot `at`, and moves keys behind it that were pushed past it. */
static void free_slot(table *t, size_t at)
{
    for (size_t next = (at + 1) & t->mask; load_slot(t, next); next = (next + 1) & t->mask) {
        size_t home = home_of(t, load_slot(t, next));
        if (((next - home) & t->mask) < ((next - at) & t->mask))
            continue;
        store_slot(t, at, load_slot(t, next));
        at = next;
    }
    store_slot(t, at, 0);
}

void tsri_live_remove(const void *object, tsri_live_kind kind)
{
    uint64_t key = key_of(object, kind);
    lock_live();
    table *t = atomic_load_explicit(&live.table, memory_order_relaxed);
    size_t at = t ? find_slot(t, key) : 0;
    if (t && load_slot(t, at) == key) {
        free_slot(t, at);
        live.n--;
    }
    unlock_live();
}

void *tsri_live_alloc(tsri_mem *mem, size_t bytes, tsri_live_kind kind)
{
    void *p = tsri_mem_alloc(mem, bytes);
    if (p && tsri_live_add(mem, p, kind) != TSR_OK) {
        tsri_mem_free(p);
        return NULL;
    }
    return p;
}

void *tsri_live_pool_alloc(tsri_pool *pool, size_t bytes, tsri_live_kind kind)
{
    void *p = tsri_pool_alloc(pool, bytes);
    return p && tsri_live_add(pool->mem, p, kind) == TSR_OK ? p : NULL;
}

void tsri_live_free(void *p, tsri_live_kind kind)
{
    if (p)
        tsri_live_remove(p, kind);
    tsri_mem_free(p);
}

/* --- looking ---------------------------------------------------------------------------------- */
static bool find_again(uint64_t key)
{
    lock_live();
    bool found = find_key(key);
    unlock_live();
    return found;
}

bool tsri_live_has(const void *object, tsri_live_kind kind)
{
    const uint64_t key = key_of(object, kind);
    return object && (find_key(key) || find_again(key));
}

bool tsri_is_live(const void *object, tsri_live_kind kind, const char *call)
{
    static const char *const names[] = {
        [TSRI_LIVE_WORLD] = "world",
        [TSRI_LIVE_PLACEMENT] = "placement",
        [TSRI_LIVE_GRAPH] = "graph",
        [TSRI_LIVE_TENSOR] = "tensor",
        [TSRI_LIVE_PLAN] = "plan",
        [TSRI_LIVE_MODULE] = "module",
        [TSRI_LIVE_VARIABLE] = "variable",
        [TSRI_LIVE_OPTIMIZER] = "optimizer",
        [TSRI_LIVE_GRAD_SCALER] = "gradient scaler",
        [TSRI_LIVE_DDP] = "tsr_ddp",
        [TSRI_LIVE_GROUP] = "group",
        [TSRI_LIVE_WORK] = "work handle",
        [TSRI_LIVE_STORE] = "store",
        [TSRI_LIVE_DATASET] = "data set",
        [TSRI_LIVE_LOADER] = "loader",
        [TSRI_LIVE_SAMPLER] = "sampler",
        [TSRI_LIVE_BATCH_SAMPLER] = "batch sampler",
        [TSRI_LIVE_GENERATOR] = "generator",
        [TSRI_LIVE_SAFETENSORS] = "safetensors file",
        [TSRI_LIVE_CHECKPOINT] = "checkpoint",
        [TSRI_LIVE_PROGRAM] = "program",
        [TSRI_LIVE_OP] = "op",
    };
    if (!object || tsri_live_has(object, kind))
        return object != NULL;
    tsri_fail(TSR_ERR_INVALID,
              "%s: the %s has been destroyed, by itself or with what it belongs to (or never was "
              "one); use it before that, or make another",
              call, names[kind]);
    return false;
}

tsr_status tsri_live_check(const void *object, tsri_live_kind kind, const char *call)
{
    return !object || tsri_is_live(object, kind, call) ? TSR_OK : TSR_ERR_INVALID;
}
