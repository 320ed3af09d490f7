/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera launch`: runs a program as several ranks on this machine, and sees to it that they end
 * together. */
#include "src/cli/launch.h"
#include "src/cli/cli.h"
#include "src/comm/arena.h"

#include <errno.h>
#include <getopt.h>
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

static const char usage[] =
    "usage: tessera launch [-n N] [--prefix] [--timeout S] [--] PROG [ARGS...]\n";
static const char help[] =
    "\n"
    "Runs PROG as N ranks (default 1), which find each other through shared memory. If one\n"
    "fails, the others are stopped, and its exit code is returned.\n"
    "\n"
    "  -n N          ranks\n"
    "  --prefix      put \"[rank] \" before each line of output\n"
    "  --timeout S   seconds that a rank waits for the others in a collective (default 60)\n"
    "  --help        this text\n";

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- the command line ------------------------------------------------------------------------- */

static int bad_usage(const char *what, const char *which)
{
    fprintf(stderr, "tessera launch: %s%s\n%sTry `tessera launch --help`.\n", what, which, usage);
    return CLI_USAGE;
}

static bool parse_count(const char *text, int *out_count)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < 1 || v > TSRI_ARENA_MAX_RANKS)
        return false;
    *out_count = (int)v;
    return true;
}

static bool is_seconds(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    return end != text && !*end && v > 0 && v < 1e9;
}

/* Returns -1 to go on, else the exit code. */
static int parse(launch *l, int argc, char **argv)
{
    static const struct option options[] = {{"prefix", no_argument, NULL, 'p'},
                                            {"timeout", required_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "+:n:h", options, NULL)) != -1;) {
        switch (c) {
        case 'n':
            if (!parse_count(optarg, &l->nranks))
                return bad_usage("-n needs a number of ranks, 1 to 256, not ", optarg);
            break;
        case 'p':
            l->prefix = true;
            break;
        case 't':
            if (!is_seconds(optarg))
                return bad_usage("--timeout needs seconds, above 0, not ", optarg);
            l->timeout = optarg;
            break;
        case 'h':
            printf("%s%s", usage, help);
            return CLI_OK;
        case ':':
            return bad_usage("a value is missing after ", argv[optind - 1]);
        default:
            return bad_usage("there is no option ", argv[optind - 1]);
        }
    }
    if (optind >= argc)
        return bad_usage("no program to run", "");
    l->argv = argv + optind;
    return -1;
}

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
    launch l = {.nranks = 1, .arena_fd = -1, .exits = -1};
    int code = parse(&l, argc, argv);
    if (code >= 0)
        return code;
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
