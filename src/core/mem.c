/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under AddressSanitizer what a pool hasn't given out is out of bounds, and so is a gap behind each
 * allocation: else an overrun would only ever reach the pool's own memory. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_ASAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(POOL_ASAN)
#define POOL_ASAN
#endif
#ifdef POOL_ASAN
#include <sanitizer/asan_interface.h>
enum { POOL_GAP = 16 };
#else
#define ASAN_POISON_MEMORY_REGION(p, bytes) ((void)(p), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(p, bytes) ((void)(p), (void)(bytes))
enum { POOL_GAP = 0 };
#endif

struct tsri_pool_block {
    tsri_pool_block *next;
    size_t used, size;
    _Alignas(16) char data[];
};

static bool must_fail(tsri_mem *mem)
{
    return mem && mem->fail_countdown > 0 && --mem->fail_countdown == 0;
}

bool tsri_checks(void)
{
    const char *said = getenv("TESSERA_CHECK");
    return said && strcmp(said, "0") != 0;
}

void *tsri_mem_alloc(tsri_mem *mem, size_t bytes)
{
    void *p = must_fail(mem) ? NULL : calloc(1, bytes ? bytes : 1);
    if (!p)
        tsri_fail(TSR_ERR_NO_MEMORY, "no memory for %zu bytes of host memory", bytes);
    return p;
}

void *tsri_mem_realloc(tsri_mem *mem, void *old, size_t bytes)
{
    void *p = must_fail(mem) ? NULL : realloc(old, bytes ? bytes : 1);
    if (!p)
        tsri_fail(TSR_ERR_NO_MEMORY, "no memory for %zu bytes of host memory", bytes);
    return p;
}

char *tsri_mem_strdup(tsri_mem *mem, const char *text)
{
    size_t n = strlen(text) + 1;
    char *p = tsri_mem_alloc(mem, n);
    if (p)
        memcpy(p, text, n);
    return p;
}

void tsri_mem_free(void *p)
{
    free(p);
}

void tsri_pool_init(tsri_pool *pool, tsri_mem *mem)
{
    *pool = (tsri_pool){.mem = mem};
}

void tsri_pool_finish(tsri_pool *pool)
{
    tsri_pool_block *b = pool->blocks;
    while (b) {
        tsri_pool_block *next = b->next;
        ASAN_UNPOISON_MEMORY_REGION(b->data, b->size);
        tsri_mem_free(b);
        b = next;
    }
    pool->blocks = NULL;
}

size_t tsri_pool_bytes(const tsri_pool *pool)
{
    size_t bytes = 0;
    for (const tsri_pool_block *b = pool->blocks; b; b = b->next)
        bytes += sizeof *b + b->size;
    return bytes;
}

void *tsri_pool_alloc(tsri_pool *pool, size_t bytes)
{
    /* Counted one by one, though most need no block: which of them would is a matter of sizes. */
    if (must_fail(pool->mem)) {
        tsri_fail(TSR_ERR_NO_MEMORY, "no memory for %zu bytes of host memory", bytes);
        return NULL;
    }
    const size_t asked = bytes;
    bytes = ((bytes + 15) & ~(size_t)15) + POOL_GAP;
    tsri_pool_block *b = pool->blocks;
    if (!b || b->size - b->used < bytes) {
        /* Blocks double from 4 KiB to 64 KiB: a small pool is not worth zeroing 64 KiB. */
        size_t size = !b ? 4096 : b->size < 32768 ? 2 * b->size : 65536;
        size = bytes > 32768 || size < bytes ? bytes : size;
        if (!POOL_GAP && tsri_checks())
            bytes = size = asked; /* no other fits into the block, which ends where this does */
        tsri_pool_block *fresh = tsri_mem_alloc(NULL, sizeof *fresh + size);
        if (!fresh)
            return NULL;
        fresh->size = size;
        ASAN_POISON_MEMORY_REGION(fresh->data, size);
        /* A block made for one large request goes behind the one that still has room. */
        if (b && bytes > 32768) {
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            pool->blocks = fresh;
        }
        b = fresh;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    ASAN_UNPOISON_MEMORY_REGION(p, asked);
    return p;
}

void *tsri_pool_dup(tsri_pool *pool, const void *data, size_t bytes)
{
    void *p = tsri_pool_alloc(pool, bytes);
    if (p && bytes)
        memcpy(p, data, bytes);
    return p;
}

char *tsri_pool_strdup(tsri_pool *pool, const char *text)
{
    return tsri_pool_dup(pool, text, strlen(text) + 1);
}

char *tsri_pool_printf(tsri_pool *pool, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : tsri_pool_alloc(pool, (size_t)n + 1);
    if (!p)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

bool tsri_pool_grow(tsri_pool *pool, void **items, int count, int *capacity, size_t item_bytes)
{
    if (count < *capacity)
        return true;
    int more = *capacity ? *capacity * 2 : 8;
    void *p = tsri_pool_alloc(pool, (size_t)more * item_bytes);
    if (!p)
        return false;
    if (count)
        memcpy(p, *items, (size_t)count * item_bytes);
    *items = p;
    *capacity = more;
    return true;
}
