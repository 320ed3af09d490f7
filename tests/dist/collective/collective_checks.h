/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what collectives say when something is wrong. */
#ifndef TESSERA_TESTS_DIST_COLLECTIVE_CHECKS_H
#define TESSERA_TESTS_DIST_COLLECTIVE_CHECKS_H

#include <tessera/collective.h>
#include "tests/dist/comm/rank_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

/* Calls whose place is known. */
#define AT(line) "somewhere/user.c", (line)

static inline double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void nap(double s)
{
    const struct timespec t = {.tv_sec = (time_t)s,
                               .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

/* timeout_s as a test needs it. */
static inline void run(int n, double timeout_s, tsr_rank_fn *fn, void *arg)
{
    const tsr_world_opts o = {
        .size = sizeof o, .arena_bytes = 16 << 20, .timeout_s = timeout_s, .threads = 1};
    if (tsr_spawn_with(n, fn, arg, &o) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* Whether the last error names all of these ("" ends the list). */
static inline tsr_status names(tsr_status status, tsr_status expected, const char *const *parts)
{
    char text[4096];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    if (status != expected)
        return tsri_fail(TSR_ERR_INTERNAL, "%s where %s is expected: %s", tsr_status_name(status),
                         tsr_status_name(expected), text);
    for (int i = 0; parts[i][0]; i++)
        if (!strstr(text, parts[i]))
            return tsri_fail(TSR_ERR_INTERNAL, "'%s' is missing in: %s", parts[i], text);
    return TSR_OK;
}

#define NAMES(status, expected, ...) \
    TSRI_TRY(names((status), (expected), (const char *const[]){__VA_ARGS__, ""}))

/* The group is over, with the same text. */
static inline tsr_status is_over(tsr_group *g, tsr_status status)
{
    char text[4096];
    tsr_work *work = NULL;
    float x = 0;
    snprintf(text, sizeof text, "%s", tsr_last_error());
    double begin = now_s();
    CHECK(tsr_all_reduce(g, &x, 1, TSR_F32, TSR_REDUCE_SUM) == status);
    CHECK(strstr(tsr_last_error(), text));
    CHECK(tsr_group_barrier_async(g, &work) == status && !work);
    CHECK(strstr(tsr_last_error(), text));
    CHECK(now_s() - begin < 5);
    return TSR_OK;
}

#endif
