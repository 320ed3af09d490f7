/* SPDX-License-Identifier: Apache-2.0 */
/* Rows whose elements are apart, on either side. */
#include "src/comm/move/move.h"

#include <string.h>

/* Scratch that sources are gathered into: together a part of the first cache. */
enum { SCRATCH = 16 * 1024, MOST = 512 };
_Static_assert(SCRATCH / TSRI_MOST_SOURCES >= 8, "an element of each source must fit");

#define COPY(T)                                        \
    do {                                               \
        const T *from_ = (const T *)(const void *)src; \
        T *to_ = (T *)(void *)dst;                     \
        for (int64_t i_ = 0; i_ < count; i_++)         \
            to_[i_ * dst_step] = from_[i_ * src_step]; \
    } while (0)

void tsri_copy_strided(size_t element, const char *src, int64_t src_step, char *dst,
                       int64_t dst_step, int64_t count)
{
    switch (element) {
    case 1:
        COPY(uint8_t);
        break;
    case 2:
        COPY(uint16_t);
        break;
    case 4:
        COPY(uint32_t);
        break;
    default:
        COPY(uint64_t);
        break;
    }
}

void tsri_reduce_strided(tsri_reduce_fn *reduce, size_t element, int nsrc, const char *const *src,
                         int64_t at, int64_t src_step, char *dst, int64_t dst_step, int64_t count)
{
    _Alignas(8) char rows[SCRATCH], result[MOST * 8];
    const char *from[TSRI_MOST_SOURCES];
    int64_t block = SCRATCH / nsrc / (int64_t)sizeof(uint64_t), size = (int64_t)element;
    if (block > MOST)
        block = MOST;
    for (int64_t i = 0; i < count; i += block) {
        int64_t n = count - i < block ? count - i : block;
        for (int s = 0; s < nsrc; s++) {
            const char *row = src[s] + (at + i * src_step) * size;
            char *gathered = rows + s * block * (int64_t)sizeof(uint64_t);
            from[s] = src_step == 1 ? row : gathered;
            if (src_step != 1)
                tsri_copy_strided(element, row, src_step, gathered, 1, n);
        }
        char *to = dst + i * dst_step * size;
        reduce(dst_step == 1 ? to : result, from, 0, nsrc, n);
        if (dst_step != 1)
            tsri_copy_strided(element, result, 1, to, dst_step, n);
    }
}
