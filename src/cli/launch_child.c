/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one rank: its variables, descriptors and process group. */
#include "src/cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static void set_number(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

static void set_variables(const launch *l, int rank, pid_t launcher)
{
    char arena[64];
    snprintf(arena, sizeof arena, "%d:%d:%zu", (int)launcher, l->arena_fd, l->bytes_per_rank);
    setenv("TESSERA_ARENA", arena, 1);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", l->nranks);
    set_number("LOCAL_WORLD_SIZE", l->nranks);
    set_number("GROUP_RANK", 0);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    /* No port is opened. One that an outer launcher left would mislead. */
    unsetenv("MASTER_PORT");
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    if (!getenv("OMP_NUM_THREADS"))
        set_number("OMP_NUM_THREADS", cores / l->nranks > 1 ? cores / l->nranks : 1);
    if (l->timeout)
        setenv("TESSERA_TIMEOUT_S", l->timeout, 1);
}

/* Rank 0 reads what the launcher is fed, but not a terminal: a process group in the background
 * would be stopped for that. */
static void set_stdin(int rank)
{
    if (rank == 0 && !isatty(STDIN_FILENO))
        return;
    int null = open("/dev/null", O_RDONLY);
    if (null > 0) {
        dup2(null, STDIN_FILENO);
        close(null);
    }
}

static void become_rank(const launch *l, int rank, pid_t launcher, const int out[2],
                        const int err[2], int failed)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The launcher may have died before the line above. */
    if (getppid() != launcher)
        _exit(1);
    sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    set_variables(l, rank, launcher);
    set_stdin(rank);
    if (l->prefix) {
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
    }
    fcntl(l->arena_fd, F_SETFD, 0);
    execvp(l->argv[0], l->argv);
    int why = errno;
    if (write(failed, &why, sizeof why) != (ssize_t)sizeof why)
        _exit(126);
    _exit(127);
}

static void close_pair(int fd[2])
{
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

/* The parent's side: waits until the child runs its program, or can't. */
static int read_failure(int fd)
{
    int why = 0;
    ssize_t n;
    do
        n = read(fd, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof why ? why : 0;
}

static launch_stream stream_of(const launch *l, int fd, int to, int rank)
{
    if (l->prefix)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    return (launch_stream){.from = fd, .to = to, .rank = rank};
}

int launch_start_rank(launch *l, int rank)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, failed[2] = {-1, -1}, rc = 0;
    pid_t launcher = getpid(), pid = -1;
    if (pipe2(failed, O_CLOEXEC) || (l->prefix && (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))))
        rc = errno;
    if (!rc && (pid = fork()) < 0)
        rc = errno;
    if (pid == 0)
        become_rank(l, rank, launcher, out, err, failed[1]);
    if (rc) {
        close_pair(failed);
        close_pair(out);
        close_pair(err);
        return rc;
    }
    setpgid(pid, pid); /* whoever of the two is first */
    close(failed[1]);
    rc = read_failure(failed[0]);
    close(failed[0]);
    l->ranks[rank] = (launch_rank){.pid = pid,
                                   .pidfd = -1,
                                   .out = stream_of(l, out[0], STDOUT_FILENO, rank),
                                   .err = stream_of(l, err[0], STDERR_FILENO, rank)};
    if (l->prefix) {
        close(out[1]);
        close(err[1]);
    }
    l->running++;
    return rc;
}
