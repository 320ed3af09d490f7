/* SPDX-License-Identifier: Apache-2.0 */
/* Running `tessera launch` from outside, for its tests. */
#ifndef TESSERA_TESTS_LAUNCH_RUN_H
#define TESSERA_TESTS_LAUNCH_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The command, and the program launch_child: set by main. */
extern const char *run_tessera, *run_child;

/* A command under way. Its stdout and stderr come in `text`, mixed. */
typedef struct run {
    pid_t pid;
    int from, code;
    double seconds, cpu_s; /* cpu_s: of the launcher and of the ranks that it has reaped */
    bool ignore_int;       /* kept from run to run */
    char text[1 << 20];
    size_t used;
} run;

double run_now_s(void);
/* args: up to NULL, behind `tessera launch`. */
void run_begin(run *r, const char *const *args);
void run_read_some(run *r);
/* Until the output has `part` n times. */
void run_read_until(run *r, const char *part, int n);
/* Until the end; fills code, seconds and cpu_s. */
void run_end(run *r);
int run_count(const run *r, const char *part);
/* The exit code, and a part of the output. */
void run_expect(const run *r, int code, const char *part);
/* Every process that said its number as "pid N." must be gone soon. */
void run_expect_gone(const run *r);

#define RUN(r, ...)                                      \
    do {                                                 \
        const char *const args_[] = {__VA_ARGS__, NULL}; \
        run_begin(r, args_);                             \
        run_end(r);                                      \
    } while (0)

#endif
