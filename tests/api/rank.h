/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for code that runs as a rank: cmocka's can't leave another thread than the test's own, so
 * a failed check is printed and ends the rank, and the test asserts what tsr_spawn says. */
#ifndef TESSERA_TESTS_API_RANK_H
#define TESSERA_TESTS_API_RANK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tessera/tessera.h>

#define TRY(expr)                                                             \
    do {                                                                      \
        tsr_status try_ = (expr);                                             \
        if (try_ != TSR_OK) {                                                 \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #expr, \
                    tsr_status_name(try_), tsr_last_error());                 \
            return try_;                                                      \
        }                                                                     \
    } while (0)

#define CHECK(cond)                                                            \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond); \
            return TSR_ERR_INTERNAL;                                           \
        }                                                                      \
    } while (0)

/* Whether got and want agree within `limit`, relative to 1 or to want where that is larger; or are
 * both NaN. */
static inline bool near_to(double got, double want, double limit)
{
    return (isnan(got) && isnan(want)) || fabs(got - want) <= limit * fmax(1, fabs(want));
}

static inline bool all_near(const char *what, const double *got, const double *want, int64_t n,
                            double limit)
{
    for (int64_t i = 0; i < n; i++)
        if (!near_to(got[i], want[i], limit)) {
            fprintf(stderr, "%s[%lld]: %.17g, not %.17g\n", what, (long long)i, got[i], want[i]);
            return false;
        }
    return true;
}

/* Runs fn on 1, 2 and 3 thread ranks. */
static inline void on_ranks(tsr_rank_fn *fn, void *arg)
{
    for (int n = 1; n <= 3; n++) {
        tsr_status status = tsr_spawn(n, fn, arg);
        if (status != TSR_OK)
            fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
    }
}

#endif
