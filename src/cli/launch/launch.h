/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of `tessera launch`:
 *
 *   args.c    the command line
 *   launch.c         attempts: the arena, the ranks, what is told at the end
 *   watch.c   who has ended, and stopping the others
 *   child.c   starting one rank
 *   guard.c   what is left of the ranks if the launcher is killed
 *   token.c   the secret of the run
 *   env.c     a rank's variables, arguments and cores
 *   output.c  the ranks' output on its way to the console and to files
 *   join.c    launchers of several nodes meet, agree to start again, and part
 *   nodes.c   the line between them
 */
#ifndef TESSERA_CLI_LAUNCH_LAUNCH_H
#define TESSERA_CLI_LAUNCH_LAUNCH_H

#include "src/comm/local/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

enum {
    LAUNCH_RUN_ID_MAX = 64,
    LAUNCH_MAX_NODES = 4096,
    LAUNCH_JOIN_S = 300,
    LAUNCH_TAIL_LINES = 20,      /* of a failed rank's output, in the report */
    LAUNCH_TEXT_MAX = 32 * 1024, /* of a cause, and of a verdict, which has some numbers more */
};

/* Bits of a rank's redirection: 1 stdout, 2 stderr. */
enum { LAUNCH_OUT = 1, LAUNCH_ERR = 2 };

typedef enum launch_pin { LAUNCH_PIN_AUTO = 0, LAUNCH_PIN_NONE, LAUNCH_PIN_CORE } launch_pin;

/* The settings of the command line. */
typedef struct launch_config {
    int nlocal; /* ranks of this node */
    int nnodes;
    int node_rank; /* -1: by arrival */
    char addr[256];
    int port;                           /* 0: a free number */
    char run_id[LAUNCH_RUN_ID_MAX + 1]; /* "": to be made */
    int max_restarts;
    double join_s;    /* how long a launcher waits for the others */
    double monitor_s; /* how often launchers look for news of each other */
    double grace_s;   /* between SIGTERM and SIGKILL; 0: as the cause asks for */
    const char *log_dir, *gpus, *timeout, *token_file;                 /* NULL: not given */
    uint8_t redirect[TSRI_ARENA_MAX_RANKS], tee[TSRI_ARENA_MAX_RANKS]; /* LAUNCH_OUT, LAUNCH_ERR */
    bool shown[TSRI_ARENA_MAX_RANKS];                                  /* on the console */
    bool prefix;
    launch_pin pin;
    const char *role;
    char **argv;
    char **module_argv; /* argv, of which the array is ours; NULL: it is main's */
} launch_config;

/* --- output.c --------------------------------------------------------------------------------- */

/* Our own stdout or stderr. Nobody waits for a reader who does not read: what can't be written now
 * is kept, however much a line brings, and the ranks' streams are not read while it is much. */
typedef struct launch_console {
    int fd;
    bool is_own;    /* opened again, so that no write waits */
    bool is_broken; /* its reader is gone, or it can't be written */
    int error;      /* why, if it has no reader that could have gone; 0: none */
    char *queue;    /* what is kept lies at queue[from], used bytes of it */
    size_t from, used, capacity;
} launch_console;

/* One of a rank's output streams, on its way to the console, a file, or both. */
typedef struct launch_stream {
    int from;                /* -1: closed, or the rank has our own descriptor or the file's */
    launch_console *console; /* NULL: not shown */
    int log;                 /* a file; -1: none */
    int log_error;           /* an errno of writing it; 0: none */
    int tag;                 /* the rank, put before each line; -1: bytes pass unchanged */
    char *line;              /* begun, not ended yet; its tag included */
    size_t used, capacity;
    char *tail; /* the last bytes */
    size_t tail_used;
    char path[512]; /* of the file; "": none */
} launch_stream;

/* Queues of both; 0 or an errno. */
int launch_console_open(launch_console console[2]);
void launch_console_close(launch_console console[2]);
/* Waits for the reader only where there is no memory. */
void launch_console_put(launch_console *c, const char *p, size_t n);
void launch_console_print(launch_console *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes what can be written within wait_ms (-1: all). */
void launch_console_flush(launch_console *c, int wait_ms);
/* Whether there is room for what one more turn of a stream may bring. */
bool launch_console_has_room(const launch_console *c);

/* Passes on what there is to read now, at most a chunk; closes at the end of the stream. */
void launch_stream_pump(launch_stream *s);
/* Reads all that is there now. */
void launch_stream_drain(launch_stream *s);
/* Passes on all that is there, then the last, unended line, and the end. Text that the console does
 * not take within patience_ms (-1: no limit) is lost. */
void launch_stream_finish(launch_stream *s, int patience_ms);
/* Its last lines, each behind "  | " and with its end, the last of them that fit `size` bytes (at
 * least 16); "" if there are none. */
void launch_stream_last_lines(const launch_stream *s, char *buf, size_t size);
void launch_stream_free(launch_stream *s);

/* --- the launcher ----------------------------------------------------------------------------- */

typedef struct launch_rank {
    pid_t pid;  /* 0: never started */
    bool ended; /* but not reaped: its number, and that of its group, are nobody else's */
    bool failed;
    int pidfd; /* in launch.exits; -1: none */
    launch_stream out, err;
} launch_rank;

/* Why an attempt ended, if not well. */
typedef struct launch_cause {
    bool is_set;
    bool is_final; /* no restart helps */
    bool is_kill;  /* a rank died by a signal: the others have little time */
    int exit_code;
    int rank;                        /* -1: not a rank's failure */
    char text[LAUNCH_TEXT_MAX - 64]; /* one line, and maybe the last lines of output behind it */
} launch_cause;

/* In place of a local rank. LAUNCH_SOMEBODY is of another node. */
enum { LAUNCH_NOBODY = -1, LAUNCH_SOMEBODY = -2 };

typedef struct launch_nodes launch_nodes;

/* A rank that is expected to end, since `failed` ended first with the message that it gave up. */
typedef struct launch_suspect {
    int rank, failed;
    siginfo_t info;   /* how `failed` ended */
    int64_t until_ms; /* end of the wait */
} launch_suspect;

typedef struct launch {
    launch_config config;
    int node_rank, base, world; /* base: the rank of local rank 0 */
    int attempt;
    int arena_fd;
    size_t bytes_per_rank;
    sigset_t old_mask;       /* of the launcher, before it blocked what it watches */
    struct rlimit old_files; /* of the launcher, before it wanted more */
    launch_console console[2];
    launch_rank *ranks;
    cpu_set_t *cores; /* a set for each rank; NULL: ranks go where they like */
    int signal_fd;
    int exits; /* an epoll over the ranks' pidfds: tells who ended in the order in which they did */
    int running; /* ranks that have not ended */
    bool stopping;
    bool loses_output; /* something could not be written */
    int stopped_by;    /* the signal that somebody sent to us; 0: none */
    int stop_signal;
    int64_t stop_at_ms, kill_at_ms; /* while stopping; -1: done */
    int64_t stuck_at_ms;            /* then who is still there does not end; -1: not killed yet */
    launch_cause cause;
    launch_suspect suspect;
    launch_nodes *nodes; /* NULL: one node */
    pid_t guard;
    int to_guard, from_guard; /* the ends of its pipe; -1: there is no guard */
} launch;

int64_t launch_now_ms(void);
/* Date, time and chance. */
void launch_make_run_id(char id[LAUNCH_RUN_ID_MAX + 1]);

/* args.c: whether this may be a part of file names and of the store's keys. */
bool launch_is_run_id(const char *text);
/* args.c: -1 to go on, else the exit code. */
int launch_parse(int argc, char **argv, launch_config *out);

/* token.c: puts the run's token into TESSERA_STORE_TOKEN, where our store, and the ranks,
 * find it; on several nodes, if the user has given one. 0, or an exit code: it has said why. */
int launch_take_token(const launch_config *c);
/* Says of node 0, once launchers have met, that there is none. */
void launch_warn_of_no_token(const launch *l);

/* env.c: both end with NULL; NULL if there is no memory. launch_words_free frees either. */
char **launch_environment(const launch *l, int local);
char **launch_arguments(const launch *l, int local);
void launch_words_free(char **words);
/* Cores that this process may use. */
int launch_count_cores(void);
/* Fills launch.cores, if the ranks are to be pinned. */
void launch_choose_cores(launch *l);

/* child.c: starts a rank. Returns 0, or an errno after which nothing runs; then *what is
 * what was tried. */
int launch_start_rank(launch *l, int local, const char **what);

/* guard.c: makes the guard's pipe, before there are ranks; starts the guard, unless it runs,
 * while the ranks begin; ends it. */
void launch_guard_open(launch *l);
void launch_guard_start(launch *l);
void launch_guard_close(launch *l);
/* Says that a rank leads this process group. Calls write alone: for a rank that does not yet run
 * its program. */
void launch_guard_tell(const launch *l, pid_t group);
/* Says that no process of the groups is to be killed any more. */
void launch_guard_forget(const launch *l);

/* watch.c: waits for the ranks that have been started, and, of several nodes, for all
 * nodes'. Fills launch.cause. */
void launch_watch(launch *l);
void launch_watch_exit(launch *l, int local);
/* From SIGTERM to SIGKILL; is_kill: after a rank's death by a signal. */
int launch_grace_ms(const launch_config *c, bool is_kill);
/* Stops the ranks: for this cause, unless there is one. */
void launch_stop(launch *l, const launch_cause *cause, int sig);
/* Ends and reaps whatever is left of an attempt. */
void launch_reap_all(launch *l);

/* --- nodes.c ---------------------------------------------------------------------------------- */
/*
 * The launchers go through phases together: joining, attempt 0, stopping it, attempt 1, ... In
 * each, every node says that it is done, or why it must end; the first to fail, or node 0 when all
 * are done, writes the verdict of the phase. A thread of its own talks to the store.
 */

/* Meets the other launchers; fills node_rank, base, world and the run's name. 0, or the exit code
 * after which nothing is left; what is wrong has been told. */
int launch_nodes_open(launch *l);
/* Readable when there may be news; no more once the phase's verdict has been taken. */
int launch_nodes_fd(const launch_nodes *n);
/* The next phase begins for this node. */
void launch_nodes_enter(launch_nodes *n);
void launch_nodes_done(launch_nodes *n);
void launch_nodes_fail(launch_nodes *n, const launch_cause *cause);
/* The phase's verdict, once it is there: an empty cause if all nodes are done. */
bool launch_nodes_verdict(launch_nodes *n, launch_cause *out);
/* After a failure, with our ranks stopped: whether all nodes start again. Fills launch.cause if
 * not. */
bool launch_nodes_agree(launch *l);
/* Lets the others know the last verdict, and stops serving. NULL is fine. */
void launch_nodes_close(launch_nodes *n);

#endif
