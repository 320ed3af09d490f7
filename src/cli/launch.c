/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera launch`: runs a program as several ranks on this machine, and sees to it that they end
 * together. */
#include "src/cli/launch.h"
#include "src/cli/cli.h"
#include "src/cli/options.h"
#include "src/comm/arena.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_MS = 5000 };

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- the command line ------------------------------------------------------------------------- */
typedef struct launch_args {
    int64_t nranks;
    bool prefix;
    const char *timeout;
} launch_args;

#define AT(field) offsetof(launch_args, field)
static const cli_option options[] = {
    {"ranks", 'n', CLI_INT, AT(nranks), "N", "ranks (default 1)", 1, TSRI_ARENA_MAX_RANKS,
     "a number of ranks"},
    {"prefix", 0, CLI_FLAG, AT(prefix), NULL, "put \"[rank] \" before each line of output", 0, 0,
     NULL},
    {"timeout", 0, CLI_SECONDS, AT(timeout), "S",
     "seconds that a rank waits for the others in a\ncollective (default 60)", 0, 0, NULL},
};
#undef AT

static const cli_spec spec = {
    .command = "launch",
    .usage = "[-n N] [--prefix] [--timeout S] [--] PROG [ARGS...]",
    .about = "Runs PROG as N ranks (default 1), which find each other through shared memory.\n"
             "If one fails, the others are stopped, and its exit code is returned.",
    CLI_OPTIONS(options),
    .min_operands = 1,
    .missing = "no program to run",
    .is_wrapper = true,
};

/* --- stopping --------------------------------------------------------------------------------- */

/* To whole process groups, so that what a rank has started goes with it. */
static void signal_all(const launch *l, int sig)
{
    for (int r = 0; r < l->nranks; r++)
        if (l->ranks[r].pid > 0)
            kill(-l->ranks[r].pid, sig);
}

static void stop(launch *l, int sig, int exit_code)
{
    if (l->stopping) {
        /* Asked twice: no more patience. */
        signal_all(l, SIGKILL);
        return;
    }
    l->stopping = true;
    l->exit_code = exit_code;
    l->kill_at_ms = now_ms() + GRACE_MS;
    signal_all(l, sig);
}

static void report_failure(const launch *l, int rank, const siginfo_t *info)
{
    const char *others = l->running > 1 ? "; stopping the others" : "";
    if (info->si_code == CLD_EXITED) {
        fprintf(stderr, "tessera launch: rank %d exited with code %d%s\n", rank, info->si_status,
                others);
        return;
    }
    const char *name = sigabbrev_np(info->si_status);
    fprintf(stderr, "tessera launch: rank %d was killed by signal %d (SIG%s)%s\n", rank,
            info->si_status, name ? name : "?", others);
}

static void rank_ended(launch *l, int rank, const siginfo_t *info)
{
    bool failed = info->si_code != CLD_EXITED || info->si_status != 0;
    tsri_arena_mark_exited(l->arena_fd, rank);
    /* While its process is not reaped, the number of its group is not anyone else's. */
    if (failed || l->stopping)
        kill(-l->ranks[rank].pid, SIGKILL);
    waitpid(l->ranks[rank].pid, NULL, 0);
    if (failed && !l->stopping) {
        report_failure(l, rank, info);
        l->ranks[rank].pid = 0;
        stop(l, SIGTERM, info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status);
    }
    l->ranks[rank].pid = 0;
    l->running--;
}

/* Whether the rank has ended; if so, sees to it. */
static bool reap_rank(launch *l, int r)
{
    siginfo_t info = {0};
    if (l->ranks[r].pid == 0 ||
        waitid(P_PID, (id_t)l->ranks[r].pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
        info.si_pid == 0)
        return false;
    rank_ended(l, r, &info);
    return true;
}

/* In the order in which ranks ended: several may have, the later ones because of the first. epoll
 * lists what became ready first in, first out. */
static void reap(launch *l)
{
    struct epoll_event e;
    while (l->exits >= 0 && epoll_wait(l->exits, &e, 1, 0) == 1) {
        epoll_ctl(l->exits, EPOLL_CTL_DEL, l->ranks[e.data.u32].pidfd, NULL);
        close(l->ranks[e.data.u32].pidfd);
        l->ranks[e.data.u32].pidfd = -1;
        reap_rank(l, (int)e.data.u32);
    }
    for (int r = 0; r < l->nranks; r++)
        if (l->ranks[r].pidfd < 0)
            reap_rank(l, r);
}

/* Has the end of a rank told in its turn; without pidfds (Linux before 5.3) the lower rank is
 * taken for the first. */
static void watch_exit(launch *l, int r)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)r};
    int fd = l->exits < 0 ? -1 : (int)syscall(SYS_pidfd_open, l->ranks[r].pid, 0);
    if (fd >= 0 && epoll_ctl(l->exits, EPOLL_CTL_ADD, fd, &e)) {
        close(fd);
        fd = -1;
    }
    l->ranks[r].pidfd = fd;
}

/* --- the watch -------------------------------------------------------------------------------- */

static void take_signal(launch *l, int fd)
{
    struct signalfd_siginfo s;
    while (read(fd, &s, sizeof s) == (ssize_t)sizeof s) {
        if (s.ssi_signo == SIGCHLD)
            reap(l);
        else
            stop(l, (int)s.ssi_signo, 128 + (int)s.ssi_signo);
    }
}

static int wait_ms(const launch *l)
{
    if (!l->stopping || l->kill_at_ms < 0)
        return -1;
    int64_t left = l->kill_at_ms - now_ms();
    return left > 0 ? (int)left : 0;
}

static void watch(launch *l, int signal_fd, struct pollfd *fds)
{
    reap(l); /* what ended while the others were started */
    while (l->running > 0) {
        int n = 0;
        fds[n++] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
        /* Closed streams are -1, which poll passes over. */
        for (int r = 0; r < l->nranks; r++) {
            fds[n++] = (struct pollfd){.fd = l->ranks[r].out.from, .events = POLLIN};
            fds[n++] = (struct pollfd){.fd = l->ranks[r].err.from, .events = POLLIN};
        }
        poll(fds, (nfds_t)n, wait_ms(l));
        for (int r = 0; r < l->nranks; r++) {
            if (fds[1 + 2 * r].revents)
                launch_stream_pump(&l->ranks[r].out);
            if (fds[2 + 2 * r].revents)
                launch_stream_pump(&l->ranks[r].err);
        }
        if (fds[0].revents)
            take_signal(l, signal_fd);
        if (wait_ms(l) == 0) {
            signal_all(l, SIGKILL);
            l->kill_at_ms = -1;
        }
    }
    for (int r = 0; r < l->nranks; r++) {
        launch_stream_pump(&l->ranks[r].out);
        launch_stream_finish(&l->ranks[r].out);
        launch_stream_pump(&l->ranks[r].err);
        launch_stream_finish(&l->ranks[r].err);
    }
}

/* What is ignored when we start (nohup, a script's background job) stays so, for the ranks too. */
static int open_signals(launch *l)
{
    static const int stopping[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (int i = 0; i < 3; i++) {
        struct sigaction now;
        if (sigaction(stopping[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&watched, stopping[i]);
    }
    /* An ignored SIGCHLD would reap the ranks behind our back. */
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &watched, &l->old_mask);
    return signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int open_arena(launch *l)
{
    l->arena_fd = tsri_arena_create_fd(l->nranks, &l->bytes_per_rank);
    if (l->arena_fd >= 0)
        return 0;
    const char *wanted = getenv("TESSERA_ARENA_BYTES");
    if (l->arena_fd == -EINVAL && wanted)
        fprintf(stderr, "tessera launch: TESSERA_ARENA_BYTES is '%s': expected bytes per rank\n",
                wanted);
    else
        fprintf(stderr,
                "tessera launch: can't make the shared memory of %d ranks x %zu bytes (%s): set "
                "TESSERA_ARENA_BYTES to fewer bytes per rank\n",
                l->nranks, l->bytes_per_rank, strerror(-l->arena_fd));
    return -1;
}

static void start_all(launch *l)
{
    for (int r = 0; r < l->nranks; r++) {
        int rc = launch_start_rank(l, r);
        if (l->ranks[r].pid)
            watch_exit(l, r);
        if (rc == 0)
            continue;
        bool missing = rc == ENOENT;
        fprintf(stderr, "tessera launch: can't run '%s': %s\n", l->argv[0],
                missing && !strchr(l->argv[0], '/') ? "there is no such program in PATH"
                                                    : strerror(rc));
        stop(l, SIGKILL, missing ? CLI_NOT_FOUND : CLI_CANT_RUN);
        return;
    }
}

int cli_launch(int argc, char **argv)
{
    launch_args args = {.nranks = 1};
    int noperands, code = cli_parse(&spec, argc, argv, &args, &noperands);
    if (code >= 0)
        return code;
    launch l = {.nranks = (int)args.nranks,
                .prefix = args.prefix,
                .timeout = args.timeout,
                .argv = argv + 1,
                .arena_fd = -1,
                .exits = -1};
    l.ranks = calloc((size_t)l.nranks, sizeof *l.ranks);
    struct pollfd *fds = calloc(1 + 2 * (size_t)l.nranks, sizeof *fds);
    int signal_fd = -1;
    if (!l.ranks || !fds || (signal_fd = open_signals(&l)) < 0) {
        fprintf(stderr, "tessera launch: %s\n", strerror(errno));
        l.exit_code = CLI_FAILED;
    } else if (open_arena(&l)) {
        l.exit_code = CLI_FAILED;
    } else {
        for (int r = 0; r < l.nranks; r++)
            l.ranks[r].pidfd = l.ranks[r].out.from = l.ranks[r].err.from = -1;
        l.exits = epoll_create1(EPOLL_CLOEXEC);
        start_all(&l);
        watch(&l, signal_fd, fds);
    }
    if (l.arena_fd >= 0)
        close(l.arena_fd);
    if (signal_fd >= 0)
        close(signal_fd);
    if (l.exits >= 0)
        close(l.exits);
    free(fds);
    free(l.ranks);
    return l.exit_code;
}
