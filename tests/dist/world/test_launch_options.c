/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `tessera launch` on one node. Arguments: the command, and launch_child. */
#include "launch_run.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <cmocka.h>

static run it;

static int cores(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static void expect_rank_a_core(const char *too_many)
{
    if (cores() > 256)
        run_expect(&it, 2, too_many);
    else
        assert_int_equal(run_count(&it, "x\n"), cores());
}

static void test_number_of_ranks(void **state)
{
    (void)state;
    unsetenv("CUDA_VISIBLE_DEVICES");
    RUN(&it, "--nproc-per-node", "3", "echo", "x");
    assert_int_equal(run_count(&it, "x\n"), 3);
    RUN(&it, "--nproc_per_node=2", "echo", "x");
    assert_int_equal(run_count(&it, "x\n"), 2);
    RUN(&it, "--nproc-per-node", "cpu", "echo", "x");
    expect_rank_a_core("--nproc-per-node cpu is ");
    RUN(&it, "-n", "gpu", "--gpu", "3,1,4", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES.");
    assert_int_equal(run_count(&it, "3,1,4.\n"), 3);
    setenv("CUDA_VISIBLE_DEVICES", "2,5,-1,7", 1);
    RUN(&it, "-n", "auto", "echo", "x");
    assert_int_equal(run_count(&it, "x\n"), 2);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    RUN(&it, "-n", "auto", "echo", "x");
    expect_rank_a_core("-n auto is ");
    RUN(&it, "-n", "gpu", "true");
    run_expect(&it, 2, "there is no GPU here");
    char many[2 * 257] = "0";
    for (int i = 1; i < 257; i++)
        strcat(many, ",0");
    RUN(&it, "-n", "gpu", "--gpu", many, "true");
    run_expect(&it, 2, "-n gpu is 257 here, but a node has at most 256 ranks");
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void test_wrong_values(void **state)
{
    static const char *const wrong[][5] = {
        {"-n", "0", "true", NULL, "-n needs a number of ranks, 1 to 256, not 0"},
        {"--nproc-per-node", "1x", "true", NULL, "--nproc-per-node needs a number of ranks"},
        {"--nnodes", "0", "true", NULL, "--nnodes needs a number of nodes"},
        {"--nnodes", "1:2", "true", NULL, "give one number"},
        {"--nnodes", "1:0", "true", NULL, "--nnodes needs a number of nodes, 1 to 4096, not 1:0"},
        {"--nnodes", "1:4097", "true", NULL, "--nnodes needs a number of nodes, 1 to 4096"},
        {"--nnodes", "4097", "true", NULL, "--nnodes needs a number of nodes, 1 to 4096, not 4097"},
        {"--nnodes", "1:", "true", NULL, "--nnodes needs a number of nodes, 1 to 4096, not 1:"},
        {"--nnodes", ":1", "true", NULL, "--nnodes needs a number of nodes, 1 to 4096, not :1"},
        {"--nnodes", "4096:4096", "true", NULL, "--master-addr or --rdzv-endpoint is missing"},
        {"--nnodes=2", "--master-addr=x", "--node-rank=2", "true",
         "--node-rank is 2, but --nnodes is 2"},
        {"--nnodes", "2", "true", NULL, "--master-addr or --rdzv-endpoint is missing"},
        {"--nnodes=2", "--master-addr=x", "true", NULL, "--node-rank is missing: 0 to 1"},
        {"--nnodes=2", "--rdzv-endpoint=x:0", "true", NULL, "port 0 is for one node"},
        {"--nnodes=2", "--standalone", "true", NULL, "--standalone is for one node"},
        {"--node-rank", "1", "true", NULL, "--node-rank 1, but --nnodes is 1"},
        {"--master-port", "65536", "true", NULL, "--master-port needs a port, 0 to 65535"},
        {"--rdzv-endpoint", "[::1:3", "true", NULL, "--rdzv-endpoint needs HOST:PORT"},
        {"--rdzv-endpoint", "x:65536", "true", NULL, "--rdzv-endpoint needs HOST:PORT"},
        {"--rdzv-endpoint", ":1", "true", NULL, "--rdzv-endpoint needs HOST:PORT, not :1"},
        {"--rdzv-endpoint", "[]:1", "true", NULL, "--rdzv-endpoint needs HOST:PORT, not []:1"},
        {"--rdzv-endpoint=x", "--master-addr=x", "true", NULL, "give one"},
        {"--rdzv-backend", "etcd", "true", NULL, "--rdzv-backend needs static or c10d"},
        {"--rdzv-id", "a/b", "true", NULL, "--rdzv-id needs"},
        {"--rdzv-id", "..", "true", NULL, "--rdzv-id needs"},
        {"--rdzv-id=", "true", NULL, NULL, "--rdzv-id needs up to 64 letters, digits and "},
        {"--rdzv-id", "a123456789b123456789c123456789d123456789e123456789f123456789g1234", "true",
         NULL, "--rdzv-id needs up to 64 letters"},
        {"--max-restarts", "-1", "true", NULL, "--max-restarts needs"},
        {"--monitor-interval", "0", "true", NULL, "--monitor-interval needs seconds"},
        {"--signal-timeout", "x", "true", NULL, "--signal-timeout needs seconds"},
        {"--tee", "3", "true", NULL, "--tee needs --log-dir"},
        {"-r", "1", "true", NULL, "--redirects needs --log-dir"},
        {"--log-dir=/tmp", "-r", "4", "true", "--redirects needs 0 none"},
        {"--log-dir=/tmp", "-r", "0:4", "true", "--redirects needs 0 none"},
        {"--log-dir=", "true", NULL, NULL, "--log-dir needs a folder"},
        {"--log-dir=/tmp", "-t", "1:1", "true", "--tee needs 0 none"},
        {"--log-dir=/tmp", "-t", "", "true", "--tee needs 0 none"},
        {"--log-dir=/tmp", "--tee=0:", "true", NULL, "--tee needs 0 none"},
        {"--log-dir=/tmp", "-t", "0:1,", "true", "--tee needs 0 none"},
        {"--local-ranks-filter", "0,1", "true", NULL, "--local-ranks-filter needs ranks below 1"},
        {"--local-ranks-filter", "", "true", NULL, "--local-ranks-filter needs ranks below 1"},
        {"--local-ranks-filter", "0,", "true", NULL, "--local-ranks-filter needs ranks below 1"},
        {"--gpu", "0,,1", "true", NULL, "--gpu needs GPUs"},
        {"--gpu", "", "true", NULL, "--gpu needs GPUs, like 0,1, not ''"},
        {"-n2", "--nproc-per-node=2", "true", NULL, "-n and --nproc-per-node say the same"},
        {"--pin", "socket", "true", NULL, "--pin needs auto, none or core"},
        {"--log-dir=/dev/null", "true", NULL, NULL, "can't pass on the output of rank 0 to /dev/"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const args[] = {wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3], NULL};
        run_begin(&it, args);
        run_end(&it);
        run_expect(&it, i + 1 == sizeof wrong / sizeof *wrong ? 1 : 2, wrong[i][4]);
    }
}

static void test_variables(void **state)
{
    (void)state;
    setenv("TESSERA_STORE_HOSTED", "1", 1);
    RUN(&it, "-n", "2", "--master-addr", "127.0.0.1", "--master-port", "4321", "--max-restarts",
        "2", "--rdzv-id", "job.1", "--nnodes=1:1", "sh", "-c",
        "echo $MASTER_ADDR:$MASTER_PORT $TESSERA_RUN_ID $TORCHELASTIC_RUN_ID "
        "$TORCHELASTIC_MAX_RESTARTS $TESSERA_MAX_RESTARTS ${TESSERA_STORE_HOSTED-none} $0 $1 $2",
        "r=${rank}", "l=${local_rank}${local_rank}", "${other}${rank");
    unsetenv("TESSERA_STORE_HOSTED");
    run_expect(&it, 0, "127.0.0.1:4321 job.1 job.1 2 2 none r=0 l=00 ${other}${rank\n");
    run_expect(&it, 0, "127.0.0.1:4321 job.1 job.1 2 2 none r=1 l=11 ${other}${rank\n");
    RUN(&it, "--rdzv-endpoint", "[::1]:77", "sh", "-c", "echo $MASTER_ADDR at $MASTER_PORT.");
    run_expect(&it, 0, "::1 at 77.");
    RUN(&it, "--standalone", "--master-port", "0", "sh", "-c",
        "[ $MASTER_PORT -gt 1023 ] && echo $MASTER_ADDR");
    run_expect(&it, 0, "127.0.0.1\n");
}

/* What is in a file of the log. */
static void expect_log(const char *path, const char *text)
{
    char found[256] = "";
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("there is no %s", path);
    size_t n = fread(found, 1, sizeof found - 1, f);
    found[n] = 0;
    fclose(f);
    if (strcmp(found, text) != 0)
        fail_msg("%s has '%s', expected '%s'", path, found, text);
}

static void test_logs(void **state)
{
    /* Rank 0 fails when rank 1 has said all. */
    static const char script[] =
        "echo out $RANK; echo err $RANK >&2; echo $TESSERA_FLIGHT_DIR; [ $RANK = 1 ] && exit 0; "
        "until grep -q attempt $TESSERA_FLIGHT_DIR/1/stdout.log 2>/dev/null; do sleep 0.02; done; "
        "exit $((1 - TESSERA_RESTART_COUNT))";
    char folder[] = "/tmp/tessera-logs-XXXXXX", path[256], text[128];
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    RUN(&it, "-n", "2", "--log-dir", folder, "--rdzv-id", "a", "-r", "0:3", "-t", "1:1",
        "--max-restarts", "1", "sh", "-c", script);
    run_expect(&it, 0, "out 1\n");
    run_expect(&it, 0, "err 1\n");
    /* Rank 0's output is in files only; the report of its failure has it from there. */
    assert_int_equal(run_count(&it, "\nout 0\n"), 0);
    for (int attempt = 0; attempt < 2; attempt++)
        for (int r = 0; r < 2; r++) {
            snprintf(path, sizeof path, "%s/a/attempt_%d/%d/stdout.log", folder, attempt, r);
            snprintf(text, sizeof text, "out %d\n%s/a/attempt_%d\n", r, folder, attempt);
            expect_log(path, text);
            snprintf(path, sizeof path, "%s/a/attempt_%d/%d/stderr.log", folder, attempt, r);
            if (r == 0)
                expect_log(path, "err 0\n");
            else
                assert_int_not_equal(access(path, F_OK), 0);
        }
    RUN(&it, "--log-dir", "b/c", "--rdzv-id", "d", "--prefix", "sh", "-c",
        "echo both; echo e >&2; "
        "cd /; [ -d $TESSERA_FLIGHT_DIR ]");
    run_expect(&it, 0, "[0] both\n");
    run_expect(&it, 0, "[0] e\n");
    expect_log("b/c/d/attempt_0/0/stdout.log", "both\n");
    expect_log("b/c/d/attempt_0/0/stderr.log", "e\n");
    assert_int_equal(chdir("/"), 0);
    snprintf(text, sizeof text, "rm -r %s", folder);
    assert_int_equal(system(text), 0);
}

/* A rank that has made no world is dumped as one of the same attempt as the others. */
static void test_flight_of_restart(void **state)
{
    char folder[] = "/tmp/tessera-flights-XXXXXX", command[128];
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("TESSERA_FLIGHT_DIR", folder, 1);
    RUN(&it, "-n", "2", "--max-restarts", "1", "--timeout", "30", "sh", "-c",
        "[ $TESSERA_RESTART_COUNT = 0 ] && exit 3; [ $RANK = 1 ] && kill -9 $$; exec $0",
        run_child);
    unsetenv("TESSERA_FLIGHT_DIR");
    assert_int_equal(it.code, 137);
    for (int r = 0; r < 2; r++) {
        snprintf(command, sizeof command, "grep -qx 'restart 1' %s/flight.rank%d.txt", folder, r);
        assert_int_equal(system(command), 0);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_filter(void **state)
{
    (void)state;
    RUN(&it, "-n", "3", "--local_ranks_filter", "0,2", "sh", "-c",
        "echo out $RANK; echo err $RANK >&2");
    for (int r = 0; r < 3; r++) {
        char text[16];
        snprintf(text, sizeof text, "out %d\n", r);
        assert_int_equal(run_count(&it, text), r != 1);
        snprintf(text, sizeof text, "err %d\n", r);
        assert_int_equal(run_count(&it, text), r != 1);
    }
    RUN(&it, "-n", "2", "--local-ranks-filter", "0", "sh", "-c",
        "[ $RANK = 1 ] && { echo quiet; exit 3; }; sleep 60");
    run_expect(&it, 3, "the last lines of rank 1's stdout:\n  | quiet\n");
}

static void test_report(void **state)
{
    (void)state;
    RUN(&it, "-n", "3", "sh", "-c",
        "[ $RANK = 1 ] || exec sleep 60; i=0; while [ $i -lt 30 ]; do echo line $i >&2; "
        "i=$((i + 1)); done; printf 'no end' >&2; kill -ABRT $$");
    run_expect(&it, 134, "tessera launch: rank 1 was killed by signal 6 (SIGABRT); stopping");
    run_expect(&it, 134, "the last lines of rank 1's stderr:\n  | line 11\n  | line 12\n");
    run_expect(&it, 134, "  | line 29\n  | no end\n");
    assert_int_equal(run_count(&it, "  | "), 20);
    RUN(&it, "-n", "1", "sh", "-c", "echo once >&2; exit 3");
    run_expect(&it, 3, "rank 0 exited with code 3");
    assert_int_equal(run_count(&it, "once"), 1);
    /* Too much for a report: its end is what counts. */
    RUN(&it, "-n", "2", "sh", "-c",
        "[ $RANK = 1 ] || exec sleep 60; for i in 1 2 3; do printf \"$i%09000dx\\n\" 0 >&2; done; "
        "echo the error >&2; exit 3");
    run_expect(&it, 3, "\n  | 3000");
    run_expect(&it, 3, "000x\n  | the error\n");
    assert_int_equal(run_count(&it, "  | "), 2);
    static const char *const ends[] = {"\n", ""};
    for (int i = 0; i < 2; i++) {
        RUN(&it, "-n", "2", "sh", "-c",
            "[ $RANK = 1 ] || exec sleep 60; printf \"%040000dx$0\" 0 >&2; exit 3", ends[i]);
        run_expect(&it, 3, "the last lines of rank 1's stderr:\n  | 000");
        assert_int_equal(run_count(&it, "  | "), 1);
        assert_string_equal(it.text + it.used - 5, "000x\n");
    }
    /* Who gave up, not who heard of it first. */
    for (int i = 0; i < 3; i++) {
        RUN(&it, "-n", "3", run_child, "give_up");
        run_expect(&it, 5, "tessera launch: rank 2 exited with code 5");
    }
}

static void test_signal_timeout(void **state)
{
    static const char stubborn[] =
        "[ $RANK = 1 ] && { sleep 0.2; kill -9 $$; }; trap '' TERM; echo pid $$.; "
        "while :; do sleep 1; done";
    (void)state;
    RUN(&it, "-n", "2", "sh", "-c", stubborn);
    assert_int_equal(it.code, 137);
    assert_true(it.seconds > 1 && it.seconds < 24); /* 0.2 s, and 1 */
    run_expect_gone(&it);
    RUN(&it, "-n", "2", "--signal-timeout", "2.5", "sh", "-c", stubborn);
    assert_int_equal(it.code, 137);
    assert_true(it.seconds > 2.5 && it.seconds < 36);
    run_expect_gone(&it);
}

/* What a rank has started does not outlive the run, whether another rank fails or all end well. */
static void test_left_behind(void **state)
{
    (void)state;
    RUN(&it, "-n", "2", "sh", "-c",
        "sleep 50 & echo pid $!.; [ $RANK = 0 ] && exit 0; sleep 0.3; exit 3");
    run_expect(&it, 3, "rank 1 exited with code 3");
    run_expect_gone(&it);
    RUN(&it, "-n", "2", "sh", "-c", "sleep 50 >/dev/null 2>&1 & echo pid $!.");
    assert_int_equal(it.code, 0);
    assert_int_equal(run_count(&it, "pid "), 2);
    run_expect(&it, 0, "stopping what rank 0 has left running");
    run_expect_gone(&it);
}

static void test_pin(void **state)
{
    static const char script[] = "echo $(grep Cpus_allowed_list /proc/self/status).";
    char one[64];
    (void)state;
    setenv("OMP_NUM_THREADS", "1", 1);
    if (cores() < 2)
        skip();
    RUN(&it, "-n", "2", "--pin", "none", "sh", "-c", script);
    assert_int_equal(it.code, 0);
    const char *all = strstr(it.text, "Cpus_allowed_list");
    snprintf(one, sizeof one, "%.*s", (int)strcspn(all, "\n"), all);
    assert_int_equal(run_count(&it, one), 2);
    RUN(&it, "-n", "2", "sh", "-c", script);
    assert_int_equal(run_count(&it, one), 0); /* each has its half */
    all = strstr(it.text, "Cpus_allowed_list");
    char mine[64];
    snprintf(mine, sizeof mine, "%.*s", (int)strcspn(all, "\n"), all);
    assert_int_equal(run_count(&it, mine), 1);
    RUN(&it, "-n", "1", "sh", "-c", script);
    assert_int_equal(run_count(&it, one), 1);
    if (cores() < 256) {
        char more[16];
        snprintf(more, sizeof more, "%d", cores() + 1);
        RUN(&it, "-n", more, "--pin", "core", "true");
        run_expect(&it, 2, "--pin core needs a core for each of the ");
    }
    setenv("OMP_NUM_THREADS", "4096", 1); /* more threads than cores: they go where they like */
    RUN(&it, "-n", "2", "sh", "-c", script);
    assert_int_equal(run_count(&it, one), 2);
    setenv("OMP_NUM_THREADS", "1", 1);
}

/* Its master, or -1 if there is none to be had. */
static int open_terminal(int *terminal)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[128];
    if (master < 0 || grantpt(master) || unlockpt(master) || ptsname_r(master, name, sizeof name))
        return -1;
    *terminal = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(*terminal >= 0);
    return master;
}

/* Nobody reads what the ranks write: the launcher does its work all the same. */
static void test_nobody_reads(void **state)
{
    const char *const args[] = {"-n", "2",  "--prefix",
                                "sh", "-c", "[ $RANK = 0 ] && exec yes; sleep 0.5; kill -9 $$",
                                NULL};
    (void)state;
    run_begin(&it, args);
    double start = run_now_s();
    int status = 0;
    while (waitpid(it.pid, &status, WNOHANG) == 0 && run_now_s() - start < 20)
        usleep(20000);
    close(it.from);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 137);
    /* The reader goes away: so do the ranks, by the signal that they would get without us. */
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    RUN(&it, "sh", "-c", "$0 launch --prefix yes | head -n 2", run_tessera);
    run_expect(&it, 0, "[0] y\n");
    close(fds[0]);
    close(fds[1]);
}

/* Nor at a terminal, which says that there is room where a write would wait. */
static void test_nobody_reads_terminal(void **state)
{
    (void)state;
    int status = 0, terminal, master = open_terminal(&terminal);
    if (master < 0)
        skip();
    pid_t pid = fork();
    if (pid == 0) {
        dup2(terminal, 1);
        dup2(terminal, 2);
        execl(run_tessera, run_tessera, "launch", "-n", "2", "--prefix", "sh", "-c",
              "[ $RANK = 0 ] && exec yes; sleep 0.5; kill -9 $$", (char *)NULL);
        _exit(99);
    }
    double start = run_now_s();
    while (waitpid(pid, &status, WNOHANG) == 0 && run_now_s() - start < 20)
        usleep(20000);
    close(terminal);
    close(master); /* who still writes there is ended by that */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 137);
}

/* `stty tostop`: ranks, which are not in the foreground, write all the same. */
static void test_tostop(void **state)
{
    (void)state;
    struct termios t;
    char text[512] = "";
    int status = 0, terminal, master = open_terminal(&terminal);
    if (master < 0)
        skip();
    assert_int_equal(tcgetattr(terminal, &t), 0);
    t.c_lflag |= TOSTOP;
    assert_int_equal(tcsetattr(terminal, TCSANOW, &t), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        ioctl(terminal, TIOCSCTTY, 0);
        dup2(terminal, 1);
        dup2(terminal, 2);
        execl(run_tessera, run_tessera, "launch", "-n", "1", "echo", "x", (char *)NULL);
        _exit(99);
    }
    double start = run_now_s();
    while (waitpid(pid, &status, WNOHANG) == 0 && run_now_s() - start < 20)
        usleep(20000);
    assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
    bool said = read(master, text, sizeof text - 1) > 0;
    close(terminal);
    close(master); /* which ends who is stopped there */
    assert_true(said && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_string_equal(text, "x\r\n");
}

/* Nor does it take a reader who is slow for one who is gone: this one reads nothing before the
 * second attempt has begun, and then all of it. */
static void test_slow_reader(void **state)
{
    char folder[] = "/tmp/tessera-slow-XXXXXX", path[64];
    const char *const args[] = {
        "-n",
        "2",
        "--prefix",
        "--max-restarts",
        "1",
        "sh",
        "-c",
        "cd $0; [ $TESSERA_RESTART_COUNT = 1 ] && { touch again; echo second $RANK.; exit 0; }; "
        "[ $RANK = 0 ] && exec yes; sleep 1; echo woe >&2; exit 3",
        folder,
        NULL};
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/again", folder);
    run_begin(&it, args);
    for (int i = 0; i < 3000 && access(path, F_OK); i++)
        usleep(10000);
    assert_int_equal(access(path, F_OK), 0);
    run_end(&it);
    run_expect(&it, 0, "rank 1 exited with code 3; stopping the others\n");
    run_expect(&it, 0, "the last lines of rank 1's stderr:\n  | woe\n");
    run_expect(&it, 0, "[0] second 0.\n");
    run_expect(&it, 0, "[1] second 1.\n");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* At a terminal, the ranks' stderr is one of its size, and no rank reads from it. */
static void test_terminal(void **state)
{
    (void)state;
    char text[512] = "";
    int terminal, master = open_terminal(&terminal);
    if (master < 0)
        skip();
    const struct winsize size = {.ws_row = 33, .ws_col = 77};
    assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(terminal, 0);
        dup2(terminal, 1);
        dup2(terminal, 2);
        execl(run_tessera, run_tessera, "launch", "-n", "1", "sh", "-c",
              "[ ! -t 0 ] && [ -t 1 ] && [ -t 2 ] && "
              "printf 'a terminal of %s\\n' \"$(stty size <&2)\" >&2",
              (char *)NULL);
        _exit(99);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(fcntl(master, F_SETFL, O_NONBLOCK), 0);
    assert_true(read(master, text, sizeof text - 1) > 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 ||
        strcmp(text, "a terminal of 33 77\r\n") != 0)
        fail_msg("%d: %s", status, text);
    close(terminal);
    close(master);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s TESSERA LAUNCH_CHILD\n", argv[0]);
        return 2;
    }
    static char paths[2][4096];
    if (!realpath(argv[1], paths[0]) || !realpath(argv[2], paths[1]))
        return 2;
    run_tessera = paths[0]; /* a test changes the folder */
    run_child = paths[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_number_of_ranks),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_flight_of_restart),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_signal_timeout),
        cmocka_unit_test(test_left_behind),
        cmocka_unit_test(test_pin),
        cmocka_unit_test(test_nobody_reads),
        cmocka_unit_test(test_nobody_reads_terminal),
        cmocka_unit_test(test_tostop),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_terminal),
    };
    return cmocka_run_group_tests_name("launch_options", tests, NULL, NULL);
}
