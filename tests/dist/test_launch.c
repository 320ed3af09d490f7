/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera launch` and process ranks, from outside. Arguments: the command, and launch_child. */
#include "src/comm/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static const char *tessera, *child;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A command under way. Its stdout and stderr come in `text`, mixed. */
typedef struct run {
    pid_t pid;
    int from, code;
    double seconds;
    char text[1 << 18];
    size_t used;
} run;

static run it;
static bool ignore_int;

enum { MAX_ARGS = 16 };

/* args: up to NULL, behind `tessera launch`. */
static void begin(const char *const *args)
{
    const char *argv[MAX_ARGS + 3] = {tessera, "launch"};
    int fds[2];
    for (int i = 0; (argv[i + 2] = args[i]); i++)
        assert_true(i < MAX_ARGS);
    assert_int_equal(pipe(fds), 0);
    fcntl(fds[0], F_SETFD, FD_CLOEXEC);
    memset(&it, 0, sizeof it);
    it.seconds = now_s();
    it.pid = fork();
    if (it.pid == 0) {
        signal(SIGINT, ignore_int ? SIG_IGN : SIG_DFL); /* whatever we inherited */
        dup2(fds[1], 1);
        dup2(fds[1], 2);
        close(fds[1]);
        char *copy[MAX_ARGS + 3];
        memcpy(copy, argv, sizeof copy);
        execv(tessera, copy);
        _exit(99);
    }
    close(fds[1]);
    it.from = fds[0];
}

static void read_some(void)
{
    ssize_t n = read(it.from, it.text + it.used, sizeof it.text - 1 - it.used);
    if (n > 0)
        it.used += (size_t)n;
    else
        it.from = (close(it.from), -1);
}

/* Until the output has `part` (NULL: its end). */
static void read_until(const char *part)
{
    while (it.from >= 0 && !(part && strstr(it.text, part))) {
        struct pollfd p = {.fd = it.from, .events = POLLIN};
        if (poll(&p, 1, 20000) != 1)
            fail_msg("no end after 20 s; so far: %s", it.text);
        read_some();
    }
}

static void end(void)
{
    int status;
    read_until(NULL);
    waitpid(it.pid, &status, 0);
    it.seconds = now_s() - it.seconds;
    it.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#define RUN(...)                                         \
    do {                                                 \
        const char *const args_[] = {__VA_ARGS__, NULL}; \
        begin(args_);                                    \
        end();                                           \
    } while (0)

static int count(const char *part)
{
    int n = 0;
    for (const char *p = it.text; (p = strstr(p, part)); p++)
        n++;
    return n;
}

static void expect(int code, const char *part)
{
    if (it.code != code || !strstr(it.text, part))
        fail_msg("expected %d and '%s', got %d and: %s", code, part, it.code, it.text);
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

/* A process that says its number as "pid N." must be gone soon. */
static void expect_gone(void)
{
    int said = 0;
    for (const char *p = it.text; (p = strstr(p, "pid ")); p++) {
        pid_t pid = (pid_t)strtol(p + 4, NULL, 10);
        double start = now_s();
        while (!is_gone(pid) && now_s() - start < 2)
            usleep(10000);
        if (!is_gone(pid))
            fail_msg("process %d is still there", (int)pid);
        said++;
    }
    assert_true(said > 0);
}

static void test_collectives(void **state)
{
    static const char *const counts[] = {"1", "2", "3", "4", "8"};
    (void)state;
    for (int i = 0; i < 5; i++) {
        RUN("-n", counts[i], child, "collectives");
        expect(0, "ok");
        assert_int_equal(count(" ok\n"), atoi(counts[i]));
    }
    RUN("-n", "3", child, "again");
    expect(0, "rank 2 of 3 ok");
}

static void test_inherit_by_path(void **state)
{
    (void)state;
    RUN("-n", "2", "sh", "-c",
        "f=${TESSERA_ARENA#*:}; f=${f%%:*}; eval \"exec $f>&-\"; exec $0 collectives", child);
    expect(0, "rank 1 of 2 ok");
    RUN("-n", "2", "sh", "-c", "WORLD_SIZE=3 exec $0 collectives", child);
    expect(1, "WORLD_SIZE");
    RUN("-n", "2", "sh", "-c", "RANK=0 exec $0 collectives", child);
    expect(1, "is rank 0 already");
}

static void test_exit_codes(void **state)
{
    (void)state;
    RUN("-n", "3", child, "exit");
    expect(7, "rank 1 exited with code 7; stopping the others");
    assert_true(it.seconds < 4);
    RUN("sh", "-c", "kill -SEGV $$");
    expect(139, "rank 0 was killed by signal 11 (SIGSEGV)");
    RUN("-n", "2", "/no/such/program");
    expect(127, "/no/such/program");
    RUN("-n", "2", "no-such-program");
    expect(127, "PATH");
    RUN("-n", "2", "/etc/passwd");
    expect(126, "Permission denied");
    RUN("-n", "0", "true");
    expect(2, "--help");
    RUN("--frobnicate", "true");
    expect(2, "--frobnicate");
    RUN("-n", "2");
    expect(2, "no program");
    RUN("--timeout", "-3", "true");
    expect(2, "seconds");
    RUN("--help");
    expect(0, "--prefix");
}

static void test_rank_killed(void **state)
{
    (void)state;
    RUN("-n", "3", child, "killed");
    expect(137, "rank 2 was killed by signal 9 (SIGKILL)");
    expect(137, "rank 0: TSR_ERR_DEAD after a moment: rank 2 died");
    expect(137, "rank 1: TSR_ERR_DEAD after a moment: rank 2 died");
    RUN("-n", "3", child, "killed_sending");
    expect(137, "rank 0: TSR_ERR_DEAD after a moment: rank 2 died");
    expect(137, "rank 1: TSR_ERR_DEAD after a moment: rank 2 died");
    RUN("-n", "3", "--timeout", "10", child, "never");
    expect(1, "rank 1 died");
    RUN("-n", "2", "--timeout", "0.5", "sh", "-c", "[ $RANK = 0 ] && exec $0; sleep 9", child);
    expect(1, "rank 1 did not come to barrier #1 'tsr_world_barrier' within 0.5 s; it has not made "
              "its world yet");
}

/* Without a launcher that watches: the ranks' own look at each other. The dead are not reaped. */
static void test_killed_unwatched(void **state)
{
    (void)state;
    size_t bytes = 1 << 20;
    int fds[2], fd = tsri_arena_create_fd(2, &bytes);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETFD, 0), 0);
    assert_int_equal(pipe(fds), 0);
    char arena[64], rank[2] = "0";
    snprintf(arena, sizeof arena, "%d:%d:%zu", (int)getpid(), fd, bytes);
    setenv("TESSERA_ARENA", arena, 1);
    setenv("WORLD_SIZE", "2", 1);
    pid_t pid[2];
    for (int r = 0; r < 2; r++) {
        rank[0] = (char)('0' + r);
        setenv("RANK", rank, 1);
        pid[r] = fork();
        if (pid[r] == 0) {
            dup2(fds[1], 1);
            execl(child, child, "killed", (char *)NULL);
            _exit(99);
        }
    }
    unsetenv("TESSERA_ARENA");
    unsetenv("WORLD_SIZE");
    unsetenv("RANK");
    close(fd);
    int status;
    waitpid(pid[0], &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    char text[4096] = "";
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    if (!strstr(text, "rank 0: TSR_ERR_DEAD after a moment: rank 1 died"))
        fail_msg("%s", text);
    waitpid(pid[1], &status, 0);
    assert_true(WIFSIGNALED(status));
    close(fds[0]);
    close(fds[1]);
}

static void test_prefix(void **state)
{
    (void)state;
    RUN("-n", "3", "--prefix", "sh", "-c",
        "for i in 1 2 3 4 5 6 7 8 9; do printf 'one '; printf 'line '; echo $RANK $i; "
        "echo problem $RANK >&2; done; printf unended");
    assert_int_equal(it.code, 0);
    int lines = 0;
    for (char *save, *line = strtok_r(it.text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        int tag, rank = -1, i = 0, at = 0;
        bool whole = sscanf(line, "[%d] one line %d %d%n", &tag, &rank, &i, &at) == 3 ||
                     sscanf(line, "[%d] problem %d%n", &tag, &rank, &at) == 2;
        if (!whole && sscanf(line, "[%d] unended%n", &tag, &at) == 1)
            rank = tag;
        if (rank != tag || at != (int)strlen(line))
            fail_msg("a broken line: %s", line);
        lines++;
    }
    assert_int_equal(lines, 3 * 19);
}

static void test_variables(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    setenv("MASTER_PORT", "1234", 1);
    RUN("-n", "2", "--", "sh", "-c",
        "echo $RANK.$LOCAL_RANK.$WORLD_SIZE.$LOCAL_WORLD_SIZE.$GROUP_RANK.$MASTER_ADDR."
        "${MASTER_PORT-none}.${OMP_NUM_THREADS:+set}");
    expect(0, "0.0.2.2.0.127.0.0.1.none.set\n");
    expect(0, "1.1.2.2.0.127.0.0.1.none.set\n");
    setenv("OMP_NUM_THREADS", "5", 1);
    RUN("sh", "-c", "echo threads $OMP_NUM_THREADS $TESSERA_TIMEOUT_S.");
    expect(0, "threads 5 .");
    RUN("--timeout=2.5", "sh", "-c", "echo $TESSERA_TIMEOUT_S; cat");
    expect(0, "2.5");
    setenv("OMP_NUM_THREADS", "1", 1);
    unsetenv("MASTER_PORT");
}

static void stop_with(int sig, const char *script)
{
    const char *const args[] = {"-n", "2", "sh", "-c", script, NULL};
    begin(args);
    while (count("pid ") < 4 && it.from >= 0) /* two ranks, and what each has started */
        read_some();
    kill(it.pid, sig);
}

static void test_signals(void **state)
{
    static const char obedient[] = "sleep 60 & echo pid $!.; echo pid $$.; wait";
    static const char stubborn[] =
        "trap '' INT TERM; sh -c 'echo pid $$.; sleep 60; sleep 60' & echo pid $$.; wait; wait";
    (void)state;
    stop_with(SIGINT, obedient);
    end();
    assert_int_equal(it.code, 130);
    expect_gone();
    stop_with(SIGTERM, obedient);
    end();
    assert_int_equal(it.code, 143);
    expect_gone();
    assert_true(it.seconds < 3);
    /* As in a script's background job. */
    ignore_int = true;
    stop_with(SIGINT, obedient);
    ignore_int = false;
    usleep(300000);
    assert_int_equal(kill(it.pid, SIGTERM), 0);
    end();
    assert_int_equal(it.code, 143);
    expect_gone();
    /* Twice: at once. */
    stop_with(SIGINT, stubborn);
    usleep(300000);
    kill(it.pid, SIGINT);
    end();
    assert_int_equal(it.code, 130);
    assert_true(it.seconds < 3);
    expect_gone();
    /* Once: after five seconds. */
    stop_with(SIGTERM, stubborn);
    end();
    assert_int_equal(it.code, 143);
    assert_true(it.seconds > 4.5 && it.seconds < 9);
    expect_gone();
}

static void test_launcher_killed(void **state)
{
    (void)state;
    const char *const args[] = {"-n", "2", "sh", "-c", "echo pid $$.; echo pid $$.; exec sleep 60",
                                NULL};
    begin(args);
    while (count("pid ") < 4 && it.from >= 0)
        read_some();
    kill(it.pid, SIGKILL);
    end();
    assert_int_equal(it.code, 1009);
    expect_gone();
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s TESSERA LAUNCH_CHILD\n", argv[0]);
        return 2;
    }
    tessera = argv[1];
    child = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),      cmocka_unit_test(test_inherit_by_path),
        cmocka_unit_test(test_exit_codes),       cmocka_unit_test(test_rank_killed),
        cmocka_unit_test(test_killed_unwatched), cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_variables),        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_launcher_killed),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
