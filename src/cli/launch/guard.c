/* SPDX-License-Identifier: Apache-2.0 */
/* The guard: a process that outlives a killed launcher for a moment. Ranks are killed by the system
 * then (PR_SET_PDEATHSIG), but not what they have started, such as a program behind a shell. The
 * guard kills their process groups, of which it knows by a pipe, once nobody can write to that. */
#include "src/cli/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORGET = 0 }; /* in place of a group */

/* Keeps nothing of the launcher's but the pipe: neither its output's pipes nor the ranks' memory.
 * groups: room for `most`. */
static _Noreturn void be_guard(int from, pid_t *groups, int most)
{
    static const int others[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    int n = 0;
    pid_t group;
    ssize_t got;
    setpgid(0, 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        signal(others[i], SIG_IGN);
    dup2(from, STDIN_FILENO);
    close_range(STDIN_FILENO + 1, ~0U, 0);
    while ((got = read(STDIN_FILENO, &group, sizeof group)) != 0) {
        if (got < 0 && errno != EINTR)
            break;
        if (got == (ssize_t)sizeof group && group == FORGET)
            n = 0;
        else if (got == (ssize_t)sizeof group && n < most)
            groups[n++] = group;
    }
    for (int i = 0; i < n; i++)
        kill(-groups[i], SIGKILL);
    _exit(0);
}

void launch_guard_open(launch *l)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return;
    /* The reading end stays open, so that no write is a SIGPIPE should the guard be gone. */
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    l->to_guard = ends[1];
    l->from_guard = ends[0];
}

void launch_guard_start(launch *l)
{
    if (l->to_guard < 0 || l->guard > 0)
        return;
    pid_t *groups = calloc((size_t)l->config.nlocal, sizeof *groups);
    pid_t pid = groups ? fork() : -1;
    if (pid == 0)
        be_guard(l->from_guard, groups, l->config.nlocal);
    free(groups);
    l->guard = pid;
}

void launch_guard_tell(const launch *l, pid_t group)
{
    /* Without a guard, ranks are killed, and what they have started is not. */
    if (l->to_guard >= 0 && write(l->to_guard, &group, sizeof group) < 0)
        return;
}

void launch_guard_forget(const launch *l)
{
    launch_guard_tell(l, FORGET);
}

void launch_guard_close(launch *l)
{
    if (l->to_guard < 0)
        return;
    close(l->to_guard);
    close(l->from_guard);
    if (l->guard > 0)
        waitpid(l->guard, NULL, 0);
    l->to_guard = l->from_guard = -1;
}
