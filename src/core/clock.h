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

/* The moment `seconds` from now by that clock, but at most 1e9: for waits on conditions that
 * tsri_cond_init has made. */
static inline struct timespec tsri_in_s(double seconds)
{
    double at = tsri_now_s() + (seconds < 1e9 ? seconds : 1e9);
    return (struct timespec){.tv_sec = (time_t)at,
                             .tv_nsec = (long)((at - (double)(time_t)at) * 1e9)};
}

static inline void tsri_sleep_s(double seconds)
{
    const struct timespec t = {.tv_sec = (time_t)seconds,
                               .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

#endif
