/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera launch` and process ranks, from outside. Arguments: the command, and launch_child. */
#include "launch_run.h"
#include "src/comm/local/arena.h"

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
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static run it;

static void test_collectives(void **state)
{
    static const char *const counts[] = {"1", "2", "3", "4", "8"};
    (void)state;
    for (int i = 0; i < 5; i++) {
        RUN(&it, "-n", counts[i], run_child, "collectives");
        run_expect(&it, 0, "ok");
        assert_int_equal(run_count(&it, " ok\n"), atoi(counts[i]));
    }
    RUN(&it, "-n", "3", run_child, "again");
    run_expect(&it, 0, "rank 2 of 3 ok");
}

static void test_inherit_by_path(void **state)
{
    (void)state;
    RUN(&it, "-n", "2", "sh", "-c",
        "f=${TESSERA_ARENA#*:}; f=${f%%:*}; eval \"exec $f>&-\"; exec $0 collectives", run_child);
    run_expect(&it, 0, "rank 1 of 2 ok");
    RUN(&it, "-n", "2", "sh", "-c", "WORLD_SIZE=3 exec $0 collectives", run_child);
    run_expect(&it, 1, "WORLD_SIZE");
    RUN(&it, "-n", "2", "sh", "-c", "RANK=0 exec $0 collectives", run_child);
    run_expect(&it, 1, "is rank 0 already");
}

static void test_exit_codes(void **state)
{
    (void)state;
    RUN(&it, "-n", "3", run_child, "exit");
    run_expect(&it, 7, "rank 1 exited with code 7; stopping the others");
    assert_true(it.seconds < 16);
    RUN(&it, "sh", "-c", "kill -SEGV $$");
    run_expect(&it, 139, "rank 0 was killed by signal 11 (SIGSEGV)");
    RUN(&it, "-n", "2", "/no/such/program");
    run_expect(&it, 127, "/no/such/program");
    RUN(&it, "-n", "2", "no-such-program");
    run_expect(&it, 127, "PATH");
    RUN(&it, "-n", "2", "/etc/passwd");
    run_expect(&it, 126, "Permission denied");
    RUN(&it, "-n", "0", "true");
    run_expect(&it, 2, "--help");
    RUN(&it, "--frobnicate", "true");
    run_expect(&it, 2, "--frobnicate");
    RUN(&it, "-n", "2");
    run_expect(&it, 2, "no program");
    RUN(&it, "--timeout", "-3", "true");
    run_expect(&it, 2, "seconds");
    RUN(&it, "--help");
    run_expect(&it, 0, "--prefix");
}

static void test_rank_killed(void **state)
{
    (void)state;
    /* Within their own time, not the launcher's. */
    RUN(&it, "-n", "3", "--signal-timeout", "30", run_child, "killed");
    run_expect(&it, 137, "rank 2 was killed by signal 9 (SIGKILL)");
    run_expect(&it, 137, "rank 0: TSR_ERR_DEAD after a moment: rank 2 died");
    run_expect(&it, 137, "rank 1: TSR_ERR_DEAD after a moment: rank 2 died");
    RUN(&it, "-n", "3", "--signal-timeout", "30", run_child, "killed_sending");
    run_expect(&it, 137, "rank 0: TSR_ERR_DEAD after a moment: rank 2 died");
    run_expect(&it, 137, "rank 1: TSR_ERR_DEAD after a moment: rank 2 died");
    RUN(&it, "-n", "3", "--timeout", "10", run_child, "never");
    run_expect(&it, 1, "rank 1 died");
    RUN(&it, "-n", "2", "--timeout", "0.5", "sh", "-c", "[ $RANK = 0 ] && exec $0; sleep 9",
        run_child);
    run_expect(
        &it, 1,
        "rank 1 did not come to barrier #1 'tsr_world_barrier' within 0.5 s; it has not made "
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
            execl(run_child, run_child, "killed", (char *)NULL);
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
    RUN(&it, "-n", "3", "--prefix", "sh", "-c",
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
    RUN(&it, "-n", "2", "--", "sh", "-c",
        "echo $RANK.$LOCAL_RANK.$WORLD_SIZE.$LOCAL_WORLD_SIZE.$GROUP_RANK.$MASTER_ADDR."
        "${OMP_NUM_THREADS:+set}.$GROUP_WORLD_SIZE.$TESSERA_RESTART_COUNT.$TESSERA_MAX_RESTARTS."
        "${TESSERA_STORE_HOSTED-alone}; [ $MASTER_PORT -gt 1023 ] && [ $MASTER_PORT != 1234 ]");
    run_expect(&it, 0, "0.0.2.2.0.127.0.0.1.set.1.0.0.alone\n");
    run_expect(&it, 0, "1.1.2.2.0.127.0.0.1.set.1.0.0.alone\n");
    setenv("OMP_NUM_THREADS", "5", 1);
    RUN(&it, "sh", "-c", "echo threads $OMP_NUM_THREADS $TESSERA_TIMEOUT_S.");
    run_expect(&it, 0, "threads 5 .");
    RUN(&it, "--timeout=2.5", "sh", "-c", "echo $TESSERA_TIMEOUT_S; cat");
    run_expect(&it, 0, "2.5");
    setenv("OMP_NUM_THREADS", "1", 1);
    unsetenv("MASTER_PORT");
}

static void stop_with(int sig, const char *script)
{
    const char *const args[] = {"-n", "2", "sh", "-c", script, NULL};
    run_begin(&it, args);
    run_read_until(&it, "pid ", 4); /* two ranks, and what each has started */
    kill(it.pid, sig);
}

static void test_signals(void **state)
{
    static const char obedient[] = "sleep 60 & echo pid $!.; echo pid $$.; wait";
    static const char stubborn[] =
        "trap '' INT TERM; sh -c 'echo pid $$.; sleep 60; sleep 60' & echo pid $$.; wait; wait";
    (void)state;
    stop_with(SIGINT, obedient);
    run_end(&it);
    assert_int_equal(it.code, 130);
    run_expect_gone(&it);
    stop_with(SIGTERM, obedient);
    run_end(&it);
    assert_int_equal(it.code, 143);
    run_expect_gone(&it);
    assert_true(it.seconds < 12);
    /* As in a script's background job. */
    it.ignore_int = true;
    stop_with(SIGINT, obedient);
    it.ignore_int = false;
    usleep(300000);
    assert_int_equal(kill(it.pid, SIGTERM), 0);
    run_end(&it);
    assert_int_equal(it.code, 143);
    run_expect_gone(&it);
    /* Twice: at once. */
    stop_with(SIGINT, stubborn);
    usleep(300000);
    kill(it.pid, SIGINT);
    run_end(&it);
    assert_int_equal(it.code, 130);
    assert_true(it.seconds < 12);
    run_expect_gone(&it);
    /* Once: after five seconds. */
    stop_with(SIGTERM, stubborn);
    run_end(&it);
    assert_int_equal(it.code, 143);
    assert_true(it.seconds > 4.5 && it.seconds < 36);
    run_expect_gone(&it);
}

/* A rank that SIGKILL does not end at once: we trace it, and let it die when it has been told of.
 */
static void test_stuck(void **state)
{
    const char *const args[] = {"sh", "-c", "trap '' TERM; echo pid $$.; exec sleep 60", NULL};
    char expected[64];
    int status;
    (void)state;
    run_begin(&it, args);
    run_read_until(&it, "pid ", 1);
    pid_t pid = (pid_t)strtol(strstr(it.text, "pid ") + 4, NULL, 10);
    long traced = ptrace(PTRACE_SEIZE, pid, NULL, (void *)(uintptr_t)PTRACE_O_TRACEEXIT);
    for (int i = 0; i < 2; i++) {
        kill(it.pid, SIGTERM);
        usleep(300000);
    }
    if (traced) {
        run_end(&it);
        skip();
    }
    snprintf(expected, sizeof expected, "rank 0 (pid %d) does not end", (int)pid);
    run_read_until(&it, expected, 1);
    while (waitpid(pid, &status, __WALL) == pid && !WIFSIGNALED(status))
        ptrace(PTRACE_CONT, pid, NULL, NULL);
    run_end(&it);
    run_expect(&it, 143, expected);
}

static void test_launcher_killed(void **state)
{
    (void)state;
    const char *const args[] = {"-n", "2", "sh", "-c", "echo pid $$.; echo pid $$.; exec sleep 60",
                                NULL};
    run_begin(&it, args);
    run_read_until(&it, "pid ", 4);
    kill(it.pid, SIGKILL);
    run_end(&it);
    assert_int_equal(it.code, 1009);
    run_expect_gone(&it);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s TESSERA LAUNCH_CHILD\n", argv[0]);
        return 2;
    }
    run_tessera = argv[1];
    run_child = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_inherit_by_path),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_rank_killed),
        cmocka_unit_test(test_killed_unwatched),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_launcher_killed),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
