/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_CORE_CLOCK_H
#define TESSERA_CORE_CLOCK_H

#include <time.h>

/* Seconds of a clock that only goes forward. */
static inline double tsri_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
