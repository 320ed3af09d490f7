/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_run.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { MAX_ARGS = 24, PATIENCE_MS = 60000 };

const char *run_tessera, *run_child;

double run_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void run_begin(run *r, const char *const *args)
{
    const char *argv[MAX_ARGS + 3] = {run_tessera, "launch"};
    int fds[2];
    for (int i = 0; (argv[i + 2] = args[i]); i++)
        assert_true(i < MAX_ARGS);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    *r = (run){.ignore_int = r->ignore_int, .seconds = run_now_s()};
    r->pid = fork();
    if (r->pid == 0) {
        signal(SIGINT, r->ignore_int ? SIG_IGN : SIG_DFL); /* whatever we inherited */
        dup2(fds[1], 1);
        dup2(fds[1], 2);
        char *copy[MAX_ARGS + 3];
        memcpy(copy, argv, sizeof copy);
        execv(run_tessera, copy);
        _exit(99);
    }
    close(fds[1]);
    r->from = fds[0];
}

void run_read_some(run *r)
{
    struct pollfd p = {.fd = r->from, .events = POLLIN};
    if (poll(&p, 1, PATIENCE_MS) != 1)
        fail_msg("nothing for a minute; so far: %s", r->text);
    ssize_t n = read(r->from, r->text + r->used, sizeof r->text - 1 - r->used);
    if (n > 0)
        r->used += (size_t)n;
    else
        r->from = (close(r->from), -1);
}

void run_read_until(run *r, const char *part, int n)
{
    while (r->from >= 0 && run_count(r, part) < n)
        run_read_some(r);
}

void run_end(run *r)
{
    int status;
    struct rusage use;
    while (r->from >= 0)
        run_read_some(r);
    wait4(r->pid, &status, 0, &use);
    r->cpu_s = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
               1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    r->seconds = run_now_s() - r->seconds;
    r->code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int run_count(const run *r, const char *part)
{
    int n = 0;
    for (const char *p = r->text; (p = strstr(p, part)); p++)
        n++;
    return n;
}

void run_expect(const run *r, int code, const char *part)
{
    if (r->code != code || !strstr(r->text, part))
        fail_msg("expected %d and '%s', got %d and: %s", code, part, r->code, r->text);
}

/* Zombies count as gone: orphans are reaped by the system's first process, when it likes. */
static bool is_gone(pid_t pid)
{
    char path[32], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return true;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    const char *paren = strrchr(line, ')');
    return !paren || paren[2] == 'Z' || paren[2] == 'X';
}

void run_expect_gone(const run *r)
{
    int said = 0;
    for (const char *p = r->text; (p = strstr(p, "pid ")); p++) {
        pid_t pid = (pid_t)strtol(p + 4, NULL, 10);
        double start = run_now_s();
        while (!is_gone(pid) && run_now_s() - start < 2)
            usleep(10000);
        if (!is_gone(pid))
            fail_msg("process %d is still there", (int)pid);
        said++;
    }
    assert_true(said > 0);
}
