/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share a store, for its tests: threads or processes, on loopback or in a temporary
 * folder. What a rank met is in shared memory. */
#ifndef TESSERA_TESTS_STORE_RANKS_H
#define TESSERA_TESTS_STORE_RANKS_H

#include "src/comm/store/store.h"
#include "src/core/status.h"
#include "tests/dist/plan/entries.h"

#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <cmocka.h>

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond))                                                                            \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %s", __FILE__, __LINE__, \
                             #cond, tsr_last_error());                                          \
    } while (0)
#define CHECK_TEXT(part) CHECK(strstr(tsr_last_error(), part))

enum { MAX_CREW = 32, FLAGS = 4096 };

/* What a rank does between opening and closing; arg is the crew's. */
typedef tsr_status rank_fn(tsr_store *store, int rank, void *arg);

typedef struct rank_result {
    tsr_status status; /* of opening, or else of fn */
    bool opened;
    double seconds; /* of opening */
    char text[1024];
} rank_result;

/* In shared memory. */
typedef struct crew_board {
    rank_result result[MAX_CREW];
    _Atomic int flag[FLAGS]; /* the test's own */
} crew_board;

typedef struct crew {
    char url[PATH_MAX]; /* without rank and size */
    int nranks;
    double timeout_s;
    bool processes, hosted;
    rank_fn *fn;
    void *arg;
    crew_board *board;
    pthread_t thread[MAX_CREW];
    pid_t pid[MAX_CREW];
    bool running[MAX_CREW];
} crew;

double now_s(void);
void sleep_s(double seconds);
/* Waits until the flag is at least that; fails the test after 60 s. */
void await_flag(_Atomic int *flag, int value);
/* Of loopback, free, and outside of what the system gives to those who don't care. */
int free_port(void);
/* Whether there is a [::1] (containers may have none). */
bool has_ipv6(void);

/* A crew of nranks for the store at url; nobody runs yet. fn NULL: opens and closes. */
void crew_make(crew *c, const char *url, int nranks, rank_fn *fn);
void crew_free(crew *c);
void crew_start(crew *c, int rank);
void crew_start_all(crew *c);
/* Returns how a process ended: 0, or its signal. Threads: 0. */
int crew_join(crew *c, int rank);
void crew_kill(crew *c, int rank);
/* Joins all that run; all must have succeeded. */
void crew_finish(crew *c);
void crew_expect(const crew *c, int rank, tsr_status status, const char *part);

/* Threads of this process, and two: `.` and `..`. */
#define count_threads() count_entries("/proc/self/task")
/* A thread that has been joined may be there for a moment more. */
void expect_threads(int wanted);

#endif
