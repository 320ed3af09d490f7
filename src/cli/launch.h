/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera launch`. */
#ifndef TESSERA_CLI_LAUNCH_H
#define TESSERA_CLI_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/types.h>

/* One of a rank's output streams, on its way to ours line by line. */
typedef struct launch_stream {
    int from; /* -1: closed */
    int to, rank;
    char *line; /* begun, not ended yet; its tag included */
    size_t used, capacity;
} launch_stream;

/* Passes on what there is to read now; closes at the end of the stream. */
void launch_stream_pump(launch_stream *s);
/* The last, unended line, and the end. */
void launch_stream_finish(launch_stream *s);

typedef struct launch_rank {
    pid_t pid; /* 0: not running */
    int pidfd; /* in launch.exits; -1: none */
    launch_stream out, err;
} launch_rank;

typedef struct launch {
    int nranks;
    bool prefix;
    const char *timeout; /* NULL: not given */
    char **argv;
    int arena_fd;
    size_t bytes_per_rank;
    sigset_t old_mask; /* of the launcher, before it blocked what it watches */
    launch_rank *ranks;
    int exits; /* an epoll over the ranks' pidfds: tells who ended in the order in which they did */
    int running, exit_code;
    bool stopping;
    int64_t kill_at_ms;
} launch;

/* launch_child.c: starts rank `rank`. Returns 0, or an errno after which nothing runs. */
int launch_start_rank(launch *l, int rank);

#endif
