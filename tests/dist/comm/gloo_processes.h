/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes, forked from a test, and talk through Gloo on loopback. */
#ifndef TESTS_DIST_GLOO_PROCESSES_H
#define TESTS_DIST_GLOO_PROCESSES_H

#include <stdatomic.h>

#include "src/comm/gloo/gloo.h"

enum { GLOO_RANKS = 8 };

/* Seen by all ranks of a run and by the test. */
typedef struct shared {
    _Atomic int flag[GLOO_RANKS];
    int status[GLOO_RANKS];
    char text[GLOO_RANKS][2048];
} shared;

/* What a rank does; its world's comm is Gloo's. The world goes afterwards. */
typedef tsr_status gloo_fn(tsr_world *w, shared *s);

typedef struct gloo_run {
    int nranks;
    double timeout_s;
    int killed;                 /* the rank that ends by SIGKILL, -1: none */
    int missing;                /* the rank that does not make its communicator, -1: none */
    struct tsri_flight *flight; /* of each rank, seen by all processes; NULL: none */
} gloo_run;

/* Runs fn in processes, and waits for them; a rank's status and error text are in `shared`, a
 * failure to make its world too. Kills those that have not ended after a minute, and says so. */
shared *gloo_processes(const gloo_run *run, gloo_fn *fn);
void gloo_processes_free(shared *s);
/* Fails the test unless all ranks returned TSR_OK. */
void gloo_processes_ok(int nranks, gloo_fn *fn);

/* One call: start, finish, release. */
tsr_status gloo_call(tsri_group *g, tsri_coll *c);
tsr_status gloo_group(tsr_world *w, int lane, tsri_group **out_group);
/* Returns when the flag has come to `value`: a minute at most. */
tsr_status gloo_await(const _Atomic int *flag, int value);

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond))                                                                            \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %s", __FILE__, __LINE__, \
                             #cond, tsr_last_error());                                          \
    } while (0)
#define CHECK_TEXT(part) CHECK(strstr(tsr_last_error(), part))

#endif
