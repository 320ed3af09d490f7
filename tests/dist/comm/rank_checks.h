/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for code that runs as a rank, which returns what failed as its error. */
#ifndef TESSERA_TESTS_DIST_RANK_CHECKS_H
#define TESSERA_TESTS_DIST_RANK_CHECKS_H

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "src/core/status.h"

#define CHECK(cond)                                                                        \
    do {                                                                                   \
        if (!(cond))                                                                       \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %.1500s", __FILE__, \
                             __LINE__, #cond, tsr_last_error());                           \
    } while (0)
#define CHECK_TEXT(part) CHECK(strstr(tsr_last_error(), part))

/* Returns when ranks have counted up to n; so that nothing hangs where one of them has failed, also
 * after a minute or two. */
static inline void await_count(_Atomic int *count, int n)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    for (int i = 0; i < 60000 && atomic_load(count) < n; i++)
        nanosleep(&ms, NULL);
}

#endif
