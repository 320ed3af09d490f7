/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying between ranks.
 *
 * Not memcpy: beyond 2 KiB glibc's may be `rep movsb`, which on Zen 3 and 4 is more than ten times
 * slower where dst lies just behind src modulo the page - and heap buffers, 16 bytes into a page,
 * lie so behind what is in the arena.
 *
 * What another core has read is slow to write: each line must be taken back from it. Stores around
 * the caches need no answer, and what they write is read faster, too (here, two cores of an EPYC:
 * 5 GB/s to write and 12 GB/s to read with plain stores, 22 and 15 with streaming ones).
 */
#include "src/comm/move/move.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

enum {
    WIDE = 64,
    LEAST_WIDE = 1024, /* bytes */
    AHEAD = 1024,      /* prefetching does not cross pages by itself */
};

#define COPY_WIDE(name, STORE)                                                          \
    static void name(char *dst, const char *src, size_t bytes)                          \
    {                                                                                   \
        for (size_t i = 0; i < bytes; i += WIDE) {                                      \
            __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(src + i));      \
            __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 16)); \
            __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 32)); \
            __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 48)); \
            if (i + AHEAD < bytes)                                                      \
                _mm_prefetch(src + i + AHEAD, _MM_HINT_T0);                             \
            STORE((__m128i *)(void *)(dst + i), a);                                     \
            STORE((__m128i *)(void *)(dst + i + 16), b);                                \
            STORE((__m128i *)(void *)(dst + i + 32), c);                                \
            STORE((__m128i *)(void *)(dst + i + 48), d);                                \
        }                                                                               \
    }
COPY_WIDE(copy_wide, _mm_storeu_si128)
COPY_WIDE(stream_wide, _mm_stream_si128)

void tsri_copy(void *dst, const void *src, size_t bytes)
{
    size_t wide = bytes < LEAST_WIDE ? 0 : bytes / WIDE * WIDE;
    copy_wide(dst, src, wide);
    if (bytes > wide)
        memcpy((char *)dst + wide, (const char *)src + wide, bytes - wide);
}

void tsri_copy_stream(void *dst, const void *src, size_t bytes)
{
    size_t head = (size_t)(-(uintptr_t)dst & (WIDE - 1));
    if (bytes < LEAST_WIDE + head) {
        tsri_copy(dst, src, bytes);
        return;
    }
    size_t wide = (bytes - head) / WIDE * WIDE, tail = bytes - head - wide;
    if (head)
        memcpy(dst, src, head);
    stream_wide((char *)dst + head, (const char *)src + head, wide);
    if (tail)
        memcpy((char *)dst + head + wide, (const char *)src + head + wide, tail);
}

void tsri_stream_end(void)
{
    _mm_sfence();
}

void tsri_prefetch(const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += WIDE)
        _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

void tsri_prefetch_to_write(const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += WIDE)
        __builtin_prefetch((const char *)p + i, 1, 3);
}
#else
void tsri_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes)
        memcpy(dst, src, bytes);
}

void tsri_copy_stream(void *dst, const void *src, size_t bytes)
{
    tsri_copy(dst, src, bytes);
}

void tsri_stream_end(void)
{
}

void tsri_prefetch(const void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

void tsri_prefetch_to_write(const void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}
#endif
