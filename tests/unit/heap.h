/* SPDX-License-Identifier: Apache-2.0 */
/* What a test leaves behind, where no sanitizer looks. */
#ifndef TESSERA_TESTS_UNIT_HEAP_H
#define TESSERA_TESTS_UNIT_HEAP_H

#include <malloc.h>

/* Runs `body` several times, and fails if more is allocated after each. What is made once and kept
 * is there after the first time; the C library's caches of freed blocks are full a little later.
 * Sanitizers' allocators report nothing. */
#define KEEPS_NOTHING(body)                                                      \
    do {                                                                         \
        size_t before_ = 0, kept_ = 1;                                           \
        for (int i_ = 0; i_ < 40 && kept_ > before_; i_++) {                     \
            before_ = mallinfo2().uordblks;                                      \
            body;                                                                \
            kept_ = mallinfo2().uordblks;                                        \
        }                                                                        \
        if (kept_ > before_)                                                     \
            fail_msg("%zu bytes more are allocated each time", kept_ - before_); \
    } while (0)

#endif
